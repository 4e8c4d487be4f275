//! Identifies the format of a segment's data if another crate lays them out.

use serde::{Deserialize, Serialize};

use crate::hexadecimal;

/// The format that a caller asks for when another crate lays out the segment's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// The name to show in a listing of the registry, for example "log store". At most 64 bytes, no
    /// control characters.
    pub kind: &'static str,
    /// The magic number at the beginning of the data.
    pub magic: [u8; 8],
    /// The version of the format.
    pub format: u32,
    /// A hash of the layout.
    pub layout_hash: u64,
}

/// The format of a segment's data, as recorded in its description, if another crate lays them out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContentsInfo {
    /// The name to show to people.
    pub kind: String,
    /// The magic number at the beginning of the data.
    #[serde(with = "hexadecimal::magic")]
    pub magic: [u8; 8],
    /// The version of the format.
    pub format: u32,
    /// A hash of the layout.
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
    /// Whether `kind` can be shown to people.
    pub(crate) fn is_named(&self) -> bool {
        (1..=64).contains(&self.kind.len()) && !self.kind.chars().any(char::is_control)
    }
}
