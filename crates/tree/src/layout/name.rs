//! The slots of named versions, after the ring of commit records.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{RECORD, RING_AT, RING_SLOTS};
use crate::checksum::{WordStamp, crc32c, stamp, unstamp};

/// The most versions that can have names.
pub(crate) const NAME_SLOTS: u32 = 512;
/// Bytes of a slot.
const SLOT: usize = 512;
/// The offset of the slots.
const NAMES_AT: u64 = RING_AT + RING_SLOTS * RECORD as u64;
/// The longest name in bytes.
pub const MAX_NAME: usize = 255;

const _: () = assert!(NAMES_AT + NAME_SLOTS as u64 * SLOT as u64 <= super::FRAME);

/// A named version. Immutable except for the death word.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct NameSlot {
    /// Covers everything except itself and `death`.
    crc: u32,
    len: u32,
    birth: u64,
    /// The stamped version that dropped the name. If it is not above `birth`, it belongs to an
    /// earlier name in this slot.
    death: u64,
    /// The version with this name.
    pub(crate) version: u64,
    name: [u8; SLOT - 32],
}

const _: () = assert!(size_of::<NameSlot>() == SLOT);

impl NameSlot {
    /// Offset of the birth in a slot.
    pub(crate) const BIRTH: u64 = 8;
    /// Offset of the death word in a slot.
    pub(crate) const DEATH: u64 = 16;

    /// The slot `number`, by which version `birth` names `version`; `name` has at most [`MAX_NAME`]
    /// bytes.
    pub(crate) fn new(number: u32, birth: u64, version: u64, name: &str) -> Self {
        let mut slot = Self::new_zeroed();
        (slot.len, slot.birth, slot.version) = (name.len() as u32, birth, version);
        slot.name[..name.len()].copy_from_slice(name.as_bytes());
        slot.crc = slot.sum(number);
        slot
    }

    /// The offset of slot `number`.
    pub(crate) fn place(number: u32) -> u64 {
        NAMES_AT + u64::from(number) * SLOT as u64
    }

    /// The bytes that are written to the slot: those before the death word, and those after it.
    pub(crate) fn around_death(&self) -> (&[u8], &[u8]) {
        let bytes = self.as_bytes();
        (&bytes[..16], &bytes[24..])
    }

    pub(crate) fn birth(&self) -> u64 {
        self.birth
    }

    /// The name, if this is valid content of slot `number`.
    pub(crate) fn name(&self, number: u32) -> Option<&str> {
        let name = self.name.get(..self.len as usize)?;
        let is_valid = self.birth != 0 && self.crc == self.sum(number);
        std::str::from_utf8(name).ok().filter(|_| is_valid)
    }

    pub(crate) fn death(&self, number: u32) -> WordStamp {
        unstamp(self.death, salt(number))
    }

    /// The death word of slot `number` for a name dropped by `version`.
    pub(crate) fn death_word(number: u32, version: u64) -> u64 {
        stamp(version, salt(number))
    }

    fn sum(&self, number: u32) -> u32 {
        let (before, after) = self.around_death();
        crc32c(crc32c(number, &before[4..]), after)
    }
}

fn salt(number: u32) -> u64 {
    u64::from(number) | 1 << 46
}
