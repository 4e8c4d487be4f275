//! Looking at a whole journal, and cutting one at a damaged place.

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

/// What a journal holds, and what a repair would lose.
#[derive(Debug)]
pub struct Report {
    /// The store that it belongs to, as its files tell, or a checkpoint that stands without them.
    /// `None`: nothing tells, and there is nothing that a repair could begin from.
    pub identity: Option<Identity>,
    /// Files of the journal.
    pub files: usize,
    /// Where reading began.
    pub from: Position,
    /// The stream is whole from there up to here.
    pub end: Position,
    /// Why it is not whole behind, if something is known to have been there; or which file cannot
    /// be used, though nothing of it is needed.
    pub damage: Option<JournalError>,
    /// Bytes behind `end` that are known to have been there: a repair loses them. 0 if nothing is
    /// damaged.
    pub lost: u64,
}

/// A journal's files, those with a damaged header apart.
struct Survey {
    links: Vec<Link>,
    /// Files that cannot be used, with the positions that their names tell.
    bad: Vec<(String, Position, FileDamage)>,
    /// The store and the runs of the newest checkpoint that counts, if it has read nothing of the
    /// journal behind the place where that goes on.
    base: Option<(Identity, Runs)>,
}

impl Survey {
    /// What the medium holds, not what the page cache has left of it.
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

    /// The latest runs that a file or a base file names.
    fn runs(&self) -> Option<&Runs> {
        let journal = self.links.last().map(|link| &link.header.runs);
        let base = self.base.as_ref().map(|(_, runs)| runs);
        journal.into_iter().chain(base).max_by_key(|r| r.number())
    }

    /// Reads from `from`, and says what is there.
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
        // A file that cannot be used was begun when everything before it was durable, and what it
        // held is lost. It does not matter if it is older than the file that holds `from`.
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
        // One that does not matter keeps the journal from being opened all the same.
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
                // A wrong number makes no frame a whole one.
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

/// Whether another program can read the file.
fn is_of_another_version(damage: &FileDamage) -> bool {
    matches!(damage.flaw, Flaw::Version { .. })
}

/// The farthest position that a file counts for, as far as it can be read.
fn known_end(directory: &dyn Directory, link: &Link) -> Option<Position> {
    let known = known_end_of(directory, &link.name, link.header.first, link.header.run())?;
    Some(link.cut.map_or(known, |cut| known.min(cut)))
}

/// The farthest position in a file of that run which begins there.
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

/// Reads a whole journal, and says whether it is whole, where it ends, and what a [`repair`] would
/// lose. It reads from `from`, or from where the newest checkpoint of the directory begins, for a
/// power cut in a removal may have left some of the files before that and not others. Without a
/// checkpoint it reads from the oldest file.
///
/// Nobody may write meanwhile.
///
/// # Errors
/// [`JournalError::Medium`]: the directory or a file cannot be opened. [`JournalError::Damaged`]
/// for a file of another version, which another program can read. Other damage is no error here.
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

/// What the newest base file that counts tells.
struct Newest {
    /// Where the stream goes on from it.
    end: Position,
    /// The store and its runs, if it has read nothing of the stream behind that.
    stands_alone: Option<(Identity, Runs)>,
}

/// The newest base file that counts. One does not if a later run begins before what it has read, or
/// if it belongs to a restore that died before its run began.
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
            // Nothing tells that it does not count.
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

/// Cuts a damaged journal where it stops being whole: begins a run there. Files that cannot be used
/// or that begin behind it get `.lost` behind their names; the rest is left as it is. Does nothing
/// to a journal that is not damaged.
///
/// What is lost was reported durable once. Look at [`check`] first, and keep a copy.
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
        // What an earlier repair has put aside stays.
        while taken.contains(&lost) {
            lost += names::LOST;
        }
        directory.rename(name, &lost).map_err(on("rename", name))
    };
    // A crash between these leaves a journal that is damaged at the same place, or ends there.
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
