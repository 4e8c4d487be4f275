//! Reading the stream back: what recovery replays.

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
    /// Where they begin.
    pub position: Position,
    /// The bytes. They end where an append ended, or a file, or a frame of 1 MiB.
    pub bytes: &'a [u8],
    /// When they were appended, in milliseconds since 1970.
    pub wall_ms: u64,
}

/// Reads the stream from a position to its end.
///
/// The end is where no whole frame follows. A bad frame is damage, and an error, if something later
/// says that it was durable: a later file, or a later frame of the file that names a durable
/// position behind it. Everything before an error or the end is what was appended.
#[derive(Debug)]
pub struct Reader<'d> {
    directory: &'d dyn Directory,
    links: std::vec::IntoIter<Link>,
    /// The file that is read, and where it is cut.
    file: Option<(FrameReader, Option<Position>)>,
    /// Where the next frame of the file must begin.
    next: Position,
    /// Where the caller has got to.
    position: Position,
    wall_ms: u64,
    identity: Option<Identity>,
    runs: Runs,
}

impl<'d> Reader<'d> {
    /// Begins at `from`, which may lie in the middle of what was appended at once. A directory
    /// without files is an empty stream.
    ///
    /// The files are synced and then read past the page cache. It may hold what never reached the
    /// medium, and what is found now must still be there after a power loss.
    ///
    /// # Errors
    /// [`JournalError::Missing`], [`JournalError::Damaged`], [`JournalError::Medium`].
    pub fn open(directory: &'d dyn Directory, from: Position) -> Result<Self, JournalError> {
        settle(directory)?;
        Self::of(directory, scan(directory)?, from)
    }

    /// Reads from `from` to `to`, which is known to be durable, beside the thread that writes: for
    /// a backup. Nothing is synced, and nothing behind `to` is looked at. The files must not be
    /// removed meanwhile ([`Journal::remove_before`](crate::Journal::remove_before)).
    ///
    /// # Errors
    /// As [`open`](Reader::open). A frame that is not whole is damage here.
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

    /// Reads those files.
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
    /// [`JournalError::Damaged`], [`JournalError::Medium`]. The reader is of no use afterwards.
    // A stream that fails is no iterator, and what it lends ends with the next call.
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

    /// The bytes between two positions of the frame that was read last.
    fn chunk(&self, frame: JournalFrame, start: Position, end: Position) -> Option<Chunk<'_>> {
        let (frames, _) = self.file.as_ref()?;
        let part = start.since(frame.position) as usize..end.since(frame.position) as usize;
        Some(Chunk {
            position: start,
            bytes: frames.carried().get(part)?,
            wall_ms: frame.wall_ms,
        })
    }

    /// How far the stream has been read; at the end, where it ends.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The time of the last frame that was read, or of its file if it has none, in milliseconds
    /// since 1970. A clock that was set back since an earlier one is believed.
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

/// The time of the last change before `at`, in milliseconds since 1970, if the files of a living
/// journal hold the stream up to there: a file begins there, which was done when everything before
/// was durable, or the file that should hold what lies before is whole up to there. `None`: they
/// do not. Nothing is synced.
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

/// Whether a place without a whole frame is where the stream ends: nothing says that what was there
/// had been durable.
fn end_or_damage(
    frames: &mut FrameReader,
    at: Position,
    cut: Option<Position>,
) -> Result<(), JournalError> {
    let damage = |flaw| frames.damage(at, flaw);
    // Made before the search moves on.
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

/// Syncs the journal's files and drops what is cached of them.
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
