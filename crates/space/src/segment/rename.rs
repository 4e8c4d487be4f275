//! Renames segments.

use mneme_sys::files;
use std::io::ErrorKind;

use super::control::segment_in_use;
use crate::registry::json;
use crate::segment::meta::data_files_of;
use crate::{FileError, Name, Registry, RemoveError};

impl Registry {
    /// Renames a segment that nobody uses; it may be damaged, and is not changed otherwise. Handles
    /// that were opened under the old name no longer find it. Spaces record their members by
    /// identity *and* name, so a space loses a renamed member.
    ///
    /// # Errors
    /// [`RemoveError::InUse`] while a living process has it mapped; [`RemoveError::Exists`] if the
    /// new name is taken; [`NameError::Reserved`](crate::NameError::Reserved) if the new name is
    /// reserved for servers and upgrades.
    pub fn rename_segment(&self, from: &str, to: &str) -> Result<(), RemoveError> {
        self.rename(&Name::new(from)?, &Name::of_new(to)?)
    }

    /// Renames a segment that nobody uses to [`NAME~WHAT`](Name::beside), and returns that name.
    ///
    /// # Errors
    /// As [`rename_segment`](Self::rename_segment).
    pub fn keep_beside(&self, segment: &str, what: &str) -> Result<Name, RemoveError> {
        let name = Name::new(segment)?;
        let beside = name.beside(what)?;
        self.rename(&name, &beside)?;
        Ok(beside)
    }

    /// Renames a segment that nobody uses to the first free name of `NAME~WHY-1`, `NAME~WHY-2` and
    /// so on, so that it can be examined without being in the way. Returns that name.
    ///
    /// # Errors
    /// As [`rename_segment`](Self::rename_segment), except [`RemoveError::Exists`].
    pub fn set_segment_aside(&self, name: &str, why: &str) -> Result<String, RemoveError> {
        let mut number = 1;
        loop {
            match self.keep_beside(name, &format!("{why}-{number}")) {
                Err(taken) if taken.is_taken() => number += 1,
                kept => return kept.map(|kept| kept.to_string()),
            }
        }
    }

    fn rename(&self, from: &Name, to: &Name) -> Result<(), RemoveError> {
        let (old, new) = (self.segment_directory(from), self.segment_directory(to));
        let _lock = self.lock()?;
        let control = old.join("control");
        let data = data_files_of(&old).into_iter().next();
        if segment_in_use(&control, &data.unwrap_or_else(|| old.join("data")))? {
            return Err(RemoveError::InUse {
                name: from.to_string(),
            });
        }
        files::rename_new(&old, &new).map_err(|e| match e.kind() {
            ErrorKind::NotFound => RemoveError::NotFound {
                name: from.to_string(),
            },
            ErrorKind::AlreadyExists => RemoveError::Exists {
                name: to.to_string(),
            },
            _ => FileError::at("rename", &old)(e).into(),
        })?;
        if let Some(parent) = old.parent() {
            json::sync_directory(parent)?;
        }
        Ok(())
    }
}
