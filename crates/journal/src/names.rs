//! The names of files.

use crate::{JournalError, Position};

/// The suffix of a file that is not finished.
pub(crate) const UNFINISHED: &str = ".new";

/// The suffix of a file that a repair has taken out of the journal.
pub(crate) const LOST: &str = ".lost";

const JOURNAL: &str = ".journal";
const BASE: &str = ".base";
const BACKUP: &str = ".backup";
const SPARE: &str = "spare-";

/// The name of the journal file that begins at `first`.
pub(crate) fn journal(first: Position) -> String {
    format!("{:020}{JOURNAL}", first.get())
}

/// The reverse of [`journal`].
pub(crate) fn journal_position(name: &str) -> Option<Position> {
    position(name.strip_suffix(JOURNAL)?)
}

/// The name of the base file that begins at `begin`.
pub(crate) fn base(begin: Position) -> String {
    format!("{:020}{BASE}", begin.get())
}

/// The name of the base file that begins at `begin` and was restored by that run.
pub(crate) fn restored(begin: Position, run: u64) -> String {
    format!("{:020}-{run:016x}{BASE}", begin.get())
}

/// The reverse of [`base`] and of [`restored`].
pub(crate) fn base_position(name: &str) -> Option<Position> {
    let name = name.strip_suffix(BASE)?;
    let is_run = |run: &str| run.len() == 16 && run.bytes().all(|c| c.is_ascii_hexdigit());
    match name.split_once('-') {
        Some((digits, run)) => is_run(run).then(|| position(digits))?,
        None => position(name),
    }
}

/// Whether a base file was restored.
pub(crate) fn is_restored(name: &str) -> bool {
    base_position(name).is_some() && name.contains('-')
}

/// The file name of the base file that is kept under `name`.
pub(crate) fn backup(name: &str) -> Result<String, JournalError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(plain) {
        return Err(JournalError::Invalid {
            what: "a backup's name has 1 to 100 letters, digits, `_`, `-` and `.`, not first",
        });
    }
    Ok(format!("{name}{BACKUP}"))
}

/// The reverse of [`backup`].
pub(crate) fn backup_name(file: &str) -> Option<&str> {
    file.strip_suffix(BACKUP)
}

/// The name of a preallocated file that is not in use.
pub(crate) fn spare(number: u64) -> String {
    format!("{SPARE}{number:06}")
}

/// The reverse of [`spare`].
pub(crate) fn spare_number(name: &str) -> Option<u64> {
    number(name.strip_prefix(SPARE)?)
}

fn position(digits: &str) -> Option<Position> {
    (digits.len() == 20).then(|| number(digits).map(Position::new))?
}

fn number(digits: &str) -> Option<u64> {
    digits
        .bytes()
        .all(|c| c.is_ascii_digit())
        .then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_position_and_other_files_are_not_mistaken_for_them() {
        for position in [0, 77, u64::MAX].map(Position::new) {
            assert_eq!(journal_position(&journal(position)), Some(position));
            assert_eq!(base_position(&base(position)), Some(position));
            let again = restored(position, 0xab);
            assert_eq!(base_position(&again), Some(position));
            assert!(is_restored(&again) && !is_restored(&base(position)));
        }
        assert!(journal(Position::new(9)) < journal(Position::new(10)));
        assert_eq!(spare_number(&spare(12)), Some(12));
        let others = [
            "1.journal",
            "+0000000000000000001.journal",
            "99999999999999999999.journal",
        ];
        assert!(others.iter().all(|name| journal_position(name).is_none()));
        assert!(backup("monday-1").is_ok());
        for bad in ["", ".a", "a/b", "a b"] {
            assert!(backup(bad).is_err(), "{bad}");
        }
    }
}
