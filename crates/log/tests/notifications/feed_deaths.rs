//! Writers, reapers and drainers of a change feed that die, at any place: the feed has exactly what
//! happened.

use std::collections::{BTreeMap, BTreeSet};

use mneme_log::{Expiry, LogStore, UpdatePolicy, WriteError};
use mneme_sys::fault::{self, Action, Outcome};

use super::feed::two;
use super::memory::Memory;
use super::replayed::Reader;
use super::{NOW, POLICIES, fill, key, passed_by, patch};

/// A change of a store with some keys.
type Work = (&'static str, fn(&LogStore));

/// One of each kind.
const WORKS: [Work; 15] = [
    ("put", |s| s.put(b"new", b"value").unwrap()),
    ("put again", |s| s.put(&key(3), b"other").unwrap()),
    ("put in a new database", |s| {
        s.database(7).unwrap().put(b"first", b"value").unwrap();
    }),
    ("put many", |s| {
        s.put_many(&[(b"a", b"1"), (b"b", b"2")]).unwrap();
    }),
    ("patch", |s| (9..12).for_each(|at| patch(s, b"long", at))),
    ("append", |s| {
        (0..2).for_each(|i| patch(s, b"long", 6000 + i))
    }),
    ("remove", |s| assert!(s.remove(&key(3)).unwrap())),
    ("retime", |s| {
        assert!(s.set_expiry(b"timed", Expiry::At(u64::MAX >> 2)).unwrap());
    }),
    ("expire", |s| assert_eq!(s.remove_expired().unwrap(), 1)),
    ("transaction", |s| {
        s.transaction(|t| {
            t.put(&key(3), b"three")?;
            t.put(b"new", b"value")?;
            t.remove(&key(5))?;
            Ok::<_, WriteError>(())
        })
        .unwrap();
    }),
    ("put in pieces", |s| s.put(&key(3), &[8; 70_000]).unwrap()),
    ("transaction in pieces", |s| {
        s.transaction(|t| {
            t.put(&key(3), &[3; 40_000])?;
            t.put(b"new", &[4; 40_000])
        })
        .map_err(|e: WriteError| e)
        .unwrap();
    }),
    ("changes that belong together", |s| {
        s.feed_together(|| s.put(b"new", b"value"))
            .unwrap()
            .unwrap();
    }),
    ("clear", |s| s.clear().unwrap()),
    ("swap", |s| s.swap_databases(0, 5).unwrap()),
];

/// As [`fill`], with a key that has expired.
fn fill_expired(store: &LogStore, clock: &mneme_sys::ManualClock) {
    fill(store);
    let soon = Expiry::At(NOW + 5);
    store.put_until(b"soon", b"v", soon).unwrap();
    clock.advance_ms(10);
}

/// The places of this crate that `work` passes.
fn places(policy: UpdatePolicy, work: fn(&LogStore)) -> BTreeSet<&'static str> {
    let (_memory, ours, theirs, clock) = two(policy);
    fill_expired(&ours, &clock);
    passed_by(theirs, work)
}

/// A writer dies at each point. Then the feed equals the store, before and after others have
/// written.
#[test]
fn the_feed_says_what_became_of_the_changes_of_the_dead() {
    let mut died = BTreeMap::new();
    for policy in POLICIES {
        // If values are overwritten, most works pass the same places.
        let overwrites = |what: &str| ["put again", "patch", "transaction"].contains(&what);
        let works = WORKS
            .into_iter()
            .filter(|(what, _)| policy == UpdatePolicy::Append || overwrites(what));
        for (what, work) in works {
            for name in places(policy, work) {
                let (memory, ours, theirs, clock) = two(policy);
                fill_expired(&ours, &clock);
                let mut reader = Reader::of(&ours);
                reader.replayed.now = NOW + 10;
                reader.drain();
                memory.abandon(2, name, move || work(&theirs));
                let context = format!("{policy:?}: {what}, dead at {name}");
                // It repairs threads whose entries it finds; a thread that entered nothing is
                // repaired here.
                reader.drain();
                ours.reap().unwrap();
                reader.drain();
                let tail = reader.feed.tail();
                assert_eq!(reader.first + reader.bytes.len() as u64, tail, "{context}");
                reader.replayed.shows(&ours, &context);
                assert_eq!(reader.replayed.pieces.bytes(), 0, "{context}");
                assert_eq!(reader.feed.clean_position(), Some(tail), "{context}");
                assert!(!reader.replayed.open, "{context}");
                if name.starts_with("log.feed.") {
                    *died.entry(name).or_insert(0) += 1;
                }
                let third = memory.open(3);
                (0..3).for_each(|i| third.put(&key(i), b"later").unwrap());
                third.database(7).unwrap().put(b"last", b"later").unwrap();
                reader.drain();
                reader.replayed.shows(&ours, &context);
                if name.starts_with("log.feed.") {
                    assert_eq!(ours.check().unwrap().problems, Vec::<String>::new());
                }
            }
        }
    }
    let all = [
        "log.feed.ahead",
        "log.feed.bound",
        "log.feed.closed",
        "log.feed.completed",
        "log.feed.filled",
        "log.feed.forgotten",
        "log.feed.opened",
        "log.feed.opening",
        "log.feed.passed",
        "log.feed.piece",
        "log.feed.reserved",
        "log.feed.settled",
    ];
    assert!(died.keys().eq(&all), "{died:?}");
}

