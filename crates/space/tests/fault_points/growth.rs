//! Growth ahead of need: a segment with little free memory grows before a section may change it.

use crate::common::Scene;
use mneme_space::{Access, Attachment, SegVec, Segment};

const MIB: usize = 1 << 20;

fn attach(segment: &Segment) -> Attachment {
    Attachment::new([(segment, Access::ReadWrite)]).unwrap()
}

/// A segment of 64 MiB whose heap has 2 MiB left.
fn nearly_full(scene: &Scene) -> Segment {
    let segment = scene.registry.segment("s").size(64 * MIB).create().unwrap();
    let filled = attach(&segment).enter(|here| {
        let heap = here.heap("s").unwrap();
        let left = heap.stats().unwrap().free_bytes as usize;
        // Leaked, so that it stays allocated.
        SegVec::<u8>::with_capacity_in(left - 2 * MIB, heap)
            .leak()
            .len()
    });
    assert_eq!(filled.unwrap(), 0);
    assert_eq!(segment.info().unwrap().size, 64 * MIB);
    segment
}

#[test]
fn a_section_begins_with_memory_to_spare() {
    let scene = Scene::new();
    let segment = nearly_full(&scene);
    let at = attach(&segment);
    at.read(|_| ()).unwrap();
    assert_eq!(segment.info().unwrap().size, 64 * MIB, "a reader grew it");
    at.enter(|_| ()).unwrap();
    assert_eq!(segment.info().unwrap().size, 72 * MIB);
    at.enter(|_| ()).unwrap();
    assert_eq!(segment.info().unwrap().size, 72 * MIB);
    // The memory that was added belongs to the heap.
    at.enter(|here| {
        let heap = here.heap("s").unwrap();
        SegVec::<u8>::with_capacity_in(7 * MIB, heap);
        assert_eq!(heap.check().unwrap().problems, []);
    })
    .unwrap();
    assert_eq!(segment.info().unwrap().size, 72 * MIB);
}

/// A process that is killed while it grows a segment ahead of need has changed nothing.
mod deaths {
    use super::*;

    use crate::common::visitor;
    use mneme_sys::fault::{self, Action};

    #[test]
    fn role() {
        let Some((point, registry)) = visitor::role() else {
            return;
        };
        let at = attach(&Segment::open(&registry, "s").unwrap());
        fault::arm(&point, Action::Kill, 1);
        at.enter(|_| ()).unwrap();
    }

    #[test]
    fn a_death_during_growth_ahead_of_need_poisons_nothing() {
        for point in ["space.grow.reserved", "space.grow.recorded"] {
            let scene = Scene::new();
            let segment = nearly_full(&scene);
            assert!(visitor::is_killed(&scene, point, "deaths::role"), "{point}");
            attach(&segment).enter(|_| ()).unwrap();
        }
    }
}
