//! Group commit under a model checker: [loom](https://docs.rs/loom) runs every schedule of a few
//! threads. The code is the product's own, over loom's locks. The broken twins move one of its
//! named steps or leave it out, and must fail.
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use super::{CommitGroup, CommitRequest, Locks};

struct Loom;

impl Locks for Loom {
    type Mutex<T> = Mutex<T>;

    fn new<T>(value: T) -> Mutex<T> {
        Mutex::new(value)
    }

    fn with<T, R>(mutex: &Mutex<T>, f: impl FnOnce(&mut T) -> R) -> R {
        f(&mut mutex.lock().unwrap())
    }
}

/// A batch is the number of its thread; the answer is the version that it became part of.
type Queue = CommitGroup<u8, usize, Loom>;

/// The batches of each version, in the order of their commits.
type Versions = Vec<Vec<u8>>;

struct Store {
    queue: Queue,
    writer: Mutex<Versions>,
}

fn commit(versions: &mut Versions, waiting: &[Arc<CommitRequest<u8, usize, Loom>>]) {
    versions.push(waiting.iter().map(|request| request.batch).collect());
    for request in waiting {
        request.answer(versions.len());
    }
}

/// A way to commit.
type Way = fn(&Store, u8) -> Option<usize>;

fn as_built(store: &Store, batch: u8) -> Option<usize> {
    store.queue.commit(&store.writer, batch, commit)
}

/// Commits alone, as a transaction does, or a thread with no other thread before it.
fn alone(store: &Store, batch: u8) -> Option<usize> {
    Loom::with(&store.writer, |versions| {
        versions.push(vec![batch]);
        Some(versions.len())
    })
}

/// Three threads commit, one of them twice. Each batch is part of exactly one version, which is the
/// answer to its thread; a thread's later batch is part of a later version.
fn together(way: Way) -> impl Fn() + Send + Sync + 'static {
    move || {
        let store = Arc::new(Store {
            queue: Queue::default(),
            writer: Mutex::new(Vec::new()),
        });
        let start = |batch: u8, way: Way| {
            let store = Arc::clone(&store);
            thread::spawn(move || (batch, way(&store, batch)))
        };
        let others = [start(1, way), start(2, alone)];
        let first = way(&store, 0);
        let second = way(&store, 3);
        assert!(first < second, "{first:?}, then {second:?}");
        let mut reported = vec![(0, first), (3, second)];
        reported.extend(others.map(|other| other.join().unwrap()));
        let versions = store.writer.lock().unwrap().clone();
        // An empty version would be a useless sync.
        assert!(
            versions.iter().all(|version| !version.is_empty()),
            "{versions:?}"
        );
        let parts: usize = versions.iter().map(Vec::len).sum();
        assert_eq!(parts, reported.len(), "{versions:?}");
        for (batch, version) in reported {
            let version = version.expect("no answer");
            assert!(versions[version - 1].contains(&batch), "{versions:?}");
        }
        assert!(store.queue.is_empty());
    }
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(match std::env::var_os("MNEME_LADDER_SECS") {
        Some(_) => 4,
        None => 2,
    });
    builder.check(model);
}

/// Runs a broken twin, which some schedule must fail.
fn fails(way: Way) {
    let run = std::panic::AssertUnwindSafe(|| explore(together(way)));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}

#[test]
fn each_batch_is_a_part_of_one_version_that_its_thread_gets() {
    explore(together(as_built));
}

/// Takes before it has the writer: another thread may have taken the request and not answered yet.
fn takes_early(store: &Store, batch: u8) -> Option<usize> {
    let request = store.queue.add(batch);
    let waiting = store.queue.take();
    Loom::with(&store.writer, |versions| {
        request.take_answer().or_else(|| {
            commit(versions, &waiting);
            request.take_answer()
        })
    })
}

#[test]
fn broken_taken_without_the_writer() {
    fails(takes_early);
}

/// Answers after releasing the writer.
fn answers_late(store: &Store, batch: u8) -> Option<usize> {
    let request = store.queue.add(batch);
    let committed = Loom::with(&store.writer, |versions| {
        let answer = request.take_answer();
        if answer.is_some() {
            return Err(answer);
        }
        let waiting = store.queue.take();
        versions.push(waiting.iter().map(|request| request.batch).collect());
        Ok((versions.len(), waiting))
    });
    let (version, waiting) = match committed {
        Ok(committed) => committed,
        Err(answer) => return answer,
    };
    for request in waiting {
        request.answer(version);
    }
    request.take_answer()
}

#[test]
fn broken_answered_without_the_writer() {
    fails(answers_late);
}

/// Commits the requests it saw in the queue, and empties the queue later.
fn empties_late(store: &Store, batch: u8) -> Option<usize> {
    let request = store.queue.add(batch);
    Loom::with(&store.writer, |versions| {
        request.take_answer().or_else(|| {
            let waiting = Loom::with(&store.queue.0, |queue| queue.clone());
            commit(versions, &waiting);
            drop(store.queue.take());
            request.take_answer()
        })
    })
}

#[test]
fn broken_emptied_after_a_look() {
    fails(empties_late);
}

/// Does not look whether another thread has answered.
fn looks_not(store: &Store, batch: u8) -> Option<usize> {
    let request = store.queue.add(batch);
    Loom::with(&store.writer, |versions| {
        commit(versions, &store.queue.take());
        request.take_answer()
    })
}

#[test]
fn broken_committed_without_a_look() {
    fails(looks_not);
}
