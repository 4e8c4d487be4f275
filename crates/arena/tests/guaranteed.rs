//! An arena on frames that a kernel module guarantees (`papers/kernel/gcma`), where it is loaded:
//! `cargo xtask kernel gcma` runs this in a guest whose module has 64 MiB. Elsewhere the same
//! region gets other pages.

#![allow(
    clippy::unwrap_used,
    reason = "clippy spares `#[test]` functions, not what they call"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mneme_arena::{Arena, ArenaOptions, Class};
use mneme_sync::{ControlOptions, Participants};
use mneme_sys::{NodeId, PageKind, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};

const MIB: usize = 1 << 20;
const UUID: [u8; 16] = [9; 16];

fn region(mib: usize, policy: PagePolicy) -> Region {
    Region::private(mib * MIB, mib * MIB, policy).unwrap()
}

#[test]
fn an_arena_takes_guaranteed_frames_and_gives_them_back_with_its_region() {
    let has_module = Path::new("/dev/gcma").exists() && mneme_sys::huge_pool_free() == 0;
    let kind = |region: &Region| region.pages().kind;
    let options = ControlOptions::new(UUID);
    let control = options.region_len();
    let control = Region::private(control, control, PagePolicy::Small).unwrap();
    let liveness = Arc::new(ScriptedLiveness::new().process(1));
    let participants = Participants::create(control, options, liveness).unwrap();

    let frames = Arc::new(region(32, PagePolicy::Guaranteed));
    if has_module {
        assert_eq!(kind(&frames), PageKind::HugeTlb);
        let more = region(64, PagePolicy::Guaranteed);
        assert_ne!(kind(&more), PageKind::HugeTlb, "32 MiB were left");
    }
    let arena = Arena::create(
        Arc::clone(&frames),
        participants.clone(),
        ArenaOptions {
            uuid: UUID,
            client_bytes: 4096,
            nodes: 1,
            topology: Arc::new(SyntheticTopology::new(1, 2)),
            reserve_frames: 2,
            lending: None,
        },
    );
    let arena = arena.unwrap();
    let slot = participants.slot().unwrap();
    let mut extents = Vec::new();
    while let Ok(extent) = arena.claim(&slot, 1, 1, NodeId(0), Class::Ordinary, 7) {
        let word = frames.at::<AtomicU64>(extent.offset()).unwrap();
        word.store(extent.offset(), Ordering::Relaxed);
        arena.adopt(extent).unwrap();
        extents.push(extent);
    }
    assert!(extents.len() >= 8, "{}", extents.len());
    for extent in extents {
        let word = frames.at::<AtomicU64>(extent.offset()).unwrap();
        assert_eq!(word.load(Ordering::Relaxed), extent.offset());
        arena.release(&slot, extent).unwrap();
    }
    assert!(arena.check().unwrap().is_empty());
    drop(slot);
    drop(arena);
    drop(frames);
    if has_module {
        assert_eq!(kind(&region(64, PagePolicy::Guaranteed)), PageKind::HugeTlb);
    }
}
