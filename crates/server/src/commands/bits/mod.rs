//! Bits: strings as bitmaps, where bit 0 is the highest of the first byte.

mod bitcount;
mod bitfield;
mod bitop;
mod bitpos;
mod field;
mod getbit;
mod offset;
mod setbit;
mod span;

use crate::command::Command;

/// This folder's commands.
pub(super) const ALL: &[&Command] = &[
    &bitcount::BITCOUNT,
    &bitfield::BITFIELD,
    &bitfield::BITFIELD_RO,
    &bitop::BITOP,
    &bitpos::BITPOS,
    &getbit::GETBIT,
    &setbit::SETBIT,
];
