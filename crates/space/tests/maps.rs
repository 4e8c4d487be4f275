//! Maps and strings of a segment behave like those of the standard library, in memory that lasts.

#![allow(missing_docs, clippy::unwrap_used)]

#[cfg(not(miri))]
mod common;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use allocator_api2::alloc::{Allocator, Layout};
use mneme_space::{
    HeapError, LocalSegment, Schema, Section, SegMap, SegString, SegVec, Shape, Stored,
};
use proptest::prelude::*;

type Fallible = Result<(), Box<dyn std::error::Error>>;

struct Words;
impl Schema for Words {
    type Root<'s> = SegMap<'s, SegString<'s>, SegVec<'s, u32>>;
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u16, u32),
    Append(u16, u32),
    Remove(u16),
    Retain(u32),
    Reserve(usize),
    Clear,
    /// Closes everything and opens it again.
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let key = || 0..200_u16;
    prop_oneof![
        20 => (key(), any::<u32>()).prop_map(|(key, value)| Op::Insert(key, value)),
        20 => (key(), any::<u32>()).prop_map(|(key, value)| Op::Append(key, value)),
        20 => key().prop_map(Op::Remove),
        1 => any::<u32>().prop_map(Op::Retain),
        1 => (0..1000_usize).prop_map(Op::Reserve),
        1 => Just(Op::Clear),
        2 => Just(Op::Reopen),
    ]
}

/// Keys of all lengths, so that some need large blocks.
fn name(key: u16) -> String {
    format!("{key}").repeat(1 + usize::from(key) * usize::from(key % 7) / 20)
}

type Model = HashMap<String, Vec<u32>>;

fn apply(here: &mut Section<'_>, ops: &[Op], model: &mut Model) -> Fallible {
    let heap = here.heap("s")?;
    let words = here.root_mut::<Words>("s")?;
    for op in ops {
        match *op {
            Op::Insert(key, value) => {
                let mut list = SegVec::new_in(heap);
                list.push(value);
                let key = name(key);
                let was = words.try_insert(SegString::try_from_str_in(&key, heap)?, list)?;
                let expected = model.insert(key, vec![value]);
                assert_eq!(was.as_deref(), expected.as_deref());
            }
            Op::Append(key, value) => {
                let key = name(key);
                let own = SegString::try_from_str_in(&key, heap)?;
                words
                    .try_get_or_insert_with(own, || SegVec::new_in(heap))?
                    .push(value);
                model.entry(key).or_default().push(value);
            }
            Op::Remove(key) => {
                let key = name(key);
                assert_eq!(
                    words.remove(&*key).as_deref(),
                    model.remove(&key).as_deref()
                );
            }
            Op::Retain(least) => {
                words.retain(|_, list| list[0] >= least);
                model.retain(|_, list| list[0] >= least);
            }
            Op::Reserve(more) => words.try_reserve(more)?,
            Op::Clear => {
                words.clear();
                model.clear();
            }
            Op::Reopen => unreachable!(),
        }
    }
    Ok(())
}

fn compare(here: &mut Section<'_>, model: &Model) -> Fallible {
    let words = here.root::<Words>("s")?;
    assert_eq!(words.len(), model.len());
    for (word, list) in words {
        assert_eq!(
            model.get(&**word).map(|list| &**list),
            Some(&**list),
            "{word}"
        );
    }
    for (word, list) in model {
        assert_eq!(
            words.get(&**word).map(|list| &**list),
            Some(&**list),
            "{word}"
        );
    }
    let absent = (200..220)
        .map(name)
        .filter(|word| words.contains_key(&**word));
    assert_eq!(absent.count(), 0);
    Ok(())
}

