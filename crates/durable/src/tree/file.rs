//! The file of a tree in the directory of a store.

use std::time::Duration;

use mneme_sys::medium::{Directory, MediumError, Storage};
use mneme_tree::{Builder, Store, StoreError};

use crate::DurableError;
use crate::directory::{DirectoryMedium, Opened, failed};

use super::layout::FILE;

/// How long another process is waited for that is just ending.
const WAIT: Duration = Duration::from_secs(1);
/// `ELOOP` of Linux: a link, which a directory does not follow.
const LINK: i32 = 40;
/// The most bytes of a file that is recorded.
const RECORDED: u64 = 256 << 20;

fn builder() -> Builder {
    // As the files of a journal.
    Store::builder().wait_for_writer(WAIT).mode(0o600)
}

/// Opens the tree in that file, which is there.
pub(super) fn open(opened: &Opened, file: &str) -> Result<Store, DurableError> {
    match &opened.medium {
        DirectoryMedium::Files(files) => match builder().open(files.path().join(file)) {
            // By a process that the directory's lock was handed to, or that has handed it over.
            Err(StoreError::Locked { pid, .. }) => Err(DurableError::InUse {
                path: files.path().to_owned(),
                pid: pid.unwrap_or(0),
            }),
            opened => Ok(opened?),
        },
        DirectoryMedium::Recorded(recorded) => {
            // What a failed sync has left in the page cache is not to be believed.
            let storage = opened.directory.open(file);
            storage
                .and_then(|storage| storage.drop_cached())
                .map_err(failed("sync", file))?;
            let mapped = recorded.map(file, RECORDED).map_err(failed("map", file))?;
            Ok(builder().open_on(mapped)?)
        }
    }
}

/// Makes an empty tree in that file. One of that name is gone.
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

/// The tree's file, to look whether it keeps its name. `None`: it lies elsewhere, behind a link.
pub(super) fn to_watch(
    directory: &dyn Directory,
) -> Result<Option<Box<dyn Storage>>, DurableError> {
    match directory.open(FILE) {
        Err(MediumError::Os { source, .. }) if source.raw_os_error() == Some(LINK) => Ok(None),
        opened => Ok(Some(opened.map_err(failed("open", FILE))?)),
    }
}

/// Fails if the tree's file was removed, or another one has its name. Commits go on to succeed
/// then, in a file that goes with its last opening.
pub(super) fn look_named(tree: Option<&dyn Storage>) -> Result<(), DurableError> {
    match tree.map(Storage::is_named) {
        Some(Ok(false)) => Err(failed("sync", FILE)(MediumError::Removed)),
        // It has its name, or the system does not say.
        _ => Ok(()),
    }
}
