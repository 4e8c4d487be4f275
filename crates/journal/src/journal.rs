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

/// How the medium does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Good,
    /// The last file failed, and nothing was synced since.
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
    /// Whether new files have their blocks before they are written.
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

/// Refuses options that no journal has, or that the one of these files has not.
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
    /// Begins a run at `at`, in a new file. What older files hold behind `at` counts no more.
    ///
    /// Everything before `at` must be durable: it is where a [`Reader`](crate::Reader) came to the
    /// end, or an earlier place at which what it read was complete; or it is the durable position
    /// of a ring that has outlived its process, and then no file's content is read.
    ///
    /// # Errors
    /// [`JournalError::Foreign`] if the directory holds another store's journal,
    /// [`JournalError::Damaged`] for headers, [`JournalError::NoSpace`],
    /// [`JournalError::Missing`] if the files begin behind `at`, [`JournalError::Medium`],
    /// [`JournalError::Invalid`].
    pub fn open(
        directory: Arc<dyn Directory>,
        options: Options,
        at: Position,
    ) -> Result<Self, JournalError> {
        let links = scan(&*directory)?;
        let newest = links.last().map(|link| link.header.runs.clone());
        let runs = newest.unwrap_or_else(|| options.follows.clone());
        let (mut journal, stale) = Self::begin_run(directory, options, at, links, &runs)?;
        // The new file is durable, so that these count no more whichever of them a crash leaves.
        if !without("open.stale") {
            let stale = stale.into_iter().map(older);
            journal.discard(stale.collect())?;
        }
        Ok(journal)
    }

    /// Begins a run behind these files and these runs. Also returns those that count no more; one
    /// that had the new file's name is gone.
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
            // It has begun, by a try that failed behind that. A second run of that number would cut
            // what base files of the first have read.
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
    /// next [`sync`](Journal::sync). Bytes that fit into a frame (1 MiB, or half of a file) are
    /// found again whole or not at all; longer ones up to some place.
    ///
    /// # Errors
    /// [`JournalError::OutOfPlace`]; [`JournalError::NoSpace`], and then the position tells how
    /// many of the bytes were appended; [`JournalError::Restarted`], [`JournalError::Failed`].
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

    /// Waits until everything that was appended is durable; the position that is.
    ///
    /// # Errors
    /// [`JournalError::Restarted`]: what was appended since the durable position must be appended
    /// again, into a new file. [`JournalError::Failed`]: that file failed as well.
    pub fn sync(&mut self) -> Result<Position, JournalError> {
        self.usable()?;
        if self.durable != self.position {
            self.sync_file()?;
        }
        Ok(self.durable)
    }

    /// Appends an empty frame that names the durable position, unless one is named already, and
    /// syncs. Without it the last frame before a pause could be damaged without a trace. For when
    /// nothing else is to be appended.
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

    /// Begins a new file, after a sync of the present one. [`append`](Journal::append) does so when
    /// a file is full.
    ///
    /// # Errors
    /// As [`sync`](Journal::sync); [`JournalError::NoSpace`].
    pub fn rotate(&mut self) -> Result<(), JournalError> {
        match self.rotate_to(self.begins_sparse()) {
            // What is preallocated is for this.
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

    /// Removes files that hold nothing from `before` on. Some become spares. Returns how many went.
    ///
    /// Files go only when something else stands for what they hold: a base file that begins at
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

    /// Whether files have their blocks before they are written, as they do unless this says
    /// otherwise: a sync then writes what it must and nothing of the file system's own. It costs as
    /// many zeros as the journal has bytes, until removed files are used again.
    ///
    /// If not, only the reserve is preallocated, for when the disk is full. New files are sparse
    /// where no removed ones are left over. Right where nothing waits for each sync.
    pub fn set_preallocates(&mut self, preallocates: bool) {
        self.preallocates = preallocates;
    }

    /// Prepares spare files, by writing at most `bytes` zeros: for the time between two groups.
    /// Whether there is enough of them.
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
        // One file more than it needs, so that it does not swing about the limit. A sparse file
        // does not count, and takes nothing of what does.
        let more = match self.current.is_sparse {
            true => 0,
            false => self.spare_holds(),
        };
        self.spares.ready() > 0 && self.free_space() >= self.options.reserve + more
    }

    /// Bytes that can be appended although the disk is full. It counts frames of the largest size:
    /// small groups take 4 KiB each.
    #[must_use]
    pub fn free_space(&self) -> u64 {
        let rest = match self.current.is_sparse {
            true => 0,
            false => self.options.file_bytes - self.current.offset,
        };
        self.holds(rest) + self.spares.ready() * self.spare_holds()
    }

    /// Whether less than the reserve is left: writers should be refused until it is not so, so that
    /// what they have written already can be made durable.
    #[must_use]
    pub fn is_nearly_full(&self) -> bool {
        self.free_space() < self.options.reserve
    }

    /// Where the next bytes go.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Everything before it is durable.
    #[must_use]
    pub fn durable(&self) -> Position {
        self.durable
    }

    /// The runs, this one being the last.
    #[must_use]
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// How it is kept.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Where the oldest file begins.
    #[must_use]
    pub fn first(&self) -> Position {
        self.older
            .first()
            .map_or(self.current.first, |file| file.first)
    }

    /// Counts.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        JournalStats {
            files: self.older.len() as u64 + 1,
            spares: self.spares.ready(),
            free_space: self.free_space(),
            ..self.stats
        }
    }

    /// Syncs, and names the durable position. Dropping a journal does neither.
    ///
    /// # Errors
    /// As [`idle`](Journal::idle).
    pub fn close(mut self) -> Result<Position, JournalError> {
        self.idle()?;
        Ok(self.durable)
    }

    /// Bytes of the largest frame.
    fn largest(&self) -> usize {
        let half = (self.options.file_bytes as usize - BLOCK) / 2;
        LARGEST.min(half / BLOCK * BLOCK)
    }

    /// Bytes of the stream that surely fit into `space` bytes of one file. The last frame may leave
    /// almost one frame's space unused.
    fn holds(&self, space: u64) -> u64 {
        let largest = self.largest() as u64;
        space.saturating_sub(largest - BLOCK as u64) / largest * (largest - BLOCK as u64)
    }

    /// Bytes of the stream that surely fit into a spare.
    fn spare_holds(&self) -> u64 {
        self.holds(self.options.file_bytes - BLOCK as u64)
    }

    /// Whether the next file is sparse: spares are kept for a full disk.
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

    /// Writes one frame at the end of the file, or of a new one.
    fn write_frame(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let space = self.options.file_bytes - self.current.offset;
        if frame::padded(bytes.len()) as u64 > space {
            self.fill_blocks();
            self.rotate()?;
        }
        match self.try_frame(bytes) {
            // The part of it that was written stands behind the begin of the next file.
            Err(MediumError::NoSpace { .. }) if self.current.is_sparse => {
                self.rotate_to(false)?;
                self.try_frame(bytes)
            }
            tried => tried,
        }
        .map_err(|error| self.restart(error))
    }

    /// Gives a full file the blocks that it lacks behind its last frame, so that it becomes a spare
    /// when it is removed.
    fn fill_blocks(&mut self) {
        if self.current.is_sparse {
            let rest = self.options.file_bytes - self.current.offset;
            let zeros = vec![0; rest as usize];
            let storage = &self.current.storage;
            let filled = storage.write(self.current.offset, &zeros);
            // If not, or not for sure, it does not become one.
            self.current.is_sparse = filled.and_then(|()| storage.sync()).is_err();
        }
    }

    /// Writes one frame at the end of the file, which has space for it.
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

    /// Goes on in a new file that begins at the durable position: the present one is never trusted
    /// again. The error says so, or that nothing helps any more.
    fn restart(&mut self, source: MediumError) -> JournalError {
        // A file that was removed takes along what was durable in it.
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
        // By what is preallocated: the disk may be full.
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

    /// Takes nothing any more.
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
            // Nothing reads it before a recovery. The next file gets the same memory, which is in
            // the caches of the CPU, and given to a virtual machine already. If it fails, nothing
            // is lost: all of it was synced.
            let _ = old.storage.drop_cached();
        }
        // One that began at the same position has lost its name to the new one.
        if old.first != self.current.first {
            self.older.push(Older {
                name: old.name,
                first: old.first,
                failed,
                is_sparse: old.is_sparse,
            });
        }
    }

    /// Removes files that count no more, or makes spares of them.
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
                // The directory has no place for another name.
                Err(MediumError::NoSpace { .. }) => remove(directory, &file.name)?,
                renamed => {
                    renamed.map_err(on("rename", &file.name))?;
                    recycled.push(spare);
                }
            }
        }
        // A file is written anew only when no crash can bring its old name back.
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

    /// Spares beyond which removed files are given back to the file system.
    fn spares_wanted(&self) -> u64 {
        let reserve = self.options.reserve.div_ceil(self.spare_holds().max(1)) + 1;
        reserve.max(self.options.recycled / self.options.file_bytes)
    }
}
