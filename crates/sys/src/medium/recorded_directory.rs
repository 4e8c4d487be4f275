//! A directory in memory that records every operation in order.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contents::CrashContents;
use super::directory_states::{DirectoryState, DirectoryStates};
use super::recorded_mapping::RecordedMapping;
use super::{Directory, FailureModel, Medium, MediumError, Operation, Storage, inside};

/// One operation on a directory or on a file in it. Files are numbered in the order of their
/// creation; a renamed file keeps its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectoryOperation {
    /// A name for a new, empty file.
    Create {
        /// The name.
        name: String,
        /// The file.
        file: usize,
    },
    /// A file was renamed.
    Rename {
        /// The old name.
        from: String,
        /// The new name; a file that had it before is removed.
        to: String,
    },
    /// A name was removed.
    Remove(String),
    /// The names were synced.
    Sync,
    /// An operation on one of the files.
    File {
        /// The file.
        file: usize,
        /// The operation.
        operation: Operation,
    },
    /// A mark set by the test.
    Mark(u64),
}

/// The history of a directory since it contained `names` and `files`.
#[derive(Debug, Clone, Default)]
pub struct DirectoryTrace {
    /// The names at the start, all of them durable.
    pub names: BTreeMap<String, usize>,
    /// The files' durable bytes at the start.
    pub files: Vec<Arc<Vec<u8>>>,
    /// The operations since, in order.
    pub operations: Vec<DirectoryOperation>,
}

impl DirectoryTrace {
    /// This trace without its `index`-th operation, like a program that omitted it.
    #[must_use]
    pub fn without(&self, index: usize) -> Self {
        let mut twin = self.clone();
        twin.operations.remove(index);
        twin
    }

    /// The positions of the operations for which `wanted` returns true.
    pub fn positions(&self, wanted: impl Fn(&DirectoryOperation) -> bool) -> Vec<usize> {
        let each = self.operations.iter().enumerate();
        each.filter(|(_, op)| wanted(op)).map(|(i, _)| i).collect()
    }
}

/// Applies an operation to the names.
pub(super) fn apply(names: &mut BTreeMap<String, usize>, operation: &DirectoryOperation) {
    match operation {
        DirectoryOperation::Create { name, file } => {
            names.insert(name.clone(), *file);
        }
        DirectoryOperation::Rename { from, to } => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        DirectoryOperation::Remove(name) => {
            names.remove(name);
        }
        _ => {}
    }
}

/// A [`Directory`] in memory whose operations are recorded and can be made to fail. A clone is
/// another opening of it.
///
/// ```
/// use mneme_sys::medium::{Directory, DirectoryStates, RecordingDirectory};
/// let directory = RecordingDirectory::new();
/// let file = directory.create("a")?;
/// file.write(0, b"word")?;
/// file.sync()?;
/// let trace = directory.trace();
/// let mut states = DirectoryStates::new(&trace);
/// while states.advance() {}
/// // The file is whole, but the directory was not synced: its name may be missing.
/// assert_eq!(states.all(100).unwrap().len(), 2);
/// # Ok::<(), mneme_sys::medium::MediumError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct RecordingDirectory {
    state: Arc<Mutex<RecordedState>>,
}

#[derive(Debug, Default)]
pub(super) struct RecordedState {
    trace: DirectoryTrace,
    names: BTreeMap<String, usize>,
    files: Vec<Live>,
    /// The maximum number of bytes of all files together.
    limit: Option<u64>,
    /// The number of file syncs until one fails, what it loses, and how many more fail after it.
    failing: Option<(u64, u64, u64)>,
    /// The number of directory syncs until one fails.
    failing_names: Option<u64>,
    /// A byte of a file that cannot be read.
    unreadable: Option<(usize, u64)>,
}

/// A file as programs see it.
#[derive(Debug, Default)]
struct Live {
    bytes: Arc<Vec<u8>>,
    /// Whether a sync has failed: pages that look clean may not have been written.
    doubtful: bool,
}

