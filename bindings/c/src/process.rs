//! The state of the process: its registry, and its tables of spaces, segments and attachments.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use mneme_space::{Registry, Segment, Space};
use mneme_sys::fork;

use crate::attached::Attached;
use crate::check_state;
use crate::code::{Code, Failure};
use crate::store::Opened;
use crate::table::Table;

/// An incomplete type of the header.
#[repr(C)]
pub struct Vas([u8; 0]);
/// An incomplete type of the header.
#[repr(C)]
pub struct Seg([u8; 0]);
/// An incomplete type of the header.
#[repr(C)]
pub struct At([u8; 0]);

/// An incomplete type of the header.
#[repr(C)]
pub struct Store([u8; 0]);

/// `vasid_t`: a number in [`SPACES`].
pub type VasId = *mut Vas;
/// `segid_t`: a number in [`SEGMENTS`].
pub type SegId = *mut Seg;
/// `vhandle_t`: a number in [`ATTACHED`], or one of the two below.
pub type VasHandle = *mut At;

/// `mneme_store_t`: a number in [`STORES`].
pub type StoreId = *mut Store;

/// `MNEME_PRIMARY`.
pub(crate) const PRIMARY: usize = 1;
/// `MNEME_CURRENT`.
pub(crate) const CURRENT: usize = 2;

pub(crate) static SPACES: Table<Space> = Table::new(0x11, "space");
pub(crate) static SEGMENTS: Table<Segment> = Table::new(0x22, "segment");
pub(crate) static ATTACHED: Table<Arc<Attached>> = Table::new(0x33, "attached space");
pub(crate) static STORES: Table<Opened> = Table::new(0x44, "attached store");

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);
static TIMEOUT_MS: AtomicU64 = AtomicU64::new(1000);
static GENERATION: OnceLock<u32> = OnceLock::new();

/// Returns an error in a forked child: its tables and locks are copies of the parent's, which may
/// have been in the middle of a change.
pub(crate) fn check_not_forked() -> Result<(), Failure> {
    let first = GENERATION.get_or_init(|| {
        fork::watch();
        fork::generation()
    });
    if *first == fork::generation() {
        return Ok(());
    }
    let text = "this process was forked from one that uses mneme; it must be started anew (exec)";
    Err(Failure::new(Code::Forked, text))
}

/// The registry in which names are looked up.
pub(crate) fn registry() -> Result<Registry, Failure> {
    let chosen = || {
        REGISTRY
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    };
    if let Some(registry) = chosen() {
        return Ok(registry);
    }
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(chosen) = &*registry {
        return Ok(chosen.clone());
    }
    let opened = Registry::open_default()?;
    check_state::note_window(opened.window());
    Ok(registry.insert(opened).clone())
}

pub(crate) fn choose_registry(directory: &Path) -> Result<(), Failure> {
    let chosen = Registry::open(directory)?;
    check_state::note_window(chosen.window());
    *REGISTRY.write().unwrap_or_else(PoisonError::into_inner) = Some(chosen);
    Ok(())
}

/// How long attachments made from now on wait for a lock.
pub(crate) fn timeout() -> Duration {
    Duration::from_millis(TIMEOUT_MS.load(Relaxed))
}

pub(crate) fn set_timeout(milliseconds: u32) {
    // Relaxed: only attachments made later use it.
    TIMEOUT_MS.store(milliseconds.into(), Relaxed);
}
