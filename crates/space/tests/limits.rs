//! What happens if the machine or its administrator refuses memory, permissions or the registry's
//! lock.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use common::Scene;
use mneme_space::{
    Attachment, CreateError, DescriptionError, EnterError, FileError, MapError, OpenError,
    Registry, RegistryError, RegistryOptions, RemoveError, Schema, SegVec, Segment, Space,
    SpaceError,
};
use mneme_sys::{Access, FRAME, Liveness, OfdLiveness, RegionError};
use mneme_testkit::{Mount, NOBODY, runs_as_nobody};

#[test]
fn a_lack_of_memory_is_an_error_of_creation_growth_and_cloning_and_never_a_signal() {
    let scene = Scene::new();
    let memory = scene.root.join("memory");
    let Some(_mount) = Mount::tmpfs(&memory, "8m") else {
        return;
    };
    let too_large = scene.registry.segment("large").size(16 << 20).create();
    let no_space = |e: &CreateError| {
        matches!(
            e,
            CreateError::Data {
                source: RegionError::NoSpace { .. },
                ..
            }
        )
    };
    assert!(too_large.is_err_and(|e| no_space(&e)));
    assert!(scene.files("memory").is_empty() && scene.files("registry/making").is_empty());

    let segment = scene
        .registry
        .segment("s")
        .size(2 * FRAME)
        .create()
        .unwrap();
    let mapping = segment.map(Access::ReadWrite).unwrap();
    let full = mapping.grow(16 << 20).unwrap_err();
    assert!(
        matches!(full, MapError::Grow(RegionError::NoSpace { .. })),
        "{full}"
    );
    let full = segment.grow(16 << 20).unwrap_err();
    assert!(
        matches!(full, MapError::Grow(RegionError::NoSpace { .. })),
        "{full}"
    );
    // The committed size is unchanged, and what fits can be allocated.
    assert_eq!(segment.info().unwrap().size, 2 * FRAME);
    assert_eq!(mapping.grow(3 * FRAME).unwrap(), 3 * FRAME);
    let refused = segment.clone_as("t").unwrap_err();
    assert!(
        matches!(&refused, mneme_space::CloneError::Create(e) if no_space(e)),
        "{refused:?}"
    );
    assert_eq!(scene.files("memory").len(), 1);
    assert_eq!(scene.findings(), Vec::<String>::new());
    drop(mapping);
    segment.remove().unwrap();
}

#[test]
fn a_space_without_free_space_for_its_files_does_not_exist() {
    let scene = Scene::new();
    let _ = scene.registry.space("before").create().unwrap();
    let making = scene.registry.root().join("making");
    for size in ["4k", "64k", "1m"] {
        let Some(_mount) = Mount::tmpfs(&making, size) else {
            return;
        };
        let refused = scene.registry.space("w").create().unwrap_err();
        let is_out_of_space = matches!(refused, SpaceError::File(_) | SpaceError::MakeControl(_));
        assert!(is_out_of_space, "{size}: {refused}");
        assert!(scene.files("registry/making").is_empty(), "{size}");
        assert_eq!(scene.files("registry/spaces").len(), 4, "{size}");
    }
    let _ = scene.registry.space("w").create().unwrap();
}

#[test]
fn huge_pages_come_from_a_tmpfs_that_promises_them() {
    let scene = Scene::new();
    let memory = scene.root.join("memory");
    let Some(_mount) = Mount::tmpfs(&memory, "16m,huge=advise") else {
        return;
    };
    let huge = mneme_space::Backing::Huge;
    let segment = scene.registry.segment("s").backing(huge).create().unwrap();
    segment.map(Access::ReadWrite).unwrap();
    segment.remove().unwrap();
}

struct Numbers;

impl Schema for Numbers {
    type Root<'s> = SegVec<'s, u64>;
}

