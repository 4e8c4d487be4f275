//! Rebuilding a store from its files: the newest base file, then the journal.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use mneme_journal::{BasePart, BaseReader, Identity, Position, Reader, bases};
use mneme_log::feed::{Item, bound, entries};
use mneme_log::{Evict, Expiry, LogStore};
use mneme_sys::Clock;
use mneme_sys::fault::without;
use mneme_sys::medium::Directory;
use mneme_tree::Store;

use crate::DurableError;
use crate::options::{Listen, RecoveryProgress};
use crate::pairing::Unpaired;
use crate::replay::{Replay, ReplayBatch};
use crate::tree::TreeRecords;

/// Bytes between two progress reports.
const REPORTED: u64 = 16 << 20;

/// The clock of a store that is being rebuilt. Until it is released its wall clock stands at zero,
/// so that nothing expires. From then on it is never behind a given time plus the time elapsed
/// since.
///
/// The given time is that of the last change. Without it a machine whose clock has been set back
/// would revive expired records.
pub(crate) struct RecoveryClock {
    inner: Arc<dyn Clock>,
    /// The least time at the release, or [`LOADING`].
    least: AtomicU64,
    /// When it was released, by the monotonic clock.
    released_ns: AtomicU64,
}

const LOADING: u64 = u64::MAX;

impl RecoveryClock {
    pub fn new(inner: Arc<dyn Clock>) -> Self {
        let (least, released_ns) = (AtomicU64::new(LOADING), AtomicU64::new(0));
        Self {
            inner,
            least,
            released_ns,
        }
    }

    pub fn release(&self, least: u64) {
        let least = if without("recover.floor") { 0 } else { least };
        // Relaxed: published by `least`.
        self.released_ns.store(self.inner.now_ns(), Relaxed);
        // SYNC: pairs with the Acquire in `wall_ms`.
        self.least.store(least.min(LOADING - 1), Release);
    }
}

impl Clock for RecoveryClock {
    fn now_ns(&self) -> u64 {
        self.inner.now_ns()
    }

    fn wall_ms(&self) -> u64 {
        // SYNC: pairs with the Release in `release`.
        match self.least.load(Acquire) {
            LOADING if without("recover.clock") => self.inner.wall_ms(),
            LOADING => 0,
            // No time was given: trust the clock.
            0 => self.inner.wall_ms(),
            least => {
                let released_ns = self.released_ns.load(Relaxed);
                let since_ms = self.inner.now_ns().saturating_sub(released_ns) / 1_000_000;
                self.inner.wall_ms().max(least.saturating_add(since_ms))
            }
        }
    }
}

/// The files of a directory that hold its store.
pub(crate) struct Files {
    /// The newest base file.
    base: Option<String>,
    /// When that file was begun.
    base_wall_ms: u64,
    /// Where reading the journal starts: where the base file begins, or where its copy of the
    /// journal ends.
    from: Position,
    /// The store's identity; `None`: the directory holds none.
    pub identity: Option<Identity>,
}

/// What must be known of the journal before it is applied.
struct Journaled {
    /// Where it ends.
    end: Position,
    /// The time of the last change.
    wall_ms: u64,
    /// Roots that are dropped later and never come back.
    dead: HashSet<u64>,
}

/// The result of a load.
pub(crate) struct Loaded {
    /// Where the stream ends.
    pub end: u64,
    /// The time of the last change.
    pub wall_ms: u64,
    /// What was loaded.
    pub progress: RecoveryProgress,
}

impl Files {
    /// Finds the files. [`load`](Self::load) reads their content.
    pub fn look(directory: &dyn Directory) -> Result<Self, DurableError> {
        let (base, opened) = newest_base(directory)?.unzip();
        // A backup includes the journal up to its end, and may exist without the journal's earlier
        // files.
        let ends = opened.as_ref().map(BaseReader::read_ahead).transpose()?;
        let nowhere = Position::new(0);
        let journal = Reader::between(directory, nowhere, nowhere)?;
        Ok(Self {
            identity: journal
                .identity()
                .or_else(|| opened.as_ref().map(BaseReader::identity)),
            base_wall_ms: opened.as_ref().map_or(0, BaseReader::wall_ms),
            from: ends.map_or(nowhere, |(_, suffix)| suffix),
            base,
        })
    }

