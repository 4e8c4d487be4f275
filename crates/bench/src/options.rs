//! The command line.

use crate::error::BenchError;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Mneme beside its peers and beside what the memory can do. Every figure is measured in one run,
/// interleaved.
#[derive(Debug, Parser)]
#[command(name = "mneme-bench", version)]
pub struct Options {
    /// What to measure.
    #[command(subcommand)]
    pub workload: Workload,
}

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// The physical limit: copies, dependent loads, updates, writes, on 4 KiB and on huge pages.
    Limits(Common),
    /// YCSB's A, B, C, D, F and the papers' mixes, single and batched, against concurrent maps.
    Ycsb(Ycsb),
    /// Fragmentation: the papers' patterns P1 to P6, beside Redis and DashMap on three allocators.
    Frag(Frag),
    /// Throughput as the log fills with live records, by update policy.
    Fill(Common),
    /// What moving records costs, by live fraction, size of log segments, workers and way of
    /// copying.
    Compaction(Common),
    /// Latencies of claims of contiguous memory that a second class uses meanwhile, against moving
    /// its data away, a plain reservation and a buddy allocator.
    Contig(Contig),
    /// A store's GETs on small, transparent huge and reserved pages, on a fresh machine and on one
    /// whose memory is in shreds. Takes nearly all memory for some seconds.
    Hugepages(Common),
    /// Gets from a durable tree that is larger than memory, under a memory limit: part of it lent
    /// to copies of records, idle, or left to the kernel's page cache. Needs the right to make a
    /// memory cgroup.
    Tenant(Tenant),
    /// Sorted lists and hash tables that are read without locks, by how updates are kept apart:
    /// Rcx, a lock, a cohort lock, read-log-update.
    Rcu(Common),
    /// An address space's ranges under faults, protection and mapping by several threads, against
    /// one lock and a reader-writer lock.
    Rangemap(Common),
    /// What each part of the design is worth: epochs, heads, and what a PUT costs by policy and
    /// size.
    Parts(Common),
    /// Time to completion of a file-system benchmark's trace, and by live share.
    Postmark(Postmark),
    /// Latencies of PUT while the index grows, beside an idle loop's, concurrent maps and Redis.
    Growth(Growth),
    /// Random updates of a table in windows: mapped anew for each, in segments with and without
    /// addresses of their own.
    Gups(Common),
    /// What attaching, entering and switching cost, by size, and reading another process' data
    /// beside asking it.
    Switch(Common),
    /// Clients that attach a store, against clients of Redis and of our server on unix sockets:
    /// GET, SET and mixes.
    Redisjmp(Common),
    /// Our server beside Redis and memcached: throughput, CPU time, latencies under load, memory,
    /// fragmentation.
    Server(Common),
    /// From a server's start to its first reply, by the data there is, against Redis; what a crash
    /// costs, and attaching.
    Restart(Common),
    /// Our durable server beside Redis' log of writes, and our durable store beside LMDB (with the
    /// feature `lmdb`): throughput, CPU time, bytes written, space taken.
    Durable(Durable),
    /// From a power loss, or `kill -9`, to the first reply of a durable server, beside Redis on a
    /// snapshot (RDB) and on a log (AOF).
    Recover(Durable),
    /// Latencies and memory of a durable server while it writes a checkpoint, beside Redis' BGSAVE
    /// and BGREWRITEAOF.
    Checkpoint(Durable),
    /// Durable ordered records, a commit each: ours on tmpfs beside LMDB (with the feature `lmdb`).
    Tree(Tree),
    /// What a durable put of ours stores: bytes, pages of the device, how evenly pages wear, and
    /// the file's size after many turnovers of the data.
    Wear(Common),
    /// What versions cost: puts and gets while snapshots are held, and the space that these keep.
    Versioning(Common),
    /// Flushing cache lines, by instruction and size of the object.
    Flush(Common),
    /// Bytes that become durable through a file: stores into a mapping, writes, syncs; on tmpfs and
    /// on a disk.
    FileOverhead(Common),
    /// Alignments that stay in a segment, against samtools on files: flagstat, sort, index, view.
    Samtools(Samtools),
    /// Runs one pattern on one system and prints its resident bytes (used by `frag`, in a process
    /// of its own).
    #[command(hide = true)]
    Resident(Resident),
    /// Leaves no free memory in pieces of 2 MiB, until its input ends (used by `hugepages`, in a
    /// process of its own).
    #[command(hide = true)]
    Fragmenter(Fragmenter),
    /// Reads a durable tree under a memory limit, and says how often that went to the disk (used by
    /// `tenant`, in a process of its own).
    #[command(hide = true)]
    Reader(Reader),
    /// Lives in a space and answers calls (used by `gups` and `switch`, in a process of its own).
    #[command(hide = true)]
    Reside(Reside),
    /// Asks a store for records, and says how often it could (used by `redisjmp`, in a process of
    /// its own).
    #[command(hide = true)]
    Client(Client),
    /// Attaches a store once and says what that took (used by `restart`, in a process of its own).
    #[command(hide = true)]
    Attach(Attach),
    /// Serves a segment, or its own memory, on a unix socket (used by `server`, `redisjmp`,
    /// `restart` and `durable`, in a process of its own).
    #[command(hide = true)]
    Served(Served),
    /// Loads one system and prints the bytes a record costs (used by `ycsb`, in a process of its
    /// own).
    #[command(hide = true)]
    Footprint(Footprint),
}

