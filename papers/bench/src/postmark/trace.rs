//! The trace: what a small file system asks of a key-value store while Postmark runs on it.
//!
//! Postmark (Katcher, 1997) makes files of 500 to 4096 bytes in subdirectories, then does
//! transactions, each of which creates or deletes one file and reads or appends to another, and in
//! the end deletes all files. As in TableFS (Ren and Gibson, 2013), a row holds a small file's
//! attributes and data, and a directory has a row of its own:
//!
//! | step | rows |
//! |---|---|
//! | create | GET directory, PUT file, PUT directory |
//! | delete | GET directory, DEL file |
//! | read | GET directory, GET file |
//! | append | GET directory, GET file, PUT file, longer, 4096 bytes at most |
//!
//! That gives the shares of Nibble's figure 10b: 10 % of the operations insert, 10 % remove, 20 %
//! overwrite.

use mneme_bench::generate::random::Random;

/// The least and the most bytes of a file.
pub const FILE_BYTES: (u64, u64) = (500, 4096);

/// Bytes of a directory's row.
pub const DIRECTORY_BYTES: u16 = 128;

/// Bytes of a key: directory and name.
pub const KEY_BYTES: usize = 16;

/// Files of a directory, on average: the paper's 2 million files in 10 thousand.
const FILES_OF_DIRECTORY: u32 = 200;

/// What to do with a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is there, so long.
    Get,
    /// It is new.
    Insert,
    /// It is there.
    Overwrite,
    /// It is there.
    Delete,
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The row: a file's number, or a directory's with the highest bit set.
    pub row: u32,
    /// Its bytes, before a `Get` and a `Delete`, after a `Insert` and an `Overwrite`.
    pub bytes: u16,
    /// What to do.
    pub kind: Kind,
}

const DIRECTORY: u32 = 1 << 31;

/// A whole run of the benchmark.
#[derive(Debug)]
pub struct Trace {
    /// From an empty store to one with nothing but directories, which are removed, too.
    pub steps: Vec<Step>,
    /// The most bytes of keys and values that are there at a time.
    pub peak: u64,
}

/// A row's key, for a thread's own set.
#[inline]
pub fn key(thread: u32, row: u32) -> [u8; KEY_BYTES] {
    let directory = if row & DIRECTORY == 0 {
        // A directory's number is computed where it is needed; here any function of the file will
        // do.
        row / FILES_OF_DIRECTORY
    } else {
        u32::MAX
    };
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&thread.to_be_bytes());
    key[4..8].copy_from_slice(&directory.to_be_bytes());
    key[8..].copy_from_slice(&mneme_bench::generate::random::mix(u64::from(row)).to_be_bytes());
    key
}

/// The state of the file system while the trace is drawn.
struct Files {
    /// Number and size.
    alive: Vec<(u32, u16)>,
    next: u32,
    directories: u32,
    steps: Vec<Step>,
    bytes: u64,
    peak: u64,
}

impl Files {
    fn step(&mut self, row: u32, bytes: u16, kind: Kind) {
        self.steps.push(Step { row, bytes, kind });
    }

    fn directory_of(&self, file: u32) -> u32 {
        DIRECTORY | (file % self.directories)
    }

    fn look_up(&mut self, file: u32) {
        let directory = self.directory_of(file);
        self.step(directory, DIRECTORY_BYTES, Kind::Get);
    }

    fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.peak = self.peak.max(self.bytes);
    }

    fn create(&mut self, random: &mut Random) {
        let (least, most) = FILE_BYTES;
        let (file, bytes) = (self.next, (least + random.below(most - least + 1)) as u16);
        self.next += 1;
        self.look_up(file);
        self.step(file, bytes, Kind::Insert);
        let directory = self.directory_of(file);
        self.step(directory, DIRECTORY_BYTES, Kind::Overwrite);
        self.alive.push((file, bytes));
        self.grow(u64::from(bytes) + KEY_BYTES as u64);
    }

    fn delete(&mut self, place: usize) {
        let (file, bytes) = self.alive.swap_remove(place);
        self.look_up(file);
        self.step(file, bytes, Kind::Delete);
        self.bytes -= u64::from(bytes) + KEY_BYTES as u64;
    }

    fn read(&mut self, place: usize) {
        let (file, bytes) = self.alive[place];
        self.look_up(file);
        self.step(file, bytes, Kind::Get);
    }

    fn append(&mut self, place: usize, random: &mut Random) {
        self.read(place);
        let (file, bytes) = self.alive[place];
        let left = FILE_BYTES.1 - u64::from(bytes);
        let more = if left == 0 { 0 } else { 1 + random.below(left) };
        let longer = (u64::from(bytes) + more) as u16;
        self.alive[place].1 = longer;
        self.step(file, longer, Kind::Overwrite);
        self.grow(more);
    }
}

