//! Descriptions: small JSON files that are replaced atomically, and refused with an explanation if
//! they are invalid.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mneme_sys::files;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::gone;
use crate::{DescriptionError, FileError};

/// Longer files are refused; no description comes near this size in bytes.
const MOST: u64 = 1 << 20;

/// Reads a description of the given format.
pub(crate) fn read<T: DeserializeOwned>(path: &Path, expected: u32) -> Result<T, DescriptionError> {
    // Large enough to read most files at once.
    let mut text = Vec::with_capacity(2048);
    files::open_plain(path, File::options().read(true))
        .and_then(|file| file.take(MOST + 1).read_to_end(&mut text))
        .map_err(FileError::at("read", path))?;
    let damaged = |why: String| DescriptionError::Damaged {
        path: path.to_owned(),
        why,
    };
    if text.len() as u64 > MOST {
        return Err(damaged(format!("it is longer than {MOST} bytes")));
    }
    parse(&text, expected).map_err(|refusal| match refusal {
        JsonRefusal::Format(found) => DescriptionError::Format {
            path: path.to_owned(),
            found,
            expected,
        },
        JsonRefusal::Damaged(why) => damaged(why),
    })
}

/// Reads a description and refuses it if `contradiction` finds an inconsistency.
pub(crate) fn read_sound<T: DeserializeOwned>(
    path: &Path,
    expected: u32,
    contradiction: impl FnOnce(&T) -> Option<&'static str>,
) -> Result<T, DescriptionError> {
    let described = read(path, expected)?;
    match contradiction(&described) {
        None => Ok(described),
        Some(why) => Err(DescriptionError::Damaged {
            path: path.to_owned(),
            why: why.to_owned(),
        }),
    }
}

pub(crate) enum JsonRefusal {
    Format(u64),
    Damaged(String),
}

/// Checks the format first: a file that another version wrote is not damaged.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8], expected: u32) -> Result<T, JsonRefusal> {
    #[derive(Deserialize)]
    struct Format {
        format: Option<u64>,
    }
    let damaged = |e: serde_json::Error| JsonRefusal::Damaged(e.to_string());
    match serde_json::from_slice::<Format>(text).map_err(damaged)? {
        Format {
            format: Some(found),
        } if found == u64::from(expected) => {}
        Format {
            format: Some(found),
        } => return Err(JsonRefusal::Format(found)),
        Format { format: None } => {
            return Err(JsonRefusal::Damaged("it names no format".to_owned()));
        }
    }
    serde_json::from_slice(text).map_err(damaged)
}

/// Writes or replaces a description atomically: a reader sees the old one or the new one, also
/// after a power loss. `mode` is the file's permissions.
pub(crate) fn write<T: Serialize>(path: &Path, value: &T, mode: u32) -> Result<(), FileError> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|e| FileError::at("describe", path)(e.into()))?;
    text.push(b'\n');
    // There is one writer at a time (it holds a lock, or is creating the directory). A file that a
    // dead writer left may belong to another user.
    let aside = beside(path);
    gone(&aside, fs::remove_file(&aside))?;
    File::create_new(&aside)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.write_all(&text)?;
            file.sync_all()
        })
        .map_err(FileError::at("write", &aside))?;
    mneme_sys::fault!("space.describe.written");
    fs::rename(&aside, path).map_err(FileError::at("replace", path))?;
    if let Some(directory) = path.parent() {
        sync_directory(directory)?;
    }
    Ok(())
}

/// The temporary file for the next description, which is then renamed to `path`.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Makes creations, renames and removals in a directory durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), FileError> {
    File::open(directory)
        .and_then(|file| file.sync_all())
        .map_err(FileError::at("write through", directory))
}
