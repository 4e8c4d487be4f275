//! Reads the frames of one file in order.

use std::ops::Range;

use mneme_sys::medium::{Directory, MediumError, Storage};

use crate::Position;
use crate::error::{FileDamage, Flaw, JournalError, on};
use crate::frame::{self, HEAD, JournalFrame, LARGEST};
use crate::header::{BLOCK, FileKind, JournalHeader};

/// What the next place of a file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameStep {
    /// A valid frame of this file; the reader has moved past it.
    Frame(JournalFrame),
    /// No valid frame; the reader has not moved.
    Bad,
    /// The end of the file.
    End,
}

/// Opens a file and reads its header.
pub(crate) fn open(
    directory: &dyn Directory,
    name: &str,
    kind: FileKind,
    position: Position,
) -> Result<(Box<dyn Storage>, JournalHeader), JournalError> {
    let storage = directory.open(name).map_err(on("open", name))?;
    let len = storage.len().map_err(on("open", name))?;
    let damage = |offset, flaw| FileDamage {
        file: name.to_owned(),
        offset,
        position,
        flaw,
    };
    let mut block = vec![0; BLOCK.min(len as usize)];
    let read = storage.read(0, &mut block);
    read.map_err(|e| damage(0, Flaw::Read(e)))?;
    let header = JournalHeader::decode(&block, kind).map_err(|flaw| damage(0, flaw))?;
    if len < header.file_bytes {
        let wanted = header.file_bytes;
        return Err(damage(len, Flaw::Short { found: len, wanted }).into());
    }
    Ok((storage, header))
}

/// The first block of a file, whether or not it is a valid header.
pub(crate) fn first_block(directory: &dyn Directory, name: &str) -> Result<Vec<u8>, MediumError> {
    let storage = directory.open(name)?;
    let mut block = vec![0; BLOCK.min(storage.len()? as usize)];
    storage.read(0, &mut block)?;
    Ok(block)
}

/// Reads frames from a file, in pieces of the largest frame's size.
#[derive(Debug)]
pub(crate) struct FrameReader {
    storage: Box<dyn Storage>,
    name: String,
    seed: u32,
    len: u64,
    offset: u64,
    window: Vec<u8>,
    window_at: u64,
    /// The bytes of the last frame, in the window.
    carried: Range<usize>,
}

impl FrameReader {
    /// Begins after the header.
    pub(crate) fn new(
        storage: Box<dyn Storage>,
        name: &str,
        header: &JournalHeader,
    ) -> Result<Self, JournalError> {
        let mut frames = Self::of_run(storage, name, header.run(), header.first)?;
        // Data after the end of a preallocated file were never written.
        if header.file_bytes > 0 {
            frames.len = frames.len.min(header.file_bytes);
        }
        Ok(frames)
    }

    /// Begins after an unreadable header, assuming that the file belongs to the given run and
    /// begins at the given position.
    pub(crate) fn of_run(
        storage: Box<dyn Storage>,
        name: &str,
        run: u64,
        first: Position,
    ) -> Result<Self, JournalError> {
        Ok(Self {
            len: storage.len().map_err(on("read", name))?,
            storage,
            name: name.to_owned(),
            seed: frame::seed(run, first),
            offset: BLOCK as u64,
            window: Vec::new(),
            window_at: 0,
            carried: 0..0,
        })
    }

    /// Whether nothing follows the last frame.
    pub(crate) fn is_at_end(&self) -> bool {
        self.offset == self.len
    }

    /// The bytes of the last frame.
    pub(crate) fn carried(&self) -> &[u8] {
        &self.window[self.carried.clone()]
    }

    /// Describes what is wrong at the next place.
    pub(crate) fn damage(&self, position: Position, flaw: Flaw) -> FileDamage {
        FileDamage {
            file: self.name.clone(),
            offset: self.offset,
            position,
            flaw,
        }
    }

    /// The next frame.
    pub(crate) fn step(&mut self) -> Result<FrameStep, MediumError> {
        let (step, len) = self.look(self.offset)?;
        if let FrameStep::Frame(frame) = step {
            let start = (self.offset - self.window_at) as usize + HEAD;
            self.carried = start..start + frame.bytes as usize;
            self.offset += len;
        }
        Ok(step)
    }

    /// The frame in the last block of the file, if a valid one begins and ends there, and its
    /// bytes.
    pub(crate) fn last(&self) -> Result<Option<(JournalFrame, Vec<u8>)>, MediumError> {
        let mut block = vec![0; BLOCK];
        let Some(at) = self.len.checked_sub(BLOCK as u64) else {
            return Ok(None);
        };
        self.storage.read(at, &mut block)?;
        let whole = frame::extent(&block).and_then(|extent| block.get(..extent));
        let found = whole.and_then(|bytes| {
            let frame = frame::decode(self.seed, bytes)?;
            Some((frame, bytes[HEAD..].to_vec()))
        });
        Ok(found)
    }

    /// Moves to the next valid frame, wherever it begins. `None` at the end of the file.
    pub(crate) fn skip_to_frame(&mut self) -> Result<Option<JournalFrame>, MediumError> {
        loop {
            match self.step()? {
                FrameStep::Frame(frame) => return Ok(Some(frame)),
                FrameStep::Bad => self.offset += BLOCK as u64,
                FrameStep::End => return Ok(None),
            }
        }
    }

    /// What lies at `offset`, and how many bytes that takes with its padding.
    fn look(&mut self, offset: u64) -> Result<(FrameStep, u64), MediumError> {
        let rest = self.len.saturating_sub(offset);
        if rest == 0 {
            return Ok((FrameStep::End, 0));
        }
        let block = self.load(offset, BLOCK.min(rest as usize))?;
        let bytes = frame::extent(block);
        let Some(bytes) = bytes.filter(|bytes| *bytes as u64 <= rest) else {
            return Ok((FrameStep::Bad, 0));
        };
        let seed = self.seed;
        let step = match frame::decode(seed, self.load(offset, bytes)?) {
            Some(frame) => FrameStep::Frame(frame),
            None => FrameStep::Bad,
        };
        Ok((step, bytes.next_multiple_of(BLOCK) as u64))
    }

    /// Loads `bytes` bytes at `offset`, which must lie in the file.
    fn load(&mut self, offset: u64, bytes: usize) -> Result<&[u8], MediumError> {
        let end = self.window_at + self.window.len() as u64;
        if offset < self.window_at || offset + bytes as u64 > end {
            let ahead = (self.len - offset).min(LARGEST as u64) as usize;
            self.window_at = offset;
            self.window.resize(ahead.max(bytes), 0);
            if let Err(error) = self.storage.read(offset, &mut self.window) {
                // The bytes after these may be unreadable, and are not needed.
                self.window.truncate(bytes);
                let again = self.storage.read(offset, &mut self.window);
                if again.is_err() {
                    self.window.clear();
                    return Err(error);
                }
            }
        }
        let start = (offset - self.window_at) as usize;
        Ok(&self.window[start..start + bytes])
    }
}
