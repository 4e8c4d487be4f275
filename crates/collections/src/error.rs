//! What can be wrong with an image, or with a change of one.

use thiserror::Error;

/// An image contradicts itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the value is damaged at byte {at}: {what}")]
pub struct Damage {
    /// Where in the image.
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
    /// What is to be incremented is no integer of 64 bits.
    #[error("the field's value is not an integer")]
    NotAnInteger,
    /// The sum is no integer of 64 bits.
    #[error("the increment would overflow")]
    Overflow,
}
