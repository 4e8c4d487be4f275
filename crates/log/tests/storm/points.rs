//! Deaths at every named point, in real processes: each kills itself there, at its first passage,
//! its second or a later one; the next one attaches, repairs, and continues with its names.
//!
//! One process after the other is armed at all points at which none has died yet. So the first one
//! reached is removed from the list, and what is seldom reached remains. Every other process dies
//! where another has died already, so that there is something for the next one to repair. In every
//! other store another process writes all the time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use mneme_log::{GrowError, LogStore, UpdatePolicy};
use mneme_sys::Region;
use mneme_sys::fault::{self, Action};
use mneme_testkit::{Random, setting};

use super::collected;
use super::diary::{self, Diary};
use super::judge::{Judge, Opened};
use super::lane::Lane;
use super::names::NAMES;
use super::place::{MAX, Place};
use super::roles::{PLACE, ROLE, Twin, end_with_parent};
use super::rounds::Part;

/// Points that need not be reached, because work that can be compared passes them seldom or never;
/// each with the reason, or the place where a death there is tested.
const SPARED: [(&str, &str); 28] = [
    (
        "sweep.collections.",
        "this store has no collections; `storm` of `mneme-collections`",
    ),
    (
        "look.",
        "this store has no collections; `deaths::a_collection_of_the_dead_is_whole_or_gone`",
    ),
    (
        "log.listen.",
        "nobody listens here; `notifications::deaths`",
    ),
    (
        "log.feed.",
        "nobody follows here; `notifications::deaths` and `notifications::feed_deaths`",
    ),
    ("log.recover.", "only after a reboot; `reboot`"),
    ("arena.recover.", "only after a reboot; `arena::deaths`"),
    (
        "arena.lend.",
        "this store lends nothing; `cross` and `arena::deaths`",
    ),
    (
        "log.copy.",
        "a reader's, who leaves nothing; `deaths::a_reader_that_dies_leaves_nothing_behind`",
    ),
    (
        "compact.large.",
        "only in a full store; `gate::moving_large_values`",
    ),
    (
        "compact.bulk.",
        "only where few bulk records of a segment live; `gate::reusing_gaps`",
    ),
    ("log.gap.", "only in a full store; `gate::reusing_gaps`"),
    ("log.window.", "only in a full store; `gate::reusing_gaps`"),
    (
        "log.large.",
        "only values above 4 MiB, which are seldom here; `gate::large_values`",
    ),
    (
        "evict.",
        "evicted records cannot be compared; `gate::evictions`",
    ),
    (
        "arena.restore.descriptor",
        "only after a death at one of the frames of a claim; `arena::deaths`",
    ),
    (
        "index.repair.struck",
        "only repairs of a pool, when it is fullest; `deaths`",
    ),
    (
        "index.pool.frame-unlinked",
        "the index never has a frame too many; `deaths`",
    ),
    (
        "sync.lease.",
        "in the maintainer's thread, which is not armed",
    ),
    ("log.copy.", "nobody opens the store for reading alone"),
    (
        "txn.ahead.",
        "only after sixteen conflicts of one transaction; `gate::transactions`",
    ),
    ("sync.watch.", "nobody watches the store here"),
    ("sync.fenced.", "the log uses no fenced gate"),
    ("sync.hold.", "the log holds no versions; `sync::death`"),
    (
        "sync.create.",
        "nobody knows of a store before it is created",
    ),
    (
        "sync.rebuild.",
        "the log never builds a control region anew",
    ),
    (
        "sync.release.",
        "the end of a thread, not of an opening; `sync::death`",
    ),
    (
        "sync.reap.orphans",
        "only where a process takes over the entry of a dead one; `sync::death`",
    ),
    (
        "sync.revoke.",
        "only a reader that is stopped for a second has its pin revoked",
    ),
];

