//! What an attached process has read delays no other, unless it was allowed to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use mneme_log::WriteError;
use mneme_shared::{Access, MIN_CAPACITY, Registry, SharedStore, StoreOptions};
use mneme_sys::PagePolicy;
use mneme_testkit::TestDir;

/// Stores several times what the store holds.
fn churn(store: &SharedStore) -> Result<(), WriteError> {
    let value = vec![1; 1 << 20];
    (0..300).try_for_each(|_| store.put(b"other", &value))
}

#[test]
fn an_attached_process_copies_unless_it_asks_for_loans() {
    let place = TestDir::new("lending");
    let registry = Registry::open(place.path()).unwrap();
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
