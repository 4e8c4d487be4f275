//! Saves what the ring of a damaged segment holds: **setting a segment aside loses nothing that its
//! change feed still holds.**
//!
//! The registry has set the segment aside, and the store is about to be rebuilt from the directory.
//! Entries after the durable position exist only in the ring. So a run of the journal, or a commit
//! of the tree, makes them durable first. As for a served segment, a note says that the segment
//! belongs to the directory, until that run has begun.
//!
//! Reading a damaged segment may crash the process. Each attempt is noted beside the segment with
//! the run that it begins, so that an interrupted attempt is repeated, but only a few times.
//!
//! A ring has no checksums. So nothing is taken from it that the files already hold, and nothing
//! that a load would refuse, because that would prevent the whole store from being loaded.

use std::sync::Arc;

use mneme_journal::Options;
use mneme_log::feed::{Assembly, FeedDamage, Item, bound, entries};
use mneme_log::{MAX_VALUE, SalvagedFeed, ValueKind};
use mneme_shared::{AttachError, QUARANTINE, Registry, ServeError, SharedStore};
use mneme_space::{MapError, OpenError};
use mneme_sys::files::HeldDirectory;

use crate::DurableError;
use crate::directory::Opened;
use crate::disk::Disk;
use crate::options::DurableOptions;
use crate::pairing::Note;
use crate::recover::RecoveryClock;
use crate::store::draw_run;

/// The note beside a segment that was set aside: the attempts so far, and the run of the last one.
const NOTE: &str = "ring";
/// Attempts after which its ring is given up.
const TRIES: u64 = 3;

impl DurableOptions {
    /// Makes the content of the rings of set-aside segments durable, if the segments had this name
    /// and belong to the directory.
    pub(crate) fn salvage(
        &self,
        registry: &Registry,
        name: &str,
        (opened, disk): (&Opened, &mut Disk),
    ) -> Result<(), DurableError> {
        let aside = format!("{name}~{QUARANTINE}-");
        for segment in registry.segments()? {
            let segment = segment.as_str();
            if !segment.starts_with(&aside) || !is_own(registry, segment) {
                continue;
            }
            let run = draw_run()?;
            let note = |tries: u64| {
                let text = format!("{tries} {run}\n");
                registry.set_note(segment, NOTE, Some(&text))
            };
            let noted = registry.note(segment, NOTE)?.unwrap_or_default();
            let mut words = noted
                .split_whitespace()
                .map(|word| word.parse().unwrap_or(0));
            let (tries, begun) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
            if tries >= TRIES {
                continue;
            }
            note(tries + 1)?;
            mneme_sys::fault!("durable.salvage.noted");
            let feed = match SharedStore::administer(registry, segment) {
                Ok(store) => store.salvage_feed(),
                // The refusal may be temporary, so the next start tries again.
                Err(refused) if is_for_now(&refused) => {
                    return Err(ServeError::from(refused).into());
                }
                Err(_) => None,
            };
            if let Some(feed) = feed
                && let Err(refused) = self.continue_with(&feed, begun, run, (opened, disk))
            {
                // The segment did not cause the refusal, so the attempt does not count.
                note(tries)?;
                return Err(refused);
            }
            note(TRIES)?;
        }
        Ok(())
    }

    /// Makes a ring's content durable if the directory ends where it continues. `begun`: the run of
    /// an interrupted attempt.
    fn continue_with(
        &self,
        feed: &SalvagedFeed,
        begun: u64,
        run: u64,
        (opened, disk): (&Opened, &mut Disk),
    ) -> Result<(), DurableError> {
        let note = Note::of_words(feed.note);
        let directory = &*opened.directory;
        let Some(found) = disk.journaled(directory)? else {
            return Ok(());
        };
        let last = found.last.map_or(0, |run| run.id);
        let is_ours = note.uuid == found.identity.uuid
            && [note.run, note.next, begun].contains(&last)
            && last != 0;
        let bytes = &feed.bytes[..loadable(feed.start, &feed.bytes)];
        if !is_ours || bytes.is_empty() || !feed.start.is_multiple_of(8) {
            return Ok(());
        }
        let Some(wall_ms) = disk.holds_stream(directory, feed.start)? else {
            return Ok(());
        };
        let clock = Arc::new(RecoveryClock::new(Arc::clone(&self.clock)));
        clock.release(wall_ms);
        let options = Options {
            run: Some(run),
            clock,
            ..self.journal_options(note.identity(), 0)
        };
        disk.continue_with(opened, options, feed.start, bytes)?;
        mneme_sys::fault!("durable.salvage.continued");
        Ok(())
    }
}

