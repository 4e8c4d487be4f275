//! Real processes die at every fault point of every operation on the registry. Whatever they were
//! doing, cleaning removes everything that is left, everything that has a name is complete, and the
//! next process can do the same under the same name.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::toy::Toy;
use crate::common::{Scene, is_of_sections, region};
use mneme_space::{
    Backing, Condition, OpenError, Registry, RemoveError, Segment, Space, SpaceError,
};
use mneme_sys::fault::{self, Action};
use mneme_sys::{Access, FRAME};
use mneme_testkit::is_killed;

const CHILD: &str = "MNEME_SPACE_DEATH";

/// The operation during which a process dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operation {
    OpenRegistry,
    Create,
    /// Here only the description records which file was being created.
    CreateOnDisk,
    /// Creates a segment whose contents the test lays out itself.
    LayOut,
    LayOutOnDisk,
    Grow,
    Share,
    Clone,
    Remove,
    Clean,
    Mend,
    Restore,
    /// Imports data that another registry created.
    Import,
    CreateSpace,
    Join,
    ShareSpace,
    CloneSpace,
    RemoveSpace,
    MendSpace,
}

const ALL: [Operation; 19] = [
    Operation::OpenRegistry,
    Operation::Create,
    Operation::CreateOnDisk,
    Operation::LayOut,
    Operation::LayOutOnDisk,
    Operation::Grow,
    Operation::Share,
    Operation::Clone,
    Operation::Remove,
    Operation::Clean,
    Operation::Mend,
    Operation::Restore,
    Operation::Import,
    Operation::CreateSpace,
    Operation::Join,
    Operation::ShareSpace,
    Operation::CloneSpace,
    Operation::RemoveSpace,
    Operation::MendSpace,
];

/// The data of a scene's other registry, whose identity is known only from the file's name.
fn foreign(scene: &Scene) -> PathBuf {
    scene.root.join(format!(
        "memory/{}-{}.segment",
        "1".repeat(32),
        "2".repeat(32)
    ))
}

impl Operation {
    /// Creates what the operation needs.
    fn prepare(self, scene: &Scene) {
        match self {
            Self::OpenRegistry => {
                std::fs::remove_dir_all(scene.root.join("registry")).unwrap();
            }
            Self::Create | Self::CreateOnDisk | Self::LayOut | Self::LayOutOnDisk => {}
            Self::Clean => {
                // An interrupted removal that has everything to remove.
                let _ = scene.create("s");
                let dying = scene.registry.root().join("dying/1");
                std::fs::rename(scene.registry.root().join("segments/s"), dying).unwrap();
            }
            _ => {
                let segment = scene.create("s");
                let mapping = segment.map(Access::ReadWrite).unwrap();
                let word: &AtomicU64 = region(&mapping).at(4096).unwrap();
                word.store(7, Ordering::Relaxed);
                if self == Self::Mend {
                    let control = scene.registry.root().join("segments/s/control");
                    std::fs::remove_file(control).unwrap();
                }
                if self == Self::Restore {
                    let _ = segment.clone_as("t").unwrap();
                    word.store(8, Ordering::Relaxed);
                }
                if self == Self::Import {
                    drop(mapping);
                    std::fs::rename(&segment.info().unwrap().data, foreign(scene)).unwrap();
                    std::fs::remove_dir_all(segment.directory()).unwrap();
                }
                if self.is_of_spaces() && self != Self::CreateSpace {
                    let space = scene.registry.space("w").create().unwrap();
                    if self != Self::Join {
                        space.add(&segment, Access::ReadWrite).unwrap();
                    }
                    if self == Self::MendSpace {
                        std::fs::write(space.directory().join("control"), [7; 4096]).unwrap();
                    }
                }
            }
        }
    }

    fn is_of_spaces(self) -> bool {
        matches!(
            self,
            Self::CreateSpace
                | Self::Join
                | Self::ShareSpace
                | Self::CloneSpace
                | Self::RemoveSpace
                | Self::MendSpace
        )
    }

