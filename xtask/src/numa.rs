//! `cargo xtask numa`: the tests that NUMA nodes matter to, on real ones.
//!
//! QEMU boots Debian's kernel with one, two and four nodes, each with CPUs and memory of its own.
//! The tests listed in `docs/proof.md` run there, from an initial file system that holds nothing
//! else. **Counts prove placement and protocol**: the guest's nodes are equally far, so nothing
//! that is measured there says what a distance costs.
//!
//! Ignored tests need several nodes and run where there are several.

mod cpio;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::proof::{Item, Proof};
use crate::steps::{Outcome, Steps, succeeds};
use crate::workspace::Workspace;

const QEMU: &str = "qemu-system-x86_64";

/// The package that names the present kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";

/// What the guest runs.
const INIT: &[u8] = include_bytes!("numa/init");

/// Nodes of each guest.
pub const GUESTS: [u64; 3] = [1, 2, 4];

/// Memory of a guest, shared out among its nodes. The log store's tests take 192 MiB of each of
/// four nodes, the file system 200 MiB.
const MEMORY_MIB: u64 = 3072;

/// A guest that runs longer is stuck. On two processors each takes 30 to 40 s, and up to a minute
/// and a half at a load of 20.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs all guests; true when none failed.
///
/// # Errors
/// In words, for an unknown flag, or when `docs/proof.md` cannot be read.
pub fn run_all(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let chosen = match arguments {
        [] => GUESTS.to_vec(),
        [flag, nodes] if flag == "--nodes" => {
            let nodes = nodes.parse().ok().filter(|nodes| (1..=8).contains(nodes));
            vec![nodes.ok_or("--nodes wants a number from 1 to 8")?]
        }
        _ => return Err(format!("`numa` has no flags `{}`", arguments.join(" "))),
    };
    let mut steps = Steps::default();
    check(workspace, &chosen, &mut steps)?;
    Ok(steps.summary())
}

/// A step for each guest.
///
/// # Errors
/// In words, when `docs/proof.md` cannot be read.
pub fn check(workspace: &Workspace, guests: &[u64], steps: &mut Steps) -> Result<(), String> {
    let items = Proof::read(&workspace.root)?.numa;
    let directory = workspace.root.join("target/numa");
    if !cfg!(target_arch = "x86_64") || !succeeds(Command::new(QEMU).arg("--version")) {
        let why = format!("needs {QEMU} on an x86-64 machine");
        steps.run("NUMA guests", || Outcome::Skipped(why));
        return Ok(());
    }
    let machine = match Machine::fetch(&directory) {
        Ok(machine) => machine,
        Err(why) => {
            steps.run("NUMA guests", || Outcome::Skipped(why));
            return Ok(());
        }
    };
    let programs = match programs(workspace, &items) {
        Ok(programs) => programs,
        Err(why) => {
            steps.run("NUMA guests", || Outcome::Failed(why));
            return Ok(());
        }
    };
    for &nodes in guests {
        steps.run(&format!("NUMA guest of {nodes} node(s)"), || {
            let done = machine
                .files(&items, &programs, nodes)
                .and_then(|()| machine.boot(nodes))
                .and_then(|console| judge(&console, items.len()));
            done.map_or_else(Outcome::Failed, |()| Outcome::Passed)
        });
    }
    Ok(())
}

