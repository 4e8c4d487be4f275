//! [`Disk`]: what a directory holds of a store, in either [form](crate::DurabilityMode).

use std::path::Path;
use std::sync::Arc;

use mneme_journal::{
    Identity, Journal, JournalError, Options, Position, Reader, Run, Runs, bases, reaches,
};
use mneme_log::{ChangeFeed, Evict, LogStore};
use mneme_sys::medium::{Directory, FileDirectory};
use mneme_tree::Store;

use crate::DurableError;
use crate::checkpoint::whole_entries;
use crate::directory::{Opened, failed};
use crate::options::{DurabilityMode, Listen, RecoveryProgress};
use crate::pairing::{Journaled, Unpaired};
use crate::recover::{self, Files, Loaded, newest_base};
use crate::sink::{LateJournal, Sink};
use crate::store::draw_run;
use crate::tree::{self, Build, CommitStamp, Replica, TreeSink};

/// What a directory holds.
pub(crate) enum Disk {
    /// A journal and base files, or nothing.
    Journal,
    /// A tree; `None`: nothing yet.
    Tree(Option<Box<Replica>>),
}

/// A run of the journal or tree that has begun.
pub(crate) struct BegunRun {
    pub sink: Box<dyn Sink>,
    /// The options for writing base files.
    pub options: Options,
    pub runs: Runs,
    /// The tree that backups are read from, if there is one.
    pub tree: Option<Store>,
    /// Where the newest base file begins.
    pub base: u64,
    /// The directory holds no store until a base file has been written.
    pub needs_base: bool,
}

/// The form of the store that a directory holds; `None`: it holds none.
pub(crate) fn mode_of(directory: &dyn Directory) -> Result<Option<DurabilityMode>, DurableError> {
    let names = directory.names();
    let names = names.map_err(failed("list", "the directory"))?;
    if names.iter().any(|name| name == tree::FILE) {
        return Ok(Some(DurabilityMode::Tree));
    }
    let is_kept = names.iter().any(|name| name.ends_with(".journal"))
        || bases(directory)?.iter().any(|base| base.kept.is_none());
    Ok(is_kept.then_some(DurabilityMode::Journal))
}

/// Whether a file of that name belongs to a store, or to the backup or repair of one. Remains of an
/// unfinished start or restore do not.
pub(crate) fn is_of_store(name: &str) -> bool {
    let ends = [".journal", ".base", ".backup", ".lost"];
    name == tree::FILE || ends.iter().any(|end| name.ends_with(end))
}

impl DurabilityMode {
    /// The form of the store that a directory holds, even while another process has it open.
    /// `None`: it holds none, or cannot be read.
    #[must_use]
    pub fn found_in(directory: &Path) -> Option<Self> {
        let directory = FileDirectory::open_unlocked(directory).ok()?;
        mode_of(&directory).ok().flatten()
    }
}

impl Disk {
    /// Opens what the directory holds. Refuses a directory of the other form.
    pub fn open(opened: &Opened, mode: DurabilityMode) -> Result<Self, DurableError> {
        let found = mode_of(&*opened.directory)?;
        match (mode, found) {
            (mode, Some(found)) if mode != found => Err(DurableError::OtherMode { found }),
            (DurabilityMode::Journal, _) => Ok(Self::Journal),
            (DurabilityMode::Tree, None) => Ok(Self::Tree(None)),
            (DurabilityMode::Tree, Some(_)) => Ok(Self::Tree(Some(Box::new(tree::open(opened)?)))),
        }
    }

    /// What is known without reading the content; `None`: there is no store. A backup alone counts
    /// as a store in journal form.
    pub fn journaled(&self, directory: &dyn Directory) -> Result<Option<Journaled>, DurableError> {
        let nowhere = Position::new(0);
        match self {
            Self::Tree(replica) => Ok(replica.as_ref().map(|replica| {
                let CommitStamp { run, position, .. } = replica.stamp();
                let first = Position::new(position);
                Journaled {
                    identity: replica.identity(),
                    last: Some(Run { id: run, first }),
                }
            })),
            Self::Journal => {
                let reader = Reader::between(directory, nowhere, nowhere)?;
                if let Some(identity) = reader.identity() {
                    let last = reader.runs().last();
                    return Ok(Some(Journaled { identity, last }));
                }
                let base = newest_base(directory)?;
                Ok(base.map(|(_, base)| Journaled {
                    identity: base.identity(),
                    last: base.runs().last(),
                }))
            }
        }
    }

