//! Processes of ours beside this one, which work on lines that it sends, and end with it.
//!
//! Each is this program again with a hidden subcommand. It reads its standard input, ends at its
//! end, and so never outlives the process that started it, however that ends. Both sides say JSON,
//! a line each. What it says to us it says behind a mark: other words may come before.

use crate::error::{BenchError, process_failed as failed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Before everything that is said to the process that started this one.
const MARK: &str = "= ";

/// A process of ours; killed when this is dropped.
pub struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
}

/// The words of a command, of any kind that a path may be.
pub type Words<'a> = &'a [&'a dyn AsRef<OsStr>];

/// The words that a test's process was given.
const WORDS: &str = "MNEME_BENCH_TEST_WORDS";

/// The test that acts on the words, where this program is a test program.
static ACTING_TEST: OnceLock<&str> = OnceLock::new();

/// Makes processes of this test program run `test` alone, which acts on [`words_of_test`]. A test
/// program cannot act on words by itself.
pub fn act_in_test(test: &'static str) {
    ACTING_TEST.get_or_init(|| test);
}

/// The words that this process was started with, if a test started it.
pub fn words_of_test() -> Option<Vec<String>> {
    let words = std::env::var(WORDS).ok()?;
    Some(words.lines().map(str::to_owned).collect())
}

/// This program, or the one that is given, again.
fn again(program: &Path, words: Words<'_>) -> Command {
    let mut command = Command::new(program);
    match ACTING_TEST.get() {
        None => command.args(words),
        Some(test) => {
            let words: Vec<_> = words.iter().map(AsRef::as_ref).collect();
            command.env(WORDS, words.join(OsStr::new("\n")));
            command.args(["--exact", test, "--nocapture", "--test-threads", "1"])
        }
    };
    command
}

impl Helper {
    /// Starts this program with these words. It may not have begun yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start(words: Words<'_>) -> Result<Self, BenchError> {
        Self::start_as(&std::env::current_exe().map_err(failed)?, words)
    }

    /// Starts it as another program that was built of the same sources.
    ///
    /// # Errors
    /// [`BenchError::Process`].
    pub fn start_as(program: &Path, words: Words<'_>) -> Result<Self, BenchError> {
        let mut command = again(program, words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let input = child.stdin.take();
        let said = child.stdout.take();
        let said = said.ok_or_else(|| failed("its output cannot be read"))?;
        Ok(Self {
            child,
            input,
            said: BufReader::new(said).lines(),
        })
    }

    /// Tells it something.
    ///
    /// # Errors
    /// It has ended.
    pub fn tell(&mut self, what: &impl Serialize) -> Result<(), BenchError> {
        match &mut self.input {
            Some(input) => said_to(input, "", what),
            None => Err(failed("it was asked to end")),
        }
    }

    /// Waits for what it says next.
    ///
    /// # Errors
    /// What it says has gone wrong; or it has ended, and said on standard error why.
    pub fn answer<T: DeserializeOwned>(&mut self) -> Result<T, BenchError> {
        for line in &mut self.said {
            let line = line.map_err(failed)?;
            if let Some((_, answer)) = line.split_once(MARK) {
                let outcome: Result<T, String> = serde_json::from_str(answer).map_err(failed)?;
                return outcome.map_err(failed);
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

/// Where a program is on the PATH.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(program));
    places.find(|place| place.is_file())
}

/// Whether a program is on the PATH.
pub fn is_on_path(program: &str) -> bool {
    on_path(program).is_some()
}

/// Keeps a process and its threads on the first CPUs, so many.
///
/// # Errors
/// The system's program for that is missing, or refuses.
pub fn keep_on_first(cpus: usize, id: u32) -> Result<(), BenchError> {
    taskset(&[
        "-a",
        "-c",
        "-p",
        &format!("0-{}", cpus - 1),
        &id.to_string(),
    ])
}

/// Keeps the calling thread on this CPU, whatever its process' others do.
///
/// # Errors
/// As [`keep_on_first`].
pub fn keep_this_thread_on(cpu: usize) -> Result<(), BenchError> {
    let this = std::fs::read_link("/proc/thread-self").map_err(failed)?;
    let this = this.file_name().unwrap_or_default().to_string_lossy();
    taskset(&["-c", "-p", &cpu.to_string(), &this])
}

fn taskset(words: &[&str]) -> Result<(), BenchError> {
    let output = Command::new("taskset").args(words).output();
    let output = output.map_err(failed)?;
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
    let ended = until(TIMEOUT, || {
        let ended = child.try_wait().map_err(failed)?;
        ended.ok_or_else(|| failed("it does not end"))
    })?;
    match ended.success() {
        true => Ok(()),
        false => Err(failed(ended)),
    }
}

/// Asks again and again until there is an answer, for so long at most.
///
/// # Errors
/// Why there was none the last time.
pub fn until<T>(
    limit: Duration,
    mut ask: impl FnMut() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    const PAUSE: Duration = Duration::from_micros(200);
    let begin = Instant::now();
    loop {
        match ask() {
            Err(_) if begin.elapsed() < limit => std::thread::sleep(PAUSE),
            answer => return answer,
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.input = None;
        self.kill();
    }
}

/// Says to the process that started this one what came of what it asked for.
///
/// # Errors
/// Nobody listens any more.
pub fn say(outcome: Result<impl Serialize, BenchError>) -> Result<(), BenchError> {
    let outcome = outcome.map_err(|error| error.to_string());
    said_to(&mut std::io::stdout(), MARK, &outcome)
}

fn said_to(to: &mut impl Write, mark: &str, what: &impl Serialize) -> Result<(), BenchError> {
    let what = serde_json::to_string(what).map_err(failed)?;
    writeln!(to, "{mark}{what}").map_err(failed)?;
    to.flush().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use clap::Parser;

    const ACTING: &str = "processes::tests::another_process";

    /// No test by itself: what [`again`] runs, and nothing unless it does.
    #[test]
    fn another_process() {
        if let Some(words) = words_of_test() {
            let options = Options::parse_from(["mneme-bench".to_owned()].into_iter().chain(words));
            crate::run(&options).unwrap();
        }
    }

    #[test]
    fn one_that_cannot_work_ends_and_is_an_error() {
        act_in_test(ACTING);
        let registry = "--registry=/dev/null/nowhere";
        let words: Words<'_> = &[&"served", &"socket", &registry, &"--segment=s"];
        let mut helper = Helper::start(words).unwrap();
        let error = helper.answer::<()>().unwrap_err();
        assert!(error.to_string().contains("it ended"), "{error}");
    }

    #[test]
    fn one_that_says_what_went_wrong_is_an_error_with_these_words() {
        act_in_test(ACTING);
        let mut helper = Helper::start(&[&"footprint", &"nobody", &"1000", &"100"]).unwrap();
        let error = helper.answer::<f64>().unwrap_err();
        assert!(error.to_string().contains("`nobody`"), "{error}");
    }
}
