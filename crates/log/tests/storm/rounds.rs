//! The parent: it starts processes, and kills and stops them at random instants.

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mneme_log::UpdatePolicy;
use mneme_sys::Region;
use mneme_testkit::{Process, Random};

use super::diary::Diary;
use super::judge::Judge;
use super::listener::Tally;
use super::look::BUSY;
use super::names::{COLLECTED, LANES, MAIN};
use super::place::Place;
use super::roles::{PLACE, ROLE, Twin};

/// The processes of a storm: the first ones write, each for these lanes, a thread for each; then
/// one reads, one maintains, and one follows.
const WRITERS: [Range<usize>; 3] = [0..2, 2..3, 3..4];
const READER: usize = WRITERS.len();
const MAINTAINER: usize = READER + 1;
const LISTENER: usize = MAINTAINER + 1;
const PROCESSES: usize = LISTENER + 1;
/// The number of kills until all are killed at once and everything is compared.
const ROUND: u64 = 40;
/// The number of rounds until everything is removed, and a new store is begun.
const ROUNDS: u64 = 5;

/// The duration and the seed of a storm.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub policy: UpdatePolicy,
    pub seed: u64,
    pub kills: u64,
    pub limit: Option<Duration>,
    pub twin: Twin,
}

fn turns(diaries: &Region, lanes: &Range<usize>) -> impl Iterator<Item = u64> {
    let lanes = lanes.clone();
    lanes.map(|lane| Diary::of(diaries, lane).turn())
}

/// The counts of a storm's events.
#[derive(Debug, Default)]
pub struct Counts {
    pub kills: u64,
    pub stops: u64,
    pub stores: u64,
    pub rounds: u64,
    /// What was under way in killed lanes, and its outcome.
    pub deaths: BTreeMap<String, u64>,
    /// Changes that took place, that found no free space, that another thread blocked.
    pub changes: [u64; 3],
    /// Changes that listeners received, losses, and acknowledged changes that were compared with
    /// what was received.
    pub listened: [u64; 3],
    pub moved: u64,
    /// The longest time that it took to read a killed lane's names.
    pub slowest: Duration,
}

/// A process of the storm.
pub struct Part {
    pub process: Process,
    lanes: Range<usize>,
    /// The turns of its lanes when it started.
    turns: Vec<u64>,
}

impl Part {
    pub fn start(judge: &Judge<'_>, lanes: Range<usize>, role: &str) -> Part {
        Part::start_test(judge, lanes, "role", role)
    }

    /// Starts a process of another test than `role`.
    pub fn start_test(judge: &Judge<'_>, lanes: Range<usize>, test: &str, role: &str) -> Part {
        let turns = turns(judge.diaries, &lanes).collect();
        let variables = [(ROLE, role.as_ref()), (PLACE, judge.place.root.as_os_str())];
        let process = Process::start(test, variables);
        Part {
            process,
            lanes,
            turns,
        }
    }

    /// Waits, for a limited time, until each of its lanes has begun a change, if it has any.
    fn arrive(&self, diaries: &Region) {
        let began = Instant::now();
        let waits = |(now, before): (u64, &u64)| now == *before;
        while turns(diaries, &self.lanes).zip(&self.turns).any(waits)
            && began.elapsed() < Duration::from_millis(300)
        {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until the listener has compared something, or has ended because something was missing.
    fn compare(&mut self, diaries: &Region) {
        let compared = || Tally::of(diaries).counts()[2];
        let (began, before) = (Instant::now(), compared());
        while compared() == before && self.process.is_running() && began.elapsed() < BUSY {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until it has killed itself.
    pub fn end(&mut self) -> Result<(), String> {
        // Waiting for it would close its input, by which it notices the end of its parent.
        while self.process.is_running() {
            std::thread::sleep(Duration::from_micros(500));
        }
        self.kill()
    }

    /// Kills it; an error if it had ended before, which none does by itself.
    pub fn kill(&mut self) -> Result<(), String> {
        let status = self.process.kill();
        match status.signal() {
            Some(9) => Ok(()),
            _ => Err(format!("a process ended by itself: {status}")),
        }
    }

    /// Stops it now, for `ms` milliseconds.
    fn stop(&self, ms: u64) -> Child {
        let id = self.process.id();
        let seconds = Duration::from_millis(ms).as_secs_f64();
        let shell = |script: String| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).stderr(Stdio::null());
            shell.spawn().unwrap()
        };
        shell(format!("kill -STOP {id}")).wait().unwrap();
        shell(format!("sleep {seconds}; kill -CONT {id}"))
    }
}

struct Storm<'r> {
    plan: Plan,
    judge: Judge<'r>,
    random: Random,
    counts: Counts,
}

/// Runs it; returns a description of what was wrong, if anything.
pub fn run(plan: Plan) -> Result<Counts, String> {
    let began = Instant::now();
    let mut random = Random::new(plan.seed);
    let mut counts = Counts::default();
    let over = |counts: &Counts| {
        counts.kills >= plan.kills || plan.limit.is_some_and(|limit| began.elapsed() > limit)
    };
    while !over(&counts) {
        let (place, store) = Place::create(plan.policy);
        let diaries = place.diaries();
        let mut storm = Storm {
            plan,
            judge: Judge::new(&place, &diaries, store),
            random,
            counts,
        };
        let done = storm.one_store(&over);
        (random, counts) = (storm.random, storm.counts);
        counts.stores += 1;
        done.map_err(|wrong| {
            format!(
                "after {} kills of seed {}: {wrong}",
                counts.kills, plan.seed
            )
        })?;
    }
    Ok(counts)
}

impl Storm<'_> {
    fn start(&mut self, number: usize) -> Part {
        let seed = self.random.below(u64::MAX >> 12);
        let role = match number {
            READER => format!("reader {seed}"),
            MAINTAINER => format!("maintainer {seed}"),
            LISTENER => format!("listener {seed} {:?}", self.plan.twin),
            _ => {
                let lanes = &WRITERS[number];
                format!(
                    "lanes {} {} {seed} {:?}",
                    lanes.start, lanes.end, self.plan.twin
                )
            }
        };
        let lanes = WRITERS.get(number).cloned().unwrap_or(0..0);
        Part::start(&self.judge, lanes, &role)
    }

