//! Writing: one thread appends groups of bytes and syncs them.

use std::sync::Arc;

use mneme_sys::fault::without;
use mneme_sys::medium::{Directory, MediumError};

use crate::chain::{Link, scan};
use crate::error::on;
use crate::file::{Current, Older, begin_file, draw_number, older, remove, sync_names};
use crate::frame::{self, HEAD, JournalFrame, JournalFrameKind, LARGEST};
use crate::header::{BLOCK, Run, Runs};
use crate::options::{JournalStats, Options};
use crate::spares::Spares;
use crate::{JournalError, Position};

/// The state of the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    /// The last file failed, and nothing has been synced since.
    Restarted,
    Failed,
}

/// A journal, open for writing. See [the crate](crate).
pub struct Journal {
    directory: Arc<dyn Directory>,
    options: Options,
    runs: Runs,
    spares: Spares,
    /// Oldest first.
    older: Vec<Older>,
    current: Current,
    position: Position,
    durable: Position,
    /// The durable position that the file names, in its header or in its last frame.
    named: Position,
    health: Health,
    /// Whether the blocks of new files are allocated before they are written.
    preallocates: bool,
    frame: Vec<u8>,
    stats: JournalStats,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("file", &self.current.name)
            .field("position", &self.position)
            .field("durable", &self.durable)
            .field("health", &self.health)
            .finish_non_exhaustive()
    }
}

/// Refuses options that are invalid, or that differ from those of the existing files.
pub(crate) fn fit(options: &Options, links: &[Link]) -> Result<(), JournalError> {
    if options.file_bytes < 4 * BLOCK as u64 || !options.file_bytes.is_multiple_of(BLOCK as u64) {
        return Err(JournalError::Invalid {
            what: "a journal's file has a multiple of 4 KiB, and 16 KiB at least",
        });
    }
    match links.last() {
        Some(newest) if newest.header.identity.uuid != options.identity.uuid => {
            let file = newest.name.clone();
            Err(JournalError::Foreign { file })
        }
        _ => Ok(()),
    }
}

impl Journal {
    /// Begins a run at `at`, in a new file. Data of older files after `at` become invalid.
    ///
    /// Everything before `at` must be durable. Either a [`Reader`](crate::Reader) has come to its
    /// end there, or what it had read up to there was complete; or `at` is the durable position of
    /// a ring that has outlived its process, in which case no file's content is read.
    ///
    /// # Errors
    /// [`JournalError::Foreign`] if the directory holds another store's journal,
    /// [`JournalError::Damaged`] for headers, [`JournalError::NoSpace`], [`JournalError::Missing`]
    /// if the files begin after `at`, [`JournalError::Medium`], [`JournalError::Invalid`].
    pub fn open(
        directory: Arc<dyn Directory>,
        options: Options,
        at: Position,
    ) -> Result<Self, JournalError> {
        let links = scan(&*directory)?;
        let newest = links.last().map(|link| link.header.runs.clone());
        let runs = newest.unwrap_or_else(|| options.follows.clone());
        let (mut journal, stale) = Self::begin_run(directory, options, at, links, &runs)?;
        // The new file is durable, so these are invalid whichever of them a crash leaves.
        if !without("open.stale") {
            let stale = stale.into_iter().map(older);
            journal.discard(stale.collect())?;
        }
        Ok(journal)
    }

    /// Begins a run after these files and these runs. Also returns the files that have become
    /// invalid; one that had the new file's name is gone.
    pub(crate) fn begin_run(
        directory: Arc<dyn Directory>,
        options: Options,
        at: Position,
        links: Vec<Link>,
        runs: &Runs,
    ) -> Result<(Self, Vec<Link>), JournalError> {
        fit(&options, &links)?;
        let first = links.iter().map(|link| link.header.first).min();
        if let Some(first) = first.filter(|first| *first > at && !options.replaces) {
            return Err(JournalError::Missing { wanted: at, first });
        }
        if !without("open.directory") {
            sync_names(&*directory)?;
        }
        let (mut stale, kept): (Vec<_>, Vec<_>) = links
            .into_iter()
            .partition(|link| link.header.first >= at || link.is_replaced());
        let run = Run {
            id: match runs.last() {
                Some(last) if without("open.run") => last.id,
                _ => options.run.map_or_else(draw_number, Ok)?,
            },
            first: at,
        };
        let runs = match options.run {
            // The run was begun by an attempt that failed later. A second run with that number
            // would cut what base files of the first have read.
            Some(_) if runs.last() == Some(run) => runs.clone(),
            _ => runs.and(run),
        };
        if without("open.stale") {
            for link in &stale {
                remove(&*directory, &link.name)?;
            }
        }
        let mut spares = Spares::find(&*directory, options.file_bytes)?;
        let mut stats = JournalStats::default();
        let begun = begin_file(
            &*directory,
            &mut spares,
            &options,
            &runs,
            at,
            false,
            &mut stats,
        )?;
        stale.retain(|link| link.name != begun.name);
        let journal = Self {
            older: kept.into_iter().map(older).collect(),
            current: begun,
            directory,
            options,
            runs,
            spares,
            position: at,
            durable: at,
            named: at,
            health: Health::Good,
            preallocates: true,
            frame: Vec::new(),
            stats,
        };
        Ok((journal, stale))
    }

