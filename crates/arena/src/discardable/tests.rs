//! The cache in plain memory: the tests that Miri can run, above all the race of a reader's copy
//! with the stores of the first class.

use super::*;
use crate::{ArenaOptions, Class, Extent, LendingOptions};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{PagePolicy, Region, ScriptedLiveness, SyntheticTopology, racy};

const NODE: NodeId = NodeId(0);
const FRAMES: u32 = 3;

fn lending_arena() -> (Participants, Arc<Arena>) {
    let control = ControlOptions {
        max_processes: 2,
        max_threads: 4,
        undo_bytes: 0,
        ..ControlOptions::new([1; 16])
    };
    let len = control.region_len();
    let memory = Region::private(len, len, PagePolicy::Small).unwrap();
    let liveness = Arc::new(ScriptedLiveness::new().process(1));
    let participants = Participants::create(memory, control, liveness).unwrap();
    let bytes = (FRAMES as usize + 1) << 21;
    let options = ArenaOptions {
        uuid: [1; 16],
        client_bytes: 0,
        nodes: 1,
        topology: Arc::new(SyntheticTopology::new(1, 1)),
        reserve_frames: 0,
        lending: Some(LendingOptions {
            records: 12,
            max_frames: u32::MAX,
        }),
    };
    let region = Arc::new(Region::private(bytes, bytes, PagePolicy::Small).unwrap());
    let arena = Arena::create(region, participants.clone(), options).unwrap();
    (participants, Arc::new(arena))
}

fn claim(arena: &Arena, slot: &Slot<'_>, frames: u32) -> Extent {
    let class = Class::Ordinary;
    arena.claim(slot, frames, 1, NODE, class, 0).unwrap()
}

/// The first class stores over a record while a reader copies it.
#[test]
fn a_copy_that_races_with_the_first_class_is_the_record_or_none() {
    let (participants, arena) = lending_arena();
    let slot = participants.slot().unwrap();
    let all = claim(&arena, &slot, FRAMES);
    arena.release(&slot, all).unwrap();
    let cache = Discardable::open(Arc::clone(&arena)).unwrap();
    let record: Vec<u8> = (0..200).collect();
    let rounds = if cfg!(miri) { 3 } else { 200 };
    for _ in 0..rounds {
        assert_eq!(
            cache.put(&slot, NODE, b"key", &record).unwrap(),
            Stored::Kept
        );
        // The frame is marked as full, so that the next record ends its filling.
        let lending = cache.lending().unwrap();
        let fill = lending.node(0).unwrap();
        let frame = fill.frame.load(Relaxed) as u32;
        fill.used.store(crate::FRAME_BYTES, Relaxed);
        assert_eq!(cache.put(&slot, NODE, b"next", b"").unwrap(), Stored::Kept);
        let extents = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut value = Vec::new();
                let mut hits = 0;
                for _ in 0..if cfg!(miri) { 4 } else { 50 } {
                    if cache.get(b"key", &mut value) == CacheLookup::Hit {
                        assert_eq!(value, record);
                        hits += 1;
                    }
                }
                hits
            });
            // Idle frames are taken first: the last claim gets the record's frame.
            let mut extents = vec![claim(&arena, &slot, 1), claim(&arena, &slot, 1)];
            let last = extents.swap_remove(1);
            let place = arena.region().bytes_at(last.offset(), 512).unwrap();
            // SAFETY: the bytes belong to the first class, which stores by `racy`.
            unsafe { racy::store(&[0xAA; 512], place) };
            reader.join().unwrap();
            assert_eq!(last.start.0, frame);
            extents.push(last);
            extents
        });
        assert_ne!(cache.get(b"key", &mut Vec::new()), CacheLookup::Hit);
        for extent in extents {
            arena.release(&slot, extent).unwrap();
        }
        cache.clear().unwrap();
    }
}
