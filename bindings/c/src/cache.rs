//! Caches in memory that is reserved for other purposes until it is needed: the header's
//! `mneme_cache_create` and the functions for its handle; and `mneme_cache_open`, for the unused
//! memory of an attached store.
//!
//! **The program can claim its reserved memory at once, whatever the cache has stored there**; see
//! [`mneme_arena::Discardable`] for the guarantees of lookups.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mneme_arena::{CacheLookup, Class, Discardable, Extent, FRAME_BYTES, LendingError, Stored};
use mneme_sys::NodeId;

use crate::boundary::{answer, apart, done, slice};
use crate::code::{Code, Failure};
use crate::process::StoreId;
use crate::records::{copied, give};
use crate::store;
use crate::table::Table;
use crate::vas::null;

/// A cache, in an arena of this process or in an attached store's.
pub(crate) struct Cache {
    cache: Discardable,
    /// Whether the arena is a store's. If so, only the store may claim its frames.
    is_of_store: bool,
    /// The claimed memory, by address.
    claimed: Mutex<BTreeMap<usize, Extent>>,
}

/// An incomplete type of the header.
#[repr(C)]
pub struct Lent([u8; 0]);

/// `mneme_cache_t`: a number in [`CACHES`].
pub type CacheId = *mut Lent;

static CACHES: Table<Arc<Cache>> = Table::new(0x55, "cache");

const NODE: NodeId = NodeId(0);

/// A callback that reads a value that is not in the cache.
pub type Fetch = Option<
    unsafe extern "C" fn(value: *mut *const c_void, length: *mut usize, data: *mut c_void) -> c_int,
>;

/// `mneme_cache_stat_t`.
#[repr(C)]
pub struct CacheStat {
    bytes: u64,
    claimed_bytes: u64,
    lent_bytes: u64,
    hits: u64,
    misses: u64,
    kept: u64,
    dropped: u64,
    discards: u64,
    claims: u64,
    claim_p50_ns: u64,
    claim_p999_ns: u64,
    claim_max_ns: u64,
}

fn opened(of: CacheId) -> Result<Arc<Cache>, Failure> {
    CACHES.get(of.addr())
}

impl Cache {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<c_int, Failure> {
        let slot = self.cache.arena().participants().slot()?;
        Ok(kept(self.cache.put(&slot, NODE, key, value)?))
    }

