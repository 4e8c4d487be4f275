//! One meeting of two operations: X stands still at a fault point, Y runs to its end, X goes on or
//! is dead.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use mneme_arena::LendingOptions;
use mneme_log::{Builder, Cursor, Evict, Expiry, LogStore, ReadError, UpdatePolicy, WriteError};
use mneme_sys::fault::{self, Outcome};
use mneme_sys::{Classified, Clock, CpuId, ErrorKind, SyntheticTopology};

use crate::actions::{
    Action, FAR, FILLERS, FILLING, GROWN, LARGE, LONG, NEW, OTHER, RECORDS, START, expires, kept,
    key, look_at_copies, other, rent,
};
use crate::calendar::Calendar;
use crate::image::{Image, Loan};
use crate::memory::stopped::Stopped;
use crate::memory::{self, Memory};
use crate::model::{FILLED, Kept, Key, Model, Step};
use crate::replayed::{Reader, Replayed};

/// Bytes that a store may grow to.
pub const GROWS_TO: usize = memory::CAPACITY + GROWN;

/// What is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    pub policy: UpdatePolicy,
    pub x: Action,
    pub place: &'static str,
    pub nth: u64,
    pub y: Action,
    /// Whether X is dead from then on, else it goes on once Y is done.
    pub dies: bool,
    /// Whether the store has a change feed, which is replayed.
    pub fed: bool,
    /// Whether tenants have what the store does not use.
    pub lends: bool,
}

/// What a store is like before anything happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    pub policy: UpdatePolicy,
    pub fed: bool,
    pub lends: bool,
    /// Whether a tenant was at work in it.
    pub rented: bool,
    /// Whether most of it is taken, because it is going to be filled.
    pub filled: bool,
}

/// Whether X panics where it would die.
fn panics() -> bool {
    std::env::var_os("MNEME_CROSS_PANICS").is_some()
}

/// Whether an action fills the store. What such an action does does not fit a feed.
pub fn fills(action: Action) -> bool {
    use Action::{Evict, EvictExpiring, Fill};
    [Evict, EvictExpiring, Fill].contains(&action)
}

/// Bytes of the value [`LARGE`]. With a feed it goes there in pieces, of which the ring holds some.
fn large(fed: bool) -> usize {
    if fed { 150_000 } else { 1_200_000 }
}

/// What an action does in a store with a feed, or without one. It is made up once.
fn steps_of(action: Action, fed: bool) -> Arc<Vec<Step>> {
    type Known = BTreeMap<(Action, bool), Arc<Vec<Step>>>;
    static KNOWN: Mutex<Known> = Mutex::new(Known::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let steps = known.entry((action, fed));
    Arc::clone(steps.or_insert_with(|| Arc::new(make_steps(action, fed))))
}

fn make_steps(action: Action, fed: bool) -> Vec<Step> {
    let mut steps = action.steps();
    if fed {
        steps.retain(|step| !matches!(step, Step::Patch(_, at, _) if *at > large(true)));
        for step in &mut steps {
            if let Step::Put(_, kept) = step
                && kept.value.len() > 1_000_000
            {
                let long = kept.value.len() / 8;
                Arc::make_mut(&mut kept.value).truncate(long);
            }
        }
    }
    steps
}

/// What came of a scenario that held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    Yes,
    /// Y returned an error that names X, which is alive, as the one in its way.
    Refused,
    /// X did not come to the place so often.
    No,
}

/// A store with records of each kind, in log segments that compaction may choose.
struct Prepared {
    memory: Memory,
    clock: Arc<Calendar>,
    store: LogStore,
    model: Model,
    /// What replays the feed, if there is one.
    reader: Option<Reader>,
}

/// A participant that is dead before anything begins, and what it may have left.
const THIRD: u32 = 3;
/// The opening that drains the feed.
const READER: u32 = 6;
const OF_THE_THIRD: &[u8] = b"third";
/// What a transaction is overtaken by.
const OVERTAKEN: &[u8] = b"overtaken";

/// Two CPUs, whatever the machine has: on its own a thread might come to other heads in each run. X
/// runs on the first, what it meets on either.
static CPUS: LazyLock<Arc<SyntheticTopology>> =
    LazyLock::new(|| Arc::new(SyntheticTopology::new(1, 2)));

