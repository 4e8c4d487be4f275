//! Segments on a medium that outlives the machine. After the machine goes down, a segment that was
//! written through is consistent, and one that was not is not considered so.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::common::Scene;
use mneme_space::{
    Access, Attachment, Backing, CloneError, Condition, EnterError, OpenError, Schema, SegVec,
    Segment,
};

struct Numbers;

impl Schema for Numbers {
    type Root<'s> = SegVec<'s, u64>;
}

fn kept(scene: &Scene, backing: Backing) -> Segment {
    let builder = scene.registry.segment("s").backing(backing);
    builder.create().unwrap()
}

fn on_disk(scene: &Scene) -> Backing {
    let directory = scene.root.join("disk");
    std::fs::create_dir(&directory).unwrap();
    Backing::File { directory }
}

fn attach(segment: &Segment) -> Attachment {
    Attachment::new([(segment, Access::ReadWrite)]).unwrap()
}

fn push(at: &Attachment) -> Result<usize, EnterError> {
    at.enter(|here| {
        let numbers = here.root_or_create::<Numbers>("s", SegVec::new_in).unwrap();
        numbers.push(7);
        numbers.len()
    })
}

/// The offset of the header's word that records the boot in which the segment was changed.
const UNSYNCED: u64 = 56 + 8;

fn unsynced(data: &Path) -> u64 {
    word_at(data, UNSYNCED)
}

fn word_at(data: &Path, at: u64) -> u64 {
    let mut word = [0; 8];
    let file = std::fs::File::open(data).unwrap();
    file.read_exact_at(&mut word, at).unwrap();
    u64::from_le_bytes(word)
}

/// Makes a file look like one that was changed in the previous boot.
fn reboot(data: &Path) {
    let word = unsynced(data);
    if word != 0 {
        let file = std::fs::File::options().write(true).open(data).unwrap();
        let other = (word ^ 1).max(2).to_le_bytes();
        file.write_all_at(&other, UNSYNCED).unwrap();
    }
}

#[test]
fn a_segment_that_was_written_through_is_consistent_after_a_reboot() {
    let scene = Scene::new();
    let segment = kept(&scene, on_disk(&scene));
    let data = segment.info().unwrap().data;
    let at = attach(&segment);
    for number in 1..3 {
        assert_eq!(push(&at).unwrap(), number);
        assert_ne!(unsynced(&data), 0);
        at.sync().unwrap();
        assert_eq!(unsynced(&data), 0);
    }
    drop(at);
    reboot(&data);
    assert!(!segment.info().unwrap().poisoned);
    assert_eq!(push(&attach(&segment)).unwrap(), 3);
}

#[test]
fn a_segment_not_written_through_is_poisoned_until_it_is_recovered() {
    let scene = Scene::new();
    let segment = kept(&scene, on_disk(&scene));
    let data = segment.info().unwrap().data;
    let at = attach(&segment);
    push(&at).unwrap();
    at.sync().unwrap();
    let before = segment.clone_as("before").unwrap();
    assert_eq!(unsynced(&before.info().unwrap().data), 0);
    push(&at).unwrap();
    drop(at);
    reboot(&data);

    assert!(segment.info().unwrap().poisoned);
    let refused = segment.clone_as("after").unwrap_err();
    assert!(matches!(refused, CloneError::Poisoned { .. }), "{refused}");
    let at = attach(&segment);
    for _ in 0..2 {
        assert!(matches!(at.read(|_| ()), Err(EnterError::Poisoned { .. })));
        assert!(matches!(push(&at), Err(EnterError::Poisoned { .. })));
        assert!(matches!(at.sync(), Err(EnterError::Poisoned { .. })));
    }
    at.rebuild("s").unwrap();
    assert_eq!(push(&at).unwrap(), 1);
    at.sync().unwrap();
    assert_eq!(unsynced(&data), 0);

    push(&at).unwrap();
    drop(at);
    reboot(&data);
    assert_eq!(segment.condition().unwrap(), Condition::Poisoned);
    segment.restore_from(&before).unwrap();
    assert_eq!(segment.condition().unwrap(), Condition::Whole);
    assert_eq!(unsynced(&data), 0);
    let at = attach(&segment);
    assert_eq!(push(&at).unwrap(), 2);
    // The clone is unchanged.
    drop(at);
    reboot(&before.info().unwrap().data);
    let at = attach(&before);
    let found = at.read(|here| here.root::<Numbers>("before").unwrap().len());
    assert_eq!(found.unwrap(), 1);
}

/// The header may reach the medium before the file's length does.
#[test]
fn a_file_length_that_was_not_written_is_restored() {
    for restored in [false, true] {
        let scene = Scene::new();
        let segment = kept(&scene, on_disk(&scene));
        let data = segment.info().unwrap().data;
        let clone = segment.clone_as("clone").unwrap();
        push(&attach(&segment)).unwrap();
        let file = std::fs::File::options().write(true).open(&data).unwrap();
        file.set_len(1 << 20).unwrap();
        assert!(matches!(segment.info(), Err(OpenError::Truncated { .. })));
        reboot(&data);
        assert!(segment.info().unwrap().poisoned);
        if restored {
            segment.restore_from(&clone).unwrap();
        } else {
            attach(&segment).rebuild("s").unwrap();
        }
        assert_eq!(push(&attach(&segment)).unwrap(), 1);
        assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    }
}

#[test]
fn a_segment_in_memory_is_not_recorded_as_unsynced() {
    let scene = Scene::new();
    let segment = kept(&scene, Backing::Shared);
    let at = attach(&segment);
    push(&at).unwrap();
    at.sync().unwrap();
    assert_eq!(unsynced(&segment.info().unwrap().data), 0);
}

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
        if point == STORED {
            fault::arm(&point, Action::Kill, 1);
        }
        push(&at).unwrap();
        fault::arm(&point, Action::Kill, 1);
        at.sync().unwrap();
    }

    const STORED: &str = "space.sync.stored";

    /// The process dies between the record's store and its sync: nothing was changed, and the next
    /// process does not mistake the record in memory for one on the medium.
    #[test]
    fn a_record_that_its_writer_did_not_sync_is_written_again() {
        let scene = Scene::new();
        let segment = kept(&scene, on_disk(&scene));
        let data = segment.info().unwrap().data;
        assert!(visitor::is_killed(&scene, STORED, "deaths::role"));
        let noted = || word_at(&data, UNSYNCED + 8);
        assert_eq!((unsynced(&data) == 0, noted()), (false, 0));
        assert_eq!(push(&attach(&segment)).unwrap(), 1);
        assert_eq!(noted(), unsynced(&data));
    }

    /// The process dies after everything is written but before that is recorded: the segment is
    /// consistent in this boot, but not in the next.
    #[test]
    fn a_process_that_dies_before_its_record_has_written_nothing_through() {
        let scene = Scene::new();
        let segment = kept(&scene, on_disk(&scene));
        let data = segment.info().unwrap().data;
        assert!(visitor::is_killed(
            &scene,
            "space.sync.written",
            "deaths::role"
        ));
        assert_ne!(unsynced(&data), 0);
        assert_eq!(push(&attach(&segment)).unwrap(), 2);
        reboot(&data);
        assert_eq!(segment.condition().unwrap(), Condition::Poisoned);
    }
}
