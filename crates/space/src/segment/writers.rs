//! Counts the writers of a durable segment that another crate lays out, for which this crate has no
//! lock.
//!
//! **After the machine went down, such a segment is considered consistent only if every process
//! that had it open for writing had left, with all its writes on the medium.** The first writer
//! records the boot in the header ([`word::UNSYNCED`]) before it can write. The last one to leave
//! writes everything through, including the control file, and clears the record. A writer that is
//! killed does neither: within the same boot, the kernel still has everything that it wrote.
//!
//! All writers together hold a byte of the data file, so that the last one knows that it is the
//! last. Writers come and go one at a time, under a lock on the byte before it. The kernel releases
//! both when a process dies.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mneme_sys::{Clock, Liveness, LivenessError, OfdLiveness, SharedByte, SystemClock, fork};

use super::data::word;
use super::durable::this_boot;
use super::presence;
use crate::{FileError, MapError};

/// The byte that is locked while a writer comes or goes.
const DOOR: u64 = presence::LAST + 1;
/// The byte that all writers hold together.
const WRITERS: u64 = DOOR + 1;

/// How long a writer waits for the lock `DOOR`. Its holder may be writing to a slow medium, or be
/// stopped.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait between attempts on the lock `DOOR`.
const PAUSE: Duration = Duration::from_micros(500);

/// The word's offset in the file.
const UNSYNCED: u64 = std::mem::offset_of!(mneme_sys::RegionHeader, client) as u64
    + word::UNSYNCED as u64 * size_of::<u64>() as u64;

/// As long as this exists, the segment is open for writing. When the last one is dropped,
/// everything is written through.
#[derive(Debug)]
pub(super) struct Writing {
    file: File,
    /// The control file, which is written through with the data.
    control: File,
    path: PathBuf,
    /// Always present until this is dropped.
    held: Option<SharedByte>,
    /// Counts forks: a child does not have the segment open.
    generation: u32,
}

impl Writing {
    /// Opens a segment for writing, by its data file, which must be open for writing, and its
    /// control file.
    ///
    /// # Errors
    /// [`MapError::NotClean`]; [`MapError::Door`]; errors of the file system.
    pub(super) fn begin(file: &File, path: &Path, control: File) -> Result<Self, MapError> {
        let _door = Door::pass(file, path)?;
        let noted = read(file).map_err(FileError::at("read", path))?;
        if noted != 0 && noted != this_boot() {
            return Err(MapError::NotClean {
                path: path.to_owned(),
            });
        }
        let mut writing = Self::of_new(file, path, control)?;
        mneme_sys::fault!("space.writers.held");
        let noted = match writing.is_last() {
            // Another writer has the segment open, so its record is on the medium.
            Ok(false) if noted != 0 => Ok(()),
            // An existing record may be only in memory: its writer may have died before it was on
            // the medium.
            Ok(_) => note(file, this_boot())
                .map_err(|refused| FileError::at("write through", path)(refused).into()),
            Err(refused) => Err(refused),
        };
        if let Err(refused) = noted {
            // Nothing was written, so leaving has nothing to do. It would also wait for the lock
            // `DOOR`, which is held here.
            writing.held = None;
            return Err(refused);
        }
        mneme_sys::fault!("space.writers.noted");
        Ok(writing)
    }

    /// Opens for writing a segment that has no header and no name yet.
    pub(super) fn of_new(file: &File, path: &Path, control: File) -> Result<Self, MapError> {
        let held = SharedByte::take(file, WRITERS).map_err(refused(path))?;
        let file = file.try_clone().map_err(FileError::at("open", path))?;
        Ok(Self {
            file,
            control,
            path: path.to_owned(),
            held: Some(held),
            generation: fork::generation(),
        })
    }

    /// Whether no other process or thread has the segment open for writing.
    fn is_last(&self) -> Result<bool, MapError> {
        let others = self.held.as_ref().map_or(Ok(false), |held| {
            held.others_hold(WRITERS..=WRITERS)
                .map_err(refused(&self.path))
        })?;
        Ok(!others)
    }

    /// If this is the last writer, writes everything through and clears the record. If that fails,
    /// the record stays: the segment is then considered less consistent than it is, which is safe.
    fn leave(&mut self) -> Result<(), MapError> {
        if self.held.is_none() {
            return Ok(());
        }
        if self.is_last()? {
            // Most of it is written before the lock is taken, so that nobody waits for that.
            let synced = self.file.sync_data();
            if synced.is_err() {
                // The word is written under the lock, or else a writer that comes meanwhile could
                // overwrite it. If the lock cannot be taken, the word is written all the same.
                let _door = Door::pass(&self.file, &self.path);
                return self.written_through(synced);
            }
        }
        let _door = Door::pass(&self.file, &self.path)?;
        if self.is_last()? {
            self.written_through(self.control.sync_all())?;
            self.written_through(self.file.sync_all())?;
            mneme_sys::fault!("space.writers.synced");
            let failed = || FileError::at("write through", &self.path);
            // Another writer's sync may have failed since this one came.
            if read(&self.file).map_err(failed())? != word::LOST {
                note(&self.file, 0).map_err(failed())?;
            }
            mneme_sys::fault!("space.writers.cleared");
        }
        // Before the lock is released: the next to leave counts the remaining writers.
        self.held = None;
        Ok(())
    }

