//! Reads the catalogue of trees: which trees a version has, and which were dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::StoreError;
use crate::catalogue_entry::{TreeKind, name_key, number_key, read_place};
use crate::committed::Committed;
use crate::index::Node;
use crate::pages::TreePages;
use crate::roots::leaves_of;

/// A version of the catalogue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Catalogue<'c> {
    pub(crate) pages: &'c TreePages,
    pub(crate) committed: &'c Committed,
    pub(crate) root: Option<&'c Arc<Node>>,
    pub(crate) version: u64,
}

/// The whole content of a catalogue.
#[derive(Debug, Default)]
pub(crate) struct CatalogueListing {
    /// Named trees, by number.
    pub(crate) live: BTreeMap<u32, (String, TreeKind)>,
    /// Dropped trees that still have leaves.
    pub(crate) dropped: BTreeSet<u32>,
}

impl<'c> Catalogue<'c> {
    fn get(&self, key: &[u8]) -> Result<Option<&'c [u8]>, StoreError> {
        let Some(root) = self.root else {
            return Ok(None);
        };
        let leaf = root.find(key);
        leaf.load(self.pages, self.committed)?;
        let entry = leaf.find(self.pages, key, self.version);
        Ok(entry.and_then(|entry| entry.value(self.pages)))
    }

    /// The tree with this name.
    pub(crate) fn find(&self, name: &str) -> Result<Option<(u32, TreeKind)>, StoreError> {
        Ok(self.get(&name_key(name))?.and_then(read_place))
    }

    /// Whether the tree with this number has a name.
    pub(crate) fn has(&self, tree: u32) -> Result<bool, StoreError> {
        Ok(self.get(&number_key(tree))?.is_some())
    }

    pub(crate) fn list(&self) -> Result<CatalogueListing, StoreError> {
        let mut listing = CatalogueListing::default();
        for leaf in self.root.map_or_else(Vec::new, |root| leaves_of(root)) {
            leaf.load(self.pages, self.committed)?;
            for offset in &leaf.order_at(self.pages, self.version).offsets {
                let entry = leaf.entry(self.pages, *offset);
                let value = entry.value(self.pages).unwrap_or_default();
                let known = listing.add(entry.key(self.pages), value);
                known.ok_or(StoreError::Damaged {
                    at: self.pages.place(entry.bytes),
                    what: "an entry of the catalogue of trees",
                })?;
            }
        }
        Ok(listing)
    }
}

impl CatalogueListing {
    /// Adds an entry of the catalogue; `None` if it is not one.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (kind, rest) = key.split_first()?;
        match kind {
            b'n' => {
                let (tree, kind) = read_place(value)?;
                let name = str::from_utf8(rest).ok()?.to_owned();
                self.live.insert(tree, (name, kind));
            }
            b'd' => drop(
                self.dropped
                    .insert(u32::from_be_bytes(rest.try_into().ok()?)),
            ),
            // These entries serve only to look trees up.
            b't' => {}
            _ => return None,
        }
        Some(())
    }
}