    /// Appends bytes, which begin at [`position`](Journal::position). They are durable after the
    /// next [`sync`](Journal::sync). After a crash, bytes that fit into a frame (1 MiB, or half of
    /// a file) are found completely or not at all; of longer ones, a part may be found.
    ///
    /// # Errors
    /// [`JournalError::OutOfPlace`]; [`JournalError::NoSpace`], in which case the position shows
    /// how many of the bytes were appended; [`JournalError::Restarted`], [`JournalError::Failed`].
    pub fn append(&mut self, at: Position, bytes: &[u8]) -> Result<(), JournalError> {
        self.usable()?;
        if at != self.position {
            return Err(JournalError::OutOfPlace {
                expected: self.position,
                given: at,
            });
        }
        for piece in bytes.chunks(self.largest() - HEAD) {
            self.write_frame(piece)?;
            self.position = self.position.plus(piece.len() as u64);
            self.stats.appended += piece.len() as u64;
        }
        Ok(())
    }

    /// Waits until everything that was appended is durable; returns the durable position.
    ///
    /// # Errors
    /// [`JournalError::Restarted`]: everything after the durable position must be appended again,
    /// into a new file. [`JournalError::Failed`]: that file failed as well.
    pub fn sync(&mut self) -> Result<Position, JournalError> {
        self.usable()?;
        if self.durable != self.position {
            self.sync_file()?;
        }
        Ok(self.durable)
    }

    /// Appends an empty frame that names the durable position, unless one is named already, and
    /// syncs. Without it, damage to the last frame before a pause could not be detected. Call it
    /// when nothing else is to be appended.
    ///
    /// # Errors
    /// As [`append`](Journal::append) and [`sync`](Journal::sync).
    pub fn idle(&mut self) -> Result<(), JournalError> {
        self.sync()?;
        if self.named == self.durable {
            return Ok(());
        }
        self.write_frame(&[])?;
        self.sync_file()
    }

    /// Begins a new file, after syncing the current one. [`append`](Journal::append) does so when a
    /// file is full.
    ///
    /// # Errors
    /// As [`sync`](Journal::sync); [`JournalError::NoSpace`].
    pub fn rotate(&mut self) -> Result<(), JournalError> {
        match self.rotate_to(self.begins_sparse()) {
            // Preallocated files exist for this case.
            Err(JournalError::NoSpace { .. }) if self.begins_sparse() => self.rotate_to(false),
            rotated => rotated,
        }
    }

    fn rotate_to(&mut self, is_sparse: bool) -> Result<(), JournalError> {
        self.usable()?;
        if without("rotate.sync") {
            self.durable = self.position;
        }
        self.sync()?;
        let begun = self.begin(self.position, is_sparse);
        match begun {
            Ok(begun) => self.replace(begun, false),
            Err(error @ JournalError::NoSpace { .. }) => return Err(error),
            Err(error) => return Err(self.fail(error)),
        }
        Ok(())
    }

    /// Removes files that hold nothing after `before`. Some become spares. Returns how many were
    /// removed.
    ///
    /// Call this only when their content is no longer needed, because a base file that begins at
    /// `before` or later has been published.
    ///
    /// # Errors
    /// [`JournalError::Medium`], [`JournalError::Failed`].
    pub fn remove_before(&mut self, before: Position) -> Result<usize, JournalError> {
        self.usable()?;
        let firsts = self.older.iter().map(|file| file.first);
        // Each ends where the next one begins.
        let ends = firsts.chain([self.current.first]).skip(1);
        let many = ends.take_while(|end| *end <= before).count();
        let gone: Vec<Older> = self.older.drain(..many).collect();
        self.discard(gone)?;
        Ok(many)
    }

    /// Sets whether the blocks of new files are allocated before they are written, which is the
    /// default: a sync then writes only the data, and no metadata of the file system. It costs as
    /// many zeros as the journal has bytes, until removed files are reused.
    ///
    /// If not, only the reserve is preallocated, for when the disk is full. New files are then
    /// sparse if no removed ones are left to reuse. That is right if nothing waits for each sync.
    pub fn set_preallocates(&mut self, preallocates: bool) {
        self.preallocates = preallocates;
    }

