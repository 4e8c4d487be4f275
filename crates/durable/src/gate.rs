//! [`Gate`]: how far writes have become durable, for everything that must wait for that.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::DurableError;
use crate::home::StoreHome;
use crate::options::SyncPolicy;

/// Whether a durable store accepts writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// Writes are accepted.
    Open,
    /// Writes must be refused for now, and may be accepted again without intervention. Earlier
    /// writes still become durable, and reads continue.
    RefusesWrites(Refusal),
    /// Nothing becomes durable any more. Writes must be refused, and nothing waits at the gate.
    Failed,
}

/// Why writes must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The disk is full except for preallocated space, which is kept for earlier writes.
    DiskFull,
}

const NOT_KNOWN: u64 = u64::MAX;

const OPEN: u8 = 0;
const DISK_FULL: u8 = 1;
const FAILED: u8 = 2;

/// A cheap handle to the durable position of a store. A clone is another handle to it.
///
/// A reply computed after a change may be sent once [`durable`](Self::durable) has reached the
/// [`tail`](Self::tail) that was read after the computation. This applies to replies to reads too:
/// they may show a change that is not durable yet.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<SharedGate>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Gate");
        debug.field("durable", &self.durable());
        debug.field("state", &self.state()).finish()
    }
}

impl Gate {
    pub(crate) fn new(shared: Arc<SharedGate>) -> Self {
        Self { shared }
    }

    /// The position that must be durable before a reply that has been computed by now may be sent.
    /// Costs a few loads.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.shared.tail()
    }

    /// Everything before this position is durable. It never decreases. Costs a load.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.shared.durable()
    }

    /// Whether replies must wait: the policy is [`SyncPolicy::Always`], and the store has not
    /// failed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.shared.policy() == SyncPolicy::Always && self.state() != GateState::Failed
    }

    /// Whether the store accepts writes.
    #[must_use]
    pub fn state(&self) -> GateState {
        self.shared.state()
    }

    /// Calls `wake` whenever the durable position has moved or the state has changed, until the
    /// subscription is dropped. It is called once per group, however many wait, by the thread that
    /// makes the group durable, which may be one that waits for it. It must not block, and must not
    /// take a lock that a thread holds while it calls
    /// [`Durability::sync`](crate::Durability::sync).
    #[must_use = "dropping it ends the subscription"]
    pub fn subscribe(&self, wake: Arc<dyn Fn() + Send + Sync>) -> Subscription {
        let mut listeners = lock(&self.shared.listeners);
        listeners.next += 1;
        let id = listeners.next;
        listeners.list.push((id, wake));
        Subscription {
            shared: Arc::clone(&self.shared),
            id,
        }
    }

    /// Requests a sync of everything written so far, whatever the policy, because something waits
    /// at the gate for it. Costs two atomic operations, and a system call if no sync was under way.
    pub fn ask(&self) {
        self.shared.ask(self.tail());
    }
}

/// Ends a subscription when it is dropped. A call of the function that has begun may still be
/// running then.
pub struct Subscription {
    shared: Arc<SharedGate>,
    id: u64,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Subscription").field(&self.id).finish()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut listeners = lock(&self.shared.listeners);
        listeners.list.retain(|(id, _)| *id != self.id);
    }
}

#[derive(Default)]
struct Listeners {
    next: u64,
    list: Vec<(u64, Arc<dyn Fn() + Send + Sync>)>,
}

/// The state that the handles of one durable store share.
pub(crate) struct SharedGate {
    pub home: StoreHome,
    /// Capacity of the change feed in bytes.
    pub feed_capacity: u64,
    durable: AtomicU64,
    /// Every change before this position is visible: the journal's thread has drained it.
    drained: AtomicU64,
    /// Everything before this position is to become durable soon.
    wanted: AtomicU64,
    /// How often `wanted` was raised.
    asked: AtomicU64,
    /// Raising `wanted` to a position before this one does not wake the journal's thread, which
    /// will look on its own soon.
    wakes_from: AtomicU64,
    /// Where the newest base file begins; the journal before that may be removed.
    base: AtomicU64,
    /// The journal's files before this position have been removed.
    removed: AtomicU64,
    /// Where a copy of the store may begin: a durable position that does not lie between the pieces
    /// of a change.
    clean: AtomicU64,
    /// Number of the journal's files.
    files: AtomicU64,
    /// How often the journal had no space for the feed's content.
    refused: AtomicU64,
    /// Whether writers are to be slowed down, because the journal grows faster than base files are
    /// written.
    slowed: AtomicBool,
    state: AtomicU8,
    policy: AtomicU8,
    /// Whether the journal's thread is to end.
    closing: AtomicBool,
    /// The journal's thread.
    pump: OnceLock<Thread>,
    listeners: Mutex<Listeners>,
    /// Wakes threads in [`await_durable`](Self::await_durable).
    moved: Condvar,
    waiting: Mutex<()>,
    /// A description of why the store failed.
    why: Mutex<String>,
}

