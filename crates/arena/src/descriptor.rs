//! Frame descriptors: the authoritative state of every frame, from which everything else is
//! derived.
//!
//! Guarantee: [`DescriptorTable::run_of`] returns, without a lock and from at most two cache lines,
//! a run that existed as a whole at one moment during the call, or none. That holds for any
//! concurrent claims, adoptions and releases, and for any bytes in the table.
//!
//! A descriptor is 16 bytes:
//!
//! | word | bits | what |
//! |---|---|---|
//! | 0 | 0..4 | [`State`] |
//! | 0 | 4..16 | the tag that the tenant gave with the claim |
//! | 0 | 16..32 | the thread slot that claimed the run |
//! | 0 | 32..64 | generation |
//! | 1 | 0..32 | frames in the run |
//! | 1 | 32..64 | frames back to the head, the first frame of the run |
//!
//! A run's state is that of its **head**: `Claimed` or `Held`. Its other frames are `Tail`. All
//! frames of a run carry one generation, greater than any that they carried before; so a tail
//! belongs to the run that its distance points to if, and only if, the generations agree. A claim
//! writes the tails first and the head last; a release frees the head first; adoption is one
//! compare-and-swap on the head. Word 1 is written while the frame is free and does not change as
//! long as the run exists.
//!
//! The generation also makes repairs idempotent: an intent names it, and the repair ignores frames
//! that carry another one. 0 means that the frame was never claimed; after 2^32 claims the numbers
//! start again at 1.
//!
//! In an arena that lends its idle frames (`lending`) a frame may be `Filling` or `Rented` instead
//! of free. A claim may take a rented frame like a free one.

use mneme_sync::Word;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Release};

/// The current state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// Beyond the end of the arena. It is zero, so that descriptors of future frames need not be
    /// written.
    Absent = 0,
    Free = 1,
    /// Head of a run that nobody has adopted yet: freed if its owner dies.
    Claimed = 2,
    /// Head of a run that is part of the tenant's structure.
    Held = 3,
    /// A further frame of a run.
    Tail = 4,
    /// The arena's own tables and the client area.
    Own = 5,
    /// Lent, and being written by the second class: no claim may take it.
    Filling = 6,
    /// Lent, and never written again by the second class: any claim may take it.
    Rented = 7,
}

impl State {
    /// Whether a claim may take the frame.
    #[inline]
    pub fn is_claimable(self) -> bool {
        matches!(self, State::Free | State::Rented)
    }

    /// Whether the frame's bytes belong to the second class.
    #[inline]
    pub fn is_lent(self) -> bool {
        matches!(self, State::Filling | State::Rented)
    }
}

/// The generation after `generation`; never 0.
pub(crate) fn following(generation: u32) -> u32 {
    generation.wrapping_add(1).max(1)
}

/// The tag of a frame whose memory is being given back, and of a free frame without memory: a claim
/// allocates its space first (see `spare`).
pub(crate) const TAG_BARE: u16 = TAG_MASK;
const TAG_MASK: u16 = (1 << 12) - 1;
const _: () = assert!(crate::MAX_TAG < TAG_BARE);

/// The decoded word 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Status {
    pub state: State,
    pub tag: u16,
    pub owner: u16,
    pub generation: u32,
}

impl Status {
    /// The status of a free frame, which keeps the generation of its last run.
    pub fn free(generation: u32) -> Status {
        Status {
            state: State::Free,
            tag: 0,
            owner: 0,
            generation,
        }
    }

    /// The status of a frame of this run after it is freed: bare, if its memory was being given
    /// back.
    fn freed(self) -> Status {
        let bare = self.tag == TAG_BARE;
        Status {
            tag: if bare { TAG_BARE } else { 0 },
            ..Status::free(self.generation)
        }
    }

    /// Whether it is a free frame that was claimed before and has its memory.
    pub fn is_spare(self) -> bool {
        self.state == State::Free && self.generation > 0 && self.tag != TAG_BARE
    }

    /// Whether it is a free frame that was never claimed.
    pub fn is_fresh(self) -> bool {
        self.state == State::Free && self.generation == 0 && self.tag != TAG_BARE
    }

    /// Whether it is a free frame whose memory was given back.
    pub fn is_bare(self) -> bool {
        self.state == State::Free && self.tag == TAG_BARE
    }

    pub fn pack(self) -> u64 {
        self.state as u64
            | u64::from(self.tag & TAG_MASK) << 4
            | u64::from(self.owner) << 16
            | u64::from(self.generation) << 32
    }

    /// Decodes word 0; `None` if this version does not know the state.
    #[inline]
    pub fn unpack(word: u64) -> Option<Status> {
        let state = match word & 0xf {
            0 => State::Absent,
            1 => State::Free,
            2 => State::Claimed,
            3 => State::Held,
            4 => State::Tail,
            5 => State::Own,
            6 => State::Filling,
            7 => State::Rented,
            _ => return None,
        };
        Some(Status {
            state,
            tag: (word >> 4) as u16 & TAG_MASK,
            owner: (word >> 16) as u16,
            generation: (word >> 32) as u32,
        })
    }
}

