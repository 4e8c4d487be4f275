//! The machine a figure comes from.

use mneme_sys::{SysfsTopology, Topology};
use serde_json::{Value, json};
use std::fmt;

/// What one has to know about a machine to judge its figures.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// CPUs this process may use.
    pub cpus: usize,
    /// NUMA nodes.
    pub nodes: usize,
    /// The largest shared cache, as the kernel writes it.
    pub cache: String,
    /// Bytes of memory.
    pub memory: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The setting of transparent huge pages.
    pub thp: String,
    /// Pages of 2 MiB in the reserved pool.
    pub hugetlb_pages: u64,
    /// Whether the build is optimised: `release` or `debug`.
    pub build: &'static str,
    /// Processes that wanted a CPU during the last minute, on average, when the run began.
    pub load: f64,
}

impl Machine {
    /// The machine this runs on; what cannot be found out is `unknown` or 0.
    pub fn here() -> Self {
        let topology = SysfsTopology::detect();
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
        };
        let meminfo = read("/proc/meminfo");
        let number = |name: &str| {
            let line = meminfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let thp = read("/sys/kernel/mm/transparent_hugepage/enabled");
        let thp = thp.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
        Self {
            cpu: field("model name").unwrap_or_else(|| "unknown".to_owned()),
            cpus: topology.cpus(),
            nodes: topology.nodes(),
            cache: largest_cache(),
            memory: number("MemTotal:") << 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            thp,
            hugetlb_pages: number("HugePages_Total:"),
            build: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
            load: first_number(&read("/proc/loadavg")),
        }
    }

    /// A warning, if others wanted the CPUs when the run began.
    pub fn busy(&self) -> Option<String> {
        let busy = self.load > self.cpus as f64 / 2.0;
        busy.then(|| {
            let Self { load, cpus, .. } = self;
            format!("the machine was busy when the run began: load {load:.1} on {cpus} CPU(s)")
        })
    }

    /// As the document shows it.
    pub fn to_json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cpus": self.cpus,
            "nodes": self.nodes,
            "cache": self.cache,
            "memory_bytes": self.memory,
            "kernel": self.kernel,
            "thp": self.thp,
            "hugetlb_pages": self.hugetlb_pages,
            "build": self.build,
            "load": self.load,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} CPU(s), {} node(s), cache {}, {} GiB\nLinux {}, THP {}, hugetlb pool {} pages, {} build",
            self.cpu,
            self.cpus,
            self.nodes,
            self.cache,
            self.memory >> 30,
            self.kernel,
            self.thp,
            self.hugetlb_pages,
            self.build
        )
    }
}

/// The outermost cache of the first CPU.
fn largest_cache() -> String {
    (0..5)
        .rev()
        .map(|index| {
            read(&format!(
                "/sys/devices/system/cpu/cpu0/cache/index{index}/size"
            ))
        })
        .find(|size| !size.is_empty())
        .map_or_else(|| "unknown".to_owned(), |size| size.trim().to_owned())
}

/// CPUs of this machine.
pub fn cpus() -> usize {
    SysfsTopology::detect().cpus()
}

/// Bytes of memory this process has in use: resident pages of any size.
pub fn resident_bytes() -> u64 {
    resident_bytes_of("self")
}

/// The resident bytes of another process, by its id.
pub fn resident_bytes_of(process: &str) -> u64 {
    let status = read(&format!("/proc/{process}/status"));
    let lines = status
        .lines()
        .filter(|line| line.starts_with("VmRSS:") || line.starts_with("HugetlbPages:"));
    let kib = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.sum::<u64>() << 10
}

/// Bytes of memory that could still be taken.
pub fn available_bytes() -> u64 {
    let meminfo = read("/proc/meminfo");
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    (line.map_or(0.0, first_number) as u64) << 10
}

fn first_number(text: &str) -> f64 {
    let word = text.split_whitespace().next();
    word.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_cpus_memory_and_a_kernel() {
        let machine = Machine::here();
        assert!(machine.cpus >= 1 && machine.nodes >= 1);
        assert!(machine.memory > 0);
        assert!(!machine.kernel.is_empty());
    }

    #[test]
    fn touched_memory_is_resident() {
        let before = resident_bytes();
        let block = std::hint::black_box(vec![1u8; 128 << 20]);
        let grown = resident_bytes().saturating_sub(before);
        // Other tests come and go in the same process meanwhile.
        assert!(grown > 64 << 20, "{grown} for {}", block.len());
    }
}
