//! Base files: a copy of the whole store at some position, from which the journal continues. A
//! store that is kept as a tree needs none, because each of its commits holds everything; its base
//! files are backups.
//!
//! **A base file contains no change that the journal has lost, and lacks none from before its
//! begin.** It begins at a durable position B. Every change before B is visible, and B lies between
//! changes, not between the pieces of one. The file holds what an online scan of all indexes finds
//! from then on, including expired records. The scan may see changes up to the feed's tail T after
//! it. So the file gets its name only when the journal is durable up to T, and data of older files
//! from before B is removed only after that.

use std::sync::Arc;

use mneme_collections::CollectionError;
use mneme_journal::{
    BaseName, BaseWriter, JournalError, Options, Position, Reader, Runs, remove_bases_before,
};
use mneme_log::feed::{COLLECTIONS, Item, append_change, binding};
use mneme_log::{Cursor, DATABASES, Expiry, LogStore, Stored, ValueKind, WriteError, element_key};
use mneme_sys::fault::without;
use mneme_sys::medium::Directory;
use mneme_tree::Store;

use crate::DurableError;
use crate::gate::{GateState, SharedGate};
use crate::tree::TreeRecords;

/// Bytes that are written and synced at once.
const PIECE: usize = 1 << 20;
/// Records that are visited in one step of the scan.
const VISITED: usize = 64;

/// What is needed to begin a base file.
#[derive(Clone)]
pub(crate) struct BaseSource {
    pub shared: Arc<SharedGate>,
    pub directory: Arc<dyn Directory>,
    pub options: Options,
    pub runs: Runs,
    /// The tree, if the store is kept as one: backups are read from it.
    pub tree: Option<Store>,
}

impl BaseSource {
    /// Where a copy of the store may begin; `None`: not known yet. A copy of a tree begins at its
    /// last commit.
    pub fn clean(&self) -> Option<u64> {
        match &self.tree {
            Some(_) => Some(self.shared.durable()),
            None => self.shared.clean(),
        }
    }

    /// Bytes of the journal that no base file covers.
    pub fn since_base(&self) -> u64 {
        match &self.tree {
            Some(_) => 0,
            None => self.shared.since_base(),
        }
    }
}

/// The source of a base file's records.
enum Scan {
    /// The live store, read while others write to it.
    Store {
        /// The indexes that remain to be scanned, the current one first.
        roots: Vec<u64>,
        cursor: Cursor,
        /// The elements of collections, which are scanned after the indexes.
        elements: ElementScan,
    },
    /// A commit of the tree.
    Commit(Box<TreeRecords>),
}

/// What a finished base file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckpointReport {
    /// The position at which the journal continues.
    pub begin: u64,
    /// The file may contain changes from before this position.
    pub read: u64,
    /// The number of records.
    pub records: u64,
    /// The size of the file in bytes.
    pub bytes: u64,
}

/// A base file that is being written piece by piece.
pub(crate) struct Checkpoint {
    source: BaseSource,
    writer: BaseWriter,
    begin: u64,
    is_kept: bool,
    scan: Scan,
    /// Entries that have not been written yet.
    buffer: Vec<u8>,
    /// The file and the buffer hold every change before this position.
    at: u64,
    records: u64,
    /// After the scan: the feed's tail, later the first durable position after it.
    read: Option<u64>,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It wrote this many bytes.
    Wrote(u64),
    /// The scan is complete; the file waits until the journal is durable far enough.
    Waits,
    /// The file may be published.
    Ready,
}

/// A scan of the elements of all collections.
#[derive(Default)]
pub(crate) struct ElementScan {
    /// Collections that were found and not scanned completely yet; the last one is scanned up to
    /// `at`.
    found: Vec<u64>,
    at: u64,
    /// Where to look for more; `None`: at the start.
    cursor: Option<Cursor>,
}

