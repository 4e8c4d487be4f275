//! `CONFIG`: reads and changes the server's configuration.

use crate::command::*;
use crate::commands::help;
use crate::configure::{self, ChangeError, SettingChange};
use crate::glob::Steps;
use crate::report_events::report_events;
use crate::settings::{SETTINGS, Setting};

pub(super) static CONFIG: Command = Command {
    name: "config",
    summary: "A container for commands about the configuration",
    since: "2.0.0",
    subcommands: &[&GET, &HELP, &RESETSTAT, &REWRITE, &SET],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
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
    summary: "Resets the statistics of INFO",
    arity: 2,
    run: resetstat,
    ..PLAIN
};

static SET: Command = Command {
    name: "config|set",
    summary: "Changes parameters while the server runs, all of them or none",
    complexity: "O(N) where N is the number of parameters",
    arity: -4,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::block(
        "parameter_value",
        &[
            Argument::new("parameter", Kind::String),
            Argument::new("value", Kind::String),
        ],
    )
    .multiple()],
    // Setting the password changes the default user's rules.
    exclusive_if: Some(|args| {
        args.iter()
            .any(|word| word.eq_ignore_ascii_case(b"requirepass"))
    }),
    run: set,
    ..PLAIN
};

static REWRITE: Command = Command {
    name: "config|rewrite",
    summary: "Makes the configuration file say what is set; its comments are kept",
    since: "2.8.0",
    arity: 2,
    run: rewrite,
    ..PLAIN
};

static HELP: Command = Command {
    name: "config|help",
    run: |call| help::of(call, &CONFIG),
    ..help::HELP
};

fn get(call: &mut Call<'_>) -> Outcome {
    // As in Redis, a name is returned as it was requested, and only once. Patterns match only the
    // settings' main names.
    let mut found: Vec<(&[u8], &Setting)> = Vec::new();
    let steps = Steps::default();
    for pattern in call.args.from(2).iter() {
        let is_pattern = pattern.iter().any(|byte| b"*?[".contains(byte));
        let named = Setting::named(pattern).map(|setting| (pattern, setting));
        let matching = SETTINGS
            .iter()
            .map(|setting| (setting.name.as_bytes(), setting))
            .filter(|(name, _)| is_pattern && steps.matches_any_case(pattern, name));
        for (name, setting) in named.into_iter().chain(matching) {
            let is_new = |(other, _): &(&[u8], _)| !other.eq_ignore_ascii_case(name);
            if found.iter().all(is_new) {
                found.push((name, setting));
            }
        }
    }
    steps.check()?;
    call.reply.map(found.len());
    for (name, setting) in found {
        call.reply.bulk(name);
        call.reply.bulk(call.server.shown(setting.key).as_bytes());
    }
    Ok(())
}

fn set(call: &mut Call<'_>) -> Outcome {
    let pairs = call.args.from(2);
    if pairs.len() % 2 == 1 {
        return Err(Failure::Syntax);
    }
    let pair = |index: usize| (pairs.at(2 * index), pairs.at(2 * index + 1));
    let changes = SettingChange::read((0..pairs.len() / 2).map(pair));
    let done = changes.and_then(|changes| configure::change(call.server, &changes));
    done.map_err(|refused| match refused {
        ChangeError::Unknown(name) => Failure::quoting(
            "ERR Unknown option or number of arguments for CONFIG SET - '",
            &name,
            "'",
        ),
        refused => Failure::other(format!("ERR {refused}")),
    })?;
    // Earlier changes within a transaction, which runs once, are reported by the earlier setting.
    if call.client.event_flags != 0 {
        report_events(call.server, call.client);
    }
    call.server.follow_key_events();
    if (call.server).shrink_table(|thread| call.client.wake_later(thread)) {
        call.server.background.forget_tracked();
    }
    // This also applies to commands that the client has already sent.
    call.client.event_flags = call.server.event_flags();
    call.reply.ok();
    Ok(())
}

fn rewrite(call: &mut Call<'_>) -> Outcome {
    let written = configure::rewrite(&call.server.settings);
    written.map_err(|error| Failure::other(format!("ERR {error}")))?;
    call.reply.ok();
    Ok(())
}

fn resetstat(call: &mut Call<'_>) -> Outcome {
    call.server.reset_totals();
    call.reply.ok();
    Ok(())
}
