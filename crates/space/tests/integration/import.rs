//! The data of a segment outlive the directory of their registry, and can be imported under a name
//! again.

use std::path::PathBuf;

use crate::common::toy::Toy;
use crate::common::{Scene, region};
use mneme_space::{
    Access, Attachment, Backing, Condition, CreateError, Registry, RegistryOptions, Schema, SegVec,
    Segment,
};

use mneme_sys::RegionHeader;

struct Numbers;

impl Schema for Numbers {
    type Root<'s> = SegVec<'s, u64>;
}

fn attach(segment: &Segment) -> Attachment {
    Attachment::new([(segment, Access::ReadWrite)]).unwrap()
}

/// A segment whose root is one number.
fn made(scene: &Scene, backing: Backing) -> (Segment, PathBuf) {
    let builder = scene.registry.segment("s").mode(0o640).backing(backing);
    let segment = builder.create().unwrap();
    attach(&segment)
        .enter(|here| {
            let root = here.create_root::<Numbers>("s", SegVec::new_in).unwrap();
            root.push(7);
        })
        .unwrap();
    let data = segment.info().unwrap().data;
    (segment, data)
}

fn numbers(segment: &Segment) -> Vec<u64> {
    let name = segment.name().to_string();
    let at = attach(segment);
    at.enter(|here| here.root::<Numbers>(&name).unwrap().to_vec())
        .unwrap()
}

/// The registry after its directory was emptied and created again, with other addresses.
fn anew(scene: &Scene) -> Registry {
    std::fs::remove_dir_all(scene.root.join("registry")).unwrap();
    let options = RegistryOptions {
        window_base: 0x3000_0000_0000,
        window_slots: 4,
        shared_directory: Some(scene.root.join("memory")),
    };
    Registry::open_with(scene.root.join("registry"), &options).unwrap()
}

#[test]
fn data_whose_registry_is_gone_are_imported_at_their_address() {
    for on_disk in [false, true] {
        let scene = Scene::new();
        let backing = if on_disk {
            let directory = scene.root.join("disk");
            std::fs::create_dir(&directory).unwrap();
            Backing::File { directory }
        } else {
            Backing::Shared
        };
        let (before, data) = made(&scene, backing);
        let (uuid, base) = (before.uuid(), before.base());
        let registry = anew(&scene);
        // Other tests have importable data beside these.
        let is_listed = || {
            let listed = registry.importable().unwrap();
            listed.iter().any(|file| file.data == data)
        };
        assert_eq!(is_listed(), !on_disk);

        let segment = registry.import_segment(&data, "found", None).unwrap();
        assert_eq!((segment.uuid(), segment.base()), (uuid, base));
        assert_eq!(segment.info().unwrap().mode, 0o640);
        assert_eq!(numbers(&segment), [7]);
        assert!(!data.exists());
        assert!(!is_listed());
        assert_eq!(registry.check().unwrap(), []);
        // An imported segment behaves like others, even at an address outside the registry's
        // window.
        let clone = segment.clone_as("clone").unwrap();
        assert_eq!(numbers(&clone), [7]);
        clone.remove().unwrap();
        segment.remove().unwrap();
    }
}

#[test]
fn a_refused_import_changes_nothing() {
    let scene = Scene::new();
    let (segment, data) = made(&scene, Backing::Shared);
    let at = attach(&segment);
    let refused = |registry: &Registry, name, base| {
        let found = registry.import_segment(&data, name, base).unwrap_err();
        assert!(data.exists(), "{found}");
        found
    };
    assert!(matches!(
        refused(&scene.registry, "t", None),
        CreateError::InUse { .. }
    ));
    drop(at);
    // The registry names it already.
    assert!(matches!(
        refused(&scene.registry, "t", None),
        CreateError::Named { .. }
    ));
    assert_eq!(numbers(&segment), [7]);

    let registry = anew(&scene);
    let wrong = refused(&registry, "t", Some(1 << 40));
    assert!(matches!(wrong, CreateError::OtherBase { .. }));
    let _ = registry.segment("t").create().unwrap();
    let taken = refused(&registry, "t", None);
    assert!(taken.to_string().contains("already"), "{taken}");
    let nothing = scene.root.join("nothing");
    std::fs::write(&nothing, [0; 8192]).unwrap();
    let damaged = registry.import_segment(&nothing, "u", None).unwrap_err();
    assert!(matches!(damaged, CreateError::ImportData(_)), "{damaged}");
    assert_eq!(registry.check().unwrap(), []);
}

