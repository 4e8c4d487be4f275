//! Records what a journal writes, with what was acknowledged at each instant.

use mneme_journal::{
    BaseFile, BaseName, BaseReader, BaseWriter, Journal, JournalError, Position, bases,
    remove_bases_before,
};
use mneme_sys::medium::{DirectoryOperation, DirectoryTrace, RecordingDirectory};
use mneme_testkit::Random;

use super::{FILE, content, options, read_from, shared};

/// Repeats an operation while syncs fail, as an operator would.
fn again_and_again<T>(what: impl Fn() -> Result<T, JournalError>) -> T {
    for _ in 0..20 {
        match what() {
            Err(JournalError::Medium { .. }) => {}
            other => return other.unwrap(),
        }
    }
    panic!("it fails for ever");
}

/// What must hold after a crash at a mark, until the next one.
#[derive(Debug, Clone)]
pub struct Mark {
    /// The acknowledged position.
    pub acknowledged: u64,
    /// What was appended, from position 0 on; its end may or may not be on the medium.
    pub stream: Vec<u8>,
    /// The begin of the base file that was published last.
    pub base: Option<u64>,
}

/// A recorded scenario.
pub struct Recorder {
    pub directory: RecordingDirectory,
    pub journal: Option<Journal>,
    pub history: Vec<Mark>,
    pub stream: Vec<u8>,
    pub acknowledged: u64,
    base: Option<u64>,
    version: u64,
    /// Whether the blocks of files are allocated before they are written.
    pub preallocates: bool,
}

impl Recorder {
    /// An empty directory.
    pub fn new() -> Self {
        Self::on(RecordingDirectory::new(), Vec::new(), None, 1)
    }

    /// A directory with a durable journal that holds `stream`, and with a base file that begins at
    /// its end.
    pub fn on(
        directory: RecordingDirectory,
        stream: Vec<u8>,
        base: Option<u64>,
        version: u64,
    ) -> Self {
        let mut recorder = Self {
            acknowledged: stream.len() as u64,
            history: Vec::new(),
            journal: None,
            directory,
            stream,
            base,
            version,
            preallocates: true,
        };
        // Mark 0 holds before the first operation.
        recorder.history.push(recorder.now());
        recorder
    }

    /// The scenario continues after its process was killed behind that many operations.
    pub fn killed(history: &[Mark], trace: &DirectoryTrace, many: usize) -> Self {
        let marked = |op: &DirectoryOperation| match op {
            DirectoryOperation::Mark(mark) => Some(*mark as usize),
            _ => None,
        };
        let last = trace.operations[..many].iter().rev().find_map(marked);
        let mark = history[last.unwrap_or(0)].clone();
        let directory = RecordingDirectory::killed(trace, many);
        Self {
            acknowledged: mark.acknowledged,
            base: mark.base,
            history: history.to_vec(),
            journal: None,
            stream: mark.stream,
            directory,
            version: 60,
            preallocates: true,
        }
    }

    fn now(&self) -> Mark {
        Mark {
            acknowledged: self.acknowledged,
            stream: self.stream.clone(),
            base: self.base,
        }
    }

    pub fn mark(&mut self) {
        self.directory.mark(self.history.len() as u64);
        self.history.push(self.now());
    }

    /// Begins a run at `at`. Data after it are forgotten.
    pub fn open(&mut self, at: u64) {
        // Until the journal is open, everything that was appended may be found.
        self.acknowledged = self.acknowledged.min(at);
        self.directory.limit(None);
        self.mark();
        let at_position = Position::new(at);
        let open = || Journal::open(shared(&self.directory), options(), at_position);
        self.journal = Some(again_and_again(open));
        self.set_preallocates(self.preallocates);
        self.stream.truncate(at as usize);
        self.acknowledged = at;
        self.version += 1;
        self.mark();
    }

    /// The process dies, and the next one begins at the acknowledged position, which it knows from
    /// its ring.
    pub fn die_with_ring(&mut self) {
        self.journal = None;
        self.open(self.acknowledged);
    }

    /// The process dies, and the next one reads the files.
    pub fn die_and_read(&mut self) {
        self.journal = None;
        // A published checkpoint may be newer than the acknowledged one; opening syncs its name.
        let checkpoints = bases(&self.directory).unwrap();
        let open =
            |base: &BaseFile| again_and_again(|| BaseReader::open(&self.directory, &base.file));
        let base = checkpoints.first().map(|base| open(base).begin().get());
        let from = base.unwrap_or(0);
        let bytes = again_and_again(|| read_from(&self.directory, from));
        let end = from + bytes.len() as u64;
        assert!(end >= self.acknowledged, "acknowledged bytes are gone");
        assert_eq!(bytes[..], self.stream[from as usize..end as usize]);
        self.open(end);
        self.base = base;
        self.mark();
    }

    pub fn set_preallocates(&mut self, preallocates: bool) {
        self.preallocates = preallocates;
        self.journal().set_preallocates(preallocates);
    }

