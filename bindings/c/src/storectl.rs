//! Further operations on a store.

use std::ffi::c_int;

use mneme_space::Access;

use crate::boundary::{answer, done, write_to};
use crate::code::{Code, Failure};
use crate::options::{evict, evict_number, policy_number};
use crate::process::StoreId;
use crate::store::opened;
use crate::vas::{null, text};

/// `mneme_stat_t`.
#[repr(C)]
pub struct Stat {
    capacity: u64,
    max_capacity: u64,
    records: u64,
    live_bytes: u64,
    stale_bytes: u64,
    index_bytes: u64,
    head_bytes: u64,
    overhead_bytes: u64,
    free_bytes: u64,
    reserve_bytes: u64,
    moved_bytes: u64,
    evicted: u64,
    evicted_bytes: u64,
    writable: i32,
    maintains: i32,
    outlives_boot: i32,
    policy: i32,
    evict: i32,
    reserved: i32,
    uuid: [u8; 16],
    name: [u8; 208],
}

/// See the header.
///
/// # Safety
/// `stat` must point to a `mneme_stat_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_stat(store: StoreId, stat: *mut Stat) -> c_int {
    done(|| {
        let opened = opened(store)?;
        if stat.is_null() {
            return Err(null("the mneme_stat_t"));
        }
        let store = opened.store();
        let stats = store.stats();
        let filled = Stat {
            capacity: stats.capacity,
            max_capacity: stats.max_capacity,
            records: stats.records,
            live_bytes: stats.live_bytes,
            stale_bytes: stats.stale_bytes,
            index_bytes: stats.index_bytes,
            head_bytes: stats.head_bytes,
            overhead_bytes: stats.overhead_bytes,
            free_bytes: stats.free_bytes,
            reserve_bytes: stats.reserve_bytes,
            moved_bytes: stats.moved_bytes,
            evicted: stats.evicted,
            evicted_bytes: stats.evicted_bytes,
            writable: (store.access() == Access::ReadWrite).into(),
            maintains: store.maintains().into(),
            outlives_boot: (!store.is_volatile()).into(),
            policy: policy_number(store.update_policy()),
            evict: evict_number(store.eviction()),
            reserved: 0,
            uuid: store.segment().uuid().to_bytes(),
            name: text(store.segment().name().as_str()),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { stat.write(filled) };
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_length(store: StoreId) -> i64 {
    answer(-1, || {
        let length = opened(store)?.database()?.len();
        Ok(i64::try_from(length).unwrap_or(i64::MAX))
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_clear(store: StoreId) -> c_int {
    done(|| Ok(opened(store)?.database()?.clear()?))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_grow(store: StoreId, bytes: u64) -> c_int {
    done(|| {
        opened(store)?.store().grow(bytes)?;
        Ok(())
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_set_eviction(store: StoreId, which: c_int) -> c_int {
    done(|| Ok(opened(store)?.store().set_eviction(evict(which)?)?))
}

/// See the header.
///
/// # Safety
/// `records` must be NULL or point to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_check(store: StoreId, records: *mut u64) -> c_int {
    done(|| {
        let report = opened(store)?.store().check()?;
        // SAFETY: guaranteed by the caller.
        unsafe { write_to(records, report.records) };
        let Some(first) = report.problems.first() else {
            return Ok(());
        };
        let text = format!("{} things are wrong: {first}", report.problems.len());
        Err(Failure::new(Code::Damaged, text))
    })
}
