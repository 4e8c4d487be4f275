//! Decides when a base file is due, and writes one at a time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use mneme_journal::BaseName;
use mneme_tree::Scrub;

use crate::DurableError;
use crate::checkpoint::{BaseSource, Checkpoint, CheckpointReport, Stage};
use crate::compare::compare_files;
use crate::gate::{GateState, THREAD_SECONDS, lock};
use crate::options::{Bounds, DurabilityMode};

/// How often the keeper checks whether a base file is due.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes of a tree that each such check verifies in the background.
const SCRUBBED: u64 = 256 << 10;

/// The longest pause after a base file could not be written.
const LONGEST: Duration = Duration::from_secs(60);

/// How long a finished base file waits between two looks at the journal's position.
const WAIT: Duration = Duration::from_millis(1);

/// The longest wait for the change, or group of changes, of one thread, in nanoseconds.
const THREAD_NS: u64 = THREAD_SECONDS as u64 * 1_000_000_000;

/// Statistics of the checkpoints of a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointStats {
    /// Records and bytes of the checkpoint that is being written; `None`: none is being written.
    pub running: Option<(u64, u64)>,
    /// Checkpoints published since the store was opened, backups included.
    pub published: u64,
    /// Checkpoints that failed.
    pub failed: u64,
    /// The last published checkpoint.
    pub last: Option<CheckpointReport>,
    /// When it was published, in milliseconds since 1970; 0: never.
    pub last_wall_ms: u64,
    /// The value of the [mark](crate::Durability::mark_checkpoints) when the last published
    /// checkpoint began; 0: none was published.
    pub last_mark: u64,
    /// How long the last one took, published or not, in nanoseconds.
    pub last_ns: u64,
    /// Why the last one failed; empty if it did not.
    pub why: String,
    /// Bytes of the journal behind the newest base file's begin.
    pub journal_bytes: u64,
}

/// Statistics of the background walk that compares a tree's checksums.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubStats {
    /// Bytes that were read.
    pub bytes: u64,
    /// Complete walks.
    pub rounds: u64,
    /// Damaged places found since the store was opened; each counts once a walk.
    pub damaged: u64,
    /// A description of the last damaged place; empty if there was none.
    pub why: String,
}

/// Decides when checkpoints are due and writes them; one per open store.
pub(crate) struct Keeper {
    source: BaseSource,
    bounds: Bounds,
    /// Held while a checkpoint is written.
    busy: Mutex<()>,
    stats: Mutex<CheckpointStats>,
    asked: AtomicBool,
    /// The loaded store exceeds its capacity, and shrinks to it as soon as it accepts writes.
    owes_capacity: AtomicBool,
    wake: Condvar,
    waiting: Mutex<()>,
    closing: AtomicBool,
    /// Read when a checkpoint begins.
    mark: OnceLock<Mark>,
    scrub: Mutex<(Scrub, ScrubStats)>,
}

/// A number that the caller supplies.
pub(crate) type Mark = Box<dyn Fn() -> u64 + Send + Sync>;

impl Keeper {
    /// `base`: where the newest base file begins; without one, where the journal does.
    pub fn new(source: BaseSource, bounds: Bounds) -> Self {
        Self {
            source,
            bounds,
            busy: Mutex::new(()),
            stats: Mutex::default(),
            asked: AtomicBool::new(false),
            owes_capacity: AtomicBool::new(false),
            wake: Condvar::new(),
            waiting: Mutex::new(()),
            closing: AtomicBool::new(false),
            mark: OnceLock::new(),
            scrub: Mutex::default(),
        }
    }

    /// Sets the function that is called when a checkpoint begins. Only the first call has an
    /// effect.
    pub fn mark(&self, mark: Mark) {
        let _ = self.mark.set(mark);
    }

    /// The form in which the store is kept.
    pub fn mode(&self) -> DurabilityMode {
        match &self.source.tree {
            Some(_) => DurabilityMode::Tree,
            None => DurabilityMode::Journal,
        }
    }

    /// The statistics. A requested checkpoint counts as running, so that a caller that waits for it
    /// does not conclude that it is over before it has begun.
    pub fn stats(&self) -> CheckpointStats {
        let kept = lock(&self.stats);
        let mut stats = kept.clone();
        // SYNC: pairs with the Release in `ask`.
        if stats.running.is_none() && self.asked.load(Acquire) {
            stats.running = Some((0, 0));
        }
        drop(kept);
        stats.journal_bytes = self.source.since_base();
        stats
    }

