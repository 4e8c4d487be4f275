//! Sorted sets of a store: answers equal a model's, and changes by several threads are atomic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::Bound;

use mneme_collections::{
    CollectionError, EditError, Hash, LARGE_SORTED_SET, MAX_ELEMENT, SORTED_SET, SortedRange,
    SortedSet, SortedSetEdit, SortedSetLimits, SortedSetType, check_while, edit, look_at_large,
    put,
};
use mneme_log::{Expiry, LogStore, Transaction, UpdatePolicy, collection_of};
use proptest::collection::vec;
use proptest::prelude::*;

const POLICIES: [UpdatePolicy; 2] = [UpdatePolicy::Append, UpdatePolicy::InPlace];

fn store(policy: UpdatePolicy) -> LogStore {
    let builder = LogStore::builder().capacity(64 << 20).update_policy(policy);
    builder.open_private().unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Set(Vec<u8>, f64),
    SetMany(Vec<(Vec<u8>, f64)>),
    Increment(Vec<u8>, f64),
    Remove(Vec<u8>),
    RemoveScores(f64, f64),
    RemoveRanks(i64, i64),
    Pop(u64, bool),
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..40u8).prop_map(|i| format!("m{i}").into_bytes()),
        1 => (60..70usize).prop_map(|len| vec![b'l'; len]),
        // With some of these the set becomes large.
        2 => (0..60u8).prop_map(|i| format!("{i}{}", "x".repeat(90)).into_bytes()),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    (-20..20i8).prop_map(|number| f64::from(number) / 4.0)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (member(), score()).prop_map(|(m, s)| Step::Set(m, s)),
        3 => vec((member(), score()), 0..30).prop_map(Step::SetMany),
        2 => (member(), score()).prop_map(|(m, s)| Step::Increment(m, s)),
        3 => member().prop_map(Step::Remove),
        1 => (score(), score()).prop_map(|(low, high)| Step::RemoveScores(low, high)),
        1 => (-9..9i64, -9..9i64).prop_map(|(low, high)| Step::RemoveRanks(low, high)),
        1 => (0..4u64, any::<bool>()).prop_map(|(count, is_last)| Step::Pop(count, is_last)),
    ]
}

type Model = BTreeMap<Vec<u8>, f64>;

fn in_order(model: &Model) -> Vec<(Vec<u8>, f64)> {
    let mut all: Vec<_> = model.iter().map(|(m, s)| (m.clone(), *s)).collect();
    all.sort_by(|(m, s), (n, t)| s.total_cmp(t).then_with(|| m.cmp(n)));
    all
}

