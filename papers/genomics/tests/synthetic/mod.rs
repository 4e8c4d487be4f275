//! Directories for tests, and synthetic alignments in them.

use mneme_genomics::synthetic::{self, SyntheticError};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

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
