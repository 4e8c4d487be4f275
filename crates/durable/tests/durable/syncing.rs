//! What is called durable: gates, steps, and changes that belong together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mneme_durable::{DurabilityMode, DurableError, DurableOptions, SyncPolicy};
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
        // And at most a group more.
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

/// Each look at it finds it later by as much, in nanoseconds.
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
            // By how long this takes the next is judged.
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

/// What a thread writes beside changes of another that belong together is durable with them, and
/// no sync says so before.
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
    let together = store.feed_together().unwrap();
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
    std::thread::scope(|scope| {
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
        drop(together);
        assert_eq!(other.join().unwrap(), gate.tail());
    });
    drop(store);
    let again = options(&dir).mode(mode).open_private(builder()).unwrap();
    assert_eq!(again.records(), 3);
}
