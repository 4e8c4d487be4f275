//! Reading a header: what htslib takes is taken, what it refuses to work with is refused.

use super::{Header, Name, Reference, append};
use crate::error::{HeaderError, LoadError, OutOfMemory};
use crate::memory::{boxed, push};
use allocator_api2::alloc::Allocator;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

impl<A: Allocator + Copy> Header<A> {
    /// Reads header lines. `dictionary` is the list of names and lengths that a BAM file has beside
    /// its text: it decides the numbers of the references, and those without a line get one.
    pub(crate) fn read(
        text: &[u8],
        dictionary: &[(Vec<u8>, u64)],
        memory: A,
    ) -> Result<Self, LoadError> {
        let mut reading = Reading {
            header: Self::empty(memory),
            memory,
            names: HashMap::new(),
            seen: HashSet::new(),
        };
        for (name, length) in dictionary {
            reading.add_reference(name, *length)?;
        }
        // A BAM file may pad its text with zeros.
        let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
        for (number, line) in (1..).zip(super::lines(text)) {
            reading.line(line).map_err(|why| match why {
                Refused::Line(source) => LoadError::Header {
                    line: number,
                    source,
                },
                Refused::Memory(full) => full.into(),
            })?;
        }
        Ok(reading.finish()?)
    }
}

/// A header that is being read.
struct Reading<A: Allocator> {
    header: Header<A>,
    memory: A,
    /// The references' numbers by names and alternative names.
    names: HashMap<Vec<u8>, u32>,
    /// The references whose lines have been read.
    seen: HashSet<u32>,
}

impl<A: Allocator + Copy> Reading<A> {
    fn line(&mut self, line: &[u8]) -> Result<(), Refused> {
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
        match kind {
            b"SQ" => self.reference(rest)?,
            b"RG" => drop(required("RG", "ID", rest)?),
            b"PG" => drop(required("PG", "ID", rest)?),
            _ => {}
        }
        Ok(self.keep(line)?)
    }

    /// Takes the fields of a line `@SQ`.
    fn reference(&mut self, fields: &[u8]) -> Result<(), Refused> {
        let name = required("SQ", "SN", fields)?;
        let length = required("SQ", "LN", fields)?;
        let number = std::str::from_utf8(length).ok();
        let number = number.and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| HeaderError::Length(lossy(length)))?;
        let reference = match self.names.get(name) {
            // Of the dictionary, and its line comes only now; or a second line.
            Some(known) if *self.header.references[*known as usize].name == *name => *known,
            _ => self.add_reference(name, number)?,
        };
        if !self.seen.insert(reference) {
            return Err(HeaderError::Duplicate(lossy(name)).into());
        }
        let alternatives = value("AN", fields).unwrap_or_default();
        for alternative in alternatives.split(|byte| *byte == b',') {
            if let Entry::Vacant(free) = self.names.entry(alternative.to_vec())
                && !alternative.is_empty()
            {
                free.insert(reference);
            }
        }
        Ok(())
    }

    /// A name wins over an alternative name that another reference has.
    fn add_reference(&mut self, name: &[u8], length: u64) -> Result<u32, OutOfMemory> {
        let number = self.header.references.len() as u32;
        let reference = Reference {
            name: boxed(&[name], self.memory)?,
            length,
        };
        push(&mut self.header.references, reference)?;
        self.names.insert(name.to_vec(), number);
        Ok(number)
    }

    fn keep(&mut self, line: &[u8]) -> Result<(), OutOfMemory> {
        append(&mut self.header.text, line)?;
        append(&mut self.header.text, b"\n")
    }

    /// Writes the lines that references of the dictionary lack, and puts the names in order.
    fn finish(mut self) -> Result<Header<A>, OutOfMemory> {
        for number in 0..self.header.references.len() {
            if !self.seen.contains(&(number as u32)) {
                let Reference { name, length } = &self.header.references[number];
                let length = length.to_string();
                let line = [b"@SQ\tSN:", &**name, b"\tLN:", length.as_bytes()].concat();
                self.keep(&line)?;
            }
        }
        let mut names: Vec<_> = self.names.into_iter().collect();
        names.sort_unstable();
        for (name, reference) in names {
            let name = boxed(&[&name], self.memory)?;
            push(&mut self.header.names, Name { name, reference })?;
        }
        Ok(self.header)
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

/// The value of a field among fields separated by tabs.
fn value<'a>(tag: &str, fields: &'a [u8]) -> Option<&'a [u8]> {
    let mut fields = fields.split(|byte| *byte == b'\t');
    fields.find_map(|field| field.strip_prefix(tag.as_bytes())?.strip_prefix(b":"))
}

fn required<'a>(
    kind: &'static str,
    field: &'static str,
    fields: &'a [u8],
) -> Result<&'a [u8], HeaderError> {
    value(field, fields).ok_or(HeaderError::Missing { kind, field })
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocator_api2::alloc::Global;

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
