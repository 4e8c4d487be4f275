//! `cargo xtask power-cut`: what a durable server acknowledged is there after a power cut.
//!
//! A guest in QEMU serves from virtual disks, each with a file system and a server of its own,
//! while clients outside of it store values. QEMU notes each write and flush, and is killed. What
//! the next guest finds on a disk is a state that a disk with a write cache may be left in: all up
//! to the last flush before a moment that is drawn, and any part of what was written since. A
//! client has noted how long the log was when it received each acknowledgement, so that the moment
//! may lie anywhere between the start of the guest and its death, in recovery too.
//!
//! Twins show that this finds what it is for: a server whose syncs do nothing, and a file system
//! that does not flush the disk's cache, must lose something.

mod disk;
mod emulator;
mod random;
mod stream;
mod writes;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::built;
use crate::guest::{self, Kit};
use crate::ladder::drawn_seed;
use crate::steps::{Outcome, Steps, failed, skipped, succeed};
use crate::workspace::Workspace;
use disk::Disk;
use emulator::{Guest, free_ports};
use random::Random;
use stream::Promise;

/// What the guest runs.
const INIT: &[u8] = include_bytes!("power_cut/init");

/// Syncs that do nothing.
const UNSYNCED: &str = "int fsync(int f) { return 0; } int fdatasync(int f) { return 0; }\n";

/// Power cuts of a run, unless another number is asked for.
const CUTS: u64 = 6;

/// Bytes of a disk; its image takes those that were written. Each run of a server begins a file of
/// the journal of 64 MiB.
const DISK_MIB: u64 = 2048;

/// The first disk's server listens there in the guest.
const GUEST_PORT: u16 = 7000;

/// A guest that takes longer until it serves is stuck.
const LIMIT: Duration = Duration::from_secs(600);

/// A disk's server, and what it promises.
#[derive(Debug)]
struct Role {
    name: &'static str,
    mount: &'static str,
    policy: &'static str,
    library: &'static str,
    promise: Promise,
    /// It is broken on purpose, and must be seen to lose something.
    is_twin: bool,
}

const ALWAYS: Role = Role {
    name: "always",
    mount: "barrier=1",
    policy: "always",
    library: "",
    promise: Promise::All,
    is_twin: false,
};

const ROLES: [Role; 6] = [
    ALWAYS,
    ALWAYS,
    ALWAYS,
    Role {
        name: "everysec",
        policy: "everysec",
        promise: Promise::TwoSeconds,
        ..ALWAYS
    },
    Role {
        name: "twin whose syncs do nothing",
        library: "/lib/unsynced.so",
        is_twin: true,
        ..ALWAYS
    },
    Role {
        name: "twin whose disk is never flushed",
        mount: "barrier=0",
        is_twin: true,
        ..ALWAYS
    },
];

/// What is cut, and how often.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Power cuts
    #[arg(long, default_value_t = CUTS)]
    cuts: u64,
    /// Where choices begin; another each time unless given
    #[arg(long, default_value_t = drawn_seed(), hide_default_value = true)]
    seed: u64,
    /// `mneme`, already built; it is built unless given
    #[arg(long)]
    server: Option<PathBuf>,
}

impl Options {
    /// Of a usual run.
    pub fn of_seed(seed: u64) -> Self {
        Self {
            cuts: CUTS,
            seed,
            server: None,
        }
    }
}

/// Cuts the power as often as asked.
///
/// # Errors
/// Something promised was lost.
pub fn run_all(workspace: &Workspace, options: &Options) -> Outcome {
    let mut steps = Steps::default();
    check(workspace, options, &mut steps);
    steps.summary()
}

/// One step for all cuts.
pub fn check(workspace: &Workspace, options: &Options, steps: &mut Steps) {
    let (cuts, seed) = (options.cuts, options.seed);
    steps.run("power cuts", || {
        let kit = Kit::fetch(workspace).or_else(skipped)?;
        println!("{cuts} cuts, seed {seed}");
        let given = options.server.clone();
        let server = given.map_or_else(|| built::command(workspace), Ok);
        let machine = server.and_then(|server| Machine::new(workspace, &kit, server, seed));
        let done = machine.and_then(|mut machine| {
            for cut in 0..=cuts {
                machine.live(cut)?;
            }
            machine.judge()
        });
        done.map_err(|why| format!("{why}; seed {seed}").into())
    });
}

struct Machine<'a> {
    kit: &'a Kit,
    directory: PathBuf,
    /// A disk with an empty file system.
    empty: PathBuf,
    /// The guest's initial file system.
    files: PathBuf,
    disks: Vec<Disk>,
    random: Random,
}

