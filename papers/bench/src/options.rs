//! The command line.

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand, ValueEnum, value_parser};
use mneme_bench::options::{Common, Served, peers};
use mneme_bench::systems;
use std::path::PathBuf;

/// Figures of the papers behind Mneme, measured on this machine. Every figure is measured in one
/// run, interleaved.
#[derive(Debug, Parser)]
#[command(name = "mneme-paper-bench", version)]
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
    /// Updates of such lists on machines of several NUMA nodes, simulated, and by transactions:
    /// rates, aborts, elections.
    Simulate,
    /// An address space's ranges under faults, protection and mapping by several threads, against
    /// one lock and a reader-writer lock.
    Rangemap,
    /// Ranges of memory that several threads protect from writes and open again: by userfaultfd and
    /// a map of ranges, by userfaultfd alone, by mprotect.
    Protect,
    /// Reads of random pages between which the root of the page tables is switched, with and
    /// without tags in the TLB, in a guest under /dev/kvm.
    Cr3,
    /// What each part of the design is worth: epochs, heads, and what a PUT costs by policy and
    /// size.
    Parts,
    /// Time to completion of a file-system benchmark's trace, and by live share.
    Postmark(Postmark),
    /// Random updates of a table in windows: mapped anew for each, in segments with and without
    /// addresses of their own.
    Gups,
    /// What attaching, entering and switching cost, by size, and reading another process' data
    /// beside asking it.
    Switch,
    /// Clients that attach a store, against clients of Redis and of our server on unix sockets:
    /// GET, SET and mixes.
    Redisjmp,
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
    /// Serves a segment, or its own memory, on a unix socket (used by `redisjmp`, in a
    /// process of its own).
    #[command(hide = true)]
    Served(Served),
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

/// What `postmark` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Postmark {
    /// Peers, separated by commas, of dashmap, papaya, scc, moka; `none` for none.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values = systems::PEERS, value_parser = peers(&systems::PEERS))]
    pub peers: Vec<String>,
}

/// What `samtools` understands besides.
#[derive(Debug, Clone, Args)]
pub struct Samtools {
    /// Pairs of reads; 500,000 unless given, 40,000 with --quick. The paper's files had some seven
    /// million.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(100..=1_000_000_000))]
    pub pairs: Option<u64>,
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

#[cfg(test)]
pub mod tests {
    use super::*;
    use clap::CommandFactory;
    use mneme_bench::processes::act_in_test;

    /// The options of a test's run.
    pub fn common() -> Common {
        act_in_test("tests::another_process");
        mneme_bench::testing::common()
    }

    #[test]
    fn mneme_bench_knows_every_workload_of_this_program() {
        let command = Options::command();
        let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut words: Vec<_> = shown.map(|it| it.get_name()).collect();
        words.sort_unstable();
        assert_eq!(words, mneme_bench::options::PAPERS);
    }

    #[test]
    fn nonsense_is_refused() {
        let parsed = |words: &str| {
            Options::try_parse_from(["mneme-paper-bench"].into_iter().chain(words.split(' ')))
        };
        for words in ["tenant --sizes 64,16", "samtools --pairs 1", "ycsb"] {
            assert!(parsed(words).is_err(), "{words}");
        }
        assert!(parsed("tenant --sizes 64,4096").is_ok());
    }
}
