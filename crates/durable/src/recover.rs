//! Rebuilding a store from its files: the newest base file, then the journal.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};

use mneme_journal::{BasePart, BaseReader, Identity, Position, Reader, bases};
use mneme_log::feed::{Item, entries};
use mneme_log::{Evict, LogStore};
use mneme_sys::Clock;
use mneme_sys::fault::without;
use mneme_sys::medium::Directory;
use mneme_tree::Store;

use crate::DurableError;
use crate::options::{ProgressListener, RecoveryProgress};
use crate::pairing::Unpaired;
use crate::replay::Replay;
use crate::tree::Records;

/// Bytes between two reports of progress.
const REPORTED: u64 = 16 << 20;

/// A clock for a store that is rebuilt: its wall clock stands at zero, so that nothing expires,
/// until it is released; from then on it is never behind a given time.
///
/// The time is that of the last change. A machine whose clock has lost the time since would
/// otherwise bring back what had expired.
pub(crate) struct RecoveryClock {
    inner: Arc<dyn Clock>,
    /// The least time, or [`LOADING`].
    least: AtomicU64,
}

const LOADING: u64 = u64::MAX;

impl RecoveryClock {
    pub fn new(inner: Arc<dyn Clock>) -> Self {
        let least = AtomicU64::new(LOADING);
        Self { inner, least }
    }

    pub fn release(&self, least: u64) {
        let least = if without("recover.floor") { 0 } else { least };
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
            least => self.inner.wall_ms().max(least),
        }
    }
}

/// What a directory holds.
pub(crate) struct Files {
    /// The newest base file.
    base: Option<String>,
    /// Where the journal is read from: where the base file begins, or what it has of the journal
    /// ends.
    from: Position,
    /// Where it ends.
    end: Position,
    /// The store; `None`: the directory holds none.
    pub identity: Option<Identity>,
    /// The time of the last change.
    pub wall_ms: u64,
    /// Roots that the journal says are dropped for ever.
    dead: HashSet<u64>,
}

impl Files {
    /// Reads the journal of a directory once, past the page cache.
    pub fn look(directory: &dyn Directory) -> Result<Self, DurableError> {
        let (base, opened) = newest_base(directory)?.unzip();
        // A backup holds the journal up to where it ends, and may stand without what is before.
        let ends = opened.as_ref().map(BaseReader::read_ahead).transpose()?;
        let from = ends.map_or(Position::new(0), |(_, suffix)| suffix);
        let mut reader = Reader::open(directory, from)?;
        let mut dead = Dead::default();
        while let Some(chunk) = reader.next()? {
            dead.note(chunk.position.get(), chunk.bytes)?;
        }
        let identity = reader.identity();
        Ok(Self {
            identity: identity.or_else(|| opened.as_ref().map(BaseReader::identity)),
            wall_ms: match (identity, &opened) {
                (None, Some(base)) => base.wall_ms(),
                _ => reader.wall_ms(),
            },
            end: reader.position(),
            base,
            from,
            dead: dead.roots,
        })
    }

    /// Loads all of it into a store that is empty. Returns where the stream ends, and what was
    /// done.
    pub fn load(
        self,
        directory: &dyn Directory,
        store: &LogStore,
        listener: Option<&ProgressListener>,
        evict: Evict,
    ) -> Result<(u64, RecoveryProgress), DurableError> {
        let mut progress = Progress::new(listener, self.end.since(self.from));
        let mut replay = Replay::new(store, self.dead, evict != Evict::None);
        let mut read = None;
        let mut stream = Stream {
            directory,
            base: self.base.as_deref(),
            suffix: None,
            from: self.from.get(),
            journal: Reader::between(directory, self.from, self.end)?,
            applied: self.from.get(),
            ahead: None,
        };
        if let Some(file) = &self.base {
            progress.now.total += directory
                .open(file)
                .and_then(|file| file.len())
                .unwrap_or(0);
            let mut base = BaseReader::open(directory, file)?;
            stream.applied = base.begin().get();
            while let Some(part) = base.next()? {
                let bytes = match part {
                    BasePart::Records { at, bytes } => {
                        // In the order in which it was: a store that evicts has held all of it
                        // together at no time.
                        stream.advance(at.get(), &mut replay, &mut progress)?;
                        replay.records(bytes)?;
                        bytes
                    }
                    BasePart::Suffix { position, bytes } if stream.is_at(position.get()) => {
                        replay.bytes(position.get(), bytes)?;
                        stream.applied += bytes.len() as u64;
                        bytes
                    }
                    BasePart::Suffix { .. } => &[],
                };
                progress.add(bytes.len() as u64, replay.loaded);
            }
            read = base.read();
        }
        let read = read.unwrap_or_default();
        if read > self.end {
            return Err(DurableError::Short {
                end: self.end.get(),
                read: read.get(),
            });
        }
        stream.advance(u64::MAX, &mut replay, &mut progress)?;
        let end = replay.end(self.end.get());
        Ok((end, progress.finish(replay)?))
    }
}

