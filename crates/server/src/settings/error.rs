//! Why a configuration file is not taken, or not written.

use std::io;
use std::path::PathBuf;

use super::{Refused, Setting};

/// Why a configuration file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is not TOML.
    #[error("{} is not TOML: {source}", path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where, and what is wrong.
        source: Box<toml_edit::TomlError>,
    },
    /// There is no such setting.
    #[error("{}: there is no setting '{name}'; `mneme serve --print-config` shows all", path.display())]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// What it names.
        name: String,
    },
    /// One setting stands there twice, under two spellings of its name or by its two names.
    #[error("{}: '{first}' and '{second}' are one setting: leave one of them out", path.display())]
    Twice {
        /// Which file.
        path: PathBuf,
        /// The name that comes first.
        first: String,
        /// The other one.
        second: String,
    },
    /// A value is of a type that no setting has.
    #[error("{}: {name} = {value}: {found}; it takes {takes}", path.display())]
    Type {
        /// Which file.
        path: PathBuf,
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// What it is.
        found: &'static str,
        /// What it might be.
        takes: String,
    },
    /// A value is no value of this setting, or out of range.
    #[error("{}: {name} = {value}: {}", path.display(), in_words(name, reason))]
    Value {
        /// Which file.
        path: PathBuf,
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// Why it is refused.
        reason: Refused,
    },
}

fn in_words(name: &str, reason: &Refused) -> String {
    match Setting::named(name.as_bytes()) {
        Some(setting) => setting.refusal(reason),
        None => reason.to_string(),
    }
}

/// Why a configuration file was not written.
#[derive(Debug, thiserror::Error)]
pub enum RewriteError {
    /// No file was read.
    #[error("The server is running without a config file")]
    NoFile,
    /// What is there is not what was read.
    #[error("Rewriting config file: {0}")]
    Read(#[from] ConfigFileError),
    /// The system refuses.
    #[error("Rewriting config file: cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
