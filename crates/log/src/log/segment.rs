//! The life of a log segment: `Free → Opening → Head → Closed → Compacting → Condemned → Freeing`.
//!
//! Every step is one compare-and-swap on [`LogSegmentInfo::state`], so that each happens once,
//! however many threads attempt it. States that belong to one thread hold its slot: the reaper
//! walks the table to find steps that dead threads left unfinished, and undoes or finishes them
//! (see [`Log::repair_segments`]).
//!
//! Two grace periods guard the bytes (Nibble §3.3, and one more). A closed segment becomes a victim
//! only when every thread that may have reserved space in it has unpinned, because until then it
//! may have a record that is reserved and not yet published. A condemned one is freed only when
//! every reader that may still be using it has unpinned.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mneme_arena::{Extent, ExtentState, FRAME_BYTES, Frame};
use mneme_sync::{Epoch, Slot, SlotId, Word};

use crate::error::{Corrupt, WriteError};
use crate::log::Log;
use crate::log::head::Claim;
use crate::region::layout::{LogSegmentInfo, MAX_ORDINARY_FRAMES, SegmentInfoOf};
use crate::region::mem::Loc;
use crate::region::record::{MAX_KEY, MAX_VALUE};

/// The arena tag of log segments.
pub(crate) const TAG_LOG: u16 = 1;
/// The arena tag of index frames.
pub(crate) const TAG_INDEX: u16 = 2;

/// Set in [`LogSegmentInfo::stamp`] while a grace period is due and has not begun.
const UNSTAMPED: u64 = 1 << 63;

/// Set in [`LogSegmentInfo::dead`] while more may be stale than it says: a thread has died that may
/// have left unpublished records here. Compaction counts again before the store counts as full.
const SUSPECT: u64 = 1 << 63;

/// Frames of the longest log segment: one with the largest record, or an ordinary one.
const MAX_SEGMENT_FRAMES: u64 = (MAX_VALUE + MAX_KEY + 16) as u64 / FRAME_BYTES + 1;
const _: () = assert!(MAX_SEGMENT_FRAMES >= MAX_ORDINARY_FRAMES);

/// The form in which a [`LogSegmentInfo`] keeps a length: the length in the low half, its
/// complement in the high half. Only these words say where records are, so damage to one must be
/// noticed before compaction, or the next append, relies on it.
pub(crate) fn length_word(length: u64) -> u64 {
    length | !length << 32
}

/// The length in a word made by [`length_word`]. `None`: the word is damaged.
#[inline]
fn length(word: u64) -> Option<u64> {
    let length = word & u64::from(u32::MAX);
    (length_word(length) == word).then_some(length)
}

#[cold]
fn no_segment(loc: Loc) -> Corrupt {
    Corrupt::at(loc.byte(), "a record's location outside every log segment")
}

#[cold]
fn no_length(frame: Frame) -> Corrupt {
    Corrupt::at(
        frame_byte(frame),
        "the lengths of the log segment there are damaged",
    )
}

/// Units of the age word of a closed segment. It has the time at which the segment was closed, in 4
/// us (44 bits: two years), and how much older its records were then, in 17 ms (20 bits: five
/// hours, at which it saturates).
const CLOSED_UNIT: u32 = 12;
const LAG_BITS: u32 = 20;
const LAG_MASK: u64 = (1 << LAG_BITS) - 1;
const LAG_UNIT: u32 = 24;

/// The state of a log segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    /// No log segment begins at this frame.
    Free = 0,
    /// Claimed by a thread that has not yet made it a head.
    Opening = 1,
    /// A head appends to it.
    Head = 2,
    /// Full; a victim once its grace period is over.
    Closed = 3,
    /// A compactor moves its records.
    Compacting = 4,
    /// Empty of live records; freed once its grace period is over.
    Condemned = 5,
    /// Its extent is being given back, or has been.
    Freeing = 6,
}

