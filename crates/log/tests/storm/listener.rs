//! A listener to the changes of others: **it has received each acknowledged change, or a report of
//! a loss.**
//!
//! It notes the numbers that lanes have acknowledged, makes a change itself, by another opening,
//! and drains the ring until that change arrives. Changes that were acknowledged before must have
//! arrived before it.

use std::process::exit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use mneme_log::{
    Change, ChangeKind, ChangeListener, LogStore, Notification, RoleError, ServerRole, WriteError,
};
use mneme_sys::Region;
use mneme_testkit::Random;

use super::collected;
use super::diary::{self, Diary};
use super::look::{BUSY, patiently};
use super::names::{COLLECTED, LANES, LEFT, MARK, NAMES, RIGHT, SHARED, owner, together};
use super::roles::Twin;

/// The exit code of a listener that missed a change.
const DEAF: i32 = 77;

/// The counts of listeners, in words after the diaries: changes that were received, losses, names
/// that were compared with what was received, with no loss since.
pub struct Tally<'r>(&'r [AtomicU64]);

impl<'r> Tally<'r> {
    pub fn of(diaries: &'r Region) -> Tally<'r> {
        Tally(diaries.slice_at(diary::BYTES as u64 + 8, 3).unwrap())
    }

    fn count(&self, what: usize, n: u64) {
        self.0[what].fetch_add(n, Relaxed);
    }

    pub fn counts(&self) -> [u64; 3] {
        [0, 1, 2].map(|i| self.0[i].load(Relaxed))
    }
}

pub struct Listener<'s> {
    own: &'s LogStore,
    listener: ChangeListener,
    _role: ServerRole,
    /// An opening whose changes it receives.
    other: &'s LogStore,
    received: Received<'s>,
    tally: Tally<'s>,
    random: Random,
}

/// What was received.
struct Received<'s> {
    diaries: Vec<Diary<'s>>,
    /// By lane and name: the last number that the lane had issued when a change of the name was
    /// received.
    arrived: Vec<Vec<u64>>,
    /// By lane: the last number that it had issued when a loss was reported.
    lost: Vec<u64>,
    /// By lane and name: the last number that was compared.
    compared: Vec<Vec<u64>>,
    losses: u64,
    changes: u64,
    marked: bool,
    /// Ignores some of what it receives.
    deaf: Option<Random>,
}

impl Received<'_> {
    fn on(&mut self, report: Notification<'_>) {
        let Notification::Change(change) = report else {
            self.losses += 1;
            for (lost, diary) in self.lost.iter_mut().zip(&self.diaries) {
                *lost = diary.issued();
            }
            self.marked = true;
            return;
        };
        self.changes += 1;
        match change.kind {
            // One process at a time clears it, and a listener begins after what others did.
            ChangeKind::Cleared if change.database == MARK => self.marked = true,
            ChangeKind::Cleared => self.on_database(change.database),
            ChangeKind::Swapped(other) => {
                self.on_database(change.database);
                self.on_database(other);
            }
            ChangeKind::Stored(key)
            | ChangeKind::Retimed(key)
            | ChangeKind::Removed(key)
            | ChangeKind::Expired(key)
            | ChangeKind::Evicted(key) => self.on_key(change, key),
            _ => panic!("received something else: {change:?}"),
        }
    }

    fn on_key(&mut self, change: Change<'_>, key: &[u8]) {
        if change.database == MARK {
            return;
        }
        let Some((lane, name)) = owner(change.database, key) else {
            panic!("received a key of no lane: {change:?}");
        };
        if self.deaf.as_mut().is_some_and(|random| random.one_in(10)) {
            return;
        }
        match SHARED.contains(&name) {
            true => (0..LANES).for_each(|lane| self.note(lane, name)),
            false => together(name).for_each(|name| self.note(lane, name)),
        }
    }

    /// A lane's own database was cleared, or swapped with its other one.
    fn on_database(&mut self, database: usize) {
        let (lane, right) = ((database - 1) / 2, database.is_multiple_of(2));
        let names = if right { RIGHT } else { LEFT };
        names.for_each(|name| self.note(lane, name));
    }

    fn note(&mut self, lane: usize, name: usize) {
        self.arrived[lane][name] = self.diaries[lane].issued();
    }

    /// What was acknowledged since the last loss and is present: lane, name, number.
    fn asked(&self) -> Vec<(usize, usize, u64)> {
        let of_lane = |lane: usize| {
            let diary = self.diaries[lane];
            (0..NAMES).map(move |name| (lane, name, diary.state(name)))
        };
        // A removed name may have been absent already, and then nothing was changed.
        let all = (0..LANES).flat_map(of_lane);
        let there = all.filter(|(_, name, state)| {
            state.is_there() && (*name < COLLECTED.start || collected::is_numbered(*name))
        });
        let since = there.map(|(lane, name, state)| (lane, name, state.seq));
        since
            .filter(|(lane, name, seq)| {
                *seq > self.lost[*lane] && *seq > self.compared[*lane][*name]
            })
            .collect()
    }
}

