//! The command line.

use crate::frag::pattern::PATTERNS;
use crate::generate::operations::RECORDS_LIMIT;
use crate::systems;
use crate::tree::names;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use std::path::PathBuf;

/// Mneme beside its peers and beside what the memory can do. Every figure is measured in one run,
/// interleaved.
#[derive(Debug, Parser)]
#[command(name = "mneme-bench", version)]
pub struct Options {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[command(subcommand)]
    pub workload: Workload,
}

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Workload {
    /// The physical limit: copies, dependent loads, updates, writes, on 4 KiB and on huge pages.
    Limits,
    /// YCSB's A, B, C, D, F and the papers' mixes, single and batched, against concurrent maps.
    Ycsb(Ycsb),
    /// Fragmentation: the papers' patterns P1 to P6, beside Redis, Valkey and DashMap on three
    /// allocators.
    Frag(Frag),
    /// Throughput as the log fills with live records, by update policy.
    Fill,
    /// What moving records costs, by live fraction, size of log segments, workers and way of
    /// copying.
    Compaction,
    /// Latencies of claims of contiguous memory that a second class uses meanwhile, against moving
    /// its data away, a plain reservation and a buddy allocator.
    Contig(Contig),
    /// A store's GETs on small, transparent huge and reserved pages, on a fresh machine and on one
    /// whose memory is in shreds. Takes nearly all memory for some seconds.
    Hugepages,
    /// Gets from a durable tree that is larger than memory, under a memory limit: part of it lent
    /// to copies of records, idle, or left to the kernel's page cache. Needs the right to make a
    /// memory cgroup.
    Tenant(Tenant),
    /// Sorted lists and hash tables that are read without locks, by how updates are kept apart:
    /// Rcx, a lock, a cohort lock, read-log-update.
    Rcu,
    /// An address space's ranges under faults, protection and mapping by several threads, against
    /// one lock and a reader-writer lock.
    Rangemap,
    /// What each part of the design is worth: epochs, heads, and what a PUT costs by policy and
    /// size.
    Parts,
    /// Time to completion of a file-system benchmark's trace, and by live share.
    Postmark(Postmark),
    /// Latencies of PUT while the index grows, beside an idle loop's, concurrent maps and Redis.
    Growth(Growth),
    /// Random updates of a table in windows: mapped anew for each, in segments with and without
    /// addresses of their own.
    Gups,
    /// What attaching, entering and switching cost, by size, and reading another process' data
    /// beside asking it.
    Switch,
    /// Clients that attach a store, against clients of Redis and of our server on unix sockets:
    /// GET, SET and mixes.
    Redisjmp,
    /// Our server beside Redis, Valkey and memcached: throughput, CPU time, latencies under load,
    /// memory, fragmentation.
    Server,
    /// Memory and CPU time of data that is overwritten, thinned out and left alone: our server
    /// beside Redis and Valkey, and a store in private memory.
    Steady,
    /// From a server's start to its first reply, by the data there is, against Redis; what a crash
    /// costs, and attaching.
    Restart,
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
    Wear,
    /// What versions cost: puts and gets while snapshots are held, and the space that these keep.
    Versioning,
    /// Flushing cache lines, by instruction and size of the object.
    Flush,
    /// Bytes that become durable through a file: stores into a mapping, writes, syncs; on tmpfs and
    /// on a disk.
    FileOverhead,
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
    #[arg(long, global = true)]
    pub quick: bool,
    /// Write the figures to this file as JSON.
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write figures to this directory as SVG.
    #[arg(long, global = true, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// Numbers of threads, separated by commas.
    #[arg(long, global = true, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2], value_parser = value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,
    /// Rounds; medians of fewer than five say little.
    #[arg(long, global = true, value_name = "N", default_value_t = 5, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub rounds: usize,
    /// Where the random streams begin.
    #[arg(long, global = true, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// What `ycsb` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Ycsb {
    /// Peers, separated by commas, of dashmap, papaya, scc, moka; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = systems::PEERS, value_parser = peers(&systems::PEERS))]
    pub peers: Vec<String>,
    /// Records; as many as the memory allows unless given.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1000..RECORDS_LIMIT / 2))]
    pub records: Option<u64>,
    /// Value sizes in bytes, at least a stamp and a counter, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1024, 100], value_parser = RangedU64ValueParser::<usize>::new().range(16..=1 << 20))]
    pub value: Vec<usize>,
}

/// What `tree` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Tree {
    /// Peers, separated by commas, of those that this build has; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = names::peers(), value_parser = peers(&names::peers()))]
    pub peers: Vec<String>,
    /// Records, separated by commas; 10,000 and 100,000 or a million unless given.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = value_parser!(u32).range(1000..=100_000_000))]
    pub records: Vec<u32>,
}

/// What `contig` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Contig {
    /// Claims of one frame out of full ones, in all rounds together; 50,000 unless given.
    #[arg(long, value_name = "N")]
    pub claims: Option<u32>,
}

/// What `tenant` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Tenant {
    /// Sizes of records in bytes, keys included, separated by commas; 64 to 4096 unless given, 128
    /// with --quick.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = RangedU64ValueParser::<usize>::new().range(32..=64 << 10))]
    pub sizes: Option<Vec<usize>>,
}

/// How much memory a fragmenter fragments.
#[derive(Debug, Clone, Args)]
pub struct Fragmenter {
    /// Bytes.
    pub bytes: u64,
}

/// What a part of the memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arm {
    /// Copies of records.
    Lent,
    /// Nothing.
    Idle,
    /// Whatever the kernel makes of it.
    Kernel,
}