/// A run according to its descriptors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameRun {
    pub head: u32,
    pub frames: u32,
    /// The head's status.
    pub status: Status,
}

impl FrameRun {
    pub fn range(&self) -> Range<u32> {
        self.head..self.head + self.frames
    }
}

/// One frame's descriptor.
#[repr(C)]
#[derive(Default)]
pub(crate) struct DescriptorOf<W> {
    status: W,
    run: W,
}

/// The descriptor in a region.
pub(crate) type Descriptor = DescriptorOf<AtomicU64>;

const _: () = assert!(size_of::<Descriptor>() == 16);

impl<W: Word> DescriptorOf<W> {
    /// The raw word 0; only for comparisons.
    fn raw(&self) -> u64 {
        // SYNC: pairs with the Release side of every CAS below.
        self.status.load(Acquire)
    }

    pub fn status(&self) -> Option<Status> {
        Status::unpack(self.raw())
    }

    /// Records that a free frame has its memory again, if its status is still `seen`: a claim, and
    /// a later return of its memory, would have changed the generation. Called without the lock.
    pub fn regain(&self, seen: Status) {
        if seen.is_bare() {
            let new = Status::free(seen.generation).pack();
            // SYNC: pairs with `raw`.
            let _ = self
                .status
                .compare_exchange(seen.pack(), new, AcqRel, Acquire);
        }
    }

    /// Sets the status of a frame that is in no run. Only for the holder of the lock.
    pub fn set(&self, status: Status) {
        // SYNC: pairs with `raw`.
        self.status.store(status.pack(), Release);
    }

    /// The stored length of the run and distance to its head.
    pub fn place(&self) -> (u32, u32) {
        // SYNC: pairs with the Release store in `DescriptorTable::write_run`: a thread that sees a
        // later run's value here sees, in word 0, at least that the earlier run has ended.
        let word = self.run.load(Acquire);
        (word as u32, (word >> 32) as u32)
    }
}

/// Why these frames could not become a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unexpected {
    /// The second class has begun to fill the frame, or has had it in between: search again.
    Raced { frame: u32 },
    /// A state that can only result from damage or from a foreign writer.
    Damaged { frame: u32 },
}

/// Why a run cannot be adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotAdoptable {
    /// There is no run at that place with that length.
    NoSuchRun,
    /// It was adopted before.
    AlreadyHeld,
}

/// The descriptors of all frames.
pub(crate) struct DescriptorTable<'a, W>(pub &'a [DescriptorOf<W>]);

