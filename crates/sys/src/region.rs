//! Regions: reserved address ranges with a committed size that grows in place.
//!
//! [`Region`] has the promises. `backing` (or `heap` under Miri) makes the system calls, `access`
//! turns offsets into references, `header` is the first 128 bytes of every region, and `pages`
//! reports what memory was really obtained.

mod access;
#[cfg_attr(miri, path = "region/heap.rs")]
mod backing;
mod error;
mod header;
mod pages;
mod parking;
mod window;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

pub(crate) use backing::collapses_shared_memory;

pub use access::InRegion;
pub use error::RegionError;
pub use header::{HEADER_LEN, HeaderError, RegionHeader};
pub use pages::{PageKind, PagePolicy, PageReport};
pub use window::{Window, WindowError};

/// The unit of a region's size and of its base's alignment: 2 MiB.
pub const FRAME: usize = 2 << 20;

/// The number of bytes in 2 MiB pages that the hugetlb pool can still provide; 0 if there is no
/// pool.
#[must_use]
pub fn huge_pool_free() -> usize {
    backing::hugetlb_free()
}

/// How a file is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only. The region cannot be grown, but follows growth by others ([`Region::refresh`]).
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// When space is allocated for the file behind a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// When the region grows (`fallocate`): a lack of space is an error of [`Region::grow`] and
    /// never a SIGBUS later. On tmpfs this allocates memory at once.
    AtGrowth,
    /// On first touch. If the file system has a limit, call [`Region::reserve`] or
    /// [`Region::prefault`] before that. A memfd has none, and behaves like private memory.
    Lazy,
}

/// A reserved address range with a committed size.
///
/// It reserves [`max`](Self::max) bytes of address space once, without memory, and commits a prefix
/// of it. [`grow`](Self::grow) commits more after the old end: **no pointer into the region ever
/// becomes invalid while the region lives**. There are four kinds:
///
/// * [`Region::private`]: anonymous memory of this process;
/// * [`Region::memfd`]: anonymous memory with a descriptor, which another process, or a test, can
///   map a second time at another address ([`Region::duplicate_fd`], [`Region::map`]);
/// * [`Region::map`]: an existing file: a memfd, or a file on tmpfs, hugetlbfs or a disk;
/// * [`Region::map_at`]: an existing file, at an address of the caller's choice in a [`Window`].
///
/// Memory is allocated on first touch; [`Region::prefault`] allocates it earlier, and returns an
/// error if there is not enough. [`PagePolicy`] requests the kind of pages, and [`Region::pages`]
/// reports the actual one.
///
/// `Send + Sync`: every method may be called from any thread at any time. After `fork`, a private
/// region is the child's own copy, and the others remain shared, unless
/// [`dont_fork`](Self::dont_fork) was called. Dropping it unmaps the memory; a file is kept.
pub struct Region {
    place: backing::Reservation,
    backing: backing::RegionBacking,
    /// Whether stores are allowed: from the start, or since [`Region::permit_writes`].
    writable: AtomicBool,
    policy: PagePolicy,
    max: usize,
    /// The committed length in bytes; only ever grows.
    len: AtomicUsize,
    /// Held while the region grows or moves.
    laid: Mutex<Laid>,
}

/// The state of a region's mapping.
struct Laid {
    /// The weakest kind of pages committed so far.
    weakest: PageKind,
    /// Where the mapping is while the region is parked.
    aside: Option<backing::Reservation>,
    /// The committed length while the region is parked.
    parked: Option<usize>,
    /// Whether any of it was taken from the pool of huge pages.
    pooled: bool,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("base", &self.base())
            .field("len", &self.len())
            .field("max", &self.max)
            .field("access", &self.access())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// Anonymous memory of this process: `len` bytes committed, growing to `max`; both are rounded
    /// up to multiples of 2 MiB, and `max` is at least `len`. Filled with zeros; not in memory
    /// until touched.
    ///
    /// # Errors
    /// [`RegionError::Size`], [`RegionError::Reserve`], [`RegionError::NoMemory`].
    ///
    /// ```
    /// use mneme_sys::{PagePolicy, Region};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// let region = Region::private(2 << 20, 16 << 20, PagePolicy::Huge)?;
    /// let word = region.at::<AtomicU64>(64)?;
    /// word.store(7, Ordering::Relaxed);
    /// region.grow(4 << 20)?;
    /// assert_eq!(word.load(Ordering::Relaxed), 7);
    /// assert!(region.at::<AtomicU64>(4 << 20).is_err());
    /// # Ok::<(), mneme_sys::RegionError>(())
    /// ```
    pub fn private(len: usize, max: usize, policy: PagePolicy) -> Result<Self, RegionError> {
        Self::start(
            backing::RegionBacking::anonymous(),
            Access::ReadWrite,
            len,
            max,
            policy,
        )
    }

