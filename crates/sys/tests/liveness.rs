//! The tests that every implementation of liveness must pass. The kernel's locks are tested with
//! real processes.
//!
//! The processes of the OFD variant are children running this same program: [`child_process`]
//! reads one command a line and answers one line. `kill -9` is the only way they die.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)] // clippy spares `#[test]` functions, not what they call

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mneme_sys::{
    FRAME, Liveness, LivenessError, OfdLiveness, PagePolicy, Region, ScriptedLiveness,
    ScriptedProcess,
};

/// A process of the suite: what it does, and how it ends.
trait Process {
    /// "ok", "held", or another error in words.
    fn claim(&mut self, index: u32) -> String;
    fn is_alive(&mut self, index: u32) -> bool;
    /// "taken" (and kept until `release`), "none", or an error in words.
    fn take(&mut self, index: u32) -> String;
    fn release(&mut self, index: u32);
    fn kill(&mut self);
}

/// What the crates above rely on, for every implementation. `start` makes a new process.
fn conforms(mut start: impl FnMut() -> Box<dyn Process>) {
    let (mut one, mut two) = (start(), start());
    assert!(!two.is_alive(0), "nobody has claimed");
    assert_eq!(one.claim(0), "ok");
    assert!(one.is_alive(0) && two.is_alive(0));
    assert_eq!(one.claim(0), "held", "by itself");
    assert_eq!(two.claim(0), "held", "by another");
    assert_eq!(
        one.take(0),
        "none",
        "the living are not taken over, not by themselves"
    );
    assert_eq!(two.take(0), "none");
    assert_eq!(two.claim(1), "ok", "indices are independent");
    two.release(0);
    assert!(two.is_alive(0), "nobody releases what another holds");

    one.kill();
    assert!(!two.is_alive(0));
    assert_eq!(two.take(0), "taken");
    assert!(two.is_alive(0));
    let mut three = start();
    assert_eq!(three.take(0), "none", "one heir at a time");
    assert_eq!(three.claim(0), "held");
    two.kill();
    assert_eq!(three.take(0), "taken", "the heir died too");
    assert_eq!(three.take(1), "taken", "and what it held itself is free");
    three.release(0);
    let mut four = start();
    assert_eq!(four.claim(0), "ok");
    assert!(three.is_alive(0) && three.is_alive(1));
    assert_eq!(four.claim(u32::MAX), "ok");
    four.release(u32::MAX);
    assert!(!three.is_alive(u32::MAX));
}

fn words(result: Result<(), LivenessError>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(LivenessError::Held { .. }) => "held".to_owned(),
        Err(e) => format!("{e:?}"),
    }
}

fn take(liveness: &dyn Liveness, index: u32) -> String {
    match liveness.try_take(index) {
        Ok(Some(taken)) => {
            assert_eq!(taken.index(), index);
            taken.keep();
            "taken".to_owned()
        }
        Ok(None) => "none".to_owned(),
        Err(e) => format!("{e:?}"),
    }
}

struct Scripted(ScriptedLiveness, ScriptedProcess);

impl Process for Scripted {
    fn claim(&mut self, index: u32) -> String {
        words(self.1.claim(index))
    }
    fn is_alive(&mut self, index: u32) -> bool {
        self.1.is_alive(index)
    }
    fn take(&mut self, index: u32) -> String {
        take(&self.1, index)
    }
    fn release(&mut self, index: u32) {
        self.1.release(index);
    }
    fn kill(&mut self) {
        self.0.kill(self.1.number());
    }
}

#[test]
fn scripted_liveness_conforms() {
    let script = ScriptedLiveness::new();
    let mut number = 0;
    conforms(|| {
        number += 1;
        Box::new(Scripted(script.clone(), script.process(number)))
    });
}

#[test]
fn the_scripted_dead_do_nothing_more() {
    let script = ScriptedLiveness::new();
    let dead = script.process(1);
    dead.claim(3).unwrap();
    script.kill(1);
    assert!(matches!(dead.claim(4), Err(LivenessError::Dead)));
    assert!(matches!(dead.try_take(4), Err(LivenessError::Dead)));
    let heir = script.process(2);
    heir.claim(3).unwrap();
    dead.release(3);
    assert!(heir.is_alive(3), "a late release by the dead frees nothing");
}

