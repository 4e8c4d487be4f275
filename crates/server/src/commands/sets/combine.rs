//! `SINTER`, `SUNION`, `SDIFF key [key ...]` and `SINTERCARD`: what several sets have in common,
//! together, or the first of them alone.

use std::collections::HashSet;

use super::smembers;
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::settings::Key;
use mneme_collections::listpack::integer;
use mneme_collections::{Form, LargeSet, PackedSet, SetType};

pub(super) static SINTER: Command = Command {
    name: "sinter",
    summary: "Returns the members that all of several sets have",
    complexity: "O(N*M) where N is the size of the smallest set and M the number of sets",
    run: |call| show(call, SetOperation::Intersection),
    ..SHOW
};

pub(super) static SUNION: Command = Command {
    name: "sunion",
    summary: "Returns the members that any of several sets has",
    run: |call| show(call, SetOperation::Union),
    ..SHOW
};

pub(super) static SDIFF: Command = Command {
    name: "sdiff",
    summary: "Returns the members of the first of several sets that no other has",
    run: |call| show(call, SetOperation::Difference),
    ..SHOW
};

const SHOW: Command = Command {
    complexity: "O(N) where N is the number of members of all sets",
    arity: -2,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output_order"],
    keys: &[KeySpec::all(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[Argument::key("key").multiple()],
    ..Command::SET
};

pub(super) static SINTERCARD: Command = Command {
    name: "sintercard",
    summary: "Returns how many members all of several sets have, up to a limit",
    since: "7.0.0",
    complexity: "O(N*M) where N is the size of the smallest set and M the number of sets",
    arity: -3,
    flags: &[Flag::Readonly, Flag::MovableKeys],
    keys: &[KeySpec::counted(1, &[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::new("numkeys", Kind::Integer),
        Argument::key("key").multiple(),
        Argument::new("limit", Kind::Integer)
            .after("LIMIT")
            .optional(),
    ],
    run: card,
    ..Command::SET
};

/// How sets are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SetOperation {
    Intersection,
    Union,
    Difference,
}

fn show(call: &mut Call<'_>, operation: SetOperation) -> Outcome {
    let keys: Vec<&[u8]> = call.args.from(1).iter().collect();
    if let [key] = keys[..] {
        return smembers::all(call, key);
    }
    let most = call.server.settings.count(Key::SetIntegers);
    let combined = call
        .keyspace
        .atomically(|keyspace| combine(keyspace, operation, &keys, usize::MAX, most))?;
    let reply = &mut call.reply;
    reply.set(combined.members.len());
    for member in &combined.members {
        // The rest will not be sent.
        if reply.is_over() {
            break;
        }
        reply.bulk(member);
    }
    Ok(())
}

fn card(call: &mut Call<'_>) -> Outcome {
    let number = call.integer(1).ok();
    let number = number.and_then(|number| usize::try_from(number).ok());
    let number = number
        .filter(|number| *number > 0)
        .ok_or(Failure::other("ERR numkeys should be greater than 0"))?;
    if number > call.args.len() - 2 {
        return Err(Failure::other(
            "ERR Number of keys can't be greater than number of args",
        ));
    }
    let (mut wanted, mut index) = (0, 2 + number);
    while index < call.args.len() {
        if !call.is(index, "LIMIT") || index + 1 == call.args.len() {
            return Err(Failure::Syntax);
        }
        let limit = call.integer(index + 1).ok();
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        wanted = limit.ok_or(Failure::other("ERR LIMIT can't be negative"))?;
        index += 2;
    }
    let wanted = if wanted == 0 { usize::MAX } else { wanted };
    let keys: Vec<&[u8]> = call.args.from(2).iter().take(number).collect();
    let combined = call
        .keyspace
        .atomically(|keyspace| combine(keyspace, SetOperation::Intersection, &keys, wanted, 0))?;
    call.reply.integer(combined.members.len() as i64);
    Ok(())
}

/// What sets come to together.
pub(super) struct Combined {
    /// In ascending order if Redis would keep them as an intset.
    pub members: Vec<Vec<u8>>,
    /// Whether Redis would have made a table of them on its way.
    pub is_table: bool,
}

/// Combines the sets under `keys`, within a transaction; at least up to `wanted` members. An intset
/// has at most `max_intset` members. Counts a hit or a miss for each key.
pub(super) fn combine(
    keyspace: &mut Keyspace<'_>,
    operation: SetOperation,
    keys: &[&[u8]],
    wanted: usize,
    max_intset: usize,
) -> Result<Combined, Failure> {
    let mut sources = Vec::with_capacity(keys.len());
    for key in keys {
        sources.push(Source::read(keyspace, key)?);
    }
    let (mut members, is_table) = match operation {
        SetOperation::Intersection => (intersection(keyspace, sources, wanted)?, false),
        SetOperation::Union => (union(keyspace, &sources)?, false),
        SetOperation::Difference => difference(keyspace, &sources, max_intset)?,
    };
    if members.len() <= max_intset && !is_table {
        let numbers = members.iter().map(|member| integer(member));
        if let Some(mut numbers) = numbers.collect::<Option<Vec<i64>>>() {
            numbers.sort_unstable();
            let texts = numbers.iter().map(|number| number.to_string().into_bytes());
            members = texts.collect();
        }
    }
    Ok(Combined { members, is_table })
}

/// Members of the smallest set that are looked for in the others together.
const TOGETHER: usize = 1 << 12;

/// The members that all have, at least up to `wanted`.
fn intersection(
    keyspace: &mut Keyspace<'_>,
    mut sources: Vec<Source<'_>>,
    wanted: usize,
) -> Result<Vec<Vec<u8>>, Failure> {
    sources.sort_by_key(|source| source.len);
    let Some((smallest, others)) = sources.split_first() else {
        return Ok(Vec::new());
    };
    let mut common = Vec::new();
    for mut some in chunks(smallest.members(keyspace)?) {
        for other in others {
            other.retain(keyspace, &mut some, true)?;
        }
        common.append(&mut some);
        if common.len() >= wanted {
            common.truncate(wanted);
            break;
        }
    }
    Ok(common)
}

/// The members in pieces.
fn chunks(members: Vec<Vec<u8>>) -> impl Iterator<Item = Vec<Vec<u8>>> {
    let mut members = members.into_iter();
    std::iter::from_fn(move || {
        let some: Vec<_> = members.by_ref().take(TOGETHER).collect();
        (!some.is_empty()).then_some(some)
    })
}

/// The members that any has.
fn union(keyspace: &mut Keyspace<'_>, sources: &[Source<'_>]) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for source in sources {
        for member in source.members(keyspace)? {
            if seen.insert(member.clone()) {
                all.push(member);
            }
        }
    }
    Ok(all)
}

/// The members of the first that no other has, and whether Redis would have made a table on its
/// way: it either looks for each member in the others, or removes their members from a copy of the
/// first, whichever is less work.
fn difference(
    keyspace: &mut Keyspace<'_>,
    sources: &[Source<'_>],
    max_intset: usize,
) -> Result<(Vec<Vec<u8>>, bool), Failure> {
    let Some((first, others)) = sources.split_first() else {
        return Ok((Vec::new(), false));
    };
    let mut members = first.members(keyspace)?;
    let there = sources.iter().filter(|source| source.len > 0);
    let (count, total) = there.fold((0, 0), |(count, total), source| {
        (count + 1, total + source.len)
    });
    if first.len.saturating_mul(count) / 2 <= total {
        for other in others {
            other.retain(keyspace, &mut members, false)?;
        }
        return Ok((members, false));
    }
    let is_table =
        members.len() > max_intset || members.iter().any(|member| integer(member).is_none());
    let mut gone = HashSet::new();
    for other in others {
        gone.extend(other.members(keyspace)?);
    }
    members.retain(|member| !gone.contains(member));
    Ok((members, is_table))
}

/// A set that is combined with others.
struct Source<'k> {
    key: &'k [u8],
    /// Its members; 0: it is not there.
    len: usize,
    /// `None`: it is large.
    image: Option<Vec<u8>>,
}

impl<'k> Source<'k> {
    fn read(keyspace: &mut Keyspace<'_>, key: &'k [u8]) -> Result<Self, Failure> {
        let count = |set: LargeSet<'_>| Ok(set.count() as usize);
        keyspace.read_collection::<SetType, _, _>(key, count, |set| {
            let (len, image) = match set {
                None => (0, None),
                Some(Form::Packed(set)) => (set.len()?, Some(set.to_image())),
                Some(Form::Large(count)) => (count, None),
            };
            Ok(Source { key, len, image })
        })
    }

    fn members(&self, keyspace: &mut Keyspace<'_>) -> Result<Vec<Vec<u8>>, Failure> {
        if let Some(image) = &self.image {
            let members = PackedSet::read(image)?.members();
            return members.map(|member| Ok(member?.to_vec())).collect();
        }
        match self.len {
            0 => Ok(Vec::new()),
            _ => self.in_large(keyspace, |mut set| set.members()),
        }
    }

    /// Keeps those of `members` that it contains, or does not.
    fn retain(
        &self,
        keyspace: &mut Keyspace<'_>,
        members: &mut Vec<Vec<u8>>,
        contained: bool,
    ) -> Outcome {
        if members.is_empty() {
            return Ok(());
        }
        let sought: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
        let found = match &self.image {
            Some(image) => PackedSet::read(image)?.contains_many(&sought)?,
            None if self.len == 0 => vec![false; sought.len()],
            None => self.in_large(keyspace, |mut set| set.contains_many(&sought))?,
        };
        let mut found = found.into_iter();
        members.retain(|_| found.next() == Some(contained));
        Ok(())
    }

    fn in_large<R>(
        &self,
        keyspace: &mut Keyspace<'_>,
        work: impl FnMut(LargeSet<'_>) -> Result<R, mneme_collections::CollectionError>,
    ) -> Result<R, Failure> {
        let result = keyspace.with_large::<SetType, _>(self.key, work)?;
        result.ok_or_else(|| Failure::Store("a set is gone within a transaction".into()))
    }
}
