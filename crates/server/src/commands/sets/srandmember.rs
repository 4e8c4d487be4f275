//! `SRANDMEMBER key [count]`: random members, each at most once, or with a negative count possibly
//! several times.

use std::collections::HashSet;

use crate::command::*;
use mneme_collections::{CollectionError, Form, LargeSet, Lot, PackedSet, SetType};

pub(super) static SRANDMEMBER: Command = Command {
    name: "srandmember",
    summary: "Returns members of a set drawn by lot, each as likely as any other",
    complexity: "O(1); with a count O(N) where N is the count; a small set is looked through",
    arity: -2,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::new("count", Kind::Integer)
            .since("2.6.0")
            .optional(),
    ],
    run,
    ..Command::SET
};

fn run(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        2 => {}
        3 => return several(call),
        _ => return Err(Failure::Syntax),
    }
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let one = |mut set: LargeSet<'_>| set.random_member(&mut Lot::new());
    call.keyspace
        .read_collection::<SetType, _, _>(key, one, |set| {
            let member = match set {
                None => None,
                Some(Form::Packed(set)) => {
                    let member = set.random(&mut Lot::new())?;
                    member.map(|member| member.to_vec())
                }
                Some(Form::Large(member)) => member,
            };
            reply.value(member.as_deref());
            Ok(())
        })
}

/// The source of random members.
enum Drawn {
    /// Members that were already chosen.
    Chosen(Vec<Vec<u8>>),
    /// The image of all members, from which they will be chosen.
    All(Vec<u8>),
}

fn several(call: &mut Call<'_>) -> Outcome {
    let (count, _) = call.count_to_draw(None)?;
    let (wanted, is_distinct) = (count.unsigned_abs() as usize, count >= 0);
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let of_large = |set: LargeSet<'_>| draw(set, wanted, is_distinct);
    call.keyspace
        .read_collection::<SetType, _, _>(key, of_large, |set| {
            let set = match &set {
                None => None,
                Some(Form::Packed(set)) => Some(*set),
                Some(Form::Large(Drawn::All(image))) => Some(PackedSet::read(image)?),
                Some(Form::Large(Drawn::Chosen(members))) => {
                    reply.array(members.len());
                    members.iter().for_each(|member| reply.bulk(member));
                    return Ok(());
                }
            };
            let members = set.filter(|_| wanted > 0).into_iter();
            let members = members.flat_map(|set| set.members());
            let mut all = members.collect::<Result<Vec<_>, _>>()?;
            let number = match is_distinct {
                true => wanted.min(all.len()),
                false if all.is_empty() => 0,
                false => wanted,
            };
            reply.array(number);
            let mut lot = Lot::new();
            for i in 0..number {
                // The reply is too long: the rest would not be sent.
                if reply.is_over() {
                    break;
                }
                let drawn = match is_distinct {
                    false => lot.below(all.len()),
                    // If all are wanted, they come in their order, as from Redis.
                    true if number < all.len() => {
                        let other = i + lot.below(all.len() - i);
                        all.swap(i, other);
                        i
                    }
                    true => i,
                };
                all[drawn].with_bytes(|member| reply.bulk(member));
            }
            Ok(())
        })
}

/// Chooses members one by one if few of them are wanted.
fn draw(mut set: LargeSet<'_>, wanted: usize, is_distinct: bool) -> Result<Drawn, CollectionError> {
    if wanted > set.count() as usize / 3 {
        return Ok(Drawn::All(set.view(None)?));
    }
    let (mut lot, mut chosen, mut seen) = (Lot::new(), Vec::new(), HashSet::new());
    // One and a half draws per member are expected. A damaged set may have fewer members than it
    // counts.
    for _ in 0..wanted.saturating_mul(4).saturating_add(100) {
        if chosen.len() == wanted {
            return Ok(Drawn::Chosen(chosen));
        }
        let Some(member) = set.random_member(&mut lot)? else {
            break;
        };
        if !is_distinct || seen.insert(member.clone()) {
            chosen.push(member);
        }
    }
    Ok(Drawn::All(set.view(None)?))
}
