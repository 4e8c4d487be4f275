//! [`Sink`]: where the pump puts what it drains.

use std::sync::Arc;

use mneme_journal::{Journal, JournalError, JournalStats, Options, Position, Reader, Run, Runs};
use mneme_sys::medium::Directory;

use crate::DurableError;

/// The longest entry of a feed.
pub(crate) const ENTRY: usize = 64 << 10;

/// The durable copy of a change feed. Groups of whole entries are appended to it in order, and a
/// sync makes durable what was appended.
pub(crate) trait Sink: Send {
    /// About so many bytes are one group, which a power loss keeps as a whole or not at all.
    fn group_bytes(&self) -> usize;

    /// Takes whole entries, which begin at [`position`](Self::position).
    fn append(&mut self, at: u64, bytes: &[u8]) -> Result<(), EntriesRefused>;

    /// Waits until all that was appended is durable; the position that is.
    fn sync(&mut self) -> Result<u64, EntriesRefused>;

    /// Does what a pause is good for. Everything is durable.
    fn idle(&mut self) -> Result<(), EntriesRefused>;

    /// Lets go what lies before `base`, for which a base file stands.
    fn remove_before(&mut self, base: u64) -> Result<(), DurableError>;

    /// Makes at most so many bytes of space for what is to come. Whether there is enough now.
    fn prepare(&mut self, bytes: u64) -> Result<bool, DurableError>;

    /// Whether space is made before it is needed, so that a sync takes less time; what a full disk
    /// needs is always made before.
    fn set_preallocates(&mut self, _preallocates: bool) {}

    /// Whether writes are to be refused, because there is too little space for what is to come.
    fn is_nearly_full(&self) -> bool;

    /// Where the next entries go.
    fn position(&self) -> u64;

    /// Everything before it is durable.
    fn durable(&self) -> u64;

    /// Where the oldest of what it keeps of the feed begins.
    fn first(&self) -> u64;

    /// Whether it takes anything, and base files may name it. If not, [`prepare`](Self::prepare)
    /// begins it.
    fn has_begun(&self) -> bool {
        true
    }

    /// Counts.
    fn stats(&self) -> JournalStats;

    /// Syncs and closes.
    fn close(self: Box<Self>) -> Result<(), DurableError>;
}

/// Why entries were not taken, or did not become durable.
pub(crate) enum EntriesRefused {
    /// There is no space. [`Sink::position`] says how far it has come.
    NoSpace,
    /// What is not durable is lost, and must be appended again.
    Restarted,
    /// Nothing becomes durable any more.
    Failed(DurableError),
}

impl EntriesRefused {
    /// Of an operation that a lack of space does not refuse.
    fn of_sync(error: JournalError) -> Self {
        match error {
            JournalError::Restarted { .. } => Self::Restarted,
            error => Self::Failed(error.into()),
        }
    }

    fn of(error: JournalError) -> Self {
        match error {
            JournalError::NoSpace { .. } => Self::NoSpace,
            error => Self::of_sync(error),
        }
    }
}

