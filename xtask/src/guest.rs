//! Guests: Debian's kernel in QEMU without hardware virtualisation, with an initial file system
//! that holds all that the guest runs.
//!
//! [`Kit`] is what every guest is made of. The errands that boot guests say what runs in theirs.

pub mod cpio;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::files;
use crate::steps::{failed, printed, succeed, succeeds};
use crate::workspace::Workspace;

/// The emulator.
pub const QEMU: &str = "qemu-system-x86_64";

/// The package that names the present kernel for virtual machines.
pub const KERNEL: &str = "linux-image-cloud-amd64";

/// The package that names the kernel of the next release, where this one has it too.
pub const LATER_KERNEL: &str = "linux-image-6.12-cloud-amd64";

/// Linux 6.12 crashes at random in QEMU 7.2 where it finds CMPXCHG16B.
const CPU: &str = "max,-cx16";

/// The drivers of virtual disks and networks, each behind those that it needs.
const MODULES: [&str; 9] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_blk",
];

/// What every guest is made of, below the target directory.
pub struct Kit {
    directory: PathBuf,
    version: String,
    kernel: PathBuf,
    modules: PathBuf,
    busybox: PathBuf,
}

/// How a guest's CPUs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpus {
    /// Each is a thread.
    Threads,
    /// In turn, and the guest's clock counts their instructions: one a nanosecond. What it measures
    /// is the same in every run.
    Counted,
}

impl Kit {
    /// Debian's kernel and its BusyBox that needs no libraries, unpacked once.
    ///
    /// # Errors
    /// In words, where there is no QEMU, or where the packages cannot be had.
    pub fn fetch(workspace: &Workspace) -> Result<Self, String> {
        Self::of(workspace, KERNEL)
    }

    /// As [`fetch`](Self::fetch), with the kernel that the package `named` names.
    ///
    /// # Errors
    /// As there.
    pub fn of(workspace: &Workspace, named: &str) -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") || !succeeds(Command::new(QEMU).arg("--version")) {
            return Err(format!("needs {QEMU} on an x86-64 machine"));
        }
        let depends = printed(Command::new("apt-cache").args(["depends", named]))?;
        let image = depends
            .lines()
            .find_map(|line| line.trim().strip_prefix("Depends: "))
            .ok_or_else(|| format!("apt knows no {named}: `apt-get update` first"))?;
        let version = image.trim_start_matches("linux-image-");
        let directory = workspace.root.join("target/guest");
        unpack(&directory, image)?;
        unpack(&directory, "busybox-static")?;
        let kernel = directory.join(image);
        Ok(Self {
            version: version.to_owned(),
            modules: kernel.join("lib/modules").join(version).join("kernel"),
            kernel: kernel.join(format!("boot/vmlinuz-{version}")),
            busybox: directory.join("busybox-static/bin/busybox"),
            directory,
        })
    }

    /// An initial file system with BusyBox, and with what runs first.
    ///
    /// # Errors
    /// In words, when a file cannot be read.
    pub fn files(&self, init: &[u8]) -> Result<cpio::Archive, String> {
        let mut archive = cpio::Archive::default();
        for directory in ["proc", "sys", "dev", "bin"] {
            archive.directory(directory);
        }
        archive.program("init", init);
        archive.program("bin/busybox", &read(&self.busybox)?);
        Ok(archive)
    }

    /// Adds the drivers of virtual disks and networks as `modules/N`, to be loaded in this order.
    ///
    /// # Errors
    /// In words, when a module cannot be read.
    pub fn add_modules(&self, archive: &mut cpio::Archive) -> Result<(), String> {
        for (number, name) in MODULES.iter().enumerate() {
            // One that is not there is a part of this kernel.
            if let Some(module) = self.find(&format!("{name}.ko"))? {
                archive.file(&format!("modules/{number}"), &module);
            }
        }
        Ok(())
    }

    /// The directory in which modules for this kernel are built: its headers, and the programs that
    /// building takes.
    ///
    /// # Errors
    /// In words, when the packages cannot be had.
    pub fn headers(&self) -> Result<PathBuf, String> {
        let own = format!("linux-headers-{}", self.version);
        let root = self.directory.join(format!("{own}.all"));
        let sources = root.join("usr/src");
        if root.exists() {
            return Ok(sources.join(own));
        }
        // A package's links lead into the others: they lie beneath one root.
        let partial = self.directory.join(format!("{own}.joining"));
        let _ = fs::remove_dir_all(&partial);
        let depends = printed(Command::new("apt-cache").args(["depends", &own]))?;
        let needed = depends
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .filter(|name| name.ends_with("-common") || name.starts_with("linux-kbuild-"));
        for package in needed.chain([own.as_str()]) {
            unpack(&self.directory, package)?;
            let mut copy = Command::new("cp");
            copy.arg("-a")
                .arg(self.directory.join(package).join("."))
                .arg(&partial);
            fs::create_dir_all(&partial).map_err(failed("make", &partial))?;
            succeed(&mut copy)?;
        }
        let makefile = partial.join("usr/src").join(&own).join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(failed("read", &makefile))?;
        let text = text.replace(
            "include /usr/src/",
            &format!("include {}/", sources.display()),
        );
        fs::write(&makefile, text).map_err(failed("write", &makefile))?;
        fs::rename(&partial, &root).map_err(failed("make", &root))?;
        Ok(sources.join(own))
    }

    /// A module of this kernel, by its file's name.
    ///
    /// # Errors
    /// In words, when there is none, or it cannot be read.
    pub fn module(&self, name: &str) -> Result<Vec<u8>, String> {
        let found = self.find(name)?;
        found.ok_or_else(|| format!("this kernel has no {name}"))
    }

    /// A module, which later kernels have compressed.
    fn find(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let packed = format!("{name}.xz");
        let found = files::below(&self.modules, &["ko", "xz"]);
        let is_it = |path: &&PathBuf| {
            let file = path.file_name();
            file.is_some_and(|file| *file == *name || *file == *packed)
        };
        let Some(path) = found.iter().find(is_it) else {
            return Ok(None);
        };
        if path.extension().is_some_and(|end| end == "ko") {
            return read(path).map(Some);
        }
        let output = Command::new("xz").arg("-dc").arg(path).output();
        let output = output.map_err(|error| format!("xz: {error}"))?;
        match output.status.success() {
            true => Ok(Some(output.stdout)),
            false => Err(format!("xz cannot unpack {}", path.display())),
        }
    }

    /// The command that boots a guest with that initial file system, and writes what it says to
    /// `console`.
    pub fn command(&self, files: &Path, append: &str, console: &Path) -> Command {
        self.command_on(Cpus::Threads, files, append, console)
    }

    /// As [`command`](Self::command), with its CPUs run that way.
    pub fn command_on(&self, cpus: Cpus, files: &Path, append: &str, console: &Path) -> Command {
        let mut command = Command::new(QEMU);
        command.args(["-nodefaults", "-no-reboot", "-display", "none"]);
        match cpus {
            Cpus::Threads => command.args(["-accel", "tcg,thread=multi", "-cpu", CPU]),
            Cpus::Counted => {
                command.args(["-accel", "tcg,thread=single", "-icount", "shift=0"]);
                command.args(["-cpu", CPU])
            }
        };
        command.arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(files);
        // Beside other work the emulated timer is late for the check that the kernel begins with.
        let append = format!("console=ttyS0 quiet panic=-1 no_timer_check {append}");
        command.args(["-append", append.trim_end()]);
        let serial = format!("file:{}", console.display());
        command.args(["-serial", &serial]).stdin(Stdio::null());
        command
    }
}

