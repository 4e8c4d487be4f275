//! [`Durability`]: keeps one open store durable; owns the thread that does.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use mneme_journal::{BaseName, JournalStats};
use mneme_log::{ChangeFeed, FeedError, SlotError};
use mneme_sys::Clock;

use crate::DurableError;
use crate::checkpoint::{BaseSource, CheckpointReport};
use crate::checkpoint_schedule::{CheckpointStats, Keeper, ScrubStats};
use crate::directory::Opened;
use crate::disk::BegunRun;
use crate::gate::{Gate, GateState, SharedGate, lock};
use crate::options::{Bounds, DurabilityMode, RecoveryProgress, SyncPolicy};
use crate::pump::{Pump, PumpPace, Synced};
use crate::sink::Sink;

/// A sync shorter than this, in nanoseconds, takes less time than handing over to another thread
/// and back.
const SHORT: u64 = 20_000;
/// How often a thread that wants a short sync checks whether another thread's sync has ended.
const TRIES: u32 = 200;

/// Keeps the changes of one open store durable with a thread of its own. Dropping it performs a
/// last sync; [`close`](Self::close) also reports whether that succeeded.
pub struct Durability {
    shared: Arc<SharedGate>,
    stepping: Arc<Stepping>,
    thread: Option<JoinHandle<Result<(), DurableError>>>,
    keeper: Arc<Keeper>,
    keeping: Option<JoinHandle<()>>,
    opened: Opened,
    origin: Origin,
}

/// Where the content of a durable store came from when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// There was no content: the store was created empty.
    Created,
    /// The segment existed, with all its content.
    Attached,
    /// The segment existed and the directory was empty: all content was written to the directory.
    Adopted,
    /// The store was rebuilt from the files.
    Rebuilt(RecoveryProgress),
}

/// An open store whose threads have not been started.
pub(crate) struct OpenedParts {
    pub shared: Arc<SharedGate>,
    pub feed: ChangeFeed,
    pub sink: Box<dyn Sink>,
    /// The source of its base files.
    pub source: BaseSource,
    pub opened: Opened,
    pub origin: Origin,
}

impl OpenedParts {
    pub fn new(
        shared: SharedGate,
        feed: ChangeFeed,
        begun: BegunRun,
        opened: Opened,
        origin: Origin,
    ) -> Self {
        let shared = Arc::new(shared);
        let source = BaseSource {
            shared: Arc::clone(&shared),
            directory: Arc::clone(&opened.directory),
            options: begun.options,
            runs: begun.runs,
            tree: begun.tree,
        };
        Self {
            shared,
            feed,
            sink: begun.sink,
            source,
            opened,
            origin,
        }
    }
}

/// The state that the pump reports.
#[derive(Debug, Clone, Copy)]
struct Seen {
    journal: JournalStats,
    first: u64,
    synced: Synced,
}

impl Seen {
    fn of(pump: &Pump) -> Self {
        Self {
            journal: pump.sink().stats(),
            first: pump.sink().first(),
            synced: pump.synced(),
        }
    }
}

/// Statistics of a durable store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilityStats {
    /// Whether it accepts writes.
    pub state: GateState,
    /// The reason, if it does not; otherwise empty.
    pub why: String,
    /// The policy.
    pub policy: SyncPolicy,
    /// The form in which it is kept.
    pub mode: DurabilityMode,
    /// Everything before this position is durable.
    pub durable: u64,
    /// Bytes written and not durable yet.
    pub pending: u64,
    /// Capacity of the change feed in bytes.
    pub feed_capacity: u64,
    /// Where the oldest file of the journal begins.
    pub journal_first: u64,
    /// The journal's own counts.
    pub journal: JournalStats,
    /// Groups made durable since the store was opened.
    pub groups: u64,
    /// Total time of their syncs, in nanoseconds.
    pub sync_ns: u64,
    /// Time of the last sync, in nanoseconds.
    pub last_sync_ns: u64,
    /// Checkpoints and backups.
    pub checkpoints: CheckpointStats,
    /// Results of the background verification of a tree.
    pub scrub: ScrubStats,
}