    fn perform(self, root: PathBuf) {
        // A process has one scene, so any window will do.
        let scene = Scene::at(root, 0);
        match self {
            Self::OpenRegistry => {}
            Self::Create => drop(scene.create("s")),
            Self::CreateOnDisk => {
                let directory = scene.root.join("disk");
                let file = Backing::File { directory };
                scene.registry.segment("s").backing(file).create().unwrap();
            }
            Self::LayOut => drop(Toy::create(&scene, Backing::Shared).unwrap()),
            Self::LayOutOnDisk => {
                let directory = scene.root.join("disk");
                drop(Toy::create(&scene, Backing::File { directory }).unwrap());
            }
            Self::Grow => drop(scene.open("s").grow(3 * FRAME).unwrap()),
            Self::Share => scene.open("s").set_mode(0o666).unwrap(),
            Self::Clone => drop(scene.open("s").clone_as("t").unwrap()),
            Self::Remove => scene.open("s").remove().unwrap(),
            Self::Clean | Self::Mend | Self::MendSpace => drop(scene.registry.clean().unwrap()),
            Self::Restore => scene.open("s").restore_from(&scene.open("t")).unwrap(),
            Self::Import => {
                let data = foreign(&scene);
                drop(scene.registry.import_segment(&data, "s", None).unwrap());
            }
            Self::CreateSpace => drop(scene.registry.space("w").create().unwrap()),
            Self::Join => scene
                .space("w")
                .add(&scene.open("s"), Access::ReadWrite)
                .unwrap(),
            Self::ShareSpace => scene.space("w").set_mode(0o666).unwrap(),
            Self::CloneSpace => drop(scene.space("w").clone_as("v").unwrap()),
            Self::RemoveSpace => scene.space("w").remove().unwrap(),
        }
        std::mem::forget(scene);
    }
}

/// A scene whose registry has the window that the children use.
fn scene(number: usize) -> Scene {
    let root = format!("/dev/shm/mneme-space-death-{}-{number}", std::process::id());
    for part in ["memory", "disk"] {
        std::fs::create_dir_all(format!("{root}/{part}")).unwrap();
    }
    Scene::at(root.into(), 0)
}

/// Runs an operation in a process that dies at the `nth` passing of a fault point; returns whether
/// it died.
fn dies(operation: Operation, scene: &Scene, point: &str, nth: u64) -> bool {
    let index = ALL.iter().position(|other| *other == operation).unwrap();
    let order = format!("{index} {point} {nth} {}", scene.root.display());
    is_killed("deaths::child", [(CHILD, order)])
}

#[test]
fn child() {
    let Ok(order) = std::env::var(CHILD) else {
        return;
    };
    let mut words = order.splitn(4, ' ');
    let operation = ALL[words.next().unwrap().parse::<usize>().unwrap()];
    let point = words.next().unwrap();
    let nth = words.next().unwrap().parse().unwrap();
    fault::arm(point, Action::Kill, nth);
    operation.perform(words.next().unwrap().into());
}

/// Checks what the next process finds after the death.
fn afterwards(operation: Operation, scene: &Scene, context: &str) {
    // The same registry, opened again (and created, if its creation was interrupted).
    let scene_after = Scene::at(scene.root.clone(), 0);
    let registry = scene_after.registry.clone();
    std::mem::forget(scene_after);
    for finding in registry.check().unwrap() {
        assert!(finding.cleaning.is_some(), "{context}: {finding}");
    }
    registry.clean().unwrap();
    assert_eq!(registry.check().unwrap(), [], "{context}");
    nothing_lies_there_without_a_name(scene, &registry, context);
    assert_named_segments_are_whole(operation, &registry, context);
    perform_again(operation, scene, &registry, context);
}

