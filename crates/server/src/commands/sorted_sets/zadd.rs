//! `ZADD key [NX|XX] [GT|LT] [CH] [INCR] score member [score member ...]`, `ZINCRBY key increment
//! member`: set members' scores.

use super::arguments::double;
use crate::command::*;

pub(super) static ZADD: Command = Command {
    name: "zadd",
    summary: "Gives members of a sorted set their scores",
    since: "1.2.0",
    complexity: "O(log N) for each member, where N is the number of members; a small set is looked through",
    arity: -4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[KeyFlag::ReadWrite, KeyFlag::Update])],
    arguments: &[
        Argument::key("key"),
        Argument::one_of(
            "condition",
            &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
        )
        .since("3.0.2")
        .optional(),
        Argument::one_of(
            "comparison",
            &[Argument::word("gt", "GT"), Argument::word("lt", "LT")],
        )
        .since("6.2.0")
        .optional(),
        Argument::word("change", "CH").since("3.0.2").optional(),
        Argument::word("increment", "INCR")
            .since("3.0.2")
            .optional(),
        Argument::block(
            "score_member",
            &[
                Argument::new("score", Kind::Double),
                Argument::new("member", Kind::String),
            ],
        )
        .multiple(),
    ],
    run: |call| add(call, 2, false),
    ..Command::SORTED_SET
};

pub(super) static ZINCRBY: Command = Command {
    name: "zincrby",
    summary: "Adds to the score of a member of a sorted set, which is 0 if it is none",
    since: "1.2.0",
    complexity: "O(log N) where N is the number of members; a small set is looked through",
    arity: 4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    batching: Some(Batching::Elements),
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
    ])],
    arguments: &[
        Argument::key("key"),
        Argument::new("increment", Kind::Integer),
        Argument::new("member", Kind::String),
    ],
    run: |call| add(call, 2, true),
    ..Command::SORTED_SET
};

/// The conditions for setting a member's score.
#[derive(Clone, Copy, Default)]
pub(crate) struct Conditions {
    pub is_new: bool,
    pub is_there: bool,
    is_greater: bool,
    is_less: bool,
}

impl Conditions {
    /// Whether a member with score `old` may get score `new`.
    fn hold(self, old: f64, new: f64) -> bool {
        let is_wrong = (self.is_greater && new <= old) || (self.is_less && new >= old);
        !self.is_new && !is_wrong
    }
}

/// The result for the members.
#[derive(Clone, Copy, Default)]
pub(crate) struct Done {
    pub added: usize,
    pub moved: usize,
    /// The last score that was set; `None`: none was set.
    score: Option<f64>,
}

/// Sets the scores of the members in the arguments from `first` on.
fn add(call: &mut Call<'_>, first: usize, adds_up: bool) -> Outcome {
    let (mut at, mut conditions) = (first, Conditions::default());
    let (mut counts_moved, mut adds_up) = (false, adds_up);
    while at < call.args.len() {
        if call.is(at, "NX") {
            conditions.is_new = true;
        } else if call.is(at, "XX") {
            conditions.is_there = true;
        } else if call.is(at, "GT") {
            conditions.is_greater = true;
        } else if call.is(at, "LT") {
            conditions.is_less = true;
        } else if call.is(at, "CH") {
            counts_moved = true;
        } else if call.is(at, "INCR") {
            adds_up = true;
        } else {
            break;
        }
        at += 1;
    }
    let pairs = call.args.from(at);
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Failure::Syntax);
    }
    let Conditions {
        is_new,
        is_there,
        is_greater,
        is_less,
    } = conditions;
    if is_new && is_there {
        return Err(Failure::other(
            "ERR XX and NX options at the same time are not compatible",
        ));
    }
    if [is_new, is_greater, is_less]
        .into_iter()
        .filter(|is_so| *is_so)
        .count()
        > 1
    {
        return Err(Failure::other(
            "ERR GT, LT, and/or NX options at the same time are not compatible",
        ));
    }
    if adds_up && pairs.len() > 2 {
        return Err(Failure::other(
            "ERR INCR option supports a single increment-element pair",
        ));
    }
    let of = |at: usize| Ok((double(pairs.at(at))?, pairs.at(at + 1)));
    let pairs = (0..pairs.len()).step_by(2).map(of);
    let pairs = pairs.collect::<Result<Vec<(f64, &[u8])>, Failure>>()?;
    let done = give(call, &pairs, conditions, adds_up)?;
    match (adds_up, done.score) {
        (true, Some(score)) => call.reply.double(score),
        (true, None) => call.reply.null(),
        (false, _) => {
            let moved = if counts_moved { done.moved } else { 0 };
            call.reply.integer((done.added + moved) as i64);
        }
    }
    Ok(())
}

/// Sets the scores of members of the sorted set under argument 1, or adds to their scores.
pub(crate) fn give(
    call: &mut Call<'_>,
    pairs: &[(f64, &[u8])],
    conditions: Conditions,
    adds_up: bool,
) -> Result<Done, Failure> {
    let limits = call.server.settings.sorted_set_limits();
    let key = call.args.at(1);
    let members: Vec<&[u8]> = pairs.iter().map(|(_, member)| *member).collect();
    let (done, _) = call.keyspace.update_sorted_set(key, |set| {
        let mut done = Done::default();
        set.set_many(&members, |place, old| {
            let (number, _) = pairs[place];
            let score = match old {
                Some(old) if adds_up => old + number,
                _ => number,
            };
            if score.is_nan() {
                return Err(Failure::other("ERR resulting score is not a number (NaN)"));
            }
            let is_given = match old {
                Some(old) => conditions.hold(old, score),
                None => !conditions.is_there,
            };
            if !is_given {
                return Ok(None);
            }
            done.score = Some(score);
            match old {
                None => done.added += 1,
                Some(old) if old != score => done.moved += 1,
                Some(_) => {}
            }
            Ok(Some(score))
        })?;
        set.convert(limits)?;
        Ok((done, done.added + done.moved > 0))
    })?;
    if done.added + done.moved > 0 {
        let event = if adds_up { "zincr" } else { "zadd" };
        call.keyspace.notify(EventClass::SortedSet, event, key);
    }
    Ok(done)
}