fn builder(kind: Kind, clock: Arc<Calendar>) -> Builder {
    let builder = LogStore::builder()
        .update_policy(kind.policy)
        .clock(clock)
        .topology(CPUS.clone())
        // How far the index grows depends on the hashes: each run makes up the scenarios anew.
        .entropy([crate::seed() as u8; 24])
        .change_feed(kind.fed);
    match kind.lends {
        true => builder.lend_idle(LendingOptions {
            records: 1000,
            max_frames: u32::MAX,
        }),
        false => builder,
    }
}

/// Makes and fills a store of this kind. It is closed, and all that its feed said is drained.
pub fn filled(kind: Kind) -> (Memory, Arc<Calendar>, Model, Option<Replayed>) {
    let fed = kind.fed;
    CPUS.run_on(CpuId(0));
    let clock = Arc::new(Calendar::at(START - 20));
    let builder = builder(kind, clock.clone());
    let (memory, store) = Memory::built(memory::CAPACITY, GROWS_TO, builder);
    let mut model = Model {
        now: START,
        ..Model::default()
    };
    let mut reader = fed.then(|| Reader::of(&memory.open(READER)));
    let mut drain = || reader.iter_mut().for_each(drained);
    // What nobody compares is zero, which an image need not hold.
    if kind.filled {
        let database = store.database(FILLED).unwrap();
        for i in 0..FILLING {
            let key = (FILLERS + i).to_le_bytes();
            let value = &[0; 90_000];
            database.put_until(&key, value, Expiry::At(FAR)).unwrap();
        }
    }
    if kind.lends {
        // Only what the store had once is lent.
        for i in 0..if fed { 96 } else { 12 } {
            store.put(&[i], &vec![0; large(fed)]).unwrap();
            drain();
            store.remove(&[i]).unwrap();
        }
        store.compact().unwrap();
    }
    let mut put = |key: Key, kept: Kept| {
        let expiry = match kept.expires {
            0 => Expiry::Never,
            at => Expiry::At(at),
        };
        let database = store.database(key.0).unwrap();
        database.put_until(&key.1, &kept.value, expiry).unwrap();
        model.records.insert(key, kept);
    };
    for i in 0..RECORDS {
        // What lies between them is to be gone: there is something to win in each log segment.
        store.put(b"filler", &[0; 16_000]).unwrap();
        if i % 32 == 0 {
            drain();
        }
        put(key(i), kept(i, 0, 100, expires(i)));
        if i < 40 {
            put(other(i), kept(i, 0, 60, expires(i)));
        }
    }
    put(key(LONG), kept(LONG, 0, 12_000, 0));
    put(key(LARGE), kept(LARGE, 0, large(fed), 0));
    for i in 0..130 {
        store.put(b"filler", &[0; 16_000]).unwrap();
        if i % 32 == 0 {
            drain();
        }
    }
    store.remove(b"filler").unwrap();
    if kind.rented {
        rent(&store, &clock).unwrap();
        look_at_copies(&store, &clock);
        let lent = store.stats().lent;
        assert!(lent.is_some_and(|lent| lent.frames > 0), "nothing is lent");
    }
    // The grace periods of all closed segments begin, and do not end before nothing is moved.
    let pinned = store.transaction(|_| store.compact());
    assert_eq!(pinned.unwrap(), 0, "nothing is moved beside a pin");
    clock.set(START);
    reader.iter_mut().for_each(drained);
    (memory, clock, model, reader.map(|reader| reader.replayed))
}

/// Such a store. The loan is to be given back once no thread uses the memory.
fn prepared(kind: Kind, is_reaped: bool) -> (Loan, Prepared) {
    let image = Image::of(kind);
    let clock = Arc::new(image.calendar.again());
    let (loan, memory) = image.lay(builder(kind, clock.clone()));
    let store = memory.open(1);
    let reader = image.replayed.clone().map(|replayed| Reader {
        replayed,
        ..Reader::of(&memory.open(READER))
    });
    if is_reaped {
        let third = memory.open(THIRD);
        let outcome = fault::run("txn.applied", fault::Action::Abandon, 2, move || {
            let keys = (0..4).map(|i| [OF_THE_THIRD, &[i]].concat());
            let keys: Vec<_> = keys.collect();
            third.transaction(|t| keys.iter().try_for_each(|key| t.put(key, b"half")))
        });
        assert!(matches!(outcome, Outcome::Abandoned), "nobody died");
        memory.script.kill(THIRD);
    }
    let prepared = Prepared {
        memory,
        clock,
        store,
        model: image.model.clone(),
        reader,
    };
    (loan, prepared)
}

