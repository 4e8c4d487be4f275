//! A forked child of a process that has a store attached.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test that panics fails")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use mneme_log::{ReadError, SlotError, WriteError};
use mneme_shared::{Access, Registry, SharedStore, StoreOptions};

/// What the child does; an error if anything is other than it should be.
fn in_child(store: &SharedStore, registry: &Registry) -> io::Result<()> {
    let refused = matches!(store.get(b"k"), Err(ReadError::Slot(SlotError::Forked)))
        && matches!(
            store.put(b"k", b"child"),
            Err(WriteError::Slot(SlotError::Forked))
        );
    let options = StoreOptions::new().maintainer(false);
    let own = options.attach(registry, "s", Access::ReadWrite);
    let own = own.map_err(io::Error::other)?;
    let there = own.get(b"k").map_err(io::Error::other)?;
    let same = there.is_some_and(|value| value == b"parent");
    own.put(b"own", b"child").map_err(io::Error::other)?;
    match refused && same {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(1)),
    }
}

#[test]
fn a_forked_child_is_refused_its_parents_store_and_attaches_for_itself() {
    let root = format!("/dev/shm/mneme-shared-forks-{}", std::process::id());
    let registry = Registry::open(&root).unwrap();
    let options = StoreOptions::new().capacity(64 << 20);
    let store = Arc::new(options.create(&registry, "s").unwrap());
    store.put(b"k", b"parent").unwrap();
    let mut command = Command::new("true");
    let (parents, place) = (Arc::clone(&store), registry.clone());
    // SAFETY: the child allocates and opens files, which glibc allows after a fork; it touches nothing that another thread
    // of its parent may have been changing but the store, which says so.
    unsafe { command.pre_exec(move || in_child(&parents, &place)) };
    let ended = command.status().unwrap();
    assert!(ended.success());
    drop(command);
    assert_eq!(store.get(b"k").unwrap().unwrap(), b"parent");
    assert_eq!(store.get(b"own").unwrap().unwrap(), b"child");
    assert!(store.check().unwrap().is_sound());
    drop(store);
    registry.remove_segment("s").unwrap();
    std::fs::remove_dir_all(&root).unwrap();
}
