//! Checks a whole journal, and cuts a damaged one at the damage.

use std::sync::Arc;

use mneme_sys::medium::Directory;

use crate::chain::{Link, in_order, journal_names, read_link};
use crate::error::{FileDamage, Flaw, on};
use crate::frame_reader::{self, FrameReader};
use crate::header::JournalHeader;
use crate::journal::fit;
use crate::reader::settle;
use crate::{
    BaseReader, Identity, Journal, JournalError, Options, Position, Reader, Runs, bases, names,
};

/// The content of a journal, and what a repair would lose.
#[derive(Debug)]
pub struct Report {
    /// The store that the journal belongs to, according to its files or to a checkpoint that is
    /// valid without them. `None` if neither says, in which case a repair is impossible.
    pub identity: Option<Identity>,
    /// The number of the journal's files.
    pub files: usize,
    /// The position at which reading began.
    pub from: Position,
    /// The position up to which the stream is complete.
    pub end: Position,
    /// Why the stream ends there, if more is known to have existed; or an unusable file that is not
    /// needed.
    pub damage: Option<JournalError>,
    /// The number of bytes after `end` that are known to have existed: a repair loses them. 0 if
    /// nothing is damaged.
    pub lost: u64,
}

/// A journal's files, with those whose headers are damaged listed separately.
struct Survey {
    links: Vec<Link>,
    /// Unusable files, with the positions in their names.
    bad: Vec<(String, Position, FileDamage)>,
    /// The store's identity and the runs, according to the newest valid checkpoint. `None` also if
    /// that checkpoint has read the journal beyond the position at which the journal continues from
    /// it.
    base: Option<(Identity, Runs)>,
}

impl Survey {
    /// Reads from the medium, not from what the page cache still holds.
    fn of(directory: &dyn Directory) -> Result<Self, JournalError> {
        settle(directory)?;
        let mut survey = Self {
            links: Vec::new(),
            bad: Vec::new(),
            base: None,
        };
        let mut usable = journal_names(directory)?;
        loop {
            let mut links = Vec::new();
            for name in &usable {
                match read_link(directory, name.clone()) {
                    Ok(link) => links.push(link),
                    Err(JournalError::Damaged(damage)) if !is_of_another_version(&damage) => {
                        survey.set_aside(damage);
                    }
                    Err(other) => return Err(other),
                }
            }
            match in_order(links) {
                Ok(links) => survey.links = links,
                Err(JournalError::Damaged(damage)) => survey.set_aside(damage),
                Err(other) => return Err(other),
            }
            let before = usable.len();
            usable.retain(|name| survey.bad.iter().all(|(bad, ..)| bad != name));
            if usable.len() == before {
                return Ok(survey);
            }
        }
    }

    fn set_aside(&mut self, damage: FileDamage) {
        let named = names::journal_position(&damage.file).unwrap_or_default();
        self.bad.push((damage.file.clone(), named, damage));
    }

    /// The latest runs that a journal file or a base file names.
    fn runs(&self) -> Option<&Runs> {
        let journal = self.links.last().map(|link| &link.header.runs);
        let base = self.base.as_ref().map(|(_, runs)| runs);
        journal.into_iter().chain(base).max_by_key(|r| r.number())
    }

