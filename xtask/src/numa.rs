//! `cargo xtask numa`: the tests that NUMA nodes matter to, on real ones.
//!
//! QEMU boots Debian's kernel with one, two and four nodes, each with CPUs and memory of its own.
//! The tests listed in `docs/proof.md` run there, from an initial file system that holds nothing
//! else. **Counts prove placement and protocol**: the guest's nodes are equally far, so nothing
//! that is measured there says what a distance costs.
//!
//! Ignored tests need several nodes and run where there are several.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::built;
use crate::guest::{self, Kit, QEMU};
use crate::proof::{Item, Proof};
use crate::steps::{Outcome, Steps, failed, skipped};
use crate::workspace::Workspace;

/// What the guest runs.
const INIT: &[u8] = include_bytes!("numa/init");

/// Nodes of each guest.
pub const GUESTS: [u64; 3] = [1, 2, 4];

/// Memory of a guest, shared out among its nodes. The log store's tests take 192 MiB of each of
/// four nodes, the file system 200 MiB.
const MEMORY_MIB: u64 = 3072;

/// Guests that run at a time. Most of their tests have one thread.
const AT_A_TIME: usize = 2;

/// A guest that runs longer is stuck. On two processors each takes 30 to 40 s, and up to a minute
/// and a half at a load of 20.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs all guests, or the one with so many nodes.
///
/// # Errors
/// One failed, or `docs/proof.md` cannot be read.
pub fn run_all(workspace: &Workspace, nodes: Option<u64>) -> Outcome {
    let chosen = nodes.map_or(GUESTS.to_vec(), |nodes| vec![nodes]);
    let mut steps = Steps::default();
    check(workspace, &chosen, &mut steps)?;
    steps.summary()
}

/// A step for each guest.
///
/// # Errors
/// In words, when `docs/proof.md` cannot be read.
pub fn check(workspace: &Workspace, guests: &[u64], steps: &mut Steps) -> Result<(), String> {
    let items = Proof::read(&workspace.root)?.numa;
    let directory = workspace.root.join("target/numa");
    fs::create_dir_all(&directory).map_err(failed("make", &directory))?;
    let made = Kit::fetch(workspace).or_else(skipped);
    let made = made.and_then(|kit| Ok((kit, programs(workspace, &items)?)));
    let (kit, programs) = match made {
        Ok(made) => made,
        Err(trouble) => {
            steps.run("NUMA guests", || Err(trouble));
            return Ok(());
        }
    };
    let run = |nodes| -> Result<(String, Duration), String> {
        let began = Instant::now();
        let files = files(&kit, &items, &programs, nodes)?;
        let console = boot(&kit, &directory, &files, nodes)?;
        Ok((console, began.elapsed()))
    };
    // The largest first: the others run beside it.
    let waiting = Mutex::new(guests.iter().copied().collect::<BTreeSet<_>>());
    let next = || {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.pop_last()
    };
    thread::scope(|scope| {
        let (end, ended) = mpsc::channel();
        for _ in 0..AT_A_TIME {
            let end = end.clone();
            let (next, run) = (&next, &run);
            scope.spawn(move || {
                while let Some(nodes) = next() {
                    // Nobody learns of it if a step has panicked.
                    let _ = end.send((nodes, run(nodes)));
                }
            });
        }
        drop(end);
        let mut consoles = BTreeMap::new();
        for &nodes in guests {
            // The time of a step is that of waiting for its guest.
            steps.run(&format!("NUMA guest of {nodes} node(s)"), || {
                while !consoles.contains_key(&nodes)
                    && let Ok((ended, console)) = ended.recv()
                {
                    consoles.insert(ended, console);
                }
                let console = consoles.remove(&nodes).ok_or("the guest was not run")?;
                let (console, took) = console?;
                println!("  ran for {:.1} s", took.as_secs_f64());
                Ok(judge(&console, items.len())?)
            });
        }
    });
    Ok(())
}

/// Where the test programs lie, one for each item.
fn programs(workspace: &Workspace, items: &[Item]) -> Result<Vec<PathBuf>, String> {
    let targets: BTreeSet<_> = items.iter().map(|item| &*item.arguments[0]).collect();
    let targets: Vec<_> = targets.iter().flat_map(|t| t.split_whitespace()).collect();
    let built = built::tests(workspace, &targets)?;
    let each = items.iter().map(|item| {
        let package = workspace.package(&item.package)?;
        let name = item.arguments[0].trim_start_matches("--test ");
        let found = built::test_of(&built, package, name).map(Path::to_path_buf);
        found.ok_or_else(|| format!("cargo built no {} of {}", item.arguments[0], item.package))
    });
    each.collect()
}

/// Writes the guest's initial file system: the tests, and the list of them.
fn files(kit: &Kit, items: &[Item], programs: &[PathBuf], nodes: u64) -> Result<Vec<u8>, String> {
    let mut archive = kit.files(INIT)?;
    let (mut list, mut within) = (String::new(), Vec::new());
    for (number, (item, program)) in items.iter().zip(programs).enumerate() {
        let ignored = if nodes > 1 { "--include-ignored" } else { "" };
        let (target, filter) = (&item.arguments[0], item.arguments[1].trim_matches('-'));
        let label = format!("{}:{}", item.package, target.trim_start_matches("--test "));
        list += &format!("{label} /test/{number} {filter} {ignored}\n");
        within.push((format!("test/{number}"), program.clone()));
    }
    archive.file("tests", list.as_bytes());
    guest::add_programs(&mut archive, &within)?;
    Ok(archive.end())
}

/// Boots a guest, waits for its end, and returns what came over its console.
fn boot(kit: &Kit, directory: &Path, files: &[u8], nodes: u64) -> Result<String, String> {
    let log = directory.join(format!("guest-{nodes}.log"));
    let archive = directory.join(format!("files-{nodes}.cpio"));
    fs::write(&archive, files).map_err(failed("write", &archive))?;
    let cpus = 2 * nodes;
    // A pool of huge pages for the tests that need one.
    let mut command = kit.command(&archive, "hugepages=64", &log);
    command.args(["-smp", &format!("{cpus},sockets={nodes},cores=2")]);
    command.args(["-m", &MEMORY_MIB.to_string()]);
    for node in 0..nodes {
        let (size, first) = (MEMORY_MIB / nodes, 2 * node);
        let memory = format!("memory-backend-ram,id=m{node},size={size}M");
        command.args(["-object", &memory]);
        let last = first + 1;
        let node = format!("node,nodeid={node},memdev=m{node},cpus={first}-{last}");
        command.args(["-numa", &node]);
    }
    let mut guest = command
        .spawn()
        .map_err(|error| format!("{QEMU}: {error}"))?;
    let ended = wait(&mut guest);
    let console = fs::read_to_string(&log).unwrap_or_default();
    match ended {
        Ok(true) => Ok(console),
        Ok(false) => Err(format!("the guest failed: see {}", log.display())),
        Err(why) => Err(format!("{why}: see {}", log.display())),
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