impl RecordingDirectory {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A directory that contains these files, durably.
    #[must_use]
    pub fn with_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        let mut state = RecordedState::default();
        for (name, bytes) in files {
            state.add(name, Arc::new(bytes));
        }
        let state = Arc::new(Mutex::new(state));
        Self { state }
    }

    /// The directory after a crash.
    #[must_use]
    pub fn crashed(states: &DirectoryStates<'_>, found: &DirectoryState) -> Self {
        let mut state = RecordedState::default();
        for (name, file) in &found.names {
            let durable = states.files[*file].durable();
            let bytes = match found.files.get(file) {
                Some(kept) if !kept.words.is_empty() || kept.len != durable.len() as u64 => {
                    let mut bytes = durable.to_vec();
                    bytes.resize(kept.len as usize, 0);
                    for (at, word) in &kept.words {
                        let at = *at as usize;
                        bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
                    }
                    Arc::new(bytes)
                }
                _ => durable.clone(),
            };
            state.add(name.clone(), bytes);
        }
        let state = Arc::new(Mutex::new(state));
        Self { state }
    }

    /// The directory that is left by a process killed after the first `many` operations of `trace`.
    /// Power is not lost, so the next process sees all of them; they remain a part of the trace.
    #[must_use]
    pub fn killed(trace: &DirectoryTrace, many: usize) -> Self {
        let mut state = RecordedState::default();
        for (name, file) in &trace.names {
            state.names.insert(name.clone(), *file);
        }
        let live = |bytes: &Arc<Vec<u8>>| Live {
            bytes: bytes.clone(),
            doubtful: false,
        };
        state.files = trace.files.iter().map(live).collect();
        state.trace.names = trace.names.clone();
        state.trace.files = trace.files.clone();
        for operation in &trace.operations[..many] {
            state.replay(operation);
        }
        let state = Arc::new(Mutex::new(state));
        Self { state }
    }

    /// The recorded operations.
    #[must_use]
    pub fn trace(&self) -> DirectoryTrace {
        self.lock().trace.clone()
    }

    /// The files as programs see them.
    #[must_use]
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let names = state.names.iter();
        let files = names.map(|(name, file)| (name.clone(), state.files[*file].bytes.to_vec()));
        files.collect()
    }

    /// Adds [`DirectoryOperation::Mark`].
    pub fn mark(&self, value: u64) {
        self.record(DirectoryOperation::Mark(value));
    }

    /// From now on there is no space beyond `limit` bytes for all files together; `None` removes
    /// the limit.
    pub fn limit(&self, limit: Option<u64>) {
        self.lock().limit = limit;
    }

    /// Makes the `nth` sync of a file from now (1 is the next) fail, and `more` after it; see
    /// [`Operation::FailedSync`].
    pub fn fail_sync(&self, nth: u64, keep: u64, more: u64) {
        self.lock().failing = Some((nth, keep, more));
    }

    /// Makes the `nth` sync of the directory from now fail; changes of names remain uncertain.
    pub fn fail_names(&self, nth: u64) {
        self.lock().failing_names = Some(nth);
    }

    /// Makes reads of the byte at `at` of that file fail.
    pub fn make_unreadable(&self, name: &str, at: u64) {
        let mut state = self.lock();
        state.unreadable = state.names.get(name).map(|file| (*file, at));
    }

    /// Maps a file, which may grow to `max` bytes. Stores there are recorded like writes to the
    /// file, and nothing else may write to it meanwhile.
    ///
    /// # Errors
    /// There is no such file, or it is longer; there is no address space.
    pub fn map(&self, name: &str, max: u64) -> Result<Box<dyn Medium>, MediumError> {
        let state = self.lock();
        let file = state.find(name)?;
        let bytes = Arc::clone(&state.files[file].bytes);
        drop(state);
        Ok(Box::new(RecordedMapping::new(self, file, &bytes, max)?))
    }

    fn record(&self, operation: DirectoryOperation) {
        self.lock().trace.operations.push(operation);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RecordedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn storage(&self, file: usize) -> Box<dyn Storage> {
        let poisoned = Mutex::new(false);
        Box::new(RecordedFile {
            directory: self.clone(),
            file,
            poisoned,
        })
    }
}

impl RecordedState {
    fn add(&mut self, name: String, bytes: Arc<Vec<u8>>) {
        self.names.insert(name.clone(), self.files.len());
        self.trace.names.insert(name, self.files.len());
        self.trace.files.push(bytes.clone());
        self.files.push(Live {
            bytes,
            doubtful: false,
        });
    }

