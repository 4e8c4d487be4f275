//! Base files: everything that the store holds, from which the journal goes on.
//!
//! **A base file shows no change that the journal has lost, and misses none before its begin.** It
//! begins at a durable position B, before which every change is visible, and between no change's
//! pieces. It holds what an online
//! scan of all indexes finds from then on, expired records as they lie. The scan may see changes up
//! to the feed's tail T behind it. So the file gets its name only when the journal is durable up to
//! T, and what older files hold before B goes only after that.

use std::sync::Arc;

use mneme_journal::{
    BaseName, BaseWriter, Journal, JournalError, Options, Position, Reader, Runs,
    remove_bases_before,
};
use mneme_log::feed::{Item, append_change, binding};
use mneme_log::{Cursor, DATABASES};
use mneme_sys::fault::without;
use mneme_sys::medium::Directory;

use crate::DurableError;
use crate::gate::{GateState, Shared};

/// Bytes that are written at once, and synced.
const PIECE: usize = 1 << 20;
/// Records that are visited in one step of the scan.
const VISITED: usize = 64;

/// What a base file is begun with.
#[derive(Clone)]
pub(crate) struct Source {
    pub shared: Arc<Shared>,
    pub directory: Arc<dyn Directory>,
    pub options: Options,
    pub runs: Runs,
}

impl Source {
    /// Of a store whose journal this is.
    pub fn of(shared: &Arc<Shared>, directory: &Arc<dyn Directory>, journal: &Journal) -> Self {
        Self {
            shared: Arc::clone(shared),
            directory: Arc::clone(directory),
            options: journal.options().clone(),
            runs: journal.runs().clone(),
        }
    }
}

/// What a finished base file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CheckpointReport {
    /// The position that the journal goes on from.
    pub begin: u64,
    /// Changes before this position may be in it.
    pub read: u64,
    /// Records.
    pub records: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// A base file that is being written, piece by piece.
pub(crate) struct Checkpoint {
    source: Source,
    writer: BaseWriter,
    begin: u64,
    is_kept: bool,
    /// The indexes that are still to be scanned, the present one first.
    roots: Vec<u64>,
    cursor: Cursor,
    /// Entries that are not written yet.
    buffer: Vec<u8>,
    /// Every change before it is in them.
    at: u64,
    records: u64,
    /// The feed's tail when the scan was over.
    read: Option<u64>,
}

/// What a step has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// So many bytes were written.
    Wrote(u64),
    /// The scan is over. The file waits for the journal.
    Waits,
    /// It may be published.
    Ready,
}

impl Checkpoint {
    /// Begins one at `begin`, where a copy of the store [may begin](Shared::clean).
    pub fn begin(source: Source, name: &BaseName, begin: u64) -> Result<Self, DurableError> {
        let writer = BaseWriter::begin_beside(
            &source.options,
            &source.runs,
            Arc::clone(&source.directory),
            name,
            Position::new(begin),
        )?;
        mneme_sys::fault!("durable.base.begun");
        let bindings = source.shared.home.roots()?;
        let words: Vec<_> = (0..DATABASES)
            .map(|database| binding(database as u8, bindings[database]))
            .collect();
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
            roots: bindings.into_iter().filter(|root| *root != 0).collect(),
            cursor: Cursor::START,
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

    /// Scans and writes about a MiB.
    pub fn step(&mut self) -> Result<Stage, DurableError> {
        if let Some(read) = self.read {
            return self.look(read);
        }
        if self.buffer.is_empty() {
            // Before they are looked at.
            self.at = self.source.shared.drained().max(self.begin);
        }
        while self.buffer.len() < PIECE {
            let Some(root) = self.roots.first().copied() else {
                break;
            };
            let Self {
                source,
                buffer,
                records,
                cursor,
                ..
            } = self;
            let visit = |key: &[u8], value: &[u8], expiry| {
                *records += 1;
                let put = Item::Put {
                    root,
                    key,
                    kind: 0,
                    expiry,
                    bytes: value,
                };
                append_change(&[put], *records, buffer);
            };
            match source
                .shared
                .home
                .scan_root(root, *cursor, VISITED, visit)?
            {
                Some(next) if next != Cursor::END => self.cursor = next,
                // It is through, or was dropped, which the journal says.
                _ => {
                    self.roots.remove(0);
                    self.cursor = Cursor::START;
                }
            }
        }
        if !self.buffer.is_empty() {
            return self.write();
        }
        // What the scan has seen lies before the tail that is read behind it.
        let read = self.source.shared.tail();
        self.look(read)
    }

    /// Whether the journal is durable up to what was read, and up to the end of a group that was
    /// read in part.
    fn look(&mut self, read: u64) -> Result<Stage, DurableError> {
        self.read = Some(read);
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
        match shared.behind_groups(read) {
            Some(end) if end <= read => Ok(Stage::Ready),
            later => {
                self.read = later.or(self.read);
                Ok(Stage::Waits)
            }
        }
    }

    fn write(&mut self) -> Result<Stage, DurableError> {
        let before = self.writer.len();
        // Whole entries in each frame: a reader gets frame by frame.
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

    /// Gives the file its name. The journal is durable up to the position that it waits for.
    fn publish(mut self) -> Result<CheckpointReport, DurableError> {
        let (begin, read) = (self.begin, self.read.unwrap_or(u64::MAX));
        if self.is_kept {
            let (from, to) = (Position::new(begin), Position::new(read));
            let mut suffix = Reader::between(&*self.source.directory, from, to)?;
            while let Some(chunk) = suffix.next()? {
                self.writer.append_suffix(chunk.position, chunk.bytes)?;
            }
        }
        let durable = match without("checkpoint.durable") {
            true => read,
            false => self.source.shared.durable(),
        };
        let report = CheckpointReport {
            begin,
            read,
            records: self.records,
            bytes: self.writer.len(),
        };
        let (read, durable) = (Position::new(read), Position::new(durable));
        self.writer.publish(read, durable)?;
        mneme_sys::fault!("durable.base.published");
        Ok(report)
    }

    pub fn discard(self) -> Result<(), JournalError> {
        self.writer.discard()
    }
}

impl Checkpoint {
    /// Publishes the file, and lets go what a checkpoint stands for.
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

/// Lets go what a published base file that begins there stands for.
fn remove_older(source: &Source, begin: u64) -> Result<(), JournalError> {
    source.shared.set_base(begin);
    remove_bases_before(&*source.directory, Position::new(begin))?;
    mneme_sys::fault!("durable.base.removed");
    Ok(())
}

/// Bytes of the first entries, about `most` of them, and one entry at least.
fn whole_entries(bytes: &[u8], most: usize) -> Result<usize, DurableError> {
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
