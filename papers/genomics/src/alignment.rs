//! One alignment: numbers in place, everything of variable length in one box beside them.
//!
//! The parts of the box are encoded as in BAM (SAM specification, section 4.2): CIGAR operations as
//! little-endian words, bases as four bits, qualities as bytes, tags with binary values. What a
//! file says is kept whole, so that SAM text can be given back byte for byte.

use crate::error::OutOfMemory;
use crate::memory::boxed;
use allocator_api2::alloc::{Allocator, Global};
use allocator_api2::boxed::Box;
use mneme_space::Stored;

/// The flag of a read that is not aligned.
pub(crate) const UNMAPPED: u16 = 0x4;

/// The flag of a read on the reverse strand.
pub(crate) const REVERSE: u16 = 0x10;

/// The longest name, in bytes.
pub(crate) const MAX_NAME: usize = 254;

/// An alignment as a reader sees it, borrowed from the reader's buffers.
#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    /// The read's name; `*` if it has none. At most 254 bytes.
    pub name: &'a [u8],
    /// The flags of the SAM specification.
    pub flags: u16,
    /// The number of the reference sequence, from 0; -1 for none.
    pub reference: i32,
    /// The leftmost position, from 0; -1 for none.
    pub position: i64,
    /// The mapping quality; 255 for none.
    pub mapping_quality: u8,
    /// CIGAR operations as little-endian words: length shifted by 4, operation below.
    pub cigar: &'a [u8],
    /// The number of the mate's reference sequence, from 0; -1 for none.
    pub mate_reference: i32,
    /// The mate's leftmost position, from 0; -1 for none.
    pub mate_position: i64,
    /// The template's length, with a sign.
    pub template_length: i32,
    /// How many bases there are.
    pub bases: u32,
    /// The bases, two a byte, the first in the upper half.
    pub sequence: &'a [u8],
    /// The qualities, one for each base; the first is 255 if there are none.
    pub qualities: &'a [u8],
    /// Tags with values, encoded as in BAM.
    pub tags: &'a [u8],
}

/// An alignment as it is stored.
#[derive(Debug, Stored)]
#[stored(allocator = A)]
pub struct Alignment<A: Allocator> {
    position: i64,
    /// Follows from the rest; kept because indexing and viewing would touch the box of every
    /// alignment for it.
    end: i64,
    mate_position: i64,
    reference: i32,
    mate_reference: i32,
    template_length: i32,
    bases: u32,
    cigar_len: u32,
    flags: u16,
    mapping_quality: u8,
    name_len: u8,
    /// Name, CIGAR, bases, qualities, tags in a row.
    parts: Box<[u8], A>,
}

// A cache line, where the allocator has no state.
const _: () = assert!(size_of::<Alignment<Global>>() == 64);

impl<A: Allocator> Alignment<A> {
    /// Copies `fields` into one allocation of `memory`.
    pub(crate) fn new_in(fields: &Fields<'_>, memory: A) -> Result<Self, OutOfMemory> {
        debug_assert!(fields.name.len() <= MAX_NAME && fields.cigar.len().is_multiple_of(4));
        let span = if fields.flags & UNMAPPED != 0 {
            0
        } else {
            span(fields.cigar).reference
        };
        Ok(Self {
            position: fields.position,
            end: fields.position.saturating_add_unsigned(span.max(1)),
            mate_position: fields.mate_position,
            reference: fields.reference,
            mate_reference: fields.mate_reference,
            template_length: fields.template_length,
            bases: fields.bases,
            cigar_len: fields.cigar.len() as u32,
            flags: fields.flags,
            mapping_quality: fields.mapping_quality,
            name_len: fields.name.len() as u8,
            parts: boxed(
                &[
                    fields.name,
                    fields.cigar,
                    fields.sequence,
                    fields.qualities,
                    fields.tags,
                ],
                memory,
            )?,
        })
    }

    /// All fields.
    pub fn fields(&self) -> Fields<'_> {
        let (name, rest) = self.parts.split_at(usize::from(self.name_len));
        let (cigar, rest) = rest.split_at(self.cigar_len as usize);
        let (sequence, rest) = rest.split_at((self.bases as usize).div_ceil(2));
        let (qualities, tags) = rest.split_at(self.bases as usize);
        Fields {
            name,
            flags: self.flags,
            reference: self.reference,
            position: self.position,
            mapping_quality: self.mapping_quality,
            cigar,
            mate_reference: self.mate_reference,
            mate_position: self.mate_position,
            template_length: self.template_length,
            bases: self.bases,
            sequence,
            qualities,
            tags,
        }
    }

    /// The read's name.
    pub fn name(&self) -> &[u8] {
        &self.parts[..usize::from(self.name_len)]
    }

    /// The flags of the SAM specification.
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// The number of the reference sequence, from 0; -1 for none.
    pub fn reference(&self) -> i32 {
        self.reference
    }

    /// The leftmost position, from 0; -1 for none.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// The position behind the last one it covers; an unmapped read covers one.
    pub fn end(&self) -> i64 {
        self.end
    }
}

/// How much a CIGAR string spans.
pub(crate) struct Span {
    /// Bases of the reference.
    pub reference: u64,
    /// Bases of the read.
    pub read: u64,
}

/// Adds up CIGAR operations.
pub(crate) fn span(cigar: &[u8]) -> Span {
    let mut span = Span {
        reference: 0,
        read: 0,
    };
    for (length, operation) in operations(cigar) {
        // M, D, N, = and X go along the reference; M, I, S, = and X along the read.
        if matches!(operation, 0 | 2 | 3 | 7 | 8) {
            span.reference += u64::from(length);
        }
        if matches!(operation, 0 | 1 | 4 | 7 | 8) {
            span.read += u64::from(length);
        }
    }
    span
}

/// Lengths and operations of a CIGAR string.
pub(crate) fn operations(cigar: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    cigar.as_chunks::<4>().0.iter().map(|word| {
        let word = u32::from_le_bytes(*word);
        (word >> 4, word & 15)
    })
}
