//! Creates a whole tree: from a segment that was not kept in a directory, or from a backup.
//!
//! **It becomes the store's tree at one instant**: when the file, durable and complete, gets its
//! name.

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
use crate::checkpoint::ElementScan;
use crate::directory::{Opened, failed};

/// Bytes that one commit makes durable.
const GATHERED: usize = 8 << 20;
/// The pause between two looks at a feed in which a change is being entered in pieces.
const WAIT: Duration = Duration::from_millis(1);
/// Records visited in one step of a scan.
const VISITED: usize = 256;

pub(crate) struct Build<'o> {
    opened: &'o Opened,
    replica: Replica,
    run: u64,
    clock: Arc<dyn Clock>,
    /// Bytes applied since the last commit.
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

    /// Records that the tree holds every change before `position`, and gives the file its name.
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

/// Creates the tree of a store whose feed continues after the tree's content.
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
    let mut elements = ElementScan::default();
    loop {
        let (mut failed, mut bytes) = (None, 0);
        let goes_on = elements.visit(home, |put| {
            bytes += put.encoded_len();
            if let Err(error) = build.replica.item(0, put) {
                failed.get_or_insert(error);
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        build.applied(bytes)?;
        if !goes_on {
            return build.publish(at);
        }
    }
}

/// Discards the feed's content up to a position between changes. The changes in that part are
/// visible, so a scan finds them. Changes that local programs make meanwhile lie entirely after
/// that position.
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
        // A thread that sends pieces may be waiting for space.
        feed.set_durable(at)?;
        mneme_sys::fault!("durable.build.waits");
        std::thread::sleep(WAIT);
    }
}
