//! A listener of a store receives every change by others, or a report that some were lost. A mirror
//! that is updated only by what the listener receives equals the store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod deaths;
mod feed;
mod feed_deaths;
#[path = "../memory/mod.rs"]
mod memory;
mod mirror;
mod replayed;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use memory::{NOW, POLICIES, two, two_of};
use mirror::{Mirror, Received};
use mneme_log::{
    Decision, Evict, Expiry, LogStore, Notification, Part, Patch, UpdatePolicy, WriteError,
};
use mneme_sys::ManualClock;

/// Fewer changes of short keys than the store keeps for a listener.
const CAPACITY: usize = 4096;

fn fill(store: &LogStore) {
    for i in 0..20 {
        store.put(&key(i), b"value").unwrap();
    }
    store.put(b"long", &[7; 6000]).unwrap();
    let timed = Expiry::At(u64::MAX >> 1);
    store.put_until(b"timed", b"v", timed).unwrap();
    let other = store.database(5).unwrap();
    other.put(b"elsewhere", b"v").unwrap();
}

/// The places of this crate that `work` passes.
fn passed_by(store: LogStore, work: fn(&LogStore)) -> std::collections::BTreeSet<&'static str> {
    use mneme_sys::fault::passed;
    let is_ours = |name: &&str| {
        ["log.", "txn.", "index."]
            .iter()
            .any(|s| name.starts_with(s))
    };
    let count = move || {
        let before: std::collections::BTreeMap<_, _> = passed().into_iter().collect();
        work(&store);
        let counts = passed().into_iter();
        let names = counts
            .filter(|(name, n)| before.get(name) != Some(n))
            .map(|(name, _)| name);
        names.filter(is_ours).collect()
    };
    std::thread::spawn(count).join().unwrap()
}

fn key(i: usize) -> Vec<u8> {
    format!("key-{i}").into_bytes()
}

fn names(received: &[Received]) -> Vec<String> {
    received.iter().map(Received::name).collect()
}

/// Writes a byte into the value of `key`.
fn patch(store: &LogStore, key: &[u8], at: usize) {
    let write = |_: Option<Part<'_>>| Patch::Write {
        at,
        bytes: Cow::Borrowed(b"x"),
    };
    store.update_part(key, |_| 0..0, write).unwrap();
}