    /// Reads the journal once, bypassing the page cache, unless the load has already ended.
    fn look_at_journal(
        &self,
        directory: &dyn Directory,
        has_ended: &AtomicBool,
    ) -> Result<Journaled, DurableError> {
        let mut reader = Reader::open(directory, self.from)?;
        let mut dead = Dead::default();
        while let Some(chunk) = reader.next()? {
            // Relaxed: nothing else is read by it.
            if has_ended.load(Relaxed) {
                return Err(DurableError::Stopped);
            }
            dead.note(chunk.position.get(), chunk.bytes)?;
        }
        Ok(Journaled {
            end: reader.position(),
            wall_ms: match reader.identity() {
                None => self.base_wall_ms,
                Some(_) => reader.wall_ms(),
            },
            dead: dead.roots,
        })
    }

    /// Loads everything into an empty store.
    ///
    /// Two threads read ahead: one the base file; the other the journal, for what must be known
    /// before it is applied. A third populates the store's memory.
    pub fn load(
        self,
        directory: &dyn Directory,
        store: &LogStore,
        listener: Option<&Listen<'_>>,
        evict: Evict,
    ) -> Result<Loaded, DurableError> {
        populated(store, || self.apply(directory, store, listener, evict))
    }

    fn apply(
        &self,
        directory: &dyn Directory,
        store: &LogStore,
        listener: Option<&Listen<'_>>,
        evict: Evict,
    ) -> Result<Loaded, DurableError> {
        let mut progress = Progress::new(listener, 0);
        let mut replay = Replay::new(store, HashSet::new(), evict != Evict::None);
        let (files, has_ended) = (self, &AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (looks, looking) = sync_channel(0);
            let look = scope.spawn(move || {
                let _looks: SyncSender<()> = looks;
                files.look_at_journal(directory, has_ended)
            });
            let mut stream = Stream {
                has_ended,
                looking,
                directory,
                base: files.base.as_deref(),
                suffix: None,
                from: files.from.get(),
                look: Some(look),
                journal: None,
                applied: files.from.get(),
                ahead: None,
            };
            let mut read = None;
            if let Some(file) = &files.base {
                progress.now.total += directory
                    .open(file)
                    .and_then(|file| file.len())
                    .unwrap_or(0);
                let (to, parts) = sync_channel(AHEAD);
                let (spent, buffers) = channel();
                let base = BaseReader::open(directory, file)?;
                stream.applied = base.begin().get();
                let reading = scope.spawn(|| read_base(base, to, buffers));
                for part in parts {
                    let bytes = match part {
                        Part::Records { at, bytes } => {
                            if stream.is_looked_at() {
                                stream.settle(&mut replay, &mut progress)?;
                            }
                            // Applied in the original order: a store that evicts never held all of
                            // it at the same time.
                            stream.advance(at.get(), &mut replay, &mut progress)?;
                            replay.records(&bytes)?;
                            bytes
                        }
                        Part::Suffix { position, bytes } => {
                            stream.settle(&mut replay, &mut progress)?;
                            if stream.is_at(position.get()) {
                                replay.bytes(position.get(), &bytes)?;
                                stream.applied += bytes.len() as u64;
                            }
                            bytes
                        }
                    };
                    progress.add(bytes.len() as u64, replay.loaded)?;
                    // If nothing receives, the reader has ended.
                    let _ = spent.send(bytes);
                }
                read = joined(reading)?;
            }
            let (journaled, _) = stream.settle(&mut replay, &mut progress)?;
            let (end, wall_ms) = (journaled.end, journaled.wall_ms);
            let read = read.unwrap_or_default();
            if read > end {
                return Err(DurableError::Short {
                    end: end.get(),
                    read: read.get(),
                });
            }
            stream.advance(u64::MAX, &mut replay, &mut progress)?;
            Ok(Loaded {
                end: replay.end(end.get()),
                wall_ms,
                progress: progress.finish(replay)?,
            })
        })
    }
}

