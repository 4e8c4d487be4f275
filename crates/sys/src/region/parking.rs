//! A region in a window may be parked, so that another can use its addresses for a while.
//!
//! **Parking keeps the content and the page tables**: no page has to be touched again afterwards.
//! `mremap` moves the mapping to separate address space, at the same offset within a GiB so that
//! whole page tables are moved, and back. In a window with units of 1 GiB that is one entry a GiB:
//! 3 us for both directions for any size up to that, or 50 us if other threads of the process are
//! running, because the kernel must interrupt them. Unmapping 1 GiB and touching it again takes 128
//! ms. The range in the window has no hole at any moment.
//!
//! While a region is parked, its length is 0, so that safe code gets an error instead of another
//! region's bytes.
//!
//! After SpaceJMP (§5.2), where the windows of a table too large for one address space are switched
//! by changing the root of the page tables.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use super::backing::{self, RegionBacking};
use super::{Access, PagePolicy, Region, RegionError, Reserve, Window, sizes};

impl Region {
    /// Maps an existing file as [`Region::map_at`] does, but parked: another region may have the
    /// place now. [`unpark`](Self::unpark) moves it there.
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

    /// Parks the region: its place in the window is inaccessible afterwards, and free for another.
    /// Other openings of the same file are not affected. Its length is 0 until it is unparked. Does
    /// nothing if it is parked already.
    ///
    /// # Errors
    /// [`RegionError::Unsupported`] if it is not in a window, before Linux 5.13, and for hugetlbfs;
    /// [`RegionError::Reserve`] without address space for it; `Os` or `NoMemory` from the kernel.
    /// The region is then not moved.
    ///
    /// # Safety
    /// Until [`unpark`](Self::unpark) has succeeded, nobody may use a pointer or reference into the
    /// region: something else may be at its addresses.
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
            // SAFETY: both ranges belong to this region, and nobody refers to its bytes.
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

    /// Moves the region back to its place. Does nothing if it is there.
    ///
    /// # Errors
    /// [`RegionError::Place`] if another region is there now; `Os` or `NoMemory` from the kernel.
    /// The region then stays parked.
    pub fn unpark(&self) -> Result<(), RegionError> {
        let mut laid = self.lock();
        let (Some(len), Some(aside), Some(claim)) = (laid.parked, &laid.aside, self.place.claim())
        else {
            return Ok(());
        };
        claim.take()?;
        let mapped = self.backing.mapped(&self.place, len);
        if mapped > 0 {
            // SAFETY: both ranges belong to this region: the place is claimed, and nobody refers to
            // a parked region's bytes.
            unsafe { RegionBacking::relocate(aside, &self.place, mapped) }
                .inspect_err(|_| claim.give_up())?;
        }
        laid.parked = None;
        // SYNC: pairs with the Acquire load in `len`.
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// Whether the region is parked now.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.lock().parked.is_some()
    }
}
