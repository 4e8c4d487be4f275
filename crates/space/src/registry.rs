//! The registry: a directory in which every segment and space has its name, and in which some
//! description names every file.
//!
//! ```text
//! <root>/registry          JSON: format, identity, the window of addresses, where memory's files go
//! <root>/lock              locked while addresses are chosen and leftovers are cleaned
//! <root>/segments/<name>/  meta (JSON), control (participants and locks), data (a link)
//! <root>/spaces/<name>/    meta (JSON), control, lock, calls
//! <root>/making/<uuid>/    something being built, and <uuid>.lock, held by the process that builds it
//! <root>/dying/<uuid>/     something being removed
//! ```
//! **A name appears only when everything behind it is complete.** A directory is built in `making`
//! and then renamed, with a rename that replaces nothing; removal first renames it to `dying`.
//! Directories move only from `making` to `segments` (or `spaces`) to `dying`, so a process that
//! looks there in this order misses nothing. If a process dies half-way, the directory that it
//! leaves is removed by the next process that creates something, or by [`Registry::clean`]. A
//! description names the data file before that file is created, so no data are left that nothing
//! names.
//!
//! SpaceJMP keeps its names in the kernel (§4); here `ls`, `chmod`, quotas and backups work on
//! them.

pub(crate) mod files;
pub(crate) mod json;
pub(crate) mod lock;

use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mneme_sys::{Window, files as machine};
use serde::{Deserialize, Serialize};

use files::{entries, is_own_directory, own_directory};
use lock::Lock;

use crate::hexadecimal;
use crate::segment::permissions;
use crate::{DescriptionError, FileError, Name, RegistryError, Uuid};

/// The unit in which addresses are allocated.
pub(crate) const GIB: usize = 1 << 30;

/// The version of the registry's format.
const FORMAT: u32 = 1;

/// Where a registry's fixed addresses lie, and where the files of segments in memory go. Chosen
/// when the registry is created, and kept in its file `registry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryOptions {
    /// The first address of the window, a multiple of 1 GiB.
    pub window_base: usize,
    /// Slots of 1 GiB in the window: 1 to 65,536.
    pub window_slots: usize,
    /// A directory on tmpfs for the data of [`Backing::Shared`](crate::Backing::Shared). By
    /// default, a directory of the creating user below `/dev/shm`.
    pub shared_directory: Option<PathBuf>,
}

impl Default for RegistryOptions {
    /// The first of two windows that fits into this machine's user address space. The first has 16
    /// TiB from 2^46 (64 TiB) on: above the shadow memory of sanitizers and the addresses at which
    /// V8 asks for memory, below where Linux puts programs, heaps and libraries. The second, for
    /// kernels with 38 or 39 bits of addresses, has 96 GiB from 32 GiB on.
    fn default() -> Self {
        Self::reachable(Window::is_in_user_space)
    }
}

impl RegistryOptions {
    fn reachable(is_in_user_space: impl Fn(usize) -> bool) -> Self {
        let (window_base, window_slots) = match is_in_user_space(LARGE.0 + (LARGE.1 - 1) * GIB) {
            true => LARGE,
            false => SMALL,
        };
        Self {
            window_base,
            window_slots,
            shared_directory: None,
        }
    }
}

/// First address and slots of the usual window.
const LARGE: (usize, usize) = (0x4000_0000_0000, 16_384);
/// First address and slots of the window for kernels with few bits of addresses.
const SMALL: (usize, usize) = (0x8_0000_0000, 96);

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    format: u32,
    uuid: Uuid,
    #[serde(with = "hexadecimal::address")]
    window_base: usize,
    window_slots: usize,
    #[serde(default)]
    shared_directory: Option<PathBuf>,
    /// Where the registry was created: a copy has the same identity, but another lock.
    #[serde(default)]
    place: Option<Place>,
}

/// Identifies the file that is a registry's lock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    inode: u64,
    /// The boot in which `device` is valid: devices have other numbers after a reboot.
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

/// A registry of segments and spaces. A clone is another handle to the same registry. `Send +
/// Sync`; any number of processes may use one at a time.
#[derive(Debug, Clone)]
pub struct Registry(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    description: Description,
}

