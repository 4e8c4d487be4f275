//! Intents: a thread writes to shared memory what it is about to do, so that another thread that
//! finds it dead can finish or undo the operation.
//!
//! **A reader of an intent line sees a complete intent or none**, wherever its writer died. A line
//! has one writer, its slot's thread. Its head word (kind and sequence) is written last on
//! [`begin`](IntentLine::begin) and cleared first on the next one; while the head's kind is zero,
//! the words between are not read.

use crate::atomics::Word;
use crate::layout::{INTENT_WORDS, IntentWords};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The layer that announces an intent. Each has its own intent line, so layers that are nested in
/// one operation never overwrite each other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Lane {
    /// Claiming and releasing extents.
    Arena = 0,
    /// Heads, segments and compaction.
    Log = 1,
    /// Buckets, splits and merges.
    Index = 2,
    /// Operations on several keys or several structures.
    Txn = 3,
}

impl Lane {
    /// All lanes, in the order in which repairs should examine them: the outermost layer last.
    pub const ALL: [Lane; crate::layout::LANES] = [Lane::Arena, Lane::Log, Lane::Index, Lane::Txn];
}

/// An intent, as read from a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intent {
    /// What is being done, in the layer's own numbering. Never 0.
    pub kind: u16,
    /// The operands; words that the writer did not give are zero.
    pub words: [u64; INTENT_WORDS],
}

const SEQUENCE_BITS: u32 = 48;

/// The calling thread's intent line of one lane.
#[derive(Clone, Copy)]
pub struct IntentLine<'a> {
    line: &'a IntentWords,
}

impl<'a> IntentLine<'a> {
    pub(crate) fn new(line: &'a IntentWords) -> Self {
        IntentLine { line }
    }

    /// Announces the intent `kind` (not 0) with up to seven words; replaces an earlier one.
    ///
    /// Others see it before anything that the caller stores afterwards *with Release or by an
    /// exchange*; so take locks and make claims that way.
    pub fn begin<const N: usize>(&self, kind: u16, words: &[u64; N]) {
        const { assert!(N <= INTENT_WORDS, "an intent has at most seven words") };
        let mut all = [0; INTENT_WORDS];
        all[..N].copy_from_slice(words);
        begin(&self.line.head, &self.line.words, kind, &all);
    }

    /// Changes word `i` (below 7; others are ignored) of the intent in place. A thread that sees
    /// the new word also sees what the caller stored before.
    pub fn set(&self, i: usize, value: u64) {
        if let Some(word) = self.line.words.get(i) {
            // SYNC: pairs with the Acquire loads in `read`.
            word.store(value, Release);
        }
    }

    /// Adds 1 to word `i` (below 7; others are ignored). This publishes nothing; it only shows that
    /// the thread makes progress.
    #[inline]
    pub fn count(&self, i: usize) {
        if let Some(word) = self.line.words.get(i) {
            // Relaxed: only the calling thread writes it, and others only check whether it changes.
            word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Clears the intent: its operation is done, and its effects are visible to a thread that sees
    /// the intent gone.
    pub fn clear(&self) {
        clear(&self.line.head);
    }

    /// Whether there is an intent in this line.
    #[inline]
    #[must_use]
    pub fn stands(&self) -> bool {
        standing(&self.line.head).is_some()
    }

    /// The intent as other threads see it.
    #[must_use]
    pub fn read(&self) -> Option<Intent> {
        read(&self.line.head, &self.line.words)
    }
}

pub(crate) fn read_line(line: &IntentWords) -> Option<Intent> {
    read(&line.head, &line.words)
}

pub(crate) fn clear_line(line: &IntentWords) {
    clear::<AtomicU64>(&line.head);
}

/// The sequence number of the intent in this line, or of the last one.
pub(crate) const fn sequence(head: u64) -> u64 {
    head & ((1 << SEQUENCE_BITS) - 1)
}

/// Called by the line's writer: the head loses its kind, the words change, the head gets the new
/// kind.
pub(crate) fn begin<W: Word>(
    head: &W,
    line: &[W; INTENT_WORDS],
    kind: u16,
    words: &[u64; INTENT_WORDS],
) {
    let last = sequence(head.load(Relaxed));
    head.store(last, Relaxed);
    // SYNC: pairs with the Acquire loads in `read`: a thread that sees a new word sees the old head
    // gone.
    W::fence(Release);
    for (word, value) in line.iter().zip(words) {
        word.store(*value, Relaxed);
    }
    let next = sequence(last + 1);
    // SYNC: pairs with the Acquire load in `read`: a thread that sees the head sees the words.
    head.store(next | u64::from(kind) << SEQUENCE_BITS, Release);
    mneme_sys::fault!("sync.intent.begun");
}

pub(crate) fn clear<W: Word>(head: &W) {
    // SYNC: pairs with the Acquire load in `read`: the intended operation is done.
    head.store(sequence(head.load(Relaxed)), Release);
}

/// The sequence number of the current intent, if there is one. May be called by any thread. It
/// differs from the number of any earlier or later intent.
pub(crate) fn standing<W: Word>(head: &W) -> Option<u64> {
    // SYNC: pairs with the Release stores in `begin` and `clear`: the operations announced before
    // are done.
    let seen = head.load(Acquire);
    (seen >> SEQUENCE_BITS != 0).then_some(seen)
}

/// The intent, if there is one. May be called by any thread, even while the writer is alive; a line
/// that is changing reads as no intent.
pub(crate) fn read<W: Word>(head: &W, line: &[W; INTENT_WORDS]) -> Option<Intent> {
    // SYNC: pairs with the Release stores in `begin` and `clear`.
    let seen = head.load(Acquire);
    let kind = (seen >> SEQUENCE_BITS) as u16;
    if kind == 0 {
        return None;
    }
    let mut words = [0; INTENT_WORDS];
    for (word, out) in line.iter().zip(&mut words) {
        // SYNC: pairs with the Release store in `IntentLine::set` and the fence in `begin`.
        *out = word.load(Acquire);
    }
    (head.load(Relaxed) == seen).then_some(Intent { kind, words })
}
