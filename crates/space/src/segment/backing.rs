//! Where a segment's bytes are kept, and which directory of this machine that is.

use std::fs;
use std::path::{Path, PathBuf};

use mneme_sys::files::{self, FsKind};
use serde::{Deserialize, Serialize};

use crate::registry::files::own_directory;
use crate::{CreateError, FileError, Registry, RegistryError};

/// Where a segment's bytes are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Backing {
    /// Memory (tmpfs): shared by processes, lost at the next boot. The file is not sealed against
    /// shrinking, because Linux allows that only for files without a name: a user who may write the
    /// file may truncate it, which kills visitors (`SIGBUS`).
    #[default]
    Shared,
    /// Memory in pages of 2 MiB: the hugetlb pool if a hugetlbfs is mounted and can hold the
    /// segment's initial size, otherwise a tmpfs mounted with `huge=`. Mappings of the pool cannot
    /// be moved, so a process cannot have two such segments with the same addresses mapped in
    /// turns.
    Huge,
    /// A file in the given directory, on any file system; as durable as that file system.
    File {
        /// An existing directory; its absolute path is recorded.
        directory: PathBuf,
    },
    /// A file on persistent memory, in a file system mounted with `dax`: stores are durable once
    /// the CPU's caches are written back.
    Dax {
        /// An existing directory; its absolute path is recorded.
        directory: PathBuf,
    },
}

impl Backing {
    /// Whether the data are lost at a reboot.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self, Self::Shared | Self::Huge)
    }

    /// This backing with an absolute path.
    pub(super) fn absolute(&self) -> Result<Self, CreateError> {
        let absolute = |directory: &Path| {
            fs::canonicalize(directory)
                .map_err(FileError::at("find", directory))
                .map_err(CreateError::from)
        };
        Ok(match self {
            Self::File { directory } => Self::File {
                directory: absolute(directory)?,
            },
            Self::Dax { directory } => Self::Dax {
                directory: absolute(directory)?,
            },
            other => other.clone(),
        })
    }

    /// The directory for the data file of a segment of `size` bytes.
    pub(crate) fn directory(
        &self,
        registry: &Registry,
        size: usize,
    ) -> Result<PathBuf, CreateError> {
        match self {
            Self::Shared => shared(registry),
            Self::Huge => huge(registry, size),
            Self::File { directory } => match fs_kind(directory)? {
                FsKind::HugePages { .. } => Err(missing(format!(
                    "{} is hugetlbfs: ask for `Backing::Huge`",
                    directory.display()
                ))),
                _ => Ok(directory.clone()),
            },
            // Whether access is direct (DAX) can be determined only for a file: see
            // `Backing::accepts`.
            Self::Dax { directory } => Ok(directory.clone()),
        }
    }

    /// Checks that a file that was just created is of this kind.
    pub(super) fn accepts(&self, file: &fs::File, path: &Path) -> Result<(), CreateError> {
        if !matches!(self, Self::Dax { .. }) {
            return Ok(());
        }
        if files::is_direct(file).map_err(FileError::at("map", path))? {
            return Ok(());
        }
        Err(missing(format!(
            "{} is not on persistent memory: mount it with `-o dax`, or ask for `Backing::File`",
            path.display()
        )))
    }
}

impl Registry {
    /// The number of bytes that segments of that backing may still take: the free space where their
    /// data would be stored. Others may take it meanwhile.
    ///
    /// # Errors
    /// As for creating a segment there: [`CreateError::Backing`], [`CreateError::File`].
    pub fn free_space(&self, backing: &Backing) -> Result<u64, CreateError> {
        let directory = backing.directory(self, 0)?;
        let free = files::free_space(&directory).map_err(FileError::at("examine", &directory))?;
        Ok(free)
    }
}

fn missing(why: String) -> CreateError {
    CreateError::Backing { why }
}

fn fs_kind(directory: &Path) -> Result<FsKind, CreateError> {
    Ok(files::fs_kind(directory).map_err(FileError::at("examine", directory))?)
}