impl<'a, W: Word> DescriptorTable<'a, W> {
    pub fn get(&self, frame: u32) -> Option<&'a DescriptorOf<W>> {
        self.0.get(frame as usize)
    }

    /// The run that contains the frame.
    #[inline]
    pub fn run_of(&self, frame: u32) -> Option<FrameRun> {
        let descriptor = self.get(frame)?;
        let mut seen = descriptor.raw();
        loop {
            let status = Status::unpack(seen)?;
            if !matches!(status.state, State::Claimed | State::Held | State::Tail) {
                return None;
            }
            let (frames, back) = descriptor.place();
            // Word 1 may belong to a later run than word 0; its head then carries a later
            // generation.
            if back < frames && (back == 0) == (status.state != State::Tail) {
                let head = frame.checked_sub(back)?;
                let head_status = Status::unpack(self.get(head)?.raw())?;
                if head_status.generation == status.generation
                    && matches!(head_status.state, State::Claimed | State::Held)
                    && frames as usize <= self.0.len() - head as usize
                {
                    return Some(FrameRun {
                        head,
                        frames,
                        status: head_status,
                    });
                }
            }
            let again = descriptor.raw();
            if again == seen {
                // The run is being released, which frees its head first, or the table is damaged:
                // in either case there is no run.
                return None;
            }
            seen = again;
        }
    }

    /// The generation for a claim of these frames: the successor of the highest among them, and
    /// none that one of them carries. All must be claimable. Only for the holder of the lock.
    pub fn next_generation(&self, frames: Range<u32>) -> Result<u32, Unexpected> {
        let mut highest = 0;
        for frame in frames.clone() {
            highest = highest.max(self.claimable(frame)?.1.generation);
        }
        let mut next = following(highest);
        // Only after the numbers have started again can it be one that a frame carries.
        while highest == u32::MAX
            && frames.clone().any(|frame| {
                self.get(frame)
                    .and_then(DescriptorOf::status)
                    .is_some_and(|status| status.generation == next)
            })
        {
            next = following(next);
        }
        Ok(next)
    }

    /// The descriptor and status of a frame, if a claim may take it.
    fn claimable(&self, frame: u32) -> Result<(&'a DescriptorOf<W>, Status), Unexpected> {
        let damaged = Unexpected::Damaged { frame };
        let descriptor = self.get(frame).ok_or(damaged)?;
        match descriptor.status() {
            Some(status) if status.state.is_claimable() => Ok((descriptor, status)),
            Some(status) if status.state == State::Filling => Err(Unexpected::Raced { frame }),
            _ => Err(damaged),
        }
    }

    /// The statuses of these frames.
    pub fn statuses(&self, frames: Range<u32>) -> impl Iterator<Item = (u32, Status)> {
        frames.filter_map(|frame| Some((frame, self.get(frame)?.status()?)))
    }

    /// Makes claimable frames a run in state `Claimed`, which discards what the second class had in
    /// them. Calls `step` after each frame, with its previous status. Only for the holder of the
    /// lock, with the intent announced.
    pub fn write_run(
        &self,
        range: Range<u32>,
        tag: u16,
        owner: u16,
        generation: u32,
        mut step: impl FnMut(State),
    ) -> Result<(), Unexpected> {
        let frames = range.end - range.start;
        for frame in range.clone().rev() {
            let back = frame - range.start;
            let state = if back == 0 {
                State::Claimed
            } else {
                State::Tail
            };
            let new = Status {
                state,
                tag,
                owner,
                generation,
            }
            .pack();
            let was = loop {
                let (descriptor, old) = self.claimable(frame)?;
                if old.generation == generation {
                    // It was lent since the generation was chosen.
                    return Err(Unexpected::Raced { frame });
                }
                // SYNC: pairs with the Acquire load in `place`.
                descriptor
                    .run
                    .store(u64::from(frames) | u64::from(back) << 32, Release);
                // SYNC: pairs with `raw`: a thread that sees the run sees its word 1. The
                // compare-and-swap fails if the second class takes or returns the frame at this
                // moment.
                if descriptor
                    .status
                    .compare_exchange(old.pack(), new, AcqRel, Acquire)
                    .is_ok()
                {
                    break old.state;
                }
            };
            step(was);
        }
        // SYNC: pairs with the Acquire fence in `is_still_lent`: a reader that copied a byte stored
        // from now on finds the new generation.
        W::fence(Release);
        Ok(())
    }

    /// Changes `Claimed` to `Held`, in one step.
    pub fn adopt(&self, range: Range<u32>) -> Result<(), NotAdoptable> {
        let head = self.get(range.start).ok_or(NotAdoptable::NoSuchRun)?;
        let old = head.raw();
        match Status::unpack(old) {
            Some(status) if matches!(status.state, State::Claimed | State::Held) => {
                if head.place() != (range.end - range.start, 0) {
                    return Err(NotAdoptable::NoSuchRun);
                }
                if status.state == State::Held {
                    return Err(NotAdoptable::AlreadyHeld);
                }
                let new = Status {
                    state: State::Held,
                    ..status
                }
                .pack();
                // SYNC: pairs with `raw`; the tenant's link to the extent, written before, is
                // visible to a thread that sees the extent held. The compare-and-swap fails if the
                // run was adopted or freed in between.
                match head.status.compare_exchange(old, new, AcqRel, Acquire) {
                    Ok(_) => Ok(()),
                    Err(now) if now == new => Err(NotAdoptable::AlreadyHeld),
                    Err(_) => Err(NotAdoptable::NoSuchRun),
                }
            }
            _ => Err(NotAdoptable::NoSuchRun),
        }
    }

    /// Frees the frames with the given generation in this range, the head first, and calls `step`
    /// after each. With `spare_held`, an adopted run is left unchanged and the result is `false`.
    /// Idempotent: frames that were freed or claimed since no longer carry the generation as part
    /// of a run. Only for the holder of the lock, with the intent announced.
    pub fn free_run(
        &self,
        range: Range<u32>,
        generation: u32,
        spare_held: bool,
        mut step: impl FnMut(),
    ) -> bool {
        for frame in range {
            let Some(descriptor) = self.get(frame) else {
                return true;
            };
            let mut old = descriptor.raw();
            while let Some(status) = Status::unpack(old) {
                if status.generation != generation
                    || !matches!(status.state, State::Claimed | State::Held | State::Tail)
                {
                    break;
                }
                if spare_held && status.state == State::Held {
                    return false;
                }
                let new = status.freed().pack();
                // SYNC: pairs with `raw`. The loop handles an adoption that comes in between.
                match descriptor
                    .status
                    .compare_exchange(old, new, AcqRel, Acquire)
                {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
            step();
        }
        true
    }
}

mod lending;
#[cfg(test)]
pub(crate) mod model;
#[cfg(test)]
mod tests;
