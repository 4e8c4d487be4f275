//! Locks on files of the registry, which the kernel releases when a process dies.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use mneme_sys::{Clock, Liveness, LivenessError, OfdLiveness, SystemClock, files};

use crate::{FileError, RegistryError};

/// How long a process waits for the registry's lock. The holder chooses an address or removes
/// leftovers, which takes milliseconds; if the time runs out, the holder is probably stopped.
const TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait between attempts.
const PAUSE: Duration = Duration::from_micros(200);

/// A lock on a whole file, which also excludes this process's other threads. It is released when it
/// is dropped or the process dies.
pub(crate) struct Lock {
    _held: OfdLiveness,
}

impl Lock {
    /// Waits for the lock, for at most two seconds.
    pub(crate) fn take(path: &Path) -> Result<Self, RegistryError> {
        Self::within(path, TIMEOUT)
    }

    pub(crate) fn within(path: &Path, timeout: Duration) -> Result<Self, RegistryError> {
        let began = SystemClock.now_ns();
        loop {
            if let Some(lock) = Self::attempt(path)? {
                return Ok(lock);
            }
            let waited = Duration::from_nanos(SystemClock.now_ns().saturating_sub(began));
            if waited >= timeout {
                return Err(RegistryError::Locked {
                    path: path.to_owned(),
                    waited,
                });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Takes the lock, if no living process has it.
    pub(crate) fn attempt(path: &Path) -> Result<Option<Self>, RegistryError> {
        let failed = |source| RegistryError::Lock {
            path: path.to_owned(),
            source,
        };
        // The file is opened for each lock, so that threads exclude one another as processes do.
        let file = OfdLiveness::open_plain(path, 0).map_err(failed)?;
        match file.claim(0) {
            Ok(()) => Ok(Some(Self { _held: file })),
            Err(LivenessError::Held { .. }) => Ok(None),
            Err(source) => Err(failed(source)),
        }
    }

    /// Creates the file if necessary, and takes the lock if no living process has it.
    pub(crate) fn create(path: &Path) -> Result<Option<Self>, RegistryError> {
        let mut options = File::options();
        options.write(true).create(true).truncate(false);
        files::open_plain(path, &mut options).map_err(FileError::at("create", path))?;
        Self::attempt(path)
    }
}
