//! Simulates power loss at every point of a recorded scenario.

use mneme_journal::{BasePart, BaseReader, bases, repair};
use mneme_sys::medium::{DirectoryStates, DirectoryTrace, RecordingDirectory};
use mneme_testkit::Random;

use super::recorder::{Mark, Recorder};
use super::{content, options, read_from, shared};

/// Which of the possible states are tried at a point.
#[derive(Debug, Clone, Copy)]
pub enum Choice {
    /// All, if there are at most this many; otherwise this many random ones.
    All(usize),
    /// This many random ones, at every n-th operation.
    Some(usize, usize),
}

/// The result of the crashes.
#[derive(Debug, Default)]
pub struct Outcome {
    pub states: usize,
    pub wrong: Vec<String>,
}

impl Outcome {
    /// Checks that at least this many states were tried, and none was wrong.
    #[track_caller]
    pub fn holds(&self, states: usize) {
        let some: Vec<_> = self.wrong.iter().take(3).collect();
        assert!(
            self.wrong.is_empty(),
            "{} wrong: {some:#?}",
            self.wrong.len()
        );
        assert!(self.states >= states, "only {} states", self.states);
    }
}

/// The state that is found if it satisfies a mark: the base file's begin and the rest of the
/// stream.
fn found(directory: &RecordingDirectory, mark: &Mark) -> Result<(Option<u64>, Vec<u8>), String> {
    let (mut base, mut read) = (None, 0);
    let list = bases(directory).map_err(|e| e.to_string())?;
    if let Some(newest) = list.first() {
        let wrong = |e| format!("{}: {e}", newest.file);
        let mut reader = BaseReader::open(directory, &newest.file).map_err(wrong)?;
        let mut records = Vec::new();
        while let Some(part) = reader.next().map_err(wrong)? {
            match part {
                BasePart::Records { bytes, .. } => records.extend_from_slice(bytes),
                BasePart::Suffix { .. } => return Err("a suffix appeared".to_owned()),
            }
        }
        if records != content(99, 0, 5100) {
            return Err("other records are in the base file".to_owned());
        }
        base = Some(reader.begin().get());
        read = reader.read().map_or(0, |read| read.get());
    }
    if base < mark.base {
        return Err(format!(
            "the newest base file begins at {base:?}, not {:?}",
            mark.base
        ));
    }
    let from = base.unwrap_or(0);
    let bytes = read_from(directory, from).map_err(|e| format!("reading from {from}: {e}"))?;
    let end = from + bytes.len() as u64;
    if end < mark.acknowledged || end < read {
        let Mark { acknowledged, .. } = mark;
        return Err(format!(
            "the end is {end} of {acknowledged}, the base has read {read}"
        ));
    }
    match mark.stream.get(from as usize..end as usize) {
        Some(appended) if appended == bytes => {}
        _ => return Err(format!("wrong bytes between {from} and {end}")),
    }
    Ok((base, bytes))
}

/// Tries the states at a mark, and continues from each of them.
fn verify(
    directory: RecordingDirectory,
    mark: &Mark,
    nested: Option<&mut Random>,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let (base, bytes) = found(&directory, mark)?;
    let end = base.unwrap_or(0) as usize + bytes.len();
    let stream = mark.stream[..end].to_vec();
    // What reading has found is durable, and a crash during the rest does not change it.
    let next = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut next = Recorder::on(directory, stream, base, 50);
        next.open(end as u64);
        next.append(300);
        next.sync();
        next
    }));
    let next = next.map_err(|_| "the next run panicked".to_owned())?;
    let after = found(&next.directory, next.history.last().unwrap())?;
    if after.1.len() != bytes.len() + 300 {
        return Err("the next run's bytes are missing".to_owned());
    }
    if let Some(random) = nested {
        let trace = next.directory.trace();
        let inner = crash_from(&trace, &next.history, Choice::Some(1, 3), random, false);
        outcome.states += inner.states;
        let inner = inner.wrong.into_iter().map(|what| format!("then {what}"));
        outcome.wrong.extend(inner);
    }
    Ok(())
}

/// Crashes after each of the first `many` operations.
fn crash_tail(
    trace: &DirectoryTrace,
    many: usize,
    history: &[Mark],
    random: &mut Random,
) -> Outcome {
    let mut states = DirectoryStates::new(trace);
    while states.at() < many && states.advance() {}
    crash_on(states, history, Choice::Some(1, 2), random, false)
}

