//! Attachments: segments as this process visits them, and the sections in which a thread works on them.
//!
//! **While a section may change a segment, nobody else is in a section of it, in any process; and what a
//! section may have left half changed is never shown to the next one as whole.** A section takes the lock
//! of each of its segments, in the order of their identities: alone where the segment is attached for
//! writing, beside other readers where it is not (SpaceJMP §3.1). Before anything can be changed, the
//! segment's header says that it is being changed; it says that it is whole again after the section has
//! returned. Whoever finds it being changed when he has the lock knows that its changer died, whether
//! alone, with the control file or with the machine; then, as after a panic, the segment is *poisoned*,
//! for nobody can know whether its heap and what lies in it are whole.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU64, compiler_fence};
use std::time::Duration;

use mneme_sync::{FencedGate, GateError, Sole};
use mneme_sys::{Access, Region, RegionError, RegionHeader};

use crate::heap::{self, HeapError};
use crate::here::{self, Here};
use crate::present::{self, Ground, Present};
use crate::segment::data::word::{self, state};
use crate::window;
use crate::{AttachError, EnterError, Mapping, Segment};

/// The gate of a segment's control region that is its lock.
pub(crate) const SEGMENT_GATE: usize = 0;
/// How long a section waits for a holder of a lock that lives and does not leave.
const PATIENCE: Duration = Duration::from_secs(1);

/// Segments as this process visits them: mapped while it lives, and participants of each.
///
/// `Send + Sync`: any thread may enter. What is mapped is shared with other attachments of the
/// process. In a forked child every call says so; it must attach for itself.
pub struct Attachment {
    /// In the order of the segments' identities, which is that of locking.
    places: Vec<Place>,
    /// The same for sections that may change what is attached for writing.
    write: Vec<Present>,
    /// The same for sections that only read.
    read: Vec<Present>,
    patience: Duration,
}

/// One segment of an attachment.
struct Place {
    mapping: Arc<Mapping>,
    gate: FencedGate,
    access: Access,
}

/// Growth of a mapped segment, for its heap.
struct Growing {
    base: usize,
}

impl Ground for Growing {
    fn extend(&self, wanted: usize) -> Result<usize, HeapError> {
        window::grow_at(self.base, wanted).map_err(|error| HeapError::Growth {
            wanted,
            reason: error.to_string().into(),
        })
    }
}

impl std::fmt::Debug for Attachment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places = self.places.iter();
        f.debug_map()
            .entries(places.map(|place| (place.mapping.segment().name(), place.access)))
            .finish()
    }
}

impl Attachment {
    /// Attaches segments, each with what this process may do with it: maps each, unless the process has
    /// it mapped, and touches nothing of their data.
    ///
    /// # Errors
    /// [`AttachError::Twice`]; [`AttachError::Floating`], for sections are for contents with
    /// addresses; [`AttachError::Map`].
    pub fn new<'a>(
        segments: impl IntoIterator<Item = (&'a Segment, Access)>,
    ) -> Result<Self, AttachError> {
        let mut places = Vec::new();
        for (segment, access) in segments {
            if segment.base().is_none() {
                return Err(AttachError::Floating {
                    name: segment.name().to_string(),
                });
            }
            let mapping = segment.map(access)?;
            let gate = mapping.participants().fenced_gate(SEGMENT_GATE);
            let gate = gate.ok_or(AttachError::NoGate)?;
            places.push(Place {
                mapping,
                gate,
                access,
            });
        }
        places.sort_by_key(|place| place.mapping.segment().uuid());
        let same =
            |pair: &&[Place]| pair[0].mapping.segment().uuid() == pair[1].mapping.segment().uuid();
        if let Some(pair) = places.windows(2).find(same) {
            return Err(AttachError::Twice {
                name: pair[0].mapping.segment().name().to_string(),
            });
        }
        let present = |alone: bool| {
            let places = places.iter();
            places
                .map(|place| place.present(alone))
                .collect::<Result<Vec<_>, _>>()
        };
        let (write, read) = (present(true)?, present(false)?);
        Ok(Self {
            places,
            write,
            read,
            patience: PATIENCE,
        })
    }

