//! The header: its text as it was read, and the dictionary of reference sequences.

use crate::error::{HeaderError, LoadError, OutOfMemory};
use crate::memory::{boxed, push, with_room};
use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use std::collections::HashSet;

/// A reference sequence: a line `@SQ`.
#[derive(Debug)]
pub struct Reference<A: Allocator> {
    name: Box<[u8], A>,
    length: u64,
}

impl<A: Allocator> Reference<A> {
    /// Its name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// How many bases it has.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// A name and the number of the reference sequence that has it.
#[derive(Debug)]
struct Name<A: Allocator> {
    name: Box<[u8], A>,
    reference: u32,
}

/// A header.
#[derive(Debug)]
pub struct Header<A: Allocator> {
    /// Whole lines, each ended by a newline.
    text: Vec<u8, A>,
    references: Vec<Reference<A>, A>,
    /// Names and alternative names (`AN`), in byte order, each once.
    names: Vec<Name<A>, A>,
}

impl<A: Allocator + Copy> Header<A> {
    /// Reads header lines. `dictionary` is the list of names and lengths that a BAM file has beside its text: it decides
    /// the numbers of the references, and those without a line get one.
    pub(crate) fn read(
        text: &[u8],
        dictionary: &[(std::vec::Vec<u8>, u64)],
        memory: A,
    ) -> Result<Self, LoadError> {
        let mut header = Self {
            text: Vec::new_in(memory),
            references: Vec::new_in(memory),
            names: Vec::new_in(memory),
        };
        for (name, length) in dictionary {
            header.add_reference(name, *length)?;
        }
        let mut seen = HashSet::new();
        // A BAM file may pad its text with zeros.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            header.read_line(line, &mut seen).map_err(|why| match why {
                Refused::Line(source) => LoadError::Header {
                    line: number,
                    source,
                },
                Refused::Memory(full) => full.into(),
            })?;
        }
        for at in 0..dictionary.len() {
            if !seen.contains(&(at as u32)) {
                header.add_line_of(at)?;
            }
        }
        Ok(header)
    }

    /// The text: whole lines.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The reference sequences, in the order of their numbers.
    pub fn references(&self) -> &[Reference<A>] {
        &self.references
    }

    /// The number of the reference sequence with this name or alternative name.
    pub fn reference(&self, name: &[u8]) -> Option<u32> {
        let at = self.names.binary_search_by(|known| (*known.name).cmp(name));
        Some(self.names[at.ok()?].reference)
    }

    /// Writes `SO:` into the line `@HD`, makes that line if there is none, and takes what it said of groups and
    /// sub-orders (`GO`, `SS`) out.
    pub(crate) fn set_sort_order(&mut self, order: &str) -> Result<(), OutOfMemory> {
        let memory = *self.text.allocator();
        let sort_order = ["SO:", order].concat();
        let mut line = Vec::new_in(memory);
        match lines(&self.text).find(|line| line.starts_with(b"@HD")) {
            None => {
                append(&mut line, b"@HD\tVN:1.6\t")?;
                append(&mut line, sort_order.as_bytes())?;
            }
            Some(old) => {
                append(&mut line, b"@HD")?;
                let mut said = false;
                for field in old.split(|byte| *byte == b'\t').skip(1) {
                    let field = match field.get(..3) {
                        Some(b"GO:" | b"SS:") => continue,
                        Some(b"SO:") => {
                            said = true;
                            sort_order.as_bytes()
                        }
                        _ => field,
                    };
                    append(&mut line, b"\t")?;
                    append(&mut line, field)?;
                }
                if !said {
                    append(&mut line, b"\t")?;
                    append(&mut line, sort_order.as_bytes())?;
                }
            }
        }
        append(&mut line, b"\n")?;
        let mut text = with_room(self.text.len() + line.len(), memory)?;
        text.extend_from_slice(&line);
        let mut first = true;
        for line in lines(&self.text) {
            let replaced = line.starts_with(b"@HD") && std::mem::take(&mut first);
            // A line that says nothing goes, too: samtools drops it when it writes a header anew.
            if replaced || line.len() == 3 {
                continue;
            }
            text.extend_from_slice(line);
            text.push(b'\n');
        }
        self.text = text;
        Ok(())
    }

    fn read_line(&mut self, line: &[u8], seen: &mut HashSet<u32>) -> Result<(), Refused> {
        let (kind, rest) = match line {
            [b'@', a, b, rest @ ..] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                (&line[1..3], rest)
            }
            _ => return Err(HeaderError::Kind.into()),
        };
        if rest.is_empty() {
            return Ok(self.keep(line)?);
        }
        let Some(rest) = rest.strip_prefix(b"\t") else {
            return Err(HeaderError::Tab.into());
        };
        if kind != b"CO" {
            for field in rest.split(|byte| *byte == b'\t') {
                if field.len() < 3 || field[2] != b':' {
                    return Err(HeaderError::Field(lossy(field)).into());
                }
            }
        }
        let value = |tag: &[u8; 3]| {
            let mut fields = rest.split(|byte| *byte == b'\t');
            fields.find_map(|field| field.strip_prefix(tag))
        };
        let missing = |kind, field| Refused::from(HeaderError::Missing { kind, field });
        match kind {
            b"SQ" => {
                let name = value(b"SN:").ok_or(missing("SQ", "SN"))?;
                let length = value(b"LN:").ok_or(missing("SQ", "LN"))?;
                let number = std::str::from_utf8(length).ok();
                let number = number.and_then(|text| text.parse().ok());
                let number = number.ok_or_else(|| HeaderError::Length(lossy(length)))?;
                let reference = match self.reference(name) {
                    // Of the dictionary, and its line comes only now.
                    Some(known) if *self.references[known as usize].name == *name => known,
                    _ => self.add_reference(name, number)?,
                };
                if !seen.insert(reference) {
                    return Err(HeaderError::Duplicate(lossy(name)).into());
                }
                for alternative in value(b"AN:")
                    .unwrap_or_default()
                    .split(|byte| *byte == b',')
                {
                    if !alternative.is_empty() && self.reference(alternative).is_none() {
                        self.add_name(alternative, reference)?;
                    }
                }
            }
            b"RG" => drop(value(b"ID:").ok_or(missing("RG", "ID"))?),
            b"PG" => drop(value(b"ID:").ok_or(missing("PG", "ID"))?),
            _ => {}
        }
        Ok(self.keep(line)?)
    }

    fn keep(&mut self, line: &[u8]) -> Result<(), OutOfMemory> {
        append(&mut self.text, line)?;
        append(&mut self.text, b"\n")
    }

    fn add_reference(&mut self, name: &[u8], length: u64) -> Result<u32, OutOfMemory> {
        let memory = *self.text.allocator();
        let number = self.references.len() as u32;
        let reference = Reference {
            name: boxed(&[name], memory)?,
            length,
        };
        push(&mut self.references, reference)?;
        self.add_name(name, number)?;
        Ok(number)
    }

    /// A name given later wins over an alternative name of another.
    fn add_name(&mut self, name: &[u8], reference: u32) -> Result<(), OutOfMemory> {
        match self.names.binary_search_by(|known| (*known.name).cmp(name)) {
            Ok(at) => self.names[at].reference = reference,
            Err(at) => {
                let name = boxed(&[name], *self.text.allocator())?;
                self.names.try_reserve(1).map_err(|_| OutOfMemory)?;
                self.names.insert(at, Name { name, reference });
            }
        }
        Ok(())
    }

    /// Writes the line that a reference of the dictionary lacks.
    fn add_line_of(&mut self, reference: usize) -> Result<(), OutOfMemory> {
        let Reference { name, length } = &self.references[reference];
        append(&mut self.text, b"@SQ\tSN:")?;
        append(&mut self.text, name)?;
        append(&mut self.text, b"\tLN:")?;
        append(
            &mut self.text,
            itoa::Buffer::new().format(*length).as_bytes(),
        )?;
        append(&mut self.text, b"\n")
    }
}