/// What every workload understands.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// At most 30 seconds and 2 GiB, instead of 10 minutes and 12 GiB.
    #[arg(long)]
    pub quick: bool,
    /// Write the figures to this file as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write figures to this directory as SVG.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<u32>,
    /// Rounds; medians of fewer than five say little.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Where the random streams begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What `ycsb` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Ycsb {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Peers, separated by commas, of dashmap, papaya, scc, moka; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = crate::systems::PEERS.map(str::to_owned))]
    pub peers: Vec<String>,
    /// Records; as many as the memory allows unless given.
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Value sizes in bytes, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1024, 100])]
    pub value: Vec<usize>,
}

/// What `tree` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Tree {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Peers, separated by commas; `none` for none, all that this build has unless given.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub peers: Option<Vec<String>>,
    /// Records, separated by commas; 10,000 and 100,000 or a million unless given.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub records: Vec<u32>,
}

/// What `contig` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Contig {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Claims of one frame out of full ones, in all rounds together; 50,000 unless given.
    #[arg(long, value_name = "N")]
    pub claims: Option<u32>,
}

/// What `tenant` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Tenant {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Sizes of records in bytes, keys included, separated by commas; 64 to 4096 unless given, 128
    /// with --quick.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Option<Vec<usize>>,
}

/// How much memory a fragmenter fragments.
#[derive(Debug, Clone, Args)]
pub struct Fragmenter {
    /// Bytes.
    pub bytes: u64,
}

/// What is read, and with what memory.
#[derive(Debug, Clone, Args)]
pub struct Reader {
    /// What part of the memory is for.
    #[arg(value_enum)]
    pub arm: crate::tenant::Arm,
    /// The tree's file.
    pub tree: PathBuf,
    /// The memory cgroup's directory.
    pub group: PathBuf,
    /// Records there are.
    pub records: u64,
    /// Bytes beside what the process needs anyway.
    pub memory: u64,
    /// Bytes of these that are the part.
    pub part: u64,
    /// Gets before those that count, and that count.
    pub warm_up: u64,
    /// See above.
    pub gets: u64,
    /// Where the random stream begins.
    pub seed: u64,
}

/// What the workloads of durable stores understand besides.
#[derive(Debug, Clone, Args)]
pub struct Durable {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Where the data directories are made, for the time of the run: on the disk that is measured.
    #[arg(long, value_name = "DIR", default_value = "target")]
    pub dir: PathBuf,
}

/// Where a resident lives.
#[derive(Debug, Clone, Args)]
pub struct Reside {
    /// The registry's directory.
    pub registry: PathBuf,
    /// The space's name.
    pub space: String,
}

/// How a client reaches what store.
#[derive(Debug, Clone, Args)]
pub struct Client {
    /// How.
    #[arg(value_enum)]
    pub way: crate::client::Way,
    /// The registry's directory, or the socket.
    pub place: PathBuf,
    /// The segment in that registry.
    pub segment: String,
    /// Records that there are.
    pub records: u32,
    /// Of how many bytes.
    pub value: usize,
}

/// What is attached, and looked up.
#[derive(Debug, Clone, Args)]
pub struct Attach {
    /// The registry's directory.
    pub registry: PathBuf,
    /// The record.
    pub record: u32,
}

