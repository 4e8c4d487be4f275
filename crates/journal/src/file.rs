//! Files of the journal: begun, complete, and removed.

use mneme_sys::fault::without;
use mneme_sys::medium::{Directory, MediumError, Storage};
use mneme_sys::random_bytes;

use crate::chain::Link;
use crate::error::on;
use crate::frame;
use crate::header::{BLOCK, FileKind, JournalHeader, Runs};
use crate::options::{JournalStats, Options};
use crate::spares::Spares;
use crate::{JournalError, Position, names};

/// The file that is being written.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) name: String,
    pub(crate) storage: Box<dyn Storage>,
    pub(crate) first: Position,
    pub(crate) seed: u32,
    pub(crate) offset: u64,
    /// Whether the part that is not written yet has no blocks on the disk.
    pub(crate) is_sparse: bool,
}

/// A complete file.
#[derive(Debug)]
pub(crate) struct Older {
    pub(crate) name: String,
    pub(crate) first: Position,
    /// It failed: it is read only as far as it was durable, and never reused.
    pub(crate) failed: bool,
    /// Parts of it may have no blocks on the disk, so it does not become a spare.
    pub(crate) is_sparse: bool,
}

pub(crate) fn older(link: Link) -> Older {
    Older {
        name: link.name,
        first: link.header.first,
        failed: false,
        is_sparse: link.header.is_sparse,
    }
}

pub(crate) fn draw_number() -> Result<u64, JournalError> {
    let mut number = [0; 8];
    let drawn = random_bytes(&mut number).map_err(|source| MediumError::Os {
        what: "get random bytes",
        source,
    });
    drawn.map_err(on("draw a number for", "the run"))?;
    Ok(u64::from_le_bytes(number))
}

pub(crate) fn remove(directory: &dyn Directory, name: &str) -> Result<(), JournalError> {
    directory.remove(name).map_err(on("remove", name))
}

pub(crate) fn sync_names(directory: &dyn Directory) -> Result<(), JournalError> {
    directory.sync().map_err(on("sync", "the directory"))
}

/// Begins the file at `first`, from a spare or as a sparse file. When this returns, its header and
/// its name are durable.
pub(crate) fn begin_file(
    directory: &dyn Directory,
    spares: &mut Spares,
    options: &Options,
    runs: &Runs,
    first: Position,
    is_sparse: bool,
    stats: &mut JournalStats,
) -> Result<Current, JournalError> {
    let header = JournalHeader {
        identity: options.identity,
        first,
        file_bytes: options.file_bytes,
        is_sparse,
        wall_ms: options.clock.wall_ms(),
        runs: runs.clone(),
    };
    let (name, block) = (names::journal(first), header.encode(FileKind::Journal));
    let storage = match is_sparse {
        // Until the file has its name nothing has happened. Whatever refused the new file, a spare
        // needs no space.
        true => spares
            .make_sparse(directory)
            .and_then(|spare| {
                let named = write_header(directory, &spare, &block)
                    .and_then(|storage| name_file(directory, &spare, &name, storage));
                named.inspect_err(|_| drop(directory.remove(&spare)))
            })
            .map_err(|_| JournalError::NoSpace {
                bytes: options.file_bytes,
            })?,
        false => {
            let (spare, storage) = match take_spare(directory, spares, &block) {
                // Nothing was lost with it.
                Err(JournalError::Medium { .. }) => take_spare(directory, spares, &block)?,
                taken => taken?,
            };
            let named = name_file(directory, &spare, &name, storage);
            if let Err(JournalError::NoSpace { .. }) = named {
                // Nothing has happened to the spare. Trying again must not use up the spares.
                spares.add(vec![spare]);
            }
            named?
        }
    };
    if !without("file.directory") {
        sync_names(directory)?;
    }
    stats.written += block.len() as u64;
    stats.syncs += 1;
    Ok(Current {
        seed: frame::seed(header.run(), first),
        name,
        storage,
        first,
        offset: BLOCK as u64,
        is_sparse,
    })
}

/// Takes a spare and writes the header into it. A spare whose sync fails is removed: it holds
/// nothing yet, and is not trusted again.
fn take_spare(
    directory: &dyn Directory,
    spares: &mut Spares,
    block: &[u8],
) -> Result<(String, Box<dyn Storage>), JournalError> {
    let spare = spares.take(directory)?;
    match write_header(directory, &spare, block) {
        Ok(storage) => Ok((spare, storage)),
        Err(error) => {
            match error {
                JournalError::NoSpace { .. } => spares.add(vec![spare]),
                _ => drop(directory.remove(&spare)),
            }
            Err(error)
        }
    }
}

/// Writes the header of a spare, and waits until it is durable.
fn write_header(
    directory: &dyn Directory,
    spare: &str,
    block: &[u8],
) -> Result<Box<dyn Storage>, JournalError> {
    let storage = directory.open(spare).map_err(on("open", spare))?;
    storage.write(0, block).map_err(on("write to", spare))?;
    if !without("file.header") {
        storage.sync().map_err(on("sync", spare))?;
    }
    Ok(storage)
}

/// Renames a spare that has a header to its final name.
fn name_file(
    directory: &dyn Directory,
    spare: &str,
    name: &str,
    storage: Box<dyn Storage>,
) -> Result<Box<dyn Storage>, JournalError> {
    directory.rename(spare, name).map_err(on("rename", spare))?;
    Ok(storage)
}
