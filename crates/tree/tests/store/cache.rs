//! The record cache: what it holds, what it refuses, and that gets return what the file has.

use std::sync::Arc;

use super::common::cached::{self, open_with, small};
use super::common::{MAX, copy_of, open};
use mneme_arena::{Arena, ArenaOptions, Class, LendingOptions};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::medium::RecordingMedium;
use mneme_sys::{NodeId, PagePolicy, Region, SyntheticTopology};
use mneme_tree::{Batch, CacheError, RecordCache};

#[test]
fn commits_are_seen() {
    cached::commits_are_seen();
}

#[test]
fn readers_stay_in_their_version() {
    cached::readers_stay_in_their_version();
}

#[test]
fn a_restored_file_is_another() {
    cached::a_restored_file_is_another();
}

#[test]
fn no_get_is_older_than_an_earlier_commit() {
    cached::no_get_is_older_than_an_earlier_commit();
}

#[test]
fn a_get_inside_a_get_has_buffers_of_its_own() {
    let (db, medium) = open();
    db.put(b"a", b"1").unwrap();
    db.put(b"b", b"2").unwrap();
    drop(db);
    let db = open_with(&medium, &small());
    for _ in 0..3 {
        db.get_with(b"a", |outer| {
            db.get_with(b"b", |inner| {
                assert_eq!((outer, inner), (&b"1"[..], &b"2"[..]))
            })
            .unwrap()
            .unwrap();
        })
        .unwrap()
        .unwrap();
    }
}

/// What is read as quickly from a page is not copied.
#[test]
fn only_small_records_are_copied() {
    let (db, medium) = open();
    let long_key = vec![b'k'; 1025];
    db.put(b"small", &[1; 512]).unwrap();
    db.put(b"large", &[2; 513]).unwrap();
    db.put(&long_key, b"3").unwrap();
    db.put(b"gone", b"4").unwrap();
    db.remove(b"gone").unwrap();
    drop(db);
    let db = open_with(&medium, &small());
    for _ in 0..3 {
        assert_eq!(db.get(b"small").unwrap(), Some(vec![1; 512]));
        assert_eq!(db.get(b"large").unwrap(), Some(vec![2; 513]));
        assert_eq!(db.get(&long_key).unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!(db.get(b"gone").unwrap(), None);
        assert_eq!(db.get(b"never").unwrap(), None);
    }
    let used = db.stats().unwrap().cache.unwrap();
    assert_eq!((used.hits, used.kept, used.dropped), (2, 1, 0));
    assert!(used.bytes() > 0);
}

#[test]
fn a_store_without_a_cache_says_so() {
    assert_eq!(open().0.stats().unwrap().cache, None);
}

#[test]
fn a_budget_that_is_no_arena_is_refused() {
    for bytes in [0, 1 << 20, 2 << 20] {
        let refused = RecordCache::with_budget(bytes);
        assert!(
            matches!(refused, Err(CacheError::Private(_))),
            "{refused:?}"
        );
    }
}

/// More records than there is memory for: copies are evicted, and gets return what the file has.
#[test]
fn the_smallest_budget_keeps_what_fits() {
    let cache = RecordCache::with_budget(4 << 20).unwrap();
    let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
    let db = open_with(&medium, &cache);
    let key = |n: u32| n.to_be_bytes();
    let mut batch = Batch::new();
    for n in 0..20_000 {
        batch.put(&key(n), &[n as u8; 150]);
    }
    db.apply(&batch).unwrap();
    // A full cache takes a record at its second miss, and has it for the third get.
    let again = || 19_900..20_000;
    for n in (0..20_000).chain(again()).chain(again()) {
        assert_eq!(db.get(&key(n)).unwrap(), Some(vec![n as u8; 150]));
    }
    let used = db.stats().unwrap().cache.unwrap();
    assert_eq!(used.frames, 1);
    // Records may displace each other in the index, at random.
    assert!((90..=120).contains(&used.hits), "{used:?}");
    assert!((9_000..=12_000).contains(&used.kept), "{used:?}");
}

fn arena(lending: Option<LendingOptions>) -> (Participants, Arc<Arena>) {
    let uuid = [3; 16];
    let participants = Participants::private(ControlOptions::new(uuid)).unwrap();
    let region = Region::private(32 << 20, 32 << 20, PagePolicy::Small).unwrap();
    let options = ArenaOptions {
        uuid,
        client_bytes: 0,
        nodes: 1,
        topology: Arc::new(SyntheticTopology::new(1, 1)),
        reserve_frames: 0,
        lending,
    };
    let arena = Arena::create(Arc::new(region), participants.clone(), options).unwrap();
    (participants, Arc::new(arena))
}

#[test]
fn an_arena_that_lends_nothing_is_refused() {
    let refused = RecordCache::lent(arena(None).1);
    assert!(
        matches!(refused, Err(CacheError::Lending(_))),
        "{refused:?}"
    );
}

/// The owner of the frames claims them, with all copies in them.
#[test]
fn claims_take_copies_and_gets_read_the_file_again() {
    let (participants, arena) = arena(Some(LendingOptions {
        records: 10_000,
        max_frames: u32::MAX,
    }));
    let slot = participants.slot().unwrap();
    let frames = arena.stats().longest_run;
    let claim = |frames| arena.claim(&slot, frames, 1, NodeId(0), Class::Reserved, 0);
    arena.release(&slot, claim(frames).unwrap()).unwrap();
    let cache = RecordCache::lent(arena.clone()).unwrap();
    let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
    let db = open_with(&medium, &cache);
    let key = |n: u32| n.to_be_bytes();
    for n in 0..200 {
        db.put(&key(n), &[n as u8; 100]).unwrap();
    }
    let read_all = || {
        for n in 0..200 {
            assert_eq!(db.get(&key(n)).unwrap(), Some(vec![n as u8; 100]));
        }
        db.stats().unwrap().cache.unwrap()
    };
    // Two keys may share a place in the index, at random.
    let finds_most = |found: u64, of: u64| (of - of / 10..=of).contains(&found);
    read_all();
    assert!(finds_most(read_all().hits, 200));
    assert_eq!(cache.arena().stats().lent, 1);
    // One frame is being filled: all others can be claimed at once.
    let claimed = claim(arena.stats().free).unwrap();
    let rest: Vec<_> = std::iter::from_fn(|| claim(1).ok()).collect();
    assert!(u32::from(!rest.is_empty()) <= 1);
    for extent in rest.into_iter().chain([claimed]) {
        arena.release(&slot, extent).unwrap();
    }
    mneme_arena::Discardable::open(arena.clone())
        .unwrap()
        .clear()
        .unwrap();
    let after = read_all();
    assert!(finds_most(after.hits, 200) && after.misses >= 400);
    assert!(finds_most(read_all().hits, 400));
    assert!(arena.check().unwrap().is_empty());
    // The same file has the same content without a cache.
    drop(db);
    let plain = super::common::open_on(&copy_of(&medium), mneme_tree::Durability::File).unwrap();
    assert_eq!(plain.get(&key(7)).unwrap(), Some(vec![7; 100]));
}
