//! The possible states of a directory after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::contents::CrashContents;
use super::recorded_directory::{DirectoryOperation, DirectoryTrace, apply};
use super::{CrashState, FailureModel};

/// The result of one crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryState {
    /// The names and the files that they lead to.
    pub names: BTreeMap<String, usize>,
    /// The contents of the named files, as differences to the durable contents.
    pub files: BTreeMap<usize, CrashState>,
}

/// The states in which a directory may be found after a crash, at a point that moves forward
/// through a [`DirectoryTrace`]. Files lose sectors as in [`FailureModel::File`], each
/// independently. Of the changes of names since the last sync of the directory, any may be missing,
/// and with it the later ones that involve one of its names.
#[derive(Debug)]
pub struct DirectoryStates<'t> {
    trace: &'t DirectoryTrace,
    at: usize,
    mark: u64,
    /// The durable names.
    names: BTreeMap<String, usize>,
    /// Later changes, by their positions in the trace.
    changes: Vec<usize>,
    pub(super) files: Vec<CrashContents>,
}

impl<'t> DirectoryStates<'t> {
    /// A crash before the first operation.
    #[must_use]
    pub fn new(trace: &'t DirectoryTrace) -> Self {
        let contents = |image: &Arc<Vec<u8>>| CrashContents::new(image.clone(), FailureModel::File);
        Self {
            trace,
            at: 0,
            mark: 0,
            names: trace.names.clone(),
            changes: Vec::new(),
            files: trace.files.iter().map(contents).collect(),
        }
    }

    /// The number of operations before the crash.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The last [`DirectoryOperation::Mark`] before the crash; 0 if there is none.
    #[must_use]
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// Moves the crash to the point after the next operation. `false` at the end of the trace.
    pub fn advance(&mut self) -> bool {
        let Some(operation) = self.trace.operations.get(self.at) else {
            return false;
        };
        match operation {
            DirectoryOperation::Create { file, .. } => {
                let empty = || CrashContents::new(Arc::default(), FailureModel::File);
                self.files
                    .resize_with((*file + 1).max(self.files.len()), empty);
                self.changes.push(self.at);
            }
            DirectoryOperation::Rename { .. } | DirectoryOperation::Remove(_) => {
                self.changes.push(self.at);
            }
            DirectoryOperation::Sync => {
                self.names = self.named(|_| true);
                self.changes.clear();
            }
            DirectoryOperation::File { file, operation } => {
                if let Some(contents) = self.files.get_mut(*file) {
                    contents.apply(operation);
                }
            }
            DirectoryOperation::Mark(value) => self.mark = *value,
        }
        self.at += 1;
        true
    }

    /// The names after those changes that `arrived`, without those that depend on a missing one.
    fn named(&self, arrived: impl Fn(usize) -> bool) -> BTreeMap<String, usize> {
        let mut names = self.names.clone();
        let mut missing: Vec<&str> = Vec::new();
        for (nth, change) in self.changes.iter().enumerate() {
            let operation = &self.trace.operations[*change];
            let touched: Vec<&str> = match operation {
                DirectoryOperation::Create { name, .. } | DirectoryOperation::Remove(name) => {
                    vec![name]
                }
                DirectoryOperation::Rename { from, to } => vec![from, to],
                _ => continue,
            };
            if !arrived(nth) || touched.iter().any(|name| missing.contains(name)) {
                missing.extend(touched);
                continue;
            }
            apply(&mut names, operation);
        }
        names
    }

    /// Every state, if there are at most `limit`; files as in [`CrashStates::all`].
    ///
    /// [`CrashStates::all`]: super::CrashStates::all
    #[must_use]
    pub fn all(&self, limit: usize) -> Option<Vec<DirectoryState>> {
        if self.changes.len() >= 16 {
            return None;
        }
        let mut namings: Vec<BTreeMap<String, usize>> = Vec::new();
        for set in 0..1_u32 << self.changes.len() {
            let names = self.named(|nth| set >> nth & 1 == 1);
            if !namings.contains(&names) {
                namings.push(names);
            }
        }
        let mut states = Vec::new();
        for names in namings {
            let mut combined = vec![BTreeMap::new()];
            for file in names.values() {
                let possible = self.files[*file].all(limit)?;
                if states.len() + combined.len() * possible.len() > limit {
                    return None;
                }
                let with = |files: &BTreeMap<usize, CrashState>| {
                    let each = possible.iter().map(|state| {
                        let mut files = files.clone();
                        files.insert(*file, state.clone());
                        files
                    });
                    each.collect::<Vec<_>>()
                };
                combined = combined.iter().flat_map(with).collect();
            }
            let state = |files| DirectoryState {
                names: names.clone(),
                files,
            };
            states.extend(combined.into_iter().map(state));
        }
        Some(states)
    }

    /// One random state. `random` returns 64 random bits.
    pub fn sample(&self, mut random: impl FnMut() -> u64) -> DirectoryState {
        let set = match random() % 4 {
            0 => 0,
            1 => u64::MAX,
            _ => random(),
        };
        let names = self.named(|nth| set >> (nth % 64) & 1 == 1);
        let files = names.values();
        let files = files.map(|file| (*file, self.files[*file].sample(&mut random)));
        DirectoryState {
            files: files.collect(),
            names,
        }
    }
}