/// Points that are passed only after a death at others: the prefixes of both.
const AFTER: [(&str, &[&str]); 9] = [
    ("arena.repair.", &["arena.claim.", "arena.release."]),
    (
        "arena.restore.",
        &["arena.claim.descriptor", "arena.release.descriptor"],
    ),
    ("index.repair.", &["index.limbo."]),
    (
        "log.redo.",
        &[
            "log.change.excluded",
            "log.change.half",
            "log.change.stored",
        ],
    ),
    ("log.reap.", &["log.", "index."]),
    ("log.swap.unmarked", &["log.swap.marked", "log.swap.noted"]),
    (
        "sync.lock.",
        &["log.head.locked", "log.reserve.", "arena.claim.descriptor"],
    ),
    ("sync.reap.", &["log."]),
    ("txn.repair.", &["txn."]),
];

/// A name, and the number of the passage.
type Point = (String, u64);

/// The number of processes that die in a store's life.
const LIFE: u64 = 60;
/// The number of stores after which a point that is still on the list counts as not reached.
const STORES: u64 = 40;
/// The maximum numbers of openings of a process, and of operations in each, before it kills itself
/// wherever it is.
const OPENINGS: u64 = 2;
const STEPS: u64 = 200;

/// The word in which a process notes the point at which it dies, plus one.
fn died(diaries: &Region) -> &AtomicU64 {
    diaries.at(diary::BYTES as u64).unwrap()
}

fn die() {
    fault::arm("storm.here", Action::Kill, 1);
    fault::reach("storm.here");
}

/// One of the processes; a test that does nothing unless it was started as one.
#[test]
fn mortal() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    end_with_parent();
    let words: Vec<&str> = role.split_whitespace().collect();
    let place = Place::of(std::env::var_os(PLACE).unwrap().into());
    process(&place, words[0], words[1].parse().unwrap());
}

/// The work of a process that is to die at one of `points`.
fn process(place: &Place, points: &str, seed: u64) {
    let diaries = place.diaries();
    let mut random = Random::new(seed);
    for (i, point) in points.split(',').enumerate() {
        let (name, nth) = point.split_once(':').unwrap();
        let diaries = place.diaries();
        let here = move || {
            died(&diaries).store(i as u64 + 1, Release);
            die();
        };
        fault::arm(name, Action::Call(Arc::new(here)), nth.parse().unwrap());
    }
    for life in 0..OPENINGS {
        let opened = Opened::new(place, place.open(false));
        // The next process finds out the outcome of the dead one's work, and continues.
        opened.settle(Diary::of(&diaries, 0), 0).unwrap();
        let store = &opened.store;
        let mut lane = Lane::new(store, &diaries, 0, seed ^ life << 40, Twin::No);
        let most = [STEPS / 20, STEPS][random.below(2) as usize];
        for _ in 0..random.below(most) {
            lane.step();
            match random.below(100) {
                0 => drop(store.compact()),
                1 => drop(store.reap()),
                2 => drop(store.remove_expired()),
                3 => drop(store.sweep_collections()),
                _ => {}
            }
        }
        grow(store);
    }
    die();
}