    fn claimed(&self) -> MutexGuard<'_, BTreeMap<usize, Extent>> {
        // The map is valid even after a panic, since each change is one step.
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kept(stored: Stored) -> c_int {
    (stored == Stored::Kept).into()
}

/// Makes the handle of a cache.
fn handle(cache: Discardable, is_of_store: bool) -> Result<CacheId, Failure> {
    let cache = Arc::new(Cache {
        cache,
        is_of_store,
        claimed: Mutex::default(),
    });
    let number = CACHES.enter(cache, |_| false)?;
    Ok(ptr::without_provenance_mut(number))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_cache_create(bytes: u64, records: u64) -> CacheId {
    answer(ptr::null_mut(), || {
        handle(Discardable::private(bytes, records)?, false)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_cache_open(of: StoreId) -> CacheId {
    answer(ptr::null_mut(), || {
        let opened = store::opened(of)?;
        let lent = opened.store().discardable();
        let lent = lent.ok_or(LendingError::LendsNothing)?;
        handle(Discardable::open(Arc::clone(lent.arena()))?, true)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_cache_destroy(cache: CacheId) -> c_int {
    done(|| CACHES.remove(cache.addr()).map(drop))
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes, `buffer` to `capacity` bytes, `length` must be NULL or point to a
/// number, and `fetch` must be NULL or behave as the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_cache_get(
    of: CacheId,
    key: *const c_void,
    key_length: usize,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
    fetch: Fetch,
    data: *mut c_void,
) -> c_int {
    answer(-1, || {
        let cache = opened(of)?;
        apart((key, key_length), (buffer, capacity), length)?;
        // SAFETY: guaranteed by the caller; the outputs, which do not overlap the key, are written
        // later.
        let key = unsafe { slice(key, key_length, "key") }?;
        if buffer.is_null() && (capacity != 0 || length.is_null()) {
            return Err(null("the buffer"));
        }
        let mut value = Vec::new();
        if let CacheLookup::Miss(ticket) = cache.cache.get(key, &mut value) {
            let Some(fetch) = fetch else { return Ok(0) };
            let (mut at, mut bytes) = (ptr::null(), 0);
            // The cache is not kept alive during the callback, which may leave by `longjmp`.
            drop(cache);
            // SAFETY: guaranteed by the caller.
            let found = unsafe { fetch(&raw mut at, &raw mut bytes, data) };
            match found {
                0 => return Ok(0),
                1 => {}
                other => {
                    let text = format!("the function that fetches a value answered {other}");
                    return Err(Failure::new(Code::Invalid, text));
                }
            }
            // SAFETY: guaranteed by the caller.
            value = copied(unsafe { slice(at, bytes, "value") }?)?;
            // The value is valid whether or not the cache accepts it or still exists. A value that
            // is too long for the cache is fetched again at each call.
            if let Ok(cache) = opened(of)
                && let Ok(slot) = cache.cache.arena().participants().slot()
            {
                let _ = cache.cache.fill(&slot, NODE, ticket, key, &value);
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe { give(&value, buffer, capacity, length) }
    })
}

/// See the header.
///
/// # Safety
/// `key` and `value` must point to their bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_cache_put(
    cache: CacheId,
    key: *const c_void,
    key_length: usize,
    value: *const c_void,
    length: usize,
) -> c_int {
    answer(-1, || {
        let cache = opened(cache)?;
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe {
            (
                slice(key, key_length, "key")?,
                slice(value, length, "value")?,
            )
        };
        cache.put(key, value)
    })
}

/// See the header.
///
/// # Safety
/// `key` must point to its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_cache_remove(
    cache: CacheId,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    done(|| {
        let cache = opened(cache)?;
        // SAFETY: guaranteed by the caller.
        let key = unsafe { slice(key, key_length, "key") }?;
        Ok(cache.cache.remove(key)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_cache_clear(cache: CacheId) -> c_int {
    done(|| Ok(opened(cache)?.cache.clear()?))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_cache_limit(cache: CacheId, bytes: u64) -> c_int {
    done(|| {
        let frames = u32::try_from(bytes / FRAME_BYTES).unwrap_or(u32::MAX);
        Ok(opened(cache)?.cache.arena().set_max_lent(frames)?)
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn mneme_cache_claim(cache: CacheId, bytes: u64) -> *mut c_void {
    answer(ptr::null_mut(), || {
        let cache = opened(cache)?;
        let arena = cache.cache.arena();
        if cache.is_of_store {
            let text = "an attached store claims its memory itself; put records there";
            return Err(Failure::new(Code::Invalid, text));
        }
        let frames = u32::try_from(bytes.div_ceil(FRAME_BYTES)).unwrap_or(u32::MAX);
        let slot = arena.participants().slot()?;
        let extent = arena.claim(&slot, frames, 1, NODE, Class::Reserved, 0)?;
        // The claim outlives the calling thread.
        arena.adopt(extent)?;
        let at = arena
            .region()
            .bytes_at(extent.offset(), extent.len() as usize)?;
        cache.claimed().insert(at.addr(), extent);
        Ok(at.cast())
    })
}

/// See the header.
///
/// # Safety
/// The memory must not be used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_cache_release(cache: CacheId, memory: *mut c_void) -> c_int {
    done(|| {
        let cache = opened(cache)?;
        let slot = cache.cache.arena().participants().slot()?;
        let Some(extent) = cache.claimed().remove(&memory.addr()) else {
            let text = format!("nothing was claimed at {memory:p}, or it was released");
            return Err(Failure::new(Code::Invalid, text));
        };
        Ok(cache.cache.arena().release(&slot, extent)?)
    })
}

/// See the header.
///
/// # Safety
/// `stat` must point to a `mneme_cache_stat_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_cache_stat(cache: CacheId, stat: *mut CacheStat) -> c_int {
    done(|| {
        let cache = opened(cache)?;
        if stat.is_null() {
            return Err(null("the mneme_cache_stat_t"));
        }
        let stats = cache.cache.stats()?;
        let claimed = cache.claimed().values().map(|extent| extent.len()).sum();
        let filled = CacheStat {
            bytes: cache.cache.arena().stats().bytes(),
            claimed_bytes: claimed,
            lent_bytes: stats.bytes(),
            hits: stats.hits,
            misses: stats.misses,
            kept: stats.kept,
            dropped: stats.dropped,
            discards: stats.discards,
            claims: stats.claims.count,
            claim_p50_ns: stats.claims.p50_ns,
            claim_p999_ns: stats.claims.p999_ns,
            claim_max_ns: stats.claims.max_ns,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { stat.write(filled) };
        Ok(())
    })
}
