//! Attachments: segments as this process visits them, and the sections in which a thread works on
//! them.
//!
//! **While a section may change a segment, nobody else is in a section of it, in any process; and
//! what a section may have left half changed is never shown to the next one as whole.** A section
//! takes the lock of each of its segments, in the order of their identities: alone where the
//! segment is attached for writing, beside other readers where it is not (SpaceJMP §3.1). Before
//! anything can be changed, the segment's header says that it is being changed; it says that it is
//! whole again after the section has returned. A process that has the lock and finds it being
//! changed knows that the changer died, whether alone, with the control file or with the machine;
//! then, as after a panic, the segment is *poisoned*, for nobody can know whether its heap and what
//! lies in it are whole.

mod attached_segment;
mod members;
mod section_guard;

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_sync::SlotError;
use mneme_sys::{Access, Region};

use crate::heap;
use crate::map::{Map, ProcessMap, SetVisit, is_visited};
use crate::process_mapping::{self, ProcessMapping};
use crate::section::{self, Section};
use crate::segment::{control, durable};
use crate::{AttachError, EnterError, MapError, Segment, Space};
use attached_segment::AttachedSegment;
pub(crate) use attached_segment::{Changing, beside};
use members::{Members, MembersVersion};
pub use section_guard::{Entered, SectionGuard};

/// How long a section waits for a holder of a lock that lives and does not leave.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// Segments as this process visits them: mapped while it lives, and participants of each.
///
/// `Send + Sync`: any thread may enter. What is mapped is shared with other attachments of the
/// process. Two attachments may have segments that claim the same addresses, a clone and its
/// original for instance: then the threads of the process can be inside of one of them at a time,
/// and entering the other moves the mappings, 4 us for 1 GiB (50 us where other threads run, which
/// the kernel interrupts).
///
/// In a forked child every call is refused, and nothing of the parent's is given back: not even by
/// leaving the section in which it was born, whose references lead to nothing there. The child must
/// be started anew (`exec`) to attach; see [`MapError::Forked`].
pub struct Attachment {
    map: &'static ProcessMap,
    space: Option<Followed>,
    /// Never null. What is replaced is freed when no thread visits it.
    members: AtomicPtr<Members>,
    changes: Mutex<Changes>,
    /// Some that were replaced are not freed yet.
    unswept: AtomicBool,
    timeout: Duration,
}

/// The space that an attachment is of.
struct Followed {
    space: Space,
    /// The most that is done with any member.
    most: Access,
}

impl Followed {
    /// Its members, as this attachment may use them, and how to learn that they are others.
    fn members(&self) -> Result<(MembersVersion, Vec<(Segment, Access)>), AttachError> {
        let word = self.space.version_word()?;
        let (number, members) = self.space.read_members(&word)?;
        let members = members.into_iter().map(|member| match self.most {
            Access::ReadWrite => (member.segment, member.access),
            Access::ReadOnly => (member.segment, Access::ReadOnly),
        });
        Ok((MembersVersion { word, number }, members.collect()))
    }
}

/// What only changes of the attachment need.
#[derive(Default)]
struct Changes {
    /// Segments of this attachment alone.
    own: Vec<(Segment, Access)>,
    /// Members that were replaced, and perhaps are visited still.
    replaced: Vec<*mut Members>,
}

// SAFETY: the pointers are owned, and what they lead to is `Send` and `Sync`.
unsafe impl Send for Changes {}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Attachment {
    /// Attaches segments, each with what this process may do with it: maps each, unless the process
    /// has it mapped, and touches nothing of their data.
    ///
    /// # Errors
    /// [`AttachError::Twice`]; [`AttachError::Overlap`]; [`AttachError::Floating`], for sections
    /// are for contents with addresses; [`AttachError::Map`], of contents that another crate lays
    /// out with [`MapError::Contents`].
    pub fn new<'a>(
        segments: impl IntoIterator<Item = (&'a Segment, Access)>,
    ) -> Result<Self, AttachError> {
        let segments = segments.into_iter();
        let own = segments.map(|(segment, access)| (segment.clone(), access));
        Self::with(None, own.collect())
    }

    /// Attaches a space, to do no more with its members than `most`.
    pub(crate) fn following(space: &Space, most: Access) -> Result<Self, AttachError> {
        let followed = Followed {
            space: space.clone(),
            most,
        };
        Self::with(Some(followed), Vec::new())
    }

