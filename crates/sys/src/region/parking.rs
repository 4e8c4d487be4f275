//! A region of a window may be put aside, so that another can have its addresses for a while.
//!
//! **Parking keeps the content and the page tables**: no page is touched anew afterwards. The
//! mapping is moved by `mremap` to address space of its own, at the same offset within a GiB so
//! that whole page tables are moved, and back: in a window of units of 1 GiB that is one entry a
//! GiB, 3 us for both ways and whatever size up to that, 50 us where other threads of the process
//! run, which the kernel must interrupt; against 128 ms to unmap 1 GiB and touch it again. The
//! range in the window has no hole at any moment.
//!
//! While a region is parked, its length is 0, so that safe code gets an error instead of another's
//! bytes.
//!
//! After SpaceJMP (§5.2), where the windows of a table too large for one address space are switched
//! by changing the root of the page tables.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::backing::{self, RegionBacking};
use super::{Access, PagePolicy, Region, RegionError, Reserve, Window, sizes};

impl Region {
    /// Maps an existing file as [`Region::map_at`] does, but parked: another region may have the
    /// place now. [`unpark`](Self::unpark) brings it there.
    ///
    /// # Errors
    /// As [`Region::map_at`].
    pub fn map_parked(
        file: OwnedFd,
        access: Access,
        max: usize,
        policy: PagePolicy,
        reserve: Reserve,
        window: &Window,
        address: usize,
    ) -> Result<Self, RegionError> {
        let (backing, len) = RegionBacking::file(file, access, reserve)?;
        let (_, max) = sizes(1, max.max(len))?;
        let place = backing::Reservation::inside(window.place(address, max)?);
        let aside = backing::Reservation::congruent(max, &place)?;
        let region = Self::build(place, backing, access, max, policy);
        let mut laid = region.lock();
        laid.aside = Some(aside);
        laid.parked = Some(0);
        region.follow(&mut laid, len)?;
        drop(laid);
        Ok(region)
    }

    /// Puts the region aside: its place in the window is inaccessible afterwards, and free for
    /// another. Other openings of the same file notice nothing. Its length is 0 until it is
    /// back. Does nothing if it is parked already.
    ///
    /// # Errors
    /// [`RegionError::Unsupported`] if it lies in no window, before Linux 5.13, and for hugetlbfs;
    /// [`RegionError::Reserve`] without address space for it; `Os` or `NoMemory` from the kernel.
    /// The region is where it was then.
    ///
    /// # Safety
    /// Until [`unpark`](Self::unpark) has succeeded nobody uses a pointer or reference into the
    /// region: what is at its addresses meanwhile is somebody else's.
    pub unsafe fn park(&self) -> Result<(), RegionError> {
        let mut laid = self.lock();
        if laid.parked.is_some() {
            return Ok(());
        }
        let Some(claim) = self.place.claim() else {
            return Err(RegionError::Unsupported {
                what: "parking a region that lies in no window",
            });
        };
        let aside = match laid.aside.take() {
            Some(aside) => aside,
            None => backing::Reservation::congruent(self.max, &self.place)?,
        };
        let len = self.len();
        let mapped = self.backing.mapped(&self.place, len);
        if mapped > 0 {
            // SAFETY: both ranges are ours, and nobody refers to the region's bytes.
            unsafe { RegionBacking::relocate(&self.place, &aside, mapped) }?;
        }
        // SYNC: pairs with the Acquire load in `len`.
        self.len.store(0, Ordering::Release);
        laid.parked = Some(len);
        laid.aside = Some(aside);
        self.place.clear(mapped);
        claim.give_up();
        Ok(())
    }

    /// Puts the region back to its place. Does nothing if it is there.
    ///
    /// # Errors
    /// [`RegionError::Place`] if another region is there now; `Os` or `NoMemory` from the kernel.
    /// The region stays parked then.
    pub fn unpark(&self) -> Result<(), RegionError> {
        let mut laid = self.lock();
        let (Some(len), Some(aside), Some(claim)) = (laid.parked, &laid.aside, self.place.claim())
        else {
            return Ok(());
        };
        claim.take()?;
        let mapped = self.backing.mapped(&self.place, len);
        if mapped > 0 {
            // SAFETY: both ranges are ours: the place is claimed, and nobody refers to a parked
            // region's bytes.
            unsafe { RegionBacking::relocate(aside, &self.place, mapped) }
                .inspect_err(|_| claim.give_up())?;
        }
        laid.parked = None;
        // SYNC: pairs with the Acquire load in `len`.
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Whether the region is put aside now.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.lock().parked.is_some()
    }
}
