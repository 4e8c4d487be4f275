//! Returns a store to a backup.
//!
//! **A restore happens at one instant**: when the run begins that cuts the journal at the end of
//! the backup. Before that the directory holds the present store, afterwards that of the backup.

use std::path::Path;
use std::sync::Arc;

use mneme_journal::{
    BaseName, BasePart, BaseReader, BaseWriter, Identity, Journal, Options, Position, Reader, Run,
    bases,
};
use mneme_log::{Life, Process};
use mneme_shared::{AttachError, Registry, SharedStore};
use mneme_space::{OpenError, RemoveError};
use mneme_sys::medium::{Directory, FileDirectory};

use crate::DurableError;
use crate::directory::{Opened, failed};
use crate::disk::{Disk, is_of_store, mode_of};
use crate::options::{DurabilityMode, DurableOptions, RecoveryProgress, StorePlace};
use crate::pairing::{Note, Unpaired};
use crate::store::draw_run;
use crate::tree::Build;

/// The part of a segment's name that marks it as set aside for a restore.
const REPLACED: &str = "replaced";

impl DurableOptions {
    /// Returns to the backup kept under this name; everything written since is discarded. No
    /// process may have the store open.
    ///
    /// # Errors
    /// [`DurableError::InUse`]; the backup does not exist, is damaged, or is of another store; the
    /// disk is full or fails. The store is then unchanged.
    pub fn restore(&self, backup: &str) -> Result<(), DurableError> {
        let opened = Opened::of(self)?;
        self.identity(&opened, backup)?;
        self.restore_in(&opened, &*opened.directory, backup)
    }

    /// As [`restore`](Self::restore), for a server's store: sets its segment aside, so that the
    /// next [`serve`](Self::serve) rebuilds it. Returns the new name of the segment; `None`: there
    /// was none.
    ///
    /// Also [`DurableError::OtherSegment`] and [`DurableError::UnknownSegment`], if the segment is
    /// not this directory's, and [`DurableError::Remove`], while a process has it attached: nothing
    /// has changed then. [`DurableError::SetAside`]: the directory has returned to the backup, but
    /// the segment could not be set aside.
    pub fn restore_segment(
        &self,
        registry: &Registry,
        name: &str,
        backup: &str,
    ) -> Result<Option<String>, DurableError> {
        let opened = Opened::of(self)?;
        let own = self.identity(&opened, backup)?;
        let is_there = is_replaced(registry, name, own)?;
        // Before the segment is touched: if this fails or dies, the two still belong together. If
        // it dies later, the next `serve` reports that they no longer do.
        self.restore_in(&opened, &*opened.directory, backup)?;
        mneme_sys::fault!("durable.restore.done");
        if !is_there {
            return Ok(None);
        }
        let aside = registry.set_segment_aside(name, REPLACED);
        aside.map(Some).map_err(|source| DurableError::SetAside {
            name: name.to_owned(),
            source,
        })
    }

    /// The identity of the store in that backup. If the identity of the directory's store can be
    /// read, the two must be equal.
    fn identity(&self, opened: &Opened, backup: &str) -> Result<Identity, DurableError> {
        let directory = &*opened.directory;
        let kept = BaseReader::open(directory, &existing(directory, backup)?)?.identity();
        let mode = mode_of(directory)?.unwrap_or(self.mode);
        let present = Disk::open(opened, mode).and_then(|disk| disk.journaled(directory));
        match present {
            Ok(Some(found)) if found.identity != kept => Err(DurableError::OtherBackup {
                name: backup.to_owned(),
            }),
            _ => Ok(kept),
        }
    }

    /// Makes a store from a backup that lies in another directory. No segment is paired with it:
    /// the next [`serve`](Self::serve) needs a name that no segment has. The directory may contain
    /// files that belong to no store.
    ///
    /// # Errors
    /// [`DurableError::NotEmpty`]; otherwise as [`restore`](Self::restore).
    pub fn restore_from(&self, elsewhere: &Path, backup: &str) -> Result<(), DurableError> {
        let from = FileDirectory::open_unlocked(elsewhere).map_err(DurableError::Directory)?;
        // Checked before the directory is created.
        self.check(&from, backup)?;
        let opened = Opened::of(self)?;
        let names = opened.directory.names();
        let names = names.map_err(failed("list", "the directory"))?;
        if let (Some(file), StorePlace::Path(path)) = (
            names.into_iter().find(|name| is_of_store(name)),
            &self.place,
        ) {
            let path = path.clone();
            return Err(DurableError::NotEmpty { path, file });
        }
        self.restore_in(&opened, &from, backup)
    }

