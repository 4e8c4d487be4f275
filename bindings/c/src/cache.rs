//! Memory that is held in reserve, and is a cache as long as nobody needs it: the header's
//! `mneme_cache_create` and what works with its handle; and the cache in what an attached store
//! does not use, `mneme_cache_open`.
//!
//! **The program claims what it holds at once, whatever the cache has there**; see
//! [`mneme_arena::Discardable`] for what lookups promise.

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

/// An arena of the process' own, or an attached store's, and its cache.
pub(crate) struct Cache {
    cache: Discardable,
    /// A store claims frames there, and nobody else may.
    is_of_store: bool,
    /// What is claimed, by address.
    claimed: Mutex<BTreeMap<usize, Extent>>,
}

/// An incomplete type of the header.
#[repr(C)]
pub struct Lent([u8; 0]);

/// `mneme_cache_t`: a number of [`CACHES`].
pub type CacheId = *mut Lent;

static CACHES: Table<Arc<Cache>> = Table::new(0x55, "cache");

const NODE: NodeId = NodeId(0);

/// A function of the program that reads what is not in the cache.
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
        // Each change is one step.
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn kept(stored: Stored) -> c_int {
    (stored == Stored::Kept).into()
}

/// The handle of a cache.
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
/// The key's bytes, a buffer of the capacity given, a place for the length or NULL, and a function
/// that does what the header says or NULL.
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
        // SAFETY: the caller's promise; nothing is written there meanwhile.
        let key = unsafe { slice(key, key_length, "key") }?;
        if buffer.is_null() && (capacity != 0 || length.is_null()) {
            return Err(null("the buffer"));
        }
        let mut value = Vec::new();
        if let CacheLookup::Miss(ticket) = cache.cache.get(key, &mut value) {
            let Some(fetch) = fetch else { return Ok(0) };
            let (mut at, mut bytes) = (ptr::null(), 0);
            // Nothing here keeps the cache meanwhile: the function may jump away.
            drop(cache);
            // SAFETY: the caller's promise.
            let found = unsafe { fetch(&raw mut at, &raw mut bytes, data) };
            match found {
                0 => return Ok(0),
                1 => {}
                other => {
                    let text = format!("the function that fetches a value answered {other}");
                    return Err(Failure::new(Code::Invalid, text));
                }
            }
            // SAFETY: the caller's promise.
            value = copied(unsafe { slice(at, bytes, "value") }?)?;
            // The value is the truth whether the cache takes it or not, or is gone; one that is too
            // long for it is read again each time.
            if let Ok(cache) = opened(of)
                && let Ok(slot) = cache.cache.arena().participants().slot()
            {
                let _ = cache.cache.fill(&slot, NODE, ticket, key, &value);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { give(&value, buffer, capacity, length) }
    })
}

/// See the header.
///
/// # Safety
/// The key's bytes and the value's.
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
        // SAFETY: the caller's promise.
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
/// The key's bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mneme_cache_remove(
    cache: CacheId,
    key: *const c_void,
    key_length: usize,
) -> c_int {
    done(|| {
        let cache = opened(cache)?;
        // SAFETY: the caller's promise.
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
        // The claim outlives the thread.
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
/// A place for it.
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
        // SAFETY: the caller's promise.
        unsafe { stat.write(filled) };
        Ok(())
    })
}
