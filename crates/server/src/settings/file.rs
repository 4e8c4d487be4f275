//! The configuration as a TOML file: read at the start, written anew by `CONFIG REWRITE` with its comments kept, printed
//! by `mneme serve --print-config`; and as `docs/configuration.md`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use toml_edit::{DocumentMut, Item, Value as Toml};

use super::{Changes, Key, Kind, Refused, SETTINGS, Setting, Settings, Source};

/// Why a configuration file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
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
    /// A value is of the wrong type or out of range.
    #[error("{}: {name} = {value}: {}", path.display(), in_words(name, reason))]
    Value {
        /// Which file.
        path: PathBuf,
        /// The setting.
        name: &'static str,
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
    Read(#[from] FileError),
    /// The system refuses.
    #[error("Rewriting config file: cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

fn open(path: &Path) -> Result<DocumentMut, FileError> {
    let text = std::fs::read_to_string(path).map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })?;
    text.parse().map_err(|source| FileError::Syntax {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

impl Settings {
    /// Takes what the file at `path` says, except where the environment or a flag says otherwise, and remembers the file.
    ///
    /// # Errors
    /// The file cannot be read, or something in it makes no sense.
    pub fn read(&mut self, path: &Path) -> Result<(), FileError> {
        for (name, item) in open(path)?.iter() {
            let setting = Setting::named(name.as_bytes()).ok_or_else(|| FileError::Unknown {
                path: path.to_owned(),
                name: name.to_owned(),
            })?;
            let refused = |reason| FileError::Value {
                path: path.to_owned(),
                name: setting.name,
                value: item.to_string().trim().to_owned(),
                reason,
            };
            let wrong_type = || match setting.kind.parse("\0") {
                Err(reason) => refused(reason),
                Ok(_) => refused(Refused::NotANumber),
            };
            let text = text(item).ok_or_else(wrong_type)?;
            self.say(setting.key, &text, Source::File)
                .map_err(refused)?;
        }
        self.file = Some(path.to_owned());
        Ok(())
    }

    /// Makes the file that was read say what is set now. Its comments, and the order and looks of what does not change, are
    /// kept; what it did not name is added where it is not the default; what the server before has left
    /// ([`Source::Inherited`]) is not written. The old file is replaced at one instant.
    ///
    /// # Errors
    /// It cannot be read or written, or is no longer TOML; it is then as it was.
    pub fn rewrite(&self) -> Result<(), RewriteError> {
        let path = self.file.as_deref().ok_or(RewriteError::NoFile)?;
        let mut document = open(path)?;
        for setting in SETTINGS.iter().filter(|one| !self.is_inherited(one.key)) {
            let now = self.value(setting.key);
            let name = document
                .iter()
                .map(|(name, _)| name.to_owned())
                .find(|name| name.eq_ignore_ascii_case(setting.name));
            match name.and_then(|name| document.get_mut(&name)) {
                Some(item) => {
                    let written = text(item).map(|text| setting.kind.parse(&text));
                    if written == Some(Ok(now)) {
                        continue;
                    }
                    let mut value = self.toml(setting);
                    if let Some(old) = item.as_value() {
                        *value.decor_mut() = old.decor().clone();
                    }
                    *item = Item::Value(value);
                }
                None if setting.kind.parse(setting.default) != Ok(now) => {
                    document.insert(setting.name, Item::Value(self.toml(setting)));
                    if let Some(mut key) = document.key_mut(setting.name) {
                        key.leaf_decor_mut().set_prefix(comment(setting.doc));
                    }
                }
                None => {}
            }
        }
        let failed = |source| RewriteError::Write {
            path: path.to_owned(),
            source,
        };
        // A link stays one: what it leads to is replaced.
        let target = std::fs::canonicalize(path).map_err(failed)?;
        // Nobody else's: created here, and readable by its owner alone until it is as the old one was.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // SYNC: pairs with nothing: no two calls get the same number.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let fresh = target.with_extension(format!("toml.{}-{count}", std::process::id()));
        let replace = || {
            let mut file = std::fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&fresh)?;
            file.write_all(document.to_string().as_bytes())?;
            file.set_permissions(std::fs::metadata(&target)?.permissions())?;
            file.sync_all()?;
            std::fs::rename(&fresh, &target)
        };
        replace().map_err(|error| {
            // What was not written whole is of no use; if it cannot be removed, it is in nobody's way.
            let _ = std::fs::remove_file(&fresh);
            failed(error)
        })
    }

    /// All settings as a file that would set them, each with what it means. `note` says more of a value, if there is
    /// more to say. Passwords are not shown.
    pub fn print(&self, note: impl Fn(Key) -> Option<String>) -> String {
        let mut text = String::new();
        for setting in SETTINGS {
            text.push_str(&comment(setting.doc));
            // Writing to a `String` does not fail.
            let _ = writeln!(text, "# Takes {}. {}.", setting.range(), when(setting));
            if let Some(note) = note(setting.key) {
                text.push_str(&comment(&note));
            }
            let line = match (setting.kind, self.is(setting.key)) {
                (Kind::Secret, true) => format!("# {} is set, and not shown.\n", setting.name),
                _ => format!("{} = {}\n", setting.name, self.toml(setting)),
            };
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn toml(&self, setting: &Setting) -> Toml {
        let value = self.value(setting.key);
        match setting.kind {
            Kind::Flag => (value.number != 0).into(),
            Kind::Number { .. } | Kind::Size { .. } | Kind::Capacity { .. } => value.number.into(),
            Kind::Addresses => Toml::Array(value.text.split_whitespace().collect()),
            kind => value.show(kind).into(),
        }
    }
}

/// A TOML value as the words of a flag.
fn text(item: &Item) -> Option<String> {
    match item.as_value()? {
        Toml::String(text) => Some(text.value().clone()),
        Toml::Integer(number) => Some(number.value().to_string()),
        Toml::Boolean(flag) => Some(if *flag.value() { "yes" } else { "no" }.to_owned()),
        Toml::Array(words) => {
            let words: Option<Vec<_>> = words.iter().map(Toml::as_str).collect();
            Some(words?.join(" "))
        }
        _ => None,
    }
}

/// Lines of a comment.
fn comment(text: &str) -> String {
    text.lines()
        .map(|line| format!("# {}\n", line.trim()))
        .collect()
}

fn when(setting: &Setting) -> &'static str {
    match setting.changes {
        Changes::AtStart => "Set at the start",
        Changes::Live => "Changes at any time",
    }
}

/// `docs/configuration.md`.
#[cfg(test)]
pub(super) fn documentation() -> String {
    let mut text = String::from(
        "# Configuration\n\nWritten from the server's own table (`crates/server/src/settings`); a test keeps the two \
         equal.\n\nEvery setting has one name, Redis' where Redis has it, and four ways to be set. The first of these \
         that says something counts:\n\n1. a flag, `mneme serve --NAME VALUE`;\n2. the environment, \
         `MNEME_NAME=VALUE`, with `_` for `-`;\n3. the file that `mneme serve --config FILE` (or `MNEME_CONFIG`) \
         names: TOML, `name = value`;\n4. the default.\n\n`mneme serve --print-config` prints what is effective, as such \
         a file. `CONFIG GET` shows it, `CONFIG SET` changes what changes at any time, several settings at once or \
         none of them, and `CONFIG REWRITE` makes the file say what is set, its comments kept. A value that is refused is \
         refused with its name and its range.\n\n`maxmemory` is the memory of the whole store, not of the values in it. \
         `CONFIG SET maxmemory` makes it grow, as far as it was made for: a segment to four times what it was made \
         with, or the machine's memory; memory of the server's own (`--private`) the same. A store does not shrink: less than it has is refused, and \
         0 leaves it as it is. `maxmemory-policy` is the store's, and stays with a segment when the server ends: a \
         server that is started without naming one takes what it finds.\n\n\
         `CONFIG REWRITE` writes what came from flags and the environment too, the password among them; the file keeps \
         its permissions.\n\n",
    );
    text.push_str("| name | takes | default | changes | means |\n|---|---|---|---|---|\n");
    for setting in SETTINGS {
        let doc = setting.doc.lines().map(str::trim).collect::<Vec<_>>();
        let alias = setting
            .alias
            .map_or(String::new(), |alias| format!(" (`{alias}`)"));
        let default = match setting.default {
            "" => "empty".to_owned(),
            default => format!("`{default}`"),
        };
        let _ = writeln!(
            text,
            "| `{}`{alias} | {} | {default} | {} | {} |",
            setting.name,
            setting.range(),
            match setting.changes {
                Changes::AtStart => "at the start",
                Changes::Live => "at any time",
            },
            doc.join(" "),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Temporary(PathBuf);

    impl Temporary {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("mneme-settings-{}-{name}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            Self(path)
        }

        fn text(&self) -> String {
            std::fs::read_to_string(&self.0).unwrap()
        }
    }

    impl Drop for Temporary {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_rewritten_file_keeps_its_words_and_says_what_is_set() {
        let words =
            "# Ours.\nport = 7000 # as agreed\n\nMaxClients = \"50\"\nprotected-mode = false\n";
        let file = Temporary::new("rewrite", words);
        let mut settings = Settings::default();
        settings.read(&file.0).unwrap();
        settings.rewrite().unwrap();
        assert_eq!(file.text(), words, "nothing has changed");

        settings.put(Key::MaxClients, Kind::Text.parse("").unwrap());
        settings.say(Key::MaxClients, "60", Source::Said).unwrap();
        settings.say(Key::Save, "", Source::Said).unwrap();
        settings
            .say(Key::Password, "se\"cret", Source::Said)
            .unwrap();
        settings.say(Key::Bind, "::1 *", Source::Said).unwrap();
        settings.rewrite().unwrap();
        let text = file.text();
        assert!(
            text.starts_with("# Ours.\nport = 7000 # as agreed\n\nMaxClients = 60\n"),
            "{text}"
        );
        assert!(!text.contains("save"), "{text}");

        let mut again = Settings::default();
        again.read(&file.0).unwrap();
        for setting in SETTINGS {
            assert_eq!(
                again.value(setting.key),
                settings.value(setting.key),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        let settings = Settings::default();
        for (key, text) in [(Key::Port, "0"), (Key::SlowerThan, "-1"), (Key::Bind, "*")] {
            settings.say(key, text, Source::Said).unwrap();
        }
        settings.say(Key::Password, "hidden", Source::Said).unwrap();
        let printed = settings.print(|key| (key == Key::Port).then(|| "a note".to_owned()));
        assert!(!printed.contains("hidden") && printed.contains("# a note\nport = 0\n"));
        let file = Temporary::new("printed", &printed);
        let mut again = Settings::default();
        again.read(&file.0).unwrap();
        for setting in SETTINGS.iter().filter(|s| s.key != Key::Password) {
            assert_eq!(again.value(setting.key), settings.value(setting.key));
        }
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_with_name_value_and_range() {
        for (text, expected) in [
            (
                "port = 70000",
                "port = 70000: argument must be between 0 and 65535 inclusive",
            ),
            (
                "port = 1.5",
                "port = 1.5: argument couldn't be parsed into an integer; it takes a number from 0 to 65535",
            ),
            (
                "maxmemory = 5",
                "maxmemory = 5: argument must be 0, or between 67108864 and",
            ),
            ("save = \"900 1\"", "argument must be empty"),
            ("prot = 1", "there is no setting 'prot'"),
            ("port = ", "is not TOML"),
            (
                "maxmemory-policy = \"lru\"",
                "one of the following: volatile-lru",
            ),
        ] {
            let file = Temporary::new("nonsense", text);
            let error = Settings::default().read(&file.0).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
