//! Where the calling thread is.
//!
//! **A thread is inside of one attachment at most, and holds its locks exactly as long as it is
//! said to be there**: until it switches elsewhere, detaches, or ends. A thread that ends inside
//! has left in the middle, and what it could change is poisoned.

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

/// Where a thread is.
pub(crate) struct Current {
    /// A handle, or [`PRIMARY`].
    handle: usize,
    access: Access,
    /// Dropped before what it is inside of.
    inside: Option<SectionGuard<'static>>,
    of: Option<Arc<Attached>>,
    /// The segments attached to this thread's primary space.
    primary: Option<Arc<Attached>>,
    /// The handle that was looked up last, and what it means: the table is one for all threads.
    known: (usize, Weak<Attached>),
    /// Where blocks come from that are to lie in no segment in particular.
    heap: Default,
    /// The thread runs its last destructors.
    ended: bool,
}

/// The segment that is meant where none is named.
#[derive(Clone, Copy)]
enum Default {
    Outside,
    AllReadOnly,
    One(NonNull<u8>),
    Several,
}

thread_local! {
    /// Without a destructor, so that it is there to the end; `ENDING` has one.
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
    /// First used when the thread is inside for the first time. Destructors run in the opposite
    /// order, so that its own finds what the crates below keep for the thread still there.
    static ENDING: Ending = const { Ending };
}

struct Ending;

impl Drop for Ending {
    fn drop(&mut self) {
        // Not borrowed, unless a call of this library is what ends the thread.
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

/// Calls `f` with where the thread is. `f` must not call back.
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

    /// What a handle means.
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

    /// Leaves whatever it is inside of.
    fn leave(&mut self) {
        check_state::note_section();
        self.inside = None;
        self.of = None;
        self.handle = PRIMARY;
        self.heap = Default::Outside;
    }

    /// Leaves where it is, and enters what `handle` means.
    pub(crate) fn switch(
        &mut self,
        handle: usize,
        of: Arc<Attached>,
        access: Access,
    ) -> Result<(), Failure> {
        self.leave();
        // SAFETY: `of` is kept with it and given up after it, here and in `Ending`; else it stays
        // for ever, with its thread.
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
        // SAFETY: what it borrows lies in an `Arc`, does not move, and is given up later.
        self.inside =
            Some(unsafe { std::mem::transmute::<SectionGuard<'_>, SectionGuard<'static>>(inside) });
        self.of = Some(of);
        self.handle = handle;
        self.access = access;
        Ok(())
    }

    /// Leaves where it is, for the primary space and the segments that this thread has attached
    /// there.
    pub(crate) fn switch_to_primary(&mut self) -> Result<(), Failure> {
        self.leave();
        match self.primary.clone() {
            Some(primary) => self.switch(PRIMARY, primary, Access::ReadWrite),
            None => Ok(()),
        }
    }

    /// Leaves and enters it again, if it is inside of what `changed` says.
    fn enter_again_if(&mut self, changed: impl FnOnce(&Attached) -> bool) -> Result<(), Failure> {
        match self.of.clone() {
            Some(of) if changed(&of) => self.switch(self.handle, of, self.access),
            _ => Ok(()),
        }
    }

    /// The space has other segments now.
    pub(crate) fn follow(&mut self, space: Uuid) -> Result<(), Failure> {
        self.enter_again_if(|of| of.space == Some(space))
    }

    /// Attaches a segment to a handle's attachment.
    pub(crate) fn attach(&mut self, of: &Arc<Attached>, segment: &Segment) -> Result<(), Failure> {
        of.add(segment)?;
        self.enter_again_if(|inside| std::ptr::eq(inside, &raw const **of))
    }

    /// Takes a segment off a handle's attachment.
    pub(crate) fn detach(&mut self, of: &Arc<Attached>, segment: &Segment) -> Result<(), Failure> {
        of.remove(segment)?;
        self.enter_again_if(|inside| std::ptr::eq(inside, &raw const **of))
    }

    /// Attaches a segment to where the thread is.
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

    /// Takes a segment off where the thread is.
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

    /// Of what the thread attached to its primary space, the segment to which an address belongs.
    pub(crate) fn primary_segment_at(&self, address: usize) -> Option<Uuid> {
        self.primary.as_ref()?.attachment.segment_at(address)
    }

    /// What it is inside of.
    #[inline]
    pub(crate) fn inside(&self) -> Result<&SectionGuard<'static>, Failure> {
        self.inside.as_ref().ok_or_else(outside)
    }

    /// An address in the segment that is meant where none is named.
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
