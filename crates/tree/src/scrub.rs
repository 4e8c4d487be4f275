//! A walk through the whole store, piece by piece, that compares checksums.

use std::sync::Arc;

use crate::StoreError;
use crate::check::verify;
use crate::layout::LEAF;
use crate::leaf::Leaf;
use crate::leaf_entry::verify_extent;
use crate::open_store::Core;
use crate::snapshot::Snapshot;

/// The position of a walk through the whole store: see [`Store::scrub`](crate::Store::scrub).
#[derive(Debug, Clone, Default)]
pub struct Scrub {
    /// The current tree; if it does not exist, the next one.
    tree: u32,
    /// The least key that has not been visited.
    key: Vec<u8>,
    rounds: u64,
}

impl Scrub {
    /// How often the walk has reached the end.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    pub(crate) fn go_on(&mut self, core: &Arc<Core>, bytes: u64) -> Result<u64, StoreError> {
        // It keeps data that is replaced meanwhile.
        let snapshot = Snapshot::new(core)?;
        let mut read = 0;
        while read < bytes {
            let mut trees = snapshot.roots.all();
            let Some((tree, root)) = trees.find(|(tree, _)| *tree >= self.tree) else {
                let rounds = self.rounds + 1;
                *self = Self {
                    rounds,
                    ..Self::default()
                };
                break;
            };
            if tree != self.tree {
                (self.tree, self.key) = (tree, Vec::new());
            }
            let leaf = root.find(&self.key);
            self.visit(core, leaf, snapshot.version, (&mut read, bytes))?;
        }
        Ok(read)
    }

    /// Verifies a leaf from the key on, until enough has been read. After any result the walk
    /// continues behind it.
    fn visit(
        &mut self,
        core: &Arc<Core>,
        leaf: &Arc<Leaf>,
        version: u64,
        (read, bytes): (&mut u64, u64),
    ) -> Result<(), StoreError> {
        let (tree, from) = (self.tree, std::mem::take(&mut self.key));
        match &leaf.high {
            Some(high) => self.key = high.to_vec(),
            None => self.tree += 1,
        }
        let pages = &core.pages;
        leaf.load(pages, &core.committed)?;
        if *from <= *leaf.low {
            *read += LEAF as u64;
            verify(core, leaf)?;
            if let Some(fences) = leaf.outside() {
                verify_extent(pages, fences, leaf.birth)?;
            }
        }
        for offset in &leaf.order_at(pages, version).offsets {
            let entry = leaf.entry(pages, *offset);
            let Some(extent) = entry.extent() else {
                continue;
            };
            if entry.compare(pages, &from).is_lt() {
                continue;
            }
            *read += u64::from(extent.len);
            let verified = entry.verify_extent(pages);
            if verified.is_err() || *read >= bytes {
                (self.tree, self.key) = (tree, [entry.key(pages), &[0]].concat());
                return verified;
            }
        }
        Ok(())
    }
}
