//! Attachments: the segments that this process has mapped, and the sections in which a thread works
//! on them.
//!
//! **While a section may change a segment, no other thread is in a section of it, in any process.
//! If a section dies half-way, no later section mistakes what it left for a consistent segment.** A
//! section locks each of its segments, in the order of their identities: exclusively if the segment
//! is attached for writing, shared with other readers if not (SpaceJMP §3.1). Before a section can
//! change anything, the segment's header is marked as being changed; the mark is cleared when the
//! section has returned. A process that gets the lock and finds the mark knows that the previous
//! holder died, whether alone, together with the control file, or because the machine went down.
//! The segment is then *poisoned*, as it is after a panic, because nobody can know whether its heap
//! and its data are consistent.

mod attached_segment;
mod members;
mod section_guard;

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicPtr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mneme_sync::SlotError;
use mneme_sys::Access;

use crate::heap;
use crate::map::{Map, Placed, ProcessMap, SetVisit, is_visited};
use crate::process_mapping::{self, ProcessMapping};
use crate::section::{self, Section};
use crate::segment::{control, durable};
use crate::{EnterError, MapError, Segment, Space};
use attached_segment::AttachedSegment;
pub(crate) use attached_segment::{Changing, beside};
use members::{Members, MembersVersion};
pub use section_guard::{Entered, SectionGuard};

/// How long a section waits for a lock whose holder is alive but does not release it.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(1);

/// Segments that this process has mapped for as long as the attachment exists. The process is a
/// participant of each.
///
/// `Send + Sync`: any thread may enter. Mappings are shared with the process's other attachments.
/// Two attachments may hold segments that claim the same addresses, for instance a clone and its
/// original. The process's threads can then be inside only one of the two at a time, and entering
/// the other moves the mappings: 4 us for 1 GiB, or 50 us if other threads are running, because the
/// kernel interrupts them.
///
/// In a forked child every call is refused, and none of the parent's resources are released, not
/// even when the child leaves the section that it was forked in; references from that section lead
/// to nothing in the child. To attach segments, the child must start a new program (`exec`); see
/// [`MapError::Forked`].
pub struct Attachment {
    map: &'static ProcessMap,
    space: Option<Followed>,
    /// Never null. A replaced list is freed once no thread visits it.
    members: AtomicPtr<Members>,
    changes: Mutex<Changes>,
    /// Whether some replaced lists have not been freed yet.
    unswept: AtomicBool,
    timeout: Duration,
}

/// The space whose members an attachment follows.
struct Followed {
    space: Space,
    /// The upper limit for the access to any member.
    most: Access,
}

impl Followed {
    /// The space's members with the access that this attachment has to each, and the version by
    /// which a change of the members is noticed.
    fn members(&self) -> Result<(MembersVersion, Vec<(Segment, Access)>), EnterError> {
        let word = self.space.version_word()?;
        let (number, members) = self.space.read_members(&word)?;
        let members = members.into_iter().map(|member| match self.most {
            Access::ReadWrite => (member.segment, member.access),
            Access::ReadOnly => (member.segment, Access::ReadOnly),
        });
        Ok((MembersVersion { word, number }, members.collect()))
    }
}

/// State that is needed only when the attachment changes.
#[derive(Default)]
struct Changes {
    /// Segments that were attached individually, not through the space.
    own: Vec<(Segment, Access)>,
    /// Replaced member lists that threads may still be visiting.
    replaced: Vec<*mut Members>,
}

// SAFETY: the pointers are owned, and their targets are `Send` and `Sync`.
unsafe impl Send for Changes {}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Attachment {
    /// Attaches segments, each with the access that this process is to have. Maps each one that the
    /// process has not mapped yet, and does not touch their data.
    ///
    /// # Errors
    /// [`EnterError::Twice`]; [`EnterError::Overlap`]; [`EnterError::Floating`], because
    /// sections need segments with fixed addresses; [`EnterError::Map`], with
    /// [`MapError::Contents`] for a segment that another crate lays out.
    pub fn new<'a>(
        segments: impl IntoIterator<Item = (&'a Segment, Access)>,
    ) -> Result<Self, EnterError> {
        let segments = segments.into_iter();
        let own = segments.map(|(segment, access)| (segment.clone(), access));
        Self::with(None, own.collect())
    }

