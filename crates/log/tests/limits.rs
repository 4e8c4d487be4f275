//! The limits of a store's capacity: a full store reports that, and one that is not full continues.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use mneme_log::{Cursor, Decision, LogStore, OpenError, PagePolicy, Updated, WriteError};
use mneme_sys::{CpuId, SyntheticTopology};

fn open(capacity: u64) -> LogStore {
    LogStore::builder()
        .capacity(capacity)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .open_private()
        .unwrap()
}

fn fill(store: &LogStore, len: usize) -> (u64, WriteError) {
    let value = vec![7u8; len];
    for i in 0u64.. {
        if let Err(error) = store.put(&i.to_le_bytes(), &value) {
            return (i, error);
        }
    }
    unreachable!()
}

/// A node's memory is used and compacted to its last frame.
#[test]
fn the_last_frames_are_compacted_like_the_others() {
    let topology = Arc::new(SyntheticTopology::new(2, 1));
    let store = LogStore::builder()
        .capacity(64 << 20)
        .maintainer(false)
        .page_policy(PagePolicy::Small)
        .topology(topology.clone())
        .open_private()
        .unwrap();
    // The second node has the upper half of the frames.
    topology.run_on(CpuId(1));
    store.put(b"k", b"v").unwrap();
    store.remove(b"k").unwrap();
    let before = store.stats();
    let (stored, _) = fill(&store, 1000);
    assert_eq!(
        store.stats().overhead_bytes,
        before.overhead_bytes,
        "every frame is accounted for"
    );
    for i in 0..stored {
        store.remove(&i.to_le_bytes()).unwrap();
    }
    store.compact().unwrap();
    store.compact().unwrap();
    let after = store.stats();
    assert_eq!(after.free_bytes, before.free_bytes);
}

/// Separate free frames that large records have left are used for small records.
#[test]
fn fragments_between_large_records_serve_small_ones() {
    let store = open(1 << 30);
    let (stored, _) = fill(&store, 1100 << 10);
    for i in (0..stored).filter(|i| i % 2 == 0) {
        store.remove(&i.to_le_bytes()).unwrap();
    }
    store.compact().unwrap();
    store.compact().unwrap();
    for i in 0..200_000u64 {
        store
            .put(&(i + 1_000_000).to_le_bytes(), &[1; 1000])
            .unwrap();
    }
}

