//! Pairs of operations: one is stopped at one of its fault points, another runs to its end beside
//! it, and the first continues or is dead. Afterwards the store is sound and has the expected
//! content.
//!
//! X is stopped at each fault point that it passes, at the first, a middle and the last passage; Y
//! ranges over the same operations; both policies; X continues, or dies and is repaired. Others
//! read while X is stopped: what they have seen has happened, and what they have seen to be absent
//! cannot have happened before. A third of the stores have lent their unused frames to a tenant
//! whose copies are compared as well.
//!
//! A sample runs here; `cargo xtask ladder` tries as many as it has time for, in an order drawn
//! from its seed: first each Y once at each fault point of each X ([`spread`]).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

mod actions;
mod calendar;
mod expected;
mod image;
#[path = "../memory/mod.rs"]
mod memory;
mod model;
#[path = "../notifications/replayed.rs"]
mod replayed;
mod scenario;
mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use actions::Action;
use mneme_log::UpdatePolicy::{self, Append, InPlace};
use scenario::{Met, Scenario, Second, fills, places_of};
use stores::Kind;

/// Operations that cannot be stopped, with the reason: as X they never meet another.
const PASSING: [(Action, &str); 4] = [
    (
        Action::Check,
        "it changes nothing that it would have to note; its locks are those of a reader of the index",
    ),
    (Action::Expire, "time passes at once"),
    (Action::ReadOnly, "it stores nothing"),
    (Action::ReapDying, "it is what comes after X has died"),
];

/// The operations that can be stopped.
fn xs() -> impl Iterator<Item = Action> {
    let passing = PASSING.map(|(action, _)| action);
    actions::ALL
        .into_iter()
        .filter(move |x| !passing.contains(x))
}

/// Fault points, each with the number of times that an action passes it, and whether that happens
/// only in a store that lends.
type Places = BTreeMap<&'static str, (u64, bool)>;

/// The fault points that X passes, determined once.
fn places(policy: UpdatePolicy, x: Action) -> Places {
    static KNOWN: Mutex<Vec<(UpdatePolicy, Action, Places)>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap();
    if let Some((.., places)) = known.iter().find(|known| (known.0, known.1) == (policy, x)) {
        return places.clone();
    }
    let places = look_for_places(policy, x);
    known.push((policy, x, places.clone()));
    places
}

fn look_for_places(policy: UpdatePolicy, x: Action) -> Places {
    let mut places = BTreeMap::new();
    for lends in [false, true] {
        for fed in [false, true] {
            if fed && fills(x) || !lends && x == Action::Lend {
                continue;
            }
            let kind = Kind {
                policy,
                fed,
                lends,
                rented: lends && x != Action::Lend,
                filled: fills(x),
            };
            for (place, passages) in places_of(kind, x) {
                // The kind of store also depends on other things.
                let known = places.entry(place).or_insert((passages, lends));
                if fed && known.1 == lends {
                    known.0 = passages;
                }
            }
        }
    }
    places
}

/// All scenarios, generated once.
fn all() -> Vec<Scenario> {
    static ALL: OnceLock<Vec<Scenario>> = OnceLock::new();
    ALL.get_or_init(make_all).clone()
}

fn make_all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for policy in [Append, InPlace] {
        for x in xs() {
            for (place, (passages, only_lends)) in places(policy, x) {
                // Lower layers have such tests of their own: their points are crossed only at the
                // first passage.
                let is_below = place.starts_with("arena.") || place.starts_with("sync.");
                let nths: BTreeSet<u64> = match is_below && !place.starts_with("arena.lend.") {
                    false => [1, passages.div_ceil(2), passages].into(),
                    true => [1].into(),
                };
                for nth in nths {
                    for y in actions::ALL {
                        let ends: &[bool] = match y {
                            Action::ReapDying => &[true],
                            _ => &[false, true],
                        };
                        for &dies in ends {
                            let neither = ![x, y].into_iter().any(fills);
                            // Half of the stores that can have a feed have one, and a third have a
                            // tenant.
                            let odd = place.len() + nth as usize + y as usize;
                            let third = 7 * place.len()
                                + 2 * nth as usize
                                + 5 * y as usize
                                + usize::from(dies);
                            all.push(Scenario {
                                policy,
                                x,
                                place,
                                nth,
                                y,
                                dies,
                                fed: neither
                                    && (odd.is_multiple_of(2) || place.starts_with("log.feed.")),
                                lends: only_lends
                                    || [x, y].contains(&Action::Lend)
                                    || third.is_multiple_of(3),
                            });
                        }
                    }
                }
            }
        }
    }
    all
}

