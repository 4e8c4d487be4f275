//! Where segments lie in a process, and which threads see them there.
//!
//! **A thread that visits a set of segments finds each of them at its address until its visit
//! ends.** Most segments have addresses of their own, and entering changes no mapping. Two that
//! claim the same ones, a clone and its original or the windows of a table that is larger than the
//! address space, are there in turns: [`Map`] is how. The one implementation moves page tables
//! within a process ([`ProcessMap`]); maps of the hardware's, by a kernel module or in a guest
//! whose page tables are ours, would give every thread its own view and keep the same promises,
//! which `conformance` checks.
//!
//! After SpaceJMP's switching of address spaces (§3.2, §4.1).

#[cfg(all(test, not(miri)))]
mod conformance;
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

/// How segments come to lie where their pointers say.
pub(crate) trait Map {
    /// Takes a segment in, with the access wanted; what is in already is shared. Where another has
    /// its addresses, it waits aside.
    ///
    /// # Errors
    /// The data or the control file cannot be opened or mapped.
    fn admit(&self, segment: &Segment, access: Access) -> Result<Arc<Placed>, MapError>;

    /// Shows the visited set to the calling thread: when this returns, and until the visit ends,
    /// each of its segments lies at its address.
    ///
    /// # Errors
    /// [`MapError::Busy`] if other threads of the process are in a section of what lies there for
    /// longer than `timeout`; [`MapError::Occupied`] if what lies there is mapped for good. Of
    /// several members some may have been moved then; the visit has none of them.
    fn show(&self, visit: &mut SetVisit<'_>, timeout: Duration) -> Result<(), MapError>;
}

/// Segments that are visited together. No two of them overlap.
pub(crate) struct Set {
    placed: Vec<Arc<Placed>>,
}

impl Set {
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

    /// Whether each lies at its address.
    #[inline]
    fn is_home(&self) -> bool {
        self.placed.iter().all(|placed| placed.is_home())
    }

    fn contains(&self, wanted: &Placed) -> bool {
        let mut placed = self.placed.iter();
        placed.any(|placed| std::ptr::eq(&raw const **placed, wanted))
    }
}
