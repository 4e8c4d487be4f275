//! The parent: it starts processes, kills and stops them at random instants, and holds the store to what
//! the diaries say.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mneme_log::{Cursor, LogStore, UpdatePolicy};
use mneme_sys::Region;

use super::diary::Diary;
use super::expected::{Span, now, settle};
use super::look::{look, patiently, place, read};
use super::names::{LANES, MAIN, NAMES, databases, key, owner};
use super::place::{MAX, Place};
use super::random::Random;
use super::{PLACE, ROLE, Twin};

/// The processes of a storm: the first ones write, each for these lanes, a thread for each; then one
/// reads, and one maintains.
const WRITERS: [Range<usize>; 3] = [0..2, 2..3, 3..4];
const READER: usize = WRITERS.len();
const MAINTAINER: usize = READER + 1;
const PROCESSES: usize = MAINTAINER + 1;
/// Kills until all are killed at once and everything is compared.
const ROUND: u64 = 40;
/// Rounds until everything is removed, and a new store begun.
const ROUNDS: u64 = 5;

/// Log segments that are open, and bytes that the index has, when everything is removed.
const OPEN: u64 = 2;
const INDEX: u64 = 2 << 20;

/// How long a storm goes on, and from where.
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

/// What it came to.
#[derive(Debug, Default)]
pub struct Counts {
    pub kills: u64,
    pub stops: u64,
    pub stores: u64,
    pub rounds: u64,
    /// What was under way in a lane that was killed, and what became of it.
    pub deaths: BTreeMap<String, u64>,
    /// Changes that took place, that found no room, that somebody held up.
    pub changes: [u64; 3],
    pub moved: u64,
    /// The longest that a killed lane's names took to be read.
    pub slowest: Duration,
}

/// A process of the storm. Dropped, it is killed.
struct Part {
    child: Child,
    lanes: Range<usize>,
    /// The turns of its lanes when it started.
    turns: Vec<u64>,
}

