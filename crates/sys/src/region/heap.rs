//! A region under Miri: one aligned allocation of the maximum size.
//!
//! Miri supports neither `MAP_FIXED` nor `memfd_create`. Growth then only moves the committed end;
//! a second opening of the same memory is not supported.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;

use super::window::WindowClaim;
use super::{Access, FRAME, PageKind, PagePolicy, PageReport, RegionError, Reserve, WindowError};
use crate::NodeId;

pub(super) fn page_size() -> usize {
    4096
}

/// There is no kernel.
pub(crate) fn collapses_shared_memory() -> bool {
    false
}

pub(super) fn hugetlb_free() -> usize {
    0
}

pub(super) struct Reservation {
    base: *mut u8,
    layout: Layout,
}

// SAFETY: owned memory, freed by its only owner.
unsafe impl Send for Reservation {}
// SAFETY: as above; no method changes it.
unsafe impl Sync for Reservation {}

impl Reservation {
    pub(super) fn new(max: usize) -> Result<Self, RegionError> {
        let layout =
            Layout::from_size_align(max, FRAME).map_err(|_| RegionError::Size { len: max, max })?;
        // SAFETY: `max` is at least one frame.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            return Err(RegionError::Reserve {
                bytes: max,
                source: io::ErrorKind::OutOfMemory.into(),
            });
        }
        Ok(Self { base, layout })
    }

    /// Never called: no window can be reserved. The place is the claimed one, without memory.
    pub(super) fn inside(claim: WindowClaim) -> Self {
        Self {
            base: claim.start(),
            layout: Layout::new::<()>(),
        }
    }

    /// Never needed: nothing can be moved.
    pub(super) fn congruent(max: usize, _like: &Self) -> Result<Self, RegionError> {
        Self::new(max)
    }

    /// Never needed, as above.
    pub(super) fn clear(&self, _len: usize) {}

    /// There are no windows.
    pub(super) fn claim(&self) -> Option<&WindowClaim> {
        None
    }

    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: allocated with this layout, and the region that lent references is gone.
            unsafe { dealloc(self.base, self.layout) };
        }
    }
}

/// Fixed addresses do not exist here.
pub(super) enum WindowRange {}

impl WindowRange {
    pub(super) fn new(_base: usize, _len: usize) -> Result<Self, WindowError> {
        Err(WindowError::Unsupported)
    }

    pub(super) fn exists(_base: usize, _len: usize) -> bool {
        false
    }

    pub(super) fn start(&self) -> *mut u8 {
        match *self {}
    }

    pub(super) fn len(&self) -> usize {
        match *self {}
    }
}

pub(super) struct RegionBacking {
    shareable: bool,
}

impl RegionBacking {
    pub(super) fn anonymous() -> Self {
        Self { shareable: false }
    }

    pub(super) fn is_anonymous(&self) -> bool {
        !self.shareable
    }

    pub(super) fn is_on_medium(&self) -> bool {
        false
    }

    /// The heap allocates everything at once.
    pub(super) fn is_lazy(&self) -> bool {
        false
    }

    pub(super) fn reserve(&self, _range: Range<usize>) -> Result<(), RegionError> {
        Ok(())
    }

    /// The heap keeps everything until the region ends.
    pub(super) fn gives_back(&self) -> bool {
        false
    }

    pub(super) fn give_back(
        &self,
        _place: &Reservation,
        _range: Range<usize>,
    ) -> Result<(), RegionError> {
        Err(RegionError::Unsupported {
            what: "giving back memory under Miri",
        })
    }

    pub(super) fn memfd(
        _name: &str,
        _max: usize,
        _policy: PagePolicy,
    ) -> Result<Self, RegionError> {
        Ok(Self { shareable: true })
    }

    pub(super) fn file(
        _fd: OwnedFd,
        _access: Access,
        _reserve: Reserve,
    ) -> Result<(Self, usize), RegionError> {
        Err(RegionError::Unsupported {
            what: "mapping a file under Miri",
        })
    }

    pub(super) fn direct(self) -> Result<Self, RegionError> {
        Ok(self)
    }

    pub(super) fn duplicate_fd(&self) -> Option<io::Result<OwnedFd>> {
        self.shareable
            .then(|| Err(io::ErrorKind::Unsupported.into()))
    }

    pub(super) fn file_len(&self) -> Result<Option<usize>, RegionError> {
        Ok(None)
    }

    pub(super) fn extend(&self, _from: usize, _to: usize) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn commit(
        &self,
        _place: &Reservation,
        _range: Range<usize>,
        _access: Access,
        _policy: PagePolicy,
    ) -> Result<PageKind, RegionError> {
        Ok(PageKind::Small)
    }

    pub(super) fn mapped(&self, _place: &Reservation, len: usize) -> usize {
        len
    }

    pub(super) unsafe fn relocate(
        _from: &Reservation,
        _to: &Reservation,
        _len: usize,
    ) -> Result<(), RegionError> {
        Err(RegionError::Unsupported {
            what: "moving a mapping under Miri",
        })
    }

    pub(super) fn permit_writes(
        &self,
        _place: &Reservation,
        _len: usize,
    ) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn forbid_writes(
        &self,
        _place: &Reservation,
        _len: usize,
    ) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn sync(
        &self,
        _place: &Reservation,
        _range: Range<usize>,
    ) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn prefault(
        &self,
        _place: &Reservation,
        _range: Range<usize>,
        _access: Access,
        _policy: PagePolicy,
    ) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn bind(
        &self,
        _place: &Reservation,
        _range: Range<usize>,
        _node: NodeId,
    ) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn dont_fork(&self, _place: &Reservation, _len: usize) -> Result<(), RegionError> {
        Ok(())
    }

    pub(super) fn report(
        &self,
        _place: &Reservation,
        len: usize,
        weakest: PageKind,
        _policy: PagePolicy,
    ) -> PageReport {
        PageReport {
            kind: weakest,
            resident_bytes: len,
            huge_bytes: 0,
            warning: Some("Miri has no huge pages".to_owned()),
        }
    }
}