/// Frames that the index has used are available to records when it shrinks.
#[test]
fn frames_of_an_index_that_shrank_serve_records() {
    let store = open(64 << 20);
    let (stored, _) = fill(&store, 4);
    let full = store.stats();
    for i in 0..stored {
        store.remove(&i.to_le_bytes()).unwrap();
    }
    let (again, error) = fill(&store, 1000);
    assert!(matches!(error, WriteError::OutOfMemory { .. }), "{error}");
    let now = store.stats();
    assert!(now.index_bytes < full.index_bytes, "{now:?}");
    assert!(now.live_bytes > full.live_bytes && again > 0, "{now:?}");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// The error says that the writer's own pin blocks it, not that a nearly empty store is full.
#[test]
fn a_writer_that_keeps_a_value_gets_an_error_that_says_so() {
    let store = open(64 << 20);
    store.put(b"kept", b"value").unwrap();
    // Many dead bytes, some of them in segments that no thread can be reading.
    for i in 0..100_000u64 {
        store.put(&(i % 10).to_le_bytes(), &[1; 1000]).unwrap();
    }
    let kept = store.get(b"kept").unwrap().unwrap();
    let refused =
        (0..100_000u64).find_map(|i| store.put(&(i % 10).to_le_bytes(), &[1; 1000]).err());
    assert!(
        matches!(refused, Some(WriteError::Stalled(_))),
        "{refused:?}"
    );
    assert_eq!(kept, b"value");
}

/// Even compaction could not help: nothing is moved for it, and nothing is damaged.
#[test]
fn a_value_larger_than_the_store_is_out_of_memory() {
    let store = open(64 << 20);
    for len in [56 << 20, 64 << 20, 100 << 20] {
        let error = store.put(b"k", &vec![1; len]).unwrap_err();
        assert!(
            matches!(error, WriteError::OutOfMemory { .. }),
            "{len}: {error}"
        );
    }
    store.put(b"k", b"v").unwrap();
}

/// Records of a size that leaves the ends of log segments unused: moving them gains nothing.
#[test]
fn a_store_full_of_records_that_do_not_fill_segments_says_so() {
    for len in [
        50 << 10,
        100 << 10,
        410 << 10,
        (512 << 10) - 16 - 8,
        513 << 10,
    ] {
        let store = open(64 << 20);
        let (_, error) = fill(&store, len);
        assert!(
            matches!(error, WriteError::OutOfMemory { .. }),
            "{len}: {error}"
        );
        store.compact().unwrap();
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    }
}

/// A full store refuses at once, not after moving what cannot help; everything else works, and it
/// accepts as much again as is removed.
#[test]
fn a_full_store_refuses_at_once_and_recovers() {
    let store = open(64 << 20);
    let (stored, error) = fill(&store, 1000);
    assert!(matches!(error, WriteError::OutOfMemory { .. }), "{error}");
    let full = store.stats();
    assert!(full.live_bytes * 100 > full.capacity * 85, "{full:?}");
    for _ in 0..1000 {
        let refused = store.put(b"one more", &[0; 1000]).unwrap_err();
        assert!(matches!(refused, WriteError::OutOfMemory { .. }));
    }
    assert_eq!(store.stats().moved_bytes, full.moved_bytes);
    assert_eq!(store.stats().reserve_bytes, full.reserve_bytes);
    let key = |i: u64| i.to_le_bytes();
    for i in 0..stored {
        assert_eq!(*store.get(&key(i)).unwrap().unwrap(), [7; 1000]);
    }
    // Every fourth record, all over the log: compaction has to start from a full store.
    let gone = stored / 4;
    for i in (0..stored).step_by(4) {
        assert!(store.remove(&key(i)).unwrap());
    }
    for i in 0..gone - 4000 {
        store.put(&key(stored + i), &[8; 1000]).unwrap();
    }
    assert!(store.stats().moved_bytes > full.moved_bytes);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// The notes of many removals at once take frames of their own, which a full store has reserved for
/// them.
#[test]
fn a_full_store_removes_many_at_once() {
    let store = open(64 << 20);
    let (full, _) = fill(&store, 200);
    let many = |from: u64| (from..from + 20_000).map(|i| i.to_le_bytes());
    let put = store.transaction(|t| many(full).try_for_each(|key| t.put(&key, &[0; 200])));
    assert!(
        matches!(put, Err(WriteError::OutOfMemory { .. })),
        "{put:?}"
    );
    let removed = store.transaction(|t| {
        many(0)
            .map(|key| t.remove(&key))
            .collect::<Result<Vec<_>, _>>()
    });
    assert_eq!(removed.unwrap(), [true; 20_000]);
    assert_eq!(store.len(), full - 20_000);
    let again = (full..).take_while(|i| store.put(&i.to_le_bytes(), &[7; 200]).is_ok());
    assert!(again.count() > 10_000);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A scan by steps of zero records still reaches the end.
#[test]
fn a_scan_of_no_records_goes_on() {
    let store = open(64 << 20);
    for i in 0..50u32 {
        store.put(&i.to_le_bytes(), b"v").unwrap();
    }
    let (mut at, mut steps) = (Cursor::START, 0);
    while at != Cursor::END && steps <= 100 {
        at = store.scan(at, 0, |_, _| {}).unwrap();
        steps += 1;
    }
    assert!(steps <= 51);
}

/// Sizes that no machine has are refused before they are used in computations.
#[test]
fn the_greatest_numbers_are_refused_as_capacities() {
    for bytes in [u64::MAX, u64::MAX - (2 << 20) + 2, 1 << 62] {
        let asked = LogStore::builder().capacity(bytes).open_private();
        assert!(matches!(asked, Err(OpenError::CapacityTooLarge { .. })));
        let growing = LogStore::builder().capacity(64 << 20).max_capacity(bytes);
        assert!(growing.open_private().is_err());
    }
}

/// A read of a database that was never written to takes no space, and needs none.
#[test]
fn an_update_that_stores_nothing_makes_no_index() {
    let store = open(64 << 20);
    let database = store.database(5).unwrap();
    let before = store.stats().index_used_bytes;
    for decision in [Decision::Keep, Decision::Remove] {
        let updated = database.update(b"k", |_| decision.clone()).unwrap();
        assert_eq!(updated, Updated::Absent);
        assert_eq!(store.stats().index_used_bytes, before);
    }
}

/// Space comes back in one database while another is cleared again and again, faster than its
/// remains can be swept.
#[test]
fn a_database_that_is_always_being_cleared_holds_up_no_other() {
    use mneme_sys::fault::{Action, arm, disarm};

    /// Creates the other database's index, and drops it.
    fn make_and_clear(store: &LogStore, id: u64) {
        // A record would need space itself.
        store.restore_root(1, id).unwrap();
        store.database(1).unwrap().clear().unwrap();
    }

    /// Clears the other database again at the end of every sweep.
    fn clear_in_sweeps(store: &Arc<LogStore>, id: u64) {
        let again = Arc::clone(store);
        let clear = move || {
            make_and_clear(&again, id);
            clear_in_sweeps(&again, id + 1);
        };
        // An index has 64 partitions here, which are swept one by one.
        arm("index.sweep.partition", Action::Call(Arc::new(clear)), 64);
    }

    let store = Arc::new(open(64 << 20));
    make_and_clear(&store, 100);
    clear_in_sweeps(&store, 101);
    for i in 0..200_000u64 {
        let put = store.put(&(i % 20_000).to_le_bytes(), &[7; 1000]);
        put.unwrap_or_else(|error| panic!("{i}: {error}"));
    }
    disarm();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// This also holds if at every sweep a thread has been reading since before the last clearing.
#[test]
fn a_database_that_is_cleared_beside_readers_holds_up_no_other() {
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::JoinHandle;

    use mneme_sys::fault::{Action, arm, disarm};

    /// A thread that keeps a value.
    struct Reader(Sender<()>, JoinHandle<()>);

    impl Reader {
        fn begin(store: &Arc<LogStore>) -> Reader {
            let store = Arc::clone(store);
            let ((release, released), (tell, reads)) = (channel(), channel());
            let thread = std::thread::spawn(move || {
                let _value = store.get(b"read").unwrap().unwrap();
                tell.send(()).unwrap();
                let _ = released.recv();
            });
            reads.recv().unwrap();
            Reader(release, thread)
        }

        fn end(self) {
            drop(self.0);
            self.1.join().unwrap();
        }
    }

    fn make_and_clear(store: &LogStore, id: u64) {
        store.restore_root(1, id).unwrap();
        store.database(1).unwrap().clear().unwrap();
    }

    /// Calls `work` when the calling thread passes `place` for the `nth` time.
    fn at(place: &str, nth: u64, work: impl FnOnce() + Send + 'static) {
        let work = Mutex::new(Some(work));
        let call = move || work.lock().unwrap().take().unwrap()();
        arm(place, Action::Call(Arc::new(call)), nth);
    }

    /// Clears the other database again at the end of every sweep of one index, beside another
    /// reader. The previous one ends after this check of what can be swept.
    fn clear_in_sweeps(store: &Arc<LogStore>, id: u64, last: Reader) {
        let again = Arc::clone(store);
        at("index.sweep.partition", 64, move || {
            let next = Reader::begin(&again);
            at("index.shard.intent", 40, || last.end());
            make_and_clear(&again, id);
            clear_in_sweeps(&again, id + 1, next);
        });
    }

    let store = Arc::new(open(64 << 20));
    store.put(b"read", b"value").unwrap();
    let first = Reader::begin(&store);
    make_and_clear(&store, 100);
    // Its grace period begins.
    store.compact().unwrap();
    let second = Reader::begin(&store);
    first.end();
    make_and_clear(&store, 101);
    clear_in_sweeps(&store, 102, second);
    for i in 0..200_000u64 {
        let put = store.put(&(i % 20_000).to_le_bytes(), &[7; 1000]);
        put.unwrap_or_else(|error| panic!("{i}: {error}"));
    }
    disarm();
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