/// Orders `all` so that each prefix of it covers as much as possible: each Y once at each fault
/// point of each X, one pair after the other, then each of these a second time. Otherwise the order
/// is kept.
fn spread(all: &mut Vec<Scenario>) {
    let (mut of_place, mut of_pair) = (BTreeMap::new(), BTreeMap::new());
    let mut next = |scenario: &Scenario| {
        let Scenario { x, y, place, .. } = *scenario;
        let round = of_place.entry((x, place, y)).or_insert(0u32);
        *round += 1;
        let turn = of_pair.entry((*round, x, y)).or_insert(0u32);
        *turn += 1;
        (*round, *turn)
    };
    let mut turns: Vec<_> = all.drain(..).map(|one| (next(&one), one)).collect();
    turns.sort_by_key(|(turn, _)| *turn);
    all.extend(turns.into_iter().map(|(_, one)| one));
}

/// All scenarios in the order drawn from a seed, and a number that identifies this order.
///
/// Each has a place of its own, so that one more or less in another run moves no other one far. The
/// numbers of later passages do not affect it, because they differ where a store draws what it
/// evicts.
fn in_order(seed: u64) -> (Vec<Scenario>, u64) {
    let mut passages = BTreeMap::new();
    let mut draw = |scenario: Scenario| {
        let Scenario {
            policy,
            x,
            place,
            y,
            dies,
            ..
        } = scenario;
        let name = format!("{policy:?} {x:?} {place} {y:?} {dies}");
        let passage = passages.entry(name.clone()).or_insert(0u32);
        *passage += 1;
        (hash_of(&(seed, name, *passage)), scenario)
    };
    let mut drawn: Vec<_> = all().into_iter().map(&mut draw).collect();
    drawn.sort_by_key(|(number, _)| *number);
    let order = hash_of(&drawn.iter().map(|(number, _)| *number).collect::<Vec<_>>());
    let mut all = drawn.into_iter().map(|(_, scenario)| scenario).collect();
    spread(&mut all);
    (all, order)
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// One of `parts` parts.
fn part_of<T>(all: &[T], part: usize, parts: usize) -> &[T] {
    let end = |part| all.len() * part / parts;
    &all[end(part)..end(part + 1)]
}

/// The number of parts of a run of all scenarios.
const PARTS: usize = 96;

/// The parts together are all scenarios, so runs of each leave none out. The first part already has
/// each pair.
#[test]
fn the_parts_together_try_each_pair() {
    let (order, _) = in_order(seed());
    let parts: Vec<_> = (0..PARTS).map(|i| part_of(&order, i, PARTS)).collect();
    assert!(parts.concat() == order, "the parts are not the order");
    let pairs: BTreeSet<_> = xs().flat_map(|x| actions::ALL.map(|y| (x, y))).collect();
    let tried: BTreeSet<_> = parts[0].iter().map(|s| (s.x, s.y)).collect();
    assert_eq!(tried, pairs, "in the first part");
    let of = |all: &[Scenario]| -> BTreeSet<_> {
        all.iter()
            .map(|s| (s.x, s.place, s.nth, s.y, s.dies))
            .collect()
    };
    assert_eq!(order.len(), all().len());
    assert!(of(&order) == of(&all()), "the order is not of all");
}

fn seed() -> u64 {
    from_environment("MNEME_LADDER_SEED").unwrap_or(1)
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|s| s.parse().unwrap())
}

/// Tries one; describes what failed.
fn attempt(scenario: Scenario) -> Result<Met, String> {
    tried(scenario, || scenario.run())
}

/// The result of a scenario, by its name.
fn tried(name: impl Debug, run: impl FnOnce() -> Result<Met, String>) -> Result<Met, String> {
    let tried = catch_unwind(AssertUnwindSafe(run));
    let tried = tried.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        Err(format!("panicked: {}", text.unwrap_or_default()))
    });
    tried.map_err(|why| format!("{name:?}: {why}"))
}

/// The number of scenarios that a sample draws in addition to those of [`is_always_tried`].
const SAMPLE: usize = 60;

/// The number of scenarios that are tried at the same time.
const WORKERS: usize = 8;

/// The number of attempts after which a pair must have met.
const TRIES: usize = 24;

