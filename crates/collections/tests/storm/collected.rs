//! Elements of collections: **for each lane a hash, a sorted set and a list**, which it changes by
//! `mneme_collections`, as any local program would.
//!
//! A name is a field of the hash, a member of the sorted set, or the list as a whole. A field's
//! value names its owner. The score of a member is the number of the change. The items of the list
//! are consecutive numbers, so that its state is the first one and how many there are. All three
//! become large, have their leaves split and joined, and are removed as a whole again and again.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use mneme_collections::{
    CollectionError, End, Hash, HashType, Limits, List, ListType, SortedRange, SortedSet,
    SortedSetLimits, SortedSetType, check_while, edit,
};
use mneme_log::{Cursor, LogStore};
use mneme_testkit::Random;

use super::expected::{How, Span, State, now};
use super::lane::{Lane, Refused, await_kill};
use super::look::{MayPass, patiently, place, read};
use super::names::{COLLECTED, MAIN, key};
use super::roles::Twin;
use super::value::LEAST;

const FIELDS: Range<usize> = 0..300;
const MEMBERS: Range<usize> = 300..600;
const LIST: usize = 600;

/// Names of elements.
pub const NAMES: usize = LIST + 1;
/// Bytes of the index that remain when all of them are gone: a block for each partition of both
/// hidden keyspaces, which are never cleared.
pub const INDEX: u64 = 128 << 10;
/// The prefixes of the points at which a participant has to die: those of transactions, by which
/// all large values change, and of the sweep.
pub const POINTS: &[&str] = &[
    "sweep.collections.",
    "txn.intent",
    "txn.home.",
    "txn.locked",
    "txn.committed",
    "txn.applied",
    "txn.unlocked",
];

/// The first item of a list that was empty, if it has any.
const MIDDLE: u64 = 1 << 30;
/// The maximum number of items of a list.
const LONGEST: usize = 3000;

/// The names of the collection that the `nth` of them belongs to.
pub fn of_collection(nth: usize) -> Range<usize> {
    let all = [FIELDS, MEMBERS, LIST..NAMES];
    all.into_iter().find(|names| names.contains(&nth)).unwrap()
}

/// Names from `COLLECTED.start` on.
fn names_of(collection: &Range<usize>) -> Range<usize> {
    COLLECTED.start + collection.start..COLLECTED.start + collection.end
}

const LIST_NAME: usize = COLLECTED.start + LIST;

/// Whether the next operation of a lane, or of a reader, is on a collection.
pub fn is_next(random: &mut Random) -> bool {
    random.below(5) < 4
}

/// Whether the state of a name has the number of a change.
pub fn is_numbered(name: usize) -> bool {
    name != LIST_NAME
}

impl MayPass for CollectionError {
    fn may_pass(&self) -> bool {
        matches!(self, CollectionError::Store(error) if error.may_pass())
    }
}

/// The bytes of a field or a member. They are of several lengths.
fn element(name: usize) -> Vec<u8> {
    let mut bytes = format!("element-{name}-").into_bytes();
    bytes.resize(14 + name % 40, b'.');
    bytes
}

fn name_of(element: &[u8]) -> Result<usize, String> {
    let text = String::from_utf8_lossy(element);
    let name = text.split('-').nth(1).and_then(|name| name.parse().ok());
    let name = name.filter(|name| self::element(*name) == element);
    name.ok_or_else(|| format!("an element {text} that nobody has stored"))
}

fn item(number: u64) -> Vec<u8> {
    let mut bytes = format!("{number}-").into_bytes();
    bytes.resize(12 + (number % 90) as usize, b'.');
    bytes
}

/// The consecutive numbers in these items, as the state of a list.
fn list_of(items: &[Vec<u8>]) -> Result<State, String> {
    let Some(head) = items.first() else {
        return Ok(State::default());
    };
    let text = String::from_utf8_lossy(head);
    let seq: Option<u64> = text.split('-').next().and_then(|n| n.parse().ok());
    let seq = seq.ok_or_else(|| format!("an item {text} that nobody has stored"))?;
    for (number, found) in (seq..).zip(items) {
        if *found != item(number) {
            let found = found.escape_ascii();
            return Err(format!("a list has {found} where {number} should be"));
        }
    }
    let (len, until) = (items.len(), 0);
    Ok(State { seq, len, until })
}

