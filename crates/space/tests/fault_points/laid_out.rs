//! Segments whose contents another crate lays out: they are named, opened, counted and removed like
//! others; no process mistakes them for something else; and a segment that was half written when
//! the machine went down is reported.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Barrier;

use crate::common::toy::{Refused, TOY, Toy, WORD, control_bytes, header};
use crate::common::visitor;
use crate::common::{Scene, region};
use mneme_space::{
    Access, Attachment, Backing, CloneError, Contents, CreateError, EnterError, MapError,
    OpenError, Parts, RemoveError, Segment, SpaceError,
};
use mneme_sys::{FRAME, HeaderError, RegionHeader};

fn toy(scene: &Scene) -> Segment {
    Toy::create(scene, Backing::Shared).unwrap()
}

fn on_disk(scene: &Scene) -> Segment {
    let directory = scene.root.join("disk");
    fs::create_dir(&directory).unwrap();
    Toy::create(scene, Backing::File { directory }).unwrap()
}

/// This crate's reason why a segment was not created.
fn reason(refused: &Refused) -> &CreateError {
    refused.downcast_ref().unwrap()
}

fn control(segment: &Segment) -> std::path::PathBuf {
    segment.directory().join("control")
}

/// Checks that the error names the segment and the path.
fn refused(error: &MapError) {
    assert!(
        matches!(error, MapError::Contents { name, kind } if name == "toy" && kind == "toy box"),
        "{error}"
    );
}

#[test]
fn a_laid_out_segment_is_found_again() {
    let scene = Scene::new();
    let _ = toy(&scene);
    let segment = scene.open("toy");
    assert_eq!(segment.contents(), Some("toy box"));
    assert_eq!(segment.base(), None);
    let info = segment.info().unwrap();
    assert_eq!((info.size, info.max_size), (4 * FRAME, 1 << 30));
    assert_eq!((info.mode, info.backing), (0o600, Backing::Shared));
    let contents = info.contents.unwrap();
    assert_eq!((contents.magic, contents.format), (TOY.magic, TOY.format));
    assert!(!info.poisoned);

    let writer = Toy::open(&segment, Access::ReadWrite).unwrap();
    assert_eq!(writer.word(), 7);
    // The contents manage their own growth.
    writer.data.grow(5 * FRAME).unwrap();
    RegionHeader::set_committed(&writer.data, 5 * FRAME as u64).unwrap();
    assert_eq!(segment.info().unwrap().size, 5 * FRAME);
    let reader = Toy::open(&segment, Access::ReadOnly).unwrap();
    assert_eq!(reader.word(), 7);
    assert_eq!(reader.data.len(), 5 * FRAME);
    assert_eq!(reader.data.access(), Access::ReadOnly);
    assert!(reader.data.permit_writes().is_err());
    assert!(reader.participants.slot().is_ok());
    assert_eq!(scene.findings(), Vec::<String>::new());
}

/// The crate that manages the data allocates their memory; the control file's memory is allocated
/// at once.
#[test]
fn data_are_sparse_and_the_control_file_is_not() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let data = fs::metadata(segment.info().unwrap().data).unwrap();
    assert_eq!(data.len(), 4 * FRAME as u64);
    assert!(data.blocks() * 512 < data.len());
    let control = fs::metadata(control(&segment)).unwrap();
    assert!(control.len() >= control_bytes() as u64);
    assert!(control.blocks() * 512 >= control.len());
}

#[test]
fn a_process_that_may_only_read_the_file_may_participate() {
    let scene = Scene::new();
    let segment = toy(&scene);
    segment.set_mode(0o640).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&segment.info().unwrap().data), 0o640);
    assert_eq!(mode(&control(&segment)), 0o660);
}

