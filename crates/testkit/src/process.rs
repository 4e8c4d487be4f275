//! Other processes of a test's own program.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, ErrorKind, Lines, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use crate::wait_until;

/// The user that owns nothing, and its group.
pub const NOBODY: u32 = 65_534;

/// Another process, killed when this is dropped. Its input ends when this process does.
///
/// Most run one test of the test's own program, which does nothing unless it finds the variables
/// that it is given here.
#[derive(Debug)]
pub struct Process {
    /// For what is not here.
    pub child: Child,
    /// None of one that is not listened to.
    lines: Option<Lines<BufReader<ChildStdout>>>,
    last: Option<u64>,
}

impl Process {
    /// Starts the test of that name, with these variables.
    pub fn start<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Process {
        Process::of(command(test, variables).stdout(Stdio::null())).unwrap()
    }

    /// Starts the test of that name, and listens to what it prints.
    pub fn start_talking<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Process {
        Process::of(command(test, variables).stdout(Stdio::piped())).unwrap()
    }

    /// As [`Process::start_talking`], and waits until it has printed `ready`.
    ///
    /// # Panics
    /// It ends before.
    pub fn start_ready<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Process {
        let mut process = Process::start_talking(test, variables);
        process.wait_for("ready");
        process
    }

    /// Starts another program. It is listened to if its output is a pipe.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn of(command: &mut Command) -> std::io::Result<Process> {
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        Ok(Process {
            lines: child.stdout.take().map(|out| BufReader::new(out).lines()),
            child,
            last: None,
        })
    }

    /// The next line that it prints; `None`: it has ended. The test harness begins the first one.
    ///
    /// # Panics
    /// It is not listened to.
    pub fn line(&mut self) -> Option<String> {
        let lines = self.lines.as_mut().expect("it is listened to");
        lines.next().and_then(Result::ok)
    }

    /// Waits until it prints a line that ends so.
    ///
    /// # Panics
    /// It ends before.
    pub fn wait_for(&mut self, end: &str) {
        while let Some(line) = self.line() {
            if line.ends_with(end) {
                return;
            }
        }
        panic!("it ended before it printed `{end}`: {}", self.wait());
    }

    /// The next number that it prints, on a line of its own.
    ///
    /// # Panics
    /// It ends before.
    pub fn number(&mut self) -> u64 {
        self.next_number().expect("it prints a number")
    }

    fn next_number(&mut self) -> Option<u64> {
        loop {
            if let Some(Ok(number)) = self.line()?.rsplit(' ').next().map(str::parse) {
                self.last = Some(number);
                return self.last;
            }
        }
    }

    /// Kills it; the last number that it has printed, if it has printed any.
    pub fn last_number(mut self) -> Option<u64> {
        self.kill();
        while self.next_number().is_some() {}
        self.last
    }

    /// Gives it a line to read.
    pub fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends it a signal, as [`signal`].
    pub fn signal(&self, name: &str) {
        signal(self.id(), name);
    }

    /// Kills it, and waits for its end. How it ended: it may have done so before.
    pub fn kill(&mut self) -> ExitStatus {
        self.child.kill().unwrap();
        self.child.wait().unwrap()
    }

    /// Waits for its end, and reads all that it prints until then. Its input ends here.
    pub fn wait(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        // One whose output nobody reads any more would die of its next line.
        while self.lines.is_some() && self.line().is_some() {}
        self.child.wait().unwrap()
    }

    /// As [`Process::wait`].
    ///
    /// # Panics
    /// It fails.
    pub fn end(mut self) {
        let status = self.wait();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What runs one test of the test's own program.
fn command<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    test: &str,
    variables: impl IntoIterator<Item = (K, V)>,
) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.envs(variables);
    command
}

/// Runs one test of the test's own program in a process of its own. Whether that was killed, as at
/// a fault point that is armed so.
///
/// # Panics
/// It fails.
pub fn is_killed<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    test: &str,
    variables: impl IntoIterator<Item = (K, V)>,
) -> bool {
    let status = Process::start(test, variables).wait();
    let killed = status.signal() == Some(9);
    assert!(killed || status.success(), "{test}: {status}");
    killed
}

/// Runs one test of the test's own program as [`NOBODY`]. False, which it says, where that user
/// cannot run it: the test is skipped.
///
/// # Panics
/// It fails.
pub fn runs_as_nobody<K: AsRef<OsStr>, V: AsRef<OsStr>>(
    test: &str,
    variables: impl IntoIterator<Item = (K, V)>,
) -> bool {
    let mut command = command(test, variables);
    match command.uid(NOBODY).gid(NOBODY).current_dir("/").output() {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(output.status.success(), "{test}: {said}");
            true
        }
        Err(refused) if refused.kind() == ErrorKind::PermissionDenied => {
            eprintln!("skipped: another user cannot run this test's program");
            false
        }
        Err(other) => panic!("{test}: {other}"),
    }
}

/// A path by which other processes open this descriptor's file, while this process lives.
pub fn fd_path(fd: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

/// Makes a named pipe.
///
/// # Panics
/// The path is taken.
pub fn make_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.unwrap().success(), "mkfifo {}", path.display());
}

/// Sends a process a signal by its name, as `-STOP`. A stop takes effect on each thread for itself
/// and after the call that sends it: this returns when the last one has stopped.
///
/// # Panics
/// There is no such process.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.unwrap().success(), "kill {name} {pid}");
    if name == "-STOP" {
        wait_until("the process has stopped", || is_stopped(pid));
    }
}

/// Whether every thread of this process is stopped.
fn is_stopped(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    threads.map(|thread| thread.unwrap().path()).all(|thread| {
        let status = std::fs::read_to_string(thread.join("status"));
        // A thread that has ended does not run either.
        status.map_or(true, |status| status.contains("\nState:\tT"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "process::tests::child";
    const VARIABLE: &str = "MNEME_TESTKIT_CHILD";

    #[test]
    fn child() {
        match std::env::var(VARIABLE).as_deref() {
            Ok("dies") => {
                signal(std::process::id(), "-KILL");
            }
            Ok("counts") => {
                for number in 0_u64.. {
                    println!("{number}");
                }
            }
            Ok("echoes") => {
                println!("ready");
                for line in std::io::stdin().lines() {
                    println!("{}", line.unwrap());
                }
            }
            _ => {}
        }
    }

    #[test]
    fn a_process_runs_until_it_is_dropped() {
        let mut process = Process::start_ready(CHILD, [(VARIABLE, "echoes")]);
        assert!(process.is_running());
        let id = process.id();
        assert!(!is_stopped(id));
        signal(id, "-STOP");
        assert!(is_stopped(id));
        signal(id, "-CONT");
        wait_until("it goes on", || !is_stopped(id));
        process.kill();
        assert!(!std::path::Path::new(&format!("/proc/{id}/exe")).exists());
    }

    #[test]
    fn a_process_answers_until_its_end() {
        let mut process = Process::start_ready(CHILD, [(VARIABLE, "echoes")]);
        process.say("one more");
        process.wait_for("one more");
        process.end();
    }

    #[test]
    fn the_last_number_is_one_that_was_printed() {
        let mut process = Process::start_talking(CHILD, [(VARIABLE, "counts")]);
        while process.number() < 1000 {}
        assert!(process.last_number() >= Some(1000));
    }

    #[test]
    fn a_killed_process_differs_from_one_that_ended() {
        assert!(is_killed(CHILD, [(VARIABLE, "dies")]));
        assert!(!is_killed(CHILD, [(VARIABLE, "ends")]));
    }
}
