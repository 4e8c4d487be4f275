//! Going back to a backup.
//!
//! **A restore happens at one instant**: when the run begins that cuts the journal where the
//! backup ends. Before that the directory holds the present store, afterwards that of the backup.

use std::path::Path;
use std::sync::Arc;

use mneme_journal::{
    BaseName, BasePart, BaseReader, BaseWriter, Journal, Options, Position, Reader, Run, bases,
};
use mneme_shared::Registry;
use mneme_space::RemoveError;
use mneme_sys::medium::{Directory, FileDirectory};

use crate::DurableError;
use crate::directory::{LOCK, Opened, failed};
use crate::disk::mode_of;
use crate::options::{DurabilityMode, DurableOptions, Place, RecoveryProgress};
use crate::store::draw_run;
use crate::tree::Build;

impl DurableOptions {
    /// Goes back to the backup that is kept by this name: what was written since is given up. For
    /// a store that nobody has open.
    ///
    /// # Errors
    /// [`DurableError::InUse`]; there is no such backup, or it is damaged; the disk is full or
    /// fails. The store is then as it was.
    pub fn restore(&self, backup: &str) -> Result<(), DurableError> {
        let opened = Opened::of(self)?;
        self.restore_in(&opened, &*opened.directory, backup)
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
        self.check(&*opened.directory, backup)?;
        match registry.remove_segment(name) {
            Ok(()) | Err(RemoveError::NotFound { .. }) => {}
            Err(refused) => return Err(refused.into()),
        }
        mneme_sys::fault!("durable.restore.removed");
        self.restore_in(&opened, &*opened.directory, backup)
    }

    /// Makes a store of a backup that lies in another directory. No segment is paired with it: the
    /// next [`serve`](Self::serve) needs a name that no segment has.
    ///
    /// # Errors
    /// [`DurableError::NotEmpty`]; otherwise as [`restore`](Self::restore).
    pub fn restore_from(&self, elsewhere: &Path, backup: &str) -> Result<(), DurableError> {
        let from = FileDirectory::open_unlocked(elsewhere).map_err(DurableError::Directory)?;
        // Before the directory is made.
        self.check(&from, backup)?;
        let opened = Opened::of(self)?;
        let names = opened.directory.names();
        let names = names.map_err(failed("list", "the directory"))?;
        if let (true, Place::Path(path)) = (names.iter().any(|name| name != LOCK), &self.place) {
            let path = path.clone();
            return Err(DurableError::NotEmpty { path });
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
        // Of the run that is about to begin: it counts from then on, and whatever has cut the
        // backup's own run cuts it no more.
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
        // Those of other runs count no more.
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

    /// Reads a backup from end to end; it, from its begin.
    fn check(&self, directory: &dyn Directory, backup: &str) -> Result<BaseReader, DurableError> {
        let known = bases(directory)?;
        if !known
            .iter()
            .any(|base| base.kept.as_deref() == Some(backup))
        {
            let name = backup.to_owned();
            return Err(DurableError::NoBackup { name });
        }
        let file = file(backup);
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

/// The file of a backup.
fn file(backup: &str) -> String {
    format!("{backup}.backup")
}
