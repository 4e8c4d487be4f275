//! Something being built aside, and how anything is taken apart.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use mneme_sys::files;

use super::lock::Lock;
use super::{Registry, entries, json};
use crate::segment::meta::data_files_of;
use crate::space::version;
use crate::{FileError, RegistryError, Uuid};

/// A directory in `making`, and its maker's lock: while it is held, nobody cleans the directory.
/// Dropped before it is published, it is removed with the data that it names.
pub(crate) struct Making {
    directory: PathBuf,
    lock: PathBuf,
    published: bool,
    _held: Lock,
}

/// How it ended.
pub(crate) enum Published {
    Yes,
    /// Something of that name was there before.
    Exists,
}

impl Making {
    /// Begins to build what shall be called `to`; `None` if that is there. Also returns the registry's
    /// lock, under which the description is to be written.
    pub(crate) fn claim(
        registry: &Registry,
        uuid: Uuid,
        to: &Path,
    ) -> Result<Option<(Lock, Self)>, RegistryError> {
        let lock = registry.lock()?;
        if to.exists() {
            return Ok(None);
        }
        registry.clear_leftovers(&lock);
        let making = Self::begin(registry, &lock, uuid)?;
        Ok(Some((lock, making)))
    }

    /// Begins, with the registry locked: nobody cleans while the lock file is made and taken.
    fn begin(
        registry: &Registry,
        _registry_lock: &Lock,
        uuid: Uuid,
    ) -> Result<Self, RegistryError> {
        let making = registry.root().join("making");
        let lock = making.join(format!("{uuid}.lock"));
        let held = Lock::create(&lock)?.ok_or_else(|| RegistryError::Locked {
            path: lock.clone(),
            waited: std::time::Duration::ZERO,
        })?;
        mneme_sys::fault!("space.make.locked");
        let directory = making.join(uuid.to_string());
        let built = Self {
            directory,
            lock,
            published: false,
            _held: held,
        };
        fs::create_dir(&built.directory).map_err(FileError::at("create", &built.directory))?;
        mneme_sys::fault!("space.make.directory");
        Ok(built)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Gives what was built its name.
    pub(crate) fn publish(mut self, to: &Path) -> Result<Published, FileError> {
        json::sync_directory(&self.directory)?;
        match files::rename_new(&self.directory, to) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Ok(Published::Exists),
            Err(e) => return Err(FileError::at("name", to)(e)),
        }
        self.published = true;
        mneme_sys::fault!("space.make.named");
        if let Some(parent) = to.parent() {
            json::sync_directory(parent)?;
        }
        // The lock file goes with `self`.
        Ok(Published::Yes)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // What cannot be removed now is cleaned later: it is unlocked then.
        if !self.published {
            let _ = take_apart(&self.directory);
        }
        let _ = fs::remove_file(&self.lock);
    }
}

/// Takes the name from a segment or a space; returns where it is taken apart, `None` if it is not there.
/// `aside` is not its own identity: a backup that was copied back may have that too.
pub(crate) fn unname(
    registry: &Registry,
    directory: &Path,
    aside: Uuid,
) -> Result<Option<PathBuf>, FileError> {
    mneme_sys::fault!("space.remove.begun");
    let dying = registry.root().join("dying").join(aside.to_string());
    match files::rename_new(directory, &dying) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(FileError::at("remove", directory)(e)),
    }
    mneme_sys::fault!("space.remove.unnamed");
    if let Some(parent) = directory.parent() {
        json::sync_directory(parent)?;
    }
    Ok(Some(dying))
}

/// Removes a segment's or a space's directory: the data it names, its files, itself. Whoever does
/// the same at once does no harm.
pub(crate) fn take_apart(directory: &Path) -> Result<(), FileError> {
    version::retire(&directory.join("control"));
    for data in data_files_of(directory) {
        gone(&data, fs::remove_file(&data))?;
    }
    mneme_sys::fault!("space.take-apart.data");
    // The description goes last: as long as anything is left, it says what.
    let meta = directory.join("meta");
    for entry in entries(directory)? {
        if entry != meta {
            gone(&entry, fs::remove_file(&entry))?;
        }
    }
    mneme_sys::fault!("space.take-apart.files");
    gone(&meta, fs::remove_file(&meta))?;
    mneme_sys::fault!("space.take-apart.meta");
    gone(directory, fs::remove_dir(directory))
}

/// Somebody else having removed it is as good.
pub(crate) fn gone(path: &Path, removed: std::io::Result<()>) -> Result<(), FileError> {
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(FileError::at("remove", path)(e)),
        _ => Ok(()),
    }
}
