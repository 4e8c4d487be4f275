//! Readers of the index beside all kinds of changes to it.
//!
//! One partition with one index page of two buckets; the home bucket of the key in question is
//! full, so that the key lies, or will lie, behind it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::thread;
use mneme_sync::{SlotId, Word};

use super::{
    Contents, KeyspaceId, LooseExchanges, LooseLoads, LooseStores, Model, Orders, Sound, fails,
    holds, record_loc,
};
use crate::index::bucket::{Entry, SLOTS, TryLock};
use crate::index::lookup::{BucketRead, Lookup};
use crate::index::resize;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::region::mem::{Loc, Memory};

const ROOT: u64 = 8;
/// Root header of eight words, then the word of partition zero.
const PARTITION: u64 = ROOT + 8;
const OLD: SegmentRef = segment(32, 2);
const NEW: SegmentRef = segment(64, 3);
const WORDS: u64 = 128;

const fn segment(at: u64, buckets: u64) -> SegmentRef {
    SegmentRef::new(Loc::at_word(at), buckets, 0)
}

/// The key in question; its home is bucket 0 in both shapes.
pub(super) const KEY: u8 = b'k';
const TAG: u32 = 7;
pub(super) const PLACE: Place = Place {
    partition: 0,
    tag: TAG,
};
/// Another key of the same home.
const OTHER: u8 = b'o';
const OTHER_PLACE: Place = Place {
    partition: 0,
    tag: 8,
};
/// Where the first record of `KEY` lies, and where later ones go.
const FIRST: usize = 0;
const SECOND: usize = 1;
const THIRD: usize = 2;

/// What is in the old segment before the threads start.
#[derive(Clone, Copy)]
pub(super) struct Scene {
    /// Entries that only fill slots, in each bucket.
    fillers: [usize; 2],
    /// Whether `KEY` is there: behind its home, unless that has a free slot.
    key: bool,
}

const EMPTY: Scene = Scene {
    fillers: [0, 0],
    key: false,
};
const FULL_HOME: Scene = Scene {
    fillers: [SLOTS, 0],
    key: false,
};
pub(super) const KEY_IN_FRONT: Scene = Scene {
    fillers: [0, 0],
    key: true,
};
const KEY_BEHIND: Scene = Scene {
    fillers: [SLOTS, 0],
    key: true,
};

impl Scene {
    pub(super) fn build<O: Orders>(self) -> Arc<KeyspaceId<O>> {
        let behind = usize::from(self.fillers[0] == SLOTS);
        let filler = |bucket: usize, i: usize| {
            let tag = (bucket as u32) << 21 | (100 + i as u32);
            Entry::new(tag, record_loc(100 + i)).0
        };
        let key = Entry::new(TAG, record_loc(FIRST)).0;
        let words = (0..WORDS).map(|at| {
            let of_old = at.checked_sub(OLD.loc().bits()).filter(|i| *i < 32);
            let (bucket, word) = of_old.map_or((0, 0), |i| (i as usize / 16, i as usize % 16));
            match (of_old, word) {
                _ if at == PARTITION => Model::new(OLD.word()),
                (None, _) if at < NEW.loc().bits() => Model::still(0),
                // A reach of one for the home bucket.
                (Some(_), 0) if bucket == 0 && self.key && behind == 1 => Model::new(1 << 2),
                (Some(_), n) if n > 0 && n <= self.fillers[bucket] => {
                    Model::still(filler(bucket, n - 1))
                }
                (Some(_), n) if n == 1 && bucket == behind && self.key => Model::new(key),
                // No thread goes farther than the first free slots.
                (Some(_), n) if n > self.fillers[bucket] + 3 => Model::still(0),
                _ => Model::new(0),
            }
        });
        let space = KeyspaceId::new(words.collect(), 4);
        if self.key {
            space.write(FIRST, version(KEY, 1));
        }
        Arc::new(space)
    }
}

pub(super) fn version(key: u8, version: u64) -> Contents {
    Contents { key, version }
}

pub(super) fn root() -> Root {
    Root::at(Loc::at_word(ROOT))
}

/// The version that a reader finds.
fn read<O: Orders>(space: &KeyspaceId<O>, place: Place, key: u8) -> Option<u64> {
    let segment = space.index_segment(root(), place).unwrap().unwrap();
    let found = space.find_in(segment, place.tag, &[key]).unwrap();
    found.map(|found| found.record.version)
}

/// Publishes a record for `key`, as a writer that has written the record does.
pub(super) fn put<O: Orders>(space: &KeyspaceId<O>, me: u16, place: Place, key: u8, loc: Loc) {
    change(space, me, place, key, Entry::new(place.tag, loc));
}

