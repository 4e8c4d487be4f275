//! A region on Linux: the reservation and the system calls that fill it.
//!
//! Ordinary private memory is committed by `mprotect` of the reserved range after the old end,
//! files and hugetlb pages by `mmap(MAP_FIXED)` over it. Neither touches what is already committed.
//!
//! The reservation is `PROT_NONE`, which the kernel does not account as memory, but not
//! `MAP_NORESERVE`. So committed memory *is* accounted, and an obvious overcommit is an error of
//! `grow()`; under strict accounting (`vm.overcommit_memory=2`), any overcommit is.

mod file;
mod mapping;
mod reservation;
mod settings;
mod window;

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use super::{Access, FRAME, PageKind, PagePolicy, PageReport, RegionError, Reserve, pages};
use crate::NodeId;
use crate::files::{self, FsKind};
use crate::syncs::Syncs;

pub(crate) use settings::collapses_shared_memory;

use file::allocate;
pub(super) use reservation::Reservation;
pub(super) use settings::hugetlb_free;
pub(super) use window::WindowRange;

/// The size of a page in bytes: 4096, or up to 65536 on aarch64.
pub(super) fn page_size() -> usize {
    // SAFETY: no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// What is mapped into the reservation.
pub(super) struct RegionBacking {
    source: Source,
    /// Set once: children of `fork` do not get the region.
    private_to_process: AtomicBool,
    syncs: Syncs,
    /// How a file is mapped: `MAP_SHARED`, possibly with `MAP_SYNC`.
    flags: libc::c_int,
}

enum Source {
    Anonymous,
    File {
        file: File,
        kind: FsKind,
        reserve: Reserve,
        /// Whether the kernel refuses to shorten the file.
        sealed: bool,
    },
}

impl RegionBacking {
    fn new(source: Source) -> Self {
        Self {
            source,
            private_to_process: AtomicBool::new(false),
            syncs: Syncs::default(),
            flags: libc::MAP_SHARED,
        }
    }

    /// A file whose medium has stores as soon as the CPU's cache is written back.
    pub(super) fn direct(mut self) -> Result<Self, RegionError> {
        let Source::File { file, kind, .. } = &self.source else {
            return Ok(self);
        };
        if *kind == FsKind::Other {
            let is_direct = files::is_direct(file);
            let is_direct =
                is_direct.map_err(|source| RegionError::from_os("map the file", 0, source))?;
            if !is_direct {
                return Err(RegionError::Unsupported {
                    what: "a mapping that flushed cache lines leave, of a file on neither memory nor \
                           a file system mounted with dax",
                });
            }
            self.flags = libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC;
        }
        Ok(self)
    }

    pub(super) fn anonymous() -> Self {
        Self::new(Source::Anonymous)
    }

    pub(super) fn is_anonymous(&self) -> bool {
        matches!(self.source, Source::Anonymous)
    }

    pub(super) fn is_on_medium(&self) -> bool {
        let Source::File { kind, .. } = &self.source else {
            return false;
        };
        *kind == FsKind::Other
    }

    /// A memfd of length 0. It is of the hugetlb kind only if the pool could provide all of `max`:
    /// a file cannot change its kind when it grows.
    pub(super) fn memfd(name: &str, max: usize, policy: PagePolicy) -> Result<Self, RegionError> {
        let huge = policy.wants_pool() && settings::hugetlb_free() >= max;
        let pool = huge
            .then(|| file::create_memfd(name, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).ok())
            .flatten();
        let (file, kind) = match pool {
            Some(file) => (file, FsKind::HugePages { page: FRAME as u64 }),
            None => (file::create_memfd(name, 0)?, FsKind::Memory),
        };
        let sealed = file::seal(&file);
        Ok(Self::new(Source::File {
            file,
            kind,
            reserve: Reserve::Lazy,
            sealed,
        }))
    }

    /// An existing file and its length in whole pages.
    pub(super) fn file(
        fd: OwnedFd,
        access: Access,
        reserve: Reserve,
    ) -> Result<(Self, usize), RegionError> {
        let file = File::from(fd);
        let kind = file::fs_kind(&file)?;
        let sealed = access == Access::ReadWrite && file::seal(&file);
        let backing = Self::new(Source::File {
            file,
            kind,
            reserve,
            sealed,
        });
        let len = backing.file_len()?.unwrap_or(0);
        Ok((backing, len))
    }

    pub(super) fn duplicate_fd(&self) -> Option<io::Result<OwnedFd>> {
        match &self.source {
            Source::Anonymous => None,
            Source::File { file, .. } => Some(file.try_clone().map(OwnedFd::from)),
        }
    }

    /// The file's length in whole pages; `None` without a file.
    pub(super) fn file_len(&self) -> Result<Option<usize>, RegionError> {
        let Source::File { file, .. } = &self.source else {
            return Ok(None);
        };
        let len = file::length(file)?;
        Ok(Some(len / page_size() * page_size()))
    }

    /// Makes the file at least `to` bytes long, with its space allocated if requested.
    pub(super) fn extend(&self, from: usize, to: usize) -> Result<(), RegionError> {
        let Source::File {
            file,
            kind,
            reserve,
            sealed,
        } = &self.source
        else {
            return Ok(());
        };
        let bytes = to - from;
        match (kind, reserve) {
            // A shared hugetlb mapping reserves its pages in the pool or fails, and only then
            // extends the file itself: see `commit`. So it never lacks space.
            (FsKind::HugePages { .. }, _) => Ok(()),
            (_, Reserve::AtGrowth) => allocate(file, from..to),
            (_, Reserve::Lazy) if *sealed => {
                // SAFETY: a valid descriptor and a length that fits.
                let done = unsafe { libc::ftruncate(file.as_raw_fd(), file::offset(to)) } == 0;
                // The seal refuses to shorten: another participant was faster.
                if done || file::length(file)? >= to {
                    Ok(())
                } else {
                    Err(os("lengthen the file", bytes))
                }
            }
            // `ftruncate` could shorten the file that another participant has just extended;
            // allocating the last page never does.
            (_, Reserve::Lazy) => allocate(file, to - page_size()..to),
        }
    }

    /// Whether the file's space is allocated on use, and may be missing then. For hugetlbfs the
    /// mapping allocates it, and memory without a name (which alone can be sealed) has no limit of
    /// its own.
    pub(super) fn is_lazy(&self) -> bool {
        matches!(
            &self.source,
            Source::File {
                reserve: Reserve::Lazy,
                kind: FsKind::Memory | FsKind::Other,
                sealed: false,
                ..
            }
        )
    }

    /// Whether it is only in memory that is allocated as it is touched or reserved. For anonymous
    /// memory, the region knows whether pages come from the pool.
    pub(super) fn gives_back(&self) -> bool {
        matches!(
            &self.source,
            Source::Anonymous
                | Source::File {
                    reserve: Reserve::Lazy,
                    kind: FsKind::Memory,
                    ..
                }
        )
    }

    /// Returns the memory of `range`, which begins and ends at page borders.
    pub(super) fn give_back(
        &self,
        place: &Reservation,
        range: Range<usize>,
    ) -> Result<(), RegionError> {
        match &self.source {
            _ if range.is_empty() => Ok(()),
            Source::File { file, .. } => file::punch(file, range),
            Source::Anonymous if mapping::discard(place, &range) => Ok(()),
            Source::Anonymous => {
                let source = io::Error::last_os_error();
                Err(match source.raw_os_error() {
                    Some(libc::EINVAL) => RegionError::Unsupported {
                        what: "giving back memory that is locked",
                    },
                    _ => RegionError::from_os("give memory back", range.len(), source),
                })
            }
        }
    }

    /// Allocates the space of `range`.
    pub(super) fn reserve(&self, range: Range<usize>) -> Result<(), RegionError> {
        match &self.source {
            Source::File { file, .. } if !range.is_empty() => allocate(file, range),
            _ => Ok(()),
        }
    }

    /// Maps `range` (of the region, and of the file) into the reservation.
    pub(super) fn commit(
        &self,
        place: &Reservation,
        range: Range<usize>,
        access: Access,
        policy: PagePolicy,
    ) -> Result<PageKind, RegionError> {
        let kind = match &self.source {
            Source::Anonymous => mapping::commit_anonymous(place, &range, policy)?,
            Source::File { file, kind, .. } => {
                let mapped = self.mapped(place, range.start)..self.mapped(place, range.end);
                if !mapped.is_empty() {
                    mapping::map_fixed(
                        place,
                        &mapped,
                        access,
                        self.flags,
                        file.as_raw_fd(),
                        "map the file",
                    )?;
                }
                match kind {
                    FsKind::HugePages { .. } => PageKind::HugeTlb,
                    _ => mapping::advise_pages(place, &(range.start..mapped.end), policy),
                }
            }
        };
        // Relaxed: written under the region's lock, under which this runs too.
        if self.private_to_process.load(Ordering::Relaxed) {
            self.advise_dont_fork(place, &(0..self.mapped(place, range.end)))?;
        }
        Ok(kind)
    }

    /// The number of bytes that are mapped when `len` are committed. It is larger if the whole
    /// place is mapped at once; but not for hugetlbfs, where that would take pages from the pool.
    pub(super) fn mapped(&self, place: &Reservation, len: usize) -> usize {
        match (&self.source, place.whole()) {
            (Source::File { kind, .. }, Some(whole)) if len > 0 => match kind {
                FsKind::HugePages { .. } => len,
                _ => whole,
            },
            _ => len,
        }
    }

    /// Moves the `len` bytes mapped in `from` to the same offsets in `to`, with pages and page
    /// tables. What remains in `from` is a mapping of the same file without pages: neither range
    /// has a hole at any moment.
    ///
    /// # Safety
    /// Both ranges must belong to the caller, and nobody may refer to anything in them.
    pub(super) unsafe fn relocate(
        from: &Reservation,
        to: &Reservation,
        len: usize,
    ) -> Result<(), RegionError> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: the caller's promise.
        let moved = unsafe { libc::mremap(from.at(0), len, len, flags, to.at(0)) };
        if moved != libc::MAP_FAILED {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        // SAFETY: the caller's promise. Whatever the call has cleared in `to` before it failed is
        // reserved again.
        unsafe { window::refill(to.base(), len) };
        Err(match source.raw_os_error() {
            // For shared memory before Linux 5.13; for hugetlbfs pages still.
            Some(libc::EINVAL) => RegionError::Unsupported {
                what: "moving this mapping to other addresses",
            },
            _ => RegionError::from_os("move the mapping", len, source),
        })
    }

    /// Makes the committed `len` bytes of a file writable.
    pub(super) fn permit_writes(&self, place: &Reservation, len: usize) -> Result<(), RegionError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let mapped = self.mapped(place, len);
        // SAFETY: the range is mapped and belongs to this region; the change only allows more than
        // before.
        if len > 0 && unsafe { libc::mprotect(place.at(0), mapped, protection) } != 0 {
            return Err(os("make the region writable", len));
        }
        Ok(())
    }

    /// Makes the committed `len` bytes read-only. Nobody may store there through Rust references.
    pub(super) fn forbid_writes(&self, place: &Reservation, len: usize) -> Result<(), RegionError> {
        let mapped = self.mapped(place, len);
        // SAFETY: the range is mapped and belongs to this region. The change allows less than
        // before: a store kills the process, as intended.
        if len > 0 && unsafe { libc::mprotect(place.at(0), mapped, libc::PROT_READ) } != 0 {
            return Err(os("make the region readable only", len));
        }
        Ok(())
    }

    pub(super) fn sync(&self, place: &Reservation, range: Range<usize>) -> Result<(), RegionError> {
        let Source::File { file, kind, .. } = &self.source else {
            return Ok(());
        };
        if *kind != FsKind::Other || range.is_empty() {
            return Ok(());
        }
        let synced = self.syncs.run(|| {
            // SAFETY: the committed range is mapped.
            if unsafe { libc::msync(place.at(range.start), range.len(), libc::MS_SYNC) } != 0 {
                return Err(os("write the region to its medium", range.len()));
            }
            // Also writes the length and the allocation.
            file.sync_data().map_err(|source| RegionError::Os {
                what: "write the file to its medium",
                source,
            })
        });
        synced.map_err(|error| {
            error.unwrap_or_else(|| RegionError::Os {
                what: "rely on the medium any more",
                source: io::Error::other("an earlier sync of the region failed"),
            })
        })
    }

    pub(super) fn prefault(
        &self,
        place: &Reservation,
        range: Range<usize>,
        access: Access,
        policy: PagePolicy,
    ) -> Result<(), RegionError> {
        if range.is_empty() {
            return Ok(());
        }
        if let (
            Source::File {
                file,
                kind: FsKind::Other,
                ..
            },
            Access::ReadWrite,
        ) = (&self.source, access)
        {
            // In one piece, instead of page by page on touch.
            match allocate(file, range.clone()) {
                Ok(()) | Err(RegionError::Unsupported { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        let collapses =
            policy != PagePolicy::Small && access == Access::ReadWrite && collapses_shared_memory();
        let is_memory = matches!(
            self.source,
            Source::File {
                kind: FsKind::Memory,
                ..
            }
        );
        let whole = range.start.div_ceil(FRAME)..range.end / FRAME;
        let frames = whole.clone().map(|n| n * FRAME..(n + 1) * FRAME);
        if !collapses || !is_memory || whole.is_empty() {
            self.populate(place, &range, access)?;
            if policy != PagePolicy::Small {
                for frame in frames {
                    mapping::collapse(place, &frame);
                }
            }
            return Ok(());
        }
        self.populate_small(place, range.start..whole.start * FRAME, access)?;
        for frame in frames {
            self.populate_frame(place, &frame, access)?;
        }
        self.populate_small(place, whole.end * FRAME..range.end, access)
    }

    /// Allocates a frame of shared memory, as a huge page if possible.
    ///
    /// If it contains one page, the frame is not refused, and the kernel clears the rest as a part
    /// of the huge page. Only a frame that the kernel does not collapse is populated page by page.
    fn populate_frame(
        &self,
        place: &Reservation,
        frame: &Range<usize>,
        access: Access,
    ) -> Result<(), RegionError> {
        self.populate(place, &(frame.start..frame.start + page_size()), access)?;
        if mapping::collapse(place, frame) {
            // It may be a part of a larger huge page, which the kernel then does not collapse.
            return self.populate(place, frame, access);
        }
        self.populate_small(place, frame.clone(), access)?;
        mapping::collapse(place, frame);
        Ok(())
    }

    /// Allocates small pages, with all of their space or none of it.
    fn populate_small(
        &self,
        place: &Reservation,
        range: Range<usize>,
        access: Access,
    ) -> Result<(), RegionError> {
        if range.is_empty() {
            return Ok(());
        }
        if let Source::File { file, .. } = &self.source {
            allocate(file, range.clone())?;
        }
        self.populate(place, &range, access)
    }

    /// Allocates every page, or returns the reason why not; without a SIGBUS if the kernel is 5.14
    /// or newer or the file system can reserve space.
    fn populate(
        &self,
        place: &Reservation,
        range: &Range<usize>,
        access: Access,
    ) -> Result<(), RegionError> {
        const MADV_POPULATE_READ: libc::c_int = 22;
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        let advice = match access {
            Access::ReadOnly => MADV_POPULATE_READ,
            Access::ReadWrite => MADV_POPULATE_WRITE,
        };
        loop {
            if mapping::advise(place, range, advice) {
                return Ok(());
            }
            let source = io::Error::last_os_error();
            match (source.raw_os_error(), &self.source) {
                (Some(libc::EINTR | libc::EAGAIN), _) => {}
                (Some(libc::EINVAL), _) => break,
                // A touch would have caused a SIGBUS here.
                (Some(libc::EFAULT), Source::File { .. }) => {
                    return Err(RegionError::NoSpace {
                        bytes: range.len(),
                        source,
                    });
                }
                _ => {
                    return Err(RegionError::from_os("bring memory in", range.len(), source));
                }
            }
        }
        if let (Source::File { file, .. }, Access::ReadWrite) = (&self.source, access) {
            allocate(file, range.clone())?;
        }
        mapping::touch(place, range, access);
        Ok(())
    }

    pub(super) fn bind(
        &self,
        place: &Reservation,
        range: Range<usize>,
        node: NodeId,
    ) -> Result<(), RegionError> {
        /// `MPOL_PREFERRED`: with `MPOL_BIND`, a full node would lead to the OOM killer, or to a
        /// SIGBUS for hugetlb.
        const MPOL_PREFERRED: libc::c_int = 1;
        const BITS: usize = libc::c_ulong::BITS as usize;
        let bit = usize::from(node.0);
        let mut mask = [0 as libc::c_ulong; 1024 / BITS];
        let Some(word) = mask.get_mut(bit / BITS) else {
            return Err(RegionError::Os {
                what: "bind memory to a node beyond 1023",
                source: io::ErrorKind::InvalidInput.into(),
            });
        };
        *word = 1 << (bit % BITS);
        if range.is_empty() {
            return Ok(());
        }
        // SAFETY: the range is mapped and belongs to this region; `mask` has the 1024 bits
        // announced (the kernel subtracts one from the count).
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                place.at(range.start),
                range.len(),
                MPOL_PREFERRED,
                mask.as_ptr(),
                1025usize,
                0u32,
            )
        };
        if result == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            // The kernel has no NUMA support, or a sandbox forbids it: irrelevant with one node.
            Some(libc::ENOSYS | libc::EPERM) if single_node() && node == NodeId(0) => Ok(()),
            _ => Err(RegionError::from_os(
                "bind memory to a node",
                range.len(),
                source,
            )),
        }
    }

    pub(super) fn dont_fork(&self, place: &Reservation, len: usize) -> Result<(), RegionError> {
        self.private_to_process.store(true, Ordering::Relaxed);
        self.advise_dont_fork(place, &(0..self.mapped(place, len)))
    }

    fn advise_dont_fork(
        &self,
        place: &Reservation,
        range: &Range<usize>,
    ) -> Result<(), RegionError> {
        if !range.is_empty() && !mapping::advise(place, range, libc::MADV_DONTFORK) {
            return Err(os("withhold memory from children", range.len()));
        }
        Ok(())
    }

    pub(super) fn report(
        &self,
        place: &Reservation,
        len: usize,
        weakest: PageKind,
        policy: PagePolicy,
    ) -> PageReport {
        let start = place.base().addr();
        let resident = fs::read_to_string("/proc/self/smaps")
            .map(|text| pages::parse_smaps(&text, &(start..start + len)))
            .unwrap_or_default();
        let (kind, warning) = if weakest == PageKind::HugeTlb || policy == PagePolicy::Small {
            (weakest, None)
        } else {
            settings::report(self.promise(), resident)
        };
        PageReport {
            kind,
            resident_bytes: resident.total,
            huge_bytes: resident.huge,
            warning,
        }
    }

    fn promise(&self) -> settings::Promise {
        match &self.source {
            Source::Anonymous => settings::anonymous(),
            Source::File {
                kind: FsKind::Memory,
                file,
                sealed,
                ..
            } => {
                // Only a memfd can be sealed.
                if *sealed {
                    settings::memfd()
                } else {
                    settings::tmpfs(file)
                }
            }
            Source::File { .. } => settings::other(),
        }
    }
}

fn single_node() -> bool {
    use crate::Topology;
    crate::SysfsTopology::detect().nodes() == 1
}

fn os(what: &'static str, bytes: usize) -> RegionError {
    RegionError::from_os(what, bytes, io::Error::last_os_error())
}
