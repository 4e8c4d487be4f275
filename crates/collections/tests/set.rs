//! Sets beside a `BTreeSet`: as images, and as values of a store, small and large.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use mneme_collections::{
    CollectionError, EditError, LARGE_SET, MAX_ELEMENT, PackedSet, SET, Set, SetEdit, SetType,
    apply, check_while, edit, is_same, listpack, look_at_large,
};
use mneme_log::{Expiry, LogStore, UpdatePolicy};
use proptest::collection::vec;
use proptest::prelude::*;

type Bytes = Vec<u8>;
type Model = BTreeSet<Bytes>;

const POLICIES: [UpdatePolicy; 2] = [UpdatePolicy::Append, UpdatePolicy::InPlace];

fn store(policy: UpdatePolicy) -> LogStore {
    let builder = LogStore::builder().capacity(64 << 20).update_policy(policy);
    builder.open_private().unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Add(Bytes),
    AddMany(Vec<Bytes>),
    Remove(Bytes),
    RemoveMany(Vec<Bytes>),
    Pop,
}

fn integer() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => any::<i8>().prop_map(|number| number.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
    ]
}

fn member() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        6 => integer(),
        2 => "[a-c]{0,2}".prop_map(String::into_bytes),
        1 => (62usize..66).prop_map(|len| vec![b'x'; len]),
        1 => (0..60u8).prop_map(|of| [vec![b'y'; 100], vec![of]].concat()),
    ]
}

fn step(member: impl Strategy<Value = Bytes> + Clone) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => member.clone().prop_map(Step::Add),
        2 => vec(member.clone(), 0..40).prop_map(Step::AddMany),
        2 => member.clone().prop_map(Step::Remove),
        1 => vec(member, 0..20).prop_map(Step::RemoveMany),
        1 => Just(Step::Pop),
    ]
}

/// Few members that are not integers, or none.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        vec(step(integer().boxed()), 1..40),
        vec(step(member().boxed()), 1..40),
    ]
}

fn slices(members: &[Bytes]) -> Vec<&[u8]> {
    members.iter().map(Vec::as_slice).collect()
}

fn add_all(model: &mut Model, members: &[Bytes]) -> usize {
    let before = model.len();
    model.extend(members.iter().cloned());
    model.len() - before
}

fn remove_all(model: &mut Model, members: &[Bytes]) -> usize {
    let before = model.len();
    model.retain(|member| !members.contains(member));
    before - model.len()
}

proptest! {
    #[test]
    fn an_image_has_what_a_set_has_in_the_form_that_redis_has(steps in steps(), max in 1usize..60) {
        let (mut edit, mut model, mut is_table) = (SetEdit::new(), Model::new(), false);
        for step in steps {
            let added = match &step {
                Step::Add(member) => {
                    let is_new = model.insert(member.clone());
                    assert_eq!(edit.add(member), Ok(is_new));
                    usize::from(is_new)
                }
                Step::AddMany(members) => {
                    let added = add_all(&mut model, members);
                    assert_eq!(edit.add_many(&slices(members)), Ok(added));
                    added
                }
                Step::Remove(member) => {
                    assert_eq!(edit.remove(member), Ok(model.remove(member)));
                    0
                }
                Step::RemoveMany(members) => {
                    let removed = remove_all(&mut model, members);
                    assert_eq!(edit.remove_many(&slices(members)), Ok(removed));
                    0
                }
                Step::Pop => 0,
            };
            if added > 0 {
                edit.convert(max).unwrap();
                let has_string = model.iter().any(|of| listpack::integer(of).is_none());
                is_table |= has_string || model.len() > max;
            }
            let set = edit.read().unwrap();
            prop_assert_eq!(set.is_table(), is_table);
            prop_assert_eq!(set.check(), Ok(()));
            prop_assert_eq!(set.len(), Ok(model.len()));
            let members: Vec<Bytes> = set.members().map(|of| of.unwrap().to_vec()).collect();
            prop_assert_eq!(&members.iter().cloned().collect::<Model>(), &model);
            if !is_table {
                let numbers = members.iter().map(|of| listpack::integer(of).unwrap());
                prop_assert!(numbers.is_sorted());
            }
        }
        let image = edit.into_image();
        let set = PackedSet::read(&image).unwrap();
        for member in &model {
            prop_assert_eq!(set.contains(member), Ok(true));
        }
        prop_assert_eq!(set.contains(b"none"), Ok(false));
        // One that was made element by element has the same members.
        let mut copy = SetEdit::new();
        copy.add(b"none").unwrap();
        let mut copy = copy.into_image();
        for member in &model {
            copy = apply(SET, &copy, member, Some(b"")).unwrap();
        }
        copy = apply(SET, &copy, b"none", None).unwrap();
        prop_assert_eq!(is_same(SET, &image, &copy).unwrap(), is_table);
    }

    /// Whatever the bytes are, they are either read to an end within them or refused.
    #[test]
    fn damage_is_an_error_and_never_a_panic(
        members in vec(member(), 0..8),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut edit = SetEdit::new();
        edit.add_many(&slices(&members)).unwrap();
        let mut image = edit.into_image();
        for (at, byte) in damage {
            let at = at.index(image.len());
            image[at] = byte;
        }
        if let Some(cut) = cut {
            image.truncate(cut.index(image.len()));
        }
        let Ok(set) = PackedSet::read(&image) else {
            return Ok(());
        };
        let _ = (set.len(), set.check(), set.contains(b"a"), set.contains(b"7"), set.scan(0, 3));
        let _ = (set.get_many(&[&b"a"[..]; 9]), set.members().count());
        let before = SetEdit::of(&image).unwrap();
        let (string, integer) = (&b"a"[..], &b"7"[..]);
        for members in [&[string][..], &[integer], &[string; 9], &[integer; 9], &[integer, string]] {
            let mut edit = before.clone();
            if edit.add_many(members).is_err() {
                prop_assert_eq!(&edit, &before);
            }
            let mut edit = before.clone();
            if edit.remove_many(members).is_err() && members.len() == 1 {
                prop_assert_eq!(&edit, &before);
            }
        }
    }
}