fn change<O: Orders>(space: &KeyspaceId<O>, me: u16, place: Place, key: u8, entry: Entry) {
    loop {
        let segment = space.index_segment(root(), place).unwrap().unwrap();
        let home = space.bucket(segment, segment.home(place.tag)).unwrap();
        let mut held = match home.try_lock(SlotId(me)) {
            TryLock::Held(held) => held,
            TryLock::Busy(_) => {
                thread::yield_now();
                continue;
            }
            TryLock::Retired => {
                // As in `Records::lock_home`, which takes anything else for damage.
                assert!(home.word().retired());
                let now = space.index_segment(root(), place).unwrap();
                assert_ne!(now, Some(segment), "a retired segment is in use");
                continue;
            }
        };
        match space.find_in(segment, place.tag, &[key]).unwrap() {
            Some(found) => found.bucket.replace(found.slot, entry),
            None => {
                let placed = space.insert_entry(segment, &mut held, entry).unwrap();
                assert!(placed.is_some(), "a slot is free");
            }
        }
        held.unlock();
        return;
    }
}

/// Replaces the old page by the new one, as the holder of the shard's lock does.
fn grow<O: Orders>(space: &KeyspaceId<O>) {
    let me = SlotId(9);
    freeze(space, me);
    fill(space);
    publish(space, me);
}

fn freeze<O: Orders>(space: &KeyspaceId<O>, me: SlotId) {
    let wait = |_| {
        thread::yield_now();
        true
    };
    assert_eq!(resize::freeze(space, OLD, me, wait).unwrap(), None);
}

fn fill<O: Orders>(space: &KeyspaceId<O>) {
    let mut entries = Vec::new();
    resize::collect(space, OLD, &mut entries).unwrap();
    assert!(resize::fill(space, NEW, &entries).unwrap());
}

fn publish<O: Orders>(space: &KeyspaceId<O>, me: SlotId) {
    let words = [(Loc::at_word(PARTITION), NEW.word())].into_iter();
    resize::replace(space, words, || (), [OLD].into_iter(), me, |_| ()).unwrap();
}

/// The entries for `key`, in the page that is in use.
fn entries_of<O: Orders>(space: &KeyspaceId<O>, place: Place, key: u8) -> usize {
    let segment = space.index_segment(root(), place).unwrap().unwrap();
    let mut entries = Vec::new();
    resize::collect(space, segment, &mut entries).unwrap();
    entries
        .iter()
        .filter(|e| e.tag() == place.tag && space.record(e.loc()).unwrap().key == key)
        .count()
}

/// A key that is always there, a reader, a change of shape, and perhaps a writer of a new version.
fn shapes<O: Orders>(
    change_shape: fn(&KeyspaceId<O>),
    write: bool,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = KEY_BEHIND.build::<O>();
        let resizer = {
            let space = space.clone();
            thread::spawn(move || change_shape(&space))
        };
        let writer = write.then(|| {
            let space = space.clone();
            thread::spawn(move || {
                let loc = space.write(SECOND, version(KEY, 2));
                put(&space, 2, PLACE, KEY, loc);
            })
        });
        read(&space, PLACE, KEY).expect("a key that is there all the time");
        resizer.join().unwrap();
        if let Some(writer) = writer {
            writer.join().unwrap();
            assert_eq!(read(&space, PLACE, KEY), Some(2), "an acknowledged write");
        }
        assert_eq!(entries_of(&space, PLACE, KEY), 1);
    }
}

#[test]
fn a_key_that_stays_is_found_in_every_shape() {
    holds(shapes::<Sound>(grow, false));
    holds(shapes::<Sound>(grow, true));
}

#[test]
fn without_one_kind_of_ordering_it_is_not() {
    let missed = "a key that is there all the time";
    fails(missed, shapes::<LooseLoads>(grow, false));
    fails(missed, shapes::<LooseStores>(grow, false));
    fails(
        "an acknowledged write",
        shapes::<LooseExchanges>(grow, true),
    );
}

#[test]
fn a_segment_that_is_not_frozen_loses_a_write() {
    let twin = |space: &_| {
        fill(space);
        publish(space, SlotId(9));
    };
    fails("an acknowledged write", shapes::<Sound>(twin, true));
}

#[test]
fn a_segment_published_before_it_is_filled_hides_its_keys() {
    let twin = |space: &_| {
        freeze(space, SlotId(9));
        publish(space, SlotId(9));
        fill(space);
    };
    fails(
        "a key that is there all the time",
        shapes::<Sound>(twin, false),
    );
}

