//! The files of a journal in the order in which they were begun, and the part of the stream for
//! which each is valid.

use mneme_sys::fault::without;
use mneme_sys::medium::Directory;

use crate::error::{FileDamage, Flaw, on};
use crate::frame_reader;
use crate::header::{FileKind, JournalHeader};
use crate::{JournalError, Position, names};

/// One file, and the part of the stream for which it is valid.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) header: JournalHeader,
    /// Where the data in later files begin, at which this file's validity ends. `None` if no later
    /// file follows.
    pub(crate) cut: Option<Position>,
}

impl Link {
    /// Whether later files have replaced all of it.
    pub(crate) fn is_replaced(&self) -> bool {
        self.cut.is_some_and(|cut| cut <= self.header.first)
    }
}

/// The names of the journal's files, ordered by position.
pub(crate) fn journal_names(directory: &dyn Directory) -> Result<Vec<String>, JournalError> {
    let mut found = directory.names().map_err(on("list", "the directory"))?;
    found.retain(|name| names::journal_position(name).is_some());
    found.sort();
    Ok(found)
}

/// Reads the header of every file and puts them in order.
pub(crate) fn scan(directory: &dyn Directory) -> Result<Vec<Link>, JournalError> {
    let mut links = Vec::new();
    for name in journal_names(directory)? {
        links.push(read_link(directory, name)?);
    }
    in_order(links)
}

/// Reads the header of one file.
pub(crate) fn read_link(directory: &dyn Directory, name: String) -> Result<Link, JournalError> {
    let named = names::journal_position(&name).unwrap_or_default();
    let (_, header) = frame_reader::open(directory, &name, FileKind::Journal, named)?;
    if header.first != named {
        let header = header.first;
        return Err(damaged(&name, named, Flaw::Name { header }));
    }
    let cut = None;
    Ok(Link { name, header, cut })
}

fn damaged(file: &str, position: Position, flaw: Flaw) -> JournalError {
    let file = file.to_owned();
    JournalError::Damaged(FileDamage {
        file,
        offset: 0,
        position,
        flaw,
    })
}

/// Orders files by run and position, and determines the part for which each is valid.
pub(crate) fn in_order(mut links: Vec<Link>) -> Result<Vec<Link>, JournalError> {
    links.sort_by_key(|link| (link.header.runs.number(), link.header.first));
    let Some(newest) = links.last().cloned() else {
        return Ok(links);
    };
    let mut cut: Option<Position> = None;
    for link in links.iter_mut().rev() {
        let JournalHeader {
            identity,
            runs,
            first,
            ..
        } = &link.header;
        let by = newest.name.clone();
        if identity.uuid != newest.header.identity.uuid {
            return Err(damaged(&link.name, *first, Flaw::Store { newest: by }));
        }
        if !newest
            .header
            .runs
            .may_contain(runs.number(), link.header.run())
        {
            return Err(damaged(&link.name, *first, Flaw::Run { newest: by }));
        }
        // A later run cuts older ones even if no file of it is left.
        let by_run = newest.header.runs.cut_behind(runs.number());
        link.cut = cut.into_iter().chain(by_run).min();
        if without("read.cut") {
            link.cut = None;
        }
        cut = cut.into_iter().chain([*first]).min();
    }
    Ok(links)
}
