//! Upgrading a store takes memory of the process for one value at a time: values may have hundreds
//! of megabytes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mneme_shared::{MIN_CAPACITY, SharedStore, StoreOptions};
use mneme_sys::PagePolicy;
use mneme_testkit::TestDir;

struct Measuring;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator, and counting does not allocate.
// Methods not defined here use these two.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Measuring = Measuring;

#[test]
fn an_upgrade_keeps_one_value_at_a_time_in_memory() {
    const VALUE: usize = 1 << 20;
    let place = TestDir::new("upgrade-memory");
    let registry = common::registry(place.path());
    let options = StoreOptions::new()
        .capacity(MIN_CAPACITY)
        .max_capacity(MIN_CAPACITY)
        .pages(PagePolicy::Small)
        .maintainer(false);
    let store = options.create(&registry, "long").unwrap();
    let value = vec![7; VALUE];
    (0..24_u8).for_each(|key| store.put(&[key], &value).unwrap());
    drop(store);
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    assert_eq!(options.upgrade(&registry, "long").unwrap().records, 24);
    let most = MOST.load(Relaxed) - before;
    assert!(most < 4 * VALUE, "{most} bytes");
    let store = SharedStore::attach(&registry, "long").unwrap();
    (0..24_u8).for_each(|key| assert!(store.get(&[key]).unwrap().as_deref() == Some(&value[..])));
}