#[test]
fn every_kind_of_change_is_published() {
    for policy in POLICIES {
        let (_memory, ours, theirs, clock) = two(policy);
        ours.put(b"there", b"already").unwrap();
        let mut mirror = Mirror::listen(&ours);
        assert_eq!(names(&mirror.drain()), ["lost"], "first of all, always");
        assert_eq!(names(&mirror.drain()), [""; 0]);
        let mut check = |what: &str, work: &dyn Fn(&LogStore), expected: &[&str]| {
            work(&theirs);
            assert_eq!(names(&mirror.drain()), expected, "{policy:?}: {what}");
            mirror.shows_the_store(what);
        };
        check("put", &|s| s.put(b"k", b"v").unwrap(), &["0 stored k"]);
        check(
            "put again",
            &|s| s.put(b"k", b"w").unwrap(),
            &["0 stored k"],
        );
        let longer = |s: &LogStore| s.put(b"k", &[7; 6000]).unwrap();
        check("put longer", &longer, &["0 stored k"]);
        // The first stores it again, the second changes it in place.
        let patch = |s: &LogStore| patch(s, b"k", 5);
        check("make it patchable", &patch, &["0 stored k"]);
        check("patch", &patch, &["0 stored k"]);
        let update = |s: &LogStore| {
            let new = Decision::Replace(b"u".to_vec());
            s.update(b"k", |_| new.clone()).map(drop).unwrap();
            s.update(b"k", |_| Decision::Keep).map(drop).unwrap();
        };
        check("update", &update, &["0 stored k"]);
        let at = Expiry::At(NOW + 50);
        let until = |s: &LogStore| s.put_until(b"k", b"v", at).unwrap();
        check("put until", &until, &["0 stored k"]);
        let later = Expiry::At(NOW + 60);
        let retime = |s: &LogStore| assert!(s.set_expiry(b"k", later).unwrap());
        check("retime", &retime, &["0 retimed k"]);
        let remove = |s: &LogStore| {
            assert!(s.remove(b"k").unwrap());
            assert!(!s.remove(b"k").unwrap());
        };
        check("remove", &remove, &["0 removed k"]);
        let soon = |s: &LogStore| s.put_until(b"t", b"v", Expiry::At(NOW + 5)).unwrap();
        check("put for a while", &soon, &["0 stored t"]);
        clock.advance_ms(10);
        let sweep = |s: &LogStore| assert_eq!(s.remove_expired().unwrap(), 1);
        check("expire", &sweep, &["0 expired t"]);
        let pairs = [(b"a", b"1"), (b"b", b"2")];
        let many = |s: &LogStore| s.put_many(&pairs).unwrap();
        check("batch", &many, &["0 stored a", "0 stored b"]);
        let gone = |s: &LogStore| assert_eq!(s.remove_many(&[b"a", b"x"]).unwrap(), 1);
        check("batch of removals", &gone, &["0 removed a"]);
        let transaction = |s: &LogStore| {
            s.transaction(|t| {
                t.put(b"c", b"3")?;
                t.remove(b"b")?;
                t.remove(b"x")?;
                t.database(5)?.put(b"d", b"4")?;
                Ok::<_, WriteError>(())
            })
            .unwrap()
        };
        let all = ["0 removed b", "0 stored c", "5 stored d"];
        theirs_sorted(&mut mirror, &theirs, &transaction, &all);
        let mut check = |what: &str, work: &dyn Fn(&LogStore), expected: &[&str]| {
            work(&theirs);
            assert_eq!(names(&mirror.drain()), expected, "{policy:?}: {what}");
            mirror.shows_the_store(what);
        };
        let swap = |s: &LogStore| s.swap_databases(0, 5).unwrap();
        check("swap", &swap, &["0 swapped 5"]);
        // In the space that was the other database's.
        let put = |s: &LogStore| s.put(b"e", b"5").unwrap();
        check("put after the swap", &put, &["0 stored e"]);
        let clear = |s: &LogStore| s.database(5).unwrap().clear().unwrap();
        check("clear", &clear, &["5 cleared"]);
        check("nothing", &|_| {}, &[]);
        let long = "w".repeat(1000);
        let put = |s: &LogStore| s.put(long.as_bytes(), &[7; 1 << 20]).unwrap();
        check("a long key", &put, &[&format!("0 stored {long}")]);
        // A listener does not receive its own changes.
        ours.put(b"own", b"v").unwrap();
        ours.database(5).unwrap().clear().unwrap();
        ours.swap_databases(0, 7).unwrap();
        assert_eq!(names(&mirror.drain()), [""; 0]);
    }
}

/// The listener does not read its own opening's entries, and takes its swaps into account
/// nevertheless.
#[test]
fn a_swap_by_the_own_opening_moves_later_changes_to_the_right_database() {
    for kept in [false, true] {
        let builder = LogStore::builder().capacity(64 << 20).change_feed(kept);
        let (_memory, ours, theirs, _) = two_of(builder);
        fill(&ours);
        let mut mirror = Mirror::listen(&ours);
        mirror.drain();
        for round in 0..2 {
            ours.swap_databases(0, 5).unwrap();
            theirs.put(b"k", &[round]).unwrap();
            theirs.database(5).unwrap().put(b"m", &[round]).unwrap();
            let expected = ["0 stored k", "5 stored m"];
            assert_eq!(names(&mirror.drain()), expected, "{kept}, {round}");
        }
        // Others' swaps and its own, none of which it has received when all are over.
        theirs.swap_databases(0, 5).unwrap();
        ours.swap_databases(0, 7).unwrap();
        theirs.swap_databases(5, 7).unwrap();
        ours.swap_databases(0, 5).unwrap();
        mirror.drain();
        for db in [0, 5, 7] {
            theirs.database(db).unwrap().put(b"n", b"v").unwrap();
            assert_eq!(names(&mirror.drain()), [format!("{db} stored n")]);
        }
    }
}

