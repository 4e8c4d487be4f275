//! Which process is in a segment, whether it is whole, and the way back to a clone's content.

use mneme_sync::Participants;
use mneme_sys::{Access, FRAME, HEADER_LEN, Region, RegionHeader};

use super::clone::while_nobody_writes;
use super::control::{self, SEGMENT_GATE};
use super::data::{self, word};
use super::durable;
use super::{Segment, grow_region};
use crate::attach::{Changing, TIMEOUT};
use crate::map::Participation;
use crate::{CloneError, MapError, RestoreError, process_mapping};

/// Whether a segment can be entered, as of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Nobody is in a section of it, and nobody has left it half changed.
    Whole,
    /// Somebody died, or panicked, while changing it: nobody enters before it is recovered.
    Poisoned,
    /// A process is in a section of it, which may be as it should be; one that is stopped there
    /// keeps others out. The kernel lets go for it when it dies.
    Held {
        /// The process; 0 if it left while it was looked at.
        pid: u32,
        /// It may be changing the segment, so that nobody else enters; else it reads, beside
        /// others.
        alone: bool,
    },
}

impl Segment {
    /// Whether it can be entered, and what process is in the way. Does not wait.
    ///
    /// # Errors
    /// This process cannot take part in the segment; a part of it is damaged or gone;
    /// [`MapError::Contents`] if another crate lays it out, with locks of its own.
    pub fn condition(&self) -> Result<Condition, RestoreError> {
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

    /// With nobody inside.
    fn judge(&self) -> Result<Condition, RestoreError> {
        let header = data::examine(self.meta()).map_err(MapError::from)?;
        // Being changed, and no process is inside: its changer died.
        Ok(if data::is_whole(&header.client, self.meta()) {
            Condition::Whole
        } else {
            Condition::Poisoned
        })
    }

    /// Gives this segment the content that a clone of it has, or the segment that it is a clone of;
    /// poisoned or not, it is whole afterwards. Its name, identity and permissions stay, and so do
    /// the processes that have it mapped. It does not become shorter. Costs the time to compare the
    /// two, and to copy what differs.
    ///
    /// # Errors
    /// [`RestoreError::Unlike`] if the two have not the same address and greatest size;
    /// [`RestoreError::Clone`] if the other is poisoned itself, or being changed;
    /// [`RestoreError::Stalled`] if somebody is inside and does not leave. If it fails half-way, or
    /// the process dies, this segment is poisoned.
    pub fn restore_from(&self, other: &Segment) -> Result<(), RestoreError> {
        self.restore_from_if(other, || Ok::<_, RestoreError>(()))
    }

    /// As [`restore_from`](Self::restore_from), if `may` allows it once nobody is in the segment:
    /// what it finds stays so until the content is there.
    ///
    /// # Errors
    /// As for [`restore_from`](Self::restore_from); what `may` returns, and nothing was changed.
    pub fn restore_from_if<E: From<RestoreError> + From<CloneError>>(
        &self,
        other: &Segment,
        may: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        self.without_contents().map_err(RestoreError::from)?;
        other.without_contents().map_err(RestoreError::from)?;
        let (this, that) = (self.meta(), other.meta());
        let alike = (this.base, this.max_size) == (that.base, that.max_size);
        if !alike || this.uuid == that.uuid {
            let unlike = RestoreError::Unlike {
                name: self.name().to_string(),
                other: other.name().to_string(),
            };
            return Err(unlike.into());
        }
        if process_mapping::inside() {
            return Err(RestoreError::Nested.into());
        }
        let own = Participation::begin(self).map_err(RestoreError::from)?;
        let others = Participation::begin(other).map_err(RestoreError::from)?;
        let (own, others) = (own.participants(), others.participants());
        let restore = || {
            may()?;
            Ok(self.overwrite(other)?)
        };
        // Locks are ordered by identity: two threads that restore two segments from each other
        // would wait for each other otherwise.
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

    /// Overwrites the content by that of `other`, while nobody is in this segment and nobody
    /// changes the other.
    fn overwrite(&self, other: &Segment) -> Result<(), RestoreError> {
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
        // Dead from here on, or refused: poisoned.
        let changing = Changing::begin(state, word::state::DIED);
        mneme_sys::fault!("space.restore.begun");
        copy(&from, &to)?;
        mneme_sys::fault!("space.restore.copied");
        // On its medium, before anything says that it is whole.
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

/// Runs `f` while no process is in the segment, which is whole afterwards.
fn while_nobody_is_in<E: From<RestoreError>>(
    control: &Participants,
    f: impl FnOnce() -> Result<(), E>,
) -> Result<(), E> {
    let slot = control::slot(control).map_err(RestoreError::from)?;
    let gate = control.fenced_gate(SEGMENT_GATE);
    let gate = gate.ok_or(RestoreError::Clone(CloneError::NoGate))?;
    let alone = gate
        .sole_within(&slot, TIMEOUT)
        .map_err(RestoreError::from)?
        .into_inner();
    f()?;
    alone.repaired();
    Ok(())
}

/// A segment's data at any free address, whole.
fn mapped(segment: &Segment, access: Access) -> Result<Region, RestoreError> {
    let meta = segment.meta();
    data::examine(meta).map_err(MapError::from)?;
    let file = data::open(&meta.data, access).map_err(MapError::from)?;
    Ok(data::map_floating(file, access, meta.max_size, meta.pages)?)
}

/// Makes the content the same, with zeros behind it; the header's words of the heap and its types
/// too.
fn copy(from: &Region, to: &Region) -> Result<(), RestoreError> {
    if to.len() < from.len() {
        grow_region(to, from.len())?;
    }
    for at in (0..to.len()).step_by(FRAME) {
        let begin = if at == 0 { HEADER_LEN } else { at };
        let bytes = FRAME.min(to.len() - at) - (begin - at);
        let target = to.bytes_at(begin as u64, bytes)?;
        // SAFETY: committed and mapped, and the exclusive lock keeps all others out that keep to
        // its rules.
        let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<u64>(), bytes / 8) };
        if at < from.len() {
            let source = from.bytes_at(begin as u64, bytes)?;
            // SAFETY: committed and mapped, another file's, and the shared lock keeps writers out.
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

/// Copies what differs, by pages: the rest need not be written, or be given memory of its own.
fn same(source: &[u64], target: &mut [u64]) {
    for (source, target) in source.chunks(512).zip(target.chunks_mut(512)) {
        if *source != *target {
            target.copy_from_slice(source);
        }
    }
}
