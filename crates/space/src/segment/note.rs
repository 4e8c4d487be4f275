//! Notes in a segment's directory, in which its users record something beside it, for instance how
//! often it made a server fail. They are renamed and removed with the segment, but not cloned.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use mneme_sys::files;

use crate::registry::files::gone;
use crate::registry::json;
use crate::registry::lock::Lock;
use crate::{FileError, Name, NameError, Registry, RegistryError};

/// The exclusive right to a note, among all processes; the kernel releases it when the process
/// dies. Processes that do not ask for it can still read or write the note.
///
/// It belongs to the segment's directory, and stays with it when the segment is renamed. A forked
/// child does not have it.
#[must_use = "dropping it lets others have the note at once"]
pub struct NoteHold {
    _lock: Lock,
}

/// The reason why the file system refused an operation on a note at `path`; says so if the segment
/// belongs to another user.
fn not_owned(path: &Path, refused: FileError) -> RegistryError {
    let owner = path.parent().and_then(|of| fs::metadata(of).ok());
    match owner.map(|found| found.uid()) {
        Some(owner)
            if refused.source.kind() == ErrorKind::PermissionDenied && owner != files::user() =>
        {
            RegistryError::NotOwner { owner }
        }
        _ => refused.into(),
    }
}

/// The maximum length of a note that is read, in bytes.
const LONGEST: u64 = 1 << 20;

/// The number of digits of a 32-bit number.
const LONGEST_PID: u64 = 10;

/// Creates a file of that name. What was there is removed and not followed, because it may be a
/// link.
fn made_anew(path: &Path) -> Result<File, FileError> {
    loop {
        gone(path, fs::remove_file(path))?;
        match File::create_new(path) {
            // Another process is writing the note.
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
    /// The text of the note of that name in a segment's directory, even if the segment is damaged;
    /// `None` if there is no note.
    ///
    /// # Errors
    /// The note cannot be read, perhaps because the segment belongs to another user, or is not a
    /// text of at most 1 MiB. A link or a pipe in its place is an error.
    pub fn note(&self, segment: &str, note: &str) -> Result<Option<String>, RegistryError> {
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

    /// Writes a note atomically; `None` removes it. If two processes write it at once, one of the
    /// two texts remains.
    ///
    /// # Errors
    /// There is no such segment, or it belongs to another user.
    pub fn set_note(
        &self,
        segment: &str,
        note: &str,
        text: Option<&str>,
    ) -> Result<(), RegistryError> {
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
            // Another process is writing the note, and its text counts.
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            renamed => Ok(renamed.map_err(FileError::at("replace", &path))?),
        }
    }

    /// Takes exclusive hold of the note of that name; `None` if somebody holds it, in this process
    /// or another. Never waits.
    ///
    /// # Errors
    /// There is no such segment, or it belongs to another user.
    pub fn hold_note(&self, segment: &str, note: &str) -> Result<Option<NoteHold>, RegistryError> {
        let path = self.note_path(segment, note)?.with_extension("lock");
        let mut options = File::options();
        // A user who may write the file may hold it.
        let options = options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = files::open_plain(&path, options)
            .map_err(|refused| not_owned(&path, FileError::at("create", &path)(refused)))?;
        let Some(lock) = Lock::attempt(&path)? else {
            return Ok(None);
        };
        // For the error message of processes that are refused; without it the message says less.
        let _ = file
            .set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Some(NoteHold { _lock: lock }))
    }

    /// The process that holds that note, or held it last.
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
