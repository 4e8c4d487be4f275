//! A memory cgroup of a measurement's own.

use mneme_bench::error::BenchError;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// How an error names it.
pub const TOOL: &str = "a memory cgroup";

/// Where memory cgroups are: of version 1, and of version 2.
const PLACES: [(&str, &str); 2] = [
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
    ("/sys/fs/cgroup", "memory.max"),
];

/// A group; removed when this is dropped, if nothing is left in it.
pub struct Group(PathBuf);

fn failed(what: impl ToString) -> BenchError {
    BenchError::tool(TOOL, what)
}

fn limit_of(path: &Path) -> Option<PathBuf> {
    let files = PLACES.map(|(_, limit)| path.join(limit));
    files.into_iter().find(|file| file.exists())
}

impl Group {
    /// Makes one.
    ///
    /// # Errors
    /// [`BenchError::Tool`]: this needs root, mostly.
    pub fn new() -> Result<Self, BenchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("mneme-bench-{}-{number}", std::process::id());
        let mut why = "there is none on this machine".to_owned();
        for (place, _) in PLACES {
            let path = Path::new(place).join(&name);
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let group = Self(path);
                    if limit_of(&group.0).is_some() {
                        return Ok(group);
                    }
                }
                Err(error) => why = format!("{place}: {error}"),
            }
        }
        Err(failed(why))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still be leaving it.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

/// Puts this process into the group in that directory.
///
/// # Errors
/// [`BenchError::Tool`].
pub fn join(path: &Path) -> Result<(), BenchError> {
    let id = std::process::id().to_string();
    std::fs::write(path.join("cgroup.procs"), id).map_err(failed)
}

/// Bytes of the group's memory that belong to no file, and that do.
///
/// # Errors
/// [`BenchError::Tool`].
pub fn memory(path: &Path) -> Result<(u64, u64), BenchError> {
    let stat = std::fs::read_to_string(path.join("memory.stat")).map_err(failed)?;
    let line = |names: [&str; 2]| {
        let words = stat.lines().filter_map(|line| line.split_once(' '));
        let mut found = words.filter(|(name, _)| names.contains(name));
        let bytes = found.next().and_then(|(_, bytes)| bytes.parse().ok());
        bytes.ok_or_else(|| failed(format!("its memory.stat does not count {}", names[0])))
    };
    // As the versions of groups call them.
    Ok((line(["rss", "anon"])?, line(["cache", "file"])?))
}

/// Limits the group's memory.
///
/// # Errors
/// [`BenchError::Tool`].
pub fn limit(path: &Path, bytes: u64) -> Result<(), BenchError> {
    let file = limit_of(path).ok_or_else(|| failed("it is gone"))?;
    // The kernel takes the limit once it has given up enough pages.
    let mut last = None;
    for _ in 0..100 {
        match std::fs::write(&file, bytes.to_string()) {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    Err(failed(
        last.map_or_else(String::new, |error| error.to_string()),
    ))
}
