//! A reader in another process and a reclaimer here act within nanoseconds of each other.

use super::{Advance, Cold, UUID, advance_without_barrier, limit, seconds, store};
use crate::{ControlOptions, Participants};
use mneme_sys::{Access, Clock, OfdLiveness, PagePolicy, Region, SystemClock};
use mneme_testkit::Random;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

const MAX: usize = 1 << 26;

fn wait_until(due: u64) {
    while SystemClock.now_ns() < due {
        std::hint::spin_loop();
    }
}

/// After this long without an answer the other process is considered lost.
const LOST: Duration = Duration::from_secs(60);

/// Spins until a thread acts that is about to, if both have a CPU.
fn wait_for(word: &AtomicU64, mut is: impl FnMut(u64) -> bool) -> u64 {
    let begin = Instant::now();
    loop {
        for _ in 0..1 << 14 {
            let value = word.load(Acquire);
            if is(value) {
                return value;
            }
        }
        std::thread::yield_now();
        assert!(begin.elapsed() < LOST, "the other process does not answer");
    }
}

/// Waits until the other process really runs, on another CPU; `false` if it does not by `end`.
fn meet(beat: &AtomicU64, end: Instant) -> bool {
    while Instant::now() < end {
        let last = beat.load(Relaxed);
        if (0..500).any(|_| beat.load(Relaxed) != last) {
            return true;
        }
        // On a busy machine it often does not run. Sleeping lets the kernel move one of the two.
        std::thread::sleep(Duration::from_micros(300));
    }
    false
}

fn words<const N: usize>(region: &Region) -> &[[AtomicU64; 16]] {
    region.slice_at::<[AtomicU64; 16]>(0, N).unwrap()
}

// The lines of the rendezvous.
const GO: usize = 0;
const LINK: usize = 1;
const LOOKED: usize = 2;
const DONE: usize = 3;
const SEEN: usize = 4;
const READY: usize = 5;
const BEAT: usize = 6;
const LINES: usize = 7;

#[derive(Debug, Default)]
struct Rendezvous {
    rounds: u64,
    /// The number of rounds in which the reader saw the old link: only these are significant.
    old: u64,
    unseen: u64,
}

fn open(path: &str) -> OwnedFd {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
        .into()
}

fn own_fd_path(fd: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

/// Kills the reader's process when it is dropped.
struct Reader(Child);

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of rounds with the old link after which a twin should have been caught.
const CHANCES: u64 = 100;

fn rendezvous(advance: Advance, usual: Duration, enough: u64) -> Rendezvous {
    let options = ControlOptions {
        undo_bytes: 0,
        ..ControlOptions::new(UUID)
    };
    let control = Region::memfd("litmus", options.region_len(), MAX, PagePolicy::Small).unwrap();
    let data = Region::memfd("litmus", LINES * 128, MAX, PagePolicy::Small).unwrap();
    let (control_fd, data_fd) = (
        control.duplicate_fd().unwrap().unwrap(),
        data.duplicate_fd().unwrap().unwrap(),
    );
    let control_path = own_fd_path(&control_fd);
    let liveness = OfdLiveness::open(Path::new(&control_path), 0).unwrap();
    let p = Participants::create(control, options, Arc::new(liveness)).unwrap();
    let reader = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "litmus::rendezvous::reader", "--nocapture"])
        .env("MNEME_LITMUS_CONTROL", control_path)
        .env("MNEME_LITMUS_DATA", own_fd_path(&data_fd))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut reader = Reader(reader);
    let lines = words::<LINES>(&data);
    let word = |line: usize| &lines[line][0];
    while word(READY).load(Acquire) == 0 {
        assert!(
            reader.0.try_wait().unwrap().is_none(),
            "the reader could not start"
        );
        std::thread::yield_now();
    }
    let mut random = Random::of_run(1);
    let mut found = Rendezvous::default();
    // How long after the reader's start to unlink, in ns. Feedback adjusts it so that the reader
    // sees the old link in about half of the rounds.
    let mut lead = 800_i64;
    let begin = Instant::now();
    let is_twin = enough < u64::MAX;
    let end = |old| begin + limit(usual, is_twin, old >= CHANCES);
    while found.unseen < enough && meet(word(BEAT), end(found.old)) {
        found.rounds += 1;
        let due = SystemClock.now_ns() + 1_000;
        word(GO).store(due, Release);
        let jitter = (random.next() % 64) as i64 - 32;
        wait_until(due.saturating_add_signed(lead + jitter));
        word(LINK).store(due, Release);
        let g = advance(&p);
        let over = p.quiescent(g);
        word(LOOKED).store(due, Release);
        wait_for(word(DONE), |done| done == due);
        if word(SEEN).load(Acquire) < due {
            found.old += 1;
            found.unseen += u64::from(over);
            lead -= 4;
        } else {
            lead += 4;
        }
        lead = lead.clamp(-1_000, 3_000);
    }
    word(GO).store(u64::MAX, Release);
    reader.0.wait().unwrap();
    found
}

/// The reader's process; a test that does nothing unless it was started as such.
#[test]
fn reader() {
    let (Ok(control), Ok(data)) = (
        std::env::var("MNEME_LITMUS_CONTROL"),
        std::env::var("MNEME_LITMUS_DATA"),
    ) else {
        return;
    };
    let region = |path| Region::map(open(path), Access::ReadWrite, MAX, PagePolicy::Small).unwrap();
    let liveness = OfdLiveness::open(Path::new(&control), 0).unwrap();
    let p = Participants::open(region(&control), UUID, Arc::new(liveness)).unwrap();
    let data = region(&data);
    let lines = words::<LINES>(&data);
    let word = |line: usize| &lines[line][0];
    let cold = Cold::new();
    let mut random = Random::of_run(2);
    drop(p.pin().unwrap());
    word(READY).store(1, Release);
    let mut last = 0;
    loop {
        let places = cold.choose(&mut random);
        let mut beat = word(BEAT).load(Relaxed);
        let due = wait_for(word(GO), |due| {
            beat += 1;
            word(BEAT).store(beat, Relaxed);
            due != last
        });
        if due == u64::MAX {
            return;
        }
        last = due;
        // The old link is in this CPU's cache, so its load does not wait.
        word(LINK).load(Acquire);
        wait_until(due + random.next() % 64);
        store(&places);
        let pin = p.pin().unwrap();
        let seen = word(LINK).load(Acquire);
        wait_for(word(LOOKED), |looked| looked == due);
        drop(pin);
        word(SEEN).store(seen, Relaxed);
        word(DONE).store(due, Release);
    }
}

#[test]
fn every_pin_of_another_process_is_seen() {
    let found = rendezvous(|p| p.advance().unwrap(), seconds(), u64::MAX);
    println!("\nladder: pins of another process, with the barrier: {found:?}");
    assert_eq!(found.unseen, 0, "{found:?}");
}

/// The twin: if the two processes really run at once, most rounds in which the reader sees the old
/// link show the fault. On a machine so busy that they hardly ever do, the test shows nothing.
#[test]
fn without_the_barrier_a_pin_of_another_process_is_missed() {
    let found = rendezvous(advance_without_barrier, Duration::from_secs(20), 1);
    println!("\nladder: pins of another process, without the barrier: {found:?}");
    assert!(
        found.unseen > 0 || found.old < CHANCES,
        "the twin was not caught: {found:?}"
    );
}