fn grow(store: &LogStore) {
    let more = store.stats().capacity + (2 << 20);
    match store.grow(more.min(MAX)) {
        Ok(_) | Err(GrowError::Stalled(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// The points of the crates of which a store consists.
fn all() -> BTreeSet<String> {
    let manifest = env!("CARGO_MANIFEST_DIR");
    let sources = ["../log/src", "../arena/src", "../sync/src"];
    let named = sources.map(|folder| fault::named_in(format!("{manifest}/{folder}")).unwrap());
    let named: BTreeSet<String> = named.into_iter().flatten().collect();
    for (start, _) in SPARED {
        let known = named.iter().any(|name| name.starts_with(start));
        assert!(known, "there is no point {start}");
    }
    named
}

/// Whether a process has to die there.
fn counts(point: &Point) -> bool {
    let begins_with = |start: &&str| point.0.starts_with(*start);
    match collected::POINTS {
        [] => !SPARED.iter().any(|(start, _)| begins_with(start)),
        only => only.iter().any(begins_with),
    }
}

/// A point at which a process has died, and that leads to one that is left.
fn before(left: &BTreeSet<Point>, done: &[String], random: &mut Random) -> Option<Point> {
    let mut any = |from: Vec<&String>| {
        let one = from.get(random.below(from.len().max(1) as u64) as usize);
        one.map(|name| (*name).clone())
    };
    let wanted = any(left.iter().filter(|p| counts(p)).map(|p| &p.0).collect())?;
    let after = AFTER.iter().find(|(start, _)| wanted.starts_with(start));
    let starts = after.map_or(&[""] as &[&str], |(_, starts)| starts);
    let leads = |name: &&String| starts.iter().any(|start| name.starts_with(start));
    let name = any(done.iter().filter(leads).collect())?;
    Some((name, 1 + random.below(4)))
}

/// Processes that die at each point, one after the other: at its first passage, and at others for
/// the time of `MNEME_LADDER_SECS`, if that is set.
#[test]
fn the_next_process_goes_on_after_a_death_at_any_point() {
    let seed = setting("MNEME_LADDER_SEED").unwrap_or(7);
    let limit = setting("MNEME_LADDER_SECS").map(Duration::from_secs);
    let (began, mut random) = (Instant::now(), Random::new(seed));
    let mut left: BTreeSet<Point> = all().into_iter().map(|name| (name, 1)).collect();
    let (points, mut passages) = (left.len(), 1);
    let (mut done, mut missed) = (Vec::<String>::new(), BTreeSet::new());
    let (mut stores, mut processes, mut deaths) = (0, 0, 0);
    let is_over = || limit.is_none_or(|limit| began.elapsed() > limit);
    let is_done = |left: &BTreeSet<Point>| !left.iter().any(counts);
    while !(passages > 1 || is_done(&left)) && stores < STORES || !is_over() {
        let policy = [UpdatePolicy::InPlace, UpdatePolicy::Append][stores as usize % 2];
        let (place, store) = Place::create(policy);
        let diaries = place.diaries();
        let mut judge = Judge::new(&place, &diaries, store);
        let mut beside = None;
        for nth in 0..LIFE {
            if is_done(&left) {
                break;
            }
            // Not from the beginning: a death must be possible there, too.
            if nth == 5 && [1, 2].contains(&(stores % 4)) {
                let role = format!("lanes 1 2 {} No", random.below(1 << 40));
                beside = Some(Part::start(&judge, 1..2, &role));
            }
            let mut armed: Vec<Point> = left.iter().cloned().collect();
            if processes % 2 == 0 {
                armed.extend(before(&left, &done, &mut random));
            }
            let words: Vec<_> = armed
                .iter()
                .map(|(name, n)| format!("{name}:{n}"))
                .collect();
            let role = format!("{} {}", words.join(","), random.below(1 << 40));
            let mut part = Part::start_test(&judge, 0..1, "points::mortal", &role);
            part.end()
                .unwrap_or_else(|wrong| panic!("{wrong}, seed {seed}"));
            processes += 1;
            let at = died(&diaries).swap(0, Acquire);
            let point = (at > 0).then(|| armed[at as usize - 1].clone());
            if let Some(point) = &point {
                deaths += 1;
                if left.remove(point) {
                    done.push(point.0.clone());
                }
            }
            if random.one_in(5) {
                let held = judge.settle(0).and_then(|_| judge.compare(0, 0..NAMES));
                held.unwrap_or_else(|wrong| panic!("at {point:?}, seed {seed}: {wrong}"));
            }
        }
        drop(beside);
        // Sometimes the judge comes first.
        if random.one_in(2) {
            judge.leave();
            judge.come_back();
        }
        let held = judge.at_rest().and_then(|()| judge.drain());
        held.unwrap_or_else(|wrong| panic!("store {stores}, seed {seed}: {wrong}"));
        stores += 1;
        if limit.is_some() && (is_done(&left) || passages > 1 && stores % 4 == 0) {
            // Again, each at a later passage, if there are that many.
            missed.extend(
                left.into_iter()
                    .filter(|point| passages > 1 && counts(point)),
            );
            passages = if passages == 1 {
                2
            } else {
                3 + random.below(40)
            };
            left = all().into_iter().map(|name| (name, passages)).collect();
        }
    }
    println!(
        "\nladder: deaths at points, seed {seed}: {deaths} deaths, {} points of {points}, in {:?}, {processes} \
         processes, {stores} stores; {} later passages not reached",
        done.iter().collect::<BTreeSet<_>>().len(),
        began.elapsed(),
        missed.len()
    );
    left.retain(counts);
    assert!(passages > 1 || left.is_empty(), "nobody dies at {left:?}");
}