/// A header with a valid checksum may contain values that no segment can have.
#[test]
fn an_impossible_greatest_size_is_refused_and_nothing_changed() {
    for size in [0, 3 * 4096 + 1] {
        let scene = Scene::new();
        let (segment, data) = made(&scene, Backing::Shared);
        let mapping = segment.map(Access::ReadWrite).unwrap();
        let mut header = RegionHeader::read_unchecked(region(&mapping)).unwrap();
        header.max_len = size;
        header.committed_len = header.committed_len.min(size);
        header.write(region(&mapping)).unwrap();
        drop((mapping, segment));
        let registry = anew(&scene);
        for _ in 0..2 {
            let refused = registry.import_segment(&data, "s", None).unwrap_err();
            assert!(
                matches!(refused, CreateError::ImportData(_)),
                "{size}: {refused}"
            );
        }
        assert!(data.exists(), "{size}");
        assert_eq!(registry.segments().unwrap(), [], "{size}");
    }
}

/// A segment whose directory was removed by hand leaves data named for its own registry.
#[test]
fn data_of_the_same_registry_are_imported_and_never_removed_by_a_failure() {
    let scene = Scene::new();
    let (_, data) = made(&scene, Backing::Shared);
    let _ = scene.create("taken");
    std::fs::remove_dir_all(scene.registry.root().join("segments/s")).unwrap();
    let refused = scene.registry.import_segment(&data, "taken", None);
    refused.unwrap_err();
    assert!(data.exists());
    let segment = scene.registry.import_segment(&data, "s", None).unwrap();
    assert_eq!(numbers(&segment), [7]);
    assert_eq!(scene.findings(), [""; 0]);
}

/// Data left by a process that was killed while it imported data named for its own registry.
#[test]
fn data_whose_import_was_broken_off_are_found_and_imported() {
    let scene = Scene::new();
    let (_, data) = made(&scene, Backing::Shared);
    std::fs::remove_dir_all(scene.registry.root().join("segments/s")).unwrap();
    let name = data.file_name().unwrap().to_str().unwrap();
    let aside = data.with_file_name(format!("{name}.importing"));
    std::fs::rename(&data, &aside).unwrap();
    // Other processes' data may lie beside these.
    let is_listed = || {
        let listed = scene.registry.importable().unwrap();
        listed.iter().any(|file| file.data == aside)
    };
    assert!(is_listed());
    let found = scene.registry.clean().unwrap();
    assert_eq!((found.len(), found[0].cleaning), (1, None));
    let segment = scene.registry.import_segment(&aside, "s", None).unwrap();
    assert!(!aside.exists());
    assert_eq!(scene.findings(), [""; 0]);

    // Killed later: the segment has its name, and its data have both names.
    std::fs::hard_link(&data, &aside).unwrap();
    assert!(!is_listed());
    assert_eq!(scene.registry.clean().unwrap().len(), 1);
    assert!(!aside.exists());
    assert_eq!(numbers(&segment), [7]);
}

/// The header records the state, which therefore outlives the control file.
#[test]
fn a_segment_that_was_being_changed_is_imported_poisoned() {
    let scene = Scene::new();
    let (segment, data) = made(&scene, Backing::Shared);
    let at = attach(&segment);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = at.enter(|_| panic!("half-way"));
    }));
    assert!(panicked.is_err());
    drop(at);
    let segment = anew(&scene).import_segment(&data, "s", None).unwrap();
    assert_eq!(segment.condition().unwrap(), Condition::Poisoned);
}

#[test]
fn contents_of_another_crate_need_their_control_file() {
    let scene = Scene::new();
    drop(Toy::create(&scene, Backing::Shared).unwrap());
    let data = scene.open("toy").info().unwrap().data;
    let refused = anew(&scene).import_segment(&data, "s", None).unwrap_err();
    assert!(
        matches!(refused, CreateError::ImportContents { .. }),
        "{refused}"
    );
    assert!(data.exists());
}

/// A directory that cannot be listed hides nothing in other directories.
#[test]
fn a_directory_that_cannot_be_listed_is_skipped() {
    let scene = Scene::new();
    let (_, data) = made(&scene, Backing::Shared);
    std::fs::remove_dir_all(scene.registry.root().join("segments/s")).unwrap();
    let memory = scene.root.join("memory");
    std::fs::rename(&memory, scene.root.join("elsewhere")).unwrap();
    std::fs::write(&memory, "no directory").unwrap();
    let listed = scene.registry.importable().unwrap();
    assert!(listed.iter().all(|file| file.data != data));
}
