//! A storm of `kill -9` over processes that share a store: no acknowledged change is lost, no transaction
//! is there by half, no read is torn, and nothing stays behind of the dead.
//!
//! Several processes write, each for lanes of names that are theirs alone; others read, and maintain.
//! The parent kills and stops them at random instants, and compares the store with what each lane has
//! said of itself, in memory that survives it. Some seconds for each policy; with `MNEME_LADDER_SECS`
//! as long as that, or until `MNEME_LADDER_KILLS`; from `MNEME_LADDER_SEED`.
#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod diary;
mod expected;
mod judge;
mod lane;
mod look;
mod names;
mod place;
#[cfg(feature = "fault")]
mod points;
mod random;
mod reader;
mod rounds;
mod value;

use std::time::Duration;

use lane::Lane;
use mneme_log::UpdatePolicy;
use place::Place;
use random::Random;
use reader::Reader;
use rounds::Plan;

/// What a process is to do, and where.
const ROLE: &str = "MNEME_LOG_STORM_ROLE";
const PLACE: &str = "MNEME_LOG_STORM_PLACE";

/// What is broken on purpose, and has to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Twin {
    No,
    /// A change is acknowledged before it is made.
    Early,
    /// A transaction is made key by key.
    Torn,
}

/// One of the processes; a test that does nothing unless it was started as such.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    std::thread::spawn(|| {
        // The parent is gone, however that came.
        let _ = std::io::stdin().lines().next();
        std::process::exit(0);
    });
    let words: Vec<&str> = role.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let place = Place::of(std::env::var_os(PLACE).unwrap().into());
    let diaries = place.diaries();
    match words[0] {
        "lanes" => {
            let seed = number(3);
            let twin = match words[4] {
                "Early" => Twin::Early,
                "Torn" => Twin::Torn,
                _ => Twin::No,
            };
            let store = place.open(seed % 4 == 0);
            std::thread::scope(|scope| {
                for lane in number(1)..number(2) {
                    let (store, diaries) = (&store, &diaries);
                    scope.spawn(move || {
                        let mut lane =
                            Lane::new(store, diaries, lane as usize, seed ^ lane << 40, twin);
                        or_exit(|| {
                            loop {
                                lane.step();
                            }
                        });
                    });
                }
            });
        }
        #[cfg(feature = "fault")]
        "points" => points::process(&place.root, words[1], number(2)),
        "reader" => {
            let store = place.open(false);
            let mut reader = Reader::new(&store, &diaries, number(1));
            loop {
                reader.step();
            }
        }
        _ => {
            let (store, mut random) = (place.open(true), Random::new(number(1)));
            loop {
                std::thread::sleep(Duration::from_millis(random.below(20)));
                let _ = match random.below(3) {
                    0 => store.compact(),
                    1 => store.reap(),
                    _ => store.remove_expired(),
                };
            }
        }
    }
}

/// A thread that fails ends its process, which the parent takes notice of.
fn or_exit(work: impl FnOnce()) {
    struct Exit;
    impl Drop for Exit {
        fn drop(&mut self) {
            std::process::exit(101);
        }
    }
    let _exit = Exit;
    work();
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn plan(policy: UpdatePolicy, twin: Twin) -> Plan {
    let limit = setting("MNEME_LADDER_SECS").map(Duration::from_secs);
    let most = if limit.is_some() { u64::MAX } else { 100 };
    Plan {
        policy,
        twin,
        limit,
        seed: setting("MNEME_LADDER_SEED").unwrap_or(7),
        kills: setting("MNEME_LADDER_KILLS").unwrap_or(most),
    }
}

fn storm(policy: UpdatePolicy) {
    let plan = plan(policy, Twin::No);
    let counts = rounds::run(plan).unwrap_or_else(|wrong| panic!("{wrong}"));
    let [done, refused, stalled] = counts.changes;
    println!(
        "\nladder: kill storm, {policy:?}, seed {}: {} kills, {} stops, {} rounds, {} stores; {done} \
         changes took place, {refused} found no room, {stalled} were held up; {} bytes moved; at most \
         {:?} to read what the dead left",
        plan.seed,
        counts.kills,
        counts.stops,
        counts.rounds,
        counts.stores,
        counts.moved,
        counts.slowest
    );
    println!("  what they died in: {:?}", counts.deaths);
    assert!(done > 0 && counts.moved > 0);
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_store_that_appends() {
    storm(UpdatePolicy::Append);
}

#[test]
fn nothing_is_lost_torn_or_left_behind_in_a_store_that_overwrites() {
    storm(UpdatePolicy::InPlace);
}

/// A storm that cannot fail shows nothing.
#[test]
fn what_is_acknowledged_too_early_is_found_lost() {
    let found = rounds::run(Plan {
        kills: 2000,
        limit: None,
        ..plan(UpdatePolicy::Append, Twin::Early)
    });
    let wrong = found.unwrap_err();
    assert!(wrong.contains("acknowledged Some"), "{wrong}");
}

#[test]
fn a_transaction_key_by_key_is_found_torn() {
    let found = rounds::run(Plan {
        kills: 2000,
        limit: None,
        ..plan(UpdatePolicy::Append, Twin::Torn)
    });
    let wrong = found.unwrap_err();
    assert!(wrong.contains("Whole"), "{wrong}");
}
