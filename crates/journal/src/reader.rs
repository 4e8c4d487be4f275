//! Reading the stream back, for recovery.

use mneme_sys::fault::without;
use mneme_sys::medium::Directory;

use crate::chain::{Link, journal_names, scan};
use crate::error::{FileDamage, Flaw, on};
use crate::frame::{JournalFrame, JournalFrameKind};
use crate::frame_reader::{self, FrameReader, FrameStep};
use crate::header::{FileKind, Identity, Runs};
use crate::{JournalError, Position};

/// Some bytes of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The position of the first one.
    pub position: Position,
    /// The bytes. They end where an append, a file, or a frame of 1 MiB ended.
    pub bytes: &'a [u8],
    /// When they were appended, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// Reads the stream from a position to its end.
///
/// The end is where no valid frame follows. A bad frame is damage, and an error, if something later
/// shows that it was durable: a later file, or a later frame of the same file that names a later
/// durable position. Everything before an error or the end is what was appended.
#[derive(Debug)]
pub struct Reader<'d> {
    directory: &'d dyn Directory,
    links: std::vec::IntoIter<Link>,
    /// The file that is being read, and the position at which it is cut.
    file: Option<(FrameReader, Option<Position>)>,
    /// Where the next frame of the file must begin.
    next: Position,
    /// The position that the caller has reached.
    position: Position,
    wall_ms: u64,
    identity: Option<Identity>,
    runs: Runs,
}

impl<'d> Reader<'d> {
    /// Begins at `from`, which may lie in the middle of an append. A directory without files is an
    /// empty stream.
    ///
    /// The files are synced and then read past the page cache: the cache may hold data that never
    /// reached the medium, and what is found now must still be there after a power loss.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Damaged`], [`JournalError::Medium`].
    pub fn open(directory: &'d dyn Directory, from: Position) -> Result<Self, JournalError> {
        settle(directory)?;
        Self::of(directory, scan(directory)?, from)
    }

    /// Reads from `from` to `to`, which must be durable, while another thread writes: for a backup.
    /// Nothing is synced, and nothing after `to` is read. The files must not be removed meanwhile
    /// ([`Journal::remove_before`](crate::Journal::remove_before)).
    ///
    /// # Errors
    /// As for [`open`](Reader::open). An invalid frame is always damage here.
    pub fn between(
        directory: &'d dyn Directory,
        from: Position,
        to: Position,
    ) -> Result<Self, JournalError> {
        let mut links = scan(directory)?;
        for link in &mut links {
            link.cut = Some(link.cut.map_or(to, |cut| cut.min(to)));
        }
        Self::of(directory, links, from)
    }

    /// A reader of those files.
    pub(crate) fn of(
        directory: &'d dyn Directory,
        mut links: Vec<Link>,
        from: Position,
    ) -> Result<Self, JournalError> {
        let newest = links.last().map(|link| link.header.clone());
        let first = links.iter().map(|link| link.header.first).min();
        links.retain(|link| !link.is_replaced() && link.cut.is_none_or(|cut| from < cut));
        // Files before the one that holds `from` are leftovers of a removal.
        let start = links.iter().rposition(|link| link.header.first <= from);
        match start {
            Some(start) => drop(links.drain(..start)),
            None if links.is_empty() => {}
            None => {
                let first = links.first().map(|link| link.header.first).or(first);
                let first = first.unwrap_or(from);
                let wanted = from;
                return Err(JournalError::Missing { wanted, first });
            }
        }
        let mut reader = Self {
            directory,
            links: links.into_iter(),
            file: None,
            next: from,
            position: from,
            wall_ms: newest.as_ref().map_or(0, |header| header.wall_ms),
            identity: newest.as_ref().map(|header| header.identity),
            runs: newest.map(|header| header.runs).unwrap_or_default(),
        };
        reader.open_next()?;
        Ok(reader)
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// [`JournalError::Damaged`], [`JournalError::Medium`]. The reader cannot be used afterwards.
    // Not an iterator, because it is fallible and its items are borrowed until the next call.
    #[expect(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Chunk<'_>>, JournalError> {
        while let Some((frames, cut)) = &mut self.file {
            if cut.is_some_and(|cut| self.next >= cut) {
                self.open_next()?;
                continue;
            }
            let step = frames.step();
            let step = step.map_err(|e| frames.damage(self.next, Flaw::Read(e)))?;
            let FrameStep::Frame(frame) = step else {
                end_or_damage(frames, self.next, *cut)?;
                self.file = None;
                break;
            };
            if frame.position != self.next || frame.kind != JournalFrameKind::Stream {
                let found = frame.position;
                return Err(frames.damage(self.next, Flaw::Order { found }).into());
            }
            self.wall_ms = frame.wall_ms;
            self.next = frame.position.plus(frame.bytes.into());
            let start = self.position.max(frame.position);
            let end = cut.map_or(self.next, |cut| self.next.min(cut));
            if start < end {
                self.position = end;
                return Ok(self.chunk(frame, start, end));
            }
        }
        if self.next < self.position {
            return Err(JournalError::Ended {
                wanted: self.position,
                end: self.next,
            });
        }
        Ok(None)
    }