#[test]
fn another_kind_format_or_layout_is_refused_and_both_are_named() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let others = [
        Contents {
            kind: "log store",
            ..TOY
        },
        Contents {
            magic: *b"MnemeArn",
            ..TOY
        },
        Contents { format: 4, ..TOY },
        Contents {
            layout_hash: 1,
            ..TOY
        },
    ];
    for other in others {
        let error = segment.parts(&other, Access::ReadWrite).unwrap_err();
        let MapError::OtherContents { holds, wanted, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(**holds.as_ref().unwrap(), (&TOY).into());
        assert_eq!(**wanted, (&other).into());
        let words = error.to_string();
        assert!(words.contains("a toy box (MnemeToy, format 3"), "{words}");
        assert!(words.contains(&wanted.to_string()), "{words}");
    }
    let heap = scene.create("heap");
    let error = heap.parts(&TOY, Access::ReadOnly).unwrap_err();
    assert!(
        matches!(&error, MapError::OtherContents { holds: None, .. }),
        "{error}"
    );
    // The description alone is not trusted: unless the header agrees, nothing is opened.
    let file = fs::File::options()
        .write(true)
        .open(segment.info().unwrap().data)
        .unwrap();
    file.write_all_at(&4_u32.to_le_bytes(), 8).unwrap();
    let error = segment.parts(&TOY, Access::ReadWrite).unwrap_err();
    let of_header = |error: &OpenError| {
        let OpenError::Header { source, .. } = error else {
            return false;
        };
        matches!(
            source,
            HeaderError::Format {
                expected: 3,
                found: 4
            }
        )
    };
    assert!(
        matches!(&error, MapError::Open(error) if of_header(error)),
        "{error}"
    );
    let error = Segment::open(&scene.registry, "toy").unwrap_err();
    assert!(of_header(&error), "{error}");
    assert_eq!(scene.findings().len(), 1);
}

#[test]
fn heap_operations_refuse_a_segment_of_another_kind() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let heap = scene.create("heap");
    let before = fs::read(segment.info().unwrap().data).unwrap();
    refused(&segment.map(Access::ReadOnly).unwrap_err());
    match Attachment::new([(&segment, Access::ReadOnly)]).unwrap_err() {
        EnterError::Map(error) => refused(&error),
        other => panic!("{other}"),
    }
    refused(&segment.grow(8 * FRAME).unwrap_err());
    match segment.clone_as("copy").unwrap_err() {
        CloneError::Map(error) => refused(&error),
        other => panic!("{other}"),
    }
    for error in [
        segment.condition().unwrap_err(),
        segment.restore_from(&heap).unwrap_err(),
        heap.restore_from(&segment).unwrap_err(),
    ] {
        match error {
            CloneError::Map(error) => refused(&error),
            other => panic!("{other}"),
        }
    }
    let space = scene.registry.space("w").create().unwrap();
    let error = space.add(&segment, Access::ReadOnly).unwrap_err();
    assert!(
        matches!(&error, SpaceError::Contents { kind, .. } if kind == "toy box"),
        "{error}"
    );
    assert_eq!(fs::read(segment.info().unwrap().data).unwrap(), before);
    assert_eq!(scene.findings(), Vec::<String>::new());
}

/// A member that was written into a space's description by hand.
#[test]
fn no_space_can_have_a_laid_out_segment_as_member() {
    let scene = Scene::new();
    let (segment, heap) = (toy(&scene), scene.create("heap"));
    let space = scene.registry.space("w").create().unwrap();
    space.add(&heap, Access::ReadWrite).unwrap();
    let meta = space.directory().join("meta");
    let text = fs::read_to_string(&meta).unwrap();
    let text = text
        .replace(&heap.uuid().to_string(), &segment.uuid().to_string())
        .replace("\"heap\"", "\"toy\"");
    fs::write(&meta, text).unwrap();
    match space.attach().unwrap_err() {
        EnterError::Map(error) => refused(&error),
        other => panic!("{other}"),
    }
}