/// The registry's choice, or else this user's directory inside one that all users share.
fn shared(registry: &Registry) -> Result<PathBuf, CreateError> {
    let directory = match registry.shared_directory() {
        Some(directory) => directory.to_owned(),
        None => of_this_user(registry, &places(registry))?,
    };
    match fs_kind(&directory)? {
        FsKind::Memory => Ok(directory),
        _ => Err(missing(format!(
            "{} is not on tmpfs, where shared memory lives: mount one there",
            directory.display()
        ))),
    }
}

/// The directories for this user's data in memory, in order of preference: beside those of other
/// users, then beside the registry's names.
pub(crate) fn places(registry: &Registry) -> [PathBuf; 2] {
    let user = files::user();
    [
        Path::new(files::SHARED_MEMORY).join(format!("mneme-{user}")),
        registry.root().join(format!("data-{user}")),
    ]
}

/// Creates the first of these directories that this user can have. Other users may traverse it to
/// files that they have permissions for. Any user may have taken the first name; the second is in
/// memory only if the registry is.
fn of_this_user(registry: &Registry, places: &[PathBuf; 2]) -> Result<PathBuf, CreateError> {
    let [first, second] = places;
    let taken = match own_directory(first, 0o711) {
        Err(taken @ RegistryError::NotOurs { .. }) => taken,
        made => return Ok(made?),
    };
    match fs_kind(registry.root())? {
        FsKind::Memory => Ok(own_directory(second, 0o711)?),
        _ => Err(taken.into()),
    }
}

const HUGE_PAGE: u64 = 2 << 20;

/// A mounted hugetlbfs whose pool has the pages, otherwise a tmpfs that provides huge pages.
fn huge(registry: &Registry, size: usize) -> Result<PathBuf, CreateError> {
    let pages = size.div_ceil(HUGE_PAGE as usize);
    let pool = mneme_sys::huge_pool_free() / HUGE_PAGE as usize;
    for (mount, _) in files::mounts_of("hugetlbfs") {
        let fits = files::fs_kind(&mount).ok() == Some(FsKind::HugePages { page: HUGE_PAGE });
        if fits && pool >= pages {
            return Ok(mount);
        }
    }
    let chosen = shared(registry)?;
    let tmpfs = files::mounts_of("tmpfs")
        .into_iter()
        .filter(|(mount, _)| chosen.starts_with(mount))
        .max_by_key(|(mount, _)| mount.as_os_str().len());
    if let Some((_, options)) = &tmpfs
        && files::promises_huge_pages(options)
    {
        return Ok(chosen);
    }
    let mount = tmpfs.map_or(chosen, |(mount, _)| mount);
    Err(missing(format!(
        "no hugetlbfs of 2 MiB pages is mounted whose pool has {pages} free (it has {pool}), and {mount} gives no huge \
         pages: `sysctl vm.nr_hugepages={pages}` and `mount -t hugetlbfs none /dev/hugepages`, or \
         `mount -o remount,huge=advise {mount}`",
        mount = mount.display()
    )))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use mneme_testkit::TestDir;

    /// If somebody else has taken the directory's name in the shared memory, data are stored beside
    /// the registry's names.
    #[test]
    fn segments_can_be_created_although_the_directorys_name_is_taken() {
        let scratch = TestDir::new("places");
        let registry = Registry::open(scratch.path().join("registry")).unwrap();
        let [_, beside] = places(&registry);
        // Like another user's directory, a file does not belong to this user as a directory.
        let taken = scratch.path().join("taken");
        fs::write(&taken, "").unwrap();
        let chosen = of_this_user(&registry, &[taken.clone(), beside.clone()]);
        assert_eq!(chosen.unwrap(), beside);
        assert!(registry.data_directories().contains(&beside));
        // If the registry's names are on a disk, there is no memory beside them.
        let on_disk = TestDir::on_disk("places");
        if fs_kind(on_disk.path()).unwrap() != FsKind::Memory {
            let registry = Registry::open(on_disk.path().join("registry")).unwrap();
            let refused = of_this_user(&registry, &[taken, places(&registry)[1].clone()]);
            assert!(refused.unwrap_err().to_string().contains("taken"));
        }
    }
}