/// A lock file of the test, removed at the end.
struct LockFile(PathBuf);

impl LockFile {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("liveness-{name}-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        Self(path)
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const BASE: u64 = 4096;

/// A child that runs [`child_process`].
struct Real {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Real {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_process", "--nocapture"])
            .env("MNEME_TEST_LOCK_FILE", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    fn ask(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}").unwrap();
        let mut line = String::new();
        // The test harness prints lines of its own, the first answer may follow one of them.
        loop {
            line.clear();
            assert_ne!(
                self.output.read_line(&mut line).unwrap(),
                0,
                "the child is gone"
            );
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim().to_owned();
            }
        }
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process for Real {
    fn claim(&mut self, index: u32) -> String {
        self.ask(&format!("claim 0 {index}"))
    }
    fn is_alive(&mut self, index: u32) -> bool {
        self.ask(&format!("alive 0 {index}")) == "true"
    }
    fn take(&mut self, index: u32) -> String {
        self.ask(&format!("take 0 {index}"))
    }
    fn release(&mut self, index: u32) {
        self.ask(&format!("release 0 {index}"));
    }
    fn kill(&mut self) {
        // SIGKILL; the kernel has dropped the locks before the child can be waited for.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// The children's program. Not a test of its own.
#[test]
fn child_process() {
    let Some(path) = std::env::var_os("MNEME_TEST_LOCK_FILE") else {
        return;
    };
    let path = Path::new(&path);
    let mut openings = BTreeMap::from([(0, OfdLiveness::open(path, BASE).unwrap())]);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut parts = line.split(' ');
        let command = parts.next().unwrap();
        let mut number = || parts.next().map_or(0, |n| n.parse::<u32>().unwrap());
        let (opening, index) = (number(), number());
        let answer = match command {
            "open" => {
                openings.insert(opening, OfdLiveness::open(path, BASE).unwrap());
                "ok".to_owned()
            }
            "close" => {
                openings.remove(&opening);
                "ok".to_owned()
            }
            "claim" => words(openings[&opening].claim(index)),
            "alive" => openings[&opening].is_alive(index).to_string(),
            "take" => take(&openings[&opening], index),
            "release" => {
                openings[&opening].release(index);
                "ok".to_owned()
            }
            // Opens, maps, closes and unmaps the file by other means.
            "disturb" => {
                disturb(path);
                "ok".to_owned()
            }
            "fork" => fork_and_ask(&openings[&opening], path, index),
            "spawn" => spawn_a_sleeper().to_string(),
            _ => panic!("{line}"),
        };
        println!("answer: {answer}");
    }
}

fn disturb(path: &Path) {
    use std::os::fd::AsRawFd;
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let copy = file.try_clone().unwrap();
    file.set_len(4096).unwrap();
    // SAFETY: a new mapping of our own, unmapped again untouched.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(map, libc::MAP_FAILED);
        drop(file);
        drop(copy);
        libc::munmap(map, 4096);
    }
}

/// Forks a child that lives on; answers with its process id and what it found: whether it was
/// answered `Forked`, whether it takes the index's holder for alive, and whether an opening of its
/// own works.
fn fork_and_ask(liveness: &OfdLiveness, path: &Path, index: u32) -> String {
    let mut pipe = [0; 2];
    // SAFETY: the forked child has one thread, and this process' only other thread waits for the
    // test to end; glibc makes its allocator usable in the child. It never returns.
    unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let forked = matches!(liveness.claim(index), Err(LivenessError::Forked))
                && matches!(liveness.try_take(index), Err(LivenessError::Forked));
            let alive = liveness.is_alive(index);
            liveness.release(index);
            let own = OfdLiveness::open(path, BASE);
            let sees = own.is_ok_and(|own| own.is_alive(index) && !own.is_alive(index + 1000));
            let found = [u8::from(forked), u8::from(alive), u8::from(sees)];
            libc::write(pipe[1], found.as_ptr().cast(), 3);
            // Lives until it is killed, without the pipes by which the parent talks.
            libc::close(0);
            libc::close(1);
            libc::close(2);
            loop {
                libc::pause();
            }
        }
        let mut found = [0u8; 3];
        assert_eq!(libc::read(pipe[0], found.as_mut_ptr().cast(), 3), 3);
        libc::close(pipe[0]);
        libc::close(pipe[1]);
        format!("{child} {found:?}")
    }
}

fn spawn_a_sleeper() -> u32 {
    Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
        .id()
}

/// Kills a process that outlived its parent.
struct Orphan(libc::pid_t);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: signals a process that this test has started.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn ofd_liveness_conforms_over_real_processes() {
    let file = LockFile::new("conforms");
    conforms(|| Box::new(Real::start(&file.0)));
}

#[test]
fn trap_1_a_forked_child_neither_keeps_its_parent_alive_nor_counts_as_it() {
    let file = LockFile::new("fork");
    let (mut parent, mut other) = (Real::start(&file.0), Real::start(&file.0));
    assert_eq!(parent.claim(5), "ok");
    let answer = parent.ask("fork 0 5");
    let (pid, found) = answer.split_once(' ').unwrap();
    let orphan = Orphan(pid.parse().unwrap());
    assert_eq!(
        found, "[1, 1, 1]",
        "refused; the parent lives; its own opening works"
    );
    assert!(
        parent.is_alive(5) && other.is_alive(5),
        "the child's release was none"
    );
    parent.kill();
    assert!(!other.is_alive(5), "though the child lives");
    assert_eq!(other.take(5), "taken");
    // SAFETY: signal 0 only asks.
    assert_eq!(unsafe { libc::kill(orphan.0, 0) }, 0);
}

#[test]
fn trap_1_a_program_that_was_started_keeps_nothing() {
    let file = LockFile::new("exec");
    let (mut parent, mut other) = (Real::start(&file.0), Real::start(&file.0));
    assert_eq!(parent.claim(0), "ok");
    let orphan = Orphan(parent.ask("spawn").parse().unwrap());
    parent.kill();
    assert!(!other.is_alive(0));
    // SAFETY: signal 0 only asks.
    assert_eq!(unsafe { libc::kill(orphan.0, 0) }, 0);
}

#[test]
fn trap_2_closing_other_descriptors_of_the_file_drops_nothing() {
    let file = LockFile::new("close");
    let (mut one, mut two) = (Real::start(&file.0), Real::start(&file.0));
    assert_eq!(one.claim(0), "ok");
    one.ask("disturb");
    assert!(two.is_alive(0));
    assert_eq!(two.take(0), "none");
    // Another opening in the same process comes and goes.
    one.ask("open 1");
    one.ask("close 1");
    assert!(two.is_alive(0));
    one.ask("close 0");
    assert!(!two.is_alive(0), "its own closing is the end");
}

#[test]
fn trap_3_two_openings_in_one_process_exclude_one_another() {
    let file = LockFile::new("twice");
    let mut one = Real::start(&file.0);
    one.ask("open 1");
    assert_eq!(one.ask("claim 0 7"), "ok");
    assert_eq!(one.ask("claim 1 7"), "held");
    assert_eq!(one.ask("take 1 7"), "none");
    assert_eq!(one.ask("alive 1 7"), "true");
    one.ask("release 1 7");
    assert_eq!(one.ask("alive 1 7"), "true");
    one.ask("close 0");
    assert_eq!(one.ask("alive 1 7"), "false");
    assert_eq!(one.ask("take 1 7"), "taken");
}

#[test]
fn trap_3_only_one_of_many_threads_gets_the_index() {
    let file = LockFile::new("threads");
    let liveness = Arc::new(OfdLiveness::open(&file.0, BASE).unwrap());
    for index in 0..50 {
        let winners = AtomicU32::new(0);
        let start = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    if let Some(taken) = liveness.try_take(index).unwrap() {
                        winners.fetch_add(1, Ordering::Relaxed);
                        taken.keep();
                    }
                });
            }
        });
        assert_eq!(winners.into_inner(), 1);
        assert!(liveness.is_alive(index));
    }
}

