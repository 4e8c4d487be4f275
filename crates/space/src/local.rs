//! A segment that only this process sees: without a name, a file or a lock that others share. It is
//! freed when it is dropped.
//!
//! **Its contents are used exactly as those of any segment**, so types for segments can be tried
//! out and tested here, also under Miri.

use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, RwLock};

use mneme_sys::{PagePolicy, Region, RegionError};

use crate::heap::{self, HeapError};
use crate::process_mapping::{self, Grow, ProcessMapping};
use crate::section::{self, Section};
use crate::{EnterError, Uuid};

struct Growing(Arc<Region>);

impl Grow for Growing {
    fn extend(&self, wanted: usize) -> Result<usize, HeapError> {
        self.0.grow(wanted).map_err(|error| HeapError::Growth {
            wanted,
            reason: error.to_string().into(),
        })?;
        Ok(self.0.len())
    }
}

/// A segment with a heap in this process's memory, for trying out types and for tests without a
/// registry.
///
/// ```
/// use mneme_space::{EnterError, LocalSegment, Schema, SegVec};
///
/// struct Numbers;
/// impl Schema for Numbers {
///     type Root<'s> = SegVec<'s, u64>;
/// }
///
/// let segment = LocalSegment::new("numbers", 64 << 20)?;
/// segment.try_enter(|here| {
///     here.create_root::<Numbers>("numbers", |heap| SegVec::new_in(heap))?.extend([1, 2, 3]);
///     Ok::<_, EnterError>(())
/// })?;
/// let sum = segment.try_read(|here| {
///     Ok::<u64, EnterError>(here.root::<Numbers>("numbers")?.iter().sum())
/// })?;
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The compiler keeps the segment's values inside it. Each of these examples is refused: the first
/// value leaves its section, the second belongs to another section, the third would point out of
/// the segment, the fourth is used in another thread.
/// ```compile_fail
/// # use mneme_space::{LocalSegment, SegVec};
/// # let segment = LocalSegment::new("a", 4 << 20).unwrap();
/// let vector = segment.enter(|here| SegVec::<u64>::new_in(here.heap("a").unwrap()));
/// ```
/// ```compile_fail
/// # use mneme_space::{LocalSegment, SegVec};
/// # let segment = LocalSegment::new("a", 4 << 20).unwrap();
/// segment.enter(|here| {
///     let outer = here.alloc(7_u64).unwrap();
///     here.beside("b", |_, there| { outer.get(there); });
/// });
/// ```
/// ```compile_fail
/// # use mneme_space::{LocalSegment, SegVec};
/// # let segment = LocalSegment::new("a", 4 << 20).unwrap();
/// segment.enter(|here| { here.alloc(vec![1, 2, 3]).unwrap(); });
/// ```
/// ```compile_fail,E0277
/// # use mneme_space::LocalSegment;
/// # let segment = LocalSegment::new("a", 4 << 20).unwrap();
/// segment.enter(|here| std::thread::scope(|scope| { scope.spawn(|| here.alloc(1_u8)); }));
/// ```
pub struct LocalSegment {
    write: ProcessMapping,
    read: ProcessMapping,
    region: Arc<Region>,
    lock: RwLock<()>,
}

impl std::fmt::Debug for LocalSegment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.write.fmt(f)
    }
}

impl LocalSegment {
    /// Creates an empty segment that may grow to `max` bytes, rounded up to 2 MiB.
    ///
    /// # Errors
    /// [`EnterError::Region`], [`EnterError::Heap`].
    pub fn new(name: &str, max: usize) -> Result<Self, EnterError> {
        let region = Arc::new(Region::private(1, max, PagePolicy::Small)?);
        let base = NonNull::new(region.base()).ok_or(RegionError::Size { len: 0, max })?;
        // SAFETY: a region of our own, aligned to 2 MiB, which nobody uses yet; it lives as long as
        // `self`.
        unsafe { heap::format(base, region.len(), region.max(), true) }?;
        let present = |exclusive| ProcessMapping {
            name: name.into(),
            // The segment has no name that others could look up, so it needs no identity of its
            // own.
            uuid: Uuid::from_bytes([0; 16]),
            base,
            len: AtomicUsize::new(region.len()),
            exclusive,
            ground: Arc::new(Growing(region.clone())),
        };
        Ok(Self {
            write: present(true),
            read: present(false),
            region: region.clone(),
            lock: RwLock::new(()),
        })
    }

    /// Runs `f` in a section that may change the segment. Other threads wait.
    ///
    /// # Errors
    /// [`EnterError::Nested`], [`EnterError::Poisoned`].
    pub fn enter<R>(&self, f: impl for<'s> FnOnce(&mut Section<'s>) -> R) -> Result<R, EnterError> {
        if process_mapping::inside() {
            return Err(EnterError::Nested);
        }
        let _held = self.lock.write().map_err(|_| self.poisoned())?;
        // SAFETY: the region lives and is mapped; the lock is held for writing.
        let result = unsafe { section::enter(std::slice::from_ref(&self.write), f) };
        result.ok_or(EnterError::Nested)
    }

    /// Runs `f` in a section that reads the segment. Other threads may read at the same time.
    ///
    /// # Errors
    /// [`EnterError::Nested`], [`EnterError::Poisoned`].
    pub fn read<R>(&self, f: impl for<'s> FnOnce(&mut Section<'s>) -> R) -> Result<R, EnterError> {
        if process_mapping::inside() {
            return Err(EnterError::Nested);
        }
        let _held = self.lock.read().map_err(|_| self.poisoned())?;
        self.read.set_len(self.region.len());
        // SAFETY: as in `enter`; the lock is held for reading, and nothing is changed.
        let result = unsafe { section::enter(std::slice::from_ref(&self.read), f) };
        result.ok_or(EnterError::Nested)
    }

    /// [`enter`](Self::enter) for a closure that may fail: there is one result.
    ///
    /// # Errors
    /// As `enter`, and as `f`.
    pub fn try_enter<R, E: From<EnterError>>(
        &self,
        f: impl for<'s> FnOnce(&mut Section<'s>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.enter(f)?
    }

    /// [`read`](Self::read) for a closure that may fail: there is one result.
    ///
    /// # Errors
    /// As `read`, and as `f`.
    pub fn try_read<R, E: From<EnterError>>(
        &self,
        f: impl for<'s> FnOnce(&mut Section<'s>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.read(f)?
    }

    fn poisoned(&self) -> EnterError {
        EnterError::Poisoned {
            segment: self.write.name.to_string(),
        }
    }
}
