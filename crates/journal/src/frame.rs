//! A frame contains one group of bytes. It begins at a multiple of 4 KiB, so that a later group
//! never rewrites a sector of an earlier one.

use mneme_sys::crc32c;
use mneme_sys::fault::without;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Position;
use crate::header::BLOCK;

/// The length of a frame's own header in bytes.
pub(crate) const HEAD: usize = size_of::<Raw>();

/// The maximum length of a frame in bytes, including padding.
pub(crate) const LARGEST: usize = 1 << 20;

/// "MnFr".
const MAGIC: u32 = 0x7246_6e4d;

/// The kind of bytes in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JournalFrameKind {
    /// Bytes of the stream.
    Stream = 0,
    /// Records of a base file.
    Records = 1,
    /// The end of a base file.
    End = 2,
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JournalFrame {
    pub(crate) kind: JournalFrameKind,
    /// The number of bytes that it contains.
    pub(crate) bytes: u32,
    /// The position of the first one in the stream.
    pub(crate) position: Position,
    /// The position before which everything was durable when the frame was written.
    pub(crate) durable: Position,
    pub(crate) wall_ms: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: U32,
    /// The seeded checksum of the following fields and of the frame's bytes.
    crc: U32,
    bytes: U32,
    kind: U32,
    position: U64,
    durable: U64,
    wall_ms: U64,
}

/// The seed of the checksums in a file. A recycled file still contains valid frames of its previous
/// use, which have another seed.
pub(crate) fn seed(run: u64, first: Position) -> u32 {
    if without("frame.seed") {
        return 0;
    }
    crc32c(crc32c(0, &run.to_le_bytes()), &first.get().to_le_bytes())
}

/// The length of a frame that contains this many bytes.
pub(crate) fn padded(bytes: usize) -> usize {
    (HEAD + bytes).next_multiple_of(BLOCK)
}

/// Encodes a frame around `bytes` into `into`, padded with zeros.
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

/// The length of a frame that begins like this, header and content; `None` if no frame does.
pub(crate) fn extent(block: &[u8]) -> Option<usize> {
    let (raw, _) = Raw::ref_from_prefix(block).ok()?;
    let bytes = HEAD + raw.bytes.get() as usize;
    (raw.magic.get() == MAGIC && bytes <= LARGEST).then_some(bytes)
}

/// Decodes a frame that consists of exactly these bytes; `None` if it is damaged or belongs to
/// another file.
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
    fn a_frame_is_read_as_written_and_every_changed_bit_is_detected() {
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
