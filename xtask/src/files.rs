//! Files of the workspace and of what is built: found, copied, written.

use crate::steps::failed;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories without sources or documents of ours.
const BUILT: [&str; 3] = ["target", "corpus", "artifacts"];

/// The files below a directory, in the order of their names: those with one of these endings, or
/// all if there are no endings. Neither hidden ones count nor those that are built.
pub fn below(directory: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let ending = path.extension().unwrap_or_default();
        if path.is_dir() {
            if !BUILT.contains(&&*name) {
                files.extend(below(&path, endings));
            }
        } else if endings.is_empty() || endings.iter().any(|wanted| ending == *wanted) {
            files.push(path);
        }
    }
    files
}

/// Copies a file, to a directory that is made where missing.
///
/// # Errors
/// In words.
pub fn copy(from: &Path, to: &Path) -> Result<(), String> {
    clear_the_way(to)?;
    fs::copy(from, to).map_err(failed("write", to)).map(drop)
}

/// Writes a file, in a directory that is made where missing.
///
/// # Errors
/// In words.
pub fn write(file: &Path, bytes: impl AsRef<[u8]>) -> Result<(), String> {
    clear_the_way(file)?;
    fs::write(file, bytes).map_err(failed("write", file))
}

fn clear_the_way(file: &Path) -> Result<(), String> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory).map_err(failed("create", directory))?;
    }
    // A running program keeps the file that it has mapped.
    let _ = fs::remove_file(file);
    Ok(())
}