impl Registry {
    /// The directory of the user's registry, whether it exists or not: `$MNEME_DIR`, else
    /// `/dev/shm/mneme-<uid>-registry`, beside the memory that its names lead to. It is the same in
    /// a login session, in a service and after a logout.
    ///
    /// Earlier builds kept the registry in `mneme` in `$XDG_RUNTIME_DIR` or `/run/user/<uid>`,
    /// which the system empties when the user's last session ends. A registry that exists there is
    /// used until then, unless this user also has one beside the memory. Another user's directory
    /// of that name, or a link, is ignored.
    #[must_use]
    pub fn default_root() -> PathBuf {
        environment_root().unwrap_or_else(|| of_this_user(beside_memory(), &session_directories()))
    }

    /// Opens the user's registry, in the [default](Self::default_root) directory. Creates it if
    /// there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`RegistryError::NotOurs`].
    pub fn open_default() -> Result<Self, RegistryError> {
        let root = Self::default_root();
        if root == beside_memory() {
            return Self::open(own_directory(&root, 0o700)?);
        }
        Self::open(root)
    }

    /// Opens the registry in the directory `root`. Creates both if they do not exist, for this user
    /// only (mode 0700). For a registry that several users share, create the directory first: the
    /// registry's files take its permissions.
    ///
    /// # Errors
    /// The directory cannot be created or read; its description is damaged or of another format.
    pub fn open(root: impl AsRef<Path>) -> Result<Self, RegistryError> {
        Self::open_with(root, &RegistryOptions::default())
    }

    /// As [`open`](Self::open), with a choice of addresses for a registry that does not exist yet;
    /// an existing one keeps its own.
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
        keep_readers_from(&root.join("lock"));
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

    /// The first address and the length in bytes of the window for segments.
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

