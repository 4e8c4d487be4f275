//! What everything above relies on: segments outlive their creator, lie at their address, grow
//! under their visitors, and are cloned and removed as a whole.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::{Scene, region};
use mneme_space::{
    Backing, CloneError, CreateError, MapError, Mapping, NameError, OpenError, Registry,
    RemoveError, Segment,
};
use mneme_sys::{Access, FRAME, RegionError, Window, WindowError};

const GIB: usize = 1 << 30;

fn word(mapping: &Mapping, offset: usize) -> &AtomicU64 {
    region(mapping).at(offset as u64).unwrap()
}

fn read(mapping: &Mapping, offset: usize) -> u64 {
    region(mapping).load_u64(offset as u64).unwrap()
}

fn write(segment: &Segment) -> Mapping {
    segment.map(Access::ReadWrite).unwrap()
}

#[test]
fn stored_data_are_found_later_at_the_same_address() {
    let scene = Scene::new();
    let made = scene.create("genome");
    let mapping = write(&made);
    let base = made.base().unwrap();
    assert_eq!(mapping.base().addr(), base);
    assert_eq!(base, scene.registry.window().0);
    word(&mapping, 4096).store(7, Ordering::Relaxed);
    drop((mapping, made));

    let again = Registry::open(scene.registry.root()).unwrap();
    assert_eq!(again.uuid(), scene.registry.uuid());
    let found = Segment::open(&again, "genome").unwrap();
    let mapping = found.map(Access::ReadOnly).unwrap();
    assert_eq!(mapping.base().addr(), base);
    assert_eq!(read(&mapping, 4096), 7);
    assert!(matches!(
        region(&mapping).at::<AtomicU64>(0),
        Err(RegionError::ReadOnly)
    ));
    let names: Vec<_> = again
        .segments()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["genome"]);
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn every_segment_gets_addresses_of_its_own_and_releases_them_when_removed() {
    let scene = Scene::new();
    let start = scene.registry.window().0;
    let place = |name: &str, max: usize| {
        let segment = scene.registry.segment(name).max_size(max).create().unwrap();
        (segment.base().unwrap() - start) / GIB
    };
    assert_eq!(place("a", GIB), 0);
    assert_eq!(place("b", 3 * GIB - FRAME), 1);
    assert_eq!(place("c", FRAME), 4);
    scene.registry.remove_segment("b").unwrap();
    assert_eq!(place("d", 4 * GIB), 5);
    assert_eq!(place("e", 2 * GIB), 1);
    let floating = scene.registry.segment("f").floating().create().unwrap();
    assert_eq!(floating.base(), None);
    assert_eq!(place("g", GIB), 3);
    let full = scene
        .registry
        .segment("h")
        .max_size(60 * GIB)
        .create()
        .unwrap_err();
    assert!(matches!(full, CreateError::NoSlot { slots: 60 }));
    // The paper's explicit base: inside the window, on a slot boundary, even if another segment has
    // it.
    let at = |name: &str, base: usize| scene.registry.segment(name).base(base).create();
    assert_eq!(
        at("i", start + 20 * GIB).unwrap().base(),
        Some(start + 20 * GIB)
    );
    assert_eq!(at("j", start).unwrap().base(), Some(start));
    for wrong in [start + FRAME, start - GIB, start + 64 * GIB, 0] {
        assert!(
            matches!(at("k", wrong), Err(CreateError::Base { .. })),
            "{wrong:#x}"
        );
    }
}

#[test]
fn nothing_is_mapped_twice_and_a_reader_becomes_a_writer_in_place() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let reader = segment.map(Access::ReadOnly).unwrap();
    let other = scene.open("s").map(Access::ReadOnly).unwrap();
    assert!(std::ptr::eq(region(&reader), region(&other)));
    let writer = write(&scene.open("s"));
    assert!(std::ptr::eq(region(&reader), region(&writer)));
    word(&reader, 4096).store(1, Ordering::Relaxed);
    // In use, and so not removed.
    drop((reader, other));
    assert!(matches!(
        segment.clone().remove(),
        Err(RemoveError::InUse { .. })
    ));
    drop(writer);
    // That was the last mapping, and its address is free again.
    drop(write(&segment));
    segment.remove().unwrap();
    assert!(scene.files("memory").is_empty());
}

#[test]
fn two_segments_of_one_address_are_not_mapped_at_a_time() {
    let scene = Scene::new();
    let original = scene.create("original");
    let copy = original.clone_as("copy").unwrap();
    assert_eq!(original.base(), copy.base());
    let mapping = write(&original);
    let refused = copy.map(Access::ReadOnly).unwrap_err();
    assert!(matches!(refused, MapError::Occupied { by, .. } if by == original.uuid()));
    drop(mapping);
    copy.map(Access::ReadOnly).unwrap();
}