/// A transaction's notifications come in the order of its keys, which is unspecified.
fn theirs_sorted(
    mirror: &mut Mirror<'_>,
    theirs: &LogStore,
    work: &dyn Fn(&LogStore),
    expected: &[&str],
) {
    work(theirs);
    let mut received = names(&mirror.drain());
    received.sort();
    assert_eq!(received, expected);
    mirror.shows_the_store("transaction");
}

#[test]
fn an_evicted_key_is_reported_as_evicted() {
    let (_memory, ours, theirs, _) = two(UpdatePolicy::Append);
    ours.set_eviction(Evict::Random).unwrap();
    let mut mirror = Mirror::listen(&ours);
    mirror.drain();
    let mut evicted = 0;
    for i in 0..4000 {
        theirs.put(&key(i), &[1; 30_000]).unwrap();
        let received = mirror.drain();
        let is_eviction = |received: &&Received| received.name().contains("evicted");
        evicted += received.iter().filter(is_eviction).count();
        assert!(received.iter().all(|received| *received != Received::Lost));
    }
    assert_eq!(ours.stats().evicted, evicted as u64);
    assert!(evicted > 0);
    mirror.shows_the_store("is_eviction");
}

/// Removals that the listener's own opening makes by itself are received if that was requested,
/// also in a store with a kept feed, and not otherwise.
#[test]
fn a_listener_that_asks_for_it_hears_of_what_its_own_opening_expires_and_evicts() {
    for kept in [false, true] {
        let clock = Arc::new(ManualClock::new(1_000, NOW));
        let builder = LogStore::builder().capacity(64 << 20);
        let builder = builder.change_feed(kept).clock(clock.clone());
        let ours = builder.maintainer(false).open_private().unwrap();
        let mut drainer = kept.then(|| ours.change_feed().unwrap());
        let mut listener = ours.listen().unwrap();
        let mut received = move |hears: bool| {
            listener.hear_own_removals(hears).unwrap();
            let mut received = Vec::new();
            let receive = |report: Notification<'_>| received.push(Received::of(report));
            listener.drain(100_000, receive).unwrap();
            (received, listener.sleep().is_some())
        };
        let expire = |key: &[u8]| {
            let soon = Expiry::At(ours.wall_ms() + 10);
            ours.put_until(key, b"v", soon).unwrap();
            clock.advance_ms(20);
            assert!(ours.get(key).unwrap().is_none());
        };
        assert_eq!(names(&received(false).0), ["lost"]);
        expire(b"silent");
        assert_eq!(ours.remove_expired().unwrap(), 1);
        assert_eq!(names(&received(false).0), [""; 0]);
        // A loss marks the beginning.
        assert_eq!(names(&received(true).0), ["lost"]);
        expire(b"swept");
        assert_eq!(ours.remove_expired().unwrap(), 1);
        expire(b"removed too late");
        assert!(!ours.remove(b"removed too late").unwrap());
        ours.put(b"asked", b"v").unwrap();
        assert!(ours.remove(b"asked").unwrap());
        let (seen, may_sleep) = received(true);
        assert_eq!(
            names(&seen),
            ["0 expired swept", "0 expired removed too late"]
        );
        assert!(may_sleep);
        ours.set_eviction(Evict::Random).unwrap();
        let mut evicted = 0;
        for i in 0..4000 {
            ours.put(&key(i), &[1; 30_000]).unwrap();
            if let Some(drainer) = &mut drainer {
                let end = drainer.drain(usize::MAX, &mut Vec::new()).unwrap().end;
                drainer.set_durable(end).unwrap();
            }
            let (seen, _) = received(true);
            assert!(
                seen.iter().all(|one| one.name().contains("evicted")),
                "{seen:?}"
            );
            evicted += seen.len();
        }
        assert!(evicted > 0);
        assert_eq!(ours.stats().evicted, evicted as u64);
        // After the end they are not.
        expire(b"silent again");
        assert_eq!(names(&received(false).0), [""; 0]);
    }
}

#[test]
fn a_listener_that_is_too_slow_gets_a_loss() {
    let (_memory, ours, theirs, _) = two(UpdatePolicy::Append);
    let mut mirror = Mirror::listen(&ours);
    mirror.drain();
    for round in 0..3 {
        for i in 0..5 * CAPACITY {
            theirs.put(&key(i), &[round; 9]).unwrap();
        }
        let received = mirror.drain();
        assert_eq!(received[0], Received::Lost);
        assert!(!received[1..].contains(&Received::Lost));
        assert!(received.len() > CAPACITY, "what the ring holds arrives");
        mirror.shows_the_store("after an overflow");
        theirs.put(b"next", &[round]).unwrap();
        assert_eq!(names(&mirror.drain()), ["0 stored next"]);
    }
}