impl<'s> Listener<'s> {
    /// By the opening `own`, beside `other`.
    pub fn new(
        own: &'s LogStore,
        other: &'s LogStore,
        diaries: &'s Region,
        seed: u64,
        twin: Twin,
    ) -> Listener<'s> {
        let none = || vec![vec![0; NAMES]; LANES];
        let mut listener = Listener {
            _role: take(own),
            own,
            listener: own.listen().unwrap(),
            other,
            received: Received {
                diaries: (0..LANES).map(|lane| Diary::of(diaries, lane)).collect(),
                arrived: none(),
                lost: vec![0; LANES],
                compared: none(),
                losses: 0,
                changes: 0,
                marked: false,
                deaf: (twin == Twin::Deaf).then(|| Random::new(seed)),
            },
            tally: Tally::of(diaries),
            random: Random::new(seed),
        };
        // A listener begins with a loss, and reports another for changes that were under way.
        listener.drain();
        assert!(listener.received.losses >= 1);
        listener
    }

    fn drain(&mut self) -> usize {
        let most = 1 + self.random.below(5000) as usize;
        let (listener, received) = (&mut self.listener, &mut self.received);
        listener.drain(most, |report| received.on(report)).unwrap()
    }

    /// Drains the feed until its own change comes, or a loss. Returns false if the store is too
    /// full for that change.
    fn catch_up(&mut self) -> bool {
        self.received.marked = false;
        let mark = self.other.database(MARK).unwrap();
        let put = patiently(|| match mark.put(b"mark", b"") {
            Err(WriteError::OutOfMemory { .. }) => Ok(false),
            put => put.map(|_| true),
        });
        if !put.unwrap() {
            return false;
        }
        patiently(|| mark.clear()).unwrap();
        let began = Instant::now();
        while !self.received.marked {
            if self.drain() == 0 {
                assert!(began.elapsed() < BUSY, "nothing arrives any more");
                std::thread::yield_now();
            }
        }
        true
    }

    /// One check.
    pub fn step(&mut self) {
        if self.random.one_in(50) {
            self.listener = self.own.listen().unwrap();
        }
        let before = (self.received.changes, self.received.losses);
        let asked = self.received.asked();
        if !self.catch_up() {
            return;
        }
        let mut compared = 0;
        for (lane, name, seq) in asked {
            if seq <= self.received.lost[lane] {
                continue;
            }
            let arrived = self.received.arrived[lane][name];
            if arrived < seq {
                eprintln!(
                    "lane {lane}, name {name}: change {seq} was acknowledged and never received, \
                     the last one received was {arrived} or earlier"
                );
                exit(DEAF);
            }
            self.received.compared[lane][name] = seq;
            compared += 1;
        }
        self.tally.count(0, self.received.changes - before.0);
        self.tally.count(1, self.received.losses - before.1);
        self.tally.count(2, compared);
    }
}

/// Takes the role, whose last holder is dead, or about to be.
fn take(store: &LogStore) -> ServerRole {
    let began = Instant::now();
    loop {
        match store.take_server_role() {
            Ok(role) => return role,
            Err(RoleError::Taken { .. }) if began.elapsed() < BUSY => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}
