//! `docs/commands.md`, which is generated from the definitions only.

use std::fmt::Write;
use std::path::Path;

use super::{TABLE, help};
use crate::command::{Command, Group};

/// The chapters, in the order of the manual.
const CHAPTERS: &[(Group, &str)] = &[
    (Group::String, "Strings"),
    (Group::Hash, "Hashes"),
    (Group::List, "Lists"),
    (Group::Set, "Sets"),
    (Group::SortedSet, "Sorted sets"),
    (Group::Geo, "Places"),
    (Group::Bitmap, "Bits"),
    (Group::Generic, "Keys"),
    (Group::Transactions, "Transactions"),
    (Group::PubSub, "Channels"),
    (Group::Connection, "Connections"),
    (Group::Server, "Server"),
    (Group::Scripting, "Scripts and functions"),
];

const HEAD: &str = "# Commands

Names, arguments, replies and errors are those of Redis 7.0, but for the
[differences](coming-from-redis.md). Any other command gets Redis' error for an unknown one.
`COMMAND DOCS` returns the content of this page, which is generated from the source:
`MNEME_WRITE_DOCS=1 cargo test -p mneme-server --lib listing`.

A key has at most 65,535 bytes. A longer one is absent, and a command that would store something
under it gets an error.
";

fn page() -> String {
    let mut page = HEAD.to_owned();
    for (group, title) in CHAPTERS {
        // Writing to a string does not fail.
        let _ = write!(
            page,
            "\n## {title}\n\n| command | what it does | cost |\n|---|---|---|\n"
        );
        for command in TABLE
            .commands()
            .iter()
            .filter(|command| command.group == *group)
        {
            row(&mut page, command);
            command
                .subcommands
                .iter()
                .for_each(|subcommand| row(&mut page, subcommand));
        }
    }
    page
}

fn row(page: &mut String, command: &Command) {
    if !command.subcommands.is_empty() {
        return;
    }
    let name = command.name.to_ascii_uppercase().replace('|', " ");
    let arguments = command.arguments.iter().map(help::usage);
    let syntax: Vec<String> = std::iter::once(name).chain(arguments).collect();
    let syntax = syntax.join(" ").replace('|', "\\|");
    let _ = writeln!(
        page,
        "| `{syntax}` | {} | {} |",
        command.summary, command.complexity
    );
}

#[test]
fn the_page_of_commands_is_the_source() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("MNEME_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/commands.md is out of date: MNEME_WRITE_DOCS=1 cargo test -p mneme-server --lib listing"
    );
}

#[test]
fn every_command_has_a_chapter() {
    for command in TABLE.commands() {
        assert!(
            CHAPTERS.iter().any(|(group, _)| *group == command.group),
            "{}",
            command.name
        );
    }
}
