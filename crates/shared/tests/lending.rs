//! The values that an attached process has read delay no other process, unless it was allowed to
//! keep references.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::registry;
use mneme_log::WriteError;
use mneme_log::lent::{CacheLookup, LendingOptions, NodeId, Stored};
use mneme_shared::{Access, AttachError, MIN_CAPACITY, SharedStore, StoreOptions};
use mneme_space::MapError;
use mneme_sys::PagePolicy;
use mneme_testkit::TestDir;

fn small() -> StoreOptions {
    StoreOptions::new()
        .capacity(MIN_CAPACITY)
        .max_capacity(MIN_CAPACITY)
        .pages(PagePolicy::Small)
        .maintainer(false)
}

/// Stores several times what the store holds.
fn churn(store: &SharedStore) -> Result<(), WriteError> {
    let value = vec![1; 1 << 20];
    (0..300).try_for_each(|_| store.put(b"other", &value))
}

#[test]
fn an_attached_process_copies_unless_it_asks_for_loans() {
    let place = TestDir::new("lending");
    let registry = registry(&place);
    let options = small();
    let writer = options.create(&registry, "loans").unwrap();
    let value = vec![7; 1 << 20];
    writer.put(b"kept", &value).unwrap();

    // This is the default: the values are the reader's own copies.
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

/// All that attach a store that lends share what it lends, including openings that may only read;
/// after an upgrade it lends as before.
#[test]
fn a_store_lends_its_unused_memory_to_all_openings() {
    let place = TestDir::new("lent");
    let registry = registry(&place);
    let options = small().lend_idle(LendingOptions {
        records: 1000,
        max_frames: 9,
    });
    let store = options.create(&registry, "lent").unwrap();
    // Only memory that the store has used once is lent.
    store.put(b"large", &vec![7; 24 << 20]).unwrap();
    store.remove(b"large").unwrap();
    store.compact().unwrap();
    let other = SharedStore::attach_writable(&registry, "lent").unwrap();
    let reader = SharedStore::attach(&registry, "lent").unwrap();
    let [cache, reading] = [&other, &reader].map(|store| store.discardable().unwrap());
    let slot = cache.arena().participants().slot().unwrap();
    let stored = cache.put(&slot, NodeId(0), b"page", b"as the disk has it");
    assert_eq!(stored.unwrap(), Stored::Kept);
    let mut found = Vec::new();
    for _ in 0..64 {
        assert_eq!(reading.get(b"page", &mut found), CacheLookup::Hit);
        assert_eq!(found, b"as the disk has it");
        assert_eq!(cache.get(b"page", &mut found), CacheLookup::Hit);
    }
    let lent = store.stats().lent.unwrap();
    // The reader does not announce itself.
    assert_eq!((lent.frames, lent.max_frames, lent.all_hits), (1, 9, 64));
    let lends = store.lending();
    assert_eq!(lends.map(|lending| lending.max_frames), Some(9));
    drop(slot);
    drop((other, reader, store));

    small()
        .max_capacity(2 * MIN_CAPACITY)
        .upgrade(&registry, "lent")
        .unwrap();
    let store = SharedStore::attach_writable(&registry, "lent").unwrap();
    assert_eq!(store.lending(), lends);
    let found = store.discardable().unwrap().get(b"page", &mut found);
    assert!(matches!(found, CacheLookup::Miss(_)));
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}

/// A tenant that continues without the store keeps the memory's other users away, as the store did.
#[test]
fn a_tenant_keeps_the_segment_in_use() {
    let place = TestDir::new("lent-kept");
    let registry = registry(&place);
    let options = small().lend_idle(LendingOptions::of_bytes(8 << 20, MIN_CAPACITY));
    let store = options.create(&registry, "kept").unwrap();
    let arena = store.discardable().unwrap().arena().clone();
    let control = store.segment().directory().join("control");
    drop(store);
    // Attaching through a copy of the control file is refused, since its participants would not see
    // those of the original.
    let aside = control.with_extension("copy");
    std::fs::copy(&control, &aside).unwrap();
    std::fs::rename(&aside, &control).unwrap();
    let refused = SharedStore::attach_writable(&registry, "kept").unwrap_err();
    assert!(
        matches!(refused, AttachError::Map(MapError::OtherControl { .. })),
        "{refused}"
    );
    drop(arena);
    SharedStore::attach_writable(&registry, "kept").unwrap();
}
