//! The number of instructions of a put, with and without a listener of the changes, and the number
//! of changes that a listener that drains every ten milliseconds loses. For the former run
//! `put_cost 20000 alone` and `put_cost 60000 alone` (or `listened`) under `valgrind
//! --tool=callgrind`, and divide the difference; `put_cost 3000000 drained` prints how many changes
//! were lost beside a writer at full speed. Valgrind does not support the `clone` that the search
//! for a barrier between processes uses: preload a `syscall` that refuses it.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mneme_log::{LogStore, Notification, control_bytes};
use mneme_sys::{Access, PagePolicy, Region, ScriptedLiveness};

const KEYS: u64 = 10_000;
const CAPACITY: usize = 256 << 20;

#[inline(never)]
fn measured(store: &LogStore, from: u64, puts: u64) {
    for i in from..from + puts {
        store.put(&(i % KEYS).to_be_bytes(), &[7; 100]).unwrap();
    }
}

/// A store, and another opening of it, as by another process.
fn two() -> (LogStore, LogStore) {
    let control = control_bytes().next_multiple_of(2 << 20);
    let [data, control] = [("data", CAPACITY), ("control", control)]
        .map(|(name, len)| Region::memfd(name, len, len, PagePolicy::Small).unwrap());
    let map = |region: &Region| {
        let fd = region.duplicate_fd().unwrap().unwrap();
        Region::map(fd, Access::ReadWrite, region.max(), PagePolicy::Small).unwrap()
    };
    let script = ScriptedLiveness::new();
    let builder = LogStore::builder().maintainer(false);
    let live = |pid| Arc::new(script.process(pid));
    let one = (builder.clone())
        .create_in(map(&data), map(&control), live(1))
        .unwrap();
    let other = builder.open_in(data, control, live(2)).unwrap();
    (one, other)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let puts = args.next().map_or(100_000, |n| n.parse().unwrap());
    let how = args.next().unwrap_or_else(|| "alone".to_owned());
    let (one, other) = two();
    (0..KEYS).for_each(|i| one.put(&i.to_be_bytes(), &[7; 100]).unwrap());
    if how == "alone" {
        return measured(&one, 0, puts);
    }
    let mut listener = other.listen().unwrap();
    if how == "listened" {
        // As many as the ring holds, again and again.
        for some in 0..puts / 4_000 {
            listener.drain(usize::MAX, |_| {}).unwrap();
            measured(&one, some * 4_000, 4_000);
        }
        return;
    }
    let done = AtomicBool::new(false);
    let (mut received, mut losses) = (0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            measured(&one, 0, puts);
            let took = began.elapsed().as_nanos() as f64 / puts as f64;
            println!("{took:.0} ns a put");
            done.store(true, Relaxed);
        });
        while !done.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
            let count = |report: Notification<'_>| match report {
                Notification::Lost => losses += 1,
                Notification::Change(_) => received += 1,
            };
            listener.drain(usize::MAX, count).unwrap();
        }
    });
    println!("{puts} puts: {received} changes received, {losses} losses reported");
}
