//! Updates on machines of several NUMA nodes, **simulated**:
//! `cargo run --release -p mneme-rcu-peers --example simulate [operations [case]]`.
//!
//! First, what can be checked here: the same lists with 40 % updates in memory and simulated, by
//! one thread and by two, as ratios to a lock a list. On a busy machine, run it under
//! `chrt -f 50`.
//!
//! Then its inputs, and operations a microsecond of simulated time by mechanism; for those with
//! transactions, after the slash, the aborts in 100 updates. One operation in the list of 256
//! passes some 128 words, so a run of 400 operations a thread takes minutes. With a case, only
//! those are simulated whose names contain it: `"list 2 100% 4n"`.

use mneme_rcu_peers::simulate::{Costs, Fallback, Mechanism, Setting, Shape, simulate};
use mneme_rcu_peers::{MECHANISMS as IN_MEMORY, Set, make};
use mneme_rcx::TakeLanes;
use mneme_sys::{SysfsTopology, Topology};
use std::sync::Arc;
use std::time::{Duration, Instant};

const MECHANISMS: [(&str, Mechanism); 11] = [
    ("rcx", Mechanism::Rcx(TakeLanes::WhenBusy)),
    ("rcx always", Mechanism::Rcx(TakeLanes::Always)),
    ("rcx aborts", Mechanism::Aborting),
    ("rcx handed", Mechanism::HandOver),
    ("items", Mechanism::Items),
    ("lock", Mechanism::Lock),
    ("cohort", Mechanism::Cohort),
    ("htm ten", Mechanism::Htm(Fallback::Ten)),
    ("htm retry", Mechanism::Htm(Fallback::Retry)),
    ("htm forgive", Mechanism::Htm(Fallback::Forgive)),
    ("htm advised", Mechanism::Htm(Fallback::Advised)),
];

/// The case of few items.
const HOT: &str = "list 2";

/// Threads of a node.
const WIDTH: usize = 8;

fn setting(nodes: usize, threads: usize, remote_percent: u64, operations: u64) -> Setting {
    Setting {
        shape: Shape {
            nodes,
            threads_a_node: WIDTH,
            threads,
        },
        costs: Costs {
            remote_percent,
            ..Costs::PLAUSIBLE
        },
        buckets: 1,
        keys: 256,
        updates: 40,
        operations,
        work: 15,
        update_work: 60,
        seed: 1,
    }
}

/// Operations a microsecond on lists in memory, 40 % of them updates: the best of some runs.
fn measure(set: &dyn Set, all: u64, threads: usize) -> f64 {
    let run = |thread: usize| {
        let (mut random, mut done) = (thread as u64, 0_u64);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(40) {
            for _ in 0..64 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let key = 1 + (random >> 33) % all;
                match (random >> 20) % 10 {
                    0 | 1 => set.insert(thread, key),
                    2 | 3 => set.remove(thread, key),
                    _ => set.contains(thread, key),
                };
            }
            done += 64;
        }
        done as f64 / begin.elapsed().as_secs_f64() / 1e6
    };
    let once = || -> f64 {
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..threads).map(|n| scope.spawn(move || run(n))).collect();
            threads
                .into_iter()
                .filter_map(|thread| thread.join().ok())
                .sum()
        })
    };
    (0..10).map(|_| once()).fold(0.0, f64::max)
}

/// Simulated and measured, as ratios to a lock a list.
fn validate(operations: u64) -> Result<(), Box<dyn std::error::Error>> {
    let topology: Arc<dyn Topology> = Arc::new(SysfsTopology::detect());
    println!(
        "{:<22}{:<10}{:>14}{:>14}",
        "against a lock", "", "simulated", "measured here"
    );
    for (name, buckets, keys) in [("list 256", 1, 256), ("hash 128x32", 128, 32)] {
        for threads in [1, 2] {
            let case = Setting {
                buckets,
                keys,
                ..setting(1, threads, 200, 10 * operations)
            };
            let simulated = |mechanism| simulate(mechanism, case).rate;
            let measured = |name: &str| -> Result<f64, Box<dyn std::error::Error>> {
                let number = IN_MEMORY.iter().position(|other| *other == name);
                let set = make(number.ok_or("no such mechanism")?, buckets, 2, &topology)?;
                let all = 2 * (buckets * keys) as u64;
                for key in (1..=all).step_by(2) {
                    set.insert(0, key);
                }
                Ok(measure(&*set, all, threads))
            };
            let (lock, here) = (simulated(Mechanism::Lock), measured("rcu")?);
            for (other, mechanism) in [
                ("rcx", Mechanism::Rcx(TakeLanes::WhenBusy)),
                ("cohort", Mechanism::Cohort),
            ] {
                println!(
                    "{:<22}{other:<10}{:>14.2}{:>14.2}",
                    format!("{name} {threads}t"),
                    simulated(mechanism) / lock,
                    measured(other)? / here
                );
            }
        }
    }
    println!();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let operations = arguments.next().and_then(|word| word.parse().ok());
    let (operations, chosen) = (operations.unwrap_or(400), arguments.next());
    if chosen.is_none() {
        validate(operations)?;
    }
    println!("a simulation: costs in ns, remote in % of local");
    println!("{:?}", setting(1, 1, 200, operations).costs);
    let names = MECHANISMS.map(|(name, _)| format!("{name:>12}"));
    println!("{:<34}{}", "case", names.concat());
    for (name, buckets, keys, updates) in [
        // Two items, which all threads want all the time.
        (HOT, 1, 2, 100),
        ("list 256", 1, 256, 20),
        ("list 256", 1, 256, 40),
        ("hash 128x32", 128, 32, 20),
        ("hash 128x32", 128, 32, 40),
    ] {
        for (nodes, threads, remote) in [
            (1, 1, 200),
            (1, 2, 200),
            (1, 8, 200),
            (2, 16, 200),
            (2, 16, 300),
            (2, 16, 500),
            (4, 32, 200),
            (4, 32, 300),
            (4, 32, 500),
        ] {
            let story = format!("{name} {updates}% {nodes}n {threads}t x{remote}");
            if chosen
                .as_ref()
                .is_some_and(|chosen| !story.contains(chosen))
            {
                continue;
            }
            let case = Setting {
                buckets,
                keys,
                updates,
                ..setting(nodes, threads, remote, operations)
            };
            let cells = MECHANISMS.map(|(_, mechanism)| match mechanism {
                // They abort each other for minutes.
                Mechanism::Htm(_) if name == HOT => format!("{:>12}", "-"),
                Mechanism::Htm(_) => {
                    let outcome = simulate(mechanism, case);
                    format!("{:>7.1}/{:<4.0}", outcome.rate, outcome.aborts)
                }
                _ => format!("{:>12.2}", simulate(mechanism, case).rate),
            });
            println!("{story:<34}{}", cells.concat());
        }
    }
    Ok(())
}
