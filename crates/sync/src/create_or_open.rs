//! Creating, opening and rebuilding a control region, always under the region's own lock.
//!
//! The lock is a liveness lock (index 0), which the kernel releases if its holder dies. The
//! region's magic number is written last, so a region whose creator died is not a control region
//! and is created again. After a reboot the first process that opens a region rebuilds it: it keeps
//! the counts, continues the epoch, and clears everything else (pins, owners, intents), which has
//! lost its meaning.

use crate::control_region::ControlRegion;
use crate::layout::{
    BARRIER_ASYMMETRIC, BARRIER_FENCE, ControlHeader, FORMAT, LAYOUT_HASH, MAGIC, MAX_PROCESSES,
    TableGeometry,
};
use crate::opening::{Inner, lock_region, reach};
use crate::participants::{ControlOptions, Participants};
use crate::sole_process::OnlyProcess;
use crate::{AttachError, CreateError, OpenError, epoch};
use mneme_sys::barrier::{self, Mechanism};
use mneme_sys::{Clock, Liveness, PagePolicy, Region, RegionHeader, SystemClock, boot_id};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

impl Participants {
    /// Creates a control region in `control` and attaches to it. Its earlier content is lost.
    ///
    /// `liveness` must exclude all others that open the same region (for a region on a file or
    /// memfd: [`OfdLiveness`](mneme_sys::OfdLiveness) on that file).
    ///
    /// # Errors
    /// Contradictory options; a region that is too small; a region in use.
    pub fn create(
        control: Region,
        options: ControlOptions,
        liveness: Arc<dyn Liveness>,
    ) -> Result<Participants, CreateError> {
        let geometry = options.geometry();
        geometry.check().map_err(CreateError::Options)?;
        let needed = geometry.end();
        if needed > control.max() {
            return Err(CreateError::TooSmall {
                needed,
                max: control.max(),
            });
        }
        if needed > control.len() {
            control.grow(needed).map_err(AttachError::from)?;
        }
        let keeper = Arc::clone(&liveness);
        let lock = lock_region(&*keeper)?;
        let old = Old::read(&control, &geometry).map_err(AttachError::from)?;
        let suspects = old.max_processes.max(geometry.max_processes);
        if let Some(index) = (1..=suspects).find(|index| liveness.is_alive(*index)) {
            return Err(CreateError::InUse {
                pid: old.pid(&control, index),
            });
        }
        old.clear(&control, &geometry).map_err(AttachError::from)?;
        mneme_sys::fault!("sync.create.cleared");

        let control = ControlRegion::new(control, geometry).map_err(AttachError::from)?;
        let header = control.header();
        header
            .max_threads
            .store(u64::from(geometry.max_threads), Relaxed);
        header
            .max_processes
            .store(u64::from(geometry.max_processes), Relaxed);
        header.undo_bytes.store(geometry.undo_bytes as u64, Relaxed);
        header.geometry.store(geometry.checksum(), Relaxed);
        store_id(&header.data_uuid, options.data_uuid);
        store_id(&header.boot_id, boot_id());
        header
            .incarnation
            .store(SystemClock.wall_ms().max(old.incarnation + 1), Relaxed);
        header
            .epoch
            .word
            .store(old.epoch.max(epoch::FIRST_EPOCH), Relaxed);
        let asymmetric = choose_barrier(header, false, can_interrupt(control.region()))?;
        mneme_sys::fault!("sync.create.header");
        RegionHeader::new(MAGIC, FORMAT, LAYOUT_HASH, control.region())
            .map_err(AttachError::Random)?
            .write(control.region())
            .map_err(AttachError::from)?;
        mneme_sys::fault!("sync.create.magic");
        let inner = Inner::new(control, liveness, asymmetric);
        inner.join(std::process::id())?;
        drop(lock);
        Ok(Participants::from_inner(inner))
    }

    /// Creates a control region in anonymous memory, for this process alone.
    ///
    /// # Errors
    /// Contradictory options; no memory.
    pub fn private(options: ControlOptions) -> Result<Participants, CreateError> {
        Participants::private_with(options, 0)
    }

    /// As [`private`](Self::private), with zeroed bytes for the caller from [`end`](Self::end) on.
    ///
    /// # Errors
    /// As [`private`](Self::private).
    pub fn private_with(
        options: ControlOptions,
        own_bytes: usize,
    ) -> Result<Participants, CreateError> {
        let geometry = options.geometry();
        geometry.check().map_err(CreateError::Options)?;
        let len = geometry.end() + own_bytes;
        let region = Region::private(len, len, PagePolicy::Small).map_err(AttachError::from)?;
        Participants::create(region, options, Arc::new(OnlyProcess::default()))
    }

