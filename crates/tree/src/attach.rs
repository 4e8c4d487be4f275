//! Which processes have a file open, and where they meet.
//!
//! **One process writes a file at a time, and every process that has it open shares one control
//! region with all others, or is refused.** The locks lie on the data file, so they work between
//! containers that share nothing else; the kernel releases those of dead processes. The control
//! region lies in `/dev/shm`, under a name made of the file's device, number and identity. While a
//! process opens or closes the file it holds the byte `OPENING`, so that no process joins a region
//! that is being made or removed. A process that finds no other process attached makes the region
//! anew.
//!
//! A user who may read the file knows that name, and may occupy it in `/dev/shm` with something
//! that only that user can remove. The region then gets a longer name, which cannot be predicted,
//! and is found by its first part.
//!
//! Dropping an attachment unlocks the file instead of closing it. A child process that another
//! thread is just starting has a copy of every descriptor until it executes its program; a mere
//! close would leave the file locked until then.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mneme_sync::Participants;
use mneme_sys::medium::MediumError;
use mneme_sys::{
    Access, Clock as _, Liveness, LivenessError, OfdLiveness, PagePolicy, Region, SharedByte,
    SystemClock, files,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::StoreError;
use crate::control_region::{OWN_BYTES, SharedControl, WRITER_PID, control_options};
use crate::error::os;
use crate::layout::FileHeader;

/// The offset of the locks: beyond the end of any file.
const LOCKS: u64 = 1 << 62;
/// Held by a process that opens or closes the file.
const OPENING: u32 = 0;
/// Held by the process that writes.
const WRITER: u32 = 1;
/// Shared by all processes that read.
const READER: u32 = 2;

/// How long an opening waits for another one.
const OPENING_TIMEOUT: Duration = Duration::from_secs(60);

/// A file that this process has open, and its locks on it.
#[derive(Debug)]
pub(crate) struct TreeAttachment {
    pub(crate) file: File,
    path: PathBuf,
    locks: OfdLiveness,
    reader: Option<SharedByte>,
    /// Another process has the file open.
    pub(crate) has_others: bool,
    is_opening: bool,
    control: Option<PathBuf>,
}

impl TreeAttachment {
    /// Opens a file and locks it for writing or reading. An opening for writing waits up to `wait`
    /// for another writer. No other process opens or closes the file until
    /// [`opened`](Self::opened).
    pub(crate) fn take(path: &Path, reads: bool, wait: Duration) -> Result<Self, StoreError> {
        loop {
            let attachment = Self::take_found(path, reads, wait)?;
            // The name may belong to another file by now.
            if attachment.has_name()? {
                return Ok(attachment);
            }
        }
    }

    /// Whether the path leads to this file.
    fn has_name(&self) -> Result<bool, StoreError> {
        let named = self
            .path
            .metadata()
            .map_err(os("look for the store's file"))?;
        let own = self
            .file
            .metadata()
            .map_err(os("examine the store's file"))?;
        Ok((named.dev(), named.ino()) == (own.dev(), own.ino()))
    }

    /// The file's permissions.
    pub(crate) fn mode(&self) -> Result<u32, StoreError> {
        let found = self.file.metadata();
        Ok(found.map_err(os("examine the store's file"))?.mode())
    }

    fn take_found(path: &Path, reads: bool, wait: Duration) -> Result<Self, StoreError> {
        let opened = OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(os("open the store's file"))?;
        let locks = OfdLiveness::reopen(file.as_fd(), LOCKS)?;
        let mut attachment = Self {
            file,
            path: path.to_owned(),
            locks,
            reader: None,
            has_others: false,
            is_opening: false,
            control: None,
        };
        let begun = now();
        loop {
            attachment.until(
                begun.saturating_add(wait).saturating_add(OPENING_TIMEOUT),
                OPENING,
            )?;
            attachment.is_opening = true;
            if reads {
                let locks = &attachment.locks;
                attachment.has_others = locks.is_alive(WRITER) || locks.is_alive(READER);
                let byte = LOCKS + u64::from(READER);
                attachment.reader = Some(SharedByte::take(&attachment.file, byte)?);
                return Ok(attachment);
            }
            if attachment.take_byte(WRITER)? {
                attachment.has_others = attachment.locks.is_alive(READER);
                return Ok(attachment);
            }
            if now() >= begun.saturating_add(wait) {
                return Err(attachment.locked());
            }
            // Others may open and close the file meanwhile.
            attachment.opened();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn take_byte(&self, index: u32) -> Result<bool, StoreError> {
        let taken = self.locks.try_take(index)?;
        Ok(taken.map(|taken| taken.keep()).is_some())
    }

    fn until(&self, end: Duration, index: u32) -> Result<(), StoreError> {
        while !self.take_byte(index)? {
            if now() >= end {
                return Err(self.locked());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// The error if another process writes the file, or has been opening it for too long.
    fn locked(&self) -> StoreError {
        StoreError::Locked {
            path: self.path.clone(),
            pid: self.writer().filter(|pid| *pid != 0),
        }
    }

    /// The process that writes the file, according to the control region.
    fn writer(&self) -> Option<u32> {
        let mut header = FileHeader::new_zeroed();
        self.file.read_exact_at(header.as_mut_bytes(), 0).ok()?;
        header.check().ok()?;
        let own = control_options(header.uuid).region_len() as u64;
        let pid_in = |control: &PathBuf| {
            let control = open_region(control, &self.file).ok()?;
            let mut pid = [0; 8];
            control.read_exact_at(&mut pid, own + WRITER_PID).ok()?;
            u32::try_from(u64::from_le_bytes(pid)).ok()
        };
        places(&self.control_path(header.instance).ok()?)
            .iter()
            .find_map(pid_in)
    }

    /// The path of the control region, unless another user has taken that name.
    fn control_path(&self, instance: [u8; 16]) -> Result<PathBuf, StoreError> {
        let found = self.file.metadata();
        let found = found.map_err(os("examine the store's file"))?;
        let instance = u128::from_be_bytes(instance);
        let name = format!(
            "mneme-tree-{:x}-{:x}-{instance:032x}",
            found.dev(),
            found.ino()
        );
        Ok(Path::new(files::SHARED_MEMORY).join(name))
    }

    /// Joins the control region of the processes that have the file open, or makes it, for a store
    /// with this identity. `None`: those processes have closed the file in the meantime.
    pub(crate) fn share(
        &mut self,
        uuid: [u8; 16],
        instance: [u8; 16],
    ) -> Result<Option<SharedControl>, StoreError> {
        mneme_sys::fault!("tree.share.found");
        let path = self.control_path(instance)?;
        let (control, shared) = if self.has_others {
            match join_any(&path, uuid, &self.file) {
                Err((_, JoinError::Empty)) if !self.others_remain() => return Ok(None),
                joined => joined.map_err(|(region, source)| StoreError::Elsewhere {
                    path: self.path.clone(),
                    region,
                    source,
                })?,
            }
        } else {
            make(&path, uuid, &self.file)?
        };
        self.control = Some(control);
        Ok(Some(shared))
    }

    /// Whether other processes still have the file open. A process that closes it leaves the
    /// control region only after unlocking the file, and none can open it meanwhile, because this
    /// process holds `OPENING`.
    fn others_remain(&mut self) -> bool {
        // Released first, because the check would see this process' own lock too.
        let reads = self.reader.take().is_some();
        (reads && self.locks.is_alive(WRITER)) || self.locks.is_alive(READER)
    }

    /// Allows others to open the file.
    pub(crate) fn opened(&mut self) {
        self.locks.release(OPENING);
        self.is_opening = false;
    }
}

/// The machine's clock.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(SystemClock.now_ns())
}

impl Drop for TreeAttachment {
    fn drop(&mut self) {
        self.reader = None;
        self.locks.release(WRITER);
        // While another process opens the file, the region stays: that process may have joined it.
        let alone = self.is_opening || self.take_byte(OPENING).unwrap_or(false);
        if alone
            && let Some(control) = &self.control
            && !self.locks.is_alive(WRITER)
            && !self.locks.is_alive(READER)
        {
            let _ = std::fs::remove_file(control);
        }
        self.locks.release(OPENING);
    }
}

/// The paths at which a control region named `path` may lie: that path, and each longer name.
fn places(path: &Path) -> Vec<PathBuf> {
    let mut places = vec![path.to_owned()];
    let begin = path.file_name().and_then(|name| name.to_str());
    if let (Some(begin), Some(listed)) = (begin, path.parent().and_then(|at| at.read_dir().ok())) {
        let entries = listed.filter_map(Result::ok);
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let is_longer = |name: &String| {
            let rest = name.strip_prefix(begin);
            rest.is_some_and(|rest| rest.starts_with('-'))
        };
        places.extend(
            names
                .filter(is_longer)
                .map(|name| path.with_file_name(name)),
        );
    }
    places
}

/// A longer name, which no other user can predict.
fn longer(path: &Path) -> Result<PathBuf, StoreError> {
    let mut number = [0; 8];
    mneme_sys::random_bytes(&mut number).map_err(os("find a random number"))?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!("-{:016x}", u64::from_le_bytes(number)));
    Ok(name.into())
}

/// Makes a control region named `path` or a longer name. Returns its path.
fn make(path: &Path, uuid: [u8; 16], data: &File) -> Result<(PathBuf, SharedControl), StoreError> {
    // Remains of killed processes. Another user's region stays: it blocks nothing.
    for left in &places(path)[1..] {
        let _ = std::fs::remove_file(left);
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            // It belongs to another user, who alone may remove it.
            let left = open_region(path, data).map_err(|_| ());
            if let Ok(shared) = left.and_then(|left| fill(&left, uuid, false).map_err(|_| ())) {
                return Ok((path.to_owned(), shared));
            }
        }
        _ => {
            if let Some(shared) = make_at(path, uuid, data)? {
                return Ok((path.to_owned(), shared));
            }
        }
    }
    let path = longer(path)?;
    match make_at(&path, uuid, data)? {
        Some(shared) => Ok((path, shared)),
        None => Err(not_made(&path)(ErrorKind::AlreadyExists.into())),
    }
}

/// Makes a control region with exactly that name. `None`: the name is taken.
fn make_at(path: &Path, uuid: [u8; 16], data: &File) -> Result<Option<SharedControl>, StoreError> {
    let like = data.metadata().map_err(os("examine the store's file"))?;
    let made = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let file = match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(None),
        made => made.map_err(not_made(path))?,
    };
    let made = fill(&file, uuid, true).and_then(|shared| {
        admit(&file, &like).map_err(os("set the mode of a control region"))?;
        Ok(Some(shared))
    });
    if made.is_err() {
        let _ = std::fs::remove_file(path);
    }
    made.map_err(|error| match error {
        StoreError::Medium(source) => not_made_for(path)(source),
        other => other,
    })
}

/// The error if a control region cannot be made, for example for lack of memory.
fn not_made_for(path: &Path) -> impl FnOnce(MediumError) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::ControlRegion { path, source }
}

/// As [`not_made_for`], for an error of the kernel.
fn not_made(path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let what = "make the file";
    let failed = not_made_for(path);
    move |source| failed(MediumError::Os { what, source })
}

/// Makes a control region in a file that is new or was left by dead processes.
fn fill(file: &File, uuid: [u8; 16], is_new: bool) -> Result<SharedControl, StoreError> {
    let options = control_options(uuid);
    let len = options.region_len() + OWN_BYTES;
    let descriptor = file.try_clone();
    let descriptor = descriptor.map_err(os("duplicate a descriptor"))?;
    let found = file.metadata().map_err(os("examine a control region"))?;
    let max = len.max(found.len() as usize);
    // Allocated in full: in a full /dev/shm a process that touches a hole is killed.
    let region = Region::map(descriptor.into(), Access::ReadWrite, max, PagePolicy::Small);
    let region = region.map_err(MediumError::Region)?;
    region.grow(len).map_err(MediumError::Region)?;
    region.dont_fork().map_err(MediumError::Region)?;
    let liveness = Arc::new(OfdLiveness::reopen(file.as_fd(), LOCKS)?);
    let participants = Participants::create(region, options, liveness)?;
    if !is_new {
        let at = participants.end();
        let own = participants.region().slice_at(at, OWN_BYTES / 8);
        for word in own.map_err(MediumError::Region)? {
            AtomicU64::store(word, 0, Ordering::Relaxed);
        }
    }
    Ok(SharedControl::of(participants).map_err(MediumError::Region)?)
}

/// A user that may write the data may take part. A user that may only read them gets no access, and
/// so cannot hold a lock that keeps others out.
fn admit(file: &File, like: &Metadata) -> std::io::Result<()> {
    let writers = like.mode() & 0o222;
    let mode = writers | writers << 1;
    let mode = match fchown(file, None, Some(like.gid())) {
        Ok(()) => mode,
        // This user cannot give the file that group: the user's own group gets what everyone may
        // do.
        Err(_) => mode & 0o606 | (mode & 0o006) << 3,
    };
    file.set_permissions(Permissions::from_mode(mode))
}

/// Opens an existing control region, if its owner is a user that may have made it.
fn open_region(path: &Path, data: &File) -> Result<File, JoinError> {
    let file = files::open_plain(path, OpenOptions::new().read(true).write(true))?;
    let (found, data) = (file.metadata()?, data.metadata()?);
    let trusted = [files::user(), 0, data.uid()].contains(&found.uid());
    // Another user that may write the data may have made it: nobody else can give it the data's
    // group.
    let in_group = found.gid() == data.gid();
    let may_write = data.mode() & if in_group { 0o022 } else { 0o002 } != 0;
    match trusted || may_write {
        true => Ok(file),
        false => Err(JoinError::Owner(found.uid())),
    }
}

/// Joins the control region named `path` or a longer name, and returns its path. Files that another
/// user has put under such a name are skipped; the error is that of the best candidate.
fn join_any(
    path: &Path,
    uuid: [u8; 16],
    data: &File,
) -> Result<(PathBuf, SharedControl), (PathBuf, JoinError)> {
    let mut nearest: Option<(PathBuf, JoinError)> = None;
    for place in places(path) {
        match join(&place, uuid, data) {
            Ok(shared) => return Ok((place, shared)),
            Err(error) => {
                let is_nearer =
                    |(_, nearest): &(_, JoinError)| error.nearness() > nearest.nearness();
                if nearest.as_ref().is_none_or(is_nearer) {
                    nearest = Some((place, error));
                }
            }
        }
    }
    // There is always at least one path.
    Err(nearest.unwrap_or_else(|| (path.to_owned(), JoinError::Empty)))
}

/// Joins the control region at that path, which must have this identity.
fn join(path: &Path, uuid: [u8; 16], data: &File) -> Result<SharedControl, JoinError> {
    let file = open_region(path, data)?;
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let descriptor = file.try_clone()?.into();
    let region = Region::map(descriptor, Access::ReadWrite, len, PagePolicy::Small)?;
    region.dont_fork()?;
    let liveness = Arc::new(OfdLiveness::reopen(file.as_fd(), LOCKS)?);
    let joined = Participants::open_and(region, uuid, liveness, |_| Err(JoinError::Empty))?;
    Ok(SharedControl::of(joined)?)
}

/// Why the control region of the processes that have a file open cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It cannot be opened; it may be another container's.
    #[error("its control region cannot be opened in /dev/shm")]
    Missing(#[from] std::io::Error),
    /// It belongs to a user that cannot have made it.
    #[error("its control region belongs to user {0}")]
    Owner(u32),
    /// It cannot be mapped.
    #[error(transparent)]
    Region(#[from] mneme_sys::RegionError),
    /// It is not a control region of this file, or is full.
    #[error(transparent)]
    Control(#[from] mneme_sync::OpenError),
    /// No process takes part in it, although one has the file open: that process is in another
    /// container, and a killed process left this region here. Or the process is about to die.
    #[error("nobody takes part in its control region in /dev/shm: it is another container's file")]
    Empty,
    /// Its locks cannot be taken.
    #[error(transparent)]
    Liveness(#[from] LivenessError),
}

impl JoinError {
    /// How likely it is that this was the region that was sought.
    fn nearness(&self) -> u32 {
        match self {
            Self::Missing(_) => 0,
            Self::Owner(_) => 1,
            _ => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory in which it may not be removed, because it belongs to another user.
    #[test]
    fn a_region_that_dead_processes_left_is_used_again() {
        let name = format!("mneme-tree-left-{}", std::process::id());
        let path = Path::new(files::SHARED_MEMORY).join(name);
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .to_owned();
        let file = options.open(&path).unwrap();
        let left = fill(&file, [1; 16], true).unwrap();
        left.publish(7);
        assert!(left.add_dead(&[3]));
        left.poison();
        let in_use = fill(&file, [1; 16], false);
        assert!(matches!(in_use, Err(StoreError::Readers(_))), "{in_use:?}");
        drop(left);
        let again = fill(&file, [1; 16], false).unwrap();
        assert_eq!((again.durable(), again.dead()), (0, Vec::new()));
        assert!(!again.is_poisoned());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_region_of_a_user_that_may_not_write_the_data_is_refused() {
        const OTHER: u32 = 65_534;
        let scratch = mneme_testkit::TestDir::new("tree-owner");
        let made = |name: &str, mode: u32| {
            let path = scratch.path().join(name);
            let file = File::create_new(&path).unwrap();
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            (path, file)
        };
        let (path, region) = made("region", 0o666);
        let (_, data) = made("data", 0o664);
        // Only root can give a file away.
        if fchown(&data, Some(OTHER - 1), Some(OTHER - 1)).is_err() {
            return;
        }
        for (group, mode, is_taken) in [
            (OTHER, 0o664, false),
            (OTHER, 0o666, true),
            (OTHER - 1, 0o664, true),
            (OTHER - 1, 0o644, false),
        ] {
            fchown(&region, Some(OTHER), Some(group)).unwrap();
            data.set_permissions(Permissions::from_mode(mode)).unwrap();
            let opened = open_region(&path, &data);
            match is_taken {
                true => drop(opened.unwrap()),
                false => assert!(
                    matches!(opened, Err(JoinError::Owner(OTHER))),
                    "{group} {mode:o} {opened:?}"
                ),
            }
        }
    }
}
