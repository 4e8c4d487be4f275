//! The state of the calling thread: the attachment it is inside of.
//!
//! **A thread is inside of at most one attachment, and holds its locks until it switches, detaches
//! or ends.** If a thread ends inside, its change may be incomplete, and the segments it could
//! write are poisoned.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use mneme_space::{SectionGuard, Segment, Uuid};
use mneme_sys::Access;

use crate::attached::Attached;
use crate::check_state;
use crate::code::{Code, Failure};
use crate::process::{ATTACHED, PRIMARY};

/// The state of a thread.
pub(crate) struct Current {
    /// The handle, or [`PRIMARY`].
    handle: usize,
    access: Access,
    /// Declared first: dropped before the attachment that it borrows.
    inside: Option<SectionGuard<'static>>,
    of: Option<Arc<Attached>>,
    /// The segments that this thread has attached directly, without a space.
    primary: Option<Arc<Attached>>,
    /// The last handle that was looked up and its attachment. Saves a lookup in the table, which
    /// all threads share.
    known: (usize, Weak<Attached>),
    /// The segment in which allocations without an explicit segment are made.
    heap: Default,
    /// Whether the thread is running its last destructors.
    ended: bool,
}

/// The segment that is used if a call names none.
#[derive(Clone, Copy)]
enum Default {
    Outside,
    AllReadOnly,
    One(NonNull<u8>),
    Several,
}

thread_local! {
    /// Has no destructor, so that it exists until the thread has ended; `ENDING` has one.
    static CURRENT: RefCell<ManuallyDrop<Current>> = const {
        RefCell::new(ManuallyDrop::new(Current {
            handle: PRIMARY,
            access: Access::ReadWrite,
            inside: None,
            of: None,
            primary: None,
            known: (PRIMARY, Weak::new()),
            heap: Default::Outside,
            ended: false,
        }))
    };
    /// First used when the thread first enters an attachment. Since destructors run in the opposite
    /// order, this one runs while the thread-local state of the crates below still exists.
    static ENDING: Ending = const { Ending };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        // Already borrowed only if a call of this library is what ends the thread.
        let _ = CURRENT.try_with(|current| {
            if let Ok(mut current) = current.try_borrow_mut() {
                current.ended = true;
                check_state::note_section();
                if let Some(inside) = current.inside.take() {
                    inside.abandon();
                }
                (current.of, current.primary) = (None, None);
                current.known = (PRIMARY, Weak::new());
            }
        });
    }
}

/// Calls `f` with the thread's state. `f` must not call this function again.
#[inline]
pub(crate) fn with<R>(f: impl FnOnce(&mut Current) -> Result<R, Failure>) -> Result<R, Failure> {
    let done = CURRENT.try_with(|current| match current.try_borrow_mut() {
        Ok(mut current) if !current.ended => f(&mut current),
        Ok(_) => Err(Failure::new(Code::Invalid, "the thread is ending")),
        Err(_) => Err(Failure::new(Code::Internal, "a call within a call")),
    });
    done.unwrap_or_else(|_| Err(Failure::new(Code::Invalid, "the thread is ending")))
}

impl Current {
    pub(crate) fn handle(&self) -> usize {
        self.handle
    }

    /// The attachment of a handle.
    pub(crate) fn attached(&mut self, handle: usize) -> Result<Arc<Attached>, Failure> {
        if self.known.0 == handle
            && let Some(known) = self.known.1.upgrade()
            && !known.is_closed()
        {
            return Ok(known);
        }
        let found = ATTACHED.get(handle)?;
        self.known = (handle, Arc::downgrade(&found));
        Ok(found)
    }

    /// Leaves the current attachment, if there is one.
    fn leave(&mut self) {
        check_state::note_section();
        self.inside = None;
        self.of = None;
        self.handle = PRIMARY;
        self.heap = Default::Outside;
    }

