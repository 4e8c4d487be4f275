//! `GEOADD key [NX|XX] [CH] longitude latitude member [longitude latitude member ...]`: sets
//! members' scores to places.

use super::arguments::place;
use crate::command::*;
use crate::commands::sorted_sets::{Conditions, give};

pub(super) static GEOADD: Command = Command {
    name: "geoadd",
    summary: "Gives members of a sorted set the scores of places",
    since: "3.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    arguments: &[
        Argument::key("key"),
        Argument::one_of(
            "condition",
            &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
        )
        .since("6.2.0")
        .optional(),
        Argument::word("change", "CH").since("6.2.0").optional(),
        Argument::block(
            "longitude_latitude_member",
            &[
                Argument::new("longitude", Kind::Double),
                Argument::new("latitude", Kind::Double),
                Argument::new("member", Kind::String),
            ],
        )
        .multiple(),
    ],
    run,
    ..Command::GEO
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (mut at, mut conditions, mut counts_moved) = (2, Conditions::default(), false);
    while at < call.args.len() {
        if call.is(at, "NX") {
            conditions.is_new = true;
        } else if call.is(at, "XX") {
            conditions.is_there = true;
        } else if call.is(at, "CH") {
            counts_moved = true;
        } else {
            break;
        }
        at += 1;
    }
    let triples = call.args.from(at);
    if !triples.len().is_multiple_of(3) || (conditions.is_new && conditions.is_there) {
        return Err(Failure::Syntax);
    }
    let of = |at: usize| {
        let place = place(triples.at(at), triples.at(at + 1))?;
        Ok((place.score(), triples.at(at + 2)))
    };
    let members = (0..triples.len()).step_by(3).map(of);
    let members = members.collect::<Result<Vec<(f64, &[u8])>, Failure>>()?;
    if members.is_empty() {
        // As in Redis, which turns it into `ZADD`.
        return Err(Failure::Syntax);
    }
    let done = give(call, &members, conditions, false)?;
    call.reply.integer(match counts_moved {
        true => (done.added + done.moved) as i64,
        false => done.added as i64,
    });
    Ok(())
}
