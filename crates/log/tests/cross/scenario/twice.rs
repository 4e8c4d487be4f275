//! A meeting with a second death: while X is stopped, or is dead, Y dies in the middle, and perhaps
//! the next reaper does too.

use super::*;

/// Where Y dies, and where the next reaper does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Second {
    pub place: &'static str,
    pub nth: u64,
    pub reaper: Option<&'static str>,
}

/// How far Y got.
struct Came<'s> {
    /// The finished steps.
    done: Vec<&'s Step>,
    /// The one in which it died.
    pending: Option<&'s Step>,
    died: bool,
}

/// The openings of Y and of the reaper.
const OF_Y: u32 = 2;
const OF_THE_REAPER: u32 = 7;

impl Scenario {
    /// Tries it.
    ///
    /// # Errors
    /// A description of what failed.
    pub fn run_twice(self, second: Second) -> Result<Met, String> {
        let (loan, prepared) = prepared(self.kind(), self.is_of(Action::Reap));
        let met = self.run_twice_in(prepared, second)?;
        loan.give_back();
        Ok(met)
    }

    fn run_twice_in(self, prepared: Prepared, second: Second) -> Result<Met, String> {
        let Prepared {
            memory,
            clock,
            store,
            mut model,
            reader,
        } = prepared;
        let first = model.clone();
        CPUS.run_on(CpuId(self.nth as u32 + u32::from(self.dies)));
        let others = memory.open(OF_Y);
        let (progress, steps) = (Arc::default(), steps_of(self.x, self.fed));
        let Some(stopped) = self.stop_x(Arc::new(store), &steps, &progress, &clock) else {
            return Ok(Met::No);
        };
        let done = progress.lock().unwrap().done;
        steps[..done].iter().for_each(|step| model.apply(step));
        let Some(pending) = steps.get(done) else {
            stopped.finish().map_err(|error| error.to_string())?;
            return Ok(Met::No);
        };
        let stopped = match self.dies {
            true => {
                memory.script.kill(1);
                std::mem::forget(stopped);
                None
            }
            false => Some(stopped),
        };
        let mut loose = BTreeSet::new();
        let y_steps = steps_of(self.y, self.fed);
        let y = self.kill_y(second, (others, &memory), &y_steps, &clock, &mut loose)?;
        self.kill_reaper(second, &memory)?;
        let made = |steps: &[&Step]| {
            let mut made = model.clone();
            steps.iter().for_each(|step| made.apply(step));
            made
        };
        let shown = [None, Some(pending), y.pending].map(Vec::from_iter);
        let shown: [Model; 3] =
            std::array::from_fn(|n| made(&[&y.done[..], &shown[..=n].concat()].concat()));
        let looking = memory.try_open(5);
        let seen = match &looking {
            Ok(looking) => self.look(looking, shown.each_ref())?,
            // X, which is alive, holds something that an opening needs.
            Err(error) if !self.dies && error.kind() == ErrorKind::Stalled => BTreeMap::new(),
            Err(error) => return Err(format!("another opening: {error}")),
        };
        if let Some(stopped) = stopped {
            stopped.finish().map_err(|error| error.to_string())?;
            // All others are dead.
            if let Some(error) = &progress.lock().unwrap().refused {
                return Err(format!("X was refused beside the dead: {error}"));
            }
        }
        drop(looking);
        let further = match self.dies {
            true => &steps[..0],
            false => &steps[done + 1..],
        };
        let mut candidates = Vec::new();
        for (order, least) in self.orders(pending, &y) {
            let mut end = made(&order);
            further.iter().for_each(|step| end.apply(step));
            let cases = (least..=order.len()).map(|n| (made(&order[..n]), end.clone()));
            candidates.extend(cases);
        }
        let forgets = self.forgets([&first, &shown[0], &shown[2]]);
        let both = [Some(pending), y.pending].into_iter().flatten();
        let at_once = both.flat_map(Step::at_once).collect();
        let expected = Expected::new(&candidates, &seen, &loose, forgets, at_once);
        finish(&memory, &expected, reader, &clock)?;
        Ok(match y.died {
            true => Met::Yes,
            false => Met::Refused,
        })
    }

    /// Runs Y up to the place where it dies.
    fn kill_y<'s>(
        &self,
        second: Second,
        (others, memory): (LogStore, &Memory),
        steps: &'s Arc<Vec<Step>>,
        clock: &Arc<Calendar>,
        loose: &mut BTreeSet<Key>,
    ) -> Result<Came<'s>, String> {
        let progress = Arc::<Mutex<Progress>>::default();
        let work = {
            let (steps, progress, clock) = (steps.clone(), progress.clone(), clock.clone());
            move || {
                for step in &*steps {
                    let done = step.run(&others, &clock);
                    let mut progress = progress.lock().unwrap();
                    if let Err(error) = done {
                        progress.refused = Some(error);
                        break;
                    }
                    progress.done += 1;
                }
            }
        };
        let died = match fault::run(second.place, fault::Action::Abandon, second.nth, work) {
            Outcome::Abandoned => true,
            Outcome::Finished(()) => false,
            Outcome::Panicked => return Err("Y panicked".into()),
        };
        if died {
            memory.script.kill(OF_Y);
        }
        let progress = progress.lock().unwrap();
        let mut pending = steps.get(progress.done).filter(|_| died);
        if let Some(error) = &progress.refused {
            if !self.may_be_refused(error) {
                return Err(format!("Y was refused: {error}"));
            }
            loose.extend(steps[progress.done].one_by_one());
            pending = None;
        }
        Ok(Came {
            done: steps[..progress.done].iter().collect(),
            pending,
            died,
        })
    }

    /// Makes a reaper die, if the scenario says so.
    fn kill_reaper(&self, second: Second, memory: &Memory) -> Result<(), String> {
        let Some(place) = second.reaper else {
            return Ok(());
        };
        // X, if it is alive, may hold something that an opening needs.
        let Ok(dying) = memory.try_open(OF_THE_REAPER) else {
            return Ok(());
        };
        match fault::run(place, fault::Action::Abandon, 1, move || dying.reap()) {
            Outcome::Abandoned => memory.script.kill(OF_THE_REAPER),
            Outcome::Finished(Err(error)) if !self.may_be_refused(&error) => {
                return Err(format!("the reap: {error}"));
            }
            Outcome::Finished(_) => {}
            Outcome::Panicked => return Err("the reap panicked".into()),
        }
        Ok(())
    }

    /// The possible orders: X's step before those of Y, after them, or not at all if it is dead;
    /// likewise the step in which Y died. With each, the minimum number of them that an observer
    /// after both has seen.
    fn orders<'s>(&self, x: &'s Step, y: &Came<'s>) -> Vec<(Vec<&'s Step>, usize)> {
        let (ys, all) = (&y.done[..], y.done.len());
        let mut orders = Vec::new();
        for last in [None, y.pending] {
            let last = Vec::from_iter(last);
            orders.push(([&[x][..], ys, &last].concat(), all + 1));
            orders.push(([ys, &last, &[x]].concat(), all));
            orders.push(([ys, &[x], &last].concat(), all));
            if self.dies {
                orders.push(([ys, &last].concat(), all));
            }
        }
        orders
    }
}
