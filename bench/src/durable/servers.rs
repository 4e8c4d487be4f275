//! Servers that keep what they acknowledge: ours and Redis, each with its files in a directory of
//! its own on the disk that is measured.

use crate::client::attached::SEGMENT;
use crate::error::BenchError;
use crate::processes::until;
use crate::scratch::{Directory, Scratch, space};
use crate::served::Served;
use crate::server::generator::Generator;
use crate::server::protocol::{Dialect, Protocol};
use crate::server::servers::Server as Process;
use crate::systems::pipeline::{Pipeline, field, until_loaded};
use crate::systems::redis::Peer;
use mneme_sys::medium::FileMedium;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any checkpoint takes that ends.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A server, and when what it acknowledges becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arm {
    /// In tables.
    pub name: &'static str,
    /// The peer that it belongs to; `None`: ours.
    peer: Option<Peer>,
    /// `appendfsync`; nothing is kept if none.
    sync: Option<&'static str>,
    /// Ours, kept as a tree in place of a journal.
    is_tree: bool,
}

const fn ours(name: &'static str, sync: Option<&'static str>) -> Arm {
    Arm {
        name,
        peer: None,
        sync,
        is_tree: false,
    }
}

const fn theirs(peer: Peer, name: &'static str, sync: &'static str) -> Arm {
    Arm {
        name,
        peer: Some(peer),
        sync: Some(sync),
        is_tree: false,
    }
}

/// Ours, without a directory.
pub const VOLATILE: Arm = ours("mneme volatile", None);
/// Ours, durable before it answers.
pub const ALWAYS: Arm = ours("mneme always", Some("always"));
/// Ours, kept as a tree, whose commit a durable change waits for.
pub const TREE_ALWAYS: Arm = Arm {
    is_tree: true,
    ..ours("mneme tree always", Some("always"))
};
/// Ours, kept as a tree that has a commit every second.
pub const TREE_EVERYSEC: Arm = Arm {
    is_tree: true,
    ..ours("mneme tree everysec", Some("everysec"))
};
/// Ours, synced every second.
pub const EVERYSEC: Arm = ours("mneme everysec", Some("everysec"));
/// Ours, synced when the system pleases.
pub const NO: Arm = ours("mneme no", Some("no"));
/// Redis, durable before it answers.
pub const REDIS_ALWAYS: Arm = theirs(Peer::Redis, "redis always", "always");
/// Redis, synced every second.
pub const REDIS_EVERYSEC: Arm = theirs(Peer::Redis, "redis everysec", "everysec");
/// Valkey, durable before it answers.
pub const VALKEY_ALWAYS: Arm = theirs(Peer::Valkey, "valkey always", "always");
/// Valkey, synced every second.
pub const VALKEY_EVERYSEC: Arm = theirs(Peer::Valkey, "valkey everysec", "everysec");

/// Those of `arms` that are on this machine.
pub fn present(arms: &[Arm]) -> Vec<Arm> {
    let arms = arms
        .iter()
        .filter(|arm| arm.peer.is_none_or(Peer::is_there));
    arms.copied().collect()
}

/// What shortens the log of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// A snapshot beside the log.
    Save,
    /// A snapshot that the log goes on from. Ours is both.
    Rewrite,
}

impl Arm {
    /// Whether it has such a checkpoint. A tree has no log to rewrite.
    pub fn has(self, checkpoint: Checkpoint) -> bool {
        !(self.is_tree && checkpoint == Checkpoint::Rewrite)
    }
}

impl Checkpoint {
    fn command(self) -> &'static [u8] {
        match self {
            Self::Save => b"BGSAVE",
            Self::Rewrite => b"BGREWRITEAOF",
        }
    }

    fn fields(self) -> [&'static str; 2] {
        match self {
            Self::Save => ["rdb_bgsave_in_progress", "rdb_bgsave_scheduled"],
            Self::Rewrite => ["aof_rewrite_in_progress", "aof_rewrite_scheduled"],
        }
    }
}

/// A server; killed when this is dropped, its files removed.
pub struct Server {
    arm: Arm,
    process: Option<Process>,
    threads: usize,
    memory: u64,
    // Removed after the process has ended.
    scratch: Option<Scratch>,
    data: Directory,
}

