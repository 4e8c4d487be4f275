//! A durable store on a recorded directory, and its content after each change.

use std::collections::BTreeMap;
use std::sync::Arc;

use mneme_durable::stepped::Stepped;
use mneme_durable::{DurabilityMode, DurableError, DurableOptions, LogStore};
use mneme_log::{Builder, Cursor, Expiry, ValueKind};
use mneme_sys::ManualClock;
use mneme_sys::medium::{
    DirectoryOperation, DirectoryState, DirectoryStates, DirectoryTrace, Operation,
    RecordingDirectory,
};
use mneme_testkit::Random;

use super::collections::{change_collection, fill_collections, held};

/// The number of databases that a life uses.
const DATABASES: usize = 3;

/// Value, expiry, and the number of the value's kind.
type Held = (Vec<u8>, Expiry, u8);
pub type Records = BTreeMap<(usize, Vec<u8>), Held>;

fn builder() -> Builder {
    LogStore::builder().capacity(64 << 20).maintainer(false)
}

/// What a store holds, expired records too: its clock does not advance.
pub fn contents(store: &LogStore) -> Records {
    let mut all = BTreeMap::new();
    for number in 0..DATABASES {
        let database = store.database(number).unwrap();
        let mut keys = Vec::new();
        let mut cursor = Cursor::START;
        while cursor != Cursor::END {
            let visit = |key: &[u8]| keys.push(key.to_vec());
            cursor = database.scan_keys(cursor, 100, visit).unwrap();
        }
        for key in keys {
            let kind = database.kind(&key).unwrap().unwrap();
            let value = held(database, &key, kind);
            let kind = kind.packed();
            let expiry = database.expiry(&key).unwrap().unwrap_or_default();
            all.insert((number, key), (value, expiry, kind.number()));
        }
    }
    all
}

/// A kind for a value: half of them are not strings.
fn kind_of(value: &[u8]) -> ValueKind {
    ValueKind::new(value.len() as u8 % 2).unwrap()
}

/// The result of some crashes.
#[derive(Debug, Default)]
pub struct Outcome {
    pub states: usize,
    /// The number of those that were opened; the others had occurred at an earlier point.
    pub opened: usize,
    pub wrong: Vec<String>,
}

impl Outcome {
    #[track_caller]
    pub fn holds(&self, states: usize) {
        let first = self.wrong.first();
        assert!(first.is_none(), "{} wrong: {first:?}", self.wrong.len());
        assert!(self.states >= states, "only {} states", self.states);
    }
}

/// The content of the store when its feed ended at a position.
type State = (u64, Records);

pub struct Life {
    pub mode: DurabilityMode,
    pub directory: RecordingDirectory,
    pub store: Option<Stepped>,
    pub random: Random,
    pub clock: Arc<ManualClock>,
    /// Every state that it had, in order.
    states: Vec<State>,
    /// What was acknowledged at each mark.
    acknowledged: Vec<u64>,
}

/// Opens the store at a given time.
pub fn open_at(
    mode: DurabilityMode,
    directory: &RecordingDirectory,
    clock: Arc<ManualClock>,
) -> Result<Stepped, DurableError> {
    DurableOptions::on(directory.clone())
        .mode(mode)
        .file_bytes(256 << 10)
        .reserve(0)
        .recycled(0)
        .clock(clock)
        .open_stepped(builder())
}

pub fn open(mode: DurabilityMode, directory: &RecordingDirectory) -> Result<Stepped, DurableError> {
    open_at(mode, directory, Arc::new(ManualClock::new(0, 1000)))
}

impl Life {
    pub fn new(mode: DurabilityMode, seed: u64) -> Self {
        let mut life = Self {
            mode,
            directory: RecordingDirectory::new(),
            store: None,
            random: Random::new(seed),
            clock: Arc::new(ManualClock::new(0, 1000)),
            states: vec![(0, Records::new())],
            acknowledged: vec![0],
        };
        life.reopen();
        life
    }

    pub fn store(&self) -> &Stepped {
        self.store.as_ref().unwrap()
    }

    pub fn stepped(&mut self) -> &mut Stepped {
        self.store.as_mut().unwrap()
    }

    /// A step of the pump, half a second later.
    pub fn step(&mut self) {
        self.clock.advance_ms(500);
        self.stepped().step();
    }

    /// Notes the present content of the store.
    pub fn note(&mut self) {
        let state = (self.store().gate().tail(), contents(self.store()));
        self.states.push(state);
    }

