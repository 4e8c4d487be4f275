//! What the machine's files say: `/proc`, `/sys`, `/etc` below a root, so that tests have machines of their own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A machine, by its files.
pub struct Host {
    root: PathBuf,
    /// The user it is asked for.
    pub uid: u32,
    /// The user's runtime directory.
    pub runtime: Option<PathBuf>,
}

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: String,
    pub kind: String,
    pub options: Vec<String>,
}

impl Host {
    /// This machine.
    pub fn here() -> Self {
        let mut host = Self::at(PathBuf::from("/"), 0);
        host.uid = host.uid_of_this_process().unwrap_or(0);
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usual = PathBuf::from(format!("/run/user/{}", host.uid));
        host.runtime = named.or_else(|| usual.exists().then_some(usual));
        host
    }

    /// A machine whose files lie below `root`.
    pub fn at(root: PathBuf, uid: u32) -> Self {
        Self {
            root,
            uid,
            runtime: None,
        }
    }

    fn uid_of_this_process(&self) -> Option<u32> {
        let status = self.read("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's text without the last line's end; `None` where it is not there or not to be read.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// A file that contains one number.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.trim().parse().ok()
    }

    /// The word in brackets of a file like `always [madvise] never`.
    pub fn choice(&self, path: &str) -> Option<String> {
        let text = self.read(path)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    }

    /// The files of a directory, by name.
    pub fn files(&self, directory: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Replaces what a file says, its directory included.
    pub fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.path(path);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(path, text)
    }

    /// A line of `/proc/meminfo`, in bytes.
    pub fn memory(&self, name: &str) -> Option<u64> {
        let info = self.read("/proc/meminfo")?;
        let line = info.lines().find_map(|line| {
            let (found, rest) = line.split_once(':')?;
            (found == name).then_some(rest)
        })?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    }

    /// The file system that `path` lies on: the longest mount point that leads to it, the last one mounted there.
    pub fn mount_of(&self, path: &Path) -> Option<Mount> {
        let mounts = self.read("/proc/self/mountinfo")?;
        let found = mounts
            .lines()
            .filter_map(mount)
            .filter(|mount| path.starts_with(&mount.point));
        found.max_by_key(|mount| mount.point.len())
    }

    /// A soft limit of this process, as `/proc/self/limits` names it; `None`: unlimited, or not known.
    pub fn limit(&self, name: &str) -> Option<u64> {
        let limits = self.read("/proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

/// A line of mountinfo: `id parent device root point options [tags] - kind source super-options`.
fn mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let point = before.split(' ').nth(4)?;
    let mut after = after.split(' ');
    let kind = after.next()?.to_owned();
    let options = after.nth(1)?.split(',').map(str::to_owned).collect();
    Some(Mount {
        // The kernel writes a space so.
        point: point.replace("\\040", " "),
        kind,
        options,
    })
}

impl Mount {
    /// The value of an option like `size=64k`.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut values = self
            .options
            .iter()
            .filter_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        values.next()
    }

    /// The size that a tmpfs may have in bytes, `memory` being the machine's.
    pub fn tmpfs_size(&self, memory: u64) -> Option<u64> {
        if self.kind != "tmpfs" {
            return None;
        }
        let Some(size) = self.option("size") else {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_tells_its_point_kind_and_size() {
        let shm = mount(
            "30 1 0:25 / /dev/shm rw,nosuid shared:4 - tmpfs tmpfs rw,size=65536k,huge=advise",
        )
        .unwrap();
        assert_eq!(
            (shm.point.as_str(), shm.kind.as_str()),
            ("/dev/shm", "tmpfs")
        );
        assert_eq!(shm.tmpfs_size(1 << 40), Some(64 << 20));
        assert_eq!(shm.option("huge"), Some("advise"));
        let unlimited = mount("30 1 0:25 / /run rw - tmpfs tmpfs rw").unwrap();
        assert_eq!(unlimited.tmpfs_size(1 << 30), Some(1 << 29));
        let share = mount("30 1 0:25 / /run rw - tmpfs tmpfs rw,size=10%").unwrap();
        assert_eq!(share.tmpfs_size(1000), Some(100));
        let disk = mount("30 1 8:1 / /a\\040b rw - ext4 /dev/sda1 rw").unwrap();
        assert_eq!((disk.point.as_str(), disk.tmpfs_size(1)), ("/a b", None));
        assert_eq!(mount("nonsense"), None);
    }
}
