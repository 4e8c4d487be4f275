//! The allowed contents of a store after two operations have met, and the comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mneme_log::{Cursor, Evict, Expiry, LogStore, ReadError, WriteError};
use mneme_sys::Clock;

use crate::actions::{NEW, OTHER, look_at_copies};
use crate::calendar::Calendar;
use crate::memory::Memory;
use crate::model::{FILLED, Kept, Key, Model};
use crate::replayed::Reader;
use crate::scenario::OVERTAKEN;
use crate::stores::{OF_THE_THIRD, drained};

/// The record of `key`. It shares the value with an equal one of `expected`.
pub fn find<'m>(
    store: &LogStore,
    key: &Key,
    expected: impl IntoIterator<Item = Option<&'m Kept>>,
) -> Result<Option<Kept>, ReadError> {
    let database = store.database(key.0)?;
    let value = database.get(&key.1)?.map(|value| {
        let mut all = expected.into_iter().flatten();
        let equal = all.find(|kept| kept.value[..] == *value);
        equal.map_or_else(|| Arc::new(value.to_vec()), |kept| kept.value.clone())
    });
    let expiry = database.expiry(&key.1)?;
    Ok(value.zip(expiry).map(|(value, expiry)| {
        let expires = match expiry {
            Expiry::Never => 0,
            Expiry::At(at) => at,
        };
        Kept { value, expires }
    }))
}

/// Which records a store may have evicted.
#[derive(PartialEq, Eq, Debug)]
pub enum Forgets {
    Nothing,
    /// These keys, in whichever database: they have had an expiry.
    Expiring(BTreeSet<Vec<u8>>),
    All,
}

/// The expectations of a store.
pub struct Expected {
    /// All keys, in order.
    keys: Vec<(Key, Allowed)>,
    /// How many cases each [`Allowed`] has.
    cases: usize,
    forgets: Forgets,
    /// Keys that change together.
    at_once: Vec<Key>,
}

/// The allowed records of a key.
#[derive(Clone)]
struct Allowed {
    /// In each case: what may have been seen while X was stopped, and what must then be there in
    /// the end.
    cases: Vec<(Option<Kept>, Option<Kept>)>,
    /// What was seen, if anything was read.
    seen: Option<Option<Kept>>,
    /// Whether it is a key of a batch that was refused.
    loose: bool,
    may_go: bool,
}

impl Expected {
    /// `candidates` are the cases.
    pub fn new(
        candidates: &[(Model, Model)],
        seen: &BTreeMap<Key, Option<Kept>>,
        loose: &BTreeSet<Key>,
        forgets: Forgets,
        at_once: Vec<Key>,
    ) -> Expected {
        let models = candidates.iter().flat_map(|(then, end)| [then, end]);
        let keys = models.flat_map(|model| model.records.keys());
        let keys: BTreeSet<&Key> = keys.chain(loose).collect();
        let mut expected = Expected {
            keys: Vec::with_capacity(keys.len()),
            cases: candidates.len(),
            forgets,
            at_once,
        };
        for key in keys {
            let live = |model: &Model| model.live(key).cloned();
            let cases = candidates.iter();
            let allowed = Allowed {
                cases: cases.map(|(then, end)| (live(then), live(end))).collect(),
                seen: seen.get(key).cloned(),
                loose: loose.contains(key),
                may_go: expected.may_go(key),
            };
            expected.keys.push((key.clone(), allowed));
        }
        expected
    }

    fn may_go(&self, key: &Key) -> bool {
        match &self.forgets {
            Forgets::Nothing => false,
            Forgets::Expiring(keys) => keys.contains(&key.1),
            Forgets::All => true,
        }
    }

    fn place_of(&self, db: usize, key: &[u8]) -> Result<usize, usize> {
        (self.keys).binary_search_by(|(of, _)| (of.0, &of.1[..]).cmp(&(db, key)))
    }

