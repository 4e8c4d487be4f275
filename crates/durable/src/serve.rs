//! A server's store: a named segment and a directory that belong together.

use std::sync::Arc;

use mneme_journal::{BaseReader, Journal, Options, Position, Reader, reaches};
use mneme_log::ChangeFeed;
use mneme_shared::{Opening, Registry, Segment, ServeError, Served, SharedStore, StoreOptions};
use mneme_space::{OpenError, RemoveError};
use mneme_sys::Clock;
use mneme_sys::medium::Directory;

use crate::DurableError;
use crate::checkpoint::Source;
use crate::directory::Opened;
use crate::durability::{Durability, Origin, Parts};
use crate::gate::Shared;
use crate::home::Home;
use crate::options::DurableOptions;
use crate::pairing::{Journaled, Note, Unpaired, Verdict, judge};
use crate::recover::{Files, RecoveryClock, newest_base};
use crate::store::{draw_identity, draw_run, pause_eviction};

/// What the name of a segment ends with that is being rebuilt.
const LOADING: &str = ".loading";
/// Where the journal of an adopted segment begins that has no position yet.
const FIRST: u64 = 8;

impl DurableOptions {
    /// Opens the store of that name for serving, and makes it durable in the directory.
    ///
    /// A segment that is there, and belongs to the directory, is attached with all that it holds:
    /// the journal goes on where the segment's change feed is durable. If there is none, it is
    /// rebuilt from the directory as `NAME.loading`, and renamed when it is whole. A segment and a
    /// directory of two histories are refused.
    ///
    /// The options of `opening` get a change feed and the clock of these options. Nothing else may
    /// open the segment to write.
    ///
    /// # Errors
    /// One variant of [`DurableError`] each. What the directory and the segment hold stays as it
    /// is.
    pub fn serve(
        &self,
        registry: &Registry,
        name: &str,
        mut opening: Opening,
    ) -> Result<(Arc<Served>, Durability), DurableError> {
        let opened = Opened::of(self)?;
        let clock = Arc::new(RecoveryClock::new(Arc::clone(&self.clock)));
        clock.release(0);
        opening.change_feed = Some(true);
        opening.options = opening.options.change_feed(true).clock(clock.clone());
        let mut origin = Origin::Attached;
        if is_missing(registry, name)? {
            // It lost its name while it was given a feed.
            opening.options.complete_upgrade(registry, name)?;
        }
        if is_missing(registry, name)? {
            let (rebuilt, wall_ms) = self.rebuild(registry, name, &opening.options, &opened)?;
            clock.release(wall_ms);
            origin = rebuilt;
        }
        let mut served = match opening.open(registry, name) {
            Err(ServeError::NotFed { .. }) if journaled(&*opened.directory)?.is_none() => {
                give_feed(registry, name, &opening.options)?;
                opening.open(registry, name)?
            }
            Err(ServeError::NotFed { .. }) => return Err(Unpaired::Stranger.into()),
            served => served?,
        };
        let mut feed = served.change_feed()?;
        if self.verdict(&served, &feed, &opened)? == Verdict::Rebuild {
            // It holds nothing: another program made it, or this opening has replaced a damaged
            // one.
            drop((feed, served));
            registry.remove_segment(name)?;
            let (rebuilt, wall_ms) = self.rebuild(registry, name, &opening.options, &opened)?;
            clock.release(wall_ms);
            origin = rebuilt;
            served = opening.open(registry, name)?;
            feed = served.change_feed()?;
            if self.verdict(&served, &feed, &opened)? == Verdict::Rebuild {
                return Err(DurableError::Replaced {
                    name: name.to_owned(),
                });
            }
        }
        self.begin(served, feed, opened, origin, clock)
    }

    fn verdict(
        &self,
        served: &Served,
        feed: &ChangeFeed,
        opened: &Opened,
    ) -> Result<Verdict, DurableError> {
        if !served.is_volatile() {
            return Err(DurableError::NotMemory);
        }
        let note = Note::of(feed)?;
        let directory = &*opened.directory;
        let verdict = judge(note, holds_nothing(served), journaled(directory)?)?;
        if verdict == Verdict::Paired && !holds_stream(directory, feed.durable())? {
            return Err(Unpaired::Behind.into());
        }
        Ok(verdict)
    }

    /// Begins a run of the journal behind what the segment's feed says is durable.
    fn begin(
        &self,
        served: Served,
        mut feed: ChangeFeed,
        opened: Opened,
        origin: Origin,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Served>, Durability), DurableError> {
        let found = journaled(&*opened.directory)?;
        let mut note = Note::of(&feed)?;
        if found.is_none() && !holds_nothing(&served) && feed.durable() == 0 {
            // A journal that begins behind zero needs a base file. What was loaded into the segment
            // is in no entry, so it needs one.
            feed.restart_at(FIRST)?;
        }
        if note.is_blank() {
            Note::write(&mut feed, draw_identity()?, 0)?;
            note = Note::of(&feed)?;
        }
        let last = found.and_then(|found| found.last).map_or(0, |run| run.id);
        note.confirm(&mut feed, last)?;
        let run = draw_run()?;
        note.begin(&mut feed, run)?;
        mneme_sys::fault!("durable.serve.noted");
        let base = newest_base(&*opened.directory)?.map(|(_, base)| base);
        let follows = base.as_ref().map(BaseReader::runs).cloned();
        let options = Options {
            run: Some(run),
            follows: follows.unwrap_or_default(),
            // The next recovery finds the time, though the machine may have lost it.
            clock,
            ..self.journal_options(note.identity(), feed.capacity())
        };
        let at = feed.durable();
        let journal = Journal::open(Arc::clone(&opened.directory), options, Position::new(at))?;
        mneme_sys::fault!("durable.serve.begun");
        note.confirm(&mut feed, run)?;
        mneme_sys::fault!("durable.serve.confirmed");
        let served = Arc::new(served);
        let home = Home::Served(Arc::clone(&served));
        let needs_base = base.is_none() && journal.first().get() > 0;
        let base = base.map_or(0, |base| base.begin().get());
        let shared = Shared::new(home, self.policy, at, base, feed.capacity());
        if feed.tail() != at {
            shared.forget_clean();
        }
        let shared = Arc::new(shared);
        let parts = Parts {
            source: Source::of(&shared, &opened.directory, &journal),
            shared,
            feed,
            sink: Box::new(journal),
            opened,
            origin: if needs_base { Origin::Adopted } else { origin },
        };
        let durability = Durability::start(parts, Arc::clone(&self.clock), self.bounds)?;
        // What is evicted for it is entered into the feed.
        served.return_to_capacity()?;
        if needs_base {
            // Until it is there the directory holds no store.
            durability.checkpoint_and_wait()?;
        }
        Ok((served, durability))
    }