    /// Attaches a space. No member gets more access than `most`.
    pub(crate) fn following(space: &Space, most: Access) -> Result<Self, EnterError> {
        let followed = Followed {
            space: space.clone(),
            most,
        };
        Self::with(Some(followed), Vec::new())
    }

    fn with(space: Option<Followed>, own: Vec<(Segment, Access)>) -> Result<Self, EnterError> {
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

    /// Sets the timeout, which is one second by default. It limits the wait for each lock, and the
    /// wait for other threads to leave a segment at the same addresses as one to enter.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Attaches one more segment to this attachment alone, besides those of its space if it has
    /// one. Sections that are running continue without it.
    ///
    /// # Errors
    /// As [`new`](Self::new); the attachment is then unchanged.
    pub fn add(&self, segment: &Segment, access: Access) -> Result<(), EnterError> {
        self.alter(|own| {
            own.push((segment.clone(), access));
            Ok(())
        })
    }

    /// Detaches a segment that was attached individually. Sections that are running keep it until
    /// they end.
    ///
    /// # Errors
    /// [`EnterError::NotAttached`].
    pub fn remove(&self, segment: &Segment) -> Result<(), EnterError> {
        self.alter(|own| {
            let at = own.iter().position(|(own, _)| own.uuid() == segment.uuid());
            let at = at.ok_or_else(|| EnterError::NotAttached {
                name: segment.name().to_string(),
            })?;
            own.remove(at);
            Ok(())
        })
    }

    /// The names of the attachment's segments, each with the access to it.
    ///
    /// # Errors
    /// As [`read`](Self::read), except those for locks: this call takes none.
    pub fn segments(&self) -> Result<Vec<(String, Access)>, EnterError> {
        let (_visit, members) = self.visit()?;
        let places = members.places.iter();
        Ok(places
            .map(|place| (place.segment().name().to_string(), place.access))
            .collect())
    }

    /// The identity of the attached segment to which an address belongs, whether or not the segment
    /// is mapped there at this moment. The members are those of the last section.
    #[must_use]
    pub fn segment_at(&self, address: usize) -> Option<crate::Uuid> {
        let _unchanged = self.changes();
        // SAFETY: replaced only under this lock.
        let members = unsafe { &*self.members.load(Acquire) };
        let mut segments = members.places.iter().map(AttachedSegment::segment);
        let found = segments.find(|segment| {
            let offset = segment.base().and_then(|base| address.checked_sub(base));
            offset.is_some_and(|offset| offset < segment.max_size())
        });
        found.map(Segment::uuid)
    }

    /// Runs `f` in a section with exclusive access to the segments attached for writing, and with
    /// access shared with other readers to the rest. The locks are released when `f` returns or
    /// panics.
    ///
    /// # Errors
    /// [`EnterError::Nested`] if the calling thread is in a section already;
    /// [`EnterError::Stalled`], which names the process that holds a lock, is alive and does not
    /// release it; [`EnterError::Poisoned`]; [`EnterError::Map`] if other threads of the process do
    /// not leave a segment at the same addresses; [`EnterError::Region`] if a segment's data file
    /// was truncated. `f` has not run in any of these cases.
    pub fn enter<R>(&self, f: impl for<'s> FnOnce(&mut Section<'s>) -> R) -> Result<R, EnterError> {
        self.section(|members| &members.write, f)
    }