/// Whether every sample includes this pair: small operations, and those that run beside all others.
fn is_always_tried((x, y): (Action, Action)) -> bool {
    use Action::{Clear, Compact, Evict, Expire, Fill, Lend, Move, Named, Patch, Put, Reap};
    use Action::{Remove, Retime, Transact, Update};
    let small = [Put, Remove, Update, Retime, Patch, Transact, Named, Move];
    small.contains(&x) && [Expire, Evict, Reap, Clear, Compact].contains(&y)
        || (x == Lend && [Compact, Fill].contains(&y))
        || (x == Compact && y == Lend)
}

/// The results of the attempts at one pair.
#[derive(Default)]
struct Tries {
    met: usize,
    refused: usize,
    missed: usize,
}

/// The results of all attempts.
#[derive(Default)]
struct Tally {
    pairs: BTreeMap<(Action, Action), Tries>,
    wrong: Vec<String>,
}

impl Tally {
    fn note(&mut self, scenario: Scenario, came: Result<Met, String>) {
        let tries = self.pairs.entry((scenario.x, scenario.y)).or_default();
        match came {
            Ok(Met::Yes) => tries.met += 1,
            Ok(Met::Refused) => tries.refused += 1,
            Ok(Met::No) => tries.missed += 1,
            Err(why) => {
                eprintln!("{why}");
                self.wrong.push(why);
            }
        }
    }

    fn has_met(&self, pair: (Action, Action)) -> bool {
        self.pairs.get(&pair).is_some_and(|tries| tries.met > 0)
    }

    fn sum(&self, of: impl Fn(&Tries) -> usize) -> usize {
        self.pairs.values().map(of).sum()
    }

    /// Pairs that were tried this often and never met.
    fn never_met(&self, often: usize) -> Vec<(Action, Action)> {
        let is_one = |t: &Tries| t.met == 0 && t.refused + t.missed >= often;
        let never = self.pairs.iter().filter(|(_, tries)| is_one(tries));
        never.map(|(pair, _)| *pair).collect()
    }
}

#[test]
fn nothing_is_lost_where_two_operations_meet() {
    let seed = seed();
    // Parts belong to the same order if they print the same number.
    let (mut all, order) = in_order(seed);
    // Words of the scenarios to be tried, as a failure prints them.
    if let Ok(only) = std::env::var("MNEME_CROSS") {
        all.retain(|scenario| {
            only.split(' ')
                .all(|word| format!("{scenario:?}").contains(word))
        });
    }
    // One part of several: `3/16`. Memory of the dead stays with the process.
    if let Ok(part) = std::env::var("MNEME_CROSS_PART") {
        let (part, parts) = part.split_once('/').unwrap();
        all = part_of(&all, part.parse().unwrap(), parts.parse().unwrap()).to_vec();
    }
    let end = from_environment("MNEME_LADDER_SECS").map(Duration::from_secs);
    let end = end.map(|long| Instant::now() + long);
    let total = all.len();
    let tally = Mutex::new(Tally::default());
    let rest = Mutex::new((all.into_iter(), SAMPLE));
    // The next one that is due.
    let next = || {
        let (rest, to_draw) = &mut *rest.lock().unwrap();
        rest.find(|scenario| {
            let pair = (scenario.x, scenario.y);
            if end.is_some() || (is_always_tried(pair) && !tally.lock().unwrap().has_met(pair)) {
                return true;
            }
            let is_drawn = *to_draw > 0;
            *to_draw -= usize::from(is_drawn);
            is_drawn
        })
    };
    let is_over =
        || end.is_some_and(|end| Instant::now() > end) || tally.lock().unwrap().wrong.len() >= 12;
    // Most of the time they wait for stopped threads.
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(scenario) = next().filter(|_| !is_over()) {
                    let came = attempt(scenario);
                    tally.lock().unwrap().note(scenario, came);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    let tried = tally.sum(|t| t.met + t.refused + t.missed) + tally.wrong.len();
    let (met, refused) = (tally.sum(|t| t.met), tally.sum(|t| t.refused));
    println!(
        "cross: {tried} of {total} from seed {seed}, order {order:016x}: {met} meetings of {} \
         pairs, beside {refused} in which one reported the other, and {} that did not take place",
        tally.pairs.values().filter(|tries| tries.met > 0).count(),
        tally.sum(|t| t.missed),
    );
    assert!(
        tally.wrong.is_empty(),
        "{} do not hold:\n{}",
        tally.wrong.len(),
        tally.wrong.join("\n")
    );
    // In a run of one part only, these may have met in other parts.
    println!("tried without a meeting: {:?}", tally.never_met(1));
    let never = tally.never_met(TRIES);
    assert!(never.is_empty(), "never met: {never:?}");
    assert!(met > 0);
}

/// The number of attempts at two deaths that a sample draws.
const TWICE: u64 = 32;
/// The maximum that a process tries: memory of the dead stays mapped. Another seed draws others.
const MOST: u64 = 1000;

/// Scenario number `i` of those in which Y dies as well, out of `all`.
fn drawn(all: &[Scenario], i: u64) -> (Scenario, Second) {
    let pick = |what: u32, of: usize| (hash_of(&(seed(), i, what)) % of as u64) as usize;
    let scenario = all[pick(0, all.len())];
    let places: Vec<_> = places(scenario.policy, scenario.y).into_iter().collect();
    let (place, (passages, _)) = places[pick(1, places.len())];
    let nth = [1, 2, passages.div_ceil(2), passages][pick(2, 4)];
    let reapers = actions::REAP_PLACES;
    let reaper = (pick(3, 3) == 0).then(|| reapers[pick(4, reapers.len())]);
    (scenario, Second { place, nth, reaper })
}

/// X is stopped or dead, then Y dies, then perhaps a reaper of both.
#[test]
fn nothing_is_lost_where_two_die() {
    let mut all = all();
    all.retain(|scenario| xs().any(|x| x == scenario.y));
    let end = from_environment("MNEME_LADDER_SECS").map(Duration::from_secs);
    let end = end.map(|long| Instant::now() + long);
    let (number, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    let is_over = |i: u64| match end {
        Some(end) => i >= MOST || Instant::now() > end || tally.lock().unwrap().wrong.len() >= 12,
        None => i >= TWICE,
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let i = number.fetch_add(1, Relaxed);
                    if is_over(i) {
                        return;
                    }
                    let (scenario, second) = drawn(&all, i);
                    let came = tried((scenario, second), || scenario.run_twice(second));
                    tally.lock().unwrap().note(scenario, came);
                }
            });
        }
    });
    let tally = tally.into_inner().unwrap();
    let (met, lived) = (tally.sum(|t| t.met), tally.sum(|t| t.refused));
    let missed = tally.sum(|t| t.missed);
    println!(
        "cross: from seed {}: {met} with two deaths, {lived} in which Y lived, {missed} in which X \
         did not come to its place",
        seed()
    );
    assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
    assert!(met > 0);
}

