//! The notes of each lane, in memory that survives it: the states of its names, and the change that
//! it is about to make.
//!
//! Before a change: *about to*, with every name's new state. When its result is known: *done*, and
//! how many of them. Then the states, and nothing is under way. So after a kill the notes say what
//! each name may hold.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use mneme_sys::Region;

use super::expected::{How, State, Step};
use super::names::{LANES, NAMES};

/// The maximum number of names of one change.
pub const MOST: usize = 512;

const HEAD: usize = 16;
const STATE: usize = 2;
const STEP: usize = 3;
const WORDS: usize = HEAD + NAMES * STATE + MOST * STEP;

/// Words of a lane's head.
const PHASE: usize = 0;
const TURN: usize = 1;
const ISSUED: usize = 2;
const DONE: usize = 3;
const REFUSED: usize = 4;
const STALLED: usize = 5;
const PID: usize = 6;

/// Bytes of all diaries, a multiple of 8.
pub const BYTES: usize = LANES * WORDS * 8;
/// Bytes including the words after them that others use.
pub const WHOLE: usize = BYTES + 64;

/// A lane's change under way.
#[derive(Clone, Debug)]
pub struct Change {
    /// In words, for the report.
    pub what: &'static str,
    pub how: How,
    /// How many steps took place, if the lane knew.
    pub known: Option<usize>,
    pub steps: Vec<Step>,
}

/// The kinds of changes.
pub const KINDS: [&str; 25] = [
    "patch",
    "put",
    "remove",
    "update",
    "put_many",
    "remove_many",
    "put_until",
    "set_expiry",
    "transaction",
    "tied",
    "shared update",
    "shared transaction",
    "large put",
    "large remove",
    "clear",
    "swap",
    "own put",
    "fields set",
    "fields removed",
    "members set",
    "members popped",
    "items pushed",
    "items popped",
    "collection removed",
    "collections in a transaction",
];

/// The diary of a lane.
#[derive(Clone, Copy)]
pub struct Diary<'r> {
    words: &'r [AtomicU64],
}

impl<'r> Diary<'r> {
    pub fn of(region: &'r Region, lane: usize) -> Diary<'r> {
        let words = region.slice_at((lane * WORDS * 8) as u64, WORDS).unwrap();
        Diary { words }
    }

    /// Even while nothing is under way; a different number after every change.
    pub fn turn(self) -> u64 {
        // SYNC: pairs with the Release stores in `begin` and `settled`.
        self.words[TURN].load(Acquire)
    }

    pub fn state(self, name: usize) -> State {
        let at = HEAD + name * STATE;
        State {
            seq: self.words[at].load(Acquire) >> 24,
            len: (self.words[at].load(Acquire) & 0xff_ffff) as usize,
            until: self.words[at + 1].load(Acquire),
        }
    }

    fn set(self, name: usize, state: State) {
        let at = HEAD + name * STATE;
        self.words[at + 1].store(state.until, Release);
        self.words[at].store(state.seq << 24 | state.len as u64, Release);
    }

    /// The lane's next number.
    pub fn issue(self) -> u64 {
        self.words[ISSUED].fetch_add(1, Relaxed) + 1
    }

    pub fn issued(self) -> u64 {
        self.words[ISSUED].load(Acquire)
    }

    /// Notes that these names are about to change.
    pub fn begin(self, kind: &'static str, how: How, steps: &[(usize, State)]) {
        assert!(steps.len() <= MOST);
        for (i, (name, state)) in steps.iter().enumerate() {
            let at = HEAD + NAMES * STATE + i * STEP;
            self.words[at].store(*name as u64, Relaxed);
            self.words[at + 1].store(state.seq << 24 | state.len as u64, Relaxed);
            self.words[at + 2].store(state.until, Relaxed);
        }
        let kind = KINDS.iter().position(|known| *known == kind).unwrap() as u64;
        let how = u64::from(how == How::InOrder);
        self.words[TURN].fetch_add(1, Release);
        let word = 1 | how << 8 | kind << 16 | (steps.len() as u64) << 32;
        self.words[PHASE].store(word, Release);
    }

    /// Notes that the first `done` of them took place, and the others did not.
    pub fn end(self, done: usize) {
        let word = self.words[PHASE].load(Relaxed) & !0xff;
        self.words[PHASE].store(word | 2 | (done as u64) << 48, Release);
    }

    /// The change that was begun and is not yet noted in the states.
    pub fn under_way(self) -> Option<Change> {
        let word = self.words[PHASE].load(Acquire);
        let count = (word >> 32 & 0xffff) as usize;
        if word & 3 == 0 {
            return None;
        }
        let steps = (0..count).map(|i| {
            let at = HEAD + NAMES * STATE + i * STEP;
            let name = self.words[at].load(Relaxed) as usize;
            let state = self.words[at + 1].load(Relaxed);
            let new = State {
                seq: state >> 24,
                len: (state & 0xff_ffff) as usize,
                until: self.words[at + 2].load(Relaxed),
            };
            let old = self.state(name);
            Step { name, old, new }
        });
        Some(Change {
            what: KINDS[(word >> 16 & 0xff) as usize],
            how: [How::Whole, How::InOrder][(word >> 8 & 1) as usize],
            known: (word & 3 == 2).then_some((word >> 48) as usize),
            steps: steps.collect(),
        })
    }

    /// Notes in the states that the first `done` steps took place.
    pub fn settled(self, change: &[(usize, State)], done: usize) {
        for (name, state) in &change[..done] {
            self.set(*name, *state);
        }
        if self.words[PHASE].load(Relaxed) & 3 != 0 {
            self.words[PHASE].store(0, Release);
            self.words[TURN].fetch_add(1, Release);
        } else if self.turn() % 2 == 1 {
            // Killed between the two.
            self.words[TURN].fetch_add(1, Release);
        }
    }

    /// From now on the calling process has the lane.
    pub fn begin_life(self) {
        self.words[PID].store(std::process::id().into(), Release);
    }

    /// The process that has the lane, or had it last; 0: none yet.
    pub fn pid(self) -> u32 {
        self.words[PID].load(Acquire) as u32
    }

    pub fn count_done(self) {
        self.words[DONE].fetch_add(1, Relaxed);
    }

    pub fn count_refused(self) {
        self.words[REFUSED].fetch_add(1, Relaxed);
    }

    pub fn count_stalled(self) {
        self.words[STALLED].fetch_add(1, Relaxed);
    }

    /// Changes that took place, that found no free space, that another thread blocked.
    pub fn counts(self) -> [u64; 3] {
        [DONE, REFUSED, STALLED].map(|at| self.words[at].load(Relaxed))
    }
}
