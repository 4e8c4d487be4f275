//! `ZUNION`, `ZINTER`, `ZDIFF numkeys key [key ...] [WEIGHTS weight [weight ...]] [AGGREGATE
//! SUM|MIN|MAX] [WITHSCORES]`, the forms that store the result, and `ZINTERCARD`: combinations of
//! sorted sets. In a plain set every member counts with the score 1.

use std::collections::HashMap;

use super::arguments::{WITHSCORES, header, member};
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::resp::{parse_f64, parse_i64};
use mneme_collections::{SET, SORTED_SET, ScoredMembers, SetType, SortedSetEdit};

pub(super) static ZUNION: Command = Command {
    name: "zunion",
    summary: "Returns the members that any of several sorted sets or sets has",
    since: "6.2.0",
    run: |call| reply(call, Operation::Union),
    ..READ
};

pub(super) static ZUNIONSTORE: Command = Command {
    name: "zunionstore",
    summary: "Stores the members that any of several sorted sets or sets has",
    since: "2.0.0",
    run: |call| store(call, Operation::Union, "zunionstore"),
    ..STORE
};

pub(super) static ZINTER: Command = Command {
    name: "zinter",
    summary: "Returns the members that each of several sorted sets or sets has",
    since: "6.2.0",
    run: |call| reply(call, Operation::Intersection),
    ..READ
};

pub(super) static ZINTERSTORE: Command = Command {
    name: "zinterstore",
    summary: "Stores the members that each of several sorted sets or sets has",
    since: "2.0.0",
    run: |call| store(call, Operation::Intersection, "zinterstore"),
    ..STORE
};

pub(super) static ZINTERCARD: Command = Command {
    name: "zintercard",
    summary: "Returns the number of members that each of several sorted sets or sets has",
    since: "7.0.0",
    arguments: &[
        Argument::new("numkeys", Kind::Integer),
        Argument::key("key").multiple(),
        Argument::new("limit", Kind::Integer)
            .after("LIMIT")
            .optional(),
    ],
    run: cardinality,
    ..READ
};

pub(super) static ZDIFF: Command = Command {
    name: "zdiff",
    summary: "Returns the members of the first of several sorted sets or sets that no other has",
    since: "6.2.0",
    arguments: &[
        Argument::new("numkeys", Kind::Integer),
        Argument::key("key").multiple(),
        WITHSCORES,
    ],
    run: |call| reply(call, Operation::Difference),
    ..READ
};

pub(super) static ZDIFFSTORE: Command = Command {
    name: "zdiffstore",
    summary: "Stores the members of the first of several sorted sets or sets that no other has",
    since: "6.2.0",
    arguments: &[
        Argument::key("destination"),
        Argument::new("numkeys", Kind::Integer),
        Argument::key_of("key", 1).multiple(),
    ],
    run: |call| store(call, Operation::Difference, "zdiffstore"),
    ..STORE
};

/// The common fields of the commands that return members.
const READ: Command = Command {
    complexity: "O(N log N) where N is the number of members of all sets",
    arity: -3,
    flags: &[Flag::Readonly, Flag::MovableKeys],
    keys: &[KeySpec::counted(1, &[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::new("numkeys", Kind::Integer),
        Argument::key("key").multiple(),
        WEIGHTS,
        AGGREGATE,
        WITHSCORES,
    ],
    ..Command::SORTED_SET
};

/// The common fields of the commands that store the result.
const STORE: Command = Command {
    complexity: "O(N log N) where N is the number of members of all sets",
    arity: -4,
    flags: &[Flag::Write, Flag::DenyOom, Flag::MovableKeys],
    keys: &[
        KeySpec::first(&[KeyFlag::Overwrite, KeyFlag::Update]),
        KeySpec::counted(2, &[KeyFlag::ReadOnly, KeyFlag::Access]),
    ],
    arguments: &[
        Argument::key("destination"),
        Argument::new("numkeys", Kind::Integer),
        Argument::key_of("key", 1).multiple(),
        WEIGHTS,
        AGGREGATE,
    ],
    ..Command::SORTED_SET
};

const WEIGHTS: Argument = Argument::new("weight", Kind::Integer)
    .after("WEIGHTS")
    .multiple()
    .optional();
const AGGREGATE: Argument = Argument::one_of(
    "aggregate",
    &[
        Argument::word("sum", "SUM"),
        Argument::word("min", "MIN"),
        Argument::word("max", "MAX"),
    ],
)
.after("AGGREGATE")
.optional();

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Least,
    Greatest,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => not_nan(one + other),
            Aggregate::Least if other < one => other,
            Aggregate::Greatest if other > one => other,
            Aggregate::Least | Aggregate::Greatest => one,
        }
    }
}