/// Drains and replays what there is, and gives its space back.
fn drained(reader: &mut Reader) {
    reader.drain();
    reader.keep_nothing();
}

/// The places that X leads through, each with how often.
pub fn places_of(kind: Kind, x: Action) -> BTreeMap<&'static str, u64> {
    let run = move || {
        let (loan, prepared) = prepared(kind, x == Action::Reap);
        let Prepared {
            memory,
            clock,
            store,
            reader,
            ..
        } = prepared;
        let before: BTreeMap<_, _> = fault::passed().into_iter().collect();
        for step in &*steps_of(x, kind.fed) {
            step.run(&store, &clock).unwrap();
        }
        let passed = fault::passed().into_iter();
        let passed = passed
            .map(|(name, n)| (name, n - before.get(name).copied().unwrap_or(0)))
            .filter(|(_, n)| *n > 0)
            .collect();
        drop((store, reader, memory));
        loan.give_back();
        passed
    };
    std::thread::spawn(run).join().unwrap()
}

/// How far X is: the steps that are done, and the one under way that was refused.
#[derive(Default)]
struct Progress {
    done: usize,
    refused: Option<WriteError>,
}

/// What a scenario has come to.
struct Run {
    /// What is there if X's step under way does not take place.
    before: Model,
    /// What is there if it took place before Y.
    after: Model,
    /// Whether Y returned an error that it may meet here.
    refused: bool,
    /// Keys of batches that were refused: some of them may have changed.
    loose: BTreeSet<Key>,
}

impl Scenario {
    fn is_of(&self, action: Action) -> bool {
        self.x == action || self.y == action
    }

    fn kind(&self) -> Kind {
        Kind {
            policy: self.policy,
            fed: self.fed,
            lends: self.lends,
            // As X a tenant comes to all its places where none was before.
            rented: self.lends && self.x != Action::Lend,
            filled: [self.x, self.y].into_iter().any(fills),
        }
    }

    /// What may be gone afterwards.
    fn forgets(&self, models: [&Model; 3]) -> Forgets {
        if self.is_of(Action::Evict) {
            Forgets::All
        } else if self.is_of(Action::EvictExpiring) {
            let all = models.iter().flat_map(|model| &model.records);
            let expiring = all.filter(|(_, kept)| kept.expires != 0);
            Forgets::Expiring(expiring.map(|((_, key), _)| key.clone()).collect())
        } else {
            Forgets::Nothing
        }
    }

    /// Whether an error is one that an operation may meet here.
    fn may_be_refused(&self, error: &WriteError) -> bool {
        match error {
            // An opening that may only read repairs nothing.
            WriteError::Reap(_) if self.y == Action::ReadOnly => true,
            // The second of a dead participant that X, alive, is repairing.
            WriteError::Stalled(_) | WriteError::Reap(_) => !self.dies,
            WriteError::OutOfMemory { .. } => self.kind().filled,
            _ => false,
        }
    }

    /// Tries it.
    ///
    /// # Errors
    /// What does not hold, in words.
    pub fn run(self) -> Result<Met, String> {
        let (loan, prepared) = prepared(self.kind(), self.is_of(Action::Reap));
        let (met, is_left) = self.run_in(prepared)?;
        if is_left {
            loan.give_back();
        }
        Ok(met)
    }