impl<'a> Machine<'a> {
    fn new(
        workspace: &Workspace,
        kit: &'a Kit,
        server: PathBuf,
        seed: u64,
    ) -> Result<Self, String> {
        let directory = workspace.root.join("target/power-cut");
        fs::create_dir_all(&directory).map_err(failed("make", &directory))?;
        let unsynced = unsynced(&directory)?;
        let mut archive = kit.files(INIT)?;
        kit.add_modules(&mut archive)?;
        let server = ("bin/mneme".to_owned(), server);
        let library = (ROLES[4].library.to_owned(), unsynced);
        guest::add_programs(&mut archive, &[server, library])?;
        let empty = directory.join("empty.img");
        format(&empty)?;
        let mut machine = Self {
            kit,
            empty,
            files: directory.join("files.cpio"),
            disks: Vec::new(),
            random: Random::new(seed),
            directory,
        };
        let mut list = String::new();
        for (number, role) in ROLES.iter().enumerate() {
            let disk = Disk::new(&machine.directory, number, role);
            copy(&machine.empty, &disk.image)?;
            let (serial, port) = (&disk.serial, GUEST_PORT + number as u16);
            let Role {
                mount,
                policy,
                library,
                ..
            } = role;
            list += &format!("{serial} {port} {mount} {policy} {library}\n");
            machine.disks.push(disk);
        }
        archive.file("disks", list.as_bytes());
        fs::write(&machine.files, archive.end()).map_err(failed("write", &machine.files))?;
        Ok(machine)
    }

    /// A guest looks at what the last cut has left, and the power is cut while it serves.
    fn live(&mut self, cut: u64) -> Result<(), String> {
        let console = self.directory.join(format!("guest-{cut}.log"));
        // What an earlier run has left there says nothing of this one.
        File::create(&console).map_err(failed("make", &console))?;
        let ports = free_ports(self.disks.len())?;
        for disk in &self.disks {
            copy(&disk.image, &disk.present)?;
            File::create(&disk.log).map_err(failed("make", &disk.log))?;
        }
        let command = self.kit.command(&self.files, "", &console);
        let mut guest = Guest::boot(command, &self.disks, &ports)?;
        let (served, moment) = (AtomicUsize::new(0), 500 + self.random.below(4000));
        let disks = self.disks.len();
        let outcomes: Vec<Result<(), String>> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (disk, port) in self.disks.iter_mut().zip(&ports) {
                let (random, served, console) = (self.random.draw(), &served, &console);
                let random = Random::new(random);
                threads.push(scope.spawn(move || disk.live(*port, cut, random, served, console)));
            }
            let begun = Instant::now();
            while served.load(Ordering::Relaxed) < disks && begun.elapsed() < LIMIT {
                thread::sleep(Duration::from_millis(20));
            }
            let took = begun.elapsed().as_secs();
            println!("  guest {cut} serves after {took} s, and is killed {moment} ms later");
            thread::sleep(Duration::from_millis(moment));
            let killed = guest.stop_and_kill();
            let ended = threads.into_iter().map(|thread| {
                let panicked = |_| Err("a client panicked".to_owned());
                thread.join().unwrap_or_else(panicked)
            });
            [killed].into_iter().chain(ended).collect()
        });
        outcomes.into_iter().collect::<Result<(), _>>()?;
        for disk in &mut self.disks {
            if disk.is_ruined {
                disk.begin_anew();
                copy(&self.empty, &disk.image)?;
                continue;
            }
            disk.cut(&mut self.random)?;
        }
        Ok(())
    }

    /// Prints what was found, and says whether that is what it should be.
    fn judge(&self) -> Result<(), String> {
        let mut wrong = Vec::new();
        let mut names: Vec<_> = ROLES.iter().map(|role| role.name).collect();
        names.dedup();
        for name in names {
            let of = || self.disks.iter().filter(|disk| disk.role.name == name);
            let sum = |count: fn(&Disk) -> u64| of().map(count).sum::<u64>();
            let losses = sum(|disk| disk.losses);
            let window = of().map(|disk| disk.found.window).max().unwrap_or_default();
            println!(
                "  {name}: {} states, {losses} with less than promised; {} values promised, {} of \
                 them lost; what was lost was at most {} ms old; of {} sectors not flushed {} lost",
                sum(|disk| disk.looks),
                sum(|disk| disk.found.promised),
                sum(|disk| disk.found.lost),
                window.as_millis(),
                sum(|disk| disk.unflushed),
                sum(|disk| disk.dropped),
            );
            let is_twin = of().any(|disk| disk.role.is_twin);
            let promised = sum(|disk| disk.found.promised);
            // A run in which nothing was promised shows nothing.
            if is_twin != (losses > 0) || (promised == 0 && !is_twin) {
                wrong.push(name);
            }
        }
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("not as it should be: {}", wrong.join(", "))),
        }
    }
}

/// Builds the library that makes syncs do nothing.
fn unsynced(directory: &Path) -> Result<PathBuf, String> {
    let (source, library) = (directory.join("unsynced.c"), directory.join("unsynced.so"));
    fs::write(&source, UNSYNCED).map_err(failed("write", &source))?;
    let mut compile = Command::new("cc");
    compile
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    succeed(&mut compile).map(|()| library)
}

/// Makes a disk with an empty file system.
fn format(image: &Path) -> Result<(), String> {
    let file = File::create(image).map_err(failed("make", image))?;
    file.set_len(DISK_MIB << 20)
        .map_err(failed("make", image))?;
    let mut format = Command::new("mke2fs");
    // All is written now, and not by the guest's kernel in the background.
    let all = "lazy_itable_init=0,lazy_journal_init=0";
    succeed(
        format
            .args([
                "-q", "-F", "-t", "ext4", "-J", "size=16", "-N", "1024", "-E", all,
            ])
            .arg(image),
    )
}

/// Copies a file with its holes.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    succeed(Command::new("cp").arg("--sparse=always").arg(from).arg(to))
}
