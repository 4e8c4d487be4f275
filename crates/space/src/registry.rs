//! The registry: a directory in which every segment and space has its name, and nothing exists that
//! no file names.
//!
//! ```text
//! <root>/registry          JSON: format, identity, the window of addresses, where memory's files go
//! <root>/lock              locked while addresses are chosen and leftovers are cleaned
//! <root>/segments/<name>/  meta (JSON), control (participants and locks), data (a link)
//! <root>/spaces/<name>/    meta (JSON), control, lock, calls
//! <root>/making/<uuid>/    something being built, and <uuid>.lock, held by whoever builds it
//! <root>/dying/<uuid>/     something being removed
//! ```
//! **A name appears whole or not at all**: a directory is built in `making` and renamed last, with a
//! rename that replaces nothing; removal renames it to `dying` first. Things move from `making` to
//! `segments` (or `spaces`) to `dying` only, so that who looks there in this order misses nothing. A process that
//! dies half-way leaves a directory that the next one to create something, or
//! [`Registry::clean`], removes; a description names the data file before that is made, so that no
//! data are left behind.
//!
//! SpaceJMP keeps its names in the kernel (§4); here `ls`, `chmod`, quotas and backups work on them.

mod clean;
pub(crate) mod json;
pub(crate) mod lock;
pub(crate) mod making;
mod slots;

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mneme_sys::files;
use serde::{Deserialize, Serialize};

pub use clean::Finding;
use lock::Lock;
pub(crate) use slots::{GIB, choose_base};

use crate::{Backing, CreateError, DescriptionError, FileError, Name, RegistryError, Uuid};

/// The version of the registry's format.
const FORMAT: u32 = 1;

/// Where a registry's fixed addresses lie, and where the files of memory go: chosen when the registry
/// is made, and kept in its file `registry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryOptions {
    /// The first address of the window, a multiple of 1 GiB.
    pub window_base: usize,
    /// Slots of 1 GiB in the window: 1 to 65,536.
    pub window_slots: usize,
    /// A directory on tmpfs for the data of [`Backing::Shared`](crate::Backing::Shared); without one
    /// a directory of the creating user below `/dev/shm`.
    pub shared_directory: Option<PathBuf>,
}

impl Default for RegistryOptions {
    /// 16 TiB from 2^45 (32 TiB) on: above what a sanitizer's shadow takes, below where Linux puts
    /// programs, heaps and libraries.
    fn default() -> Self {
        Self {
            window_base: 0x2000_0000_0000,
            window_slots: 16_384,
            shared_directory: None,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    format: u32,
    uuid: Uuid,
    #[serde(with = "json::address")]
    window_base: usize,
    window_slots: usize,
    #[serde(default)]
    shared_directory: Option<PathBuf>,
    /// Where it was made: a copy has the same identity, and not the same lock.
    #[serde(default)]
    place: Option<Place>,
}

/// Which file a registry's lock is.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    inode: u64,
    /// Devices have other numbers after a reboot.
    device: u64,
    boot: Uuid,
}

impl Place {
    fn of(lock: &Path) -> Result<Self, FileError> {
        let found = fs::symlink_metadata(lock).map_err(FileError::at("examine", lock))?;
        Ok(Self {
            inode: found.ino(),
            device: found.dev(),
            boot: Uuid::of_this_boot(),
        })
    }

    fn can_be(&self, now: &Self) -> bool {
        self.inode == now.inode && (self.device == now.device || self.boot != now.boot)
    }
}

/// A registry of segments and spaces. A clone is another handle to it. `Send + Sync`; any number of
/// processes may use one at a time.
#[derive(Debug, Clone)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    description: Description,
}

impl Registry {
    /// The directory of the user's registry, whether it exists or not: `$MNEME_DIR`, else `mneme` in
    /// `$XDG_RUNTIME_DIR` or in `/run/user/<uid>`, else `/dev/shm/mneme-<uid>-registry`.
    #[must_use]
    pub fn default_root() -> PathBuf {
        chosen_root().unwrap_or_else(last_resort)
    }

    /// Opens the user's registry, in the [default](Self::default_root) directory. Makes it if there is
    /// none.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`RegistryError::NotOurs`].
    pub fn open_default() -> Result<Self, RegistryError> {
        match chosen_root() {
            Some(root) => Self::open(root),
            None => Self::open(own_directory(&last_resort(), 0o700)?),
        }
    }