    /// The same, waiting at most `patience` for each lock instead of a second.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs `f` in a section: alone with what is attached for writing, beside other readers with the
    /// rest. The locks are given back when it returns or panics.
    ///
    /// # Errors
    /// [`EnterError::Nested`] if the calling thread is in a section already; [`EnterError::Stalled`]
    /// names who holds a lock, lives and does not leave; [`EnterError::Poisoned`];
    /// [`EnterError::Region`] if a segment's data file was truncated. `f` did not run then.
    pub fn enter<R>(&self, f: impl for<'s> FnOnce(&mut Here<'s>) -> R) -> Result<R, EnterError> {
        self.section(&self.write, f)
    }

    /// Runs `f` in a section that only reads, beside other readers, whatever the attachment may.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn read<R>(&self, f: impl for<'s> FnOnce(&mut Here<'s>) -> R) -> Result<R, EnterError> {
        self.section(&self.read, f)
    }

    fn section<R>(
        &self,
        present: &[Present],
        f: impl for<'s> FnOnce(&mut Here<'s>) -> R,
    ) -> Result<R, EnterError> {
        if present::inside() {
            return Err(EnterError::Nested);
        }
        self.with_locks(&self.places, present, || {
            // SAFETY: each is mapped over the length noted, and locked as it says, by this call.
            unsafe { here::section(present, f) }.ok_or(EnterError::Nested)
        })
    }

    /// Runs `f` with the locks of `places`, which `rest` describes, the first of them first.
    fn with_locks<R, F: FnOnce() -> Result<R, EnterError>>(
        &self,
        places: &[Place],
        rest: &[Present],
        f: F,
    ) -> Result<R, EnterError> {
        let (Some((place, places)), Some((present, rest))) =
            (places.split_first(), rest.split_first())
        else {
            return f();
        };
        // A participant of each; the slot is the thread's.
        let slot = place.mapping.participants().slot()?;
        if present.exclusive {
            let alone = place.gate.sole_within(&slot, self.patience)?;
            // The news is in the segment's header too, where it outlives the control file.
            let died = alone.owner_died();
            let alone = alone.into_inner();
            let changing = Changing::begin(place, &alone, died)?;
            mneme_sys::fault!("space.enter.begun");
            place.follow(present)?;
            let result = self.with_locks(places, rest, f);
            mneme_sys::fault!("space.enter.done");
            changing.end();
            mneme_sys::fault!("space.enter.ended");
            result
        } else {
            let _beside = loop {
                match place.gate.shared_within(&slot, self.patience) {
                    Ok(pin) => break pin,
                    Err(GateError::OwnerDied) => place.hear_news(&slot, self.patience)?,
                    Err(GateError::Stalled(stalled)) => return Err(stalled.into()),
                    Err(GateError::Foreign | GateError::Forked) => {
                        return Err(mneme_sync::SlotError::Forked.into());
                    }
                }
            };
            if !place.is_whole()? {
                return Err(place.poisoned());
            }
            place.follow(present)?;
            self.with_locks(places, rest, f)
        }
    }

    /// Declares a poisoned segment whole, as it is.
    ///
    /// # Errors
    /// [`EnterError::NotAttached`]: it is not attached for writing. As [`enter`](Self::enter).
    ///
    /// # Safety
    /// Its heap, and all that its root leads to, must be whole: whoever died or panicked may have left a
    /// vector between its length and its elements.
    pub unsafe fn accept(&self, segment: &str) -> Result<(), EnterError> {
        self.recover(segment, |_| Ok(()))
    }

    /// Makes a segment empty, with a new heap and without a root; poisoned or not.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`EnterError::Heap`], and it is poisoned still.
    pub fn rebuild(&self, segment: &str) -> Result<(), EnterError> {
        self.recover(segment, |region| {
            let base = NonNull::new(region.base()).ok_or(HeapError::Damaged)?;
            // SAFETY: mapped for writing, at an address of 1 GiB's alignment; the lock is held.
            unsafe { heap::format(base, region.len(), region.max(), false) }?;
            Ok(())
        })
    }

    /// Mends a segment, alone with it.
    fn recover(
        &self,
        segment: &str,
        mend: impl FnOnce(&Region) -> Result<(), EnterError>,
    ) -> Result<(), EnterError> {
        if present::inside() {
            return Err(EnterError::Nested);
        }
        let named = |place: &&Place| {
            place.access == Access::ReadWrite && place.mapping.segment().name().as_str() == segment
        };
        let place = self.places.iter().find(named);
        let place = place.ok_or_else(|| EnterError::NotAttached {
            name: segment.to_owned(),
        })?;
        let slot = place.mapping.participants().slot()?;
        let alone = place.gate.sole_within(&slot, self.patience)?.into_inner();
        place.mapping.refresh()?;
        // Dead in the middle: poisoned, as before.
        place.state()?.store(state::CHANGING, Release);
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        mneme_sys::fault!("space.recover.begun");
        mend(place.mapping.region()).inspect_err(|_| {
            if let Ok(word) = place.state() {
                word.store(state::DIED, Release);
            }
        })?;
        mneme_sys::fault!("space.recover.mended");
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        place.state()?.store(state::WHOLE, Release);
        alone.repaired();
        Ok(())
    }
}

