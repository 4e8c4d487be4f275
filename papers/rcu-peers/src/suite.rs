//! What every mechanism must do: be a set, for one thread and, by recorded histories, for several;
//! and free no node that somebody may look at.

use crate::{MECHANISMS, Set, lists, make, rlu};
use mneme_sys::{SyntheticTopology, Topology};
use mneme_testkit::{Random, wait_until};
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};

const THREADS: usize = 3;

/// Fewer under Miri.
const fn times(native: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { native }
}

fn all(buckets: usize) -> impl Iterator<Item = (&'static str, Box<dyn Set>)> {
    let topology: Arc<dyn Topology> = Arc::new(SyntheticTopology::new(2, 2));
    let numbers = 0..MECHANISMS.len();
    numbers.map(move |n| (MECHANISMS[n], make(n, buckets, THREADS, &topology).unwrap()))
}

#[test]
fn each_is_a_set() {
    for buckets in [1, 7] {
        for (name, set) in all(buckets) {
            let (mut random, mut model) = (Random::new(3), BTreeSet::new());
            for _ in 0..times(4_000, 60) {
                let key = 1 + random.below(40);
                match random.below(3) {
                    0 => assert_eq!(set.insert(0, key), model.insert(key), "{name}"),
                    1 => assert_eq!(set.remove(0, key), model.remove(&key), "{name}"),
                    _ => assert_eq!(set.contains(0, key), model.contains(&key), "{name}"),
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Contains,
    Insert,
    Remove,
}

/// A call on one key: what it answered, and when it began and ended.
#[derive(Clone, Copy, Debug)]
struct Event {
    call: Call,
    answer: bool,
    began: u64,
    ended: u64,
}

/// Whether calls on one key, by thread, may have happened one after the other, each between its
/// beginning and its end. Keys are apart from each other, so each has an order of its own.
fn is_linearizable(threads: &[Vec<Event>]) -> bool {
    let mut tried = HashSet::new();
    let mut open = vec![(vec![0; threads.len()], false)];
    while let Some((done, present)) = open.pop() {
        if !tried.insert((done.clone(), present)) {
            continue;
        }
        let next: Vec<_> = threads.iter().zip(&done).map(|(t, n)| t.get(*n)).collect();
        let Some(first_end) = next.iter().flatten().map(|event| event.ended).min() else {
            return true;
        };
        for (thread, event) in next.into_iter().enumerate() {
            // One that began after another's end comes after it.
            let Some(event) = event.filter(|event| event.began <= first_end) else {
                continue;
            };
            let (answer, after) = match event.call {
                Call::Contains => (present, present),
                Call::Insert => (!present, true),
                Call::Remove => (present, false),
            };
            if answer == event.answer {
                let mut done = done.clone();
                done[thread] += 1;
                open.push((done, after));
            }
        }
    }
    false
}

#[test]
fn histories_that_no_order_explains_are_found_out() {
    let event = |call, answer, began, ended| Event {
        call,
        answer,
        began,
        ended,
    };
    let inserted = event(Call::Insert, true, 1, 4);
    // Beside it, a look may find the key or not; after it, it must.
    for (began, ended, answer, expected) in [
        (2, 3, false, true),
        (2, 3, true, true),
        (5, 6, true, true),
        (5, 6, false, false),
    ] {
        let look = event(Call::Contains, answer, began, ended);
        let history = [vec![inserted], vec![look]];
        assert_eq!(is_linearizable(&history), expected, "{look:?}");
    }
    let twice = [vec![inserted], vec![event(Call::Insert, true, 2, 3)]];
    assert!(!is_linearizable(&twice));
}

/// Histories of this many keys, which all threads call for.
fn record(set: &dyn Set, keys: u64, calls: usize, seed: u64) -> Vec<Vec<Vec<Event>>> {
    let clock = AtomicU64::new(0);
    let mut histories = vec![vec![Vec::new(); THREADS]; keys as usize];
    let recorded: Vec<Vec<(u64, Event)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let clock = &clock;
                scope.spawn(move || {
                    let mut random = Random::new(seed ^ (thread as u64) << 32);
                    let call = |_| {
                        let key = random.below(keys);
                        let calls = [Call::Contains, Call::Insert, Call::Remove];
                        let call = calls[random.below(3) as usize];
                        let began = clock.fetch_add(1, SeqCst);
                        let answer = match call {
                            Call::Contains => set.contains(thread, 1 + key),
                            Call::Insert => set.insert(thread, 1 + key),
                            Call::Remove => set.remove(thread, 1 + key),
                        };
                        let ended = clock.fetch_add(1, SeqCst);
                        let event = Event {
                            call,
                            answer,
                            began,
                            ended,
                        };
                        (key, event)
                    };
                    (0..calls).map(call).collect()
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    });
    for (thread, events) in recorded.into_iter().enumerate() {
        for (key, event) in events {
            histories[key as usize][thread].push(event);
        }
    }
    histories
}

#[test]
fn histories_of_each_are_explained_by_an_order() {
    for round in 0..times(12, 2) as u64 {
        for (name, set) in all(1) {
            for history in record(&*set, 3, times(120, 10), round) {
                assert!(is_linearizable(&history), "{name}: {history:?}");
            }
        }
    }
}

/// Two look before either stores, as sets do that lock too late: no order explains their answers.
#[test]
fn a_set_that_looks_before_it_stores_is_found_out() {
    let (present, both) = (AtomicBool::new(false), Barrier::new(2));
    let clock = AtomicU64::new(0);
    let insert = || {
        let began = clock.fetch_add(1, SeqCst);
        let answer = !present.load(SeqCst);
        both.wait();
        present.store(true, SeqCst);
        let ended = clock.fetch_add(1, SeqCst);
        let call = Call::Insert;
        vec![Event {
            call,
            answer,
            began,
            ended,
        }]
    };
    let histories = std::thread::scope(|scope| {
        let other = scope.spawn(insert);
        [insert(), other.join().unwrap()]
    });
    assert!(!is_linearizable(&histories), "{histories:?}");
}

/// A node is removed while it is looked at, and what may be freed is. If the remover may come to
/// its `end` meanwhile, the reader waits for that. Whether the node was freed under the reader.
fn is_freed_under_a_reader(set: &dyn Set, end: bool) -> bool {
    assert!(set.insert(0, 1));
    std::thread::scope(|scope| {
        let mut remover = None;
        let found = set.look_at(0, 1, &mut || {
            let remove = || {
                assert!(set.remove(1, 1));
                set.flush();
            };
            let remover = remover.insert(scope.spawn(remove));
            match end {
                true => wait_until("it is removed", || remover.is_finished()),
                false => wait_until("it is unlinked", || !set.contains(2, 1)),
            }
        });
        assert!(found);
        remover.is_none_or(|remover| remover.join().is_err())
    })
}

#[test]
fn a_node_is_not_freed_under_a_reader_and_the_twins_free_it() {
    for (name, set) in all(1) {
        // An update by RLU waits for the reader.
        assert!(!is_freed_under_a_reader(&*set, name != "rlu"), "{name}");
    }
    assert!(is_freed_under_a_reader(&*lists::unpinned(1), true));
    let hasty = rlu::Rlu::<false>::new(1, THREADS);
    assert!(is_freed_under_a_reader(&hasty, true));
}

/// Readers look at nodes that others remove: a node that is freed meanwhile panics.
#[test]
fn no_node_is_freed_while_somebody_looks_at_it() {
    for (name, set) in all(2) {
        let looked = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let (set, looked) = (&*set, &looked);
            for thread in 0..THREADS {
                scope.spawn(move || {
                    let mut random = Random::new(thread as u64);
                    for _ in 0..times(2_000, 30) {
                        let key = 1 + random.below(4);
                        match thread {
                            0 => {
                                let found = set.look_at(thread, key, &mut std::thread::yield_now);
                                looked.fetch_add(u64::from(found), SeqCst);
                            }
                            _ if random.below(2) == 0 => drop(set.insert(thread, key)),
                            _ => drop(set.remove(thread, key)),
                        }
                        if key == 1 && thread > 0 {
                            set.flush();
                        }
                    }
                });
            }
        });
        println!("@count {name}: looked at {} nodes", looked.into_inner());
    }
}
