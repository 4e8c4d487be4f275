//! [`Gate`]: how far what was written has become durable, for everything that must wait for it.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use crate::DurableError;
use crate::home::StoreHome;
use crate::options::SyncPolicy;

/// Whether a durable store takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    /// It does.
    Open,
    /// Writes must be refused for now; they may resume by themselves. What was written before
    /// becomes durable, and reads go on.
    RefusesWrites(Refusal),
    /// Nothing becomes durable any more. Writes must be refused, and nothing waits at the gate.
    Failed,
}

/// Why writes are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The disk is full but for what is preallocated, which is kept for what was written before.
    DiskFull,
}

const NOT_KNOWN: u64 = u64::MAX;

const OPEN: u8 = 0;
const DISK_FULL: u8 = 1;
const FAILED: u8 = 2;

/// A cheap handle to the durable position of a store. A clone is another handle to it.
///
/// A reply that was computed after a change may leave once [`durable`](Self::durable) has reached
/// the [`tail`](Self::tail) that was read after the computation. That holds for replies to reads
/// too: they may show a change that is not durable yet.
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

    /// The position that must be durable before a reply may leave that is computed by now. Costs a
    /// few loads.
    #[must_use]
    pub fn tail(&self) -> u64 {
        self.shared.tail()
    }

    /// Everything before this position is durable. Costs a load. It never goes back.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.shared.durable()
    }

    /// Whether replies wait: the policy is [`SyncPolicy::Always`], and the store has not failed.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.shared.policy() == SyncPolicy::Always && self.state() != GateState::Failed
    }

    /// Whether the store takes writes.
    #[must_use]
    pub fn state(&self) -> GateState {
        self.shared.state()
    }

    /// Calls `wake` whenever the durable position has moved or the state has changed, until the
    /// subscription is dropped. It is called by the thread that makes a group durable, which may be
    /// one that waits for it, once for a group however many wait. It must not block, and not lock
    /// what a thread holds that calls [`Durability::sync`](crate::Durability::sync).
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

    /// Says that something waits at the gate for what was written so far: it is synced soon,
    /// whatever the policy. Costs two atomic operations, and a system call if nothing was under
    /// way.
    pub fn ask(&self) {
        self.shared.ask(self.tail());
    }
}

/// Ends a subscription when it is dropped. A call that has begun may still be under way then.
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

/// What the handles of one durable store share.
pub(crate) struct SharedGate {
    pub home: StoreHome,
    /// Bytes that the change feed holds at most.
    pub feed_capacity: u64,
    durable: AtomicU64,
    /// Every change before this position is visible: the journal's thread has drained it.
    drained: AtomicU64,
    /// Everything before this position shall become durable soon.
    wanted: AtomicU64,
    /// How often that was moved.
    asked: AtomicU64,
    /// Moving it to a position before this one does not wake the journal's thread, which looks by
    /// itself soon.
    wakes_from: AtomicU64,
    /// Where the newest base file begins, before which the journal may go.
    base: AtomicU64,
    /// Files before this position are gone.
    removed: AtomicU64,
    /// Where a copy of the store may begin: a durable position between no change's pieces.
    clean: AtomicU64,
    /// Files that the journal has.
    files: AtomicU64,
    /// How often the journal had no space for what the feed holds.
    refused: AtomicU64,
    /// Whether writers shall be slowed down, because the journal grows faster than base files.
    slowed: AtomicBool,
    state: AtomicU8,
    policy: AtomicU8,
    /// Whether the journal's thread shall end.
    closing: AtomicBool,
    /// The journal's thread.
    pump: OnceLock<Thread>,
    listeners: Mutex<Listeners>,
    /// For threads that wait in [`await_durable`](Self::await_durable).
    moved: Condvar,
    waiting: Mutex<()>,
    /// Why it failed, in words.
    why: Mutex<String>,
}