/// Whether a segment belongs to this user: another user of the registry can give that name to any
/// segment or link.
fn is_own(registry: &Registry, segment: &str) -> bool {
    let directory = HeldDirectory::open(&registry.root().join("segments").join(segment));
    directory.and_then(|held| held.owner()).ok() == Some(mneme_sys::files::user())
}

/// Whether attaching failed for lack of files, memory or locks, and not because of the segment
/// itself.
fn is_for_now(refused: &AttachError) -> bool {
    let lacks = matches!(
        refused,
        AttachError::Registry(_)
            | AttachError::Segment(OpenError::File(_))
            | AttachError::Map(
                MapError::Open(OpenError::File(_))
                    | MapError::File(_)
                    | MapError::Region(_)
                    | MapError::Liveness { .. }
                    | MapError::Window(_)
                    | MapError::Busy { .. }
            )
    );
    lacks && !refused.is_damage()
}

/// The length of these entries up to the first that a load would refuse; `start` is the position of
/// the first entry.
fn loadable(start: u64, bytes: &[u8]) -> usize {
    let (mut assembly, mut end) = (Assembly::default(), 0);
    for entry in entries(start, bytes) {
        let taken = entry.and_then(|entry| {
            let begins_before = match entry.items().next().transpose()? {
                // An id is the position of the first piece, in words: earlier pieces are in the
                // files.
                Some(Item::Piece { id, .. } | Item::Pieces { id, .. }) => id < start / 8,
                _ => false,
            };
            if !begins_before {
                assembly.apply(&entry, takes)?;
            }
            Ok(entry.stride())
        });
        match taken {
            Ok(stride) => end += stride,
            Err(_) => break,
        }
    }
    end
}

/// Whether a store can enter bindings like these: a database gets its first root, loses it, or
/// swaps it with another database.
fn is_entered(databases: &[[u8; 8]], dead: &[[u8; 8]]) -> bool {
    match (databases, dead) {
        ([made], []) => bound(*made).1 != 0,
        ([dropped], [_]) => bound(*dropped).1 == 0,
        ([_, _], []) => true,
        _ => false,
    }
}

/// Whether a load accepts an item.
fn takes(item: Item<'_>) -> Result<(), FeedDamage> {
    let what = match item {
        Item::Put { kind, .. } | Item::Edit { kind, .. } | Item::Unedit { kind, .. }
            if ValueKind::new(kind).is_none() =>
        {
            "a value of an unknown kind"
        }
        Item::Patch { length, .. } if length as usize > MAX_VALUE => "a value that is too long",
        Item::Piece { .. } | Item::Pieces { .. } => "pieces within pieces",
        Item::Bind { databases, dead } if !is_entered(databases, dead) => {
            "a binding as no store enters it"
        }
        _ => return Ok(()),
    };
    Err(FeedDamage { position: 0, what })
}

#[cfg(test)]
mod tests {
    use mneme_log::feed::{append_change, binding};

    use super::*;

    #[test]
    fn bindings_end_what_is_salvaged_unless_a_store_enters_them_so() {
        let is_loadable = |databases: &[(u8, u64)], dead: &[u64]| {
            let databases: Vec<_> = (databases.iter())
                .map(|(of, root)| binding(*of, *root))
                .collect();
            let dead: Vec<_> = dead.iter().map(|root| root.to_le_bytes()).collect();
            let (databases, dead) = (&databases[..], &dead[..]);
            let mut bytes = Vec::new();
            append_change(&[Item::Bind { databases, dead }], 0, &mut bytes);
            loadable(0, &bytes) == bytes.len()
        };
        assert!(is_loadable(&[(0, 1)], &[]));
        assert!(is_loadable(&[(0, 0)], &[1]));
        assert!(is_loadable(&[(0, 1), (1, 0)], &[]));
        assert!(!is_loadable(&[(0, 0)], &[]));
        assert!(!is_loadable(&[(0, 2)], &[1]));
        assert!(!is_loadable(&[(0, 0)], &[1, 2]));
        assert!(!is_loadable(&[(0, 0), (1, 0)], &[1]));
    }
}
