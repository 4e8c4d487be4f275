//! A frame: what one group of bytes is wrapped in. It begins on 4 KiB, so that a later group never
//! rewrites a sector of an earlier one.

use mneme_sys::crc32c;
use mneme_sys::fault::without;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Position;
use crate::header::BLOCK;

/// Bytes of a frame's own.
pub(crate) const HEAD: usize = size_of::<Raw>();

/// Bytes of a frame, padding included, at most.
pub(crate) const LARGEST: usize = 1 << 20;

/// "MnFr".
const MAGIC: u32 = 0x7246_6e4d;

/// What the bytes of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalFrameKind {
    /// Bytes of the stream.
    Stream = 0,
    /// Records of a base file.
    Records = 1,
    /// The end of a base file.
    End = 2,
}

/// A frame's description of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalFrame {
    pub(crate) kind: JournalFrameKind,
    /// Bytes that it carries.
    pub(crate) bytes: u32,
    /// Where in the stream they begin.
    pub(crate) position: Position,
    /// Everything before it was durable when the frame was written.
    pub(crate) durable: Position,
    pub(crate) wall_ms: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: U32,
    /// Of what follows, and of the bytes carried; seeded.
    crc: U32,
    bytes: U32,
    kind: U32,
    position: U64,
    durable: U64,
    wall_ms: U64,
}

/// What checksums begin with in a file. A recycled file holds good frames of its own past, which
/// have another seed.
pub(crate) fn seed(run: u64, first: Position) -> u32 {
    if without("frame.seed") {
        return 0;
    }
    crc32c(crc32c(0, &run.to_le_bytes()), &first.get().to_le_bytes())
}

/// Bytes that a frame takes which carries so many.
pub(crate) fn padded(bytes: usize) -> usize {
    (HEAD + bytes).next_multiple_of(BLOCK)
}

/// Makes `into` the frame around `bytes`, padded with zeros.
pub(crate) fn encode(seed: u32, frame: &JournalFrame, bytes: &[u8], into: &mut Vec<u8>) {
    let mut raw = Raw {
        magic: MAGIC.into(),
        crc: 0.into(),
        bytes: (bytes.len() as u32).into(),
        kind: (frame.kind as u32).into(),
        position: frame.position.get().into(),
        durable: frame.durable.get().into(),
        wall_ms: frame.wall_ms.into(),
    };
    raw.crc = crc32c(crc32c(seed, &raw.as_bytes()[8..]), bytes).into();
    into.clear();
    into.extend_from_slice(raw.as_bytes());
    into.extend_from_slice(bytes);
    into.resize(padded(bytes.len()), 0);
}

/// How many bytes a frame has that begins like this, its own and those carried; `None` if none
/// does.
pub(crate) fn extent(block: &[u8]) -> Option<usize> {
    let (raw, _) = Raw::ref_from_prefix(block).ok()?;
    let bytes = HEAD + raw.bytes.get() as usize;
    (raw.magic.get() == MAGIC && bytes <= LARGEST).then_some(bytes)
}

/// Reads a frame, whose bytes are exactly these; `None` if it is damaged or of another file.
pub(crate) fn decode(seed: u32, bytes: &[u8]) -> Option<JournalFrame> {
    let (raw, carried) = Raw::ref_from_prefix(bytes).ok()?;
    let crc = crc32c(crc32c(seed, &raw.as_bytes()[8..]), carried);
    if raw.magic.get() != MAGIC || raw.crc.get() != crc {
        return None;
    }
    let kind = match raw.kind.get() {
        0 => JournalFrameKind::Stream,
        1 => JournalFrameKind::Records,
        2 => JournalFrameKind::End,
        _ => return None,
    };
    Some(JournalFrame {
        kind,
        bytes: raw.bytes.get(),
        position: Position::new(raw.position.get()),
        durable: Position::new(raw.durable.get()),
        wall_ms: raw.wall_ms.get(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_as_written_and_every_bit_counts() {
        let seed = seed(5, Position::new(100));
        for bytes in [&b""[..], b"some bytes", &[7; 5000]] {
            let frame = JournalFrame {
                kind: JournalFrameKind::Stream,
                bytes: bytes.len() as u32,
                position: Position::new(200),
                durable: Position::new(150),
                wall_ms: 9,
            };
            let mut encoded = Vec::new();
            encode(seed, &frame, bytes, &mut encoded);
            assert_eq!(encoded.len() % BLOCK, 0);
            let extent = extent(&encoded).unwrap();
            assert_eq!(extent, HEAD + bytes.len());
            encoded.truncate(extent);
            assert_eq!(decode(seed, &encoded), Some(frame));
            assert_eq!(decode(seed ^ 1, &encoded), None);
            assert_eq!(decode(super::seed(5, Position::new(101)), &encoded), None);
            assert_eq!(decode(super::seed(6, Position::new(100)), &encoded), None);
            for bit in 0..extent * 8 {
                encoded[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(decode(seed, &encoded), None, "bit {bit}");
                encoded[bit / 8] ^= 1 << (bit % 8);
            }
            for len in 0..extent {
                assert_eq!(decode(seed, &encoded[..len]), None);
            }
        }
    }
}