    /// The bytes between two positions of the last frame.
    fn chunk(&self, frame: JournalFrame, start: Position, end: Position) -> Option<Chunk<'_>> {
        let (frames, _) = self.file.as_ref()?;
        let part = start.since(frame.position) as usize..end.since(frame.position) as usize;
        Some(Chunk {
            position: start,
            bytes: frames.carried().get(part)?,
            wall_ms: frame.wall_ms,
        })
    }

    /// The position up to which the stream has been read; after the end, the position where it
    /// ends.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The time of the last frame that was read, or of its file if it has none, in milliseconds
    /// since 1970. If the clock was set back since an earlier one, the time goes back too.
    #[must_use]
    pub fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    /// The store that the files belong to; `None` if there are none.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// The runs that the newest file lists.
    #[must_use]
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    fn open_next(&mut self) -> Result<(), JournalError> {
        self.file = None;
        let Some(Link { name, header, cut }) = self.links.next() else {
            return Ok(());
        };
        if header.first > self.position {
            return Err(JournalError::Damaged(FileDamage {
                file: name,
                offset: 0,
                position: self.position,
                flaw: Flaw::Gap { to: header.first },
            }));
        }
        let kind = FileKind::Journal;
        let (storage, header) = frame_reader::open(self.directory, &name, kind, self.position)?;
        self.next = header.first;
        self.wall_ms = header.wall_ms;
        self.file = Some((FrameReader::new(storage, &name, &header)?, cut));
        Ok(())
    }
}

/// The time of the last change before `at`, in milliseconds since 1970, if the files of a journal
/// in use hold the stream up to there. That is so if a file begins at `at`, because everything
/// before it was durable then, or if the file that should hold the part before `at` is complete up
/// to there. `None` if they do not. Nothing is synced.
///
/// # Errors
/// [`JournalError::Medium`], [`JournalError::Damaged`] for headers.
pub fn reaches(directory: &dyn Directory, at: Position) -> Result<Option<u64>, JournalError> {
    let links = scan(directory)?;
    let begins = |link: &&Link| !link.is_replaced() && link.header.first == at;
    let begun = links.iter().rfind(begins).map(|link| link.header.wall_ms);
    if begun.is_some() {
        return Ok(begun);
    }
    let Some(before) = at.get().checked_sub(1) else {
        return Ok(Some(0));
    };
    let read = || {
        let mut reader = Reader::between(directory, Position::new(before), at)?;
        while reader.next()?.is_some() {}
        Ok((reader.position() == at).then_some(reader.wall_ms()))
    };
    match read() {
        Err(
            JournalError::Damaged(_) | JournalError::Missing { .. } | JournalError::Ended { .. },
        ) => Ok(None),
        reached => reached,
    }
}

/// Decides whether a place without a valid frame is the end of the stream: it is, if nothing says
/// that the data there had been durable.
fn end_or_damage(
    frames: &mut FrameReader,
    at: Position,
    cut: Option<Position>,
) -> Result<(), JournalError> {
    let damage = |flaw| frames.damage(at, flaw);
    // Computed before the search moves on.
    let mut here = damage(Flaw::Incomplete);
    loop {
        let later = frames.skip_to_frame();
        let later = later.map_err(|e| frames.damage(at, Flaw::Read(e)))?;
        here.flaw = match (later, cut) {
            (Some(_), Some(durable)) => Flaw::Frame { durable },
            (Some(later), None) if later.durable > at => {
                let durable = later.durable;
                Flaw::Frame { durable }
            }
            (Some(_), None) => continue,
            (None, Some(to)) => Flaw::Gap { to },
            (None, None) => return Ok(()),
        };
        return Err(here.into());
    }
}

/// Syncs the journal's files and drops them from the page cache.
pub(crate) fn settle(directory: &dyn Directory) -> Result<(), JournalError> {
    if without("read.sync") {
        return Ok(());
    }
    for name in journal_names(directory)? {
        let storage = directory.open(&name).map_err(on("open", &name))?;
        storage.drop_cached().map_err(on("sync", &name))?;
    }
    Ok(())
}
