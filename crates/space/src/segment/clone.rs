//! Clones: a second segment with the first one's content at one instant, at the same address.
//!
//! **A clone shares no memory and no blocks with its original.** Two cheaper ways are wrong.
//! Private mappings of the original's file would show its later changes in pages that the clone has
//! not written. A reflink shares the file's blocks until one of them is written; then the file
//! system needs a new block, and on a full disk the store raises SIGBUS, in processes that use the
//! original too.

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use mneme_sync::Participants;
use mneme_sys::{Access, FRAME, Region, RegionError, RegionHeader, SysfsTopology, Topology};

use super::Segment;
use super::builder::SegmentPlan;
use super::control::{self, SEGMENT_GATE};
use super::data::{self, word};
use crate::attach::{TIMEOUT, beside};
use crate::map::Participation;
use crate::{CloneError, CreateError, EnterError, MapError, Name};

/// More threads would only wait for memory.
const COPIERS: usize = 8;

impl Segment {
    /// Creates a segment `name` with this one's content, maximum size, permissions, backing and
    /// address, so that pointers inside stay valid. Unless they float, the two take turns at that
    /// address in one process, as [`Attachment`](crate::Attachment) says. The clone has an identity
    /// and participants of its own.
    ///
    /// No process changes this segment meanwhile; readers continue. The clone's memory or disk
    /// space is allocated first, so that a lack of it is an error. Then the content is copied, by
    /// one thread a CPU: half a second for a GiB of tmpfs in small pages, with two threads.
    ///
    /// # Errors
    /// [`CloneError::Enter`] if a writer does not leave; [`CloneError::Poisoned`] if this segment
    /// needs recovery; [`MapError::Contents`] if another crate lays it out (that crate can copy
    /// it); otherwise as for creation.
    pub fn clone_as(&self, name: &str) -> Result<Segment, CloneError> {
        self.without_contents()?;
        let name = Name::of_new(name).map_err(CreateError::from)?;
        let part = Participation::begin(self)?;
        while_nobody_writes(self, part.participants(), || {
            let info = self.info().map_err(MapError::from)?;
            let from = data::open(&self.meta().data, Access::ReadOnly).map_err(MapError::from)?;
            let plan = SegmentPlan::like(self, name, info.mode)?;
            let copied = plan.build(|to, meta| {
                let refused = |source| CreateError::Data {
                    path: meta.data.clone(),
                    source,
                };
                let to = data::map_floating(to, Access::ReadWrite, meta.max_size, meta.pages)
                    .map_err(refused)?;
                mneme_sys::fault!("space.clone.begun");
                copy(from, &to, self).map_err(refused)?;
                mneme_sys::fault!("space.clone.copied");
                // The copy includes the words for the heap and its types; no process died while
                // changing the copy.
                let mut client = RegionHeader::client_words(&to).map_err(refused)?;
                client[word::POISON] = word::state::WHOLE;
                client[word::UNSYNCED] = 0;
                client[word::NOTED] = 0;
                data::write_header(&to, meta.uuid, client).map_err(refused)?;
                mneme_sys::fault!("space.clone.header");
                data::make_durable(&to, &meta.data).map_err(refused)
            })?;
            Ok(copied)
        })
    }
}

/// Runs `f` while nobody changes the segment, with its lock shared with other readers. That is
/// enough, and if this process dies while it reads, for instance while copying, nothing is left
/// half changed.
pub(super) fn while_nobody_writes<R, E: From<CloneError>>(
    segment: &Segment,
    control: &Participants,
    f: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let slot = control::slot(control).map_err(CloneError::from)?;
    let gate = control.fenced_gate(SEGMENT_GATE);
    let gate = gate.ok_or(CloneError::NoGate)?;
    let is_whole = || {
        let (_, header) = segment.examine().map_err(MapError::from)?;
        Ok(data::is_whole(&header.client, segment.meta()))
    };
    let _inside =
        beside(control, &gate, &slot, TIMEOUT, segment, is_whole).map_err(
            |refused| match refused {
                EnterError::Poisoned { segment } => CloneError::Poisoned { name: segment },
                other => CloneError::Enter(other),
            },
        )?;
    f()
}

/// Copies the committed bytes, with as many threads as there are CPUs, up to [`COPIERS`]. Zero
/// bytes are skipped, because the target is zero already.
fn copy(from: File, to: &Region, original: &Segment) -> Result<(), RegionError> {
    let (max, pages) = (original.max_size(), original.pages());
    let from = data::map_floating(from, Access::ReadOnly, max, pages)?;
    to.grow(from.len())?;
    let frames = from.len().div_ceil(FRAME);
    let next = AtomicUsize::new(0);
    // Relaxed: frames are disjoint, and the end of the scope orders the copies.
    let some = || {
        loop {
            match next.fetch_add(1, Relaxed) {
                frame if frame < frames => copy_frame(&from, to, frame)?,
                _ => return Ok(()),
            }
        }
    };
    let cpus = SysfsTopology::detect().cpus();
    let threads = cpus.min(COPIERS).min(frames);
    std::thread::scope(|scope| {
        // If the system refuses a thread, the others copy its part.
        let others: Vec<_> = (1..threads)
            .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, some).ok())
            .collect();
        let mut copied = some();
        for other in others {
            match other.join() {
                Ok(part) => copied = copied.and(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        copied
    })
}

fn copy_frame(from: &Region, to: &Region, frame: usize) -> Result<(), RegionError> {
    let at = frame * FRAME;
    let bytes = FRAME.min(from.len() - at);
    let source = from.bytes_at(at as u64, bytes)?;
    let target = to.bytes_at(at as u64, bytes)?;
    // SAFETY: both ranges are committed, and lie in different mappings. The target belongs to a
    // file that nobody else has open, and each frame to one thread. The segment's lock keeps out of
    // the source all writers that follow its rules; the header word that can still change (the
    // committed size) is overwritten by the caller.
    unsafe {
        let source = std::slice::from_raw_parts(source.cast::<u64>(), bytes / 8);
        if source.iter().any(|word| *word != 0) {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.cast::<u64>(), bytes / 8);
        }
    }
    Ok(())
}