/// Takes the step in both, and compares the results.
fn take(step: &Step, set: Set<'_, '_>, model: &mut Model) {
    match step {
        Step::Add(member) => assert_eq!(set.add(member).unwrap(), model.insert(member.clone())),
        Step::AddMany(members) => {
            let added = set.add_many(&slices(members)).unwrap();
            assert_eq!(added, add_all(model, members));
        }
        Step::Remove(member) => assert_eq!(set.remove(member).unwrap(), model.remove(member)),
        Step::RemoveMany(members) => {
            let removed = set.remove_many(&slices(members)).unwrap();
            assert_eq!(removed, remove_all(model, members));
        }
        Step::Pop => {
            let drawn = set.random().unwrap();
            assert_eq!(drawn.is_none(), model.is_empty());
            assert!(drawn.is_none_or(|member| model.contains(&member)));
            let popped = set.pop().unwrap();
            assert_eq!(popped.is_none(), model.is_empty());
            assert!(popped.is_none_or(|member| model.remove(&member)));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn answers_equal_a_set(steps in vec(step(member().boxed()), 1..60)) {
        for policy in POLICIES {
            let (store, mut model) = (store(policy), Model::new());
            let set = Set::of(&store, b"set").unwrap().max_intset(20);
            for step in &steps {
                take(step, set, &mut model);
                assert_eq!(set.len().unwrap(), model.len());
                assert_eq!(set.is_empty().unwrap(), model.is_empty());
                assert_eq!(store.contains(b"set").unwrap(), !model.is_empty());
            }
            let members: Model = set.members().unwrap().into_iter().collect();
            assert_eq!(members, model);
            let mut sought: Vec<Bytes> = model.iter().step_by(3).cloned().collect();
            sought.push(b"none".to_vec());
            let contained: Vec<bool> = sought.iter().map(|of| model.contains(of)).collect();
            assert_eq!(set.contains_many(&slices(&sought)).unwrap(), contained);
            for (member, contained) in sought.iter().zip(contained) {
                assert_eq!(set.contains(member).unwrap(), contained);
            }
            let (mut scanned, mut cursor) = (Model::new(), 0);
            loop {
                let (members, next) = set.scan(cursor, 3).unwrap();
                scanned.extend(members);
                cursor = next;
                if next == 0 {
                    break;
                }
            }
            assert_eq!(scanned, model);
            assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
            assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        }
    }
}

#[test]
fn a_set_refuses_a_value_of_another_kind_and_others_refuse_a_set() {
    let store = store(UpdatePolicy::Append);
    let hash = mneme_collections::Hash::of(&store, b"k").unwrap();
    let set = Set::of(&store, b"k").unwrap();
    hash.set(b"f", b"v").unwrap();
    let is_wrong = |error| matches!(error, CollectionError::WrongKind(_));
    assert!(is_wrong(set.contains(b"f").unwrap_err()));
    assert!(is_wrong(set.add(b"f").unwrap_err()));
    assert!(is_wrong(set.pop().unwrap_err()));
    assert_eq!(hash.len().unwrap(), 1);
    assert!(store.remove(b"k").unwrap());
    set.add(b"f").unwrap();
    assert_eq!(store.kind(b"k").unwrap(), Some(SET));
    assert!(is_wrong(hash.set(b"f", b"v").unwrap_err()));
    let many: Vec<Bytes> = (0..1000).map(|i| format!("m{i}").into_bytes()).collect();
    set.add_many(&slices(&many)).unwrap();
    assert_eq!(store.kind(b"k").unwrap(), Some(LARGE_SET));
    assert!(is_wrong(hash.set(b"f", b"v").unwrap_err()));
    assert!(is_wrong(hash.get(b"f").unwrap_err()));
    assert!(store.get(b"k").is_err());
    assert_eq!(set.len().unwrap(), 1001);
}

#[test]
fn a_set_of_integers_stays_packed_and_in_order_until_it_has_too_many() {
    let store = store(UpdatePolicy::Append);
    let set = Set::of(&store, b"k").unwrap().max_intset(5000);
    let numbers: Vec<Bytes> = (0..5000)
        .rev()
        .map(|i| i.to_string().into_bytes())
        .collect();
    assert_eq!(set.add_many(&slices(&numbers)).unwrap(), 5000);
    assert_eq!(store.kind(b"k").unwrap(), Some(SET));
    assert!(set.members().unwrap().iter().eq(numbers.iter().rev()));
    assert!(set.add(b"5000").unwrap());
    assert_eq!(store.kind(b"k").unwrap(), Some(LARGE_SET));
    assert_eq!(set.len().unwrap(), 5001);
    // A member that is too long for the feed is refused, and nothing is lost.
    assert!(set.add_many(&[b"a", &[b'x'; 70_000]]).is_err());
    assert!(!set.contains(b"a").unwrap());
    for number in &numbers {
        assert!(set.remove(number).unwrap());
    }
    assert_eq!(set.pop().unwrap().as_deref(), Some(&b"5000"[..]));
    assert!(!store.contains(b"k").unwrap());
    store.sweep_collections().unwrap();
    let report = store.check().unwrap();
    assert_eq!((report.collections, report.inner_records), (0, 0));
}

#[test]
fn changes_by_several_threads_are_atomic() {
    for policy in POLICIES {
        let store = store(policy);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let set = Set::of(&store, b"k").unwrap();
                scope.spawn(move || {
                    for i in 0..200 {
                        let [one, other] = ["left", "right"].map(|of| format!("{of} {thread} {i}"));
                        set.add_many(&[one.as_bytes(), other.as_bytes()]).unwrap();
                        let found = set.contains_many(&[one.as_bytes(), other.as_bytes()]);
                        assert_eq!(found.unwrap(), [true, true]);
                        if i % 3 == 0 {
                            assert!(set.remove(one.as_bytes()).unwrap());
                        }
                    }
                });
            }
        });
        let set = Set::of(&store, b"k").unwrap();
        assert_eq!(set.len().unwrap(), 3 * (400 - 67));
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn members_that_are_there_change_nothing_of_a_large_set() {
    let store = store(UpdatePolicy::Append);
    let set = Set::of(&store, b"k").unwrap();
    // Once it is large it will soon be split.
    for size in 9..40 {
        let members: Vec<Bytes> = (0..size)
            .map(|i| [vec![b'm'; 200], format!("{i}").into_bytes()].concat())
            .collect();
        set.add_many(&slices(&members)).unwrap();
        for _ in 0..2 {
            assert_eq!(set.add_many(&slices(&members)).unwrap(), 0);
            assert_eq!(set.add_many(&[]).unwrap(), 0);
            assert_eq!(
                set.contains_many(&slices(&members)).unwrap(),
                vec![true; size]
            );
        }
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
    }
}

#[test]
fn a_check_names_the_sets_that_are_none() {
    let store = store(UpdatePolicy::Append);
    Set::of(&store, b"sound").unwrap().add(b"m").unwrap();
    // An intset of 2 and 1.
    let disordered = [0, 11, 0, 0, 0, 2, 0, 2, 1, 1, 1, 0xff];
    store
        .put_kind(b"disordered", &disordered, SET, Expiry::Never)
        .unwrap();
    store
        .put_kind(b"garbage", b"garbage", SET, Expiry::Never)
        .unwrap();
    let mut problems = check_while(&store, &|| true).unwrap();
    problems.sort();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("database 0, set \"disordered\": "));
    assert!(problems[1].starts_with("database 0, set \"garbage\": "));
}