    /// If the directory holds the stream up to `at`, where a surviving segment continues: the time
    /// of the last change before that.
    pub fn holds_stream(
        &self,
        directory: &dyn Directory,
        at: u64,
    ) -> Result<Option<u64>, DurableError> {
        let at = Position::new(at);
        match self {
            Self::Tree(replica) => Ok(replica
                .as_ref()
                .map(|replica| replica.stamp())
                .filter(|stamp| stamp.position >= at.get())
                .map(|stamp| stamp.wall_ms)),
            Self::Journal => {
                let reached = reaches(directory, at)?;
                if reached.is_some() {
                    return Ok(reached);
                }
                let Some((_, base)) = newest_base(directory)? else {
                    return Ok(None);
                };
                let (_, suffix) = base.read_ahead()?;
                Ok((suffix == at).then_some(base.wall_ms()))
            }
        }
    }

    /// Reads what is needed to rebuild a store.
    pub fn look(&mut self, directory: &dyn Directory) -> Result<RebuildSource<'_>, DurableError> {
        Ok(match self {
            Self::Journal => RebuildSource::Files(Box::new(Files::look(directory)?)),
            Self::Tree(replica) => RebuildSource::Tree(replica.as_deref_mut()),
        })
    }

    /// Makes whole entries that begin at `at` durable, in a run of their own.
    pub fn continue_with(
        &mut self,
        opened: &Opened,
        options: Options,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), DurableError> {
        match self {
            Self::Journal => {
                let directory = Arc::clone(&opened.directory);
                // A file may hold more than the feed knew, and unlike the feed it has checksums.
                let (at, bytes) = behind(journal_end(&*directory, at)?, at, bytes);
                if bytes.is_empty() {
                    return Ok(());
                }
                let options = Options {
                    follows: base_runs(&*directory)?,
                    ..options
                };
                let mut journal = Journal::open(directory, options, Position::new(at))?;
                let (mut rest, group) = (bytes, journal.group_bytes());
                while !rest.is_empty() {
                    let (piece, behind) = rest.split_at(whole_entries(rest, group)?);
                    journal.append(journal.position(), piece)?;
                    rest = behind;
                }
                journal.close()?;
            }
            Self::Tree(None) => {}
            Self::Tree(Some(replica)) => {
                // A commit may hold more than the feed knew.
                let begin = replica.stamp().position;
                let behind = bytes.get((begin - at) as usize..).unwrap_or_default();
                replica.bytes(begin, behind)?;
                replica.commit(CommitStamp {
                    run: options.run.map_or_else(draw_run, Ok)?,
                    position: begin + behind.len() as u64,
                    wall_ms: options.clock.wall_ms(),
                })?;
            }
        }
        Ok(())
    }

    /// Begins a run after the feed's durable position.
    pub fn begin(
        self,
        opened: &Opened,
        options: Options,
        home: &LogStore,
        feed: &mut ChangeFeed,
    ) -> Result<BegunRun, DurableError> {
        match self {
            Self::Journal => begin_journal(opened, options, feed),
            Self::Tree(replica) => begin_tree(replica, opened, options, home, feed),
        }
    }
}

fn begin_journal(
    opened: &Opened,
    options: Options,
    feed: &ChangeFeed,
) -> Result<BegunRun, DurableError> {
    let base = newest_base(&*opened.directory)?.map(|(_, base)| base);
    let options = Options {
        follows: base_runs(&*opened.directory)?,
        ..options
    };
    let run = Run {
        id: options.run.map_or_else(draw_run, Ok)?,
        first: Position::new(feed.durable()),
    };
    let journal = LateJournal::open(Arc::clone(&opened.directory), options, run)?;
    Ok(BegunRun {
        options: journal.options().clone(),
        runs: journal.runs().clone(),
        tree: None,
        needs_base: base.is_none() && !begins_at_zero(&*opened.directory)?,
        base: base.map_or(0, |base| base.begin().get()),
        sink: Box::new(journal),
    })
}

/// The position where the stream of a directory ends. The directory holds the stream at least up to
/// `at`.
fn journal_end(directory: &dyn Directory, at: u64) -> Result<u64, DurableError> {
    let read = || {
        let mut reader = Reader::open(directory, Position::new(at))?;
        while reader.next()?.is_some() {}
        Ok(reader.position().get())
    };
    match read() {
        // Either the base file holds the stream up to there, or the part after it cannot be
        // trusted.
        Err(
            JournalError::Damaged(_) | JournalError::Missing { .. } | JournalError::Ended { .. },
        ) => Ok(at),
        read => Ok(read?),
    }
}

