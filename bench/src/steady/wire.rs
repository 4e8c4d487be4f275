//! The servers of `steady`: each on the first CPU, loaded and overwritten one after the other, ours
//! last; then all idle at once.

use super::{
    Case, Draw, IDLE_STEPS, Moment, STEPS, Scale, goes, idle_cpu, moved, over_live, resident,
};
use crate::error::{BenchError, process_failed};
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::server::generator::Generator;
use crate::server::on_load_cpu;
use crate::server::protocol::{KEY_BYTES, Kind, Request, Verb};
use crate::server::servers::{OURS, Server, stores};
use crate::server::throughput::{CONNECTIONS, DEPTH, fill};
use crate::systems::pipeline::Pipeline;
use mneme_log::MIN_CAPACITY;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Ours that empties no log segments but for want of space.
pub const AT_REST: &str = "mneme, activedefrag no";

/// A server in its course.
struct Life {
    system: &'static str,
    // Before the server: connections end first.
    load: Generator,
    commands: Pipeline,
    server: Server,
    /// Bytes of keys and values.
    data: u64,
}

impl Life {
    fn new(system: &'static str, case: Case, scale: &Scale) -> Result<Self, BenchError> {
        let data = u64::from(case.records) * (KEY_BYTES + case.value) as u64;
        let program = if system == AT_REST { OURS } else { system };
        let server = Server::start(program, 1, (scale.spacious * data).max(8 * MIN_CAPACITY))?;
        let load = server.connect(case.value, CONNECTIONS)?;
        server.keep_on(1)?;
        let connection = UnixStream::connect(server.socket()).map_err(process_failed)?;
        Ok(Self {
            system,
            load,
            commands: Pipeline::new(connection),
            server,
            data,
        })
    }

    /// Adds what is resident now.
    fn look(&self, case: Case, moment: Moment, ledger: &mut Ledger) {
        let over = self.server.resident() as f64 / self.data as f64;
        ledger.add(self.system, &resident(case, moment), Metric::Overhead, over);
    }

    /// Overwrites in steps, and looks after each.
    fn overwrite(&mut self, case: Case, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
        on_load_cpu(|| fill(&mut self.load, 0..case.records))?;
        let all = u64::from(case.records) * u64::from(case.turnovers);
        let mut draw = Draw::new(case, seed);
        let before = self.account()?;
        for step in 1..=STEPS {
            if all == 0 && step < STEPS {
                continue;
            }
            let (mut left, kind) = (all / STEPS as u64, Kind::Set);
            let begin = self.server.cpu()?;
            on_load_cpu(|| {
                self.load.closed(DEPTH, || {
                    left = left.checked_sub(1)?;
                    let id = draw.next();
                    Some(Request { id, kind })
                })
            })?;
            let took = self.server.cpu()?.saturating_sub(begin);
            // The kernel counts now and then: a step may be too short for it.
            if !took.is_zero() && all > 0 {
                let each = took.as_nanos() as f64 / (all / STEPS as u64) as f64;
                ledger.add(self.system, &super::cpu(case), Metric::Cpu, each);
            }
            self.look(case, Moment::Overwritten(step), ledger);
        }
        if let (Some(before), Some(after)) = (before, self.account()?)
            && all > 0
        {
            let written = all * (KEY_BYTES + case.value) as u64;
            let share = (after.moved - before.moved) as f64 / written as f64;
            ledger.add(self.system, &moved(case), Metric::Rewritten, share);
        }
        Ok(())
    }

    fn remove(&mut self, case: Case, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
        let kind = Kind::Other(Verb::Del);
        let mut ids = (0..case.records).filter(|id| goes(*id, seed));
        let removed = on_load_cpu(|| {
            let next = || ids.next().map(|id| Request { id, kind });
            self.load.closed(DEPTH, next)
        })?;
        self.data -= removed.operations * (KEY_BYTES + case.value) as u64;
        self.look(case, Moment::Removed, ledger);
        Ok(())
    }

    /// What our server says of its memory.
    fn account(&mut self) -> Result<Option<Account>, BenchError> {
        if ![OURS, AT_REST].contains(&self.system) {
            return Ok(None);
        }
        let said = self.commands.text(&[b"MEMORY", b"MALLOC-STATS"])?;
        let number = |name: &str| {
            let mut lines = said.lines().filter_map(|line| line.rsplit_once(' '));
            let (_, number) = lines.find(|(key, _)| *key == name)?;
            number.parse().ok()
        };
        let account = || {
            Some(Account {
                live: number("live")? + number("index")?,
                moved: number("moved by compaction")?,
            })
        };
        let account = account();
        account
            .map(Some)
            .ok_or_else(|| BenchError::wrong(self.system, "MEMORY MALLOC-STATS", "it does not say"))
    }
}

struct Account {
    /// Live records and index.
    live: u64,
    /// Bytes of records moved.
    moved: u64,
}

/// Has nobody ask for anything, and looks after each step.
fn idle(
    lives: &[Life],
    span: Duration,
    case: Case,
    moment: fn(usize) -> Moment,
    ledger: &mut Ledger,
) {
    for step in 1..=IDLE_STEPS {
        // It is the measurement.
        std::thread::sleep(span / IDLE_STEPS as u32);
        for life in lives {
            life.look(case, moment(step), ledger);
        }
    }
}

/// Measures a case; notes of what could not be.
///
/// # Errors
/// A server does not start, or answers wrongly.
pub fn run(
    case: Case,
    scale: &Scale,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<Option<String>, BenchError> {
    // Ours last: it is the one that goes on working when nobody asks.
    let mut systems = stores();
    systems.insert(1, AT_REST);
    systems.reverse();
    let (mut lives, mut note) = (Vec::new(), None);
    for system in systems {
        progress::show(format_args!("{system}, {case}"));
        let mut life = Life::new(system, case, scale)?;
        if system == AT_REST {
            life.commands
                .queue(&[b"CONFIG", b"SET", b"activedefrag", b"no"]);
            if let Err(error) = life.commands.flush(|_| {}) {
                note = Some(format!("{AT_REST} is left out: {error}"));
                continue;
            }
        }
        life.overwrite(case, seed, ledger)?;
        lives.push(life);
    }
    progress::show(format_args!("{case}: idle"));
    let before = cpus(&lives)?;
    idle(&lives, scale.idle, case, Moment::Idle, ledger);
    let between = cpus(&lives)?;
    for life in &mut lives {
        life.remove(case, seed, ledger)?;
    }
    let again = cpus(&lives)?;
    idle(&lives, scale.idle, case, Moment::IdleAgain, ledger);
    let after = cpus(&lives)?;
    for (at, life) in lives.iter_mut().enumerate() {
        let idle = between[at] - before[at] + after[at] - again[at];
        let seconds = idle.as_secs_f64();
        ledger.add(life.system, &idle_cpu(case), Metric::Duration, seconds);
        if let Some(account) = life.account()? {
            let over = life.server.resident() as f64 / account.live as f64;
            ledger.add(life.system, &over_live(case), Metric::Overhead, over);
        }
    }
    Ok(note)
}

fn cpus(lives: &[Life]) -> Result<Vec<Duration>, BenchError> {
    lives.iter().map(|life| life.server.cpu()).collect()
}