    fn with(space: Option<Followed>, own: Vec<(Segment, Access)>) -> Result<Self, AttachError> {
        let map = ProcessMap::get();
        let members = gather(map, space.as_ref(), &own)?;
        Ok(Self {
            map,
            space,
            members: AtomicPtr::new(members.enlisted(map)),
            changes: Mutex::new(Changes {
                own,
                replaced: Vec::new(),
            }),
            unswept: AtomicBool::new(false),
            timeout: TIMEOUT,
        })
    }

    /// This attachment, waiting at most `timeout` instead of a second: for each lock, and for
    /// other threads to leave a segment that has the addresses of one to enter.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Attaches one more segment, for this attachment alone, beside those of its space if it has
    /// one. Sections that are running go on without it.
    ///
    /// # Errors
    /// As [`new`](Self::new); the attachment is as before then.
    pub fn add(&self, segment: &Segment, access: Access) -> Result<(), AttachError> {
        self.alter(|own| {
            own.push((segment.clone(), access));
            Ok(())
        })
    }

    /// Takes off a segment that was attached by itself. Sections that are running keep it until
    /// they end.
    ///
    /// # Errors
    /// [`AttachError::NotAttached`].
    pub fn remove(&self, segment: &Segment) -> Result<(), AttachError> {
        self.alter(|own| {
            let at = own.iter().position(|(own, _)| own.uuid() == segment.uuid());
            let at = at.ok_or_else(|| AttachError::NotAttached {
                name: segment.name().to_string(),
            })?;
            own.remove(at);
            Ok(())
        })
    }

    /// The names of its segments, and what may be done with each.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for locks: it takes none.
    pub fn segments(&self) -> Result<Vec<(String, Access)>, EnterError> {
        let (_visit, members) = self.visit()?;
        let places = members.places.iter();
        Ok(places
            .map(|place| (place.segment().name().to_string(), place.access))
            .collect())
    }

    /// The identity of the attached segment to which an address belongs, whether or not the segment
    /// is present there at this moment. Members are those of the last section.
    #[must_use]
    pub fn segment_at(&self, address: usize) -> Option<crate::Uuid> {
        let _unchanged = self.changes();
        // SAFETY: replaced under this lock alone.
        let members = unsafe { &*self.members.load(Acquire) };
        let mut segments = members.places.iter().map(AttachedSegment::segment);
        let found = segments.find(|segment| {
            let offset = segment.base().and_then(|base| address.checked_sub(base));
            offset.is_some_and(|offset| offset < segment.max_size())
        });
        found.map(Segment::uuid)
    }

