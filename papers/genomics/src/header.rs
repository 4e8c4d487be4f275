//! The header: its text as it was read, and the dictionary of reference sequences.

mod read;

use crate::error::OutOfMemory;
use crate::memory::with_capacity_in;
use allocator_api2::alloc::Allocator;
use allocator_api2::boxed::Box;
use allocator_api2::vec::Vec;
use mneme_space::Stored;

/// A reference sequence: a line `@SQ`.
#[derive(Debug, Stored)]
#[stored(allocator = A)]
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
#[derive(Debug, Stored)]
#[stored(allocator = A)]
struct Name<A: Allocator> {
    name: Box<[u8], A>,
    reference: u32,
}

/// A header.
#[derive(Debug, Stored)]
#[stored(allocator = A)]
pub struct Header<A: Allocator> {
    /// Whole lines, each ended by a newline.
    text: Vec<u8, A>,
    references: Vec<Reference<A>, A>,
    /// Names and alternative names (`AN`), in byte order, each once.
    names: Vec<Name<A>, A>,
}

impl<A: Allocator + Copy> Header<A> {
    /// No lines, no references.
    pub(crate) fn empty(memory: A) -> Self {
        Self {
            text: Vec::new_in(memory),
            references: Vec::new_in(memory),
            names: Vec::new_in(memory),
        }
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

    /// Writes `SO:` into the line `@HD`, makes that line if there is none, and takes what it said
    /// of groups and sub-orders (`GO`, `SS`) out.
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
        let mut text = with_capacity_in(self.text.len() + line.len(), memory)?;
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
}
