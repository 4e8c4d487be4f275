//! The servers that are compared: started on a unix socket each, kept on some CPUs, their CPU time
//! and memory read.

use super::generator::Generator;
use super::protocol::{Dialect, Protocol};
use crate::error::BenchError;
use crate::machine::resident_bytes_of;
use crate::processes::keep_on_first;
use crate::served::Served;
use crate::systems::daemon::Daemon;
use crate::systems::memcached;
use crate::systems::redis::Peer;
use std::path::PathBuf;
use std::time::Duration;

/// Ours, in tables.
pub const OURS: &str = "mneme";
/// Redis, in tables.
pub const REDIS: &str = Peer::Redis.name();
/// Valkey, in tables.
pub const VALKEY: &str = Peer::Valkey.name();
/// memcached, in tables.
pub const MEMCACHED: &str = "memcached";
/// All, ours first.
pub const SYSTEMS: [&str; 4] = [OURS, REDIS, VALKEY, MEMCACHED];

/// A running server; ended when this is dropped.
pub enum Server {
    /// Ours, on memory of its process.
    Ours(Served),
    /// Redis, or another of its protocol.
    Redis(Daemon),
    /// memcached.
    Memcached(Daemon),
}

/// Those of all that are on this machine.
pub fn present() -> Vec<&'static str> {
    let is_there = |system: &&str| match *system {
        MEMCACHED => memcached::is_there(),
        system => Peer::named(system).is_none_or(Peer::is_there),
    };
    SYSTEMS.into_iter().filter(is_there).collect()
}

/// As [`present`], without memcached, whose protocol does not have all that is asked for.
pub fn stores() -> Vec<&'static str> {
    let systems = present().into_iter();
    systems.filter(|system| *system != MEMCACHED).collect()
}

impl Server {
    /// Starts one. `threads` are those of ours and memcached; Redis and Valkey have one for
    /// commands. `memory` is what ours may take; the others are not bounded by it.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(system: &str, threads: usize, memory: u64) -> Result<Self, BenchError> {
        Ok(match Peer::named(system) {
            Some(peer) => Self::Redis(peer.start()?),
            None if system == MEMCACHED => Self::Memcached(memcached::spawn(threads, 2 * memory)?),
            None => Self::Ours(Served::of_memory(threads, memory)?),
        })
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        match self {
            Self::Ours(server) => server.process.id(),
            Self::Redis(server) | Self::Memcached(server) => server.id(),
        }
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        match self {
            Self::Ours(server) => server.socket().to_owned(),
            Self::Redis(server) | Self::Memcached(server) => server.socket(),
        }
    }

    /// Connections to it, for values of `value` bytes.
    ///
    /// # Errors
    /// It does not listen for long.
    pub fn connect(&self, value: usize, connections: usize) -> Result<Generator, BenchError> {
        let protocol = match self {
            Self::Memcached(_) => Protocol::Memcached,
            Self::Ours(_) | Self::Redis(_) => Protocol::Resp,
        };
        Generator::connect(&self.socket(), Dialect::new(protocol, value), connections)
    }

    /// Keeps all its threads on the first `cpus` CPUs.
    ///
    /// # Errors
    /// The system refuses.
    pub fn keep_on(&self, cpus: usize) -> Result<(), BenchError> {
        keep_on_first(cpus, self.id())
    }

    /// CPU time of all its threads until now.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        cpu_of(self.id(), |_| true)
    }

    /// Bytes of memory that it has in use, shared memory included.
    pub fn resident(&self) -> u64 {
        resident_bytes_of(&self.id().to_string())
    }
}

/// CPU time of the threads of a process until now whose names count.
///
/// # Errors
/// The kernel does not tell.
pub fn cpu_of(id: u32, counts: impl Fn(&str) -> bool) -> Result<Duration, BenchError> {
    let tasks = format!("/proc/{id}/task");
    let mut sum = Duration::ZERO;
    for task in std::fs::read_dir(&tasks).map_err(untold)? {
        let task = task.map_err(untold)?.path();
        // A thread that has just ended has no files any more.
        let texts = ["comm", "schedstat"].map(|file| std::fs::read_to_string(task.join(file)));
        if let [Ok(name), Ok(times)] = texts
            && counts(name.trim_end())
        {
            sum += first_number(&times)?;
        }
    }
    Ok(sum)
}

/// CPU time of the calling thread until now.
///
/// # Errors
/// The kernel does not tell.
pub fn cpu_of_this_thread() -> Result<Duration, BenchError> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").map_err(untold)?;
    first_number(&text)
}

fn untold(error: impl ToString) -> BenchError {
    BenchError::Process(format!("its CPU time: {}", error.to_string()))
}

/// Nanoseconds on a CPU, the first of a file's numbers.
fn first_number(text: &str) -> Result<Duration, BenchError> {
    let number = text.split_whitespace().next().unwrap_or_default();
    number.parse().map(Duration::from_nanos).map_err(untold)
}

#[cfg(test)]
mod tests {
    use super::super::protocol::{Kind, Request};
    use super::*;

    #[test]
    fn every_server_answers_and_its_cpu_time_and_memory_are_known() {
        for system in present() {
            let server = Server::start(system, 1, 64 << 20).unwrap();
            let mut generator = server.connect(100, 2).unwrap();
            server.keep_on(1).unwrap();
            let requests =
                [Kind::Set, Kind::Get].map(|kind| (0..500).map(move |id| Request { id, kind }));
            for mut requests in requests {
                let done = generator.closed(32, || requests.next()).unwrap();
                assert_eq!(done.operations, 500, "{system}");
            }
            assert!(server.cpu().unwrap() > Duration::ZERO, "{system}");
            assert!(server.resident() > 1 << 20, "{system}");
            let socket = server.socket();
            drop((generator, server));
            assert!(!socket.exists(), "{system}");
        }
    }

    #[test]
    fn this_thread_has_taken_time() {
        let before = cpu_of_this_thread().unwrap();
        let mut number = 1_u64;
        while cpu_of_this_thread().unwrap() == before {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert_ne!(number, 0);
    }
}
