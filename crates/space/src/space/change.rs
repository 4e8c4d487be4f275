//! Changes spaces, one change at a time; each is a new version of the description.

use mneme_sys::{Access, files};

use super::meta::{LAST_VERSION, MemberEntry, SpaceMeta};
use super::{MAX_MEMBERS, Space, permissions};
use crate::registry::json;
use crate::registry::lock::Lock;
use crate::segment::meta::SegmentMeta;
use crate::{FileError, Segment, SpaceError};

impl Space {
    /// Makes a segment a member, with the access that attachments get. Attached processes get it
    /// when they next enter.
    ///
    /// # Errors
    /// [`SpaceError::Twice`], [`Floating`](SpaceError::Floating),
    /// [`Contents`](SpaceError::Contents), [`Overlap`](SpaceError::Overlap) with a member,
    /// [`OtherRegistry`](SpaceError::OtherRegistry), [`Full`](SpaceError::Full);
    /// [`Stale`](SpaceError::Stale) if
    /// the segment has been removed or replaced since it was opened.
    pub fn add(&self, segment: &Segment, access: Access) -> Result<(), SpaceError> {
        let name = segment.name().to_string();
        if segment.registry().uuid() != self.registry().uuid() {
            return Err(SpaceError::OtherRegistry { name });
        }
        if let Some(kind) = segment.contents() {
            let kind = kind.to_owned();
            return Err(SpaceError::Contents { name, kind });
        }
        let Some(addresses) = segment.meta().addresses() else {
            return Err(SpaceError::Floating { name });
        };
        let new = MemberEntry {
            name: name.clone(),
            uuid: segment.uuid(),
            access,
        };
        self.change(|meta| {
            self.member(&new)?;
            let same = |member: &MemberEntry| member.name == new.name || member.uuid == new.uuid;
            if meta.members.iter().any(same) {
                return Err(SpaceError::Twice { name });
            }
            if meta.members.len() >= MAX_MEMBERS {
                return Err(SpaceError::Full { max: MAX_MEMBERS });
            }
            let overlapping = meta.members.iter().find(|member| {
                let taken = self.segment_meta(member).and_then(|meta| meta.addresses());
                taken
                    .is_some_and(|taken| taken.start < addresses.end && addresses.start < taken.end)
            });
            if let Some(member) = overlapping {
                return Err(SpaceError::Overlap {
                    name,
                    with: member.name.clone(),
                });
            }
            meta.members.push(new);
            Ok(())
        })
    }

    /// The description of a member's segment; `None` if the member is stale or damaged and
    /// therefore occupies no addresses.
    fn segment_meta(&self, member: &MemberEntry) -> Option<SegmentMeta> {
        let name = crate::Name::new(&member.name).ok()?;
        let meta = SegmentMeta::read(&self.registry().segment_directory(&name)).ok()?;
        (meta.uuid == member.uuid).then_some(meta)
    }

    /// Removes a segment from the space, even if it is stale; the segment itself is kept.
    ///
    /// # Errors
    /// [`SpaceError::NotMember`]; the space cannot be changed.
    pub fn remove_segment(&self, name: &str) -> Result<(), SpaceError> {
        self.change(|meta| {
            let at = position(meta, name)?;
            meta.members.remove(at);
            Ok(())
        })
    }

    /// Changes the access that attachments of the space get to a member.
    ///
    /// # Errors
    /// As [`remove_segment`](Self::remove_segment).
    pub fn set_access(&self, name: &str, access: Access) -> Result<(), SpaceError> {
        self.change(|meta| {
            let at = position(meta, name)?;
            meta.members[at].access = access;
            Ok(())
        })
    }

    /// Changes the users who may see and attach the space, and who may change it. A process that is
    /// attached stays so until it next enters.
    ///
    /// # Errors
    /// The files belong to another user. If the process dies half-way, some files keep their old
    /// permissions; calling this again completes the change.
    pub fn set_mode(&self, mode: u32) -> Result<(), SpaceError> {
        let mode = mode & 0o777;
        let (meta, _locked) = self.lock()?;
        permissions::apply(&self.directory(), mode, || self.replace(meta, mode))
    }

    /// Changes the description with `f`, under the space's lock.
    fn change(
        &self,
        f: impl FnOnce(&mut SpaceMeta) -> Result<(), SpaceError>,
    ) -> Result<(), SpaceError> {
        let (mut meta, _locked) = self.lock()?;
        f(&mut meta)?;
        let mode = self.mode()?;
        self.replace(meta, mode)
    }

    /// Prevents others from changing or removing the space; returns its description.
    fn lock(&self) -> Result<(SpaceMeta, Lock), SpaceError> {
        let path = self.directory().join("lock");
        // Checked first so that a removed space is reported as such: its lock file is gone with its
        // directory.
        self.meta()?;
        if !path.exists() {
            drop(Lock::create(&path)?);
            let mode = permissions::lock(self.mode()?);
            files::set_mode(&path, mode).map_err(FileError::at("share", &path))?;
        }
        let locked = Lock::take(&path).or_else(|refused| {
            // If the space was removed meanwhile, this reports it.
            self.meta()?;
            Err(SpaceError::from(refused))
        })?;
        mneme_sys::fault!("space.space-change.locked");
        // The space may have been changed or removed while this waited.
        Ok((self.meta()?, locked))
    }

    /// Prevents others from changing the space, to work on its files other than the description.
    pub(crate) fn lock_members(&self) -> Result<Lock, SpaceError> {
        Ok(self.lock()?.1)
    }

    /// The permissions of the files that participants write.
    pub(crate) fn control_mode(&self) -> Result<u32, FileError> {
        Ok(permissions::control(self.mode()?))
    }

    /// Replaces the description by its next version. The space must be locked.
    fn replace(&self, mut meta: SpaceMeta, mode: u32) -> Result<(), SpaceError> {
        let word = self.version_word()?;
        // Also greater than the word, which is ahead if the description was restored from a backup.
        let last = match word.load() {
            seen @ ..=LAST_VERSION => seen.max(meta.version),
            _ => meta.version,
        };
        meta.version = last + 1;
        json::write(
            &self.directory().join("meta"),
            &meta,
            permissions::meta(mode),
        )?;
        mneme_sys::fault!("space.space-change.described");
        word.raise(meta.version);
        mneme_sys::fault!("space.space-change.announced");
        Ok(())
    }
}

fn position(meta: &SpaceMeta, name: &str) -> Result<usize, SpaceError> {
    let found = meta.members.iter().position(|member| member.name == name);
    found.ok_or_else(|| SpaceError::NotMember {
        name: name.to_owned(),
    })
}
