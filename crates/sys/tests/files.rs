//! The file system's words that a registry of names is built on.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

use mneme_sys::files;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

#[test]
fn the_second_of_two_renames_to_one_name_changes_nothing() {
    let here = std::env::temp_dir().join(format!("mneme-files-{}", std::process::id()));
    for name in ["one", "two"] {
        fs::create_dir_all(here.join(name)).unwrap();
        fs::write(here.join(name).join("who"), name).unwrap();
    }
    let to = here.join("to");
    files::rename_new(&here.join("one"), &to).unwrap();
    let refused = files::rename_new(&here.join("two"), &to).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(to.join("who")).unwrap(), "one");
    assert_eq!(fs::read_to_string(here.join("two/who")).unwrap(), "two");
    let missing = files::rename_new(&here.join("one"), &here.join("x")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    fs::remove_dir_all(here).unwrap();
}

#[test]
fn shared_memory_is_memory_and_the_kernels_tables_are_not() {
    let shared = files::fs_kind(Path::new(files::SHARED_MEMORY));
    assert_eq!(shared.unwrap(), files::FsKind::Memory);
    assert_eq!(
        files::fs_kind(Path::new("/proc")).unwrap(),
        files::FsKind::Other
    );
    assert!(files::fs_kind(Path::new("/nowhere/at all")).is_err());
}