impl Place {
    fn present(&self, alone: bool) -> Result<Present, AttachError> {
        let base = self.mapping.base();
        Ok(Present {
            name: self.mapping.segment().name().as_str().into(),
            base: NonNull::new(base).ok_or(AttachError::NoGate)?,
            len: AtomicUsize::new(self.mapping.len()),
            exclusive: alone && self.access == Access::ReadWrite,
            ground: Arc::new(Growing { base: base.addr() }),
        })
    }

    /// The header's word that says whether the segment is whole.
    fn state(&self) -> Result<&AtomicU64, RegionError> {
        Ok(&self.mapping.words()?[word::POISON])
    }

    /// Whether nobody has left the segment half changed. With the lock held, or the answer is of a moment.
    #[inline]
    fn is_whole(&self) -> Result<bool, RegionError> {
        let word = RegionHeader::client_word(self.mapping.region(), word::POISON)?;
        Ok(word == Some(state::WHOLE))
    }

    fn poisoned(&self) -> EnterError {
        EnterError::Poisoned {
            segment: self.mapping.segment().name().to_string(),
        }
    }

    /// Follows growth by others. With the lock held.
    #[inline]
    fn follow(&self, present: &Present) -> Result<(), RegionError> {
        let mut len = self.mapping.len();
        if RegionHeader::committed(self.mapping.region())? > len as u64 {
            len = self.mapping.refresh()?;
        }
        present.set_len(len);
        Ok(())
    }

    /// A writer died inside. What it says about the segment is in the header, so that the lock's own
    /// news has done its service once somebody has looked there.
    #[cold]
    fn hear_news(&self, slot: &mneme_sync::Slot<'_>, patience: Duration) -> Result<(), EnterError> {
        let alone = self.gate.sole_within(slot, patience)?.into_inner();
        if !self.is_whole()? {
            return Err(self.poisoned());
        }
        alone.repaired();
        Ok(())
    }
}

/// A segment that its header calls being changed. Dropped in unwinding, it calls it poisoned.
struct Changing<'a>(&'a AtomicU64);

impl<'a> Changing<'a> {
    /// Begins to change the segment, alone with it, unless it is poisoned.
    fn begin(place: &'a Place, alone: &Sole<'_>, died: bool) -> Result<Self, EnterError> {
        let word = place.state()?;
        // SYNC: pairs with the Release stores of whoever was alone with it before.
        match word.load(Acquire) {
            state::WHOLE => {}
            // Who called it so is gone, for this thread is alone with it.
            state::CHANGING => {
                word.store(state::DIED, Release);
                return Err(place.poisoned());
            }
            _ => return Err(place.poisoned()),
        }
        if died {
            // Before he began, or after the end.
            alone.repaired();
        }
        // SYNC: pairs with the Acquire loads above and in `with_locks`.
        word.store(state::CHANGING, Release);
        // A death between two instructions shows all stores before it: the compiler keeps the order.
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        Ok(Self(word))
    }

    fn end(self) {
        compiler_fence(std::sync::atomic::Ordering::SeqCst);
        // SYNC: pairs with the Acquire loads of whoever has the lock next.
        self.0.store(state::WHOLE, Release);
        std::mem::forget(self);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let left = if std::thread::panicking() {
            state::PANICKED
        } else {
            // An error before anything was changed.
            state::WHOLE
        };
        // SYNC: as in `end`.
        self.0.store(left, Release);
    }
}
