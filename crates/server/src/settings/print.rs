//! The configuration as text for people: a file with comments (`mneme serve --print-config`), and `docs/configuration.md`.

use std::fmt::Write as _;

use super::file::comment;
use super::{Changes, Key, Kind, SETTINGS, Setting, Settings};

impl Settings {
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
         equal.\n\nEvery setting has one name, Redis' where Redis has it, a few have a second one (in brackets below) that does wherever the first does, and all have four ways to be set. The first of these \
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
