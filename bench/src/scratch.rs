//! A registry of segments for the time of a run, in memory, removed at the end.

use crate::error::{BenchError, file_failed};
use mneme_space::{Registry, RegistryOptions, Segment, Space};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where memory's files are.
const MEMORY: &str = "/dev/shm";

/// A registry of its own, with its data beside it.
pub struct Scratch {
    root: PathBuf,
    registry: Registry,
}

impl Scratch {
    /// Makes one, if there is memory for `bytes`.
    ///
    /// # Errors
    /// [`BenchError::Space`].
    pub fn new(name: &str, bytes: u64) -> Result<Self, BenchError> {
        let root = Path::new(MEMORY).join(format!("mneme-bench-{name}-{}", std::process::id()));
        std::fs::create_dir_all(root.join("memory")).map_err(file_failed(&root))?;
        let options = RegistryOptions {
            shared_directory: Some(root.join("memory")),
            ..RegistryOptions::default()
        };
        let registry = Registry::open_with(root.join("registry"), &options).map_err(space)?;
        let scratch = Self { root, registry };
        // Taken and given back: a lack of memory is reported before anything takes time.
        let probe = scratch.segment("probe", bytes)?;
        probe.remove().map_err(space)?;
        Ok(scratch)
    }

    /// The directory of everything; `registry` in it is the registry's.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The registry.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A segment in memory, of ordinary pages.
    ///
    /// # Errors
    /// [`BenchError::Space`].
    pub fn segment(&self, name: &str, bytes: u64) -> Result<Segment, BenchError> {
        self.segment_at(name, bytes, None)
    }

    /// Makes one at an address of the caller's choice.
    ///
    /// # Errors
    /// As [`segment`](Self::segment).
    pub fn segment_at(
        &self,
        name: &str,
        bytes: u64,
        base: Option<usize>,
    ) -> Result<Segment, BenchError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let builder = self.registry.segment(name).size(bytes).max_size(bytes);
        let builder = builder.pages(mneme_sys::PagePolicy::Small);
        let builder = match base {
            Some(base) => builder.base(base),
            None => builder,
        };
        builder.create().map_err(space)
    }

    /// A space without members.
    ///
    /// # Errors
    /// [`BenchError::Space`].
    pub fn space(&self, name: &str) -> Result<Space, BenchError> {
        self.registry.space(name).create().map_err(space)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A directory for files of a run, such as sockets; removed when dropped.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one that nobody else has.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn new(name: &str) -> Result<Self, BenchError> {
        Self::below(&std::env::temp_dir(), name)
    }

    /// Makes one on the tmpfs that every Linux has.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn in_memory(name: &str) -> Result<Self, BenchError> {
        Self::below(Path::new(mneme_sys::files::SHARED_MEMORY), name)
    }

    /// Makes one below `directory`.
    ///
    /// # Errors
    /// [`BenchError::File`].
    pub fn below(directory: &Path, name: &str) -> Result<Self, BenchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("mneme-bench-{name}-{}-{number}", std::process::id());
        let path = directory.join(name);
        match std::fs::create_dir_all(&path) {
            Ok(()) => Ok(Self(path)),
            Err(source) => Err(BenchError::File { path, source }),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An error of a segment, with its causes in one line.
pub fn space(error: impl Error) -> BenchError {
    BenchError::Space(mneme_sys::with_causes(&error))
}
