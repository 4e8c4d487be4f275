//! `cargo xtask kernel WORD`: the papers' kernel modules, built against Debian's headers and tried
//! in a guest.
//!
//! A guest's kernel may be brought down by a module; this machine's never loads one. In it run
//! `papers/kernel/WORD/init` and `test.c`, which print `@ok` or `@fail` for each promise and `@row`
//! for the table. The guest's clock counts instructions, so that the table is nearly the same in
//! every run and says nothing of nanoseconds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::built;
use crate::files;
use crate::guest::{self, Cpus, Kit};
use crate::steps::{Outcome, all, failed, run, skipped};
use crate::workspace::Workspace;

/// Which module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Module {
    /// Guaranteed contiguous memory, beside CMA's engine
    Gcma,
    /// Address spaces that are switched by an entry of page tables
    Vas,
}

/// Of Debian's kernels, which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Release {
    /// 6.1, which Debian 12 has
    #[value(name = "6.1")]
    Stable,
    /// 6.12, which Debian 13 has, built for Debian 12
    #[value(name = "6.12")]
    Later,
}

impl Release {
    fn image(self) -> &'static str {
        match self {
            Self::Stable => guest::KERNEL,
            Self::Later => guest::LATER_KERNEL,
        }
    }
}

/// A guest that runs longer is stuck. Beside other work it takes some two minutes.
const LIMIT: Duration = Duration::from_secs(900);

/// The compiler that the distribution builds its kernel with, which the headers name.
const COMPILER: &str = "gcc-12";

/// What a module's guest is made of.
struct Trial {
    directory: &'static str,
    /// Tests of the product that the guest runs with the module loaded: their packages, the
    /// arguments by which cargo builds them, and their targets.
    tests: &'static [(&'static str, &'static [&'static str], &'static str)],
    /// Modules of the kernel itself that are loaded before.
    needs: &'static [&'static str],
    modules: &'static [&'static str],
    memory_mib: u32,
    /// 0: none.
    disk_mib: u64,
    guests: &'static [Guest],
}

/// One run of the tests.
struct Guest {
    /// Where it is one, its instructions are counted. Several come up too slowly that way.
    cpus: u32,
    /// What the kernel is given at its start.
    append: &'static str,
}

impl Module {
    fn trial(self) -> Trial {
        match self {
            // The program takes 560 MiB, of which a part does not fit beside the kernel and the
            // area.
            Self::Gcma => Trial {
                directory: "gcma",
                tests: &[("mneme-arena", &["--test", "guaranteed"], "guaranteed")],
                needs: &["dm-mod.ko"],
                modules: &["gcma.ko", "contig.ko"],
                memory_mib: 704,
                disk_mib: 1024,
                guests: &[Guest {
                    cpus: 1,
                    append: "movablecore=256M mib=560",
                }],
            },
            // Page tables of five levels and of four.
            Self::Vas => Trial {
                directory: "vas",
                tests: &[
                    ("mneme-space", &["--lib"], "mneme_space"),
                    ("mneme-space", &["--test", "integration"], "integration"),
                ],
                needs: &[],
                modules: &["vas.ko"],
                memory_mib: 512,
                disk_mib: 0,
                guests: &[
                    Guest {
                        cpus: 1,
                        append: "nopti no5lvl",
                    },
                    Guest {
                        cpus: 2,
                        append: "nopti",
                    },
                    Guest {
                        cpus: 4,
                        append: "nopti no5lvl",
                    },
                ],
            },
        }
    }
}

/// Builds a module, boots a guest that tries it, and prints what it found.
///
/// # Errors
/// A promise does not hold; it is skipped without QEMU, or where the packages cannot be had.
pub fn run_one(workspace: &Workspace, module: Module, release: Release) -> Outcome {
    let trial = module.trial();
    let kit = Kit::of(workspace, release.image()).or_else(skipped)?;
    let headers = kit.headers().or_else(skipped)?;
    let target = workspace.root.join("target/kernel").join(trial.directory);
    let built = build(workspace, &trial, &headers, &target)?;
    all(trial.guests.iter().map(|guest| {
        println!("a guest with {} CPU(s): {}", guest.cpus, guest.append);
        let console = boot(&kit, &trial, guest, &built, &target)?;
        judge(&console)
    }))
}