#[test]
fn role() {
    let Some((role, registry)) = visitor::role() else {
        return;
    };
    let segment = Segment::open(&registry, "toy").unwrap();
    match role.as_str() {
        "reads" => {
            let _toy = Toy::open(&segment, Access::ReadOnly).unwrap();
            visitor::stand();
        }
        "writes" => {
            let toy = Toy::open(&segment, Access::ReadWrite).unwrap();
            visitor::stand();
            drop(toy);
        }
        // Has opened the parts, but is not yet a participant of the control region.
        "begins" => {
            let _parts = segment.parts(&TOY, Access::ReadOnly).unwrap();
            visitor::stand();
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_laid_out_segment_is_not_removed_while_it_is_in_use() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let data = segment.info().unwrap().data;
    let in_use = |segment: &Segment| {
        let error = segment.clone().remove().unwrap_err();
        assert!(matches!(error, RemoveError::InUse { .. }), "{error}");
        assert!(data.exists());
    };
    for role in ["reads", "begins"] {
        let mut visitor = visitor::start(&scene, role);
        in_use(&segment);
        visitor.kill();
    }
    // Either of the two prevents the removal.
    let toy = Toy::open(&segment, Access::ReadWrite).unwrap();
    in_use(&segment);
    let Toy {
        participants,
        data: region,
        presence,
    } = toy;
    drop((region, presence));
    in_use(&segment);
    drop(participants);
    segment.remove().unwrap();
    assert!(!data.exists());
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn a_damaged_or_missing_control_file_is_reported_and_never_replaced() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let control = control(&segment);
    let kept = fs::read(&control).unwrap();
    let reported = |what: &str| {
        let found = scene.registry.clean().unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((&found[0].path, found[0].cleaning), (&control, None));
        let words = found[0].to_string();
        for expected in [what, "toy box", "not made anew"] {
            assert!(words.contains(expected), "{words}");
        }
        assert_eq!(scene.registry.check().unwrap(), found);
    };
    fs::remove_file(&control).unwrap();
    reported("missing");
    assert!(!control.exists());
    for (damaged, what) in [
        (&kept[..100], "shorter than its header"),
        (&kept[..kept.len() / 2], "shorter than it was made"),
        (&[7; 4096], "does not begin as a control file"),
    ] {
        fs::write(&control, damaged).unwrap();
        reported(what);
        assert_eq!(fs::read(&control).unwrap(), damaged);
    }
    // The contents are not called poisoned: nobody has touched them.
    fs::write(&control, &kept).unwrap();
    assert_eq!(scene.findings(), Vec::<String>::new());
    assert_eq!(fs::read(&control).unwrap(), kept, "a check changed it");
    assert_eq!(Toy::open(&segment, Access::ReadWrite).unwrap().word(), 7);
    // The segment can be removed without a control file.
    fs::remove_file(&control).unwrap();
    segment.remove().unwrap();
    assert_eq!(scene.findings(), Vec::<String>::new());
}

/// A copy of the control file is a second set of participants for the same data.
#[test]
fn nobody_enters_through_another_control_file() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let inside = Toy::open(&segment, Access::ReadOnly).unwrap();
    let control = control(&segment);
    let aside = control.with_extension("copy");
    fs::copy(&control, &aside).unwrap();
    fs::rename(&aside, &control).unwrap();
    let error = segment.parts(&TOY, Access::ReadWrite).unwrap_err();
    assert!(matches!(error, MapError::OtherControl { .. }), "{error}");
    drop(inside);
    segment.parts(&TOY, Access::ReadWrite).unwrap();
}

/// A copy under the data's name is other data for the same participants.
#[test]
fn nobody_enters_data_that_replaced_those_in_use() {
    let scene = Scene::new();
    let segment = toy(&scene);
    let inside = Toy::open(&segment, Access::ReadOnly).unwrap();
    let data = segment.info().unwrap().data;
    let (aside, kept) = (data.with_extension("copy"), data.with_extension("kept"));
    fs::copy(&data, &aside).unwrap();
    fs::rename(&data, &kept).unwrap();
    fs::rename(&aside, &data).unwrap();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let error = segment.parts(&TOY, access).unwrap_err();
        assert!(matches!(error, MapError::OtherData { .. }), "{error}");
    }
    let removed = scene.registry.remove_segment("toy");
    assert!(removed.is_err(), "{removed:?}");
    // With the file put back everything works as before, and the refused process keeps nobody out.
    fs::rename(&kept, &data).unwrap();
    let beside = Toy::open(&segment, Access::ReadWrite).unwrap();
    // Data that nobody uses may be replaced, for instance from a backup.
    fs::copy(&data, &aside).unwrap();
    drop((inside, beside));
    fs::rename(&aside, &data).unwrap();
    assert_eq!(Toy::open(&segment, Access::ReadWrite).unwrap().word(), 7);
}

#[test]
fn a_failed_layout_leaves_nothing() {
    let scene = Scene::new();
    let nothing = || {
        assert_eq!(scene.files("memory"), Vec::<std::path::PathBuf>::new());
        assert_eq!(scene.registry.segments().unwrap(), []);
        assert_eq!(
            scene.files("registry/making"),
            Vec::<std::path::PathBuf>::new()
        );
        assert_eq!(scene.findings(), Vec::<String>::new());
    };
    let make = |lay_out: &dyn Fn(Parts) -> Result<(), Refused>| {
        let made = scene
            .registry
            .segment("toy")
            .create_with(&TOY, control_bytes(), lay_out);
        nothing();
        made.unwrap_err()
    };
    let error = make(&|_| Err("no".into()));
    assert_eq!(error.to_string(), "no");
    // No header, or a wrong one.
    let error = make(&|_| Ok(()));
    let is_header = |error: &Refused| matches!(reason(error), CreateError::LaidOut(_));
    assert!(is_header(&error), "{error}");
    let damages: [fn(&mut RegionHeader); 5] = [
        |header| header.magic = *b"MnemeArn",
        |header| header.layout_hash = 0,
        |header| header.uuid[3] ^= 1,
        |header| header.max_len -= FRAME as u64,
        |header| header.committed_len += FRAME as u64,
    ];
    for damage in damages {
        let error = make(&|parts| {
            let mut header = header(parts.uuid, &parts.data);
            damage(&mut header);
            header.write(&parts.data).unwrap();
            Ok(())
        });
        assert!(is_header(&error), "{error}");
    }
    let unnamed = Contents { kind: "\n", ..TOY };
    let nobody = |_| -> Result<(), Refused> { panic!("it was laid out") };
    let made = scene
        .registry
        .segment("toy")
        .create_with(&unnamed, 0, nobody);
    let error = made.unwrap_err();
    assert!(
        matches!(reason(&error), CreateError::Kind { .. }),
        "{error}"
    );
    let (base, _) = scene.registry.window();
    let made = scene
        .registry
        .segment("toy")
        .base(base)
        .create_with(&TOY, control_bytes(), nobody);
    let error = made.unwrap_err();
    assert!(
        matches!(reason(&error), CreateError::Base { .. }),
        "{error}"
    );
    nothing();
}

