//! A value, in place in the log or as a copy.

use std::ops::Deref;

use mneme_sync::Pin;

/// A stored value. It does not change as long as this lives.
///
/// In a store that appends it is read in place: nothing is copied. It then holds a pin: space that
/// is freed meanwhile cannot be reused until the value is dropped, so keep it for microseconds, or
/// take a copy (`to_vec`). A write to a full store by a thread that holds one fails with `Stalled`.
/// In a store that overwrites, or one that was opened not to [lend](crate::Builder::lending), it is
/// a copy, and holds nothing. It cannot be sent to another thread:
///
/// ```compile_fail,E0277
/// let store = mneme_log::LogStore::builder().capacity(64 << 20).open_private().unwrap();
/// store.put(b"k", b"v").unwrap();
/// let value = store.get(b"k").unwrap().unwrap();
/// std::thread::scope(|s| {
///     s.spawn(|| value.len());
/// });
/// ```
pub struct Value<'s>(Bytes<'s>);

enum Bytes<'s> {
    Lent(
        &'s [u8],
        #[allow(dead_code, reason = "it is held, not used")] Pin<'s>,
    ),
    Copied(Vec<u8>),
}

impl<'s> Value<'s> {
    #[inline]
    pub(crate) fn new(bytes: &'s [u8], pin: Pin<'s>) -> Value<'s> {
        Value(Bytes::Lent(bytes, pin))
    }

    pub(crate) fn copied(bytes: Vec<u8>) -> Value<'s> {
        Value(Bytes::Copied(bytes))
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Lent(bytes, _) => bytes,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl std::fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Value")
            .field(&String::from_utf8_lossy(self))
            .finish()
    }
}