impl ElementScan {
    /// Visits some elements, in the form in which the change feed reports them. Returns false at
    /// the end.
    pub fn visit(
        &mut self,
        home: &LogStore,
        mut each: impl FnMut(Item<'_>),
    ) -> Result<bool, DurableError> {
        let Some(id) = self.found.last().copied() else {
            let cursor = self.cursor.unwrap_or(Cursor::START);
            if self.cursor == Some(Cursor::END) {
                return Ok(false);
            }
            let found = &mut self.found;
            let next = home.scan_collections(cursor, VISITED, |id, _| found.push(id))?;
            self.cursor = Some(next);
            return Ok(true);
        };
        let visit = |kind: ValueKind, element: &[u8], bytes: &[u8]| {
            each(Item::Put {
                root: COLLECTIONS,
                key: &element_key(id, element),
                kind: kind.number(),
                expiry: Expiry::Never,
                bytes,
            });
        };
        self.at = scan_elements(home, (id, self.at), visit)?;
        if self.at == 0 {
            self.found.pop();
        }
        Ok(true)
    }
}

/// Visits some elements of a collection from a place on. Returns the next place; 0: that was all.
pub(crate) fn scan_elements(
    home: &LogStore,
    (id, at): (u64, u64),
    visit: impl FnMut(ValueKind, &[u8], &[u8]),
) -> Result<u64, DurableError> {
    let scanned = mneme_collections::scan_collection(home, id, at, VISITED, visit);
    scanned.map_err(|error| match error {
        CollectionError::Store(error) => DurableError::from(error),
        error => DurableError::from(WriteError::Reap(error.to_string())),
    })
}

impl Checkpoint {
    /// Begins a file at `begin`, a position where a copy of the store [may
    /// begin](BaseSource::clean).
    pub fn begin(source: BaseSource, name: &BaseName, begin: u64) -> Result<Self, DurableError> {
        let records = source.tree.as_ref().map(TreeRecords::to_copy).transpose()?;
        let begin = records.as_ref().map_or(begin, TreeRecords::position);
        let writer = BaseWriter::begin_beside(
            &source.options,
            &source.runs,
            Arc::clone(&source.directory),
            name,
            Position::new(begin),
        )?;
        mneme_sys::fault!("durable.base.begun");
        let (scan, words) = match records {
            Some(records) => {
                let words = records.bindings();
                (Scan::Commit(Box::new(records)), words)
            }
            None => {
                let bindings = source.shared.home.roots()?;
                let words = (0..DATABASES).map(|of| binding(of as u8, bindings[of]));
                let roots = bindings.into_iter().filter(|root| *root != 0).collect();
                let cursor = Cursor::START;
                let elements = ElementScan::default();
                let scan = Scan::Store {
                    roots,
                    cursor,
                    elements,
                };
                (scan, words.collect())
            }
        };
        let mut buffer = Vec::new();
        let bind = Item::Bind {
            databases: &words,
            dead: &[],
        };
        if !without("checkpoint.bind") {
            append_change(&[bind], 0, &mut buffer);
        }
        Ok(Self {
            source,
            writer,
            begin,
            is_kept: *name != BaseName::Checkpoint,
            scan,
            buffer,
            at: begin,
            records: 0,
            read: None,
        })
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    pub fn bytes(&self) -> u64 {
        self.writer.len()
    }

    /// The reason, if the file waits for a thread and not for the disk.
    pub fn awaited_thread(&self) -> Option<&'static str> {
        self.read
            .and_then(|read| self.source.shared.awaited_thread(read))
    }

    /// Scans and writes about a MiB.
    pub fn step(&mut self) -> Result<Stage, DurableError> {
        if let Some(read) = self.read {
            return self.look(read);
        }
        if self.buffer.is_empty() {
            // Read before the records are visited.
            self.at = match &self.scan {
                Scan::Store { .. } => self.source.shared.drained().max(self.begin),
                Scan::Commit(_) => self.begin,
            };
        }
        while self.buffer.len() < PIECE && self.visit()? {}
        if !self.buffer.is_empty() {
            return self.write();
        }
        // Everything that the scan has seen lies before the tail that is read after it.
        let read = match &self.scan {
            Scan::Store { .. } => self.source.shared.tail(),
            Scan::Commit(_) => self.begin,
        };
        self.look(read)
    }

