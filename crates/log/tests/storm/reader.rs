//! A reader's requirements for every value.
//!
//! It is whole, and belongs to the lane and the name under which it is stored; if its lane changed
//! nothing meanwhile, it is exactly what the lane last stored; otherwise it is not older than what
//! was stored when the read began. Names that are always changed together are always seen together.

use std::process::exit;

use mneme_log::{Cursor, LogStore, WriteError};
use mneme_sys::Region;
use mneme_testkit::Random;

use super::collected;
use super::diary::Diary;
use super::expected::{Span, State, now};
use super::look::{MayPass, patiently, place, read};
use super::names::{
    COLLECTED, LANES, LEFT, NAMES, RIGHT, TIED, TIED_TOGETHER, databases, key, owner, value_kind,
};

/// The exit code of a reader that saw half a transaction.
const SAW_HALF: i32 = 78;

pub struct Reader<'s> {
    store: &'s LogStore,
    diaries: Vec<Diary<'s>>,
    random: Random,
}

/// What was known about a name before it was read.
struct Before {
    turn: u64,
    state: State,
    since: u64,
}

impl<'s> Reader<'s> {
    pub fn new(store: &'s LogStore, diaries: &'s Region, seed: u64) -> Reader<'s> {
        Reader {
            store,
            diaries: (0..LANES).map(|lane| Diary::of(diaries, lane)).collect(),
            random: Random::new(seed),
        }
    }

    fn before(&self, lane: usize, name: usize) -> Before {
        let diary = self.diaries[lane];
        let since = now();
        let turn = diary.turn();
        let state = diary.state(name);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Before { turn, state, since }
    }

    fn judge(&self, lane: usize, name: usize, before: Before, value: Option<&[u8]>) {
        let seen = value.map(|bytes| match read(lane, name, bytes) {
            Ok(seen) => seen,
            Err(error) => panic!("a reader found: {error}"),
        });
        self.judge_state(lane, name, before, seen);
    }

    fn judge_state(&self, lane: usize, name: usize, before: Before, seen: Option<State>) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let turn = self.diaries[lane].turn();
        let seen = seen.filter(|seen| seen.is_there());
        let (state, at) = (before.state, Span::since(before.since));
        let complaint = || {
            panic!(
                "a reader found in lane {lane}, name {name}: {seen:?}; {state:?} before, turns {} {turn}",
                before.turn
            )
        };
        let with_expiry = seen.map(|seen| State {
            until: state.until,
            ..seen
        });
        if before.turn == turn && turn.is_multiple_of(2) {
            if !state.allows(with_expiry, at) {
                complaint();
            }
            return;
        }
        let moves = LEFT.contains(&name) || RIGHT.contains(&name);
        if COLLECTED.contains(&name) && !collected::is_numbered(name) {
            return;
        }
        let is_too_old = |seen: State| seen.seq < state.seq && !moves;
        if seen.is_some_and(|s| is_too_old(s) || s.seq > self.diaries[lane].issued()) {
            complaint();
        }
    }

    fn any(&mut self) -> (usize, usize) {
        let lane = self.random.below(LANES as u64) as usize;
        (lane, self.random.below(NAMES as u64) as usize)
    }

    fn get(&mut self) {
        let (lane, name) = self.any();
        let before = self.before(lane, name);
        if COLLECTED.contains(&name) {
            let seen = collected::look(self.store, lane, name).unwrap();
            return self.judge_state(lane, name, before, seen);
        }
        let (at, key) = (place(self.store, lane, name), key(lane, name));
        let value = patiently(|| at.get_kind(&key, value_kind(name))).unwrap();
        self.judge(lane, name, before, value.as_deref());
    }

    fn get_many(&mut self) {
        let (lane, first) = self.any();
        let count = 1 + self.random.below(100) as usize;
        let names: Vec<usize> = (first..(first + count).min(LEFT.start)).collect();
        let keys: Vec<_> = names.iter().map(|name| key(lane, *name)).collect();
        let mut before: Vec<_> = names
            .iter()
            .map(|name| Some(self.before(lane, *name)))
            .collect();
        let looked = self.store.get_many(&keys, |i, value| {
            let before = before[i].take().unwrap();
            self.judge(lane, names[i], before, value);
        });
        if let Err(error) = looked {
            assert!(error.may_pass(), "{error}");
        }
    }

    fn scan(&mut self) {
        let databases: Vec<usize> = databases().collect();
        let number = databases[self.random.below(databases.len() as u64) as usize];
        let database = self.store.database(number).unwrap();
        let mut cursor = Cursor::START;
        let mut steps = 1 + self.random.below(50);
        while cursor != Cursor::END && steps > 0 {
            steps -= 1;
            let visit = |key: &[u8], value: &[u8]| {
                let Some((lane, name)) = owner(number, key) else {
                    // While two databases are swapped, a key is in one or the other.
                    panic!("database {number} holds nobody's {}", key.escape_ascii());
                };
                if let Err(error) = read(lane, name, value) {
                    panic!("a scan found: {error}");
                }
            };
            match database.scan(cursor, 100, visit) {
                Ok(next) => cursor = next,
                Err(error) => assert!(error.may_pass(), "{error}"),
            }
        }
    }

    /// Names that are always changed together.
    fn tied(&mut self) {
        let lane = self.random.below(LANES as u64) as usize;
        let groups = (TIED.len() / TIED_TOGETHER) as u64;
        let first = TIED.start + self.random.below(groups) as usize * TIED_TOGETHER;
        let names = first..first + TIED_TOGETHER;
        let found = self.store.transaction(|t| {
            let found = names.clone().map(|name| t.get(&key(lane, name)));
            found.collect::<Result<Vec<_>, WriteError>>()
        });
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                assert!(error.may_pass(), "{error}");
                return;
            }
        };
        let seen = names.zip(&found).map(|(name, value)| {
            let state = value.as_ref().map(|bytes| read(lane, name, bytes).unwrap());
            state.map(|state| state.seq)
        });
        let seen: Vec<_> = seen.collect();
        if seen.windows(2).any(|pair| pair[0] != pair[1]) {
            eprintln!("a reader saw half a transaction: {seen:?}");
            exit(SAW_HALF);
        }
    }

    /// One operation.
    pub fn step(&mut self) {
        match self.random.below(100) {
            0..60 => match self.any() {
                (lane, _) if collected::is_next(&mut self.random) => {
                    collected::read_all(self.store, lane).unwrap();
                }
                _ => self.get(),
            },
            60..80 => self.get_many(),
            80..97 => self.tied(),
            _ => self.scan(),
        }
    }
}
