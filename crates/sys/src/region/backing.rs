//! What stands behind a region on Linux: the reservation and the system calls that fill it.
//!
//! Ordinary private memory is committed by `mprotect` of the reserved range behind the old end;
//! files and hugetlb pages by `mmap(MAP_FIXED)` over it. Neither touches what is committed.
//!
//! The reservation is `PROT_NONE`, which the kernel does not account as memory, yet it is not
//! `MAP_NORESERVE`: what is committed *is* accounted then, so that an obvious overcommit is an
//! error of `grow()`, and any at all under strict accounting (`vm.overcommit_memory=2`).

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io, ptr};

use super::pages::{self, Resident};
use super::{Access, FRAME, PageKind, PagePolicy, PageReport, RegionError, Reserve};
use crate::NodeId;

/// The first byte of a system's page, in bytes; 4096, or up to 65536 on aarch64.
pub(super) fn page_size() -> usize {
    // SAFETY: no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// An inaccessible address range, with a guard of at least a page on either side so that it
/// never merges with a neighbour and an overrun is caught.
pub(super) struct Reservation {
    base: *mut u8,
    start: *mut u8,
    total: usize,
}

// SAFETY: an address range, unmapped by the one owner; the pointers are never dereferenced here.
unsafe impl Send for Reservation {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for Reservation {}

impl Reservation {
    pub(super) fn new(max: usize) -> Result<Self, RegionError> {
        let total = max + 2 * FRAME;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                total,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(RegionError::Reserve {
                bytes: max,
                source: io::Error::last_os_error(),
            });
        }
        let start = start.cast::<u8>();
        // The first frame boundary at least one page in; less than a frame and a page of the
        // two frames of slack, so that some is left behind `max` as well.
        let skip = FRAME - start.addr() % FRAME;
        Ok(Self {
            base: start.wrapping_add(skip),
            start,
            total,
        })
    }

    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }

    fn at(&self, offset: usize) -> *mut libc::c_void {
        self.base.wrapping_add(offset).cast()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and the region that lent references into it is gone.
        unsafe { libc::munmap(self.start.cast(), self.total) };
    }
}

/// What is mapped into the reservation.
pub(super) struct Backing {
    source: Source,
    /// Set once: children of `fork` do not get the region.
    private_to_process: AtomicBool,
}

enum Source {
    Anonymous,
    File {
        file: File,
        medium: Medium,
        reserve: Reserve,
        /// The kernel refuses to shorten the file.
        sealed: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    /// tmpfs or a memfd: its pages are the file.
    Memory,
    HugeTlb,
    Other,
}

impl Backing {
    fn new(source: Source) -> Self {
        Self {
            source,
            private_to_process: AtomicBool::new(false),
        }
    }

    pub(super) fn anonymous() -> Self {
        Self::new(Source::Anonymous)
    }