    /// Visits some records. Returns false at the end.
    fn visit(&mut self) -> Result<bool, DurableError> {
        let (buffer, records) = (&mut self.buffer, &mut self.records);
        let mut append = |put: Item<'_>| {
            *records += 1;
            append_change(&[put], *records, buffer);
        };
        let (roots, cursor, elements) = match &mut self.scan {
            Scan::Store {
                roots,
                cursor,
                elements,
            } => (roots, cursor, elements),
            Scan::Commit(commit) => {
                return commit.visit(PIECE, |record| {
                    append(record.put());
                    Ok(())
                });
            }
        };
        let home = &self.source.shared.home;
        let Some(root) = roots.first().copied() else {
            // Collections come last, after the keys of all databases.
            return elements.visit(home, append);
        };
        let visit = |key: &[u8], stored: Stored<'_>| {
            append(Item::Put {
                root,
                key,
                kind: stored.kind.number(),
                expiry: stored.expiry,
                bytes: stored.value,
            });
        };
        match home.scan_root(root, *cursor, VISITED, visit)? {
            Some(next) if next != Cursor::END => *cursor = next,
            // The root was scanned to its end, or was dropped; the journal records that.
            _ => {
                roots.remove(0);
                *cursor = Cursor::START;
            }
        }
        Ok(true)
    }

    /// Whether everything that was read is durable, including the end of a group that was read in
    /// part.
    fn look(&mut self, read: u64) -> Result<Stage, DurableError> {
        self.read = Some(read);
        if let Scan::Commit(_) = &self.scan {
            return Ok(Stage::Ready);
        }
        let shared = &self.source.shared;
        shared.ask(read);
        if shared.state() == GateState::Failed {
            return Err(DurableError::NotDurable {
                durable: shared.durable(),
                why: shared.why(),
            });
        }
        let durable = shared.durable();
        if durable < read && !without("checkpoint.durable") {
            return Ok(Stage::Waits);
        }
        // The durable position lies within no group; `read` may.
        self.read = Some(durable.max(read));
        Ok(Stage::Ready)
    }

    fn write(&mut self) -> Result<Stage, DurableError> {
        let before = self.writer.len();
        // Each frame holds whole entries, because readers take frame by frame.
        let mut rest = self.buffer.as_slice();
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(whole_entries(rest, PIECE / 2)?);
            self.writer.append(Position::new(self.at), piece)?;
            rest = behind;
        }
        self.buffer.clear();
        mneme_sys::fault!("durable.base.written");
        self.writer.sync()?;
        Ok(Stage::Wrote(self.writer.len() - before))
    }

    /// Gives the file its name. The journal is durable as far as the file needs.
    fn publish(mut self) -> Result<CheckpointReport, DurableError> {
        let (begin, read) = (self.begin, self.read.unwrap_or(u64::MAX));
        if self.is_kept && begin < read {
            let (from, to) = (Position::new(begin), Position::new(read));
            let mut suffix = Reader::between(&*self.source.directory, from, to)?;
            while let Some(chunk) = suffix.next()? {
                self.writer.append_suffix(chunk.position, chunk.bytes)?;
            }
        }
        let durable = match &self.scan {
            Scan::Store { .. } if !without("checkpoint.durable") => self.source.shared.durable(),
            _ => read,
        };
        let bytes = (self.writer).publish(Position::new(read), Position::new(durable))?;
        mneme_sys::fault!("durable.base.published");
        Ok(CheckpointReport {
            begin,
            read,
            records: self.records,
            bytes,
        })
    }

    pub fn discard(self) -> Result<(), JournalError> {
        self.writer.discard()
    }
}

impl Checkpoint {
    /// Publishes the file and releases the data that a checkpoint replaces.
    pub fn finish(self) -> Result<CheckpointReport, DurableError> {
        let (source, begin, is_kept) = (self.source.clone(), self.begin, self.is_kept);
        if !is_kept && without("checkpoint.first") {
            source.shared.set_base(begin);
        }
        let report = self.publish()?;
        if !is_kept {
            remove_older(&source, begin)?;
        }
        Ok(report)
    }
}

/// Releases the data that a base file beginning at `begin` replaces.
fn remove_older(source: &BaseSource, begin: u64) -> Result<(), JournalError> {
    source.shared.set_base(begin);
    remove_bases_before(&*source.directory, Position::new(begin))?;
    mneme_sys::fault!("durable.base.removed");
    Ok(())
}

/// The length of the first whole entries: about `most` bytes, and at least one entry.
pub(crate) fn whole_entries(bytes: &[u8], most: usize) -> Result<usize, DurableError> {
    let mut end = 0;
    for entry in mneme_log::feed::entries(0, bytes) {
        let next = end + entry?.stride();
        if next > most && end > 0 {
            break;
        }
        end = next;
    }
    Ok(end)
}