    fn journal(&mut self) -> &mut Journal {
        self.journal.as_mut().unwrap()
    }

    /// Appends the part of the stream that the journal lacks, repeating it while that fails.
    /// Returns false if the journal has failed for good.
    fn append_rest(&mut self) -> bool {
        loop {
            let at = self.journal().position();
            let rest = self.stream[at.get() as usize..].to_vec();
            let appended = self.journal().append(at, &rest);
            match appended {
                Ok(()) => return true,
                Err(JournalError::Restarted { from, .. }) => {
                    assert_eq!(self.journal().position(), from);
                }
                Err(JournalError::NoSpace { .. }) => self.directory.limit(None),
                Err(_) => return false,
            }
        }
    }

    fn bury_unless(&mut self, alive: bool) {
        if !alive {
            self.die_and_read();
        }
    }

    pub fn append(&mut self, bytes: usize) {
        let more = content(self.version, self.stream.len() as u64, bytes);
        self.stream.extend(more);
        self.mark();
        let alive = self.append_rest();
        self.bury_unless(alive);
    }

    /// Runs an operation that syncs, and appends again what a failure asks for.
    pub fn synced(&mut self, what: impl Fn(&mut Journal) -> Result<(), JournalError>) {
        loop {
            let done = what(self.journal());
            let alive = match done {
                Ok(()) => {
                    self.acknowledged = self.journal().durable().get();
                    return self.mark();
                }
                Err(JournalError::Restarted { .. }) => self.append_rest(),
                Err(JournalError::NoSpace { .. }) => {
                    self.directory.limit(None);
                    true
                }
                Err(_) => false,
            };
            if !alive {
                return self.die_and_read();
            }
        }
    }

    pub fn sync(&mut self) {
        self.synced(|journal| journal.sync().map(|_| ()));
    }

    pub fn idle(&mut self) {
        self.synced(Journal::idle);
    }

    pub fn rotate(&mut self) {
        self.synced(Journal::rotate);
    }

    /// Prepares a part of a spare.
    pub fn prepare(&mut self) {
        // An injected sync failure may hit it: then there is one spare less.
        let _ = self.journal().prepare(8192);
    }

    /// Writes a base file that begins at the durable position, and has read up to the journal's end
    /// when it is published.
    pub fn base(&mut self, durable_first: bool) {
        if durable_first {
            self.sync();
        }
        let directory = shared(&self.directory);
        let begin = self.journal().durable();
        let name = BaseName::Checkpoint;
        let (read, durable) = (self.journal().position(), begin);
        let mut writer = BaseWriter::begin(self.journal(), directory, &name, begin).unwrap();
        writer.append(begin, &content(99, 0, 100)).unwrap();
        writer.append(begin, &content(99, 100, 5000)).unwrap();
        match writer.publish(read, durable) {
            Ok(_) => self.base = Some(begin.get()),
            // A failed sync was injected, or it is too early.
            Err(_) => return,
        }
        self.mark();
        let removed = self.journal().remove_before(begin);
        // The directory does not answer: the operation may or may not have happened.
        let alive = removed.is_ok();
        if alive {
            // Otherwise they are removed next time.
            let _ = remove_bases_before(&self.directory, begin);
        }
        self.bury_unless(alive);
    }

    /// Writes a checkpoint like a program that removes the files before the checkpoint is
    /// published.
    pub fn base_too_late(&mut self) {
        self.sync();
        let directory = shared(&self.directory);
        let begin = self.journal().durable();
        let name = BaseName::Checkpoint;
        let mut writer = BaseWriter::begin(self.journal(), directory, &name, begin).unwrap();
        writer.append(begin, &content(99, 0, 5100)).unwrap();
        self.journal().remove_before(begin).unwrap();
        writer.publish(begin, begin).unwrap();
        self.base = Some(begin.get());
        self.mark();
    }

    /// Performs some random steps.
    pub fn wander(&mut self, random: &mut Random, steps: usize) {
        for _ in 0..steps {
            match random.below(28) {
                0..8 => self.append(1 + random.below(6000) as usize),
                8..12 => self.sync(),
                12 => self.idle(),
                13..16 => self.prepare(),
                16 => self.rotate(),
                17..20 => {
                    self.directory.limit(None);
                    self.base(random.below(3) > 0);
                }
                24 => self.directory.fail_names(1 + random.below(4)),
                25 => {
                    let used: usize = self.directory.files().values().map(Vec::len).sum();
                    let left = random.below(4 * FILE);
                    self.directory.limit(Some(used as u64 + left));
                }
                20 => self.die_with_ring(),
                21 => self.die_and_read(),
                27 => self.set_preallocates(!self.preallocates),
                _ => {
                    let (nth, keep) = (1 + random.below(4), random.below(4));
                    self.directory.fail_sync(nth, keep, random.below(2));
                }
            }
        }
    }
}
