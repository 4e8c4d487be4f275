//! Small journals in memory, and reading them back.
#![allow(dead_code, clippy::unwrap_used)] // each test program uses a part

pub mod blocks;
pub mod crashes;
pub mod recorder;

use std::sync::Arc;

use mneme_journal::{Identity, Journal, JournalError, Options, Position, Reader};
use mneme_sys::ManualClock;
use mneme_sys::medium::{Directory, RecordingDirectory};

/// Small enough that frames have at most 8 KiB.
pub const FILE: u64 = 5 * 4096;

pub fn options() -> Options {
    let mut options = Options::new(Identity { uuid: [7; 16] });
    options.file_bytes = FILE;
    options.recycled = 2 * FILE;
    options.clock = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    options
}

/// Another handle to the same directory.
pub fn shared(directory: &RecordingDirectory) -> Arc<dyn Directory> {
    Arc::new(directory.clone())
}

pub fn open(directory: &RecordingDirectory, at: u64) -> Journal {
    Journal::open(shared(directory), options(), Position::new(at)).unwrap()
}

/// Everything from a position to the end.
pub fn read_from(directory: &dyn Directory, from: u64) -> Result<Vec<u8>, JournalError> {
    let mut reader = Reader::open(directory, Position::new(from))?;
    let (mut bytes, mut next) = (Vec::new(), Position::new(from));
    while let Some(chunk) = reader.next()? {
        assert_eq!(chunk.position, next, "chunks follow each other");
        bytes.extend_from_slice(chunk.bytes);
        next = next.plus(chunk.bytes.len() as u64);
    }
    assert_eq!(reader.position(), next);
    Ok(bytes)
}

/// Bytes of a stream, each of which depends on its position and on the version of the stream.
pub fn content(version: u64, from: u64, bytes: usize) -> Vec<u8> {
    let byte = |at: u64| {
        let mixed = (at / 8 + version * 1_000_003).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed.to_le_bytes()[(at % 8) as usize]
    };
    (from..from + bytes as u64).map(byte).collect()
}
