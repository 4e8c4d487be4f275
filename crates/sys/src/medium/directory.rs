//! Files that are written and read by calls, and the directory that contains them.

use std::fmt;

use super::MediumError;

/// A file of a [`Directory`].
///
/// Every reader sees what is written at once. It survives power loss after the next
/// [`sync`](Storage::sync), and so does the length; the file's *name* survives after the next sync
/// of the directory. A failed sync is sticky for this opening, as with
/// [`Medium::sync`](super::Medium::sync).
pub trait Storage: Send + Sync + fmt::Debug {
    /// The length in bytes.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn len(&self) -> Result<u64, MediumError>;

    /// Whether the length is zero.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn is_empty(&self) -> Result<bool, MediumError> {
        Ok(self.len()? == 0)
    }

    /// Fills `buffer` with the bytes from `at` on.
    ///
    /// # Errors
    /// [`MediumError::Bounds`] beyond the end, [`MediumError::Os`] if the medium cannot be read.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), MediumError>;

    /// Writes bytes; those beyond the end extend the file.
    ///
    /// # Errors
    /// [`MediumError::NoSpace`], [`MediumError::Os`]. Some of the bytes may have been written.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// Waits until everything written before, and the length, survives power loss.
    ///
    /// # Errors
    /// [`MediumError::Sync`] at the first failure, [`MediumError::Poisoned`] ever after;
    /// [`MediumError::Removed`].
    fn sync(&self) -> Result<(), MediumError>;

    /// Whether a name leads to the file. What is written to a file without a name is lost when it
    /// is closed.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn is_named(&self) -> Result<bool, MediumError>;

    /// Syncs, and then drops the file's pages from the page cache. The next reads come from the
    /// medium and not from pages that a failed sync has left behind.
    ///
    /// # Errors
    /// As [`sync`](Storage::sync); [`MediumError::Os`].
    fn drop_cached(&self) -> Result<(), MediumError>;
}

/// A flat set of named files.
///
/// Names have no separators. A change of the directory (a file created, renamed or removed) is
/// visible at once, is atomic, and survives power loss after the next [`sync`](Directory::sync).
/// Without it, any of the changes may survive without the others, except that changes of one name
/// stay in order.
pub trait Directory: Send + Sync + fmt::Debug {
    /// The names of all files, in no order.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn names(&self) -> Result<Vec<String>, MediumError>;

    /// Creates an empty file.
    ///
    /// # Errors
    /// [`MediumError::NoSpace`]; [`MediumError::Os`], also if the name exists.
    fn create(&self, name: &str) -> Result<Box<dyn Storage>, MediumError>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn open(&self, name: &str) -> Result<Box<dyn Storage>, MediumError>;

    /// Renames a file; a file that had the new name is removed.
    ///
    /// # Errors
    /// [`MediumError::Os`].
    fn rename(&self, from: &str, to: &str) -> Result<(), MediumError>;

    /// Removes a name; the file is freed when it is closed.
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
