//! Removing a space: its name goes first, then what is left. Its segments stay.

use super::{Space, SpaceError};
use crate::making::{take_apart, unname};
use crate::registry::lock::Lock;
use crate::segment::control::in_use;
use crate::{Name, Registry, RegistryError, Uuid};

impl Registry {
    /// Removes a space, even if its description is damaged. Its segments are kept.
    ///
    /// A process that attaches it at the same moment notices when it next enters.
    ///
    /// # Errors
    /// [`SpaceError::InUse`] while a living process has it attached, including this one. A
    /// process that has no permission to be a participant does not prevent the removal; it notices
    /// it later.
    pub fn remove_space(&self, name: &str) -> Result<(), SpaceError> {
        let name = Name::new(name)?;
        let directory = self.space_directory(&name);
        if in_use(&directory.join("control"))? {
            return Err(SpaceError::InUse {
                name: name.to_string(),
            });
        }
        let lock = directory.join("lock");
        // Waits until nobody is changing it. Without the lock file nobody can.
        let _locked = match Lock::take(&lock) {
            Ok(locked) => Some(locked),
            Err(_) if !lock.exists() => None,
            Err(other) => return Err(other.into()),
        };
        let aside = Uuid::random().map_err(RegistryError::Random)?;
        match unname(self, &directory, aside)? {
            Some(dying) => Ok(take_apart(self, &dying)?),
            None => Err(SpaceError::NotFound {
                name: name.to_string(),
                registry: self.root().to_owned(),
            }),
        }
    }
}

impl Space {
    /// Removes the space that has this one's name at this moment: [`Registry::remove_space`].
    ///
    /// # Errors
    /// As for that function.
    pub fn remove(self) -> Result<(), SpaceError> {
        self.registry().remove_space(self.name().as_str())
    }
}
