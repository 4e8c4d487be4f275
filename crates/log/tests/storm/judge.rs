//! Compares a store with the diaries.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Instant;

use mneme_log::{Cursor, Database, GrowError, LogStore, ValueKind};
use mneme_sync::{Participants, SlotId};
use mneme_sys::Region;

use super::collected;
use super::diary::Diary;
use super::expected::{Span, now, settle};
use super::look::{BUSY, MayPass, look, patiently, place, read};
use super::names::{
    COLLECTED, LANES, LEFT, MAIN, MARK, NAMES, database, databases, key, owner, value_kind,
};
use super::place::{MAX, Place, Store};

/// The number of open log segments, and bytes of the index, when everything is removed.
const OPEN: u64 = 2;
const INDEX: u64 = 2 << 20;

/// An opening of a store.
pub struct Opened {
    pub store: Store,
    participants: Participants,
}

impl Opened {
    pub fn new(place: &Place, store: Store) -> Opened {
        let participants = place.participants();
        Opened {
            store,
            participants,
        }
    }

    /// Waits until what that dead process left is repaired, by any process.
    fn await_repair(&self, pid: u32) -> Result<(), String> {
        let threads = self.participants.max_threads();
        let began = Instant::now();
        while pid != 0 && (1..=threads).any(|i| self.participants.pid_of(SlotId(i)) == pid) {
            patiently(|| self.store.reap())?;
            if began.elapsed() > BUSY {
                return Err(format!("nobody repairs what process {pid} left"));
            }
        }
        Ok(())
    }

    /// The outcome of the change that a killed lane had under way. Until it is repaired, it may
    /// still take place; what was seen of it is never undone.
    pub fn settle(&self, diary: Diary<'_>, lane: usize) -> Result<String, String> {
        let Some(change) = diary.under_way() else {
            self.await_repair(diary.pid())?;
            diary.settled(&[], 0);
            return Ok("between".to_owned());
        };
        let look = || {
            let since = now();
            let names = change.steps.iter().map(|step| step.name);
            let seen: Result<Vec<_>, _> = names.map(|name| look(&self.store, lane, name)).collect();
            Ok::<_, String>((seen?, Span::since(since)))
        };
        let (before, then) = look()?;
        self.await_repair(diary.pid())?;
        let (seen, at) = look()?;
        let died_in = |wrong| format!("lane {lane} died in {}: {wrong}", change.what);
        let done = settle(change.how, &change.steps, change.known, &seen, at).map_err(died_in)?;
        let undone = change.steps.iter().zip(&before).skip(done);
        for (step, seen) in undone {
            if !step.old.allows(*seen, then) {
                return Err(died_in(format!(
                    "{step:?} was taken back, {seen:?} was seen"
                )));
            }
        }
        let steps: Vec<_> = change.steps.iter().map(|s| (s.name, s.new)).collect();
        diary.settled(&steps, done);
        let became = match done {
            _ if change.known.is_some() => "known",
            0 => "not done",
            n if n == steps.len() => "done",
            _ => "done in part",
        };
        Ok(format!("{} {became}", change.what))
    }
}

/// A store, the notes about it, and an opening to read it with.
pub struct Judge<'r> {
    pub place: &'r Place,
    pub diaries: &'r Region,
    opened: Option<Opened>,
}