#[test]
fn a_taken_index_is_released_when_dropped() {
    let file = LockFile::new("drop");
    let liveness = OfdLiveness::open(&file.0, BASE).unwrap();
    let taken = liveness.try_take(3).unwrap().unwrap();
    assert!(liveness.is_alive(3));
    assert!(liveness.try_take(3).unwrap().is_none());
    drop(taken);
    assert!(!liveness.is_alive(3));
}

#[test]
fn trap_4_a_file_that_may_not_be_written_is_refused_at_once() {
    // Kernel settings that are for reading refuse even root.
    let read_only = Path::new("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let refused = OfdLiveness::open(read_only, 0);
    assert!(
        matches!(refused, Err(LivenessError::NotWritable(_))),
        "{refused:?}"
    );
    let missing = OfdLiveness::open(Path::new("/nonexistent/control"), 0);
    assert!(matches!(missing, Err(LivenessError::Os { .. })));
}

#[test]
fn a_memfd_is_reopened_with_a_description_of_its_own() {
    use std::os::fd::AsFd;
    let region = Region::memfd("mneme-test-live", FRAME, FRAME, PagePolicy::Small).unwrap();
    let fd = region.duplicate_fd().unwrap().unwrap();
    let one = OfdLiveness::reopen(fd.as_fd(), 100).unwrap();
    let two = OfdLiveness::reopen(fd.as_fd(), 100).unwrap();
    drop(fd);
    one.claim(0).unwrap();
    assert!(two.is_alive(0));
    assert!(matches!(
        two.claim(0),
        Err(LivenessError::Held { index: 0 })
    ));
    // Another base is another set of locks.
    let fd = region.duplicate_fd().unwrap().unwrap();
    let elsewhere = OfdLiveness::reopen(fd.as_fd(), 200).unwrap();
    assert!(!elsewhere.is_alive(0));
    // The mapping does not keep the lock.
    drop(one);
    assert!(!two.is_alive(0));
}

#[test]
fn openings_come_and_go_while_the_process_forks() {
    let file = LockFile::new("storm");
    let observer = OfdLiveness::open(&file.0, BASE).unwrap();
    std::thread::scope(|scope| {
        for index in 0..2 {
            let file = &file;
            scope.spawn(move || {
                for _ in 0..200 {
                    let liveness = OfdLiveness::open(&file.0, BASE).unwrap();
                    liveness.claim(index).unwrap();
                }
            });
        }
        // Children that live for a while, each made at some moment of an opening or a closing.
        let children: Vec<_> = (0..50)
            .map(|_| {
                // SAFETY: the child only waits for its end.
                let child = unsafe { libc::fork() };
                assert!(child >= 0);
                if child == 0 {
                    loop {
                        // SAFETY: as above.
                        unsafe { libc::pause() };
                    }
                }
                Orphan(child)
            })
            .collect();
        // Whatever they inherited, they hold none of the locks: the threads' claims succeed.
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            for child in children {
                let pid = child.0;
                drop(child);
                // SAFETY: our own child.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
            }
        });
    });
    assert!(!observer.is_alive(0) && !observer.is_alive(1));
}

#[test]
fn one_query_for_many_indices_equals_a_query_for_each() {
    fn agree(one: &dyn Liveness, two: &dyn Liveness) {
        for held in [0, 1, 7, 255] {
            one.claim(held).unwrap();
            for (first, last) in [(0, 0), (0, 6), (1, 7), (2, 6), (7, 7), (8, 300), (256, 300)] {
                let expected = (first..=last).any(|index| two.is_alive(index));
                assert_eq!(
                    two.any_alive(first..=last),
                    expected,
                    "{held}: {first}..={last}"
                );
                assert_eq!(one.any_alive(first..=last), expected, "by itself");
            }
            let nothing = std::ops::RangeInclusive::new(1, 0);
            assert!(!two.any_alive(nothing));
            one.release(held);
        }
        assert!(!two.any_alive(0..=1000));
    }
    let path = std::env::temp_dir().join(format!("mneme-any-alive-{}", std::process::id()));
    std::fs::write(&path, "").unwrap();
    let open = || OfdLiveness::open(&path, 64).unwrap();
    agree(&open(), &open());
    std::fs::remove_file(&path).unwrap();
    let script = ScriptedLiveness::new();
    agree(&script.process(1), &script.process(2));
}
