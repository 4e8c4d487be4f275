//! The word of a patchable record, which shows readers whether its value changes.
//!
//! It is a sequence lock of the record's own, with a length and a *seal*. A writer makes it odd,
//! changes the value, and makes it even again. A reader copies the value and accepts the copy if
//! the word was even and is unchanged afterwards. A reader that needs the value in place for long
//! seals the word: after that no thread can make it odd.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use mneme_sync::Word;

/// Bits 0..31 the value's length, bit 31 sealed, bits 32..64 the patches so far (odd while one is
/// being made).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PatchWord(pub u64);

const LENGTH_MASK: u64 = (1 << 31) - 1;
pub(crate) const SEALED: u64 = 1 << 31;
const ONE_STEP: u64 = 1 << 32;

impl PatchWord {
    /// The word of a value of `len` bytes without patches.
    pub fn new(len: usize) -> PatchWord {
        PatchWord(len as u64)
    }

    #[inline]
    pub fn load<W: Word>(word: &W) -> PatchWord {
        // SYNC: pairs with the Release store in `finish`.
        PatchWord(word.load(Acquire))
    }

    /// The value's length.
    #[inline]
    pub fn len(self) -> usize {
        (self.0 & LENGTH_MASK) as usize
    }

    /// Whether a patch is being made, or was when its thread died.
    #[inline]
    pub fn is_odd(self) -> bool {
        self.0 & ONE_STEP != 0
    }

    #[inline]
    pub fn is_sealed(self) -> bool {
        self.0 & SEALED != 0
    }

    /// Whether no byte of the value was overwritten between the two, whatever was added behind it.
    #[inline]
    pub fn same_bytes(self, before: PatchWord) -> bool {
        !before.is_odd() && self.0 / ONE_STEP == before.0 / ONE_STEP
    }

    /// Whether the value did not change between the two. It may have been sealed.
    pub fn same_value(self, before: PatchWord) -> bool {
        self.same_bytes(before) && self.len() == before.len()
    }

    /// This word while a patch is made.
    pub fn odd(self) -> PatchWord {
        PatchWord(self.0 | ONE_STEP)
    }

    /// This odd word once the patch is made; the value then has `len` bytes.
    fn even(self, len: usize) -> PatchWord {
        PatchWord((self.0 & !(ONE_STEP - 1)).wrapping_add(ONE_STEP) | len as u64)
    }
}

/// The result of an attempt to seal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seal {
    /// The value never changes again.
    Sealed,
    /// A patch is being made.
    Odd,
}

/// Seals the word, unless a patch is being made.
pub(crate) fn seal<W: Word>(word: &W) -> Seal {
    loop {
        let now = PatchWord::load(word);
        if now.is_sealed() {
            return Seal::Sealed;
        }
        if now.is_odd() {
            return Seal::Odd;
        }
        // SYNC: a patch that was made before is seen whole; one that begins later fails in `begin`.
        if (word.compare_exchange(now.0, now.0 | SEALED, AcqRel, Relaxed)).is_ok() {
            mneme_sys::fault!("log.sealed");
            return Seal::Sealed;
        }
    }
}

/// Makes the word odd, if it is still `seen`. Returns false if a reader has sealed it.
pub(crate) fn begin<W: Word>(word: &W, seen: PatchWord) -> bool {
    // SYNC: pairs with the exchange in `seal`.
    let begun = (word.compare_exchange(seen.0, seen.odd().0, AcqRel, Relaxed)).is_ok();
    // SYNC: pairs with the acquire fence in `Record::copy_part`: a reader that has read a new byte
    // sees the odd word.
    W::fence(Release);
    begun
}

/// Makes the word even again.
pub(crate) fn finish<W: Word>(word: &W, odd: PatchWord, len: usize) {
    // SYNC: pairs with the Acquire load in `PatchWord::load`.
    word.store(odd.even(len).0, Release);
}
