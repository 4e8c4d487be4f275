//! What can go wrong, one enum for each family of operations.

use crate::Order;
use std::io;
use std::path::PathBuf;

/// The allocator has no memory left, or refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory that holds the alignments is full or refuses to grow")]
pub struct OutOfMemory;

/// Why a file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file could not be opened.
    #[error("{path} cannot be opened: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// It is a file of another kind.
    #[error("the input is {0}; SAM and BAM can be loaded, the former also compressed by bgzip")]
    Kind(&'static str),
    /// Reading or decompressing failed: the medium, a truncated file, or a damaged one.
    #[error("reading failed after {records} whole alignments: {source}")]
    Read {
        /// How many alignments came before.
        records: u64,
        /// The reader's reason; `UnexpectedEof` for a truncated file.
        source: io::Error,
    },
    /// A header line is wrong.
    #[error("header line {line}: {source}")]
    Header {
        /// From 1.
        line: u64,
        /// What is wrong with it.
        source: HeaderError,
    },
    /// An alignment is wrong.
    #[error("alignment {number}: {source}")]
    Record {
        /// From 1, in the order of the file; header lines do not count.
        number: u64,
        /// What is wrong with it.
        source: RecordError,
    },
    /// There are more alignments than a store can number.
    #[error("a store holds at most {} alignments", u32::MAX)]
    TooMany,
    /// The store's memory is exhausted.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// What is wrong with a line of the header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It does not begin with `@` and two letters.
    #[error("it does not begin with '@' and two letters")]
    Kind,
    /// A tab is missing where a field should begin.
    #[error("a tab is missing after the record type")]
    Tab,
    /// A field is not `XY:value`.
    #[error("\"{0}\" is not of the form TAG:VALUE")]
    Field(String),
    /// A line lacks a field that it must have.
    #[error("@{kind} without {field}")]
    Missing {
        /// The line's kind.
        kind: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The length of a reference sequence is no number.
    #[error("the length \"{0}\" of a reference sequence is not a number")]
    Length(String),
    /// Two reference sequences have one name.
    #[error("the reference sequence \"{0}\" is there twice")]
    Duplicate(String),
}

/// What is wrong with an alignment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The line has fewer than eleven fields.
    #[error("the line has fewer than 11 fields")]
    Fields,
    /// The name has more than 254 bytes.
    #[error("the name has more than 254 bytes")]
    Name,
    /// The flags are no number below 65,536.
    #[error("FLAG is not a number from 0 to 65535")]
    Flags,
    /// A reference is named but the header has none at all.
    #[error("it names a reference sequence, but the header has no @SQ lines")]
    NoReferences,
    /// A reference's number is beyond the header's list.
    #[error("reference sequence number {0} does not exist")]
    Reference(i64),
    /// The position is no number.
    #[error("POS is not a position")]
    Position,
    /// The mapping quality is no number below 256.
    #[error("MAPQ is not a number from 0 to 255")]
    MappingQuality,
    /// The CIGAR string cannot be read.
    #[error("CIGAR cannot be read")]
    Cigar,
    /// The mate's position is no number.
    #[error("PNEXT is not a position")]
    MatePosition,
    /// The template's length is no number of 32 bits.
    #[error("TLEN is not a number of 32 bits")]
    TemplateLength,
    /// CIGAR and SEQ speak of different numbers of bases.
    #[error("CIGAR spans {cigar} bases of the read, SEQ has {sequence}")]
    Lengths {
        /// Bases of the read that CIGAR spans.
        cigar: u64,
        /// Bases that SEQ has.
        sequence: u64,
    },
    /// SEQ and QUAL have different lengths.
    #[error("SEQ and QUAL have different lengths")]
    QualityLength,
    /// QUAL holds a byte outside `!` to `~`.
    #[error("QUAL holds a byte that stands for no quality")]
    Quality,
    /// CIGAR or SEQ is longer than what can be stored.
    #[error("CIGAR or SEQ takes more than 2 GiB")]
    TooLong,
    /// A length in a record of BAM points beyond it.
    #[error("it is damaged: its lengths point beyond its end")]
    Damaged,
    /// A tag cannot be read.
    #[error("the tag \"{0}\" cannot be read")]
    Tag(String),
}

/// Why a store could not be sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SortError {
    /// The store's memory is exhausted.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Why a store could not be indexed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// An alignment stands before one that should precede it.
    #[error(
        "alignment {number}, \"{name}\", is out of order: sort by coordinate first (the order is {order})"
    )]
    Unsorted {
        /// From 1, in the present order.
        number: u64,
        /// Its name.
        name: String,
        /// The present order, as far as the store knows it.
        order: Order,
    },
    /// The store's memory is exhausted.
    #[error(transparent)]
    OutOfMemory(#[from] OutOfMemory),
}

/// Why a region could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegionError {
    /// No reference sequence has that name.
    #[error("\"{0}\": the header has no such reference sequence")]
    Unknown(String),
    /// It can be read in two ways.
    #[error("\"{0}\" names a reference sequence and also a part of another: use {{name}}:from-to")]
    Ambiguous(String),
    /// The braces do not match.
    #[error("\"{0}\": a brace is not closed")]
    Brace(String),
    /// The positions cannot be read.
    #[error("\"{0}\": positions are written name:from-to, from 1")]
    Positions(String),
    /// It ends before it begins.
    #[error("\"{0}\" ends before it begins")]
    Empty(String),
}

/// Why a region could not be viewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// There is no index of the present order.
    #[error("regions can be viewed only with an index: run `index` first")]
    NoIndex,
}
