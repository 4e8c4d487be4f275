//! `CONFIG`: how the server is configured.

use crate::commands::help;
use crate::commands::prelude::*;
use crate::glob;
use crate::settings;
use crate::shared::Shared;

use super::eviction;

pub(super) static CONFIG: Command = Command {
    name: "config",
    summary: "A container for commands about the configuration",
    since: "2.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    subcommands: &[&GET, &HELP, &RESETSTAT],
    run: help::run,
    ..Command::BLANK
};

/// What the subcommands have in common.
const PLAIN: Command = Command {
    since: "2.0.0",
    group: Group::Server,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    ..Command::BLANK
};

static GET: Command = Command {
    name: "config|get",
    summary: "Returns the parameters that match a pattern",
    complexity: "O(N) where N is the number of patterns",
    arity: -3,
    arguments: &[
        Argument::block("parameter", &[Argument::new("parameter", Kind::String)]).multiple(),
    ],
    run: get,
    ..PLAIN
};

static RESETSTAT: Command = Command {
    name: "config|resetstat",
    summary: "Begins the statistics of INFO anew",
    arity: 2,
    run: resetstat,
    ..PLAIN
};

static HELP: Command = Command {
    name: "config|help",
    group: Group::Server,
    categories: &[],
    run: |call| help::of(call, &CONFIG),
    ..help::HELP
};

/// A parameter's name and its value.
type Parameter = (&'static str, fn(&Shared) -> String);

/// What can be asked for. Parameters of Redis that Mneme has no use for, but clients ask for, say so truthfully.
const PARAMETERS: &[Parameter] = &[
    ("appendonly", |_| "no".into()),
    ("bind", |s| {
        s.settings
            .bind
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    }),
    ("client-output-buffer-limit", |s| {
        format!("normal {} 0 0", s.settings.output_limit)
    }),
    ("client-query-buffer-limit", |s| {
        s.settings.query_buffer.to_string()
    }),
    ("databases", |s| s.settings.databases.to_string()),
    ("io-threads", |s| s.settings.threads.to_string()),
    ("maxclients", |s| s.settings.max_clients.to_string()),
    ("maxmemory", |s| s.store.capacity().to_string()),
    ("maxmemory-policy", |s| eviction(s).into()),
    ("port", |s| s.settings.port.to_string()),
    ("proto-max-bulk-len", |s| s.settings.limits.bulk.to_string()),
    ("protected-mode", |s| {
        if s.settings.protected_mode {
            "yes".into()
        } else {
            "no".into()
        }
    }),
    ("requirepass", |s| {
        s.settings.password.clone().unwrap_or_default()
    }),
    ("save", |_| String::new()),
    ("tcp-backlog", |_| settings::BACKLOG.to_string()),
    ("tcp-keepalive", |_| settings::KEEPALIVE_S.to_string()),
    ("timeout", |_| "0".into()),
    ("unixsocket", |s| {
        s.settings
            .unix_socket
            .as_ref()
            .map_or(String::new(), |p| p.display().to_string())
    }),
];

fn get(call: &mut Call<'_>) -> Outcome {
    let mut found: Vec<(&[u8], &Parameter)> = Vec::new();
    for pattern in call.args.from(2).iter() {
        let is_pattern = pattern.iter().any(|byte| b"*?[".contains(byte));
        for parameter in PARAMETERS {
            let name = parameter.0.as_bytes();
            let seen = found
                .iter()
                .any(|(_, other)| std::ptr::eq(*other, parameter));
            if !seen && is_pattern && glob::matches_any_case(pattern, name) {
                found.push((name, parameter));
            } else if !seen && !is_pattern && name.eq_ignore_ascii_case(pattern) {
                // As Redis: spelt as it was asked for.
                found.push((pattern, parameter));
            }
        }
    }
    call.reply.map(found.len());
    for (name, (_, value)) in found {
        call.reply.bulk(name);
        call.reply.bulk(value(call.server).as_bytes());
    }
    Ok(())
}

fn resetstat(call: &mut Call<'_>) -> Outcome {
    call.server.reset_totals();
    call.reply.ok();
    Ok(())
}
