//! `HGETALL`, `HKEYS`, `HVALS key`: all of a hash.

use super::hget::element;
use crate::command::*;

pub(super) static HGETALL: Command = Command {
    name: "hgetall",
    summary: "Returns all fields of a hash and their values",
    run: |call| all(call, Part::Pairs),
    ..ALL
};

pub(super) static HKEYS: Command = Command {
    name: "hkeys",
    summary: "Returns all fields of a hash",
    run: |call| all(call, Part::Fields),
    ..ALL
};

pub(super) static HVALS: Command = Command {
    name: "hvals",
    summary: "Returns the values of all fields of a hash",
    run: |call| all(call, Part::Values),
    ..ALL
};

const ALL: Command = Command {
    since: "2.0.0",
    complexity: "O(N) where N is the length of the hash in bytes",
    arity: 2,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output_order"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key")],
    ..Command::HASH
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Pairs,
    Fields,
    Values,
}

fn all(call: &mut Call<'_>, part: Part) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    call.keyspace.read_hash(key, None, |hash| {
        let len = hash.map_or(Ok(0), |hash| hash.len())?;
        match part {
            Part::Pairs => reply.map(len),
            _ => reply.array(len),
        }
        for pair in hash.into_iter().flat_map(|hash| hash.pairs()) {
            let pair = pair?;
            // The rest will not be sent.
            if reply.is_over() {
                break;
            }
            if part != Part::Values {
                element(reply, Some(pair.field));
            }
            if part != Part::Fields {
                element(reply, Some(pair.value));
            }
        }
        Ok(())
    })
}
