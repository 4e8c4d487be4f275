//! The pump: change feed -> journal -> durable position. One thread at a time steps it.
//!
//! **A position is published as durable only when the journal is durable up to it, and the ring
//! keeps everything after it.** So after any failure in between the entries can be appended again,
//! to a new file.

use std::sync::Arc;
use std::time::Duration;

use mneme_log::{ChangeFeed, FeedError, WriteError};
use mneme_sys::Clock;
use mneme_sys::fault::without;

use crate::DurableError;
use crate::gate::{GateState, Refusal, SharedGate};
use crate::gathering::{EndedSync, Gathering};
use crate::groups::Groups;
use crate::options::SyncPolicy;
use crate::sink::{EntriesRefused, Sink};

/// Bytes appended before the pump checks for other work.
const BATCH: u64 = 8 << 20;
/// A sync is forced when this fraction (one over it) of the ring is not durable.
const SHARES: u64 = 4;
/// Bytes of zeros written into spare files between two groups.
const PREPARED: u64 = 1 << 20;
/// How long `EverySecond` delays a sync, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// How long the feed must be quiet before a frame names the durable position, in nanoseconds.
const PAUSE: u64 = 200_000_000;
/// The pause between two attempts on a full disk, in nanoseconds.
const RETRY: u64 = 500_000_000;
/// Bytes that justify a wake-up while nothing waits for them, bounded by a fraction of the ring. At
/// 2,000 wake-ups a second they took a quarter of this thread's time.
const WORTH: u64 = 256 << 10;
const WORTH_SHARES: u64 = 32;
/// How far a position where a copy may begin can lie before the durable position, in bytes.
const CLEAN: u64 = 64 << 10;
/// Bytes a second that are appended while writers are slowed down.
const SLOWED: u64 = 50 << 20;
/// The shortest and the longest sleep between two looks at the feed.
const SLEEPS: [Duration; 2] = [Duration::from_micros(500), Duration::from_millis(20)];

/// How often closing checks again whether a thread has finished its change.
const TRIES: u32 = 50;

/// Whether the feed can be drained later. A stopped thread delays the repair of what a
/// dead one left. Nothing was drained.
fn is_for_now(error: &FeedError) -> bool {
    matches!(
        error,
        FeedError::Write(WriteError::Stalled(_) | WriteError::Reap(_))
    )
}

/// When the next step is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpPace {
    /// At once.
    Now,
    /// After this time, or when a thread requests it.
    After(Duration),
    /// Never: nothing becomes durable any more.
    Over,
}

pub(crate) struct Pump {
    shared: Arc<SharedGate>,
    feed: ChangeFeed,
    sink: Box<dyn Sink>,
    clock: Arc<dyn Clock>,
    group: Vec<u8>,
    /// When the oldest unsynced bytes were appended.
    unsynced_since: Option<u64>,
    /// When anything was last drained.
    busy: u64,
    /// No attempt to find space is made before this time.
    full_until: u64,
    sleep: Duration,
    synced: Synced,
    gathering: Gathering,
    groups: Groups,
    /// The files before this position have been removed.
    removed: u64,
    /// A position where a copy of the store may begin once it is durable.
    clean: Option<u64>,
    /// There was no space to make the appended entries durable.
    is_stuck: bool,
    /// The last sync was requested.
    is_awaited: bool,
    /// The remains of a dead thread could not be repaired.
    awaits_repair: bool,
}

/// The cost of syncs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Synced {
    /// Groups made durable.
    pub groups: u64,
    /// Nanoseconds of all syncs.
    pub total_ns: u64,
    /// Nanoseconds of the last one.
    pub last_ns: u64,
}

impl Pump {
    pub fn new(
        shared: Arc<SharedGate>,
        feed: ChangeFeed,
        sink: Box<dyn Sink>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let groups = Groups::begin_at(feed.durable(), feed.is_within_group());
        Self {
            shared,
            feed,
            groups,
            sink,
            busy: clock.now_ns(),
            clock,
            group: Vec::new(),
            unsynced_since: None,
            full_until: 0,
            sleep: SLEEPS[0],
            synced: Synced::default(),
            gathering: Gathering::default(),
            removed: 0,
            clean: None,
            is_stuck: false,
            is_awaited: false,
            awaits_repair: false,
        }
    }

    pub fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    pub fn synced(&self) -> Synced {
        self.synced
    }