/// The state word: state 8 bits, owner 16, large flag 1, bulk flag 1, life 38.
///
/// The *life* is a number that increases with every extent that begins at this frame, and whenever
/// a closed segment is opened again. So a state that was seen in one life is never mistaken for an
/// equal state of a later life, however long its observer was stopped in between.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StateWord(pub u64);

const LARGE: u64 = 1 << 24;
const BULK: u64 = 1 << 25;
const LIFE_SHIFT: u32 = 26;
const LIFE: u64 = u64::MAX << LIFE_SHIFT;

/// What a log segment is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SegmentKind {
    /// Records up to a 32nd of an ordinary log segment.
    Ordinary,
    /// Longer ones. When they die, they are replaced in place (see `crate::reclaim::gaps`).
    Bulk,
    /// It begins with a record that has an extent of its own.
    Large,
}

impl StateWord {
    /// This state word with another state, owned by `owner` or by no thread.
    pub fn to(self, state: State, owner: Option<SlotId>) -> StateWord {
        let kept = self.0 & (LARGE | BULK | LIFE);
        StateWord(kept | state as u64 | u64::from(owner.map_or(0, |s| s.0)) << 8)
    }

    /// The first state of the next life.
    fn reborn(self, owner: SlotId, kind: SegmentKind) -> StateWord {
        let kind = match kind {
            SegmentKind::Ordinary => 0,
            SegmentKind::Bulk => BULK,
            SegmentKind::Large => LARGE,
        };
        let life = (self.0 & LIFE).wrapping_add(1 << LIFE_SHIFT);
        StateWord(life | kind).to(State::Opening, Some(owner))
    }

    /// The state; `None` if the byte is not a state.
    pub fn state(self) -> Option<State> {
        Some(match self.0 & 0xff {
            0 => State::Free,
            1 => State::Opening,
            2 => State::Head,
            3 => State::Closed,
            4 => State::Compacting,
            5 => State::Condemned,
            6 => State::Freeing,
            _ => return None,
        })
    }

    /// This state without the large flag, for a segment whose large record is dead.
    pub fn ordinary(self) -> StateWord {
        StateWord(self.0 & !LARGE)
    }

    pub fn owner(self) -> SlotId {
        SlotId((self.0 >> 8) as u16)
    }

    /// Whether the segment is for bulk records.
    pub fn bulk(self) -> bool {
        self.0 & BULK != 0
    }

    /// Whether the segment begins with a live large record; until that dies it cannot become a
    /// victim.
    pub fn large(self) -> bool {
        self.0 & LARGE != 0
    }
}

impl<W: Word> SegmentInfoOf<W> {
    pub fn state(&self) -> StateWord {
        // SYNC: pairs with the Release in `change` and `begin`: what the state promises is visible.
        StateWord(self.state.load(Acquire))
    }

    /// One step of the segment's life. False: another thread took a step first.
    pub fn change(&self, from: StateWord, to: StateWord) -> bool {
        // SYNC: pairs with the Acquire load in `state`.
        self.state
            .compare_exchange(from.0, to.0, AcqRel, Relaxed)
            .is_ok()
    }

    /// The step that `next` chooses, made by the only thread that may change the state. Only the
    /// flag of the large record in front may change meanwhile.
    pub fn step(&self, next: impl Fn(State) -> Option<State>) {
        loop {
            let word = self.state();
            match word.state().and_then(&next) {
                Some(to) if !self.change(word, word.to(to, None)) => {}
                _ => return,
            }
        }
    }

    /// Starts a new life for an extent that was just claimed.
    pub fn begin(&self, owner: SlotId, frames: u32, kind: SegmentKind) {
        self.used.store(length_word(0), Relaxed);
        self.dead.store(0, Relaxed);
        self.unstamp();
        self.age.store(0, Relaxed);
        self.frames.store(length_word(u64::from(frames)), Relaxed);
        // Relaxed: no other thread changes the state of an extent that this thread has claimed.
        let last = StateWord(self.state.load(Relaxed));
        // SYNC: pairs with the Acquire load in `state`.
        self.state.store(last.reborn(owner, kind).0, Release);
    }