    /// Whether a file that begins with this header is a control region in the format of this build.
    /// Check this before mapping it.
    #[must_use]
    pub fn are_described_by(header: &RegionHeader) -> bool {
        header.validate(MAGIC, FORMAT, LAYOUT_HASH).is_ok()
    }

    /// Attaches to an existing control region, which must belong to the data region `data_uuid`.
    /// After a reboot it is rebuilt.
    ///
    /// It is not a control region, is damaged, or belongs to other data; no process entry is free;
    /// or this process may not use the barrier that the others rely on.
    pub fn open(
        control: Region,
        data_uuid: [u8; 16],
        liveness: Arc<dyn Liveness>,
    ) -> Result<Participants, OpenError> {
        Participants::open_and(control, data_uuid, liveness, |_| Ok(()))
    }

    /// As [`open`](Self::open). If no other process is attached, calls `alone` before any other can
    /// attach, to repair what earlier incarnations of the control region left in the data. `alone`
    /// may use its slot and pin, but not call [`reap`](Self::reap), which would wait for itself.
    /// Other processes that open the region meanwhile wait for at most two seconds.
    ///
    /// # Errors
    /// As for [`open`](Self::open); or an error of `alone`.
    pub fn open_and<E: From<OpenError>>(
        control: Region,
        data_uuid: [u8; 16],
        liveness: Arc<dyn Liveness>,
        alone: impl FnOnce(&Participants) -> Result<(), E>,
    ) -> Result<Participants, E> {
        let keeper = Arc::clone(&liveness);
        let lock = lock_region(&*keeper).map_err(OpenError::from)?;
        let as_writer = TakeOver::<fn(u64) -> bool>::TheDead;
        let (participants, others) =
            Participants::open_locked(control, data_uuid, liveness, as_writer)?;
        let done = if others { Ok(()) } else { alone(&participants) };
        // Released before the participants are dropped, which may need the lock.
        drop(lock);
        done.map(|()| participants)
    }

    /// Attaches a process that may only read the data, and so cannot repair what dead processes
    /// left in them. It does not take over a dead process's entry. `is_known` must say whether the
    /// data were brought in order under an [incarnation](Self::incarnation) of the control region.
    ///
    /// # Errors
    /// As for [`open`](Self::open); no entry is free, not counting those of dead processes;
    /// [`OpenError::Stale`]: a process that may write has to open the region first.
    pub fn open_to_read(
        control: Region,
        data_uuid: [u8; 16],
        liveness: Arc<dyn Liveness>,
        is_known: impl FnOnce(u64) -> bool,
    ) -> Result<Participants, OpenError> {
        let keeper = Arc::clone(&liveness);
        let lock = lock_region(&*keeper)?;
        let as_reader = TakeOver::NobodyIf(is_known);
        let (participants, _) = Participants::open_locked(control, data_uuid, liveness, as_reader)?;
        drop(lock);
        Ok(participants)
    }

    /// Attaches, and returns whether others were attached. The caller must hold the region's lock.
    fn open_locked(
        control: Region,
        data_uuid: [u8; 16],
        liveness: Arc<dyn Liveness>,
        take_over: TakeOver<impl FnOnce(u64) -> bool>,
    ) -> Result<(Participants, bool), OpenError> {
        RegionHeader::read(&control, MAGIC, FORMAT, LAYOUT_HASH).map_err(OpenError::Header)?;
        let geometry = read_geometry(&control)?;
        let needed = geometry.end();
        if needed > control.len() {
            let len = control.refresh().map_err(AttachError::from)?;
            if needed > len {
                return Err(OpenError::Torn { needed, len });
            }
        }
        let control = ControlRegion::new(control, geometry).map_err(AttachError::from)?;
        let header = control.header();
        let of = load_id(&header.data_uuid);
        if of != data_uuid {
            return Err(OpenError::OtherData {
                control: of,
                data: data_uuid,
            });
        }
        let others = liveness.any_alive(1..=geometry.max_processes);
        let asymmetric = choose_barrier(header, others, can_interrupt(control.region()))?;
        let boot = boot_id();
        let rebooted = load_id(&header.boot_id) != boot;
        if rebooted && others {
            return Err(OpenError::Damaged(
                "its boot id is another's, yet processes are attached",
            ));
        }
        let take_over = match take_over {
            TakeOver::TheDead => true,
            // Neither rebuilds nor attaches if unknown: a later writer must find no other process
            // attached.
            TakeOver::NobodyIf(is_known) => {
                if rebooted || !is_known(header.incarnation.load(Acquire)) {
                    return Err(OpenError::Stale);
                }
                false
            }
        };
        if !others {
            header
                .watched
                .iter()
                .for_each(|word| word.store(0, Relaxed));
        }
        let inner = Inner::new(control, liveness, asymmetric);
        if rebooted {
            inner.rebuild().map_err(AttachError::from)?;
            mneme_sys::fault!("sync.rebuild.cleared");
            store_id(&inner.control().header().boot_id, boot);
        }
        let pid = std::process::id();
        if take_over {
            inner.join(pid)?;
        } else {
            inner.join_free(pid)?;
        }
        Ok((Participants::from_inner(inner), others))
    }
}