/// Adds programs under their names in the guest, with the libraries that they load.
///
/// # Errors
/// In words, when a file cannot be read.
pub fn add_programs(
    archive: &mut cpio::Archive,
    programs: &[(String, PathBuf)],
) -> Result<(), String> {
    let mut libraries = BTreeSet::new();
    for (within, program) in programs {
        archive.program(within, &read(program)?);
        // It fails for a program without any.
        let output = Command::new("ldd").arg(program).output();
        let output = output.map_err(|error| format!("ldd: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let paths = said.split_whitespace().filter(|word| word.starts_with('/'));
        libraries.extend(paths.map(PathBuf::from));
    }
    for library in libraries {
        archive.program(&library.display().to_string(), &read(&library)?);
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(failed("read", path))
}

/// Fetches a package of the machine's own distribution and unpacks it into a directory of its name.
fn unpack(directory: &Path, package: &str) -> Result<(), String> {
    let to = directory.join(package);
    if to.exists() {
        return Ok(());
    }
    let partial = directory.join(format!("{package}.partial"));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).map_err(failed("make", &partial))?;
    let mut fetch = Command::new("apt-get");
    fetch.args(["-qq", "-o", "APT::Sandbox::User=root", "download", package]);
    succeed(fetch.current_dir(&partial))?;
    let fetched = files::below(&partial, &["deb"]);
    let archive = fetched.first();
    let archive = archive.ok_or_else(|| format!("no package {package} was fetched"))?;
    let mut open = Command::new("dpkg-deb");
    succeed(open.arg("-x").arg(archive).arg(partial.join("files")))?;
    let moved = fs::rename(partial.join("files"), &to);
    let _ = fs::remove_dir_all(&partial);
    moved.map_err(failed("make", &to))
}
