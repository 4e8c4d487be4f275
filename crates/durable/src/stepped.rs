//! A durable store without threads: a test decides when each step is taken.

use std::ops::Deref;
use std::sync::Arc;

use mneme_journal::BaseName;
use mneme_log::{Builder, LogStore, WriteError};

use crate::DurableError;
use crate::checkpoint::{BaseSource, Checkpoint, CheckpointReport, Stage};
use crate::gate::{Gate, SharedGate};
use crate::options::DurableOptions;
use crate::pump::Pump;

/// The number of steps without progress after which no progress is expected.
const IDLE: u32 = 100;

/// A store in private memory whose journal is written only when the caller calls `step`.
pub struct Stepped {
    shared: Arc<SharedGate>,
    pump: Pump,
    source: BaseSource,
    checkpoint: Option<Checkpoint>,
}

impl DurableOptions {
    /// As [`open_private`](Self::open_private), without threads.
    ///
    /// # Errors
    /// As for [`open_private`](Self::open_private).
    #[doc(hidden)]
    pub fn open_stepped(&self, builder: Builder) -> Result<Stepped, DurableError> {
        let parts = self.recover_private(builder)?;
        let (shared, source) = (parts.shared, parts.source);
        let clock = Arc::clone(&self.clock);
        shared.home.return_to_capacity()?;
        let pump = Pump::new(Arc::clone(&shared), parts.feed, parts.sink, clock);
        Ok(Stepped {
            shared,
            pump,
            source,
            checkpoint: None,
        })
    }
}

impl Stepped {
    /// Performs a step of the pump.
    pub fn step(&mut self) {
        self.pump.step();
    }

    /// Steps until everything is durable, or nothing becomes durable any more.
    pub fn sync(&mut self) {
        sync(&self.shared, &mut self.pump);
    }

    /// Makes everything durable and closes the store.
    ///
    /// # Errors
    /// As for [`Durability::close`](crate::Durability::close).
    pub fn close(self) -> Result<(), DurableError> {
        self.pump.close()
    }

    /// Makes several changes as one group. The closure gets the store, and a function that syncs it
    /// meanwhile.
    ///
    /// # Errors
    /// As for [`LogStore::feed_together`].
    pub fn together<R>(
        &mut self,
        changes: impl FnOnce(&LogStore, &mut dyn FnMut()) -> R,
    ) -> Result<R, WriteError> {
        let Self { shared, pump, .. } = self;
        let store = &shared.home;
        store.feed_together(|| changes(store, &mut || sync(shared, pump)))
    }

    /// The gate of the store.
    #[must_use]
    pub fn gate(&self) -> Gate {
        Gate::new(Arc::clone(&self.shared))
    }

    /// The reason why nothing becomes durable any more.
    #[must_use]
    pub fn why(&self) -> String {
        self.shared.why()
    }

    /// Begins a checkpoint, or a backup of that name.
    ///
    /// # Errors
    /// As for [`Durability::backup`](crate::Durability::backup).
    pub fn begin_base(&mut self, kept: Option<&str>) -> Result<(), DurableError> {
        let name = kept.map_or(BaseName::Checkpoint, |name| BaseName::Kept(name.to_owned()));
        let begin = self.source.clean().ok_or(DurableError::Busy)?;
        self.checkpoint = Some(Checkpoint::begin(self.source.clone(), &name, begin)?);
        Ok(())
    }

    /// Performs a step of the base file that was begun; returns its report once it is published.
    ///
    /// # Errors
    /// As for [`Durability::backup`](crate::Durability::backup).
    pub fn step_base(&mut self) -> Result<Option<CheckpointReport>, DurableError> {
        let Some(checkpoint) = &mut self.checkpoint else {
            return Ok(None);
        };
        if checkpoint.step()? == Stage::Ready
            && let Some(ready) = self.checkpoint.take()
        {
            return ready.finish().map(Some);
        }
        Ok(None)
    }
}

fn sync(shared: &SharedGate, pump: &mut Pump) {
    shared.ask(shared.tail());
    let mut idle = 0;
    while shared.durable() < shared.tail() && idle < IDLE {
        let before = shared.durable();
        pump.step();
        idle = match shared.durable() == before {
            true => idle + 1,
            false => 0,
        };
    }
}

impl Deref for Stepped {
    type Target = LogStore;

    fn deref(&self) -> &LogStore {
        &self.shared.home
    }
}
