//! Tests of the version word, on which attached processes rely.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::version::RETIRED;
use super::*;
use crate::registry::json;
use crate::{RegistryOptions, space::version::VersionWord};

static NEXT: AtomicUsize = AtomicUsize::new(0);

struct Scene(PathBuf, Registry);

impl Scene {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = format!("/dev/shm/mneme-space-word-{}-{number}", std::process::id());
        std::fs::create_dir(&root).unwrap();
        let options = RegistryOptions {
            shared_directory: Some(PathBuf::from(&root)),
            ..RegistryOptions::default()
        };
        let registry = Registry::open_with(format!("{root}/registry"), &options).unwrap();
        Self(root.into(), registry)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn only_changes_raise_the_word_each_to_its_version() {
    let scene = Scene::new();
    let space = scene.1.space("w").create().unwrap();
    let word = space.version_word().unwrap();
    assert_eq!(word.load(), 1);
    let (version, members) = space.read_members(&word).unwrap();
    assert_eq!((version, members.len()), (1, 0));
    let segment = scene.1.segment("s").create().unwrap();
    space.add(&segment, Access::ReadOnly).unwrap();
    assert_eq!(word.load(), 2);
    assert!(space.add(&segment, Access::ReadOnly).is_err());
    assert!(space.remove_segment("t").is_err());
    assert_eq!(word.load(), 2);
    let (version, members) = space.read_members(&word).unwrap();
    let access: Vec<_> = members.iter().map(|m| m.access).collect();
    assert_eq!((version, access), (2, vec![Access::ReadOnly]));
    space.set_access("s", Access::ReadWrite).unwrap();
    space.set_mode(0o640).unwrap();
    space.remove_segment("s").unwrap();
    assert_eq!((word.load(), space.info().unwrap().version), (5, 5));
}

#[test]
fn the_next_reader_raises_a_word_that_a_process_did_not_live_to_raise() {
    let scene = Scene::new();
    let space = scene.1.space("w").create().unwrap();
    let word = space.version_word().unwrap();
    let mut meta = space.meta().unwrap();
    meta.version = 2;
    json::write(&space.directory().join("meta"), &meta, 0o600).unwrap();
    assert_eq!(word.load(), 1);
    assert_eq!(space.read_members(&word).unwrap().0, 2);
    assert_eq!(word.load(), 2);
    // A version restored from a backup does not lower the word: attached processes would miss the
    // next change.
    meta.version = 1;
    json::write(&space.directory().join("meta"), &meta, 0o600).unwrap();
    assert_eq!(space.read_members(&word).unwrap().0, 2);
    space.set_mode(0o600).unwrap();
    assert_eq!((word.load(), space.info().unwrap().version), (3, 3));
}

#[test]
fn an_impossible_version_is_reported_and_hides_no_change() {
    let scene = Scene::new();
    let space = scene.1.space("w").create().unwrap();
    let word = space.version_word().unwrap();
    version::raise(word.participants().unwrap(), RETIRED - 1).unwrap();
    let (version, _) = space.read_members(&word).unwrap();
    assert!(version == 1 && word.load() > version);
    space.set_mode(0o600).unwrap();
    assert_eq!(space.read_members(&word).unwrap().0, 2);
    // While it is used it stays; afterwards it is created again, with the description's version.
    scene.1.clean().unwrap();
    assert_eq!(scene.1.check().unwrap().len(), 1);
    drop(word);
    scene.1.clean().unwrap();
    assert_eq!(scene.1.check().unwrap(), []);
    assert_eq!(space.version_word().unwrap().load(), 2);
}

/// A process that may not write is no participant; it notices that the space is gone, or its
/// control file replaced.
#[test]
fn observers_notice_when_their_version_is_out_of_date() {
    let scene = Scene::new();
    let space = scene.1.space("w").create().unwrap();
    let look = || VersionWord::look(&space.control()).unwrap();
    let (first, attached) = (look(), space.version_word().unwrap());
    assert_eq!((first.load(), first.participants().is_none()), (1, true));
    let refused = scene.1.remove_space("w").unwrap_err();
    assert!(matches!(refused, SpaceError::InUse { .. }));
    version::raise(attached.participants().unwrap(), RETIRED - 1).unwrap();
    drop(attached);
    scene.1.clean().unwrap();
    assert_eq!(first.load(), RETIRED);
    let second = look();
    assert_eq!(second.load(), 1);
    scene.1.remove_space("w").unwrap();
    assert_eq!(second.load(), RETIRED);
    let gone = space.info().unwrap_err();
    assert!(matches!(gone, SpaceError::NotFound { .. }), "{gone}");
}
