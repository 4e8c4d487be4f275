//! Directories for tests, and synthetic alignments in them.

use mneme_genomics::synthetic::{self, SyntheticError};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A directory that goes when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let name = format!("mneme-genomics-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A SAM file; none where wgsim is absent.
pub fn alignments(directory: &Path, pairs: usize) -> Option<PathBuf> {
    let file = directory.join("synthetic.sam");
    let mut to = BufWriter::new(File::create(&file).unwrap());
    match synthetic::write(&mut to, pairs, directory) {
        Err(SyntheticError::Missing(_)) => return None,
        done => done.unwrap(),
    }
    to.flush().unwrap();
    Some(file)
}
