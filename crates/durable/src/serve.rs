//! A server's store: a named segment and a directory that belong together.

use std::sync::Arc;
use std::time::Duration;

use mneme_journal::Options;
use mneme_log::ChangeFeed;
use mneme_shared::{Opening, Registry, Segment, ServeError, Served, SharedStore, StoreOptions};
use mneme_space::{Name, OpenError, RemoveError};
use mneme_sys::Clock;

use crate::DurableError;
use crate::directory::Opened;
use crate::disk::Disk;
use crate::durability::{Durability, OpenedParts, Origin};
use crate::gate::SharedGate;
use crate::home::StoreHome;
use crate::options::DurableOptions;
use crate::pairing::{Note, Unpaired, Verdict, judge};
use crate::recover::RecoveryClock;
use crate::restore::refuse_beside_backups;
use crate::store::{draw_identity, draw_run, pause_eviction};

/// The suffix of a segment's name while it is rebuilt.
const LOADING: &str = "loading";
/// How often renaming a rebuilt segment is tried while another process examines it, and the pause
/// between attempts.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// Where the journal of an adopted segment begins if the segment has no position yet.
const FIRST: u64 = 8;

impl DurableOptions {
    /// Opens the store of that name for serving, and makes it durable in the directory.
    ///
    /// If the segment exists and belongs to the directory, it is attached with its content, and the
    /// journal continues at the durable position of its change feed. If there is no segment, it is
    /// rebuilt from the directory as `NAME~loading`, and renamed when it is complete. A segment and
    /// a directory with different histories are refused.
    ///
    /// The change feed and the clock of these options replace those of `opening`. Nothing else may
    /// open the segment for writing.
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
        let mut disk = Disk::open(&opened, self.mode)?;
        let clock = Arc::new(RecoveryClock::new(Arc::clone(&self.clock)));
        clock.release(0);
        opening.change_feed = Some(true);
        opening.options = opening.options.change_feed(true).clock(clock.clone());
        let mut origin = Origin::Attached;
        // The segment without a feed, which is kept until the directory holds the store.
        let mut old = None;
        if is_missing(registry, name)? {
            // An earlier opening died while it gave the segment a feed, and left it without its
            // name.
            let completed = opening.options.complete_upgrade(registry, name)?;
            old = completed.map(|upgraded| upgraded.old);
        }
        if is_missing(registry, name)? {
            let (rebuilt, wall_ms) =
                self.rebuild(registry, name, &opening.options, (&opened, &mut disk))?;
            clock.release(wall_ms);
            origin = rebuilt;
        }
        let mut served = match opening.open(registry, name) {
            Err(ServeError::NotFed { .. }) if disk.journaled(&*opened.directory)?.is_none() => {
                old = Some(give_feed(registry, name, &opening.options)?);
                opening.open(registry, name)?
            }
            Err(ServeError::NotFed { .. }) => return Err(Unpaired::Stranger.into()),
            served => served?,
        };
        let mut feed = served.change_feed()?;
        if self.verdict(&served, &feed, (&opened, &disk), &clock)? == Verdict::Rebuild {
            // The segment is empty: another program created it, or this opening has replaced a
            // damaged segment.
            drop((feed, served));
            registry.remove_segment(name)?;
            let (rebuilt, wall_ms) =
                self.rebuild(registry, name, &opening.options, (&opened, &mut disk))?;
            clock.release(wall_ms);
            origin = rebuilt;
            served = opening.open(registry, name)?;
            feed = served.change_feed()?;
            if self.verdict(&served, &feed, (&opened, &disk), &clock)? == Verdict::Rebuild {
                return Err(DurableError::Replaced {
                    name: name.to_owned(),
                });
            }
        }
        let begun = self.begin(served, feed, (opened, disk), origin, clock)?;
        if let Some(old) = old {
            // It stays if a reader has it attached.
            let _ = registry.remove_segment(&old);
        }
        Ok(begun)
    }

    /// Decides whether segment and directory belong together. If they do, the clock is set so that
    /// it is never behind the directory's last change.
    fn verdict(
        &self,
        served: &Served,
        feed: &ChangeFeed,
        (opened, disk): (&Opened, &Disk),
        clock: &RecoveryClock,
    ) -> Result<Verdict, DurableError> {
        if !served.is_volatile() {
            return Err(DurableError::NotMemory);
        }
        let note = Note::of(feed)?;
        let directory = &*opened.directory;
        let verdict = judge(note, holds_nothing(served), disk.journaled(directory)?)?;
        if verdict == Verdict::Adopt && holds_nothing(served) {
            refuse_beside_backups(opened)?;
        }
        if verdict == Verdict::Paired {
            let last = disk.holds_stream(directory, feed.durable())?;
            clock.release(last.ok_or(Unpaired::Behind)?);
        }
        Ok(verdict)
    }

    /// Begins a run of the journal after the durable position of the segment's feed.
    fn begin(
        &self,
        served: Served,
        mut feed: ChangeFeed,
        (opened, disk): (Opened, Disk),
        origin: Origin,
        clock: Arc<dyn Clock>,
    ) -> Result<(Arc<Served>, Durability), DurableError> {
        let found = disk.journaled(&*opened.directory)?;
        let mut note = Note::of(&feed)?;
        if found.is_none() && !holds_nothing(&served) && feed.durable() == 0 {
            // A journal that does not begin at zero needs a base file. So does a segment into which
            // a store was loaded, because the feed has no entries of the load.
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
        let options = Options {
            run: Some(run),
            // The next recovery needs the time, because the machine may have lost it.
            clock,
            ..self.journal_options(note.identity(), feed.capacity())
        };
        let adopts = found.is_none() && !holds_nothing(&served);
        let begun = disk.begin(&opened, options, &served, &mut feed)?;
        let at = feed.durable();
        mneme_sys::fault!("durable.serve.begun");
        if begun.sink.has_begun() {
            note.confirm(&mut feed, run)?;
        }
        mneme_sys::fault!("durable.serve.confirmed");
        let served = Arc::new(served);
        let home = StoreHome::Served(Arc::clone(&served));
        let needs_base = begun.needs_base;
        let shared = SharedGate::new(home, self.policy, at, begun.base, feed.capacity());
        if feed.tail() != at || !begun.sink.has_begun() {
            shared.forget_clean();
        }
        let origin = match needs_base || adopts {
            true => Origin::Adopted,
            false => origin,
        };
        let parts = OpenedParts::new(shared, feed, begun, opened, origin);
        let durability = Durability::start(parts, Arc::clone(&self.clock), self.bounds())?;
        durability.return_to_capacity()?;
        if needs_base {
            // Without a base file the directory holds no store.
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
        (opened, disk): (&Opened, &mut Disk),
    ) -> Result<(Origin, u64), DurableError> {
        let named = |refused| DurableError::Rename(RemoveError::Name(refused));
        let loading = Name::of_new(name).and_then(|name| name.beside(LOADING));
        let loading = loading.map_err(named)?;
        discard(registry, &loading)?;
        self.salvage(registry, name, (opened, disk))?;
        let built = self.load(registry, loading.as_str(), options, (opened, disk));
        if built.is_err() {
            // The next attempt would discard it; until then it would take memory.
            let _ = registry.remove_leftover(&loading);
        }
        let built = built?;
        mneme_sys::fault!("durable.serve.loaded");
        rename(registry, loading.as_str(), name).map_err(DurableError::Rename)?;
        mneme_sys::fault!("durable.serve.named");
        Ok(built)
    }

    fn load(
        &self,
        registry: &Registry,
        loading: &str,
        options: &StoreOptions,
        (opened, disk): (&Opened, &mut Disk),
    ) -> Result<(Origin, u64), DurableError> {
        let directory = &*opened.directory;
        let last = disk.journaled(directory)?.and_then(|found| found.last);
        let contents = disk.look(directory)?;
        let identity = contents.identity();
        if identity.is_none() {
            refuse_beside_backups(opened)?;
        }
        let clock = Arc::new(RecoveryClock::new(Arc::clone(&self.clock)));
        let options = options.clone().maintainer(false).clock(clock);
        let store = options.create_loading(registry, loading)?;
        mneme_sys::fault!("durable.serve.loading");
        let mut feed = store.change_feed()?;
        let evict = pause_eviction(&store)?;
        let loaded = contents.load(directory, &store, self.progress.as_deref(), evict)?;
        store.set_eviction(evict)?;
        feed.restart_at(loaded.end)?;
        let origin = match identity {
            Some(identity) => {
                Note::write(&mut feed, identity, last.map_or(0, |run| run.id))?;
                Origin::Rebuilt(loaded.progress)
            }
            None => Origin::Created,
        };
        Ok((origin, loaded.wall_ms))
    }
}

/// Whether no segment of that name exists, or only a name left over from an earlier boot.
fn is_missing(registry: &Registry, name: &str) -> Result<bool, DurableError> {
    // The second name exists while the segment is given a feed.
    for name in [name, &format!("{name}~old")] {
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

/// Removes the remains of an earlier attempt.
fn discard(registry: &Registry, loading: &Name) -> Result<(), DurableError> {
    match registry.remove_leftover(loading) {
        Ok(()) | Err(RemoveError::NotFound { .. }) => Ok(()),
        Err(refused) => Err(refused.into()),
    }
}

/// Gives the rebuilt segment its name. Any process may briefly examine a segment, which makes the
/// rename fail; this waits, because loading again would take longer.
fn rename(registry: &Registry, loading: &str, name: &str) -> Result<(), RemoveError> {
    let mut tries = 0..TRIES;
    loop {
        match registry.rename_segment(loading, name) {
            Err(RemoveError::InUse { .. }) if tries.next().is_some() => {
                std::thread::sleep(PAUSE);
            }
            renamed => return renamed,
        }
    }
}

/// Lays a segment without a change feed out anew, with one. Returns the name under which the old
/// one is kept.
fn give_feed(
    registry: &Registry,
    name: &str,
    options: &StoreOptions,
) -> Result<String, DurableError> {
    let present = SharedStore::administer(registry, name).map_err(ServeError::from)?;
    let (capacity, policy) = (present.capacity(), present.update_policy());
    drop(present);
    let options = options.clone().capacity(capacity).update_policy(policy);
    Ok(options.upgrade(registry, name)?.old)
}

/// Whether the store has never been written to.
fn holds_nothing(served: &Served) -> bool {
    served.records() == 0 && served.feed_tail() == Some(0)
}
