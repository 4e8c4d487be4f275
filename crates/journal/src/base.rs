//! Base files: everything that a store held at a position from which the journal continues.

use std::sync::Arc;

use mneme_sys::fault::without;
use mneme_sys::medium::{Directory, Storage};

use crate::error::{FileDamage, Flaw, on};
use crate::frame::{self, HEAD, JournalFrame, JournalFrameKind, LARGEST};
use crate::frame_reader::{self, FrameReader, FrameStep};
use crate::header::{BLOCK, FileKind, Identity, JournalHeader, Runs};
use crate::{Journal, JournalError, Options, Position, names};

/// The name under which a base file is found again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseName {
    /// Named by its position: a checkpoint. The next one replaces it.
    Checkpoint,
    /// Named by 1 to 100 letters, digits, `_`, `-` and `.`: a backup, which is kept.
    Kept(String),
    /// Named by its position and by the run that goes back to it: a restored backup. It counts once
    /// that run has begun.
    Restored(u64),
}

impl BaseName {
    fn file(&self, begin: Position) -> Result<String, JournalError> {
        match self {
            Self::Checkpoint => Ok(names::base(begin)),
            Self::Kept(name) => names::backup(name),
            Self::Restored(run) => Ok(names::restored(begin, *run)),
        }
    }
}

/// Writes a base file, which has no effect before it is published. Dropping the writer leaves a
/// file `NAME.new`, which the next base file of that name replaces and [`remove_bases_before`]
/// removes.
///
/// The writer is independent of the journal, so another thread may use it. The caller controls the
/// rate: an [`append`](BaseWriter::append) of up to 1 MiB and a [`sync`](BaseWriter::sync) are the
/// unit of work.
#[derive(Debug)]
pub struct BaseWriter {
    directory: Arc<dyn Directory>,
    name: String,
    storage: Box<dyn Storage>,
    begin: Position,
    seed: u32,
    offset: u64,
    /// The number of bytes of records so far.
    records: u64,
    /// The position at which the suffix continues.
    suffix: Position,
    wall_ms: u64,
    frame: Vec<u8>,
}

impl BaseWriter {
    /// Begins a base file in `directory`, which may be the journal's own or another one. It holds
    /// the store's content at `begin`: every change before `begin` must be in what will be
    /// appended.
    ///
    /// # Errors
    /// [`JournalError::Invalid`] for a bad name, [`JournalError::NoSpace`],
    /// [`JournalError::Medium`].
    pub fn begin(
        journal: &Journal,
        directory: Arc<dyn Directory>,
        name: &BaseName,
        begin: Position,
    ) -> Result<Self, JournalError> {
        Self::begin_beside(journal.options(), journal.runs(), directory, name, begin)
    }

    /// As [`begin`](BaseWriter::begin), for use beside the thread that writes the journal: it needs
    /// only the journal's options and runs, which never change.
    ///
    /// # Errors
    /// As for `begin`.
    pub fn begin_beside(
        options: &Options,
        runs: &Runs,
        directory: Arc<dyn Directory>,
        name: &BaseName,
        begin: Position,
    ) -> Result<Self, JournalError> {
        let name = name.file(begin)?;
        let unfinished = name.clone() + names::UNFINISHED;
        let existing = directory.names().map_err(on("list", "the directory"))?;
        if existing.contains(&unfinished) {
            directory
                .remove(&unfinished)
                .map_err(on("remove", &unfinished))?;
        }
        let header = JournalHeader {
            is_sparse: false,
            identity: options.identity,
            first: begin,
            file_bytes: 0,
            wall_ms: options.clock.wall_ms(),
            runs: runs.clone(),
        };
        let storage = directory
            .create(&unfinished)
            .map_err(on("make", &unfinished))?;
        let block = header.encode(FileKind::Base);
        storage
            .write(0, &block)
            .map_err(on("write to", &unfinished))?;
        Ok(Self {
            seed: frame::seed(header.run(), begin),
            wall_ms: header.wall_ms,
            directory,
            name,
            storage,
            begin,
            offset: BLOCK as u64,
            records: 0,
            suffix: begin,
            frame: Vec::new(),
        })
    }

    /// Appends records, whose content this crate does not interpret. They are read back in pieces
    /// that end where an append ended, or after 1 MiB. They must contain every change before `at`:
    /// a reader that loads them after the stream up to `at` never holds more than the store held.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`], [`JournalError::Medium`]; [`JournalError::Invalid`] after a
    /// suffix was begun.
    pub fn append(&mut self, at: Position, records: &[u8]) -> Result<(), JournalError> {
        if self.suffix != self.begin {
            return Err(JournalError::Invalid {
                what: "a base file's records come before its suffix",
            });
        }
        for piece in records.chunks(LARGEST - HEAD) {
            let position = Position::new(self.records);
            self.write(
                JournalFrameKind::Records,
                position,
                at.max(self.begin),
                piece,
            )?;
            self.records += piece.len() as u64;
        }
        Ok(())
    }