    /// Opens the segment again, which `owner` has claimed as a victim in state `from`: another life
    /// with the same records. Returns false if another thread has taken it over.
    pub fn reopen(&self, from: StateWord, owner: SlotId) -> bool {
        // Done first, so that a thread that sees it closed again also sees that the grace period of
        // its earlier closing no longer counts.
        self.unstamp();
        self.age.store(0, Relaxed);
        self.change(from, from.reborn(owner, SegmentKind::Bulk))
    }

    /// Bytes between the segment's start and the end of its last record; `None` if one of the
    /// length words is damaged. With a wrong length, an append could overwrite records, or a walk
    /// could miss some.
    #[inline]
    pub fn written(&self) -> Option<u64> {
        self.written_of().map(|(used, _)| used)
    }

    /// As [`written`](Self::written), and how many bytes the segment can hold.
    #[inline(always)]
    pub fn written_of(&self) -> Option<(u64, u64)> {
        // SYNC: pairs with the Release stores in `set_used`: the headers below are written.
        let used = length(self.used.load(Acquire))?;
        let capacity = self.capacity();
        (used <= capacity && used.is_multiple_of(8)).then_some((used, capacity))
    }

    /// As [`written`](Self::written), or the error for the damaged segment at `frame`.
    #[inline]
    pub fn written_at(&self, frame: Frame) -> Result<u64, Corrupt> {
        self.written().ok_or_else(|| no_length(frame))
    }

    /// As [`written`](Self::written), for statistics: 0 if the word is damaged.
    pub fn used(&self) -> u64 {
        self.written().unwrap_or(0)
    }

    /// Notes that the headers in the first `bytes` bytes are written.
    #[inline]
    pub fn set_used(&self, bytes: u64) {
        // SYNC: pairs with the Acquire load in `written_of`.
        self.used.store(length_word(bytes), Release);
    }

    /// Frames of its extent; `None` if the word is damaged.
    #[inline]
    pub fn frames(&self) -> Option<u32> {
        // Relaxed: written before the segment's first record.
        let frames = length(self.frames.load(Relaxed))?;
        (1..=MAX_SEGMENT_FRAMES)
            .contains(&frames)
            .then_some(frames as u32)
    }

    /// Ends the grace period that is running, if any: the next state needs its own.
    ///
    /// Each waiting period has a number, so that a stamp meant for an earlier one fails.
    pub fn unstamp(&self) {
        let waiting = UNSTAMPED | self.periods.fetch_add(1, Relaxed).wrapping_add(1);
        // SYNC: pairs with the Acquire load in `stamp`.
        self.stamp.store(waiting, Release);
    }

    /// The epoch of the running grace period, or the number of the period that waits for one.
    pub fn stamp(&self) -> Result<Epoch, u64> {
        let word = self.stamp.load(Acquire);
        if word & UNSTAMPED == 0 {
            Ok(Epoch::from_u64(word))
        } else {
            Err(word)
        }
    }

    /// The number of the period that waits for its grace period to begin, if any: the segment is
    /// closed or condemned, and no thread has stamped it since.
    pub fn waiting(&self) -> Option<u64> {
        let word = self.state();
        if !matches!(word.state(), Some(State::Closed | State::Condemned)) {
            return None;
        }
        let period = self.stamp().err()?;
        // Otherwise the period may belong to the next life, and may not be due yet.
        (self.state() == word).then_some(period)
    }

    /// Begins the grace period of waiting period `period`; `epoch` was obtained after that was
    /// seen.
    pub fn begin_grace(&self, period: u64, epoch: u64) {
        // SYNC: pairs with the Acquire load in `stamp`.
        let _ = self.stamp.compare_exchange(period, epoch, AcqRel, Relaxed);
    }

