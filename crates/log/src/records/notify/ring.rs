//! A ring with many producers and one consumer: **each entry comes out once and whole. An entry
//! that was complete before another was begun comes out before it. No thread waits for another,
//! wherever a thread stops or dies. Every entry that does not come out was counted as lost.**
//!
//! Positions count up for ever; position `p` is in slot `p mod n`, in lap `p / n`. A slot's state
//! says which lap it is in and what is happening there. Zeroed memory is an empty ring:
//!
//! | state | meaning | who goes on |
//! |---|---|---|
//! | free | nobody has it in this lap | a producer: busy |
//! | busy | its producer writes the content | the producer: done. The consumer that has waited long enough: skipped. A reaper: abandoned |
//! | done | the content is whole | the consumer: free in the next lap |
//! | skipped | passed over, while the producer may still write | the producer, or its reaper: abandoned |
//! | abandoned | passed over, and nobody writes any more | the consumer, when it comes by: free in the next lap |
//!
//! A position is taken by one exchange, of free for busy; `head`, where producers begin to look, is
//! a hint that only goes up, past positions that are taken or passed over. A producer that finds a
//! slot of the lap before, not yet consumed, has found the ring full: it enters nothing, and counts
//! a loss. So does a producer that was skipped.
//!
//! A slot that was skipped is not used again while its producer may write there: otherwise the
//! content of two entries would be mixed. All threads pass over it until it is abandoned. A
//! producer that dies in the middle leaves its slot busy or skipped. Its reaper sets the slot to
//! abandoned, and counts a loss, see [`crate::records::notify`].
//!
//! The models in [`crate::models`] check this.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mneme_sync::{SlotId, Word};

/// A ring in a region, or in a model.
pub(crate) struct NotifyRing<'r, W> {
    /// The first position that may be free.
    pub head: &'r W,
    /// How often something was lost.
    pub losses: &'r W,
    /// The slots, each a state and its content.
    pub words: &'r [W],
    /// Words of a slot.
    pub stride: usize,
}

/// What is happening in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    Free,
    Busy,
    Done,
    Skipped,
    Abandoned,
}

/// A slot's state: a tag in three bits, the owner's thread slot in sixteen, the lap in the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State(u64);

const OWNER_SHIFT: u32 = 3;
const LAP_SHIFT: u32 = OWNER_SHIFT + 16;
const LAPS: u64 = u64::MAX >> LAP_SHIFT;

impl State {
    fn new(tag: Tag, owner: SlotId, lap: u64) -> State {
        State(lap << LAP_SHIFT | u64::from(owner.0) << OWNER_SHIFT | tag as u64)
    }

    fn free(lap: u64) -> State {
        State::new(Tag::Free, SlotId::NONE, lap & LAPS)
    }

    /// The tag. A value that is no tag, which only damage writes, is passed over, and the slot is
    /// used again.
    fn tag(self) -> Tag {
        match self.0 & 7 {
            0 => Tag::Free,
            1 => Tag::Busy,
            2 => Tag::Done,
            3 => Tag::Skipped,
            _ => Tag::Abandoned,
        }
    }

    fn owner(self) -> SlotId {
        SlotId((self.0 >> OWNER_SHIFT) as u16)
    }

    fn lap(self) -> u64 {
        self.0 >> LAP_SHIFT
    }

    #[cfg(test)]
    pub fn word(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub fn free_in(lap: u64) -> State {
        State::free(lap)
    }

    #[cfg(test)]
    pub fn busy(owner: SlotId, lap: u64) -> State {
        State::new(Tag::Busy, owner, lap)
    }

    fn with(self, tag: Tag) -> State {
        State::new(tag, self.owner(), self.lap())
    }
}

/// What the consumer finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NextNotification {
    /// Nothing more.
    Nothing,
    /// An entry, which is taken out.
    Entered,
    /// A producer is writing an entry.
    Busy(State),
    /// A producer that was writing was skipped.
    Skipped,
}

/// Moves to the next position. Only damage makes a position overflow.
fn step(at: &mut u64) {
    *at = at.wrapping_add(1);
}

