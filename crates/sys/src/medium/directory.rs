//! Files that are written and read by calls, and the directory that names them.

use std::fmt;

use super::MediumError;

/// A file of a [`Directory`].
///
/// What is written is visible to every reader at once. It survives power loss after the next
/// [`sync`](Storage::sync), and so does the length; the file's *name* survives after the next sync
/// of the directory. A failed sync is sticky for this opening, as with
/// [`Medium::sync`](super::Medium::sync).
pub trait Storage: Send + Sync + fmt::Debug {
    /// Bytes that may be read.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn len(&self) -> Result<u64, MediumError>;

    /// Whether there is nothing to read.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn is_empty(&self) -> Result<bool, MediumError> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`MediumError::Bounds`] beyond the end, [`MediumError::Os`] where the medium cannot be read.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), MediumError>;

    /// Writes bytes; those beyond the end lengthen the file.
    ///
    /// # Errors
    /// [`MediumError::NoSpace`], [`MediumError::Os`]. Some of the bytes may have been written.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// Waits until all that was written before, and the length, survives power loss.
    ///
    /// # Errors
    /// [`MediumError::Sync`] at the first failure, [`MediumError::Poisoned`] ever after;
    /// [`MediumError::Removed`].
    fn sync(&self) -> Result<(), MediumError>;

    /// Whether a name leads to it. What is written to a file that has none goes with its last
    /// opening.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn is_named(&self) -> Result<bool, MediumError>;

    /// Syncs, and then drops what the page cache holds of the file. What is read next comes from
    /// the medium and not from pages that a failed sync has left behind.
    ///
    /// # Errors
    /// As [`sync`](Storage::sync); [`MediumError::Os`].
    fn drop_cached(&self) -> Result<(), MediumError>;
}

/// A flat set of named files.
///
/// Names have no separators. A change of the directory (a file made, renamed or removed) is visible
/// at once, is atomic, and survives power loss after the next [`sync`](Directory::sync). Without
/// it, any of the changes may survive without the others, except that changes of one name stay in
/// order.
pub trait Directory: Send + Sync + fmt::Debug {
    /// The names of all files, in no order.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn names(&self) -> Result<Vec<String>, MediumError>;

    /// Makes an empty file.
    ///
    /// # Errors
    /// [`MediumError::NoSpace`]; [`MediumError::Os`], if the name exists, too.
    fn create(&self, name: &str) -> Result<Box<dyn Storage>, MediumError>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn open(&self, name: &str) -> Result<Box<dyn Storage>, MediumError>;

    /// Gives a file another name; a file that had it is gone.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn rename(&self, from: &str, to: &str) -> Result<(), MediumError>;

    /// Removes a name; the file goes with its last opening.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn remove(&self, name: &str) -> Result<(), MediumError>;

    /// Waits until all changes of names survive power loss.
    ///
    /// # Errors
    /// [`MediumError::Sync`].
    fn sync(&self) -> Result<(), MediumError>;
}