fn crash_from(
    trace: &DirectoryTrace,
    history: &[Mark],
    choice: Choice,
    random: &mut Random,
    nested: bool,
) -> Outcome {
    crash_on(DirectoryStates::new(trace), history, choice, random, nested)
}

fn crash_on(
    mut states: DirectoryStates<'_>,
    history: &[Mark],
    choice: Choice,
    random: &mut Random,
    nested: bool,
) -> Outcome {
    let mut outcome = Outcome::default();
    loop {
        let sample = |random: &mut Random, many| {
            let draw = |_| states.sample(|| random.next());
            (0..many).map(draw).collect::<Vec<_>>()
        };
        let tried = match choice {
            Choice::All(most) => states.all(most).unwrap_or_else(|| sample(random, most)),
            Choice::Some(many, step) if states.at().is_multiple_of(step) => sample(random, many),
            Choice::Some(..) => Vec::new(),
        };
        let mark = &history[states.mark() as usize];
        for (nth, state) in tried.into_iter().enumerate() {
            outcome.states += 1;
            let directory = RecordingDirectory::crashed(&states, &state);
            let deeper = nested && nth == 0 && states.at().is_multiple_of(7);
            let inner = deeper.then_some(&mut *random);
            if let Err(what) = verify(directory, mark, inner, &mut outcome) {
                outcome
                    .wrong
                    .push(format!("after {} operations: {what}", states.at()));
            }
        }
        if outcome.wrong.len() > 20 || !states.advance() {
            return outcome;
        }
    }
}

/// Crashes a scenario at every point.
pub fn crash(life: &Recorder, choice: Choice, seed: u64) -> Outcome {
    let trace = life.directory.trace();
    crash_from(&trace, &life.history, choice, &mut Random::new(seed), true)
}

/// Crashes a changed trace of a scenario, in all ways.
pub fn crash_trace(trace: &DirectoryTrace, history: &[Mark]) -> Outcome {
    crash_from(trace, history, Choice::All(600), &mut Random::new(1), false)
}

/// A few groups in one file.
pub fn one_file_survives() {
    let mut life = Recorder::new();
    life.open(0);
    life.append(100);
    life.sync();
    life.append(5000);
    life.append(10);
    life.sync();
    life.append(700);
    life.idle();
    life.append(1);
    crash(&life, Choice::All(600), 1).holds(1500);
}

/// Files that fill up, are recycled after base files, and are taken over.
pub fn many_files_survive() {
    let mut life = many_files(true);
    crash(&life, Choice::Some(3, 1), 2).holds(1000);
    life = many_files(false);
    crash(&life, Choice::Some(3, 1), 2).holds(800);
}

fn many_files(preallocates: bool) -> Recorder {
    let mut life = Recorder::new();
    life.preallocates = preallocates;
    life.open(0);
    for round in 0..5 {
        for group in 0..6 {
            life.append(1500 + 700 * ((group + round) % 6));
            if group % 3 == 2 {
                life.sync();
            }
            life.prepare();
        }
        match round {
            0 | 3 => life.base(true),
            1 => life.die_and_read(),
            2 => life.die_with_ring(),
            _ => life.idle(),
        }
    }
    life
}

/// Syncs that fail and lose pages.
pub fn failed_syncs_survive() {
    for (keep, more) in [(0, 0), (2, 0), (3, 1)] {
        for nth in 1..6 {
            let mut life = Recorder::new();
            life.preallocates = nth % 2 == 0;
            life.open(0);
            life.append(3000);
            life.sync();
            life.directory.fail_sync(nth, keep, more);
            for _ in 0..4 {
                life.append(3500);
                life.sync();
            }
            life.die_and_read();
            life.append(30);
            life.sync();
            crash(&life, Choice::Some(2, 2), nth).holds(40);
        }
    }
}

/// A process that dies between an append and its sync, and one that dies after a sync that failed
/// for good.
pub fn deaths_survive() {
    let mut life = Recorder::new();
    life.open(0);
    life.append(3000);
    life.sync();
    life.append(2000);
    // The next process finds it in the page cache, and acknowledges what follows it.
    life.die_and_read();
    life.append(100);
    life.sync();
    life.append(200);
    life.directory.fail_sync(1, 0, 5);
    life.sync();
    life.directory.fail_sync(9, 0, 0);
    life.append(100);
    life.sync();
    crash(&life, Choice::Some(8, 1), 3).holds(400);
}

