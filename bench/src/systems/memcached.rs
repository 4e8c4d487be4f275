//! memcached, where it is installed.

use super::daemon::Daemon;
use crate::error::BenchError;
use crate::processes::is_on_path;
use std::process::Command;

/// The program.
const PROGRAM: &str = "memcached";

/// Whether the program is on the PATH.
pub fn is_there() -> bool {
    is_on_path(PROGRAM)
}

/// Starts one with so many threads and bytes for its items, which it refuses to exceed. It may not
/// listen yet when this returns.
///
/// # Errors
/// [`BenchError::Server`].
pub fn spawn(threads: usize, memory: u64) -> Result<Daemon, BenchError> {
    let (threads, memory) = (threads.to_string(), (memory >> 20).to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["-u", "root", "-M", "-t", &threads, "-m", &memory]);
    Daemon::spawn(PROGRAM, "-s", command)
}