#[test]
fn an_old_segment_unlocked_and_not_retired_takes_a_write_that_nobody_finds() {
    let twin = |space: &KeyspaceId<Sound>| {
        let me = SlotId(9);
        freeze(space, me);
        fill(space);
        let word = space.word(Loc::at_word(PARTITION)).unwrap();
        word.store(NEW.word(), Release);
        for i in 0..OLD.buckets() {
            space.bucket(OLD, i).unwrap().inherit(me).unwrap().unlock();
        }
    };
    fails("an acknowledged write", shapes::<Sound>(twin, true));
}

#[test]
fn a_new_segment_without_reach_hides_what_lies_behind_its_home() {
    let twin = |space: &KeyspaceId<Sound>| {
        let me = SlotId(9);
        freeze(space, me);
        let mut entries = Vec::new();
        resize::collect(space, OLD, &mut entries).unwrap();
        // As `fill`, but without setting the reach.
        let mut used = [0; 3];
        for entry in &entries {
            let mut places = (0..3).map(|d| NEW.behind(NEW.home(entry.tag()), d));
            let to = places.find(|i| used[*i as usize] < SLOTS).unwrap();
            let slot = &mut used[to as usize];
            space.bucket(NEW, to).unwrap().fill(*slot, *entry);
            *slot += 1;
        }
        publish(space, me);
    };
    fails(
        "a key that is there all the time",
        shapes::<Sound>(twin, false),
    );
}

/// A reader of a batch: the page of `KEY` is prefetched, then another key is read, elsewhere, and
/// then `KEY`. Meanwhile the page is replaced, `KEY` is written, and then the other key.
fn batched(look: fn(&KeyspaceId<Sound>, SegmentRef) -> Option<u64>) -> impl Fn() + Send + Sync {
    move || {
        let space = KEY_IN_FRONT.build::<Sound>();
        let elsewhere = Arc::new(Model::<Sound>::new(0));
        let resizer = {
            let space = space.clone();
            thread::spawn(move || grow(&space))
        };
        let writer = {
            let (space, elsewhere) = (space.clone(), elsewhere.clone());
            thread::spawn(move || {
                let loc = space.write(SECOND, version(KEY, 2));
                put(&space, 2, PLACE, KEY, loc);
                elsewhere.store(1, Release);
            })
        };
        let page = space.index_segment(root(), PLACE).unwrap().unwrap();
        let written = elsewhere.load(Acquire) == 1;
        let found = look(&space, page).expect("a key that is there all the time");
        assert!(found == 2 || !written, "an answer from before the last one");
        resizer.join().unwrap();
        writer.join().unwrap();
    }
}

#[test]
fn a_batch_answers_in_order_beside_a_change_of_shape() {
    holds(batched(|space, mut page| {
        loop {
            let find = |_| space.find_in(page, TAG, &[KEY]);
            let seen = space.read_bucket(root(), PLACE, page, false, find).unwrap();
            if let BucketRead::Valid(found, _) = seen {
                return found.map(|found| found.record.version);
            }
            thread::yield_now();
            page = space.index_segment(root(), PLACE).unwrap().unwrap();
        }
    }));
    holds(batched(|space, page| {
        match space.try_fast_record(page, TAG, &[KEY]) {
            Some(record) => Some(record.version),
            None => read(space, PLACE, KEY),
        }
    }));
}

#[test]
fn a_batch_that_believes_a_replaced_page_does_not() {
    let twin = |space: &KeyspaceId<Sound>, page| {
        let found = space.find_in(page, TAG, &[KEY]).unwrap();
        found.map(|found| found.record.version)
    };
    fails("an answer from before the last one", batched(twin));
    // It is not enough to check whether the page was retired, either: its successor is in use
    // before that.
    let twin = |space: &KeyspaceId<Sound>, page: SegmentRef| {
        let home = space.bucket(page, page.home(TAG)).unwrap();
        let found = space.find_in(page, TAG, &[KEY]).unwrap();
        match home.word().retired() {
            true => read(space, PLACE, KEY),
            false => found.map(|found| found.record.version),
        }
    };
    fails("an answer from before the last one", batched(twin));
}