    /// Prepares spare files, by writing at most `bytes` zeros, in the time between two groups.
    /// Returns whether there are enough.
    ///
    /// # Errors
    /// [`JournalError::NoSpace`], which changes nothing; [`JournalError::Medium`].
    pub fn prepare(&mut self, bytes: u64) -> Result<bool, JournalError> {
        self.usable()?;
        if self.is_prepared() {
            return Ok(true);
        }
        self.spares.work(&*self.directory, bytes)?;
        Ok(self.is_prepared())
    }

    fn is_prepared(&self) -> bool {
        // One file more than needed, so that the count does not oscillate around the limit. A
        // sparse file does not count, and uses no spare.
        let more = match self.current.is_sparse {
            true => 0,
            false => self.spare_holds(),
        };
        self.spares.ready() > 0 && self.free_space() >= self.options.reserve + more
    }

    /// The number of bytes that can be appended even if the disk is full. Assumes frames of the
    /// largest size: small groups take 4 KiB each.
    #[must_use]
    pub fn free_space(&self) -> u64 {
        let rest = match self.current.is_sparse {
            true => 0,
            false => self.options.file_bytes - self.current.offset,
        };
        self.holds(rest) + self.spares.ready() * self.spare_holds()
    }

    /// Whether less than the reserve is left. Writers should be refused while this is so, so that
    /// what they have already written can be made durable.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.free_space() < self.options.reserve
    }

    /// The position of the next byte.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The position before which everything is durable.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// The runs; the last one is this one.
    #[must_use]
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// The options in effect.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The position where the oldest file begins.
    #[must_use]
    pub fn first(&self) -> Position {
        self.older
            .first()
            .map_or(self.current.first, |file| file.first)
    }

    /// Statistics.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        JournalStats {
            files: self.older.len() as u64 + 1,
            spares: self.spares.ready(),
            free_space: self.free_space(),
            ..self.stats
        }
    }

    /// Syncs, and records the durable position. Dropping a journal does neither.
    ///
    /// # Errors
    /// As [`idle`](Journal::idle).
    pub fn close(mut self) -> Result<Position, JournalError> {
        self.idle()?;
        Ok(self.durable)
    }

    /// The content length of the largest frame, in bytes.
    fn largest(&self) -> usize {
        let half = (self.options.file_bytes as usize - BLOCK) / 2;
        LARGEST.min(half / BLOCK * BLOCK)
    }

    /// The number of bytes of the stream that certainly fit into `space` bytes of one file. The
    /// last frame may leave almost one frame's space unused.
    fn holds(&self, space: u64) -> u64 {
        let largest = self.largest() as u64;
        space.saturating_sub(largest - BLOCK as u64) / largest * (largest - BLOCK as u64)
    }

    /// The number of bytes of the stream that certainly fit into a spare.
    fn spare_holds(&self) -> u64 {
        self.holds(self.options.file_bytes - BLOCK as u64)
    }

    /// Whether the next file is sparse, because spares are kept for a full disk.
    fn begins_sparse(&self) -> bool {
        let rest = self.spares.ready().saturating_sub(1) * self.spare_holds();
        !self.preallocates && rest < self.options.reserve
    }

    fn usable(&self) -> Result<(), JournalError> {
        match self.health {
            Health::Failed => Err(JournalError::Failed {
                durable: self.durable,
                source: None,
            }),
            _ => Ok(()),
        }
    }

    /// Writes one frame at the end of the current file, or of a new one.
    fn write_frame(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let space = self.options.file_bytes - self.current.offset;
        if frame::padded(bytes.len()) as u64 > space {
            self.fill_blocks();
            self.rotate()?;
        }
        match self.try_frame(bytes) {
            // The part of the frame that was written lies after the begin of the next file, and is
            // invalid.
            Err(MediumError::NoSpace { .. }) if self.current.is_sparse => {
                self.rotate_to(false)?;
                self.try_frame(bytes)
            }
            tried => tried,
        }
        .map_err(|error| self.restart(error))
    }

    /// Allocates the blocks that a full file lacks after its last frame, so that it can become a
    /// spare when it is removed.
    fn fill_blocks(&mut self) {
        if self.current.is_sparse {
            let rest = self.options.file_bytes - self.current.offset;
            let zeros = vec![0; rest as usize];
            let storage = &self.current.storage;
            let filled = storage.write(self.current.offset, &zeros);
            // If that fails, or may have failed, the file does not become a spare.
            self.current.is_sparse = filled.and_then(|()| storage.sync()).is_err();
        }
    }

    /// Writes one frame at the end of the file, which must have space for it.
    fn try_frame(&mut self, bytes: &[u8]) -> Result<(), MediumError> {
        let durable = match without("frame.durable") {
            true => self.position.plus(bytes.len() as u64),
            false => self.durable,
        };
        let head = JournalFrame {
            kind: JournalFrameKind::Stream,
            bytes: bytes.len() as u32,
            position: self.position,
            durable,
            wall_ms: self.options.clock.wall_ms(),
        };
        frame::encode(self.current.seed, &head, bytes, &mut self.frame);
        let at = self.current.offset;
        self.current.storage.write(at, &self.frame)?;
        self.current.offset += self.frame.len() as u64;
        self.named = durable;
        self.stats.frames += 1;
        self.stats.written += self.frame.len() as u64;
        Ok(())
    }

    fn sync_file(&mut self) -> Result<(), JournalError> {
        if !without("sync.file") {
            self.stats.syncs += 1;
            let synced = self.current.storage.sync();
            if let Err(error) = synced {
                return Err(self.restart(error));
            }
        }
        self.durable = self.position;
        self.health = Health::Good;
        Ok(())
    }

    /// Continues in a new file that begins at the durable position: the current one is never
    /// trusted again. Returns the error that says so, or that nothing more can be done.
    fn restart(&mut self, source: MediumError) -> JournalError {
        // If a file was removed, the durable data in it are lost.
        if self.health == Health::Restarted || matches!(source, MediumError::Removed) {
            self.health = Health::Failed;
            return JournalError::Failed {
                durable: self.durable,
                source: Some(source),
            };
        }
        if without("failed.file") {
            if let Ok(again) = self.directory.open(&self.current.name) {
                self.current.storage = again;
            }
            return match self.sync_file() {
                Ok(()) => JournalError::Restarted {
                    file: self.current.name.clone(),
                    from: self.position,
                    source,
                },
                Err(error) => error,
            };
        }
        let file = self.current.name.clone();
        // Uses preallocated files, because the disk may be full.
        match self.begin(self.durable, false) {
            Ok(begun) => {
                self.position = self.durable;
                self.replace(begun, true);
                self.health = Health::Restarted;
                let from = self.durable;
                JournalError::Restarted { file, from, source }
            }
            Err(error) => self.fail(error),
        }
    }

    /// Stops accepting anything.
    fn fail(&mut self, error: JournalError) -> JournalError {
        self.health = Health::Failed;
        let source = match error {
            JournalError::Medium { source, .. } => Some(source),
            _ => None,
        };
        JournalError::Failed {
            durable: self.durable,
            source,
        }
    }

    fn begin(&mut self, first: Position, is_sparse: bool) -> Result<Current, JournalError> {
        let Self {
            directory,
            spares,
            options,
            runs,
            stats,
            ..
        } = self;
        let directory = &**directory;
        begin_file(directory, spares, options, runs, first, is_sparse, stats)
    }

    /// Writes into `begun` from now on.
    fn replace(&mut self, begun: Current, failed: bool) {
        self.named = begun.first;
        let old = std::mem::replace(&mut self.current, begun);
        if !failed && !self.preallocates {
            // Nothing reads the old file before a recovery. The next file then gets the same page
            // cache memory, which is in the CPU's caches and, in a virtual machine, already
            // allocated. If this fails, nothing is lost, because everything was synced.
            let _ = old.storage.drop_cached();
        }
        // A file that began at the same position has lost its name to the new one.
        if old.first != self.current.first {
            self.older.push(Older {
                name: old.name,
                first: old.first,
                failed,
                is_sparse: old.is_sparse,
            });
        }
    }

    /// Removes files that are no longer valid, or turns them into spares.
    fn discard(&mut self, files: Vec<Older>) -> Result<(), JournalError> {
        if files.is_empty() {
            return Ok(());
        }
        let directory = &*self.directory;
        let mut recycled = Vec::new();
        for file in &files {
            let enough = self.spares.ready() + recycled.len() as u64 >= self.spares_wanted();
            if file.failed || file.is_sparse || enough || !self.has_full_length(&file.name) {
                remove(directory, &file.name)?;
                continue;
            }
            let spare = self.spares.name();
            match directory.rename(&file.name, &spare) {
                // The directory has no space for another name.
                Err(MediumError::NoSpace { .. }) => remove(directory, &file.name)?,
                renamed => {
                    renamed.map_err(on("rename", &file.name))?;
                    recycled.push(spare);
                }
            }
        }
        // A file is overwritten only when no crash can bring its old name back.
        if !without("remove.directory") {
            sync_names(directory)?;
        }
        self.spares.add(recycled);
        Ok(())
    }

    fn has_full_length(&self, name: &str) -> bool {
        let storage = self.directory.open(name);
        let len = storage.and_then(|storage| storage.len());
        len.is_ok_and(|len| len == self.options.file_bytes)
    }

    /// The number of spares to keep; further removed files are returned to the file system.
    fn spares_wanted(&self) -> u64 {
        let reserve = self.options.reserve.div_ceil(self.spare_holds().max(1)) + 1;
        reserve.max(self.options.recycled / self.options.file_bytes)
    }
}