    /// Whether a thread other than the pump's own may step it. A thread that cannot become a
    /// participant of the store would make the step fail, and a repair that has to wait would block
    /// that thread.
    pub fn may_be_led(&self) -> bool {
        !self.awaits_repair && self.shared.home.may_take_part().is_ok()
    }

    /// Creates the spare files that the journal must have, unless the disk is full. Nothing waits
    /// for a sync yet, so whole files are synced at once.
    pub fn prepare_all(&mut self) {
        while self.sink.is_nearly_full() && self.prepare(u64::MAX) {}
    }

    /// Appends the feed's content, syncs if that is due, and does other work if there is time.
    pub fn step(&mut self) -> PumpPace {
        self.paced(Self::work)
    }

    /// Appends the feed's content and syncs if that is due. Other work is left to the next step.
    pub fn commit(&mut self) {
        self.paced(|pump| {
            let now = pump.clock.now_ns();
            if pump.gathers(now).is_none() {
                pump.append_and_sync(now)?;
            }
            Ok(PumpPace::Now)
        });
    }

    fn paced(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<PumpPace, DurableError>,
    ) -> PumpPace {
        // Checked here for other threads too: a step after the failure might succeed and open the
        // store again.
        if self.shared.state() == GateState::Failed {
            return PumpPace::Over;
        }
        match work(self) {
            Ok(pace) => pace,
            Err(error) => {
                let why = mneme_sys::with_causes(&error);
                self.shared.set_state(GateState::Failed, || why);
                PumpPace::Over
            }
        }
    }

    fn work(&mut self) -> Result<PumpPace, DurableError> {
        let now = self.clock.now_ns();
        self.remove_older()?;
        let is_awaited = self.is_awaited || self.shared.policy() == SyncPolicy::Always;
        self.sink.set_preallocates(is_awaited);
        self.find_clean();
        self.shared.set_files(self.sink.stats().files);
        if let Some(rest) = self.gathers(now) {
            return Ok(PumpPace::After(rest));
        }
        let (appended, is_synced) = self.append_and_sync(now)?;
        self.sleep = self.paced_by(appended);
        if appended > 0 && self.shared.is_slowed() {
            return Ok(PumpPace::After(Duration::from_nanos(
                appended * SECOND / SLOWED,
            )));
        }
        if appended >= BATCH || is_synced {
            return Ok(PumpPace::Now);
        }
        if self.is_short_of_space() && now >= self.full_until && self.prepare(PREPARED) {
            return Ok(PumpPace::Now);
        }
        if self.unsynced_since.is_none() && now.saturating_sub(self.busy) >= PAUSE {
            self.name_durable()?;
        }
        Ok(PumpPace::After(self.sleep))
    }

    /// Returns how many bytes were appended, and whether they were synced.
    fn append_and_sync(&mut self, now: u64) -> Result<(u64, bool), DurableError> {
        let appended = self.append(now)?;
        let is_synced = self.is_due(now) && self.sync()?;
        if appended > 0 {
            self.busy = now;
        }
        Ok((appended, is_synced))
    }

    /// How long to sleep after a look that found this many bytes. Under `Always` a thread waits for
    /// each of them; otherwise a thread that waits wakes this one.
    fn paced_by(&self, appended: u64) -> Duration {
        let worth = WORTH.min(self.feed.capacity() / WORTH_SHARES);
        let is_awaited = appended > 0 && self.shared.policy() == SyncPolicy::Always;
        let sleep = match appended {
            _ if is_awaited => SLEEPS[0],
            _ if appended < worth => self.sleep * 2,
            _ => self.sleep / 2,
        };
        sleep.clamp(SLEEPS[0], SLEEPS[1])
    }

    /// How much longer the next group waits for writers that the last sync released.
    fn gathers(&mut self, now: u64) -> Option<Duration> {
        let tail = self.shared.tail();
        let pending = tail.saturating_sub(self.feed.durable());
        let is_urgent = pending * SHARES >= self.feed.capacity();
        let rest = self.gathering.rest(now, tail, is_urgent);
        self.shared.wake_from(self.gathering.wakes_from());
        rest
    }

    /// Looks for a position where a copy of the store may begin.
    fn find_clean(&mut self) {
        if self.clean.is_none() && self.sink.has_begun() && self.is_clean_old() {
            self.clean = self.feed.clean_position();
        }
        if let Some(clean) = self.clean.filter(|clean| *clean <= self.feed.durable()) {
            self.clean = None;
            self.shared.set_clean(clean);
        }
    }