#[test]
fn huge_pages_come_from_the_pool_and_are_returned_to_it() {
    let scene = Scene::new();
    let pool = mneme_sys::huge_pool_free();
    let directory = scene.root.join("pool");
    fs::create_dir(&directory).unwrap();
    let mount = (pool >= 32 * FRAME).then(|| Mount::of("hugetlbfs", &directory, "pagesize=2M"));
    let Some(_mount) = mount.flatten() else {
        eprintln!(
            "skipped: no 32 huge pages are free (`sysctl vm.nr_hugepages`), or no hugetlbfs can be mounted"
        );
        return;
    };
    let huge = mneme_space::Backing::Huge;
    let made = scene.registry.segment("s").size(2 * FRAME).backing(huge);
    let segment = made.create().unwrap();
    // Allocated now, not when it is touched: otherwise there would be a signal.
    let taken = |pages: usize| assert_eq!(mneme_sys::huge_pool_free(), pool - pages * FRAME);
    taken(2);
    let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
    at.enter(|here| {
        let numbers = here.create_root::<Numbers>("s", SegVec::new_in).unwrap();
        // It grows.
        numbers.extend((0..FRAME as u64 / 4).map(|n| n * n));
    })
    .unwrap();
    let size = segment.info().unwrap().size;
    assert!(size > 2 * FRAME);
    taken(size / FRAME);
    // It cannot grow beyond the pool, and the error says so.
    let full = segment.grow(pool + FRAME).unwrap_err();
    let no_memory = |e: &RegionError| {
        matches!(
            e,
            RegionError::NoSpace { .. } | RegionError::NoMemory { .. }
        )
    };
    assert!(matches!(&full, MapError::Grow(e) if no_memory(e)), "{full}");
    taken(size / FRAME);
    let copy = segment.clone_as("t").unwrap();
    taken(2 * size / FRAME);
    drop(at);
    let at = Attachment::new([(&copy, Access::ReadOnly)]).unwrap();
    let last = at.read(|here| *here.root::<Numbers>("t").unwrap().last().unwrap());
    let n = FRAME as u64 / 4 - 1;
    assert_eq!(last.unwrap(), n * n);
    // Both claim the same address.
    let first = Attachment::new([(&segment, Access::ReadOnly)]).unwrap();
    match first.read(|here| here.root::<Numbers>("s").unwrap().len()) {
        Ok(len) => assert_eq!(len as u64, n + 1),
        // Such mappings cannot be moved.
        Err(EnterError::Map(refused)) => eprintln!("beside its clone: {refused:?}"),
        Err(other) => panic!("{other}"),
    }
    drop((at, first));
    assert_eq!(scene.findings(), Vec::<String>::new());
    segment.remove().unwrap();
    copy.remove().unwrap();
    taken(0);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_registry_lock_that_is_never_released_is_reported() {
    let scene = Scene::new();
    let lock = scene.registry.root().join("lock");
    let stopped = OfdLiveness::open(&lock, 0).unwrap();
    stopped.claim(0).unwrap();
    let refused = scene.registry.segment("s").create().unwrap_err();
    let named = matches!(&refused, CreateError::Registry(RegistryError::Locked { path, .. }) if *path == lock);
    assert!(named, "{refused}");
    drop(stopped);
    let _ = scene.create("s");
}

const CHILD: &str = "MNEME_SPACE_NOBODY";

#[test]
fn another_user_gets_what_the_permissions_allow_and_errors_that_name_the_file() {
    if mneme_sys::files::user() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let scene = Scene::new();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    open(&scene.root);
    for part in ["", "segments", "spaces", "making", "dying"] {
        open(&scene.registry.root().join(part));
    }
    open(&scene.root.join("memory"));
    let registry = scene.registry.root().join("registry");
    fs::set_permissions(registry, fs::Permissions::from_mode(0o644)).unwrap();
    for (name, mode) in [
        ("private", 0o600),
        ("readable", 0o644),
        ("common", 0o666),
        ("locked", 0o644),
    ] {
        let _ = scene.registry.segment(name).mode(mode).create().unwrap();
    }
    for (name, mode) in [("unseen", 0o600), ("seen", 0o644), ("changed", 0o666)] {
        let space = scene.registry.space(name).mode(mode).create().unwrap();
        space.add(&scene.open("common"), Access::ReadOnly).unwrap();
    }
    let control = scene.registry.root().join("spaces/onlooker/control");
    let onlooker = scene.registry.space("onlooker").mode(0o644);
    let _ = onlooker.create().unwrap();
    fs::set_permissions(control, fs::Permissions::from_mode(0o644)).unwrap();
    let control = scene.registry.root().join("segments/locked/control");
    fs::set_permissions(control, fs::Permissions::from_mode(0o600)).unwrap();
    if !runs_as_nobody("nobody", [(CHILD, scene.registry.root())]) {
        return;
    }
    // What another user wrote belongs to the space, whose owner may change it.
    let changed = scene.space("changed");
    assert_eq!(changed.members().unwrap().len(), 2);
    changed.set_mode(0o600).unwrap();
    changed.remove_segment("readable").unwrap();
    assert_eq!(changed.info().unwrap().mode, 0o600);
}

/// A group's registry: its directory has the group and the setgid bit, and so has everything
/// created in it, including data that lie in a directory of their creator.
#[test]
fn segments_of_a_groups_registry_belong_to_the_group() {
    if mneme_sys::files::user() != 0 {
        eprintln!("skipped: only root has more than one group for certain");
        return;
    }
    let scene = Scene::new();
    let root = scene.root.join("common");
    fs::create_dir(&root).unwrap();
    std::os::unix::fs::chown(&root, None, Some(NOBODY)).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o2770)).unwrap();
    let options = RegistryOptions {
        shared_directory: Some(scene.root.join("memory")),
        ..RegistryOptions::default()
    };
    let registry = Registry::open_with(&root, &options).unwrap();
    let segment = registry.segment("common").mode(0o640).create().unwrap();
    let here = root.join("segments/common");
    for file in ["", "meta", "control", "data"] {
        let found = fs::metadata(here.join(file)).unwrap();
        assert_eq!(found.gid(), NOBODY, "{file}");
    }
    segment.remove().unwrap();
}