#[test]
fn only_one_of_two_concurrent_creators_creates_the_segment() {
    let scene = Scene::new();
    let both_are_inside = Barrier::new(2);
    let make = || {
        scene
            .registry
            .segment("toy")
            .create_with(&TOY, control_bytes(), |parts| {
                both_are_inside.wait();
                Toy::lay_out(parts).map(drop)
            })
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(make);
        (make(), other.join().unwrap())
    });
    let (made, late) = if one.is_ok() {
        (one, other)
    } else {
        (other, one)
    };
    let late = late.unwrap_err();
    assert!(
        matches!(reason(&late), CreateError::Exists { .. }),
        "{late}"
    );
    assert_eq!(
        Toy::open(&made.unwrap(), Access::ReadOnly).unwrap().word(),
        7
    );
    assert_eq!(scene.files("memory").len(), 1);
    assert_eq!(scene.findings(), Vec::<String>::new());
}

/// Descriptions of older builds do not mention contents, and neither do those of heaps.
#[test]
fn the_description_of_a_heap_says_nothing_of_contents() {
    let scene = Scene::new();
    let heap = scene.create("heap");
    let text = fs::read_to_string(heap.directory().join("meta")).unwrap();
    assert!(!text.contains("contents"), "{text}");
    assert_eq!(heap.contents(), None);
    let mapping = heap.map(Access::ReadOnly).unwrap();
    assert!(region(&mapping).load_u64(WORD).is_ok());

    let segment = toy(&scene);
    let meta = segment.directory().join("meta");
    let text = fs::read_to_string(&meta).unwrap();
    for (from, to) in [
        ("\"toy box\"", "\"\\u001b[2J\""),
        ("0x4d6e656d65546f79", "x"),
    ] {
        assert!(text.contains(from), "{text}");
        fs::write(&meta, text.replace(from, to)).unwrap();
        let error = Segment::open(&scene.registry, "toy").unwrap_err();
        assert!(matches!(error, OpenError::Description(_)), "{error}");
    }
}

/// Checks the header's record about the machine for durable data.
mod durable {
    use super::*;

    const UNSYNCED: u64 = 56 + 8;

    fn unsynced(data: &Path) -> u64 {
        let mut word = [0; 8];
        let file = fs::File::open(data).unwrap();
        file.read_exact_at(&mut word, UNSYNCED).unwrap();
        u64::from_le_bytes(word)
    }

    /// Makes a file look like one that was open in the previous boot.
    fn reboot(data: &Path) {
        let word = unsynced(data);
        if word != 0 {
            let file = fs::File::options().write(true).open(data).unwrap();
            let other = (word ^ 1).max(2).to_le_bytes();
            file.write_all_at(&other, UNSYNCED).unwrap();
        }
    }

    #[test]
    fn a_segment_that_all_have_left_is_consistent_after_a_reboot() {
        let scene = Scene::new();
        let segment = on_disk(&scene);
        let data = segment.info().unwrap().data;
        assert_eq!(unsynced(&data), 0);
        let reader = Toy::open(&segment, Access::ReadOnly).unwrap();
        assert_eq!(unsynced(&data), 0, "readers change nothing");
        let one = Toy::open(&segment, Access::ReadWrite).unwrap();
        assert_ne!(unsynced(&data), 0);
        let other = Toy::open(&segment, Access::ReadWrite).unwrap();
        drop(one);
        assert_ne!(unsynced(&data), 0, "one of them is still there");
        drop(other);
        assert_eq!(unsynced(&data), 0, "the last writer has left");
        drop(reader);
        reboot(&data);
        assert!(!segment.info().unwrap().poisoned);
        assert_eq!(Toy::open(&segment, Access::ReadWrite).unwrap().word(), 7);
    }

