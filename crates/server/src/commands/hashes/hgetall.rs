//! `HGETALL`, `HKEYS`, `HVALS key`: return a whole hash.

use std::cell::RefCell;

use super::hget::element;
use crate::command::*;
use mneme_collections::{Damage, Form, HashType, PackedHash};

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
    let begin = reply.position();
    let reply = RefCell::new(reply);
    let head = |len: usize| {
        let mut reply = reply.borrow_mut();
        // The value may have been removed while it was read.
        reply.truncate(begin);
        match part {
            Part::Pairs => reply.map(len),
            _ => reply.array(len),
        }
    };
    let write = |hash: PackedHash<'_>| -> Result<bool, Damage> {
        let mut reply = reply.borrow_mut();
        for pair in hash.pairs() {
            let pair = pair?;
            if part != Part::Values {
                element(&mut reply, Some(pair.field));
            }
            if part != Part::Fields {
                element(&mut reply, Some(pair.value));
            }
            // The reply is too long: the rest would not be sent.
            if reply.is_over() {
                return Ok(false);
            }
        }
        Ok(true)
    };
    call.keyspace.read_collection::<HashType, _, _>(
        key,
        |mut large| {
            head(large.count() as usize);
            large.all_leaves(|leaf| Ok(write(leaf)?))
        },
        |hash| {
            match hash {
                Some(Form::Packed(hash)) => {
                    head(hash.len()?);
                    write(hash)?;
                }
                Some(Form::Large(())) => {}
                None => head(0),
            }
            Ok(())
        },
    )
}
