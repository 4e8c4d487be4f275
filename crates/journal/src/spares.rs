//! Files that are preallocated before they are needed: full of zeros, or of a removed file's
//! content.

use mneme_sys::medium::{Directory, MediumError, Storage};

use crate::error::on;
use crate::{JournalError, names};

/// The number of zeros that are written at once.
const PIECE: usize = 1 << 20;

/// A spare that is being created.
#[derive(Debug)]
struct Making {
    name: String,
    storage: Box<dyn Storage>,
    bytes: u64,
}

/// The spares of a directory.
#[derive(Debug)]
pub(crate) struct Spares {
    file_bytes: u64,
    ready: Vec<String>,
    making: Option<Making>,
    next: u64,
    zeros: Vec<u8>,
}

impl Spares {
    /// The spares that earlier openings have left. The directory has been synced, so no crash
    /// brings an older name of them back.
    pub(crate) fn find(directory: &dyn Directory, file_bytes: u64) -> Result<Self, JournalError> {
        let mut spares = Self {
            file_bytes,
            ready: Vec::new(),
            making: None,
            next: 0,
            zeros: vec![0; PIECE.min(file_bytes as usize)],
        };
        let list = directory.names().map_err(on("list", "the directory"))?;
        for name in list {
            let plain = name.strip_suffix(names::UNFINISHED);
            let Some(number) = names::spare_number(plain.unwrap_or(&name)) else {
                continue;
            };
            spares.next = spares.next.max(number + 1);
            let whole = plain.is_none() && {
                let storage = directory.open(&name).map_err(on("open", &name))?;
                storage.len().map_err(on("open", &name))? == file_bytes
            };
            match whole {
                true => spares.ready.push(name),
                false => directory.remove(&name).map_err(on("remove", &name))?,
            }
        }
        Ok(spares)
    }

    /// The number of spares that are ready.
    pub(crate) fn ready(&self) -> u64 {
        self.ready.len() as u64
    }

    /// Works on one more spare, writing at most `bytes` of it; returns whether it is ready now.
    pub(crate) fn work(
        &mut self,
        directory: &dyn Directory,
        mut bytes: u64,
    ) -> Result<bool, JournalError> {
        let mut making = match self.making.take() {
            Some(making) => making,
            None => {
                let name = names::spare(self.next);
                self.next += 1;
                let unfinished = name.clone() + names::UNFINISHED;
                let storage = directory.create(&unfinished);
                Making {
                    storage: storage.map_err(on("make", &unfinished))?,
                    name,
                    bytes: 0,
                }
            }
        };
        let unfinished = making.name.clone() + names::UNFINISHED;
        match self.fill(&mut making, &mut bytes) {
            Ok(true) => {
                let named = directory.rename(&unfinished, &making.name);
                named.map_err(on("rename", &unfinished))?;
                self.ready.push(making.name);
                Ok(true)
            }
            Ok(false) => {
                self.making = Some(making);
                Ok(false)
            }
            Err(error) => {
                // Frees the space that it has taken, which others may be waiting for.
                let _ = directory.remove(&unfinished);
                Err(on("write to", &unfinished)(match error {
                    MediumError::NoSpace { .. } => MediumError::NoSpace {
                        wanted: self.file_bytes,
                    },
                    other => other,
                }))
            }
        }
    }

    /// Writes zeros, of which `bytes` are left, and waits until they are on the medium, so that a
    /// frame's sync never has to wait for more of them. Returns whether the spare is complete.
    fn fill(&self, making: &mut Making, bytes: &mut u64) -> Result<bool, MediumError> {
        while making.bytes < self.file_bytes && *bytes > 0 {
            let piece = (self.file_bytes - making.bytes)
                .min(PIECE as u64)
                .min(*bytes);
            making
                .storage
                .write(making.bytes, &self.zeros[..piece as usize])?;
            making.bytes += piece;
            *bytes -= piece;
        }
        making.storage.sync()?;
        Ok(making.bytes == self.file_bytes)
    }

    /// Takes a spare; creates it if none is ready.
    pub(crate) fn take(&mut self, directory: &dyn Directory) -> Result<String, JournalError> {
        while self.ready.is_empty() {
            self.work(directory, u64::MAX)?;
        }
        Ok(self.ready.swap_remove(0))
    }

    /// Creates a file with the length of a spare but without blocks, and returns its name, which is
    /// that of an unfinished spare.
    pub(crate) fn make_sparse(
        &mut self,
        directory: &dyn Directory,
    ) -> Result<String, JournalError> {
        let name = self.name() + names::UNFINISHED;
        let storage = directory.create(&name).map_err(on("make", &name))?;
        let lengthened = storage.write(self.file_bytes - 1, &[0]);
        if let Err(error) = lengthened {
            let _ = directory.remove(&name);
            return Err(on("write to", &name)(error));
        }
        Ok(name)
    }

    /// A name for a file that becomes a spare.
    pub(crate) fn name(&mut self) -> String {
        self.next += 1;
        names::spare(self.next - 1)
    }

    /// Adds files whose new names are durable.
    pub(crate) fn add(&mut self, names: Vec<String>) {
        self.ready.extend(names);
    }
}