/// Replaces NaN, the sum of opposite infinities, by 0.
fn not_nan(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// The error for arguments that match no option.
const SYNTAX: &str = "ERR syntax error";

/// The arguments after the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// The maximum number of members; 0: no limit.
    limit: u64,
}

/// The options that a command accepts.
#[derive(Clone, Copy)]
struct Takes {
    weights: bool,
    scores: bool,
    limit: bool,
}

impl Options {
    fn of(
        call: &Call<'_>,
        mut at: usize,
        keys: usize,
        takes: Takes,
    ) -> Result<Options, &'static str> {
        let mut options = Options {
            weights: vec![1.0; keys],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
        };
        while at < call.args.len() {
            let left = call.args.len() - at;
            if takes.weights && left > keys && call.is(at, "WEIGHTS") {
                for (index, weight) in options.weights.iter_mut().enumerate() {
                    let number = parse_f64(call.args.at(at + 1 + index));
                    *weight = number.ok_or("ERR weight value is not a float")?;
                }
                at += keys;
            } else if takes.weights && left >= 2 && call.is(at, "AGGREGATE") {
                options.aggregate = if call.is(at + 1, "SUM") {
                    Aggregate::Sum
                } else if call.is(at + 1, "MIN") {
                    Aggregate::Least
                } else if call.is(at + 1, "MAX") {
                    Aggregate::Greatest
                } else {
                    return Err(SYNTAX);
                };
                at += 1;
            } else if takes.scores && call.is(at, "WITHSCORES") {
                options.with_scores = true;
            } else if takes.limit && left >= 2 && call.is(at, "LIMIT") {
                let limit = parse_i64(call.args.at(at + 1));
                let limit = limit.and_then(|limit| u64::try_from(limit).ok());
                options.limit = limit.ok_or("ERR LIMIT can't be negative")?;
                at += 1;
            } else {
                return Err(SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// A result: members in no particular order.
type Members = Vec<(Vec<u8>, f64)>;

/// The keys after argument `at`, which is their number.
fn keys_of<'a>(call: &Call<'a>, at: usize, name: &str) -> Result<Vec<&'a [u8]>, Failure> {
    let number = call.integer(at)?;
    if number < 1 {
        return Err(Failure::other(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let keys = call.args.from(at + 1);
    match usize::try_from(number).is_ok_and(|number| number <= keys.len()) {
        true => Ok(keys.iter().take(number as usize).collect()),
        false => Err(Failure::Syntax),
    }
}

/// All members of the sorted set or set under `key`, none if there is no key. Counts a hit or a
/// miss.
fn members_of(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<ScoredMembers, Failure> {
    let members = match keyspace.kind(key)?.map(|kind| kind.packed()) {
        None | Some(SORTED_SET) => keyspace.read_sorted_set(key, |set| {
            let len = set.len()?;
            set.members(0..len, false)
        })?,
        Some(SET) => Some(members_of_set(keyspace, key)?),
        Some(_) => {
            keyspace.count(true);
            return Err(Failure::WrongType);
        }
    };
    Ok(members.unwrap_or_default())
}

/// The members of the set under `key`, each with the score 1.
fn members_of_set(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<ScoredMembers, Failure> {
    keyspace.read_elements::<SetType, _, _>(key, None, |set| {
        let mut members = ScoredMembers::default();
        for member in set.into_iter().flat_map(|set| set.members()) {
            member?.with_bytes(|member| members.push(member, 1.0));
        }
        Ok(members)
    })
}

/// The result for `keys`, as of one instant. The caller's transaction must have begun.
fn result_of(
    keyspace: &mut Keyspace<'_>,
    keys: &[&[u8]],
    operation: Operation,
    options: &Result<Options, &'static str>,
) -> Result<Members, Failure> {
    let mut sources = Vec::with_capacity(keys.len());
    for key in keys {
        sources.push(members_of(keyspace, key)?);
    }
    // As in Redis, a key of another type is reported before wrong options.
    let options = options.as_ref().map_err(|error| Failure::other(*error))?;
    let mut sources: Vec<_> = sources
        .iter()
        .zip(options.weights.iter().copied())
        .collect();
    // Floating-point sums depend on the order.
    if operation != Operation::Difference {
        sources.sort_by_key(|(members, _)| members.len());
    }
    Ok(match operation {
        Operation::Union => {
            let mut scores: HashMap<&[u8], f64> = HashMap::new();
            for (members, weight) in sources {
                for (member, score) in members.iter() {
                    let score = not_nan(weight * score);
                    let of_others = scores.entry(member);
                    of_others
                        .and_modify(|sum| *sum = options.aggregate.of(*sum, score))
                        .or_insert(score);
                }
            }
            let owned = |(member, score): (&[u8], f64)| (member.to_vec(), score);
            scores.into_iter().map(owned).collect()
        }
        Operation::Intersection => {
            let mut sources = sources.into_iter();
            let Some((first, weight)) = sources.next() else {
                return Ok(Vec::new());
            };
            let others: Vec<(HashMap<&[u8], f64>, f64)> = sources
                .map(|(members, weight)| (members.iter().collect(), weight))
                .collect();
            let mut found = Vec::new();
            for (member, score) in first.iter() {
                let begin = Some(not_nan(weight * score));
                let sum = others.iter().fold(begin, |sum, (of_other, weight)| {
                    let score = weight * of_other.get(member)?;
                    Some(options.aggregate.of(sum?, score))
                });
                found.extend(sum.map(|sum| (member.to_vec(), sum)));
                if options.limit > 0 && found.len() as u64 >= options.limit {
                    break;
                }
            }
            found
        }
        Operation::Difference => {
            let mut sources = sources.into_iter();
            let Some((first, _)) = sources.next() else {
                return Ok(Vec::new());
            };
            let mut left: HashMap<&[u8], f64> = first.iter().collect();
            for (members, _) in sources {
                for (member, _) in members.iter() {
                    left.remove(member);
                }
            }
            let owned = |(member, score): (&[u8], f64)| (member.to_vec(), score);
            left.into_iter().map(owned).collect()
        }
    })
}

fn reply(call: &mut Call<'_>, operation: Operation) -> Outcome {
    let name = match operation {
        Operation::Union => "zunion",
        Operation::Intersection => "zinter",
        Operation::Difference => "zdiff",
    };
    let keys = keys_of(call, 1, name)?;
    let takes = Takes {
        weights: operation != Operation::Difference,
        scores: true,
        limit: false,
    };
    let options = Options::of(call, 2 + keys.len(), keys.len(), takes);
    let mut found = call
        .keyspace
        .atomically(|keyspace| result_of(keyspace, &keys, operation, &options))?;
    let with_scores = options.is_ok_and(|options| options.with_scores);
    found.sort_by(|(one, score), (other, of_other)| {
        let order = score.partial_cmp(of_other);
        (order.unwrap_or(std::cmp::Ordering::Equal)).then_with(|| one.cmp(other))
    });
    let (protocol, reply) = (call.client.protocol, &mut call.reply);
    header(reply, protocol, found.len(), with_scores);
    for (name, score) in found {
        member(reply, protocol, &name, with_scores.then_some(score));
    }
    Ok(())
}

fn store(call: &mut Call<'_>, operation: Operation, name: &'static str) -> Outcome {
    let (to, sources) = (call.args.at(1), keys_of(call, 2, name)?);
    let takes = Takes {
        weights: operation != Operation::Difference,
        scores: false,
        limit: false,
    };
    let options = Options::of(call, 3 + sources.len(), sources.len(), takes);
    let limits = call.server.settings.sorted_set_limits();
    let database = call.keyspace.number();
    let mut keys = vec![(database, to)];
    keys.extend(sources.iter().map(|key| (database, *key)));
    let stored = call.keyspace.atomically_on(&keys, |keyspace| {
        let found = result_of(keyspace, &sources, operation, &options)?;
        let set = SortedSetEdit::of_all(found, limits)?;
        keyspace.store_sorted_set(to, set, name)
    })?;
    call.reply.integer(stored as i64);
    Ok(())
}

fn cardinality(call: &mut Call<'_>) -> Outcome {
    let keys = keys_of(call, 1, "zintercard")?;
    let takes = Takes {
        weights: false,
        scores: false,
        limit: true,
    };
    let options = Options::of(call, 2 + keys.len(), keys.len(), takes);
    let found = call
        .keyspace
        .atomically(|keyspace| result_of(keyspace, &keys, Operation::Intersection, &options))?;
    call.reply.integer(found.len() as i64);
    Ok(())
}