/// What is served where.
#[derive(Debug, Clone, Args)]
pub struct Served {
    /// The socket.
    pub socket: PathBuf,
    /// The registry's directory; memory of its own is served unless it is given.
    #[arg(long, requires = "segment")]
    pub registry: Option<PathBuf>,
    /// The segment's name.
    #[arg(long)]
    pub segment: Option<String>,
    /// The directory that keeps the data; none keeps it unless given.
    #[arg(long)]
    pub data: Option<PathBuf>,
    /// When what was written becomes durable.
    #[arg(long, default_value = "everysec")]
    pub appendfsync: String,
    /// What keeps the data in that directory.
    #[arg(long, requires = "data")]
    pub durability: Option<String>,
    /// I/O threads; one a CPU unless given.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Bytes for the data and everything about it, where the segment is made.
    #[arg(long)]
    pub memory: Option<u64>,
}

/// What `frag` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Frag {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Peers, separated by commas, of redis, dashmap-glibc, dashmap-jemalloc, dashmap-mimalloc;
    /// `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = crate::frag::PEERS.map(str::to_owned))]
    pub peers: Vec<String>,
    /// Patterns, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = crate::frag::pattern::PATTERNS.map(|pattern| pattern.name.to_owned()))]
    pub patterns: Vec<String>,
}

/// What `postmark` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Postmark {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Peers, separated by commas, of dashmap, papaya, scc, moka; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = crate::systems::PEERS.map(str::to_owned))]
    pub peers: Vec<String>,
}

/// What `growth` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Growth {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Peers, separated by commas, of dashmap, papaya, redis; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = crate::growth::PEERS.map(str::to_owned))]
    pub peers: Vec<String>,
    /// Records in the end; 64 Mi unless given, 4 Mi with --quick.
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
}

/// What `samtools` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Samtools {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// Pairs of reads; 500,000 unless given, 40,000 with --quick. The paper's files had some seven
    /// million.
    #[arg(long, value_name = "N")]
    pub pairs: Option<u64>,
}

/// Which pattern to run on which system.
#[derive(Debug, Clone, Args)]
pub struct Resident {
    /// Which system: mneme, dashmap.
    #[arg(long)]
    pub system: String,
    /// Which pattern.
    #[arg(long)]
    pub pattern: String,
    /// Bytes of keys and values.
    #[arg(long)]
    pub data: u64,
    /// Bytes the store may take, if it is ours.
    #[arg(long)]
    pub capacity: u64,
    /// Where the random streams begin.
    #[arg(long)]
    pub seed: u64,
}

/// Which system to load with what.
#[derive(Debug, Clone, Args)]
pub struct Footprint {
    /// Which system.
    #[arg(long)]
    pub system: String,
    /// How many records.
    #[arg(long)]
    pub records: u64,
    /// Of how many bytes.
    #[arg(long)]
    pub value: usize,
}

