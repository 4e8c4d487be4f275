//! `CLIENT KILL`: closes connections.
//!
//! Each connection is closed by the thread that serves it. No command of a killed client is
//! executed after the reply has been sent: the reply waits until the threads of the killed clients
//! have noticed, and so until a command that one of them is executing is done. Nobody else waits.

use std::collections::BTreeSet;

use super::ADMIN;
use super::kind::{self, ClientKind};
use crate::client::Entry;
use crate::command::*;
use crate::resp::parse_i64;

pub(super) static KILL: Command = Command {
    name: "client|kill",
    summary: "Ends the connections that match all filters",
    since: "2.4.0",
    complexity: "O(N) where N is the number of connections",
    arity: -3,
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::new("ip:port", Kind::String),
            Argument::one_of(
                "new-format",
                &[
                    Argument::new("client-id", Kind::Integer)
                        .after("ID")
                        .since("2.8.12")
                        .optional(),
                    Argument::one_of(
                        "normal_master_slave_pubsub",
                        &[
                            Argument::word("normal", "NORMAL"),
                            Argument::word("master", "MASTER").since("3.2.0"),
                            Argument::word("slave", "SLAVE"),
                            Argument::word("replica", "REPLICA").since("5.0.0"),
                            Argument::word("pubsub", "PUBSUB"),
                        ],
                    )
                    .after("TYPE")
                    .since("2.8.12")
                    .optional(),
                    Argument::new("username", Kind::String)
                        .after("USER")
                        .optional(),
                    Argument::new("ip:port", Kind::String)
                        .after("ADDR")
                        .optional(),
                    Argument::new("ip:port", Kind::String)
                        .after("LADDR")
                        .since("6.2.0")
                        .optional(),
                    Argument::new("yes/no", Kind::String)
                        .after("SKIPME")
                        .optional(),
                ],
            )
            .multiple(),
        ],
    )],
    reach: Reach::Nothing,
    run,
    ..ADMIN
};

/// Selects the clients to kill: those that match all given conditions.
#[derive(Default)]
struct Filter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    kind: Option<ClientKind>,
    user: Option<&'a [u8]>,
    spares_self: bool,
}

impl Filter<'_> {
    fn fits(&self, entry: &Entry) -> bool {
        self.id.is_none_or(|id| entry.id == id)
            && self
                .address
                .is_none_or(|address| entry.peer.as_bytes() == address)
            && self
                .local
                .is_none_or(|local| entry.local.as_bytes() == local)
            && self.user.is_none_or(|user| *entry.state().user == *user)
            && self.kind.is_none_or(|kind| kind.is_of(entry))
    }
}

fn run(call: &mut Call<'_>) -> Outcome {
    let is_old_form = call.args.len() == 3;
    let filter = if is_old_form {
        Filter {
            address: Some(call.args.at(2)),
            ..Filter::default()
        }
    } else {
        parse(call)?
    };
    let mut killed = 0;
    let mut threads = BTreeSet::new();
    for entry in call.server.clients.list() {
        let is_self = entry.id == call.client.entry.id;
        if !filter.fits(&entry) || is_self && filter.spares_self {
            continue;
        }
        if is_self {
            // The client is closed after its reply.
            call.client.closing = true;
        } else {
            call.server.kill(&entry);
            threads.insert(entry.thread);
        }
        killed += 1;
    }
    match (is_old_form, killed) {
        (true, 0) => return Err(Failure::other("ERR No such client")),
        (true, _) => call.reply.ok(),
        (false, _) => call.reply.integer(killed),
    }
    call.await_sections(threads);
    Ok(())
}

fn parse<'a>(call: &Call<'a>) -> Result<Filter<'a>, Failure> {
    let mut filter = Filter {
        spares_self: true,
        ..Filter::default()
    };
    for option in (2..call.args.len()).step_by(2) {
        if option + 1 == call.args.len() {
            return Err(Failure::Syntax);
        }
        let value = call.args.at(option + 1);
        if call.is(option, "ID") {
            let id = parse_i64(value).filter(|id| *id > 0);
            filter.id = Some(
                id.map(i64::cast_unsigned)
                    .ok_or(Failure::other("ERR client-id should be greater than 0"))?,
            );
        } else if call.is(option, "TYPE") {
            filter.kind = Some(kind::kind(value)?);
        } else if call.is(option, "ADDR") {
            filter.address = Some(value);
        } else if call.is(option, "LADDR") {
            filter.local = Some(value);
        } else if call.is(option, "USER") {
            if call.server.users.find(value).is_none() {
                return Err(Failure::quoting("ERR No such user '", value, "'"));
            }
            filter.user = Some(value);
        } else if call.is(option, "SKIPME") {
            filter.spares_self = match (call.is(option + 1, "YES"), call.is(option + 1, "NO")) {
                (true, _) => true,
                (_, true) => false,
                _ => return Err(Failure::Syntax),
            };
        } else {
            return Err(Failure::Syntax);
        }
    }
    Ok(filter)
}
