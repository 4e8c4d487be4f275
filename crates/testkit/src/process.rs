//! Other processes of a test's own program.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

use crate::wait_until;

/// A process that runs one test of the test's own program. Killed when this is dropped.
///
/// The test does nothing unless it finds the variables that it is given here.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts the test of that name, with these variables.
    pub fn start<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Process {
        Process::spawn(test, variables, Stdio::null())
    }

    /// Starts the test of that name, and waits until it has printed the line `ready`.
    ///
    /// # Panics
    /// It ends before.
    pub fn start_ready<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Process {
        let mut process = Process::spawn(test, variables, Stdio::piped());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line == "ready");
        assert!(is_ready, "`{test}` could not start");
        process
    }

    fn spawn<K: AsRef<OsStr>, V: AsRef<OsStr>>(
        test: &str,
        variables: impl IntoIterator<Item = (K, V)>,
        output: Stdio,
    ) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
        let child = command.envs(variables).stdout(output).spawn();
        Process(child.unwrap())
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Kills it, and waits for its end.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// A path by which other processes open this descriptor's file, while this process lives.
pub fn fd_path(fd: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
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

    const VARIABLE: &str = "MNEME_TESTKIT_CHILD";

    #[test]
    fn child() {
        if std::env::var_os(VARIABLE).is_some() {
            println!("\nready");
            loop {
                std::thread::park();
            }
        }
    }

    #[test]
    fn a_process_runs_until_it_is_dropped() {
        let mut process = Process::start_ready("process::tests::child", [(VARIABLE, "1")]);
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
}