impl Inner {
    /// Keeps the counts and the epoch, and clears the rest. The caller must hold the region's lock,
    /// with nobody attached.
    fn rebuild(&self) -> Result<(), mneme_sys::RegionError> {
        let header = self.control().header();
        self.finish_fold();
        for (id, lines) in self.control().slots() {
            self.fold_slot(id, lines);
        }
        mneme_sys::fault!("sync.rebuild.folded");
        for gate in &header.gates {
            gate.lock.word().store(0, Relaxed);
        }
        self.control().clear_slots()?;
        header.highest_slot.word.store(0, Relaxed);
        // SYNC: pairs with the Acquire load in `Participants::epoch`.
        header.epoch.word.fetch_add(1, Release);
        header.incarnation.fetch_add(1, Release);
        Ok(())
    }
}

/// Which entry a process may take if none is free.
enum TakeOver<K> {
    /// The entry of a dead process.
    TheDead,
    /// None. The process attaches only if the region's incarnation is known to be in order.
    NobodyIf(K),
}

/// Whether this process's heavy barrier reaches every process with pins in the region.
fn can_interrupt(control: &Region) -> bool {
    barrier::register(reach(control)) == Mechanism::Asymmetric
}

/// Decides which light barrier the region's participants use; the first participant decides.
/// Returns whether it is the free one.
fn choose_barrier(header: &ControlHeader, others: bool, can: bool) -> Result<bool, AttachError> {
    if !others {
        let choice = if can {
            BARRIER_ASYMMETRIC
        } else {
            BARRIER_FENCE
        };
        header.barrier.store(choice, Relaxed);
        return Ok(can);
    }
    match header.barrier.load(Relaxed) {
        // This process's heavy side would not reach participants whose light side is a compiler
        // fence.
        BARRIER_ASYMMETRIC if !can => Err(AttachError::Barrier),
        mode => Ok(mode == BARRIER_ASYMMETRIC),
    }
}

/// The content of the region before it was created.
struct Old {
    max_processes: u32,
    incarnation: u64,
    epoch: u64,
    fresh: bool,
}

impl Old {
    fn read(region: &Region, geometry: &TableGeometry) -> Result<Old, mneme_sys::RegionError> {
        let magic = region.load_u64(0)?;
        let header = region.at::<ControlHeader>(geometry.header() as u64)?;
        let known = RegionHeader::read(region, MAGIC, FORMAT, LAYOUT_HASH).is_ok();
        let keep = |word: &AtomicU64| if known { word.load(Relaxed) } else { 0 };
        Ok(Old {
            max_processes: u32::try_from(keep(&header.max_processes))
                .unwrap_or(MAX_PROCESSES)
                .min(MAX_PROCESSES),
            incarnation: keep(&header.incarnation).min(u64::MAX >> 1),
            epoch: keep(&header.epoch.word),
            // The word that every creator writes first.
            fresh: magic == 0 && header.max_threads.load(Relaxed) == 0,
        })
    }

    fn pid(&self, region: &Region, index: u32) -> u32 {
        let geometry = TableGeometry {
            max_processes: index,
            max_threads: 1,
            undo_bytes: 0,
        };
        let entry = geometry.processes() + (index as usize - 1) * 64 + 8;
        let pid = region.load_u64(entry as u64).unwrap_or(0);
        u32::try_from(pid).unwrap_or(0)
    }

