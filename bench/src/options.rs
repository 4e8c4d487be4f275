//! The command line.

use crate::frag::pattern::PATTERNS;
use crate::generate::operations::RECORDS_LIMIT;
use crate::systems;
use crate::tree::names;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser};
use clap::{Args, Parser, Subcommand, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// Mneme beside its peers and beside what the memory can do. Every figure is measured in one run,
/// interleaved.
#[derive(Debug, Parser)]
#[command(name = "mneme-bench", version, after_help = papers())]
pub struct Options {
    /// What every workload understands.
    #[command(flatten)]
    pub common: Common,
    /// What to measure.
    #[command(subcommand)]
    pub workload: Workload,
}

/// The workloads that answer a paper's figure. They are the program `mneme-paper-bench`, which this
/// one runs.
pub const PAPERS: [&str; 19] = [
    "compaction",
    "contig",
    "cr3",
    "file-overhead",
    "flush",
    "gups",
    "hugepages",
    "parts",
    "postmark",
    "protect",
    "rangemap",
    "rcu",
    "redisjmp",
    "samtools",
    "simulate",
    "switch",
    "tenant",
    "versioning",
    "wear",
];

/// What the help says of them.
fn papers() -> String {
    let words = PAPERS.join(", ");
    format!("To answer a figure of a paper (`WORD --help` describes one): {words}")
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
    /// Latencies of PUT while the index grows, beside an idle loop's, concurrent maps and Redis.
    Growth(Growth),
    /// Our server beside Redis, Valkey and memcached: throughput, CPU time, latencies under load,
    /// memory, fragmentation.
    Server,
    /// Hashes, sets, sorted sets and lists, small and large: CPU time a command and bytes an
    /// element of our server beside Redis and Valkey; a program that has attached the store.
    Collections,
    /// Memory and CPU time of data that is overwritten, thinned out and left alone: our server
    /// beside Redis and Valkey, and a store in private memory.
    Steady(Steady),
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
    /// Runs one pattern on one system and prints its resident bytes (used by `frag`, in a process
    /// of its own).
    #[command(hide = true)]
    Resident(Resident),
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
    /// A word of [`PAPERS`], and what stands behind it.
    #[command(external_subcommand)]
    Paper(Vec<OsString>),
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

/// What `steady` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Steady {
    /// The curve over fill targets alone, in private memory: no servers, and no idleness.
    #[arg(long)]
    pub curve: bool,
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

/// What the workloads of durable stores understand besides.
#[derive(Debug, Clone, Args)]
pub struct Durable {
    /// Where the data directories are made, for the time of the run: on the disk that is measured.
    #[arg(long, value_name = "DIR", default_value = "target")]
    pub dir: PathBuf,
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
pub fn peers(known: &[&'static str]) -> PossibleValuesParser {
    PossibleValuesParser::new(known.iter().copied().chain(["none"]))
}

/// The peers that were asked for; `none` is no name of any.
pub fn chosen(asked: &[String]) -> Vec<String> {
    let asked = asked.iter().filter(|name| *name != "none");
    asked.cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The options in these words.
    pub fn parsed(words: &str) -> Result<Options, String> {
        let words = ["mneme-bench"].into_iter().chain(words.split_whitespace());
        Options::try_parse_from(words).map_err(|error| error.to_string())
    }

    #[test]
    fn a_papers_workload_and_its_arguments_are_passed_on() {
        match parsed("--quick gups --rounds 1").unwrap().workload {
            Workload::Paper(words) => assert_eq!(words, ["gups", "--rounds", "1"]),
            _ => unreachable!("gups is not a workload of this program"),
        }
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
    fn invalid_arguments_are_refused_with_a_reason() {
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
            "frag --peers memcached",
            "frag --patterns P9",
            "growth --records 10",
        ] {
            assert!(parsed(words).is_err(), "{words}");
        }
        for words in ["frag --patterns p4", "tree --records 1000,2000"] {
            assert!(parsed(words).is_ok(), "{words}");
        }
    }
}
