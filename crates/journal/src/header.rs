//! The first 4 KiB of every file: which store and run it belongs to, and where its part of the
//! stream begins.

use mneme_sys::crc32c;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Position;
use crate::error::Flaw;

/// The length of a header, and the alignment of frames, in bytes.
pub(crate) const BLOCK: usize = 4096;

/// The version of both formats, which is raised when entries say what no program could read before.
pub(crate) const VERSION: u32 = 2;
/// The oldest version that is read, which does not know collections.
const OLDEST: u32 = 1;

/// The maximum number of runs that a header lists.
const MOST_RUNS: usize = 250;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Journal,
    Base,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        match self {
            Self::Journal => *b"MnJournl",
            Self::Base => *b"MnBaseFl",
        }
    }
}

/// Identifies the store that files belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The store's UUID.
    pub uuid: [u8; 16],
}

/// A run: one opening of the journal for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// A random number.
    pub id: u64,
    /// The position where it began. Data of older runs after this position are invalid.
    pub first: Position,
}

/// The latest runs; the last one is the run of the file that contains the list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Runs {
    /// The total number of runs, including the last one.
    number: u64,
    /// The latest of them.
    latest: Vec<Run>,
}

impl Runs {
    /// This list with one more run.
    #[must_use]
    pub fn and(&self, run: Run) -> Self {
        let mut latest = self.latest.clone();
        latest.push(run);
        if latest.len() > MOST_RUNS {
            latest.remove(0);
        }
        Self {
            number: self.number + 1,
            latest,
        }
    }

    /// The total number of runs.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The latest runs, in order. Runs older than the last 250 are not listed.
    #[must_use]
    pub fn latest(&self) -> &[Run] {
        &self.latest
    }

    /// The last run.
    #[must_use]
    pub fn last(&self) -> Option<Run> {
        self.latest.last().copied()
    }

    /// Whether a run with this number and id may be one of these: either it is listed, or it is
    /// older than the list.
    #[must_use]
    pub fn may_contain(&self, number: u64, id: u64) -> bool {
        match self.number.checked_sub(number) {
            None => false,
            Some(back) => {
                let place = (self.latest.len() as u64).checked_sub(back + 1);
                place.is_none_or(|place| self.latest[place as usize].id == id)
            }
        }
    }

    /// The smallest first position of the listed runs after that number: data of an older run after
    /// this position are invalid.
    #[must_use]
    pub fn cut_behind(&self, number: u64) -> Option<Position> {
        let later = self.number.saturating_sub(number);
        let later = (self.latest.len() as u64).min(later) as usize;
        let runs = &self.latest[self.latest.len() - later..];
        runs.iter().map(|run| run.first).min()
    }
}

/// A decoded header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JournalHeader {
    pub(crate) identity: Identity,
    /// The position at which the file's part of the stream begins.
    pub(crate) first: Position,
    /// The length that a journal file has from the beginning; 0 for a base file.
    pub(crate) file_bytes: u64,
    /// Whether it was begun with that length and without blocks.
    pub(crate) is_sparse: bool,
    pub(crate) wall_ms: u64,
    pub(crate) runs: Runs,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RawRun {
    id: U64,
    first: U64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    version: U32,
    /// The checksum of the other bytes.
    crc: U32,
    uuid: [u8; 16],
    /// Always 0. Earlier builds wrote a number of the store's here, which no reader used.
    zero_of_store: U64,
    run: U64,
    first: U64,
    file_bytes: U64,
    number: U64,
    listed: U32,
    zero: U32,
    wall_ms: U64,
    /// Bit 0: the file was begun sparse.
    flags: U32,
    unused: [u8; 4],
    runs: [RawRun; MOST_RUNS],
}

const _: () = assert!(size_of::<Raw>() == BLOCK);

/// The checksum of all bytes except the checksum itself.
fn checksum(bytes: &[u8]) -> u32 {
    crc32c(crc32c(0, &bytes[..12]), &bytes[16..])
}

impl JournalHeader {
    /// The run that the file belongs to.
    pub(crate) fn run(&self) -> u64 {
        self.runs.last().map_or(0, |run| run.id)
    }

    pub(crate) fn encode(&self, kind: FileKind) -> Vec<u8> {
        let run = |i: usize| {
            let run = self.runs.latest.get(i);
            RawRun {
                id: run.map_or(0, |run| run.id).into(),
                first: run.map_or(0, |run| run.first.get()).into(),
            }
        };
        let mut raw = Raw {
            magic: kind.magic(),
            version: VERSION.into(),
            crc: 0.into(),
            uuid: self.identity.uuid,
            zero_of_store: 0.into(),
            run: self.run().into(),
            first: self.first.get().into(),
            file_bytes: self.file_bytes.into(),
            number: self.runs.number.into(),
            listed: (self.runs.latest.len() as u32).into(),
            zero: 0.into(),
            wall_ms: self.wall_ms.into(),
            flags: u32::from(self.is_sparse).into(),
            unused: [0; 4],
            runs: std::array::from_fn(run),
        };
        raw.crc = checksum(raw.as_bytes()).into();
        raw.as_bytes().to_vec()
    }

