//! A tree that is made as a whole: of a segment that was kept nowhere, or of a backup.
//!
//! **It is the store's from one instant on**: when the file gets its name, durable and whole.

use std::sync::Arc;
use std::time::Duration;

use mneme_journal::Identity;
use mneme_log::feed::Item;
use mneme_log::{ChangeFeed, Cursor, LogStore, Stored};
use mneme_sys::Clock;
use mneme_sys::fault::without;

use super::file;
use super::layout::{Bindings, CommitStamp, FILE, NEW};
use super::replica::Replica;
use crate::DurableError;
use crate::directory::{Opened, failed};

/// Bytes that one commit makes durable.
const GATHERED: usize = 8 << 20;
/// How long a change that is entered in pieces is left alone before another look at the feed.
const WAIT: Duration = Duration::from_millis(1);
/// Records that are visited in one step of a scan.
const VISITED: usize = 256;

pub(crate) struct Build<'o> {
    opened: &'o Opened,
    replica: Replica,
    run: u64,
    clock: Arc<dyn Clock>,
    /// Bytes that were applied since the last commit.
    gathered: usize,
}

impl<'o> Build<'o> {
    pub fn begin(
        opened: &'o Opened,
        identity: Identity,
        run: u64,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, DurableError> {
        let store = file::create(opened, NEW)?;
        Ok(Self {
            opened,
            replica: Replica::begin(store, identity)?,
            run,
            clock: Arc::clone(clock),
            gathered: 0,
        })
    }

    /// Applies whole entries.
    pub fn bytes(&mut self, position: u64, bytes: &[u8]) -> Result<(), DurableError> {
        self.replica.bytes(position, bytes)?;
        self.applied(bytes.len())
    }

    fn applied(&mut self, bytes: usize) -> Result<(), DurableError> {
        self.gathered += bytes;
        match self.gathered > GATHERED {
            true => self.commit(0),
            false => Ok(()),
        }
    }

    fn commit(&mut self, position: u64) -> Result<(), DurableError> {
        self.gathered = 0;
        Ok(self.replica.commit(CommitStamp {
            run: self.run,
            position,
            wall_ms: self.clock.wall_ms(),
        })?)
    }

    /// Says that it holds every change before `position`, and gives it its name.
    pub fn publish(mut self, position: u64) -> Result<Replica, DurableError> {
        self.replica.give_up_pending();
        if without("tree.publish") {
            self.name()?;
        }
        self.commit(position)?;
        mneme_sys::fault!("durable.build.whole");
        if !without("tree.publish") {
            self.name()?;
        }
        mneme_sys::fault!("durable.build.named");
        Ok(self.replica)
    }

    fn name(&self) -> Result<(), DurableError> {
        let directory = &*self.opened.directory;
        let renamed = directory.rename(NEW, FILE);
        renamed.map_err(failed("rename", NEW))?;
        directory.sync().map_err(failed("sync", "the directory"))
    }
}

/// Makes the tree of a store. Its feed goes on behind what the tree holds.
pub(crate) fn adopt(
    mut build: Build<'_>,
    home: &LogStore,
    feed: &mut ChangeFeed,
) -> Result<Replica, DurableError> {
    let at = skip(feed)?;
    let bindings = Bindings {
        roots: home.roots()?,
        ..Bindings::default()
    };
    let words = bindings.words();
    let bind = Item::Bind {
        databases: &words,
        dead: &[],
    };
    build.replica.item(0, bind)?;
    for root in bindings.bound() {
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let (mut failed, mut bytes) = (None, 0);
            let visit = |key: &[u8], stored: Stored<'_>| {
                let put = Item::Put {
                    root,
                    key,
                    kind: stored.kind.number(),
                    expiry: stored.expiry,
                    bytes: stored.value,
                };
                bytes += key.len() + stored.value.len();
                if let Err(error) = build.replica.item(0, put) {
                    failed.get_or_insert(error);
                }
            };
            let next = home.scan_root(root, cursor, VISITED, visit)?;
            if let Some(error) = failed {
                return Err(error);
            }
            build.applied(bytes)?;
            cursor = next.unwrap_or(Cursor::END);
        }
    }
    build.publish(at)
}

/// Lets go what a feed holds, up to a position between no change's pieces. It is visible, so that a
/// scan finds it. What local programs write meanwhile lies behind, whole.
fn skip(feed: &mut ChangeFeed) -> Result<u64, DurableError> {
    let mut drained = Vec::new();
    loop {
        let clean = feed.clean_position();
        let mut at = feed.durable();
        while clean.is_none_or(|clean| at < clean) {
            drained.clear();
            at = feed.drain(1 << 20, &mut drained)?.end;
            if drained.is_empty() {
                break;
            }
        }
        if let Some(clean) = clean.filter(|clean| at >= *clean) {
            feed.set_durable(clean)?;
            feed.rewind();
            return Ok(clean);
        }
        // A thread that sends pieces may wait for space.
        feed.set_durable(at)?;
        mneme_sys::fault!("durable.build.waits");
        std::thread::sleep(WAIT);
    }
}