/// Builds modules and test in a directory of their own; where they lie.
fn build(
    workspace: &Workspace,
    trial: &Trial,
    headers: &Path,
    target: &Path,
) -> Outcome<Vec<(String, PathBuf)>> {
    let sources = workspace.root.join("papers/kernel").join(trial.directory);
    let within = target.join("build");
    let _ = fs::remove_dir_all(&within);
    fs::create_dir_all(&within).map_err(failed("make", &within))?;
    let shared = ["promise.h", "releases.h"].map(|name| sources.with_file_name(name));
    for source in files::below(&sources, &["c", "h"])
        .into_iter()
        .chain(shared)
        .chain(["Kbuild", "init"].map(|name| sources.join(name)))
    {
        let name = source.file_name().unwrap_or_default();
        files::copy(&source, &within.join(name))?;
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(headers);
    make.arg(format!("M={}", within.display()));
    // Warnings are errors here, and types for debuggers need a kernel image that is not there.
    make.args([
        "KCFLAGS=-Werror",
        "CONFIG_DEBUG_INFO_BTF_MODULES=",
        "modules",
    ]);
    run(&mut make)?;
    let program = within.join("test");
    let mut compile = Command::new(COMPILER);
    compile.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]);
    compile.arg(within.join("test.c")).arg("-o").arg(&program);
    run(&mut compile)?;
    let modules = trial.modules.iter();
    let modules = modules.map(|name| ((*name).to_owned(), within.join(name)));
    let tests = trial.tests.iter().map(|(package, arguments, target)| {
        let made = [&["test", "--no-run", "-p", package], *arguments].concat();
        let made = built::build(workspace, &made)?.into_iter();
        let mut programs = made.filter(|made| made.target == *target);
        let program = programs.find_map(|made| made.executable);
        let program = program.ok_or_else(|| format!("cargo built no {target} of {package}"))?;
        Ok((format!("test/{target}"), program))
    });
    let tests = tests.collect::<Result<Vec<_>, String>>()?;
    Ok(modules
        .chain([(format!("test/{}", trial.directory), program)])
        .chain(tests)
        .collect())
}

/// Boots the guest and waits for its end; what it said.
fn boot(
    kit: &Kit,
    trial: &Trial,
    guest: &Guest,
    built: &[(String, PathBuf)],
    target: &Path,
) -> Result<String, String> {
    let init = target.join("build/init");
    let init = fs::read(&init).map_err(failed("read", &init))?;
    let mut archive = kit.files(&init)?;
    kit.add_modules(&mut archive)?;
    for name in trial.needs {
        archive.file(name, &kit.module(name)?);
    }
    guest::add_programs(&mut archive, built)?;
    let files = target.join("files.cpio");
    fs::write(&files, archive.end()).map_err(failed("write", &files))?;
    let log = target.join("guest.log");
    let cpus = match guest.cpus {
        1 => Cpus::Counted,
        _ => Cpus::Threads,
    };
    let mut command = kit.command_on(cpus, &files, guest.append, &log);
    command.args(["-m", &trial.memory_mib.to_string()]);
    command.args(["-smp", &guest.cpus.to_string()]);
    let disk = target.join("disk");
    if trial.disk_mib > 0 {
        let made = File::create(&disk).and_then(|file| file.set_len(trial.disk_mib << 20));
        made.map_err(failed("make", &disk))?;
        let drive = format!("file={},format=raw,if=virtio,cache=unsafe", disk.display());
        command.args(["-drive", &drive]);
    }
    let mut running = command.spawn().map_err(|error| error.to_string())?;
    let ended = wait(&mut running);
    // It holds what the guest swapped out.
    let _ = fs::remove_file(&disk);
    ended.map_err(|why| format!("{why}: see {}", log.display()))?;
    fs::read_to_string(&log).map_err(failed("read", &log))
}

fn wait(guest: &mut Child) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match guest.try_wait().map_err(|error| error.to_string())? {
            Some(_) => return Ok(()),
            None if began.elapsed() < LIMIT => thread::sleep(Duration::from_millis(50)),
            None => {
                let _ = guest.kill();
                let _ = guest.wait();
                return Err(format!("the guest did not end within {LIMIT:?}"));
            }
        }
    }
}

/// Prints the table, and says which promises were broken.
fn judge(console: &str) -> Outcome {
    let mut broken = Vec::new();
    let mut kept = 0;
    for line in console.lines().map(str::trim_end) {
        if let Some(row) = line.strip_prefix("@row ") {
            println!("  {row}");
        } else if line.starts_with("@ok ") {
            kept += 1;
        } else if let Some(promise) = line.strip_prefix("@fail ") {
            broken.push(promise.to_owned());
        }
    }
    if !broken.is_empty() {
        return Err(format!("not so: {}; see target/kernel", broken.join("; ")).into());
    }
    if kept == 0 || !console.lines().any(|line| line.trim_end() == "@done") {
        return Err("the guest stopped halfway; see target/kernel".into());
    }
    println!("  {kept} promises kept");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::judge;

    #[test]
    fn a_guest_that_stops_halfway_or_breaks_a_promise_is_a_failure() {
        assert_eq!(judge("@ok a\r\n@row b\r\n@done\r\n"), Ok(()));
        assert!(judge("@ok a\n").is_err(), "no @done");
        assert!(judge("@done\n").is_err(), "nothing was tried");
        let broken = judge("@ok a\n@fail b\n@done\n").unwrap_err();
        assert!(broken.to_string().contains("not so: b"), "{broken}");
    }
}
