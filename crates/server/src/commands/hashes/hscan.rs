//! `HSCAN key cursor [MATCH pattern] [COUNT n]`: the fields of a hash, a few at a time. If Redis
//! would keep the value as a listpack, all of it is returned at once, as by Redis.

use super::hget::element;
use crate::command::*;
use crate::commands::generic::{SCAN_ELEMENTS, ScanOptions, cursor, reply_step};
use crate::glob::Steps;
use mneme_collections::{CollectionType, Form, HashType, Leaves, Packed, Step};

pub(super) static HSCAN: Command = Command {
    name: "hscan",
    summary: "Walks through the fields of a hash, a few at a time",
    since: "2.8.0",
    complexity: "O(1) for every call; a small hash is looked through",
    arity: -3,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: SCAN_ELEMENTS,
    run: scan_elements::<HashType, 2>,
    ..Command::HASH
};

/// Replies with a step of a walk through the elements of a value.
pub(in crate::commands) fn scan_elements<T, const ENTRIES: usize>(call: &mut Call<'_>) -> Outcome
where
    T: for<'r> CollectionType<Packed<'r> = Packed<'r, ENTRIES>, Large<'r> = Leaves<'r, ENTRIES>>,
{
    let from = cursor(call.args.at(2)).ok_or(Failure::other("ERR invalid cursor"))?;
    // As in Redis, options are not checked if the key does not exist.
    let options = ScanOptions::of(call, 3, false);
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let count = options.as_ref().map_or(0, |options| options.count);
    let large = |mut of: Leaves<'_, ENTRIES>| of.view_from(from, count);
    call.keyspace
        .read_collection::<T, _, _>(key, large, |found| {
            let mut step = match &found {
                None => Step {
                    pairs: Vec::new(),
                    next: 0,
                },
                Some(Form::Packed(of)) if !of.is_table() => Step {
                    pairs: of.pairs().collect::<Result<_, _>>()?,
                    next: 0,
                },
                Some(found) => found.scan(from, count)?,
            };
            let pattern = match found {
                Some(_) => options?.pattern,
                None => None,
            };
            let steps = Steps::default();
            if let Some(pattern) = pattern {
                let matches = |field: &[u8]| steps.matches(pattern, field);
                step.pairs.retain(|pair| pair.field.with_bytes(matches));
                steps.check()?;
            }
            reply_step(reply, step.next, ENTRIES * step.pairs.len());
            for pair in &step.pairs {
                element(reply, Some(pair.field));
                if ENTRIES > 1 {
                    element(reply, Some(pair.value));
                }
            }
            Ok(())
        })
}
