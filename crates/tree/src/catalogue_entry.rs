//! Entries of the catalogue of trees: their keys and their values.

/// The form of a tree's keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// The caller's keys.
    Ordered,
    /// A hash followed by the caller's key.
    Hashed,
}

/// The key under which the catalogue stores the number and kind of the tree with this name.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// The key under which the catalogue stores the name of the tree with this number.
pub(crate) fn number_key(tree: u32) -> Vec<u8> {
    [&b"t"[..], &tree.to_be_bytes()].concat()
}

/// The key of a dropped tree that still has leaves.
pub(crate) fn dropped_key(tree: u32) -> Vec<u8> {
    [&b"d"[..], &tree.to_be_bytes()].concat()
}

/// Whether this is the key of a dropped tree.
pub(crate) fn is_dropped_key(key: &[u8]) -> bool {
    key.starts_with(b"d")
}

/// The value stored under [`name_key`].
pub(crate) fn place_value(tree: u32, kind: TreeKind) -> Vec<u8> {
    [&tree.to_le_bytes()[..], &[kind as u8]].concat()
}

/// Decodes such a value.
pub(crate) fn read_place(value: &[u8]) -> Option<(u32, TreeKind)> {
    let (number, kind) = value.split_first_chunk()?;
    let kind = match kind {
        [0] => TreeKind::Ordered,
        [1] => TreeKind::Hashed,
        _ => return None,
    };
    Some((u32::from_le_bytes(*number), kind))
}
