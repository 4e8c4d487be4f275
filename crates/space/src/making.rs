//! Builds segments and spaces in a separate directory until they are complete, and removes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use mneme_sys::files::{self, HeldDirectory};

use crate::registry::files::{entries, gone};
use crate::registry::json;
use crate::registry::lock::Lock;
use crate::segment::meta::data_files_of;
use crate::space::version;
use crate::{FileError, Registry, RegistryError, Uuid};

/// A directory in `making`, and its maker's lock: while the lock is held, no process cleans the
/// directory. If this is dropped before the directory is published, the directory is removed with
/// the data that it names.
pub(crate) struct Making {
    registry: Registry,
    directory: PathBuf,
    lock: PathBuf,
    published: bool,
    _held: Lock,
}

/// The outcome of publishing a directory.
pub(crate) enum PublishedDirectory {
    Yes,
    /// The name was already taken.
    Exists,
}

impl Making {
    /// Begins to build the segment or space whose directory will be `to`; `None` if that exists.
    /// Also returns the registry's lock, which the caller must hold while it writes the
    /// description.
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

    /// Creates the directory and its lock file. The registry must be locked: nothing is cleaned
    /// while the lock file is created and locked.
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
            registry: registry.clone(),
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

    /// Renames the finished directory to its final name.
    pub(crate) fn publish(mut self, to: &Path) -> Result<PublishedDirectory, FileError> {
        json::sync_directory(&self.directory)?;
        match files::rename_new(&self.directory, to) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Ok(PublishedDirectory::Exists);
            }
            Err(e) => return Err(FileError::at("name", to)(e)),
        }
        self.published = true;
        mneme_sys::fault!("space.make.named");
        if let Some(parent) = to.parent() {
            json::sync_directory(parent)?;
        }
        // The lock file is removed when `self` is dropped.
        Ok(PublishedDirectory::Yes)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        // What cannot be removed now is cleaned later: it is no longer locked then.
        if !self.published {
            let _ = take_apart(&self.registry, &self.directory);
        }
        let _ = fs::remove_file(&self.lock);
    }
}

/// Takes the name from a segment or a space by renaming its directory, and returns the new path;
/// `None` if it does not exist. The name `aside` is not the segment's identity, because a backup
/// that was copied back may have the same identity.
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

/// Removes the directory of a segment or a space: the data that it names, its files, and the
/// directory itself. Another process may do so at the same time.
///
/// In a registry that several users share, another user may have created the directory. So this
/// removes only what lies in the directory itself, which must not be a link, and data that belong
/// to the directory's owner and that nothing else names. For a registry that was copied, it removes
/// no data.
pub(crate) fn take_apart(registry: &Registry, directory: &Path) -> Result<(), FileError> {
    let held = match HeldDirectory::open(directory) {
        Ok(held) => held,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            return gone(directory, fs::remove_file(directory));
        }
        Err(e) => return Err(FileError::at("open", directory)(e)),
    };
    let owner = held.owner().map_err(FileError::at("examine", directory))?;
    let here = held.path();
    version::retire(&here.join("control"));
    let mut data = data_files_of(&here);
    if !registry.is_at_home() {
        // The data may be those of the registry that this one is a copy of.
        data.clear();
    }
    // Most directories in `dying` have no data left.
    let named = if data.is_empty() {
        BTreeSet::new()
    } else {
        named_beside(registry, directory)?
    };
    for data in data {
        let found = match fs::symlink_metadata(&data) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(FileError::at("examine", &data)(e)),
        };
        let is_another_s = data.file_name().is_none_or(|name| named.contains(name));
        if found.uid() == owner && !is_another_s {
            gone(&data, fs::remove_file(&data))?;
        }
    }
    mneme_sys::fault!("space.take-apart.data");
    // The description is removed last: as long as anything is left, it says what.
    let meta = here.join("meta");
    let listed = entries(&here).map_err(|e| FileError::at("list", directory)(e.source))?;
    for entry in listed {
        if entry != meta {
            gone(&entry, fs::remove_file(&entry))?;
        }
    }
    mneme_sys::fault!("space.take-apart.files");
    gone(&directory.join("meta"), fs::remove_file(&meta))?;
    mneme_sys::fault!("space.take-apart.meta");
    gone(directory, fs::remove_dir(directory))
}

/// The names of all data files of segments, including those being created, except for one
/// directory's.
pub(crate) fn named_beside(
    registry: &Registry,
    directory: &Path,
) -> Result<BTreeSet<OsString>, FileError> {
    let mut named = BTreeSet::new();
    for part in ["making", "segments"] {
        for other in entries(&registry.root().join(part))? {
            if other != directory {
                let files = data_files_of(&other);
                named.extend(
                    files
                        .iter()
                        .filter_map(|file| Some(file.file_name()?.to_owned())),
                );
            }
        }
    }
    Ok(named)
}
