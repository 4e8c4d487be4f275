//! Removing a segment: its name goes first, then its data, then what is left.

use std::io::ErrorKind;

use mneme_sys::files;

use super::{Segment, in_use};
use crate::registry::json;
use crate::registry::making::take_apart;
use crate::{FileError, Name, Registry, RegistryError, RemoveError, Uuid};

impl Registry {
    /// Removes a segment and its data; also one whose description or data are damaged or gone.
    ///
    /// A process that maps it at the same moment keeps what it has mapped, as with any removed file.
    ///
    /// # Errors
    /// [`RemoveError::InUse`] while a living process has it mapped, this one included.
    pub fn remove_segment(&self, name: &str) -> Result<(), RemoveError> {
        let name = Name::new(name)?;
        let directory = self.segment_directory(&name);
        let in_words = || name.to_string();
        if in_use(&directory.join("control")) {
            return Err(RemoveError::InUse { name: in_words() });
        }
        mneme_sys::fault!("space.remove.begun");
        // Not the segment's own identity: a backup that was copied back may have it too.
        let aside = Uuid::random().map_err(RegistryError::Random)?.to_string();
        let dying = self.root().join("dying").join(aside);
        match files::rename_new(&directory, &dying) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Err(RemoveError::NotFound { name: in_words() });
            }
            Err(e) => return Err(FileError::at("remove", directory)(e).into()),
        }
        mneme_sys::fault!("space.remove.unnamed");
        if let Some(segments) = directory.parent() {
            json::sync_directory(segments)?;
        }
        Ok(take_apart(&dying)?)
    }
}

impl Segment {
    /// Removes the segment that has this one's name now: [`Registry::remove_segment`].
    ///
    /// # Errors
    /// As there.
    pub fn remove(self) -> Result<(), RemoveError> {
        self.registry().remove_segment(self.name().as_str())
    }
}
