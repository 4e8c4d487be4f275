//! Finds out which process is in a segment and whether it is consistent, and restores it from a
//! clone.

use mneme_sync::Participants;
use mneme_sys::{Access, FRAME, HEADER_LEN, Region, RegionHeader};

use super::clone::while_nobody_writes;
use super::control::{self, SEGMENT_GATE};
use super::data::{self, word};
use super::durable;
use super::{Segment, grow_region};
use crate::attach::{Changing, TIMEOUT};
use crate::map::Participation;
use crate::{CloneError, MapError, process_mapping};

/// Whether a segment can be entered at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nobody is in a section of it, and nobody has left it half changed.
    Whole,
    /// A process died or panicked while changing it: nobody can enter before it is recovered.
    Poisoned,
    /// A process is in a section of it. That may be normal, but a process that is stopped there
    /// keeps others out. When it dies, the kernel releases its lock.
    Held {
        /// The process; 0 if it left during the check.
        pid: u32,
        /// Whether it may be changing the segment, so that nobody else can enter; otherwise it
        /// reads, with other readers.
        alone: bool,
    },
}

impl Segment {
    /// Whether the segment can be entered, and if not, which process prevents it. Does not wait.
    ///
    /// # Errors
    /// This process cannot become a participant of the segment; a part of it is damaged or gone;
    /// [`MapError::Contents`] if another crate lays it out, with its own locks.
    pub fn condition(&self) -> Result<Condition, CloneError> {
        self.without_contents()?;
        let control = control::open_control(&self.control(), self.uuid())?;
        let slot = control::slot(&control)?;
        let gate = control.fenced_gate(SEGMENT_GATE);
        let gate = gate.ok_or(CloneError::NoGate)?;
        let held = match gate.try_sole(&slot) {
            Ok(_inside) => return self.judge(),
            Err(stalled) => stalled,
        };
        Ok(Condition::Held {
            pid: held.pid,
            alone: held.what == mneme_sync::Holding::Gate,
        })
    }

    /// The condition of a segment that nobody is inside.
    fn judge(&self) -> Result<Condition, CloneError> {
        let header = data::examine(self.meta()).map_err(MapError::from)?;
        // The header says that it is being changed, but no process is inside: the process that
        // changed it died.
        Ok(if data::is_whole(&header.client, self.meta()) {
            Condition::Whole
        } else {
            Condition::Poisoned
        })
    }

    /// Gives this segment the content of its clone, or of the segment that it is a clone of. It is
    /// consistent afterwards, even if it was poisoned. It keeps its name, identity and permissions,
    /// and the processes that have it mapped keep their mappings. It does not become shorter. Takes
    /// the time to compare the two and to copy the differences.
    ///
    /// # Errors
    /// [`CloneError::Unlike`] if the two do not have the same address and maximum size;
    /// [`CloneError::Poisoned`] or [`CloneError::Enter`] if the other is itself poisoned, or being
    /// changed;
    /// [`CloneError::Stalled`] if somebody is inside and does not leave. If this fails half-way,
    /// or the process dies, this segment is poisoned.
    pub fn restore_from(&self, other: &Segment) -> Result<(), CloneError> {
        self.restore_from_if(other, || Ok::<_, CloneError>(()))
    }

    /// As [`restore_from`](Self::restore_from), if `may` allows it. `may` runs while nobody is in
    /// the segment, so what it finds cannot change before the content is restored.
    ///
    /// # Errors
    /// As for [`restore_from`](Self::restore_from); an error that `may` returns is passed on, with
    /// nothing changed.
    pub fn restore_from_if<E: From<CloneError>>(
        &self,
        other: &Segment,
        may: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.without_contents().map_err(CloneError::from)?;
        other.without_contents().map_err(CloneError::from)?;
        let (this, that) = (self.meta(), other.meta());
        let alike = (this.base, this.max_size) == (that.base, that.max_size);
        if !alike || this.uuid == that.uuid {
            let unlike = CloneError::Unlike {
                name: self.name().to_string(),
                other: other.name().to_string(),
            };
            return Err(unlike.into());
        }
        if process_mapping::inside() {
            return Err(CloneError::Nested.into());
        }
        let own = Participation::begin(self).map_err(CloneError::from)?;
        let others = Participation::begin(other).map_err(CloneError::from)?;
        let (own, others) = (own.participants(), others.participants());
        let restore = || {
            may()?;
            Ok(self.overwrite(other)?)
        };
        // Locks are taken in the order of identities: otherwise two threads that restore two
        // segments from each other would wait for each other.
        if this.uuid < that.uuid {
            while_nobody_is_in(own, || {
                mneme_sys::fault!("space.restore.first");
                while_nobody_writes(other, others, restore)
            })
        } else {
            while_nobody_writes(other, others, || {
                mneme_sys::fault!("space.restore.first");
                while_nobody_is_in(own, restore)
            })
        }
    }

