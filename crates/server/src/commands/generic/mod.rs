//! Keys, whatever their values are.

mod del;
mod exists;
mod keys;
mod scan;
mod unlink;

use super::definition::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &del::DEL,
    &exists::EXISTS,
    &keys::KEYS,
    &scan::SCAN,
    &unlink::UNLINK,
];
