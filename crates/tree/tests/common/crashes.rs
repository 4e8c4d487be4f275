//! Histories of a store, crashed: each function panics if something acknowledged is missing, or if
//! something is half done.

use std::sync::Arc;

use mneme_sys::medium::{
    CrashState, CrashStates, FailureModel, Operation, RecordingMedium, SECTOR, Trace,
};
use mneme_tree::{Batch, Durability, Store};

use super::{MAX, Model, contents, copy_of, open_on};

/// What a store held after each of its commits, the first being what it began with.
pub type History = Vec<Model>;

pub const BOTH: [(FailureModel, Durability); 2] = [
    (FailureModel::File, Durability::File),
    (FailureModel::Dax, Durability::Dax),
];

/// Random numbers that a failure can be reproduced with.
pub fn random(mut seed: u64) -> impl FnMut() -> u64 {
    move || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Runs batches on a store that holds what `image` does, and records what happens to the medium.
pub struct Recorder {
    pub medium: Arc<RecordingMedium>,
    pub db: Store,
    pub history: History,
}

impl Recorder {
    pub fn new(durability: Durability) -> Self {
        let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
        drop(open_on(&medium, durability).unwrap());
        Self::on(copy_of(&medium), durability)
    }

    /// Opens the store again, everything of it being durable; only what follows is recorded.
    pub fn again(self, durability: Durability) -> Self {
        std::mem::forget(self.db);
        Self::on(copy_of(&self.medium), durability)
    }

    pub fn on(medium: Arc<RecordingMedium>, durability: Durability) -> Self {
        let db = open_on(&medium, durability).unwrap();
        let history = vec![contents(&db.snapshot().unwrap())];
        Self {
            medium,
            db,
            history,
        }
    }

    pub fn apply(&mut self, changes: &[(&[u8], Option<&[u8]>)]) {
        let mut batch = Batch::new();
        let mut model = self.history.last().unwrap().clone();
        for (key, value) in changes {
            match value {
                Some(value) => {
                    batch.put(key, value);
                    model.insert(key.to_vec(), value.to_vec());
                }
                None => {
                    batch.remove(key);
                    model.remove(*key);
                }
            }
        }
        self.db.apply(&batch).unwrap();
        self.history.push(model);
        self.medium.mark(self.history.len() as u64 - 1);
    }

    /// The trace and the history; the process is killed.
    pub fn end(self) -> (Trace, History) {
        std::mem::forget(self.db);
        (self.medium.trace(), self.history)
    }
}

/// Opens what a crash left behind and says what is wrong with it. `medium` is reused from crash to
/// crash.
pub fn verify(
    medium: &Arc<RecordingMedium>,
    durability: Durability,
    history: &History,
    mark: u64,
) -> Result<(), String> {
    let db = open_on(medium, durability).map_err(|error| format!("cannot open: {error}"))?;
    db.check().map_err(|error| format!("check: {error}"))?;
    let found = contents(&db.snapshot().map_err(|error| error.to_string())?);
    let allowed = [Some(mark), mark.checked_add(1)];
    let allowed = allowed
        .iter()
        .flatten()
        .filter_map(|n| history.get(*n as usize));
    let result = if allowed.clone().any(|model| *model == found) {
        Ok(())
    } else {
        let of = history.iter().position(|model| *model == found);
        Err(format!(
            "acknowledged {mark}, found what was committed as {of:?}"
        ))
    };
    // As a killed process: nothing is stored any more, but its memory is given back.
    medium.fail_sync(1, 1);
    drop(db);
    result
}

#[derive(Default)]
pub struct Outcome {
    pub states: usize,
    pub wrong: Vec<String>,
}

/// Which crashes of a trace are tried.
pub enum Choice {
    /// Everything, at points with at most so many combinations; many samples at others.
    All(usize),
    /// So many by chance, at every `1`-th point.
    Some(usize, usize),
}

pub fn crash(
    trace: &Trace,
    (model, durability): (FailureModel, Durability),
    history: &History,
    choice: &Choice,
    stop_at_first: bool,
) -> Outcome {
    let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
    let mut outcome = Outcome::default();
    let mut random = random(trace.operations.len() as u64);
    let mut states = CrashStates::new(trace, model);
    loop {
        let chosen: Vec<CrashState> = match choice {
            Choice::All(limit) => states
                .all(*limit)
                .unwrap_or_else(|| (0..200).map(|_| states.sample(&mut random)).collect()),
            Choice::Some(count, every) if states.at().is_multiple_of(*every) => {
                (0..*count).map(|_| states.sample(&mut random)).collect()
            }
            Choice::Some(..) => Vec::new(),
        };
        for state in chosen {
            medium.become_crashed(&states, &state).unwrap();
            outcome.states += 1;
            if let Err(what) = verify(&medium, durability, history, states.mark()) {
                outcome
                    .wrong
                    .push(format!("after operation {}: {what}", states.at()));
                if stop_at_first {
                    return outcome;
                }
            }
        }
        if !states.advance() {
            return outcome;
        }
    }
}

pub fn expect_none(outcome: &Outcome, least: usize) {
    assert!(
        outcome.wrong.is_empty(),
        "{} of {}: {:#?}",
        outcome.wrong.len(),
        outcome.states,
        &outcome.wrong[..outcome.wrong.len().min(5)]
    );
    assert!(outcome.states >= least, "only {} states", outcome.states);
}

/// One leaf: puts, an overwrite, a removal, a batch.
pub fn one_leaf(durability: Durability) -> (Trace, History) {
    let mut recorder = Recorder::new(durability);
    recorder.apply(&[(b"a", Some(b"1"))]);
    recorder.apply(&[(b"b", Some(&[7; 700]))]);
    recorder.apply(&[(b"a", Some(b"2"))]);
    recorder.apply(&[(b"b", None), (b"c", Some(b"3"))]);
    recorder.apply(&[(b"c", Some(b"4")), (b"d", Some(&[1; 40])), (b"a", None)]);
    recorder.end()
}

pub fn one_leaf_survives() {
    for mode in BOTH {
        let (trace, history) = one_leaf(mode.1);
        let outcome = crash(&trace, mode, &history, &Choice::All(20_000), true);
        expect_none(&outcome, 400);
    }
}

/// A store that is all splits, rewrites, joins and growth.
pub fn many_leaves(durability: Durability, commits: u64) -> (Trace, History) {
    let mut recorder = Recorder::new(durability);
    let mut random = random(commits);
    let key = |n: u64| format!("key{n:013}").into_bytes();
    let first: Vec<_> = (0..400).map(|n| (key(n * 7), vec![n as u8; 100])).collect();
    let first: Vec<_> = first.iter().map(|(k, v)| (&k[..], Some(&v[..]))).collect();
    recorder.apply(&first);
    for commit in 0..commits {
        if commit == commits / 2 {
            // The places of leaves that died so far are used again.
            recorder = recorder.again(durability);
        }
        // Some commits rewrite many leaves.
        let count = if commit % 4 == 3 {
            80
        } else {
            1 + random() % 12
        };
        let base = random() % 400;
        let changes: Vec<_> = (0..count)
            .map(|n| {
                let key =
                    key((base + n * [1, 2, 3, 37][commit as usize % 4]) % 400 * 7 + random() % 2);
                let keep = if commit % 20 < 10 { 4 } else { 1 };
                let value =
                    (random() % 5 < keep).then(|| vec![commit as u8; 50 + random() as usize % 900]);
                (key, value)
            })
            .collect();
        let changes: Vec<_> = changes
            .iter()
            .map(|(k, v)| (&k[..], v.as_deref()))
            .collect();
        recorder.apply(&changes);
    }
    recorder.end()
}

pub fn many_leaves_survive() {
    for mode in BOTH {
        let (trace, history) = many_leaves(mode.1, 40);
        let outcome = crash(&trace, mode, &history, &Choice::Some(3, 1), true);
        expect_none(&outcome, 500);
    }
}

/// Crashes again and again, each time on what the crash before has left: numbers of versions that
/// never happened, entries and leaves of theirs, half-done recoveries.
pub fn generations_leave_nothing() {
    for (mode, seed) in BOTH.into_iter().zip([11, 12]) {
        let mut random = random(seed);
        let scratch = Arc::new(RecordingMedium::new(MAX).unwrap());
        let mut recorder = Recorder::new(mode.1);
        let mut swept = false;
        for generation in 0..110u64 {
            for commit in 0..1 + random() % 4 {
                let changes: Vec<_> = (0..1 + random() % 30)
                    .map(|_| {
                        let key = format!("key{:03}", random() % 150).into_bytes();
                        let value = vec![(generation + commit) as u8; random() as usize % 400];
                        (key, (!random().is_multiple_of(4)).then_some(value))
                    })
                    .collect();
                let changes: Vec<_> = changes
                    .iter()
                    .map(|(k, v)| (&k[..], v.as_deref()))
                    .collect();
                recorder.apply(&changes);
            }
            let dead = recorder.db.stats().unwrap().dead_versions;
            swept |= generation > 40 && dead < 40;
            let (trace, history) = recorder.end();
            let mut states = CrashStates::new(&trace, mode.0);
            let end = 1 + random() as usize % trace.operations.len();
            while states.at() < end && states.advance() {}
            let state = states.sample(&mut random);
            scratch.become_crashed(&states, &state).unwrap();
            // Some recoveries are crashed too.
            if generation.is_multiple_of(3) {
                std::mem::forget(open_on(&scratch, mode.1).unwrap());
                let recovery = scratch.trace();
                let mut inside = CrashStates::new(&recovery, mode.0);
                let first = recovery
                    .operations
                    .iter()
                    .position(|op| *op == Operation::Sync);
                let end = first.unwrap()
                    + 1
                    + random() as usize % (recovery.operations.len() - first.unwrap());
                while inside.at() < end && inside.advance() {}
                let state = inside.sample(&mut random);
                scratch.become_crashed(&inside, &state).unwrap();
            }
            let crashed = copy_of(&scratch);
            verify(&scratch, mode.1, &history, states.mark())
                .unwrap_or_else(|what| panic!("{mode:?}, generation {generation}: {what}"));
            recorder = Recorder::on(crashed, mode.1);
        }
        assert!(swept, "dead numbers were never swept");
        std::mem::forget(recorder.db);
    }
}

/// The fortieth unclean end makes the next opening remove all traces of dead versions. It is crashed
/// everywhere, and what follows must not bring them back.
pub fn sweeps_survive() {
    for mode in BOTH {
        let mut recorder = Recorder::new(mode.1);
        // Several leaves: a commit zeroes what follows the entries of those that it appends to.
        let kept: Vec<_> = (0..400u32)
            .map(|n| format!("key{n:04}").into_bytes())
            .collect();
        let kept: Vec<_> = kept
            .iter()
            .map(|key| (&key[..], Some(&[1; 100][..])))
            .collect();
        recorder.apply(&kept);
        let mut medium = copy_of(&recorder.medium);
        std::mem::forget(recorder.db);
        for _ in 0..39 {
            let killed = Recorder::on(copy_of(&medium), mode.1);
            killed.medium.mark(7);
            // Everything of the commit arrives but its record.
            killed.db.put(b"a-dead", &[7; 50]).unwrap();
            let mut trace = killed.end().0;
            let ring = |op: &Operation| matches!(op, Operation::Store { bytes, .. } if bytes.len() as u64 == SECTOR);
            let record = trace.positions(ring).pop().unwrap();
            trace.operations.truncate(record);
            trace.operations.push(Operation::Sync);
            let mut states = CrashStates::new(&trace, mode.0);
            while states.advance() {}
            let left = RecordingMedium::new(MAX).unwrap();
            left.become_crashed(&states, &states.all(2).unwrap()[0])
                .unwrap();
            medium = copy_of(&left);
        }
        // The opening that sweeps, and a commit behind it.
        let recorder = Recorder::on(copy_of(&medium), mode.1);
        assert_eq!(recorder.db.stats().unwrap().dead_versions, 0, "swept");
        let (trace, history) = recorder.end();
        let scratch = Arc::new(RecordingMedium::new(MAX).unwrap());
        let mut random = random(40);
        let mut states = CrashStates::new(&trace, mode.0);
        loop {
            for _ in 0..40 {
                scratch
                    .become_crashed(&states, &states.sample(&mut random))
                    .unwrap();
                let db = open_on(&scratch, mode.1).unwrap();
                assert_eq!(contents(&db.snapshot().unwrap()), history[0], "{mode:?}");
                db.put(b"z-new", b"2").unwrap();
                assert_eq!(db.get(b"a-dead").unwrap(), None);
                std::mem::forget(db);
                let db = open_on(&copy_of(&scratch), mode.1).unwrap();
                db.check().unwrap();
                assert_eq!(
                    db.get(b"a-dead").unwrap(),
                    None,
                    "{mode:?}: a dead version came back"
                );
            }
            if !states.advance() {
                break;
            }
        }
    }
}
