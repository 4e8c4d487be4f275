//! File system operations that a registry of named memory needs and the standard library lacks:
//! renaming that never replaces, safe opening, and finding out where memory has its files.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Where a file system keeps its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsKind {
    /// Memory: tmpfs.
    Memory,
    /// The pool of huge pages (hugetlbfs).
    HugePages {
        /// The size of a page in bytes.
        page: u64,
    },
    /// On a medium: a disk, persistent memory, or the network.
    Other,
}

/// Renames a file or a directory; if `to` exists already, neither is changed.
///
/// # Errors
/// `AlreadyExists`; other errors of the kernel.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    let (old, new) = (c_path(from)?, c_path(to)?);
    // SAFETY: both end with a NUL and live until the call returns.
    let done = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            old.as_ptr(),
            libc::AT_FDCWD,
            new.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // The file system lacks the flag. Renaming a directory never replaces one that is not
        // empty, and this function is only called for such directories.
        Some(libc::EINVAL | libc::ENOSYS) if from.is_dir() => match fs::rename(from, to) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST)) => {
                Err(io::ErrorKind::AlreadyExists.into())
            }
            other => other,
        },
        _ => Err(error),
    }
}

/// Where the file system of a file or directory keeps its files.
///
/// # Errors
/// Errors of the kernel: there is no such path, or it may not be examined.
pub fn fs_kind(path: &Path) -> io::Result<FsKind> {
    let path = c_path(path)?;
    // SAFETY: `statfs` consists of integers, for which zeros are valid.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a NUL, and `fs` is valid for one `statfs`.
    if unsafe { libc::statfs(path.as_ptr(), &mut fs) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(kind(&fs))
}

/// As [`fs_kind`], for an open file.
pub(crate) fn fs_kind_of(file: &File) -> io::Result<FsKind> {
    // SAFETY: `statfs` consists of integers, for which zeros are valid.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a valid descriptor, and `fs` is valid for one `statfs`.
    if unsafe { libc::fstatfs(file.as_raw_fd(), &mut fs) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(kind(&fs))
}

fn kind(fs: &libc::statfs) -> FsKind {
    match magic(fs) {
        libc::TMPFS_MAGIC => FsKind::Memory,
        libc::HUGETLBFS_MAGIC => FsKind::HugePages {
            page: fs.f_bsize as u64,
        },
        _ => FsKind::Other,
    }
}

/// The type number of a file system.
#[allow(clippy::unnecessary_cast, reason = "musl has another type than glibc")]
pub(crate) fn magic(fs: &libc::statfs) -> libc::c_long {
    fs.f_type as libc::c_long
}

/// Whether stores to a mapping of the file reach its medium without `msync`, once the CPU's cache
/// is written back: persistent memory, mounted with `dax`.
///
/// # Errors
/// Other errors of the kernel. The file must not be empty.
pub fn is_direct(file: &File) -> io::Result<bool> {
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC,
            file.as_raw_fd(),
            0,
        )
    };
    if mapped != libc::MAP_FAILED {
        // SAFETY: the mapping was created by the call above, and nobody else knows it.
        unsafe { libc::munmap(mapped, 4096) };
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP | libc::EINVAL) => Ok(false),
        _ => Err(error),
    }
}

/// Opens a file that must be a regular one: links are not followed, and neither a pipe nor a lease
/// makes this wait. For directories in which others may create anything.
///
/// # Errors
/// Errors of the kernel; `InvalidInput` if it is not a regular file.
pub fn open_plain(path: &Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    plain(file)
}

/// As [`open_plain`], for a path that may be a link.
///
/// # Errors
/// As [`open_plain`].
pub fn open_linked(path: &Path, options: &mut fs::OpenOptions) -> io::Result<File> {
    plain(options.custom_flags(libc::O_NONBLOCK).open(path)?)
}

/// All bytes of a file that [`open_linked`] opens.
///
/// # Errors
/// As [`open_plain`].
pub fn read_linked(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_linked(path, fs::OpenOptions::new().read(true))?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn plain(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "it is not a file",
    ))
}

/// Sets the permissions of a file or a directory, but not of a link's target, regardless of the
/// process's umask and of whether it may be opened.
///
/// # Errors
/// Errors of the kernel; the path is a link.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
        .open(path)?;
    if file.metadata()?.is_symlink() {
        return Err(io::Error::from_raw_os_error(libc::ELOOP));
    }
    fs::set_permissions(through(&file), fs::Permissions::from_mode(mode))
}

