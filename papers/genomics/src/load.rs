//! Files become stores: SAM, SAM compressed by bgzip, and BAM, distinguished by their first bytes.
//!
//! The crates of noodles undo compression and cut records; what a record means is decided as htslib
//! decides it, repairs included, because the text that comes out later must equal samtools'.

mod bam;
mod sam;
mod tail;

use crate::alignment::span;
use crate::error::{LoadError, RecordError};
use crate::{Fields, Store};
use allocator_api2::alloc::Allocator;
use noodles_bgzf as bgzf;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Chain, Cursor, Read};
use std::path::Path;
use tail::Tail;

/// Bytes read from the medium at once.
const READ_AT_ONCE: usize = 256 << 10;

/// What loading found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// How many alignments there are.
    pub alignments: u64,
    /// How many were made unmapped, or their mates, as samtools does: their reference is not in the
    /// header, they have no position, or no CIGAR string. Only of SAM.
    pub repaired: u64,
    /// Whether a compressed file ends as it should. One that does not may have lost alignments at
    /// its end. Text has no such mark: always true.
    pub ends_well: bool,
}

/// Loads a file into `memory`.
///
/// # Errors
/// [`LoadError`]; nothing is kept then.
pub fn from_path<A: Allocator + Copy>(
    path: &Path,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    from_reader(open(path)?, memory)
}

/// Opens a file, to be loaded by [`from_reader`].
///
/// # Errors
/// [`LoadError::Open`].
pub fn open(path: &Path) -> Result<File, LoadError> {
    File::open(path).map_err(|source| LoadError::Open {
        path: path.to_owned(),
        source,
    })
}

/// Loads what a reader gives into `memory`. The reader needs no buffer of its own.
///
/// # Errors
/// [`LoadError`]; nothing is kept then.
pub fn from_reader<A: Allocator + Copy>(
    input: impl Read,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    let input = BufReader::with_capacity(READ_AT_ONCE, Tail::new(input));
    let (beginning, input) = peek(input)?;
    match *beginning {
        [0x1f, 0x8b, 8, 4] => {
            let mut input = bgzf::io::Reader::new(input);
            let (store, mut summary) = plain(&mut input, memory)?;
            let (_, file) = input.get_ref().get_ref();
            summary.ends_well = file.get_ref().is_end_of_bgzf();
            Ok((store, summary))
        }
        [0x1f, 0x8b, ..] => Err(LoadError::Kind("compressed by gzip and not by bgzip")),
        _ => plain(input, memory),
    }
}

/// Loads what is not compressed, or no longer.
fn plain<A: Allocator + Copy>(
    input: impl BufRead,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    let (beginning, mut input) = peek(input)?;
    match &*beginning {
        b"BAM\x01" => bam::load(&mut input, memory),
        b"CRAM" => Err(LoadError::Kind("CRAM")),
        [] => Err(LoadError::Kind("empty")),
        _ => sam::load(&mut input, memory),
    }
}

/// Bytes that were looked at, and what follows them.
type Peeked<B> = Chain<Cursor<Vec<u8>>, B>;

/// The first four bytes, fewer if there are no more, and everything from the beginning.
fn peek<B: BufRead>(mut input: B) -> Result<(Vec<u8>, Peeked<B>), LoadError> {
    let mut bytes = Vec::new();
    let read = input.by_ref().take(4).read_to_end(&mut bytes);
    read.map_err(|source| LoadError::Read { records: 0, source })?;
    Ok((bytes.clone(), Cursor::new(bytes).chain(input)))
}

/// What both formats refuse: CIGAR and SEQ of different lengths.
fn check_lengths(cigar: &[u8], bases: u32) -> Result<(), RecordError> {
    let span = span(cigar).read;
    if !cigar.is_empty() && bases != 0 && span != u64::from(bases) {
        return Err(RecordError::Lengths {
            cigar: span,
            sequence: bases.into(),
        });
    }
    Ok(())
}

/// From 0; -1 for none.
fn position<P: Into<usize>>(position: Option<io::Result<P>>) -> Option<i64> {
    match position {
        None => Some(-1),
        Some(position) => i64::try_from(position.ok()?.into()).ok()?.checked_sub(1),
    }
}

/// Counts what is put into a store.
struct Intake<A: Allocator> {
    store: Store<A>,
    summary: Summary,
}

impl<A: Allocator + Copy> Intake<A> {
    fn new(store: Store<A>) -> Self {
        let summary = Summary {
            alignments: 0,
            repaired: 0,
            ends_well: true,
        };
        Self { store, summary }
    }

    fn push(&mut self, fields: &Fields<'_>) -> Result<(), LoadError> {
        if fields.cigar.len().max(fields.bases as usize) > i32::MAX as usize {
            return Err(self.wrong(RecordError::TooLong));
        }
        self.store.push(fields)?;
        self.summary.alignments += 1;
        Ok(())
    }

    /// An error of reading the next record.
    fn unread(&self, source: io::Error) -> LoadError {
        LoadError::Read {
            records: self.summary.alignments,
            source,
        }
    }

    /// An error in the next record.
    fn wrong(&self, source: RecordError) -> LoadError {
        LoadError::Record {
            number: self.summary.alignments + 1,
            source,
        }
    }
}