#[test]
fn a_set_of_long_members_that_has_shrunk_has_few_leaves() {
    let store = store(UpdatePolicy::Append);
    let set = Set::of(&store, b"set").unwrap();
    let members: Vec<Vec<u8>> = (0..2_000)
        .map(|i| format!("{i:01000}").into_bytes())
        .collect();
    for member in &members {
        set.add(member).unwrap();
    }
    assert!(store.check().unwrap().inner_records > 500);
    for member in &members[2..] {
        set.remove(member).unwrap();
    }
    assert!(store.check().unwrap().inner_records <= 2);
    let drawn = (0..200).map(|_| set.random().unwrap().unwrap());
    let drawn: Model = drawn.collect();
    assert_eq!(drawn.len(), 2, "one of two is drawn 200 times");
    assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
}

/// Another thread changes the set in the middle of every attempt to read it.
#[test]
fn a_large_set_is_read_as_a_whole_however_often_it_is_changed() {
    let store = store(UpdatePolicy::Append);
    let set = Set::of(&store, b"set").unwrap();
    let members: Vec<Vec<u8>> = (0..600)
        .map(|i| format!("member {i}").into_bytes())
        .collect();
    set.add_many(&slices(&members)).unwrap();
    let mut runs = 0;
    let seen = look_at_large::<SetType, _>(&store.database(0).unwrap(), b"set", |mut set| {
        runs += 1;
        assert!(set.contains(b"member 7")?);
        let new = format!("new {runs}").into_bytes();
        std::thread::scope(|scope| {
            let change = || Set::of(&store, b"set").unwrap().add(&new).unwrap();
            assert!(scope.spawn(change).join().unwrap());
        });
        set.view(None)
    });
    let image = seen.unwrap().expect("an attempt that counts");
    let seen = PackedSet::read(&image).unwrap();
    let seen: Model = seen.members().map(|of| of.unwrap().to_vec()).collect();
    assert!(members.iter().all(|member| seen.contains(member)));
    assert!(runs <= 3, "{runs} attempts");
    assert_eq!(set.len().unwrap(), members.len() + runs);
}