#[test]
fn without_a_listener_or_by_a_read_only_opening_nothing_is_entered() {
    let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
    let reader = memory.open_to_read(3);
    let mut mirror = Mirror::listen(&ours);
    mirror.drain();
    assert!(matches!(reader.put(b"k", b"v"), Err(WriteError::ReadOnly)));
    assert!(matches!(reader.clear(), Err(WriteError::ReadOnly)));
    assert!(reader.swap_databases(0, 1).is_err());
    assert!(reader.get(b"k").unwrap().is_none());
    assert_eq!(names(&mirror.drain()), [""; 0]);
    drop(mirror);
    theirs.put(b"unseen", b"v").unwrap();
    let mut mirror = Mirror::listen(&ours);
    assert_eq!(names(&mirror.drain()), ["lost"], "and nothing of before");
    mirror.shows_the_store("followed again");
    // An opening that may only read may listen.
    let mut other = reader.listen().unwrap();
    theirs.put(b"seen", b"v").unwrap();
    let mut received = Vec::new();
    other
        .drain(10, |report| received.push(Received::of(report)))
        .unwrap();
    assert_eq!(names(&received), ["lost", "0 stored seen"]);
    assert_eq!(names(&mirror.drain()), ["0 stored seen"]);
}

/// The next holder of the role listens at once. It begins with a loss, and what was entered for its
/// predecessor is dropped.
#[test]
fn a_dead_listener_is_replaced() {
    let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
    let mut mirror = Mirror::listen(&ours);
    mirror.drain();
    for i in 0..10 {
        theirs.put(&key(i), b"v").unwrap();
    }
    memory.script.kill(1);
    let second = memory.open(3);
    let mut next = Mirror::listen(&second);
    theirs.put(b"new", b"v").unwrap();
    assert_eq!(names(&next.drain()), ["lost", "0 stored new"]);
    next.shows_the_store("followed by another");
    // Reaping the dead listener does not affect the present one.
    second.reap().unwrap();
    theirs.put(b"newer", b"v").unwrap();
    assert_eq!(names(&next.drain()), ["0 stored newer"]);
    drop(next);
    assert_eq!(second.listen().unwrap().drain(10, |_| {}).unwrap(), 0);
}

/// Each has its own position, and none knows of the others. A journal loses nothing beside them.
#[test]
fn several_followers_receive_every_change_of_other_openings() {
    use mneme_log::feed::{Item, entries};
    for kept in [false, true] {
        let builder = LogStore::builder().capacity(64 << 20).change_feed(kept);
        let (_memory, first, second, _) = two_of(builder);
        let mut journal = kept.then(|| first.change_feed().unwrap());
        let (mut one, mut two) = (Mirror::listen(&first), Mirror::listen(&second));
        assert_eq!(names(&one.drain()), ["lost"]);
        let (mut kept_puts, mut bytes) = (0, Vec::new());
        for round in 0..50 {
            first
                .database(9)
                .unwrap()
                .put(b"by-first", &[round])
                .unwrap();
            second.put(b"by-second", &[round]).unwrap();
            // Far more than stays in the ring behind a journal.
            let own = first.database(9).unwrap();
            for i in 0..1_000 {
                own.put(&key(i), &[round; 400]).unwrap();
            }
            // In pieces, if the feed is kept.
            second.put(b"long", &[round; 100_000]).unwrap();
            second.remove(b"by-second").unwrap();
            let expected = ["0 stored by-second", "0 stored long", "0 removed by-second"];
            if let Some(journal) = &mut journal {
                bytes.clear();
                let drained = journal.drain(usize::MAX, &mut bytes).unwrap();
                for entry in entries(drained.start, &bytes) {
                    let puts = entry
                        .unwrap()
                        .items()
                        .filter(|i| matches!(i, Ok(Item::Put { .. })));
                    kept_puts += puts.count();
                }
                // What the first listener has not yet received may be overwritten by now.
                if round % 2 == 0 {
                    assert_eq!(names(&one.drain()), expected, "{round}");
                    journal.set_durable(drained.end).unwrap();
                } else {
                    journal.set_durable(drained.end).unwrap();
                    let received = names(&one.drain());
                    assert!(
                        received[0] == "lost" || received == expected,
                        "{received:?}"
                    );
                }
            } else {
                let received = names(&one.drain());
                assert_eq!(received, expected, "{round}");
            }
            one.shows_the_store("the first");
            // A slow one, for which others do not wait.
            if round % 10 == 9 {
                assert_eq!(names(&two.drain())[0], "lost");
                two.shows_the_store("the second");
            }
        }
        assert_eq!(kept_puts, if kept { 50 * 1_002 } else { 0 });
        // Its own changes alone cost a listener nothing, however many.
        one.drain();
        for i in 0..20_000 {
            let own = first.database(9).unwrap();
            own.put(&key(i % 1_000), &[1; 400]).unwrap();
            if i % 1_000 == 999
                && let Some(journal) = &mut journal
            {
                let drained = journal.drain(usize::MAX, &mut Vec::new()).unwrap();
                journal.set_durable(drained.end).unwrap();
            }
        }
        assert_eq!(names(&one.drain()), [""; 0]);
        assert!(one.may_sleep());
    }
}

