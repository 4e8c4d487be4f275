//! Which segment is mapped where in this process: each at most once, however many attachments use it.
//!
//! A process reserves the whole window of a registry at the first mapping, and maps every segment
//! that has an address inside it (SpaceJMP keeps segments in ranges disjoint from the process' own,
//! §4.1). A mapping ends with its last user.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use mneme_sync::Participants;
use mneme_sys::{Access, OfdLiveness, PagePolicy, Region, RegionHeader, Reserve, Window, fork};

use crate::segment::{data, grow_region};
use crate::{FileError, GrowError, MapError, OpenError, Segment, Uuid};

/// A segment as it is mapped in this process: shared by all who use it here. It ends with the last
/// of them, and gives the addresses back. `Send + Sync`; a forked child may not touch its memory.
pub struct Mapping {
    segment: Segment,
    /// Dropped under the table's lock, so that the place is free once the table says so.
    region: ManuallyDrop<Region>,
    participants: Participants,
    table: &'static Table,
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mapping")
            .field("segment", self.segment.name())
            .field("base", &self.base())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl Mapping {
    /// The segment that is mapped.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The address of the first byte.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.region.base()
    }

    /// Nothing is committed: never so, for a segment has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// Committed bytes that are mapped here. [`refresh`](Self::refresh) follows others' growth.
    #[must_use]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Whether stores are possible. Once they are, they stay so while the mapping lives.
    #[must_use]
    pub fn access(&self) -> Access {
        self.region.access()
    }

    /// Who takes part in the segment; its gate 0 is the segment's lock.
    #[must_use]
    pub fn participants(&self) -> &Participants {
        &self.participants
    }

    /// The mapped data.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The header's words of the tenant, live: see [`data::word`].
    #[allow(dead_code, reason = "for locks and the heap")]
    pub(crate) fn words(&self) -> Result<&[AtomicU64; 8], mneme_sys::RegionError> {
        RegionHeader::client(&self.region)
    }

    /// Follows growth by others; returns the length.
    ///
    /// # Errors
    /// The data file was truncated.
    pub fn refresh(&self) -> Result<usize, mneme_sys::RegionError> {
        self.region.refresh()
    }

    /// Makes the segment at least `bytes` long, in place; returns its length.
    ///
    /// # Errors
    /// As [`Segment::grow`]; it is mapped for reading only.
    pub fn grow(&self, bytes: usize) -> Result<usize, GrowError> {
        grow_region(&self.region, bytes)
    }

    fn addresses(&self) -> Range<usize> {
        let base = self.base().addr();
        base..base + self.region.max()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked child the table is the parent's, perhaps locked, and the memory was withheld.
        if self.table.generation != fork::generation() {
            return;
        }
        let mut mapped = self.table.lock();
        // SAFETY: dropped here and nowhere else; nobody has the mapping any more.
        unsafe { ManuallyDrop::drop(&mut self.region) };
        mapped.segments.remove(&self.segment.uuid());
        drop(mapped);
        self.table.freed.notify_all();
    }
}

/// What this process has mapped. A forked child begins with an empty one.
struct Table {
    generation: u32,
    /// The parent of this process had a table, and with it perhaps a window, which this process has
    /// inherited with holes where memory was withheld.
    inherited: bool,
    mapped: Mutex<Mapped>,
    /// A mapping that was ending has ended.
    freed: Condvar,
}

#[derive(Default)]
struct Mapped {
    windows: Vec<Window>,
    segments: HashMap<Uuid, Entry>,
}

struct Entry {
    /// Dead while the mapping ends.
    mapping: Weak<Mapping>,
    addresses: Range<usize>,
}

static TABLE: AtomicPtr<Table> = AtomicPtr::new(std::ptr::null_mut());

impl Table {
    /// The table of this process.
    fn get() -> &'static Self {
        fork::watch();
        let generation = fork::generation();
        loop {
            // SYNC: pairs with the AcqRel exchange below.
            let found = TABLE.load(Ordering::Acquire);
            // SAFETY: what is stored there lives for ever.
            if let Some(table) = unsafe { found.as_ref() }
                && table.generation == generation
            {
                return table;
            }
            // The parent's is left alone: its lock may be held by a thread that does not exist here.
            let fresh = Box::into_raw(Box::new(Self {
                generation,
                inherited: !found.is_null(),
                mapped: Mutex::default(),
                freed: Condvar::new(),
            }));
            // SYNC: pairs with the Acquire load above.
            let won = TABLE.compare_exchange(found, fresh, Ordering::AcqRel, Ordering::Acquire);
            if won.is_err() {
                // SAFETY: made above and seen by nobody.
                drop(unsafe { Box::from_raw(fresh) });
            }
        }
    }

    /// Every change of the table is whole before anything can panic.
    fn lock(&self) -> MutexGuard<'_, Mapped> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Segment {
    /// Maps the segment into this process, at its address or, if it floats, anywhere, and makes the
    /// process a participant. What is mapped already is shared, and becomes writable in place if
    /// that is asked. Nothing of the data is touched: 15 us, whatever
    /// the size, and 0.3 us where it is mapped already.
    ///
    /// This takes no lock: others may be changing what the segment holds.
    ///
    /// # Errors
    /// [`MapError::Occupied`] if another segment lies there in this process; the permissions of the
    /// data, or of `control`, forbid it; a part is damaged or gone.
    pub fn map(&self, access: Access) -> Result<Arc<Mapping>, MapError> {
        map(self, access)
    }
}