    /// Requests a checkpoint. Returns false if one is being written.
    pub fn ask(&self) -> bool {
        let stats = lock(&self.stats);
        // SYNC: pairs with the Acquire loads in `stats` and `run`.
        if stats.running.is_some() || self.asked.swap(true, Release) {
            return false;
        }
        drop(stats);
        self.notify();
        true
    }

    /// Makes the store return to its capacity as soon as it accepts writes.
    pub fn owe_capacity(&self) {
        // Relaxed: nothing else is read by it.
        self.owes_capacity.store(true, Relaxed);
    }

    fn pay_capacity(&self) {
        let shared = &self.source.shared;
        if self.owes_capacity.load(Relaxed) && shared.state() == GateState::Open {
            self.owes_capacity.store(false, Relaxed);
            // If the store may not evict that much, it refuses writes until it holds less.
            let _ = shared.home.return_to_capacity();
        }
    }

    fn notify(&self) {
        drop(lock(&self.waiting));
        self.wake.notify_all();
    }

    pub fn close(&self) {
        // SYNC: pairs with the Acquire in `is_closing`.
        self.closing.store(true, Release);
        self.notify();
    }

    fn is_closing(&self) -> bool {
        // SYNC: pairs with the Release in `close`.
        self.closing.load(Acquire)
    }

    /// The main loop of the thread.
    pub fn run(&self) {
        let mut wait = LOOK;
        while !self.is_closing() {
            self.pay_capacity();
            self.scrub();
            // SYNC: pairs with the Release in `ask`.
            if self.asked.load(Acquire) || self.is_due() {
                // The statistics record how it ended.
                wait = match self.write(&BaseName::Checkpoint) {
                    Ok(_) => LOOK,
                    // Retrying quickly could make the cause worse.
                    Err(_) => (wait * 2).min(LONGEST),
                };
            }
            if !self.asked.load(Acquire) {
                self.pause(wait);
            }
        }
    }