    /// Whether it is worth examining what each thread has entered ahead of its change.
    fn is_clean_old(&self) -> bool {
        let Some(clean) = self.shared.clean() else {
            return true;
        };
        let durable = self.feed.durable();
        let is_known = clean > self.shared.base() && durable < clean + CLEAN;
        clean < durable && (!is_known || self.feed.tail() == durable)
    }

    /// Removes files that a base file replaces.
    fn remove_older(&mut self) -> Result<(), DurableError> {
        let base = self.shared.base();
        if base > self.removed {
            self.removed = base;
            self.sink.remove_before(base)?;
            mneme_sys::fault!("durable.pump.removed");
            self.shared.set_removed(base);
        }
        Ok(())
    }

    /// Appends about a batch of the feed's content. Returns the number of bytes.
    fn append(&mut self, now: u64) -> Result<u64, DurableError> {
        if self.is_stuck && now < self.full_until {
            return Ok(0);
        }
        let begin = self.sink.position();
        let most = if self.shared.is_slowed() { 1 } else { BATCH };
        // A group is at most as large as what forces a sync, so that writers can fill the rest of
        // the ring during that sync. Without a bound they would fill the ring while it is drained,
        // and then wait.
        let group = (self.feed.capacity() / SHARES).min(self.sink.group_bytes() as u64) as usize;
        while self.sink.position().saturating_sub(begin) < most && !self.must_free() {
            // The ring's content must always fit, even if the disk fills up.
            let tries = self.sink.is_nearly_full() && now >= self.full_until;
            if tries {
                self.prepare(PREPARED);
            }
            if !self.sink.has_begun() {
                if tries {
                    self.shared.note_refused();
                }
                break;
            }
            self.group.clear();
            let drained = self.feed.drain(group, &mut self.group);
            self.awaits_repair = drained.as_ref().is_err_and(is_for_now);
            if self.awaits_repair {
                break;
            }
            let drained = drained?;
            if self.group.is_empty() {
                break;
            }
            self.shared.set_drained(drained.end);
            self.groups.note(drained.start, &self.group)?;
            match self.sink.append(drained.start, &self.group) {
                Ok(()) => {
                    self.unsynced_since.get_or_insert(now);
                }
                Err(EntriesRefused::NoSpace) => {
                    self.sync()?;
                    self.rewind()?;
                    self.refuse(now);
                    self.shared.note_refused();
                    break;
                }
                Err(EntriesRefused::Restarted) => {
                    self.rewind()?;
                    continue;
                }
                Err(EntriesRefused::Failed(error)) => return Err(error),
            }
            mneme_sys::fault!("durable.pump.appended");
            // Entries that arrived meanwhile would need a frame of their own, which takes at least
            // 4 KiB.
            if drained.end - drained.start < group as u64 {
                break;
            }
        }
        Ok(self.sink.position().saturating_sub(begin))
    }

    /// Whether the appended entries are to be synced now.
    fn is_due(&self, now: u64) -> bool {
        let Some(since) = self.unsynced_since else {
            return false;
        };
        self.shared.wanted() > self.feed.durable()
            || self.must_free()
            || match self.shared.policy() {
                SyncPolicy::Always => true,
                SyncPolicy::EverySecond => now.saturating_sub(since) >= SECOND,
                SyncPolicy::No => false,
            }
    }

    /// Whether unsynced entries take so much of the ring that they must be synced under any policy.
    fn must_free(&self) -> bool {
        // Not the journal's position: a full file is synced, but that does not free the ring.
        let pending = self.sink.position().saturating_sub(self.feed.durable());
        pending * SHARES >= self.feed.capacity()
    }

    /// Syncs what was appended and publishes the position. Returns false if it must be appended
    /// again.
    fn sync(&mut self) -> Result<bool, DurableError> {
        let begun = self.clock.now_ns();
        self.is_awaited = self.shared.wanted() > self.feed.durable();
        let position = match without("pump.sync") {
            true => Ok(self.sink.position()),
            false => self.sink.sync(),
        };
        match position {
            Ok(position) => {
                mneme_sys::fault!("durable.pump.synced");
                self.unsynced_since = None;
                self.is_stuck = false;
                let now = self.clock.now_ns();
                let took = now.saturating_sub(begun);
                self.synced.groups += 1;
                self.synced.total_ns += took;
                self.synced.last_ns = took;
                if self.shared.policy() == SyncPolicy::Always {
                    self.gathering.note(EndedSync {
                        at: now,
                        took,
                        bytes: position.saturating_sub(self.feed.durable()),
                        tail: self.shared.tail(),
                        asked: self.shared.asked(),
                    });
                    self.shared.wake_from(self.gathering.wakes_from());
                }
                self.feed.set_durable(position)?;
                mneme_sys::fault!("durable.pump.durable");
                self.shared.set_durable(self.groups.settle(position));
                self.find_clean();
                Ok(true)
            }
            Err(EntriesRefused::Restarted) => {
                self.rewind()?;
                Ok(false)
            }
            Err(EntriesRefused::NoSpace) => {
                self.is_stuck = true;
                self.rewind()?;
                self.refuse(self.clock.now_ns());
                self.shared.note_refused();
                Ok(false)
            }
            Err(EntriesRefused::Failed(error)) => Err(error),
        }
    }

