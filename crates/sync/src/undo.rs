//! Undo areas: space in a thread's slot for data that do not fit into an intent line.
//!
//! An operation on several keys writes the old locations here, and an overwrite in place the new
//! bytes. Then it announces the intent that refers to them, and then it begins. The thread's reaper
//! finds both.
//!
//! The bytes are words of shared memory. All access is atomic, so a reader that races with a writer
//! gets torn content at worst.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One slot's undo area.
#[derive(Clone, Copy)]
pub struct UndoArea<'a> {
    words: &'a [AtomicU64],
}

impl<'a> UndoArea<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        UndoArea { words }
    }

    /// The length of the area in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.len() * 8
    }

    /// Whether the region was created without undo areas.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Splits the area after `bytes` bytes (a multiple of 8, at most all).
    #[must_use]
    pub fn split_at(self, bytes: usize) -> (UndoArea<'a>, UndoArea<'a>) {
        let words = (bytes / 8).min(self.words.len());
        let (first, second) = self.words.split_at(words);
        (UndoArea::new(first), UndoArea::new(second))
    }

    /// The area as words.
    #[must_use]
    pub fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// Writes `bytes` at `at` (a multiple of 8); the rest of the last word becomes zero. Returns
    /// `false`, and writes nothing, if they do not fit. Others see the bytes before an intent that
    /// is announced afterwards.
    #[must_use]
    pub fn write(&self, at: usize, bytes: &[u8]) -> bool {
        let Some(words) = self.part(at, bytes.len()) else {
            return false;
        };
        let (chunks, rest) = bytes.as_chunks::<8>();
        // Relaxed: the intent's Release store publishes the bytes.
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Relaxed);
        }
        if !rest.is_empty() {
            let mut value = [0; 8];
            value[..rest.len()].copy_from_slice(rest);
            words[chunks.len()].store(u64::from_le_bytes(value), Relaxed);
        }
        true
    }

    /// Reads bytes from offset `at` (a multiple of 8); `false` if the area ends before.
    #[must_use]
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> bool {
        let Some(words) = self.part(at, bytes.len()) else {
            return false;
        };
        for (word, chunk) in words.iter().zip(bytes.chunks_mut(8)) {
            // Relaxed: the intent was read with Acquire before.
            chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes()[..chunk.len()]);
        }
        true
    }

    fn part(&self, at: usize, len: usize) -> Option<&'a [AtomicU64]> {
        if !at.is_multiple_of(8) {
            return None;
        }
        self.words
            .get(at / 8..(at / 8).checked_add(len.div_ceil(8))?)
    }
}
