//! Extents: values, keys and fences too long for a leaf, each in consecutive units of a frame or of
//! a run of consecutive frames.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{FRAME, MAX_VALUE, TABLE};
use crate::checksum::{WordStamp, crc32c, stamp, unstamp};

/// Bytes of the smallest unit, into which a single frame is divided.
pub(crate) const UNIT: u64 = 4096;
/// Units of a frame or of a run; the units of a run of *n* frames are *n* times as long.
pub(crate) const UNITS: u32 = (FRAME / UNIT) as u32;
/// Bytes of an extent's header.
pub(crate) const EXTENT_HEADER: usize = 32;

const _: () = assert!(UNITS as usize * EXTENT_HEADER == TABLE && MAX_VALUE < u32::MAX as usize);

/// The place of an extent, which holds a long value, a long key (with its value if that is long
/// too), or the fences of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeExtent {
    /// The frame that holds its header: the first of the run.
    pub(crate) frame: u32,
    /// The number of frames in the run.
    pub(crate) run: u32,
    pub(crate) unit: u32,
    /// The length of its content in bytes.
    pub(crate) len: u32,
}

/// Bits of a place's word below the run.
const PLACE_BITS: u32 = 48;

impl TreeExtent {
    /// The extent with this word in an entry.
    pub(crate) fn at_word(word: u64, len: u32) -> Self {
        let place = word & ((1 << PLACE_BITS) - 1);
        Self {
            frame: u32::try_from(place / u64::from(UNITS)).unwrap_or(u32::MAX),
            run: (word >> PLACE_BITS) as u32,
            unit: (place % u64::from(UNITS)) as u32,
            len,
        }
    }

    /// The word by which an entry refers to it.
    pub(crate) fn word(self) -> u64 {
        self.place() | u64::from(self.run) << PLACE_BITS
    }

    /// The number of its header in the store.
    #[inline]
    pub(crate) fn place(self) -> u64 {
        u64::from(self.frame) * u64::from(UNITS) + u64::from(self.unit)
    }

    /// The offset of its content.
    #[inline]
    pub(crate) fn at(self) -> u64 {
        u64::from(self.frame) * FRAME + u64::from(self.unit) * u64::from(self.run) * UNIT
    }

    /// The offset of its header.
    pub(crate) fn header_at(self) -> u64 {
        u64::from(self.frame) * FRAME + u64::from(self.unit) * EXTENT_HEADER as u64
    }

    /// The number of units that it takes.
    pub(crate) fn units(self) -> u32 {
        Self::units_of(self.len, self.run)
    }

    /// Its size in smallest units.
    pub(crate) fn smallest_units(self) -> u64 {
        u64::from(self.units()) * u64::from(self.run)
    }

    /// Whether it lies within the run that it names, after the table.
    pub(crate) fn is_inside(self) -> bool {
        self.run > 0 && self.unit >= Self::first(self.run) && self.unit + self.units() <= UNITS
    }

    /// The units that `len` bytes take in a run of `run` frames.
    pub(crate) fn units_of(len: u32, run: u32) -> u32 {
        u64::from(len).div_ceil(u64::from(run) * UNIT) as u32
    }

    /// The first unit of a run after its table.
    pub(crate) fn first(run: u32) -> u32 {
        (TABLE as u32 / UNIT as u32).div_ceil(run)
    }

    /// The smallest run that has space for a value.
    pub(crate) fn least_run(len: u32) -> u32 {
        let mut run = len.div_ceil(FRAME as u32).max(1);
        while Self::first(run) + Self::units_of(len, run) > UNITS {
            run += 1;
        }
        run
    }

    /// Whether a value may lie in a run of this many frames: the unused part of its last unit is at
    /// most a fifth of its size.
    pub(crate) fn suits(len: u32, run: u32) -> bool {
        run == 1 || Self::units_of(len, run) > 4
    }

    fn salt(self) -> u64 {
        self.place() | 1 << 47
    }

    /// The death word of an extent that `version` releases.
    pub(crate) fn death_word(self, version: u64) -> u64 {
        stamp(version, self.salt())
    }
}

/// The table entry for the extent that begins at a unit. Immutable except for the death word.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ExtentHeader {
    /// Covers everything except itself and `death`.
    crc: u32,
    pub(crate) len: u32,
    birth: u64,
    /// The stamped version that released the extent. If it is not above `birth`, it belongs to an
    /// earlier extent at this unit.
    death: u64,
    /// The checksum of the content.
    pub(crate) data_crc: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<ExtentHeader>() == EXTENT_HEADER);

impl ExtentHeader {
    /// Offset of the death word in the header.
    pub(crate) const DEATH: u64 = 16;

    pub(crate) fn new(extent: TreeExtent, birth: u64, data: [&[u8]; 2]) -> Self {
        let mut header = Self {
            crc: 0,
            len: extent.len,
            birth,
            death: 0,
            data_crc: crc32c(crc32c(0, data[0]), data[1]),
            reserved: 0,
        };
        header.crc = header.sum(extent.place());
        header
    }

    /// The header in `bytes`; zeros if there are too few.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        Self::read_from_prefix(bytes).map_or_else(|_| Self::new_zeroed(), |(header, _)| header)
    }

    /// The bytes that are written to the table: those before the death word, and those after it.
    pub(crate) fn around_death(&self) -> (&[u8], &[u8]) {
        let bytes = self.as_bytes();
        (&bytes[..16], &bytes[24..])
    }

    pub(crate) fn birth(&self) -> u64 {
        self.birth
    }

    /// Whether this is the header of an extent that begins at this unit.
    pub(crate) fn is_valid(&self, place: u64) -> bool {
        self.birth != 0 && self.len != 0 && self.crc == self.sum(place)
    }

    pub(crate) fn death(&self, extent: TreeExtent) -> WordStamp {
        unstamp(self.death, extent.salt())
    }

    fn sum(&self, place: u64) -> u32 {
        let (before, after) = self.around_death();
        crc32c(crc32c(place as u32, &before[4..]), after)
    }
}
