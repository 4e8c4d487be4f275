//! The configuration as a TOML file. It is read at the start; `CONFIG REWRITE` writes it and keeps
//! its comments.

use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use toml_edit::{DocumentMut, Item, Value as Toml};

use super::{ConfigFileError, Key, Kind, RewriteError, SETTINGS, Setting, Settings, Source};

/// The line ending of a file, which the TOML parser does not preserve.
#[derive(Debug, Clone, Copy)]
enum Lines {
    Unix,
    Windows,
}

impl Lines {
    fn of(text: &str) -> Self {
        match text.lines().next() {
            Some(first) if text[first.len()..].starts_with("\r\n") => Lines::Windows,
            _ => Lines::Unix,
        }
    }

    /// The text with this line ending.
    fn end(self, text: String) -> String {
        match self {
            Lines::Unix => text,
            Lines::Windows => text.replace("\r\n", "\n").replace('\n', "\r\n"),
        }
    }
}

fn open(path: &Path) -> Result<(DocumentMut, Lines), ConfigFileError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    let document = text.parse().map_err(|source| ConfigFileError::Syntax {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
    Ok((document, Lines::of(&text)))
}

/// One line of a file: a setting, and its value in the notation of a command line flag.
fn said(
    path: &Path,
    name: &str,
    item: &Item,
) -> Result<(&'static Setting, String), ConfigFileError> {
    let setting = Setting::named(name.as_bytes()).ok_or_else(|| ConfigFileError::Unknown {
        path: path.to_owned(),
        name: name.to_owned(),
    })?;
    match text(item) {
        Ok(text) => Ok((setting, text)),
        Err(found) => Err(ConfigFileError::Type {
            path: path.to_owned(),
            name: name.to_owned(),
            value: shown(setting, item),
            found,
            takes: setting.range(),
        }),
    }
}

/// A value as an error message shows it.
fn shown(setting: &Setting, item: &Item) -> String {
    match setting.kind {
        Kind::Secret => "...".to_owned(),
        _ => item.to_string().trim().to_owned(),
    }
}

impl Settings {
    /// Sets what the file at `path` says, except settings that the environment or a flag has set,
    /// and remembers the path.
    ///
    /// # Errors
    /// If the file cannot be read, or has an error in it.
    pub fn read(&mut self, path: &Path) -> Result<(), ConfigFileError> {
        let mut seen: Vec<(Key, String)> = Vec::new();
        for (name, item) in open(path)?.0.iter() {
            let (setting, text) = said(path, name, item)?;
            if let Some((_, first)) = seen.iter().find(|(key, _)| *key == setting.key) {
                return Err(ConfigFileError::Twice {
                    path: path.to_owned(),
                    first: first.clone(),
                    second: name.to_owned(),
                });
            }
            seen.push((setting.key, name.to_owned()));
            let refused = |reason| ConfigFileError::Value {
                path: path.to_owned(),
                name: name.to_owned(),
                value: shown(setting, item),
                reason,
            };
            self.say(setting.key, &text, Source::File)
                .map_err(refused)?;
        }
        self.file = Some(path.to_owned());
        Ok(())
    }

    /// Writes the current settings to the file that was read. Its comments, its order, its line
    /// endings and the formatting of unchanged values are kept. Settings missing in it are added if
    /// they differ from the default; values that are valid for this run only ([`Source::Sockets`])
    /// are not written. The old file is replaced atomically. If a password is written, other users
    /// of the machine cannot read the file afterwards.
    ///
    /// # Errors
    /// If the file cannot be read or written, or is no longer TOML. It is then unchanged.
    pub fn rewrite(&self) -> Result<(), RewriteError> {
        let path = self.file.as_deref().ok_or(RewriteError::NoFile)?;
        let (mut document, lines) = open(path)?;
        let mut has_new_secret = false;
        for setting in SETTINGS.iter().filter(|one| !self.is_of_this_run(one.key)) {
            let now = self.value(setting.key);
            let is_it = |name: &&str| {
                Setting::named(name.as_bytes()).is_some_and(|other| other.key == setting.key)
            };
            let name = document.iter().map(|(name, _)| name).find(is_it);
            let name = name.map(str::to_owned);
            match name.and_then(|name| document.get_mut(&name)) {
                Some(item) => {
                    let written = text(item).map(|text| setting.kind.parse(&text));
                    if written == Ok(Ok(now)) {
                        continue;
                    }
                    has_new_secret |= matches!(setting.kind, Kind::Secret);
                    let mut value = self.toml(setting);
                    if let Some(old) = item.as_value() {
                        *value.decor_mut() = old.decor().clone();
                    }
                    *item = Item::Value(value);
                }
                None if setting.kind.parse(setting.default) != Ok(now) => {
                    has_new_secret |= matches!(setting.kind, Kind::Secret);
                    document.insert(setting.name, Item::Value(self.toml(setting)));
                    if let Some(mut key) = document.key_mut(setting.name) {
                        key.leaf_decor_mut().set_prefix(comment(setting.doc));
                    }
                }
                None => {}
            }
        }
        let text = lines.end(document.to_string());
        replace(path, text.as_bytes(), has_new_secret).map_err(|source| RewriteError::Write {
            path: path.to_owned(),
            source,
        })
    }

    pub(super) fn toml(&self, setting: &Setting) -> Toml {
        let value = self.value(setting.key);
        match setting.kind {
            Kind::Flag => (value.number != 0).into(),
            Kind::Number { .. } | Kind::Size { .. } | Kind::Capacity { .. } => value.number.into(),
            Kind::SizeOrPercent if value.number >= 0 => value.number.into(),
            Kind::Addresses => Toml::Array(value.text.split_whitespace().collect()),
            kind => value.show(kind).into(),
        }
    }
}

/// Atomically replaces the file at `path` by one with this text. If the text has a new secret, only
/// the owner may read it.
pub(crate) fn replace(path: &Path, text: &[u8], has_new_secret: bool) -> io::Result<()> {
    // If the path is a symbolic link, its target is replaced and the link stays.
    let target = std::fs::canonicalize(path)?;
    // Created here, under a name of its own, and readable only by the owner until it gets the
    // permissions of the old file.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // SYNC: pairs with nothing: the counter only has to give every call another number.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let fresh = target.with_extension(format!("toml.{}-{count}", std::process::id()));
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&fresh)?;
        file.write_all(text)?;
        let mut permissions = std::fs::metadata(&target)?.permissions();
        if has_new_secret {
            permissions.set_mode(permissions.mode() & !0o077);
        }
        file.set_permissions(permissions)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &target)
    };
    write().inspect_err(|_| {
        // Removes the incomplete file. If that fails, the file does no harm.
        let _ = std::fs::remove_file(&fresh);
    })
}