    /// Overwrites the content with that of `other`, while nobody is in this segment and nobody
    /// changes the other.
    fn overwrite(&self, other: &Segment) -> Result<(), CloneError> {
        let (from, to) = (
            mapped(other, Access::ReadOnly)?,
            mapped(self, Access::ReadWrite)?,
        );
        let durable = durable::is_durable(self.meta());
        durable::complete(&to)?;
        if durable {
            durable::note_change(&to)?;
        }
        let state = &RegionHeader::client(&to)?[word::POISON];
        // If the process dies from here on, or an operation is refused, the segment is poisoned.
        let changing = Changing::begin(state, word::state::DIED);
        mneme_sys::fault!("space.restore.begun");
        copy(&from, &to)?;
        mneme_sys::fault!("space.restore.copied");
        // The content must be on its medium before the header says that it is consistent.
        data::make_durable(&to, &self.meta().data)?;
        mneme_sys::fault!("space.restore.durable");
        changing.end();
        if durable {
            durable::write_through(&to)?;
        }
        mneme_sys::fault!("space.restore.whole");
        Ok(())
    }
}

/// Runs `f` while no process is in the segment, which is consistent afterwards.
fn while_nobody_is_in<E: From<CloneError>>(
    control: &Participants,
    f: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let slot = control::slot(control).map_err(CloneError::from)?;
    let gate = control.fenced_gate(SEGMENT_GATE);
    let gate = gate.ok_or(CloneError::NoGate)?;
    let alone = gate
        .sole_within(&slot, TIMEOUT)
        .map_err(CloneError::from)?
        .into_inner();
    f()?;
    alone.repaired();
    Ok(())
}

/// All of a segment's data, mapped at any free address.
fn mapped(segment: &Segment, access: Access) -> Result<Region, CloneError> {
    let meta = segment.meta();
    data::examine(meta).map_err(MapError::from)?;
    let file = data::open(&meta.data, access).map_err(MapError::from)?;
    Ok(data::map_floating(file, access, meta.max_size, meta.pages)?)
}

/// Makes the content equal, followed by zeros, including the header's words for the heap and its
/// types.
fn copy(from: &Region, to: &Region) -> Result<(), CloneError> {
    if to.len() < from.len() {
        grow_region(to, from.len())?;
    }
    for at in (0..to.len()).step_by(FRAME) {
        let begin = if at == 0 { HEADER_LEN } else { at };
        let bytes = FRAME.min(to.len() - at) - (begin - at);
        let target = to.bytes_at(begin as u64, bytes)?;
        // SAFETY: committed and mapped; the exclusive lock keeps out all others that follow its
        // rules.
        let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<u64>(), bytes / 8) };
        if at < from.len() {
            let source = from.bytes_at(begin as u64, bytes)?;
            // SAFETY: committed and mapped, from another file; the shared lock keeps writers out.
            let source = unsafe { std::slice::from_raw_parts(source.cast::<u64>(), bytes / 8) };
            same(source, target);
        } else if target.iter().any(|word| *word != 0) {
            target.fill(0);
        }
    }
    let words = RegionHeader::client_words(from)?;
    for (i, target) in RegionHeader::client(to)?.iter().enumerate() {
        if i != word::POISON && i != word::UNSYNCED {
            target.store(words[i], std::sync::atomic::Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Copies only the pages that differ: the others need not be written, nor be allocated memory of
/// their own.
fn same(source: &[u64], target: &mut [u64]) {
    for (source, target) in source.chunks(512).zip(target.chunks_mut(512)) {
        if *source != *target {
            target.copy_from_slice(source);
        }
    }
}
