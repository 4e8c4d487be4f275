//! A random record: **each is as likely as any other**, whatever the shape of the index.
//!
//! A draw picks a random window of hash order, so long that it holds about four records by the
//! database's count. It then picks one of [`PLACES`] places, more than such a window ever holds
//! records but for rare cases. An empty place is a blank, and the draw is repeated. Windows begin
//! anywhere with equal chance and wrap around at the end, so each record is in as many of them as
//! any other, with an equal chance in each. Four draws are to be expected. After many blanks in a
//! row, because most counted records have expired, the window grows, in the end to the whole
//! database.

use std::cell::Cell;

use crate::error::ReadError;
use crate::index::bucket::TAG_BITS;
use crate::records::Records;
use crate::records::scan::Cursor;

/// Records that a window should hold.
const RECORDS: u64 = 4;
/// Places in a window. One window in a million has more records.
const PLACES: u64 = 16;
/// Blanks in a row after which the window is made twice as long.
const BLANKS: u32 = 16;

impl Records {
    /// A random key of the database. `None` if there is none.
    pub(crate) fn random_key(&self, database: u8) -> Result<Option<Vec<u8>>, ReadError> {
        let all = self.partitions() << TAG_BITS;
        let counted = self.len(database)?.max(1);
        let mut window = (all / counted).saturating_mul(RECORDS).clamp(1, all);
        let mut keys = Vec::new();
        for blanks in 1.. {
            if counted <= PLACES {
                window = all;
            }
            self.keys_of_window(database, dice() % all, window, &mut keys)?;
            // All records have been found: there is no need for blanks.
            let places = match window == all {
                true if keys.is_empty() => return Ok(None),
                true => keys.len() as u64,
                false => PLACES,
            };
            let place = (dice() % places) as usize;
            if place < keys.len() {
                return Ok(Some(keys.swap_remove(place)));
            }
            if blanks % BLANKS == 0 {
                window = window.saturating_mul(2).min(all);
            }
        }
        Ok(None)
    }

    /// The keys of the window of length `window` that begins at `begin` in hash order.
    fn keys_of_window(
        &self,
        database: u8,
        begin: u64,
        window: u64,
        keys: &mut Vec<Vec<u8>>,
    ) -> Result<(), ReadError> {
        let all = self.partitions() << TAG_BITS;
        keys.clear();
        let end = begin + window;
        self.keys_between(database, begin, end.min(all), keys)?;
        self.keys_between(database, 0, end.saturating_sub(all), keys)
    }

    /// Adds the keys from `begin` up to `end` in hash order.
    fn keys_between(
        &self,
        database: u8,
        begin: u64,
        end: u64,
        keys: &mut Vec<Vec<u8>>,
    ) -> Result<(), ReadError> {
        let mut at = Cursor::from_u64(begin);
        // Behind the last record is behind every end.
        while at.to_u64() < end {
            at = self.scan(database, at, 1, |key, _| {
                let place = self.place(key);
                let position = u64::from(place.partition) << TAG_BITS | u64::from(place.tag);
                if position < end {
                    keys.push(key.to_vec());
                }
            })?;
        }
        Ok(())
    }
}

/// An unpredictable number, from this thread's own sequence.
fn dice() -> u64 {
    thread_local! {
        static SEQUENCE: Cell<u64> = Cell::new(seed());
    }
    // SplitMix64 (Steele, Lea, Flood 2014).
    let next = SEQUENCE.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
    SEQUENCE.set(next);
    let mixed = (next ^ next >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

fn seed() -> u64 {
    let mut bytes = [0; 8];
    match mneme_sys::random_bytes(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        // No known kernel lacks randomness. If one does, the address on this thread's stack differs
        // at least by run.
        Err(_) => (&raw const bytes).addr() as u64,
    }
}