/// A process is killed at any instant, with power loss while the next one begins and works.
pub fn kills_survive(life: &Recorder, step: usize, seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let mut outcome = Outcome::default();
    let trace = life.directory.trace();
    let first = random.below(step as u64) as usize;
    for many in (first..trace.operations.len()).step_by(step) {
        let mut next = Recorder::killed(&life.history, &trace, many);
        match random.below(2) {
            0 => next.die_and_read(),
            _ => next.die_with_ring(),
        }
        next.append(300);
        next.sync();
        next.append(4000);
        next.rotate();
        let whole = next.directory.trace();
        let mut inner = crash_tail(&whole, many, &next.history, &mut random);
        outcome.states += inner.states;
        inner
            .wrong
            .iter_mut()
            .for_each(|what| what.insert_str(0, &format!("killed at {many}, ")));
        outcome.wrong.extend(inner.wrong);
        if outcome.wrong.len() > 20 {
            break;
        }
    }
    outcome
}

/// A scenario with everything that creates and renames files.
pub fn kills_everywhere_survive() {
    let mut life = Recorder::new();
    life.open(0);
    for round in 0..2 {
        life.set_preallocates(round == 0);
        life.append(3000 + round);
        life.sync();
        life.append(7000);
        life.rotate();
        life.append(900);
        life.base(true);
    }
    kills_survive(&life, 1, 7).holds(1000);
}

/// Power loss in the middle of a repair: the next repair reaches the same end.
pub fn repairs_survive() {
    let mut life = Recorder::new();
    life.open(0);
    for _ in 0..4 {
        life.append(6000);
        life.sync();
        life.rotate();
    }
    life.append(100);
    life.idle();
    let mut files = life.directory.files();
    let damaged = |name: &str| format!("{name:0>20}.journal");
    files.get_mut(&damaged("12000")).unwrap()[70] ^= 1;
    let directory = RecordingDirectory::with_files(files);
    let report = repair(&shared(&directory), options(), None).unwrap();
    assert_eq!((report.end.get(), report.lost), (12_000, 12_100));
    let trace = directory.trace();
    let mut states = DirectoryStates::new(&trace);
    let (mut count, mut random) = (0, Random::new(8));
    loop {
        for _ in 0..8 {
            let state = states.sample(|| random.next());
            count += 1;
            let directory = RecordingDirectory::crashed(&states, &state);
            let end = repair(&shared(&directory), options(), None).unwrap().end;
            assert_eq!(read_from(&directory, 0).unwrap(), life.stream[..12_000]);
            assert_eq!(end.get(), 12_000, "after {}", states.at());
        }
        if !states.advance() {
            break;
        }
    }
    assert!(count > 30, "only {count}");
}

/// A ring whose durable word is behind: several files begin after the position where the next run
/// begins.
pub fn replaced_files_survive() {
    let mut life = Recorder::new();
    life.open(0);
    life.append(1000);
    life.sync();
    for _ in 0..3 {
        life.append(900);
        let journal = life.journal.as_mut().unwrap();
        journal.rotate().unwrap();
    }
    life.die_with_ring();
    life.append(5000);
    life.sync();
    life.append(9000);
    life.rotate();
    crash(&life, Choice::All(60), 4).holds(1000);
}

/// A file of a run that its ring did not know is recycled, and begins again at the same position.
pub fn files_of_a_dead_run_survive() {
    let mut life = Recorder::new();
    life.open(0);
    life.append(1000);
    life.journal.as_mut().unwrap().rotate().unwrap();
    life.append(900);
    life.journal.as_mut().unwrap().sync().unwrap();
    // Nothing of that was acknowledged.
    life.die_with_ring();
    life.append(1000);
    life.rotate();
    life.rotate();
    life.append(40);
    life.sync();
    crash(&life, Choice::Some(6, 1), 10).holds(200);
}

/// The directory fails to sync after files became spares, and the next process finds them.
pub fn recycled_files_survive() {
    let mut life = Recorder::new();
    life.open(0);
    for _ in 0..3 {
        life.append(4000);
        life.rotate();
    }
    // The first sync publishes the base file; the next one belongs to the removal.
    life.directory.fail_names(2);
    life.base(true);
    life.append(100);
    life.sync();
    crash(&life, Choice::All(60), 5).holds(500);
}

/// A base file that is to be published too early.
pub fn early_bases_survive() {
    let mut life = Recorder::new();
    life.open(0);
    life.append(2000);
    life.sync();
    life.append(2000);
    life.base(false);
    life.append(50);
    life.sync();
    life.base(true);
    crash(&life, Choice::All(60), 6).holds(500);
}
