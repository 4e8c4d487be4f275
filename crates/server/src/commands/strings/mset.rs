//! `MSET`, `MSETNX key value [key value ...]`: store several values at one instant.

use crate::command::*;
use crate::keyspace::Keyspace;
use crate::resp::Arguments;
use mneme_log::{Expiry, MAX_KEY};

pub(super) static MSET: Command = Command {
    name: "mset",
    summary: "Sets several keys to several values",
    tips: &[
        "request_policy:multi_shard",
        "response_policy:all_succeeded",
    ],
    keys: &[KeySpec::pairs(&[KeyFlag::Overwrite, KeyFlag::Update])],
    run: |call| {
        let pairs = pairs(call, "mset")?;
        let keys = keys(call, pairs);
        call.keyspace
            .atomically_on(&keys, |keyspace| put_all(keyspace, pairs))?;
        call.reply.ok();
        Ok(())
    },
    ..BOTH
};

pub(super) static MSETNX: Command = Command {
    name: "msetnx",
    summary: "Sets several keys to several values unless one of them has a value",
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    keys: &[KeySpec::pairs(&[KeyFlag::Overwrite, KeyFlag::Insert])],
    run: |call| {
        let pairs = pairs(call, "msetnx")?;
        let keys = keys(call, pairs);
        let stored = call.keyspace.atomically_on(&keys, |keyspace| {
            for key in pairs.iter().step_by(2) {
                if keyspace.expiry(key)?.is_some() {
                    return Ok(false);
                }
            }
            put_all(keyspace, pairs)?;
            Ok(true)
        })?;
        call.reply.integer(i64::from(stored));
        Ok(())
    },
    ..BOTH
};

const BOTH: Command = Command {
    since: "1.0.1",
    complexity: "O(N) where N is the number of keys",
    arity: -3,
    flags: &[Flag::Write, Flag::DenyOom],
    arguments: &[Argument::block(
        "key_value",
        &[Argument::key("key"), Argument::new("value", Kind::String)],
    )
    .multiple()],
    ..Command::STRING
};

/// The keys in these arguments, each with its database.
fn keys<'a>(call: &Call<'_>, pairs: Arguments<'a>) -> Vec<(usize, &'a [u8])> {
    let database = call.keyspace.number();
    let keys = pairs.iter().step_by(2);
    keys.map(|key| (database, key)).collect()
}

/// The arguments: keys and values, alternating.
fn pairs<'a>(call: &Call<'a>, name: &'static str) -> Result<Arguments<'a>, Failure> {
    let pairs = call.args.from(1);
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::WrongArity(name));
    }
    // Within a transaction nothing is rolled back, so everything is validated before anything is
    // stored.
    match pairs.iter().step_by(2).find(|key| key.len() > MAX_KEY) {
        Some(key) => Err(Failure::KeyTooLong(key.len())),
        None => Ok(pairs),
    }
}

fn put_all(keyspace: &mut Keyspace<'_>, pairs: Arguments<'_>) -> Outcome {
    (0..pairs.len()).step_by(2).try_for_each(|key| {
        keyspace.put(pairs.at(key), pairs.at(key + 1), Expiry::Never)?;
        keyspace.notify(EventClass::String, "set", pairs.at(key));
        Ok(())
    })
}
