//! Lists as values of a store, small and large.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mneme_collections::{
    CollectionError, End, LARGE_LIST, LIST, List, ListType, anchor_of, check_while, edit,
};
use mneme_log::{LogStore, Transaction, UpdatePolicy, WriteError};

const POLICIES: [UpdatePolicy; 2] = [UpdatePolicy::Append, UpdatePolicy::InPlace];

fn store(policy: UpdatePolicy) -> LogStore {
    let builder = LogStore::builder().capacity(64 << 20).update_policy(policy);
    builder.open_private().unwrap()
}

fn texts(numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
    numbers.map(|i| format!("item {i}").into_bytes()).collect()
}

fn slices(items: &[Vec<u8>]) -> Vec<&[u8]> {
    items.iter().map(Vec::as_slice).collect()
}

fn is_sound(store: &LogStore) {
    assert_eq!(check_while(store, &|| true).unwrap(), Vec::<String>::new());
    assert!(store.check().unwrap().is_sound());
}

fn is_empty(store: &LogStore) {
    store.sweep_collections().unwrap();
    let report = store.check().unwrap();
    assert_eq!((report.collections, report.inner_records), (0, 0));
}

#[test]
fn a_small_and_a_large_list_find_items_from_both_ends() {
    for policy in POLICIES {
        let store = store(policy);
        let list = List::of(&store, b"list").unwrap();
        let last = |len: usize| len.saturating_sub(2)..len;
        assert_eq!(list.range_by_len(last).unwrap(), [b""; 0]);
        assert_eq!(list.positions(b"a", End::Front, 1).unwrap(), [0; 0]);
        for len in [10, 5_000] {
            let mut items = texts(0..len);
            items[3] = b"a".to_vec();
            items[5] = b"a".to_vec();
            list.push(End::Back, &slices(&items)).unwrap();
            let ends = &items[items.len() - 2..];
            assert_eq!(list.range_by_len(last).unwrap(), ends);
            assert_eq!(list.range_by_len(|len| len..len).unwrap(), [b""; 0]);
            let positions = |from, count| list.positions(b"a", from, count).unwrap();
            assert_eq!(positions(End::Front, usize::MAX), [3, 5]);
            assert_eq!(positions(End::Front, 1), [3]);
            assert_eq!(positions(End::Back, 1), [5]);
            assert_eq!(positions(End::Back, 0), [0; 0]);
            list.pop_many(End::Front, usize::MAX).unwrap();
        }
    }
}

#[test]
fn a_list_becomes_large_and_its_key_goes_with_its_last_item() {
    for policy in POLICIES {
        let store = store(policy);
        let list = List::of(&store, b"list").unwrap();
        let items = texts(0..100);
        list.push(End::Back, &slices(&items)).unwrap();
        assert_eq!(store.kind(b"list").unwrap(), Some(LIST));
        let more = texts(100..10_000);
        assert_eq!(list.push(End::Back, &slices(&more)).unwrap(), 10_000);
        assert_eq!(store.kind(b"list").unwrap(), Some(LARGE_LIST));
        assert_eq!(list.push(End::Front, &[b"a", b"b"]).unwrap(), 10_002);
        assert_eq!(list.range(0..3).unwrap(), [&b"b"[..], b"a", b"item 0"]);
        assert_eq!(list.get(5_002).unwrap().as_deref(), Some(&b"item 5000"[..]));
        assert_eq!(list.get(10_002).unwrap(), None);
        assert!(list.set(5_002, b"other").unwrap());
        assert!(!list.set(10_002, b"other").unwrap());
        assert_eq!(list.range(10_001..20_000).unwrap(), [b"item 9999"]);
        let mut each = 0;
        list.for_each(|_| each += 1).unwrap();
        assert_eq!(each, 10_002);
        is_sound(&store);
        list.change(|list| list.trim(2..10_002)).unwrap();
        assert_eq!(list.pop(End::Back).unwrap().unwrap(), b"item 9999");
        assert_eq!(list.pop_many(End::Front, usize::MAX).unwrap().len(), 9_999);
        assert_eq!(store.kind(b"list").unwrap(), None);
        assert!(list.is_empty().unwrap());
        is_empty(&store);
        list.push(End::Front, &slices(&more)).unwrap();
        assert_eq!(list.get(0).unwrap().unwrap(), b"item 9999");
        assert!(store.remove(b"list").unwrap());
        is_empty(&store);
    }
}