/// A directory that stays the same one, whatever its name leads to meanwhile.
#[derive(Debug)]
pub struct HeldDirectory(File);

impl HeldDirectory {
    /// Opens the directory; a link is refused.
    ///
    /// # Errors
    /// Errors of the kernel; `NotADirectory`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let opened = fs::OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(path);
        opened.map(Self).map_err(|e| match e.raw_os_error() {
            Some(libc::ELOOP) => io::ErrorKind::NotADirectory.into(),
            _ => e,
        })
    }

    /// The user that owns it.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(self.0.metadata()?.uid())
    }

    /// A path that leads to it in this process, as long as this value exists.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        through(&self.0)
    }
}

fn through(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// The number of bytes that this user may still write to the file system that holds `path`;
/// `u64::MAX` if that has no limit of its own.
///
/// # Errors
/// The path does not exist, or the kernel refuses to answer.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    if found.f_blocks == 0 {
        // A tmpfs without a size.
        return Ok(u64::MAX);
    }
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The size in bytes of the file system that holds `path`, used or not; `u64::MAX` if that has no
/// limit of its own.
///
/// # Errors
/// As [`free_space`].
pub fn whole_space(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    Ok(match found.f_blocks {
        0 => u64::MAX,
        blocks => blocks.saturating_mul(found.f_frsize),
    })
}

fn statvfs(path: &Path) -> io::Result<libc::statvfs> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `statvfs` consists of integers, for which zeros are valid.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with NUL, and `found` is a local variable.
    if unsafe { libc::statvfs(path.as_ptr(), &mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found)
}

/// The user that owns files created by this process.
#[must_use]
pub fn user() -> u32 {
    // SAFETY: no arguments, no preconditions, cannot fail.
    unsafe { libc::geteuid() }
}

/// The tmpfs that every Linux has.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// The runtime directory of the user's login session, whether it exists or not.
#[must_use]
pub fn runtime_directory() -> PathBuf {
    PathBuf::from(format!("/run/user/{}", user()))
}

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The device's numbers, such as `8:1`.
    pub device: String,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// The file system's own options, separated by commas.
    pub options: String,
}

/// The mounts in a text like `/proc/self/mountinfo`, in its order; invalid lines are skipped.
pub fn mounts_in(text: &str) -> impl Iterator<Item = Mount> {
    let mount = |line: &str| {
        // `id parent major:minor root point options [tags] - type source super-options`
        let (place, system) = line.split_once(" - ")?;
        let (mut place, mut system) = (place.split(' '), system.split(' '));
        Some(Mount {
            device: place.nth(2)?.to_owned(),
            // The kernel writes a space this way.
            point: PathBuf::from(place.nth(1)?.replace("\\040", " ")),
            kind: system.next()?.to_owned(),
            options: system.nth(1)?.to_owned(),
        })
    };
    text.lines().filter_map(mount)
}

/// All mounts that this process sees.
#[must_use]
pub fn mounts() -> Vec<Mount> {
    mounts_in(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()).collect()
}

/// The mount points of file systems of a type, with their own options.
#[must_use]
pub fn mounts_of(kind: &str) -> Vec<(PathBuf, String)> {
    let mounts = mounts().into_iter().filter(|mount| mount.kind == kind);
    mounts.map(|mount| (mount.point, mount.options)).collect()
}

/// Whether a tmpfs with these options provides huge pages (`huge=` other than `never`).
#[must_use]
pub fn promises_huge_pages(options: &str) -> bool {
    options
        .split(',')
        .filter_map(|option| option.strip_prefix("huge="))
        .any(|choice| matches!(choice, "always" | "within_size" | "advise"))
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_type_with_their_own_options() {
        let text = "22 1 0:20 / /dev/shm rw,nosuid shared:3 - tmpfs tmpfs rw,huge=advise\n\
                    23 1 8:1 / /a\\040b rw - ext4 /dev/sda1 rw,discard\n\
                    nonsense\n 1 - tmpfs\n\n";
        let mount = |device: &str, point: &str, kind: &str, options: &str| Mount {
            device: device.to_owned(),
            point: point.into(),
            kind: kind.to_owned(),
            options: options.to_owned(),
        };
        let expected = [
            mount("0:20", "/dev/shm", "tmpfs", "rw,huge=advise"),
            mount("8:1", "/a b", "ext4", "rw,discard"),
        ];
        assert_eq!(mounts_in(text).collect::<Vec<_>>(), expected);
        assert!(promises_huge_pages("rw,huge=advise"));
        assert!(!promises_huge_pages("rw,huge=never"));
    }
}