#[test]
fn a_change_wakes_a_listener_that_sleeps() {
    let (_memory, ours, theirs, _) = two(UpdatePolicy::Append);
    let mut listener = ours.listen().unwrap();
    let (sleeps, asleep) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let follower = scope.spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < 201 {
                let receive = |report: mneme_log::Notification<'_>| seen.push(Received::of(report));
                listener.drain(usize::MAX, receive).unwrap();
                if seen.len() < 201
                    && let Some(sleep) = listener.sleep()
                {
                    sleeps.send(()).unwrap();
                    // A missed wake-up would show as a time-out of the channel below.
                    sleep.at_most(std::time::Duration::from_secs(3600));
                }
            }
            drop(sleeps);
            assert_eq!(
                seen.iter().filter(|seen| **seen == Received::Lost).count(),
                1
            );
        });
        for i in 0..200 {
            // It sleeps, or is about to.
            let _ = asleep.recv();
            theirs.put(&key(i), b"v").unwrap();
        }
        follower.join().unwrap();
    });
}

#[test]
fn a_listener_mirrors_two_writers() {
    const EACH: usize = 20_000;
    for policy in POLICIES {
        let (memory, ours, first, _) = two(policy);
        let second = memory.open(3);
        let mut mirror = Mirror::listen(&ours);
        assert_eq!(names(&mirror.drain()), ["lost"]);
        // The ring never overflows, so every change has to arrive.
        let received = AtomicUsize::new(0);
        let made = AtomicUsize::new(0);
        let write = |store: &LogStore, seed: usize| {
            for i in 0..EACH {
                while made.load(Acquire) > received.load(Acquire) + CAPACITY / 2 {
                    std::thread::yield_now();
                }
                // Both write the same keys.
                let key = key((i * 7 + seed) % 50);
                match (i + seed) % 5 {
                    0 => {
                        let there = store.remove(&key).unwrap();
                        made.fetch_add(usize::from(there), Release);
                    }
                    1 => {
                        let new = Decision::Replace(vec![i as u8; i % 40]);
                        store.update(&key, |_| new.clone()).unwrap();
                        made.fetch_add(1, Release);
                    }
                    _ => {
                        store.put(&key, &vec![i as u8; i % 90]).unwrap();
                        made.fetch_add(1, Release);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            let writers = [
                scope.spawn(|| write(&first, 1)),
                scope.spawn(|| write(&second, 3)),
            ];
            loop {
                let over = writers.iter().all(|writer| writer.is_finished());
                let some = mirror.drain();
                assert!(!some.contains(&Received::Lost), "{policy:?}");
                received.fetch_add(some.len(), Release);
                if over && some.is_empty() {
                    break;
                }
            }
        });
        assert_eq!(made.load(Acquire), received.load(Acquire), "{policy:?}");
        mirror.shows_the_store("at rest");
    }
}
