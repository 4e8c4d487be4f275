//! `HRANDFIELD key [count [WITHVALUES]]`: random fields, each at most once, or with a negative
//! count possibly several times.

use super::hget::element;
use crate::command::*;
use mneme_collections::{Form, HashType, LargeHash, Lot, Pair};

pub(super) static HRANDFIELD: Command = Command {
    name: "hrandfield",
    summary: "Returns fields of a hash drawn by lot, each as likely as any other",
    since: "6.2.0",
    complexity: "O(1); with a count O(N) where N is the length of the hash in bytes",
    arity: -2,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::block(
            "options",
            &[
                Argument::new("count", Kind::Integer),
                Argument::word("withvalues", "WITHVALUES").optional(),
            ],
        )
        .optional(),
    ],
    run,
    ..Command::HASH
};

fn run(call: &mut Call<'_>) -> Outcome {
    if call.args.len() > 2 {
        return several(call);
    }
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let one = |mut hash: LargeHash<'_>| {
        let mut lot = Lot::new();
        hash.random(|bound| lot.below(bound))
    };
    call.keyspace
        .read_collection::<HashType, _, _>(key, one, |hash| {
            match hash {
                None => reply.null(),
                Some(Form::Packed(hash)) => {
                    let pair = hash.nth(Lot::new().below(hash.len()?))?;
                    element(reply, pair.map(|pair| pair.field));
                }
                Some(Form::Large(Some((field, _)))) => reply.bulk(&field),
                Some(Form::Large(None)) => reply.null(),
            }
            Ok(())
        })
}

fn several(call: &mut Call<'_>) -> Outcome {
    let (count, with_values) = call.count_to_draw(Some("WITHVALUES"))?;
    let is_resp3 = call.client.protocol == crate::resp::Protocol::Resp3;
    let (key, reply) = (call.args.at(1), &mut call.reply);
    call.keyspace.read_hash(key, None, |hash| {
        let Some(hash) = hash.filter(|_| count != 0) else {
            reply.array(0);
            return Ok(());
        };
        let mut pairs = hash.pairs().collect::<Result<Vec<Pair<'_>>, _>>()?;
        let (mut lot, wanted) = (Lot::new(), count.unsigned_abs() as usize);
        let number = if count < 0 {
            wanted
        } else {
            wanted.min(pairs.len())
        };
        reply.array(match with_values && !is_resp3 {
            true => 2 * number,
            false => number,
        });
        for i in 0..number {
            // The reply is too long: the rest would not be sent.
            if reply.is_over() || pairs.is_empty() {
                break;
            }
            let drawn = if count < 0 {
                pairs[lot.below(pairs.len())]
            } else {
                // If all are wanted, they come in their order, as from Redis.
                if number < pairs.len() {
                    let other = i + lot.below(pairs.len() - i);
                    pairs.swap(i, other);
                }
                pairs[i]
            };
            if with_values && is_resp3 {
                reply.array(2);
            }
            element(reply, Some(drawn.field));
            if with_values {
                element(reply, Some(drawn.value));
            }
        }
        Ok(())
    })
}