    /// Reads from `from`, and reports what is there.
    fn report(
        &mut self,
        directory: &dyn Directory,
        from: Position,
    ) -> Result<Report, JournalError> {
        let mut report = Report {
            identity: match self.links.last() {
                Some(newest) => Some(newest.header.identity),
                None => self.base.as_ref().map(|(identity, _)| *identity),
            },
            files: self.links.len() + self.bad.len(),
            from,
            end: from,
            damage: None,
            lost: 0,
        };
        match Reader::of(directory, self.links.clone(), from) {
            Ok(mut reader) => {
                loop {
                    match reader.next() {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(error @ JournalError::Medium { .. }) => return Err(error),
                        Err(error) => {
                            report.damage = Some(error);
                            break;
                        }
                    }
                }
                report.end = reader.position();
            }
            Err(error @ JournalError::Medium { .. }) => return Err(error),
            Err(error) => report.damage = Some(error),
        }
        // When an unusable file was begun, everything before it was durable; its own content is
        // lost. It does not matter if it is older than the file that holds `from`.
        let links = self.links.iter().map(|link| link.header.first);
        let start = links.filter(|first| *first <= from).max();
        let matters = |at: &Position| start.is_none_or(|start| *at > start);
        let bad = self.bad.iter_mut().filter(|(_, at, _)| matters(at));
        let mut known = report.end;
        if let Some((file, at, damage)) = bad.min_by_key(|(_, at, _)| *at) {
            known = known.max(*at);
            let end = (*at).max(from);
            if report.damage.is_none() || end <= report.end {
                report.end = report.end.min(end);
                report.damage = Some(JournalError::Damaged(FileDamage {
                    file: file.clone(),
                    offset: damage.offset,
                    position: report.end,
                    flaw: std::mem::replace(&mut damage.flaw, Flaw::Header),
                }));
            }
        }
        // Even an unusable file that does not matter prevents opening the journal.
        if report.damage.is_none()
            && let Some((file, _, damage)) = self.bad.first_mut()
        {
            report.damage = Some(JournalError::Damaged(FileDamage {
                file: file.clone(),
                offset: damage.offset,
                position: report.end,
                flaw: std::mem::replace(&mut damage.flaw, Flaw::Header),
            }));
        }
        if report.damage.is_some() {
            for link in &self.links {
                known = known.max(known_end(directory, link).unwrap_or_default());
            }
            for (name, at, _) in &self.bad {
                let runs = self.runs().into_iter().flat_map(|runs| runs.latest());
                // A wrong run number cannot make a frame valid, so any candidate may be tried.
                let named = frame_reader::first_block(directory, name).unwrap_or_default();
                let runs = runs
                    .map(|run| run.id)
                    .chain(JournalHeader::runs_named_by(&named));
                let each = runs.filter_map(|run| known_end_of(directory, name, *at, run));
                known = known.max(each.max().unwrap_or_default());
            }
            report.lost = known.since(report.end);
        }
        Ok(report)
    }
}

/// Whether the file is only of another version, which another program can read.
fn is_of_another_version(damage: &FileDamage) -> bool {
    matches!(damage.flaw, Flaw::Version { .. })
}

/// The last position for which a file is valid, as far as it can be read.
fn known_end(directory: &dyn Directory, link: &Link) -> Option<Position> {
    let known = known_end_of(directory, &link.name, link.header.first, link.header.run())?;
    Some(link.cut.map_or(known, |cut| known.min(cut)))
}

/// The last position in a file of the given run that begins at the given position.
fn known_end_of(
    directory: &dyn Directory,
    name: &str,
    first: Position,
    run: u64,
) -> Option<Position> {
    let mut frames = FrameReader::of_run(directory.open(name).ok()?, name, run, first).ok()?;
    let mut known = first;
    while let Ok(Some(frame)) = frames.skip_to_frame() {
        known = known
            .max(frame.position.plus(frame.bytes.into()))
            .max(frame.durable);
    }
    Some(known)
}

/// Reads a whole journal, and reports whether it is complete, where it ends, and what a [`repair`]
/// would lose. Reads from `from`, or from the begin of the directory's newest checkpoint, because a
/// power loss during a removal may have left only some of the files before that. Without a
/// checkpoint it reads from the oldest file.
///
/// Nobody may write to the journal meanwhile.
///
/// # Errors
/// [`JournalError::Medium`]: the directory or a file cannot be opened. [`JournalError::Damaged`]
/// for a file of another version, which another program can read. Other damage is reported, not
/// returned as an error.
pub fn check(directory: &dyn Directory, from: Option<Position>) -> Result<Report, JournalError> {
    let mut survey = Survey::of(directory)?;
    let from = start_of(directory, &mut survey, from)?;
    survey.report(directory, from)
}

