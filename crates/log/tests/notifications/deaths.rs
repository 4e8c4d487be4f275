//! Writers and listeners that stop, or die, at any place.

use std::collections::{BTreeMap, BTreeSet};

use mneme_log::{Expiry, LogStore, UpdatePolicy, WriteError};
use mneme_sys::fault::{self, Action, Outcome};

use super::memory::stopped::Stopped;
use super::mirror::{Mirror, Received};
use super::{POLICIES, fill, key, names, passed_by, patch, two};

/// A change of a store with some keys.
type Work = (&'static str, fn(&LogStore));

/// One of each kind.
const WORKS: [Work; 8] = [
    ("put", |s| s.put(b"new", b"value").unwrap()),
    ("put again", |s| s.put(&key(3), b"other").unwrap()),
    // The listener has read it as a whole, so the first patch stores it again.
    ("patch", |s| (9..11).for_each(|at| patch(s, b"long", at))),
    ("remove", |s| assert!(s.remove(&key(3)).unwrap())),
    ("retime", |s| {
        assert!(s.set_expiry(b"timed", Expiry::At(u64::MAX >> 2)).unwrap());
    }),
    ("transaction", |s| {
        s.transaction(|t| {
            t.put(&key(3), b"three")?;
            t.put(b"new", b"value")?;
            t.remove(&key(5))?;
            Ok::<_, WriteError>(())
        })
        .unwrap();
    }),
    ("clear", |s| s.clear().unwrap()),
    ("swap", |s| s.swap_databases(0, 5).unwrap()),
];

/// The places of this crate that `work` passes, with a listener.
fn places(policy: UpdatePolicy, work: fn(&LogStore)) -> BTreeSet<&'static str> {
    let (_memory, ours, theirs, _) = two(policy);
    fill(&ours);
    let _mirror = Mirror::listen(&ours);
    passed_by(theirs, work)
}

/// A writer dies at each point. After its work is repaired, the listener has received all its
/// changes. Later changes by others arrive as before.
#[test]
fn changes_of_a_dead_writer_are_reported() {
    let mut died = BTreeMap::new();
    for policy in POLICIES {
        for (what, work) in WORKS {
            for name in places(policy, work) {
                let (memory, ours, theirs, _) = two(policy);
                fill(&ours);
                let mut mirror = Mirror::listen(&ours);
                mirror.drain();
                memory.abandon(2, name, move || work(&theirs));
                let context = format!("{policy:?}: {what}, dead at {name}");
                // Before the repair, not everything may have arrived.
                let mut received = mirror.drain();
                ours.reap().unwrap();
                received.extend(mirror.drain());
                mirror.shows_the_store(&context);
                assert!(!received.contains(&Received::Lost), "{context}");
                if name.starts_with("log.feed.") || name.starts_with("log.databases.") {
                    *died.entry(name).or_insert(0) += 1;
                }
                let third = memory.open(3);
                for i in 0..3 {
                    third.put(&key(i), b"later").unwrap();
                }
                let later = ["0 stored key-0", "0 stored key-1", "0 stored key-2"];
                assert_eq!(names(&mirror.drain()), later, "{context}");
            }
        }
    }
    let all = [
        "log.databases.announced",
        "log.feed.blanked",
        "log.feed.bound",
        "log.feed.completed",
        "log.feed.filled",
        "log.feed.passed",
        "log.feed.reserved",
        "log.feed.settled",
    ];
    assert!(died.keys().eq(&all), "{died:?}");
}

/// The repairer dies too.
#[test]
fn the_next_reaper_completes_what_a_dead_one_did_not_for_listeners() {
    for (what, work) in WORKS {
        for name in [
            "log.reap.swap",
            "txn.repair.settled",
            "txn.repair.unlocked",
            "log.reap.operation",
        ] {
            let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
            fill(&ours);
            let mut mirror = Mirror::listen(&ours);
            mirror.drain();
            let at = "log.feed.filled";
            memory.abandon(2, at, move || work(&theirs));
            let reaper = memory.open(3);
            let outcome = fault::run(name, Action::Abandon, 1, move || reaper.reap().unwrap());
            if outcome == Outcome::Abandoned {
                memory.script.kill(3);
            } else {
                assert!(name.starts_with("txn.") && what != "transaction");
            }
            mirror.drain();
            ours.reap().unwrap();
            mirror.drain();
            mirror.shows_the_store(&format!("{what}, the reaper dead at {name}"));
        }
    }
}

/// A writer that is stopped before its entry is complete delays the changes after it for 100 ms,
/// and none after that. Its change, when it continues, is reported as lost. Once the ring is full
/// behind it, changes by others are reported as lost.
#[test]
fn a_writer_that_stands_still_is_passed_over() {
    for name in ["log.feed.passed", "log.feed.filled", "log.published"] {
        let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
        ours.put(b"there", b"already").unwrap();
        let mut mirror = Mirror::listen(&ours);
        mirror.drain();
        let stopped = Stopped::at(name, 1, move || theirs.put(b"slow", b"v").unwrap());
        let third = memory.open(3);
        third.put(b"quick", b"v").unwrap();
        for _ in 0..3 {
            assert_eq!(names(&mirror.drain()), [""; 0], "it is waited for");
        }
        clock.advance_ms(100);
        assert_eq!(names(&mirror.drain()), ["lost", "0 stored quick"]);
        mirror.shows_the_store("passed over");
        let rounds = |mirror: &mut Mirror<'_>, rounds: u8| {
            for round in 0..rounds {
                (0..4_000).for_each(|_| third.put(b"quick", &[round]).unwrap());
                let received = mirror.drain();
                assert_eq!(received.len(), 4_000, "round {round}");
                assert!(!received.contains(&Received::Lost), "round {round}");
            }
        };
        rounds(&mut mirror, 1);
        (0..15_000).for_each(|_| third.put(b"quick", b"v").unwrap());
        assert!(
            mirror.drain().contains(&Received::Lost),
            "there is no space"
        );
        mirror.shows_the_store("there is no space");
        stopped.finish();
        assert_eq!(names(&mirror.drain()), ["lost"]);
        rounds(&mut mirror, 5);
        mirror.shows_the_store("and goes on");
    }
}

