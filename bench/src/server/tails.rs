//! Latencies at half load, while something goes on that could stall everybody.
//!
//! The load is open: half of what the slower of ours and Redis does at most, the same for both, on
//! connections that each have one request under way as long as the server keeps up. Half of the
//! requests are GETs of records that stay. The other half make the weather:
//! - *idle*: GETs as well; nothing else goes on.
//! - *filled*: SETs of new records.
//! - *expiring*: SETs of new records that live for a moment, so that as many expire as come.
//! - *compacted*: SETs of records that are there, in a store that is full of records that were
//!   there before.
//!
//! The machine itself is measured in the same rounds: the longest that threads on the server's CPU
//! and on the load's are away that do nothing but look at the clock, as long as an idle case takes.
//! No server can promise less.

use super::generator::{Generator, away_case};
use super::protocol::{Kind, Request};
use super::servers::{Server, stores};
use super::throughput::{CONNECTIONS, DEPTH, VALUE, fill};
use super::{memory_for, on_cpu, on_load_cpu};
use crate::error::BenchError;
use crate::generate::random::Random;
use crate::latency::percentile_case;
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::rounds::{self, Job, joined};
use std::time::{Duration, Instant};

/// In a server's place: a thread that looks at the clock.
pub const NOBODY: &str = "nobody";

/// How long a record lives that expires.
const BRIEF_MS: u32 = 100;

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    Idle,
    Filled,
    Expiring,
    Compacted,
}

/// All.
pub const WEATHERS: [Weather; 4] = [
    Weather::Idle,
    Weather::Filled,
    Weather::Expiring,
    Weather::Compacted,
];

impl Weather {
    /// Its name, the case's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Filled => "filled",
            Self::Expiring => "expiring",
            Self::Compacted => "compacted",
        }
    }
}

/// How much is done.
pub struct Scale {
    /// Records that stay, where the store is to be full of them; elsewhere a quarter.
    pub records: u32,
    /// How often each of these is overwritten before, on the average.
    pub overwritten: u64,
    /// How long each case takes in a round.
    pub span: Duration,
}

impl Scale {
    fn stay(&self, weather: Weather) -> u32 {
        match weather {
            Weather::Compacted => self.records,
            _ => self.records / 4,
        }
    }
}

struct Subject {
    // Before the server: connections end first.
    load: Generator,
    _server: Server,
    /// The first record that was never stored.
    fresh: u32,
    random: Random,
}

impl Subject {
    fn new(
        system: &str,
        weather: Weather,
        scale: &Scale,
        new: u64,
        seed: u64,
    ) -> Result<Self, BenchError> {
        let stay = scale.stay(weather);
        let live = u64::from(stay) + if weather == Weather::Filled { new } else { 0 };
        let server = Server::start(system, 1, memory_for(live, VALUE as u64))?;
        let mut load = server.connect(VALUE, CONNECTIONS)?;
        server.keep_on(1)?;
        fill(&mut load, 0..stay)?;
        let mut random = Random::new(seed);
        if weather == Weather::Compacted {
            // Until it has no free space but what it wins, from log segments of which some is dead
            // everywhere.
            let all = u64::from(stay);
            let kind = Kind::Set;
            let mut ids = (0..scale.overwritten * all).map(|_| random.below(all) as u32);
            load.closed(DEPTH, || ids.next().map(|id| Request { id, kind }))?;
        }
        Ok(Self {
            load,
            _server: server,
            fresh: stay,
            random,
        })
    }

    fn request(random: &mut Random, fresh: &mut u32, weather: Weather, records: u32) -> Request {
        let id = random.below(u64::from(records)) as u32;
        let kind = match weather {
            _ if random.next_u64().is_multiple_of(2) => Kind::Get,
            Weather::Idle => Kind::Get,
            Weather::Compacted => Kind::Set,
            Weather::Filled => Kind::Set,
            Weather::Expiring => Kind::SetFor(BRIEF_MS),
        };
        let is_new = kind != Kind::Get && weather != Weather::Compacted;
        let new = *fresh;
        *fresh += u32::from(is_new);
        Request {
            id: if is_new { new } else { id },
            kind,
        }
    }
}

/// Measures all, round by round, at `rate` requests a second.
///
/// # Errors
/// A server does not start, or answers wrongly.
pub fn run(
    scale: &Scale,
    rate: f64,
    rounds: usize,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    // Half of the requests, and some more.
    let new = (rate * scale.span.as_secs_f64() * 0.6) as u64 * rounds as u64;
    for weather in WEATHERS {
        let name = weather.name();
        let mut jobs = Vec::new();
        if weather == Weather::Idle {
            jobs.push(Job::of("the machine itself", |_, ledger| {
                let away = longest_away(scale.span)?;
                for (case, away) in [
                    (percentile_case(name, "max"), away.server),
                    (away_case(name), away.load),
                ] {
                    ledger.add(NOBODY, &case, Metric::Latency, away.as_nanos() as f64);
                }
                Ok(())
            }));
        }
        for system in stores() {
            progress::show(format_args!("loading {system}, {name}"));
            let mut subject = Subject::new(system, weather, scale, new, seed)?;
            jobs.push(Job::of(
                format_args!("{system} {name}"),
                move |_, ledger| {
                    let Subject {
                        load,
                        fresh,
                        random,
                        ..
                    } = &mut subject;
                    let stay = scale.stay(weather);
                    let request = || Subject::request(random, fresh, weather, stay);
                    let offered = on_load_cpu(|| load.open(rate, scale.span, request))?;
                    offered.report(ledger, system, name);
                    Ok(())
                },
            ));
        }
        rounds::run(jobs, rounds, ledger)?;
    }
    Ok(())
}

/// The longest that threads were away, each on its CPU.
struct Away {
    server: Duration,
    load: Duration,
}

/// How long threads in the server's and the load's places are away at most that only look at the
/// clock, for `span`.
fn longest_away(span: Duration) -> Result<Away, BenchError> {
    let look = || {
        let begin = Instant::now();
        let (mut longest, mut looked) = (Duration::ZERO, begin);
        while looked - begin < span {
            let now = Instant::now();
            longest = longest.max(now - looked);
            looked = now;
        }
        Ok(longest)
    };
    std::thread::scope(|scope| {
        let load = scope.spawn(|| on_load_cpu(look));
        let server = on_cpu(0, look)?;
        let load = joined(load)?;
        Ok(Away { server, load })
    })
}