/// A TOML value in the notation of a command line flag, or the name of its type if no setting has
/// that type.
fn text(item: &Item) -> Result<String, &'static str> {
    match item.as_value() {
        Some(Toml::String(text)) => Ok(text.value().clone()),
        Some(Toml::Integer(number)) => Ok(number.value().to_string()),
        Some(Toml::Boolean(flag)) => Ok(if *flag.value() { "yes" } else { "no" }.to_owned()),
        Some(Toml::Array(words)) => {
            let words: Option<Vec<_>> = words.iter().map(Toml::as_str).collect();
            Ok(words.ok_or("a list of other things than texts")?.join(" "))
        }
        Some(Toml::Float(_)) => Err("a number with a fraction"),
        Some(Toml::Datetime(_)) => Err("a date"),
        Some(Toml::InlineTable(_)) | None => Err("a table"),
    }
}

/// Lines of a comment.
pub(super) fn comment(text: &str) -> String {
    text.lines()
        .map(|line| format!("# {}\n", line.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
    fn a_rewritten_file_keeps_its_text_and_has_the_new_values() {
        let words =
            "# Ours.\nport = 7000 # as agreed\n\nMaxClients = \"50\"\nprotected-mode = false\n";
        let file = Temporary::new("rewrite", words);
        let mut settings = Settings::default();
        settings.read(&file.0).unwrap();
        let mode = || std::fs::metadata(&file.0).unwrap().permissions().mode() & 0o777;
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o644)).unwrap();
        settings.rewrite().unwrap();
        assert_eq!(file.text(), words, "nothing has changed");
        assert_eq!(mode(), 0o644);

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
        assert_eq!(mode(), 0o600, "it has a password");

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
    fn a_file_that_names_aliases_keeps_them() {
        let file = Temporary::new("alias", "memory = \"1gb\"\nThreads = 2\n");
        let mut settings = Settings::default();
        settings.read(&file.0).unwrap();
        assert_eq!(settings.number(Key::MaxMemory), 1 << 30);
        assert_eq!(settings.number(Key::Threads), 2);
        settings.say(Key::MaxMemory, "2gb", Source::Said).unwrap();
        settings.rewrite().unwrap();
        assert_eq!(file.text(), "memory = 2147483648\nThreads = 2\n");
    }

    #[test]
    fn values_from_sockets_are_not_written() {
        let words = "port = 0\nbind = \"\"\n";
        let file = Temporary::new("sockets", words);
        let mut settings = Settings::default();
        settings.read(&file.0).unwrap();
        settings.say(Key::Port, "7001", Source::Sockets).unwrap();
        settings.rewrite().unwrap();
        assert_eq!(file.text(), words);
        assert_eq!(settings.number(Key::Port), 7001);
    }

    #[test]
    fn the_ends_of_lines_are_kept() {
        let file = Temporary::new(
            "lines",
            "# Ours.\r\nport = 7000 # here\r\n\r\ntimeout = 1\r\n",
        );
        let mut settings = Settings::default();
        settings.read(&file.0).unwrap();
        settings.say(Key::Timeout, "2", Source::Said).unwrap();
        settings.say(Key::MaxClients, "7", Source::Said).unwrap();
        settings.rewrite().unwrap();
        let text = file.text();
        assert!(
            text.starts_with("# Ours.\r\nport = 7000 # here\r\n\r\ntimeout = 2\r\n"),
            "{text:?}"
        );
        assert!(text.ends_with("maxclients = 7\r\n"), "{text:?}");
        assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
        Settings::default().read(&file.0).unwrap();
    }

    #[test]
    fn printed_settings_can_be_read_back() {
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
                "port = 1.5: a number with a fraction; it takes a number from 0 to 65535",
            ),
            (
                "bind = [1]",
                "bind = [1]: a list of other things than texts; it takes addresses",
            ),
            ("[segment]", "a table; it takes a text"),
            ("requirepass = 1.5", "requirepass = ...: a number"),
            (
                "port = 1\nmemory = \"1gb\"\nMaxMemory = \"1gb\"",
                "'memory' and 'MaxMemory' are one setting",
            ),
            ("port = 1\nPort = 2", "'port' and 'Port' are one setting"),
            (
                "maxmemory = 5",
                "maxmemory = 5: argument must be 0, or between 67108864 and",
            ),
            ("save = \"900\"", "Invalid save parameters"),
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