    /// Runs `f` in a section that only reads, shared with other readers, even if the attachment
    /// would allow writing.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub fn read<R>(&self, f: impl for<'s> FnOnce(&mut Section<'s>) -> R) -> Result<R, EnterError> {
        self.section(|members| &members.read, f)
    }

    /// [`enter`](Self::enter) for a closure that may fail: there is one result, whose error is the
    /// closure's, or says why there was no section. An error that the closure returns ends the
    /// section and poisons nothing: what it has changed stays changed.
    ///
    /// # Errors
    /// As `enter`, and as `f`.
    pub fn try_enter<R, E: From<EnterError>>(
        &self,
        f: impl for<'s> FnOnce(&mut Section<'s>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.enter(f)?
    }

    /// [`read`](Self::read) for a closure that may fail: there is one result, as for
    /// [`try_enter`](Self::try_enter).
    ///
    /// # Errors
    /// As `read`, and as `f`.
    pub fn try_read<R, E: From<EnterError>>(
        &self,
        f: impl for<'s> FnOnce(&mut Section<'s>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.read(f)?
    }

    fn section<R>(
        &self,
        present: impl FnOnce(&Members) -> &[ProcessMapping],
        f: impl for<'s> FnOnce(&mut Section<'s>) -> R,
    ) -> Result<R, EnterError> {
        // If a section is refused, what `f` captured must be dropped last: its destructors may
        // enter other sections.
        let mut f = Some(f);
        let (mut visit, members) = self.visit()?;
        self.map.show(&mut visit, self.timeout)?;
        let present = present(members);
        let result = self.with_locks(&members.places, present, &mut || {
            let f = f.take().ok_or(EnterError::Nested)?;
            // SAFETY: this call has mapped each segment over the length noted, and holds its lock
            // in the mode noted.
            unsafe { section::enter(present, f) }.ok_or(EnterError::Nested)
        });
        drop(visit);
        self.sweep_if_needed();
        result
    }

    #[inline]
    fn sweep_if_needed(&self) {
        // Relaxed: a thread that does not see the flag yet leaves the work to the next one.
        if self.unswept.load(Relaxed) {
            self.sweep(&mut self.changes());
        }
    }

    /// Begins a visit, which keeps the current members alive, and returns them.
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
            // SAFETY: only the address of a field is computed; nothing is read.
            let set = unsafe { &raw const (*members).set };
            let visit = SetVisit::begin(set)?;
            // SYNC: after the fence at the beginning of the visit. Either this load sees that
            // another thread has replaced the members, or that thread sees the visit.
            if self.members.load(Acquire) != members {
                continue;
            }
            // SAFETY: the members were not replaced before the visit began, so they are not freed
            // before it ends.
            let members = unsafe { &*members };
            // Follows the space at most once a visit: a damaged version word would always ask for
            // it.
            if followed || members.are_of_now() {
                return Ok((visit, members));
            }
            drop(visit);
            self.follow()
                .map_err(|refused| EnterError::Follow(Box::new(refused)))?;
            followed = true;
        }
    }

    /// Reads the space's current members and replaces the list if they have changed.
    #[cold]
    fn follow(&self) -> Result<(), EnterError> {
        let mut changes = self.changes();
        // SAFETY: replaced under this lock alone.
        if !unsafe { &*self.members.load(Acquire) }.are_of_now() {
            let members = gather(self.map, self.space.as_ref(), &changes.own)?;
            self.replace(&mut changes, members);
        }
        Ok(())
    }

    /// Runs `f` with the locks of `places`, which `rest` describes, taken in order. A closure keeps
    /// the locks on the stack; a [`SectionGuard`] for each section made `enter` slower by a seventh
    /// and `read` by a third.
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
        // This process is a participant of each segment; the slot belongs to the thread.
        let slot = control::slot(place.placed.participants())?;
        if present.exclusive {
            // Does what `Place::alone` does. That function is slower by a sixth, because its result
            // goes through memory.
            let alone = place.gate.sole_within(&slot, self.timeout)?;
            // The segment's header also records `OwnerDied`, and keeps it if the control file is
            // lost.
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

    /// Writes the segments attached for writing through to their medium, if it outlives the
    /// machine, and waits until everything that sections have changed so far is on it. No section
    /// changes these segments meanwhile; readers continue. If the machine goes down, a segment that
    /// was changed since is poisoned.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`EnterError::Region`] if a medium failed, in which case its
    /// contents are unknown.
    pub fn sync(&self) -> Result<(), EnterError> {
        let (mut visit, members) = self.visit()?;
        self.map.show(&mut visit, self.timeout)?;
        let writable = |place: &&AttachedSegment| place.access == Access::ReadWrite;
        for place in members.places.iter().filter(writable) {
            let slot = control::slot(place.placed.participants())?;
            let _beside = place.beside(&slot, self.timeout)?;
            place.placed.refresh()?;
            place.sync()?;
        }
        Ok(())
    }

    /// Declares the contents of a poisoned segment consistent as they are, and repairs its heap. A
    /// block that the dead process was allocating or freeing is either allocated or free
    /// afterwards; no other block is touched.
    ///
    /// # Errors
    /// [`EnterError::NotWritable`] if the segment is not attached for writing.
    /// [`EnterError::Heap`], which says where, if the heap has damage that a death cannot leave;
    /// the segment then stays poisoned. Otherwise as [`enter`](Self::enter).
    ///
    /// # Safety
    /// Everything reachable from the segment's root must be consistent: a process that died or
    /// panicked may have left a vector whose length does not match its elements.
    pub unsafe fn accept(&self, segment: &str) -> Result<(), EnterError> {
        self.recover(
            segment,
            || Ok(()),
            |placed| {
                // SAFETY: mapped for writing, at an address aligned to 1 GiB; the lock is held.
                Ok(unsafe { heap::mend(placed.first_byte(), placed.region().len()) }?)
            },
        )
    }

    /// Empties a segment, poisoned or not: it gets a new heap and no root.
    ///
    /// # Errors
    /// As [`accept`](Self::accept); after [`EnterError::Heap`] the segment is still poisoned.
    pub fn rebuild(&self, segment: &str) -> Result<(), EnterError> {
        self.rebuild_if(segment, || Ok(()))
    }

    /// As [`rebuild`](Self::rebuild), if `may` allows it. `may` runs with the segment locked, so
    /// what it finds cannot change before the segment is emptied.
    ///
    /// # Errors
    /// As for [`rebuild`](Self::rebuild); an error that `may` returns is passed on, with nothing
    /// changed.
    pub fn rebuild_if<E: From<EnterError>>(
        &self,
        segment: &str,
        may: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.recover(segment, may, |placed| {
            let region = placed.region();
            let (base, len, max) = (placed.first_byte(), region.len(), region.max());
            // SAFETY: mapped for writing, at an address aligned to 1 GiB; the lock is held.
            unsafe { heap::format(base, len, max, false) }?;
            Ok(())
        })
    }

    /// Runs a repair with the segment locked exclusively, if `may` allows it.
    fn recover<E: From<EnterError>>(
        &self,
        segment: &str,
        may: impl FnOnce() -> Result<(), E>,
        mend: impl FnOnce(&Placed) -> Result<(), EnterError>,
    ) -> Result<(), E> {
        let (mut visit, members) = self.visit()?;
        self.map
            .show(&mut visit, self.timeout)
            .map_err(EnterError::from)?;
        let named = |place: &&AttachedSegment| {
            place.access == Access::ReadWrite && place.segment().name().as_str() == segment
        };
        let place = members.places.iter().find(named);
        let place = place.ok_or_else(|| EnterError::NotWritable {
            name: segment.to_owned(),
        })?;
        let slot = control::slot(place.placed.participants()).map_err(EnterError::from)?;
        let alone = place.gate.sole_within(&slot, self.timeout);
        let alone = alone.map_err(EnterError::from)?.into_inner();
        may()?;
        let region = place.placed.region();
        durable::complete(region).map_err(EnterError::from)?;
        // If the process dies during the repair, or the repair is refused, the segment stays
        // poisoned.
        let mending = place.begin_mending()?;
        mneme_sys::fault!("space.recover.begun");
        place.placed.refresh().map_err(EnterError::from)?;
        mend(&place.placed)?;
        mneme_sys::fault!("space.recover.mended");
        mending.end();
        alone.repaired();
        Ok(())
    }

    /// Changes which segments are attached individually.
    fn alter(
        &self,
        change: impl FnOnce(&mut Vec<(Segment, Access)>) -> Result<(), EnterError>,
    ) -> Result<(), EnterError> {
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

    /// Frees the replaced member lists that nobody visits.
    #[cold]
    fn sweep(&self, changes: &mut Changes) {
        changes.replaced.retain(|old| {
            // SAFETY: freed only here and in `drop`.
            let visited = is_visited(unsafe { &(*(*old)).set });
            if !visited {
                // SAFETY: it was replaced, and nobody visits it.
                unsafe { Members::free(*old, self.map) };
            }
            visited
        });
        self.unswept.store(!changes.replaced.is_empty(), Relaxed);
    }

    /// A panic cannot leave this state half changed, because each change is one step; so a poisoned
    /// mutex is used as it is.
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The space's current members, if the attachment follows a space, and the segments attached
/// individually.
fn gather(
    map: &ProcessMap,
    space: Option<&Followed>,
    own: &[(Segment, Access)],
) -> Result<Members, EnterError> {
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
        // A forked child has a copy of its parent's map, which may be locked, and has no mappings
        // of its own to release.
        if self.map.is_forked() {
            return;
        }
        let changes = self.changes.get_mut();
        let changes = changes.unwrap_or_else(PoisonError::into_inner);
        for old in changes.replaced.drain(..).chain([*self.members.get_mut()]) {
            // SAFETY: sections borrow the attachment, so none exists any more.
            unsafe { Members::free(old, self.map) };
        }
    }
}