    /// Anonymous memory with a descriptor, named `name` in `/proc`, for others to map. Sizes as in
    /// [`private`](Self::private). Sealed against shrinking.
    ///
    /// Lazy: `fallocate` on a memfd would allocate all the memory at once, and a memfd has no size
    /// limit that could be reached later.
    ///
    /// As [`private`](Self::private), and `Os` if the kernel refuses a memfd.
    /// As [`private`](Self::private), and `Os` if the kernel gives no memfd.
    pub fn memfd(
        name: &str,
        len: usize,
        max: usize,
        policy: PagePolicy,
    ) -> Result<Self, RegionError> {
        let (_, max_rounded) = sizes(len, max)?;
        let backing = backing::RegionBacking::memfd(name, max_rounded, policy)?;
        Self::start(backing, Access::ReadWrite, len, max, policy)
    }

    /// Maps an existing file (a memfd, or one on tmpfs, hugetlbfs or a disk) at its current length,
    /// rounded down to whole pages; an empty file gives an empty region that can be grown. `max` is
    /// rounded up to a multiple of 2 MiB, and to at least the file's length.
    ///
    /// Growth allocates the file's space ([`Reserve::AtGrowth`]). The existing part is used as it
    /// is, including holes. The file must not be shortened while it is mapped: touching the missing
    /// part is fatal (SIGBUS). A memfd is sealed against that if it permits sealing.
    ///
    /// # Errors
    /// As [`private`](Self::private), and `Os` for a descriptor that cannot be mapped with this
    /// access.
    pub fn map(
        file: OwnedFd,
        access: Access,
        max: usize,
        policy: PagePolicy,
    ) -> Result<Self, RegionError> {
        Self::map_with(file, access, max, policy, Reserve::AtGrowth)
    }