impl std::fmt::Debug for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Durability")
            .field("durable", &self.shared.durable())
            .field("state", &self.shared.state())
            .finish_non_exhaustive()
    }
}

impl Durability {
    /// Starts the threads.
    pub(crate) fn start(
        parts: OpenedParts,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
    ) -> Result<Self, DurableError> {
        let OpenedParts {
            shared,
            feed,
            sink,
            source,
            opened,
            origin,
        } = parts;
        let keeper = Arc::new(Keeper::new(source, bounds));
        let mut pump = Pump::new(Arc::clone(&shared), feed, sink, clock);
        // Reserved before anything is written that could fill the disk.
        pump.prepare_all();
        let stepping = Arc::new(Stepping::new(pump));
        let (of_thread, stepped) = (Arc::clone(&shared), Arc::clone(&stepping));
        let thread = thread::Builder::new()
            .name("mneme-journal".to_owned())
            .spawn(move || run(&stepped, &of_thread))
            .map_err(|source| DurableError::Os {
                what: "start the journal's thread",
                source,
            })?;
        shared.set_pump(thread.thread().clone());
        let mut started = Self {
            shared,
            stepping,
            thread: Some(thread),
            keeper: Arc::clone(&keeper),
            keeping: None,
            opened,
            origin,
        };
        let keeping = thread::Builder::new()
            .name("mneme-checkpoint".to_owned())
            .spawn(move || keeper.run());
        started.keeping = Some(keeping.map_err(|source| DurableError::Os {
            what: "start the thread for checkpoints",
            source,
        })?);
        Ok(started)
    }

    /// Makes a loaded store shrink to its capacity. The necessary evictions go into the feed, which
    /// is not drained on a full disk; then the store shrinks once there is space.
    pub(crate) fn return_to_capacity(&self) -> Result<(), DurableError> {
        match self.shared.state() {
            GateState::Open => self.shared.home.return_to_capacity()?,
            _ => self.keeper.owe_capacity(),
        }
        Ok(())
    }

