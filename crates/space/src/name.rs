//! Names of segments and spaces, which are also the names of their directories.

use std::fmt;
use std::path::Path;

use crate::NameError;

/// A segment's or a space's name: 1 to 200 bytes of UTF-8 without slashes and control characters,
/// not beginning with a dot.
///
/// A name is also a directory's name. No name can lead out of its registry. File systems allow 255
/// bytes; the 55 beyond 200 are for suffixes.
///
/// **A program cannot choose a name that servers and upgrades use.** They keep segments beside one
/// as [`NAME~WHAT`](Name::beside), and remove or replace whatever has such a name. So no segment
/// can be created, renamed, cloned or imported under one ([`Name::of_new`]); an existing one can be
/// opened, renamed and removed like any other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// The maximum length of a name in bytes.
    pub const MAX: usize = 200;

    /// Checks a name.
    ///
    /// # Errors
    /// One variant for each rule.
    ///
    /// ```
    /// use mneme_space::{Name, NameError};
    /// assert_eq!(Name::new("genome@2026")?.as_str(), "genome@2026");
    /// assert!(matches!(Name::new("../etc"), Err(NameError::Hidden { .. })));
    /// assert!(matches!(Name::new("a/b"), Err(NameError::Character { found: '/', .. })));
    /// # Ok::<(), NameError>(())
    /// ```
    pub fn new(name: &str) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > Self::MAX {
            return Err(NameError::TooLong {
                len: name.len(),
                max: Self::MAX,
            });
        }
        let name = name.to_owned();
        if name.starts_with('.') {
            return Err(NameError::Hidden { name });
        }
        if let Some(found) = name.chars().find(|c| *c == '/' || c.is_control()) {
            return Err(NameError::Character { name, found });
        }
        Ok(Self(name))
    }

    /// Checks a name that a program chooses for a segment.
    ///
    /// # Errors
    /// [`NameError::Reserved`], and as [`new`](Self::new).
    ///
    /// ```
    /// use mneme_space::{Name, NameError};
    /// assert!(matches!(Name::of_new("genome~old"), Err(NameError::Reserved { .. })));
    /// assert!(Name::of_new("genome~1").is_ok());
    /// # Ok::<(), NameError>(())
    /// ```
    pub fn of_new(name: &str) -> Result<Self, NameError> {
        let name = Self::new(name)?;
        match name.is_reserved() {
            true => Err(NameError::Reserved { name: name.0 }),
            false => Ok(name),
        }
    }

    /// The name `NAME~WHAT`, under which a server or an upgrade keeps something beside this
    /// segment; `what` begins with a letter.
    ///
    /// # Errors
    /// [`NameError::TooLong`], and as [`new`](Self::new).
    pub fn beside(&self, what: &str) -> Result<Self, NameError> {
        Self::new(&format!("{self}~{what}"))
    }

    /// Whether the name is reserved for servers and upgrades: a letter follows a `~`.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        let mut parts = self.0.split('~').skip(1);
        parts.any(|part| part.starts_with(|first: char| first.is_ascii_alphabetic()))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for Name {
    fn as_ref(&self) -> &Path {
        self.0.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_choose_a_name_that_servers_and_upgrades_use() {
        let name = Name::new("genome").unwrap();
        for what in ["old", "loading", "quarantine-3"] {
            let beside = name.beside(what).unwrap();
            assert_eq!(beside.as_str(), format!("genome~{what}"));
            // Also for a segment that itself has such a name.
            for reserved in [&beside, &beside.beside("old").unwrap()] {
                assert!(reserved.is_reserved());
                let refused = Name::of_new(reserved.as_str());
                assert!(matches!(refused, Err(NameError::Reserved { .. })));
            }
        }
        for free in ["genome", "genome.old", "genome~1", "~", "a~", "~/x"] {
            assert!(Name::new(free).map_or(true, |name| !name.is_reserved()));
        }
        let long = Name::new(&"x".repeat(198)).unwrap().beside("old");
        assert!(matches!(long, Err(NameError::TooLong { len: 202, .. })));
    }

    #[test]
    fn a_name_is_always_one_component_of_a_path() {
        for good in [
            "a",
            "genome@2026-11-20",
            "with space",
            "naïve-Ω",
            "a..b",
            &"x".repeat(200),
        ] {
            assert_eq!(Name::new(good).map(|n| n.0), Ok(good.to_owned()));
        }
        assert_eq!(Name::new(""), Err(NameError::Empty));
        let long = Name::new(&"x".repeat(300));
        assert_eq!(long, Err(NameError::TooLong { len: 300, max: 200 }));
        // The limit counts bytes, not characters.
        assert!(matches!(
            Name::new(&"Ω".repeat(101)),
            Err(NameError::TooLong { len: 202, .. })
        ));
        for hidden in [".", "..", ".x", "../../etc"] {
            assert!(
                matches!(Name::new(hidden), Err(NameError::Hidden { .. })),
                "{hidden}"
            );
        }
        for (bad, found) in [
            ("a/b", '/'),
            ("/", '/'),
            ("a\0b", '\0'),
            ("a\nb", '\n'),
            ("\u{85}", '\u{85}'),
        ] {
            let refused = Name::new(bad);
            let name = bad.to_owned();
            assert_eq!(refused, Err(NameError::Character { name, found }));
        }
    }
}
