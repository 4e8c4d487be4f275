//! The ways in which an image, or a change of one, can be wrong.

use mneme_log::{ReadError, WriteError, WrongKind};
use mneme_sys::{Classified, ErrorKind};
use thiserror::Error;

/// An image contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the value is damaged at byte {at}: {what}")]
pub struct Damage {
    /// The offset in the image.
    pub at: usize,
    /// What was found there.
    pub what: &'static str,
}

/// A change was not made. The image is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum EditError {
    /// The image is damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// The image would be longer than a value of a store may be.
    #[error("the value would have {0} bytes; at most {max} are allowed", max = mneme_log::MAX_VALUE)]
    TooLong(usize),
    /// The value to increment is not a 64-bit integer.
    #[error("the field's value is not an integer")]
    NotAnInteger,
    /// The sum does not fit a 64-bit integer.
    #[error("the increment would overflow")]
    Overflow,
    /// A score, or the sum that would become one, is not a number.
    #[error("the score is not a number")]
    NotANumber,
}

/// An operation on a [`Hash`](crate::Hash) was not carried out. The hash is as before.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CollectionError {
    /// The key holds a value of another kind.
    #[error(transparent)]
    WrongKind(WrongKind),
    /// The store cannot be read, or accepts no changes now.
    #[error(transparent)]
    Store(WriteError),
    /// The hash is damaged, or this change of it is impossible.
    #[error(transparent)]
    Edit(#[from] EditError),
}

impl From<WriteError> for CollectionError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::WrongKind(wrong) => CollectionError::WrongKind(wrong),
            error => CollectionError::Store(error),
        }
    }
}

impl From<ReadError> for CollectionError {
    fn from(error: ReadError) -> Self {
        WriteError::from(error).into()
    }
}

impl From<Damage> for CollectionError {
    fn from(damage: Damage) -> Self {
        EditError::from(damage).into()
    }
}

impl Classified for Damage {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Damaged
    }
}

mneme_sys::kinds! {
    EditError as (Damaged) {
        TooLong | NotAnInteger | Overflow | NotANumber => Invalid,
    }
    CollectionError as (Store, Edit) {
        WrongKind => Invalid,
    }
}
