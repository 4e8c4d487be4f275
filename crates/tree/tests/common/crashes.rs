//! Histories of a store, crashed: each function panics if an acknowledged change is missing, or a
//! change is half done.

use std::collections::BTreeMap;
use std::sync::Arc;

use mneme_sys::medium::{
    CrashState, CrashStates, FailureModel, Medium, Operation, RecordingMedium, SECTOR, Trace,
};
use mneme_testkit::Random;
use mneme_tree::{Batch, Durability, Snapshot, Store};

use super::{MAX, Model, contents, copy_of, open_on};

/// Bytes of a frame of the file.
const FRAME: u64 = 2 << 20;

/// Bytes of a frame's table.
const TABLE: usize = 16 << 10;

/// Whether a commit record is stored.
pub fn is_record(operation: &Operation) -> bool {
    let ring = 4096..4096 + 256 * SECTOR;
    matches!(operation, Operation::Store { at, .. } if ring.contains(at))
}

/// The content of a store after each of its commits, beginning with the initial content.
pub type History = Vec<Model>;

pub const BOTH: [(FailureModel, Durability); 2] = [
    (FailureModel::File, Durability::File),
    (FailureModel::Dax, Durability::Flush),
];

/// Random numbers with which a failure can be reproduced.
pub fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut random = Random::new(seed);
    move || random.next()
}

/// Runs batches on a store with the content of `image`, and records what happens to the medium.
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

    /// Opens the store again, with everything durable; only what follows is recorded.
    pub fn again(self, durability: Durability) -> Self {
        let medium = copy_of(&self.medium);
        drop(self.db);
        Self::on(medium, durability)
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

    /// As [`Recorder::apply`].
    pub fn apply_all(&mut self, changes: &[(Vec<u8>, Option<Vec<u8>>)]) {
        let borrowed = changes.iter().map(|(k, v)| (&k[..], v.as_deref()));
        self.apply(&borrowed.collect::<Vec<_>>());
    }

    /// The trace and the history; the process is killed.
    pub fn end(self) -> (Trace, History) {
        let trace = self.medium.trace();
        drop(self.db);
        (trace, self.history)
    }
}

/// Opens what a crash left behind and describes what is wrong with it. `medium` is reused from
/// crash to crash.
pub fn verify(
    medium: &Arc<RecordingMedium>,
    durability: Durability,
    history: &History,
    mark: u64,
) -> Result<(), String> {
    let db = open_on(medium, durability).map_err(|error| format!("cannot open: {error}"))?;
    db.check().map_err(|error| format!("check: {error}"))?;
    let snapshot = db.snapshot().map_err(|error| error.to_string())?;
    let allowed = [Some(mark), mark.checked_add(1)];
    let allowed = allowed
        .iter()
        .flatten()
        .filter_map(|n| history.get(*n as usize));
    let result = if allowed.clone().any(|model| shows(&snapshot, model)) {
        Ok(())
    } else {
        let found = contents(&snapshot);
        let of = history.iter().position(|model| *model == found);
        Err(format!(
            "acknowledged {mark}, found what was committed as {of:?}"
        ))
    };
    // Like a killed process it stores nothing more, but its memory is freed.
    medium.fail_sync(1, 1);
    drop((snapshot, db));
    result
}

/// Whether it has exactly the content of the model. Building a map of it for the comparison would
/// be half of the cost of a crash.
fn shows(snapshot: &Snapshot, model: &Model) -> bool {
    let mut pairs = snapshot.range(..);
    for (key, value) in model {
        match pairs.next() {
            Some(Ok(found)) if found == (&key[..], &value[..]) => {}
            _ => return false,
        }
    }
    pairs.next().is_none()
}

#[derive(Default)]
pub struct Outcome {
    pub states: usize,
    pub wrong: Vec<String>,
}

/// Which crashes of a trace are tried.
pub enum Choice {
    /// All of them, at points with at most this number of combinations; many samples at others.
    All(usize),
    /// This number at random, at every `1`-th point.
    Some(usize, usize),
    /// This number at random, at every point up to operation `1`.
    Until(usize, usize),
}

pub fn crash(
    trace: &Trace,
    (model, durability): (FailureModel, Durability),
    history: &History,
    choice: &Choice,
    stop_at_first: bool,
) -> Outcome {
    crash_with(trace, model, choice, stop_at_first, |medium, mark| {
        verify(medium, durability, history, mark)
    })
}