    /// Appends bytes of the stream, beginning at the position given to
    /// [`begin`](BaseWriter::begin), for a base file that must be usable without the journal.
    ///
    /// # Errors
    /// [`JournalError::OutOfPlace`], [`JournalError::NoSpace`], [`JournalError::Medium`].
    pub fn append_suffix(&mut self, at: Position, bytes: &[u8]) -> Result<(), JournalError> {
        if at != self.suffix {
            return Err(JournalError::OutOfPlace {
                expected: self.suffix,
                given: at,
            });
        }
        for piece in bytes.chunks(LARGEST - HEAD) {
            self.write(JournalFrameKind::Stream, self.suffix, self.begin, piece)?;
            self.suffix = self.suffix.plus(piece.len() as u64);
        }
        Ok(())
    }

    /// Waits until everything appended so far is on the medium. Called between two pieces, so that
    /// the last sync has little to wait for.
    ///
    /// # Errors
    /// [`JournalError::Medium`].
    pub fn sync(&self) -> Result<(), JournalError> {
        let unfinished = self.name.clone() + names::UNFINISHED;
        self.storage.sync().map_err(on("sync", &unfinished))
    }

    /// Renames the file to its final name, under which it is found after a crash. It may contain
    /// any change before `read`, so everything before `read` must be durable: otherwise it would
    /// show changes that the journal has lost.
    ///
    /// Returns the length of the file in bytes. A base file of the same name is replaced. Journal
    /// files before [`begin`](BaseWriter::begin) may be removed afterwards
    /// ([`Journal::remove_before`]).
    ///
    /// # Errors
    /// [`JournalError::NotDurable`], [`JournalError::NoSpace`], [`JournalError::Medium`]. The file
    /// is not published then, except if the directory failed to sync: in that case it may be
    /// published, and is complete.
    pub fn publish(mut self, read: Position, durable: Position) -> Result<u64, JournalError> {
        if read > durable && !without("base.durable") {
            return Err(JournalError::NotDurable { read, durable });
        }
        let end = [self.records.to_le_bytes(), self.suffix.get().to_le_bytes()].concat();
        self.write(
            JournalFrameKind::End,
            read.max(self.begin),
            self.begin,
            &end,
        )?;
        if !without("base.sync") {
            self.sync()?;
        }
        let unfinished = self.name.clone() + names::UNFINISHED;
        let named = self.directory.rename(&unfinished, &self.name);
        named.map_err(on("rename", &unfinished))?;
        if !without("base.directory") {
            self.directory.sync().map_err(on("sync", "the directory"))?;
        }
        Ok(self.offset)
    }

    /// Abandons the file and removes it.
    ///
    /// # Errors
    /// [`JournalError::Medium`].
    pub fn discard(self) -> Result<(), JournalError> {
        let unfinished = self.name + names::UNFINISHED;
        self.directory
            .remove(&unfinished)
            .map_err(on("remove", &unfinished))
    }

    /// The length of the file so far, in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.offset
    }

    /// Whether nothing was appended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.offset == BLOCK as u64
    }

    fn write(
        &mut self,
        kind: JournalFrameKind,
        position: Position,
        durable: Position,
        bytes: &[u8],
    ) -> Result<(), JournalError> {
        let head = JournalFrame {
            kind,
            bytes: bytes.len() as u32,
            position,
            durable,
            wall_ms: self.wall_ms,
        };
        frame::encode(self.seed, &head, bytes, &mut self.frame);
        let written = self.storage.write(self.offset, &self.frame);
        written.map_err(on("write to", &self.name))?;
        self.offset += self.frame.len() as u64;
        Ok(())
    }
}

/// A part of a base file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BasePart<'a> {
    /// Records.
    Records {
        /// The position before which every change is in the records.
        at: Position,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes of the stream.
    Suffix {
        /// The position of the first byte.
        position: Position,
        /// The bytes.
        bytes: &'a [u8],
    },
}

/// A published base file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseFile {
    /// The file's name in the directory.
    pub file: String,
    /// The name given by the user; `None` for a checkpoint.
    pub kept: Option<String>,
    /// Whether it is a backup that was restored.
    pub restored: bool,
}

/// The base files of a directory: checkpoints, newest first, and then kept ones.
///
/// # Errors
/// [`JournalError::Medium`].
pub fn bases(directory: &dyn Directory) -> Result<Vec<BaseFile>, JournalError> {
    let mut list = directory.names().map_err(on("list", "the directory"))?;
    list.sort();
    let kept = |name: &&String| names::backup_name(name).is_some();
    let checkpoints = list
        .iter()
        .rev()
        .filter(|name| names::base_position(name).is_some());
    let files = checkpoints
        .chain(list.iter().filter(kept))
        .map(|name| BaseFile {
            file: name.clone(),
            kept: names::backup_name(name).map(str::to_owned),
            restored: names::is_restored(name),
        });
    Ok(files.collect())
}