    /// Condemns the segment, which was seen in state `from` and holds no live record.
    pub fn condemn(&self, from: StateWord) -> bool {
        // Done first, so that a thread that sees the segment condemned also sees that the grace
        // period of its closing no longer counts.
        self.unstamp();
        self.change(from, from.to(State::Condemned, None))
    }

    /// Notes the present time as that of the closing, and how old the records are. Called just
    /// before the segment is closed.
    pub fn close(&self, now: u64) {
        let born = match self.age.load(Relaxed) {
            0 => now,
            mean => mean,
        };
        let lag = (now.saturating_sub(born) >> LAG_UNIT).min(LAG_MASK);
        self.age
            .store(now >> CLOSED_UNIT << LAG_BITS | lag, Relaxed);
    }

    /// Makes the segment look as if it were closed now, with records written now.
    pub fn rejuvenate(&self, now: u64) {
        self.age.store(now >> CLOSED_UNIT << LAG_BITS, Relaxed);
    }

    /// Gives a damaged segment the lowest compaction priority. Compacting others gains more,
    /// because their records can be walked.
    pub fn deprioritise(&self) {
        self.age.store(u64::MAX, Relaxed);
    }

    /// Whether the segment was found damaged, and is compacted last.
    pub fn is_deprioritised(&self) -> bool {
        self.age.load(Relaxed) == u64::MAX
    }

    /// Makes all times earlier by `by` nanoseconds, but none earlier than the clock's beginning.
    pub fn predate(&self, state: State, by: u64) {
        let age = self.age.load(Relaxed);
        let earlier = match state {
            // Damaged segments, and segments without times: see `compact_victim` and `begin`.
            _ if self.is_deprioritised() || age == 0 => return,
            State::Closed => {
                self.closed().saturating_sub(by) >> CLOSED_UNIT << LAG_BITS | age & LAG_MASK
            }
            State::Head => age.saturating_sub(by).max(1),
            _ => return,
        };
        self.age.store(earlier, Relaxed);
    }

    /// When the segment was closed, in monotonic nanoseconds.
    pub fn closed(&self) -> u64 {
        self.age.load(Relaxed) >> LAG_BITS << CLOSED_UNIT
    }

    /// When the records of a closed segment were written, on average.
    pub fn born(&self) -> u64 {
        let lag = (self.age.load(Relaxed) & LAG_MASK) << LAG_UNIT;
        self.closed().saturating_sub(lag)
    }

    /// Bytes of its extent; none, if its length is damaged.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.frames().map_or(0, |n| u64::from(n) * FRAME_BYTES)
    }

    /// Bytes of records known to be stale.
    pub fn dead(&self) -> u64 {
        self.dead.load(Relaxed) & !SUSPECT
    }

    /// Bytes of records not known to be stale.
    pub fn live(&self) -> u64 {
        self.used().saturating_sub(self.dead())
    }

    /// Whether more may be stale than is known.
    pub fn is_suspect(&self) -> bool {
        self.dead.load(Relaxed) & SUSPECT != 0
    }
}

impl LogSegmentInfo {
    /// Counts `bytes` bytes that counted as stale as live.
    pub fn revive(&self, bytes: u64) {
        let fewer = |dead: u64| Some(dead - (dead & !SUSPECT).min(bytes));
        // At least 0: the word is an estimate, and may be damaged.
        let _ = self.dead.fetch_update(Relaxed, Relaxed, fewer);
    }

    /// Notes that the known stale bytes were all of them when the segment's records were looked up.
    pub fn trust(&self) {
        self.dead.fetch_and(!SUSPECT, Relaxed);
    }
}

/// Byte offset of a frame.
pub(crate) fn frame_byte(frame: Frame) -> u64 {
    u64::from(frame.0) * FRAME_BYTES
}