    /// The process dies and the next one recovers, without a loss of power.
    pub fn reopen(&mut self) {
        self.store = None;
        let store = open_at(self.mode, &self.directory, self.clock.clone()).unwrap();
        let state = (store.gate().durable(), contents(&store));
        check(
            &self.states,
            self.acknowledged.last().copied().unwrap(),
            &state,
        )
        .unwrap();
        self.states.retain(|(tail, _)| *tail < state.0);
        self.states.push(state);
        self.store = Some(store);
        self.acknowledge();
    }

    /// Notes what is durable now: from now on a crash must keep it.
    pub fn acknowledge(&mut self) {
        let durable = self.store().gate().durable();
        self.directory.mark(self.acknowledged.len() as u64);
        self.acknowledged.push(durable);
    }

    /// A random change.
    pub fn change(&mut self) {
        let Self { store, random, .. } = self;
        let store = store.as_ref().unwrap();
        let number = random.below(DATABASES as u64) as usize;
        let database = store.database(number).unwrap();
        let key = format!("key-{}", random.below(12)).into_bytes();
        let value = vec![random.next() as u8; random.below(900) as usize];
        let kind = kind_of(&value);
        match random.below(16) {
            12.. => change_collection(database, random),
            0 => database.clear().unwrap(),
            1 => {
                let other = random.below(DATABASES as u64) as usize;
                store.swap_databases(number, other).unwrap();
            }
            2 | 3 => drop(database.remove(&key).unwrap()),
            4 => drop(database.set_expiry(&key, Expiry::At(1 << 40)).unwrap()),
            5 => database
                .put_kind(&key, &value, kind, Expiry::At(1 << 41))
                .unwrap(),
            6 => store
                .transaction(|t| {
                    t.database(0)?.put_kind(&key, &value, kind, Expiry::Never)?;
                    t.put(b"other", &value)
                })
                .unwrap(),
            7 => database.put(&key, &[4; 30_000]).unwrap(),
            _ => database
                .put_kind(&key, &value, kind, Expiry::Never)
                .unwrap(),
        }
        self.note();
    }

    /// Large values of every type, for later changes.
    pub fn fill(&mut self) {
        let Self { store, random, .. } = self;
        let database = store.as_ref().unwrap().database(0).unwrap();
        fill_collections(database, random);
        self.note();
    }

    /// A random change of a hash, a set or a sorted set of the first database.
    pub fn change_collection(&mut self) {
        let Self { store, random, .. } = self;
        let database = store.as_ref().unwrap().database(0).unwrap();
        change_collection(database, random);
        self.note();
    }

    /// Random changes until one needs a sync. Some change nothing.
    pub fn change_something(&mut self) {
        let tail = self.store().gate().tail();
        let mut changes = 0..20;
        while self.store().gate().tail() == tail && changes.next().is_some() {
            self.change();
        }
    }

    /// Clears every database: their content is kept until the clearing is durable.
    pub fn clear_all(&mut self) {
        for number in 0..DATABASES {
            self.store().database(number).unwrap().clear().unwrap();
        }
        self.note();
    }

    /// A value that is entered in pieces.
    pub fn change_in_pieces(&mut self) {
        let value = vec![self.random.next() as u8; 70_000 + self.random.below(200_000) as usize];
        let key = format!("key-{}", self.random.below(12));
        let kind = kind_of(&value);
        let put = |store: &LogStore| store.put_kind(key.as_bytes(), &value, kind, Expiry::Never);
        put(self.store()).unwrap();
        self.note();
    }

    /// Changes that belong together. While they are made, what is durable is acknowledged, as to
    /// another thread. The process may die with some of them in the files and their end only in its
    /// memory.
    pub fn change_together(&mut self) {
        let dies = self.random.below(3) == 0;
        let Self { store, random, .. } = self;
        let stepped = store.as_mut().unwrap();
        let (gate, directory) = (stepped.gate(), &self.directory);
        let (acknowledged, states) = (&mut self.acknowledged, &mut self.states);
        let made = stepped.together(|store, sync| {
            for _ in 0..1 + random.below(5) {
                let number = random.below(DATABASES as u64) as usize;
                let key = format!("key-{}", random.below(12)).into_bytes();
                let longest = if random.below(4) == 0 { 150_000 } else { 500 };
                let value = vec![random.next() as u8; random.below(longest) as usize];
                let database = store.database(number).unwrap();
                match random.below(6) {
                    0 => database.clear().unwrap(),
                    1 => store.swap_databases(number, 0).unwrap(),
                    2 => drop(database.remove(&key).unwrap()),
                    _ => database.put(&key, &value).unwrap(),
                }
                if random.below(3) == 0 {
                    sync();
                    directory.mark(acknowledged.len() as u64);
                    acknowledged.push(gate.durable());
                    if gate.durable() == gate.tail() {
                        states.push((gate.tail(), contents(store)));
                    }
                }
            }
            if dies && random.below(2) == 0 {
                sync();
            }
        });
        made.unwrap();
        if dies {
            self.reopen();
        } else {
            self.note();
        }
    }

