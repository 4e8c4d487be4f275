//! Notes in a segment's directory: what its users want to find again beside it, for instance
//! how often it made a server fail. They go with the segment when it is renamed or removed, and do
//! not come along when it is cloned.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mneme_sys::files;

use crate::registry::files::gone;
use crate::registry::json;
use crate::registry::lock::Lock;
use crate::{FileError, Name, NameError, Registry, RegistryError};

/// Why a note could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// The segment's name, or the note's, is none.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The file system refused something; there may be no such segment.
    #[error(transparent)]
    File(#[from] FileError),
    /// The segment is another user's, and notes are its owner's.
    #[error("the segment belongs to user {owner}, who alone may keep notes beside it")]
    NotOwner {
        /// The owner.
        owner: u32,
    },
    /// It cannot be found out whether another has the note for itself.
    #[error(transparent)]
    Hold(#[from] RegistryError),
}

/// The right to a note, of one opening in all processes: the kernel takes it from the dead. It
/// does not keep a process from reading or writing the note that does not ask for it.
///
/// It is of the segment's directory, and goes with it when the segment is renamed. A forked child
/// does not have it.
#[must_use = "dropping it lets others have the note at once"]
pub struct NoteHold {
    _lock: Lock,
}

/// Why the file system refused something about a note at `path`: that of another user's segment
/// says so.
fn not_owned(path: &Path, refused: FileError) -> NoteError {
    let owner = path.parent().and_then(|of| fs::metadata(of).ok());
    match owner.map(|found| found.uid()) {
        Some(owner)
            if refused.source.kind() == ErrorKind::PermissionDenied && owner != files::user() =>
        {
            NoteError::NotOwner { owner }
        }
        _ => refused.into(),
    }
}

/// Bytes of the longest note that is read.
const LONGEST: u64 = 1 << 20;

/// Digits of a number of 32 bits.
const LONGEST_PID: u64 = 10;

/// A new file of that name. What was there is removed and not followed: it may be a link.
fn made_anew(path: &Path) -> Result<File, FileError> {
    loop {
        gone(path, fs::remove_file(path))?;
        match File::create_new(path) {
            // Another process writes the note.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map_err(FileError::at("write", path)),
        }
    }
}

impl std::fmt::Debug for NoteHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoteHold")
    }
}

impl Registry {
    /// The note of that name in the directory of a segment, whole or damaged; `None` if there is
    /// none.
    ///
    /// # Errors
    /// It cannot be read, which may be because the segment is another user's, or is no text of at
    /// most 1 MiB. A link or a pipe in its place is none.
    pub fn note(&self, segment: &str, note: &str) -> Result<Option<String>, NoteError> {
        let path = self.note_path(segment, note)?;
        let mut text = String::new();
        let read = files::open_plain(&path, File::options().read(true))
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
        match read {
            Ok(length) if length as u64 > LONGEST => {
                Err(FileError::at("read", &path)(ErrorKind::InvalidData.into()).into())
            }
            Ok(_) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(not_owned(&path, FileError::at("read", &path)(e))),
        }
    }

    /// Writes a note, whole or not at all; `None` removes it. Of two processes that write it at
    /// once, the note of one is there afterwards.
    ///
    /// # Errors
    /// There is no such segment, or it is another user's.
    pub fn set_note(&self, segment: &str, note: &str, text: Option<&str>) -> Result<(), NoteError> {
        let path = self.note_path(segment, note)?;
        let Some(text) = text else {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    Err(not_owned(&path, FileError::at("remove", &path)(e)))
                }
                _ => Ok(()),
            };
        };
        let aside = json::beside(&path);
        let mut file = made_anew(&aside).map_err(|refused| not_owned(&path, refused))?;
        file.write_all(text.as_bytes())
            .map_err(FileError::at("write", &aside))?;
        match fs::rename(&aside, &path) {
            // Another process writes the note, and its text counts.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            renamed => Ok(renamed.map_err(FileError::at("replace", &path))?),
        }
    }

    /// Takes the note of that name for this opening alone; `None` if another has it, in whatever
    /// process. It never waits.
    ///
    /// # Errors
    /// There is no such segment, or it is another user's.
    pub fn hold_note(&self, segment: &str, note: &str) -> Result<Option<NoteHold>, NoteError> {
        let path = self.note_path(segment, note)?.with_extension("lock");
        let mut options = File::options();
        // A user who may write the file may hold it.
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = files::open_plain(&path, options)
            .map_err(|refused| not_owned(&path, FileError::at("create", &path)(refused)))?;
        let Some(lock) = Lock::attempt(&path)? else {
            return Ok(None);
        };
        // For the error of those that are refused. Without it the error says less.
        let _ = file
            .set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Some(NoteHold { _lock: lock }))
    }

    /// The process that has that note for itself, or had it last.
    #[must_use]
    pub fn note_holder(&self, segment: &str, note: &str) -> Option<u32> {
        let path = self.note_path(segment, note).ok()?.with_extension("lock");
        let file = files::open_plain(&path, File::options().read(true)).ok()?;
        let mut text = String::new();
        file.take(LONGEST_PID).read_to_string(&mut text).ok()?;
        text.parse().ok()
    }

    fn note_path(&self, segment: &str, note: &str) -> Result<PathBuf, NameError> {
        let (segment, note) = (Name::new(segment)?, Name::new(note)?);
        let directory = self.segment_directory(&segment);
        Ok(directory.join(format!("{note}.note")))
    }
}
