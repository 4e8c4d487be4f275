//! Removing a segment: its name goes first, then its data, then what is left.

use super::{Segment, in_use};
use crate::registry::making::{take_apart, unname};
use crate::{Name, Registry, RegistryError, RemoveError, Uuid};

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
        let name = name.to_string();
        if in_use(&directory.join("control"))? {
            return Err(RemoveError::InUse { name });
        }
        let aside = Uuid::random().map_err(RegistryError::Random)?;
        match unname(self, &directory, aside)? {
            Some(dying) => Ok(take_apart(self, &dying)?),
            None => Err(RemoveError::NotFound { name }),
        }
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
