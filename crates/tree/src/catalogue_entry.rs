//! Entries of the catalogue of trees: their keys and their values.

/// What keys of a tree are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeKind {
    /// What the caller gave.
    Ordered,
    /// A hash and what the caller gave.
    Hashed,
}

/// The key that has the number and the kind of a tree of this name.
pub(crate) fn name_key(name: &str) -> Vec<u8> {
    [b"n", name.as_bytes()].concat()
}

/// The key that has the name of the tree of this number.
pub(crate) fn number_key(tree: u32) -> Vec<u8> {
    [&b"t"[..], &tree.to_be_bytes()].concat()
}

/// The key of a tree that was dropped and has leaves.
pub(crate) fn dropped_key(tree: u32) -> Vec<u8> {
    [&b"d"[..], &tree.to_be_bytes()].concat()
}

/// Whether the key is that of a dropped tree.
pub(crate) fn is_dropped_key(key: &[u8]) -> bool {
    key.starts_with(b"d")
}

/// The value of [`name_key`].
pub(crate) fn place_value(tree: u32, kind: TreeKind) -> Vec<u8> {
    [&tree.to_le_bytes()[..], &[kind as u8]].concat()
}

/// The tree that such a value tells of.
pub(crate) fn read_place(value: &[u8]) -> Option<(u32, TreeKind)> {
    let (number, kind) = value.split_first_chunk()?;
    let kind = match kind {
        [0] => TreeKind::Ordered,
        [1] => TreeKind::Hashed,
        _ => return None,
    };
    Some((u32::from_le_bytes(*number), kind))
}
