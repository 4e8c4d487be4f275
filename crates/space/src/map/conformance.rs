//! What every implementation of [`Map`] must do. [`conforms`] runs all of it.
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mneme_sys::Access;

use super::Placed;
use super::{Map, ProcessMap, SegmentSet, SetVisit};
use crate::{MapError, Mapping, Registry, Segment};

/// A registry with a directory and a window of its own, removed at the end.
struct Scene {
    registry: Registry,
    root: std::path::PathBuf,
}

impl Scene {
    fn new(window_base: usize) -> Self {
        let root = format!("/dev/shm/mneme-map-{window_base:x}-{}", std::process::id());
        let options = crate::RegistryOptions {
            window_base,
            window_slots: 64,
            shared_directory: None,
        };
        let registry = Registry::open_with(&root, &options).unwrap();
        Self {
            registry,
            root: root.into(),
        }
    }

    fn segment(&self, name: &str) -> Segment {
        let builder = self.registry.segment(name).size(2 << 20);
        builder.max_size(64 << 20).create().unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for name in self.registry.segments().unwrap() {
            let segment = Segment::open(&self.registry, name.as_str()).unwrap();
            segment.remove().unwrap();
        }
        std::fs::remove_dir_all(&self.root).unwrap();
    }
}

const SOON: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(60);

fn set(segments: &[&Arc<Placed>]) -> SegmentSet {
    let segments = segments.iter().map(|placed| Arc::clone(placed));
    SegmentSet::new(segments.collect()).unwrap_or_else(|names| panic!("{names:?} overlap"))
}

/// Runs `f` during a visit to the set.
fn inside<R>(
    map: &impl Map,
    set: &SegmentSet,
    timeout: Duration,
    f: impl FnOnce() -> R,
) -> Result<R, MapError> {
    let mut visit = SetVisit::begin(set).unwrap();
    map.show(&mut visit, timeout)?;
    Ok(f())
}

/// The offset of a word that each segment's heap has not handed out yet.
const WORD: usize = (2 << 20) - 8;

fn word(placed: &Placed) -> &AtomicU64 {
    let address = placed.addresses().start + WORD;
    // SAFETY: the segment is visited, so it lies there, and this word is only accessed atomically.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(address) }
}

/// The word of the second segment, which stays mapped.
fn second_word(mapping: &Mapping) -> u64 {
    // SAFETY: nobody is in a section of it.
    unsafe { mapping.region() }.load_u64(WORD as u64).unwrap()
}

/// Runs the suite. `enlist` and `strike` register and unregister, with the map, the sets that the
/// closures visit.
fn conforms<M: Map + Sync>(
    map: &M,
    enlist: impl Fn(&SegmentSet),
    strike: impl Fn(&SegmentSet),
    window_base: usize,
    is_switched: bool,
) {
    let scene = Scene::new(window_base);
    let first = scene.segment("first");
    let beside = scene.segment("beside");
    let second = first.clone_as("second").unwrap();
    let third = first.clone_as("third").unwrap();
    let write = Access::ReadWrite;
    let admit = |segment| map.admit(segment, write).unwrap();
    let (a, b, c, d) = (admit(&first), admit(&second), admit(&third), admit(&beside));
    assert!(Arc::ptr_eq(&a, &admit(&first)), "one mapping each");
    assert_eq!(a.is_switched(), is_switched);
    assert!(SegmentSet::new(vec![a.clone(), d.clone(), b.clone()]).is_err());

    let sets = [set(&[&a, &d]), set(&[&b]), set(&[&c, &d])];
    let placed = [&a, &b, &c];
    sets.iter().for_each(&enlist);

    // Each visit finds its own segment's content at the shared address, whatever was there before.
    for round in 1..4 {
        for (number, set) in sets.iter().enumerate() {
            let own = 10 * number as u64;
            let found = inside(map, set, LONG, || {
                assert!(placed[number].is_home());
                word(placed[number]).swap(own + round, Relaxed)
            });
            let expected = if round == 1 { 0 } else { own + round - 1 };
            assert_eq!(found.unwrap(), expected);
        }
    }

    // A segment that was grown meanwhile, here through its file as another process would, is
    // complete when it returns.
    second.grow(8 << 20).unwrap();
    inside(map, &sets[1], LONG, || {
        assert_eq!(b.region().refresh().unwrap(), 8 << 20);
        assert_eq!(word(&b).load(Relaxed), 13);
    })
    .unwrap();

    // While a thread is inside, nobody takes the addresses; other visitors of the same set may
    // enter.
    inside(map, &sets[0], LONG, || {
        std::thread::scope(|threads| {
            let refused = threads.spawn(|| inside(map, &sets[1], SOON, || ()).unwrap_err());
            let refused = refused.join().unwrap();
            let by = first.uuid();
            assert!(matches!(refused, MapError::Busy { by: who, .. } if who == by));
            let entered = threads.spawn(|| inside(map, &sets[0], SOON, || word(&a).load(Relaxed)));
            assert_eq!(entered.join().unwrap().unwrap(), 3);
        });
        assert_eq!(word(&a).load(Relaxed), 3);
    })
    .unwrap();

    // Many threads compete for the same addresses: each sees its own segment, and all finish.
    std::thread::scope(|threads| {
        for (number, set) in sets.iter().enumerate() {
            let mine = placed[number];
            threads.spawn(move || {
                for _ in 0..50 {
                    inside(map, set, LONG, || {
                        let word = word(mine);
                        assert_eq!(word.load(Relaxed) / 10, number as u64);
                        std::thread::yield_now();
                        assert_eq!(word.load(Relaxed) / 10, number as u64);
                    })
                    .unwrap();
                }
            });
        }
    });

    // The last user of a segment releases its addresses.
    sets.iter().for_each(&strike);
    drop(sets);
    drop((a, b, c, d));
    let mapping = second.map(Access::ReadOnly).unwrap();
    assert_eq!(second_word(&mapping), 13);
    // A segment that stays mapped excludes all others from its addresses.
    let a = admit(&first);
    let set = set(&[&a]);
    enlist(&set);
    let refused = inside(map, &set, LONG, || ()).unwrap_err();
    assert!(matches!(refused, MapError::Occupied { .. }), "{refused}");
    drop(mapping);
    inside(map, &set, LONG, || ()).unwrap();
    strike(&set);
}

/// Runs the suite on the process's map, in windows that no other test of this process uses.
fn the_map_conforms(window_base: usize, is_switched: bool) {
    let map = ProcessMap::get();
    let (enlist, strike) = (|set: &_| map.enlist(set), |set: &_| map.strike(set));
    conforms(map, enlist, strike, window_base, is_switched);
}

#[test]
fn segments_whose_mappings_are_moved_conform() {
    the_map_conforms(0x2300_0000_0000, false);
}

/// `cargo xtask kernel vas` runs it in a guest that has the module.
#[test]
fn segments_that_the_kernel_module_shows_conform() {
    let is_loaded = std::path::Path::new("/dev/mneme-vas").exists();
    the_map_conforms(0x4000_0000_0000 + (448 << 30), is_loaded);
}