fn nothing_lies_there_without_a_name(scene: &Scene, registry: &Registry, context: &str) {
    let names = registry.segments().unwrap();
    let data = [scene.files("memory"), scene.files("disk")].concat();
    let own = data.iter().filter(|file| **file != foreign(scene));
    assert_eq!(own.count(), names.len(), "{context}");
    for part in ["registry/making", "registry/dying"] {
        assert_eq!(scene.files(part), Vec::<PathBuf>::new(), "{context}");
    }
}

fn assert_named_segments_are_whole(operation: Operation, registry: &Registry, context: &str) {
    for name in registry.segments().unwrap() {
        let segment = Segment::open(registry, name.as_str()).unwrap();
        if segment.contents().is_some() {
            let toy = Toy::open(&segment, Access::ReadWrite).unwrap();
            assert_eq!(toy.word(), 7, "{context}");
            continue;
        }
        let size = segment.info().unwrap().size;
        let mapping = segment.map(Access::ReadWrite).unwrap();
        assert_eq!(mapping.len() % FRAME, 0, "{context}");
        assert!(mapping.len() >= size, "{context}");
        let fresh = matches!(operation, Operation::Create | Operation::CreateOnDisk);
        // The segment to be restored is either poisoned, or has its old or its new content.
        let poisoned = segment.condition().unwrap() == Condition::Poisoned;
        let untouched =
            operation == Operation::Restore && region(&mapping).load_u64(4096).unwrap() == 8;
        if !(fresh || poisoned || untouched) {
            assert_eq!(
                region(&mapping).load_u64(4096).unwrap(),
                7,
                "{context}: {name}"
            );
        }
    }
    for name in registry.spaces().unwrap() {
        let space = Space::open(registry, name.as_str()).unwrap();
        assert!(space.members().unwrap().len() <= 1, "{context}");
        // A lock protects it, and its members are those of the description.
        space.attach().unwrap();
    }
}

/// Checks that the operation succeeds now, whatever happened to the first attempt.
fn perform_again(operation: Operation, scene: &Scene, registry: &Registry, context: &str) {
    let open = |name: &str| Segment::open(registry, name);
    match operation {
        Operation::OpenRegistry
        | Operation::Create
        | Operation::CreateOnDisk
        | Operation::Remove
        | Operation::Clean => {
            match open("s") {
                Ok(segment) => segment.remove().unwrap(),
                Err(OpenError::NotFound { .. }) => {}
                Err(other) => panic!("{context}: {other}"),
            }
            let again = registry.segment("s").create().unwrap();
            assert_eq!(
                again.base(),
                Some(registry.window().0),
                "{context}: addresses are lost"
            );
        }
        Operation::LayOut | Operation::LayOutOnDisk => {
            match registry.remove_segment("toy") {
                Ok(()) | Err(RemoveError::NotFound { .. }) => {}
                Err(other) => panic!("{context}: {other}"),
            }
            Toy::create(scene, Backing::Shared).unwrap();
        }
        Operation::Mend => assert!(open("s").unwrap().info().unwrap().poisoned, "{context}"),
        Operation::Grow => {
            let segment = open("s").unwrap();
            assert_eq!(segment.grow(4 * FRAME).unwrap(), 4 * FRAME, "{context}");
        }
        Operation::Share => {
            open("s").unwrap().set_mode(0o644).unwrap();
        }
        Operation::Clone => {
            if let Ok(copy) = open("t") {
                copy.remove().unwrap();
            }
            open("s").unwrap().clone_as("t").unwrap();
        }
        Operation::Restore => {
            let (segment, clone) = (open("s").unwrap(), open("t").unwrap());
            segment.restore_from(&clone).unwrap();
            assert_eq!(segment.condition().unwrap(), Condition::Whole, "{context}");
            let mapping = segment.map(Access::ReadOnly).unwrap();
            assert_eq!(region(&mapping).load_u64(4096).unwrap(), 7, "{context}");
        }
        Operation::Import => {
            // The data exist under one name or the other.
            if registry.segments().unwrap().is_empty() {
                let data = foreign(scene);
                let segment = registry.import_segment(&data, "s", None).unwrap();
                let mapping = segment.map(Access::ReadOnly).unwrap();
                assert_eq!(region(&mapping).load_u64(4096).unwrap(), 7, "{context}");
            }
            open("s").unwrap().remove().unwrap();
        }
        Operation::CreateSpace
        | Operation::RemoveSpace
        | Operation::Join
        | Operation::ShareSpace
        | Operation::CloneSpace
        | Operation::MendSpace => perform_on_space_again(operation, registry, context),
    }
}

