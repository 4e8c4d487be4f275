//! What counts as durable: gates, steps, and changes that belong together.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mneme_durable::{
    DurabilityMode, DurableError, DurableOptions, DurableStore, GateState, SyncPolicy,
};
use mneme_sys::Clock;
use mneme_sys::medium::RecordingDirectory;
use mneme_testkit::{TestDir, wait_until};

use crate::{BOTH, builder, options};

/// Otherwise writers would wait during every sync: they fill the ring while it is drained.
#[test]
fn a_step_makes_a_quarter_of_a_full_feed_durable_and_leaves_the_rest_to_the_next() {
    let dir = TestDir::on_disk("quarters");
    let options = options(&dir).sync(SyncPolicy::No);
    let mut store = options.open_stepped(builder()).unwrap();
    let value = [7; 1000];
    for key in 0u32..2500 {
        store.put(&key.to_le_bytes(), &value).unwrap();
    }
    let gate = store.gate();
    let (tail, quarter) = (gate.tail(), (4 << 20) / 4);
    assert!(tail > 2 * quarter && tail < 4 * quarter, "{tail}");
    let mut durable = gate.durable();
    while durable < tail - quarter {
        store.step();
        let freed = gate.durable() - durable;
        // And at most one more group.
        assert!((1..2 * quarter).contains(&freed), "{freed} of {tail}");
        durable += freed;
    }
    store.sync();
    assert_eq!(gate.durable(), tail);
}

#[test]
fn the_gate_opens_when_it_is_asked() {
    BOTH.into_iter().for_each(gate_opens);
}

fn gate_opens(mode: DurabilityMode) {
    let dir = TestDir::new("durable-gate");
    let store = options(&dir)
        .mode(mode)
        .sync(SyncPolicy::Always)
        .open_private(builder())
        .unwrap();
    let gate = store.durability().gate();
    let (sent, woken) = std::sync::mpsc::channel();
    let subscription = gate.subscribe(Arc::new(move || {
        let _ = sent.send(());
    }));
    for i in 0..20u32 {
        store.put(b"key", &i.to_le_bytes()).unwrap();
        let tail = gate.tail();
        gate.ask();
        while gate.durable() < tail {
            woken.recv().unwrap();
        }
    }
    drop(subscription);
    assert!(gate.holds());
    store.durability().set_policy(SyncPolicy::No);
    assert!(!gate.holds());
    store.put(b"key", b"last").unwrap();
    store.sync().unwrap();
    let stats = store.durability().stats();
    assert_eq!((stats.pending, stats.durable), (0, gate.tail()));
    assert!(stats.groups >= 20 && stats.journal.syncs >= 20);
}

/// Each reading of it is later by this many nanoseconds.
struct Ticking {
    now: AtomicU64,
    tick: u64,
}

impl Clock for Ticking {
    fn now_ns(&self) -> u64 {
        self.now.fetch_add(self.tick, Relaxed)
    }

    fn wall_ms(&self) -> u64 {
        1000
    }
}

#[test]
fn a_thread_that_waits_makes_a_short_sync_itself_and_no_long_one() {
    for mode in BOTH {
        for (tick, is_short) in [(0, true), (1_000_000, false)] {
            let now = AtomicU64::new(0);
            let store = DurableOptions::on(RecordingDirectory::new())
                .mode(mode)
                .file_bytes(1 << 20)
                .clock(Arc::new(Ticking { now, tick }))
                .sync(SyncPolicy::No)
                .open_private(builder())
                .unwrap();
            let (durability, gate) = (store.durability(), store.durability().gate());
            store.put(b"key", b"1").unwrap();
            // The duration of this sync is the estimate for the next.
            store.sync().unwrap();
            store.put(b"key", b"2").unwrap();
            for _ in 0..1000 {
                durability.try_sync();
                std::thread::yield_now();
            }
            let is_durable = gate.durable() == gate.tail();
            assert_eq!(is_durable, is_short, "{mode}, {tick} ns a look");
            store.close().unwrap();
        }
    }
}

/// Syncs a store when its thread ends.
struct SyncsAtTheEnd(Arc<DurableStore>);

impl Drop for SyncsAtTheEnd {
    fn drop(&mut self) {
        let _ = self.0.sync();
    }
}

thread_local! {
    static AT_THE_END: RefCell<Option<SyncsAtTheEnd>> = const { RefCell::new(None) };
}

