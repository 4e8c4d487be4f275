//! Creates and clones spaces.

use mneme_sync::Participants;

use super::meta::{self, MemberEntry, SpaceMeta};
use super::{Space, permissions, version};
use crate::making::{Making, PublishedDirectory};
use crate::registry::json;
use crate::registry::lock::Lock;
use crate::segment::control::make_control;
use crate::{FileError, Name, Registry, RegistryError, SpaceError, Uuid};

/// The options for a new space. Created by [`Registry::space`].
#[derive(Debug, Clone)]
#[must_use = "nothing is made before `create`"]
pub struct SpaceBuilder<'a> {
    registry: &'a Registry,
    name: String,
    mode: u32,
}

impl Registry {
    /// Begins to describe a new space: without members, accessible only to its owner.
    ///
    /// ```no_run
    /// use mneme_space::Registry;
    /// use mneme_sys::Access;
    /// let registry = Registry::open_default()?;
    /// let genome = registry.segment("genome").create()?;
    /// let space = registry.space("alignment").mode(0o660).create()?;
    /// space.add(&genome, Access::ReadOnly)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn space(&self, name: &str) -> SpaceBuilder<'_> {
        SpaceBuilder {
            registry: self,
            name: name.to_owned(),
            mode: 0o600,
        }
    }
}

impl SpaceBuilder<'_> {
    /// The users who may see and attach it (read), and change its members (write), as a file mode;
    /// the default is 0600. The permissions of its segments are separate.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Creates the space, completely or not at all. Takes half a millisecond, and 2 MiB for the
    /// participants.
    ///
    /// # Errors
    /// [`SpaceError::Exists`] if the name is taken; other causes have one variant each.
    pub fn create(self) -> Result<Space, SpaceError> {
        build(self.registry, &self.name, self.mode, &[], None)
    }
}

impl Space {
    /// Creates a space `name` with this one's members, each with the same access, and its
    /// permissions. The segments are the same, not clones.
    ///
    /// # Errors
    /// As for creation; this space cannot be read.
    pub fn clone_as(&self, name: &str) -> Result<Space, SpaceError> {
        let meta = self.meta()?;
        let mode = self.mode()?;
        build(self.registry(), name, mode, &meta.members, Some(meta.uuid))
    }
}

/// Builds the space in a separate directory and names it last.
fn build(
    registry: &Registry,
    name: &str,
    mode: u32,
    members: &[MemberEntry],
    cloned_from: Option<Uuid>,
) -> Result<Space, SpaceError> {
    let name = Name::new(name)?;
    let exists = || SpaceError::Exists {
        name: name.to_string(),
    };
    let to = registry.space_directory(&name);
    let uuid = Uuid::random().map_err(RegistryError::Random)?;
    let (registry_lock, making) = Making::claim(registry, uuid, &to)?.ok_or_else(exists)?;
    // A space has no addresses, so others need not wait.
    drop(registry_lock);
    let meta = SpaceMeta {
        format: meta::FORMAT,
        made_as: name.to_string(),
        uuid,
        version: 1,
        members: members.to_vec(),
        cloned_from,
    };
    let here = making.directory().to_owned();
    json::write(&here.join("meta"), &meta, permissions::meta(mode))?;
    mneme_sys::fault!("space.space-create.described");
    let control: Participants = make_control(&here.join("control"), uuid)
        .map_err(|source| SpaceError::MakeControl(Box::new(source)))?;
    version::raise(&control, meta.version)?;
    // The participants are the processes that attach it.
    drop(control);
    mneme_sys::fault!("space.space-create.control");
    drop(Lock::create(&here.join("lock"))?);
    mneme_sys::fault!("space.space-create.lock");
    permissions::apply(&here, mode, || Ok::<_, FileError>(()))?;
    mneme_sys::fault!("space.space-create.whole");
    match making.publish(&to)? {
        PublishedDirectory::Yes => Ok(Space::new(registry.clone(), name, uuid)),
        PublishedDirectory::Exists => Err(exists()),
    }
}
