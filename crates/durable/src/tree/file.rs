//! The file of a tree in the directory of a store.

use std::time::Duration;

use mneme_sys::medium::{Directory, MediumError, Storage};
use mneme_tree::{Builder, Store, StoreError};

use crate::DurableError;
use crate::directory::{DirectoryMedium, Opened, failed};

use super::layout::FILE;

/// How long to wait for another process that is just ending.
const WAIT: Duration = Duration::from_secs(1);
/// `ELOOP` of Linux: the file is a link, which a directory does not follow.
const LINK: i32 = 40;
/// The largest file that a recorded directory keeps.
const RECORDED: u64 = 256 << 20;

fn builder() -> Builder {
    // The same permissions as for files of a journal.
    Store::builder().wait_for_writer(WAIT).mode(0o600)
}

/// Opens the tree in an existing file.
pub(super) fn open(opened: &Opened, file: &str) -> Result<Store, DurableError> {
    match &opened.medium {
        DirectoryMedium::Files(files) => match builder().open(files.path().join(file)) {
            // A process that handed over the directory's lock, or to which it was handed over, has
            // it open.
            Err(StoreError::Locked { pid, .. }) => Err(DurableError::InUse {
                path: files.path().to_owned(),
                pid: pid.unwrap_or(0),
            }),
            opened => Ok(opened?),
        },
        DirectoryMedium::Recorded(recorded) => {
            // After a failed sync the page cache may hold pages that were not written, which cannot
            // be trusted.
            let storage = opened.directory.open(file);
            storage
                .and_then(|storage| storage.drop_cached())
                .map_err(failed("sync", file))?;
            let mapped = recorded.map(file, RECORDED).map_err(failed("map", file))?;
            Ok(builder().open_on(mapped)?)
        }
    }
}

/// Creates an empty tree in that file. A file of that name is removed.
pub(super) fn create(opened: &Opened, file: &str) -> Result<Store, DurableError> {
    let directory = &*opened.directory;
    let names = directory.names();
    let names = names.map_err(failed("list", "the directory"))?;
    if names.iter().any(|name| name == file) {
        directory.remove(file).map_err(failed("remove", file))?;
    }
    if let DirectoryMedium::Recorded(_) = &opened.medium {
        let created = directory.create(file);
        created.map_err(failed("make", file))?;
    }
    open(opened, file)
}

/// Opens the tree's file to check later that it keeps its name. `None`: it lies elsewhere, behind a
/// link.
pub(super) fn to_watch(
    directory: &dyn Directory,
) -> Result<Option<Box<dyn Storage>>, DurableError> {
    match directory.open(FILE) {
        Err(MediumError::Os { source, .. }) if source.raw_os_error() == Some(LINK) => Ok(None),
        opened => Ok(Some(opened.map_err(failed("open", FILE))?)),
    }
}

/// Fails if the tree's file was removed or replaced. Commits would continue to succeed, in a file
/// that vanishes when its last opening ends.
pub(super) fn look_named(tree: Option<&dyn Storage>) -> Result<(), DurableError> {
    match tree.map(Storage::is_named) {
        Some(Ok(false)) => Err(failed("sync", FILE)(MediumError::Removed)),
        // The file still has its name, or the system cannot tell.
        _ => Ok(()),
    }
}
