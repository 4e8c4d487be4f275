//! Writers and listeners that stop, or die, at any place.

use std::collections::{BTreeMap, BTreeSet};

use mneme_log::{Expiry, LogStore, UpdatePolicy, WriteError};
use mneme_sys::fault::{self, Action, Outcome};

use super::memory::stopped::Stopped;
use super::mirror::{Mirror, Received};
use super::{POLICIES, fill, key, names, passed_by, patch, two};

/// A change, of a store that holds some keys.
type Work = (&'static str, fn(&LogStore));

/// One of each kind.
const WORKS: [Work; 8] = [
    ("put", |s| s.put(b"new", b"value").unwrap()),
    ("put again", |s| s.put(&key(3), b"other").unwrap()),
    // The listener has read it as a whole, so that the first stores it anew.
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

/// The places of this crate that `work` leads through, with a listener.
fn places(policy: UpdatePolicy, work: fn(&LogStore)) -> BTreeSet<&'static str> {
    let (_memory, ours, theirs, _) = two(policy);
    fill(&ours);
    let _mirror = Mirror::listen(&ours);
    passed_by(theirs, work)
}

/// A writer dies at each point. Once its work is repaired, the listener has received all that it
/// changed, or a loss. Later changes of others arrive as before.
#[test]
fn changes_of_a_dead_writer_are_reported_or_counted_as_lost() {
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
                // What arrives before the repair is not yet all.
                let mut received = mirror.drain();
                ours.reap().unwrap();
                received.extend(mirror.drain());
                mirror.shows_the_store(&context);
                if name.starts_with("log.notify.") {
                    assert!(received.contains(&Received::Lost), "{context}");
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
        "log.notify.announced",
        "log.notify.entered",
        "log.notify.notified",
        "log.notify.reserved",
        "log.notify.written",
    ];
    assert!(died.keys().eq(&all), "{died:?}");
}

/// The repairer dies too, before it has reported the loss.
#[test]
fn the_next_reaper_reports_the_loss_that_a_dead_one_did_not() {
    for (what, work) in WORKS {
        for name in [
            "log.reap.swap",
            "txn.repair.settled",
            "txn.repair.unlocked",
            "log.reap.released",
            "log.reap.operation",
        ] {
            let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
            fill(&ours);
            let mut mirror = Mirror::listen(&ours);
            mirror.drain();
            let at = "log.notify.written";
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

/// A writer that stands still while it enters a notification delays the changes behind it for 100
/// ms, and none after that. What it enters when it goes on is reported as lost.
#[test]
fn a_writer_that_stands_still_is_passed_over() {
    for name in ["log.notify.reserved", "log.notify.written"] {
        let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
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
        // Its slot is not used again meanwhile, lap after lap.
        let laps = |mirror: &mut Mirror<'_>| {
            for lap in 0..3u8 {
                (0..4_000).for_each(|_| third.put(b"quick", &[lap]).unwrap());
                let received = mirror.drain();
                assert_eq!(received.len(), 4_000, "lap {lap}");
                assert!(!received.contains(&Received::Lost), "lap {lap}");
            }
        };
        laps(&mut mirror);
        stopped.finish();
        assert_eq!(names(&mirror.drain()), ["lost"]);
        laps(&mut mirror);
        mirror.shows_the_store("and goes on");
    }
}

/// A writer that has gone on is waited for as long again, even if the next change is that thread's,
/// in that lap.
#[test]
fn each_notification_is_waited_for_by_itself() {
    let (_memory, ours, theirs, clock) = two(UpdatePolicy::Append);
    let mut mirror = Mirror::listen(&ours);
    mirror.drain();
    let theirs = std::sync::Arc::new(theirs);
    let stopped = |name: &'static [u8]| {
        let theirs = theirs.clone();
        Stopped::at("log.notify.written", 1, move || {
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

/// One that was passed over dies: at once, or when it has noticed.
#[test]
fn one_that_was_passed_over_may_die_as_well() {
    for name in [
        "log.notify.entered",
        "log.notify.abandoned",
        "log.notify.notified",
    ] {
        let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
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
                fault::arm("log.notify.written", stand, 1);
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
        for i in 0..10_000 {
            third.put(&key(i % 3_000), b"v").unwrap();
            if i % 3_000 == 0 {
                assert!(!mirror.drain().contains(&Received::Lost), "{name}");
            }
        }
    }
}

/// Wherever a listener dies, the next one listens from where it begins.
#[test]
fn a_listener_that_dies_is_replaced_by_another() {
    let begins = ["log.notify.listening", "log.notify.dropped"];
    let drains = ["log.notify.copied", "log.notify.taken"];
    for name in begins.into_iter().chain(drains) {
        let (memory, ours, theirs, _) = two(UpdatePolicy::Append);
        fill(&theirs);
        let (first, other) = (memory.open(4), memory.open(5));
        let outcome = fault::run(name, Action::Abandon, 1, move || {
            let mut changes = first.take_server_role().unwrap().listen();
            other.put(b"while it listens", b"v").unwrap();
            changes.drain(10, |_| {}).unwrap();
        });
        assert_eq!(outcome, Outcome::Abandoned, "{name}");
        memory.script.kill(4);
        // For the dead, until somebody has reaped it.
        theirs.put(b"for the dead", b"v").unwrap();
        let mut mirror = Mirror::listen(&ours);
        theirs.put(b"new", b"v").unwrap();
        assert_eq!(names(&mirror.drain()), ["lost", "0 stored new"], "{name}");
        ours.reap().unwrap();
        theirs.put(b"newer", b"v").unwrap();
        assert_eq!(names(&mirror.drain()), ["0 stored newer"], "{name}");
        mirror.shows_the_store(name);
    }
}

/// A listener dies when it has just passed a writer over.
#[test]
fn a_listener_that_dies_while_it_passes_a_writer_over_is_replaced() {
    let (memory, ours, theirs, clock) = two(UpdatePolicy::Append);
    let first = memory.open(4);
    let mut changes = first.take_server_role().unwrap().listen();
    let slow = move || theirs.put(b"slow", b"v").unwrap();
    let stopped = Stopped::at("log.notify.written", 1, slow);
    changes.drain(10, |_| {}).unwrap();
    clock.advance_ms(100);
    let outcome = fault::run("log.notify.skipped", Action::Abandon, 1, move || {
        changes.drain(10, |_| {}).unwrap();
        drop(first);
    });
    assert_eq!(outcome, Outcome::Abandoned);
    memory.script.kill(4);
    let mut mirror = Mirror::listen(&ours);
    assert_eq!(names(&mirror.drain()), ["lost"]);
    stopped.finish();
    assert_eq!(
        names(&mirror.drain()),
        ["lost"],
        "what it had received is lost"
    );
    mirror.shows_the_store("replaced by another");
}
