//! A server that keeps its data in a directory (`--data`): how the store is opened, what replies
//! wait for, and why writes are refused.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use mneme_durable::{DurableError, DurableOptions, GateState, Refusal, Subscription};

use crate::backing::{ServedStore, StoreOrigin, Wanted};
use crate::configure;
use crate::counters::CounterTotals;
use crate::gate::{Admission, ReplyGate};
use crate::server::{LoadingListener, StartError, builder, eviction, set_eviction};
use crate::settings::{Key, durability_mode, sync_policy};
use crate::shared::{Shared, ThreadSide};

/// The gate of a durable store.
struct StoreGate {
    gate: mneme_durable::Gate,
    /// Wakes the threads whose connections wait.
    #[expect(dead_code, reason = "held, not read")]
    opened: Subscription,
}

impl ReplyGate for StoreGate {
    #[inline]
    fn holds(&self) -> bool {
        self.gate.holds()
    }

    #[inline]
    fn awaited(&self, held: bool) -> Option<u64> {
        if !self.gate.holds() {
            let is_lost = held && self.gate.state() == GateState::Failed;
            return is_lost.then_some(u64::MAX);
        }
        // Everything that the reply may show was written before it was complete.
        let tail = self.gate.tail();
        (tail > self.gate.durable()).then_some(tail)
    }

    fn admission(&self) -> Admission {
        // In this order: a failure ends the hold, but releases no reply that waits.
        if self.gate.holds() {
            Admission::UpTo(self.gate.durable())
        } else if self.gate.state() == GateState::Failed {
            Admission::Never
        } else {
            Admission::All
        }
    }

    fn ask(&self) {
        self.gate.ask();
    }

    #[inline]
    fn refusal(&self) -> Option<&'static str> {
        match self.gate.state() {
            GateState::Open => None,
            GateState::RefusesWrites(Refusal::DiskFull) => Some("No space left on device"),
            GateState::Failed => Some("Input/output error"),
        }
    }
}

/// The options for serving a store that is kept in a directory.
pub(crate) struct Kept {
    pub directory: PathBuf,
    /// The segment that contains it; `None` for memory of this process.
    pub segment: Option<Wanted>,
    /// Receives the progress of loading.
    pub loading: Option<LoadingListener>,
    /// The directory's lock, from a predecessor.
    pub lock: Option<OwnedFd>,
}

impl Kept {
    /// Opens the store, loads it if it is not in memory, and starts serving clients from it.
    pub fn open(self, shared: &Arc<Shared>) -> Result<StoreOrigin, StartError> {
        let settings = &shared.settings;
        let (of, listener) = (Arc::downgrade(shared), self.loading);
        let mut options = DurableOptions::new(&self.directory)
            .sync(sync_policy(settings.number(Key::AppendFsync)))
            .mode(durability_mode(settings.number(Key::Durability)))
            .progress(Arc::new(move |progress| {
                let Some(shared) = of.upgrade() else {
                    return ControlFlow::Break(());
                };
                let (done, total) = (progress.done, progress.total);
                let now_ns = shared.now_ns();
                shared.loading.note(done, total, progress.loaded, now_ns);
                if let Some(listener) = &listener {
                    listener(done, total);
                }
                match shared.stopping() {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            }));
        if let Some(lock) = self.lock {
            options = options.lock(lock);
        }
        let refused = |source: DurableError| StartError::Durable {
            directory: self.directory.clone(),
            source,
        };
        let (store, origin) = match self.segment {
            None => {
                let builder = builder(settings).0;
                let builder = builder.evict(eviction(settings).unwrap_or_default());
                let store = options.open_private(builder).map_err(refused)?;
                (ServedStore::Kept(Box::new(store)), StoreOrigin::Process)
            }
            Some(wanted) => {
                let mut opening = wanted.opening.lending(true);
                // A loaded store may have to evict before a client is served.
                if let Some(evict) = eviction(settings) {
                    opening.options = opening.options.evict(evict);
                }
                let opened = options.serve(&wanted.registry, &wanted.name, opening);
                let (served, durability) = opened.map_err(refused)?;
                let origin = StoreOrigin::of(&served);
                (ServedStore::KeptSegment(durability, served), origin)
            }
        };
        shared.local_changes.drain(&store, &**shared);
        if let Some(durability) = store.durability() {
            let gate = durability.gate();
            // The closure must not hold more of the server: the journal's thread must not be the
            // one to drop it.
            let threads = Arc::clone(&shared.threads);
            let wake = move || ThreadSide::gate_has_opened(&threads);
            let opened = gate.subscribe(Arc::new(wake));
            let threads = Arc::clone(&shared.threads);
            durability.mark_checkpoints(move || {
                CounterTotals::of(threads.iter().map(|thread| &thread.counters)).changes
            });
            shared.set_gate(Box::new(StoreGate { gate, opened }));
        }
        // Clients may have changed settings since it was opened.
        configure::unchanged(|| {
            set_eviction(settings, &store)?;
            store.set_local_programs(settings.local_programs());
            if let Some(durability) = store.durability() {
                durability.set_policy(sync_policy(settings.number(Key::AppendFsync)));
            }
            shared.open(store);
            Ok(origin)
        })
    }
}
