//! Removing a segment: its name goes first, then its data, then what is left.

use super::control::in_use;
use super::meta::data_files_of;
use super::{Segment, presence};
use crate::making::{named_beside, take_apart, unname};
use crate::{Name, Registry, RegistryError, RemoveError, Uuid};

impl Registry {
    /// Removes a segment and its data; also one whose description or data are damaged or gone. Data
    /// that another description names too, of a copy of the segment's directory, stay: only the
    /// name goes.
    ///
    /// A process that maps it at the same moment keeps what it has mapped, as with any removed
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
            // What others name too stays.
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
    /// Removes what an opening made under a [name that openings give](Name::beside) and did not
    /// live to finish. A segment of that name that was made as another one stays.
    ///
    /// # Errors
    /// [`RemoveError::NotALeftover`], and as [`remove_segment`](Self::remove_segment).
    pub fn remove_leftover(&self, beside: &Name) -> Result<(), RemoveError> {
        let found = Segment::described(self, beside.as_str());
        // One whose description cannot be read has nothing that says otherwise.
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
    /// Removes the segment that has this one's name now: [`Registry::remove_segment`].
    ///
    /// # Errors
    /// As there.
    pub fn remove(self) -> Result<(), RemoveError> {
        self.registry().remove_segment(self.name().as_str())
    }
}