/// The stream behind the begin of a base file: what the file has of it, then the journal.
struct Stream<'d> {
    directory: &'d dyn Directory,
    base: Option<&'d str>,
    /// Reads the base file beside the reader of its records.
    suffix: Option<BaseReader>,
    /// Where the journal goes on.
    from: u64,
    journal: Reader<'d>,
    /// Everything before it was applied.
    applied: u64,
    /// What was read of it and not applied.
    ahead: Option<Vec<u8>>,
}

impl Stream<'_> {
    fn is_at(&self, position: u64) -> bool {
        self.applied == position && self.ahead.is_none()
    }

    /// Applies what ends before `end`, frame by frame.
    fn advance(
        &mut self,
        end: u64,
        replay: &mut Replay<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), DurableError> {
        while self.applied < end {
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
            progress.add(bytes.len() as u64, replay.loaded);
            mneme_sys::fault!("durable.recover.chunk");
        }
        Ok(())
    }

    /// What follows what was applied.
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
        Ok(self.journal.next()?.map(|chunk| chunk.bytes.to_vec()))
    }
}

/// Bytes of records that are read from a tree at once.
const VISITED: usize = 1 << 20;

/// Loads a tree into a store that is empty. Returns where the stream ends, and what was done.
pub(crate) fn load_tree(
    tree: &Store,
    store: &LogStore,
    listener: Option<&ProgressListener>,
    evict: Evict,
) -> Result<(u64, RecoveryProgress), DurableError> {
    let mut records = Records::of(tree)?;
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
        let mut bytes = 0;
        let goes_on = records.visit(VISITED, |record| {
            bytes += (record.key.len() + record.value.len()) as u64;
            replay.item(position, record.put())
        })?;
        progress.add(bytes, replay.loaded);
        mneme_sys::fault!("durable.recover.tree");
        if !goes_on {
            break;
        }
    }
    Ok((position, progress.finish(replay)?))
}

struct Progress<'l> {
    listener: Option<&'l ProgressListener>,
    reported: u64,
    now: RecoveryProgress,
}

impl<'l> Progress<'l> {
    fn new(listener: Option<&'l ProgressListener>, total: u64) -> Self {
        Self {
            listener,
            reported: 0,
            now: RecoveryProgress {
                total,
                ..RecoveryProgress::default()
            },
        }
    }

    fn add(&mut self, bytes: u64, loaded: u64) {
        self.now.done += bytes;
        if self.now.done >= self.reported + REPORTED {
            self.report(loaded);
        }
    }

    fn report(&mut self, loaded: u64) {
        self.reported = self.now.done;
        self.now.loaded = loaded;
        if let Some(listener) = self.listener {
            listener(self.now);
        }
    }

    /// All of it was applied.
    fn finish(mut self, replay: Replay<'_>) -> Result<RecoveryProgress, DurableError> {
        self.now.done = self.now.total;
        self.report(replay.loaded);
        replay.finish()?;
        Ok(self.now)
    }
}

/// The newest base file that counts: a later run of the journal may have cut what one has read.
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
            // A restore that died before its run began has not taken place.
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
        // By runs first: a backup that was restored begins before what it has replaced.
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

/// Roots that the journal says are dropped. A group that is not closed says nothing: it is cut.
#[derive(Default)]
struct Dead {
    roots: HashSet<u64>,
    /// Those of the group that is open.
    open: Option<Vec<u64>>,
}

impl Dead {
    fn note(&mut self, position: u64, bytes: &[u8]) -> Result<(), DurableError> {
        for entry in entries(position, bytes) {
            for item in entry?.items() {
                match item? {
                    Item::Open if self.open.is_none() => self.open = Some(Vec::new()),
                    Item::Close => self.roots.extend(self.open.take().into_iter().flatten()),
                    Item::Bind { dead, .. } => {
                        let dead = dead.iter().map(|root| u64::from_le_bytes(*root));
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
}
