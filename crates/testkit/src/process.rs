//! Other processes of a test's own program.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

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
        process.kill();
        assert!(!std::path::Path::new(&format!("/proc/{id}/exe")).exists());
    }
}
