//! What an attached process has read delays no other, unless it was allowed to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use mneme_log::WriteError;
use mneme_shared::{Access, MIN_CAPACITY, Registry, SharedStore, StoreOptions};
use mneme_sys::PagePolicy;

/// A registry of the test's own, removed with all that is in it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let memory = Path::new("/dev/shm");
        let parent = match memory.is_dir() {
            true => memory.to_path_buf(),
            false => std::env::temp_dir(),
        };
        Place(parent.join(format!("mneme-shared-{name}-{}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Stores several times what the store holds.
fn churn(store: &SharedStore) -> Result<(), WriteError> {
    let value = vec![1; 1 << 20];
    (0..300).try_for_each(|_| store.put(b"other", &value))
}

#[test]
fn an_attached_process_copies_unless_it_asks_for_loans() {
    let place = Place::new("lending");
    let registry = Registry::open(&place.0).unwrap();
    let options = StoreOptions::new()
        .capacity(MIN_CAPACITY)
        .max_capacity(MIN_CAPACITY)
        .pages(PagePolicy::Small)
        .maintainer(false);
    let writer = options.create(&registry, "loans").unwrap();
    let value = vec![7; 1 << 20];
    writer.put(b"kept", &value).unwrap();

    // As it does by itself: what it keeps is its own.
    let copying = SharedStore::attach(&registry, "loans").unwrap();
    let kept = copying.get(b"kept").unwrap().unwrap();
    churn(&writer).unwrap();
    assert!(kept == value);

    let lending = options.lending(true);
    let lending = lending
        .attach(&registry, "loans", Access::ReadOnly)
        .unwrap();
    let lent = lending.get(b"kept").unwrap().unwrap();
    let refused = churn(&writer).unwrap_err();
    assert!(matches!(refused, WriteError::Stalled(_)), "{refused}");
    assert!(lent == value);
    drop(lent);
    churn(&writer).unwrap();
}
