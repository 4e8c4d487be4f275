//! The work of a storm's processes, and how a storm is run.

use std::time::Duration;

use mneme_log::UpdatePolicy;
use mneme_testkit::{Random, setting};

use super::lane::Lane;
use super::listener::Listener;
use super::place::Place;
use super::reader::Reader;
use super::rounds::{self, Plan};

/// The role of a process, and its place.
pub const ROLE: &str = "MNEME_LOG_STORM_ROLE";
pub const PLACE: &str = "MNEME_LOG_STORM_PLACE";

/// A twin that is broken on purpose, and must be detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Twin {
    No,
    /// A change is acknowledged before it is made; the lane stops in between.
    Early,
    /// A transaction is made key by key; the lane stops half-way.
    Torn,
    /// The listener ignores some changes.
    Deaf,
    /// Elements of a collection are changed one by one; the lane stops half-way.
    Elements,
}

impl Twin {
    fn named(name: &str) -> Twin {
        let all = [Twin::Early, Twin::Torn, Twin::Deaf, Twin::Elements];
        let found = all.into_iter().find(|twin| format!("{twin:?}") == name);
        found.unwrap_or(Twin::No)
    }
}

/// The work of one of the processes; nothing unless it was started as one.
pub fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    end_with_parent();
    let words: Vec<&str> = role.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let place = Place::of(std::env::var_os(PLACE).unwrap().into());
    let diaries = place.diaries();
    match words[0] {
        "lanes" => {
            let seed = number(3);
            let twin = Twin::named(words[4]);
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
        "reader" => {
            // Some may not write at all.
            let store = place.watch(number(1) % 2 == 0);
            let mut reader = Reader::new(&store, &diaries, number(1));
            loop {
                reader.step();
            }
        }
        "listener" => {
            let (own, other) = (place.open(false), place.open(false));
            let twin = Twin::named(words[2]);
            let mut listener = Listener::new(&own, &other, &diaries, number(1), twin);
            loop {
                listener.step();
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

/// Ends this process when the parent is gone, for whatever reason.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().lines().next();
        std::process::exit(0);
    });
}

/// A thread that fails ends its process, which the parent notices.
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

pub fn plan(policy: UpdatePolicy, twin: Twin) -> Plan {
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

pub fn storm(policy: UpdatePolicy) {
    let plan = plan(policy, Twin::No);
    let counts = rounds::run(plan).unwrap_or_else(|wrong| panic!("{wrong}"));
    let [done, refused, stalled] = counts.changes;
    let [received, lost, compared] = counts.listened;
    println!(
        "\nladder: kill storm, {policy:?}, seed {}: {} kills, {} stops, {} rounds, {} stores; {done} \
         changes took place, {refused} found no free space, {stalled} were held up; {} bytes moved; at most \
         {:?} to read what the dead left; {received} changes followed, {lost} losses, {compared} \
         acknowledged changes compared with them",
        plan.seed,
        counts.kills,
        counts.stops,
        counts.rounds,
        counts.stores,
        counts.moved,
        counts.slowest
    );
    println!("  what they died in: {:?}", counts.deaths);
    assert!(done > 0 && counts.moved > 0 && compared > 0);
}