/// The most parts of a base file that are read ahead.
const AHEAD: usize = 4;

/// A part of a base file, in a buffer of its own.
enum Part {
    Records { at: Position, bytes: Vec<u8> },
    Suffix { position: Position, bytes: Vec<u8> },
}

/// Reads a base file part by part until the receiver is gone. Returns [what it has
/// read](BaseReader::read). Buffers are returned and reused.
fn read_base(
    mut base: BaseReader,
    to: SyncSender<Part>,
    buffers: Receiver<Vec<u8>>,
) -> Result<Option<Position>, DurableError> {
    while let Some(part) = base.next()? {
        let own = |bytes: &[u8]| {
            let mut buffer = buffers.try_recv().unwrap_or_default();
            buffer.clear();
            buffer.extend_from_slice(bytes);
            buffer
        };
        let part = match part {
            BasePart::Records { at, bytes } => Part::Records {
                at,
                bytes: own(bytes),
            },
            BasePart::Suffix { position, bytes } => Part::Suffix {
                position,
                bytes: own(bytes),
            },
        };
        if to.send(part).is_err() {
            break;
        }
    }
    Ok(base.read())
}

/// Returns a thread's result, or continues its panic in this thread.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// The stream after the begin of a base file: first the part that the file holds, then the journal.
struct Stream<'s, 'd> {
    directory: &'d dyn Directory,
    base: Option<&'d str>,
    /// A second reader of the base file, for its part of the stream.
    suffix: Option<BaseReader>,
    /// Where the journal continues.
    from: u64,
    /// The thread that reads the journal ahead, until its result is needed.
    look: Option<ScopedJoinHandle<'s, Result<Journaled, DurableError>>>,
    /// Disconnected when that thread is done.
    looking: Receiver<()>,
    /// Stops that thread early.
    has_ended: &'s AtomicBool,
    /// The result of that thread, and a reader of the journal.
    journal: Option<(Journaled, Reader<'d>)>,
    /// Everything before it has been applied.
    applied: u64,
    /// Bytes that were read and not applied yet.
    ahead: Option<Vec<u8>>,
}

/// How often the listener is called while waiting for the first look at the journal.
const ASKED: Duration = Duration::from_millis(100);

impl Drop for Stream<'_, '_> {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
    }
}

impl<'d> Stream<'_, 'd> {
    fn is_at(&self, position: u64) -> bool {
        self.applied == position && self.ahead.is_none()
    }

    /// Whether the first look at the journal is complete and its result has not been taken.
    fn is_looked_at(&self) -> bool {
        self.look
            .as_ref()
            .is_some_and(ScopedJoinHandle::is_finished)
    }

    /// Waits for the first look at the journal.
    fn settle(
        &mut self,
        replay: &mut Replay<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<&mut (Journaled, Reader<'d>), DurableError> {
        if let Some(look) = self.look.take() {
            // The wait may be long, and the listener may end it.
            progress.report(replay.loaded)?;
            while self.looking.recv_timeout(ASKED) == Err(RecvTimeoutError::Timeout) {
                progress.report(replay.loaded)?;
            }
            let journaled = joined(look)?;
            let from = Position::new(self.from);
            replay.know_dead(&journaled.dead);
            progress.now.total += journaled.end.since(from);
            let reader = Reader::between(self.directory, from, journaled.end)?;
            self.journal = Some((journaled, reader));
        }
        // The first look failed, which has ended the load.
        self.journal.as_mut().ok_or(DurableError::Closing)
    }

    /// Applies the entries that end before `end`, frame by frame.
    fn advance(
        &mut self,
        end: u64,
        replay: &mut Replay<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), DurableError> {
        while self.applied < end {
            self.settle(replay, progress)?;
            let ahead = match self.ahead.take() {
                None => self.read()?,
                ahead => ahead,
            };
            let Some(bytes) = ahead else {
                break;
            };
            let behind = self.applied + bytes.len() as u64;
            if behind > end {
                self.ahead = Some(bytes);
                break;
            }
            replay.bytes(self.applied, &bytes)?;
            self.applied = behind;
            progress.add(bytes.len() as u64, replay.loaded)?;
            mneme_sys::fault!("durable.recover.chunk");
        }
        Ok(())
    }

    /// Reads and applies more. Returns the bytes after those that were applied.
    fn read(&mut self) -> Result<Option<Vec<u8>>, DurableError> {
        if let (true, Some(file)) = (self.applied < self.from, self.base) {
            let suffix = match &mut self.suffix {
                Some(suffix) => suffix,
                none => none.insert(BaseReader::open(self.directory, file)?),
            };
            while let Some(part) = suffix.next()? {
                match part {
                    BasePart::Suffix { position, bytes } if position.get() == self.applied => {
                        return Ok(Some(bytes.to_vec()));
                    }
                    _ => {}
                }
            }
        }
        let Some((_, journal)) = &mut self.journal else {
            return Ok(None);
        };
        Ok(journal.next()?.map(|chunk| chunk.bytes.to_vec()))
    }
}

