//! SAM: lines become what BAM would hold.

use super::{Intake, Summary, check_lengths, position};
use crate::alignment::{MAX_NAME, UNMAPPED};
use crate::error::{LoadError, RecordError};
use crate::text::{BASES, OPERATIONS};
use crate::{Fields, Header, Store, tags};
use allocator_api2::alloc::Allocator;
use noodles_sam as sam;
use std::io::{self, BufRead, Read};

/// The longest CIGAR operation: what 28 bits hold.
const MAX_OPERATION: u32 = (1 << 28) - 1;

/// The four bits of a base, by its letter. A number stands for the base with that bit, an unknown
/// letter for any base.
const CODES: [u8; 256] = {
    let mut codes = [15; 256];
    let mut code = 0;
    while code < 16 {
        codes[BASES[code] as usize] = code as u8;
        codes[BASES[code].to_ascii_lowercase() as usize] = code as u8;
        code += 1;
    }
    codes[b'U' as usize] = 8;
    codes[b'u' as usize] = 8;
    let mut bit = 0;
    while bit < 4 {
        codes[b'0' as usize + bit] = 1 << bit;
        bit += 1;
    }
    codes
};

/// Loads a whole file, decompressed.
pub fn load<A: Allocator + Copy>(
    input: &mut impl BufRead,
    memory: A,
) -> Result<(Store<A>, Summary), LoadError> {
    let mut reader = sam::io::Reader::new(input);
    let mut text = Vec::new();
    let read = reader.header_reader().read_to_end(&mut text);
    read.map_err(|source| LoadError::Read { records: 0, source })?;
    if text.windows(2).any(|pair| pair == b"\r\n") {
        text.retain(|byte| *byte != b'\r');
    }
    let header = Header::read(&text, &[], memory)?;
    let mut intake = Intake::new(Store::new(header, memory));
    let mut record = sam::Record::default();
    let mut draft = Draft::default();
    loop {
        match reader.read_record(&mut record) {
            Ok(0) => return Ok((intake.store, intake.summary)),
            Ok(_) => {}
            // The reader found a line's end, or the file's, before eleven fields.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(intake.wrong(RecordError::Fields));
            }
            Err(error) => return Err(intake.unread(error)),
        }
        let fields = draft.fields(&record, intake.store.header());
        let fields = fields.map_err(|error| intake.wrong(error))?;
        intake.push(&fields)?;
        intake.summary.repaired += u64::from(draft.repaired);
    }
}

/// The parts of a record that are encoded anew.
#[derive(Default)]
struct Draft {
    cigar: Vec<u8>,
    sequence: Vec<u8>,
    qualities: Vec<u8>,
    tags: Vec<u8>,
    repaired: bool,
}

impl Draft {
    fn fields<'a, A: Allocator + Copy>(
        &'a mut self,
        record: &'a sam::Record,
        header: &Header<A>,
    ) -> Result<Fields<'a>, RecordError> {
        let name: &[u8] = record.name().map_or(b"*", |name| name.as_ref());
        if name.len() > MAX_NAME {
            return Err(RecordError::Name);
        }
        let mut flags = record.flags().map_err(|_| RecordError::Flags)?.bits();
        let mut repaired = false;
        let mut place = |name: Option<&[u8]>, position: i64| match name {
            None => Ok(-1),
            Some(_) if header.references().is_empty() => Err(RecordError::NoReferences),
            Some(name) => {
                let known = header.reference(name).filter(|_| position >= 0);
                repaired |= known.is_none();
                Ok(known.map_or(-1, |number| number as i32))
            }
        };
        let start = position(record.alignment_start()).ok_or(RecordError::Position)?;
        let reference = place(record.reference_sequence_name().map(AsRef::as_ref), start)?;
        let mate_start =
            position(record.mate_alignment_start()).ok_or(RecordError::MatePosition)?;
        let mate = record.mate_reference_sequence_name().map(AsRef::as_ref);
        let mate_reference = place(mate, mate_start)?;
        if reference < 0 {
            flags |= UNMAPPED;
        }
        let mapping_quality = match record.mapping_quality() {
            None => u8::MAX,
            Some(quality) => quality.map_err(|_| RecordError::MappingQuality)?.into(),
        };
        encode_cigar(record.cigar().as_ref(), &mut self.cigar).ok_or(RecordError::Cigar)?;
        if self.cigar.is_empty() {
            repaired |= flags & UNMAPPED == 0;
            flags |= UNMAPPED;
        }
        self.encode_bases(record.sequence().as_ref(), record.quality_scores().as_ref())?;
        let bases = u32::try_from(self.qualities.len()).map_err(|_| RecordError::TooLong)?;
        check_lengths(&self.cigar, bases)?;
        self.tags.clear();
        tags::encode(record.data().as_ref(), &mut self.tags)?;
        if reference >= 0 {
            self.restore_long_cigar(bases);
        }
        self.repaired = repaired;
        Ok(Fields {
            name,
            flags,
            reference,
            position: start,
            mapping_quality,
            cigar: &self.cigar,
            mate_reference,
            mate_position: mate_start,
            template_length: record
                .template_length()
                .map_err(|_| RecordError::TemplateLength)?,
            bases,
            sequence: &self.sequence,
            qualities: &self.qualities,
            tags: &self.tags,
        })
    }

    fn encode_bases(&mut self, bases: &[u8], qualities: &[u8]) -> Result<(), RecordError> {
        self.sequence.clear();
        let pairs = bases.chunks(2).map(|pair| {
            let second = pair.get(1).map_or(0, |base| CODES[usize::from(*base)]);
            CODES[usize::from(pair[0])] << 4 | second
        });
        self.sequence.extend(pairs);
        self.qualities.clear();
        if qualities.is_empty() {
            self.qualities.resize(bases.len(), u8::MAX);
            return Ok(());
        }
        if qualities.len() != bases.len() {
            return Err(RecordError::QualityLength);
        }
        self.qualities
            .extend(qualities.iter().map(|byte| byte.wrapping_sub(b'!')));
        if self.qualities.iter().any(|quality| *quality >= 128) {
            return Err(RecordError::Quality);
        }
        Ok(())
    }

    /// Takes the CIGAR string out of the tag `CG`, if the field only says that it is there.
    fn restore_long_cigar(&mut self, bases: u32) {
        const SOFT_CLIP: u32 = 4;
        if !self
            .cigar
            .starts_with(&(bases << 4 | SOFT_CLIP).to_le_bytes())
        {
            return;
        }
        if let Some((tag, operations)) = tags::long_cigar(&self.tags)
            && operations.len() >= self.cigar.len()
        {
            self.cigar.clear();
            self.cigar.extend_from_slice(&self.tags[operations]);
            self.tags.drain(tag);
        }
    }
}

/// Encodes a CIGAR string; none if it cannot be read.
fn encode_cigar(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    let mut length = None;
    for byte in text {
        if byte.is_ascii_digit() {
            let longer = length.unwrap_or(0u32) * 10 + u32::from(byte - b'0');
            length = Some(longer).filter(|length| *length <= MAX_OPERATION);
            length?;
        } else {
            let operation = OPERATIONS[..10].iter().position(|letter| letter == byte)?;
            out.extend_from_slice(&(length.take()? << 4 | operation as u32).to_le_bytes());
        }
    }
    length.is_none().then_some(())
}
