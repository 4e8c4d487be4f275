//! `CLIENT LIST` and `INFO`: one line for each connected client.

use std::fmt::Write as _;

use super::kind::{self, ClientKind};
use super::{ADMIN, PLAIN};
use crate::command::*;
use crate::resp::parse_i64;

pub(super) static INFO: Command = Command {
    name: "client|info",
    summary: "Describes the connection",
    since: "6.2.0",
    arity: 2,
    tips: &["nondeterministic_output"],
    run: info,
    ..PLAIN
};

pub(super) static LIST: Command = Command {
    name: "client|list",
    summary: "Describes all connections",
    since: "2.4.0",
    complexity: "O(N) where N is the number of connections",
    arity: -2,
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
    ..ADMIN
};

fn info(call: &mut Call<'_>) -> Outcome {
    let now_ms = call.server.now_ms();
    publish_self(call);
    call.reply
        .verbatim(&format!("{}\n", call.client.entry.line(now_ms)));
    Ok(())
}

fn list(call: &mut Call<'_>) -> Outcome {
    let wanted = wanted(call)?;
    let now_ms = call.server.now_ms();
    publish_self(call);
    let mut lines = String::new();
    let clients = &call.server.clients;
    let chosen = match &wanted {
        Wanted::All => clients.list(),
        Wanted::Of(kind) => {
            let mut list = clients.list();
            list.retain(|entry| kind.is_of(entry));
            list
        }
        Wanted::Only(ids) => clients.named(ids),
    };
    let most = call.reply.left();
    for entry in chosen {
        if lines.len() > most {
            // A client that asks for this much is disconnected.
            break;
        }
        // Writing to a `String` does not fail.
        let _ = writeln!(lines, "{}", entry.line(now_ms));
    }
    call.reply.verbatim(&lines);
    Ok(())
}

/// Other clients are shown as they were when they last got a reply; the client itself is shown as
/// it is now.
fn publish_self(call: &mut Call<'_>) {
    call.client.arguments = call.args.iter().map(<[u8]>::len).sum();
    call.client.publish();
    // No arguments are left once the command is done.
    call.client.arguments = 0;
}

/// The clients that `CLIENT LIST` shows.
enum Wanted {
    All,
    Of(ClientKind),
    Only(Vec<u64>),
}

fn wanted(call: &Call<'_>) -> Result<Wanted, Failure> {
    match call.args.len() {
        2 => Ok(Wanted::All),
        4 if call.is(2, "TYPE") => Ok(Wanted::Of(kind::kind(call.args.at(3))?)),
        len if len > 3 && call.is(2, "ID") => {
            let invalid = || Failure::other("ERR Invalid client ID");
            let ids = call
                .args
                .from(3)
                .iter()
                // No client has a negative number.
                .map(|id| parse_i64(id).map(i64::cast_unsigned).ok_or_else(invalid));
            Ok(Wanted::Only(ids.collect::<Result<_, _>>()?))
        }
        _ => Err(Failure::Syntax),
    }
}
