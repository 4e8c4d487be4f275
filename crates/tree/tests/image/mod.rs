//! A small store's bytes, damaged: an opened store returns values that were once put, or reports
//! what is wrong. Shared by a test and a fuzz target.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use mneme_sys::medium::RecordingMedium;
use mneme_tree::{Durability, Store, StoreError};

use super::kept::Kept;

/// The maximum size of the store.
const MAX: u64 = 16 << 20;
/// Keys that are put.
const KEYS: u32 = 120;
const FRAME: u64 = 2 << 20;
/// Longer values lie in extents.
const INLINE: usize = 1920;

/// A store that was not closed, and each value that a key ever had.
pub struct Image {
    bytes: Arc<Vec<u8>>,
    values: BTreeMap<Vec<u8>, BTreeSet<Vec<u8>>>,
}

/// What happens to a word.
#[derive(Debug, Clone, Copy)]
pub enum Change {
    Set(u64),
    Flip(u8),
    Add(i8),
    /// It gets the value of another word.
    Copy(u32),
}

#[derive(Debug, Clone, Copy)]
pub struct Damage {
    /// Which part of the file.
    pub area: u8,
    /// Which word of it.
    pub pick: u32,
    pub change: Change,
}

fn open(medium: &Arc<RecordingMedium>) -> Result<Store, StoreError> {
    let builder = Store::builder().durability(Durability::File);
    builder.open_on(Box::new(Kept(medium.clone())))
}

/// Short keys, and some whose leaves have fences that do not fit their headers.
fn key(n: u32) -> Vec<u8> {
    let tail = if n.is_multiple_of(3) { 150 } else { 4 };
    format!("key{:05}{}", n, "x".repeat(tail)).into_bytes()
}

impl Image {
    /// Created once.
    pub fn get() -> &'static Self {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        IMAGE.get_or_init(|| {
            let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
            let db = open(&medium).unwrap();
            let mut values: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
            for n in 0..600_u32 {
                let key = key(n.wrapping_mul(7919) % KEYS);
                if n % 11 == 10 {
                    db.remove(&key).unwrap();
                    continue;
                }
                let len = n.wrapping_mul(31) as usize % 900;
                // Some lie outside of their leaves, in extents.
                let outside = if n % 9 == 4 { INLINE } else { 0 };
                let value = vec![n as u8; len + outside];
                db.put(&key, &value).unwrap();
                values.entry(key).or_default().insert(value);
            }
            assert!(db.stats().unwrap().extents > 5);
            // The bytes before the store is closed.
            let bytes = Arc::new(medium.bytes());
            Self { bytes, values }
        })
    }

    /// Parts of the file: the header, the newest commit records, the table, leaves, extents,
    /// everything.
    fn area(&self, area: u8) -> Range<u64> {
        match area % 6 {
            0 => 0..56,
            1 => 4096..4096 + (256 * 512),
            2 => FRAME..FRAME + (16 << 10),
            3 => FRAME + (16 << 10)..FRAME + (20 * (16 << 10)),
            4 => 2 * FRAME..2 * FRAME + (40 * 4096),
            _ => 0..self.bytes.len() as u64,
        }
    }

    /// The bytes with `damages` done to them, cut to `len`.
    pub fn damaged(&self, damages: &[Damage], len: Option<u32>) -> Vec<u8> {
        let mut bytes = self.bytes.to_vec();
        let word =
            |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        for damage in damages {
            let area = self.area(damage.area);
            let words = (area.end - area.start) / 8;
            let at = (area.start + u64::from(damage.pick) % words * 8) as usize;
            let old = word(&bytes, at);
            let new = match damage.change {
                Change::Set(new) => new,
                Change::Flip(bit) => old ^ 1 << (bit % 64),
                Change::Add(n) => old.wrapping_add_signed(n.into()),
                Change::Copy(from) => {
                    word(&bytes, (area.start + u64::from(from) % words * 8) as usize)
                }
            };
            bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
        }
        if let Some(len) = len {
            bytes.truncate(len as usize % (bytes.len() + 1));
        }
        bytes
    }

    /// Opens such bytes, reads and writes, and opens them again.
    pub fn survives(&self, bytes: Vec<u8>) {
        let medium = Arc::new(RecordingMedium::with_image(MAX, Arc::new(bytes)).unwrap());
        for _ in 0..2 {
            let Ok(db) = open(&medium) else {
                return;
            };
            self.read(&db, false);
            let is_whole = db.check().is_ok();
            let _ = db.put(&key(3), b"");
            let _ = db.remove(&key(4));
            self.read(&db, is_whole);
            let _ = db.stats();
        }
    }

    /// Only the check compares the checksum of a value in an extent, and it has found nothing if
    /// `is_whole`.
    fn once(&self, key: &[u8], value: &[u8], is_whole: bool) {
        if value.len() > INLINE && !is_whole {
            return;
        }
        let known = self
            .values
            .get(key)
            .is_some_and(|values| values.contains(value));
        // `survives` puts an empty value.
        assert!(
            known || value.is_empty(),
            "never put under {}",
            key.escape_ascii()
        );
    }

    fn read(&self, db: &Store, is_whole: bool) {
        let keys: Vec<_> = self.values.keys().collect();
        for key in &keys {
            let _ = db.get_with(key, |value| self.once(key, value, is_whole));
        }
        let _ = db.get_many(&keys, |i, value| {
            if let Some(value) = value {
                self.once(keys[i], value, is_whole);
            }
        });
        let snapshot = db.snapshot().unwrap();
        for pair in snapshot.range(..).flatten() {
            self.once(pair.0, pair.1, is_whole);
        }
        for pair in snapshot.range(..).rev().flatten() {
            self.once(pair.0, pair.1, is_whole);
        }
    }
}
