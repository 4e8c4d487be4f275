//! Errors of reading and of writing a configuration file.

use std::io;
use std::path::PathBuf;

use super::{Refused, Setting};

/// Why a configuration file was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFileError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not TOML: {source}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The place and the error.
        source: Box<toml_edit::TomlError>,
    },
    /// The file names a setting that does not exist.
    #[error("{}: there is no setting '{name}'; `mneme serve --print-config` shows all", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name in the file.
        name: String,
    },
    /// One setting is given twice, in two spellings of its name or by its name and its alias.
    #[error("{}: '{first}' and '{second}' are one setting: leave one of them out", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The name that comes first.
        first: String,
        /// The other one.
        second: String,
    },
    /// A value has a type that no setting has.
    #[error("{}: {name} = {value}: {found}; it takes {takes}", path.display())]
    Type {
        /// The file.
        path: PathBuf,
        /// The setting.
        name: String,
        /// The value.
        value: String,
        /// The type of the value.
        found: &'static str,
        /// The types that the setting takes.
        takes: String,
    },
    /// A value is not valid for this setting, or is out of range.
    #[error("{}: {name} = {value}: {}", path.display(), in_words(name, reason))]
    Value {
        /// The file.
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
#[non_exhaustive]
pub enum RewriteError {
    /// The server was started without a file.
    #[error("The server is running without a config file")]
    NoFile,
    /// The file has become invalid since it was read.
    #[error("Rewriting config file: {0}")]
    Read(#[from] ConfigFileError),
    /// The file cannot be written.
    #[error("Rewriting config file: cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}
