//! One meeting of two operations: X is stopped at a fault point, Y runs to its end, X continues or
//! is dead.

mod twice;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use mneme_log::{LogStore, ReadError, UpdatePolicy, WriteError};
use mneme_sys::fault::{self, Outcome};
use mneme_sys::{Classified, CpuId, ErrorKind};

use crate::actions::Action;
use crate::calendar::Calendar;
use crate::expected::{Expected, Forgets, find, finish};
use crate::memory::Memory;
use crate::memory::stopped::Stopped;
use crate::model::{Kept, Key, Model, Step};
use crate::stores::{CPUS, Kind, Prepared, large, prepared};
pub use twice::Second;

/// A scenario to be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scenario {
    pub policy: UpdatePolicy,
    pub x: Action,
    pub place: &'static str,
    pub nth: u64,
    pub y: Action,
    /// Whether X is dead from then on; otherwise it continues after Y.
    pub dies: bool,
    /// Whether the store has a change feed, which is replayed.
    pub fed: bool,
    /// Whether tenants use the store's unused frames.
    pub lends: bool,
}

/// Whether X panics where it would die.
fn panics() -> bool {
    std::env::var_os("MNEME_CROSS_PANICS").is_some()
}

/// Whether an action fills the store. The changes of such an action do not fit a feed.
pub fn fills(action: Action) -> bool {
    use Action::{Evict, EvictExpiring, Fill};
    [Evict, EvictExpiring, Fill].contains(&action)
}

/// The steps of an action in a store with a feed, or without one, generated once.
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

/// The result of a scenario without a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    Yes,
    /// Y returned an error that names X, which is alive, as the cause.
    Refused,
    /// X did not pass the place that often.
    No,
}

/// The key whose change makes a transaction's attempt fail.
pub const OVERTAKEN: &[u8] = b"overtaken";

/// The places that X passes, each with the number of passages.
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

/// How far X has got: the finished steps, and the one under way that was refused.
#[derive(Default)]
struct Progress {
    done: usize,
    refused: Option<WriteError>,
}

/// The result of running a scenario.
struct Run {
    /// The content if X's step under way does not take place.
    before: Model,
    /// The content if it took place before Y.
    after: Model,
    /// Whether Y returned an error that is allowed here.
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
            // As X a tenant passes all its places in a store without an earlier tenant.
            rented: self.lends && self.x != Action::Lend,
            filled: [self.x, self.y].into_iter().any(fills),
        }
    }

    /// What may be missing afterwards.
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

    /// Whether an error is allowed for an operation here.
    fn may_be_refused(&self, error: &WriteError) -> bool {
        match error {
            // An opening that may only read repairs nothing.
            WriteError::Reap(_) if self.y == Action::ReadOnly => true,
            // X, which is alive, is repairing the second dead participant.
            WriteError::Stalled(_) | WriteError::Reap(_) => !self.dies,
            WriteError::OutOfMemory { .. } => self.kind().filled,
            _ => false,
        }
    }

    /// Tries it.
    ///
    /// # Errors
    /// A description of what failed.
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
        // A process whose thread has panicked is still alive.
        let _lives = panics().then(|| store.clone());
        let Some(stopped) = self.stop_x(store, &steps, &progress, &clock) else {
            return Ok((Met::No, true));
        };
        let done = progress.lock().unwrap().done;
        steps[..done].iter().for_each(|step| model.apply(step));
        let Some(pending) = steps.get(done) else {
            // X reached the place only when everything was done and it closed the store.
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
                // It stays there for ever.
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
            // X, which is alive, holds something that an opening needs.
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

    /// Runs X up to its place. `None`: it does not pass it that often.
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
            // A thread that has caught a panic continues.
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
            // Another of its places for each X.
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

    /// A reap that dies at a place. Returns false if it did not pass it that often.
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

    /// Lets X continue with `steps`, in the first of which it was stopped; it has done `done`
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

    /// What others may have seen while X was stopped, each with what must then be there in the end:
    /// X takes place after Y, before it, or not at all. `behind` is the first of these, `further`
    /// are X's later steps, as [`Scenario::finish_x`] returns them.
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

    /// What others find while X is stopped; nothing for a key that they have to wait for.
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
                // A dead transaction keeps readers out until it is repaired.
                Err(error) => return Err(format!("a reader was refused: {error}")),
            }
        }
        Ok(seen)
    }
}