    /// Runs `f` in a section: alone with what is attached for writing, beside other readers with
    /// the rest. The locks are given back when it returns or panics.
    ///
    /// # Errors
    /// [`EnterError::Nested`] if the calling thread is in a section already;
    /// [`EnterError::Stalled`] names the process that holds a lock, lives and does not leave;
    /// [`EnterError::Poisoned`]; [`EnterError::Map`] if other threads of the process do not leave
    /// what has the addresses; [`EnterError::Region`] if a segment's data file was truncated. `f`
    /// did not run then.
    pub fn enter<R>(&self, f: impl for<'s> FnOnce(&mut Section<'s>) -> R) -> Result<R, EnterError> {
        self.section(|members| &members.write, f)
    }

    /// Runs `f` in a section that only reads, beside other readers, whatever the attachment may.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn read<R>(&self, f: impl for<'s> FnOnce(&mut Section<'s>) -> R) -> Result<R, EnterError> {
        self.section(|members| &members.read, f)
    }

    fn section<R>(
        &self,
        present: impl FnOnce(&Members) -> &[ProcessMapping],
        f: impl for<'s> FnOnce(&mut Section<'s>) -> R,
    ) -> Result<R, EnterError> {
        // What it captured is dropped last, if a section is refused: its destructors may enter
        // others.
        let mut f = Some(f);
        let (mut visit, members) = self.visit()?;
        self.map.show(&mut visit, self.timeout)?;
        let present = present(members);
        let result = self.with_locks(&members.places, present, &mut || {
            let f = f.take().ok_or(EnterError::Nested)?;
            // SAFETY: each is mapped over the length noted, and locked as it says, by this call.
            unsafe { section::enter(present, f) }.ok_or(EnterError::Nested)
        });
        drop(visit);
        self.sweep_if_needed();
        result
    }

    #[inline]
    fn sweep_if_needed(&self) {
        // Relaxed: a thread that does not see it yet leaves it to the next.
        if self.unswept.load(Relaxed) {
            self.sweep(&mut self.changes());
        }
    }

    /// Begins a visit to the members, and keeps them as they are.
    #[inline]
    fn visit(&self) -> Result<(SetVisit<'_>, &Members), EnterError> {
        if process_mapping::inside() {
            return Err(EnterError::Nested);
        }
        if self.map.is_forked() {
            return Err(SlotError::Forked.into());
        }
        let mut followed = false;
        loop {
            // SYNC: pairs with the AcqRel exchange in `replace`.
            let members = self.members.load(Acquire);
            // SAFETY: the address of a field; nothing is read.
            let set = unsafe { &raw const (*members).set };
            let visit = SetVisit::begin(set)?;
            // SYNC: after the fence of the visit's beginning. A thread that replaced them meanwhile
            // sees the visit, or is seen.
            if self.members.load(Acquire) != members {
                continue;
            }
            // SAFETY: they were not replaced before the visit began, so that freeing them waits for
            // its end.
            let members = unsafe { &*members };
            // Once a visit: a word that is damaged would always say so.
            if followed || members.are_of_now() {
                return Ok((visit, members));
            }
            drop(visit);
            self.follow()?;
            followed = true;
        }
    }

    /// Takes the members that the space has now.
    #[cold]
    fn follow(&self) -> Result<(), AttachError> {
        let mut changes = self.changes();
        // SAFETY: replaced under this lock alone.
        if !unsafe { &*self.members.load(Acquire) }.are_of_now() {
            let members = gather(self.map, self.space.as_ref(), &changes.own)?;
            self.replace(&mut changes, members);
        }
        Ok(())
    }

    /// Runs `f` with the locks of `places`, which `rest` describes, the first of them first. A
    /// closure keeps the locks on the stack; a [`SectionGuard`] for each section made `enter`
    /// slower by a seventh and `read` by a third.
    fn with_locks<R>(
        &self,
        places: &[AttachedSegment],
        rest: &[ProcessMapping],
        f: &mut impl FnMut() -> Result<R, EnterError>,
    ) -> Result<R, EnterError> {
        let (Some((place, places)), Some((present, rest))) =
            (places.split_first(), rest.split_first())
        else {
            return f();
        };
        // A participant of each; the slot is the thread's.
        let slot = control::slot(place.placed.participants())?;
        if present.exclusive {
            // As `Place::alone`, which is slower by a sixth: what it returns goes through memory.
            let alone = place.gate.sole_within(&slot, self.timeout)?;
            // `OwnerDied` is in the segment's header too, where it outlives the control file.
            let died = alone.owner_died();
            let alone = alone.into_inner();
            let changing = place.begin(&alone, died)?;
            mneme_sys::fault!("space.enter.begun");
            place.follow(present)?;
            let result = self.with_locks(places, rest, f);
            mneme_sys::fault!("space.enter.done");
            changing.end();
            mneme_sys::fault!("space.enter.ended");
            result
        } else {
            let _beside = place.beside(&slot, self.timeout)?;
            place.follow(present)?;
            self.with_locks(places, rest, f)
        }
    }

    /// Writes what is attached for writing through to its medium, where it has one that outlives
    /// the machine, and waits for it: what sections have changed until now is there. Nobody changes
    /// these segments meanwhile; readers go on. A segment that was changed since is poisoned if the
    /// machine goes down.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`EnterError::Region`] if a medium failed, and what is on it is
    /// unknown.
    pub fn sync(&self) -> Result<(), EnterError> {
        let (mut visit, members) = self.visit()?;
        self.map.show(&mut visit, self.timeout)?;
        let writable = |place: &&AttachedSegment| place.access == Access::ReadWrite;
        for place in members.places.iter().filter(writable) {
            let slot = control::slot(place.placed.participants())?;
            let _beside = place.beside(&slot, self.timeout)?;
            place.placed.region().refresh()?;
            place.sync()?;
        }
        Ok(())
    }

    /// Declares what lies in a poisoned segment whole, as it is, and makes its heap whole: a block
    /// that the dead process was allocating or giving back is handed out or free afterwards, and no
    /// other is touched.
    ///
    /// # Errors
    /// [`EnterError::NotAttached`]: it is not attached for writing. [`EnterError::Heap`] if its
    /// heap has damage that no death leaves, and where: it is poisoned still. As
    /// [`enter`](Self::enter).
    ///
    /// # Safety
    /// All that its root leads to must be whole: a process that died or panicked may have left a
    /// vector between its length and its elements.
    pub unsafe fn accept(&self, segment: &str) -> Result<(), EnterError> {
        self.recover(
            segment,
            || Ok(()),
            |region| {
                // SAFETY: mapped for writing, at an address of 1 GiB's alignment; the lock is held.
                Ok(unsafe { heap::mend(region.first_byte(), region.len()) }?)
            },
        )
    }

    /// Makes a segment empty, with a new heap and without a root; poisoned or not.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); [`EnterError::Heap`], and it is poisoned still.
    pub fn rebuild(&self, segment: &str) -> Result<(), EnterError> {
        self.rebuild_if(segment, || Ok(()))
    }

    /// As [`rebuild`](Self::rebuild), if `may` allows it once nobody is in the segment: what it
    /// finds stays so until the segment is empty.
    ///
    /// # Errors
    /// As for [`rebuild`](Self::rebuild); what `may` returns, and nothing was changed.
    pub fn rebuild_if<E: From<EnterError>>(
        &self,
        segment: &str,
        may: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.recover(segment, may, |region| {
            let (base, len, max) = (region.first_byte(), region.len(), region.max());
            // SAFETY: mapped for writing, at an address of 1 GiB's alignment; the lock is held.
            unsafe { heap::format(base, len, max, false) }?;
            Ok(())
        })
    }

    /// Mends a segment, alone with it, if `may` allows it then.
    fn recover<E: From<EnterError>>(
        &self,
        segment: &str,
        may: impl FnOnce() -> Result<(), E>,
        mend: impl FnOnce(&Region) -> Result<(), EnterError>,
    ) -> Result<(), E> {
        let (mut visit, members) = self.visit()?;
        self.map
            .show(&mut visit, self.timeout)
            .map_err(EnterError::from)?;
        let named = |place: &&AttachedSegment| {
            place.access == Access::ReadWrite && place.segment().name().as_str() == segment
        };
        let place = members.places.iter().find(named);
        let place = place.ok_or_else(|| EnterError::NotAttached {
            name: segment.to_owned(),
        })?;
        let slot = control::slot(place.placed.participants()).map_err(EnterError::from)?;
        let alone = place.gate.sole_within(&slot, self.timeout);
        let alone = alone.map_err(EnterError::from)?.into_inner();
        may()?;
        let region = place.placed.region();
        durable::complete(region).map_err(EnterError::from)?;
        // Dead in the middle, or refused: poisoned, as before.
        let mending = place.begin_mending()?;
        mneme_sys::fault!("space.recover.begun");
        mend(region)?;
        mneme_sys::fault!("space.recover.mended");
        mending.end();
        alone.repaired();
        Ok(())
    }

    /// Changes which segments are attached besides those of the space.
    fn alter(
        &self,
        change: impl FnOnce(&mut Vec<(Segment, Access)>) -> Result<(), AttachError>,
    ) -> Result<(), AttachError> {
        if self.map.is_forked() {
            return Err(MapError::Forked.into());
        }
        let mut changes = self.changes();
        let mut own = changes.own.clone();
        change(&mut own)?;
        let members = gather(self.map, self.space.as_ref(), &own)?;
        changes.own = own;
        self.replace(&mut changes, members);
        Ok(())
    }

    fn replace(&self, changes: &mut Changes, members: Members) {
        // SYNC: pairs with the Acquire loads in `visit`.
        let old = self.members.swap(members.enlisted(self.map), AcqRel);
        changes.replaced.push(old);
        self.sweep(changes);
    }

    /// Frees what was replaced and nobody visits.
    #[cold]
    fn sweep(&self, changes: &mut Changes) {
        changes.replaced.retain(|old| {
            // SAFETY: freed here and in `drop` alone.
            let visited = is_visited(unsafe { &(*(*old)).set });
            if !visited {
                // SAFETY: replaced, and visited by nobody.
                unsafe { Members::free(*old, self.map) };
            }
            visited
        });
        self.unswept.store(!changes.replaced.is_empty(), Relaxed);
    }

    /// Each change of it is one step.
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The members of the space as they are now, if there is one, and the attachment's own.
fn gather(
    map: &ProcessMap,
    space: Option<&Followed>,
    own: &[(Segment, Access)],
) -> Result<Members, AttachError> {
    let (version, mut segments) = match space {
        Some(space) => {
            let (version, segments) = space.members()?;
            (Some(version), segments)
        }
        None => (None, Vec::new()),
    };
    segments.extend_from_slice(own);
    Members::gather(map, version, &segments)
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // A forked child has its parent's map, perhaps locked, and no mapping of its own to give
        // up.
        if self.map.is_forked() {
            return;
        }
        let changes = self.changes.get_mut();
        let changes = changes.unwrap_or_else(PoisonError::into_inner);
        for old in changes.replaced.drain(..).chain([*self.members.get_mut()]) {
            // SAFETY: sections borrow the attachment: there are none.
            unsafe { Members::free(old, self.map) };
        }
    }
}