/// As [`crash`]; `verify` describes what is wrong after a crash, given how much was acknowledged.
pub fn crash_with(
    trace: &Trace,
    model: FailureModel,
    choice: &Choice,
    stop_at_first: bool,
    verify: impl Fn(&Arc<RecordingMedium>, u64) -> Result<(), String>,
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
            Choice::Until(count, end) if states.at() <= *end => {
                (0..*count).map(|_| states.sample(&mut random)).collect()
            }
            Choice::Until(..) => return outcome,
            Choice::Some(..) => Vec::new(),
        };
        for state in chosen {
            medium.become_crashed(&states, &state).unwrap();
            outcome.states += 1;
            if let Err(what) = verify(&medium, states.mark()) {
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
    recorder.apply(&[(b"b", Some(&[7; 500]))]);
    recorder.apply(&[(b"a", Some(b"2"))]);
    recorder.apply(&[(b"b", None), (b"c", Some(b"3"))]);
    recorder.apply(&[(b"c", Some(b"4")), (b"d", Some(&[1; 40])), (b"a", None)]);
    recorder.end()
}

/// Commits of one change each, more than may follow one record: their leaves are filled, rewritten
/// and reused, beside commits of other kinds.
pub fn single_changes(durability: Durability) -> (Trace, History) {
    let mut recorder = Recorder::new(durability);
    let mut random = random(5);
    for commit in 0..260u64 {
        if commit == 130 {
            recorder = recorder.again(durability);
        }
        let key = |n: u64| vec![b'k', (n % 40) as u8];
        let len = match commit % 50 {
            49 => 3000,
            _ => random() as usize % 700,
        };
        let mut changes = vec![(key(random()), Some(vec![commit as u8; len]))];
        match commit % 25 {
            7 | 15 => changes[0].1 = None,
            24 => changes.extend((0..3).map(|n| (key(100 + n), Some(vec![n as u8; 50])))),
            _ => {}
        }
        recorder.apply_all(&changes);
    }
    recorder.end()
}

pub fn single_changes_survive() {
    for mode in BOTH {
        let (trace, history) = single_changes(mode.1);
        let records = trace.positions(is_record).len();
        assert!(
            records < 200,
            "{records} records: nearly each commit has one"
        );
        let outcome = crash(&trace, mode, &history, &Choice::Some(3, 1), true);
        expect_none(&outcome, 1000);
    }
}

/// After the leaf's last entry are bytes of a commit that did not happen. An entry without a record
/// is stored over a part of them: the rest is not part of the leaf, in whatever way power is lost.
pub fn an_entry_over_old_bytes_survives() {
    for mode in BOTH {
        let killed = Recorder::new(mode.1);
        let mut batch = Batch::new();
        batch.put(b"dead", &[7; 600]).put(b"too", &[7; 600]);
        killed.db.apply(&batch).unwrap();
        let (mut trace, _) = killed.end();
        // Everything of the commit reaches the medium except its record.
        let record = trace.positions(is_record).pop().unwrap();
        trace.operations.truncate(record);
        trace.operations.push(Operation::Sync);
        let mut states = CrashStates::new(&trace, FailureModel::File);
        while states.advance() {}
        let left = RecordingMedium::new(MAX).unwrap();
        left.become_crashed(&states, &states.all(2).unwrap()[0])
            .unwrap();
        let mut recorder = Recorder::on(copy_of(&left), mode.1);
        assert_eq!(recorder.history, [Model::new()]);
        recorder.apply(&[(b"a", Some(b"1"))]);
        recorder.apply(&[(b"a", Some(b"2"))]);
        recorder.apply(&[(b"b", None)]);
        recorder.apply(&[(b"c", Some(b"3"))]);
        let (trace, history) = recorder.end();
        let outcome = crash(&trace, mode, &history, &Choice::All(20_000), true);
        expect_none(&outcome, 100);
    }
}

/// Commits with two barriers: a long value is stored and removed.
pub fn one_extent(durability: Durability) -> (Trace, History) {
    let mut recorder = Recorder::new(durability);
    recorder.apply(&[(b"a", Some(&[1; 2000]))]);
    recorder.apply(&[(b"a", Some(b"2"))]);
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
    many_leaves_of(durability, commits, commits)
}

/// As [`many_leaves`], drawn from the caller's seed.
pub fn many_leaves_of(durability: Durability, commits: u64, seed: u64) -> (Trace, History) {
    let mut recorder = Recorder::new(durability);
    let mut random = random(seed);
    let key = |n: u64| format!("key{n:013}").into_bytes();
    let first: Vec<_> = (0..400).map(|n| (key(n * 7), vec![n as u8; 100])).collect();
    let first: Vec<_> = first.iter().map(|(k, v)| (&k[..], Some(&v[..]))).collect();
    recorder.apply(&first);
    for commit in 0..commits {
        if commit == commits / 2 {
            // The places of leaves that have died so far are reused.
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
        recorder.apply_all(&changes);
    }
    recorder.end()
}

pub fn many_leaves_survive() {
    for mode in BOTH {
        let (trace, history) = many_leaves(mode.1, 40);
        let outcome = crash(&trace, mode, &history, &Choice::Some(4, 1), true);
        expect_none(&outcome, 500);
    }
}

/// Values of several lengths in extents, replaced in all ways, in units that are reused.
pub fn long_values_survive() {
    for mode in BOTH {
        let mut recorder = Recorder::new(mode.1);
        let mut random = random(3);
        for commit in 0..60u8 {
            let changes: Vec<_> = (0..1 + random() % 3)
                .map(|_| {
                    let len = [1920, 1921, 4096, 4097, 9000, 20][random() as usize % 6];
                    let value = (!random().is_multiple_of(4)).then(|| vec![commit; len]);
                    (vec![b'k', (random() % 6) as u8], value)
                })
                .collect();
            recorder.apply_all(&changes);
            if commit == 19 || commit == 39 {
                // Free units are reused from the first one.
                recorder = recorder.again(mode.1);
            }
        }
        // Only as much is kept twice as readers may have needed.
        assert!(
            recorder.medium.len() <= 4 * FRAME,
            "{}",
            recorder.medium.len()
        );
        let (trace, history) = recorder.end();
        expect_none(
            &crash(&trace, mode, &history, &Choice::Some(6, 1), true),
            200,
        );
    }
}

/// Keys that are too long for a leaf, alone or with long values, put, replaced and removed; their
/// leaves have fences that are too long for a leaf, too.
pub fn long_keys_survive() {
    for mode in BOTH {
        let mut recorder = Recorder::new(mode.1);
        let mut random = random(4);
        let key = |n: u64| {
            let len = [1024, 1025, 3000, 8000][n as usize % 4];
            [vec![b'k'; len], n.to_be_bytes().to_vec()].concat()
        };
        for commit in 0..40u8 {
            let count = if commit == 0 { 120 } else { 1 + random() % 4 };
            let changes: Vec<_> = (0..count)
                .map(|n| {
                    let len = [0, 100, 1920, 1921, 9000][random() as usize % 5];
                    let value = (!random().is_multiple_of(3)).then(|| vec![commit; len]);
                    (key(if commit == 0 { n } else { random() % 120 }), value)
                })
                .collect();
            recorder.apply_all(&changes);
            if commit == 0 || commit == 20 {
                // Free units are reused from the first one.
                recorder = recorder.again(mode.1);
            }
        }
        let (trace, history) = recorder.end();
        expect_none(
            &crash(&trace, mode, &history, &Choice::Some(2, 3), true),
            100,
        );
    }
}

/// The place of a long key is taken by another key with the same fingerprint; a snapshot that does
/// not have the other key does not find it.
pub fn long_keys_are_not_mistaken() {
    let builder = Store::builder().durability(Durability::Process);
    let medium = mneme_sys::medium::MemoryMedium::new(MAX).unwrap();
    let db = builder.open_on(Box::new(medium)).unwrap();
    let key = |n: u64| [vec![b'k'; 2000], n.to_be_bytes().to_vec()].concat();
    let mark = |key: &[u8]| mneme_sys::crc32c(0, key) >> 24;
    let first = key(0);
    db.put(&first, b"old").unwrap();
    db.put(&first, b"new").unwrap();
    let snapshot = db.snapshot().unwrap();
    let alike = (1..).map(key).filter(|other| mark(other) == mark(&first));
    for other in alike.take(150) {
        db.put(&other, b"other").unwrap();
        assert_eq!(snapshot.get(&other).unwrap(), None);
        assert_eq!(db.get(&other).unwrap(), Some(b"other".to_vec()));
        db.remove(&other).unwrap();
        assert_eq!(db.get(&other).unwrap(), None);
    }
    assert_eq!(snapshot.get(&first).unwrap(), Some(&b"new"[..]));
    assert_eq!(db.stats().unwrap().extents, 1);
}

/// A snapshot shows long values that were replaced since, however often; only these are kept.
pub fn snapshots_keep_long_values() {
    let (db, _) = super::open();
    let key = |n: u8| [b'k', n];
    for n in 0..20 {
        db.put(&key(n), &vec![n; 5000 + usize::from(n) * 300])
            .unwrap();
    }
    let snapshot = db.snapshot().unwrap();
    let before = contents(&snapshot);
    for turn in 0..200u8 {
        for n in 0..20 {
            db.put(&key(n), &vec![turn; 4000 + usize::from(n) * 400])
                .unwrap();
        }
        if turn % 50 == 0 {
            assert_eq!(contents(&snapshot), before);
        }
    }
    assert_eq!(contents(&snapshot), before);
    db.check().unwrap();
    let held = db.stats().unwrap();
    assert_eq!(held.extents, 20);
    assert!(held.file_bytes <= 4 * FRAME, "{held:?}");
    drop(snapshot);
    for n in 0..200u8 {
        db.put(&[b'n', n], &vec![n; 4096 * 2]).unwrap();
    }
    assert!(db.stats().unwrap().file_bytes <= 6 * FRAME);
}

/// Frames of leaves become frames of one value that extends over several of them, and vice versa.
/// The value has the bytes that the frame's table had when it held leaves.
pub fn frames_change_their_kind() {
    for mode in BOTH {
        let recorder = Recorder::new(mode.1);
        let keys: Vec<_> = (0..1600u32).map(|n| n.to_be_bytes()).collect();
        let put = |db: &Store, keys: &[[u8; 4]]| {
            let mut batch = Batch::new();
            for key in keys {
                batch.put(key, &[1; 1900]);
            }
            db.apply(&batch).unwrap();
        };
        put(&recorder.db, &keys);
        put(&recorder.db, &keys);
        let tables = recorder.medium.bytes();
        for key in &keys {
            recorder.db.remove(key).unwrap();
        }
        // The remaining entries move into the lowest free leaves.
        let recorder = recorder.again(mode.1);
        for _ in 0..12 {
            recorder.db.put(&keys[0], &[1; 1900]).unwrap();
        }
        recorder.db.remove(&keys[0]).unwrap();
        let mut value = vec![7; FRAME as usize];
        // A probe to find out where it will lie.
        let probe = Recorder::on(copy_of(&recorder.medium), mode.1);
        probe.db.put(b"v", &value).unwrap();
        let bytes = probe.end().0;
        let first = bytes.operations.iter().find_map(|op| match op {
            Operation::Store { at, bytes } if bytes.starts_with(b"extents") => Some(*at),
            _ => None,
        });
        let second = (first.unwrap() + FRAME) as usize;
        assert_eq!(&tables[second..second + 6], b"leaves");
        value[FRAME as usize - TABLE..][..TABLE].copy_from_slice(&tables[second..][..TABLE]);

        let mut recorder = recorder.again(mode.1);
        let limit = recorder.medium.len();
        recorder.medium.limit(Some(limit));
        recorder.apply(&[(b"v", Some(&value))]);
        // So many bytes at once give many states, each of them large.
        if mode.0 == FailureModel::File {
            let trace = recorder.medium.trace();
            let choice = Choice::Until(16, trace.operations.len());
            expect_none(&crash(&trace, mode, &recorder.history, &choice, true), 200);
        }
        recorder.apply(&[(b"v", None)]);

        let mut recorder = recorder.again(mode.1);
        recorder.medium.limit(Some(limit));
        let keys: Vec<_> = (0..3200u32).map(|n| n.to_be_bytes()).collect();
        let many = keys.iter().map(|key| (&key[..], Some(&[3; 1900][..])));
        recorder.apply(&many.collect::<Vec<_>>());
        assert_eq!(recorder.medium.len(), limit, "frames were used again");
        let (trace, history) = recorder.end();
        let outcome = crash(&trace, mode, &history, &Choice::Until(16, 20), true);
        expect_none(&outcome, 200);
    }
}

/// Frames of extents become empty. One commit uses one of them for leaves, another for extents
/// again; or they become a run with one table.
pub fn frames_stay_of_their_kind() {
    for mode in BOTH {
        let recorder = Recorder::new(mode.1);
        let keys: Vec<_> = (0..740u32).map(|n| n.to_be_bytes()).collect();
        let mut batch = Batch::new();
        for key in &keys {
            batch.put(key, &[1; 8000]);
        }
        recorder.db.apply(&batch).unwrap();
        for key in &keys {
            recorder.db.remove(key).unwrap();
        }
        let mut run = Recorder::on(copy_of(&recorder.medium), mode.1);
        let limit = run.medium.len();
        run.medium.limit(Some(limit));
        run.apply(&[(b"v", Some(&[4; 2_100_000]))]);
        let (trace, history) = run.end();
        let outcome = crash(&trace, mode, &history, &Choice::Until(12, 14), true);
        expect_none(&outcome, 60);

        let mut recorder = recorder.again(mode.1);
        recorder.medium.limit(Some(limit));
        let mut changes: Vec<_> = keys
            .iter()
            .map(|k| (&k[..], Some(&[2; 1900][..])))
            .collect();
        changes.extend_from_slice(&[(b"x", Some(&[3; 4000])), (b"y", Some(&[3; 4000]))]);
        recorder.apply(&changes);
        assert_eq!(recorder.medium.len(), limit, "frames were used again");
        let (trace, history) = recorder.end();
        let outcome = crash(&trace, mode, &history, &Choice::Until(6, 30), true);
        expect_none(&outcome, 60);
    }
}

/// The content of a store and its named versions, after each step.
type Kept = Vec<(Model, BTreeMap<String, Model>)>;

fn keeping(durability: Durability, steps: u64) -> (Trace, Kept) {
    let recorder = Recorder::new(durability);
    let key = |n: u64| format!("key{:02}", n % 40).into_bytes();
    let value = |n: u64| vec![n as u8; if n.is_multiple_of(7) { 5000 } else { 700 }];
    for n in 0..60 {
        recorder.db.put(&key(n), &value(n)).unwrap();
    }
    // The slot of this one is reused.
    recorder.db.keep("former").unwrap();
    recorder.db.drop_version("former").unwrap();
    let recorder = recorder.again(durability);
    let mut names = BTreeMap::new();
    let mut history = vec![(recorder.history[0].clone(), names.clone())];
    for step in 2..2 + steps {
        let mut model = history[history.len() - 1].0.clone();
        match step % 12 {
            2 | 7 => {
                let name = if step % 12 == 2 { "a" } else { "b" };
                recorder.db.keep(name).unwrap();
                names.insert(name.to_owned(), model.clone());
            }
            5 | 9 => {
                recorder.db.rollback("a").unwrap();
                model = names["a"].clone();
            }
            10 | 11 => {
                let name = if step % 12 == 10 { "a" } else { "b" };
                recorder.db.drop_version(name).unwrap();
                names.remove(name);
            }
            _ => {
                let mut batch = Batch::new();
                for n in 0..8 {
                    let (k, v) = (key(step * 31 + n * 5), value(step * 8 + n));
                    batch.put(&k, &v);
                    model.insert(k, v);
                }
                recorder.db.apply(&batch).unwrap();
            }
        }
        history.push((model, names.clone()));
        recorder.medium.mark(history.len() as u64 - 1);
        if step == 20 {
            // Recovery finds named versions while they are used.
            drop(open_on(&copy_of(&recorder.medium), durability).unwrap());
        }
    }
    recorder.db.check().unwrap();
    (recorder.end().0, history)
}

/// Versions are named, unnamed, and rolled back to: all or nothing of each.
pub fn named_versions_survive() {
    for (model, durability) in BOTH {
        // A slot that is reused, in all ways; then a sample of everything.
        let choices = [(1, Choice::All(2_000), 30), (34, Choice::Some(1, 2), 150)];
        for (steps, choice, least) in choices {
            let (trace, history) = keeping(durability, steps);
            let verify = |medium: &Arc<RecordingMedium>, mark: u64| {
                let error = |error: mneme_tree::StoreError| error.to_string();
                let db = open_on(medium, durability).map_err(error)?;
                db.check().map_err(error)?;
                let look = |db: &Store| {
                    let names = db.versions().into_iter().map(|(name, _)| {
                        let shown = contents(&db.version_named(&name).unwrap());
                        (name, shown)
                    });
                    (
                        contents(&db.snapshot().unwrap()),
                        names.collect::<BTreeMap<_, _>>(),
                    )
                };
                let (found, names) = look(&db);
                // What named versions use is not reused.
                for n in 0..12u8 {
                    db.put(&[b'n', n], &[n; 3500]).map_err(error)?;
                }
                let result = match names == look(&db).1 {
                    true => Ok((found, names)),
                    false => Err("a named version has changed".to_owned()),
                };
                medium.fail_sync(1, 1);
                drop(db);
                let found = result?;
                let mark = mark as usize;
                let allowed = [mark, mark + 1].into_iter().filter_map(|n| history.get(n));
                match allowed.clone().any(|state| *state == found) {
                    true => Ok(()),
                    false => Err(format!("acknowledged {mark}")),
                }
            };
            let outcome = crash_with(&trace, model, &choice, true, verify);
            expect_none(&outcome, least);
        }
    }
}

/// Crashes again and again, each time on what the previous crash has left: numbers, entries and
/// leaves of versions that never happened, half-done recoveries.
pub fn generations_leave_nothing() {
    generations(110, 4, 30);
}

/// Generations of commits of one change, most of which have no record: more of them between two
/// crashes than may follow a record.
pub fn single_commits_leave_nothing() {
    generations(50, 150, 1);
}

/// This number of generations, each with up to this number of commits of up to this number of
/// changes.
fn generations(generations: u64, commits: u64, changes: u64) {
    for (mode, seed) in BOTH.into_iter().zip([11, 12]) {
        let mut random = random(seed);
        let scratch = Arc::new(RecordingMedium::new(MAX).unwrap());
        let mut recorder = Recorder::new(mode.1);
        let mut swept = false;
        for generation in 0..generations {
            for commit in 0..1 + random() % commits {
                let changes: Vec<_> = (0..1 + random() % changes)
                    .map(|_| {
                        let key = format!("key{:03}", random() % 150).into_bytes();
                        let len = random()
                            % if random().is_multiple_of(16) {
                                9000
                            } else {
                                400
                            };
                        let value = vec![(generation + commit) as u8; len as usize];
                        (key, (!random().is_multiple_of(4)).then_some(value))
                    })
                    .collect();
                recorder.apply_all(&changes);
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
                let db = open_on(&scratch, mode.1).unwrap();
                let recovery = scratch.trace();
                drop(db);
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
    }
}

/// The fortieth unclean end makes the next opening remove all traces of dead versions. It is
/// crashed everywhere, and later commits must not bring them back.
pub fn sweeps_survive() {
    for mode in BOTH {
        let mut recorder = Recorder::new(mode.1);
        // Several leaves: a commit zeroes the bytes after the entries of those to which it appends.
        let kept: Vec<_> = (0..400u32)
            .map(|n| format!("key{n:04}").into_bytes())
            .collect();
        let kept: Vec<_> = kept
            .iter()
            .map(|key| (&key[..], Some(&[1; 100][..])))
            .collect();
        recorder.apply(&kept);
        let mut medium = copy_of(&recorder.medium);
        drop(recorder);
        for round in 0..39 {
            let killed = Recorder::on(copy_of(&medium), mode.1);
            killed.medium.mark(7);
            // Everything of the commit reaches the medium except its record.
            let mut batch = Batch::new();
            batch.put(b"a-dead", &[7; 50]);
            if round == 5 {
                batch.put(b"b-dead", &[7; 5000]).put(b"c-dead", &[7; 5000]);
            }
            killed.db.apply(&batch).unwrap();
            let mut trace = killed.end().0;
            // Also without the header of the frame that holds the long values.
            let frame = |op: &Operation| matches!(op, Operation::Store { at, bytes } if at.is_multiple_of(FRAME) && bytes.len() == 24);
            for header in trace.positions(frame) {
                trace = trace.without(header);
            }
            let record = trace.positions(is_record).pop().unwrap();
            trace.operations.truncate(record);
            trace.operations.push(Operation::Sync);
            let mut states = CrashStates::new(&trace, mode.0);
            while states.advance() {}
            let left = RecordingMedium::new(MAX).unwrap();
            left.become_crashed(&states, &states.all(2).unwrap()[0])
                .unwrap();
            medium = copy_of(&left);
        }
        // The opening that sweeps, followed by a commit.
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
                db.put(b"z-long", &[2; 4000]).unwrap();
                assert_eq!(db.get(b"a-dead").unwrap(), None);
                let killed = copy_of(&scratch);
                drop(db);
                let db = open_on(&killed, mode.1).unwrap();
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