/// What is read, and with what memory.
#[derive(Debug, Clone, Args)]
pub struct Reader {
    /// What part of the memory is for.
    #[arg(value_enum)]
    pub arm: Arm,
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
}

/// What the workloads of durable stores understand besides.
#[derive(Debug, Clone, Args)]
pub struct Durable {
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

/// How a client reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Attached for reading.
    Reads,
    /// Attached for reading and writing.
    Writes,
    /// A server, by its unix socket.
    Socket,
}

/// How a client reaches what store.
#[derive(Debug, Clone, Args)]
pub struct Client {
    /// How.
    #[arg(value_enum)]
    pub way: Way,
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
    pub io_threads: Option<usize>,
    /// Bytes for the data and everything about it, where the segment is made.
    #[arg(long)]
    pub memory: Option<u64>,
}

/// What `frag` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Frag {
    /// Peers, separated by commas, of redis, valkey, dashmap-glibc, dashmap-jemalloc,
    /// dashmap-mimalloc; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = Frag::PEERS, value_parser = peers(&Frag::PEERS))]
    pub peers: Vec<String>,
    /// Patterns, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',', ignore_case = true, default_values = PATTERNS.map(|it| it.name), value_parser = PossibleValuesParser::new(PATTERNS.map(|it| it.name)))]
    pub patterns: Vec<String>,
}

impl Frag {
    /// Peers that can be asked for.
    pub const PEERS: [&str; 5] = [
        "redis",
        "valkey",
        "dashmap-glibc",
        "dashmap-jemalloc",
        "dashmap-mimalloc",
    ];
}

/// What `postmark` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Postmark {
    /// Peers, separated by commas, of dashmap, papaya, scc, moka; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = systems::PEERS, value_parser = peers(&systems::PEERS))]
    pub peers: Vec<String>,
}

/// What `growth` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Growth {
    /// Peers, separated by commas, of dashmap, papaya, redis; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = Growth::PEERS, value_parser = peers(&Growth::PEERS))]
    pub peers: Vec<String>,
    /// Records in the end; 64 Mi unless given, 4 Mi with --quick.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1000..1 << 32))]
    pub records: Option<u64>,
}

impl Growth {
    /// Peers that can be asked for.
    pub const PEERS: [&str; 3] = ["dashmap", "papaya", "redis"];
}

/// What `samtools` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Samtools {
    /// Pairs of reads; 500,000 unless given, 40,000 with --quick. The paper's files had some seven
    /// million.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(100..=1_000_000_000))]
    pub pairs: Option<u64>,
}

/// Which pattern to run on which system.
#[derive(Debug, Clone, Args)]
pub struct Resident {
    /// Which system: mneme, dashmap.
    pub system: String,
    /// Which pattern.
    pub pattern: String,
    /// Bytes of keys and values.
    pub data: u64,
    /// Bytes the store may take, if it is ours.
    pub capacity: u64,
}

/// Which system to load with what.
#[derive(Debug, Clone, Args)]
pub struct Footprint {
    /// Which system.
    pub system: String,
    /// How many records.
    pub records: u64,
    /// Of how many bytes.
    pub value: usize,
}

impl Common {
    /// One of two scales: of a quick run, and of a full one.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Names of those peers, and `none`.
fn peers(known: &[&'static str]) -> PossibleValuesParser {
    PossibleValuesParser::new(known.iter().copied().chain(["none"]))
}

/// The peers that were asked for; `none` is no name of any.
pub fn chosen(asked: &[String]) -> Vec<String> {
    let asked = asked.iter().filter(|name| *name != "none");
    asked.cloned().collect()
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

    /// The options in these words.
    pub fn parsed(words: &str) -> Result<Options, String> {
        let words = ["mneme-bench"].into_iter().chain(words.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_directory_for_data_is_below_target_unless_given() {
        for (words, expected) in [("", "target"), ("--dir /mnt/disk", "/mnt/disk")] {
            for workload in ["durable", "recover", "checkpoint"] {
                match parsed(&format!("{workload} --quick {words}"))
                    .unwrap()
                    .workload
                {
                    Workload::Durable(o) | Workload::Recover(o) | Workload::Checkpoint(o) => {
                        assert_eq!(o.dir, PathBuf::from(expected));
                    }
                    _ => unreachable!("the subcommand is {workload}"),
                }
            }
        }
    }

    #[test]
    fn lists_are_separated_by_commas() {
        let words = "ycsb --quick --peers dashmap,moka --threads 1,2,4 --value 64";
        let Options { common, workload } = parsed(words).unwrap();
        assert!(common.quick);
        assert_eq!(common.threads, [1, 2, 4]);
        match workload {
            Workload::Ycsb(ycsb) => {
                assert_eq!(chosen(&ycsb.peers), ["dashmap", "moka"]);
                assert_eq!(ycsb.value, [64]);
            }
            _ => unreachable!("the subcommand is ycsb"),
        }
        assert!(chosen(&["none".to_owned()]).is_empty());
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        let refused = parsed("ycsb --peers redis").unwrap_err();
        assert!(refused.contains("dashmap, papaya"), "{refused}");
        for words in [
            "limits --threads 0",
            "limits --rounds 0",
            "ycsb --value 3",
            "ycsb --records 1",
            "ycsb --records 1000000000",
            "tree --peers nobody",
            "tree --records 10",
            "tenant --sizes 64,16",
            "frag --peers memcached",
            "frag --patterns P9",
            "growth --records 10",
            "samtools --pairs 1",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        for words in [
            "frag --patterns p4",
            "tenant --sizes 64,4096",
            "tree --records 1000,2000",
        ] {
            assert!(parsed(words).is_ok(), "{words}");
        }
    }
}
