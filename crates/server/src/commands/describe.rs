//! Writes a command's definition for `COMMAND INFO` and `COMMAND DOCS`.

use crate::resp::Reply;

use crate::command::{Argument, Command, Kind};
use crate::command::{Begin, Find, KeySpec};

/// The ten fields of `COMMAND INFO`.
pub(super) fn info(reply: &mut Reply<'_>, command: &Command) {
    let (first, last, step) = KeySpec::legacy(command.keys);
    let categories: Vec<_> = command.acl_categories().collect();
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    reply.set(command.flags.len());
    for flag in command.flags {
        reply.simple(flag.name());
    }
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    reply.set(categories.len());
    for category in categories {
        reply.simple(&format!("@{}", category.name()));
    }
    reply.set(command.tips.len());
    for tip in command.tips {
        reply.bulk(tip.as_bytes());
    }
    reply.set(command.keys.len());
    for spec in command.keys {
        key_spec(reply, spec);
    }
    // As in Redis: an empty set, but encoded as an array.
    match command.subcommands.len() {
        0 => reply.set(0),
        count => reply.array(count),
    }
    for subcommand in command.subcommands {
        info(reply, subcommand);
    }
}

fn key_spec(reply: &mut Reply<'_>, spec: &KeySpec) {
    reply.map(3 + usize::from(spec.notes.is_some()));
    if let Some(notes) = spec.notes {
        text(reply, "notes", notes);
    }
    reply.bulk(b"flags");
    reply.set(spec.flags.len());
    for flag in spec.flags {
        reply.simple(flag.name());
    }
    reply.bulk(b"begin_search");
    match spec.begin {
        Begin::Index(index) => {
            rule(reply, "index", 1);
            number(reply, "index", index as i64);
        }
        Begin::Keyword(word, from) => {
            rule(reply, "keyword", 2);
            text(reply, "keyword", word);
            number(reply, "startfrom", from as i64);
        }
    }
    reply.bulk(b"find_keys");
    match spec.find {
        Find::Range { last, step, limit } => {
            rule(reply, "range", 3);
            number(reply, "lastkey", i64::from(last));
            number(reply, "keystep", step as i64);
            number(reply, "limit", limit as i64);
        }
        Find::Count { count, first, step } => {
            rule(reply, "keynum", 3);
            number(reply, "keynumidx", count as i64);
            number(reply, "firstkey", first as i64);
            number(reply, "keystep", step as i64);
        }
    }
}

/// A rule's type, and the header of its `fields` parameters.
fn rule(reply: &mut Reply<'_>, kind: &str, fields: usize) {
    reply.map(2);
    text(reply, "type", kind);
    reply.bulk(b"spec");
    reply.map(fields);
}

/// The documentation of a command as `COMMAND DOCS` shows it.
pub(super) fn docs(reply: &mut Reply<'_>, command: &Command) {
    let has_arguments = !command.arguments.is_empty();
    let has_subcommands = !command.subcommands.is_empty();
    reply.map(4 + usize::from(has_arguments) + usize::from(has_subcommands));
    text(reply, "summary", command.summary);
    text(reply, "since", command.since);
    text(reply, "group", command.group.name());
    text(reply, "complexity", command.complexity);
    if has_arguments {
        reply.bulk(b"arguments");
        arguments(reply, command.arguments);
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        for subcommand in command.subcommands {
            reply.bulk(subcommand.name.as_bytes());
            docs(reply, subcommand);
        }
    }
}

fn arguments(reply: &mut Reply<'_>, all: &[Argument]) {
    reply.array(all.len());
    for argument in all {
        let flags = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ];
        let flags = || {
            flags
                .iter()
                .filter(|(holds, _)| *holds)
                .map(|(_, name)| *name)
        };
        let is_key = argument.kind == Kind::Key;
        let fields = [
            is_key,
            argument.token.is_some(),
            argument.since.is_some(),
            flags().next().is_some(),
            !argument.arguments.is_empty(),
        ];
        reply.map(2 + fields.into_iter().filter(|there| *there).count());
        text(reply, "name", argument.name);
        text(reply, "type", argument.kind.name());
        if is_key {
            number(reply, "key_spec_index", argument.key_spec as i64);
        }
        if let Some(token) = argument.token {
            text(reply, "token", token);
        }
        if let Some(since) = argument.since {
            text(reply, "since", since);
        }
        if flags().next().is_some() {
            reply.bulk(b"flags");
            reply.set(flags().count());
            flags().for_each(|flag| reply.simple(flag));
        }
        if !argument.arguments.is_empty() {
            reply.bulk(b"arguments");
            arguments(reply, argument.arguments);
        }
    }
}

fn text(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

fn number(reply: &mut Reply<'_>, name: &str, value: i64) {
    reply.bulk(name.as_bytes());
    reply.integer(value);
}
