//! Notes in a segment's directory: what those who use it want to find again beside it, for instance how often it made a
//! server fail. They go with the segment when it is renamed or removed, and do not come along when it is cloned.

use std::fs;
use std::io::ErrorKind;

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
    /// It cannot be found out whether another has the note for itself.
    #[error(transparent)]
    Hold(#[from] RegistryError),
}

/// The right to a note, of one opening in all processes: the kernel takes it from the dead. Nobody is kept from reading
/// or writing the note who does not ask.
///
/// It is of the segment's directory, and goes with it when the segment is renamed. A forked child does not have it.
#[must_use = "dropping it lets others have the note at once"]
pub struct NoteHold {
    _lock: Lock,
}

impl std::fmt::Debug for NoteHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NoteHold")
    }
}

impl Registry {
    /// The note of that name in the directory of a segment, whole or damaged; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn note(&self, segment: &str, note: &str) -> Result<Option<String>, NoteError> {
        let path = self.note_path(segment, note)?;
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(FileError::at("read", &path)(e).into()),
        }
    }

    /// Writes a note, whole or not at all; `None` removes it. Two who write it at once: one of the two is there afterwards.
    ///
    /// # Errors
    /// There is no such segment, or it is another user's.
    pub fn set_note(&self, segment: &str, note: &str, text: Option<&str>) -> Result<(), NoteError> {
        let path = self.note_path(segment, note)?;
        let Some(text) = text else {
            return match fs::remove_file(&path) {
                Err(e) if e.kind() != ErrorKind::NotFound => {
                    Err(FileError::at("remove", &path)(e).into())
                }
                _ => Ok(()),
            };
        };
        let aside = path.with_extension("new");
        fs::write(&aside, text).map_err(FileError::at("write", &aside))?;
        fs::rename(&aside, &path).map_err(FileError::at("replace", &path))?;
        Ok(())
    }

    /// Takes the note of that name for this opening alone; `None` if another has it, in whatever process. It never waits.
    ///
    /// # Errors
    /// There is no such segment, or it is another user's.
    pub fn hold_note(&self, segment: &str, note: &str) -> Result<Option<NoteHold>, NoteError> {
        let path = self.note_path(segment, note)?.with_extension("lock");
        let lock = Lock::create(&path)?;
        Ok(lock.map(|_lock| NoteHold { _lock }))
    }

    fn note_path(&self, segment: &str, note: &str) -> Result<std::path::PathBuf, NameError> {
        let (segment, note) = (Name::new(segment)?, Name::new(note)?);
        let directory = self.segment_directory(&segment);
        Ok(directory.join(format!("{note}.note")))
    }
}