/// Takes the step in both, and compares the results.
fn take(step: Step, set: SortedSet<'_, '_>, model: &mut Model) {
    match step {
        Step::Set(member, score) => {
            let is_new = set.set(&member, score).unwrap();
            assert_eq!(is_new, model.insert(member, score).is_none());
        }
        Step::SetMany(members) => {
            let named: Vec<_> = members.iter().map(|(m, s)| (&m[..], *s)).collect();
            let before = model.len();
            let added = set.set_many(&named).unwrap();
            model.extend(members);
            assert_eq!(added, model.len() - before);
        }
        Step::Increment(member, by) => {
            let sum = model.entry(member.clone()).or_default();
            *sum += by;
            assert_eq!(set.increment(&member, by).unwrap(), *sum);
        }
        Step::Remove(member) => {
            let removed = set.remove(&member).unwrap();
            assert_eq!(removed, model.remove(&member).is_some());
        }
        Step::RemoveScores(low, high) => {
            let before = model.len();
            model.retain(|_, score| *score < low || *score >= high);
            let range = SortedRange::Scores(Bound::Included(low), Bound::Excluded(high));
            let removed = set.remove_range(&range).unwrap();
            assert_eq!(removed as usize, before - model.len());
        }
        Step::RemoveRanks(low, high) => {
            let all = in_order(model);
            let at = |end: i64| if end < 0 { all.len() as i64 + end } else { end };
            let mut removed = 0;
            for (position, (member, _)) in all.iter().enumerate() {
                if (at(low)..=at(high)).contains(&(position as i64)) {
                    model.remove(member);
                    removed += 1;
                }
            }
            let range = SortedRange::Ranks(low, high);
            assert_eq!(set.remove_range(&range).unwrap(), removed);
        }
        Step::Pop(count, is_last) => {
            let popped = match is_last {
                true => set.pop_last(count).unwrap(),
                false => set.pop_first(count).unwrap(),
            };
            let mut all = in_order(model);
            if is_last {
                all.reverse();
            }
            all.truncate(count as usize);
            all.iter().for_each(|(member, _)| {
                model.remove(member);
            });
            let popped: Vec<_> = popped.iter().map(|(m, s)| (m.to_vec(), s)).collect();
            assert_eq!(popped, all);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn answers_equal_a_model(
        steps in vec(step(), 1..120),
        wanted in member(),
        in_place in any::<bool>(),
    ) {
        let store = store(POLICIES[usize::from(in_place)]);
        let set = SortedSet::of(&store, b"set").unwrap();
        let mut model = Model::new();
        for step in steps {
            take(step, set, &mut model);
            prop_assert_eq!(set.len().unwrap(), model.len() as u64);
            prop_assert_eq!(set.is_empty().unwrap(), model.is_empty());
        }
        let expected = in_order(&model);
        prop_assert_eq!(set.score(&wanted).unwrap(), model.get(&wanted).copied());
        let rank = expected.iter().position(|(member, _)| *member == wanted);
        prop_assert_eq!(set.rank(&wanted).unwrap(), rank.map(|rank| rank as u64));
        let behind = rank.map(|rank| (model.len() - rank - 1) as u64);
        prop_assert_eq!(set.reverse_rank(&wanted).unwrap(), behind);
        for is_reverse in [false, true] {
            let found = set.range(&SortedRange::Ranks(0, -1), is_reverse).unwrap();
            let mut found: Vec<_> = found.iter().map(|(m, s)| (m.to_vec(), s)).collect();
            if is_reverse {
                found.reverse();
            }
            prop_assert_eq!(&found, &expected);
        }
        let above = SortedRange::Scores(Bound::Excluded(0.0), Bound::Unbounded);
        let count = model.values().filter(|score| **score > 0.0).count();
        prop_assert_eq!(set.count(&above).unwrap(), count as u64);
        let (mut scanned, mut cursor) = (Model::new(), 0);
        loop {
            let (members, next) = set.scan(cursor, 7).unwrap();
            scanned.extend(members.iter().map(|(member, score)| (member.to_vec(), score)));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        prop_assert_eq!(scanned, model);
        prop_assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_change_that_fails_has_changed_nothing() {
    let store = store(UpdatePolicy::Append);
    let set = SortedSet::of(&store, b"set").unwrap();
    set.set(b"a", f64::INFINITY).unwrap();
    let failed = set.increment(b"a", f64::NEG_INFINITY);
    let is_nan =
        |error: CollectionError| matches!(error, CollectionError::Edit(EditError::NotANumber));
    assert!(failed.is_err_and(is_nan));
    let failed = set.set_many(&[(b"b", 1.0), (b"c", f64::NAN)]);
    assert!(failed.is_err_and(is_nan));
    assert_eq!(set.len().unwrap(), 1);
    store.put(b"string", b"text").unwrap();
    let string = SortedSet::of(&store, b"string").unwrap();
    assert!(matches!(string.len(), Err(CollectionError::WrongKind(_))));
    assert!(matches!(
        string.set(b"a", 1.0),
        Err(CollectionError::WrongKind(_))
    ));
    let hash = Hash::of(&store, b"set").unwrap();
    assert!(matches!(hash.len(), Err(CollectionError::WrongKind(_))));
    let removed = set.remove(b"a").unwrap();
    assert!(removed && !store.contains(b"set").unwrap());
}

/// Small ones, and large ones, which others read meanwhile.
#[test]
fn changes_by_several_threads_are_atomic() {
    for (policy, is_large) in [(0, false), (0, true), (1, false), (1, true)] {
        let store = store(POLICIES[policy]);
        let end = if is_large {
            "m".repeat(70)
        } else {
            String::new()
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (store, end) = (&store, &end);
                scope.spawn(move || {
                    let set = SortedSet::of(store, b"set").unwrap();
                    for i in 0..300 {
                        set.increment(b"sum", 1.0).unwrap();
                        let member = format!("{thread}-{}{end}", i % 50);
                        set.set(member.as_bytes(), f64::from(i)).unwrap();
                        // An attempt whose result is discarded may not find the member.
                        let read = set.read(|set| {
                            let set = set.unwrap();
                            let Some((rank, _)) = set.rank(member.as_bytes())? else {
                                return Ok(None);
                            };
                            Ok(Some((rank, set.members(rank..rank + 1, false)?)))
                        });
                        let (rank, members) = read.unwrap().unwrap();
                        assert_eq!(members.len(), 1, "{rank}");
                        let found = members.get(0).unwrap();
                        assert_eq!(found, (member.as_bytes(), f64::from(i)), "{rank}");
                    }
                });
            }
        });
        let set = SortedSet::of(&store, b"set").unwrap();
        assert_eq!(set.score(b"sum").unwrap(), Some(900.0));
        assert_eq!(set.len().unwrap(), 151);
        let kind = store.kind(b"set").unwrap();
        assert_eq!(kind == Some(LARGE_SORTED_SET), is_large);
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
        assert!(store.check().unwrap().is_sound());
    }
}

/// Stores a large sorted set of 600 members.
fn put_large(t: &mut Transaction<'_>, key: &[u8]) -> Result<(), CollectionError> {
    let members = (0..600).map(|i| (format!("member {i}").into_bytes(), f64::from(i % 70)));
    let set = SortedSetEdit::of_all(members, SortedSetLimits::default())?;
    put::<SortedSetType>(t, (0, key), &set.into_image(), Expiry::Never)
}

#[test]
fn a_large_sorted_set_that_its_own_transaction_removes_or_replaces_is_freed() {
    let store = store(UpdatePolicy::Append);
    for _ in 0..3 {
        store
            .transaction(|t| {
                put_large(t, b"set")?;
                put_large(t, b"set")?;
                t.remove(b"set").map_err(CollectionError::from)
            })
            .unwrap();
        store
            .transaction(|t| put_large(t, b"set").and_then(|()| put_large(t, b"set")))
            .unwrap();
        store.sweep_collections().unwrap();
        let found = store.check().unwrap();
        assert!(found.is_sound());
        assert_eq!(found.collections, 1);
    }
    assert!(store.remove(b"set").unwrap());
    store.sweep_collections().unwrap();
    assert_eq!(store.check().unwrap().inner_records, 0);
}

/// In a transaction that continues after the error.
#[test]
fn a_change_of_a_large_sorted_set_that_fails_halfway_leaves_a_sound_one() {
    let store = store(UpdatePolicy::Append);
    store.transaction(|t| put_large(t, b"set")).unwrap();
    for removes_all in [false, true] {
        let changed = |t: &mut Transaction<'_>| {
            edit::<SortedSetType, (), CollectionError>(t, (0, b"set"), (), |set| {
                set.set(b"new", 1.0)?;
                if removes_all {
                    set.remove_positions(0..u64::MAX)?;
                }
                set.set(b"another", f64::NAN)?;
                Ok(((), true))
            })
        };
        store
            .transaction(|t| {
                assert!(changed(t).is_err());
                t.put(b"other", b"1").map_err(CollectionError::from)
            })
            .unwrap();
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
        assert!(store.check().unwrap().is_sound());
        let set = SortedSet::of(&store, b"set").unwrap();
        let len = if removes_all { 0 } else { 601 };
        assert_eq!(set.len().unwrap(), len);
    }
    let set = SortedSet::of(&store, b"set").unwrap();
    assert!(set.set(b"new", 1.0).unwrap());
    assert!(set.remove(b"new").unwrap());
    assert!(!store.contains(b"set").unwrap());
}

/// A tree that leads to nothing, and one that leads to itself.
#[test]
fn a_large_sorted_set_whose_tree_is_damaged_is_reported_and_freed() {
    for leads_to_itself in [false, true] {
        let store = store(UpdatePolicy::Append);
        store
            .transaction(|t| {
                put_large(t, b"set")?;
                let main = t.read(b"set", |stored| collection_of(stored.unwrap().value))?;
                let id = main.unwrap();
                let root = t.anchor(id)?.unwrap().tree.root;
                let image = t.read_inner(id, root, |image| image.unwrap().to_vec())?;
                let mut damaged = image.clone();
                let first = if leads_to_itself { root } else { root + 1_000 };
                damaged[4..12].copy_from_slice(&first.to_le_bytes());
                t.put_inner(id, root, &damaged)?;
                Ok::<_, CollectionError>(())
            })
            .unwrap();
        let problems = check_while(&store, &|| true).unwrap();
        assert_eq!(problems.len(), 1, "{problems:?}");
        let set = SortedSet::of(&store, b"set").unwrap();
        assert!(set.range(&SortedRange::Ranks(0, 0), false).is_err());
        assert!(store.remove(b"set").unwrap());
        store.sweep_collections().unwrap();
        assert_eq!(store.check().unwrap().collections, 0);
    }
}

#[test]
fn a_large_sorted_set_that_has_shrunk_has_few_records() {
    let store = store(UpdatePolicy::Append);
    let set = SortedSet::of(&store, b"set").unwrap();
    let members: Vec<_> = (0..2_000)
        .map(|i| (format!("{i:01000}").into_bytes(), f64::from(i % 30)))
        .collect();
    let named: Vec<_> = members.iter().map(|(m, s)| (&m[..], *s)).collect();
    set.set_many(&named).unwrap();
    assert!(store.check().unwrap().inner_records > 2_000);
    for (member, _) in &members[500..] {
        assert!(set.remove(member).unwrap());
    }
    let ranks = SortedRange::Ranks(2, -1);
    assert_eq!(set.remove_range(&ranks).unwrap(), 498);
    let found = store.check().unwrap();
    assert!(found.is_sound());
    assert!(found.inner_records <= 5, "{}", found.inner_records);
    assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
}

#[test]
fn damage_is_reported_with_its_key() {
    let store = store(UpdatePolicy::Append);
    let set = SortedSet::of(&store, b"set").unwrap();
    let limits = SortedSetLimits {
        entries: 1,
        value: 9,
    };
    set.limits(limits)
        .set_many(&[(b"a", 1.0), (b"b", 2.0)])
        .unwrap();
    let database = store.database(0).unwrap();
    let mut image = database
        .get_kind(b"set", SORTED_SET)
        .unwrap()
        .unwrap()
        .to_vec();
    // The first member's score.
    let at = image.len() - 6;
    assert_eq!(image[at..], [1, 1, 0x81, b'b', 2, 2, 1, 0xff][2..]);
    image[10] = 3;
    store
        .transaction(|t| {
            let mut records = t.database(0)?;
            records.put_kind(b"set", &image, SORTED_SET, mneme_log::Expiry::Never)
        })
        .unwrap();
    let problems = check_while(&store, &|| true).unwrap();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("sorted set \"set\""), "{problems:?}");
}

#[test]
fn a_member_that_is_too_long_for_a_large_sorted_set_is_refused_by_a_small_one() {
    let store = store(UpdatePolicy::Append);
    let set = SortedSet::of(&store, b"set").unwrap();
    let long = vec![b'm'; MAX_ELEMENT + 1];
    let is_refused = |error| matches!(error, CollectionError::Edit(EditError::TooLong(65_528)));
    assert!(set.set(&long, 1.0).is_err_and(is_refused));
    assert!(
        set.set_many(&[(b"m", 1.0), (&long, 2.0)])
            .is_err_and(is_refused)
    );
    assert!(!store.contains(b"set").unwrap());
    assert!(set.set(&long[1..], 1.0).unwrap());
    assert_eq!(store.kind(b"set").unwrap(), Some(LARGE_SORTED_SET));
    assert!(set.set(&long, 1.0).is_err_and(is_refused));
}

/// Another thread changes the set in the middle of every attempt to read it.
#[test]
fn a_large_sorted_set_is_read_as_a_whole_however_often_it_is_changed() {
    let store = store(UpdatePolicy::Append);
    store.transaction(|t| put_large(t, b"set")).unwrap();
    let mut runs = 0;
    let seen = look_at_large::<SortedSetType, _>(&store.database(0).unwrap(), b"set", |mut set| {
        runs += 1;
        let before = set.count();
        let new = format!("new {runs}").into_bytes();
        std::thread::scope(|scope| {
            let change = || {
                SortedSet::of(&store, b"set")
                    .unwrap()
                    .set(&new, 1.5)
                    .unwrap()
            };
            assert!(scope.spawn(change).join().unwrap());
        });
        let mut walked = 0;
        set.walk(0..u64::MAX, false, &mut |_| {
            walked += 1;
            Ok(true)
        })?;
        Ok((before, walked))
    });
    let (before, walked) = seen.unwrap().expect("an attempt that counts");
    assert_eq!(before, walked);
    assert!(runs <= 3, "{runs} attempts");
}