    #[test]
    fn a_segment_in_use_when_the_machine_went_down_is_reported() {
        let scene = Scene::new();
        let segment = on_disk(&scene);
        let data = segment.info().unwrap().data;
        let mut visitor = visitor::start(&scene, "writes");
        assert_ne!(unsynced(&data), 0);
        visitor.kill();
        // In this boot the kernel has everything that was written.
        assert_ne!(unsynced(&data), 0);
        Toy::open(&segment, Access::ReadOnly).unwrap();
        Toy::open(&segment, Access::ReadWrite).unwrap();
        assert_eq!(unsynced(&data), 0, "the last writer writes all through");

        let mut visitor = visitor::start(&scene, "writes");
        visitor.kill();
        reboot(&data);
        let before = fs::read(&data).unwrap();
        assert!(segment.info().unwrap().poisoned);
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let error = segment.parts(&TOY, access).unwrap_err();
            assert!(matches!(error, MapError::NotClean { .. }), "{error}");
        }
        assert_eq!(fs::read(&data).unwrap(), before);
        segment.remove().unwrap();
    }

    /// A segment that is kept open from its creation on counts as in use.
    #[test]
    fn a_process_that_keeps_its_laid_out_segment_has_it_open() {
        let scene = Scene::new();
        let directory = scene.root.join("disk");
        fs::create_dir(&directory).unwrap();
        let mut kept = None;
        let segment = scene
            .registry
            .segment("toy")
            .backing(Backing::File { directory })
            .create_with(&TOY, control_bytes(), |parts| {
                kept = Some(Toy::lay_out(parts)?);
                Ok::<_, Refused>(())
            })
            .unwrap();
        let data = segment.info().unwrap().data;
        assert_ne!(unsynced(&data), 0);
        assert!(segment.clone().remove().is_err());
        drop(kept);
        assert_eq!(unsynced(&data), 0);
        segment.remove().unwrap();
    }

    /// However processes come and go, nobody is inside without the record, and the last one clears
    /// it.
    #[test]
    fn many_processes_that_open_and_close_it_leave_it_clean() {
        let scene = Scene::new();
        let segment = on_disk(&scene);
        let data = segment.info().unwrap().data;
        let visitor = visitor::start(&scene, "writes");
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let parts = segment.parts(&TOY, Access::ReadWrite).unwrap();
                        assert_ne!(unsynced(&data), 0);
                        let Parts {
                            data: region,
                            presence,
                            ..
                        } = parts;
                        drop(region);
                        drop(presence);
                    }
                });
            }
            scope.spawn(|| visitor.end());
        });
        assert_eq!(unsynced(&data), 0);
    }

    #[test]
    fn a_segment_in_memory_is_not_recorded_as_unsynced() {
        let scene = Scene::new();
        let segment = toy(&scene);
        let _open = Toy::open(&segment, Access::ReadWrite).unwrap();
        assert_eq!(unsynced(&segment.info().unwrap().data), 0);
    }

    mod deaths {
        use super::*;
        use mneme_sys::fault::{self, Action};

        #[test]
        fn role() {
            let Some((point, registry)) = visitor::role() else {
                return;
            };
            fault::arm(&point, Action::Kill, 1);
            let segment = Segment::open(&registry, "toy").unwrap();
            drop(Toy::open(&segment, Access::ReadWrite).unwrap());
        }

        /// Wherever a process dies while it opens or closes the segment, no other is kept out in
        /// this boot, and the record is there unless everything is written.
        #[test]
        fn a_death_while_opening_or_closing_keeps_no_process_out() {
            for (point, is_noted) in [
                ("space.writers.held", false),
                ("space.writers.noted", true),
                ("space.writers.synced", true),
                ("space.writers.cleared", false),
            ] {
                let scene = Scene::new();
                let segment = on_disk(&scene);
                let data = segment.info().unwrap().data;
                let role = "durable::deaths::role";
                assert!(visitor::is_killed(&scene, point, role), "{point}");
                assert_eq!(unsynced(&data) != 0, is_noted, "{point}");
                let toy = Toy::open(&segment, Access::ReadWrite).unwrap();
                assert_ne!(unsynced(&data), 0, "{point}");
                assert_eq!(toy.word(), 7);
                drop(toy);
                assert_eq!(unsynced(&data), 0, "{point}");
                segment.remove().unwrap();
            }
        }
    }
}
