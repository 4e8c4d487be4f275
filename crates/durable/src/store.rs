//! [`DurableStore`]: a store in the process' own memory that a directory keeps.

use std::ops::Deref;
use std::sync::Arc;

use mneme_journal::{Identity, Options};
use mneme_log::{Builder, Evict, LogStore};

use crate::DurableError;
use crate::checkpoint::CheckpointReport;
use crate::directory::Opened;
use crate::disk::Disk;
use crate::durability::{Durability, OpenedParts, Origin};
use crate::gate::SharedGate;
use crate::home::StoreHome;
use crate::options::DurableOptions;
use crate::recover::RecoveryClock;
use crate::restore::refuse_beside_backups;

/// A store in the process' own memory that survives power loss. It dereferences to
/// [`LogStore`](mneme_log::LogStore), which has its operations. See [the crate](crate).
///
/// Dropping it performs a last sync; [`close`](Self::close) also reports whether that succeeded.
#[derive(Debug)]
pub struct DurableStore {
    durability: Durability,
}

impl DurableStore {
    /// Waits until everything that any thread wrote before this call is durable.
    ///
    /// # Errors
    /// As for [`Durability::sync`].
    pub fn sync(&self) -> Result<(), DurableError> {
        self.durability.sync()
    }

    /// Writes a base file that is kept under this name: see [`Durability::backup`].
    ///
    /// # Errors
    /// As for [`Durability::backup`].
    pub fn backup(&self, name: &str) -> Result<CheckpointReport, DurableError> {
        self.durability.backup(name)
    }

    /// The running durability: its gate, policy and statistics.
    #[must_use]
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// Makes all writes durable and closes the store.
    ///
    /// # Errors
    /// As for [`sync`](Self::sync).
    pub fn close(self) -> Result<(), DurableError> {
        self.durability.close()
    }
}

impl Deref for DurableStore {
    type Target = LogStore;

    fn deref(&self) -> &LogStore {
        &self.durability.shared().home
    }
}

impl DurableOptions {
    /// Opens a store in the process' own memory with the content of the directory, or an empty one.
    /// The builder determines its size; the change feed and the clock of these options replace the
    /// builder's.
    ///
    /// # Errors
    /// One variant of [`DurableError`] each. What the directory holds stays as it is.
    pub fn open_private(&self, builder: Builder) -> Result<DurableStore, DurableError> {
        let parts = self.recover_private(builder)?;
        let clock = Arc::clone(&self.clock);
        let durability = Durability::start(parts, clock, self.bounds())?;
        durability.return_to_capacity()?;
        Ok(DurableStore { durability })
    }

    pub(crate) fn recover_private(&self, builder: Builder) -> Result<OpenedParts, DurableError> {
        let opened = Opened::of(self)?;
        let directory = Arc::clone(&opened.directory);
        let mut disk = Disk::open(&opened, self.mode)?;
        let contents = disk.look(&*directory)?;
        if contents.identity().is_none() {
            refuse_beside_backups(&opened)?;
        }
        let clock = Arc::new(RecoveryClock::new(Arc::clone(&self.clock)));
        let builder = builder.change_feed(true).loading(true).clock(clock.clone());
        let store = builder.open_private()?;
        let evict = pause_eviction(&store)?;
        let identity = contents.identity();
        let mut feed = store.change_feed()?;
        let loaded = contents.load(&*directory, &store, self.progress.as_deref(), evict)?;
        feed.restart_at(loaded.end)?;
        store.end_loading();
        store.set_eviction(evict)?;
        let (identity, origin) = match identity {
            Some(identity) => (identity, Origin::Rebuilt(loaded.progress)),
            None => (draw_identity()?, Origin::Created),
        };
        clock.release(loaded.wall_ms);
        let options = Options {
            // The next recovery needs the time, because the machine may have lost it.
            clock,
            ..self.journal_options(identity, feed.capacity())
        };
        let begun = disk.begin(&opened, options, &store, &mut feed)?;
        let (at, capacity) = (feed.durable(), feed.capacity());
        let shared = SharedGate::new(
            StoreHome::Private(store),
            self.policy,
            at,
            begun.base,
            capacity,
        );
        if !begun.sink.has_begun() {
            shared.forget_clean();
        }
        Ok(OpenedParts::new(shared, feed, begun, opened, origin))
    }

    pub(crate) fn journal_options(&self, identity: Identity, ring: u64) -> Options {
        Options {
            file_bytes: self.bytes_of_file(),
            // Space for twice the ring: once writes are refused, as much as the ring holds may
            // still arrive.
            reserve: self.reserve.unwrap_or(2 * ring),
            recycled: self.bytes_of_spares(),
            clock: Arc::clone(&self.clock),
            ..Options::new(identity)
        }
    }
}

/// Stops a store from evicting while it is loaded: no entry would record those evictions, and a
/// later entry may rely on the evicted record. Returns the policy to restore afterwards.
pub(crate) fn pause_eviction(store: &LogStore) -> Result<Evict, DurableError> {
    let evict = store.eviction();
    store.set_eviction(Evict::None)?;
    Ok(evict)
}

fn random<const BYTES: usize>() -> Result<[u8; BYTES], DurableError> {
    let mut bytes = [0; BYTES];
    mneme_sys::random_bytes(&mut bytes).map_err(|source| DurableError::Os {
        what: "draw a random number",
        source,
    })?;
    Ok(bytes)
}

/// The identity of a new store.
pub(crate) fn draw_identity() -> Result<Identity, DurableError> {
    let uuid = random()?;
    Ok(Identity { uuid })
}

/// The number of a new run.
pub(crate) fn draw_run() -> Result<u64, DurableError> {
    Ok(u64::from_le_bytes(random()?).max(1))
}