#[test]
fn nobody() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    assert_eq!(mneme_sys::files::user(), NOBODY);
    let registry = Registry::open(&root).unwrap();
    let open = |name| Segment::open(&registry, name);
    let denied = |e: &FileError, path: &str| {
        assert!(e.path.ends_with(path), "{e}");
        assert_eq!(e.source.kind(), ErrorKind::PermissionDenied, "{e}");
    };
    match open("private").unwrap_err() {
        OpenError::Description(DescriptionError::File(e)) => denied(&e, "segments/private/meta"),
        other => panic!("{other}"),
    }
    // Readers participate, and write only to `control`.
    let readable = open("readable").unwrap();
    let reader = readable.map(Access::ReadOnly).unwrap();
    let refused = readable.map(Access::ReadWrite).unwrap_err();
    assert!(matches!(refused, MapError::NotWritable { .. }), "{refused}");
    drop(reader);
    let refused = readable.map(Access::ReadWrite).unwrap_err();
    assert!(matches!(refused, MapError::NotWritable { .. }), "{refused}");
    denied(
        &readable.set_mode(0o666).unwrap_err(),
        readable.info().unwrap().data.to_str().unwrap(),
    );
    match readable.grow(2 * FRAME).unwrap_err() {
        MapError::Open(OpenError::File(e)) => denied(&e, ""),
        other => panic!("{other}"),
    }
    open("common").unwrap().map(Access::ReadWrite).unwrap();
    match open("locked").unwrap().map(Access::ReadOnly).unwrap_err() {
        MapError::File(e) => denied(&e, "segments/locked/control"),
        other => panic!("{other}"),
    }
    match Space::open(&registry, "unseen").unwrap_err() {
        SpaceError::Description(DescriptionError::File(e)) => denied(&e, "spaces/unseen/meta"),
        other => panic!("{other}"),
    }
    let seen = Space::open(&registry, "seen").unwrap();
    drop(seen.attach().unwrap());
    match seen.remove_segment("common").unwrap_err() {
        SpaceError::Registry(RegistryError::Lock { path, .. }) => {
            assert!(path.ends_with("spaces/seen/lock"));
        }
        other => panic!("{other}"),
    }
    match seen.clone_as("mine").unwrap_err() {
        SpaceError::Registry(_) => {}
        other => panic!("{other}"),
    }
    let changed = Space::open(&registry, "changed").unwrap();
    changed.add(&readable, Access::ReadOnly).unwrap();
    match changed.set_mode(0o644).unwrap_err() {
        SpaceError::File(e) => denied(&e, "spaces/changed/control"),
        other => panic!("{other}"),
    }
    // A user who may not write the control file may read the space but cannot participate.
    let onlooker = Space::open(&registry, "onlooker").unwrap();
    drop(onlooker.attach().unwrap());
    // The registry itself belongs to somebody else.
    let refused = registry.segment("mine").create().unwrap_err();
    assert!(matches!(refused, CreateError::Registry(_)), "{refused}");
    match registry.remove_segment("common").unwrap_err() {
        RemoveError::File(e) => denied(&e, "segments/common"),
        other => panic!("{other}"),
    }
}