    /// Also returns whether no thread uses the memory any more.
    fn run_in(self, prepared: Prepared) -> Result<(Met, bool), String> {
        let Prepared {
            memory,
            clock,
            store,
            mut model,
            reader,
        } = prepared;
        let first = model.clone();
        CPUS.run_on(CpuId(self.nth as u32 + u32::from(self.dies)));
        let others = match self.y {
            Action::ReadOnly => memory.open_to_read(2),
            _ => memory.open(2),
        };
        let (progress, steps) = (Arc::default(), steps_of(self.x, self.fed));
        let store = Arc::new(store);
        // A process whose thread has panicked lives on.
        let _lives = panics().then(|| store.clone());
        let Some(stopped) = self.stop_x(store, &steps, &progress, &clock) else {
            return Ok((Met::No, true));
        };
        let done = progress.lock().unwrap().done;
        steps[..done].iter().for_each(|step| model.apply(step));
        let Some(pending) = steps.get(done) else {
            // X came to the place when all was done and it closed the store.
            stopped.finish().map_err(|error| error.to_string())?;
            return Ok((Met::No, true));
        };
        let stopped = match self.dies {
            true if panics() => {
                let went_on = stopped.panic();
                went_on.map_err(|error| format!("X after its panic: {error}"))?;
                None
            }
            true => {
                memory.script.kill(1);
                // It stands there for ever.
                std::mem::forget(stopped);
                None
            }
            false => Some(stopped),
        };

        let mut run = Run {
            before: model.clone(),
            after: model,
            refused: false,
            loose: BTreeSet::new(),
        };
        run.after.apply(pending);
        let others = self.run_y(&mut run, others, &memory, &clock)?;
        let mut behind = run.before.clone();
        behind.apply(pending);
        let looking = match (others, self.y) {
            (Some(others), y) if y != Action::ReadOnly => Ok(others),
            (others, _) => {
                drop(others);
                memory.try_open(5)
            }
        };
        let seen = match &looking {
            Ok(looking) => self.look(looking, [&run.before, &run.after, &behind])?,
            // X, alive, holds what an opening needs.
            Err(error) if !self.dies && error.kind() == ErrorKind::Stalled => BTreeMap::new(),
            Err(error) => return Err(format!("another opening: {error}")),
        };

        let further = match stopped {
            None => Some(&steps[done + 1..]),
            Some(stopped) => self.finish_x(&mut run, stopped, &steps[done..], done, &progress)?,
        };
        let forgets = self.forgets([&first, &run.before, &run.after]);
        drop(looking);
        let refused = run.refused;
        let loose = std::mem::take(&mut run.loose);
        let candidates = self.candidates(run, behind, further);
        let at_once = pending.at_once();
        let expected = Expected::new(&candidates, &seen, &loose, forgets, at_once);
        finish(&memory, &expected, reader, &clock)?;
        let met = match refused {
            true => Met::Refused,
            false => Met::Yes,
        };
        Ok((met, true))
    }

    /// Runs X up to its place. `None`: it does not come there so often.
    fn stop_x(
        &self,
        store: Arc<LogStore>,
        steps: &Arc<Vec<Step>>,
        progress: &Arc<Mutex<Progress>>,
        clock: &Arc<Calendar>,
    ) -> Option<Stopped<Result<(), WriteError>>> {
        let (steps, progress, clock) = (steps.clone(), progress.clone(), clock.clone());
        Stopped::try_at(self.place, self.nth, move || {
            let work = || {
                for step in &*steps {
                    let done = step.run(&store, &clock);
                    let mut progress = progress.lock().unwrap();
                    if let Err(error) = done {
                        progress.refused = Some(error);
                        break;
                    }
                    progress.done += 1;
                }
            };
            // A thread that has caught a panic goes on.
            catch_unwind(AssertUnwindSafe(work)).or_else(|_| store.put(OVERTAKEN, b"1"))
        })
    }

    /// Runs Y. Returns its opening, unless it is dead.
    fn run_y(
        &self,
        run: &mut Run,
        others: LogStore,
        memory: &Memory,
        clock: &Calendar,
    ) -> Result<Option<LogStore>, String> {
        let steps = steps_of(self.y, self.fed);
        if self.y == Action::ReapDying {
            // Another of its places for each of X.
            let which = self.place.len() + self.nth as usize;
            if let Step::ReapTo(place) = steps[which % steps.len()] {
                run.refused |= !self.reap_to(place, others, memory)?;
            }
            return Ok(None);
        }
        for step in &*steps {
            match step.run(&others, clock) {
                Ok(()) => {
                    run.before.apply(step);
                    run.after.apply(step);
                }
                Err(error) if self.may_be_refused(&error) => {
                    run.refused = true;
                    run.loose.extend(step.one_by_one());
                }
                Err(error) => return Err(format!("Y was refused: {error}")),
            }
        }
        Ok(Some(others))
    }

    /// A reap that dies at a place. False: it did not come there so often.
    fn reap_to(
        &self,
        place: &'static str,
        dying: LogStore,
        memory: &Memory,
    ) -> Result<bool, String> {
        let nth = self.nth % 2 + 1;
        match fault::run(place, fault::Action::Abandon, nth, move || dying.reap()) {
            Outcome::Abandoned => {
                memory.script.kill(2);
                Ok(true)
            }
            Outcome::Finished(reaped) => {
                reaped.map_err(|error| format!("the reap: {error}"))?;
                Ok(false)
            }
            Outcome::Panicked => Err("the reap panicked".into()),
        }
    }