/// The reaper dies too: the next one continues.
#[test]
fn the_next_reaper_completes_what_a_dead_one_did_not() {
    for (what, work) in WORKS {
        let passed = places(UpdatePolicy::Append, work);
        let ats = [
            "log.published",
            "log.swap.storing",
            "index.root.dropped",
            "txn.committed",
            "log.feed.opened",
        ];
        for at in ats.into_iter().filter(|at| passed.contains(at)) {
            for name in [
                "log.feed.completed",
                "log.feed.settled",
                "log.feed.closed",
                "log.reap.swap",
                "log.reap.index",
                "txn.repair.counted",
                "log.reap.operation",
            ] {
                let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
                fill_expired(&ours, &clock);
                let mut reader = Reader::of(&ours);
                reader.replayed.now = NOW + 10;
                memory.abandon(2, at, move || work(&theirs));
                let reaper = memory.open(3);
                let reaped = fault::run(name, Action::Abandon, 1, move || reaper.reap().unwrap());
                if reaped == Outcome::Abandoned {
                    memory.script.kill(3);
                }
                ours.reap().unwrap();
                reader.drain();
                let context = format!("{what}, dead at {at}, the reaper dead at {name}");
                reader.replayed.shows(&ours, &context);
                assert!(!reader.replayed.open, "{context}");
            }
        }
    }
}

/// The drainer dies while it frees durable entries: the next one continues from there.
#[test]
fn a_drainer_that_dies_is_followed_by_another() {
    for name in ["log.feed.durable", "log.feed.blanked"] {
        let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
        fill_expired(&ours, &clock);
        let reader = move || {
            let mut reader = Reader::of(&theirs);
            reader.drain();
            reader.keep();
        };
        memory.abandon(2, name, reader);
        ours.reap().unwrap();
        let mut next = Reader::of(&ours);
        assert!(next.first > 0, "it is durable");
        // For more than a lap.
        for i in 0..200u8 {
            ours.put(&key(1), &[i; 40_000]).unwrap();
            next.drain();
            next.keep();
        }
        assert_eq!(next.feed.tail(), next.feed.durable(), "{name}");
    }
}

/// Otherwise nothing could be changed until the next drainer has drained, and nothing comes.
#[test]
fn what_was_durable_is_freed_after_its_drainers_death_even_if_the_ring_is_full() {
    for name in ["log.feed.durable", "log.feed.blanked"] {
        let builder = LogStore::builder().change_feed(true);
        let (memory, ours) = Memory::built(32 << 20, 32 << 20, builder);
        let theirs = memory.open(2);
        let refused = loop {
            match ours.put(b"key", &[7; 3000]) {
                Ok(()) => {}
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, WriteError::FeedFull), "{refused}");
        memory.abandon(2, name, move || {
            let mut feed = theirs.change_feed().unwrap();
            let drained = feed.drain(usize::MAX, &mut Vec::new()).unwrap();
            feed.set_durable(drained.end).unwrap();
        });
        ours.reap().unwrap();
        let _feed = ours.change_feed().unwrap();
        ours.put(b"key", b"value").unwrap();
    }
}

/// No copy begins between the pieces of a change, until the change is committed or its thread is
/// reaped. Without the note about them one does.
#[test]
fn a_copy_begins_between_no_changes_pieces() {
    for leaves_out in [false, true] {
        let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
        fill_expired(&ours, &clock);
        let mut reader = Reader::of(&ours);
        reader.replayed.now = NOW + 10;
        let outcome = fault::run("log.feed.piece", Action::Abandon, 2, move || {
            if leaves_out {
                fault::leave_out("feed.noted");
            }
            theirs.put(b"long", &[7; 200_000]).unwrap();
        });
        assert_eq!(outcome, Outcome::Abandoned);
        ours.put(b"other", b"v").unwrap();
        reader.drain();
        reader.keep();
        assert_eq!(reader.feed.clean_position().is_none(), !leaves_out);
        assert!(reader.replayed.pieces.bytes() > 100_000);
        memory.script.kill(2);
        ours.reap().unwrap();
        reader.drain();
        let tail = reader.feed.tail();
        assert_eq!(reader.feed.clean_position(), Some(tail));
        assert_eq!(reader.replayed.pieces.bytes() == 0, !leaves_out);
        reader.replayed.shows(&ours, "given up");
    }
}
