//! The index: from a key's hash to the location of its record, growing and shrinking in small
//! steps.
//!
//! A database has an index of its own, named by a *root*: a block with one word for each of 2^p
//! partitions, chosen by the top p bits of the hash. A partition is a small extendible hash table
//! over the next 22 bits, the *tag*. It is one index segment at first, and later a directory of
//! segments. An index segment is 2 to 48 [buckets](bucket) that share out its interval of tags
//! evenly and in order:
//!
//! ```text
//! root ─► partition word ─► [directory ─►] index segment: bucket, bucket, … bucket
//!         by the top p bits   by the tag's first bits       by the tag's next bits
//! ```
//!
//! So the order of buckets is the order of hashes, whatever the shape of the index: a place in it
//! is a scan's cursor. And because position and tag together hold 22 bits of the hash, a segment is
//! grown, split or merged without reading a single record.
//!
//! **No operation pays for more than one index segment.** A full segment of at most 48 buckets is
//! replaced by one half or a third larger, or by two (see [`resize`]): some 600 entries are copied,
//! whatever the size of the table (the paper doubles a partition at a time, Nibble §3.1). The steps
//! 2, 3, 4, 6, … 32, 48, 2 x 32 keep the mean fill near 0.7 where doubling would leave 0.6.
//!
//! An entry that finds its home bucket full goes to one of the next seven; its home's *reach* tells
//! readers how far to look.

pub(crate) mod bucket;
pub(crate) mod counts;
pub(crate) mod databases;
pub(crate) mod grown;
pub(crate) mod intent;
pub(crate) mod journal;
pub(crate) mod lookup;
pub(crate) mod pace;
pub(crate) mod pool;
pub(crate) mod prefetch;
pub(crate) mod resize;
pub(crate) mod root;
pub(crate) mod shape;
pub(crate) mod tags;
pub(crate) mod walk;

use std::sync::Mutex;
use std::sync::atomic::Ordering::Release;

use mneme_sync::Slot;
use mneme_sys::fault::without;
use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};

use crate::error::WriteError;
use crate::inner::{MAINS_LOST, collection_of};
use crate::log::Log;
use crate::region::record::Record;
use crate::session::{Session, Wait};
use bucket::LockWord;
use grown::GrownAhead;
use shape::Place;

/// The index of an open store.
pub(crate) struct Index {
    log: Log,
    secrets: RapidSecrets,
    /// The pages that have grown for transactions of this process and are not shrunk meanwhile.
    pub grown_ahead: GrownAhead,
    /// Collections whose mains this process has removed, to be checked first. A thread that finds
    /// the list full, or dies, has left the note in the header.
    pub lost_mains: Mutex<Vec<u64>>,
}

/// The maximum number of collections that are remembered by their ids.
const MOST_LOST: usize = 1 << 14;

impl Index {
    pub fn new(log: Log) -> Index {
        Index {
            secrets: RapidSecrets::seed(log.session().tables.seed),
            grown_ahead: GrownAhead::default(),
            lost_mains: Mutex::default(),
            log,
        }
    }

    #[inline(always)]
    pub fn log(&self) -> &Log {
        &self.log
    }

    #[inline(always)]
    pub fn session(&self) -> &Session {
        self.log.session()
    }

    /// The keyed hash of a key. Its values are part of the region's format.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        rapidhash_v3_seeded(key, &self.secrets)
    }

    /// The place of `key` in the indexes of this store.
    #[inline(always)]
    pub fn place(&self, key: &[u8]) -> Place {
        Place::of_hash(
            self.hash(key),
            self.session().tables.geometry.partition_bits as u32,
        )
    }

    /// Notes that an index no longer names this record. If the record was a main, its collection
    /// may now be garbage. Called after the publication of the change that removed it.
    #[inline(always)]
    pub fn note_main_gone(&self, record: &Record<'_>) {
        if record.header().kind().is_large() {
            self.lose_main(collection_of(record.value()));
        }
    }

    /// Notes that a collection may have lost its main. Called after the publication of the change
    /// that removed it. `None`: any collection may have.
    #[cold]
    pub fn lose_main(&self, id: Option<u64>) {
        if without("main.noted") {
            return;
        }
        if let Some(id) = id
            && let Ok(mut lost) = self.lost_mains.lock()
            && lost.len() < MOST_LOST
        {
            lost.push(id);
        }
        // SYNC: pairs with the Acquire exchange in `Store::free_dead`: a sweep that sees
        // the note sees that the main is gone.
        (self.session().tables.header().lost_mains).store(MAINS_LOST, Release);
    }

    /// One round of waiting for the holder of the bucket whose word is `word`, see
    /// [`Session::wait_for_lock`](crate::session::Session::wait_for_lock).
    #[cold]
    pub fn wait_for(
        &self,
        slot: &Slot<'_>,
        wait: &mut Wait,
        word: LockWord,
    ) -> Result<(), WriteError> {
        self.session()
            .wait_for_lock(slot, wait, word.0, word.holder())
    }
}