impl Log {
    /// Claims an extent for a log segment and puts it in state `Opening`. `None`: no free space.
    pub(crate) fn open_extent(
        &self,
        slot: &Slot<'_>,
        frames: u32,
        claim: Claim,
        kind: SegmentKind,
    ) -> Result<Option<Extent>, WriteError> {
        if let Some(store) = self.session().callbacks() {
            store.opens_segment(slot);
        }
        let Some(extent) = self.claim(slot, frames, claim.node, claim.class, TAG_LOG)? else {
            return Ok(None);
        };
        mneme_sys::fault!("log.open.claimed");
        for frame in extent.start.0..extent.start.0 + extent.frames {
            let first = &self.session().tables.info(Frame(frame)).first;
            first.store(u64::from(extent.start.0) + 1, Relaxed);
        }
        self.session()
            .tables
            .info(extent.start)
            .begin(slot.id(), extent.frames, kind);
        mneme_sys::fault!("log.open.begun");
        self.adopt(extent)?;
        mneme_sys::fault!("log.open.adopted");
        Ok(Some(extent))
    }

    /// Closes the segment at `frame` if its state is `Head`. Its head no longer appends to it.
    pub(crate) fn close_segment(&self, frame: Frame) {
        let info = self.session().tables.info(frame);
        if info.state().state() != Some(State::Head) {
            return;
        }
        info.close(self.session().clock.now_ns());
        info.step(|state| (state == State::Head).then_some(State::Closed));
    }

    /// Counts the record of `bytes` bytes at `loc` as stale.
    #[inline(always)]
    pub(crate) fn mark_dead(&self, loc: Loc, bytes: u64) -> Result<(), Corrupt> {
        match self.try_mark_dead(loc, bytes) {
            true => Ok(()),
            false => Err(no_segment(loc)),
        }
    }

    /// As [`mark_dead`](Self::mark_dead), after a change that cannot fail any more. Returns false
    /// if the segment in which the record is counted is damaged, which the check reports.
    #[inline(always)]
    pub(crate) fn try_mark_dead(&self, loc: Loc, bytes: u64) -> bool {
        let Some((frame, info)) = self.find_segment(loc) else {
            return false;
        };
        info.dead.fetch_add(bytes, Relaxed);
        if info.state().large() && loc.byte() == frame_byte(frame) {
            self.mark_large_dead(frame, bytes);
        }
        true
    }

    /// Marks as suspect the segments in which a dead thread may have left unpublished records. It
    /// was pinned since it reserved them, and still counts as pinned.
    pub(crate) fn suspect_unpublished(&self) {
        self.suspect(|info| !self.grace_over(info));
    }

    /// Marks all segments as suspect: the pins of an earlier boot are unknown.
    pub(crate) fn suspect_all(&self) {
        self.suspect(|_| true);
    }

    /// Marks as suspect all open segments, and those closed ones for which `may_have` is true.
    fn suspect(&self, may_have: impl Fn(&LogSegmentInfo) -> bool) {
        for (_, info, _, state) in self.segments() {
            let is_open = matches!(state, State::Opening | State::Head);
            if is_open || (state == State::Closed && may_have(info)) {
                info.dead.fetch_or(SUSPECT, Relaxed);
            }
        }
    }

    /// Whether compaction may gain more than is known, once it has examined suspect segments.
    pub(crate) fn has_suspects(&self) -> bool {
        self.segments().any(|(_, info, _, state)| {
            matches!(state, State::Closed | State::Compacting) && info.is_suspect()
        })
    }

