//! `WATCH key [key ...]`: the next transaction is executed only if these keys do not change before
//! it.
//!
//! Changes by local programs that have attached the segment count too, as do expiry, eviction and
//! flushes. Two keys may share a counter, so a transaction may fail now and then without cause; but
//! a change is never missed.

use std::sync::Arc;

use crate::command::*;

use super::PLAIN;

pub(super) static WATCH: Command = Command {
    name: "watch",
    summary: "Makes the next transaction depend on keys staying as they are",
    since: "2.2.0",
    complexity: "O(1) for each key",
    arity: -2,
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly])],
    arguments: &[Argument::key("key").multiple()],
    is_immediate: true,
    run,
    ..PLAIN
};

/// The number of bytes that a watched key takes in addition to its length.
const WATCHED_KEY: usize = 192;

fn run(call: &mut Call<'_>) -> Outcome {
    if call.client.queue.is_some() {
        return Err(Failure::other("ERR WATCH inside MULTI is not allowed"));
    }
    let entry = Arc::clone(&call.client.entry);
    let mut watch = entry.watch();
    let watch = match &mut *watch {
        Some(watch) => watch,
        none => none.insert(call.server.store.watch()?),
    };
    for key in call.args.from(1).iter() {
        let before = watch.len();
        watch.add(call.client.database, key)?;
        if watch.len() > before {
            call.client.watched_bytes += key.len() + WATCHED_KEY;
        }
    }
    call.reply.ok();
    Ok(())
}
