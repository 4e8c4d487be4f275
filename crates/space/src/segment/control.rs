//! Control files of segments and spaces, which hold participants and locks.

use std::convert::Infallible;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use mneme_sync::{ControlOptions, Participants, Slot, SlotError};
use mneme_sys::{Access, Liveness, LivenessError, OfdLiveness, PagePolicy, Region, files};

use super::data;
use super::presence::{self, Way};
use crate::{CreateError, FileError, MapError, RegistryError, Uuid};

/// The gate of a segment's control region that is the segment's lock.
pub(crate) const SEGMENT_GATE: usize = 0;

/// Up to 256 processes and 1,024 threads at a time. That fits into one frame of 2 MiB, which is
/// allocated at once, so that no visitor can ever fault on it.
fn control_options(uuid: Uuid) -> ControlOptions {
    ControlOptions {
        max_processes: MAX_PROCESSES,
        max_threads: 1024,
        undo_bytes: 256,
        ..ControlOptions::new(uuid.to_bytes())
    }
}

/// The maximum number of processes that may have a segment mapped at a time.
pub(crate) const MAX_PROCESSES: u32 = 256;

/// Creates the control file of a segment or a space; this process is its first participant until
/// the result is dropped.
pub(crate) fn make_control(path: &Path, uuid: Uuid) -> Result<Participants, CreateError> {
    let file = data::create(path)?;
    let options = control_options(uuid);
    let failed = |source| CreateError::Control {
        path: path.to_owned(),
        source,
    };
    let attach = |e: mneme_sync::AttachError| failed(e.into());
    let len = options.region_len();
    let region = Region::map(file.into(), Access::ReadWrite, len, PagePolicy::Small)
        .map_err(|e| attach(e.into()))?;
    let liveness = OfdLiveness::open_plain(path, 0).map_err(|e| attach(e.into()))?;
    Participants::create(region, options, Arc::new(liveness)).map_err(failed)
}

/// Makes this process a participant of the segment or space that the control file belongs to.
pub(crate) fn open_control(path: &Path, of: Uuid) -> Result<Participants, MapError> {
    Ok(open_way(path, of)?.0)
}

/// Makes this process a participant, and returns the identification of its control file, which is
/// recorded on the data.
pub(crate) fn open_way(path: &Path, of: Uuid) -> Result<(Participants, Way), MapError> {
    let control = map_control(path)?;
    let opened = Participants::open(control.region, of.to_bytes(), Arc::new(control.liveness));
    let participants = opened.map_err(|source| MapError::Control {
        path: path.to_owned(),
        source,
    })?;
    Ok((participants, control.way))
}

/// A control file, opened before this process becomes a participant.
pub(crate) struct Control {
    pub(crate) region: Region,
    pub(crate) liveness: OfdLiveness,
    pub(crate) way: Way,
}

pub(crate) fn map_control(path: &Path) -> Result<Control, MapError> {
    let file = files::open_plain(path, File::options().read(true).write(true))
        .map_err(FileError::at("open for locks", path))?;
    let way = Way::by(&file).map_err(FileError::at("examine", path))?;
    // Reopens the same file, whatever its name leads to by now.
    let liveness = OfdLiveness::reopen(file.as_fd(), 0).map_err(|source| MapError::Liveness {
        path: path.to_owned(),
        source,
    })?;
    let region = Region::map(file.into(), Access::ReadWrite, 1, PagePolicy::Small)?;
    Ok(Control {
        region,
        liveness,
        way,
    })
}

/// Releases what dead processes hold in a control region. Slots are few, and a thread that wants an
/// exclusive lock reads all of them. A segment's slots carry no intents, so nothing needs repair.
pub(crate) fn reap(participants: &Participants) {
    // What cannot be released now is left for the next call.
    let _ = participants.reap(|_| Ok::<_, Infallible>(()));
}

/// The calling thread's slot. If dead processes hold all of them, their slots are reaped first.
#[inline]
pub(crate) fn slot(participants: &Participants) -> Result<Slot<'_>, SlotError> {
    match participants.slot() {
        Err(SlotError::TooManyThreads { .. }) => {
            reap(participants);
            participants.slot()
        }
        other => other,
    }
}

/// Whether a living process participates in a segment, through its control file or through another
/// one that its data have or had.
pub(crate) fn segment_in_use(control: &Path, data: &Path) -> Result<bool, RegistryError> {
    Ok(in_use(control)? || presence::is_anybody_in(data)?)
}

/// Whether a living process participates in the segment or space of this control file. A missing
/// file has no participants; if the file cannot be examined, that is an error.
pub(crate) fn in_use(control: &Path) -> Result<bool, RegistryError> {
    match OfdLiveness::open_plain(control, 0) {
        Ok(liveness) => Ok(liveness.any_alive(1..=MAX_PROCESSES)),
        Err(LivenessError::Os { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(RegistryError::Lock {
            path: control.to_owned(),
            source,
        }),
    }
}