fn state_of_member(score: f64) -> Result<State, String> {
    let seq = score as u64;
    let (len, until) = (1, 0);
    match seq as f64 == score {
        true => Ok(State { seq, len, until }),
        false => Err(format!("a score of {score}")),
    }
}

/// The state of a name.
pub fn look(store: &LogStore, lane: usize, name: usize) -> Result<Option<State>, String> {
    let (at, key) = (place(store, lane, name), key(lane, name));
    let state = match name - COLLECTED.start {
        LIST => {
            let list = List::new(at, &key);
            list_of(&patiently(|| list.range(0..usize::MAX))?)?
        }
        nth if FIELDS.contains(&nth) => {
            let hash = Hash::new(at, &key);
            match patiently(|| hash.get(&element(name)))? {
                Some(value) => read(lane, name, &value)?,
                None => State::default(),
            }
        }
        _ => {
            let set = SortedSet::new(at, &key);
            match patiently(|| set.score(&element(name)))? {
                Some(score) => state_of_member(score)?,
                None => State::default(),
            }
        }
    };
    Ok(state.is_there().then_some(state))
}

/// Reads all collections of a lane, each as a whole.
pub fn read_all(store: &LogStore, lane: usize) -> Result<(), String> {
    let of = |collection: &Range<usize>| {
        let name = names_of(collection).start;
        (place(store, lane, name), key(lane, name))
    };
    let (at, hash) = of(&FIELDS);
    let mut names = Vec::new();
    for (field, value) in patiently(|| Hash::new(at, &hash).pairs())? {
        let name = name_of(&field)?;
        read(lane, name, &value)?;
        names.push(name);
    }
    let (at, set) = of(&MEMBERS);
    let all = SortedRange::Ranks(0, -1);
    let members = patiently(|| SortedSet::new(at, &set).range(&all, false))?;
    let mut last = 0;
    for (member, score) in members.iter() {
        names.push(name_of(member)?);
        let seq = state_of_member(score)?.seq;
        // Members that are set together have numbers of their own, too.
        if seq <= last {
            return Err(format!("a score of {seq} after {last}"));
        }
        last = seq;
    }
    let found = names.len();
    names.sort_unstable();
    names.dedup();
    if names.len() != found {
        return Err(format!("{found} elements, {} of them once", names.len()));
    }
    let (at, list) = of(&(LIST..NAMES));
    list_of(&patiently(|| List::new(at, &list).range(0..usize::MAX))?).map(drop)
}

/// The maximum number of collections that a check has found.
static MOST: AtomicU64 = AtomicU64::new(0);

/// Fails if no value became large, in which case the storm shows nothing.
pub fn assert_large() {
    let most = MOST.load(Relaxed);
    assert!(most > 3, "{most} large values at most");
}

/// The store has this number of collections, and is sound beyond what the log checks: each value is
/// valid for its kind, and each collection has a key.
pub fn check(store: &LogStore, collections: u64) -> Result<(), String> {
    let problems = patiently(|| check_while(store, &|| true))?;
    if !problems.is_empty() {
        return Err(format!("the check of values: {problems:#?}"));
    }
    let (mut mains, mut cursor) = (0, Cursor::START);
    while cursor != Cursor::END {
        let database = store.database(0).unwrap();
        let mut large = 0;
        let scanned = patiently(|| {
            large = 0;
            database.scan_kinds(cursor, 256, |_, kind| large += u64::from(kind.is_large()))
        });
        (cursor, mains) = (scanned?, mains + large);
    }
    MOST.fetch_max(mains, Relaxed);
    match mains == collections {
        true => Ok(()),
        false => Err(format!("{collections} collections of {mains} keys")),
    }
}

fn slices(elements: &[Vec<u8>]) -> Vec<&[u8]> {
    elements.iter().map(Vec::as_slice).collect()
}

/// Names of a hash or a sorted set, and their new states.
type Steps = Vec<(usize, State)>;