/// A writer of the key, and a reader that looks before or after the write was acknowledged.
fn writing<O: Orders>(
    scene: Scene,
    write: fn(&KeyspaceId<O>, Loc),
) -> impl Fn() + Send + Sync + 'static {
    let before = scene.key.then_some(1);
    move || {
        let space = scene.build::<O>();
        let acknowledged = Arc::new(Model::<O>::new(0));
        let writer = {
            let (space, acknowledged) = (space.clone(), acknowledged.clone());
            thread::spawn(move || {
                let loc = space.write(SECOND, version(KEY, 2));
                write(&space, loc);
                acknowledged.store(1, Release);
            })
        };
        let promised = acknowledged.load(Acquire) == 1;
        let found = read(&space, PLACE, KEY);
        assert!(found == Some(2) || (found == before && !promised));
        writer.join().unwrap();
        let found = read(&space, PLACE, KEY);
        assert_eq!(found, Some(2), "an acknowledged write");
    }
}

fn put_key<O: Orders>(space: &KeyspaceId<O>, loc: Loc) {
    put(space, 2, PLACE, KEY, loc);
}

#[test]
fn a_write_is_seen_with_its_record_and_when_acknowledged_always() {
    holds(writing::<Sound>(EMPTY, put_key));
    holds(writing::<Sound>(FULL_HOME, put_key));
    holds(writing::<Sound>(KEY_BEHIND, put_key));
}

#[test]
fn without_one_kind_of_ordering_a_record_is_seen_before_it_is_written() {
    let unwritten = "Causality violation";
    fails(unwritten, writing::<LooseLoads>(EMPTY, put_key));
    fails(unwritten, writing::<LooseExchanges>(EMPTY, put_key));
    fails(unwritten, writing::<LooseStores>(KEY_BEHIND, put_key));
}

#[test]
fn an_entry_behind_its_home_without_reach_is_not_seen() {
    let twin = |space: &KeyspaceId<Sound>, loc| {
        let behind = space.bucket(OLD, 1).unwrap();
        behind.publish(Entry::new(TAG, loc)).unwrap();
    };
    fails("an acknowledged write", writing::<Sound>(FULL_HOME, twin));
}

/// Two keys that compete for one free slot of one bucket, which is the home of one and the overflow
/// of the other.
fn crowd(publish: fn(&KeyspaceId<Sound>, u64, Entry)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = FULL_HOME.build::<Sound>();
        let there = Place {
            partition: 0,
            tag: 1 << 21 | 5,
        };
        let neighbour = {
            let space = space.clone();
            thread::spawn(move || {
                let loc = space.write(SECOND, version(OTHER, 2));
                publish(&space, 1, Entry::new(there.tag, loc));
            })
        };
        let loc = space.write(FIRST, version(KEY, 1));
        let home = space.bucket(OLD, 0).unwrap();
        let TryLock::Held(mut held) = home.try_lock(SlotId(1)) else {
            panic!("nobody else has this home")
        };
        held.extend_reach(1);
        publish(&space, 1, Entry::new(TAG, loc));
        held.unlock();
        neighbour.join().unwrap();
        let found = (read(&space, PLACE, KEY), read(&space, there, OTHER));
        assert_eq!(found, (Some(1), Some(2)), "both keys");
    }
}

#[test]
fn writers_of_two_homes_share_a_bucket() {
    holds(crowd(|space, i, entry| {
        space.bucket(OLD, i).unwrap().publish(entry).unwrap();
    }));
}

#[test]
fn a_slot_that_is_taken_by_a_plain_store_is_taken_twice() {
    let twin = |space: &KeyspaceId<Sound>, i, entry| {
        let bucket = space.bucket(OLD, i).unwrap();
        let free = (0..SLOTS).find(|s| bucket.entry(*s).is_empty()).unwrap();
        bucket.replace(free, entry);
    };
    fails("both keys", crowd(twin));
}

/// Two writers of one new key, and a reader.
fn rivals(put: fn(&KeyspaceId<Sound>, u16, Loc)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = FULL_HOME.build::<Sound>();
        let writer = |place: usize, me: u16| {
            let space = space.clone();
            thread::spawn(move || {
                let loc = space.write(place, version(KEY, u64::from(me)));
                put(&space, me, loc);
            })
        };
        let (one, two) = (writer(FIRST, 1), writer(SECOND, 2));
        one.join().unwrap();
        two.join().unwrap();
        assert!(read(&space, PLACE, KEY).is_some());
        assert_eq!(entries_of(&space, PLACE, KEY), 1, "one entry a key");
    }
}

#[test]
fn two_writers_of_one_key_leave_one_entry() {
    holds(rivals(|space, me, loc| put(space, me, PLACE, KEY, loc)));
}