/// Meetings that once lost something.
#[test]
fn cases_that_once_lost_writes_lose_none() {
    use Action::Update;
    use Action::{Clear, Compact, Evict, Expire, Move, Put, PutLarge, Retime, Swap, Transact};
    let mut all = Vec::new();
    let mut once = |policies: &[UpdatePolicy], x, place, nth, y, dies| {
        all.extend(policies.iter().map(|&policy| Scenario {
            policy,
            x,
            place,
            nth,
            y,
            dies,
            fed: false,
            lends: false,
        }));
    };
    let both = &[Append, InPlace];
    // An entry that a transaction had replaced and was to restore led to a record that compaction
    // considered dead.
    once(both, Transact, "txn.inserted", 1, Compact, true);
    once(both, Transact, "txn.applied", 1, Compact, true);
    // A record that compaction had seen expired became live again, and was not moved: one of the
    // first that it reaches.
    for nth in 1..6 {
        once(&[InPlace], Compact, "compact.expired", nth, Put, false);
    }
    once(&[InPlace], Compact, "compact.expired", 1, Put, true);
    // A change decided on a live record took effect when the record had expired, and others had
    // seen that.
    once(both, Update, "log.intent", 1, Expire, false);
    once(both, Retime, "log.intent", 1, Expire, false);
    // A cleared record was moved to another database.
    once(both, Move, "txn.intent", 1, Clear, false);
    // An extent whose writer died before it wrote the large record's header was considered damage.
    for place in ["arena.adopt.done", "log.open.adopted", "log.large.header"] {
        once(both, PutLarge, place, 1, Evict, true);
    }
    // A database cleared in the middle of a swap appeared in the feed as the other one.
    once(both, Swap, "log.swap.stored", 1, Clear, true);
    once(both, Swap, "log.swap.stored", 1, Clear, false);
    let swaps = all.iter_mut().filter(|scenario| scenario.x == Swap);
    swaps.for_each(|scenario| scenario.fed = true);
    let all = all.into_iter();
    let wrong: Vec<String> = all.filter_map(|s| attempt(s).err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