    fn restore_in(
        &self,
        opened: &Opened,
        from: &dyn Directory,
        backup: &str,
    ) -> Result<(), DurableError> {
        let directory = &*opened.directory;
        if mode_of(directory)?.unwrap_or(self.mode) == DurabilityMode::Tree {
            return self.restore_tree(opened, from, backup);
        }
        let mut base = self.check(from, backup)?;
        let (read, end) = base.read_ahead()?;
        let nowhere = Position::new(0);
        let present = Reader::between(directory, nowhere, nowhere)?;
        let run = Run {
            id: draw_run()?,
            first: end,
        };
        let options = Options {
            replaces: true,
            run: Some(run.id),
            ..self.journal_options(base.identity(), 0)
        };
        // The copy belongs to the run that is about to begin, so it counts from then on, and
        // nothing that cut the backup's own run applies to it.
        let mut copy = BaseWriter::begin_beside(
            &options,
            &present.runs().and(run),
            Arc::clone(&opened.directory),
            &BaseName::Restored(run.id),
            base.begin(),
        )?;
        while let Some(part) = base.next()? {
            match part {
                BasePart::Records { at, bytes } => copy.append(at, bytes)?,
                BasePart::Suffix { position, bytes } => copy.append_suffix(position, bytes)?,
            }
        }
        copy.publish(read, read)?;
        mneme_sys::fault!("durable.restore.copied");
        drop(Journal::open(Arc::clone(&opened.directory), options, end)?);
        mneme_sys::fault!("durable.restore.begun");
        // Base files of other runs no longer count.
        for other in bases(directory)?.iter().filter(|base| base.kept.is_none()) {
            let reader = BaseReader::open(directory, &other.file)?;
            if reader.runs().last() != Some(run) {
                let removed = directory.remove(&other.file);
                removed.map_err(failed("remove", &other.file))?;
            }
        }
        directory.sync().map_err(failed("sync", "the directory"))
    }

    /// As [`restore_in`](Self::restore_in), to a tree.
    fn restore_tree(
        &self,
        opened: &Opened,
        from: &dyn Directory,
        backup: &str,
    ) -> Result<(), DurableError> {
        let mut base = self.check(from, backup)?;
        let (_, end) = base.read_ahead()?;
        let mut build = Build::begin(opened, base.identity(), draw_run()?, &self.clock)?;
        while let Some(part) = base.next()? {
            match part {
                BasePart::Records { bytes, .. } => build.bytes(0, bytes)?,
                BasePart::Suffix { position, bytes } => build.bytes(position.get(), bytes)?,
            }
        }
        Ok(build.publish(end.get())?.into_store().close()?)
    }

    /// Reads a backup from end to end. Returns a reader at its begin.
    fn check(&self, directory: &dyn Directory, backup: &str) -> Result<BaseReader, DurableError> {
        let file = existing(directory, backup)?;
        let len = directory.open(&file).and_then(|file| file.len());
        let mut progress = RecoveryProgress {
            total: len.map_err(failed("look at", &file))?,
            ..RecoveryProgress::default()
        };
        let mut base = BaseReader::open(directory, &file)?;
        while let Some(part) = base.next()? {
            progress.done += match part {
                BasePart::Records { bytes, .. } | BasePart::Suffix { bytes, .. } => {
                    bytes.len() as u64
                }
            };
            if let Some(listener) = &self.progress
                && listener(progress).is_break()
            {
                return Err(DurableError::Stopped);
            }
        }
        Ok(BaseReader::open(directory, &file)?)
    }
}

/// Whether a segment of that name exists, holds this directory's store, and is unused.
fn is_replaced(registry: &Registry, name: &str, own: Identity) -> Result<bool, DurableError> {
    let store = match SharedStore::administer(registry, name) {
        Ok(store) => store,
        Err(AttachError::Segment(OpenError::NotFound { .. } | OpenError::DataGone { .. })) => {
            return Ok(false);
        }
        Err(source) => {
            let (name, source) = (name.to_owned(), Box::new(source));
            return Err(DurableError::UnknownSegment { name, source });
        }
    };
    let is_other = |process: &Process| !process.is_asker && process.life == Life::Alive;
    if store.processes().iter().any(is_other) {
        let name = name.to_owned();
        return Err(RemoveError::InUse { name }.into());
    }
    let note = store.salvage_feed().map(|feed| Note::of_words(feed.note));
    let whose = match note.filter(|note| !note.is_blank()) {
        Some(note) if note.identity() == own => return Ok(true),
        Some(_) => Unpaired::Stores,
        None => Unpaired::Stranger,
    };
    let name = name.to_owned();
    Err(DurableError::OtherSegment { name, whose })
}

/// The file of a backup; it must exist.
fn existing(directory: &dyn Directory, backup: &str) -> Result<String, DurableError> {
    let known = bases(directory)?;
    if !known
        .iter()
        .any(|base| base.kept.as_deref() == Some(backup))
    {
        let name = backup.to_owned();
        return Err(DurableError::NoBackup { name });
    }
    Ok(file(backup))
}

/// The file of a backup.
fn file(backup: &str) -> String {
    format!("{backup}.backup")
}

/// Refuses to create an empty store in a directory that holds backups: its next backup of the same
/// name would replace what may be the last copy of a store.
pub(crate) fn refuse_beside_backups(opened: &Opened) -> Result<(), DurableError> {
    let directory = &*opened.directory;
    let kept = bases(directory)?.into_iter().filter_map(|base| base.kept);
    let newest = kept.max_by_key(|name| {
        // A backup that cannot be read does not count.
        let read = BaseReader::open(directory, &file(name));
        read.map_or(0, |backup| backup.wall_ms())
    });
    match newest {
        None => Ok(()),
        Some(backup) => Err(DurableError::BackupsAlone {
            path: opened.path().to_owned(),
            backup,
        }),
    }
}