    /// The life of a store.
    fn one_store(&mut self, over: &impl Fn(&Counts) -> bool) -> Result<(), String> {
        self.judge.at_rest()?;
        for _ in 0..ROUNDS {
            self.round(over)?;
            if over(&self.counts) {
                break;
            }
        }
        for lane in 0..LANES {
            let of_lane = Diary::of(self.judge.diaries, lane).counts();
            let sums = self.counts.changes.iter_mut().zip(of_lane);
            sums.for_each(|(sum, n)| *sum += n);
        }
        let listened = Tally::of(self.judge.diaries).counts();
        let sums = self.counts.listened.iter_mut().zip(listened);
        sums.for_each(|(sum, n)| *sum += n);
        self.counts.moved += self.judge.store().stats().moved_bytes;
        self.judge.drain()
    }

    /// Whether a listener may be killed only when it has compared something: the first ones, so
    /// that some do, and those that must be detected. Lanes of other twins are stopped.
    fn waits_for_listener(&self) -> bool {
        match self.plan.twin {
            Twin::No => self.counts.listened[2] + Tally::of(self.judge.diaries).counts()[2] == 0,
            Twin::Deaf => true,
            Twin::Early | Twin::Torn | Twin::Elements => false,
        }
    }

    /// Kills until all are killed at once.
    fn round(&mut self, over: &impl Fn(&Counts) -> bool) -> Result<(), String> {
        let mut parts: Vec<Part> = (0..PROCESSES).map(|i| self.start(i)).collect();
        let mut stops: Vec<Child> = Vec::new();
        for _ in 0..ROUND {
            if self.random.one_in(8) {
                let part = self.random.below(PROCESSES as u64) as usize;
                let most = if self.random.one_in(10) { 2500 } else { 200 };
                stops.push(parts[part].stop(1 + self.random.below(most)));
                self.counts.stops += 1;
            }
            let number = self.random.below(PROCESSES as u64) as usize;
            // Some die while they attach.
            if !self.random.one_in(10) {
                parts[number].arrive(self.judge.diaries);
            }
            if number == LISTENER && self.waits_for_listener() {
                parts[number].compare(self.judge.diaries);
            }
            let pause = if self.random.one_in(4) { 300 } else { 8_000 };
            std::thread::sleep(Duration::from_micros(self.random.below(pause)));
            self.kill(&mut parts[number])?;
            parts[number] = self.start(number);
            if over(&self.counts) {
                break;
            }
        }
        // Sometimes no process is left at all.
        if self.random.one_in(2) {
            self.judge.leave();
        }
        for part in &mut parts {
            part.process.child.kill().unwrap();
        }
        self.judge.come_back();
        for part in &mut parts {
            self.kill(part)?;
        }
        for mut stop in stops {
            stop.wait().unwrap();
        }
        self.counts.rounds += 1;
        self.judge.at_rest()
    }

    fn kill(&mut self, part: &mut Part) -> Result<(), String> {
        part.kill()?;
        self.counts.kills += 1;
        let began = Instant::now();
        for lane in part.lanes.clone() {
            let became = self.judge.settle(lane)?;
            *self.counts.deaths.entry(became).or_default() += 1;
            let first = self.random.among(&MAIN);
            self.judge
                .compare(lane, first..(first + 200).min(MAIN.end))?;
            self.judge.compare(lane, COLLECTED)?;
        }
        self.counts.slowest = self.counts.slowest.max(began.elapsed());
        Ok(())
    }
}
