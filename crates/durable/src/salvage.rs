//! What the ring of a damaged segment held: **a segment that was set aside takes nothing along that
//! its change feed still says.**
//!
//! The registry has set the segment aside, and the store is about to be rebuilt from the directory.
//! Entries behind the durable position stand in the ring alone. So a run of the journal, or a
//! commit of the tree, makes them durable first. The segment belongs to the directory by the same
//! note as one that is served; once that run has begun, it does so no more.
//!
//! A look at a damaged segment may end the process. Each try is noted beside the segment, with the
//! run that it begins, so that a try that was cut off is made again, and not for ever.

use std::sync::Arc;

use mneme_journal::Options;
use mneme_log::SalvagedFeed;
use mneme_shared::{Registry, SharedStore};

use crate::DurableError;
use crate::directory::Opened;
use crate::disk::Disk;
use crate::options::DurableOptions;
use crate::pairing::Note;
use crate::recover::RecoveryClock;
use crate::store::draw_run;

/// The note beside a segment that was set aside: tries so far, and the run of the last one.
const NOTE: &str = "ring";
/// Tries after which its ring is given up.
const TRIES: u64 = 3;

impl DurableOptions {
    /// Makes durable what the rings of segments hold that were set aside under this name and belong
    /// to the directory.
    pub(crate) fn salvage(
        &self,
        registry: &Registry,
        name: &str,
        (opened, disk): (&Opened, &mut Disk),
    ) -> Result<(), DurableError> {
        let aside = format!("{name}.quarantine-");
        for segment in registry.segments()? {
            let segment = segment.as_str();
            if !segment.starts_with(&aside) {
                continue;
            }
            let noted = registry.note(segment, NOTE)?.unwrap_or_default();
            let mut words = noted
                .split_whitespace()
                .map(|word| word.parse().unwrap_or(0));
            let (tries, begun) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
            if tries >= TRIES {
                continue;
            }
            let run = draw_run()?;
            let note = |tries: u64| {
                let text = format!("{tries} {run}\n");
                registry.set_note(segment, NOTE, Some(&text))
            };
            note(tries + 1)?;
            mneme_sys::fault!("durable.salvage.noted");
            let feed = SharedStore::attach(registry, segment).ok();
            if let Some(feed) = feed.and_then(|store| store.salvage_feed())
                && let Err(refused) = self.continue_with(&feed, begun, run, (opened, disk))
            {
                // That was no fault of the segment.
                note(tries)?;
                return Err(refused);
            }
            note(TRIES)?;
        }
        Ok(())
    }

    /// Makes durable what a ring holds, if the directory is where it goes on. `begun`: the run of a
    /// try that was cut off.
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
        if !is_ours || feed.bytes.is_empty() {
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
        disk.continue_with(opened, options, feed.start, &feed.bytes)?;
        mneme_sys::fault!("durable.salvage.continued");
        Ok(())
    }
}