    /// Lets X go on with `steps`, the first of which it is in the middle of; it has done `done`
    /// before. Returns those that it does after the first. `None`: the first was refused.
    fn finish_x<'s>(
        &self,
        run: &mut Run,
        stopped: Stopped<Result<(), WriteError>>,
        steps: &'s [Step],
        done: usize,
        progress: &Mutex<Progress>,
    ) -> Result<Option<&'s [Step]>, String> {
        stopped.finish().map_err(|error| error.to_string())?;
        let progress = progress.lock().unwrap();
        let Some(error) = &progress.refused else {
            return Ok(Some(&steps[1..]));
        };
        if !self.may_be_refused(error) {
            return Err(format!("X was refused: {error}"));
        }
        let refused = progress.done - done;
        run.loose.extend(steps[refused].one_by_one());
        Ok(steps[..refused].get(1..))
    }

    /// What others may have seen while X stood still, each with what is then to be there in the
    /// end: X takes place behind Y, before it, or not at all. `behind` is the first of these,
    /// `further` are X's later steps, as [`Scenario::finish_x`] returns them.
    fn candidates(&self, run: Run, behind: Model, further: Option<&[Step]>) -> Vec<(Model, Model)> {
        let (before, after) = (run.before, run.after);
        let ends = |mut model: Model| {
            further
                .iter()
                .copied()
                .flatten()
                .for_each(|step| model.apply(step));
            model
        };
        match (self.dies, further) {
            (true, _) => vec![
                (before.clone(), before.clone()),
                (before, behind.clone()),
                (behind.clone(), behind),
                (after.clone(), after),
            ],
            (false, Some(_)) => vec![
                (before, ends(behind.clone())),
                (behind.clone(), ends(behind)),
                (after.clone(), ends(after)),
            ],
            (false, None) => vec![(before.clone(), before)],
        }
    }

    /// What others find while X stands still; nothing of a key that they have to wait for.
    fn look(
        &self,
        store: &LogStore,
        models: [&Model; 3],
    ) -> Result<BTreeMap<Key, Option<Kept>>, String> {
        let mut seen = BTreeMap::new();
        let mut waited = 0;
        let keys: BTreeSet<&Key> = models.iter().flat_map(|m| m.records.keys()).collect();
        for key in keys {
            let live = models.map(|model| model.live(key));
            let differs = live[0] != live[1] || live[1] != live[2];
            if !differs || waited == 2 {
                continue;
            }
            match find(store, key, live) {
                Ok(found) => {
                    seen.insert(key.clone(), found);
                }
                // X holds the key, or repairs a dead participant that does.
                Err(ReadError::Stalled(_) | ReadError::Reap(_)) if !self.dies => waited += 1,
                // A transaction that has died keeps readers out until it is repaired.
                Err(error) => return Err(format!("a reader was refused: {error}")),
            }
        }
        Ok(seen)
    }
}

/// What is under `key`. It shares the value with one of `expected` that is equal.
fn find<'m>(
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

/// What a store may have forgotten.
#[derive(PartialEq, Eq, Debug)]
enum Forgets {
    Nothing,
    /// These keys, in whichever database: they have had an expiry.
    Expiring(BTreeSet<Vec<u8>>),
    All,
}

/// What a store is held to.
struct Expected {
    /// All keys, in order.
    keys: Vec<(Key, Allowed)>,
    /// How many cases each [`Allowed`] has.
    cases: usize,
    forgets: Forgets,
    /// Keys that change all at once.
    at_once: Vec<Key>,
}

/// What may be under a key.
#[derive(Clone)]
struct Allowed {
    /// In each case: what may have been seen while X stood still, and what is then to be there in
    /// the end.
    cases: Vec<(Option<Kept>, Option<Kept>)>,
    /// What was seen, if somebody looked.
    seen: Option<Option<Kept>>,
    /// Whether it is a key of a batch that was refused.
    loose: bool,
    may_go: bool,
}

impl Expected {
    /// `candidates` are the cases.
    fn new(
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
    /// What is under `key`, if that may be.
    fn find(&self, store: &LogStore, key: &Key, when: &str) -> Result<Option<Kept>, String> {
        let ends = self.cases.iter().map(|(_, end)| end.as_ref());
        let now = find(store, key, ends).map_err(|e| format!("{when}: a read: {e}"))?;
        let is_right = self.cases.iter().any(|(then, end)| {
            // What was forgotten before X took place does not come back, but X may bring it.
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

/// Repairs, reads and compares; then has all memory used again, and compares once more.
fn finish(
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