/// A thread that can no longer, or not yet, take part in the store may request a sync all the same.
/// The store does not fail because of it.
#[test]
fn a_sync_by_a_thread_that_is_ending_does_not_fail_the_store() {
    let dir = TestDir::new("durable-ending");
    let store = Arc::new(options(&dir).open_private(builder()).unwrap());
    store.put(b"key", b"value").unwrap();
    let of_thread = Arc::clone(&store);
    std::thread::spawn(move || {
        // Before the store's own, so that it is dropped after that.
        AT_THE_END.with(|kept| *kept.borrow_mut() = Some(SyncsAtTheEnd(Arc::clone(&of_thread))));
        of_thread.get(b"key").unwrap();
        of_thread.put(b"other", b"value").unwrap();
    })
    .join()
    .unwrap();
    let stats = store.durability().stats();
    assert_eq!(stats.state, GateState::Open, "{}", stats.why);
    store.put(b"last", b"value").unwrap();
    store.sync().unwrap();
}

/// What a thread writes beside another thread's group of changes becomes durable with the group,
/// and no sync returns before.
#[test]
fn a_sync_waits_for_the_end_of_changes_that_belong_together() {
    BOTH.into_iter().for_each(waits_for_groups);
}

fn waits_for_groups(mode: DurabilityMode) {
    let dir = TestDir::new("durable-together");
    let store = options(&dir).mode(mode).open_private(builder()).unwrap();
    store.put(b"before", b"1").unwrap();
    store.sync().unwrap();
    let (gate, durable) = (
        store.durability().gate(),
        store.durability().gate().durable(),
    );
    let within = || {
        store.put(b"within", b"2").unwrap();
        let durability = store.durability();
        for own in [
            store.sync(),
            durability.checkpoint_and_wait().map(drop),
            durability.backup("own").map(drop),
            durability.compare_files().map(drop),
        ] {
            assert!(matches!(own, Err(DurableError::Together)), "{own:?}");
        }
        // A nested group of the same thread does not end the outer one.
        store.feed_together(|| ()).unwrap();
    };
    std::thread::scope(|scope| {
        let made = store.feed_together(|| {
            within();
            let other = scope.spawn(|| {
                store.put(b"beside", b"3").unwrap();
                store.sync().unwrap();
                gate.durable()
            });
            wait_until("the files have it", || {
                gate.ask();
                store.records() == 3 && store.feed_durable() == store.feed_tail()
            });
            assert_eq!(gate.durable(), durable);
            other
        });
        assert_eq!(made.unwrap().join().unwrap(), gate.tail());
    });
    // A panic does not leave them without an end, either.
    let panics = AssertUnwindSafe(|| store.feed_together(|| -> () { panic!("within") }));
    std::panic::catch_unwind(panics).unwrap_err();
    store.sync().unwrap();
    drop(store);
    let again = options(&dir).mode(mode).open_private(builder()).unwrap();
    assert_eq!(again.records(), 3);
}

/// A program that is stopped within a change keeps later changes from becoming durable, and nobody
/// waits for it for ever.
#[test]
fn nothing_waits_for_ever_for_a_thread_that_stands_still_within_a_change() {
    use mneme_sys::fault::{Action, arm};
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    let dir = TestDir::new("durable-still");
    let store = options(&dir).open_private(builder()).unwrap();
    store.put(b"before", b"1").unwrap();
    let durability = store.durability();
    // After this it is known where a base file may begin.
    durability.checkpoint_and_wait().unwrap();
    let (stands, goes_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stands, goes_on) = (Arc::new(stands), Arc::new(goes_on));
    std::thread::scope(|scope| {
        let (tells, waits) = (Arc::clone(&stands), Arc::clone(&goes_on));
        let within = &store;
        scope.spawn(move || {
            let hold = move || {
                tells.store(true, SeqCst);
                wait_until("it goes on", || waits.load(SeqCst));
            };
            arm("log.feed.filled", Action::Call(Arc::new(hold)), 1);
            within.put(b"within", b"2").unwrap();
        });
        wait_until("it stands still", || stands.load(SeqCst));
        let base = scope.spawn(|| durability.checkpoint_and_wait().map(drop));
        let refused = [store.sync(), base.join().unwrap()];
        goes_on.store(true, SeqCst);
        for refused in refused {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("stands still"), "{refused}");
        }
    });
    store.sync().unwrap();
    durability.checkpoint_and_wait().unwrap();
}
