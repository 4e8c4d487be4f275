//! Readers beside a transaction on two keys of two buckets, which is committed or undone.

use loom::sync::Arc;
use loom::thread;
use mneme_sync::SlotId;

use super::buckets::{KEY, KEY_IN_FRONT, PLACE, put, root, version};
use super::{KeyspaceId, LooseLoads, LooseStores, Orders, Sound, fails, holds};
use crate::error::Corrupt;
use crate::index::bucket::{Entry, Held, TryLock};
use crate::index::lookup::{BucketRead, Lookup};
use crate::index::shape::{Place, SegmentRef};
use crate::region::mem::Loc;

const ME: SlotId = SlotId(3);
/// A key whose home is the other bucket; it is absent at first.
const FAR: u8 = b'f';
const FAR_PLACE: Place = Place {
    partition: 0,
    tag: 1 << 21 | 9,
};
/// The place of the next record; the first place has that of `KEY`.
const NEW: usize = 1;
const FAR_NEW: usize = 2;

/// How a reader looks up a key: returns the version found, or `None` if it must look again.
type Look<O> = fn(&KeyspaceId<O>, SegmentRef, Place, u8) -> Option<Option<u64>>;

/// The version that a reader finds, once its look is valid.
fn read<O: Orders>(space: &KeyspaceId<O>, place: Place, key: u8, look: Look<O>) -> Option<u64> {
    loop {
        let segment = space.index_segment(root(), place).unwrap().unwrap();
        if let Some(found) = look(space, segment, place, key) {
            return found;
        }
        thread::yield_now();
    }
}

/// As readers look in the general case.
fn look<O: Orders>(
    space: &KeyspaceId<O>,
    segment: SegmentRef,
    place: Place,
    key: u8,
) -> Option<Option<u64>> {
    let find = |_| space.find_in(segment, place.tag, &[key]);
    match space
        .read_bucket(root(), place, segment, false, find)
        .unwrap()
    {
        BucketRead::Valid(found, _) => Some(found.map(|found| found.record.version)),
        BucketRead::Retry(_) => None,
    }
}

/// As the optimistic read looks.
fn look_fast<O: Orders>(
    space: &KeyspaceId<O>,
    segment: SegmentRef,
    place: Place,
    key: u8,
) -> Option<Option<u64>> {
    match space.try_fast_record(segment, place.tag, &[key]) {
        Some(record) => Some(Some(record.version)),
        None => look(space, segment, place, key),
    }
}

/// The twin without the fence before the second look at the home's word: nothing orders that after
/// the loads of a miss.
fn look_without_fence<O: Orders>(
    space: &KeyspaceId<O>,
    segment: SegmentRef,
    place: Place,
    key: u8,
) -> Option<Option<u64>> {
    let home = space.bucket(segment, segment.home(place.tag)).unwrap();
    let before = home.word();
    let found = space.find_in(segment, place.tag, &[key]).unwrap();
    let settled = home.word().follows_no_transaction(before);
    settled.then(|| found.map(|found| found.record.version))
}

/// The twin that looks at the home's word only afterwards.
fn look_once(
    space: &KeyspaceId<Sound>,
    segment: SegmentRef,
    place: Place,
    key: u8,
) -> Option<Option<u64>> {
    let found = space.find_in(segment, place.tag, &[key]).unwrap();
    let home = space.bucket(segment, segment.home(place.tag)).unwrap();
    (!home.word().in_transaction()).then(|| found.map(|found| found.record.version))
}

fn lock<O: Orders>(space: &KeyspaceId<O>, place: Place) -> (SegmentRef, Held<'_, super::Model<O>>) {
    let segment = space.index_segment(root(), place).unwrap().unwrap();
    let home = space.bucket(segment, segment.home(place.tag)).unwrap();
    loop {
        match home.try_lock(ME) {
            TryLock::Held(held) => return (segment, held),
            TryLock::Busy(_) => thread::yield_now(),
            TryLock::Retired => panic!("no segment is replaced here"),
        }
    }
}

/// How a transaction locks its homes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Locks {
    /// The twin: as a single write locks its home.
    Plain,
    /// As a plain lock until it holds all of them; then, before it publishes, so that readers wait.
    Transaction,
    /// The twin that makes readers wait only after it has published `FAR`.
    TooLate,
}
use Locks::{Plain, TooLate, Transaction};

/// What a transaction does after it has inserted `FAR`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It undoes the insertion.
    TakeBack,
    /// It replaces `KEY` by a new version.
    Replace,
    /// It removes `KEY`.
    Remove,
}
use End::{Remove, Replace, TakeBack};