/// Why a line was not taken.
enum Refused {
    Line(HeaderError),
    Memory(OutOfMemory),
}

impl From<HeaderError> for Refused {
    fn from(error: HeaderError) -> Self {
        Self::Line(error)
    }
}

impl From<OutOfMemory> for Refused {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory(error)
    }
}

/// The lines of a text without their newlines.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
}

fn append<A: Allocator>(to: &mut Vec<u8, A>, bytes: &[u8]) -> Result<(), OutOfMemory> {
    to.try_reserve(bytes.len()).map_err(|_| OutOfMemory)?;
    to.extend_from_slice(bytes);
    Ok(())
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::alloc::Global;

    fn sorted(text: &str) -> String {
        let mut header = Header::read(text.as_bytes(), &[], Global).unwrap();
        header.set_sort_order("coordinate").unwrap();
        String::from_utf8(header.text().to_vec()).unwrap()
    }

    #[test]
    fn the_order_is_said_where_it_was_said_and_groups_are_forgotten() {
        assert_eq!(
            sorted("@HD\tVN:1.4\tSO:queryname\tGO:query\n@CO\tx\n"),
            "@HD\tVN:1.4\tSO:coordinate\n@CO\tx\n"
        );
        assert_eq!(
            sorted("@CO\tx\n@CO\n"),
            "@HD\tVN:1.6\tSO:coordinate\n@CO\tx\n"
        );
        assert_eq!(
            sorted("@CO\tx\n@HD\tVN:1.0\n"),
            "@HD\tVN:1.0\tSO:coordinate\n@CO\tx\n"
        );
    }

    #[test]
    fn a_dictionary_numbers_the_references_and_gets_the_lines_it_lacks() {
        let dictionary = [(b"b".to_vec(), 7), (b"a".to_vec(), 9)];
        let header = Header::read(b"@SQ\tSN:a\tLN:9\tAN:x,b\n\0\0", &dictionary, Global).unwrap();
        assert_eq!(header.text(), b"@SQ\tSN:a\tLN:9\tAN:x,b\n@SQ\tSN:b\tLN:7\n");
        let number = |name: &str| header.reference(name.as_bytes());
        assert_eq!(number("b"), Some(0));
        assert_eq!(number("a"), Some(1));
        assert_eq!(number("x"), Some(1));
        assert_eq!(number("y"), None);
    }

    #[test]
    fn every_wrong_line_is_named() {
        let error = |text: &str| match Header::read(text.as_bytes(), &[], Global) {
            Err(LoadError::Header { line, source }) => (line, source),
            other => panic!("{other:?}"),
        };
        assert_eq!(error("@CO\tx\nSQ\n"), (2, HeaderError::Kind));
        assert_eq!(error("@CO x\n"), (1, HeaderError::Tab));
        assert_eq!(error("@RG\tID\n").1, HeaderError::Field("ID".into()));
        assert_eq!(
            error("@SQ\tSN:a\tLN:many\n").1,
            HeaderError::Length("many".into())
        );
        assert_eq!(
            error("@SQ\tSN:a\tLN:1\n@SQ\tSN:a\tLN:1\n"),
            (2, HeaderError::Duplicate("a".into()))
        );
        let (kind, field) = ("PG", "ID");
        assert_eq!(error("@PG\tPN:x\n").1, HeaderError::Missing { kind, field });
    }
}
