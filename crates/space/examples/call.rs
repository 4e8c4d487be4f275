//! Measures a call into a space: a resident in another process, with requests of 8 bytes and of 4
//! KiB.
//!
//! Run it with `cargo run --release -p mneme-space --example call`; put `taskset -c 0` before the
//! program to use one CPU.
#![allow(clippy::unwrap_used, reason = "a failure is to be seen")]

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use mneme_space::{CallError, Functions, Registry, Space};

const RESIDENT: &str = "MNEME_EXAMPLE_RESIDENT";
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    if let Some(root) = std::env::var_os(RESIDENT) {
        let space = Space::open(&Registry::open(root).unwrap(), "w").unwrap();
        let echo = Functions::new().reading("echo", |_, request, reply| reply.extend(request));
        space
            .reside(echo)
            .unwrap()
            .serve(&AtomicBool::new(false))
            .unwrap();
        return;
    }
    let root = format!("/dev/shm/mneme-example-call-{}", std::process::id());
    let registry = Registry::open(&root).unwrap();
    let space = registry.space("w").create().unwrap();
    let segment = registry.segment("s").create().unwrap();
    space.add(&segment, mneme_sys::Access::ReadWrite).unwrap();
    let mut resident = Command::new(std::env::current_exe().unwrap())
        .env(RESIDENT, &root)
        .spawn()
        .unwrap();
    while matches!(space.call("echo", b"", TIMEOUT), Err(CallError::NoResident)) {}

    let cpus = std::thread::available_parallelism().unwrap();
    let calls = space.calls().unwrap();
    let mut caller = calls.caller().unwrap();
    let mut reply = Vec::new();
    for len in [8, 4096] {
        let request = vec![7; len];
        let mut best = f64::MAX;
        for _ in 0..5 {
            let rounds = 20_000;
            let began = Instant::now();
            for _ in 0..rounds {
                caller
                    .call_into("echo", &request, &mut reply, TIMEOUT)
                    .unwrap();
            }
            best = best.min(began.elapsed().as_nanos() as f64 / f64::from(rounds));
        }
        println!("{cpus} CPU(s), {len} bytes there and back: {best:.0} ns a call");
    }
    drop(caller);
    drop(calls);
    resident.kill().unwrap();
    resident.wait().unwrap();
    space.remove().unwrap();
    segment.remove().unwrap();
    std::fs::remove_dir_all(root).unwrap();
}
