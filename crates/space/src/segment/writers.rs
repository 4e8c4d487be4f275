//! Writers of a durable segment whose contents another crate lays out, which has no lock of this
//! crate's.
//!
//! **Such a segment is taken for whole after the machine went down only if all that had it open for
//! writing had left, and all that they wrote was on its medium by then.** The first of them notes
//! the boot in the header ([`word::UNSYNCED`]), before it can write; the last one that leaves
//! writes all through, the control file too, and takes the note back. A writer that is killed does
//! neither: in this boot the kernel has all that it wrote.
//!
//! Each writer holds a byte of the data file together with the others, so that the last one knows
//! that it is; coming and going are done under a lock on the byte before it, one at a time. The
//! kernel lets go of both for the dead.

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

/// The lock of writers that come and go.
const DOOR: u64 = presence::LAST + 1;
/// What all writers hold together.
const WRITERS: u64 = DOOR + 1;

/// How long a writer waits at the door. The holder may be writing to a slow medium, or be stopped.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How long before the door is tried again.
const PAUSE: Duration = Duration::from_micros(500);

/// Where the word lies in the file.
const UNSYNCED: u64 = std::mem::offset_of!(mneme_sys::RegionHeader, client) as u64
    + word::UNSYNCED as u64 * size_of::<u64>() as u64;

/// As long as this lives, the segment is open for writing. The last to be dropped writes all
/// through.
#[derive(Debug)]
pub(super) struct Writing {
    file: File,
    /// What is counted lies there.
    control: File,
    path: PathBuf,
    /// Always there until it is dropped.
    held: Option<SharedByte>,
    /// Of forks: a child has no part in it.
    generation: u32,
}

impl Writing {
    /// Opens a segment for writing, by its data file, which was opened so, and its control file.
    ///
    /// # Errors
    /// [`MapError::NotClean`]; [`MapError::Door`]; the file system's.
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
            // Another writer is through the door, so that its note is on the medium.
            Ok(false) if noted != 0 => Ok(()),
            // A note that is there may be in memory alone: its writer may have died before the
            // medium had it.
            Ok(_) => note(file, this_boot())
                .map_err(|refused| FileError::at("write through", path)(refused).into()),
            Err(refused) => Err(refused),
        };
        if let Err(refused) = noted {
            // Nothing was written, so that there is nothing to leave: leaving would wait for the
            // door that is held here.
            writing.held = None;
            return Err(refused);
        }
        mneme_sys::fault!("space.writers.noted");
        Ok(writing)
    }

    /// Opens a segment for writing that has no header yet, and no name.
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

    /// Writes all through and takes the note back, if this is the last writer. What cannot be done
    /// leaves the note where it is: then it says less than is true, and nothing false.
    fn leave(&mut self) -> Result<(), MapError> {
        if self.held.is_none() {
            return Ok(());
        }
        if self.is_last()? {
            // Most of it while nobody waits for this.
            let synced = self.file.sync_data();
            if synced.is_err() {
                // Under the door, or a writer that comes overwrites the word. Where the door cannot
                // be passed, the word is written all the same.
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
        // Before the door is open: the next to leave counts those still here.
        self.held = None;
        Ok(())
    }

    /// Marks the segment as not clean for good if its medium did not take what was written. The
    /// kernel reports that once: the next writer's sync would succeed, and prove nothing.
    fn written_through(&self, synced: std::io::Result<()>) -> Result<(), MapError> {
        synced.map_err(|failed| {
            // The word in memory is enough for this boot. After another boot the note that it
            // replaces says the same.
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

/// Writes a segment through that was just made; if the crate that laid it out has kept it open,
/// notes that.
pub(super) fn settle(file: &File, path: &Path) -> Result<(), MapError> {
    let failed = || FileError::at("write through", path);
    let _door = Door::pass(file, path)?;
    let kept = SharedByte::is_any_held(path, WRITERS..=WRITERS).map_err(refused(path))?;
    note(file, if kept { this_boot() } else { 0 }).map_err(failed())?;
    Ok(file.sync_all().map_err(failed())?)
}

/// The lock of writers that come and go, until it is dropped.
struct Door(OfdLiveness);

impl Door {
    fn pass(file: &File, path: &Path) -> Result<Self, MapError> {
        // An opening each, so that threads exclude one another as processes do.
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

/// By the file and not by a mapping: the last writer has none any more. Nobody else writes this
/// word.
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
        /// Whether this thread ever waited at a door.
        pub(super) static WAITED: Cell<bool> = const { Cell::new(false) };
    }

    /// A data file of which no more is needed than its header's words.
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
    fn a_writer_whose_note_fails_does_not_wait_for_its_own_door() {
        let data = Data::new("note");
        // The note cannot be written by an opening for reading.
        let refused = Writing::begin(&data.open(false), &data.0, data.open(true)).unwrap_err();
        assert!(matches!(refused, MapError::File(_)), "{refused}");
        assert!(!WAITED.get());
        drop(data.begin(data.open(true)).unwrap());
        assert_eq!(read(&data.open(false)).unwrap(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "file locks")]
    fn a_failed_write_through_is_not_made_up_for_by_the_next_writer() {
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
    fn a_failed_write_through_is_not_made_up_for_by_a_writer_that_was_there() {
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
