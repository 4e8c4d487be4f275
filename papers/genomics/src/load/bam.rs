//! BAM: records arrive almost as they are stored.

use super::{Intake, Summary, check_lengths, position};
use crate::alignment::{MAX_NAME, UNMAPPED};
use crate::error::{LoadError, RecordError};
use crate::{Fields, Header, Store, tags};
use allocator_api2::alloc::Allocator;
use noodles_bam as bam;
use std::io::{self, Read};

/// Loads a whole file, decompressed.
pub fn load<A: Allocator + Copy>(
    input: &mut impl Read,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    let mut reader = bam::io::Reader::from(input);
    let header = header(&mut reader, memory)?;
    let references = header.references().len();
    let mut intake = Intake::new(Store::new(header, memory));
    let input = reader.get_mut();
    let mut bytes = Vec::new();
    let mut buffers = Buffers::default();
    while next(input, &mut bytes).map_err(|error| intake.unread(error))? {
        let fields = whole(&bytes).and_then(|record| fields(record, references, &mut buffers));
        intake.push(&fields.map_err(|error| intake.wrong(error))?)?;
    }
    Ok((intake.store, intake.summary))
}

/// Reads the next record's bytes; false at the end. The buffer grows as bytes arrive, so that a
/// damaged length takes no memory.
fn next(input: &mut impl Read, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
    input.take(4).read_to_end(record)?;
    let Ok(len) = <[u8; 4]>::try_from(&**record) else {
        return match record.len() {
            0 => Ok(false),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        };
    };
    let len = u64::from(u32::from_le_bytes(len));
    record.clear();
    if (input.take(len).read_to_end(record)? as u64) < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(true)
}

/// A record whose lengths have been checked, which noodles leaves to us.
fn whole(bytes: &[u8]) -> Result<bam::RecordRef<'_>, RecordError> {
    const FIXED: usize = 32;
    let record = bam::RecordRef::new(bytes).ok_or(RecordError::Damaged)?;
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte])) as usize;
    let (name, operations, bases) = (word(8) & 0xff, word(12) & 0xffff, word(16));
    let needed = FIXED + name + 4 * operations + bases.div_ceil(2) + bases;
    if name == 0 || needed > bytes.len() {
        return Err(RecordError::Damaged);
    }
    Ok(record)
}

fn header<A: Allocator + Copy>(
    reader: &mut bam::io::Reader<&mut impl Read>,
    memory: A,
) -> Result<Header<A>, LoadError> {
    let mut read = || -> io::Result<_> {
        let mut reader = reader.header_reader();
        reader.read_magic_number()?;
        let mut text = Vec::new();
        let mut lines = reader.raw_sam_header_reader()?;
        lines.read_to_end(&mut text)?;
        lines.discard_to_end()?;
        Ok((text, reader.read_reference_sequences()?))
    };
    let (text, references) = read().map_err(|source| LoadError::Read { records: 0, source })?;
    let references = references.iter();
    let dictionary: Vec<(Vec<u8>, u64)> = references
        .map(|(name, reference)| (name.to_vec(), reference.length().get() as u64))
        .collect();
    Header::read(&text, &dictionary, memory)
}

/// What a record does not hold as it must be stored.
#[derive(Default)]
struct Buffers {
    qualities: Vec<u8>,
    tags: Vec<u8>,
}

fn fields<'a>(
    record: bam::RecordRef<'a>,
    references: usize,
    buffers: &'a mut Buffers,
) -> Result<Fields<'a>, RecordError> {
    let name: &[u8] = record.name().map_or(b"*", |name| name.as_ref());
    if name.len() > MAX_NAME {
        return Err(RecordError::Name);
    }
    let reference = |number: Option<io::Result<usize>>| match number {
        None => Ok(-1),
        Some(Ok(number)) if number < references => Ok(number as i32),
        Some(Ok(number)) => Err(RecordError::Reference(number as i64)),
        Some(Err(_)) => Err(RecordError::Reference(i64::MIN)),
    };
    let flags = record.flags().bits();
    let cigar = record.cigar().as_bytes();
    let bases = u32::try_from(record.sequence().len()).map_err(|_| RecordError::TooLong)?;
    if flags & UNMAPPED == 0 {
        check_lengths(cigar, bases)?;
    }
    let mut qualities = record.quality_scores().as_bytes();
    if qualities.is_empty() {
        buffers.qualities.clear();
        buffers.qualities.resize(bases as usize, u8::MAX);
        qualities = &buffers.qualities;
    }
    let mut list = record.data().as_bytes();
    tags::each(list).try_for_each(|tag| tag.map(drop))?;
    // A CIGAR string too long for its field comes from a tag, which is no tag of the read's then.
    if let Some((tag, operations)) = tags::long_cigar(list)
        && std::ptr::eq(list[operations].as_ptr(), cigar.as_ptr())
    {
        buffers.tags.clear();
        buffers.tags.extend_from_slice(&list[..tag.start]);
        buffers.tags.extend_from_slice(&list[tag.end..]);
        list = &buffers.tags;
    }
    Ok(Fields {
        name,
        flags,
        reference: reference(record.reference_sequence_id())?,
        position: position(record.alignment_start()).ok_or(RecordError::Position)?,
        mapping_quality: record.mapping_quality().map_or(u8::MAX, u8::from),
        cigar,
        mate_reference: reference(record.mate_reference_sequence_id())?,
        mate_position: position(record.mate_alignment_start()).ok_or(RecordError::MatePosition)?,
        template_length: record.template_length(),
        bases,
        sequence: record.sequence().as_bytes(),
        qualities,
        tags: list,
    })
}
