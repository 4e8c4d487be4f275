//! What sources may not reach for, where it is allowed nevertheless, and why.

use std::path::Path;

/// Something a source file can do that only some crates may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// Memory from the operating system: mappings, advice, NUMA policy.
    Memory,
    /// The time.
    Clock,
    /// Which CPUs there are and which one runs this.
    Cpu,
    /// The operating system by its C interface, whatever for.
    System,
    /// Instructions that the compiler does not see through.
    Assembly,
    /// Files opened by a layer that works on regions it is given.
    Files,
    /// Output, or the end of the process.
    Terminal,
}

impl Reach {
    /// What to do instead.
    pub fn instead(self) -> &'static str {
        match self {
            Reach::Memory => "memory comes from `mneme_sys::Region`",
            Reach::Clock => "the time comes from `mneme_sys::Clock`",
            Reach::Cpu => "CPUs come from `mneme_sys::Topology`",
            Reach::System => "only `mneme-sys` speaks to the operating system",
            Reach::Assembly => {
                "instructions of the machine belong to `mneme-sys`, behind a function"
            }
            Reach::Files => "this layer works on the regions it is given",
            Reach::Terminal => "a library neither prints nor exits",
        }
    }
}

/// Paths (as written after resolving `use`, `core` read as `std`) that reach for something.
/// A path matches when it begins with one of these, or is a glob import of something above one.
pub const PATHS: &[(&[&str], Reach)] = &[
    (&["libc"], Reach::System),
    (&["rustix"], Reach::System),
    (&["nix"], Reach::System),
    (&["memmap2"], Reach::Memory),
    (&["num_cpus"], Reach::Cpu),
    (&["core_affinity"], Reach::Cpu),
    (&["std", "time", "Instant"], Reach::Clock),
    (&["std", "time", "SystemTime"], Reach::Clock),
    (&["std", "time", "UNIX_EPOCH"], Reach::Clock),
    (&["std", "arch", "x86_64", "_rdtsc"], Reach::Clock),
    (&["std", "arch", "x86_64", "__rdtscp"], Reach::Clock),
    (&["std", "arch", "x86_64", "__cpuid"], Reach::Cpu),
    (&["std", "arch", "x86_64", "__cpuid_count"], Reach::Cpu),
    (&["std", "thread", "available_parallelism"], Reach::Cpu),
    (&["std", "fs"], Reach::Files),
    (&["std", "process", "exit"], Reach::Terminal),
    (&["std", "process", "abort"], Reach::Terminal),
    (&["std", "io", "stdout"], Reach::Terminal),
    (&["std", "io", "stderr"], Reach::Terminal),
];

/// Macros that reach for something.
pub const MACROS: &[(&str, Reach)] = &[
    ("asm", Reach::Assembly),
    ("global_asm", Reach::Assembly),
    ("print", Reach::Terminal),
    ("println", Reach::Terminal),
    ("eprint", Reach::Terminal),
    ("eprintln", Reach::Terminal),
    ("dbg", Reach::Terminal),
];

/// Beginnings of string literals that name the kernel's files.
pub const KERNEL_FILES: &[&str] = &["/proc/", "/sys/", "/dev/"];

/// An allowance: below this path (relative to the root), these reaches, for this reason.
struct Allowance {
    under: &'static str,
    reaches: &'static [Reach],
    #[expect(dead_code, reason = "for whoever reads the table")]
    why: &'static str,
}