    /// Notes that the index no longer leads to the large record of `bytes` bytes at `frame`. If the
    /// record is alone in its segment, the segment needs no compaction, only the grace period. If
    /// other records follow, it becomes an ordinary segment.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark_large_dead(&self, frame: Frame, bytes: u64) {
        let info = self.session().tables.info(frame);
        loop {
            let word = info.state();
            let done = match word.state() {
                Some(State::Closed) if word.large() && info.used() <= bytes => {
                    self.condemn(frame, word)
                }
                Some(State::Opening | State::Head | State::Closed | State::Compacting)
                    if word.large() =>
                {
                    info.change(word, word.ordinary())
                }
                _ => true,
            };
            if done {
                return;
            }
        }
    }

    /// The first frame of the log segment that `loc` lies in.
    #[inline(always)]
    pub(crate) fn segment_of(&self, loc: Loc) -> Result<Frame, Corrupt> {
        let found = self.find_segment(loc);
        found.map(|(start, _)| start).ok_or_else(|| no_segment(loc))
    }

    /// The log segment in which `loc` lies, if its words are intact.
    #[inline(always)]
    fn find_segment(&self, loc: Loc) -> Option<(Frame, &LogSegmentInfo)> {
        let frame = loc.byte() / FRAME_BYTES;
        let (_, info) = self.session().tables.named(frame + 1)?;
        // Relaxed: written before the segment's first record, whose location the caller has.
        let (start, info) = self.session().tables.named(info.first.load(Relaxed))?;
        let behind = frame.checked_sub(u64::from(start.0))?;
        (behind < u64::from(info.frames()?)).then_some((start, info))
    }

    /// Marks an empty segment as to be freed once its readers have left.
    pub(crate) fn condemn(&self, frame: Frame, from: StateWord) -> bool {
        self.session().tables.info(frame).condemn(from)
    }

    /// The frames that the arena hands out: those after its own tables.
    pub(crate) fn frames(&self) -> std::ops::Range<u32> {
        let stats = self.arena.stats();
        stats.own..stats.own + stats.frames
    }

    /// Notes that a large record may be lost: its writer died, or gave up, before it published the
    /// record or after it had replaced it. Compaction finds lost ordinary records by itself, in
    /// suspect segments, even if all of a segment seems to be live.
    #[cold]
    pub(crate) fn suspect_lost(&self) {
        // SYNC: pairs with the exchange in `condemn_lost`.
        self.session().tables.header().lost.store(1, Release);
    }

    /// All frames at which a log segment begins now.
    pub(crate) fn segments(
        &self,
    ) -> impl Iterator<Item = (Frame, &LogSegmentInfo, StateWord, State)> {
        let mut frames = self.frames();
        std::iter::from_fn(move || {
            loop {
                let frame = Frame(frames.next()?);
                let info = self.session().tables.info(frame);
                let word = info.state();
                let state = match word.state() {
                    None | Some(State::Free | State::Freeing) => continue,
                    Some(state) => state,
                };
                // If the state is unchanged afterwards, the length belongs to this life: no other
                // segment began within it.
                let length = info.frames();
                if let Some(length) = length.filter(|_| info.state() == word) {
                    frames.start = frame.0.saturating_add(length).min(frames.end);
                }
                return Some((frame, info, word, state));
            }
        })
    }

    /// Frames whose state byte is not a state: damage.
    pub(crate) fn stateless(&self) -> impl Iterator<Item = Frame> {
        let frames = self.frames().map(Frame);
        frames.filter(|frame| self.session().tables.info(*frame).state().state().is_none())
    }

    /// Starts the grace period of every closed or condemned segment for which none is running.
    ///
    /// Costs a barrier across processes if there is any such segment, so it is called in batches.
    pub(crate) fn stamp_segments(&self) {
        let waiting: Vec<(Frame, u64)> = self
            .segments()
            .filter_map(|(frame, info, ..)| info.waiting().map(|period| (frame, period)))
            .collect();
        if waiting.is_empty() {
            return;
        }
        // Without the barrier no grace period begins: another process, or a later call, will stamp
        // the segments.
        let Ok(epoch) = self.session().participants.advance() else {
            return;
        };
        for (frame, period) in waiting {
            self.session()
                .tables
                .info(frame)
                .begin_grace(period, epoch.to_u64());
        }
    }

    /// The condemned segments, in ascending order.
    pub(crate) fn condemned(&self) -> Vec<(Frame, StateWord)> {
        let condemned = self.segments().filter(|(.., s)| *s == State::Condemned);
        condemned.map(|(frame, _, word, _)| (frame, word)).collect()
    }

    /// Frees every condemned segment whose readers have unpinned. Returns their number.
    ///
    /// While a dropped index waits for its sweep, only those segments are freed that are `unnamed`:
    /// the walk that emptied a segment treated the records of the dropped index as stale, and the
    /// sweep still follows their locations.
    pub(crate) fn free_condemned(
        &self,
        slot: &Slot<'_>,
        unnamed: &[(Frame, StateWord)],
    ) -> Result<usize, WriteError> {
        let is_unnamed = |frame: Frame, word: StateWord| {
            let at = unnamed.binary_search_by_key(&frame.0, |(frame, _)| frame.0);
            at.is_ok_and(|at| unnamed[at].1 == word)
        };
        let mut freed = 0;
        for (frame, info, word, state) in self.segments() {
            if state != State::Condemned || !self.grace_over(info) {
                continue;
            }
            // A segment whose length is damaged is never freed: its extent is unknown.
            let Some(frames) = info.frames() else {
                continue;
            };
            // Checked after the state was seen: the thread that emptied the segment of a dropped
            // index' records had seen that the index was dropped. So this load sees the index in
            // the list, or its sweep is over.
            if !is_unnamed(frame, word) && self.session().tables.header().sweeps_due() {
                continue;
            }
            if !info.change(word, word.to(State::Freeing, Some(slot.id()))) {
                continue;
            }
            mneme_sys::fault!("log.free.marked");
            let used = info.used().min(info.capacity());
            let extent = Extent {
                start: frame,
                frames,
            };
            let released = self.release(slot, extent);
            if let Err(WriteError::Stalled(_)) = released {
                // The arena's lock is held: a later call frees the segment.
                info.change(info.state(), word);
            }
            released?;
            // Relaxed: a statistic.
            self.session()
                .tables
                .header()
                .freed
                .fetch_add(used, Relaxed);
            mneme_sys::fault!("log.free.released");
            freed += 1;
        }
        Ok(freed)
    }

    /// Whether every thread that was pinned when the segment was stamped has unpinned.
    pub(crate) fn grace_over(&self, info: &LogSegmentInfo) -> bool {
        info.stamp()
            .is_ok_and(|epoch| self.session().participants.quiescent(epoch))
    }

    /// Completes or undoes the steps of every segment that the dead thread `dead` owned.
    ///
    /// Runs before the arena's own repair, which takes back what was claimed and never adopted.
    pub(crate) fn repair_segments(&self, slot: &Slot<'_>, dead: SlotId) -> Result<(), WriteError> {
        for i in self.frames() {
            while !self.repair_segment(slot, dead, Frame(i))? {}
        }
        self.close_abandoned();
        Ok(())
    }

    /// Returns false if its state changed meanwhile: another thread may have marked the large
    /// record in front as dead, and left the rest to be done.
    fn repair_segment(
        &self,
        slot: &Slot<'_>,
        dead: SlotId,
        frame: Frame,
    ) -> Result<bool, WriteError> {
        let info = self.session().tables.info(frame);
        let word = info.state();
        if word.owner() != dead || dead.0 == 0 {
            return Ok(true);
        }
        // Read before the state is read again: if an extent is adopted and its state still names
        // the dead thread, it was not released since.
        let arena = self.arena.extent_of(frame);
        let adopted = arena.as_ref().is_some_and(|a| {
            a.tag == TAG_LOG && a.extent.start == frame && a.state == ExtentState::Held
        });
        mneme_sys::fault!("log.repair.seen");
        if info.state() != word {
            return Ok(false);
        }
        Ok(match word.state() {
            Some(State::Opening) if !adopted => info.change(word, word.to(State::Free, None)),
            Some(State::Opening) => {
                let to = match self.is_some_heads(frame) {
                    true => State::Head,
                    false => State::Closed,
                };
                // Its large record was never written.
                let empty = info.used() == 0;
                let kind = if empty { word.ordinary() } else { word };
                info.change(word, kind.to(to, None))
            }
            Some(State::Compacting) => {
                // It may have moved records without counting them.
                info.dead.fetch_or(SUSPECT, Relaxed);
                info.change(word, word.to(State::Closed, None))
            }
            Some(State::Freeing) if adopted => {
                if let Some(arena) = arena {
                    self.release(slot, arena.extent)?;
                }
                true
            }
            _ => true,
        })
    }

    /// Closes segments whose head moved on and whose writer died before it closed them.
    pub(crate) fn close_abandoned(&self) {
        for (frame, info, mut word, state) in self.segments() {
            if state == State::Head && !self.is_some_heads(frame) && info.state() == word {
                info.close(self.session().clock.now_ns());
                // The exchange succeeds only in the life in which the segment was seen. Meanwhile
                // the large record in front may be marked dead.
                while !info.change(word, word.to(State::Closed, None)) && word.large() {
                    word = word.ordinary();
                }
            }
        }
    }

    fn is_some_heads(&self, frame: Frame) -> bool {
        let g = &self.session().tables.geometry;
        (0..g.all_heads())
            .any(|h| self.session().tables.head(h).segment.load(Acquire) == u64::from(frame.0) + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This also holds if the clock of this boot is behind that of the previous boot.
    #[test]
    fn a_segment_closed_earlier_stays_older() {
        let hour = 3_600 << 30;
        let infos: [LogSegmentInfo; 3] = std::array::from_fn(|_| LogSegmentInfo::default());
        for (info, hours) in infos.iter().zip(1..) {
            info.close(hours * hour);
            info.predate(State::Closed, hour + hour / 2);
        }
        let closed = infos.each_ref().map(LogSegmentInfo::closed);
        assert!(
            closed.is_sorted() && closed[0] == 0 && closed[1] > 0,
            "{closed:?}"
        );
        assert!(closed[2] <= 3 * hour - hour - hour / 2);
        // A segment that compaction found damaged is still chosen last.
        infos[0].deprioritise();
        infos[0].predate(State::Closed, hour);
        assert!(infos[0].is_deprioritised());
    }

    /// A compactor is stopped between choosing a victim and claiming it. When it resumes, that
    /// frame is closed again: in another life, whose grace period is not over.
    #[test]
    fn a_state_of_an_earlier_life_is_taken_for_no_later_one() {
        let info = LogSegmentInfo::default();
        let live = || {
            info.begin(SlotId(7), 1, SegmentKind::Ordinary);
            let step = |to, owner| {
                let word = info.state();
                assert!(info.change(word, word.to(to, owner)));
                info.state()
            };
            let head = step(State::Head, None);
            let closed = step(State::Closed, None);
            step(State::Compacting, Some(SlotId(9)));
            let condemned = step(State::Condemned, None);
            step(State::Freeing, Some(SlotId(9)));
            [head, closed, condemned]
        };
        let (first, second) = (live(), live());
        for (earlier, later) in first.into_iter().zip(second) {
            assert_eq!(earlier.state(), later.state());
            assert_ne!(earlier, later);
        }
        info.begin(SlotId(7), 1, SegmentKind::Large);
        let opening = info.state();
        assert_eq!(
            (opening.state(), opening.owner(), opening.large()),
            (Some(State::Opening), SlotId(7), true)
        );
        assert!(info.change(opening, opening.to(State::Closed, None)));
        let now = info.state();
        assert!(now.large() && now.owner() == SlotId(0));
        for seen in first.into_iter().chain(second) {
            assert!(!info.change(seen, seen.to(State::Compacting, Some(SlotId(3)))));
        }
        assert_eq!(info.state(), now);
    }
}
