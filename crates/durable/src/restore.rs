//! Going back to a backup.
//!
//! **A restore happens at one instant**: when the run begins that cuts the journal where the
//! backup ends. Before that the directory holds the present store, afterwards that of the backup.

use std::sync::Arc;

use mneme_journal::{BaseReader, Journal, JournalError, Options, bases};
use mneme_shared::Registry;
use mneme_space::RemoveError;
use mneme_sys::medium::{Directory, MediumError};

use crate::DurableError;
use crate::directory::Opened;
use crate::options::DurableOptions;

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;

impl DurableOptions {
    /// Goes back to the backup that is kept by this name: what was written since is given up. For
    /// a store that nobody has open.
    ///
    /// # Errors
    /// [`DurableError::InUse`]; there is no such backup, or it is damaged; the disk is full or
    /// fails. The store is then as it was.
    pub fn restore(&self, backup: &str) -> Result<(), DurableError> {
        self.restore_in(&Opened::of(self)?, backup)
    }

    /// As [`restore`](Self::restore), for a server's store: its segment is removed, so that the
    /// next [`serve`](Self::serve) rebuilds it.
    ///
    /// # Errors
    /// Also [`DurableError::Remove`], while a process has the segment attached.
    pub fn restore_segment(
        &self,
        registry: &Registry,
        name: &str,
        backup: &str,
    ) -> Result<(), DurableError> {
        let opened = Opened::of(self)?;
        check(&*opened.directory, backup)?;
        match registry.remove_segment(name) {
            Ok(()) | Err(RemoveError::NotFound { .. }) => {}
            Err(refused) => return Err(refused.into()),
        }
        mneme_sys::fault!("durable.restore.removed");
        self.restore_in(&opened, backup)
    }

    fn restore_in(&self, opened: &Opened, backup: &str) -> Result<(), DurableError> {
        let directory = &*opened.directory;
        let base = check(directory, backup)?;
        copy(
            directory,
            &file(backup),
            &format!("{:020}.base", base.begin().get()),
        )?;
        mneme_sys::fault!("durable.restore.copied");
        let options = Options {
            replaces: true,
            ..self.journal_options(base.identity(), 0)
        };
        let end = base.suffix_end();
        drop(Journal::open(Arc::clone(&opened.directory), options, end)?);
        mneme_sys::fault!("durable.restore.begun");
        // They have read what is given up, and count no more.
        for later in bases(directory)?.iter().filter(|base| base.kept.is_none()) {
            if BaseReader::open(directory, &later.file)?.begin() > base.begin() {
                let removed = directory.remove(&later.file);
                removed.map_err(failed("remove", &later.file))?;
            }
        }
        directory.sync().map_err(failed("sync", "the directory"))
    }
}

/// The file of a backup.
fn file(backup: &str) -> String {
    format!("{backup}.backup")
}

/// Reads a backup from end to end.
fn check(directory: &dyn Directory, backup: &str) -> Result<BaseReader, DurableError> {
    let known = bases(directory)?;
    if !known
        .iter()
        .any(|base| base.kept.as_deref() == Some(backup))
    {
        let name = backup.to_owned();
        return Err(DurableError::NoBackup { name });
    }
    let mut base = BaseReader::open(directory, &file(backup))?;
    while base.next()?.is_some() {}
    Ok(base)
}

fn failed<'a>(what: &'static str, file: &'a str) -> impl FnOnce(MediumError) -> DurableError + 'a {
    move |source| {
        let file = file.to_owned();
        JournalError::Medium { what, file, source }.into()
    }
}

/// Copies a file, whole or not at all.
fn copy(directory: &dyn Directory, from: &str, to: &str) -> Result<(), DurableError> {
    let unfinished = format!("{to}.new");
    let names = directory.names().map_err(failed("list", "the directory"))?;
    if names.contains(&unfinished) {
        directory
            .remove(&unfinished)
            .map_err(failed("remove", &unfinished))?;
    }
    let source = directory.open(from).map_err(failed("open", from))?;
    let target = directory
        .create(&unfinished)
        .map_err(failed("make", &unfinished))?;
    let len = source.len().map_err(failed("look at", from))?;
    let (mut at, mut piece) = (0, vec![0; PIECE]);
    while at < len {
        let some = &mut piece[..(len - at).min(PIECE as u64) as usize];
        source.read(at, some).map_err(failed("read", from))?;
        target
            .write(at, some)
            .map_err(failed("write to", &unfinished))?;
        at += some.len() as u64;
    }
    target.sync().map_err(failed("sync", &unfinished))?;
    directory
        .rename(&unfinished, to)
        .map_err(failed("rename", &unfinished))?;
    directory.sync().map_err(failed("sync", "the directory"))
}