    /// As [`map`](Self::map), with a choice of when space is allocated.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub fn map_with(
        file: OwnedFd,
        access: Access,
        max: usize,
        policy: PagePolicy,
        reserve: Reserve,
    ) -> Result<Self, RegionError> {
        Self::of_file(
            backing::RegionBacking::file(file, access, reserve)?,
            access,
            max,
            policy,
        )
    }

    /// As [`map`](Self::map), for writing, of a file whose medium has stores as soon as the CPU's
    /// cache is written back: a file in memory, or on persistent memory mounted with `dax`, which
    /// is mapped with `MAP_SYNC`.
    ///
    /// # Errors
    /// As [`map`](Self::map); `Unsupported` for a file on another medium.
    pub fn map_direct(file: OwnedFd, max: usize, policy: PagePolicy) -> Result<Self, RegionError> {
        let access = Access::ReadWrite;
        let (backing, len) = backing::RegionBacking::file(file, access, Reserve::AtGrowth)?;
        Self::of_file((backing.direct()?, len), access, max, policy)
    }

    fn of_file(
        (backing, len): (backing::RegionBacking, usize),
        access: Access,
        max: usize,
        policy: PagePolicy,
    ) -> Result<Self, RegionError> {
        let (_, max) = sizes(1, max.max(len))?;
        let place = backing::Reservation::new(max)?;
        let region = Self::build(place, backing, access, max, policy);
        region.follow(&mut region.lock(), len)?;
        Ok(region)
    }

    fn start(
        backing: backing::RegionBacking,
        access: Access,
        len: usize,
        max: usize,
        policy: PagePolicy,
    ) -> Result<Self, RegionError> {
        let (len, max) = sizes(len, max)?;
        let place = backing::Reservation::new(max)?;
        let region = Self::build(place, backing, access, max, policy);
        region.grow(len)?;
        Ok(region)
    }

    fn build(
        place: backing::Reservation,
        backing: backing::RegionBacking,
        access: Access,
        max: usize,
        policy: PagePolicy,
    ) -> Self {
        Self {
            place,
            backing,
            writable: AtomicBool::new(access == Access::ReadWrite),
            policy,
            max,
            len: AtomicUsize::new(0),
            laid: Mutex::new(Laid {
                weakest: PageKind::HugeTlb,
                aside: None,
                parked: None,
                pooled: false,
            }),
        }
    }

    /// The address of the first byte. Aligned to 2 MiB; constant for the life of the region, and
    /// different in each opening, unless it was chosen ([`Region::map_at`]).
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.place.base()
    }

    /// [`base`](Self::base) as a pointer that is not null: no region begins at address 0.
    #[inline]
    pub fn first_byte(&self) -> NonNull<u8> {
        // SAFETY: the kernel chose the reservation, or it lies in a window, whose base is not 0.
        unsafe { NonNull::new_unchecked(self.base()) }
    }

    /// The committed length in bytes, which may be accessed. Never shrinks, but is 0 while the
    /// region is [parked](Region::park).
    #[inline]
    pub fn len(&self) -> usize {
        // SYNC: pairs with the Release store in `follow`: a thread that sees the length sees the
        // mapping.
        self.len.load(Ordering::Acquire)
    }

    /// Whether nothing is committed, as for a newly mapped empty file.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The reserved length in bytes: the maximum size.
    #[inline]
    pub fn max(&self) -> usize {
        self.max
    }

    /// How the region is mapped.
    #[inline]
    pub fn access(&self) -> Access {
        // SYNC: pairs with the Release store in `permit_writes`: a thread that sees it may store.
        if self.writable.load(Ordering::Acquire) {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        }
    }

    /// Allows stores to a region that was mapped read-only, in place; no pointer changes. Its
    /// descriptor must have been opened for writing. Does nothing if stores are already allowed.
    ///
    /// # Errors
    /// [`RegionError::Os`] if the descriptor does not allow it; the region is then unchanged.
    pub fn permit_writes(&self) -> Result<(), RegionError> {
        let laid = self.lock();
        if self.access() == Access::ReadOnly {
            let (place, len) = self.present(&laid);
            self.backing.permit_writes(place, len)?;
            // SYNC: pairs with the Acquire load in `access`.
            self.writable.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Forbids stores, in a forked child: from then on the inherited region is only for loads, and
    /// a store kills the child. Takes no lock, because a thread of the parent may have held any.
    ///
    /// # Errors
    /// [`RegionError::Os`]: the kernel refuses; stores remain allowed.
    pub fn forbid_writes_in_child(&self) -> Result<(), RegionError> {
        self.backing.forbid_writes(&self.place, self.len())
    }

    /// Whether it is memory of this process that no other can map.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.backing.is_anonymous()
    }

    /// Whether its bytes are on a medium and memory only holds copies: accesses read them from
    /// there, and changes are written to it. Otherwise they are only in memory: private, a memfd,
    /// tmpfs or hugetlbfs.
    #[must_use]
    pub fn is_on_medium(&self) -> bool {
        self.backing.is_on_medium()
    }

    /// A descriptor of the same memory, for [`Region::map`] in a test or for sending to another
    /// process; `None` for private memory. It shares the region's open file description, so lock
    /// only through a reopened one ([`OfdLiveness::reopen`](crate::OfdLiveness::reopen)).
    pub fn duplicate_fd(&self) -> Option<io::Result<OwnedFd>> {
        self.backing.duplicate_fd()
    }

    /// Commits up to `new_len` bytes, rounded up to multiples of 2 MiB. Pointers into the region
    /// stay valid. Does nothing if it is already that long.
    ///
    /// # Errors
    /// [`RegionError::BeyondMax`], [`RegionError::ReadOnly`], [`RegionError::NoMemory`],
    /// [`RegionError::NoSpace`], [`RegionError::Unsupported`] if the file system cannot reserve
    /// space; [`RegionError::Parked`]. The region then keeps its length.
    pub fn grow(&self, new_len: usize) -> Result<(), RegionError> {
        let wanted = round_up(new_len).ok_or(RegionError::BeyondMax {
            wanted: new_len,
            max: self.max,
        })?;
        if wanted > self.max {
            return Err(RegionError::BeyondMax {
                wanted,
                max: self.max,
            });
        }
        let mut laid = self.lock();
        if laid.parked.is_some() {
            return Err(RegionError::Parked);
        }
        if wanted <= self.len() {
            return Ok(());
        }
        if self.access() == Access::ReadOnly {
            return Err(RegionError::ReadOnly);
        }
        self.backing.extend(self.len(), wanted)?;
        self.follow(&mut laid, wanted)
    }

    /// Follows growth by another participant: commits what the file has gained since. Returns the
    /// committed length. For private memory, only returns the length.
    ///
    /// # Errors
    /// [`RegionError::Shrunk`] if the file lost a part that is mapped; otherwise as
    /// [`grow`](Self::grow).
    pub fn refresh(&self) -> Result<usize, RegionError> {
        let mut laid = self.lock();
        if laid.parked.is_some() {
            return Err(RegionError::Parked);
        }
        let was = self.len();
        if let Some(now) = self.backing.file_len()? {
            if now < was {
                return Err(RegionError::Shrunk { was, now });
            }
            self.follow(&mut laid, now.min(self.max))?;
        }
        Ok(self.len())
    }

    /// Where the region's bytes are now, and how many there are.
    fn present<'a>(&'a self, laid: &'a Laid) -> (&'a backing::Reservation, usize) {
        match (laid.parked, &laid.aside) {
            (Some(len), Some(aside)) => (aside, len),
            _ => (&self.place, self.len()),
        }
    }

    /// Maps the file's (or anonymous) bytes from the current length to `to`.
    fn follow(&self, laid: &mut Laid, to: usize) -> Result<(), RegionError> {
        let (place, from) = self.present(laid);
        if to > from {
            let kind = self
                .backing
                .commit(place, from..to, self.access(), self.policy)?;
            laid.weakest = laid.weakest.min(kind);
            laid.pooled |= kind == PageKind::HugeTlb;
            match &mut laid.parked {
                Some(len) => *len = to,
                // SYNC: pairs with the Acquire load in `len`.
                None => self.len.store(to, Ordering::Release),
            }
        }
        Ok(())
    }

    /// Writes changes through to the file's medium and waits for it. Does nothing for memory.
    ///
    /// # Errors
    /// [`RegionError::Os`]: the medium failed, now or at an earlier sync of this opening, and its
    /// content is unknown; [`RegionError::Parked`].
    pub fn sync(&self) -> Result<(), RegionError> {
        if self.is_parked() {
            return Err(RegionError::Parked);
        }
        self.backing.sync(&self.place, 0..self.len())
    }

    /// As [`sync`](Self::sync), for the bytes of `range`, widened to whole pages.
    ///
    /// # Errors
    /// As [`sync`](Self::sync); [`RegionError::OutOfBounds`].
    pub fn sync_range(&self, range: Range<usize>) -> Result<(), RegionError> {
        let range = self.pages_of(range)?;
        self.backing.sync(&self.place, range)
    }

    /// Allocates memory for the bytes of `range`, widened to whole pages, in pages as large as the
    /// policy requests and the kernel has: scattered small pages are collapsed into huge ones. The
    /// content is kept. Measured: 0.15 to 0.35 s a GiB with huge pages, 0.8 s if small pages are
    /// collapsed into them, 3 s with 4 KiB pages.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`] or [`RegionError::NoSpace`]; [`RegionError::OutOfBounds`]. Part of
    /// the range may then be in memory.
    pub fn prefault(&self, range: Range<usize>) -> Result<(), RegionError> {
        let range = self.pages_of(range)?;
        self.backing
            .prefault(&self.place, range, self.access(), self.policy)
    }

    /// Allocates space for the bytes of `range`, widened to whole pages, in a file with
    /// [lazy](Reserve::Lazy) allocation, so that touching them afterwards cannot fail for lack of
    /// it. Does nothing for any other region. The content is kept. Takes 0.2 ms a frame of small
    /// pages on tmpfs, even if the space is already allocated.
    ///
    /// # Errors
    /// [`RegionError::NoSpace`], [`RegionError::Unsupported`], [`RegionError::OutOfBounds`]. Part
    /// of the range may then have its space.
    pub fn reserve(&self, range: Range<usize>) -> Result<(), RegionError> {
        if !self.backing.is_lazy() {
            return Ok(());
        }
        let range = self.pages_of(range)?;
        self.backing.reserve(range)
    }

    /// Whether [`reserve`](Self::reserve) has any effect here.
    pub fn is_lazy(&self) -> bool {
        self.backing.is_lazy()
    }

    /// Whether memory can be [given back](Self::give_back): the region is only in memory, none of
    /// it comes from the pool of huge pages, and memory is allocated as it is touched or reserved.
    pub fn gives_back(&self) -> bool {
        self.access() == Access::ReadWrite && self.backing.gives_back() && !self.lock().pooled
    }

    /// Returns the memory of `range`, which consists of whole frames, to the machine. The bytes are
    /// zeros afterwards, for every process that maps them, and get memory again as they are touched
    /// or reserved. Takes 20 to 100 us a frame.
    ///
    /// In a [lazy](Reserve::Lazy) file, touching a byte afterwards, even for reading, may fail for
    /// lack of space: the caller must ensure that nobody does so before the range is
    /// [reserved](Self::reserve) again.
    ///
    /// # Errors
    /// [`RegionError::Unsupported`] unless the region [supports it](Self::gives_back), or if its
    /// memory is locked; [`RegionError::OutOfBounds`]; [`RegionError::Parked`]; `Os`. The bytes are
    /// then unchanged.
    pub fn give_back(&self, range: Range<usize>) -> Result<(), RegionError> {
        let laid = self.lock();
        if laid.parked.is_some() {
            return Err(RegionError::Parked);
        }
        let supported = self.access() == Access::ReadWrite && !laid.pooled;
        let whole = range.start.is_multiple_of(FRAME) && range.end.is_multiple_of(FRAME);
        if !supported || !whole || !self.backing.gives_back() {
            return Err(RegionError::Unsupported {
                what: "giving back this memory",
            });
        }
        let range = self.pages_of(range)?;
        self.backing.give_back(&self.place, range)
    }

    /// Requests that the bytes of `range`, widened to whole pages, be placed on `node`: a
    /// preference for memory that is not allocated yet. If that node is full, another is used.
    ///
    /// # Errors
    /// [`RegionError::Unsupported`] if the kernel has no NUMA policy although the machine has
    /// several nodes; with one node that is not an error. [`RegionError::OutOfBounds`]; `Os` for a
    /// node that does not exist.
    pub fn bind(&self, range: Range<usize>, node: crate::NodeId) -> Result<(), RegionError> {
        let range = self.pages_of(range)?;
        self.backing.bind(&self.place, range, node)
    }

    /// Excludes the region from children made by `fork`: touching it there is fatal, and a child
    /// does not keep the memory allocated.
    ///
    /// # Errors
    /// `Os` if the kernel refuses. Also applies to later growth.
    pub fn dont_fork(&self) -> Result<(), RegionError> {
        let laid = self.lock();
        let (place, len) = self.present(&laid);
        self.backing.dont_fork(place, len)
    }

    /// The pages that back the region at this moment, from `/proc/self/smaps`: for `stats()`, not
    /// for hot paths (it walks the page tables, which takes milliseconds for GiB of small pages).
    pub fn pages(&self) -> PageReport {
        let laid = self.lock();
        let (place, len) = self.present(&laid);
        self.backing.report(place, len, laid.weakest, self.policy)
    }

    /// Widens a range to whole pages and checks it.
    fn pages_of(&self, range: Range<usize>) -> Result<Range<usize>, RegionError> {
        let len = self.len();
        if range.start > range.end || range.end > len {
            return Err(RegionError::OutOfBounds {
                offset: range.start as u64,
                bytes: range.end.saturating_sub(range.start) as u64,
                len,
            });
        }
        let page = backing::page_size();
        // `len` is a whole number of pages, so neither end leaves the region.
        Ok(range.start / page * page..range.end.div_ceil(page) * page)
    }

    /// A panic cannot leave the state half written, because each change is the last step of its
    /// operation.
    fn lock(&self) -> MutexGuard<'_, Laid> {
        self.laid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn round_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(FRAME)
}

/// Rounds both sizes up to whole frames, with the maximum at least the other.
fn sizes(len: usize, max: usize) -> Result<(usize, usize), RegionError> {
    // Half of what x86-64 gives a process, which leaves space for arithmetic and for everything
    // else.
    const LIMIT: usize = 1 << 46;
    match (round_up(len), round_up(max.max(len))) {
        (Some(len), Some(max)) if len > 0 && max <= LIMIT => Ok((len, max)),
        _ => Err(RegionError::Size { len, max }),
    }
}

const _: fn() = || {
    fn shareable<T: Send + Sync>() {}
    shareable::<Region>();
};