/// Where the test programs lie, one for each item.
fn programs(workspace: &Workspace, items: &[Item]) -> Result<Vec<PathBuf>, String> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(&workspace.root)
        .args(["test", "--no-run"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    let packages: BTreeSet<_> = items.iter().map(|item| &item.package).collect();
    for package in packages {
        cargo.args(["-p", package]);
    }
    let targets: BTreeSet<_> = items.iter().map(|item| &item.arguments[0]).collect();
    for target in targets {
        cargo.args(target.split_whitespace());
    }
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let built: Vec<Value> = said
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let of = |item: &Item| {
        let directory = workspace.root.join("crates");
        let package = workspace
            .packages
            .iter()
            .find(|p| p.name == item.package)
            .map_or(directory, |p| p.directory.clone());
        let manifest = package.join("Cargo.toml");
        let name = item.arguments[0].trim_start_matches("--test ");
        let found = built.iter().find_map(|message| {
            let is_it = message["manifest_path"].as_str() == manifest.to_str()
                && message["target"]["name"].as_str() == Some(name);
            message["executable"].as_str().filter(|_| is_it)
        });
        found
            .map(PathBuf::from)
            .ok_or_else(|| format!("cargo built no {} of {}", item.arguments[0], item.package))
    };
    items.iter().map(of).collect()
}

/// What a guest is made of, below the target directory.
struct Machine {
    directory: PathBuf,
    kernel: PathBuf,
    busybox: PathBuf,
}

impl Machine {
    /// Debian's kernel and its BusyBox that needs no libraries, unpacked once.
    fn fetch(directory: &Path) -> Result<Machine, String> {
        let named = Command::new("apt-cache")
            .args(["depends", KERNEL])
            .output()
            .map_err(|error| format!("the kernel's package cannot be had: apt-cache: {error}"))?;
        let depends = String::from_utf8_lossy(&named.stdout);
        let image = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "))
            .ok_or_else(|| format!("apt knows no {KERNEL}: `apt-get update` first"))?;
        let version = image.trim_start_matches("linux-image-");
        unpack(directory, image)?;
        unpack(directory, "busybox-static")?;
        Ok(Machine {
            kernel: directory
                .join(image)
                .join(format!("boot/vmlinuz-{version}")),
            busybox: directory.join("busybox-static/bin/busybox"),
            directory: directory.to_path_buf(),
        })
    }

    /// Writes the guest's initial file system: BusyBox, the tests and the libraries they load.
    fn files(&self, items: &[Item], programs: &[PathBuf], nodes: u64) -> Result<(), String> {
        let read =
            |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
        let mut archive = cpio::Archive::default();
        for directory in ["proc", "sys", "dev", "bin", "test"] {
            archive.directory(directory);
        }
        archive.program("init", INIT);
        archive.program("bin/busybox", &read(&self.busybox)?);
        let mut list = String::new();
        for (number, (item, program)) in items.iter().zip(programs).enumerate() {
            let within = format!("test/{number}");
            archive.program(&within, &read(program)?);
            let ignored = if nodes > 1 { "--include-ignored" } else { "" };
            let (target, filter) = (&item.arguments[0], item.arguments[1].trim_matches('-'));
            let label = format!("{}:{}", item.package, target.trim_start_matches("--test "));
            list += &format!("{label} /{within} {filter} {ignored}\n");
        }
        archive.file("tests", list.as_bytes());
        for library in libraries(programs)? {
            archive.program(&library.display().to_string(), &read(&library)?);
        }
        let path = self.directory.join("files.cpio");
        fs::write(&path, archive.end()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Boots a guest, waits for its end, and returns what came over its console.
    fn boot(&self, nodes: u64) -> Result<String, String> {
        let log = self.directory.join(format!("guest-{nodes}.log"));
        let failed = |error: std::io::Error| format!("{QEMU}: {error}");
        let cpus = 2 * nodes;
        let mut command = Command::new(QEMU);
        command.args(["-nodefaults", "-no-reboot", "-display", "none"]);
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max"]);
        command.args(["-smp", &format!("{cpus},sockets={nodes},cores=2")]);
        command.args(["-m", &MEMORY_MIB.to_string()]);
        for node in 0..nodes {
            let (size, first) = (MEMORY_MIB / nodes, 2 * node);
            let memory = format!("memory-backend-ram,id=m{node},size={size}M");
            command.args(["-object", &memory]);
            let node = format!(
                "node,nodeid={node},memdev=m{node},cpus={first}-{}",
                first + 1
            );
            command.args(["-numa", &node]);
        }
        command.arg("-kernel").arg(&self.kernel);
        command
            .arg("-initrd")
            .arg(self.directory.join("files.cpio"));
        // A pool of huge pages for the tests that need one, and no waiting for a battery's clock.
        command.args(["-append", "console=ttyS0 quiet panic=-1 hugepages=64"]);
        command
            .arg("-serial")
            .arg(format!("file:{}", log.display()));
        let mut guest = command.stdin(Stdio::null()).spawn().map_err(failed)?;
        let ended = wait(&mut guest);
        let console = fs::read_to_string(&log).unwrap_or_default();
        match ended {
            Ok(true) => Ok(console),
            Ok(false) => Err(format!("the guest failed: see {}", log.display())),
            Err(why) => Err(format!("{why}: see {}", log.display())),
        }
    }
}

/// Waits for the guest's end, at most [`LIMIT`]; whether it ended well.
fn wait(guest: &mut Child) -> Result<bool, String> {
    let began = Instant::now();
    loop {
        match guest.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if began.elapsed() < LIMIT => thread::sleep(Duration::from_millis(50)),
            Ok(None) => {
                let _ = guest.kill();
                let _ = guest.wait();
                return Err(format!("the guest did not end within {LIMIT:?}"));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Fetches a package of the machine's own distribution and unpacks it into a directory of its name.
fn unpack(directory: &Path, package: &str) -> Result<(), String> {
    let to = directory.join(package);
    if to.exists() {
        return Ok(());
    }
    let failed = |what: &str| format!("the package {package} cannot be had: {what}");
    let partial = directory.join(format!("{package}.partial"));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(|error| failed(&error.to_string()))?;
    let mut fetch = Command::new("apt-get");
    fetch.args(["-qq", "-o", "APT::Sandbox::User=root", "download", package]);
    if !fetch
        .current_dir(&partial)
        .status()
        .is_ok_and(|s| s.success())
    {
        return Err(failed("apt-get download"));
    }
    let fetched = fs::read_dir(&partial).into_iter().flatten().flatten();
    let fetched = fetched.map(|entry| entry.path()).next();
    let archive = fetched.ok_or_else(|| failed("nothing was fetched"))?;
    let mut open = Command::new("dpkg-deb");
    open.arg("-x").arg(&archive).arg(partial.join("files"));
    if !open.status().is_ok_and(|status| status.success()) {
        return Err(failed("dpkg-deb -x"));
    }
    let moved = fs::rename(partial.join("files"), &to);
    let _ = fs::remove_dir_all(&partial);
    moved.map_err(|error| failed(&error.to_string()))
}

/// The libraries that the programs load, at the paths where they look for them.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, String> {
    let mut found = BTreeSet::new();
    for program in programs {
        let output = Command::new("ldd").arg(program).output();
        let output = output.map_err(|error| format!("ldd: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
        found.extend(paths.map(PathBuf::from));
    }
    Ok(found)
}

/// Prints what the tests counted, and says whether all of them ran and passed.
fn judge(console: &str, tests: usize) -> Result<(), String> {
    let (mut label, mut failures, mut ended) = ("", Vec::new(), 0);
    for line in console.lines().map(str::trim_end) {
        if let Some(begun) = line.strip_prefix("@begin ") {
            label = begun;
        } else if let Some(code) = line.strip_prefix("@end ") {
            ended += 1;
            if code != "0" {
                failures.push(format!("{label} (exit code {code})"));
            }
        } else if let Some(pages) = line.strip_prefix("@pages ") {
            let (local, other) = pages.split_once(' ').unwrap_or((pages, "?"));
            println!("  {label}: pages taken locally {local}, from another node {other}");
        } else if let Some((_, count)) = line.split_once("@count ") {
            println!("  {label}: {count}");
        } else if let Some(nodes) = line.strip_prefix("@nodes ") {
            println!("  nodes {nodes}");
        } else if line.starts_with("test result:") {
            println!("  {label}: {line}");
        }
    }
    if !failures.is_empty() {
        return Err(format!("{}; see target/numa", failures.join(", ")));
    }
    if ended != tests || !console.lines().any(|line| line.trim_end() == "@done") {
        return Err(format!(
            "{ended} of {tests} tests came to an end; see target/numa"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_stops_halfway_or_fails_a_test_is_a_failure() {
        let whole = "@begin a\r\n@end 0\r\n@begin b\r\n@end 0\r\n@done\r\n";
        assert_eq!(judge(whole, 2), Ok(()));
        assert!(judge(whole, 3).unwrap_err().contains("2 of 3"));
        assert!(judge("@begin a\n@end 0\n", 1).is_err(), "no @done");
        let failed = judge("@begin a\n@end 101\n@done\n", 1).unwrap_err();
        assert!(failed.contains("a (exit code 101)"), "{failed}");
        assert!(judge("Kernel panic", 0).is_err());
    }
}