/// Where a map can lie, which can be closed and opened.
trait Place {
    fn change(&self, f: impl FnOnce(&mut Section<'_>) -> Fallible);
    fn look(&self, f: impl FnOnce(&mut Section<'_>) -> Fallible);
    fn reopen(&mut self);
}

impl Place for LocalSegment {
    fn change(&self, f: impl FnOnce(&mut Section<'_>) -> Fallible) {
        self.enter(|here| f(here)).unwrap().unwrap();
    }

    fn look(&self, f: impl FnOnce(&mut Section<'_>) -> Fallible) {
        self.read(|here| f(here)).unwrap().unwrap();
    }

    fn reopen(&mut self) {}
}

fn against_model(place: &mut impl Place, ops: &[Op]) {
    let mut model = Model::new();
    place.change(|here| {
        here.create_root::<Words>("s", SegMap::new_in)?;
        Ok(())
    });
    for ops in ops.split(|op| matches!(op, Op::Reopen)) {
        place.change(|here| apply(here, ops, &mut model));
        place.reopen();
        place.look(|here| compare(here, &model));
    }
    place.change(|here| {
        drop(here.remove_root::<Words>("s")?);
        let report = here.heap("s")?.check()?;
        assert_eq!((report.problems, report.stats.blocks), (vec![], 0));
        Ok(())
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 150 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_map_behaves_like_the_standard_librarys(
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 60 } else { 600 }),
    ) {
        against_model(&mut LocalSegment::new("s", 16 << 20).unwrap(), &ops);
    }
}

#[cfg(not(miri))]
mod attached {
    use super::*;
    use common::Scene;
    use mneme_space::{Attachment, Segment};
    use mneme_sys::Access;

    struct Attached {
        scene: Scene,
        at: Option<Attachment>,
    }

    impl Place for Attached {
        fn change(&self, f: impl FnOnce(&mut Section<'_>) -> Fallible) {
            self.at
                .as_ref()
                .unwrap()
                .enter(|here| f(here))
                .unwrap()
                .unwrap();
        }

        fn look(&self, f: impl FnOnce(&mut Section<'_>) -> Fallible) {
            self.at
                .as_ref()
                .unwrap()
                .read(|here| f(here))
                .unwrap()
                .unwrap();
        }

        fn reopen(&mut self) {
            // Nothing is mapped between the two.
            self.at = None;
            let segment = Segment::open(&self.scene.registry, "s").unwrap();
            self.at = Some(Attachment::new([(&segment, Access::ReadWrite)]).unwrap());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 12,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// The segment is unmapped and mapped again between changes: the whole map lies in it.
        #[test]
        fn a_map_lasts_from_attachment_to_attachment(ops in prop::collection::vec(op(), 1..800)) {
            let scene = Scene::new();
            scene.create("s");
            let mut place = Attached { scene, at: None };
            place.reopen();
            against_model(&mut place, &ops);
        }
    }
}

thread_local! {
    static HASH_PANICS: Cell<bool> = const { Cell::new(false) };
    static DROP_PANICS: Cell<bool> = const { Cell::new(false) };
}

#[derive(Stored, PartialEq, Eq)]
struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if HASH_PANICS.get() {
            resume_unwind(Box::new(()));
        }
        self.0.hash(state);
    }
}

#[derive(Stored)]
struct Value(u64);

impl Drop for Value {
    fn drop(&mut self) {
        if DROP_PANICS.take() {
            resume_unwind(Box::new(()));
        }
    }
}

fn unwinds(panics: &'static std::thread::LocalKey<Cell<bool>>, f: impl FnOnce()) {
    panics.set(true);
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    panics.set(false);
}

/// The addresses in a map that lie within its segment; all other words are numbers.
fn addresses_inside<K, V>(map: &SegMap<'_, K, V>, base: usize, len: usize) -> usize {
    let words = std::ptr::from_ref(map).cast::<usize>();
    let words = (0..size_of_val(map) / size_of::<usize>()).map(|word| {
        // SAFETY: within the map, all of whose words are initialised.
        unsafe { words.add(word).read() }
    });
    words
        .filter(|word| (base + 1..base + len).contains(word))
        .count()
}

/// An empty `hashbrown` table points to constants of the program. A segment's map never does,
/// whatever is done to it.
#[test]
fn a_map_points_to_its_own_segment_only() -> Fallible {
    const LEN: usize = 2 << 20;
    let segment = LocalSegment::new("s", LEN)?;
    segment.enter(|here| -> Fallible {
        let heap = here.heap("s")?;
        let block = here.alloc(0_u8)?.address();
        let base = block / LEN * LEN;
        let inside = |map: &SegMap<'_, Key, Value>| {
            assert_eq!(addresses_inside(map, base, LEN), 1);
        };
        for mut map in [
            SegMap::new_in(heap),
            SegMap::with_capacity_in(0, heap),
            SegMap::try_new_in(heap)?,
            SegMap::try_with_capacity_in(0, heap)?,
        ] {
            inside(&map);
            // As many entries as fit without growing, so that the next one grows the table.
            let fill = |map: &mut SegMap<'_, Key, Value>| {
                for key in map.len()..map.capacity() {
                    map.insert(Key(key as u64), Value(0));
                }
            };
            fill(&mut map);
            inside(&map);
            unwinds(&HASH_PANICS, || map.reserve(1));
            inside(&map);
            map.reserve(100);
            fill(&mut map);
            unwinds(&DROP_PANICS, || map.clear());
            assert!(map.is_empty());
            inside(&map);
            fill(&mut map);
            // Removes most of them, so that the next rehash finds space in place.
            map.retain(|key, _| key.0 >= 100);
            inside(&map);
            unwinds(&HASH_PANICS, || map.reserve(map.capacity() - map.len() + 1));
            inside(&map);
            fill(&mut map);
            assert!(matches!(map.try_reserve(1 << 40), Err(HeapError::Refused)));
            inside(&map);
            map.clear();
            inside(&map);
            let mut other = std::mem::replace(&mut map, SegMap::new_in(heap));
            other.insert(Key(1), Value(1));
            std::mem::swap(&mut other, &mut map);
            inside(&map);
            inside(&other);
            assert_eq!(map.into_entries().count(), 1);
        }
        // This is the case that must not happen.
        let bare = hashbrown::HashMap::<u64, u64, std::hash::RandomState, _>::with_hasher_in(
            std::hash::RandomState::new(),
            heap,
        );
        let words = std::ptr::from_ref(&bare).cast::<usize>();
        // SAFETY: within the map.
        let mut words = (0..size_of_val(&bare) / 8).map(|word| unsafe { words.add(word).read() });
        assert!(!words.any(|word| (base + 1..base + LEN).contains(&word)));
        Ok(())
    })??;
    Ok(())
}

/// In a full segment every method named `try_` returns an error, and the contents stay unchanged.
#[test]
#[cfg_attr(miri, ignore = "fills 2 MiB with small entries")]
fn a_full_segment_refuses_and_changes_nothing() -> Fallible {
    let segment = LocalSegment::new("s", 2 << 20)?;
    segment.enter(|here| -> Fallible {
        let heap = here.heap("s")?;
        let mut map = SegMap::<u64, u64>::try_new_in(heap)?;
        let mut text = SegString::try_from_str_in("text", heap)?;
        let mut next = 0;
        let refused = loop {
            match map.try_insert(next, next) {
                Ok(_) => next += 1,
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, HeapError::Refused));
        assert_eq!((map.len() as u64, map.capacity()), (next, map.len()));
        assert!((0..next).all(|key| map.get(&key) == Some(&key)));
        // An existing key needs no capacity.
        assert_eq!(map.try_insert(3, 30)?, Some(3));
        assert_eq!(map.try_get_or_insert_with(4, || 40)?, &4);
        assert!(map.try_get_or_insert_with(next, || unreachable!()).is_err());
        // The last small blocks.
        let layout = Layout::new::<[u64; 4]>();
        while heap.allocate(layout).is_ok() {}
        assert!(matches!(
            SegMap::<u64, u64>::try_new_in(heap),
            Err(HeapError::Refused)
        ));
        assert!(SegString::try_from_str_in("more text", heap).is_err());
        while text.try_push('x').is_ok() {}
        let full = text.to_string();
        assert!(text.try_push_str("xy").is_err() && write!(text, "{full}").is_err());
        assert_eq!(text, *full);
        Ok(())
    })??;
    segment.read(|here| {
        let heap = here.heap("s").unwrap();
        assert!(matches!(
            SegMap::<u64, u64>::try_new_in(heap),
            Err(HeapError::Refused)
        ));
    })?;
    Ok(())
}

/// A string is equal, ordered, hashed and printed like a `str`.
#[test]
fn a_segment_string_behaves_as_a_str() -> Fallible {
    let segment = LocalSegment::new("s", 4 << 20)?;
    segment.enter(|here| -> Fallible {
        let heap = here.heap("s")?;
        let words = ["", "a", "añb", "b", "\0", "日本", "a\"quote"];
        let hash = |value: &dyn Fn(&mut std::hash::DefaultHasher)| {
            let mut hasher = std::hash::DefaultHasher::new();
            value(&mut hasher);
            hasher.finish()
        };
        for one in words {
            let own = SegString::from_str_in(one, heap);
            assert_eq!((&*own, &own.to_string()[..]), (one, one));
            assert_eq!(format!("{own:?} {own:>9}"), format!("{one:?} {one:>9}"));
            assert_eq!(hash(&|into| own.hash(into)), hash(&|into| one.hash(into)));
            for two in words {
                let other = SegString::from_str_in(two, heap);
                assert_eq!(own.cmp(&other), one.cmp(two));
                assert_eq!(own == other, one == two);
            }
        }
        let mut text = SegString::new_in(heap);
        text.push_str("grü");
        text.push('ß');
        text.extend(['e', '!']);
        assert_eq!((text.pop(), &*text), (Some('!'), "grüße"));
        text.make_ascii_uppercase();
        assert_eq!(text, "GRüßE");
        let mut bytes = text.into_bytes();
        bytes.truncate(3);
        let (bytes, error) = SegString::from_utf8(bytes).unwrap_err();
        assert_eq!((&*bytes, error.valid_up_to()), (&b"GR\xc3"[..], 2));
        Ok(())
    })??;
    Ok(())
}

/// Two maps hash differently, and a map of other entries is another type.
#[test]
fn maps_have_keys_of_their_own_and_shapes_of_their_entries() -> Fallible {
    struct Other;
    impl Schema for Other {
        type Root<'s> = SegMap<'s, SegString<'s>, SegVec<'s, i32>>;
    }
    struct Bytes;
    impl Schema for Bytes {
        type Root<'s> = SegMap<'s, SegVec<'s, u8>, SegVec<'s, u32>>;
    }
    let shapes = [
        Shape::of::<Words>(),
        Shape::of::<Other>(),
        Shape::of::<Bytes>(),
    ];
    assert!(shapes[0] != shapes[1] && shapes[0] != shapes[2] && shapes[1] != shapes[2]);
    let segment = LocalSegment::new("s", 4 << 20)?;
    segment.enter(|here| -> Fallible {
        let heap = here.heap("s")?;
        let order = || -> Vec<u64> {
            let mut map = SegMap::with_capacity_in(100, heap);
            map.extend((0..100_u64).map(|key| (key, ())));
            map.keys().copied().collect()
        };
        assert_ne!(order(), order());
        Ok(())
    })??;
    Ok(())
}
