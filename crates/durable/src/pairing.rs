//! Pairing: decides whether a segment and a directory are the two halves of one store.
//!
//! **The segment names the run of the journal in which that segment wrote last.** Each opening
//! draws a run, notes it in the segment, begins it in the directory, and then notes that it has
//! begun. So if they belong together, the directory's last run is the segment's current run or the
//! one that the segment was about to begin. Any other run belongs to another history.

use mneme_journal::{Identity, Run};
use mneme_log::{ChangeFeed, FeedError};

/// The note in a segment's change feed that names the journal it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Note {
    /// The store; zeros: the segment belongs to no journal yet.
    pub uuid: [u8; 16],
    /// The run of the journal that it continues; 0: none.
    pub run: u64,
    /// The run that it was about to begin; 0: none.
    pub next: u64,
}

impl Note {
    pub fn of(feed: &ChangeFeed) -> Result<Self, FeedError> {
        Ok(Self::of_words(feed.note()?))
    }

    pub fn of_words([low, high, run, next]: [u64; 4]) -> Self {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&low.to_le_bytes());
        uuid[8..].copy_from_slice(&high.to_le_bytes());
        Self { uuid, run, next }
    }

    /// Notes the store's identity and the last run of its files in a segment that has no name yet.
    pub fn write(feed: &mut ChangeFeed, identity: Identity, run: u64) -> Result<(), FeedError> {
        let word = |half: usize| {
            let bytes = std::array::from_fn(|i| identity.uuid[8 * half + i]);
            u64::from_le_bytes(bytes)
        };
        feed.set_note(0, word(0))?;
        feed.set_note(1, word(1))?;
        feed.set_note(2, run)
    }

    pub fn identity(&self) -> Identity {
        Identity { uuid: self.uuid }
    }

    /// Notes that the journal's last run is `last`, which is known to be this segment's.
    pub fn confirm(&self, feed: &mut ChangeFeed, last: u64) -> Result<(), FeedError> {
        feed.set_note(2, last)
    }

    /// Notes that the journal is about to begin this run, and confirms the previous one.
    pub fn begin(&self, feed: &mut ChangeFeed, run: u64) -> Result<(), FeedError> {
        feed.set_note(3, run)
    }

    pub fn is_blank(&self) -> bool {
        self.uuid == [0; 16]
    }
}

/// What is known of a directory without reading its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Journaled {
    pub identity: Identity,
    pub last: Option<Run>,
}

/// How a segment and a directory are to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They belong together: the journal continues from the segment's feed.
    Paired,
    /// The directory is empty: a checkpoint of the whole segment becomes its first file.
    Adopt,
    /// The segment is empty and belongs to no journal: the store is rebuilt from the directory.
    Rebuild,
}

/// Why a segment and a directory do not belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unpaired {
    /// The segment belongs to no journal, and both hold data.
    #[error("the segment belongs to no journal, and the directory holds another store")]
    Stranger,
    /// They hold two different stores.
    #[error("the segment and the directory hold two different stores")]
    Stores,
    /// The directory's base file belongs to another history than its journal.
    #[error("the base file in the directory is of another history than the journal beside it")]
    Base,
    /// They hold one store, but the directory lacks data that the segment knows to be durable.
    #[error(
        "the files in the directory end before the place from which the segment goes on: they are an \
         older copy, or damaged"
    )]
    Behind,
    /// They hold one store, but were written separately.
    #[error(
        "the directory was written without this segment since the segment was served last, or is an \
         older copy: one of the two has changes that the other does not know"
    )]
    Runs,
}

/// Decides from what is known of both. `is_empty`: the segment holds nothing.
pub(crate) fn judge(
    note: Note,
    is_empty: bool,
    directory: Option<Journaled>,
) -> Result<Verdict, Unpaired> {
    let Some(directory) = directory else {
        return Ok(Verdict::Adopt);
    };
    let last = directory.last.map_or(0, |run| run.id);
    if note.is_blank() {
        return match is_empty {
            true => Ok(Verdict::Rebuild),
            false => Err(Unpaired::Stranger),
        };
    }
    if note.uuid != directory.identity.uuid {
        return Err(Unpaired::Stores);
    }
    match last == note.run || last == note.next {
        true => Ok(Verdict::Paired),
        false => Err(Unpaired::Runs),
    }
}

#[cfg(test)]
mod tests {
    use mneme_journal::Position;

    use super::*;

    fn directory(uuid: u8, run: u64) -> Option<Journaled> {
        Some(Journaled {
            identity: Identity { uuid: [uuid; 16] },
            last: Some(Run {
                id: run,
                first: Position::new(0),
            }),
        })
    }

    fn note(uuid: u8, run: u64, next: u64) -> Note {
        let uuid = [uuid; 16];
        Note { uuid, run, next }
    }

    #[test]
    fn only_what_was_written_together_is_paired() {
        use Verdict::*;
        let cases = [
            // The run in which it wrote, and one that had just begun when it died.
            (note(1, 7, 0), false, directory(1, 7), Ok(Paired)),
            (note(1, 7, 8), false, directory(1, 7), Ok(Paired)),
            (note(1, 7, 8), false, directory(1, 8), Ok(Paired)),
            // Another segment has continued it; a backup was restored; an older copy.
            (note(1, 7, 8), false, directory(1, 9), Err(Unpaired::Runs)),
            (note(1, 7, 8), true, directory(1, 6), Err(Unpaired::Runs)),
            (note(2, 7, 8), false, directory(1, 7), Err(Unpaired::Stores)),
            (
                note(0, 0, 0),
                false,
                directory(1, 7),
                Err(Unpaired::Stranger),
            ),
            (note(0, 0, 0), true, directory(1, 7), Ok(Rebuild)),
            (note(0, 0, 0), false, None, Ok(Adopt)),
            (note(1, 7, 8), false, None, Ok(Adopt)),
        ];
        for (note, is_empty, directory, expected) in cases {
            let judged = judge(note, is_empty, directory);
            assert_eq!(judged, expected, "{note:?} {directory:?}");
        }
    }
}
