//! [`Sink`]: where the pump writes what it drains.

use std::sync::Arc;

use mneme_journal::{Journal, JournalError, JournalStats, Options, Position, Reader, Run, Runs};
use mneme_sys::medium::Directory;

use crate::DurableError;

/// The longest entry of a feed.
pub(crate) const ENTRY: usize = 64 << 10;

/// The durable copy of a change feed. Groups of whole entries are appended in order; a sync makes
/// them durable.
pub(crate) trait Sink: Send {
    /// The size of a group, approximately. A power loss keeps a group as a whole or not at all.
    fn group_bytes(&self) -> usize;

    /// Appends whole entries, which begin at [`position`](Self::position).
    fn append(&mut self, at: u64, bytes: &[u8]) -> Result<(), EntriesRefused>;

    /// Waits until everything appended is durable, and returns that position.
    fn sync(&mut self) -> Result<u64, EntriesRefused>;

    /// Does work that suits a pause. Everything must be durable.
    fn idle(&mut self) -> Result<(), EntriesRefused>;

    /// Removes data before `base`, which a base file replaces.
    fn remove_before(&mut self, base: u64) -> Result<(), DurableError>;

    /// Prepares up to `bytes` of space for later entries. Returns whether there is enough now.
    fn prepare(&mut self, bytes: u64) -> Result<bool, DurableError>;

    /// Whether space is prepared in advance, which makes syncs shorter. The space that a full disk
    /// requires is always prepared in advance.
    fn set_preallocates(&mut self, _preallocates: bool) {}

    /// Whether writes must be refused because there is too little space for what follows.
    fn is_nearly_full(&self) -> bool;

    /// The position of the next entry.
    fn position(&self) -> u64;

    /// Everything before it is durable.
    fn durable(&self) -> u64;

    /// Where the oldest data that it keeps begins.
    fn first(&self) -> u64;

    /// Whether it accepts entries and may be named in base files. If not,
    /// [`prepare`](Self::prepare) begins it.
    fn has_begun(&self) -> bool {
        true
    }

    /// Statistics.
    fn stats(&self) -> JournalStats;

    /// Syncs and closes.
    fn close(self: Box<Self>) -> Result<(), DurableError>;
}

/// Why entries were refused, or did not become durable.
pub(crate) enum EntriesRefused {
    /// There is no space. [`Sink::position`] is the position that was reached.
    NoSpace,
    /// Everything that is not durable is lost and must be appended again.
    Restarted,
    /// Nothing becomes durable any more.
    Failed(DurableError),
}

impl EntriesRefused {
    /// The result of a sync, which needs no space.
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
        // The size of one frame.
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

    /// Names the durable position, so that damage to the last frame before a pause is detected.
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

/// A journal whose run begins when there is space for its first file. Until then it accepts no
/// entries.
///
/// So an existing store can be read on a full disk. Its content is durable already, or lies in the
/// ring of its segment.
pub(crate) struct LateJournal {
    directory: Arc<dyn Directory>,
    options: Options,
    at: u64,
    runs: Runs,
    journal: Option<Journal>,
}

impl LateJournal {
    /// Begins the run of these options at `at`, now or when there is space.
    ///
    /// # Errors
    /// As for [`Journal::open`]; [`JournalError::NoSpace`] only if the directory holds no store.
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
