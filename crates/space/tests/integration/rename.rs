//! A segment gets another name: whole, by a user with the permission, while no process uses it.

use crate::common::Scene;
use mneme_space::{Access, OpenError, RenameError, Segment};

#[test]
fn a_renamed_segment_is_found_by_its_new_name_alone() {
    let scene = Scene::new();
    let registry = &scene.registry;
    let made = registry.segment("old").create().unwrap();
    registry.segment("taken").create().unwrap();
    let mapping = made.map(Access::ReadWrite).unwrap();
    let used = registry.rename_segment("old", "new").unwrap_err();
    assert!(matches!(used, RenameError::InUse { .. }), "{used}");
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
    assert!(matches!(gone, RenameError::NotFound { .. }), "{gone}");
    assert!(registry.rename_segment("new", "../new").is_err());
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