impl Common {
    /// One of two scales: of a quick run, and of a full one.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`BenchError::Options`], in words.
    pub fn validate(&self) -> Result<(), BenchError> {
        if self.rounds == 0 {
            return Err(BenchError::Options("--rounds is at least 1".to_owned()));
        }
        let right = |threads: &u32| (1..=1024).contains(threads);
        if self.threads.is_empty() || !self.threads.iter().all(right) {
            return Err(BenchError::Options(
                "--threads are from 1 to 1024".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Those of the `known` that were asked for; `none` asks for none.
///
/// # Errors
/// [`BenchError::Options`] for a name nobody has.
pub fn chosen(asked: &[String], known: &[&str], what: &str) -> Result<Vec<String>, BenchError> {
    if asked == ["none"] {
        return Ok(Vec::new());
    }
    match asked.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => Err(BenchError::Options(format!(
            "no {what} is called `{unknown}`; there are {}",
            known.join(", ")
        ))),
        None => Ok(asked.to_vec()),
    }
}

impl Tenant {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`BenchError::Options`], in words.
    pub fn validate(&self) -> Result<(), BenchError> {
        let right = |bytes: &usize| (32..=64 << 10).contains(bytes);
        match &self.sizes {
            Some(sizes) if sizes.is_empty() || !sizes.iter().all(right) => Err(
                BenchError::Options("--sizes are from 32 bytes to 64 KiB".to_owned()),
            ),
            _ => Ok(()),
        }
    }
}

impl Samtools {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`BenchError::Options`], in words.
    pub fn validate(&self) -> Result<(), BenchError> {
        match self.pairs {
            Some(pairs) if !(100..=1_000_000_000).contains(&pairs) => Err(BenchError::Options(
                "--pairs is from 100 to 1000000000".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

impl Tree {
    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`BenchError::Options`], in words.
    pub fn validate(&self) -> Result<(), BenchError> {
        let right = |records: &u32| (1000..=100_000_000).contains(records);
        if !self.records.iter().all(right) {
            return Err(BenchError::Options(
                "--records are from 1000 to 100000000".to_owned(),
            ));
        }
        Ok(())
    }
}

impl Ycsb {
    /// The peers asked for.
    ///
    /// # Errors
    /// [`BenchError::Options`] for a name nobody has.
    pub fn peers(&self) -> Result<Vec<String>, BenchError> {
        chosen(&self.peers, &crate::systems::PEERS, "peer")
    }

    /// Refuses what cannot be measured.
    ///
    /// # Errors
    /// [`BenchError::Options`], in words.
    pub fn validate(&self) -> Result<(), BenchError> {
        self.peers()?;
        let right = |bytes: &usize| (16..=1 << 20).contains(bytes);
        if self.value.is_empty() || !self.value.iter().all(right) {
            return Err(BenchError::Options(
                "--value is from 16 bytes (a stamp and a counter) to 1 MiB".to_owned(),
            ));
        }
        let limit = crate::generate::operations::RECORDS_LIMIT / 2;
        let right = |records: u64| (1000..limit).contains(&records);
        if !self.records.is_none_or(right) {
            return Err(BenchError::Options(format!(
                "--records is from 1000 to {limit}"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The options of a test's run: one round, one thread.
    pub fn common() -> Common {
        Common {
            quick: true,
            json: None,
            svg: None,
            threads: vec![1],
            rounds: 1,
            seed: 1,
        }
    }

    #[test]
    fn a_directory_for_data_is_below_target_unless_given() {
        let directory = |words: &[&str]| {
            let words = ["mneme-bench", "durable"].iter().chain(words);
            match Options::try_parse_from(words).unwrap().workload {
                Workload::Durable(options) => options.dir,
                _ => unreachable!("the subcommand is durable"),
            }
        };
        assert_eq!(directory(&[]), PathBuf::from("target"));
        assert_eq!(
            directory(&["--dir", "/mnt/disk"]),
            PathBuf::from("/mnt/disk")
        );
        for workload in ["recover", "checkpoint"] {
            assert!(Options::try_parse_from(["mneme-bench", workload, "--quick"]).is_ok());
        }
    }

    #[test]
    fn sizes_of_records_are_given_or_not() {
        let tenant = |words: &[&str]| {
            let words = ["mneme-bench", "tenant"].iter().chain(words);
            match Options::try_parse_from(words).unwrap().workload {
                Workload::Tenant(options) => options,
                _ => unreachable!("the subcommand is tenant"),
            }
        };
        assert_eq!(tenant(&["--quick"]).sizes, None);
        let given = tenant(&["--sizes", "64,4096"]);
        assert_eq!(given.sizes, Some(vec![64, 4096]));
        assert!(given.validate().is_ok());
        assert!(tenant(&["--sizes", "64,16"]).validate().is_err());
    }

    /// The options of `tree` in these words.
    pub fn tree(words: &str) -> Tree {
        let head = ["mneme-bench", "tree"].into_iter();
        let words = head.chain(words.split_whitespace());
        match Options::try_parse_from(words).unwrap().workload {
            Workload::Tree(options) => options,
            _ => unreachable!("the subcommand is tree"),
        }
    }

    fn ycsb(words: &str) -> Result<Ycsb, String> {
        let words = ["mneme-bench", "ycsb"]
            .into_iter()
            .chain(words.split_whitespace());
        let parsed = Options::try_parse_from(words).map_err(|error| error.to_string())?;
        match parsed.workload {
            Workload::Ycsb(options) => {
                let valid = options.common.validate().and_then(|()| options.validate());
                valid.map(|()| options).map_err(|error| error.to_string())
            }
            _ => unreachable!("the subcommand is ycsb"),
        }
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let options = ycsb("--quick --peers dashmap,moka --threads 1,2,4 --value 64").unwrap();
        assert_eq!(options.peers().unwrap(), ["dashmap", "moka"]);
        assert_eq!(options.common.threads, [1, 2, 4]);
        assert_eq!(options.value, [64]);
        assert!(ycsb("--peers none").unwrap().peers().unwrap().is_empty());
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        assert!(
            ycsb("--peers redis")
                .unwrap_err()
                .contains("dashmap, papaya")
        );
        for words in [
            "--threads 0",
            "--rounds 0",
            "--value 3",
            "--records 1",
            "--records 1000000000",
        ] {
            assert!(ycsb(words).is_err(), "{words}");
        }
    }
}
