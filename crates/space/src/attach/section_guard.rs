//! [`SectionGuard`]: a section that begins with one call and ends with another, for bindings to
//! languages without closures.
//!
//! Such a section is the same as one of [`Attachment::enter`]: it takes the segments' locks in the
//! order of identities, marks their headers as being changed, and sets the thread's current
//! section. A closure cannot forget to leave; here the caller promises to drop the guard.

use std::fmt;
use std::ptr::NonNull;

use mneme_sync::OpPin;
use mneme_sys::Access;

use super::Attachment;
use super::attached_segment::ExclusiveSegment;
use crate::heap::UntypedHeap;
use crate::map::{Map, SetVisit};
use crate::process_mapping::{self, ProcessMapping, SectionMark};
use crate::segment::control;
use crate::{EnterError, Uuid};

/// Keeps the calling thread inside an attachment's segments. Dropping it leaves them. The segments
/// that may have been changed are then marked consistent, or poisoned if the thread is panicking.
#[must_use = "dropping it leaves at once"]
pub struct SectionGuard<'a> {
    attachment: &'a Attachment,
    present: &'a [ProcessMapping],
    /// The resources of the section, released in this order.
    marked: Option<SectionMark<'a>>,
    /// Released from the last to the first. The first is separate, so that a section of one segment
    /// allocates nothing.
    locks: Vec<Lock<'a>>,
    first: Option<Lock<'a>>,
    visit: Option<SetVisit<'a>>,
    left: Left,
    /// Whether the thread was already panicking when it entered.
    unwinding: bool,
}

/// The lock of one segment.
enum Lock<'a> {
    Alone(ExclusiveSegment<'a>),
    Beside { _pin: OpPin<'a> },
}

/// The state to store, at the end, for the segments that may have been changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    Whole,
    Poisoned,
}

/// A segment that a thread is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entered<'a> {
    /// The segment's name.
    pub name: &'a str,
    /// The segment's identity.
    pub uuid: Uuid,
    /// The address of its first byte.
    pub base: NonNull<u8>,
    /// The length mapped at this moment, in bytes.
    pub len: usize,
    /// Whether this thread may change it; nobody else is inside it then.
    pub writable: bool,
}

impl fmt::Debug for SectionGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionGuard")
            .field("segments", &self.present)
            .finish_non_exhaustive()
    }
}

impl Attachment {
    /// Begins a section that ends when the result is dropped: with [`Access::ReadOnly`] one like
    /// [`read`](Self::read)'s, otherwise one like [`enter`](Self::enter)'s. Costs as much as those,
    /// plus an allocation if there are several segments.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    ///
    /// # Safety
    /// The result must be dropped, not leaked, before the attachment is dropped; until then the
    /// thread counts as inside. A thread that ends earlier should
    /// [`abandon`](SectionGuard::abandon) the guard.
    pub unsafe fn switch_in(&self, access: Access) -> Result<SectionGuard<'_>, EnterError> {
        let (mut visit, members) = self.visit()?;
        self.map.show(&mut visit, self.timeout)?;
        let present = match access {
            Access::ReadWrite => &members.write,
            Access::ReadOnly => &members.read,
        };
        let mut guard = SectionGuard {
            attachment: self,
            present,
            marked: None,
            locks: Vec::new(),
            first: None,
            visit: Some(visit),
            left: Left::Whole,
            unwinding: std::thread::panicking(),
        };
        for (place, present) in members.places.iter().zip(present) {
            let slot = control::slot(place.placed.participants())?;
            let lock = if present.exclusive {
                Lock::Alone(place.alone(&slot, self.timeout)?)
            } else {
                let _pin = place.beside(&slot, self.timeout)?;
                Lock::Beside { _pin }
            };
            place.follow(present)?;
            if guard.first.is_none() {
                guard.first = Some(lock);
            } else {
                guard.locks.push(lock);
            }
        }
        // SAFETY: each segment is mapped over the length noted and locked as noted until the mark
        // is cleared in `drop`, which the caller promises will run.
        guard.marked = Some(unsafe { process_mapping::mark(present) }.ok_or(EnterError::Nested)?);
        Ok(guard)
    }
}

impl SectionGuard<'_> {
    /// The segments that were entered, in the order of their identities.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = Entered<'_>> {
        self.present.iter().map(|present| Entered {
            name: &present.name,
            uuid: present.uuid,
            base: present.base,
            len: present.len(),
            writable: present.exclusive,
        })
    }

    /// The heap of the segment that contains an address; `None` if none of these segments does.
    #[must_use]
    pub fn heap(&self, address: usize) -> Option<UntypedHeap> {
        let lies_in = |present: &&ProcessMapping| {
            let offset = address.checked_sub(present.base.addr().get());
            offset.is_some_and(|offset| offset < present.len())
        };
        let found = self.present.iter().find(lies_in)?;
        Some(UntypedHeap::new(found.base))
    }

    /// Leaves in the middle of a change: the segments that may have been changed are poisoned, as
    /// by a panic.
    pub fn abandon(mut self) {
        self.left = Left::Poisoned;
    }
}

impl Drop for SectionGuard<'_> {
    fn drop(&mut self) {
        self.marked = None;
        while let Some(lock) = self.locks.pop().or_else(|| self.first.take()) {
            match lock {
                Lock::Alone(alone) if self.left == Left::Poisoned => alone.abandon(),
                Lock::Alone(alone) if self.unwinding || !std::thread::panicking() => alone.end(),
                // Dropping it poisons the segment.
                Lock::Alone(_) | Lock::Beside { .. } => {}
            }
        }
        self.visit = None;
        // A forked child must not release its parent's locks.
        if !self.attachment.map.is_forked() {
            self.attachment.sweep_if_needed();
        }
    }
}
