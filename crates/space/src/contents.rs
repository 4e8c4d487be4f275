//! What a segment's bytes are, if another crate lays them out.

use serde::{Deserialize, Serialize};

use crate::hexadecimal;

/// What a segment's bytes are, if another crate lays them out: what is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// In words, for a listing of the registry: "log store". At most 64 bytes, no control
    /// characters.
    pub kind: &'static str,
    /// The magic with which the data begin.
    pub magic: [u8; 8],
    /// The version of their format.
    pub format: u32,
    /// A hash over their layout.
    pub layout_hash: u64,
}

/// What a segment's bytes are, if another crate lays them out: what its description says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentsInfo {
    /// In words.
    pub kind: String,
    /// The magic with which the data begin.
    #[serde(with = "hexadecimal::magic")]
    pub magic: [u8; 8],
    /// The version of their format.
    pub format: u32,
    /// A hash over their layout.
    #[serde(with = "hexadecimal::word")]
    pub layout_hash: u64,
}

impl From<&Contents> for ContentsInfo {
    fn from(contents: &Contents) -> Self {
        Self {
            kind: contents.kind.to_owned(),
            magic: contents.magic,
            format: contents.format,
            layout_hash: contents.layout_hash,
        }
    }
}

impl std::fmt::Display for ContentsInfo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let magic = self.magic.escape_ascii();
        let Self {
            kind,
            format,
            layout_hash,
            ..
        } = self;
        write!(
            f,
            "a {kind} ({magic}, format {format}, layout {layout_hash:#018x})"
        )
    }
}

impl ContentsInfo {
    /// Whether what it is can be shown to people.
    pub(crate) fn is_named(&self) -> bool {
        (1..=64).contains(&self.kind.len()) && !self.kind.chars().any(char::is_control)
    }
}