    /// The runs that a block names which may no longer be a valid header: its own, and the last
    /// listed one.
    pub(crate) fn runs_named_by(block: &[u8]) -> Vec<u64> {
        let Ok((raw, _)) = Raw::ref_from_prefix(block) else {
            return Vec::new();
        };
        let listed = (raw.listed.get() as usize).min(MOST_RUNS);
        let last = raw.runs[..listed].last().map(|run| run.id.get());
        [raw.run.get()].into_iter().chain(last).collect()
    }

    /// Decodes a block as a header.
    pub(crate) fn decode(block: &[u8], kind: FileKind) -> Result<Self, Flaw> {
        let Ok((raw, _)) = Raw::ref_from_prefix(block) else {
            return Err(Flaw::Short {
                found: block.len() as u64,
                wanted: BLOCK as u64,
            });
        };
        // A version counts only if its checksum is right: one flipped bit would name another
        // version.
        let (version, crc) = (raw.version.get(), raw.crc.get());
        if raw.magic != kind.magic() || checksum(raw.as_bytes()) != crc {
            return Err(Flaw::Header);
        }
        if !(OLDEST..=VERSION).contains(&version) {
            let known = VERSION;
            return Err(Flaw::Version {
                found: version,
                known,
            });
        }
        let listed = raw.listed.get() as usize;
        let runs = raw.runs.get(..listed).ok_or(Flaw::Header)?;
        let run = |run: &RawRun| Run {
            id: run.id.get(),
            first: Position::new(run.first.get()),
        };
        let latest: Vec<Run> = runs.iter().map(run).collect();
        if latest.last().map(|run| run.id) != Some(raw.run.get()) {
            return Err(Flaw::Header);
        }
        Ok(Self {
            identity: Identity { uuid: raw.uuid },
            first: Position::new(raw.first.get()),
            file_bytes: raw.file_bytes.get(),
            is_sparse: raw.flags.get() & 1 != 0,
            wall_ms: raw.wall_ms.get(),
            runs: Runs {
                number: raw.number.get(),
                latest,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(runs: u64) -> JournalHeader {
        let run = |id| Run {
            id: id * 7 + 1,
            first: Position::new(id * 100),
        };
        JournalHeader {
            identity: Identity { uuid: [9; 16] },
            first: Position::new(12_345),
            file_bytes: 1 << 20,
            is_sparse: runs.is_multiple_of(2),
            wall_ms: 77,
            runs: (0..runs).fold(Runs::default(), |runs, id| runs.and(run(id))),
        }
    }

    #[test]
    fn a_header_is_read_as_written_and_every_changed_bit_is_detected() {
        for runs in [1, 3, 250, 300] {
            let header = header(runs);
            assert_eq!(header.runs.number(), runs);
            let bytes = header.encode(FileKind::Journal);
            assert_eq!(
                JournalHeader::decode(&bytes, FileKind::Journal).unwrap(),
                header
            );
            assert!(matches!(
                JournalHeader::decode(&bytes, FileKind::Base),
                Err(Flaw::Header)
            ));
        }
        let bytes = header(3).encode(FileKind::Journal);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                JournalHeader::decode(&flipped, FileKind::Journal).is_err(),
                "bit {bit}"
            );
        }
        for len in 0..bytes.len() {
            assert!(JournalHeader::decode(&bytes[..len], FileKind::Journal).is_err());
        }
    }

    #[test]
    fn a_later_version_is_refused_by_its_number_and_an_older_one_is_read() {
        let decode = |version| {
            let mut bytes = header(1).encode(FileKind::Journal);
            bytes[8] = version;
            let crc = checksum(&bytes).to_le_bytes();
            bytes[12..16].copy_from_slice(&crc);
            JournalHeader::decode(&bytes, FileKind::Journal)
        };
        assert!(matches!(decode(1), Ok(found) if found == header(1)));
        assert!(matches!(decode(2), Ok(found) if found == header(1)));
        assert!(matches!(
            decode(3),
            Err(Flaw::Version { found: 3, known: 2 })
        ));
    }

    #[test]
    fn a_run_list_contains_its_runs_and_may_contain_older_ones() {
        let runs = header(300).runs;
        assert!(runs.may_contain(300, 299 * 7 + 1));
        assert!(!runs.may_contain(300, 5) && !runs.may_contain(301, 5));
        assert!(runs.may_contain(51, 50 * 7 + 1) && !runs.may_contain(51, 5));
        assert!(runs.may_contain(50, 5), "older than the list");
        assert_eq!(runs.cut_behind(300), None);
        assert_eq!(runs.cut_behind(298), Some(Position::new(29_800)));
        assert_eq!(runs.cut_behind(3), Some(Position::new(5_000)));
    }
}
