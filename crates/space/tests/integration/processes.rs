//! A segment shared by real processes: it has the same address in each, they see each other's
//! growth, and a killed visitor no longer counts.

use std::sync::atomic::{AtomicU64, Ordering};

use mneme_testkit::Process;

use crate::common::visitor::{self, here, stand};
use crate::common::{Scene, region};
use mneme_space::{
    Attachment, CloneError, CreateError, EnterError, MapError, Registry, RemoveError, Segment,
};
use mneme_sys::{Access, FRAME};

/// Creates a segment of each name, or a clone of `s`, and leaves a file for each that it created.
fn create_each(registry: &Registry) {
    here();
    let original = Segment::open(registry, "s").unwrap();
    for round in 0..20 {
        let name = format!("made {round}");
        let copies = (std::process::id() + round).is_multiple_of(2);
        let made = if copies {
            original.clone_as(&name).map_err(|refused| match refused {
                CloneError::Create(refused) => refused,
                other => panic!("{other}"),
            })
        } else {
            registry.segment(&name).create()
        };
        match made {
            Ok(made) => {
                let won = format!("won {}", made.uuid());
                std::fs::write(registry.root().join(won), name).unwrap();
            }
            Err(CreateError::Exists { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn several_processes_create_the_same_names_at_once_and_each_is_created_once() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let makers: Vec<Process> = (0..4).map(|_| visitor::start(&scene, "create")).collect();
    makers.into_iter().for_each(Process::end);
    let mut bases = Vec::new();
    for round in 0..20 {
        let made = scene.open(&format!("made {round}"));
        // The process whose call succeeded created it; no other call did.
        let won = scene.registry.root().join(format!("won {}", made.uuid()));
        assert_eq!(std::fs::read_to_string(won).unwrap(), made.name().as_str());
        if made.info().unwrap().cloned_from.is_none() {
            bases.push(made.base().unwrap());
        }
    }
    let entries = std::fs::read_dir(scene.registry.root()).unwrap();
    let won = entries.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_str().unwrap().starts_with("won ")
    });
    assert_eq!(won.count(), 20);
    // No address was given twice.
    let made = bases.len();
    bases.sort_unstable();
    bases.dedup();
    assert_eq!(bases.len(), made);
    assert_eq!(scene.files("memory").len(), 21);
    assert_eq!(
        scene.files("registry/making"),
        Vec::<std::path::PathBuf>::new()
    );
    assert_eq!(scene.findings(), Vec::<String>::new());
}

#[test]
fn role() {
    let Some((role, registry)) = visitor::role() else {
        return;
    };
    if role == "create" {
        return create_each(&registry);
    }
    let segment = Segment::open(&registry, "s").unwrap();
    match role.as_str() {
        "store" => {
            let mapping = segment.map(Access::ReadWrite).unwrap();
            mapping.grow(3 * FRAME).unwrap();
            let far: &AtomicU64 = region(&mapping).at(3 * FRAME as u64 - 8).unwrap();
            far.store(77, Ordering::Release);
            // A pointer, as a heap would store it: valid wherever the segment is mapped.
            let near: &AtomicU64 = region(&mapping).at(4096).unwrap();
            near.store(std::ptr::from_ref(far).addr() as u64, Ordering::Release);
            stand();
        }
        "read" | "write" => {
            let at = Attachment::new([(&segment, Access::ReadWrite)]).unwrap();
            if role == "read" {
                at.read(|_| stand()).unwrap();
            } else {
                at.enter(|_| stand()).unwrap();
            }
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_pointer_stored_by_one_process_is_valid_in_another_and_killed_processes_release_theirs() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let mapping = segment.map(Access::ReadOnly).unwrap();
    assert_eq!(mapping.len(), FRAME);
    let mut child = visitor::start(&scene, "store");
    let address = region(&mapping).load_u64(4096).unwrap() as usize;
    assert_eq!(address, segment.base().unwrap() + 3 * FRAME - 8);
    assert_eq!(mapping.refresh().unwrap(), 3 * FRAME);
    // The address itself is followed, not an offset from a base.
    let far = std::ptr::with_exposed_provenance::<AtomicU64>(address);
    // SAFETY: committed and mapped, as was just asserted.
    assert_eq!(unsafe { (*far).load(Ordering::Acquire) }, 77);
    drop(mapping);

    let refused = scene.registry.remove_segment("s").unwrap_err();
    assert!(matches!(refused, RemoveError::InUse { .. }), "{refused}");
    child.kill();
    scene.registry.remove_segment("s").unwrap();
    assert!(scene.files("memory").is_empty());
}

#[test]
fn a_clone_waits_for_a_writer_and_not_for_readers_and_is_refused_where_a_writer_died() {
    let scene = Scene::new();
    let segment = scene.create("s");
    // A reader does not prevent cloning, whether alive or dead.
    let mut reader = visitor::start(&scene, "read");
    segment.clone_as("beside a reader").unwrap();
    reader.kill();
    segment.clone_as("after a reader").unwrap();
    // A writer does.
    let mut writer = visitor::start(&scene, "write");
    let refused = segment.clone_as("t").unwrap_err();
    assert!(
        matches!(&refused, CloneError::Enter(EnterError::Stalled(s)) if s.pid == writer.id()),
        "{refused}"
    );
    writer.kill();
    for _ in 0..2 {
        // Reporting the death does not clear it.
        let refused = segment.clone_as("t").unwrap_err();
        assert!(matches!(refused, CloneError::Poisoned { .. }), "{refused}");
    }
    assert_eq!(scene.registry.segments().unwrap().len(), 3);
    assert_eq!(scene.findings(), Vec::<String>::new());
}

/// However a segment's control file is lost or duplicated, no other process gets in beside the one
/// inside, which keeps its data.
#[test]
fn nobody_enters_beside_another_through_another_control_file() {
    let scene = Scene::new();
    let segment = scene.create("s");
    let visitor = visitor::start(&scene, "write");
    let copied = segment.directory().with_file_name("s.bak");
    let done = std::process::Command::new("cp")
        .arg("-a")
        .args([segment.directory(), copied])
        .status();
    assert!(done.unwrap().success());
    let found = scene.findings();
    assert!(found.iter().any(|f| f.contains("is a copy")), "{found:?}");
    let attach = |name: &str| Attachment::new([(&scene.open(name), Access::ReadWrite)]).map(|_| ());
    let beside = attach("s.bak");
    assert!(
        matches!(beside, Err(EnterError::Map(MapError::OtherControl { .. }))),
        "{beside:?}"
    );
    assert!(scene.open("s.bak").clone_as("torn").is_err());
    // Only its name goes.
    scene.registry.remove_segment("s.bak").unwrap();
    scene.open("s");

    std::fs::remove_file(segment.directory().join("control")).unwrap();
    let removed = scene.registry.remove_segment("s");
    assert!(
        matches!(removed, Err(RemoveError::InUse { .. })),
        "{removed:?}"
    );
    scene.registry.clean().unwrap();
    assert!(attach("s").is_err());
    assert!(!segment.info().unwrap().poisoned, "it is alive");
    visitor.end();
    scene.registry.clean().unwrap();
    attach("s").unwrap();
    assert!(segment.info().unwrap().poisoned);
}
