//! `CLIENT TRACKINGINFO` and `GETREDIR`: always report that no keys are tracked, because tracking
//! is not supported.

use super::PLAIN;
use crate::command::*;

pub(super) static TRACKINGINFO: Command = Command {
    name: "client|trackinginfo",
    summary: "Returns how the client's cached keys are tracked: not at all",
    since: "6.2.0",
    arity: 2,
    run: |call| {
        call.reply.map(3);
        call.reply.bulk(b"flags");
        call.reply.set(1);
        call.reply.bulk(b"off");
        call.reply.bulk(b"redirect");
        call.reply.integer(-1);
        call.reply.bulk(b"prefixes");
        call.reply.array(0);
        Ok(())
    },
    ..PLAIN
};

pub(super) static GETREDIR: Command = Command {
    name: "client|getredir",
    summary: "Returns the client that is notified instead: none",
    since: "6.0.0",
    arity: 2,
    run: |call| {
        call.reply.integer(-1);
        Ok(())
    },
    ..PLAIN
};