    /// Leaves the current attachment and enters that of `handle`.
    pub(crate) fn switch(
        &mut self,
        handle: usize,
        of: Arc<Attached>,
        access: Access,
    ) -> Result<(), Failure> {
        self.leave();
        // SAFETY: `of` is stored beside the guard and dropped after it, here and in `Ending`;
        // otherwise both are leaked with the thread.
        let inside = unsafe { of.attachment.switch_in(access) }?;
        ENDING.with(|_| ());
        let mut writable = inside.segments().filter(|segment| segment.writable);
        self.heap = match (inside.segments().len(), writable.next(), writable.next()) {
            (0, ..) => Default::Outside,
            (_, None, _) => Default::AllReadOnly,
            (_, Some(one), None) => Default::One(one.base),
            (_, Some(_), Some(_)) => Default::Several,
        };
        drop(writable);
        // SAFETY: the guard borrows from an `Arc`'s contents, which do not move and are dropped
        // later.
        self.inside =
            Some(unsafe { std::mem::transmute::<SectionGuard<'_>, SectionGuard<'static>>(inside) });
        self.of = Some(of);
        self.handle = handle;
        self.access = access;
        Ok(())
    }

    /// Leaves the current attachment and enters the segments that this thread has attached
    /// directly.
    pub(crate) fn switch_to_primary(&mut self) -> Result<(), Failure> {
        self.leave();
        match self.primary.clone() {
            Some(primary) => self.switch(PRIMARY, primary, Access::ReadWrite),
            None => Ok(()),
        }
    }

    /// Leaves and re-enters the current attachment if `changed` is true for it.
    fn enter_again_if(&mut self, changed: impl FnOnce(&Attached) -> bool) -> Result<(), Failure> {
        match self.of.clone() {
            Some(of) if changed(&of) => self.switch(self.handle, of, self.access),
            _ => Ok(()),
        }
    }

    /// Re-enters the current attachment if it is of a space whose members have changed.
    pub(crate) fn follow(&mut self, space: Uuid) -> Result<(), Failure> {
        self.enter_again_if(|of| of.space == Some(space))
    }

    /// Attaches a segment to a handle's attachment.
    pub(crate) fn attach(&mut self, of: &Arc<Attached>, segment: &Segment) -> Result<(), Failure> {
        of.add(segment)?;
        self.enter_again_if(|inside| std::ptr::eq(inside, &raw const **of))
    }

    /// Detaches a segment from a handle's attachment.
    pub(crate) fn detach(&mut self, of: &Arc<Attached>, segment: &Segment) -> Result<(), Failure> {
        of.remove(segment)?;
        self.enter_again_if(|inside| std::ptr::eq(inside, &raw const **of))
    }

    /// Attaches a segment to the current attachment.
    pub(crate) fn attach_here(&mut self, segment: &Segment) -> Result<(), Failure> {
        if self.handle != PRIMARY
            && let Some(of) = self.of.clone()
        {
            return self.attach(&of, segment);
        }
        let primary = match &self.primary {
            Some(primary) => Arc::clone(primary),
            None => Arc::new(Attached::of_nothing()?),
        };
        primary.add(segment)?;
        self.primary = Some(primary);
        self.switch_to_primary()
    }

    /// Detaches a segment from the current attachment.
    pub(crate) fn detach_here(&mut self, segment: &Segment) -> Result<(), Failure> {
        if self.handle != PRIMARY
            && let Some(of) = self.of.clone()
        {
            return self.detach(&of, segment);
        }
        let primary = self.primary.clone().ok_or_else(|| {
            let text = "this thread has attached nothing to its primary space";
            Failure::new(Code::NotFound, text)
        })?;
        primary.remove(segment)?;
        self.leave();
        if primary.attachment.segments()?.is_empty() {
            self.primary = None;
        }
        self.switch_to_primary()
    }

    /// The segment that contains an address, among those that the thread has attached directly.
    pub(crate) fn primary_segment_at(&self, address: usize) -> Option<Uuid> {
        self.primary.as_ref()?.attachment.segment_at(address)
    }

    /// The section that the thread is in.
    #[inline]
    pub(crate) fn inside(&self) -> Result<&SectionGuard<'static>, Failure> {
        self.inside.as_ref().ok_or_else(outside)
    }

    /// An address in the segment that is used if a call names none.
    #[inline]
    pub(crate) fn default_segment(&self) -> Result<usize, Failure> {
        let (code, text) = match self.heap {
            Default::One(base) => return Ok(base.addr().get()),
            Default::Outside => return Err(outside()),
            Default::AllReadOnly => (
                Code::ReadOnly,
                "the thread is inside to read, of every segment",
            ),
            Default::Several => (
                Code::Ambiguous,
                "several segments are writable here: name one",
            ),
        };
        Err(Failure::new(code, text))
    }
}

#[cold]
fn outside() -> Failure {
    Failure::new(Code::Outside, "the thread is inside of no segment")
}