impl Server {
    /// Starts one with an empty directory below `place`. `threads` are those of ours, `memory` is
    /// what ours may take.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(arm: Arm, place: &Path, threads: usize, memory: u64) -> Result<Self, BenchError> {
        let data = Directory::below(place, "durable")?;
        let scratch = match arm.peer {
            Some(_) => None,
            None => Some(Scratch::new(&unique("durable"), 1 << 20)?),
        };
        let mut server = Self {
            arm,
            process: None,
            threads,
            memory,
            scratch,
            data,
        };
        server.start_again()?;
        until_loaded(&server.socket())?;
        Ok(server)
    }

    /// Starts it on what its directory, and its segment, hold. It may be loading still when this
    /// returns.
    ///
    /// # Errors
    /// It does not start.
    pub fn start_again(&mut self) -> Result<(), BenchError> {
        let data = self.data.path();
        let process = match (&self.scratch, self.arm.sync) {
            (Some(scratch), sync) => {
                let [threads, memory] = [self.threads as u64, self.memory].map(|n| n.to_string());
                let mut words: Vec<&dyn AsRef<_>> =
                    vec![&"--io-threads", &threads, &"--memory", &memory];
                if let Some(sync) = &sync {
                    let kept: [&dyn AsRef<_>; 4] = [&"--appendfsync", sync, &"--data", &data];
                    words.extend(kept);
                }
                if self.arm.is_tree {
                    let kept: [&dyn AsRef<_>; 2] = [&"--durability", &"tree"];
                    words.extend(kept);
                }
                let socket = scratch.root().join("socket");
                let root = scratch.registry().root();
                Process::Ours(Served::start(root, SEGMENT, &socket, &words)?)
            }
            (None, sync) => {
                let settings = [
                    "--appendonly",
                    "yes",
                    "--auto-aof-rewrite-percentage",
                    "0",
                    "--appendfsync",
                    sync.unwrap_or("no"),
                ];
                let peer = self.arm.peer.unwrap_or(Peer::Redis);
                let mut server = peer.spawn(Some(data), &settings)?;
                server.connect()?;
                Process::Redis(server)
            }
        };
        self.process = Some(process);
        Ok(())
    }

    /// Kills it at whatever it is doing.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Ends it in an orderly way.
    ///
    /// # Errors
    /// It does not end, or says that it failed.
    pub fn terminate(&mut self) -> Result<(), BenchError> {
        match self.process.take() {
            Some(Process::Ours(mut served)) => served.process.terminate(),
            _ => Ok(()),
        }
    }

    /// Takes from the files' pages in memory, and from the segment, what a power loss takes. The
    /// server must have been killed.
    ///
    /// # Errors
    /// A file cannot be opened.
    pub fn lose_memory(&self) -> Result<(), BenchError> {
        if let Some(scratch) = &self.scratch {
            scratch.registry().remove_segment(SEGMENT).map_err(space)?;
        }
        drop_cached(self.data.path())
    }

    /// In tables.
    pub fn name(&self) -> &'static str {
        self.arm.name
    }

    /// The number of its process; 0 if it was killed.
    pub fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, Process::id)
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        let process = self.process.as_ref();
        process.map_or_else(PathBuf::new, Process::socket)
    }

    /// Connections to it, for values of `value` bytes.
    ///
    /// # Errors
    /// It does not listen for long.
    pub fn connect(&self, value: usize, connections: usize) -> Result<Generator, BenchError> {
        let dialect = Dialect::new(Protocol::Resp, value);
        self.connect_as(dialect, connections)
    }

    /// As [`connect`](Self::connect), in this dialect.
    ///
    /// # Errors
    /// As there.
    pub fn connect_as(
        &self,
        dialect: Dialect,
        connections: usize,
    ) -> Result<Generator, BenchError> {
        Generator::connect(&self.socket(), dialect, connections)
    }

    /// A connection to it for commands.
    ///
    /// # Errors
    /// It does not listen.
    pub fn commands(&self) -> Result<Pipeline, BenchError> {
        let connection = UnixStream::connect(self.socket());
        Ok(Pipeline::new(connection.map_err(failed)?))
    }

    /// Bytes that it has written to its journal, or its log of writes, once nothing waits to be
    /// written: Redis may hold back for two seconds what its log is to get.
    ///
    /// # Errors
    /// It does not answer, or does not write what waits.
    pub fn logged(&self) -> Result<u64, BenchError> {
        let name = match self.arm.peer {
            Some(_) => "aof_current_size",
            None => "mneme_journal_written_bytes",
        };
        let mut commands = self.commands()?;
        until(TIMEOUT, || {
            let info = commands.text(&[b"INFO", b"persistence"])?;
            match field(&info, "aof_buffer_length") {
                Some(0) => field(&info, name).ok_or_else(|| failed(format!("it has no `{name}`"))),
                _ => Err(failed("it does not write what waits for its log")),
            }
        })
    }

    /// Writes a checkpoint, and waits for it.
    ///
    /// # Errors
    /// It cannot, or does not end for long.
    pub fn checkpoint(&self, kind: Checkpoint) -> Result<(), BenchError> {
        let mut commands = self.commands()?;
        begin(&mut commands, kind)?;
        until(TIMEOUT, || match is_running(&mut commands, kind)? {
            true => Err(failed("its checkpoint does not end")),
            false => Ok(()),
        })
    }

    /// Bytes that it, and the children that it has waited for, had the kernel write to storage: of
    /// pages that were dirtied, so in units of 4 KiB, without what the file system adds.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn device_bytes(&self) -> Result<u64, BenchError> {
        let path = format!("/proc/{}/io", self.id());
        let text = fs::read_to_string(&path).map_err(failed)?;
        field(&text, "write_bytes").ok_or_else(|| failed(format!("{path} has no such line")))
    }

    /// Where its files are.
    pub fn data(&self) -> &Path {
        self.data.path()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.arm.is_tree {
            // One that is killed leaves its tree's control region in /dev/shm. Errors change
            // nothing: the process is killed behind this.
            let _ = self.terminate();
        }
    }
}