/// The part of these entries that lies after `end`, and its position; `at` is the position of the
/// first entry. If `end` lies within an entry, returns all of them.
fn behind(end: u64, at: u64, bytes: &[u8]) -> (u64, &[u8]) {
    let rest = bytes.get(end.saturating_sub(at) as usize..);
    let rest = rest.unwrap_or_default();
    let mut entries = mneme_log::feed::entries(at, bytes);
    match rest.is_empty() || entries.any(|entry| entry.is_ok_and(|entry| entry.position == end)) {
        true => (end, rest),
        false => (at, bytes),
    }
}

/// The runs that a journal without a file continues: those of the newest base file.
fn base_runs(directory: &dyn Directory) -> Result<Runs, DurableError> {
    let base = newest_base(directory)?;
    Ok(base
        .map(|(_, base)| base.runs().clone())
        .unwrap_or_default())
}

/// Whether a journal holds the stream from position 0 on.
fn begins_at_zero(directory: &dyn Directory) -> Result<bool, JournalError> {
    match Reader::between(directory, Position::new(0), Position::new(u64::MAX)) {
        Ok(_) => Ok(true),
        Err(JournalError::Missing { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn begin_tree(
    replica: Option<Box<Replica>>,
    opened: &Opened,
    options: Options,
    home: &LogStore,
    feed: &mut ChangeFeed,
) -> Result<BegunRun, DurableError> {
    let run = options.run.map_or_else(draw_run, Ok)?;
    let replica = match replica {
        None => {
            let build = Build::begin(opened, options.identity, run, &options.clock)?;
            tree::adopt(build, home, feed)?
        }
        Some(replica) => {
            follow(feed, replica.stamp().position)?;
            *replica
        }
    };
    let position = replica.stamp().position;
    let first = Position::new(position);
    let (directory, clock) = (&*opened.directory, Arc::clone(&options.clock));
    let sink = TreeSink::begin(replica, run, directory, clock)?;
    Ok(BegunRun {
        tree: Some(sink.store().clone()),
        runs: Runs::default().and(Run { id: run, first }),
        base: position,
        needs_base: false,
        sink: Box::new(sink),
        options,
    })
}

/// Tells a feed that everything before `position` is durable, because the process that drained the
/// feed died before it could record that.
fn follow(feed: &mut ChangeFeed, position: u64) -> Result<(), DurableError> {
    let mut drained = Vec::new();
    let mut at = feed.durable();
    while at < position {
        drained.clear();
        let range = feed.drain((position - at).min(1 << 20) as usize, &mut drained)?;
        if drained.is_empty() || range.end > position {
            return Err(Unpaired::Runs.into());
        }
        at = range.end;
    }
    Ok(feed.set_durable(at)?)
}

/// The files from which a store is rebuilt.
pub(crate) enum RebuildSource<'d> {
    Files(Box<Files>),
    Tree(Option<&'d mut Replica>),
}

impl RebuildSource<'_> {
    /// The identity of the store; `None`: there is none.
    pub fn identity(&self) -> Option<Identity> {
        match self {
            Self::Files(files) => files.identity,
            Self::Tree(replica) => replica.as_ref().map(|replica| replica.identity()),
        }
    }

    /// Loads everything into an empty store.
    pub fn load(
        self,
        directory: &dyn Directory,
        store: &LogStore,
        listener: Option<&Listen<'_>>,
        evict: Evict,
    ) -> Result<Loaded, DurableError> {
        let loaded = match self {
            Self::Files(files) => files.load(directory, store, listener, evict)?,
            Self::Tree(None) => {
                return Ok(Loaded {
                    end: 0,
                    wall_ms: 0,
                    progress: RecoveryProgress::default(),
                });
            }
            Self::Tree(Some(replica)) => {
                // The rest of the change is lost with the segment. That must be durable before the
                // new segment gets its name: otherwise its first entries would be taken for that
                // rest.
                if replica.give_up_pending() {
                    replica.commit(replica.stamp())?;
                }
                let of = (replica.store(), replica.stamp().wall_ms);
                recover::load_tree(of, store, listener, evict)?
            }
        };
        if evict == Evict::None {
            store.return_to_capacity()?;
        }
        Ok(loaded)
    }
}