impl Trace {
    /// Draws one with so many files (at least one) at a time and so many transactions.
    pub fn new(files: u32, transactions: u32, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut state = Files {
            alive: Vec::with_capacity(files as usize),
            next: 0,
            directories: (files / FILES_OF_DIRECTORY).max(1),
            steps: Vec::new(),
            bytes: 0,
            peak: 0,
        };
        for directory in 0..state.directories {
            state.step(DIRECTORY | directory, DIRECTORY_BYTES, Kind::Insert);
            state.grow(u64::from(DIRECTORY_BYTES) + KEY_BYTES as u64);
        }
        for _ in 0..files {
            state.create(&mut random);
        }
        for _ in 0..transactions {
            let any = |state: &Files, random: &mut Random| {
                random.below(state.alive.len() as u64) as usize
            };
            // One file always stays, to be read.
            if random.below(2) == 0 || state.alive.len() == 1 {
                state.create(&mut random);
            } else {
                let place = any(&state, &mut random);
                state.delete(place);
            }
            let place = any(&state, &mut random);
            if random.below(2) == 0 {
                state.read(place);
            } else {
                state.append(place, &mut random);
            }
        }
        while !state.alive.is_empty() {
            state.delete(state.alive.len() - 1);
        }
        for directory in 0..state.directories {
            state.step(DIRECTORY | directory, DIRECTORY_BYTES, Kind::Delete);
        }
        Self {
            steps: state.steps,
            peak: state.peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    /// The trace is possible: what is read, overwritten and deleted is there, so long, and nothing
    /// is left.
    #[test]
    fn every_step_finds_what_it_expects() {
        let trace = Trace::new(1000, 20_000, 3);
        let mut rows: HashMap<u32, u16> = HashMap::new();
        let (mut bytes, mut peak) = (0, 0);
        for step in &trace.steps {
            let old = rows.get(&step.row).copied();
            match step.kind {
                Kind::Get => assert_eq!(old, Some(step.bytes)),
                Kind::Insert => assert_eq!(old, None),
                Kind::Overwrite => assert!(old.is_some_and(|old| old <= step.bytes)),
                Kind::Delete => assert_eq!(old, Some(step.bytes)),
            }
            let size = |bytes: u16| u64::from(bytes) + KEY_BYTES as u64;
            if step.kind != Kind::Get {
                bytes -= old.map_or(0, size);
                if step.kind == Kind::Delete {
                    rows.remove(&step.row);
                } else {
                    rows.insert(step.row, step.bytes);
                    bytes += size(step.bytes);
                }
            }
            peak = peak.max(bytes);
        }
        assert!(rows.is_empty());
        assert_eq!(peak, trace.peak);
    }

    /// Nibble's figure 10b.
    #[test]
    fn transactions_have_the_papers_shares() {
        let trace = Trace::new(1, 40_000, 5);
        let share = |kind: Kind| {
            let of_kind = trace.steps.iter().filter(|step| step.kind == kind).count();
            of_kind as f64 / trace.steps.len() as f64
        };
        for (kind, wanted) in [
            (Kind::Insert, 0.10),
            (Kind::Delete, 0.10),
            (Kind::Overwrite, 0.20),
            (Kind::Get, 0.60),
        ] {
            assert!(
                (share(kind) - wanted).abs() < 0.01,
                "{kind:?}: {}",
                share(kind)
            );
        }
    }

    #[test]
    fn threads_and_rows_have_keys_of_their_own() {
        let rows = (0..1000).chain(DIRECTORY..DIRECTORY + 100);
        let keys: HashSet<_> = rows.flat_map(|row| [key(0, row), key(1, row)]).collect();
        assert_eq!(keys.len(), 2200);
    }
}
