//! `INFO [section ...]`: information about the server. Every field is accurate; fields that could
//! not be accurate are left out.

mod persistence;
mod sections;

pub(super) use persistence::last_save_s;

use std::fmt::Write as _;

use crate::command::*;
use crate::shared::Shared;

pub(super) static INFO: Command = Command {
    name: "info",
    summary: "Tells about the server and what it has done",
    since: "1.0.0",
    group: Group::Server,
    arity: -1,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Dangerous],
    tips: &[
        "nondeterministic_output",
        "request_policy:all_shards",
        "response_policy:special",
    ],
    arguments: &[Argument::new("section", Kind::String).optional().multiple()],
    run,
    ..Command::BLANK
};

/// A section's name, whether it is shown by default, and the function that writes it.
type Section = (&'static str, bool, fn(&Shared, &mut Fields) -> Outcome);

const SECTIONS: &[Section] = &[
    ("Server", true, sections::server),
    ("Clients", true, sections::clients),
    ("Memory", true, sections::memory),
    ("Segment", true, sections::segment),
    ("Persistence", true, persistence::persistence),
    ("Stats", true, sections::stats),
    ("Replication", true, sections::replication),
    ("CPU", true, sections::cpu),
    ("Modules", true, |_, _| Ok(())),
    ("Commandstats", false, sections::commandstats),
    ("Errorstats", true, sections::errorstats),
    ("Latencystats", false, sections::latencystats),
    ("Cluster", true, sections::cluster),
    ("Keyspace", true, sections::keyspace),
    ("Keytypes", false, sections::key_types),
];

fn run(call: &mut Call<'_>) -> Outcome {
    let asked = call.args.from(1);
    let names = |word: &str| {
        asked
            .iter()
            .any(|one| one.eq_ignore_ascii_case(word.as_bytes()))
    };
    let all = names("all") || names("everything");
    let default = asked.is_empty() || names("default");
    let mut text = String::new();
    for (name, is_default, write) in SECTIONS {
        // Redis has two names for this one.
        let is_named = names(name) || *name == "Modules" && names("module_list");
        if !(all || default && *is_default || is_named) {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {name}\r\n"));
        write(call.server, &mut Fields(&mut text))?;
    }
    call.reply.verbatim(&text);
    Ok(())
}

/// A section's lines.
struct Fields<'a>(&'a mut String);

impl Fields<'_> {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a `String` does not fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }
}