impl Lane<'_> {
    fn refused<T>(&self, done: Result<T, CollectionError>) -> Result<(), Refused> {
        match done {
            Ok(_) => Ok(()),
            Err(CollectionError::Store(error)) => Err((0, error)),
            Err(error) => self.wrong(&format!("a collection: {error}")),
        }
    }

    /// Checks that a collection's result is the one that the lane expects.
    fn agree<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        found: &Result<T, CollectionError>,
        expected: &T,
    ) {
        if let Ok(found) = found
            && found != expected
        {
            self.wrong(&format!("{what}: {found:?} found, {expected:?} expected"));
        }
    }

    /// Some different names of a collection.
    fn any_of(&mut self, collection: &Range<usize>, most: u64) -> Vec<usize> {
        let names = names_of(collection);
        let most = match self.random.below(10) {
            0 => names.len() as u64,
            _ => most.min(names.len() as u64),
        };
        let count = 1 + self.random.below(most) as usize;
        let first = self.random.below(names.len() as u64) as usize;
        let step = [1, 7, 11][self.random.below(3) as usize];
        (0..count)
            .map(|i| names.start + (first + i * step) % names.len())
            .collect()
    }

    fn are_there(&self, names: impl Iterator<Item = usize>) -> usize {
        names
            .filter(|name| self.diary.state(*name).is_there())
            .count()
    }

    fn new_fields(&mut self, most: u64) -> Steps {
        let names = self.any_of(&FIELDS, most).into_iter();
        names
            .map(|name| {
                let len = LEAST + self.random.below(200) as usize;
                (name, self.next(len, 0))
            })
            .collect()
    }

    fn new_members(&mut self, most: u64) -> Steps {
        let names = self.any_of(&MEMBERS, most).into_iter();
        names.map(|name| (name, self.next(1, 0))).collect()
    }

    fn set_fields(&mut self) {
        let steps = self.new_fields(12);
        let there = self.are_there(steps.iter().map(|step| step.0));
        self.change("fields set", How::Whole, &steps, |lane| {
            let (at, key) = lane.at(&FIELDS);
            let (hash, elements) = (Hash::new(at, &key), lane.fields(&steps));
            let pairs = pairs(&elements);
            if lane.twin == Twin::Elements && pairs.len() > 1 {
                for (i, (field, value)) in pairs.iter().enumerate() {
                    if i > 0 {
                        await_kill();
                    }
                    lane.refused(hash.set(field, value))?;
                }
            }
            // A single pair is set in another way.
            let new = match &pairs[..] {
                [(field, value)] => hash.set(field, value).map(usize::from),
                pairs => hash.set_many(pairs),
            };
            lane.agree("new fields", &new, &(steps.len() - there));
            lane.refused(new)
        });
    }

    fn remove_fields(&mut self) {
        let names = self.any_of(&FIELDS, 20);
        let there = self.are_there(names.iter().copied());
        let steps: Steps = names
            .into_iter()
            .map(|name| (name, self.removal()))
            .collect();
        self.change("fields removed", How::Whole, &steps, |lane| {
            let (at, key) = lane.at(&FIELDS);
            let fields: Vec<_> = steps.iter().map(|step| element(step.0)).collect();
            let removed = Hash::new(at, &key).remove_many(&slices(&fields));
            lane.agree("removed fields", &removed, &there);
            lane.refused(removed)
        });
    }

    fn set_members(&mut self) {
        let steps = self.new_members(12);
        let there = self.are_there(steps.iter().map(|step| step.0));
        self.change("members set", How::Whole, &steps, |lane| {
            let (at, key) = lane.at(&MEMBERS);
            let members: Vec<_> = steps.iter().map(|step| element(step.0)).collect();
            let new = SortedSet::new(at, &key).set_many(&scored(&members, &steps));
            lane.agree("new members", &new, &(steps.len() - there));
            lane.refused(new)
        });
    }

    /// Those with the lowest scores, or the highest.
    fn pop_members(&mut self) {
        let mut there: Vec<_> = names_of(&MEMBERS)
            .map(|name| (name, self.diary.state(name)))
            .filter(|(_, state)| state.is_there())
            .collect();
        there.sort_unstable_by_key(|(_, state)| state.seq);
        let is_last = self.random.one_in(2);
        if is_last {
            there.reverse();
        }
        let most = if self.random.one_in(10) { 300 } else { 30 };
        there.truncate(1 + self.random.below(most) as usize);
        let steps: Steps = there
            .iter()
            .map(|(name, _)| (*name, self.removal()))
            .collect();
        self.change("members popped", How::Whole, &steps, |lane| {
            let (at, key) = lane.at(&MEMBERS);
            let (set, count) = (SortedSet::new(at, &key), steps.len() as u64);
            let popped = match is_last {
                true => set.pop_last(count),
                false => set.pop_first(count),
            };
            let popped = popped.map(|popped| {
                let each = popped.iter();
                each.map(|(member, score)| (member.to_vec(), score as u64))
                    .collect()
            });
            let expected: Vec<_> = there
                .iter()
                .map(|(name, state)| (element(*name), state.seq))
                .collect();
            lane.agree("popped members", &popped, &expected);
            lane.refused(popped)
        });
    }

    /// Some items for an end of the list, in the order in which they come there, and its new state.
    fn new_items(&mut self, end: End) -> Option<(Vec<Vec<u8>>, State)> {
        let old = self.diary.state(LIST_NAME);
        let first = if old.is_there() { old.seq } else { MIDDLE };
        let most = if self.random.one_in(10) { 400 } else { 30 };
        let count = 1 + self.random.below(most);
        let new = State {
            seq: match end {
                End::Front => first - count,
                End::Back => first,
            },
            len: old.len + count as usize,
            until: 0,
        };
        let items = match end {
            End::Front => (new.seq..first).rev().map(item).collect(),
            End::Back => (first + old.len as u64..)
                .take(count as usize)
                .map(item)
                .collect(),
        };
        (new.len <= LONGEST).then_some((items, new))
    }

    fn any_end(&mut self) -> End {
        match self.random.one_in(2) {
            true => End::Front,
            false => End::Back,
        }
    }

    fn push(&mut self) {
        let end = self.any_end();
        let Some((items, new)) = self.new_items(end) else {
            return;
        };
        self.change("items pushed", How::Whole, &[(LIST_NAME, new)], |lane| {
            let (at, key) = lane.at(&(LIST..NAMES));
            let len = List::new(at, &key).push(end, &slices(&items));
            lane.agree("items", &len, &new.len);
            lane.refused(len)
        });
    }

    fn pop_items(&mut self) {
        let (old, end) = (self.diary.state(LIST_NAME), self.any_end());
        let most = if self.random.one_in(10) {
            LONGEST as u64
        } else {
            60
        };
        let count = old.len.min(1 + self.random.below(most) as usize);
        if count == 0 {
            return;
        }
        let behind = old.seq + old.len as u64;
        let (popped, seq): (Vec<_>, _) = match end {
            End::Front => ((old.seq..).take(count).collect(), old.seq + count as u64),
            End::Back => ((old.seq..behind).rev().take(count).collect(), old.seq),
        };
        let (len, until) = (old.len - count, 0);
        let step = (LIST_NAME, State { seq, len, until });
        self.change("items popped", How::Whole, &[step], |lane| {
            let (at, key) = lane.at(&(LIST..NAMES));
            let items = List::new(at, &key).pop_many(end, count);
            lane.agree(
                "popped items",
                &items,
                &popped.iter().map(|n| item(*n)).collect(),
            );
            lane.refused(items)
        });
    }

    /// A whole collection is removed with its key.
    fn remove_collection(&mut self) {
        let all = [FIELDS, MEMBERS, LIST..NAMES];
        let collection = all[self.random.below(3) as usize].clone();
        let there = names_of(&collection).filter(|name| self.diary.state(*name).is_there());
        let there: Vec<usize> = there.collect();
        let steps: Steps = there
            .into_iter()
            .map(|name| (name, self.removal()))
            .collect();
        self.change("collection removed", How::Whole, &steps, |lane| {
            let (at, key) = lane.at(&collection);
            let removed = at.remove(&key).map_err(CollectionError::from);
            lane.agree("a removed key", &removed, &true);
            lane.refused(removed)
        });
    }

    /// Elements of all three, and a string.
    fn transact_collected(&mut self) {
        let (fields, members) = (self.new_fields(4), self.new_members(4));
        let end = self.any_end();
        let Some((items, list)) = self.new_items(end) else {
            return;
        };
        let string = (self.random.among(&MAIN), self.next(100, 0));
        let all = [(LIST_NAME, list), string];
        let mut steps = all.to_vec();
        steps.extend(fields.iter().chain(&members));
        // As many as a diary has space for.
        if steps.len() > 500 {
            return;
        }
        let kind = "collections in a transaction";
        self.change(kind, How::Whole, &steps, |lane| {
            let (_, hash) = lane.at(&FIELDS);
            let (_, set) = lane.at(&MEMBERS);
            let (_, of_items) = lane.at(&(LIST..NAMES));
            let of_fields = lane.fields(&fields);
            let pairs = pairs(&of_fields);
            let names: Vec<&[u8]> = pairs.iter().map(|pair| pair.0).collect();
            let of_members: Vec<_> = members.iter().map(|step| element(step.0)).collect();
            let scored = scored(&of_members, &members);
            let done = lane.store.transaction(|t| {
                edit::<HashType, _, _>(t, (0, &hash), Some(&names), |hash| {
                    hash.set_many(&pairs)?;
                    hash.convert(Limits::default())?;
                    Ok::<_, CollectionError>(((), true))
                })?;
                edit::<SortedSetType, _, _>(t, (0, &set), (), |set| {
                    for (member, score) in &scored {
                        set.set(member, *score)?;
                    }
                    set.convert(SortedSetLimits::default())?;
                    Ok::<_, CollectionError>(((), set.is_changed()))
                })?;
                edit::<ListType, _, _>(t, (0, &of_items), (), |list| {
                    list.push_many(end, &slices(&items))?;
                    Ok::<_, CollectionError>(((), list.is_changed()))
                })?;
                let (name, state) = string;
                t.put(&lane.key(name), &lane.value(name, state))?;
                Ok::<_, CollectionError>(())
            });
            lane.refused(done)
        });
    }

    fn at(&self, collection: &Range<usize>) -> (mneme_log::Database<'_>, Vec<u8>) {
        let name = names_of(collection).start;
        (place(self.store, self.number, name), self.key(name))
    }

    fn fields(&self, steps: &Steps) -> Vec<(Vec<u8>, Vec<u8>)> {
        let each = steps.iter();
        each.map(|(name, state)| (element(*name), self.value(*name, *state)))
            .collect()
    }

    /// One operation on a collection.
    pub fn step_collected(&mut self) {
        if self.lean > 0 {
            self.lean -= 1;
            if self.random.one_in(2) {
                return match self.random.below(4) {
                    0 => self.remove_fields(),
                    1 => self.pop_members(),
                    2 => self.pop_items(),
                    _ => self.remove_collection(),
                };
            }
        }
        match self.random.below(100) {
            0..30 => self.set_fields(),
            30..42 => self.remove_fields(),
            42..60 => self.set_members(),
            60..66 => self.pop_members(),
            66..80 => self.push(),
            80..86 => self.pop_items(),
            86..90 => self.remove_collection(),
            90..97 => self.transact_collected(),
            97 => self.passes(self.store.compact()),
            _ => self.passes(self.store.sweep_collections()),
        }
        // Each has what the lane has stored, wherever that is now.
        if self.random.one_in(50) {
            let name = self.random.among(&COLLECTED);
            let (state, since) = (self.diary.state(name), now());
            match look(self.store, self.number, name) {
                Ok(seen) if state.allows(seen, Span::since(since)) => {}
                Ok(seen) => self.wrong(&format!("name {name}: {state:?} expected, {seen:?} found")),
                Err(error) => self.wrong(&format!("name {name}: {error}")),
            }
        }
    }
}

fn pairs(fields: &[(Vec<u8>, Vec<u8>)]) -> Vec<(&[u8], &[u8])> {
    let each = fields.iter();
    each.map(|(field, value)| (&field[..], &value[..]))
        .collect()
}

fn scored<'m>(members: &'m [Vec<u8>], steps: &Steps) -> Vec<(&'m [u8], f64)> {
    let scores = steps.iter().map(|step| step.1.seq as f64);
    members.iter().map(Vec::as_slice).zip(scores).collect()
}
