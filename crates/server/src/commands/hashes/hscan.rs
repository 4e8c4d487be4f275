//! `HSCAN key cursor [MATCH pattern] [COUNT n]`: the fields of a hash, a few at a time. One that
//! Redis would keep as a listpack is returned at once, as by Redis.

use super::hget::element;
use crate::command::*;
use crate::commands::generic::cursor;
use crate::glob::Steps;
use mneme_collections::Step;

pub(super) static HSCAN: Command = Command {
    name: "hscan",
    summary: "Walks through the fields of a hash, a few at a time",
    since: "2.8.0",
    complexity: "O(N) a call where N is the length of the hash in bytes",
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
    let options = options(call);
    let (key, reply) = (call.args.at(1), &mut call.reply);
    call.keyspace.read_hash(key, |hash| {
        let (mut step, mut pattern) = (
            Step {
                pairs: Vec::new(),
                next: 0,
            },
            None,
        );
        if let Some(hash) = hash {
            let (count, wanted) = options?;
            pattern = wanted;
            step = match hash.is_table() {
                true => hash.scan(from, count)?,
                false => Step {
                    pairs: hash.pairs().collect::<Result<_, _>>()?,
                    next: 0,
                },
            };
        }
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

/// How many fields are wanted, and which.
fn options<'a>(call: &Call<'a>) -> Result<(usize, Option<&'a [u8]>), Failure> {
    let (mut pattern, mut count) = (None, 10);
    for option in (3..call.args.len()).step_by(2) {
        if option + 1 >= call.args.len() {
            return Err(Failure::Syntax);
        } else if call.is(option, "MATCH") {
            pattern = Some(call.args.at(option + 1)).filter(|pattern| *pattern != b"*");
        } else if call.is(option, "COUNT") {
            count = call.integer(option + 1)?;
            if count < 1 {
                return Err(Failure::Syntax);
            }
        } else {
            return Err(Failure::Syntax);
        }
    }
    Ok((usize::try_from(count).unwrap_or(usize::MAX), pattern))
}