fn perform_on_space_again(operation: Operation, registry: &Registry, context: &str) {
    let space = |name: &str| Space::open(registry, name).unwrap();
    match operation {
        Operation::CreateSpace | Operation::RemoveSpace => {
            match registry.remove_space("w") {
                Ok(()) | Err(SpaceError::NotFound { .. }) => {}
                Err(other) => panic!("{context}: {other}"),
            }
            let _ = registry.space("w").create().unwrap();
        }
        Operation::Join => {
            let space = space("w");
            if space.members().unwrap().is_empty() {
                let segment = Segment::open(registry, "s").unwrap();
                space.add(&segment, Access::ReadWrite).unwrap();
            }
            assert_eq!(space.info().unwrap().version, 2, "{context}");
        }
        Operation::ShareSpace => {
            space("w").set_mode(0o640).unwrap();
            assert_eq!(space("w").info().unwrap().mode, 0o640, "{context}");
        }
        Operation::CloneSpace => {
            if let Ok(copy) = Space::open(registry, "v") {
                copy.remove().unwrap();
            }
            let copy = space("w").clone_as("v").unwrap();
            assert_eq!(copy.members().unwrap().len(), 1, "{context}");
        }
        Operation::MendSpace => space("w").remove_segment("s").unwrap(),
        other => unreachable!("{other:?} is of no space"),
    }
}

#[test]
fn a_death_at_any_fault_point_leaks_nothing_and_leaves_nothing_incomplete_under_a_name() {
    if std::env::var_os(CHILD).is_some() {
        return;
    }
    let mut passed_ever = BTreeSet::new();
    let mut number = 0;
    for operation in ALL {
        // Finds the fault points on the way, and how often they are passed.
        let census = scene(number);
        number += 1;
        operation.prepare(&census);
        let root = census.root.clone();
        let passed = std::thread::spawn(move || {
            // From here on they are counted.
            fault::passed();
            operation.perform(root);
            fault::passed()
        });
        let passed = passed.join().unwrap();
        drop(census);
        assert!(!passed.is_empty(), "{operation:?}");
        for (point, times) in passed {
            passed_ever.insert(point.to_owned());
            for nth in 1..=times.min(3) {
                let scene = scene(number);
                number += 1;
                operation.prepare(&scene);
                let context = format!("{operation:?} killed at passing {nth} of {point}");
                assert!(dies(operation, &scene, point, nth), "{context}: it lived");
                afterwards(operation, &scene, &context);
            }
        }
    }
    let named = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    // Covered by other tests: `lock_takeover`, `attach`, `calls`, `durable`, `laid_out`.
    let elsewhere = [
        "space.call.",
        "space.serve.",
        "space.reside.",
        "space.sync.",
        "space.writers.",
    ];
    let of_registry = |name: &&String| {
        let mut elsewhere = elsewhere.iter();
        !is_of_sections(name) && !elsewhere.any(|group| name.starts_with(group))
    };
    let unproved: Vec<_> = named
        .iter()
        .filter(of_registry)
        .filter(|name| !passed_ever.contains(*name))
        .collect();
    assert_eq!(
        unproved,
        Vec::<&String>::new(),
        "points at which nobody died"
    );
}