/// Bytes of records read from a tree at once.
const VISITED: usize = 1 << 20;

/// Marks a load as ended when it is dropped, also on an error or a panic.
struct Ending<'e>(&'e AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing else is read by it.
        self.0.store(true, Relaxed);
    }
}

/// Runs `load`, and beside it `ahead` in a thread of its own, which can check whether the load has
/// ended. If the thread cannot be started, `load` does the work alone.
fn with_thread_ahead<T>(
    ahead: impl FnOnce(&dyn Fn() -> bool) + Send,
    load: impl FnOnce() -> T,
) -> T {
    let has_ended = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ahead = move || ahead(&|| has_ended.load(Relaxed));
        let _ = std::thread::Builder::new().spawn_scoped(scope, ahead);
        let _ending = Ending(has_ended);
        load()
    })
}

/// Runs `load` while another thread populates the memory of the store.
fn populated<T>(store: &LogStore, load: impl FnOnce() -> T) -> T {
    with_thread_ahead(|has_ended| store.populate_ahead(has_ended), load)
}

/// Loads a tree into an empty store.
///
/// Two threads run ahead: one reads the file sequentially, the other populates the store's memory.
pub(crate) fn load_tree(
    (tree, wall_ms): (&Store, u64),
    store: &LogStore,
    listener: Option<&Listen<'_>>,
    evict: Evict,
) -> Result<Loaded, DurableError> {
    let read = |has_ended: &dyn Fn() -> bool| tree.read_ahead(has_ended);
    with_thread_ahead(read, || {
        populated(store, || {
            apply_tree((tree, wall_ms), store, listener, evict)
        })
    })
}

fn apply_tree(
    (tree, wall_ms): (&Store, u64),
    store: &LogStore,
    listener: Option<&Listen<'_>>,
    evict: Evict,
) -> Result<Loaded, DurableError> {
    let mut records = TreeRecords::of(tree)?;
    let mut progress = Progress::new(listener, tree.stats()?.live_bytes);
    let mut replay = Replay::new(store, HashSet::new(), evict != Evict::None);
    let position = records.position();
    let bind = Item::Bind {
        databases: &records.bindings(),
        dead: &[],
    };
    replay.item(position, bind)?;
    replay.highest = records.highest();
    loop {
        let (mut bytes, mut batch) = (0, ReplayBatch::default());
        let goes_on = records.visit(VISITED, |record| {
            bytes += (record.key.len() + record.value.len()) as u64;
            match (record.kind, record.expiry) {
                (0, Expiry::Never) => {
                    let pair = (record.key, record.value);
                    replay.gather(&mut batch, position, record.root, pair)
                }
                _ => {
                    replay.store_batch(&mut batch)?;
                    replay.item(position, record.put())
                }
            }
        })?;
        replay.store_batch(&mut batch)?;
        progress.add(bytes, replay.loaded)?;
        mneme_sys::fault!("durable.recover.tree");
        if !goes_on {
            break;
        }
    }
    Ok(Loaded {
        end: position,
        wall_ms,
        progress: progress.finish(replay)?,
    })
}