/// Locks both homes, inserts `FAR`, ends as `end` says, and unlocks.
fn transact<O: Orders>(space: &KeyspaceId<O>, locks: Locks, end: End) -> Result<(), Corrupt> {
    let (new, far) = (
        space.write(NEW, version(KEY, 2)),
        space.write(FAR_NEW, version(FAR, 2)),
    );
    let (segment, mut home) = lock(space, PLACE);
    let (_, mut far_home) = lock(space, FAR_PLACE);
    if locks == Transaction {
        home.become_transaction();
        far_home.become_transaction();
    }
    let found = space
        .find_in(segment, PLACE.tag, &[KEY])?
        .expect("a key that is there");
    let entry = Entry::new(FAR_PLACE.tag, far);
    let placed = space.insert_entry(segment, &mut far_home, entry)?;
    assert_eq!(placed, Some(0));
    if locks == TooLate {
        home.become_transaction();
        far_home.become_transaction();
    }
    match end {
        TakeBack => {
            let found = space.find_entry(segment, entry)?.expect("just published");
            found.bucket.replace(found.slot, Entry(0));
        }
        Replace => found.bucket.replace(found.slot, Entry::new(PLACE.tag, new)),
        Remove => found.bucket.replace(found.slot, Entry(0)),
    }
    home.unlock();
    far_home.unlock();
    Ok(())
}

fn scene<O: Orders>() -> Arc<KeyspaceId<O>> {
    KEY_IN_FRONT.build::<O>()
}

/// A reader of a new key beside a transaction that is undone.
fn taken_back<O: Orders>(locks: Locks, look: Look<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = scene::<O>();
        let other = space.clone();
        let writer = thread::spawn(move || transact(&other, locks, TakeBack).unwrap());
        let found = read(&space, FAR_PLACE, FAR, look);
        assert_eq!(found, None, "what never happened");
        writer.join().unwrap();
    }
}

/// A reader of both keys, one after the other, beside a transaction that commits: the new one is
/// inserted first.
fn committed<O: Orders>(locks: Locks, look: Look<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = scene::<O>();
        let other = space.clone();
        let writer = thread::spawn(move || transact(&other, locks, Replace).unwrap());
        if read(&space, FAR_PLACE, FAR, look).is_some() {
            let key = read(&space, PLACE, KEY, look);
            assert_eq!(key, Some(2), "half a transaction");
        }
        writer.join().unwrap();
        assert_eq!(read(&space, PLACE, KEY, look), Some(2));
    }
}

/// A reader of only the key that is replaced.
fn replaced<O: Orders>() -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = scene::<O>();
        let other = space.clone();
        let writer = thread::spawn(move || transact(&other, Transaction, Replace).unwrap());
        let found = read(&space, PLACE, KEY, look_fast);
        assert!(matches!(found, Some(1 | 2)));
        writer.join().unwrap();
    }
}

/// A reader that finds `KEY` absent, beside a transaction that stores `FAR` and removes it.
fn removed<O: Orders>(look: Look<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let space = scene::<O>();
        let other = space.clone();
        let writer = thread::spawn(move || transact(&other, Transaction, Remove).unwrap());
        if read(&space, PLACE, KEY, look).is_none() {
            let far = read(&space, FAR_PLACE, FAR, look);
            assert_eq!(far, Some(2), "half a transaction");
        }
        writer.join().unwrap();
        assert_eq!(read(&space, PLACE, KEY, look), None);
    }
}

#[test]
fn no_reader_of_a_removed_key_sees_half_a_transaction() {
    holds(removed::<Sound>(look));
    holds(removed::<Sound>(look_fast));
}

#[test]
fn without_a_fence_a_miss_sees_half_a_transaction() {
    fails("half a transaction", removed::<Sound>(look_without_fence));
}

#[test]
fn an_undone_change_was_never_seen() {
    holds(taken_back::<Sound>(Transaction, look));
    holds(taken_back::<Sound>(Transaction, look_fast));
}

#[test]
fn one_look_at_the_lock_afterwards_is_not_enough() {
    fails(
        "what never happened",
        taken_back::<Sound>(Transaction, look_once),
    );
}

#[test]
fn under_a_plain_lock_it_is_seen() {
    fails("half a transaction", committed::<Sound>(Plain, look));
    fails("half a transaction", committed::<Sound>(Plain, look_fast));
}

#[test]
fn no_reader_sees_half_a_transaction() {
    holds(committed::<Sound>(Transaction, look));
    holds(committed::<Sound>(Transaction, look_fast));
}

#[test]
fn if_readers_wait_only_once_it_publishes_they_see_half() {
    fails("half a transaction", committed::<Sound>(TooLate, look));
}

#[test]
fn without_ordering_a_reader_sees_unwritten_bytes() {
    let unwritten = "Causality violation";
    fails(unwritten, replaced::<LooseStores>());
    fails(unwritten, replaced::<LooseLoads>());
}

/// A writer of one of the keys waits for the transaction, whose undoing does not overwrite the
/// write.
#[test]
fn a_write_beside_an_undone_change_is_not_lost() {
    holds(|| {
        let space = scene::<Sound>();
        let other = space.clone();
        let writer = thread::spawn(move || transact(&other, Transaction, TakeBack).unwrap());
        let loc: Loc = space.write(FAR_NEW + 1, version(KEY, 3));
        put(&space, 2, PLACE, KEY, loc);
        writer.join().unwrap();
        assert_eq!(read(&space, PLACE, KEY, look), Some(3));
    });
}
