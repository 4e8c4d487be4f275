//! Reads the machine's state from `/proc`, `/sys` and `/etc`. All paths are relative to a root, so
//! that tests can make up machines.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mneme_space::Registry;
use mneme_sys::files::{self, Mount};

/// A machine, as described by its files.
pub struct Host {
    root: PathBuf,
    /// The user whose limits and registry are checked.
    pub uid: u32,
    /// The directory of the user's registry.
    pub registry: PathBuf,
}

impl Host {
    /// This machine.
    pub fn here() -> Self {
        Self {
            registry: Registry::default_root(),
            ..Self::at(PathBuf::from("/"), files::user())
        }
    }

    /// A machine whose files are below `root`.
    pub fn at(root: PathBuf, uid: u32) -> Self {
        Self {
            root,
            uid,
            registry: PathBuf::from("/run/user/0/mneme"),
        }
    }

    /// `/`, or the test's substitute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without the final newline; `None` if the file does not exist or cannot be
    /// read.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// A file that contains one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// The names of the files in a directory.
    pub fn files(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The identity of the user's registry; `None` if there is none.
    pub fn registry_uuid(&self) -> Option<String> {
        let description = self.read(self.registry.join("registry").to_str()?)?;
        let description: serde_json::Value = serde_json::from_str(&description).ok()?;
        Some(description["uuid"].as_str()?.to_owned())
    }

    /// The bytes of memory or disk that a file occupies; 0 if it does not exist.
    pub fn allocated(&self, path: &str) -> u64 {
        fs::metadata(self.path(path)).map_or(0, |found| found.blocks() * 512)
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Writes a file, and makes its directory if necessary.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.path(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, text)
    }

    /// A line of `/proc/meminfo`, in bytes.
    pub fn memory(&self, name: &str) -> Option<u64> {
        mneme_sys::memory_info(&self.root, name)
    }

    /// The mount that contains `path`: the one with the longest matching mount point, and of
    /// several there the last.
    pub fn mount_of(&self, path: &Path) -> Option<Mount> {
        let mounts = self.read("/proc/self/mountinfo")?;
        let found = files::mounts_in(&mounts).filter(|mount| path.starts_with(&mount.point));
        found.max_by_key(|mount| mount.point.as_os_str().len())
    }

    /// A soft limit of this process, by its name in `/proc/self/limits`; `None` if unlimited or
    /// unknown.
    pub fn limit(&self, name: &str) -> Option<u64> {
        let limits = self.read("/proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

/// The value of a mount option, as in `size=64k`.
pub fn option<'a>(mount: &'a Mount, name: &str) -> Option<&'a str> {
    let mut values = mount
        .options
        .split(',')
        .filter_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    values.next()
}

/// The maximum size of a tmpfs in bytes. `memory` is the machine's, for sizes given as a
/// percentage.
pub fn tmpfs_size(mount: &Mount, memory: u64) -> Option<u64> {
    if mount.kind != "tmpfs" {
        return None;
    }
    let Some(size) = option(mount, "size") else {
        return Some(memory / 2);
    };
    let digits = size.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    let unit = match &size[digits.len()..] {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "%" => return Some(memory / 100 * number),
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_tells_its_size() {
        let mount = |line: &str| files::mounts_in(line).next().unwrap();
        let shm = mount(
            "30 1 0:25 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=65536k,huge=advise",
        );
        assert_eq!(tmpfs_size(&shm, 1 << 40), Some(64 << 20));
        assert_eq!(option(&shm, "huge"), Some("advise"));
        let unlimited = mount("30 1 0:25 / /run rw - tmpfs tmpfs rw");
        assert_eq!(tmpfs_size(&unlimited, 1 << 30), Some(1 << 29));
        let share = mount("30 1 0:25 / /run rw - tmpfs tmpfs rw,size=10%");
        assert_eq!(tmpfs_size(&share, 1000), Some(100));
        let disk = mount("30 1 8:1 / /a rw - ext4 /dev/sda1 rw");
        assert_eq!(tmpfs_size(&disk, 1), None);
    }
}