struct Progress<'l> {
    listener: Option<&'l Listen<'l>>,
    reported: u64,
    now: RecoveryProgress,
}

impl<'l> Progress<'l> {
    fn new(listener: Option<&'l Listen<'l>>, total: u64) -> Self {
        Self {
            listener,
            reported: 0,
            now: RecoveryProgress {
                total,
                ..RecoveryProgress::default()
            },
        }
    }

    /// # Errors
    /// The listener ended the load.
    fn add(&mut self, bytes: u64, loaded: u64) -> Result<(), DurableError> {
        self.now.done += bytes;
        match self.now.done >= self.reported + REPORTED {
            true => self.report(loaded),
            false => Ok(()),
        }
    }

    fn report(&mut self, loaded: u64) -> Result<(), DurableError> {
        self.reported = self.now.done;
        self.now.loaded = loaded;
        match self.listener.map(|listener| listener(self.now)) {
            Some(ControlFlow::Break(())) => Err(DurableError::Stopped),
            _ => Ok(()),
        }
    }

    /// Finishes when everything has been applied.
    fn finish(mut self, replay: Replay<'_>) -> Result<RecoveryProgress, DurableError> {
        self.now.done = self.now.total;
        self.report(replay.loaded)?;
        replay.finish()?;
        Ok(self.now)
    }
}

/// The newest valid base file. A base file is invalid if a later run of the journal has cut off
/// what it read.
pub(crate) fn newest_base(
    directory: &dyn Directory,
) -> Result<Option<(String, BaseReader)>, DurableError> {
    let nowhere = Position::new(0);
    let journal = Reader::between(directory, nowhere, nowhere)?;
    let ours = journal.runs();
    let mut newest: Option<(String, BaseReader)> = None;
    for base in bases(directory)? {
        if base.kept.is_some() {
            continue;
        }
        let reader = BaseReader::open(directory, &base.file)?;
        let theirs = reader.runs();
        let is_known = ours.may_contain(theirs.number(), theirs.last().map_or(0, |run| run.id));
        if ours.number() > 0 && !is_known {
            // A restore that died before its run began has not happened.
            match base.restored {
                true => continue,
                false => return Err(DurableError::Unpaired(Unpaired::Base)),
            }
        }
        let cut = ours.cut_behind(theirs.number());
        let is_cut = cut.is_some_and(|cut| reader.read_ahead().is_ok_and(|(read, _)| read > cut));
        if is_cut && !without("base.cut") {
            continue;
        }
        // By runs first: a restored backup begins before the files that it replaced.
        let age = |base: &BaseReader| (base.runs().number(), base.begin());
        if newest
            .as_ref()
            .is_none_or(|(_, newest)| age(&reader) > age(newest))
        {
            newest = Some((base.file, reader));
        }
    }
    Ok(newest)
}

/// Roots that the journal drops, or never links. A group that is not closed does not count, because
/// it is cut off.
#[derive(Default)]
struct Dead {
    roots: HashSet<u64>,
    /// The root, if any, that the last `Bind` of each database made.
    made: HashMap<u8, u64>,
    /// The roots of the open group.
    open: Option<Vec<u64>>,
}