    /// Zeroes everything that the new geometry covers: the magic number first, `max_threads` last.
    fn clear(
        &self,
        region: &Region,
        geometry: &TableGeometry,
    ) -> Result<(), mneme_sys::RegionError> {
        if self.fresh {
            return Ok(());
        }
        let words = region.slice_at::<AtomicU64>(0, geometry.end() / 8)?;
        // SYNC: pairs with the Acquire load of the magic number when the region is opened.
        words[0].store(0, Release);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let header = region.at::<ControlHeader>(geometry.header() as u64)?;
        for word in &words[1..] {
            if !std::ptr::eq(word, &header.max_threads) && word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
        // SYNC: pairs with the load in `read`: zero means that everything else is zero too.
        header.max_threads.store(0, Release);
        Ok(())
    }
}

fn read_geometry(region: &Region) -> Result<TableGeometry, OpenError> {
    let damaged = |_| OpenError::Damaged("its sizes are impossible");
    let least = TableGeometry {
        max_processes: 1,
        max_threads: 1,
        undo_bytes: 0,
    };
    let header = region
        .at::<ControlHeader>(least.header() as u64)
        .map_err(|_| OpenError::Torn {
            needed: least.end(),
            len: region.len(),
        })?;
    let geometry = TableGeometry {
        max_processes: u32::try_from(header.max_processes.load(Acquire)).map_err(damaged)?,
        max_threads: u16::try_from(header.max_threads.load(Acquire)).map_err(damaged)?,
        undo_bytes: usize::try_from(header.undo_bytes.load(Acquire)).map_err(damaged)?,
    };
    geometry.check().map_err(OpenError::Damaged)?;
    if header.geometry.load(Acquire) != geometry.checksum() {
        return Err(OpenError::Damaged(
            "its sizes do not agree with their checksum",
        ));
    }
    Ok(geometry)
}

fn store_id(words: &[AtomicU64; 2], id: [u8; 16]) {
    let id = u128::from_le_bytes(id);
    words[0].store(id as u64, Relaxed);
    words[1].store((id >> 64) as u64, Relaxed);
}

fn load_id(words: &[AtomicU64; 2]) -> [u8; 16] {
    let (low, high) = (words[0].load(Relaxed), words[1].load(Relaxed));
    (u128::from(low) | u128::from(high) << 64).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::zeroed_header;

    #[test]
    fn the_first_process_chooses_the_barrier_and_a_process_without_it_cannot_join() {
        let header = zeroed_header();
        assert!(choose_barrier(&header, false, true).unwrap());
        assert!(choose_barrier(&header, true, true).unwrap());
        let refused = choose_barrier(&header, true, false).unwrap_err();
        assert!(matches!(refused, AttachError::Barrier));
        // When all have left, the next process decides anew; a process that can interrupt uses
        // fences together with the others.
        assert!(!choose_barrier(&header, false, false).unwrap());
        assert!(!choose_barrier(&header, true, false).unwrap());
        assert!(!choose_barrier(&header, true, true).unwrap());
        assert!(choose_barrier(&header, false, true).unwrap());
    }

    #[test]
    fn pins_with_full_fences_protect_as_the_others_do() {
        let options = ControlOptions::new([3; 16]);
        let len = options.region_len();
        let region = Region::private(len, len, PagePolicy::Small).unwrap();
        let p = Participants::create(region, options, Arc::new(OnlyProcess::default())).unwrap();
        let map_again = |p: &Participants| {
            let geometry = p.inner().control().geometry();
            let region = Region::private(len, len, PagePolicy::Small).unwrap();
            let words = p.region().slice_at::<AtomicU64>(0, len / 8).unwrap();
            for (to, from) in region
                .slice_at::<AtomicU64>(0, len / 8)
                .unwrap()
                .iter()
                .zip(words)
            {
                to.store(from.load(Relaxed), Relaxed);
            }
            ControlRegion::new(region, geometry).unwrap()
        };
        // The region, mapped again as a process sees it that may not use the interrupting barrier.
        let inner = Inner::new(map_again(&p), Arc::new(OnlyProcess::default()), false);
        inner.join(1).unwrap();
        let fenced = Participants::from_inner(inner);
        assert!(!fenced.is_asymmetric());
        let pin = fenced.pin().unwrap();
        let g = fenced.advance().unwrap();
        assert!(!fenced.quiescent(g));
        drop(pin);
        assert!(fenced.quiescent(g));
    }
}
