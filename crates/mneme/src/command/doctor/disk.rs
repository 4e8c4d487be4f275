//! Checks the disk that keeps a server's data: its file system, its free space, and how long it
//! takes to make a change durable.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use mneme_durable::DurabilityMode;
use mneme_sys::{Caution, Clock as _, SystemClock, files};

use super::host::Host;
use super::{Finding, State};
use crate::command::size;

/// The number of syncs that are timed.
const SYNCS: usize = 21;

/// The file that is written to time them.
const FILE: &str = "doctor.new";

/// Free space in bytes below which the disk may soon be full: the journal preallocates more than
/// this.
const LITTLE: u64 = 1 << 30;

/// A healthy disk syncs faster than this.
const SLOW: Duration = Duration::from_millis(20);

/// The findings about a directory that keeps data, or will.
pub fn examine(host: &Host, directory: &Path) -> Vec<Finding> {
    let directory = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let there = directory.ancestors().find(|path| path.is_dir());
    let there = there.unwrap_or(Path::new("/"));
    let findings = [
        file_system(host, there),
        free_space(there),
        Some(syncs(there)),
        form(&directory),
    ];
    findings.into_iter().flatten().collect()
}

fn file_system(host: &Host, there: &Path) -> Option<Finding> {
    const NAME: &str = "data: file system";
    let mount = host.mount_of(&fs::canonicalize(there).ok()?)?;
    let found = format!("{} at {}", mount.kind, mount.point.display());
    let read_only = mount.options.split(',').any(|option| option == "ro");
    Some(match mount.kind.as_str() {
        _ if read_only => Finding::new(NAME, State::Bad, format!("{found}, read-only"))
            .advise("nothing can be kept there: mount it for writing"),
        "tmpfs" | "ramfs" => Finding::new(NAME, State::Bad, found)
            .advise("it is memory, and gone with the machine's next start: choose a disk"),
        kind if Caution::of_kind(kind) == Some(Caution::Network) => Finding::new(NAME, State::Bad, found)
            .advise("a network file system is refused: choose a local disk"),
        "overlay" => Finding::new(NAME, State::Worth, found)
            .advise("it belongs to a container, and may go with it: mount a volume"),
        kind if Caution::of_kind(kind) == Some(Caution::CopyOnWrite) => {
            Finding::new(NAME, State::Worth, found).advise(
                "it copies on write, so that preallocated space is no promise: leave more space free than elsewhere",
            )
        }
        _ => Finding::new(NAME, State::Good, found),
    })
}

fn form(directory: &Path) -> Option<Finding> {
    let found = DurabilityMode::found_in(directory)?;
    let found = format!("kept with --durability {found}");
    Some(Finding::new("data: durability", State::Good, found))
}

fn free_space(there: &Path) -> Option<Finding> {
    const NAME: &str = "data: free space";
    let free = files::free_space(there).ok()?;
    let found = size::show(free);
    Some(match free < LITTLE {
        true => Finding::new(NAME, State::Worth, found).advise(
            "writes are refused when the disk is full, until there is space again; reads go on",
        ),
        false => Finding::new(NAME, State::Good, found),
    })
}

fn syncs(there: &Path) -> Finding {
    const NAME: &str = "data: sync";
    match measure(there) {
        Err(error) => Finding::new(NAME, State::Bad, format!("cannot be written: {error}"))
            .advise("the server must be able to write there"),
        Ok((median, longest)) => {
            let found = format!("{median:.1?} in the median, {longest:.1?} at most, of 4 KiB each");
            match median > SLOW {
                true => Finding::new(NAME, State::Worth, found).advise(
                    "with appendfsync always a reply waits as long; everysec does not wait",
                ),
                false => Finding::new(NAME, State::Good, found),
            }
        }
    }
}

/// The median and the maximum time of a write of 4 KiB including its sync.
fn measure(there: &Path) -> io::Result<(Duration, Duration)> {
    let path = there.join(FILE);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    let timed = (0..SYNCS).map(|_| {
        let begun_ns = SystemClock.now_ns();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        Ok(Duration::from_nanos(SystemClock.now_ns() - begun_ns))
    });
    let timed: io::Result<Vec<_>> = timed.collect();
    fs::remove_file(&path)?;
    let mut times = timed?;
    times.sort();
    Ok((times[SYNCS / 2], times[SYNCS - 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_written_and_left_as_it_was() {
        let path = std::env::temp_dir().join(format!("mneme-doctor-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let findings = examine(&Host::here(), &path.join("not/there/yet"));
        assert!(findings.len() >= 2);
        let sync = findings.last().unwrap();
        assert!(sync.found.contains("in the median"), "{}", sync.found);
        // The nearest existing directory was used for the test, and is empty again.
        fs::remove_dir(&path).unwrap();
        let nowhere = syncs(&path);
        assert_eq!(nowhere.state, State::Bad, "{}", nowhere.found);
    }

    #[test]
    fn memory_and_networks_keep_nothing() {
        let root = std::env::temp_dir().join(format!("mneme-doctor-host-{}", std::process::id()));
        let host = Host::at(root.clone(), 0);
        for (kind, state) in [
            ("tmpfs", State::Bad),
            ("nfs4", State::Bad),
            ("ext4", State::Good),
            ("btrfs", State::Worth),
        ] {
            let mounts = format!("30 1 0:25 / / rw,relatime shared:4 - {kind} dev rw\n");
            host.write("/proc/self/mountinfo", &mounts).unwrap();
            let found = file_system(&host, Path::new("/")).unwrap();
            assert_eq!(found.state, state, "{kind}");
        }
        fs::remove_dir_all(root).unwrap();
    }
}