/// In a transaction that continues after the error.
#[test]
fn a_change_of_a_large_set_that_fails_halfway_leaves_a_sound_one() {
    let store = store(UpdatePolicy::Append);
    let set = Set::of(&store, b"set").unwrap();
    let members: Vec<Bytes> = (0..1200).map(|i| format!("{i}-").into_bytes()).collect();
    set.add_many(&slices(&members)).unwrap();
    let long = vec![b'm'; 70_000];
    for removes_all in [false, true] {
        store
            .transaction(|t| {
                let changed = edit::<SetType, (), CollectionError>(t, (0, b"set"), (), |set| {
                    set.add(b"new")?;
                    if removes_all {
                        let members = set.members()?;
                        set.remove_many(&slices(&members))?;
                    }
                    set.add(&long)?;
                    Ok(((), true))
                });
                assert!(changed.is_err());
                t.put(b"other", b"1").map_err(CollectionError::from)
            })
            .unwrap();
        assert_eq!(check_while(&store, &|| true).unwrap(), Vec::<String>::new());
        assert!(store.check().unwrap().is_sound());
        assert_eq!(set.len().unwrap(), if removes_all { 0 } else { 1201 });
    }
    assert!(set.add(b"new").unwrap());
    assert!(set.remove(b"new").unwrap());
    assert!(!store.contains(b"set").unwrap());
}

#[test]
fn a_member_that_is_too_long_for_a_large_set_is_refused_by_a_small_one() {
    let store = store(UpdatePolicy::Append);
    let set = Set::of(&store, b"set").unwrap();
    let long = vec![b'm'; MAX_ELEMENT + 1];
    let is_refused = |error| matches!(error, CollectionError::Edit(EditError::TooLong(65_528)));
    assert!(set.add(&long).is_err_and(is_refused));
    assert!(set.add_many(&[b"1", &long]).is_err_and(is_refused));
    assert!(!store.contains(b"set").unwrap());
    assert!(set.add(&long[1..]).unwrap());
    assert_eq!(store.kind(b"set").unwrap(), Some(LARGE_SET));
    assert!(set.add(&long).is_err_and(is_refused));
}
