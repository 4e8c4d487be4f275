//! `CLIENT`: who is connected, and under which name.

use std::fmt::Write as _;

use crate::commands::help;
use crate::commands::prelude::*;
use crate::resp::parse_u64;

pub(super) static CLIENT: Command = Command {
    name: "client",
    summary: "A container for commands about connections",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "Depends on subcommand.",
    arity: -2,
    subcommands: &[&GETNAME, &HELP, &ID, &INFO, &LIST, &SETINFO, &SETNAME],
    run: help::run,
    ..Command::BLANK
};

/// What most of the subcommands have in common.
const PLAIN: Command = Command {
    group: Group::Connection,
    flags: &[Flag::NoScript, Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::BLANK
};

static ID: Command = Command {
    name: "client|id",
    summary: "Returns the connection's ID",
    since: "5.0.0",
    arity: 2,
    run: id,
    ..PLAIN
};

static GETNAME: Command = Command {
    name: "client|getname",
    summary: "Returns the connection's name",
    since: "2.6.9",
    arity: 2,
    run: getname,
    ..PLAIN
};

static SETNAME: Command = Command {
    name: "client|setname",
    summary: "Names the connection",
    since: "2.6.9",
    arity: 3,
    arguments: &[Argument::new("connection-name", Kind::String)],
    run: setname,
    ..PLAIN
};

static SETINFO: Command = Command {
    name: "client|setinfo",
    summary: "Says which library the client uses",
    since: "7.2.0",
    arity: 4,
    arguments: &[Argument::one_of(
        "attr",
        &[
            Argument::new("libname", Kind::String).after("LIB-NAME"),
            Argument::new("libver", Kind::String).after("LIB-VER"),
        ],
    )],
    run: setinfo,
    ..PLAIN
};

static INFO: Command = Command {
    name: "client|info",
    summary: "Describes the connection",
    since: "6.2.0",
    arity: 2,
    tips: &["nondeterministic_output"],
    run: info,
    ..PLAIN
};

static LIST: Command = Command {
    name: "client|list",
    summary: "Describes all connections",
    since: "2.4.0",
    complexity: "O(N) where N is the number of connections",
    arity: -2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    tips: &["nondeterministic_output"],
    arguments: &[
        Argument::one_of(
            "normal_master_replica_pubsub",
            &[
                Argument::word("normal", "NORMAL"),
                Argument::word("master", "MASTER"),
                Argument::word("replica", "REPLICA"),
                Argument::word("pubsub", "PUBSUB"),
            ],
        )
        .after("TYPE")
        .since("5.0.0")
        .optional(),
        Argument::block(
            "id",
            &[Argument::new("client-id", Kind::Integer).multiple()],
        )
        .after("ID")
        .since("6.2.0")
        .optional(),
    ],
    run: list,
    ..PLAIN
};

static HELP: Command = Command {
    name: "client|help",
    run: |call| help::of(call, &CLIENT),
    ..help::HELP
};

fn id(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(call.client.entry.id as i64);
    Ok(())
}

fn getname(call: &mut Call<'_>) -> Outcome {
    let state = call.client.entry.state();
    call.reply
        .value(Some(&state.name[..]).filter(|name| !name.is_empty()));
    Ok(())
}

fn setname(call: &mut Call<'_>) -> Outcome {
    let name = call.args.at(2);
    check_name(name)?;
    call.client.entry.state().name = name.to_vec();
    call.reply.ok();
    Ok(())
}

fn setinfo(call: &mut Call<'_>) -> Outcome {
    let (option, value) = (call.args.at(2), call.args.at(3));
    let is_name = call.is(2, "LIB-NAME");
    if !is_name && !call.is(2, "LIB-VER") {
        let option = String::from_utf8_lossy(option);
        return Err(Failure::other(format!(
            "ERR Unrecognized option '{option}'"
        )));
    }
    if !is_printable(value) {
        let option = if is_name { "lib-name" } else { "lib-ver" };
        return Err(Failure::other(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        )));
    }
    let mut state = call.client.entry.state();
    *(if is_name {
        &mut state.library.0
    } else {
        &mut state.library.1
    }) = value.to_vec();
    call.reply.ok();
    Ok(())
}

fn info(call: &mut Call<'_>) -> Outcome {
    let now_ms = call.server.now_ms();
    call.client.publish(now_ms);
    call.reply
        .verbatim(&format!("{}\n", call.client.entry.line(now_ms)));
    Ok(())
}

fn list(call: &mut Call<'_>) -> Outcome {
    let wanted = wanted(call)?;
    let now_ms = call.server.now_ms();
    call.client.publish(now_ms);
    let mut lines = String::new();
    for entry in call.server.clients.list() {
        if wanted.includes(entry.id) {
            // Writing to a `String` does not fail.
            let _ = writeln!(lines, "{}", entry.line(now_ms));
        }
    }
    call.reply.verbatim(&lines);
    Ok(())
}

/// Which clients `CLIENT LIST` shows.
enum Wanted {
    All,
    None,
    Only(Vec<u64>),
}

impl Wanted {
    fn includes(&self, id: u64) -> bool {
        match self {
            Wanted::All => true,
            Wanted::None => false,
            Wanted::Only(ids) => ids.contains(&id),
        }
    }
}

fn wanted(call: &Call<'_>) -> Result<Wanted, Failure> {
    let absent = ["MASTER", "REPLICA", "SLAVE", "PUBSUB"];
    match call.args.len() {
        2 => Ok(Wanted::All),
        4 if call.is(2, "TYPE") && call.is(3, "NORMAL") => Ok(Wanted::All),
        4 if call.is(2, "TYPE") && absent.into_iter().any(|kind| call.is(3, kind)) => {
            Ok(Wanted::None)
        }
        4 if call.is(2, "TYPE") => {
            let kind = String::from_utf8_lossy(call.args.at(3));
            Err(Failure::other(format!("ERR Unknown client type '{kind}'")))
        }
        len if len > 3 && call.is(2, "ID") => {
            let invalid = || Failure::other("ERR Invalid client ID");
            let ids = call
                .args
                .from(3)
                .iter()
                .map(|id| parse_u64(id).ok_or_else(invalid));
            Ok(Wanted::Only(ids.collect::<Result<_, _>>()?))
        }
        _ => Err(Failure::Syntax),
    }
}

/// A name must not break the lines of `CLIENT LIST`.
pub(super) fn check_name(name: &[u8]) -> Outcome {
    match is_printable(name) {
        true => Ok(()),
        false => Err(Failure::other(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