    fn check(&self, store: &LogStore, when: &str) -> Result<(), String> {
        let mut others = BTreeSet::new();
        for db in [0, OTHER, NEW] {
            let mut cursor = Cursor::START;
            while cursor != Cursor::END {
                let visit = |key: &[u8], _: &[u8]| {
                    if self.place_of(db, key).is_err() {
                        others.insert((db, key.to_vec()));
                    }
                };
                let next = store.database(db).unwrap().scan(cursor, 64, visit);
                cursor = next.map_err(|e| format!("{when}: a scan: {e}"))?;
            }
        }
        let is_compared = |key: &Key| !key.1.starts_with(OF_THE_THIRD) && key.1 != OVERTAKEN;
        let nothing = Allowed {
            cases: vec![(None, None); self.cases],
            seen: None,
            loose: false,
            may_go: false,
        };
        let others = others.iter().map(|key| {
            let may_go = self.may_go(key);
            (
                key,
                Allowed {
                    may_go,
                    ..nothing.clone()
                },
            )
        });
        for (key, allowed) in others {
            if is_compared(key) {
                allowed.find(store, key, when)?;
            }
        }
        let mut found = Vec::with_capacity(self.keys.len());
        for (key, allowed) in &self.keys {
            found.push(match is_compared(key) {
                true => allowed.find(store, key, when)?,
                false => None,
            });
        }
        let at_once: Vec<usize> = self
            .at_once
            .iter()
            .map(|key| self.place_of(key.0, &key.1))
            .filter_map(Result::ok)
            // A batch that was refused in the middle may have overwritten some.
            .filter(|i| !self.keys[*i].1.loose)
            .collect();
        let is_whole = |case: usize| {
            let is_so = |i: &usize| self.keys[*i].1.cases[case].1 == found[*i];
            at_once.iter().all(is_so)
        };
        if self.forgets == Forgets::Nothing && !(0..self.cases).any(is_whole) {
            return Err(format!("{when}: half of a transaction happened"));
        }
        Ok(())
    }
}

impl Allowed {
    /// The record of `key`, if it is allowed.
    fn find(&self, store: &LogStore, key: &Key, when: &str) -> Result<Option<Kept>, String> {
        let ends = self.cases.iter().map(|(_, end)| end.as_ref());
        let now = find(store, key, ends).map_err(|e| format!("{when}: a read: {e}"))?;
        let is_right = self.cases.iter().any(|(then, end)| {
            // What was evicted before X took place does not come back, unless X brings it.
            let was_seen = |seen: &Option<Kept>| {
                seen == then || (self.may_go && seen.is_none() && then != end)
            };
            self.seen.as_ref().is_none_or(was_seen) && *end == now
        });
        let is_forgotten = self.may_go && now.is_none();
        if !is_right && !is_forgotten && !self.loose {
            let short = |kept: &Option<Kept>| {
                let kept = kept.as_ref();
                kept.map(|k| (k.value.len(), k.value.last_chunk::<4>().copied(), k.expires))
            };
            let ends = self.cases.iter();
            let ends: Vec<_> = ends.map(|(then, end)| (short(then), short(end))).collect();
            return Err(format!(
                "{when}: {}:{} is {:?}, was seen as {:?}, of {ends:?}",
                key.0,
                String::from_utf8_lossy(&key.1),
                short(&now),
                self.seen.as_ref().map(short)
            ));
        }
        Ok(now)
    }
}

/// Repairs, reads and compares; then makes the store reuse all memory, and compares again.
pub fn finish(
    memory: &Memory,
    expected: &Expected,
    mut reader: Option<Reader>,
    clock: &Calendar,
) -> Result<(), String> {
    let store = memory.open(4);
    let refused = |what: &'static str| move |e: WriteError| format!("{what}: {e}");
    store.reap().map_err(refused("the reap"))?;
    look_at_copies(&store, clock);
    let sound = |when: &str| match store.check() {
        Ok(report) if report.problems.is_empty() => Ok(()),
        Ok(report) => Err(format!("{when}: {:?}", report.problems)),
        Err(error) => Err(format!("{when}: the check: {error}")),
    };
    sound("after the reap")?;
    expected.check(&store, "after the reap")?;
    let mut drain = |when: Option<&str>| {
        if let Some(reader) = &mut reader {
            drained(reader);
            reader.replayed.now = clock.wall_ms();
            when.iter()
                .for_each(|when| reader.replayed.shows(&store, when));
        }
    };
    drain(Some("after the reap"));
    store
        .set_eviction(Evict::None)
        .map_err(refused("set_eviction"))?;
    let filled = store.database(FILLED).unwrap();
    filled.clear().map_err(refused("clearing"))?;
    let last = store.database(11).unwrap();
    for round in 0..2u8 {
        while store.compact().map_err(refused("compaction"))? > 0 {}
        let value = [round; 60_000];
        for i in 0..134u32 {
            let put = last.put(&i.to_le_bytes(), &value);
            put.map_err(refused("a later put"))?;
            if i % 32 == 0 {
                drain(None);
            }
        }
        drain(Some("after memory was used again"));
        expected.check(&store, "after memory was used again")?;
    }
    look_at_copies(&store, clock);
    store.remove_expired().map_err(refused("the sweep"))?;
    drain(Some("in the end"));
    sound("in the end")?;
    expected.check(&store, "in the end")
}
