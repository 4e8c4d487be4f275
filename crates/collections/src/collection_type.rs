//! The interface of a type of values, as commands and local programs use it under a key.

use mneme_log::{Decision, Elements, ValueKind};

use crate::error::{CollectionError, Damage};
use crate::records::StoreRecords;

/// A type of values: packed in one record while small, and a collection beyond that.
///
/// A change runs on an [`Edit`](Self::Edit), which hides whether the value is packed or large, and
/// returns whether it has changed anything. So each operation is written once.
pub trait CollectionType {
    /// The kind of its packed values.
    const KIND: ValueKind;
    /// A packed value, for reading.
    type Packed<'b>;
    /// A large value within a transaction.
    type Large<'r>;
    /// A value that is being changed, packed or large.
    type Edit<'r>;
    /// The elements that an operation names in advance because it will access them.
    type Wanted<'w>: Copy;

    /// Looks at the head and the end of an image. O(1).
    ///
    /// # Errors
    /// The image is not that of a value of this type, by its head or its end.
    fn read(image: &[u8]) -> Result<Self::Packed<'_>, Damage>;

    /// Whether a value of this image must become large. O(1) for most.
    ///
    /// # Errors
    /// The image is damaged.
    fn outgrows(image: &[u8]) -> Result<bool, Damage>;

    /// Calls `change` with the value of a key, which is empty if there is none; `change` returns
    /// whether it has changed the value. This function returns what to do with the key, for an
    /// update of the store. If the value is empty afterwards, the key is removed. The changed
    /// elements go to `elements`, for an update that takes them. O(bytes).
    ///
    /// # Errors
    /// The image is damaged; those of `change`.
    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut Self::Edit<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E>;

    /// The value stored as collection `id`. O(1).
    ///
    /// # Errors
    /// There is no such collection, or it is of another type; the store cannot be read.
    fn open(records: &mut dyn StoreRecords, id: u64) -> Result<Self::Large<'_>, CollectionError>;

    /// Creates collection `id` from a packed value.
    ///
    /// # Errors
    /// The image is damaged; there is no space.
    fn build(records: &mut dyn StoreRecords, id: u64, image: &[u8]) -> Result<(), CollectionError>;

    /// As [`decide`](Self::decide), but changes a large value in its records.
    ///
    /// # Errors
    /// The collection is damaged, the store cannot be read, or there is no space; those of
    /// `change`.
    fn edit<R, E: From<CollectionError>>(
        large: Self::Large<'_>,
        wanted: Self::Wanted<'_>,
        change: impl FnOnce(&mut Self::Edit<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E>;
}

/// A large value whose anchor is stored when all changes have been made.
pub(crate) trait Finish {
    /// Stores the anchor after changes, if it differs. An empty value has no anchor.
    fn finish_changed(self) -> Result<LargeEdit, CollectionError>;

    /// As [`finish_changed`](Self::finish_changed), after a change that failed halfway: if the
    /// transaction continues all the same, the value is sound. An empty value keeps its anchor.
    fn finish_failed(self) -> Result<(), CollectionError>;
}

/// Finishes a large value after a change that returned `changed`.
pub(crate) fn finished<R, E: From<CollectionError>>(
    large: impl Finish,
    changed: Result<(R, bool), E>,
) -> Result<(R, LargeEdit), E> {
    match changed {
        Ok((result, true)) => Ok((result, large.finish_changed()?)),
        Ok((result, false)) => Ok((result, LargeEdit::Kept)),
        Err(error) => {
            large.finish_failed()?;
            Err(error)
        }
    }
}

/// The result of changing a large value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeEdit {
    /// Nothing was changed.
    Kept,
    /// It was changed.
    Changed,
    /// Its last element was removed. Its anchor and inner records are gone; the caller must remove
    /// its key.
    Emptied,
}