    /// Where the store's content came from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    pub(crate) fn shared(&self) -> &Arc<SharedGate> {
        &self.shared
    }

    /// A handle to the durable position.
    #[must_use]
    pub fn gate(&self) -> Gate {
        Gate::new(Arc::clone(&self.shared))
    }

    /// Waits until everything that any thread wrote before this call is durable. This includes
    /// changes that a thread is making together
    /// ([`LogStore::feed_together`](crate::LogStore::feed_together)) and changes written beside
    /// them: it waits until the group ends.
    ///
    /// # Errors
    /// [`DurableError::NotDurable`]: the disk fails or is full, a group of changes has been open
    /// for ten seconds, or a program is stopped within a change.
    /// [`DurableError::Together`]: the open group is this thread's own.
    /// [`DurableError::Feed`]: this is a forked child.
    pub fn sync(&self) -> Result<(), DurableError> {
        self.may_wait()?;
        let tail = self.shared.tail();
        self.stepping.lead(&self.shared, tail);
        self.shared.await_durable(tail)
    }

    /// Tries to make everything written before this call durable in the calling thread, if the last
    /// sync took less than 20 us: a hand-over to the journal's thread and back takes longer. It may
    /// not succeed, for example if another thread is syncing; [`Gate::ask`] makes the journal's
    /// thread do it. Costs a load if everything is durable already.
    pub fn try_sync(&self) {
        self.stepping.try_lead(&self.shared, self.shared.tail());
    }

    /// A thread with an open group would wait for itself, and a thread of a forked child for a
    /// thread that does not exist there.
    fn may_wait(&self) -> Result<(), DurableError> {
        let home = &self.shared.home;
        match home.may_take_part() {
            Err(forked @ SlotError::Forked) => Err(FeedError::Write(forked.into()).into()),
            _ if home.is_feeding_together() => Err(DurableError::Together),
            _ => Ok(()),
        }
    }

    /// Sets when writes become durable.
    pub fn set_policy(&self, policy: SyncPolicy) {
        self.shared.set_policy(policy);
    }

    /// Makes all writes durable, loads the files into a second store as a start after a power loss
    /// would, and compares the two. Returns the number of records. The second store takes as much
    /// memory again while this runs.
    ///
    /// No other thread of any process may change the store meanwhile. Until the end nothing is
    /// evicted, and expired records stay.
    ///
    /// # Errors
    /// [`DurableError::Differs`] names a record that differs; [`DurableError::Closing`] after
    /// [`end_checkpoints`](Self::end_checkpoints); otherwise as for [`sync`](Self::sync) and for a
    /// recovery.
    pub fn compare_files(&self) -> Result<u64, DurableError> {
        self.sync()?;
        self.keeper.compare_files()
    }

    /// Begins a checkpoint in the background: a base file from which the journal continues, so that
    /// older files can be removed.
    ///
    /// # Errors
    /// [`DurableError::Busy`]: one is being written.
    pub fn checkpoint(&self) -> Result<(), DurableError> {
        match self.keeper.ask() {
            true => Ok(()),
            false => Err(DurableError::Busy),
        }
    }

    /// Writes a checkpoint and waits for it. If one is being written, waits for that one first.
    ///
    /// # Errors
    /// The disk is full or fails, or the store is being closed. Everything that is durable stays
    /// durable.
    /// [`DurableError::Together`]: this thread has an open group, for which it would wait.
    pub fn checkpoint_and_wait(&self) -> Result<CheckpointReport, DurableError> {
        self.may_wait()?;
        self.keeper.write(&BaseName::Checkpoint)
    }

    /// Writes a base file that is kept under this name, replacing an earlier one of that name, and
    /// waits for it. It is complete without the journal. A name has 1 to 100 letters, digits, `_`,
    /// `-` and `.`.
    ///
    /// # Errors
    /// As for [`checkpoint_and_wait`](Self::checkpoint_and_wait); also if the name is not allowed.
    pub fn backup(&self, name: &str) -> Result<CheckpointReport, DurableError> {
        self.may_wait()?;
        self.keeper.write(&BaseName::Kept(name.to_owned()))
    }

    /// Sets a function that is called whenever a checkpoint or a backup begins;
    /// [`CheckpointStats`](crate::CheckpointStats) reports its value for the last one. A caller
    /// that returns a count of changes can tell how many were made since. Only the first call of
    /// this has an effect.
    pub fn mark_checkpoints(&self, mark: impl Fn() -> u64 + Send + Sync + 'static) {
        self.keeper.mark(Box::new(mark));
    }

    /// Stops a running checkpoint, backup or comparison unfinished, and prevents new ones, because
    /// the store is about to be closed.
    pub fn end_checkpoints(&self) {
        self.keeper.close();
    }

    /// The current statistics.
    #[must_use]
    pub fn stats(&self) -> DurabilityStats {
        let seen = *lock(&self.stepping.seen);
        // Read in this order, so that no difference is negative.
        let durable = self.shared.durable();
        let tail = self.shared.tail().max(durable);
        DurabilityStats {
            state: self.shared.state(),
            why: self.shared.why(),
            policy: self.shared.policy(),
            mode: self.keeper.mode(),
            durable,
            pending: tail - durable,
            feed_capacity: self.shared.feed_capacity,
            journal_first: seen.first,
            journal: seen.journal,
            groups: seen.synced.groups,
            sync_ns: seen.synced.total_ns,
            last_sync_ns: seen.synced.last_ns,
            checkpoints: self.keeper.stats(),
            scrub: self.keeper.scrubbed(),
        }
    }

    /// The descriptor that holds the directory's lock, for a process that takes the store over: see
    /// [`DurableOptions::lock`](crate::DurableOptions::lock). Hand it over before
    /// [`close`](Self::close); the successor uses it afterwards.
    #[must_use]
    pub fn directory_lock(&self) -> Option<BorrowedFd<'_>> {
        self.opened.lock()
    }

    /// Makes all writes durable and closes the journal.
    ///
    /// # Errors
    /// [`DurableError::NotDurable`], also if a change of another thread or program is still
    /// unfinished after a second: then nothing after it is durable. Otherwise what the journal
    /// reports.
    pub fn close(mut self) -> Result<(), DurableError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), DurableError> {
        self.keeper.close();
        // A backup in another thread holds a reference to this, so it has ended.
        if let Some(keeping) = self.keeping.take() {
            let _ = keeping.join();
        }
        self.shared.close();
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(closed)) => closed,
            Some(Err(_)) => Err(DurableError::NotDurable {
                durable: self.shared.durable(),
                why: "the journal's thread panicked".to_owned(),
            }),
        }
    }
}