/// Eviction and `MEMORY USAGE` add up the bytes of leaves and tree.
#[test]
fn the_bytes_of_a_large_list_are_counted_once() {
    let store = store(UpdatePolicy::Append);
    let list = List::of(&store, b"list").unwrap();
    list.push(End::Back, &vec![&[b'x'; 100][..]; 10_000])
        .unwrap();
    let anchor = store.transaction(|t| anchor_of(t, (0, b"list")));
    let anchor = anchor.unwrap().unwrap();
    let bytes = anchor.bytes + anchor.tree.bytes;
    assert!((1_000_000..1_200_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_large_list_that_its_own_transaction_makes_and_removes_is_freed() {
    let store = store(UpdatePolicy::Append);
    let at = (0, &b"list"[..]);
    let items = texts(0..1_000);
    let push = |t: &mut Transaction<'_>| {
        edit::<ListType, _, CollectionError>(t, at, (), |list| {
            list.push_many(End::Back, &slices(&items))?;
            Ok(((), true))
        })
    };
    for turn in 0..3 {
        store
            .transaction(|t| {
                push(t)?;
                push(t)?;
                if turn == 0 {
                    return Ok(t.remove(at.1).map(drop)?);
                }
                edit::<ListType, _, CollectionError>(t, at, (), |list| {
                    assert_eq!(list.len()?, 2_000);
                    match turn {
                        1 => drop(list.pop(End::Front, 2_000, |_| ())?),
                        _ => list.trim(1..1)?,
                    }
                    Ok(((), true))
                })
                .map(drop)
            })
            .unwrap();
        assert_eq!(store.kind(at.1).unwrap(), None);
        is_empty(&store);
    }
    // A list that is emptied and filled again, as by `LMOVE` of one item to its own list.
    store.transaction(|t| push(t).map(drop)).unwrap();
    let list = List::of(&store, at.1).unwrap();
    list.change(|list| {
        list.pop(End::Back, usize::MAX, |_| ())?;
        assert!(list.is_empty()?);
        list.push(End::Front, b"last")
    })
    .unwrap();
    assert_eq!(list.range(0..9).unwrap(), [b"last"]);
    is_sound(&store);
}

#[test]
fn a_change_that_fails_leaves_a_large_list_as_it_was() {
    let store = store(UpdatePolicy::Append);
    let list = List::of(&store, b"list").unwrap();
    let items = texts(0..1_000);
    list.push(End::Back, &slices(&items)).unwrap();
    let failed: Result<(), _> = list.change(|list| {
        list.pop(End::Front, 500, |_| ())?;
        Err(CollectionError::from(WriteError::ReadOnly))
    });
    assert!(failed.is_err());
    assert_eq!(list.range(0..usize::MAX).unwrap(), items);
    is_sound(&store);
}

/// In a transaction that continues after the error.
#[test]
fn a_change_that_fails_halfway_within_a_transaction_leaves_a_sound_large_list() {
    let store = store(UpdatePolicy::Append);
    let list = List::of(&store, b"list").unwrap();
    let items = texts(0..1_000);
    list.push(End::Back, &slices(&items)).unwrap();
    store
        .transaction(|t| {
            let changed = edit::<ListType, (), CollectionError>(t, (0, b"list"), (), |list| {
                list.pop(End::Front, 500, |_| ())?;
                list.push(End::Back, b"last")?;
                Err(CollectionError::from(WriteError::ReadOnly))
            });
            assert!(changed.is_err());
            t.put(b"other", b"1")
        })
        .unwrap();
    is_sound(&store);
    assert_eq!(list.len().unwrap(), 501);
}

/// A queue: other threads take what several threads push, each item once and those of a thread in
/// order.
#[test]
fn items_of_a_queue_are_taken_once_and_in_order() {
    const EACH: u32 = 400;
    for policy in POLICIES {
        let store = store(policy);
        let queue = List::of(&store, b"queue").unwrap();
        let padding = "x".repeat(60);
        queue.push(End::Back, &slices(&texts(0..300))).unwrap();
        assert_eq!(queue.pop_many(End::Front, 299).unwrap().len(), 299);
        let mut taken: Vec<Vec<(u32, u32)>> = std::thread::scope(|scope| {
            for thread in 0..2 {
                let padding = &padding;
                let queue = &queue;
                scope.spawn(move || {
                    for i in 0..EACH {
                        let item = format!("{thread} {i} {padding}");
                        queue.push(End::Back, &[item.as_bytes()]).unwrap();
                    }
                });
            }
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut taken = Vec::new();
                        while taken.len() < EACH as usize {
                            let Some(item) = queue.pop(End::Front).unwrap() else {
                                std::thread::yield_now();
                                continue;
                            };
                            let text = String::from_utf8(item).unwrap();
                            let mut words = text.split(' ').filter_map(|word| word.parse().ok());
                            if let (Some(thread), Some(i)) = (words.next(), words.next()) {
                                taken.push((thread, i));
                            }
                        }
                        taken
                    })
                })
                .collect();
            takers.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for taken in &taken {
            for thread in 0..2 {
                let of_thread = taken.iter().filter(|(of, _)| *of == thread);
                assert!(of_thread.is_sorted());
            }
        }
        let mut all = taken.concat();
        all.sort_unstable();
        let expected = (0..2).flat_map(|thread| (0..EACH).map(move |i| (thread, i)));
        assert!(all.into_iter().eq(expected));
        taken.clear();
        assert!(queue.is_empty().unwrap());
        is_empty(&store);
    }
}