impl Sink for Journal {
    fn group_bytes(&self) -> usize {
        // One frame.
        let half = (self.options().file_bytes as usize - 4096) / 2;
        half.min(1 << 20) - 4096 - ENTRY
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> Result<(), EntriesRefused> {
        Journal::append(self, Position::new(at), bytes).map_err(EntriesRefused::of)
    }

    fn sync(&mut self) -> Result<u64, EntriesRefused> {
        let synced = Journal::sync(self).map_err(EntriesRefused::of_sync)?;
        Ok(synced.get())
    }

    /// Names the durable position, so that damage of the last frame before a pause is noticed.
    fn idle(&mut self) -> Result<(), EntriesRefused> {
        Journal::idle(self).map_err(EntriesRefused::of)
    }

    fn remove_before(&mut self, base: u64) -> Result<(), DurableError> {
        Journal::remove_before(self, Position::new(base))?;
        Ok(())
    }

    fn prepare(&mut self, bytes: u64) -> Result<bool, DurableError> {
        Ok(Journal::prepare(self, bytes)?)
    }

    fn set_preallocates(&mut self, preallocates: bool) {
        Journal::set_preallocates(self, preallocates);
    }

    fn is_nearly_full(&self) -> bool {
        Journal::is_nearly_full(self)
    }

    fn position(&self) -> u64 {
        Journal::position(self).get()
    }

    fn durable(&self) -> u64 {
        Journal::durable(self).get()
    }

    fn first(&self) -> u64 {
        Journal::first(self).get()
    }

    fn stats(&self) -> JournalStats {
        Journal::stats(self)
    }

    fn close(self: Box<Self>) -> Result<(), DurableError> {
        Journal::close(*self)?;
        Ok(())
    }
}

/// A journal whose run begins when there is space for its first file. Until then it takes nothing.
///
/// A store that is there can so be read on a full disk. What it holds is durable already, or stands
/// in the ring of its segment.
pub(crate) struct LateJournal {
    directory: Arc<dyn Directory>,
    options: Options,
    at: u64,
    runs: Runs,
    journal: Option<Journal>,
}

impl LateJournal {
    /// Begins the run of these options at `at`, now or later.
    ///
    /// # Errors
    /// As [`Journal::open`]; [`JournalError::NoSpace`] only if the directory holds no store.
    pub fn open(
        directory: Arc<dyn Directory>,
        options: Options,
        run: Run,
    ) -> Result<Self, JournalError> {
        let options = Options {
            run: Some(run.id),
            ..options
        };
        let opened = Journal::open(Arc::clone(&directory), options.clone(), run.first);
        let (runs, journal) = match opened {
            Ok(journal) => (journal.runs().clone(), Some(journal)),
            Err(full @ JournalError::NoSpace { .. }) => {
                let nowhere = Position::new(0);
                let present = Reader::between(&*directory, nowhere, nowhere)?;
                let runs = match present.runs().number() {
                    0 => &options.follows,
                    _ => present.runs(),
                };
                if runs.number() == 0 {
                    return Err(full);
                }
                (runs.and(run), None)
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            directory,
            options,
            at: run.first.get(),
            runs,
            journal,
        })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn runs(&self) -> &Runs {
        &self.runs
    }
}

impl Sink for LateJournal {
    fn group_bytes(&self) -> usize {
        match &self.journal {
            Some(journal) => journal.group_bytes(),
            None => ENTRY,
        }
    }

    fn append(&mut self, at: u64, bytes: &[u8]) -> Result<(), EntriesRefused> {
        match &mut self.journal {
            Some(journal) => Sink::append(journal, at, bytes),
            None => Err(EntriesRefused::NoSpace),
        }
    }

    fn sync(&mut self) -> Result<u64, EntriesRefused> {
        match &mut self.journal {
            Some(journal) => Sink::sync(journal),
            None => Ok(self.at),
        }
    }

    fn idle(&mut self) -> Result<(), EntriesRefused> {
        self.journal.as_mut().map_or(Ok(()), Sink::idle)
    }

    fn remove_before(&mut self, base: u64) -> Result<(), DurableError> {
        match &mut self.journal {
            Some(journal) => Sink::remove_before(journal, base),
            None => Ok(()),
        }
    }

    fn prepare(&mut self, bytes: u64) -> Result<bool, DurableError> {
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(Journal::open(
                Arc::clone(&self.directory),
                self.options.clone(),
                Position::new(self.at),
            )?),
        };
        Sink::prepare(journal, bytes)
    }

    fn set_preallocates(&mut self, preallocates: bool) {
        if let Some(journal) = &mut self.journal {
            journal.set_preallocates(preallocates);
        }
    }

    fn is_nearly_full(&self) -> bool {
        self.journal.as_ref().is_none_or(Sink::is_nearly_full)
    }

    fn position(&self) -> u64 {
        self.journal.as_ref().map_or(self.at, Sink::position)
    }

    fn durable(&self) -> u64 {
        self.journal.as_ref().map_or(self.at, Sink::durable)
    }

    fn first(&self) -> u64 {
        self.journal.as_ref().map_or(self.at, Sink::first)
    }

    fn has_begun(&self) -> bool {
        self.journal.is_some()
    }

    fn stats(&self) -> JournalStats {
        self.journal.as_ref().map(Sink::stats).unwrap_or_default()
    }

    fn close(self: Box<Self>) -> Result<(), DurableError> {
        match self.journal {
            Some(journal) => Sink::close(Box::new(journal)),
            None => Ok(()),
        }
    }
}
