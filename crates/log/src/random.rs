//! Drawing a record by lot: **each is as likely as any other**, whatever the shape of the index.
//!
//! The lot falls on a window of hash order, as long as holds some four records by the database's
//! count, and then on one of as many places as such a window hardly ever has records; an empty
//! place is a blank, and all is drawn again. Windows begin anywhere with equal chance and go round
//! at the end, so that each record is in as many of them as any other, and with the same chance in
//! each. Four draws are to be expected. Where blanks come one after the other, because most of what
//! is counted has expired, the window grows, to the whole database at last.

use std::cell::Cell;

use crate::core::Core;
use crate::error::ReadError;
use crate::index::bucket::TAG_BITS;
use crate::scan::Cursor;

/// Records that a window is to hold.
const RECORDS: u64 = 4;
/// Places in a window; more records than that are in one of a million.
const PLACES: u64 = 16;
/// Blanks in a row after which the window is made twice as long.
const BLANKS: u32 = 16;

impl Core {
    /// A key of the database, drawn by lot; `None` if there is none.
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

/// A number that nobody foresees, of this thread's own sequence.
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
        // No kernel is known that has none; a place on this thread's stack differs at least by run.
        Err(_) => (&raw const bytes).addr() as u64,
    }
}