    /// Returns to the durable position, as the journal has done.
    fn rewind(&mut self) -> Result<(), DurableError> {
        self.unsynced_since = None;
        // A full file has been synced beyond the position that the feed knows.
        let durable = self.sink.durable();
        if durable > self.feed.durable() {
            self.feed.set_durable(durable)?;
            self.shared.set_durable(self.groups.settle(durable));
        }
        if !without("pump.rewind") {
            self.feed.rewind();
        }
        Ok(())
    }

    fn is_short_of_space(&self) -> bool {
        self.sink.is_nearly_full() || self.shared.state() != GateState::Open
    }

    /// Writes up to `bytes` of a spare file. Returns whether there is more to do.
    fn prepare(&mut self, bytes: u64) -> bool {
        match self.sink.prepare(bytes) {
            Ok(enough) => {
                if !self.sink.is_nearly_full() {
                    self.shared.set_state(GateState::Open, String::new);
                }
                !enough
            }
            // Whatever the reason, there is no space; a failing file reports that itself.
            Err(_) => {
                self.full_until = self.clock.now_ns() + RETRY;
                if self.sink.is_nearly_full() {
                    self.refuse(self.clock.now_ns());
                }
                false
            }
        }
    }

    fn refuse(&mut self, now: u64) {
        self.full_until = now + RETRY;
        let why = || {
            "the disk is full: what was written is kept, and writes are refused until there is space; \
             free some, or move the directory to a larger disk"
                .to_owned()
        };
        let state = GateState::RefusesWrites(Refusal::DiskFull);
        self.shared.set_state(state, why);
    }

    /// Appends a frame that names the durable position, so that damage to the last frame before a
    /// pause is detected.
    fn name_durable(&mut self) -> Result<(), DurableError> {
        match self.sink.idle() {
            Ok(()) | Err(EntriesRefused::NoSpace) => Ok(()),
            Err(EntriesRefused::Restarted) => {
                self.rewind()?;
                Ok(())
            }
            Err(EntriesRefused::Failed(error)) => Err(error),
        }
    }

    /// Makes the feed's content durable and closes the journal. Waits up to a second for a thread
    /// that is within a change: nothing after that change is written.
    pub fn close(mut self) -> Result<(), DurableError> {
        let (tail, begun) = (self.feed.tail(), self.clock.now_ns());
        let mut tries = 0..TRIES;
        // A journal that fails twice is unusable, which ends the loop.
        while self.shared.state() != GateState::Failed {
            let now = self.clock.now_ns();
            let outcome = self.append(now).and_then(|appended| {
                let is_synced = self.unsynced_since.is_none() || self.sync()?;
                Ok(appended == 0 && is_synced)
            });
            match outcome {
                Ok(true) => {
                    let is_open = self.shared.state() == GateState::Open;
                    let awaited = self.shared.awaited_thread(tail).filter(|_| is_open);
                    let is_early = now.saturating_sub(begun) < SECOND;
                    if awaited.is_some() && is_early && tries.next().is_some() {
                        std::thread::sleep(SLEEPS[1]);
                        continue;
                    }
                    self.sink.close()?;
                    let durable = self.shared.durable();
                    if durable >= tail {
                        return Ok(());
                    }
                    let why = awaited.map_or_else(|| self.shared.why(), str::to_owned);
                    return Err(DurableError::NotDurable { durable, why });
                }
                Ok(false) => {}
                Err(error) => {
                    let why = mneme_sys::with_causes(&error);
                    self.shared.set_state(GateState::Failed, || why);
                    return Err(error);
                }
            }
        }
        Err(DurableError::NotDurable {
            durable: self.shared.durable(),
            why: self.shared.why(),
        })
    }
}
