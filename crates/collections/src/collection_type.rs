//! What a type of values is made of, as commands and local programs use it under a key.

use mneme_log::{Decision, Elements, ValueKind};

use crate::error::{CollectionError, Damage};
use crate::records::StoreRecords;

/// A type of values: packed in one record where they are small, else a collection.
///
/// A change runs on an [`Edit`](Self::Edit), whichever it is, and says whether it has changed
/// anything. So each operation is written once.
pub trait CollectionType {
    /// The kind of its packed values.
    const KIND: ValueKind;
    /// A packed value that is read.
    type Packed<'b>;
    /// A large value within a transaction.
    type Large<'r>;
    /// A value that is changed.
    type Edit<'r>;
    /// What an operation says beforehand of the elements that it looks at.
    type Wanted<'w>: Copy;

    /// Looks at the head and the end of an image. O(1).
    ///
    /// # Errors
    /// They are not those of a value of this type.
    fn read(image: &[u8]) -> Result<Self::Packed<'_>, Damage>;

    /// Whether a value of this image is to become a large one. O(1) for most.
    ///
    /// # Errors
    /// The image is damaged.
    fn outgrows(image: &[u8]) -> Result<bool, Damage>;

    /// Calls `change` with the value of a key, which is empty if there is none; `change` says
    /// whether it has changed it. Returns what to do with the key, for an update of the store. A
    /// value that is empty afterwards is removed. The changed elements go to `elements`, for an
    /// update that takes them. O(bytes).
    ///
    /// # Errors
    /// The image is damaged; those of `change`.
    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut Self::Edit<'_>) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E>;

    /// The value that collection `id` is. O(1).
    ///
    /// # Errors
    /// There is none, or it is of another type; the store cannot be read.
    fn open(records: &mut dyn StoreRecords, id: u64) -> Result<Self::Large<'_>, CollectionError>;

    /// Makes collection `id` of a packed value.
    ///
    /// # Errors
    /// The image is damaged; there is no space.
    fn build(records: &mut dyn StoreRecords, id: u64, image: &[u8]) -> Result<(), CollectionError>;

    /// As [`decide`](Self::decide), for a large value, which is changed.
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
    /// Stores the anchor after changes, if it is another. A value without elements has none.
    fn finish_changed(self) -> Result<LargeEdit, CollectionError>;

    /// As [`finish_changed`](Self::finish_changed), after a change that has failed halfway: a
    /// transaction that goes on all the same leaves a sound value. One without elements stays.
    fn finish_failed(self) -> Result<(), CollectionError>;
}

/// Finishes a large value that has been changed, as `changed` says, or in vain.
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

/// What came of a change of a large value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeEdit {
    /// Nothing was changed.
    Kept,
    /// It was changed.
    Changed,
    /// Its last element was removed. Its anchor and inner records are gone; its key is to follow.
    Emptied,
}