    /// A memfd of length 0. It is of the hugetlb kind only if the pool could hold all of `max`:
    /// a file cannot change its kind when it grows.
    pub(super) fn memfd(
        name: &str,
        max: usize,
        policy: PagePolicy,
        reserve: Reserve,
    ) -> Result<Self, RegionError> {
        let huge = policy == PagePolicy::Huge && hugetlb_free() >= max;
        let pool = huge
            .then(|| create_memfd(name, libc::MFD_HUGETLB | libc::MFD_HUGE_2MB).ok())
            .flatten();
        let (file, medium) = match pool {
            Some(file) => (file, Medium::HugeTlb),
            None => (create_memfd(name, 0)?, Medium::Memory),
        };
        let sealed = seal(&file);
        Ok(Self::new(Source::File {
            file,
            medium,
            reserve,
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
        // SAFETY: `statfs` consists of integers, for which zeros are valid.
        let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `fs` is a valid place for one `statfs`.
        if unsafe { libc::fstatfs(file.as_raw_fd(), &mut fs) } != 0 {
            return Err(os("examine the file", 0));
        }
        let medium = match fs.f_type {
            libc::TMPFS_MAGIC => Medium::Memory,
            libc::HUGETLBFS_MAGIC if fs.f_bsize as usize > FRAME => {
                return Err(RegionError::Unsupported {
                    what: "hugetlbfs with pages above 2 MiB",
                });
            }
            libc::HUGETLBFS_MAGIC => Medium::HugeTlb,
            _ => Medium::Other,
        };
        let sealed = access == Access::ReadWrite && seal(&file);
        let backing = Self::new(Source::File {
            file,
            medium,
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
        let len = length(file)?;
        Ok(Some(len / page_size() * page_size()))
    }

    /// Makes the file at least `to` bytes long, with its space if that is wanted.
    pub(super) fn extend(&self, from: usize, to: usize) -> Result<(), RegionError> {
        let Source::File {
            file,
            medium,
            reserve,
            sealed,
        } = &self.source
        else {
            return Ok(());
        };
        let bytes = to - from;
        match (medium, reserve) {
            // A shared hugetlb mapping reserves its pages in the pool or fails, and lengthens
            // the file itself after that: see `commit`. Space for it is thus never missing.
            (Medium::HugeTlb, _) => Ok(()),
            (_, Reserve::AtGrowth) => allocate(file, from..to),
            (_, Reserve::Lazy) if *sealed => {
                // SAFETY: a valid descriptor and a length that fits.
                let done = unsafe { libc::ftruncate(file.as_raw_fd(), offset(to)) } == 0;
                // The seal refuses to shorten: then another participant was faster.
                if done || length(file)? >= to {
                    Ok(())
                } else {
                    Err(os("lengthen the file", bytes))
                }
            }
            // `ftruncate` could shorten what another participant has just lengthened;
            // allocating the last page never does.
            (_, Reserve::Lazy) => allocate(file, to - page_size()..to),
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
            Source::Anonymous => commit_anonymous(place, &range, policy)?,
            Source::File { file, medium, .. } => {
                map_fixed(
                    place,
                    &range,
                    access,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    "map the file",
                )?;
                match medium {
                    Medium::HugeTlb => PageKind::HugeTlb,
                    _ => advise_pages(place, &range, policy),
                }
            }
        };
        // Relaxed: written under the region's lock, under which this runs too.
        if self.private_to_process.load(Ordering::Relaxed) {
            self.advise_dont_fork(place, &range)?;
        }
        Ok(kind)
    }

    pub(super) fn sync(&self, place: &Reservation, len: usize) -> Result<(), RegionError> {
        let Source::File { file, medium, .. } = &self.source else {
            return Ok(());
        };
        if *medium != Medium::Other || len == 0 {
            return Ok(());
        }
        // SAFETY: the committed range is mapped.
        if unsafe { libc::msync(place.at(0), len, libc::MS_SYNC) } != 0 {
            return Err(os("write the region to its medium", len));
        }
        // The length and the allocation too.
        file.sync_data().map_err(|source| RegionError::Os {
            what: "write the file to its medium",
            source,
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
        let mut collapsed = false;
        if let (Source::File { file, medium, .. }, Access::ReadWrite) = (&self.source, access) {
            // Straight into huge pages where the kernel would give small ones on touch: cheaper
            // than to fill small ones and copy them.
            if *medium == Medium::Memory && policy != PagePolicy::Small {
                collapsed = collapse(place, &range);
            }
            if !collapsed {
                match allocate(file, range.clone()) {
                    // Such a file system reports a lack of space on touch only.
                    Ok(()) | Err(RegionError::Unsupported { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        populate(place, &range, access)?;
        if policy != PagePolicy::Small && !collapsed {
            // What is huge already costs nothing; what cannot be collapsed stays as it is.
            collapse(place, &range);
        }
        Ok(())
    }

    pub(super) fn bind(
        &self,
        place: &Reservation,
        range: Range<usize>,
        node: NodeId,
    ) -> Result<(), RegionError> {
        /// `MPOL_PREFERRED`: `MPOL_BIND` would let the OOM killer, or SIGBUS for hugetlb, answer
        /// for a full node.
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
        // SAFETY: the range is mapped and ours; `mask` has the 1024 bits announced (the kernel
        // takes one off the count).
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
            // No NUMA in the kernel, or a sandbox forbids it: of no consequence with one node.
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
        self.advise_dont_fork(place, &(0..len))
    }

    fn advise_dont_fork(
        &self,
        place: &Reservation,
        range: &Range<usize>,
    ) -> Result<(), RegionError> {
        if !range.is_empty() && !advise(place, range, libc::MADV_DONTFORK) {
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
        let (kind, warning) = self.judge(weakest, resident, policy);
        PageReport {
            policy,
            kind,
            resident_bytes: resident.total,
            huge_bytes: resident.huge,
            warning,
        }
    }

    /// The kind to report, and what to say if it is less than was asked for.
    fn judge(
        &self,
        weakest: PageKind,
        resident: Resident,
        policy: PagePolicy,
    ) -> (PageKind, Option<String>) {
        if weakest == PageKind::HugeTlb || policy == PagePolicy::Small {
            return (weakest, None);
        }
        let (setting, good, expected) = match &self.source {
            Source::Anonymous => {
                let setting = "/sys/kernel/mm/transparent_hugepage/enabled";
                let choice = read_choice(setting);
                let on = matches!(choice.as_deref(), Some("always" | "madvise"));
                (setting, "madvise", on)
            }
            Source::File {
                medium: Medium::Memory,
                ..
            } => {
                let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
                let choice = read_choice(setting);
                let on = matches!(
                    choice.as_deref(),
                    Some("always" | "advise" | "within_size" | "force")
                );
                (setting, "advise", on)
            }
            Source::File { .. } => {
                let warning = "the file system gives no huge pages; put the file on hugetlbfs or \
                               tmpfs for them";
                return (PageKind::Small, Some(warning.to_owned()));
            }
        };
        // Once there is something to look at, look.
        let huge = if resident.total >= FRAME {
            resident.huge * 2 >= resident.total
        } else {
            expected
        };
        let kind = if huge { PageKind::Thp } else { PageKind::Small };
        let warning = (!expected || !huge).then(|| {
            format!(
                "{} of {} MiB in memory are in huge pages; {} (as root), or reserve a pool: \
                 `sysctl vm.nr_hugepages=N` (2 MiB each)",
                resident.huge >> 20,
                resident.total >> 20,
                if expected {
                    "memory is fragmented: `sysctl vm.compact_memory=1`".to_owned()
                } else {
                    format!("set `echo {good} > {setting}`")
                },
            )
        });
        (kind, warning)
    }
}

/// The pool if it has pages, else ordinary memory with the advice that the policy implies.
fn commit_anonymous(
    place: &Reservation,
    range: &Range<usize>,
    policy: PagePolicy,
) -> Result<PageKind, RegionError> {
    if policy == PagePolicy::Huge && hugetlb_free() >= range.len() {
        // Without MAP_NORESERVE this reserves all the pages in the pool, or fails.
        let flags =
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB;
        if map_fixed(
            place,
            range,
            Access::ReadWrite,
            flags,
            -1,
            "take huge pages",
        )
        .is_ok()
        {
            return Ok(PageKind::HugeTlb);
        }
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range lies in our reservation behind the committed part: nobody refers to it.
    if unsafe { libc::mprotect(place.at(range.start), range.len(), protection) } != 0 {
        return Err(os("commit memory", range.len()));
    }
    Ok(advise_pages(place, range, policy))
}

/// Maps something over a part of the reservation that is not committed.
fn map_fixed(
    place: &Reservation,
    range: &Range<usize>,
    access: Access,
    flags: libc::c_int,
    fd: libc::c_int,
    what: &'static str,
) -> Result<(), RegionError> {
    let protection = match access {
        Access::ReadOnly => libc::PROT_READ,
        Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    };
    let from = if fd >= 0 { offset(range.start) } else { 0 };
    let map = |protection, flags, fd, from| {
        // SAFETY: the range lies in our reservation behind the committed part: nobody refers to
        // it.
        let mapped = unsafe {
            libc::mmap(
                place.at(range.start),
                range.len(),
                protection,
                flags | libc::MAP_FIXED,
                fd,
                from,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    map(protection, flags, fd, from).map_err(|source| {
        // Before Linux 6.12 a failure may leave a hole where the reservation was. Close it before
        // somebody else's mapping falls into it; if even that fails, nothing can be done.
        let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let _ = map(libc::PROT_NONE, reserved, -1, 0);
        RegionError::from_os(what, range.len(), source)
    })
}

/// Tells the kernel which pages to use on touch; says what it is likely to give.
fn advise_pages(place: &Reservation, range: &Range<usize>, policy: PagePolicy) -> PageKind {
    // A kernel without THP refuses the advice, and a refusal changes nothing.
    match policy {
        PagePolicy::Small => {
            advise(place, range, libc::MADV_NOHUGEPAGE);
            PageKind::Small
        }
        PagePolicy::Huge | PagePolicy::Thp => {
            if advise(place, range, libc::MADV_HUGEPAGE) {
                PageKind::Thp
            } else {
                PageKind::Small
            }
        }
    }
}

fn advise(place: &Reservation, range: &Range<usize>, advice: libc::c_int) -> bool {
    // SAFETY: the range is ours, and no advice given here changes its content.
    unsafe { libc::madvise(place.at(range.start), range.len(), advice) == 0 }
}

/// `MADV_COLLAPSE` over the whole frames of the range, frame by frame, so that one that cannot be
/// collapsed does not keep the others from it. Says whether all of the range is huge now.
fn collapse(place: &Reservation, range: &Range<usize>) -> bool {
    const MADV_COLLAPSE: libc::c_int = 25;
    let first = range.start.div_ceil(FRAME) * FRAME;
    let last = range.end / FRAME * FRAME;
    let mut all = first == range.start && last == range.end;
    for start in (first..last).step_by(FRAME) {
        let frame = start..start + FRAME;
        if advise(place, &frame, MADV_COLLAPSE) {
            continue;
        }
        all = false;
        // Too old a kernel (before 6.1): it will say so every time.
        if io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
            return false;
        }
    }
    all
}

/// Brings every page in, or says why not, without SIGBUS where the kernel is 5.14 or newer.
fn populate(place: &Reservation, range: &Range<usize>, access: Access) -> Result<(), RegionError> {
    const MADV_POPULATE_READ: libc::c_int = 22;
    const MADV_POPULATE_WRITE: libc::c_int = 23;
    let advice = match access {
        Access::ReadOnly => MADV_POPULATE_READ,
        Access::ReadWrite => MADV_POPULATE_WRITE,
    };
    loop {
        if advise(place, range, advice) {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            Some(libc::EINVAL) => break,
            _ => {
                return Err(RegionError::from_os("bring memory in", range.len(), source));
            }
        }
    }
    use std::sync::atomic::AtomicU8;
    for at in range.clone().step_by(page_size()) {
        // SAFETY: committed bytes; the accesses are atomic and change nothing.
        let byte = unsafe { &*place.at(at).cast::<AtomicU8>() };
        match access {
            Access::ReadOnly => drop(byte.load(Ordering::Relaxed)),
            Access::ReadWrite => drop(byte.fetch_or(0, Ordering::Relaxed)),
        }
    }
    Ok(())
}

/// Allocates the file's space in `range`, lengthening it if need be; content is kept.
fn allocate(file: &File, range: Range<usize>) -> Result<(), RegionError> {
    // An interrupted call starts from scratch on tmpfs. Under a steady fire of signals (a
    // profiler's timer) only small steps ever end.
    let mut step = range.len();
    let mut at = range.start;
    while at < range.end {
        let n = step.min(range.end - at);
        // SAFETY: a valid descriptor; offsets and lengths fit.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, offset(at), offset(n)) };
        if result == 0 {
            at += n;
            continue;
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(RegionError::from_os(
                "reserve space in the file",
                range.len(),
                source,
            ));
        }
        step = (step / 4).max(FRAME);
    }
    Ok(())
}

fn create_memfd(name: &str, flags: libc::c_uint) -> Result<File, RegionError> {
    // The kernel takes 249 bytes and no NUL; the name is for the eye only.
    let mut bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).take(200).collect();
    bytes.push(0);
    let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `bytes` ends with a NUL.
    let fd = unsafe { libc::memfd_create(bytes.as_ptr().cast(), flags) };
    if fd < 0 {
        return Err(os("create a memfd", 0));
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Seals against shrinking; says whether that holds now. Other files than memfds refuse.
fn seal(file: &File) -> bool {
    let fd = file.as_raw_fd();
    // SAFETY: a valid descriptor and an integer.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } == 0 {
        return true;
    }
    // SAFETY: as above.
    let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    seals >= 0 && seals & libc::F_SEAL_SHRINK != 0
}

fn length(file: &File) -> Result<usize, RegionError> {
    let meta = file.metadata().map_err(|source| RegionError::Os {
        what: "find out the file's length",
        source,
    })?;
    usize::try_from(meta.len()).map_err(|_| RegionError::Unsupported {
        what: "a file beyond the address space",
    })
}

/// Bytes that the hugetlb pool of 2 MiB pages could still promise.
fn hugetlb_free() -> usize {
    let read = |name: &str| -> usize {
        fs::read_to_string(format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}"))
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    let spare = read("nr_overcommit_hugepages").saturating_sub(read("surplus_hugepages"));
    (read("free_hugepages") + spare)
        .saturating_sub(read("resv_hugepages"))
        .saturating_mul(FRAME)
}

fn single_node() -> bool {
    use crate::Topology;
    crate::SysfsTopology::detect().nodes() == 1
}

fn read_choice(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    pages::chosen(&text).map(str::to_owned)
}

/// Sizes are at most 2^46 (see `sizes`) and file lengths fit by `length`.
fn offset(bytes: usize) -> libc::off_t {
    bytes as libc::off_t
}

fn os(what: &'static str, bytes: usize) -> RegionError {
    RegionError::from_os(what, bytes, io::Error::last_os_error())
}