impl Dead {
    fn note(&mut self, position: u64, bytes: &[u8]) -> Result<(), DurableError> {
        for entry in entries(position, bytes) {
            for item in entry?.items() {
                match item? {
                    Item::Open if self.open.is_none() => self.open = Some(Vec::new()),
                    Item::Close => self.roots.extend(self.open.take().into_iter().flatten()),
                    Item::Bind { databases, dead } => {
                        let unlinked = self.unlinked(databases, dead);
                        let dead = dead.iter().map(|root| u64::from_le_bytes(*root));
                        let dead = dead.chain(unlinked);
                        match &mut self.open {
                            Some(open) => open.extend(dead),
                            None => self.roots.extend(dead),
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Roots that were made and that the next `Bind` of their databases does not name. A linked
    /// root is dropped or swapped by name, so the threads that made these died before they linked
    /// them.
    fn unlinked(&mut self, databases: &[[u8; 8]], dead: &[[u8; 8]]) -> Vec<u64> {
        let names = |root| {
            databases.iter().any(|word| bound(*word).1 == root)
                || dead.iter().any(|word| u64::from_le_bytes(*word) == root)
        };
        let makes = databases.len() == 1 && dead.is_empty();
        let of_each = databases.iter().filter_map(|word| {
            let (database, root) = bound(*word);
            match makes {
                true => self.made.insert(database, root),
                false => self.made.remove(&database),
            }
        });
        of_each.filter(|made| !names(*made)).collect()
    }
}

#[cfg(test)]
mod tests {
    use mneme_log::feed::{append_change, binding};
    use mneme_log::{DATABASES, Expiry};
    use mneme_sys::ManualClock;

    use super::*;

    /// A clock that was ahead at the last change and has been corrected still advances: records
    /// still expire.
    #[test]
    fn the_least_time_goes_on() {
        let inner = Arc::new(ManualClock::new(0, 1000));
        let clock = RecoveryClock::new(inner.clone());
        assert_eq!(clock.wall_ms(), 0);
        clock.release(5000);
        assert_eq!(clock.wall_ms(), 5000);
        inner.advance_ms(300);
        assert_eq!(clock.wall_ms(), 5300);
        inner.set_wall_ms(9000);
        assert_eq!(clock.wall_ms(), 9000);
        inner.set_wall_ms(0);
        assert_eq!(clock.wall_ms(), 5300);
    }

    fn enter(stream: &mut Vec<u8>, databases: &[(u8, u64)], dead: &[u64]) {
        let databases: Vec<_> = databases
            .iter()
            .map(|(of, root)| binding(*of, *root))
            .collect();
        let dead: Vec<_> = dead.iter().map(|root| root.to_le_bytes()).collect();
        let bind = Item::Bind {
            databases: &databases,
            dead: &dead,
        };
        append_change(&[bind], 0, stream);
    }

    /// If threads died after binding a root and before linking it, the next thread binds another.
    #[test]
    fn roots_that_were_bound_and_never_linked_keep_nothing_from_being_loaded() {
        let store = LogStore::builder()
            .capacity(64 << 20)
            .open_private()
            .unwrap();
        let mut stream = Vec::new();
        for database in 0..DATABASES as u8 {
            let root = u64::from(database) + 1;
            enter(&mut stream, &[(database, root)], &[]);
            enter(&mut stream, &[(database, root + 1000)], &[]);
            let put = Item::Put {
                root: root + 1000,
                key: b"kept",
                kind: 0,
                expiry: Expiry::Never,
                bytes: b"value",
            };
            append_change(&[put], 0, &mut stream);
        }
        let mut dead = Dead::default();
        dead.note(0, &stream).unwrap();
        let mut replay = Replay::new(&store, HashSet::new(), false);
        replay.know_dead(&dead.roots);
        replay.bytes(0, &stream).unwrap();
        replay.finish().unwrap();
        assert_eq!(store.records(), DATABASES as u64);
    }

    #[test]
    fn a_root_that_its_next_bind_names_was_linked() {
        let mut stream = Vec::new();
        enter(&mut stream, &[(0, 1)], &[]);
        enter(&mut stream, &[(1, 2)], &[]);
        enter(&mut stream, &[(0, 2), (1, 1)], &[]);
        enter(&mut stream, &[(1, 0)], &[1]);
        enter(&mut stream, &[(1, 3)], &[]);
        // 3 was not linked: database 1 was empty when it was swapped.
        enter(&mut stream, &[(1, 2), (0, 0)], &[]);
        enter(&mut stream, &[(0, 4)], &[]);
        let mut dead = Dead::default();
        dead.note(0, &stream).unwrap();
        assert_eq!(dead.roots, HashSet::from([1, 3]));
    }
}
