//! `HSCAN key cursor [MATCH pattern] [COUNT n]`: the fields of a hash, a few at a time. One that
//! Redis would keep as a listpack is returned at once, as by Redis.

use super::hget::element;
use crate::command::*;
use crate::commands::generic::{ScanOptions, cursor};
use crate::glob::Steps;
use mneme_collections::listpack::Element;
use mneme_collections::{Form, HashType, LargeHash, Pair, Step};

pub(super) static HSCAN: Command = Command {
    name: "hscan",
    summary: "Walks through the fields of a hash, a few at a time",
    since: "2.8.0",
    complexity: "O(1) for every call; a small hash is looked through",
    arity: -3,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("cursor", Kind::Integer),
        Argument::new("pattern", Kind::Pattern)
            .after("MATCH")
            .optional(),
        Argument::new("count", Kind::Integer)
            .after("COUNT")
            .optional(),
    ],
    run,
    ..Command::HASH
};

fn run(call: &mut Call<'_>) -> Outcome {
    let from = cursor(call.args.at(2)).ok_or(Failure::other("ERR invalid cursor"))?;
    // As in Redis the options of a key that is not there do not matter.
    let options = ScanOptions::of(call, 3, false);
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let count = options.as_ref().map_or(0, |options| options.count);
    let large = |mut hash: LargeHash<'_>| hash.scan(from, count);
    call.keyspace
        .read_collection::<HashType, _, _>(key, large, |hash| {
            let mut step = match &hash {
                None => Step {
                    pairs: Vec::new(),
                    next: 0,
                },
                Some(Form::Packed(hash)) if hash.is_table() => hash.scan(from, count)?,
                Some(Form::Packed(hash)) => Step {
                    pairs: hash.pairs().collect::<Result<_, _>>()?,
                    next: 0,
                },
                Some(Form::Large((pairs, next))) => {
                    let owned = pairs.iter().map(|(field, value)| Pair {
                        field: Element::Bytes(field),
                        value: Element::Bytes(value),
                    });
                    Step {
                        pairs: owned.collect(),
                        next: *next,
                    }
                }
            };
            let pattern = match hash {
                Some(_) => options?.pattern,
                None => None,
            };
            let steps = Steps::default();
            if let Some(pattern) = pattern {
                let matches = |field: &[u8]| steps.matches(pattern, field);
                step.pairs.retain(|pair| pair.field.with_bytes(matches));
                steps.check()?;
            }
            reply.array(2);
            reply.bulk(itoa::Buffer::new().format(step.next).as_bytes());
            reply.array(2 * step.pairs.len());
            for pair in &step.pairs {
                element(reply, Some(pair.field));
                element(reply, Some(pair.value));
            }
            Ok(())
        })
}