    /// Makes everything durable, and acknowledges it.
    pub fn sync(&mut self) {
        self.stepped().sync();
        self.acknowledge();
    }

    pub fn crash(&self, most: usize, seed: u64) -> Outcome {
        self.crash_trace(&self.directory.trace(), most, seed)
    }

    /// Crashes after every operation, up to about `most` states.
    pub fn crash_trace(&self, trace: &DirectoryTrace, most: usize, seed: u64) -> Outcome {
        let mut random = Random::new(seed);
        let mut outcome = Outcome::default();
        let points = trace.operations.len() as u64 + 1;
        let mut states = DirectoryStates::new(trace);
        let mut recovered = Recovered::default();
        loop {
            // If there are fewer states than points they are spread evenly; otherwise each point
            // gets at least one.
            let many =
                (most as u64 / points) + u64::from(random.below(points) < most as u64 % points);
            for _ in 0..many {
                let state = states.sample(|| random.next());
                outcome.states += 1;
                let acknowledged = self.acknowledged[states.mark() as usize];
                let nested = (random.below(8) == 0).then(|| random.next());
                let found = recovered.of(state, |state| {
                    outcome.opened += 1;
                    let directory = RecordingDirectory::crashed(&states, state);
                    self.recover(&directory, nested)
                });
                let right = found.and_then(|found| check(&self.states, acknowledged, found));
                if let Err(what) = right {
                    let at = states.at();
                    outcome.wrong.push(format!("after {at} operations: {what}"));
                }
            }
            recovered.pass(trace.operations.get(states.at()));
            if outcome.wrong.len() > 5 || !states.advance() {
                return outcome;
            }
        }
    }

    /// Recovers what a crash has left. It holds at least what was acknowledged.
    pub fn verify(&self, directory: &RecordingDirectory, acknowledged: u64) -> Result<(), String> {
        check(&self.states, acknowledged, &self.recover(directory, None)?)
    }

    /// The result of recovering what a crash has left; with a seed the recovery is crashed too.
    fn recover(
        &self,
        directory: &RecordingDirectory,
        nested: Option<u64>,
    ) -> Result<State, String> {
        let store = open(self.mode, directory).map_err(|error| error.to_string())?;
        let found = (store.gate().durable(), contents(&store));
        drop(store);
        let Some(seed) = nested else {
            return Ok(found);
        };
        let mut random = Random::new(seed);
        let trace = directory.trace();
        let mut states = DirectoryStates::new(&trace);
        while states.advance() {
            if random.below(trace.operations.len() as u64) < 2 {
                let state = states.sample(|| random.next());
                let again = RecordingDirectory::crashed(&states, &state);
                let store = open(self.mode, &again).map_err(|error| format!("again: {error}"))?;
                let now = (store.gate().durable(), contents(&store));
                if now != found {
                    return Err(format!("{} became {} in a second crash", found.0, now.0));
                }
            }
        }
        Ok(found)
    }
}

/// The recovered states since the last sync of a file. A state that a crash at an earlier point has
/// left too is not opened again: only what it must hold may differ.
#[derive(Default)]
struct Recovered(Vec<(DirectoryState, Result<State, String>)>);

impl Recovered {
    fn of(
        &mut self,
        state: DirectoryState,
        recover: impl FnOnce(&DirectoryState) -> Result<State, String>,
    ) -> Result<&State, String> {
        let known = self.0.iter().position(|(known, _)| *known == state);
        let place = known.unwrap_or_else(|| {
            let found = recover(&state);
            self.0.push((state, found));
            self.0.len() - 1
        });
        self.0[place].1.as_ref().map_err(Clone::clone)
    }

    /// Forgets them at a sync, because states are differences from what is durable.
    fn pass(&mut self, operation: Option<&DirectoryOperation>) {
        if let Some(DirectoryOperation::File {
            operation: Operation::Sync,
            ..
        }) = operation
        {
            self.0.clear();
        }
    }
}

/// Whether the store once had this state, no earlier than what was acknowledged.
fn check(states: &[State], acknowledged: u64, found: &State) -> Result<(), String> {
    let (end, records) = found;
    if *end < acknowledged {
        return Err(format!(
            "it ends at {end}, and {acknowledged} was acknowledged"
        ));
    }
    // An entry may have no visible effect, such as the first of a database.
    let had = states.iter().rev().find(|(tail, _)| tail <= end);
    match had {
        Some((_, had)) if had == records => Ok(()),
        _ => Err(format!(
            "at {end} it never held what it holds: {} records",
            records.len()
        )),
    }
}