    /// Waits for `time`; ends early if the store is being closed.
    fn pause(&self, time: Duration) {
        let waiting = lock(&self.waiting);
        if !self.is_closing() {
            let woken = self.wake.wait_timeout(waiting, time);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Verifies the next part of the tree. Damage should be found while memory still holds the
    /// records.
    fn scrub(&self) {
        let Some(tree) = &self.source.tree else {
            return;
        };
        let (walk, stats) = &mut *lock(&self.scrub);
        match tree.scrub(walk, SCRUBBED) {
            Ok(read) => stats.bytes += read,
            Err(error) if error.is_damage() => {
                stats.damaged += 1;
                stats.why = mneme_sys::with_causes(&error);
            }
            // Nothing was read, for example because no slot was free.
            Err(_) => {}
        }
        stats.rounds = walk.rounds();
    }

    /// The results of the verification so far.
    pub fn scrubbed(&self) -> ScrubStats {
        lock(&self.scrub).1.clone()
    }

    /// The length of the journal at which the next checkpoint is due.
    fn bound(&self) -> u64 {
        let live = self.source.shared.home.stats().live_bytes;
        self.bounds.journal.max(live.saturating_mul(2))
    }

    fn is_due(&self) -> bool {
        if self.source.tree.is_some() {
            return false;
        }
        let shared = &self.source.shared;
        // A checkpoint that begins where the last one did would release nothing. A change that is
        // still being entered in pieces can cause that.
        if shared.clean().is_some_and(|clean| clean <= shared.base()) {
            return false;
        }
        // Openings and small groups use up files that hold little of the stream. Two files always
        // exist.
        let files = shared.files().saturating_sub(2) * self.source.options.file_bytes;
        let since = shared.since_base().max(files);
        // The store's size matters only if the journal is long enough in any case.
        since >= self.bounds.journal && since >= self.bound()
    }

    /// Compares the files with the store. No base file is written and no file is removed meanwhile.
    pub fn compare_files(&self) -> Result<u64, DurableError> {
        let _busy = lock(&self.busy);
        // Files that are being removed would be missed, as in a backup.
        self.source.shared.await_removed();
        compare_files(&self.source, &|| match self.is_closing() {
            true => Err(DurableError::Closing),
            false => Ok(()),
        })
    }

    /// Writes a base file and waits until it is published.
    pub fn write(&self, name: &BaseName) -> Result<CheckpointReport, DurableError> {
        let _busy = lock(&self.busy);
        let clock = &self.source.options.clock;
        let begun = clock.now_ns();
        // Read before the file begins: a change made from now on may be in the file, but counts as
        // not included.
        let mark = self.mark.get().map_or(0, |mark| mark());
        let mut stats = lock(&self.stats);
        stats.running = Some((0, 0));
        if matches!(name, BaseName::Checkpoint) {
            // This is the requested checkpoint. `stats` reads both under the same lock.
            self.asked.store(false, Release);
        }
        drop(stats);
        let written = self.write_one(name);
        self.source.shared.set_slowed(false);
        let mut stats = lock(&self.stats);
        stats.running = None;
        stats.last_ns = clock.now_ns().saturating_sub(begun);
        match &written {
            Ok(report) => {
                stats.published += 1;
                stats.last = Some(*report);
                stats.last_wall_ms = clock.wall_ms();
                stats.last_mark = mark;
                stats.why.clear();
            }
            Err(error) => {
                stats.failed += 1;
                stats.why = mneme_sys::with_causes(error);
            }
        }
        written
    }

    fn write_one(&self, name: &BaseName) -> Result<CheckpointReport, DurableError> {
        if self.source.tree.is_some() && *name == BaseName::Checkpoint {
            return self.await_commit();
        }
        // A backup reads the journal beside its thread, and would miss files that are being
        // removed.
        self.source.shared.await_removed();
        let begin = self.await_clean()?;
        let mut checkpoint = Checkpoint::begin(self.source.clone(), name, begin)?;
        if let Err(error) = self.fill(&mut checkpoint) {
            // The next checkpoint removes any remains.
            let _ = checkpoint.discard();
            return Err(error);
        }
        checkpoint.finish()
    }

    /// The checkpoint of a tree is a commit that contains everything written before this call.
    fn await_commit(&self) -> Result<CheckpointReport, DurableError> {
        let shared = &self.source.shared;
        let (records, tail) = (shared.home.records(), shared.tail());
        shared.await_durable(tail)?;
        Ok(CheckpointReport {
            begin: tail,
            read: tail,
            records,
            bytes: 0,
        })
    }

    /// Returns where the file begins. If the feed continued after an unclean position, this waits
    /// for a clean one.
    fn await_clean(&self) -> Result<u64, DurableError> {
        let shared = &self.source.shared;
        if self.source.tree.is_some() {
            // The commit that is backed up must contain everything written before this call.
            shared.await_durable(shared.tail())?;
        }
        loop {
            if let Some(clean) = self.source.clean() {
                return Ok(clean);
            }
            if self.is_closing() {
                return Err(DurableError::Closing);
            }
            shared.await_durable(shared.tail())?;
            if shared.state() != GateState::Open {
                return Err(DurableError::NotDurable {
                    durable: shared.durable(),
                    why: shared.why(),
                });
            }
            self.pause(WAIT);
        }
    }

    /// Writes until the file may be published.
    fn fill(&self, checkpoint: &mut Checkpoint) -> Result<(), DurableError> {
        let shared = &self.source.shared;
        let clock = &self.source.options.clock;
        let (begun, mut counted, bound) = (clock.now_ns(), 0u64, self.bound());
        // The durable position at which progress stopped, and the time.
        let mut still = None;
        loop {
            if self.is_closing() {
                return Err(DurableError::Closing);
            }
            match checkpoint.step()? {
                Stage::Wrote(bytes) => {
                    lock(&self.stats).running = Some((checkpoint.records(), checkpoint.bytes()));
                    // What the directory holds beyond the base file that this one will replace.
                    let held = self.source.since_base() + checkpoint.bytes();
                    shared.set_slowed(held > bound.saturating_mul(2));
                    counted += bytes;
                    let due = u128::from(counted) * 1_000_000_000 / u128::from(self.bounds.rate);
                    let took = clock.now_ns().saturating_sub(begun);
                    let ahead = (due as u64).saturating_sub(took);
                    // If the checkpoint is behind schedule, its rate is not limited.
                    if ahead > 0 && held <= bound.saturating_add(bound / 2) {
                        self.pause(Duration::from_nanos(ahead));
                    }
                }
                Stage::Waits => {
                    let (durable, now) = (shared.durable(), clock.now_ns());
                    let awaited = checkpoint.awaited_thread();
                    let since = match still {
                        Some((at, since)) if at == durable && awaited.is_some() => since,
                        _ => now,
                    };
                    if let Some(why) = awaited
                        && now.saturating_sub(since) >= THREAD_NS
                    {
                        return Err(shared.stands_still(why));
                    }
                    still = Some((durable, since));
                    self.pause(WAIT);
                }
                Stage::Ready => return Ok(()),
            }
        }
    }
}
