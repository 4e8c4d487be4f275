//! Files become stores: SAM, SAM compressed by bgzip, and BAM, told apart by their first bytes.
//!
//! The crates of noodles undo compression and cut records; what a record means is decided as htslib decides it, repairs
//! included, because the text that comes out later must equal samtools'.

mod bam;
mod sam;
mod tail;

use crate::alignment::span;
use crate::error::{LoadError, RecordError};
use crate::{Fields, Store};
use allocator_api2::alloc::Allocator;
use noodles_bgzf as bgzf;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use tail::Tail;

/// Bytes read from the medium at once.
const READ_AT_ONCE: usize = 256 << 10;

/// What loading found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// How many alignments there are.
    pub alignments: u64,
    /// How many were made unmapped, or their mates, as samtools does: their reference is not in the header, they have no
    /// position, or no CIGAR string. Only of SAM.
    pub repaired: u64,
    /// Whether a compressed file ends as it should. One that does not may have lost alignments at its end. Text has no
    /// such mark: always true.
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
    let file = File::open(path).map_err(|source| LoadError::Open {
        path: path.to_owned(),
        source,
    })?;
    from_reader(file, memory)
}

/// Loads what a reader gives into `memory`. The reader needs no buffer of its own.
///
/// # Errors
/// [`LoadError`]; nothing is kept then.
pub fn from_reader<A: Allocator + Copy>(
    input: impl Read,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    let mut input = BufReader::with_capacity(READ_AT_ONCE, Tail::new(input));
    match beginning(&mut input)? {
        [0x1f, 0x8b, 8, 4, ..] => {
            let mut input = bgzf::io::Reader::new(input);
            let (store, mut summary) = plain(&mut input, memory)?;
            summary.ends_well = input.get_ref().get_ref().is_end_of_bgzf();
            Ok((store, summary))
        }
        [0x1f, 0x8b, ..] => Err(LoadError::Kind("compressed by gzip and not by bgzip")),
        _ => plain(&mut input, memory),
    }
}

/// Loads what is not compressed, or no longer.
fn plain<A: Allocator + Copy>(
    input: &mut impl BufRead,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    match beginning(input)? {
        b"BAM\x01" => bam::load(input, memory),
        b"CRAM" => Err(LoadError::Kind("CRAM")),
        [] => Err(LoadError::Kind("empty")),
        _ => sam::load(input, memory),
    }
}

/// The first four bytes, or fewer at the end.
fn beginning(input: &mut impl BufRead) -> Result<&[u8], LoadError> {
    let read = input.fill_buf();
    let bytes = read.map_err(|source| LoadError::Read { records: 0, source })?;
    Ok(&bytes[..bytes.len().min(4)])
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