/// Maps a segment, or takes part in the mapping that this process has of it; one for reading becomes
/// one for writing in place if that is wanted.
fn map(segment: &Segment, access: Access) -> Result<Arc<Mapping>, MapError> {
    let table = Table::get();
    if table.inherited && segment.base().is_some() {
        return Err(MapError::Forked);
    }
    let mut mapped = table.lock();
    while let Some(entry) = mapped.segments.get(&segment.uuid()) {
        if let Some(mapping) = entry.mapping.upgrade() {
            // Before anything could drop it: its last user would lock the table.
            drop(mapped);
            return share(mapping, access);
        }
        mapped = table
            .freed
            .wait(mapped)
            .unwrap_or_else(PoisonError::into_inner);
    }
    let participants = open_control(&segment.control(), segment.uuid())?;
    let region = loop {
        if let Some(base) = segment.base() {
            let wanted = base..base + segment.max_size();
            let other = mapped.segments.iter().find(|(_, entry)| {
                entry.addresses.start < wanted.end && wanted.start < entry.addresses.end
            });
            if let Some((by, entry)) = other {
                if entry.mapping.strong_count() > 0 {
                    return Err(MapError::Occupied { base, by: *by });
                }
                mapped = table
                    .freed
                    .wait(mapped)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
        }
        break map_data(segment, access, &mut mapped.windows)?;
    };
    region.dont_fork()?;
    let mapping = Arc::new(Mapping {
        segment: segment.clone(),
        region: ManuallyDrop::new(region),
        participants,
        table,
    });
    let entry = Entry {
        mapping: Arc::downgrade(&mapping),
        addresses: mapping.addresses(),
    };
    mapped.segments.insert(segment.uuid(), entry);
    Ok(mapping)
}

/// Gives one more user his mapping, with the access he needs.
fn share(mapping: Arc<Mapping>, access: Access) -> Result<Arc<Mapping>, MapError> {
    if access == Access::ReadWrite {
        let not_writable = |source| MapError::NotWritable {
            path: mapping.segment.meta().data.clone(),
            source,
        };
        match mapping.region.permit_writes() {
            Ok(()) => {}
            Err(mneme_sys::RegionError::Os { source, .. })
                if source.kind() == ErrorKind::PermissionDenied =>
            {
                return Err(not_writable(source));
            }
            Err(other) => return Err(other.into()),
        }
    }
    mapping.refresh()?;
    Ok(mapping)
}

/// Maps the data at the segment's address, or anywhere if it floats.
fn map_data(
    segment: &Segment,
    access: Access,
    windows: &mut Vec<Window>,
) -> Result<Region, MapError> {
    let meta = segment.meta();
    // Before it is mapped: a header that is gone would be found by a fault.
    data::examine(meta)?;
    // For reading too, if that is allowed: it may become a writer in place.
    let file = match (data::open(&meta.data, Access::ReadWrite), access) {
        (Ok(file), _) => file,
        (Err(OpenError::File(FileError { source, .. })), Access::ReadWrite)
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            return Err(MapError::NotWritable {
                path: meta.data.clone(),
                source,
            });
        }
        (Err(_), Access::ReadOnly) => data::open(&meta.data, Access::ReadOnly)?,
        (Err(other), Access::ReadWrite) => return Err(other.into()),
    };
    let Some(base) = meta.base else {
        return Ok(data::map_floating(file, access, meta.max_size, meta.pages)?);
    };
    let (start, len) = segment.registry().window();
    let same = |window: &&Window| (window.base(), window.len()) == (start, len);
    let window = match windows.iter().find(same) {
        Some(window) => window,
        None => {
            windows.push(Window::reserve(start, len)?);
            // Pushed just now.
            &windows[windows.len() - 1]
        }
    };
    let reserve = Reserve::AtGrowth;
    Ok(Region::map_at(
        file.into(),
        access,
        meta.max_size,
        meta.pages,
        reserve,
        window,
        base,
    )?)
}

/// Makes this process a participant of what the control file governs.
pub(crate) fn open_control(path: &Path, of: Uuid) -> Result<Participants, MapError> {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .map_err(FileError::at("open for locks", path))?;
    let region = Region::map(file.into(), Access::ReadWrite, 1, PagePolicy::Small)?;
    let liveness = OfdLiveness::open(path, 0).map_err(|source| MapError::Liveness {
        path: path.to_owned(),
        source,
    })?;
    Participants::open(region, of.to_bytes(), Arc::new(liveness)).map_err(|source| {
        MapError::Control {
            path: path.to_owned(),
            source,
        }
    })
}

/// Makes the segment that is mapped at `base` in this process at least `wanted` bytes long; returns
/// its length. For the heap, which knows its address and nothing else.
#[allow(dead_code, reason = "for the heap")]
pub(crate) fn grow_at(base: usize, wanted: usize) -> Result<usize, GrowError> {
    let mapped = Table::get().lock();
    let at = |entry: &&Entry| entry.addresses.start == base;
    let found = mapped.segments.values().find(at);
    let found = found.and_then(|entry| entry.mapping.upgrade());
    drop(mapped);
    found.ok_or(GrowError::NotMapped { base })?.grow(wanted)
}
