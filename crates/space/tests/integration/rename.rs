//! A user with the permission can rename a segment that no process uses.

use crate::common::Scene;
use mneme_space::{Access, CloneError, CreateError, NameError, OpenError, RemoveError, Segment};

#[test]
fn a_renamed_segment_is_found_only_under_its_new_name() {
    let scene = Scene::new();
    let registry = &scene.registry;
    let made = registry.segment("old").create().unwrap();
    registry.segment("taken").create().unwrap();
    let mapping = made.map(Access::ReadWrite).unwrap();
    let used = registry.rename_segment("old", "new").unwrap_err();
    assert!(matches!(used, RemoveError::InUse { .. }), "{used}");
    drop(mapping);
    let taken = registry.rename_segment("old", "taken").unwrap_err();
    assert!(taken.is_taken(), "{taken}");
    registry.rename_segment("old", "new").unwrap();
    let gone = Segment::open(registry, "old").unwrap_err();
    assert!(matches!(gone, OpenError::NotFound { .. }), "{gone}");
    let found = Segment::open(registry, "new").unwrap();
    assert_eq!(found.uuid(), made.uuid());
    drop(found.map(Access::ReadWrite).unwrap());
    let gone = registry.rename_segment("old", "new").unwrap_err();
    assert!(matches!(gone, RemoveError::NotFound { .. }), "{gone}");
    assert!(registry.rename_segment("new", "../new").is_err());
    assert!(scene.findings().is_empty());
}

/// Servers and upgrades remove segments with such names.
#[test]
fn a_program_cannot_give_a_segment_a_reserved_name() {
    let scene = Scene::new();
    let registry = &scene.registry;
    let made = registry.segment("mine").create().unwrap();
    let is_reserved = |refused: &NameError| matches!(refused, NameError::Reserved { .. });
    for name in ["mine~loading", "mine~old", "other~quarantine-1"] {
        match registry.segment(name).create() {
            Err(CreateError::Name(refused)) if is_reserved(&refused) => {}
            other => panic!("{other:?}"),
        }
        match registry.rename_segment("mine", name) {
            Err(RemoveError::Name(refused)) if is_reserved(&refused) => {}
            other => panic!("{other:?}"),
        }
        match made.clone_as(name) {
            Err(CloneError::Create(CreateError::Name(refused))) if is_reserved(&refused) => {}
            other => panic!("{other:?}"),
        }
    }
    // Servers and upgrades use these names, and what they leave can be examined, renamed and
    // removed.
    assert_eq!(
        registry.set_segment_aside("mine", "old").unwrap(),
        "mine~old-1"
    );
    registry.segment("mine").create().unwrap();
    let second = registry.set_segment_aside("mine", "old").unwrap();
    assert_eq!(second, "mine~old-2");
    assert_eq!(
        Segment::open(registry, "mine~old-1").unwrap().uuid(),
        made.uuid()
    );
    registry.rename_segment("mine~old-1", "mine").unwrap();
    registry.remove_segment("mine~old-2").unwrap();
    // A segment that was created under another name is not a leftover, whatever its name is now.
    let kept = registry.keep_beside("mine", "loading").unwrap();
    let refused = registry.remove_leftover(&kept).unwrap_err();
    assert!(
        matches!(refused, RemoveError::NotALeftover { .. }),
        "{refused}"
    );
    registry.rename_segment(kept.as_str(), "mine").unwrap();
    registry.segment(kept.as_str()).beside().create().unwrap();
    registry.remove_leftover(&kept).unwrap();
    assert!(scene.findings().is_empty());
}

#[test]
fn a_damaged_segment_can_be_renamed_too() {
    let scene = Scene::new();
    let registry = &scene.registry;
    let made = registry.segment("damaged").create().unwrap();
    std::fs::write(made.directory().join("meta"), "nonsense").unwrap();
    registry.rename_segment("damaged", "aside").unwrap();
    registry.segment("damaged").create().unwrap();
    registry.remove_segment("aside").unwrap();
}