    /// Marks the segment as not clean for good if its medium did not store what was written. The
    /// kernel reports that only once: the next writer's sync would succeed, and prove nothing.
    fn written_through(&self, synced: std::io::Result<()>) -> Result<(), MapError> {
        synced.map_err(|failed| {
            // Within this boot, the word in memory is enough. After a reboot, the record that it
            // replaces has the same effect.
            let _ = note(&self.file, word::LOST);
            FileError::at("write through", &self.path)(failed).into()
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.generation == fork::generation() {
            let _ = self.leave();
        }
    }
}

/// Writes a new segment through; if the crate that laid it out has kept it open, records that.
pub(super) fn settle(file: &File, path: &Path) -> Result<(), MapError> {
    let failed = || FileError::at("write through", path);
    let _door = Door::pass(file, path)?;
    let kept = SharedByte::is_any_held(path, WRITERS..=WRITERS).map_err(refused(path))?;
    note(file, if kept { this_boot() } else { 0 }).map_err(failed())?;
    Ok(file.sync_all().map_err(failed())?)
}

/// The lock under which writers come and go, until it is dropped.
struct Door(OfdLiveness);

impl Door {
    fn pass(file: &File, path: &Path) -> Result<Self, MapError> {
        // The file is opened for each lock, so that threads exclude one another as processes do.
        let door = OfdLiveness::reopen(file.as_fd(), DOOR).map_err(refused(path))?;
        let began = SystemClock.now_ns();
        loop {
            match door.claim(0) {
                Ok(()) => return Ok(Self(door)),
                Err(LivenessError::Held { .. }) => {}
                Err(source) => return Err(refused(path)(source)),
            }
            let waited = Duration::from_nanos(SystemClock.now_ns().saturating_sub(began));
            if waited >= TIMEOUT {
                return Err(MapError::Door {
                    path: path.to_owned(),
                    waited,
                });
            }
            #[cfg(test)]
            tests::WAITED.set(true);
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.0.release(0);
    }
}

fn read(file: &File) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, UNSYNCED)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Written through the file and not through a mapping, because the last writer no longer has one.
/// Nobody else writes this word.
fn note(file: &File, boot: u64) -> std::io::Result<()> {
    file.write_all_at(&boot.to_le_bytes(), UNSYNCED)?;
    file.sync_data()
}

fn refused(path: &Path) -> impl FnOnce(LivenessError) -> MapError {
    let path = path.to_owned();
    move |source| MapError::Liveness { path, source }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    thread_local! {
        /// Whether this thread ever waited for the lock `DOOR`.
        pub(super) static WAITED: Cell<bool> = const { Cell::new(false) };
    }

    /// A data file that needs nothing but its header's words.
    struct Data(PathBuf);

    impl Data {
        fn new(name: &str) -> Self {
            let path = format!("/dev/shm/mneme-writers-{}-{name}", std::process::id());
            fs::write(&path, [0; 4096]).unwrap();
            Self(path.into())
        }

        fn open(&self, writable: bool) -> File {
            let mut options = File::options();
            options.read(true).write(writable).open(&self.0).unwrap()
        }

        fn begin(&self, control: File) -> Result<Writing, MapError> {
            Writing::begin(&self.open(true), &self.0, control)
        }
    }

    impl Drop for Data {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "file locks")]
    fn a_writer_whose_record_fails_does_not_wait_for_its_own_lock() {
        let data = Data::new("note");
        // The record cannot be written through a file opened for reading.
        let refused = Writing::begin(&data.open(false), &data.0, data.open(true)).unwrap_err();
        assert!(matches!(refused, MapError::File(_)), "{refused}");
        assert!(!WAITED.get());
        drop(data.begin(data.open(true)).unwrap());
        assert_eq!(read(&data.open(false)).unwrap(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "file locks")]
    fn the_next_writers_success_does_not_hide_a_failed_write_through() {
        let data = Data::new("lost");
        // A pipe cannot be synced.
        let (pipe, _other) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(pipe));
        drop(data.begin(pipe).unwrap());
        let refused = data.begin(data.open(true)).unwrap_err();
        assert!(matches!(refused, MapError::NotClean { .. }), "{refused}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "file locks")]
    fn an_earlier_writers_success_does_not_hide_a_failed_write_through() {
        let data = Data::new("lost-before");
        let first = data.begin(data.open(true)).unwrap();
        let second = data.begin(data.open(true)).unwrap();
        let failed = std::io::Error::other("the medium is gone");
        first.written_through(Err(failed)).unwrap_err();
        drop(first);
        drop(second);
        let refused = data.begin(data.open(true)).unwrap_err();
        assert!(matches!(refused, MapError::NotClean { .. }), "{refused}");
    }
}
