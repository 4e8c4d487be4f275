//! Strings that lie in a segment.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::str::Utf8Error;
use std::{fmt, str};

use crate::SegVec;
use crate::heap::{Heap, HeapError};
use crate::stored::{Shape, Stored};

/// A string in a segment: UTF-8, three words and a block.
///
/// It dereferences to `str`, and compares and hashes like one, so a map with such keys can be
/// searched with a `&str`.
///
/// In **a full segment** the methods named `try_`, and `write!`, return an error. The others abort
/// the process, as those of [`SegVec`] do, and leave the segment poisoned.
///
/// ```
/// use mneme_space::{HeapError, Section, SegString};
/// # fn example(here: &mut Section<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// use std::fmt::Write;
/// let mut name = SegString::try_from_str_in("chr", here.heap("genome")?)?;
/// write!(name, "{}", 21)?;
/// assert_eq!(name, "chr21");
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct SegString<'s> {
    /// Always UTF-8.
    bytes: SegVec<'s, u8>,
}

// SAFETY: a stored vector; the type's name in the shape implies that its bytes are UTF-8.
unsafe impl<'s> Stored<'s> for SegString<'s> {
    fn describe(shape: &mut Shape<'s>) {
        shape.text("String");
        shape.part::<SegVec<'s, u8>>();
    }
}

impl<'s> SegString<'s> {
    /// Creates an empty string without allocating.
    #[must_use]
    pub fn new_in(heap: Heap<'s>) -> Self {
        Self {
            bytes: SegVec::new_in(heap),
        }
    }

    /// Copies `text` into the segment. Aborts the process if the segment is full.
    #[must_use]
    pub fn from_str_in(text: &str, heap: Heap<'s>) -> Self {
        let mut copy = Self::new_in(heap);
        copy.bytes.reserve_exact(text.len());
        copy.push_str(text);
        copy
    }

    /// Copies `text` into the segment.
    ///
    /// # Errors
    /// [`HeapError::Refused`]: the segment is full or not entered exclusively by this thread.
    pub fn try_from_str_in(text: &str, heap: Heap<'s>) -> Result<Self, HeapError> {
        let mut copy = Self::new_in(heap);
        let reserved = copy.bytes.try_reserve_exact(text.len());
        reserved.map_err(|_| HeapError::Refused)?;
        copy.push_str(text);
        Ok(copy)
    }

    /// Makes a string of these bytes if they are UTF-8.
    ///
    /// # Errors
    /// Returns the bytes, and where they are not UTF-8.
    pub fn from_utf8(bytes: SegVec<'s, u8>) -> Result<Self, (SegVec<'s, u8>, Utf8Error)> {
        match str::from_utf8(&bytes) {
            Ok(_) => Ok(Self { bytes }),
            Err(error) => Err((bytes, error)),
        }
    }

    /// The string's bytes, without copying.
    #[must_use]
    pub fn into_bytes(self) -> SegVec<'s, u8> {
        self.bytes
    }

    /// The string as a `str`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // SAFETY: every function that writes to `bytes` writes UTF-8.
        unsafe { str::from_utf8_unchecked(&self.bytes) }
    }

    /// The string as a mutable `str`, whose length cannot change.
    #[must_use]
    pub fn as_mut_str(&mut self) -> &mut str {
        // SAFETY: as in `as_str`; safe code keeps a `&mut str` UTF-8.
        unsafe { str::from_utf8_unchecked_mut(&mut self.bytes) }
    }

    /// The number of bytes that the string can hold without growing.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// The heap that the string lies in.
    #[must_use]
    pub fn heap(&self) -> Heap<'s> {
        *self.bytes.allocator()
    }

    /// Reserves capacity for at least `additional` more bytes.
    ///
    /// # Errors
    /// [`HeapError::Refused`]; the string is then unchanged.
    pub fn try_reserve(&mut self, additional: usize) -> Result<(), HeapError> {
        let reserved = self.bytes.try_reserve(additional);
        reserved.map_err(|_| HeapError::Refused)
    }

    /// As the `try_` method above, but aborts the process if the segment is full.
    pub fn reserve(&mut self, additional: usize) {
        self.bytes.reserve(additional);
    }

    /// Appends `text`.
    ///
    /// # Errors
    /// [`HeapError::Refused`]; the string is then unchanged.
    pub fn try_push_str(&mut self, text: &str) -> Result<(), HeapError> {
        self.try_reserve(text.len())?;
        self.push_str(text);
        Ok(())
    }

    /// As the `try_` method above, but aborts the process if the segment is full.
    pub fn push_str(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Appends a character.
    ///
    /// # Errors
    /// [`HeapError::Refused`]; the string is then unchanged.
    pub fn try_push(&mut self, character: char) -> Result<(), HeapError> {
        self.try_push_str(character.encode_utf8(&mut [0; 4]))
    }

    /// As the `try_` method above, but aborts the process if the segment is full.
    pub fn push(&mut self, character: char) {
        self.push_str(character.encode_utf8(&mut [0; 4]));
    }

    /// Removes the last character and returns it.
    pub fn pop(&mut self) -> Option<char> {
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.len() - last.len_utf8());
        Some(last)
    }

    /// Removes all characters. The string keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Frees unused capacity, if the heap has a smaller size for the block.
    pub fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

impl Deref for SegString<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl DerefMut for SegString<'_> {
    fn deref_mut(&mut self) -> &mut str {
        self.as_mut_str()
    }
}

impl Borrow<str> for SegString<'_> {
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for SegString<'_> {
    fn as_ref(&self) -> &str {
        self
    }
}

impl AsRef<[u8]> for SegString<'_> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Display for SegString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

impl fmt::Debug for SegString<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Fails if the segment is full.
impl fmt::Write for SegString<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}

impl Hash for SegString<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Hashes like `str`, as `Borrow` demands.
        self.as_str().hash(state);
    }
}

impl<'t> PartialEq<SegString<'t>> for SegString<'_> {
    fn eq(&self, other: &SegString<'t>) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for SegString<'_> {}

impl PartialEq<str> for SegString<'_> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for SegString<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<'t> PartialOrd<SegString<'t>> for SegString<'_> {
    fn partial_cmp(&self, other: &SegString<'t>) -> Option<Ordering> {
        Some(self.as_str().cmp(other.as_str()))
    }
}

impl Ord for SegString<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Extend<char> for SegString<'_> {
    /// Aborts the process if the segment is full.
    fn extend<I: IntoIterator<Item = char>>(&mut self, characters: I) {
        for character in characters {
            self.push(character);
        }
    }
}