    /// The names in one of the registry's directories, sorted. Entries that cannot be names are
    /// skipped: [`check`](Self::check) reports them.
    pub(crate) fn names(&self, directory: &str) -> Result<Vec<Name>, RegistryError> {
        let entries = entries(&self.0.root.join(directory))?;
        let names = entries.iter().filter_map(|path| path.file_name()?.to_str());
        let mut names: Vec<Name> = names.filter_map(|name| Name::new(name).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// The directory of a segment of that name, whether it exists or not.
    pub(crate) fn segment_directory(&self, name: &Name) -> PathBuf {
        self.0.root.join("segments").join(name)
    }

    /// Whether this is the registry that was created under its identity, and not a copy, as far as
    /// that is known.
    pub(crate) fn is_at_home(&self) -> bool {
        self.0.description.place.is_none_or(|made| {
            Place::of(&self.0.root.join("lock")).is_ok_and(|now| made.can_be(&now))
        })
    }

    /// Locks the registry. It may be held for a few milliseconds of work only.
    pub(crate) fn lock(&self) -> Result<Lock, RegistryError> {
        Lock::take(&self.0.root.join("lock"))
    }
}

/// The registry that the environment names.
fn environment_root() -> Option<PathBuf> {
    let chosen = std::env::var_os("MNEME_DIR").filter(|value| !value.is_empty());
    chosen.map(PathBuf::from)
}

/// The user's default registry, in a directory where everybody may write.
fn beside_memory() -> PathBuf {
    Path::new(machine::SHARED_MEMORY).join(format!("mneme-{}-registry", machine::user()))
}

/// The directories in which a login session may keep its files.
fn session_directories() -> Vec<PathBuf> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    session
        .into_iter()
        .chain([machine::runtime_directory()])
        .collect()
}

/// A registry that an earlier build created for this user in one of these directories. After `su`
/// the environment may still name another user's directory, which that user could change at any
/// time.
fn of_session(directories: &[PathBuf]) -> Option<PathBuf> {
    let own = directories.iter().filter(|path| is_own_directory(path));
    let mut roots = own.map(|path| path.join("mneme"));
    roots.find(|root| is_own_directory(root) && root.join("registry").exists())
}

/// The user's registry where the environment names none.
fn of_this_user(beside_memory: PathBuf, sessions: &[PathBuf]) -> PathBuf {
    // Any user may have taken the name to make this process look for its segments there.
    if is_own_directory(&beside_memory) && beside_memory.join("registry").exists() {
        return beside_memory;
    }
    of_session(sessions).unwrap_or(beside_memory)
}

fn possible(base: usize, slots: usize) -> bool {
    base > 0
        && base.is_multiple_of(GIB)
        && (1..=65_536).contains(&slots)
        && base
            .checked_add(slots * GIB)
            .is_some_and(|end| end <= 1 << 47)
}

/// Creates the registry's files. If several processes do so at once, one of them succeeds and the
/// others use its files.
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
        Ok(_) => machine::set_mode(&lock, permissions::lock(mode))
            .map_err(FileError::at("share", &lock))?,
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
        machine::set_mode(&part, mode & 0o7777).map_err(FileError::at("share", &part))?;
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

/// Removes the lock file's read permission for users who may not write it, if the file belongs to
/// this user: a reader could hold the lock for ever. Earlier builds gave that permission.
fn keep_readers_from(lock: &Path) {
    let Ok(found) = fs::symlink_metadata(lock) else {
        return;
    };
    let mode = found.mode() & 0o777;
    let narrow = mode & permissions::lock(mode);
    if found.is_file() && found.uid() == machine::user() && narrow != mode {
        // If it is refused, the lock works as before.
        let _ = machine::set_mode(lock, narrow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_window_fits_the_kernels_address_space() {
        for bits in [38, 39, 47, 48] {
            let options = RegistryOptions::reachable(|address| address < 1 << bits);
            let end = options.window_base + options.window_slots * GIB;
            assert!(possible(options.window_base, options.window_slots));
            assert!(end <= 1 << bits, "{bits} bits");
        }
    }

    /// A registry that an earlier build created in a session's directory is found; a directory
    /// without one is not chosen.
    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn a_registry_in_a_session_directory_is_used_only_if_it_exists() {
        let session = PathBuf::from(format!("/dev/shm/mneme-session-{}", std::process::id()));
        let directories = [PathBuf::from("/none"), session.clone()];
        fs::create_dir_all(session.join("mneme")).unwrap();
        assert_eq!(of_session(&directories), None);
        fs::write(session.join("mneme/registry"), "{}").unwrap();
        assert_eq!(of_session(&directories), Some(session.join("mneme")));
        // The directory of another user's session, which the environment still names after `su`;
        // only root can create one.
        let owned = |user| {
            let paths = [session.clone(), session.join("mneme")];
            let mut each = paths.iter();
            each.try_for_each(|path| std::os::unix::fs::chown(path, Some(user), None))
        };
        let user = machine::user();
        if owned(65_534).is_ok() {
            assert_eq!(of_session(&directories), None);
            // Only the registry's own directory belongs to another user.
            std::os::unix::fs::chown(&session, Some(user), None).unwrap();
            assert_eq!(of_session(&directories), None);
            owned(user).unwrap();
        }
        fs::remove_dir_all(session).unwrap();
    }

    /// Another user's directory, or a link, under the name beside the memory hides no registry of a
    /// session. If there is no such registry, opening reports whose the directory is.
    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn a_directory_of_another_user_hides_no_registry() {
        let scratch = PathBuf::from(format!("/dev/shm/mneme-taken-{}", std::process::id()));
        let sessions = [scratch.join("session")];
        let of_session = scratch.join("session/mneme");
        let (own, link) = (scratch.join("own"), scratch.join("link"));
        for registry in [&of_session, &own] {
            fs::create_dir_all(registry).unwrap();
            fs::write(registry.join("registry"), "{}").unwrap();
        }
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert_eq!(of_this_user(own.clone(), &sessions), own);
        assert_eq!(of_this_user(link, &sessions), of_session);
        // Only root can give a directory away.
        if std::os::unix::fs::chown(&own, Some(65_534), None).is_ok() {
            assert_eq!(of_this_user(own.clone(), &sessions), of_session);
            assert_eq!(of_this_user(own.clone(), &[]), own);
            let refused = own_directory(&own, 0o700).unwrap_err();
            assert!(refused.to_string().contains("65534"), "{refused}");
        }
        fs::remove_dir_all(scratch).unwrap();
    }
}