/// Begins a checkpoint.
///
/// # Errors
/// It is refused.
pub fn begin(commands: &mut Pipeline, kind: Checkpoint) -> Result<(), BenchError> {
    commands.queue(&[kind.command()]);
    commands.flush(|_| {})
}

/// Whether a checkpoint is being written.
///
/// # Errors
/// The server does not answer.
pub fn is_running(commands: &mut Pipeline, kind: Checkpoint) -> Result<bool, BenchError> {
    let info = commands.text(&[b"INFO", b"persistence"])?;
    let fields = kind.fields().into_iter();
    Ok(fields.filter_map(|name| field(&info, name)).any(|n| n > 0))
}

/// Bytes on disk of what a directory holds.
///
/// # Errors
/// It cannot be read.
pub fn disk_used(directory: &Path) -> Result<u64, BenchError> {
    let mut used = 0;
    each_file(directory, &mut |path| {
        // One that has just been removed takes nothing.
        used += fs::metadata(path).map_or(0, |file| file.blocks() * 512);
        Ok(())
    })?;
    Ok(used)
}

/// Drops the files of a directory from the page cache, so that the next reads go to the disk.
///
/// # Errors
/// One cannot be written.
pub fn drop_cached(directory: &Path) -> Result<(), BenchError> {
    each_file(directory, &mut |path| {
        let file = File::open(path).map_err(failed)?;
        FileMedium::drop_cached_pages(&file).map_err(failed)
    })
}

fn each_file(
    directory: &Path,
    visit: &mut impl FnMut(&Path) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    for entry in fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        match entry.file_type().map_err(failed)? {
            kind if kind.is_dir() => each_file(&entry.path(), visit)?,
            kind if kind.is_file() => visit(&entry.path())?,
            _ => {}
        }
    }
    Ok(())
}

/// A name that nothing else of this process has.
fn unique(name: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{number}")
}

fn failed(what: impl ToString) -> BenchError {
    BenchError::server("a durable server", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control regions of the files in a directory, which a tree has in /dev/shm.
    fn regions(files: &[std::fs::Metadata]) -> usize {
        let heads = files.iter().map(|file| (file.dev(), file.ino()));
        let heads: Vec<_> = heads
            .map(|(device, number)| format!("mneme-tree-{device:x}-{number:x}-"))
            .collect();
        let lying = std::fs::read_dir(mneme_sys::files::SHARED_MEMORY).unwrap();
        let names = lying.map(|entry| entry.unwrap().file_name());
        let is_of_one = |name: &String| heads.iter().any(|head| name.starts_with(head));
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names.filter(is_of_one).count()
    }

    #[test]
    fn a_tree_leaves_no_control_region_behind() {
        crate::processes::act_in_test("processes::tests::another_process");
        let place = Directory::in_memory("durable-region").unwrap();
        let server = Server::start(TREE_ALWAYS, place.path(), crate::machine::cpus(), 64 << 20);
        let server = server.unwrap();
        let socket = server.socket();
        crate::client::socket::Socket::connect(&socket, 16).unwrap();
        let files = std::fs::read_dir(server.data()).unwrap();
        let files: Vec<_> = files
            .map(|file| file.unwrap().metadata().unwrap())
            .collect();
        assert_eq!(regions(&files), 1);
        drop(server);
        assert_eq!(regions(&files), 0);
    }
}