/// How long a wait lasts because a thread has not made its change, or not ended a group of them.
pub(crate) const THREAD_SECONDS: u32 = 10;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whatever a panicking thread left is as good: each change is one step.
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

    /// Every change before this position is visible. It is less far behind the tail than
    /// [`durable`](Self::durable).
    pub fn drained(&self) -> u64 {
        // SYNC: pairs with the Release in `set_drained`: what was drained is whole, and so visible.
        self.drained.load(Acquire)
    }

    /// The journal's thread has drained the feed up to `position`, perhaps once more.
    pub fn set_drained(&self, position: u64) {
        // SYNC: pairs with the Acquire in `drained`.
        self.drained.fetch_max(position, Release);
    }

    /// Everything before `position` shall become durable by the next step. Whether that is new.
    pub fn want(&self, position: u64) -> bool {
        // SYNC: pairs with the Acquire load in `wanted`: the step finds the entries before that
        // position.
        let is_new = self.wanted.fetch_max(position, Release) < position;
        if is_new {
            // Relaxed: a count alone.
            self.asked.fetch_add(1, Relaxed);
        }
        is_new
    }

    /// Everything before `position` shall become durable soon.
    pub fn ask(&self, position: u64) {
        if self.want(position) {
            // A thread that is not parked yet keeps the wake-up.
            // SYNC: pairs with the fence in `wake_from`: either the journal's thread finds the
            // entries, or this finds that it is to be woken.
            fence(SeqCst);
            if position >= self.wakes_from.load(Relaxed) {
                self.wake_pump();
            }
        }
    }

    /// How often more was wanted than before.
    pub fn asked(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// Only a wait for this position, or for one behind it, wakes the journal's thread from now on.
    /// That thread calls this, and looks at the feed afterwards.
    pub fn wake_from(&self, position: u64) {
        if self.wakes_from.swap(position, Relaxed) > position {
            // SYNC: pairs with the fence in `ask`.
            fence(SeqCst);
        }
    }

    /// Whether the next group waits for more, and wakes nobody for less.
    pub fn is_gathering(&self) -> bool {
        self.wakes_from.load(Relaxed) > 0
    }

    pub fn wanted(&self) -> u64 {
        // SYNC: pairs with the Release in `want`.
        self.wanted.load(Acquire)
    }

    /// Everything before `begin` stands in a base file.
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

    /// The journal's thread has let go what stands before `base`.
    pub fn set_removed(&self, base: u64) {
        // SYNC: pairs with the Acquire in `await_removed`.
        self.removed.store(base, Release);
    }

    /// Waits while the journal's thread lets go what the newest base file stands for: what is read
    /// beside it would miss files. No base file is written meanwhile.
    pub fn await_removed(&self) {
        // SYNC: pairs with the Release in `set_removed`.
        while self.removed.load(Acquire) < self.base() && self.state() != GateState::Failed {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Bytes of the journal that stand in no base file.
    pub fn since_base(&self) -> u64 {
        self.durable().saturating_sub(self.base())
    }

    /// Pieces of no change lie before this position whose end lies behind it, and it is durable.
    pub fn set_clean(&self, position: u64) {
        // Relaxed: durable before.
        self.clean.store(position, Relaxed);
    }

    /// The durable position may lie between a change's pieces: the feed goes on behind it.
    pub fn forget_clean(&self) {
        self.clean.store(NOT_KNOWN, Relaxed);
    }

    /// Where a copy of the store may begin; `None`: it is not known yet.
    pub fn clean(&self) -> Option<u64> {
        let clean = self.clean.load(Relaxed);
        (clean != NOT_KNOWN).then_some(clean)
    }

    /// Files that the journal has, when it was looked at last.
    pub fn files(&self) -> u64 {
        // Relaxed: a hint.
        self.files.load(Relaxed)
    }

    pub fn set_files(&self, files: u64) {
        self.files.store(files, Relaxed);
    }

    /// The journal has no space for what the feed holds, however often it is tried.
    pub fn note_refused(&self) {
        // Relaxed: counts alone.
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
        // What waits at the gate may not have to any more.
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

    /// The journal's thread says how it does, and why.
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
            // What is kept free is for what was written before.
            self.home.rest_expiry(state != GateState::Open);
            self.announce();
        }
    }

    /// The journal's thread says that everything before `position` is durable. It never goes back.
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

    /// Why everything before `position` waits for a thread, if it does not wait for the disk.
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

    /// A thread has kept what follows its change from becoming durable for longer than anything
    /// waits for it.
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
            // The second try has begun after this call.
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