/// Removes checkpoints that begin before `begin`, and base files that were never published. Returns
/// how many were removed. Must not run while a [`BaseWriter`] of this directory exists.
///
/// # Errors
/// [`JournalError::Medium`].
pub fn remove_bases_before(
    directory: &dyn Directory,
    begin: Position,
) -> Result<usize, JournalError> {
    let mut gone = directory.names().map_err(on("list", "the directory"))?;
    gone.retain(|name| match name.strip_suffix(names::UNFINISHED) {
        Some(name) => names::base_position(name).is_some() || names::backup_name(name).is_some(),
        None => names::base_position(name).is_some_and(|at| at < begin),
    });
    for name in &gone {
        directory.remove(name).map_err(on("remove", name))?;
    }
    if !gone.is_empty() {
        directory.sync().map_err(on("sync", "the directory"))?;
    }
    Ok(gone.len())
}

/// Reads a base file.
#[derive(Debug)]
pub struct BaseReader {
    frames: FrameReader,
    header: JournalHeader,
    records: u64,
    suffix: Position,
    /// The `read` position in the end frame.
    read: Option<Position>,
}

impl BaseReader {
    /// Opens a base file by its name in the directory. Like the journal, it is synced and read past
    /// the page cache.
    ///
    /// # Errors
    /// [`JournalError::Damaged`], [`JournalError::Medium`].
    pub fn open(directory: &dyn Directory, file: &str) -> Result<Self, JournalError> {
        let storage = directory.open(file).map_err(on("open", file))?;
        storage.drop_cached().map_err(on("sync", file))?;
        let named = names::base_position(file);
        let start = named.unwrap_or_default();
        let (storage, header) = frame_reader::open(directory, file, FileKind::Base, start)?;
        if named.is_some_and(|named| named != header.first) {
            let header = header.first;
            return Err(JournalError::Damaged(FileDamage {
                file: file.to_owned(),
                offset: 0,
                position: start,
                flaw: Flaw::Name { header },
            }));
        }
        Ok(Self {
            frames: FrameReader::new(storage, file, &header)?,
            records: 0,
            suffix: header.first,
            read: None,
            header,
        })
    }

    /// The value that [`read`](Self::read) will have at the end, and the end of the suffix; from
    /// the last frame alone.
    ///
    /// # Errors
    /// [`JournalError::Damaged`]: the file is incomplete.
    pub fn read_ahead(&self) -> Result<(Position, Position), JournalError> {
        let damage = |flaw| JournalError::from(self.frames.damage(self.header.first, flaw));
        let last = self.frames.last().map_err(|e| damage(Flaw::Read(e)))?;
        let end = last.and_then(|(frame, carried)| {
            let suffix = carried
                .last_chunk()
                .map(|bytes| u64::from_le_bytes(*bytes))?;
            let is_end = frame.kind == JournalFrameKind::End;
            is_end.then_some((frame.position, Position::new(suffix)))
        });
        end.ok_or_else(|| damage(Flaw::Incomplete))
    }

    /// The next part; `None` at the end, which only a complete file has.
    ///
    /// # Errors
    /// [`JournalError::Damaged`].
    #[expect(clippy::should_implement_trait)] // fallible, and lends its items
    pub fn next(&mut self) -> Result<Option<BasePart<'_>>, JournalError> {
        if self.read.is_some() {
            return Ok(None);
        }
        let at = self.header.first;
        let step = self.frames.step();
        let step = step.map_err(|e| self.frames.damage(at, Flaw::Read(e)))?;
        let FrameStep::Frame(frame) = step else {
            return Err(self.frames.damage(at, Flaw::Incomplete).into());
        };
        let bytes = u64::from(frame.bytes);
        let expected = match frame.kind {
            JournalFrameKind::Records => Position::new(self.records),
            JournalFrameKind::Stream => self.suffix,
            JournalFrameKind::End => frame.position,
        };
        if frame.position != expected {
            let found = frame.position;
            return Err(self.frames.damage(at, Flaw::Order { found }).into());
        }
        match frame.kind {
            JournalFrameKind::Records => {
                self.records += bytes;
                let (at, bytes) = (frame.durable, self.frames.carried());
                Ok(Some(BasePart::Records { at, bytes }))
            }
            JournalFrameKind::Stream => {
                self.suffix = self.suffix.plus(bytes);
                let (position, bytes) = (expected, self.frames.carried());
                Ok(Some(BasePart::Suffix { position, bytes }))
            }
            JournalFrameKind::End => {
                let end = [self.records.to_le_bytes(), self.suffix.get().to_le_bytes()].concat();
                if self.frames.carried() != end || !self.frames.is_at_end() {
                    return Err(self.frames.damage(at, Flaw::Incomplete).into());
                }
                self.read = Some(frame.position);
                Ok(None)
            }
        }
    }

    /// The position at which the journal continues.
    #[must_use]
    pub fn begin(&self) -> Position {
        self.header.first
    }

    /// The position up to which the records may contain changes; known at the end. The journal
    /// beside this file reaches at least that far.
    #[must_use]
    pub fn read(&self) -> Option<Position> {
        self.read
    }

    /// The store that the file belongs to.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.header.identity
    }

    /// The runs up to the one that wrote the file.
    #[must_use]
    pub fn runs(&self) -> &Runs {
        &self.header.runs
    }

    /// When the file was begun, in milliseconds since 1970.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.header.wall_ms
    }
}
