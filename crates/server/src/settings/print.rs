//! The configuration as text for people: a commented file (`mneme serve --print-config`), and
//! `docs/configuration.md`.

use std::fmt::Write as _;

use super::file::comment;
use super::{Changes, Key, Kind, SETTINGS, Setting, Settings};

impl Settings {
    /// All settings as a configuration file that sets them to their current values, each with its
    /// documentation. `note` may add a remark on a value. Passwords are not shown.
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
}

fn when(setting: &Setting) -> &'static str {
    match setting.changes {
        Changes::AtStart => "Set at the start",
        Changes::Live => "Changes at any time",
    }
}

/// The beginning of `docs/configuration.md`.
#[cfg(test)]
const HEAD: &str = "# Configuration

This page is generated from the server's own table (`crates/server/src/settings`); a test keeps the
two equal.

Every setting has one name, which is Redis' where Redis has it. A few have an alias (in brackets
below), which can be used wherever the name can. A setting can be set in four ways; the first of
these that sets it counts:

1. a flag, `mneme serve --NAME VALUE`;
2. the environment, `MNEME_NAME=VALUE`, with `_` for `-`;
3. the file that `mneme serve --config FILE` (or `MNEME_CONFIG`) names: TOML, `name = value`;
4. the default.

`mneme serve --print-config` prints the effective configuration as such a file. `CONFIG GET` shows
it. `CONFIG SET` changes the settings marked \"at any time\", all of one command or none of them.
`CONFIG REWRITE` writes the current values to the file and keeps its comments and its permissions;
it also writes what came from flags and the environment, the password among them. A file that gets a
password becomes readable by its owner alone. A refused value is reported with its name and its
range.

`maxmemory` is the memory of the whole store, not only of the values in it. `CONFIG SET maxmemory`
makes the store grow, at most to what it was made for: a segment to four times its first size, or to
the machine's memory, and so does memory of the server's own (`--private`). A store does not shrink:
less than its present size is refused, and 0 changes nothing. `maxmemory-policy` belongs to the
store, and stays with a segment when the server ends: a server that is started without one keeps it.

";

/// `docs/configuration.md`.
#[cfg(test)]
pub(super) fn documentation() -> String {
    let mut text = HEAD.to_owned();
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
