//! The file of users, in Redis's format: **read completely or not at all**, and replaced
//! atomically.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::rules::{Reading, RuleRefusal, has_spaces, joined};
use super::user::User;

/// All users of a file, by name.
pub(crate) type Table = BTreeMap<Arc<[u8]>, Arc<User>>;

/// Why a file of users was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AclFileError {
    #[error("Error loading ACLs, opening file '{}': {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The lines with errors, and the errors.
    #[error(
        "{0}WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
    )]
    Lines(String),
    #[error("the server is stopping")]
    Stopping,
}

/// Reads the users of a file, as long as `goes_on` returns true.
pub(super) fn read(
    path: &Path,
    reading: Reading<'_>,
    goes_on: impl Fn() -> bool,
) -> Result<Table, AclFileError> {
    let bytes = mneme_sys::files::read_linked(path).map_err(|source| AclFileError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse(&bytes, &path.display().to_string(), reading, goes_on)
}

/// Reads the users from a file's text, or reports all errors in it.
fn parse(
    bytes: &[u8],
    path: &str,
    reading: Reading<'_>,
    goes_on: impl Fn() -> bool,
) -> Result<Table, AclFileError> {
    let mut users = Table::new();
    let mut errors = String::new();
    for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if !goes_on() {
            return Err(AclFileError::Stopping);
        }
        match parse_line(line.trim_ascii(), &users, reading) {
            Ok(Some(user)) => {
                users.insert(Arc::clone(user.name()), user.finished());
            }
            Ok(None) => {}
            Err(fault) => errors += &format!("{path}:{}{fault} ", index + 1),
        }
    }
    match errors.is_empty() {
        true => Ok(users),
        false => Err(AclFileError::Lines(errors)),
    }
}

/// The user of a line; `None` if the line is empty. The error follows the line's number in the
/// report, and contains no password.
fn parse_line(line: &[u8], users: &Table, reading: Reading<'_>) -> Result<Option<User>, String> {
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let mut words = line.split(|byte| *byte == b' ');
    let first = words.next().unwrap_or_default();
    if first.is_empty() {
        return Ok(None);
    }
    let name = words.next();
    let Some(name) = name.filter(|_| first == b"user") else {
        return Err(" should start with user keyword followed by the username.".into());
    };
    if has_spaces(name) {
        return Err(format!(
            ": username '{}' contains invalid characters.",
            shown(name)
        ));
    }
    if users.contains_key(name) {
        return Err(format!(
            ": WARNING: Duplicate user '{}' found.",
            shown(name)
        ));
    }
    let rules = joined(words).map_err(|_| ": Unmatched parenthesis in selector definition.")?;
    let mut user = reading.nobody(name);
    for rule in &rules {
        let rule = rule.trim_ascii();
        reading
            .apply(&mut user, rule)
            .map_err(|refusal| match refusal {
                RuleRefusal::Unknown => {
                    format!(
                        ": Error in applying operation '{}': {refusal}.",
                        shown(rule)
                    )
                }
                refusal => format!(": {refusal}."),
            })?;
    }
    if !user.is_on() {
        tracing::info!(user = shown(name), "a user of the ACL file is off");
    }
    Ok(Some(user))
}