impl Drop for Durability {
    fn drop(&mut self) {
        // The state records whether it failed.
        let _ = self.end();
    }
}

/// The pump, which one thread steps at a time: its own, or a thread that waits for a sync and finds
/// it idle.
struct Stepping {
    /// `None`: the pump is closed.
    pump: Mutex<Option<Pump>>,
    seen: Mutex<Seen>,
}

impl Stepping {
    fn new(pump: Pump) -> Self {
        Self {
            seen: Mutex::new(Seen::of(&pump)),
            pump: Mutex::new(Some(pump)),
        }
    }

    /// Locks the pump for the journal's thread. If a thread that led it has panicked, this panics
    /// too.
    fn pump(&self) -> MutexGuard<'_, Option<Pump>> {
        match self.pump.lock() {
            Ok(pump) => pump,
            Err(_) => panic!("the pump stopped within a step"),
        }
    }

    fn step(&self, pump: &mut Option<Pump>) -> PumpPace {
        let Some(pump) = pump else {
            return PumpPace::Over;
        };
        let pace = pump.step();
        *lock(&self.seen) = Seen::of(pump);
        pace
    }

    /// Takes the next step in the calling thread, which wants everything before `position` durable,
    /// unless another thread is stepping the pump. A hand-over to the pump's thread and back often
    /// takes longer than a sync.
    fn lead(&self, shared: &SharedGate, position: u64) {
        let Ok(mut pump) = self.pump.try_lock() else {
            return;
        };
        if pump.as_ref().is_some_and(Pump::may_be_led) && shared.want(position) {
            self.step(&mut pump);
            drop(pump);
            hand_back(shared, position);
        }
    }

    /// Makes everything before `position` durable in the calling thread, if that takes a short
    /// time.
    fn try_lead(&self, shared: &SharedGate, position: u64) {
        let mut tries = 0..TRIES;
        while shared.durable() < position && tries.next().is_some() {
            let Ok(mut pump) = self.pump.try_lock() else {
                std::hint::spin_loop();
                continue;
            };
            if let Some(open) = &mut *pump
                && shared.durable() < position
                && open.synced().last_ns < SHORT
                && open.may_be_led()
                // If writers must be slowed down, that is left to the pump's own thread.
                && !shared.is_slowed()
            {
                shared.want(position);
                open.commit();
                *lock(&self.seen) = Seen::of(open);
                drop(pump);
                hand_back(shared, position);
            }
            return;
        }
    }
}

/// Wakes the journal's thread if a thread that led has not made everything before `position`
/// durable. Also wakes it if the next group waits, so that it sleeps no longer than its next step
/// demands.
fn hand_back(shared: &SharedGate, position: u64) {
    if shared.durable() < position || shared.is_gathering() {
        shared.wake_pump();
    }
}

/// Steps until the store is closed.
fn run(stepping: &Stepping, shared: &SharedGate) -> Result<(), DurableError> {
    // No thread may wait for ever for a thread that has panicked.
    let ends = Ends(shared, AtomicBool::new(false));
    while !shared.is_closing() {
        let pace = stepping.step(&mut stepping.pump());
        match pace {
            PumpPace::Now => {}
            PumpPace::After(time) => thread::park_timeout(time),
            PumpPace::Over => {
                while !shared.is_closing() {
                    thread::park();
                }
            }
        }
    }
    let pump = stepping.pump().take();
    let closed = pump.map_or(Ok(()), Pump::close);
    ends.in_order();
    closed
}

/// Marks the store as failed if the thread panics.
struct Ends<'s>(&'s SharedGate, AtomicBool);

impl Ends<'_> {
    fn in_order(&self) {
        self.1.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if !*self.1.get_mut() {
            let why = || "the journal's thread panicked".to_owned();
            self.0.set_state(GateState::Failed, why);
        }
    }
}
