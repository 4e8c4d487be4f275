//! A random record: **each is as likely as any other**, whatever the shape of the index.
//!
//! A draw picks a random window of hash order whose length corresponds to about four records by the
//! database's count. It then picks one of [`PLACES`] places, which are more than such a window has
//! records, except in rare cases. An empty place is a blank, and the draw is repeated. Windows
//! begin anywhere with equal chance and wrap around at the end, so each record is in as many of
//! them as any other, with an equal chance in each. On average this takes four draws. After many
//! blanks in a row, because most counted records have expired, the window grows, in the end to the
//! whole database.
//!
//! A database of few records may have an index for many, from which others were removed. A draw
//! there takes many steps, each of which examines at most about a thousand buckets, so that a
//! caller may do something else in between.

use std::cell::Cell;
use std::ops::Range;

use crate::error::ReadError;
use crate::index::bucket::TAG_BITS;
use crate::records::Records;
use crate::records::scan::Cursor;

/// Records that a window should hold.
const RECORDS: u64 = 4;
/// Places in a window. One window in a million has more records.
const PLACES: u64 = 16;
/// The number of blanks in a row after which the window is doubled.
const BLANKS: u32 = 16;
/// More keys than a window has unless many are added meanwhile: the draw starts again.
const CROWD: usize = 1024;

/// The state of a draw of a random key; see [`Database::draw`](crate::Database::draw).
#[derive(Debug, Default)]
pub struct Draw {
    /// The length of the window in hash order; 0 before the first draw.
    window: u64,
    /// The rest of the window that has still to be examined, which may wrap around.
    rest: [Range<u64>; 2],
    /// The keys in the part that was examined.
    keys: Vec<Vec<u8>>,
    /// Blanks in a row.
    blanks: u32,
    /// Whether all places of the window have a record, so that there are no blanks.
    is_whole: bool,
}

/// The result of one step of a draw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drawn {
    /// The drawn key.
    Key(Vec<u8>),
    /// The database is empty.
    Nothing,
    /// Another step is needed.
    Unfinished,
}

impl Draw {
    /// Begins a window at a random place in a hash order of length `all`.
    fn begin(&mut self, all: u64) {
        self.is_whole = self.window == all;
        let begin = dice() % all;
        let end = begin + self.window;
        self.rest = [begin..end.min(all), 0..end.saturating_sub(all)];
        self.keys.clear();
    }
}

impl Records {
    /// A random key of the database. `None` if there is none.
    pub(crate) fn random_key(&self, database: u8) -> Result<Option<Vec<u8>>, ReadError> {
        let mut draw = Draw::default();
        loop {
            match self.draw(database, &mut draw)? {
                Drawn::Key(key) => return Ok(Some(key)),
                Drawn::Nothing => return Ok(None),
                Drawn::Unfinished => {}
            }
        }
    }

    /// One step of a draw.
    pub(crate) fn draw(&self, database: u8, draw: &mut Draw) -> Result<Drawn, ReadError> {
        let all = self.index().partitions() << TAG_BITS;
        if draw.window == 0 || draw.keys.len() > CROWD {
            let counted = self.len(database)?.max(1);
            let window = (all / counted).saturating_mul(RECORDS).clamp(1, all);
            draw.window = if counted <= PLACES { all } else { window };
            draw.begin(all);
        }
        let Draw { rest, keys, .. } = draw;
        if let Some(range) = rest.iter_mut().find(|range| !range.is_empty()) {
            let (begin, end) = (Cursor::from_u64(range.start), range.end);
            let next = self.scan_kinds(database, begin, 1, |key, _| {
                let place = self.index().place(key);
                let position = u64::from(place.partition) << TAG_BITS | u64::from(place.tag);
                if position < end {
                    keys.push(key.to_vec());
                }
            })?;
            // The place after the last record is beyond every end.
            range.start = next.to_u64().min(end);
        }
        if rest.iter().any(|range| !range.is_empty()) {
            return Ok(Drawn::Unfinished);
        }
        // All records have been found: blanks are not needed.
        let places = match draw.is_whole {
            true if draw.keys.is_empty() => return Ok(Drawn::Nothing),
            true => draw.keys.len() as u64,
            false => PLACES,
        };
        let place = (dice() % places) as usize;
        if place < draw.keys.len() {
            return Ok(Drawn::Key(draw.keys.swap_remove(place)));
        }
        draw.blanks += 1;
        if draw.blanks.is_multiple_of(BLANKS) {
            draw.window = draw.window.saturating_mul(2).min(all);
        }
        draw.begin(all);
        Ok(Drawn::Unfinished)
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
        // at least from run to run.
        Err(_) => (&raw const bytes).addr() as u64,
    }
}
