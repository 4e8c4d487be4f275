//! Redis and Valkey, which speaks its protocol and has its settings, where they are installed.
//!
//! A program is found by its variable in the environment (`VALKEY_SERVER=path`), or else on the
//! PATH. One that was built on the C library's allocator runs with jemalloc in front of it, where
//! Debian puts that: that is how both are distributed elsewhere, and what their memory is like.

use super::daemon::Daemon;
use crate::error::BenchError;
use crate::processes::on_path;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A server of that protocol that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Redis 7.
    Redis,
    /// Valkey 8.
    Valkey,
}

/// All.
pub const PEERS: [Peer; 2] = [Peer::Redis, Peer::Valkey];

/// A program that was found.
struct Found {
    program: PathBuf,
    /// What it says of itself.
    version: String,
    /// The allocator in front of it.
    preload: Option<PathBuf>,
}

impl Peer {
    /// In tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Valkey => "valkey",
        }
    }

    /// The peer of this name.
    pub fn named(name: &str) -> Option<Self> {
        PEERS.into_iter().find(|peer| peer.name() == name)
    }

    fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::Redis => "REDIS_SERVER",
            Self::Valkey => "VALKEY_SERVER",
        }
    }

    /// Looked for once: a start that is timed does not look.
    fn found(self) -> Option<&'static Found> {
        static FOUND: [OnceLock<Option<Found>>; PEERS.len()] =
            [const { OnceLock::new() }; PEERS.len()];
        let look = || {
            let named = std::env::var_os(self.variable()).map(PathBuf::from);
            let program = named.or_else(|| on_path(self.program()))?;
            found(self.program(), program)
        };
        FOUND[self as usize].get_or_init(look).as_ref()
    }

    /// Whether it can be started.
    pub fn is_there(self) -> bool {
        self.found().is_some()
    }

    /// What a report notes where it cannot.
    pub fn missing(self) -> Option<String> {
        let (name, program, variable) = (self.name(), self.program(), self.variable());
        (!self.is_there()).then(|| match std::env::var_os(variable) {
            Some(path) => format!(
                "{name} is missing: {variable}={} does not run",
                path.display()
            ),
            None => {
                format!("{name} is missing: no {program} on the PATH, and no {variable}")
            }
        })
    }

    /// Its version, its program, and the allocator in front of it; or that it is missing.
    fn introduction(self) -> String {
        match self.found() {
            Some(found) => {
                let (name, version) = (self.name(), &found.version);
                let program = found.program.display();
                let preload = found.preload.as_ref();
                let preload = preload.map(|path| format!(", with {} preloaded", path.display()));
                format!(
                    "{name}: {version} ({program}{})",
                    preload.unwrap_or_default()
                )
            }
            None => self.missing().unwrap_or_default(),
        }
    }

    /// Starts one that listens, keeps everything in memory and writes nothing to disk.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn start(self) -> Result<Daemon, BenchError> {
        let mut server = self.spawn(None, &["--appendonly", "no"])?;
        server.connect()?;
        Ok(server)
    }

    /// Starts one with these settings, and its files in that directory; without snapshots unless
    /// asked. It may not listen yet when this returns.
    ///
    /// # Errors
    /// [`BenchError::Server`].
    pub fn spawn(self, data: Option<&Path>, settings: &[&str]) -> Result<Daemon, BenchError> {
        let Some(found) = self.found() else {
            return Err(BenchError::server(self.name(), "it is missing"));
        };
        let mut command = Command::new(&found.program);
        if let Some(library) = &found.preload {
            command.env(PRELOAD, library);
        }
        command.args(["--port", "0", "--save", ""]).args(settings);
        if let Some(data) = data {
            command.arg("--dir").arg(data);
        }
        Daemon::spawn(self.name(), "--unixsocket", command)
    }
}

/// What the loader loads before a program's own libraries.
const PRELOAD: &str = "LD_PRELOAD";

/// The program, if it runs.
fn found(name: &str, program: PathBuf) -> Option<Found> {
    let output = Command::new(&program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout);
    // `Valkey server v=8.1.8 sha=00000000:1 malloc=libc bits=64 build=...`
    let word = |key: &str| {
        let mut words = said.split_whitespace();
        words
            .find_map(|word| word.strip_prefix(key))
            .map(str::to_owned)
    };
    let (version, malloc) = (word("v=")?, word("malloc=")?);
    let library = format!(
        "/usr/lib/{}-linux-gnu/libjemalloc.so.2",
        std::env::consts::ARCH
    );
    let library = Path::new(&library);
    let preload = malloc == "libc" && library.is_file();
    Some(Found {
        program,
        version: format!("{name} {version}, malloc {malloc}"),
        preload: preload.then(|| library.to_owned()),
    })
}

/// Prints which of them this run has, and which are missing. What a report notes of it.
pub fn introduce(peers: &[Peer]) -> Vec<String> {
    let notes: Vec<_> = peers.iter().map(|peer| peer.introduction()).collect();
    println!("{}\n", notes.join("\n"));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_answers_and_leaves_nothing_behind() {
        for peer in PEERS.into_iter().filter(|peer| peer.is_there()) {
            let mut server = peer.start().unwrap();
            let mut pipeline = server.connect().unwrap();
            pipeline.queue(&[b"SET", b"muse", b"Clio"]);
            pipeline.queue(&[b"DEL", b"muse", b"nobody"]);
            let mut replies = Vec::new();
            pipeline
                .flush(|reply| replies.push(reply.to_owned()))
                .unwrap();
            assert_eq!(replies, ["+OK", ":1"]);
            pipeline.queue(&[b"NONSENSE"]);
            assert!(pipeline.flush(|_| {}).is_err());
            let socket = server.socket();
            drop(server);
            assert!(!socket.parent().unwrap().exists());
        }
    }

    #[test]
    fn a_peer_is_either_introduced_with_its_version_or_said_to_be_missing() {
        for peer in PEERS {
            let said = peer.introduction();
            assert!(said.starts_with(peer.name()), "{said}");
            assert_eq!(said.contains("malloc"), peer.is_there(), "{said}");
            assert_eq!(peer.missing().is_none(), peer.is_there());
            assert_eq!(Peer::named(peer.name()), Some(peer));
        }
    }

    #[test]
    fn a_program_that_is_no_server_is_not_taken_for_one() {
        assert!(found("nobody", "/nonexistent/server".into()).is_none());
        assert!(found("nobody", "/bin/true".into()).is_none());
    }
}
