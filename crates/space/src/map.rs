//! Decides where segments lie in a process, and which threads see them there.
//!
//! **A thread that visits a set of segments finds each of them at its address until its visit
//! ends.** Most segments have addresses that no other segment claims, and entering them changes no
//! mapping. Two segments that claim the same addresses, for instance a clone and its original or
//! the windows of a table that is larger than the address space, take turns: [`Map`] says how.
//! [`ProcessMap`] moves mappings within a process, or, in `kernel`, has a kernel module show each
//! segment by an entry of page tables; `conformance` checks what both promise.
//!
//! After SpaceJMP's switching of address spaces (§3.2, §4.1).

#[cfg(all(test, not(miri)))]
mod conformance;
mod kernel;
mod mapping;
#[cfg(all(test, not(miri)))]
mod models;
mod process;
mod visitors;

use std::sync::Arc;
use std::time::Duration;

use mneme_sys::Access;

pub use mapping::Mapping;
pub(crate) use mapping::{Participation, Placed};
pub(crate) use process::ProcessMap;
pub(crate) use visitors::{SetVisit, is_visited};

use crate::{MapError, Segment};

/// Maps segments at the addresses for which their pointers are valid.
pub(crate) trait Map {
    /// Admits a segment with the access wanted; a segment that was admitted before is shared. If
    /// another segment has its addresses, this one waits at a different place.
    ///
    /// # Errors
    /// The data or the control file cannot be opened or mapped.
    fn admit(&self, segment: &Segment, access: Access) -> Result<Arc<Placed>, MapError>;

    /// Shows the visited set to the calling thread: when this returns, and until the visit ends,
    /// each of its segments lies at its address.
    ///
    /// # Errors
    /// [`MapError::Busy`] if other threads of the process stay in a section of a segment at these
    /// addresses for longer than `timeout`; [`MapError::Occupied`] if that segment cannot be moved.
    /// After an error some of several members may have been moved; the visit has none of them.
    fn show(&self, visit: &mut SetVisit<'_>, timeout: Duration) -> Result<(), MapError>;
}

/// Segments that are visited together. No two of them overlap.
pub(crate) struct SegmentSet {
    placed: Vec<Arc<Placed>>,
}

impl SegmentSet {
    /// # Errors
    /// The names of two that claim the same addresses.
    pub(crate) fn new(placed: Vec<Arc<Placed>>) -> Result<Self, [String; 2]> {
        let mut sorted: Vec<_> = placed.iter().collect();
        sorted.sort_by_key(|placed| placed.addresses().start);
        for pair in sorted.windows(2) {
            if pair[1].addresses().start < pair[0].addresses().end {
                return Err([pair[0], pair[1]].map(|placed| placed.segment().name().to_string()));
            }
        }
        Ok(Self { placed })
    }

    /// Whether each segment lies at its address.
    #[inline]
    fn is_home(&self) -> bool {
        self.placed.iter().all(|placed| placed.is_home())
    }

    fn contains(&self, wanted: &Placed) -> bool {
        let mut placed = self.placed.iter();
        placed.any(|placed| std::ptr::eq(&raw const **placed, wanted))
    }
}
