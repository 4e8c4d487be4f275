//! `SINTER`, `SUNION`, `SDIFF key [key ...]` and `SINTERCARD`: the intersection of several sets,
//! their union, or the first without the others.

use std::borrow::Cow;
use std::collections::HashSet;

use super::smembers;
use crate::command::*;
use crate::keyspace::Keyspace;
use crate::settings::Key;
use mneme_collections::listpack::Element;
use mneme_collections::{Form, LargeSet, PackedBuilder, PackedSet, RawElement, SetType};

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
    smembers::members(&mut call.reply, &PackedSet::read(&combined)?)
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
    let count = PackedSet::read(&combined)?.len()?;
    call.reply.integer(count as i64);
    Ok(())
}

/// Combines the sets under `keys`, within a transaction. At least `wanted` members are computed, if
/// there are that many. Counts a hit or a miss for each key. Returns the image of a set; it counts
/// as an intset, of at most `max_intset` members, if it would in Redis.
pub(super) fn combine(
    keyspace: &mut Keyspace<'_>,
    operation: SetOperation,
    keys: &[&[u8]],
    wanted: usize,
    max_intset: usize,
) -> Result<Vec<u8>, Failure> {
    let mut sources = Vec::with_capacity(keys.len());
    for key in keys {
        sources.push(Source::read(keyspace, key)?);
    }
    let (members, is_table) = match operation {
        SetOperation::Intersection => (intersection(keyspace, sources, wanted)?, false),
        SetOperation::Union => (union(keyspace, &sources)?, false),
        SetOperation::Difference => difference(keyspace, &sources, max_intset)?,
    };
    Ok(members.into_set(if is_table { 0 } else { max_intset })?)
}

/// The number of members of the smallest set that are searched for in the others at once.
const TOGETHER: usize = 1 << 12;

/// The members that all sets have, or at least `wanted` of them.
fn intersection(
    keyspace: &mut Keyspace<'_>,
    mut sources: Vec<Source<'_>>,
    wanted: usize,
) -> Result<PackedBuilder<1>, Failure> {
    let mut common = PackedBuilder::default();
    sources.sort_by_key(|source| source.len);
    let Some((smallest, others)) = sources.split_first() else {
        return Ok(common);
    };
    let image = smallest.image(keyspace)?;
    let mut members = PackedSet::read(&image)?.raw();
    while common.len() < wanted {
        let some = members.by_ref().take(TOGETHER);
        let mut some = some.collect::<Result<Vec<_>, _>>()?;
        if some.is_empty() {
            break;
        }
        for other in others {
            other.retain(keyspace, &mut some, true)?;
        }
        let left = wanted - common.len();
        some.iter()
            .take(left)
            .for_each(|member| common.push(member));
    }
    Ok(common)
}

/// The members that any set has.
fn union(keyspace: &mut Keyspace<'_>, sources: &[Source<'_>]) -> Result<PackedBuilder<1>, Failure> {
    let images = images(keyspace, sources)?;
    let (mut all, mut seen) = (PackedBuilder::default(), HashSet::new());
    for image in &images {
        for member in PackedSet::read(image)?.raw() {
            let member = member?;
            if seen.insert(member.bytes()) {
                all.push(&member);
            }
        }
    }
    Ok(all)
}

fn images<'s>(
    keyspace: &mut Keyspace<'_>,
    sources: &'s [Source<'_>],
) -> Result<Vec<Cow<'s, [u8]>>, Failure> {
    let images = sources.iter().map(|source| source.image(keyspace));
    images.collect()
}

/// The members of the first set that no other has, and whether Redis would have made a table in the
/// process: it either searches for each member in the others, or removes their members from a copy
/// of the first, whichever is less work.
fn difference(
    keyspace: &mut Keyspace<'_>,
    sources: &[Source<'_>],
    max_intset: usize,
) -> Result<(PackedBuilder<1>, bool), Failure> {
    let mut left = PackedBuilder::default();
    let Some((first, others)) = sources.split_first() else {
        return Ok((left, false));
    };
    let image = first.image(keyspace)?;
    let members = PackedSet::read(&image)?.raw();
    let mut members = members.collect::<Result<Vec<_>, _>>()?;
    let there = sources.iter().filter(|source| source.len > 0);
    let (count, total) = there.fold((0, 0), |(count, total), source| {
        (count + 1, total + source.len)
    });
    let looks_up = first.len.saturating_mul(count) / 2 <= total;
    let is_integer = |member: &RawElement<'_>| matches!(member.field(), Element::Integer(_));
    let is_table = !looks_up && (members.len() > max_intset || !members.iter().all(is_integer));
    if looks_up {
        for other in others {
            other.retain(keyspace, &mut members, false)?;
        }
    } else {
        let images = images(keyspace, others)?;
        let mut gone = HashSet::new();
        for image in &images {
            for member in PackedSet::read(image)?.raw() {
                gone.insert(member?.bytes());
            }
        }
        members.retain(|member| !gone.contains(member.bytes()));
    }
    members.iter().for_each(|member| left.push(member));
    Ok((left, is_table))
}

/// A set that is combined with others.
struct Source<'k> {
    key: &'k [u8],
    /// The number of its members.
    len: usize,
    /// Its image; `None`: the set is large.
    image: Option<Vec<u8>>,
}

impl<'k> Source<'k> {
    fn read(keyspace: &mut Keyspace<'_>, key: &'k [u8]) -> Result<Self, Failure> {
        let count = |set: LargeSet<'_>| Ok(set.count() as usize);
        keyspace.read_collection::<SetType, _, _>(key, count, |set| {
            let (len, image) = match set {
                None => (0, Some(PackedBuilder::<1>::default().into_image()?)),
                Some(Form::Packed(set)) => (set.len()?, Some(set.to_image())),
                Some(Form::Large(count)) => (count, None),
            };
            Ok(Source { key, len, image })
        })
    }

    /// The image of the whole set.
    fn image(&self, keyspace: &mut Keyspace<'_>) -> Result<Cow<'_, [u8]>, Failure> {
        match &self.image {
            Some(image) => Ok(image.into()),
            None => Ok(self.in_large(keyspace, |mut set| set.view(None))?.into()),
        }
    }

    /// Keeps those of `members` that it contains, or those that it does not.
    fn retain(
        &self,
        keyspace: &mut Keyspace<'_>,
        members: &mut Vec<RawElement<'_>>,
        contained: bool,
    ) -> Outcome {
        if members.is_empty() {
            return Ok(());
        }
        let found = match &self.image {
            Some(image) => PackedSet::read(image)?.contains_many(members)?,
            None => self.in_large(keyspace, |mut set| set.contains_many(members))?,
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