const ALLOWANCES: &[Allowance] = &[
    Allowance {
        under: "crates/sys/src",
        reaches: &[
            Reach::Memory,
            Reach::Clock,
            Reach::Cpu,
            Reach::System,
            Reach::Assembly,
            Reach::Files,
        ],
        why: "it is the machine",
    },
    Allowance {
        under: "crates/log/src/index/tags.rs",
        reaches: &[Reach::Assembly],
        why: "vector loads of a bucket's words that cannot tear, inlined in every lookup: arithmetic, no call to anybody",
    },
    Allowance {
        under: "crates/tree/src/attach.rs",
        reaches: &[Reach::Files],
        why: "a store's file is locked, and its control region found, by path",
    },
    Allowance {
        under: "crates/tree/src/open.rs",
        reaches: &[Reach::Files],
        why: "a store is one file, opened and locked by path; its mapping comes from `sys`",
    },
    Allowance {
        under: "crates/space/src",
        reaches: &[Reach::Files],
        why: "names live in the file system; memory still comes from `sys`",
    },
    Allowance {
        under: "crates/server/src",
        reaches: &[Reach::Files],
        why: "unix sockets and configuration live in the file system",
    },
    Allowance {
        under: "crates/mneme/src/lib.rs",
        reaches: &[Reach::Files],
        why: "the facade opens what the embedder names",
    },
    Allowance {
        under: "crates/mneme/src/main.rs",
        reaches: &[Reach::Files, Reach::Terminal],
        why: "the command talks to its user",
    },
    Allowance {
        under: "crates/mneme/src/command",
        reaches: &[Reach::Files, Reach::Terminal],
        why: "modules of the command, not of the library",
    },
    Allowance {
        under: "bench/src/tree/engines",
        reaches: &[Reach::System],
        why: "peers that are libraries of C: nothing of the operating system",
    },
    Allowance {
        under: "bench/src",
        reaches: &[Reach::Clock, Reach::Cpu, Reach::Files, Reach::Terminal],
        why: "a stopwatch that reports the machine; its memory still comes from `sys`",
    },
    Allowance {
        under: "papers/bench/src",
        reaches: &[Reach::Clock, Reach::Cpu, Reach::Files, Reach::Terminal],
        why: "as `bench`",
    },
    Allowance {
        under: "papers/genomics/src/load.rs",
        reaches: &[Reach::Files],
        why: "it loads the files that its user names",
    },
    Allowance {
        under: "papers/genomics/src/synthetic.rs",
        reaches: &[Reach::Files],
        why: "it has another program make files, and reads them",
    },
    Allowance {
        under: "papers/genomics/src/command",
        reaches: &[Reach::Files, Reach::Terminal],
        why: "the command talks to its user",
    },
    Allowance {
        under: "bindings/python/src/buffer.rs",
        reaches: &[Reach::System],
        why: "two functions of Python that PyO3 declares for 3.11 and later alone: nothing of the operating system",
    },
    Allowance {
        under: "bindings/python/src/mapped.rs",
        reaches: &[Reach::Files],
        why: "views map a segment's file once more, at an address of their own; the mapping comes from `sys`",
    },
    Allowance {
        under: "crates/testkit/src",
        reaches: &[Reach::Clock, Reach::Files, Reach::Terminal],
        why: "tests wait, have directories, and say what they skip; no product code knows it",
    },
    Allowance {
        under: "xtask",
        reaches: &[Reach::Clock, Reach::Cpu, Reach::Files, Reach::Terminal],
        why: "a tool of the workspace, outside the layers",
    },
];

/// Files that may need one another in a circle, in any crate.
pub const LARGEST_CIRCLE: usize = 8;

/// Names that several types of the product have, and why.
pub const SAME_NAMES: &[(&[&str], &str)] = &[
    (
        &["Arguments"],
        "what a subcommand of the command line takes, one a module",
    ),
    (
        &[
            "AttachError",
            "CreateError",
            "GrowError",
            "OpenError",
            "ServeError",
        ],
        "an operation's error in each layer that has the operation",
    ),
    (
        &[
            "Batch",
            "Builder",
            "Durability",
            "NodeStats",
            "Outcome",
            "Report",
            "Stats",
            "Store",
            "Stored",
            "Transaction",
            "Value",
            "View",
        ],
        "public in several crates, whose paths distinguish them",
    ),
    (
        &["Entry", "State"],
        "the field's word in each of the modules that have one",
    ),
];

/// Files that stand in for another under a tool, and so define its types a second time.
pub const STAND_INS: &[(&str, &str)] = &[(
    "crates/sys/src/region/heap.rs",
    "the module `backing` under Miri, which cannot map memory",
)];

/// Whether the file may reach for that.
pub fn allowed(file: &Path, reach: Reach) -> bool {
    ALLOWANCES
        .iter()
        .any(|allowance| file.starts_with(allowance.under) && allowance.reaches.contains(&reach))
}
