//! A claim gets, at once, the lowest run of free frames that fits; otherwise it fails and changes
//! nothing.
//!
//! Under the arena's lock, a claim searches (see `free_runs`), announces its intent, and writes
//! descriptors, bitmap and tree. If it dies before the run's head is written, it leaves tails
//! without a head, which the next owner of the lock frees; if it dies later, it leaves an extent in
//! state `Claimed`, which [`Arena::repair`] frees.
//!
//! The two classes of clients are those of Park, §2.3, of which only the first claims extents. A
//! log needs the distinction between ordinary and reserved claims so that compaction can always
//! start. In an arena that lends its idle frames (see `lending`), a rented frame can be claimed
//! like a free one, and the compare-and-swap that claims it discards its content. Free ones are
//! preferred.

use crate::arena::Arena;
use crate::descriptor::{State, Unexpected};
use crate::frame::{Extent, Frame, MAX_ALIGN_FRAMES, MAX_TAG};
use crate::repair::ArenaIntent;
use crate::{ClaimError, InvalidClaim};
use mneme_sync::{Lane, Slot};
use mneme_sys::{Clock, NodeId, RegionError, SystemClock};
use std::ops::Range;

/// Which frames a claim may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// May not use the last [`reserve`](Arena::set_reserve) frames.
    Ordinary,
    /// May use all frames: for operations that free memory for others.
    Reserved,
}

/// How often a claim starts again because the second class took a frame that it had found. Each
/// node's tenant can cause that at most once, because it then sees that the lock is held.
const MAX_RACES: u32 = 1 << 16;

/// The arguments of [`Arena::claim`].
struct Request {
    frames: u32,
    align: u32,
    node: NodeId,
    class: Class,
    tag: u16,
}

/// Why a run that was found could not be claimed.
enum Refused {
    Run(Unexpected),
    Claim(ClaimError),
}

impl From<Unexpected> for Refused {
    fn from(at: Unexpected) -> Refused {
        Refused::Run(at)
    }
}

impl From<ClaimError> for Refused {
    fn from(error: ClaimError) -> Refused {
        Refused::Claim(error)
    }
}

impl From<RegionError> for Refused {
    fn from(error: RegionError) -> Refused {
        Refused::Claim(error.into())
    }
}

impl From<Refused> for ClaimError {
    fn from(refused: Refused) -> ClaimError {
        match refused {
            Refused::Run(Unexpected::Raced { frame } | Unexpected::Damaged { frame }) => {
                ClaimError::Damaged {
                    frame: Frame(frame),
                }
            }
            Refused::Claim(error) => error,
        }
    }
}

impl Arena {
    /// Claims `frames` adjacent frames on one NUMA node, the first at a multiple of `align_frames`
    /// (a power of two up to [`MAX_ALIGN_FRAMES`]), counted from the region's start. `node` is a
    /// preference: if it has no such run, the nearest node that has one is used. `tag` (up to
    /// [`MAX_TAG`]) is chosen by the tenant, and is returned by [`extent_of`](Arena::extent_of).
    ///
    /// The extent belongs to the caller, in state [`Claimed`](crate::ExtentState::Claimed), until
    /// it is [adopted](Arena::adopt) or [released](Arena::release). If the calling thread's process
    /// dies before that, `repair` frees it. Adopt before the thread ends, because its slot then
    /// goes to another thread.
    ///
    /// **The memory is as its last user left it**, not zeroed; only frames that were never claimed
    /// before are zero. It may not be populated yet. In an arena that lends, a reader of the second
    /// class may be copying from it at any time, so it must be written by [`racy`](mneme_sys::racy)
    /// stores or by 8-byte atomics. Costs about a microsecond for any size of the arena, plus some
    /// nanoseconds for each frame of the run. `slot` must belong to the arena's own
    /// [participants](Arena::participants).
    ///
    /// # Errors
    /// There is not enough memory, no run of that length, or the request can never be granted; see
    /// [`ClaimError`]. Nothing has changed then.
    pub fn claim(
        &self,
        slot: &Slot<'_>,
        frames: u32,
        align_frames: u32,
        node: NodeId,
        class: Class,
        tag: u16,
    ) -> Result<Extent, ClaimError> {
        let most = self.geometry.max_frames - self.geometry.first_frame;
        if frames == 0 {
            return Err(InvalidClaim::NoFrames.into());
        }
        if frames > most {
            return Err(InvalidClaim::TooMany {
                wanted: frames,
                most,
            }
            .into());
        }
        if !align_frames.is_power_of_two() || align_frames > MAX_ALIGN_FRAMES {
            return Err(InvalidClaim::Alignment {
                align: align_frames,
            }
            .into());
        }
        if tag > MAX_TAG {
            return Err(InvalidClaim::Tag { tag }.into());
        }
        let lending = self.lending()?;
        let began = lending.map(|_| SystemClock.now_ns());
        let request = Request {
            frames,
            align: align_frames,
            node,
            class,
            tag,
        };
        let guard = self.lock::<ClaimError>(slot)?;
        self.mask_filling()?;
        let (mut raced, mut discarded) = (0, 0);
        let extent = loop {
            let range = match self.search(&request) {
                Err(ClaimError::OutOfMemory { .. } | ClaimError::NoContiguousRun { .. })
                    if self.mask_filling()? =>
                {
                    continue;
                }
                Err(ClaimError::OutOfMemory { .. } | ClaimError::NoContiguousRun { .. })
                    if self.withheld() > 0 =>
                {
                    self.withhold_less(&self.table()?)?;
                    self.search(&request)?
                }
                range => range?,
            };
            match self.take(slot, &request, range, &mut discarded) {
                // A tenant came in between. It sees that the lock is held and takes no other frame.
                Err(Refused::Run(Unexpected::Raced { .. })) if raced < MAX_RACES => {
                    raced += 1;
                    self.mask_filling()?;
                }
                extent => break extent?,
            }
        };
        if let (Some(lending), Some(began)) = (lending, began) {
            lending.count_claim(SystemClock.now_ns().saturating_sub(began), discarded);
        }
        drop(guard);
        mneme_sys::fault!("arena.claim.unlocked");
        slot.intent(Lane::Arena).clear();
        mneme_sys::fault!("arena.claim.cleared");
        Ok(extent)
    }