fn start_of(
    directory: &dyn Directory,
    survey: &mut Survey,
    from: Option<Position>,
) -> Result<Position, JournalError> {
    if let Some(from) = from {
        return Ok(from);
    }
    if let Some(newest) = newest_base(directory, survey)? {
        survey.base = newest.stands_alone;
        return Ok(newest.end);
    }
    let good = survey.links.iter().map(|link| link.header.first);
    let bad = survey.bad.iter().map(|(_, at, _)| *at);
    Ok(good.chain(bad).min().unwrap_or_default())
}

/// Information from the newest valid base file.
struct Newest {
    /// The position at which the stream continues from it.
    end: Position,
    /// The store and its runs, if it has read nothing of the stream after that position.
    stands_alone: Option<(Identity, Runs)>,
}

/// The newest valid base file. One is invalid if a later run begins before the position that it has
/// read, or if it belongs to a restore that died before its run began.
fn newest_base(directory: &dyn Directory, survey: &Survey) -> Result<Option<Newest>, JournalError> {
    let ours = survey.links.last().map(|link| &link.header.runs);
    let mut newest: Option<((u64, Option<Position>), Newest)> = None;
    for base in bases(directory)?.iter().filter(|base| base.kept.is_none()) {
        let begin = names::base_position(&base.file);
        let opened = BaseReader::open(directory, &base.file)
            .and_then(|reader| Ok((reader.read_ahead()?, reader)));
        let (age, found) = match &opened {
            Ok(((read, end), reader)) => {
                let theirs = reader.runs();
                let run = theirs.last().map_or(0, |run| run.id);
                let is_cut = ours.is_some_and(|ours| {
                    let is_known = ours.may_contain(theirs.number(), run);
                    let has_begun = is_known || !base.restored || !survey.bad.is_empty();
                    let cut = ours.cut_behind(theirs.number());
                    !has_begun || cut.is_some_and(|cut| *read > cut)
                });
                if is_cut {
                    continue;
                }
                let store = (reader.identity(), theirs.clone());
                let found = Newest {
                    end: *end,
                    stands_alone: (*read <= *end).then_some(store),
                };
                (theirs.number(), found)
            }
            // Nothing says that it is invalid.
            Err(_) => {
                let found = Newest {
                    end: begin.unwrap_or_default(),
                    stands_alone: None,
                };
                (u64::MAX, found)
            }
        };
        let age = (age, begin);
        if newest.as_ref().is_none_or(|(newest, _)| age > *newest) {
            newest = Some((age, found));
        }
    }
    Ok(newest.map(|(_, found)| found))
}

/// Cuts a damaged journal at the position where it stops being complete: begins a run there. Files
/// that are unusable or begin after that position are renamed with the suffix `.lost`; the rest is
/// unchanged. Does nothing to a journal that is not damaged.
///
/// The bytes that are lost were once reported durable. Call [`check`] first, and keep a copy.
///
/// # Errors
/// As [`check`] and [`Journal::open`].
pub fn repair(
    directory: &Arc<dyn Directory>,
    options: Options,
    from: Option<Position>,
) -> Result<Report, JournalError> {
    let mut survey = Survey::of(&**directory)?;
    let from = start_of(&**directory, &mut survey, from)?;
    let report = survey.report(&**directory, from)?;
    if report.damage.is_none() {
        return Ok(report);
    }
    fit(&options, &survey.links)?;
    let taken = directory.names().map_err(on("list", "the directory"))?;
    let set_aside = |name: &str| {
        let mut lost = name.to_owned() + names::LOST;
        // Files that an earlier repair has renamed are kept.
        while taken.contains(&lost) {
            lost += names::LOST;
        }
        directory.rename(name, &lost).map_err(on("rename", name))
    };
    // After a crash between these steps, the journal is damaged at the same position, or ends
    // there.
    let runs = survey.runs().cloned();
    for (name, ..) in &survey.bad {
        set_aside(name)?;
    }
    for link in survey
        .links
        .extract_if(.., |link| link.header.first >= report.end)
    {
        set_aside(&link.name)?;
    }
    directory.sync().map_err(on("sync", "the directory"))?;
    let runs = runs.unwrap_or_default();
    let (journal, _) =
        Journal::begin_run(directory.clone(), options, report.end, survey.links, &runs)?;
    journal.close()?;
    Ok(report)
}