#[test]
fn mapping_and_unmapping_by_many_threads_ends_with_nothing_mapped() {
    let scene = Scene::new();
    let original = scene.create("original");
    let copy = original.clone_as("copy").unwrap();
    std::thread::scope(|scope| {
        for i in 0..4 {
            let segment = if i % 2 == 0 { &original } else { &copy };
            scope.spawn(move || {
                for _ in 0..50 {
                    match segment.map(Access::ReadWrite) {
                        Ok(mapping) => drop(word(&mapping, 4096).fetch_add(1, Ordering::Relaxed)),
                        Err(MapError::Occupied { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    });
    original.remove().unwrap();
    copy.remove().unwrap();
}

#[test]
fn growth_is_followed_by_others_and_recorded() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let mapping = write(&segment);
    // Without its mapping, as another process would.
    assert_eq!(segment.grow(3 * FRAME).unwrap(), 3 * FRAME);
    assert_eq!(mapping.len(), FRAME);
    assert_eq!(mapping.refresh().unwrap(), 3 * FRAME);
    word(&mapping, 3 * FRAME - 8).store(1, Ordering::Relaxed);
    assert_eq!(mapping.grow(4 * FRAME + 1).unwrap(), 5 * FRAME);
    assert_eq!(segment.info().unwrap().size, 5 * FRAME);
    let beyond = segment.grow(GIB + 1).unwrap_err();
    assert!(matches!(
        beyond,
        MapError::Grow(RegionError::BeyondMax { .. })
    ));
    assert_eq!(segment.grow(1).unwrap(), 5 * FRAME, "it never shrinks");
}

#[test]
fn a_clone_has_the_originals_content_and_not_its_later_changes() {
    let scene = Scene::new();
    let original = scene
        .registry
        .segment("a")
        .size(3 * FRAME)
        .mode(0o640)
        .create()
        .unwrap();
    let mapping = write(&original);
    word(&mapping, 4096).store(1, Ordering::Relaxed);
    word(&mapping, 3 * FRAME - 8).store(2, Ordering::Relaxed);
    let copy = original.clone_as("b").unwrap();
    word(&mapping, 4096).store(9, Ordering::Relaxed);
    drop(mapping);
    assert_ne!(copy.uuid(), original.uuid());
    let info = copy.info().unwrap();
    assert_eq!(
        info,
        mneme_space::SegmentInfo {
            data: info.data.clone(),
            cloned_from: Some(original.uuid()),
            ..original.info().unwrap()
        }
    );
    let theirs = write(&copy);
    assert_eq!(read(&theirs, 4096), 1);
    assert_eq!(read(&theirs, 3 * FRAME - 8), 2);
    let taken = original.clone_as("b").unwrap_err();
    assert!(matches!(
        taken,
        CloneError::Create(CreateError::Exists { .. })
    ));
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn permissions_are_those_of_files_and_follow_a_change() {
    let scene = Scene::new();
    let segment = scene.registry.segment("s").mode(0o640).create().unwrap();
    let modes = |segment: &Segment| {
        let here = scene.registry.root().join("segments/s");
        let data = segment.info().unwrap().data;
        [here.clone(), here.join("meta"), here.join("control"), data]
            .map(|path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777)
    };
    assert_eq!(modes(&segment), [0o750, 0o640, 0o660, 0o640]);
    segment.set_mode(0o666).unwrap();
    assert_eq!(modes(&segment), [0o755, 0o644, 0o666, 0o666]);
    assert_eq!(segment.info().unwrap().mode, 0o666);
    segment.set_mode(0o600).unwrap();
    assert_eq!(modes(&segment), [0o700, 0o600, 0o600, 0o600]);
}

#[test]
fn names_cannot_lead_out_of_the_registry() {
    let scene = Scene::new();
    let long = "x".repeat(300);
    for name in ["", "a/b", "../x", ".", "..", "a\0b", long.as_str()] {
        let made = scene.registry.segment(name).create();
        assert!(matches!(made, Err(CreateError::Name(_))), "{name}");
        let opened = Segment::open(&scene.registry, name);
        assert!(matches!(opened, Err(OpenError::Name(_))), "{name}");
        let removed = scene.registry.remove_segment(name);
        assert!(matches!(removed, Err(RemoveError::Name(_))), "{name}");
    }
    let long = Segment::open(&scene.registry, &long).unwrap_err();
    assert!(matches!(
        long,
        OpenError::Name(NameError::TooLong { len: 300, .. })
    ));
    scene.create(&"x".repeat(200));
    let missing = Segment::open(&scene.registry, "nobody").unwrap_err();
    assert!(matches!(missing, OpenError::NotFound { .. }));
    let missing = scene.registry.remove_segment("nobody").unwrap_err();
    assert!(matches!(missing, RemoveError::NotFound { .. }));
}

#[test]
fn impossible_sizes_are_refused() {
    let scene = Scene::new();
    let build = |size, max| {
        scene
            .registry
            .segment("s")
            .size(size)
            .max_size(max)
            .create()
    };
    for (size, max) in [
        (0, 0),
        (0, GIB),
        (2 * GIB, GIB),
        (1, (1 << 46) + 1),
        (usize::MAX, 0),
        (1, usize::MAX),
    ] {
        let refused = build(size, max).unwrap_err();
        assert!(
            matches!(refused, CreateError::Size { .. }),
            "{size} {max}: {refused}"
        );
    }
    assert!(scene.files("registry/making").is_empty());
}

#[test]
fn one_of_two_creators_of_a_name_wins_and_the_other_leaves_nothing() {
    let scene = Scene::new();
    for round in 0..10 {
        let name = format!("s{round}");
        let won: usize = std::thread::scope(|scope| {
            let make = || match scene.registry.segment(&name).create() {
                Ok(_) => 1,
                Err(CreateError::Exists { .. }) => 0,
                Err(other) => panic!("{other}"),
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
    }
    assert_eq!(scene.files("memory").len(), 10);
    assert!(scene.files("registry/making").is_empty());
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn a_file_backs_a_segment_and_a_missing_backing_is_reported() {
    let scene = Scene::new();
    let directory = std::env::temp_dir().join(format!("mneme-space-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = Backing::File {
        directory: directory.clone(),
    };
    let segment = scene
        .registry
        .segment("f")
        .backing(file.clone())
        .create()
        .unwrap();
    word(&write(&segment), 4096).store(5, Ordering::Relaxed);
    let copy = segment.clone_as("g").unwrap();
    assert_eq!(read(&copy.map(Access::ReadOnly).unwrap(), 4096), 5);
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
    // There is no persistent memory there.
    let dax = Backing::Dax {
        directory: directory.clone(),
    };
    let refused = scene
        .registry
        .segment("d")
        .backing(dax)
        .create()
        .unwrap_err();
    assert!(
        matches!(&refused, CreateError::Backing { why } if why.contains("dax")),
        "{refused}"
    );
    // Huge pages, or an error that says what to do.
    match scene.registry.segment("h").backing(Backing::Huge).create() {
        Ok(huge) => huge.remove().unwrap(),
        Err(CreateError::Backing { why }) => assert!(why.contains("nr_hugepages"), "{why}"),
        Err(other) => panic!("{other}"),
    }
    let nowhere = Backing::File {
        directory: directory.join("nowhere"),
    };
    let refused = scene
        .registry
        .segment("n")
        .backing(nowhere)
        .create()
        .unwrap_err();
    assert!(matches!(refused, CreateError::File(_)), "{refused}");
    segment.remove().unwrap();
    copy.remove().unwrap();
    assert_eq!(
        std::fs::read_dir(&directory).unwrap().count(),
        0,
        "everything is gone"
    );
    std::fs::remove_dir(directory).unwrap();
    assert_eq!(scene.findings(), Vec::<String>::new());
}

/// A foreign mapping in the registry's window takes only its own addresses.
#[test]
fn a_window_that_is_partly_in_use_is_reserved_by_slots() {
    let scene = Scene::new();
    let (start, _) = scene.registry.window();
    let foreign = Window::reserve(start + 3 * GIB, 2 << 20).unwrap();
    for name in ["a", "b"] {
        scene.create(name).map(Access::ReadWrite).unwrap();
    }
    let there = scene.registry.segment("c").base(start + 3 * GIB);
    let there = there.create().unwrap();
    let refused = there.map(Access::ReadWrite).unwrap_err();
    let conflict = |e: &MapError| matches!(e, MapError::Window(WindowError::Conflict { .. }));
    assert!(conflict(&refused), "{refused}");
    drop(foreign);
    there.map(Access::ReadWrite).unwrap();
}

/// A mode that allows reading but not writing gives access to the segment's lock to users who are
/// not trusted with its contents.
#[test]
fn a_mode_that_lets_readers_break_writers_is_reported() {
    let scene = Scene::new();
    let segment = scene.create("s");
    for (mode, expected) in [
        (0o600, false),
        (0o660, false),
        (0o666, false),
        (0o444, false),
        (0o640, true),
        (0o644, true),
        (0o664, true),
    ] {
        segment.set_mode(mode).unwrap();
        let info = segment.info().unwrap();
        assert_eq!(info.readers_could_break_writers(), expected, "{mode:o}");
    }
}