impl<'r> Judge<'r> {
    pub fn new(place: &'r Place, diaries: &'r Region, store: Store) -> Judge<'r> {
        let opened = Some(Opened::new(place, store));
        Judge {
            place,
            diaries,
            opened,
        }
    }

    fn opened(&self) -> &Opened {
        self.opened.as_ref().unwrap()
    }

    pub fn store(&self) -> &LogStore {
        &self.opened().store
    }

    /// Closes its opening.
    pub fn leave(&mut self) {
        self.opened = None;
    }

    /// Opens the store again, if it is not open.
    pub fn come_back(&mut self) {
        let place = self.place;
        self.opened
            .get_or_insert_with(|| Opened::new(place, place.open(false)));
    }

    /// The outcome of the change that a killed lane had under way.
    pub fn settle(&self, lane: usize) -> Result<String, String> {
        let diary = Diary::of(self.diaries, lane);
        self.opened().settle(diary, lane)
    }

    /// The names have the states in the diary.
    pub fn compare(&self, lane: usize, names: Range<usize>) -> Result<(), String> {
        let diary = Diary::of(self.diaries, lane);
        for name in names {
            let (state, since) = (diary.state(name), now());
            let seen = look(self.store(), lane, name)?;
            if !state.allows(seen, Span::since(since)) {
                return Err(format!(
                    "lane {lane}, name {name}: {state:?} was acknowledged, {seen:?} found"
                ));
            }
        }
        Ok(())
    }

    /// Without any other process, everything is as it should be.
    pub fn at_rest(&self) -> Result<(), String> {
        patiently(|| self.store().reap())?;
        for lane in 0..LANES {
            self.settle(lane)?;
        }
        while patiently(|| self.store().sweep_collections())? {}
        let report = patiently(|| self.store().check())?;
        if !report.is_sound() {
            return Err(format!("the check: {:#?}", report.problems));
        }
        collected::check(self.store(), report.collections)?;
        let left_over = self.place.left_over(&self.opened().participants);
        if !left_over.is_empty() {
            return Err(format!("left over: {left_over:#?}"));
        }
        for lane in 0..LANES {
            self.compare(lane, 0..NAMES)?;
        }
        self.scan()
    }

    /// Every record belongs to some lane, and is counted.
    fn scan(&self) -> Result<(), String> {
        for number in databases() {
            let records = self.store().database(number).unwrap();
            let before = now();
            patiently(|| self.store().remove_expired())?;
            let (mut found, mut wrong) = (HashMap::new(), None);
            let mut cursor = Cursor::START;
            while cursor != Cursor::END {
                let mut visit = |key: &[u8], value: &[u8]| {
                    let read = match owner(number, key) {
                        Some((lane, name)) => read(lane, name, value),
                        None => Err(format!("nobody's key {}", key.escape_ascii())),
                    };
                    wrong = wrong.take().or(read.err());
                    found.insert(key.to_vec(), ());
                };
                cursor = patiently(|| records.scan(cursor, 256, &mut visit))?;
            }
            // Only strings were visited so far.
            for key in typed_keys(&records)? {
                if owner(number, &key).is_some_and(|(_, name)| COLLECTED.contains(&name)) {
                    found.insert(key, ());
                    continue;
                }
                let value = patiently(|| records.get_kind(&key, value_kind(LEFT.start)))?;
                if let Some(value) = value {
                    let read = match owner(number, &key) {
                        Some((lane, name)) => read(lane, name, &value),
                        None => Err(format!("nobody's key {}", key.escape_ascii())),
                    };
                    wrong = wrong.take().or(read.err());
                    found.insert(key, ());
                }
            }
            if let Some(wrong) = wrong {
                return Err(format!("a scan of database {number}: {wrong}"));
            }
            let len = records.len();
            let (mut least, mut most) = (0, 0);
            let mut seen = HashSet::new();
            for (lane, name) in (0..LANES).flat_map(|lane| (0..NAMES).map(move |name| (lane, name)))
            {
                if database(lane, name) != number {
                    continue;
                }
                let state = Diary::of(self.diaries, lane).state(name);
                let key = key(lane, name);
                if !state.is_there() || !seen.insert(key.clone()) {
                    continue;
                }
                let stays = state.until == 0 || state.until > now();
                least += u64::from(stays);
                most += u64::from(stays || state.until >= before);
                if stays && !found.contains_key(&key) {
                    return Err(format!("lane {lane}, name {name}: a scan does not find it"));
                }
            }
            if !(least..=most).contains(&len) || found.len() as u64 > most {
                return Err(format!(
                    "database {number}: {len} counted, {} found, {least} to {most} stored",
                    found.len()
                ));
            }
        }
        Ok(())
    }

    /// Removes everything, in two ways, and expects the memory to be free again.
    pub fn drain(&self) -> Result<(), String> {
        let store = self.store();
        patiently(|| store.grow(MAX).map_err(Growth))?;
        for lane in 0..LANES {
            for name in MAIN {
                patiently(|| place(store, lane, name).remove(&key(lane, name)))?;
            }
        }
        // A listener may have died between storing its mark and removing it.
        for number in databases().chain([MARK]) {
            patiently(|| store.database(number).unwrap().clear())?;
        }
        while patiently(|| store.sweep_collections())? {}
        for _ in 0..6 {
            patiently(|| store.compact())?;
        }
        let report = patiently(|| store.check())?;
        let stats = store.stats();
        // Records of writers that were killed in an open segment count as live there.
        let index = stats.index_used_bytes.saturating_sub(collected::INDEX);
        let there = stats.records + index + stats.condemned;
        // Open segments stay, and a frame that each shard of the index keeps.
        let stays = stats.segments <= OPEN && stats.index_bytes <= INDEX;
        if !report.is_sound() || there > 0 || !stays {
            return Err(format!("drained: {:#?}, {stats:#?}", report.problems));
        }
        Ok(())
    }
}

/// Growth that may succeed at the next attempt.
#[derive(Debug)]
struct Growth(GrowError);

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl MayPass for Growth {
    fn may_pass(&self) -> bool {
        matches!(self.0, GrowError::Stalled(_))
    }
}

/// The keys of values that are not strings. No thread changes them meanwhile.
fn typed_keys(records: &Database<'_>) -> Result<Vec<Vec<u8>>, String> {
    let (mut keys, mut cursor) = (Vec::new(), Cursor::START);
    while cursor != Cursor::END {
        let visit = |key: &[u8], of: ValueKind| {
            if of != ValueKind::STRING {
                keys.push(key.to_vec());
            }
        };
        cursor = match records.scan_kinds(cursor, 256, visit) {
            Err(error) if error.may_pass() => continue,
            next => next.map_err(|error| error.to_string())?,
        };
    }
    Ok(keys)
}