impl<W: Word> NotifyRing<'_, W> {
    /// How many slots there are.
    pub fn slots(&self) -> u64 {
        (self.words.len() / self.stride) as u64
    }

    /// The state and the content of a position, and its lap.
    fn slot(&self, at: u64) -> (&W, &[W], u64) {
        let n = self.slots();
        let first = (at % n) as usize * self.stride;
        let (state, content) = self.words[first..first + self.stride].split_at(1);
        (&state[0], content, (at / n) & LAPS)
    }

    /// Enters `content` for the thread `me`. False: the ring is full, or the producer was skipped
    /// meanwhile. The caller then counts a [loss](Self::lose).
    pub fn enter(&self, me: SlotId, content: &[u64]) -> bool {
        // Relaxed: a hint. The slots' states decide, and this thread sees states that are
        // consistent with what it has seen.
        let mut at = self.head.load(Relaxed);
        // In a sound ring fewer slots are passed over than there are.
        for _ in 0..2 * self.slots() {
            let (state, words, lap) = self.slot(at);
            // SYNC: pairs with the Release stores and exchanges of states.
            let now = State(state.load(Acquire));
            match now.tag() {
                Tag::Skipped | Tag::Abandoned => {}
                _ if now.lap() > lap => {}
                Tag::Free if now.lap() == lap => {
                    let busy = State::new(Tag::Busy, me, lap);
                    // SYNC: Acquire pairs with the consumer's Release in `next`: the slot's
                    // previous producer no longer writes, and the consumer no longer reads.
                    if state
                        .compare_exchange(now.0, busy.0, AcqRel, Relaxed)
                        .is_err()
                    {
                        continue;
                    }
                    // Before any producer can begin whose entry must come after this one.
                    self.head.fetch_max(at.wrapping_add(1), Relaxed);
                    mneme_sys::fault!("log.notify.reserved");
                    for (word, value) in words.iter().zip(content) {
                        // Relaxed: published by the state.
                        word.store(*value, Relaxed);
                    }
                    mneme_sys::fault!("log.notify.written");
                    return self.complete(state, busy);
                }
                Tag::Busy | Tag::Done if now.lap() == lap => {}
                _ => return false,
            }
            let next = at.wrapping_add(1);
            at = self.head.fetch_max(next, Relaxed).max(next);
        }
        false
    }

    fn complete(&self, state: &W, busy: State) -> bool {
        let done = busy.with(Tag::Done);
        // SYNC: pairs with the Acquire load in `next`: the content is whole.
        let completed = state.compare_exchange(busy.0, done.0, Release, Relaxed);
        mneme_sys::fault!("log.notify.entered");
        if completed.is_err() {
            // SYNC: pairs with the Acquire load in `next`: nothing more is written there.
            state.store(busy.with(Tag::Abandoned).0, Release);
            mneme_sys::fault!("log.notify.abandoned");
        }
        completed.is_ok()
    }

    /// Counts a loss. A thread that sees the new count sees the lost change too.
    pub fn lose(&self) {
        // SYNC: pairs with the Acquire load in `losses`.
        self.losses.fetch_add(1, Release);
    }

    /// How often something was lost.
    pub fn losses(&self) -> u64 {
        // SYNC: pairs with the Release in `lose`.
        self.losses.load(Acquire)
    }

    /// The consumer's next step, from position `at` on. An entry there is copied to `content`. A
    /// slot whose state equals `skip` is skipped.
    pub fn next(&self, at: &mut u64, skip: Option<State>, content: &mut [u64]) -> NextNotification {
        // Each round advances by a position, except those that lose an exchange to a producer.
        for _ in 0..4 * self.slots() {
            let (state, words, lap) = self.slot(*at);
            // SYNC: pairs with the Release exchanges in `complete`, `release` and below.
            let now = State(state.load(Acquire));
            match now.tag() {
                Tag::Skipped => step(at),
                Tag::Abandoned => {
                    self.free(state, now, lap + 1);
                    step(at);
                }
                // An earlier consumer took this entry, and died before it noted that.
                _ if now.lap() > lap => step(at),
                Tag::Done if now.lap() == lap => {
                    for (value, word) in content.iter_mut().zip(words) {
                        // Relaxed: the state was loaded with Acquire.
                        *value = word.load(Relaxed);
                    }
                    mneme_sys::fault!("log.notify.copied");
                    // SYNC: pairs with the Acquire exchange in `enter`: the content was read.
                    state.store(State::free(lap + 1).0, Release);
                    mneme_sys::fault!("log.notify.taken");
                    step(at);
                    return NextNotification::Entered;
                }
                Tag::Busy if now.lap() == lap => {
                    if skip != Some(now) {
                        return NextNotification::Busy(now);
                    }
                    let skipped = now.with(Tag::Skipped);
                    // Fails if the producer was faster. SYNC: Release passes on what `enter`
                    // acquires.
                    if state
                        .compare_exchange(now.0, skipped.0, AcqRel, Relaxed)
                        .is_ok()
                    {
                        mneme_sys::fault!("log.notify.skipped");
                        step(at);
                        return NextNotification::Skipped;
                    }
                }
                // Producers a lap ahead have passed over this slot while it was skipped.
                Tag::Free if now.lap() == lap && self.head.load(Relaxed) > *at => {
                    self.free(state, now, lap + 1);
                }
                Tag::Free if now.lap() == lap => return NextNotification::Nothing,
                // Only damage leaves a slot behind the consumer.
                _ => self.free(state, now, lap),
            }
        }
        NextNotification::Nothing
    }

    fn free(&self, state: &W, now: State, lap: u64) {
        // Fails if a producer was faster: the caller looks again. SYNC: pairs with the Acquire
        // exchange in `enter`.
        let _ = state.compare_exchange(now.0, State::free(lap).0, AcqRel, Relaxed);
    }

    /// Sets the slots of the thread `dead` to abandoned, for its reaper: no thread writes there
    /// any more.
    pub fn release(&self, dead: SlotId) {
        for slot in self.words.chunks_exact(self.stride) {
            loop {
                // SYNC: as in `next`.
                let now = State(slot[0].load(Acquire));
                if now.owner() != dead || !matches!(now.tag(), Tag::Busy | Tag::Skipped) {
                    break;
                }
                let abandoned = now.with(Tag::Abandoned);
                // Fails if the consumer has just skipped the slot. SYNC: pairs with the Acquire
                // load in `next`.
                let released = slot[0].compare_exchange(now.0, abandoned.0, AcqRel, Relaxed);
                if released.is_ok() {
                    break;
                }
            }
        }
    }

    /// Resets a ring that no thread uses, as if nothing had ever been entered.
    pub fn clear(&self) {
        for word in [self.head, self.losses].into_iter().chain(self.words) {
            // Only words that are not zero are written: fresh memory stays unallocated.
            if word.load(Relaxed) != 0 {
                word.store(0, Relaxed);
            }
        }
    }
}