    /// Builds the segment from the directory, or an empty one. Returns the latest time that is
    /// known.
    fn rebuild(
        &self,
        registry: &Registry,
        name: &str,
        options: &StoreOptions,
        opened: &Opened,
    ) -> Result<(Origin, u64), DurableError> {
        let loading = format!("{name}{LOADING}");
        discard(registry, &loading)?;
        let built = self.load(registry, &loading, options, opened);
        if built.is_err() {
            // It would be discarded by the next try; until then it takes memory.
            let _ = registry.remove_segment(&loading);
        }
        let built = built?;
        mneme_sys::fault!("durable.serve.loaded");
        registry.rename_segment(&loading, name)?;
        mneme_sys::fault!("durable.serve.named");
        Ok(built)
    }

    fn load(
        &self,
        registry: &Registry,
        loading: &str,
        options: &StoreOptions,
        opened: &Opened,
    ) -> Result<(Origin, u64), DurableError> {
        let directory = &*opened.directory;
        let files = Files::look(directory)?;
        let (identity, wall_ms) = (files.identity, files.wall_ms);
        let last = journaled(directory)?.and_then(|found| found.last);
        let clock = Arc::new(RecoveryClock::new(Arc::clone(&self.clock)));
        let options = options.clone().maintainer(false).clock(clock);
        let store = options.create_loading(registry, loading)?;
        mneme_sys::fault!("durable.serve.loading");
        let mut feed = store.change_feed()?;
        let evict = pause_eviction(&store)?;
        let (end, progress) = files.load(directory, &store, self.progress.as_ref(), evict)?;
        store.set_eviction(evict)?;
        feed.restart_at(end)?;
        let origin = match identity {
            Some(identity) => {
                Note::write(&mut feed, identity, last.map_or(0, |run| run.id))?;
                Origin::Rebuilt(progress)
            }
            None => Origin::Created,
        };
        Ok((origin, wall_ms))
    }
}

/// Whether there is no segment of that name, or only the name of one that ended with an earlier
/// boot.
fn is_missing(registry: &Registry, name: &str) -> Result<bool, DurableError> {
    // The second is there while it is given a feed.
    for name in [name, &format!("{name}.old")] {
        if matches!(
            Segment::open(registry, name),
            Err(OpenError::DataGone { .. })
        ) {
            registry.clean()?;
        }
    }
    Ok(matches!(
        Segment::open(registry, name),
        Err(OpenError::NotFound { .. })
    ))
}

/// Removes what an earlier try has left.
fn discard(registry: &Registry, loading: &str) -> Result<(), DurableError> {
    match registry.remove_segment(loading) {
        Ok(()) | Err(RemoveError::NotFound { .. }) => Ok(()),
        Err(refused) => Err(refused.into()),
    }
}

/// Lays a segment out anew that has no change feed. It is kept as `NAME.old`.
fn give_feed(registry: &Registry, name: &str, options: &StoreOptions) -> Result<(), DurableError> {
    let present = SharedStore::attach(registry, name).map_err(ServeError::from)?;
    let (capacity, policy) = (present.capacity(), present.update_policy());
    drop(present);
    let options = options.clone().capacity(capacity).update_policy(policy);
    options.upgrade(registry, name)?;
    Ok(())
}

/// Whether nothing was ever written to the store.
fn holds_nothing(served: &Served) -> bool {
    served.records() == 0 && served.feed_tail() == Some(0)
}

/// What the headers of a directory say; `None`: it holds no store. A backup alone is one.
fn journaled(directory: &dyn Directory) -> Result<Option<Journaled>, DurableError> {
    let nowhere = Position::new(0);
    let reader = Reader::between(directory, nowhere, nowhere)?;
    if let Some(identity) = reader.identity() {
        let last = reader.runs().last();
        return Ok(Some(Journaled { identity, last }));
    }
    let base = newest_base(directory)?;
    Ok(base.map(|(_, base)| Journaled {
        identity: base.identity(),
        last: base.runs().last(),
    }))
}

/// Whether a directory holds the stream up to `at`, where a living segment goes on.
fn holds_stream(directory: &dyn Directory, at: u64) -> Result<bool, DurableError> {
    let at = Position::new(at);
    if reaches(directory, at)? {
        return Ok(true);
    }
    let base = newest_base(directory)?.map(|(_, base)| base.read_ahead());
    Ok(base.transpose()?.is_some_and(|(_, suffix)| suffix == at))
}