    /// Opens the registry in the directory `root`; makes both if they are not there, for this user
    /// alone (mode 0700). For a registry that several users share, make the directory first: the
    /// registry's files take its permissions.
    ///
    /// # Errors
    /// The directory cannot be made or read; its description is damaged or of another format.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, RegistryError> {
        Self::open_with(root, &RegistryOptions::default())
    }

    /// [`open`](Self::open) with a choice of addresses for a registry that is not there yet; an
    /// existing one keeps its own.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`RegistryError::Window`].
    pub fn open_with(
        root: impl AsRef<Path>,
        options: &RegistryOptions,
    ) -> Result<Self, RegistryError> {
        let root = root.as_ref();
        let path = root.join("registry");
        if !path.exists() {
            make(root, &path, options)?;
        }
        let root = fs::canonicalize(root).map_err(FileError::at("find", root))?;
        let description: Description =
            json::read(&path, FORMAT).map_err(RegistryError::Description)?;
        let (base, slots) = (description.window_base, description.window_slots);
        if !possible(base, slots) {
            return Err(RegistryError::Description(DescriptionError::Damaged {
                path,
                why: format!("a window of {slots} slots at {base:#x} is impossible"),
            }));
        }
        Ok(Self(Arc::new(Inner { root, description })))
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The registry's identity.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.0.description.uuid
    }

    /// The first address and the bytes of the window in which segments have their places.
    #[must_use]
    pub fn window(&self) -> (usize, usize) {
        let description = &self.0.description;
        (description.window_base, description.window_slots * GIB)
    }

    pub(crate) fn shared_directory(&self) -> Option<&Path> {
        self.0.description.shared_directory.as_deref()
    }

    /// The names of all segments, sorted.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn segments(&self) -> Result<Vec<Name>, RegistryError> {
        self.names("segments")
    }

    /// The names in one of the registry's directories, sorted. What no name could be is skipped:
    /// [`check`](Self::check) reports it.
    pub(crate) fn names(&self, directory: &str) -> Result<Vec<Name>, RegistryError> {
        let entries = entries(&self.0.root.join(directory))?;
        let names = entries.iter().filter_map(|path| path.file_name()?.to_str());
        let mut names: Vec<Name> = names.filter_map(|name| Name::new(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Bytes that segments of that backing may still take: what is free where their data would lie. Others may take it
    /// meanwhile.
    ///
    /// # Errors
    /// As creating a segment there: [`CreateError::Backing`], [`CreateError::File`].
    pub fn room(&self, backing: &Backing) -> Result<u64, CreateError> {
        let directory = backing.directory(self, 0)?;
        let free = files::free_space(&directory).map_err(FileError::at("examine", &directory))?;
        Ok(free)
    }

    /// The directory of a segment of that name, whether it exists or not.
    pub(crate) fn segment_directory(&self, name: &Name) -> PathBuf {
        self.0.root.join("segments").join(name)
    }

    /// Whether this is the registry that was made under its identity, and not a copy: what is known of that.
    pub(crate) fn is_at_home(&self) -> bool {
        self.0.description.place.is_none_or(|made| {
            Place::of(&self.0.root.join("lock")).is_ok_and(|now| made.can_be(&now))
        })
    }

    /// Locks the registry, for at most milliseconds of work.
    pub(crate) fn lock(&self) -> Result<Lock, RegistryError> {
        Lock::take(&self.0.root.join("lock"))
    }
}

/// The environment's choice, or the session's.
fn chosen_root() -> Option<PathBuf> {
    if let Some(root) = std::env::var_os("MNEME_DIR").filter(|v| !v.is_empty()) {
        return Some(root.into());
    }
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let mut session = session.into_iter().chain([files::runtime_directory()]);
    let session = session.find(|path| path.is_dir())?;
    Some(session.join("mneme"))
}

/// Where everybody may write.
fn last_resort() -> PathBuf {
    Path::new(files::SHARED_MEMORY).join(format!("mneme-{}-registry", files::user()))
}

fn possible(base: usize, slots: usize) -> bool {
    base > 0
        && base.is_multiple_of(GIB)
        && (1..=65_536).contains(&slots)
        && base
            .checked_add(slots * GIB)
            .is_some_and(|end| end <= 1 << 47)
}

/// Makes what a registry consists of; of several at once, one.
fn make(root: &Path, path: &Path, options: &RegistryOptions) -> Result<(), RegistryError> {
    let (base, slots) = (options.window_base, options.window_slots);
    if !possible(base, slots) {
        return Err(RegistryError::Window { base, slots });
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(FileError::at("create", root))?;
    let mode = fs::metadata(root)
        .map_err(FileError::at("examine", root))?
        .permissions()
        .mode();
    let lock = root.join("lock");
    match File::create_new(&lock) {
        Ok(_) => json::set_mode(&lock, mode & 0o666).map_err(FileError::at("share", &lock))?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(FileError::at("create", &lock)(e).into()),
    }
    mneme_sys::fault!("space.registry.lock");
    let _lock = Lock::take(&lock)?;
    for part in ["segments", "spaces", "making", "dying"] {
        let part = root.join(part);
        match fs::create_dir(&part) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(FileError::at("create", &part)(e).into()),
        }
        json::set_mode(&part, mode & 0o7777).map_err(FileError::at("share", &part))?;
    }
    mneme_sys::fault!("space.registry.parts");
    if path.exists() {
        return Ok(());
    }
    let description = Description {
        format: FORMAT,
        uuid: Uuid::random().map_err(RegistryError::Random)?,
        window_base: base,
        window_slots: slots,
        shared_directory: options.shared_directory.clone(),
        place: Some(Place::of(&lock)?),
    };
    json::write(path, &description, mode & 0o666)?;
    mneme_sys::fault!("space.registry.described");
    Ok(())
}

/// What lies in a directory; a missing one is empty.
pub(crate) fn entries(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let failed = || FileError::at("list", directory);
    let listed = match fs::read_dir(directory) {
        Ok(listed) => listed,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed()(e)),
    };
    listed
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed()))
        .collect()
}

/// A directory below one that everybody may write to: made if need be, and refused if another user
/// was faster.
pub(crate) fn own_directory(path: &Path, mode: u32) -> Result<PathBuf, RegistryError> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => json::set_mode(path, mode).map_err(FileError::at("share", path))?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
        Err(e) => return Err(FileError::at("create", path)(e).into()),
    }
    // Of the name itself: a link would lead wherever its maker likes.
    let found = fs::symlink_metadata(path).map_err(FileError::at("examine", path))?;
    if !found.is_dir() || found.uid() != files::user() {
        return Err(RegistryError::NotOurs {
            path: path.to_owned(),
            owner: found.uid(),
        });
    }
    Ok(path.to_owned())
}