    /// Performs the operations of a trace.
    fn replay(&mut self, operation: &DirectoryOperation) {
        self.change(operation.clone());
        match operation {
            DirectoryOperation::Create { file, .. } => {
                self.files
                    .resize_with((*file + 1).max(self.files.len()), Live::default);
            }
            DirectoryOperation::File { file, operation } => match operation {
                Operation::Grow(to) => {
                    Arc::make_mut(&mut self.files[*file].bytes).resize(*to as usize, 0);
                }
                Operation::Store { at, bytes } => {
                    let live = Arc::make_mut(&mut self.files[*file].bytes);
                    live[*at as usize..*at as usize + bytes.len()].copy_from_slice(bytes);
                }
                Operation::FailedSync { .. } => self.files[*file].doubtful = true,
                Operation::DropCached => {
                    self.files[*file].bytes = Arc::new(self.contents(*file).visible());
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn change(&mut self, operation: DirectoryOperation) {
        apply(&mut self.names, &operation);
        self.trace.operations.push(operation);
    }

    fn find(&self, name: &str) -> Result<usize, MediumError> {
        self.names.get(name).copied().ok_or(MediumError::Os {
            what: "find a file",
            source: io::ErrorKind::NotFound.into(),
        })
    }

    /// The number of bytes of all files that have a name.
    fn used(&self) -> u64 {
        let used = self.names.values();
        used.map(|file| self.files[*file].bytes.len() as u64).sum()
    }

    fn on_file(&mut self, file: usize, operation: Operation) {
        let operation = DirectoryOperation::File { file, operation };
        self.trace.operations.push(operation);
    }

    /// The content of a file on the medium, as far as the kernel believes that it wrote it.
    fn contents(&self, file: usize) -> CrashContents {
        let image = self.trace.files.get(file).cloned().unwrap_or_default();
        let mut contents = CrashContents::new(image, FailureModel::File);
        for operation in &self.trace.operations {
            match operation {
                DirectoryOperation::File {
                    file: of,
                    operation,
                } if *of == file => {
                    contents.apply(operation);
                }
                _ => {}
            }
        }
        contents
    }

    /// Makes a file at least that long.
    pub(super) fn grow(&mut self, file: usize, to: u64) -> Result<(), MediumError> {
        let len = self.files[file].bytes.len() as u64;
        if to > len {
            let used = self.used() + to - len;
            if self.limit.is_some_and(|limit| used > limit) {
                return Err(MediumError::NoSpace { wanted: to });
            }
            Arc::make_mut(&mut self.files[file].bytes).resize(to as usize, 0);
            self.on_file(file, Operation::Grow(to));
        }
        Ok(())
    }

    /// Stores bytes in a file that is long enough.
    pub(super) fn store(&mut self, file: usize, at: u64, bytes: &[u8]) {
        let live = Arc::make_mut(&mut self.files[file].bytes);
        live[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        let bytes = bytes.to_vec();
        self.on_file(file, Operation::Store { at, bytes });
    }

    pub(super) fn sync(&mut self, file: usize) -> Result<(), MediumError> {
        if let Some((left, keep, more)) = self.failing {
            if left <= 1 {
                self.failing = (more > 0).then_some((1, keep, more.saturating_sub(1)));
                self.files[file].doubtful = true;
                self.on_file(file, Operation::FailedSync { keep });
                return Err(MediumError::Sync(io::Error::other("a fault was injected")));
            }
            self.failing = Some((left - 1, keep, more));
        }
        self.on_file(file, Operation::Sync);
        Ok(())
    }
}

impl Directory for RecordingDirectory {
    fn names(&self) -> Result<Vec<String>, MediumError> {
        Ok(self.lock().names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        let mut state = self.lock();
        if state.names.contains_key(name) {
            return Err(MediumError::Os {
                what: "make a file",
                source: io::ErrorKind::AlreadyExists.into(),
            });
        }
        let file = state.files.len();
        state.files.push(Live::default());
        let name = name.to_owned();
        state.change(DirectoryOperation::Create { name, file });
        drop(state);
        Ok(self.storage(file))
    }

    fn open(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        let file = self.lock().find(name)?;
        Ok(self.storage(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), MediumError> {
        let mut state = self.lock();
        state.find(from)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        state.change(DirectoryOperation::Rename { from, to });
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), MediumError> {
        let mut state = self.lock();
        state.find(name)?;
        state.change(DirectoryOperation::Remove(name.to_owned()));
        Ok(())
    }

    fn sync(&self) -> Result<(), MediumError> {
        let mut state = self.lock();
        if let Some(left) = state.failing_names {
            state.failing_names = (left > 1).then(|| left - 1);
            if left <= 1 {
                return Err(MediumError::Sync(io::Error::other("a fault was injected")));
            }
        }
        state.trace.operations.push(DirectoryOperation::Sync);
        Ok(())
    }
}

/// One opening of a file.
#[derive(Debug)]
struct RecordedFile {
    directory: RecordingDirectory,
    file: usize,
    poisoned: Mutex<bool>,
}

impl Storage for RecordedFile {
    fn len(&self) -> Result<u64, MediumError> {
        Ok(self.directory.lock().files[self.file].bytes.len() as u64)
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        let state = self.directory.lock();
        let bytes = &state.files[self.file].bytes;
        inside(at, buffer.len(), bytes.len() as u64)?;
        let end = at + buffer.len() as u64;
        match state.unreadable {
            Some((file, bad)) if file == self.file && (at..end).contains(&bad) => {
                return Err(MediumError::Os {
                    what: "read the file",
                    source: io::Error::other("a fault was injected"),
                });
            }
            _ => {}
        }
        buffer.copy_from_slice(&bytes[at as usize..end as usize]);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let mut state = self.directory.lock();
        state.grow(self.file, at + bytes.len() as u64)?;
        state.store(self.file, at, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediumError> {
        let mut poisoned = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        if *poisoned {
            return Err(MediumError::Poisoned);
        }
        let synced = self.directory.lock().sync(self.file);
        *poisoned = synced.is_err();
        synced
    }

    fn is_named(&self) -> Result<bool, MediumError> {
        let state = self.directory.lock();
        Ok(state.names.values().any(|file| *file == self.file))
    }

    fn drop_cached(&self) -> Result<(), MediumError> {
        let mut state = self.directory.lock();
        state.sync(self.file)?;
        if state.files[self.file].doubtful {
            state.on_file(self.file, Operation::DropCached);
            state.files[self.file].bytes = Arc::new(state.contents(self.file).visible());
        }
        Ok(())
    }
}
