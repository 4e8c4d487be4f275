//! The expected content, and the comparison with it.

use mneme_log::{Evict, Expiry};
use mneme_sys::Clock;

use crate::history::{DATABASES, History, KEYS};

/// The expected value of a key. No two writes have the same stamp, so no value equals an earlier
/// one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kept {
    pub stamp: u64,
    pub length: usize,
    pub expiry: Expiry,
}

impl Kept {
    pub fn value(&self) -> Vec<u8> {
        let word = self.stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut bytes = word.to_le_bytes().repeat(self.length / 8 + 1);
        bytes.truncate(self.length);
        bytes
    }

    pub fn is(&self, value: &[u8]) -> bool {
        let word = self.stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
        let mut words = value.chunks(8);
        value.len() == self.length && words.all(|part| *part == word[..part.len()])
    }
}

/// A database and a key in it.
pub type Name = (usize, Vec<u8>);

pub fn key(n: u64) -> Vec<u8> {
    format!("key-{n}{}", "x".repeat((n % 40) as usize)).into_bytes()
}

impl History {
    fn now(&self) -> u64 {
        self.calendar.wall_ms()
    }

    pub fn any_name(&mut self) -> Name {
        let db = self.random.below(DATABASES as u64) as usize;
        (db, key(self.random.below(KEYS)))
    }

    /// A few names in a row, some of them twice.
    pub fn some_names(&mut self, most: u64) -> (usize, Vec<Vec<u8>>) {
        let (db, _) = self.any_name();
        let (first, count) = (self.random.below(KEYS), 1 + self.random.below(most));
        let keys = (0..count).map(|i| key((first + i - i % 7 / 6) % KEYS));
        (db, keys.collect())
    }

    pub fn any_expiry(&mut self) -> Expiry {
        match self.random.below(3) {
            0 => Expiry::At(self.now() + 1 + self.random.below(4000)),
            1 => Expiry::At(u64::MAX >> 8),
            _ => Expiry::Never,
        }
    }

    /// A new value, short or long, occasionally with an extent of its own.
    pub fn any_value(&mut self, expiry: Expiry) -> Kept {
        self.stamps += 1;
        // A store that may evict must be given more than it holds.
        let most = match self.evict {
            Evict::None => 40_000,
            _ => 120_000,
        };
        let length = match self.random.below(1000) {
            0..4 => 300_000 + self.random.below(1 << 20),
            4..30 => 4096 + self.random.below(60_000),
            30..500 => self.random.below(200),
            _ => 200 + self.random.below(most),
        };
        Kept {
            stamp: self.stamps,
            length: length as usize,
            expiry,
        }
    }

    pub fn expire(&mut self) {
        let now = self.now();
        for model in &mut self.model {
            model.retain(|_, kept| !matches!(kept.expiry, Expiry::At(at) if at <= now));
        }
    }

    pub fn may_be_forgotten(&self, kept: &Kept) -> bool {
        match self.evict {
            Evict::None => false,
            Evict::Lru | Evict::Lfu | Evict::Random => true,
            _ => kept.expiry != Expiry::Never,
        }
    }

    /// The value found under a name is the one last written.
    pub fn found(&self, db: usize, key: &[u8], value: &[u8]) {
        let Some(kept) = self.model[db].get(key) else {
            panic!("{db} {} is there again", key.escape_ascii());
        };
        assert!(
            kept.is(value),
            "{db} {}: {} bytes that are not those of {kept:?}",
            key.escape_ascii(),
            value.len()
        );
    }

    /// Nothing was found under a name: there was no value, or it was allowed to be evicted.
    pub fn missed(&mut self, db: usize, key: &[u8]) {
        if let Some(kept) = self.model[db].remove(key) {
            assert!(
                self.may_be_forgotten(&kept),
                "{db} {} is lost: {kept:?}",
                key.escape_ascii()
            );
        }
    }

    pub fn saw(&mut self, (db, key): &Name, found: Option<&[u8]>) {
        match found {
            Some(value) => self.found(*db, key, value),
            None => self.missed(*db, key),
        }
    }

    pub fn saw_whether(&mut self, (db, key): (usize, &[u8]), there: bool) {
        if !there {
            self.missed(db, key);
        } else if !self.model[db].contains_key(key) {
            panic!("{db} {} is there again", key.escape_ascii());
        }
    }
}
