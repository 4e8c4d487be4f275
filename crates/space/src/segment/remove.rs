//! Removing a segment: its name goes first, then its data, then what is left.

use super::control::in_use;
use super::meta::data_files_of;
use super::{Segment, presence};
use crate::making::{named_beside, take_apart, unname};
use crate::{Name, Registry, RegistryError, RemoveError, Uuid};

impl Registry {
    /// Removes a segment and its data, even if its description or data are damaged or gone. If
    /// another description also names the data, for instance in a copy of the segment's directory,
    /// only the name is removed.
    ///
    /// A process that maps the segment at the same moment keeps its mapping, as with any removed
    /// file.
    ///
    /// # Errors
    /// [`RemoveError::InUse`] while a living process has it mapped, this one included.
    pub fn remove_segment(&self, name: &str) -> Result<(), RemoveError> {
        let name = Name::new(name)?;
        let directory = self.segment_directory(&name);
        let name = name.to_string();
        let mut used = in_use(&directory.join("control"))?;
        let named = named_beside(self, &directory)?;
        for data in data_files_of(&directory) {
            // Data that other descriptions name too are kept.
            if data.file_name().is_some_and(|name| !named.contains(name)) {
                used |= presence::is_anybody_in(&data)?;
            }
        }
        if used {
            return Err(RemoveError::InUse { name });
        }
        let aside = Uuid::random().map_err(RegistryError::Random)?;
        match unname(self, &directory, aside)? {
            Some(dying) => Ok(take_apart(self, &dying)?),
            None => Err(RemoveError::NotFound { name }),
        }
    }
}

impl Registry {
    /// Removes a segment under a [reserved name](Name::beside) that a server or an upgrade created
    /// and did not live to finish. A segment of that name that was created under another one is
    /// kept.
    ///
    /// # Errors
    /// [`RemoveError::NotALeftover`], and as [`remove_segment`](Self::remove_segment).
    pub fn remove_leftover(&self, beside: &Name) -> Result<(), RemoveError> {
        let found = Segment::described(self, beside.as_str());
        // A segment whose description cannot be read has no record that it was created under
        // another name.
        if let Ok(found) = found
            && found.meta().made_as != beside.as_str()
        {
            return Err(RemoveError::NotALeftover {
                name: beside.to_string(),
                made_as: found.meta().made_as.clone(),
            });
        }
        self.remove_segment(beside.as_str())
    }
}

impl Segment {
    /// Removes the segment that has this one's name at this moment: [`Registry::remove_segment`].
    ///
    /// # Errors
    /// As for that function.
    pub fn remove(self) -> Result<(), RemoveError> {
        self.registry().remove_segment(self.name().as_str())
    }
}