impl Part {
    fn start(place: &Place, diaries: &Region, number: usize, seed: u64, twin: Twin) -> Part {
        let lanes = WRITERS.get(number).cloned().unwrap_or(0..0);
        let turns = turns(diaries, &lanes).collect();
        let role = match number {
            READER => format!("reader {seed}"),
            MAINTAINER => format!("maintainer {seed}"),
            _ => format!("lanes {} {} {seed} {twin:?}", lanes.start, lanes.end),
        };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "role", "--nocapture"])
            .env(ROLE, role)
            .env(PLACE, &place.root)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Part {
            child,
            lanes,
            turns,
        }
    }

    /// Waits until each of its lanes has begun a change, if it has some; not for ever.
    fn arrive(&self, diaries: &Region) {
        let began = Instant::now();
        let waits = |(now, before): (u64, &u64)| now == *before;
        while turns(diaries, &self.lanes).zip(&self.turns).any(waits)
            && began.elapsed() < Duration::from_millis(300)
        {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Kills it; an error if it had ended before, which none does by itself.
    fn kill(&mut self) -> Result<(), String> {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        match status.signal() {
            Some(9) => Ok(()),
            _ => Err(format!("a process ended by itself: {status}")),
        }
    }

    /// Stops it for so many milliseconds.
    fn stop(&self, ms: u64) -> Child {
        let id = self.child.id();
        let seconds = Duration::from_millis(ms).as_secs_f64();
        let script = format!("kill -STOP {id}; sleep {seconds}; kill -CONT {id}");
        let script = format!("({script}) 2>/dev/null");
        Command::new("sh").args(["-c", &script]).spawn().unwrap()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Storm<'r> {
    plan: Plan,
    place: &'r Place,
    diaries: &'r Region,
    store: Option<LogStore>,
    random: Random,
    counts: Counts,
}

/// Runs it; what was wrong, if anything was.
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
            place: &place,
            diaries: &diaries,
            store: Some(store),
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
    fn store(&self) -> &LogStore {
        self.store.as_ref().unwrap()
    }

    fn start(&mut self, number: usize) -> Part {
        let seed = self.random.below(u64::MAX >> 12);
        Part::start(self.place, self.diaries, number, seed, self.plan.twin)
    }

    /// The life of a store.
    fn one_store(&mut self, over: &impl Fn(&Counts) -> bool) -> Result<(), String> {
        self.at_rest()?;
        for _ in 0..ROUNDS {
            self.round(over)?;
            if over(&self.counts) {
                break;
            }
        }
        for lane in 0..LANES {
            let of_lane = Diary::of(self.diaries, lane).counts();
            let sums = self.counts.changes.iter_mut().zip(of_lane);
            sums.for_each(|(sum, n)| *sum += n);
        }
        self.counts.moved += self.store().stats().moved_bytes;
        self.drain()
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
            // Some die on their way in.
            if !self.random.one_in(10) {
                parts[number].arrive(self.diaries);
            }
            let pause = if self.random.one_in(4) { 300 } else { 8_000 };
            std::thread::sleep(Duration::from_micros(self.random.below(pause)));
            self.kill(&mut parts[number])?;
            parts[number] = self.start(number);
            if over(&self.counts) {
                break;
            }
        }
        // Sometimes nobody is left at all.
        if self.random.one_in(2) {
            self.store = None;
        }
        for part in &mut parts {
            part.child.kill().unwrap();
        }
        if self.store.is_none() {
            self.store = Some(self.place.open(false));
        }
        for part in &mut parts {
            self.kill(part)?;
        }
        for mut stop in stops {
            stop.wait().unwrap();
        }
        self.counts.rounds += 1;
        patiently(|| self.store().reap())?;
        self.at_rest()
    }

    fn kill(&mut self, part: &mut Part) -> Result<(), String> {
        part.kill()?;
        self.counts.kills += 1;
        let began = Instant::now();
        for lane in part.lanes.clone() {
            self.settle(lane)?;
            let first = self.random.among(&MAIN);
            self.compare(lane, first..(first + 200).min(NAMES))?;
        }
        self.counts.slowest = self.counts.slowest.max(began.elapsed());
        Ok(())
    }

    /// What became of the change that a killed lane had under way.
    fn settle(&mut self, lane: usize) -> Result<(), String> {
        let diary = Diary::of(self.diaries, lane);
        let Some(change) = diary.under_way() else {
            diary.settled(&[], 0);
            *self.counts.deaths.entry("between".into()).or_default() += 1;
            return Ok(());
        };
        let since = now();
        let names = change.steps.iter().map(|step| step.name);
        let seen: Result<Vec<_>, _> = names.map(|name| look(self.store(), lane, name)).collect();
        let at = Span::since(since);
        let done = settle(change.how, &change.steps, change.known, &seen?, at)
            .map_err(|wrong| format!("lane {lane} died in {}: {wrong}", change.what))?;
        let steps: Vec<_> = change.steps.iter().map(|s| (s.name, s.new)).collect();
        diary.settled(&steps, done);
        let became = match done {
            _ if change.known.is_some() => "known",
            0 => "not done",
            n if n == steps.len() => "done",
            _ => "done in part",
        };
        let what = format!("{} {became}", change.what);
        *self.counts.deaths.entry(what).or_default() += 1;
        Ok(())
    }

    /// The names hold what the diary says.
    fn compare(&self, lane: usize, names: Range<usize>) -> Result<(), String> {
        let diary = Diary::of(self.diaries, lane);
        for name in names {
            let (state, since) = (diary.state(name), now());
            let seen = look(self.store(), lane, name)?;
            if !state.allows(seen, Span::since(since)) {
                return Err(format!(
                    "lane {lane}, name {name}: {state:?} was acknowledged, {seen:?} found"
                ));
            }
        }
        Ok(())
    }

    /// With nobody else there, everything is as it should be.
    fn at_rest(&mut self) -> Result<(), String> {
        for lane in 0..LANES {
            self.settle(lane)?;
        }
        let report = patiently(|| self.store().check())?;
        if !report.is_sound() {
            return Err(format!("the check: {:#?}", report.problems));
        }
        let left_over = self.place.left_over();
        if !left_over.is_empty() {
            return Err(format!("left over: {left_over:#?}"));
        }
        for lane in 0..LANES {
            self.compare(lane, 0..NAMES)?;
        }
        self.scan()
    }

    /// Every record is somebody's, and counted.
    fn scan(&self) -> Result<(), String> {
        for number in databases() {
            let database = self.store().database(number).unwrap();
            let before = now();
            patiently(|| self.store().remove_expired())?;
            let (mut found, mut wrong) = (HashMap::new(), None);
            let mut cursor = Cursor::START;
            while cursor != Cursor::END {
                let mut visit = |key: &[u8], value: &[u8]| {
                    let read = match owner(number, key) {
                        Some((lane, name)) => read(lane, name, value),
                        None => Err(format!("nobody's key {}", key.escape_ascii())),
                    };
                    wrong = wrong.take().or(read.err());
                    found.insert(key.to_vec(), ());
                };
                cursor = patiently(|| database.scan(cursor, 256, &mut visit))?;
            }
            if let Some(wrong) = wrong {
                return Err(format!("a scan of database {number}: {wrong}"));
            }
            let len = database.len();
            let (mut least, mut most) = (0, 0);
            let mut seen = std::collections::HashSet::new();
            for (lane, name) in (0..LANES).flat_map(|lane| (0..NAMES).map(move |name| (lane, name)))
            {
                if super::names::database(lane, name) != number {
                    continue;
                }
                let state = Diary::of(self.diaries, lane).state(name);
                let key = key(lane, name);
                if !state.is_there() || !seen.insert(key.clone()) {
                    continue;
                }
                let stays = state.until == 0 || state.until > now();
                least += u64::from(stays);
                most += u64::from(stays || state.until >= before);
                if stays && !found.contains_key(&key) {
                    return Err(format!("lane {lane}, name {name}: a scan does not find it"));
                }
            }
            if !(least..=most).contains(&len) || found.len() as u64 > most {
                return Err(format!(
                    "database {number}: {len} counted, {} found, {least} to {most} stored",
                    found.len()
                ));
            }
        }
        Ok(())
    }

    /// Removes everything, in two ways, and expects the memory back.
    fn drain(&mut self) -> Result<(), String> {
        let store = self.store();
        patiently(|| store.grow(MAX).map_err(Growth))?;
        for lane in 0..LANES {
            for name in MAIN {
                patiently(|| place(store, lane, name).remove(&key(lane, name)))?;
            }
        }
        for number in databases() {
            patiently(|| store.database(number).unwrap().clear())?;
        }
        for _ in 0..6 {
            patiently(|| store.compact())?;
        }
        let report = patiently(|| store.check())?;
        let stats = store.stats();
        // What writers were killed over in an open segment counts as live there.
        let there = stats.records + stats.index_used_bytes + stats.condemned;
        // What is open stays, and a frame that each shard of the index keeps.
        let stays = stats.segments <= OPEN && stats.index_bytes <= INDEX;
        if !report.is_sound() || there > 0 || !stays {
            return Err(format!("drained: {:#?}, {stats:#?}", report.problems));
        }
        Ok(())
    }
}

/// Growth that may succeed when tried again.
#[derive(Debug)]
struct Growth(mneme_log::GrowError);

impl std::fmt::Display for Growth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl super::look::MayPass for Growth {
    fn may_pass(&self) -> bool {
        matches!(self.0, mneme_log::GrowError::Stalled(_))
    }
}
