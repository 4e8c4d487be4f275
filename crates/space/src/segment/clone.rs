//! Clones: a second segment with the first one's content at one instant, at the same address.
//!
//! **A clone shares no memory and no blocks with its original.** Two cheaper ways are wrong.
//! Private mappings of the original's file show its later changes in pages that nobody has written.
//! A reflink shares the file's blocks until one of them is written: then the file system needs a
//! new block, and on a full disk the store is a SIGBUS, in processes that use the original too.

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

/// More threads would wait for the memory.
const COPIERS: usize = 8;

impl Segment {
    /// Makes a segment `name` with this one's content, greatest size, permissions, backing and
    /// address, so that pointers inside stay true; in one process the two are there in turns, as
    /// [`Attachment`](crate::Attachment) says, unless they float. It has an identity and
    /// participants of its own.
    ///
    /// Nobody changes this segment meanwhile; readers go on. The clone's memory or space is taken
    /// first, so that a lack of it is an error. Then the content is copied, by a thread a CPU: half
    /// a second for a GiB of tmpfs in small pages, by two.
    ///
    /// # Errors
    /// [`CloneError::Enter`] if a writer does not leave; [`CloneError::Poisoned`] if this segment
    /// needs recovery; [`MapError::Contents`] if another crate lays it out, and knows how to copy
    /// it; as creation does.
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
                // The heap and its types come along; nobody died changing the copy.
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

/// Runs `f` while nobody changes the segment: as a reader beside other readers. That is enough, and
/// a reader that dies, here of a copy, leaves nothing half changed.
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

/// Copies the committed bytes, by as many threads as there are CPUs, up to [`COPIERS`]; what is
/// zero is not touched, for it is zero already.
fn copy(from: File, to: &Region, original: &Segment) -> Result<(), RegionError> {
    let (max, pages) = (original.max_size(), original.pages());
    let from = data::map_floating(from, Access::ReadOnly, max, pages)?;
    to.grow(from.len())?;
    let frames = from.len().div_ceil(FRAME);
    let next = AtomicUsize::new(0);
    // Relaxed: frames are apart, and the scope's end orders what was copied.
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
        // A thread that the system does not give leaves its part to the others.
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
    // SAFETY: both ranges are committed, and the mappings are two. The target is of a file that
    // nobody else has open, and each frame is one thread's. Of the source the segment's lock keeps
    // all writers out that keep to its rules; the words of the header that do change (the committed
    // size) are replaced by the caller.
    unsafe {
        let source = std::slice::from_raw_parts(source.cast::<u64>(), bytes / 8);
        if source.iter().any(|word| *word != 0) {
            std::ptr::copy_nonoverlapping(source.as_ptr(), target.cast::<u64>(), bytes / 8);
        }
    }
    Ok(())
}
