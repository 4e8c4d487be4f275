//! Batches, and how the batches of several threads are committed together.

use std::sync::Arc;

use mneme_sys::medium::MediumError;

use crate::commit::Writer;
use crate::group::{CommitGroup, CommitRequest};
use crate::layout::MAIN;
use crate::open_store::Core;
use crate::plan::PlannedChange;
use crate::{StoreError, Version};

/// Changes that are made together. If a key is changed several times, the last change counts.
///
/// ```
/// use mneme_tree::Batch;
/// let mut batch = Batch::new();
/// batch.put(b"a", b"1").remove(b"b");
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    /// For each change: the tree, the end of the key, and the end of the value, if it has one.
    changes: Vec<(u32, usize, Option<usize>)>,
    caller: Option<[u8; 32]>,
    /// The seeds of the stores that its named trees belong to: their numbers mean nothing in other
    /// stores.
    stores: Vec<u32>,
}

impl Batch {
    /// A batch without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> &mut Self {
        self.add(PlannedChange {
            tree: MAIN,
            key,
            value: Some(value),
        });
        self
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &[u8]) -> &mut Self {
        self.add(PlannedChange {
            tree: MAIN,
            key,
            value: None,
        });
        self
    }

    /// Bytes of the caller, such as a position in its journal, that become durable together with
    /// the batch; see [`Store::caller`](crate::Store::caller).
    pub fn with_caller(&mut self, bytes: [u8; 32]) -> &mut Self {
        self.caller = Some(bytes);
        self
    }

    /// The number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn add(&mut self, change: PlannedChange<'_>) {
        self.bytes.extend_from_slice(change.key);
        let key_end = self.bytes.len();
        self.bytes
            .extend_from_slice(change.value.unwrap_or_default());
        let value_end = change.value.map(|_| self.bytes.len());
        self.changes.push((change.tree, key_end, value_end));
    }

    pub(crate) fn caller(&self) -> Option<[u8; 32]> {
        self.caller
    }

    /// Notes that the batch changes a tree of this store.
    pub(crate) fn add_store(&mut self, seed: u32) {
        if !self.stores.contains(&seed) {
            self.stores.push(seed);
        }
    }

    /// Checks that its changes are within the limits, and that its named trees belong to this
    /// store.
    pub(crate) fn admit(&self, seed: u32) -> Result<(), StoreError> {
        if self.stores.iter().any(|other| *other != seed) {
            return Err(StoreError::OtherStore);
        }
        self.changes().try_for_each(|change| change.admit())
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = PlannedChange<'_>> {
        let mut from = 0;
        self.changes.iter().map(move |&(tree, key_end, value_end)| {
            let key = &self.bytes[from..key_end];
            from = value_end.unwrap_or(key_end);
            PlannedChange {
                tree,
                key,
                value: value_end.map(|end| &self.bytes[key_end..end]),
            }
        })
    }

    pub(crate) fn sorted(&self) -> Vec<PlannedChange<'_>> {
        last_of_each(self.changes().collect())
    }
}

/// Sorts changes by tree and key, and keeps the last one of each key.
pub(crate) fn last_of_each(mut changes: Vec<PlannedChange<'_>>) -> Vec<PlannedChange<'_>> {
    if changes.is_sorted_by(|a, b| (a.tree, a.key) < (b.tree, b.key)) {
        return changes;
    }
    // Stable: of equal keys the last stays the last.
    changes.sort_by(|a, b| (a.tree, a.key).cmp(&(b.tree, b.key)));
    changes.dedup_by(|later, kept| {
        let is_same = (later.tree, later.key) == (kept.tree, kept.key);
        if is_same {
            *kept = *later;
        }
        is_same
    });
    changes
}

impl CommitGroup<Batch, Result<Version, StoreError>> {
    /// Commits a batch together with those of other threads that wait.
    pub(crate) fn apply(&self, core: &Core, batch: &Batch) -> Result<Version, StoreError> {
        let commit = |writer: &mut Writer, waiting: &[_]| commit_all(core, writer, waiting);
        // There is no answer only if the commit panicked.
        let answer = self.commit(&core.writer, batch.clone(), commit);
        answer.unwrap_or(Err(StoreError::Poisoned))
    }
}

type Waiting = Arc<CommitRequest<Batch, Result<Version, StoreError>>>;

/// Commits all waiting batches as one version. If that fails, commits them one by one.
fn commit_all(core: &Core, writer: &mut Writer, waiting: &[Waiting]) {
    let changes = waiting.iter().flat_map(|request| request.batch.changes());
    let callers = waiting.iter().rev().map(|request| request.batch.caller);
    let caller = callers.flatten().next();
    match writer.commit(core, &last_of_each(changes.collect()), caller) {
        Ok(version) => waiting
            .iter()
            .for_each(|request| request.answer(Ok(version))),
        Err(StoreError::OutcomeUnknown(error)) => {
            let mut error = Some(error);
            for request in waiting {
                let error = error.take().unwrap_or(MediumError::Poisoned);
                request.answer(Err(StoreError::OutcomeUnknown(error)));
            }
        }
        Err(_) => {
            for request in waiting {
                let batch = &request.batch;
                request.answer(writer.commit(core, &batch.sorted(), batch.caller));
            }
        }
    }
}