    /// Makes the frames an extent of the caller's, and counts those that were rented. Only for the
    /// holder of the lock.
    fn take(
        &self,
        slot: &Slot<'_>,
        request: &Request,
        range: Range<u32>,
        discarded: &mut u32,
    ) -> Result<Extent, Refused> {
        let table = self.table()?;
        let generation = table.next_generation(range.clone())?;
        let extent = Extent {
            start: Frame(range.start),
            frames: request.frames,
        };
        self.reach(extent)?;
        self.back_claim(&table, range.clone(), request.class)?;
        let summary = self.summary()?;

        let intent = slot.intent(Lane::Arena);
        intent.begin(
            ArenaIntent::Claim as u16,
            &[
                u64::from(range.start),
                u64::from(request.frames),
                u64::from(generation),
            ],
        );
        mneme_sys::fault!("arena.claim.intent");
        let owner = slot.id().0;
        let written = table.write_run(range.clone(), request.tag, owner, generation, |was| {
            *discarded += u32::from(was == State::Rented);
            mneme_sys::fault!("arena.claim.descriptor");
        });
        if let Err(at) = written {
            // A tenant of the second class took a frame, or somebody wrote into the table without
            // the lock. What this claim wrote is undone.
            table.free_run(range.clone(), generation, false, || ());
            self.derive(range)?;
            intent.clear();
            return Err(at.into());
        }
        if let Some(lending) = self.lending()? {
            lending.mark_idle(&range, false);
        }
        summary.mark(range.clone(), false);
        mneme_sys::fault!("arena.claim.summary");
        summary.refresh(range);
        mneme_sys::fault!("arena.claim.refreshed");
        Ok(extent)
    }

    /// The lowest fitting run on the nearest node that has one.
    fn search(&self, request: &Request) -> Result<Range<u32>, ClaimError> {
        let Request { frames, align, .. } = *request;
        let summary = self.summary()?;
        let reserve = match request.class {
            Class::Ordinary => self.reserve_now()?,
            Class::Reserved => 0,
        };
        let free = summary.free().saturating_sub(self.withheld());
        if frames
            .checked_add(reserve)
            .is_none_or(|needed| needed > free)
        {
            return Err(ClaimError::OutOfMemory {
                wanted: frames,
                free,
                reserve,
            });
        }
        let align_log2 = align.trailing_zeros();
        let lending = self.lending()?;
        for wanted in self.nodes_from(request.node) {
            if let Some(lending) = &lending
                && let Some(start) = self.cheapest(lending, *wanted, frames, align_log2)?
            {
                return Ok(start..start + frames);
            }
            for zone in self.zones()?.filter(|zone| zone.node == *wanted) {
                if let Some(start) =
                    summary.find(self.backed.below_withheld(&zone), frames, align_log2)
                {
                    return Ok(start..start + frames);
                }
                // Frames after the first withheld one may have their space, namely those whose
                // space was not given back.
                if self.withheld() > 0
                    && let Some(start) = self.find_backed(zone.range(), frames, align)?
                {
                    return Ok(start..start + frames);
                }
            }
        }
        let mut longest = 0;
        for zone in self.zones()? {
            longest = longest.max(
                summary.within(self.backed.below_withheld(&zone)).longest[align_log2 as usize],
            );
        }
        Err(ClaimError::NoContiguousRun {
            wanted: frames,
            align,
            longest,
        })
    }

    /// Ensures that this opening has the extent mapped: another may have grown the region.
    fn reach(&self, extent: Extent) -> Result<(), ClaimError> {
        if extent.end() > self.region.len() as u64 {
            self.region.refresh()?;
            self.region
                .bytes_at(extent.offset(), extent.len() as usize)?;
        }
        Ok(())
    }
}