/// How long a wait for a thread that has not finished a change, or a group of changes, lasts at
/// most.
pub(crate) const THREAD_SECONDS: u32 = 10;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves nothing inconsistent: each change under the lock is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedGate {
    pub fn new(
        home: StoreHome,
        policy: SyncPolicy,
        durable: u64,
        base: u64,
        feed_capacity: u64,
    ) -> Self {
        Self {
            home,
            feed_capacity,
            durable: AtomicU64::new(durable),
            drained: AtomicU64::new(durable),
            wanted: AtomicU64::new(durable),
            asked: AtomicU64::new(0),
            wakes_from: AtomicU64::new(0),
            base: AtomicU64::new(base),
            removed: AtomicU64::new(0),
            clean: AtomicU64::new(durable),
            files: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            slowed: AtomicBool::new(false),
            state: AtomicU8::new(OPEN),
            policy: AtomicU8::new(policy as u8),
            closing: AtomicBool::new(false),
            pump: OnceLock::new(),
            listeners: Mutex::default(),
            moved: Condvar::new(),
            waiting: Mutex::new(()),
            why: Mutex::default(),
        }
    }

    pub fn tail(&self) -> u64 {
        self.home.feed_tail().unwrap_or(0)
    }

    pub fn durable(&self) -> u64 {
        // SYNC: pairs with the Release in `set_durable`.
        self.durable.load(Acquire)
    }

    /// Every change before this position is visible. It lags the tail less than
    /// [`durable`](Self::durable) does.
    pub fn drained(&self) -> u64 {
        // SYNC: pairs with the Release in `set_drained`: entries that were drained are whole, and
        // so visible.
        self.drained.load(Acquire)
    }

    /// Records that the journal's thread has drained the feed up to `position`, possibly not for
    /// the first time.
    pub fn set_drained(&self, position: u64) {
        // SYNC: pairs with the Acquire in `drained`.
        self.drained.fetch_max(position, Release);
    }

    /// Requests that the next step makes everything before `position` durable. Returns whether that
    /// is new.
    pub fn want(&self, position: u64) -> bool {
        // SYNC: pairs with the Acquire load in `wanted`: the step finds the entries before that
        // position.
        let is_new = self.wanted.fetch_max(position, Release) < position;
        if is_new {
            // Relaxed: only a count.
            self.asked.fetch_add(1, Relaxed);
        }
        is_new
    }

    /// Requests that everything before `position` becomes durable soon.
    pub fn ask(&self, position: u64) {
        if self.want(position) {
            // A thread that has not parked yet keeps the wake-up.
            // SYNC: pairs with the fence in `wake_from`: either the journal's thread finds the
            // entries, or this thread finds that it must wake that one.
            fence(SeqCst);
            if position >= self.wakes_from.load(Relaxed) {
                self.wake_pump();
            }
        }
    }

    /// How often a request went beyond all earlier ones.
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// From now on only a wait for this position or a later one wakes the journal's thread. That
    /// thread calls this, and looks at the feed afterwards.
    pub fn wake_from(&self, position: u64) {
        if self.wakes_from.swap(position, Relaxed) > position {
            // SYNC: pairs with the fence in `ask`.
            fence(SeqCst);
        }
    }

    /// Whether the next group is waiting for more changes, so that smaller requests wake nobody.
    pub fn is_gathering(&self) -> bool {
        self.wakes_from.load(Relaxed) > 0
    }

    pub fn wanted(&self) -> u64 {
        // SYNC: pairs with the Release in `want`.
        self.wanted.load(Acquire)
    }

    /// Records that a base file covers everything before `begin`.
    pub fn set_base(&self, begin: u64) {
        // SYNC: pairs with the Acquire in `base`.
        self.base.store(begin, Release);
        self.wake_pump();
    }

    /// Where the newest base file begins.
    pub fn base(&self) -> u64 {
        // SYNC: pairs with the Release in `set_base`: the file has its name.
        self.base.load(Acquire)
    }

    /// Records that the journal's thread has removed the files that the base file at `base`
    /// replaces.
    pub fn set_removed(&self, base: u64) {
        // SYNC: pairs with the Acquire in `await_removed`.
        self.removed.store(base, Release);
    }

    /// Waits while the journal's thread removes the files that the newest base file replaces: a
    /// reader of the journal would miss them. No base file is written meanwhile.
    pub fn await_removed(&self) {
        // SYNC: pairs with the Release in `set_removed`.
        while self.removed.load(Acquire) < self.base() && self.state() != GateState::Failed {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Bytes of the journal that no base file covers.
    pub fn since_base(&self) -> u64 {
        self.durable().saturating_sub(self.base())
    }

    /// Records that the durable position `position` lies between changes: no change has pieces on
    /// both sides of it.
    pub fn set_clean(&self, position: u64) {
        // Relaxed: the position was durable before.
        self.clean.store(position, Relaxed);
    }

    /// Records that the durable position may lie between the pieces of a change, because the feed
    /// continued after it.
    pub fn forget_clean(&self) {
        self.clean.store(NOT_KNOWN, Relaxed);
    }

    /// Where a copy of the store may begin; `None`: not known yet.
    pub fn clean(&self) -> Option<u64> {
        let clean = self.clean.load(Relaxed);
        (clean != NOT_KNOWN).then_some(clean)
    }

    /// The journal's number of files when it was last counted.
    pub fn files(&self) -> u64 {
        // Relaxed: a hint.
        self.files.load(Relaxed)
    }

    pub fn set_files(&self, files: u64) {
        self.files.store(files, Relaxed);
    }

    /// Records that the journal has no space for the feed's content, at each attempt.
    pub fn note_refused(&self) {
        // Relaxed: only counts.
        self.refused.fetch_add(1, Relaxed);
    }

    pub fn set_slowed(&self, slowed: bool) {
        // Relaxed: a hint.
        self.slowed.store(slowed, Relaxed);
    }

    pub fn is_slowed(&self) -> bool {
        self.slowed.load(Relaxed)
    }

    pub fn policy(&self) -> SyncPolicy {
        // Relaxed: a setting.
        SyncPolicy::of_number(self.policy.load(Relaxed))
    }

    pub fn set_policy(&self, policy: SyncPolicy) {
        self.policy.store(policy as u8, Relaxed);
        self.wake_pump();
        // Waiters at the gate may not need to wait any more.
        self.announce();
    }

    pub fn state(&self) -> GateState {
        // SYNC: pairs with the Release in `set_state`.
        match self.state.load(Acquire) {
            OPEN => GateState::Open,
            DISK_FULL => GateState::RefusesWrites(Refusal::DiskFull),
            _ => GateState::Failed,
        }
    }

    pub fn why(&self) -> String {
        lock(&self.why).clone()
    }

    /// Records the state that the journal's thread reports, and the reason.
    pub fn set_state(&self, state: GateState, why: impl FnOnce() -> String) {
        let number = match state {
            GateState::Open => OPEN,
            GateState::RefusesWrites(Refusal::DiskFull) => DISK_FULL,
            GateState::Failed => FAILED,
        };
        if self.state() != state {
            *lock(&self.why) = why();
            // SYNC: pairs with the Acquire in `state`.
            self.state.store(number, Release);
            // Preallocated space is kept for earlier writes.
            self.home.rest_expiry(state != GateState::Open);
            self.announce();
        }
    }

    /// Records that everything before `position` is durable; called by the journal's thread. The
    /// position never decreases.
    pub fn set_durable(&self, position: u64) {
        // SYNC: pairs with the Acquire in `durable`.
        if self.durable.fetch_max(position, Release) < position {
            self.announce();
        }
    }

    fn announce(&self) {
        drop(lock(&self.waiting));
        self.moved.notify_all();
        let wakes: Vec<_> = lock(&self.listeners).list.to_vec();
        wakes.iter().for_each(|(_, wake)| wake());
    }

    pub fn set_pump(&self, thread: Thread) {
        // It is set once, when the thread begins.
        let _ = self.pump.set(thread);
    }

    pub fn wake_pump(&self) {
        if let Some(pump) = self.pump.get() {
            pump.unpark();
        }
    }

    pub fn close(&self) {
        // SYNC: pairs with the Acquire in `is_closing`.
        self.closing.store(true, Release);
        self.wake_pump();
    }

    pub fn is_closing(&self) -> bool {
        // SYNC: pairs with the Release in `close`.
        self.closing.load(Acquire)
    }

    /// The reason, if durability up to `position` waits for a thread and not for the disk.
    pub fn awaited_thread(&self, position: u64) -> Option<&'static str> {
        let in_files = self.home.feed_durable();
        if self.durable() >= position {
            None
        } else if in_files >= Some(position) {
            Some("changes that belong together (`feed_together`) have not ended")
        } else if in_files >= Some(self.drained()) {
            Some("a program stands still that has entered a change and not made it")
        } else {
            None
        }
    }

    /// The error if another thread has delayed durability, after an unfinished change, for longer
    /// than any wait lasts.
    pub fn stands_still(&self, why: &str) -> DurableError {
        DurableError::NotDurable {
            durable: self.durable(),
            why: format!("{why}, for {THREAD_SECONDS} seconds"),
        }
    }

    /// Waits until everything before `position` is durable.
    pub fn await_durable(&self, position: u64) -> Result<(), DurableError> {
        self.ask(position);
        let refused = self.refused.load(Relaxed);
        let (mut held, mut durable) = (0, self.durable());
        let mut waiting = lock(&self.waiting);
        loop {
            if self.durable() != durable {
                (held, durable) = (0, self.durable());
            }
            if durable >= position {
                return Ok(());
            }
            // The second attempt has begun after this call.
            let is_full = self.refused.load(Relaxed) > refused + 1;
            if is_full || self.state() == GateState::Failed {
                return Err(DurableError::NotDurable {
                    durable: self.durable(),
                    why: self.why(),
                });
            }
            if held >= THREAD_SECONDS
                && let Some(why) = self.awaited_thread(position)
            {
                return Err(self.stands_still(why));
            }
            let woken = self.moved.wait_timeout(waiting, Duration::from_secs(1));
            let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            waiting = woken;
            held += u32::from(timeout.timed_out());
        }
    }
}