/// After a writer has continued, the next one is waited for as long again, even if the next change
/// is by the same thread, in that lap.
#[test]
fn each_notification_is_waited_for_by_itself() {
    let (_memory, ours, theirs, clock) = two(UpdatePolicy::Append);
    ours.put(b"there", b"already").unwrap();
    let mut mirror = Mirror::listen(&ours);
    mirror.drain();
    let theirs = std::sync::Arc::new(theirs);
    let stopped = |name: &'static [u8]| {
        let theirs = theirs.clone();
        Stopped::at("log.feed.filled", 1, move || {
            theirs.put(name, b"v").unwrap()
        })
    };
    let first = stopped(b"first");
    assert_eq!(names(&mirror.drain()), [""; 0]);
    first.finish();
    clock.advance_ms(100);
    // It has the place that the first thread has left.
    let second = stopped(b"second");
    assert_eq!(names(&mirror.drain()), ["0 stored first"]);
    clock.advance_ms(99);
    assert_eq!(names(&mirror.drain()), [""; 0], "it is waited for");
    second.finish();
    assert_eq!(names(&mirror.drain()), ["0 stored second"]);
}

/// A writer that was passed over dies: at once, or after it has noticed.
#[test]
fn one_that_was_passed_over_may_die_as_well() {
    for name in ["log.published", "log.counted", "log.feed.completed"] {
        let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
        ours.put(b"there", b"already").unwrap();
        let mut mirror = Mirror::listen(&ours);
        mirror.drain();
        let (arrived, at_place) = std::sync::mpsc::channel();
        let (go_on, released) = std::sync::mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let stand = move || {
            arrived.send(()).unwrap();
            released.lock().unwrap().recv().unwrap();
        };
        let writer = std::thread::spawn(move || {
            fault::run("none", Action::Abandon, 1, move || {
                let stand = Action::Call(std::sync::Arc::new(stand));
                fault::arm("log.feed.filled", stand, 1);
                fault::arm(name, Action::Abandon, 1);
                theirs.put(b"slow", b"v").unwrap();
            })
        });
        at_place.recv().unwrap();
        assert_eq!(names(&mirror.drain()), [""; 0]);
        clock.advance_ms(100);
        assert_eq!(names(&mirror.drain()), ["lost"], "it is left");
        go_on.send(()).unwrap();
        assert_eq!(writer.join().unwrap(), Outcome::Abandoned, "{name}");
        mirror.drain();
        memory.script.kill(2);
        ours.reap().unwrap();
        assert_eq!(names(&mirror.drain()), ["lost"], "{name}");
        mirror.shows_the_store(name);
        let third = memory.open(3);
        for i in 0..30_000 {
            third.put(&key(i % 3_000), b"v").unwrap();
            if i % 3_000 == 0 {
                assert!(!mirror.drain().contains(&Received::Lost), "{name}");
            }
        }
    }
}

/// Wherever a listener dies, it does not affect another one, and after it is reaped nothing is
/// entered for it.
#[test]
fn a_listener_that_dies_is_nobodys_burden() {
    for name in ["log.listen.registered", "none"] {
        let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
        fill(&theirs);
        let first = memory.open(4);
        let outcome = fault::run(name, Action::Abandon, 1, move || {
            let mut listener = first.listen().unwrap();
            listener.drain(10, |_| {}).unwrap();
            std::mem::forget((listener, first));
        });
        assert_eq!(outcome == Outcome::Abandoned, name != "none");
        memory.script.kill(4);
        // For the dead listener, until it is reaped.
        theirs.put(b"for the dead", b"v").unwrap();
        let mut mirror = Mirror::listen(&ours);
        theirs.put(b"new", b"v").unwrap();
        assert_eq!(names(&mirror.drain()), ["lost", "0 stored new"], "{name}");
        ours.reap().unwrap();
        theirs.put(b"newer", b"v").unwrap();
        assert_eq!(names(&mirror.drain()), ["0 stored newer"], "{name}");
        mirror.shows_the_store(name);
        drop(mirror);
        let put = |s: &LogStore| s.put(b"unheard", b"v").unwrap();
        let passed = passed_by(theirs, put);
        assert!(passed.iter().all(|name| !name.starts_with("log.feed.")));
    }
}

/// A writer dies when it has counted a loss, or before it has woken the listener.
#[test]
fn a_writer_that_dies_after_a_loss_or_in_a_ring_leaves_nothing() {
    let long: Work = ("long", |s| {
        s.transaction(|t| (0..3_000).try_for_each(|i| t.put(format!("{i:0>40}").as_bytes(), b"v")))
            .unwrap();
    });
    for (name, (_, work)) in [("log.feed.lost", long), ("log.feed.rung", WORKS[0])] {
        let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
        fill(&ours);
        let mut mirror = Mirror::listen(&ours);
        mirror.drain();
        assert!(mirror.may_sleep());
        memory.abandon(2, name, move || work(&theirs));
        mirror.drain();
        ours.reap().unwrap();
        let received = mirror.drain();
        assert_eq!(received.contains(&Received::Lost), name == "log.feed.lost");
        mirror.shows_the_store(name);
        let third = memory.open(3);
        third.put(b"later", b"v").unwrap();
        assert_eq!(names(&mirror.drain()), ["0 stored later"], "{name}");
    }
}