/// In a store that may not evict.
#[test]
fn a_list_that_is_longer_than_the_free_space_is_popped_and_pushed_to_again() {
    let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
    let store = builder.open_private().unwrap();
    let list = List::of(&store, b"list").unwrap();
    store.put(b"other", &[b'o'; 4 << 20]).unwrap();
    let item = [b'x'; 500];
    let many = vec![&item[..]; 200];
    let full = loop {
        if let Err(error) = list.push(End::Back, &many) {
            break error;
        }
    };
    let is_full = matches!(full, CollectionError::Store(WriteError::OutOfMemory { .. }));
    assert!(is_full, "{full}");
    assert!(store.remove(b"other").unwrap());
    let len = list.len().unwrap();
    assert!(len * item.len() > 32 << 20, "{len}");
    for _ in 0..100 {
        assert_eq!(list.pop(End::Front).unwrap().unwrap(), item);
        assert_eq!(list.pop(End::Back).unwrap().unwrap(), item);
    }
    list.change(|list| list.trim(0..len / 2)).unwrap();
    assert_eq!(list.push(End::Back, &many).unwrap(), len / 2 + 200);
    assert_eq!(
        list.pop_many(End::Back, usize::MAX).unwrap().len(),
        len / 2 + 200
    );
    is_empty(&store);
}

/// Small lists, and some that become large and small again.
#[test]
fn items_that_several_threads_push_and_pop_are_each_popped_once() {
    for (policy, pushed) in [(0, 3), (1, 3), (0, 40), (1, 40)] {
        let store = store(POLICIES[policy]);
        let popped = std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| {
                let store = &store;
                scope.spawn(move || {
                    let list = List::of(store, b"list").unwrap();
                    let mut popped = Vec::new();
                    for i in 0..100 {
                        let item = |n| format!("{thread} {i} {n} {}", "x".repeat(n % 90));
                        let items: Vec<String> = (0..pushed).map(item).collect();
                        let items: Vec<&[u8]> = items.iter().map(String::as_bytes).collect();
                        let end = [End::Front, End::Back][i % 2];
                        assert!(list.push(end, &items).unwrap() >= items.len());
                        popped.extend(list.pop_many(End::Front, pushed - 1).unwrap());
                        popped.extend(list.pop(End::Back).unwrap());
                    }
                    popped
                })
            });
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        let distinct: std::collections::BTreeSet<_> = popped.iter().collect();
        assert_eq!((popped.len(), distinct.len()), (300 * pushed, 300 * pushed));
        assert!(!store.contains(b"list").unwrap());
    }
}
