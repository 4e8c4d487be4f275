//! Processes of ours beside this one, which work on lines that it sends, and end with it.
//!
//! Each is this program again with a hidden subcommand. It reads its standard input, ends at its
//! end, and so never outlives the process that started it, however that ends. What it says to us it
//! says behind a mark: other words may come before.

use crate::error::BenchError;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::ops::RangeInclusive;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Before everything that is said to the process that started this one.
const MARK: &str = "= ";

/// A process of ours; killed when this is dropped.
pub struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::Process(what.to_string())
}

/// This program again.
#[cfg(not(test))]
fn again(words: &[&OsStr]) -> Result<Command, BenchError> {
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words);
    Ok(command)
}

/// The words that a test's process was given.
#[cfg(test)]
const WORDS: &str = "MNEME_BENCH_TEST_WORDS";

/// The test program again, for the one test that acts on the words.
#[cfg(test)]
fn again(words: &[&OsStr]) -> Result<Command, BenchError> {
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["--exact", "processes::tests::another_process"]);
    command.args(["--nocapture", "--test-threads", "1"]);
    command.env(WORDS, words.join(OsStr::new("\n")));
    Ok(command)
}

impl Helper {
    /// Starts this program with these words. It may not have begun yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start(words: &[&OsStr]) -> Result<Self, BenchError> {
        let mut command = again(words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take();
        match child.stdout.take() {
            Some(said) => Ok(Self {
                child,
                input,
                said: BufReader::new(said).lines(),
            }),
            None => Err(failed("its output cannot be read")),
        }
    }

    /// Tells it something, on a line.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, line: &str) -> Result<(), BenchError> {
        match &mut self.input {
            Some(input) => writeln!(input, "{line}").map_err(failed),
            None => Err(failed("it was asked to end")),
        }
    }

    /// Waits for what it says next, as `read` understands it.
    ///
    /// # Errors
    /// It has ended, and said on standard error why; or said something else.
    pub fn answer<T>(&mut self, read: impl FnOnce(&str) -> Option<T>) -> Result<T, BenchError> {
        for line in &mut self.said {
            let line = line.map_err(failed)?;
            if let Some((_, answer)) = line.split_once(MARK) {
                return read(answer).ok_or_else(|| failed(format!("it said `{answer}`")));
            }
        }
        Err(failed("it ended"))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it at whatever it is doing, and waits until it is gone.
    fn kill(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end in an orderly way, as an operator would, and waits until it has.
    ///
    /// # Errors
    /// It cannot be asked, does not end for long, or says that it failed.
    pub fn terminate(&mut self) -> Result<(), BenchError> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        if !sent.map_err(failed)?.success() {
            return Err(failed("no signal can be sent to it"));
        }
        until_ended(&mut self.child)
    }
}

/// Whether a program is on the PATH.
pub fn is_on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Keeps a process and its threads on the first CPU.
///
/// # Errors
/// As [`keep_on`].
pub fn keep_on_first_cpu(id: u32) -> Result<(), BenchError> {
    keep_on(id, 0..=0)
}

/// Keeps a process and its threads on these CPUs.
///
/// # Errors
/// The system's program for that is missing, or refuses.
pub fn keep_on(id: u32, cpus: RangeInclusive<usize>) -> Result<(), BenchError> {
    let cpus = format!("{}-{}", cpus.start(), cpus.end());
    taskset(&["-a", "-c", "-p", &cpus, &id.to_string()])
}

/// Keeps the calling thread on this CPU, whatever its process' others do.
///
/// # Errors
/// As [`keep_on`].
pub fn keep_this_thread_on(cpu: usize) -> Result<(), BenchError> {
    let this = std::fs::read_link("/proc/thread-self").map_err(failed)?;
    let this = this.file_name().unwrap_or_default().to_string_lossy();
    taskset(&["-c", "-p", &cpu.to_string(), &this])
}

fn taskset(words: &[&str]) -> Result<(), BenchError> {
    let mut command = Command::new("taskset");
    command.args(words);
    let output = command.output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Waits until a process has ended as it should.
///
/// # Errors
/// It does not end for long, or says that it failed.
pub fn until_ended(child: &mut Child) -> Result<(), BenchError> {
    const TIMEOUT: Duration = Duration::from_secs(60);
    let begin = Instant::now();
    loop {
        match child.try_wait().map_err(failed)? {
            Some(ended) if ended.success() => return Ok(()),
            Some(ended) => return Err(failed(ended)),
            None if begin.elapsed() > TIMEOUT => return Err(failed("it does not end")),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.input = None;
        self.kill();
    }
}

/// Says something to the process that started this one.
///
/// # Errors
/// Nobody listens any more.
pub fn say(what: &str) -> Result<(), BenchError> {
    let mut out = std::io::stdout();
    writeln!(out, "{MARK}{what}").map_err(failed)?;
    out.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::Parser;

    /// No test by itself: what [`again`] runs, and nothing unless it does.
    #[test]
    fn another_process() {
        let Some(words) = std::env::var_os(WORDS) else {
            return;
        };
        let words = words.into_string().unwrap();
        let options = Options::parse_from(["mneme-bench"].into_iter().chain(words.lines()));
        crate::run(&options.workload).unwrap();
    }

    #[test]
    fn one_that_cannot_work_ends_and_is_an_error() {
        let mut helper =
            Helper::start(&["reside", "/dev/null/nowhere", "space"].map(OsStr::new)).unwrap();
        let error = helper.answer(|_| Some(())).unwrap_err();
        assert!(error.to_string().contains("it ended"), "{error}");
    }
}