#[test]
fn without_the_homes_lock_they_leave_two() {
    let twin = |space: &KeyspaceId<Sound>, me, loc| {
        let entry = Entry::new(TAG, loc);
        match space.find_in(OLD, TAG, &[KEY]).unwrap() {
            Some(found) => found.bucket.replace(found.slot, entry),
            None => put(space, me, PLACE, b'-', loc),
        }
    };
    fails("one entry a key", rivals(twin));
}

/// A compactor moves the key's record while a writer stores a new one and a reader reads.
fn moves(relocate: fn(&KeyspaceId<Sound>, Loc, Loc)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = KEY_BEHIND.build::<Sound>();
        let compactor = {
            let space = space.clone();
            thread::spawn(move || {
                let old = record_loc(FIRST);
                let survivor = space.record(old).unwrap();
                let copy = space.write(THIRD, survivor);
                relocate(&space, old, copy);
            })
        };
        let writer = {
            let space = space.clone();
            thread::spawn(move || {
                let loc = space.write(SECOND, version(KEY, 2));
                put(&space, 2, PLACE, KEY, loc);
            })
        };
        let first = read(&space, PLACE, KEY).expect("a key that is there all the time");
        let second = read(&space, PLACE, KEY).expect("a key that is there all the time");
        assert!(first <= second, "no version comes back");
        compactor.join().unwrap();
        writer.join().unwrap();
        assert_eq!(read(&space, PLACE, KEY), Some(2), "an acknowledged write");
        assert_eq!(entries_of(&space, PLACE, KEY), 1);
    }
}

/// As `Records::relocate`.
fn relocate(space: &KeyspaceId<Sound>, old: Loc, new: Loc) {
    loop {
        let segment = space.index_segment(root(), PLACE).unwrap().unwrap();
        let home = space.bucket(segment, segment.home(TAG)).unwrap();
        let TryLock::Held(held) = home.try_lock(SlotId(3)) else {
            thread::yield_now();
            continue;
        };
        let found = space.find_entry(segment, Entry::new(TAG, old)).unwrap();
        if let Some(found) = found {
            found.bucket.replace(found.slot, Entry::new(TAG, new));
        }
        held.unlock();
        return;
    }
}

#[test]
fn a_moved_record_never_takes_the_place_of_a_newer_one() {
    holds(moves(relocate));
}

#[test]
fn a_move_that_compares_before_it_locks_brings_back_the_old_version() {
    let twin = |space: &KeyspaceId<Sound>, old, new| {
        let found = space.find_entry(OLD, Entry::new(TAG, old)).unwrap();
        let home = space.bucket(OLD, 0).unwrap();
        let held = loop {
            match home.try_lock(SlotId(3)) {
                TryLock::Held(held) => break held,
                _ => thread::yield_now(),
            }
        };
        if let Some(found) = found {
            found.bucket.replace(found.slot, Entry::new(TAG, new));
        }
        held.unlock();
    };
    fails("an acknowledged write", moves(twin));
}

/// One key comes and goes while its neighbour of the same home stays.
#[test]
fn a_neighbour_that_comes_and_goes_hides_nobody() {
    holds(|| {
        let space = KEY_BEHIND.build::<Sound>();
        let writer = {
            let space = space.clone();
            thread::spawn(move || {
                let loc = space.write(SECOND, version(OTHER, 2));
                put(&space, 2, OTHER_PLACE, OTHER, loc);
                change(&space, 2, OTHER_PLACE, OTHER, Entry(0));
                let loc = space.write(THIRD, version(OTHER, 3));
                put(&space, 2, OTHER_PLACE, OTHER, loc);
            })
        };
        assert_eq!(read(&space, PLACE, KEY), Some(1));
        let other = read(&space, OTHER_PLACE, OTHER);
        assert!(matches!(other, None | Some(2 | 3)));
        writer.join().unwrap();
        assert_eq!(read(&space, PLACE, KEY), Some(1));
        assert_eq!(read(&space, OTHER_PLACE, OTHER), Some(3));
    });
}

#[test]
fn the_scene_is_as_described() {
    loom::model(|| {
        let space = KEY_BEHIND.build::<Sound>();
        assert_eq!(space.words[PARTITION as usize].load(Relaxed), OLD.word());
        assert_eq!(space.bucket(OLD, 0).unwrap().used(), SLOTS);
        assert_eq!(space.bucket(OLD, 0).unwrap().word().reach(), 1);
        assert_eq!(space.bucket(OLD, 1).unwrap().used(), 1);
        assert_eq!((OLD.home(TAG), NEW.home(TAG)), (0, 0));
        assert_eq!(read(&space, PLACE, KEY), Some(1));
    });
}
