//! The attachment behind a handle (`vhandle_t`).

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_space::{Attachment, EnterError, MapError, Segment, Space, Uuid};
use mneme_sys::Access;

use crate::code::Failure;
use crate::process;

/// The attachment behind a handle, shared with the threads that are inside.
pub(crate) struct Attached {
    pub(crate) attachment: Attachment,
    /// The space that was attached; `None` for segments that a thread attached directly, without a
    /// space.
    pub(crate) space: Option<Uuid>,
    /// Whether the handle was given up. Threads that are inside stay inside.
    closed: AtomicBool,
}

impl Attached {
    pub(crate) fn of_space(space: &Space, most: Access) -> Result<Self, Failure> {
        let attachment = match most {
            Access::ReadWrite => space.attach(),
            Access::ReadOnly => space.attach_read_only(),
        }?;
        Ok(Self {
            attachment: attachment.timeout(process::timeout()),
            space: Some(space.uuid()),
            closed: AtomicBool::new(false),
        })
    }

    /// An attachment without members, for segments that a thread attaches directly, without a
    /// space.
    pub(crate) fn of_nothing() -> Result<Self, Failure> {
        let attachment = Attachment::new([])?;
        Ok(Self {
            attachment: attachment.timeout(process::timeout()),
            space: None,
            closed: AtomicBool::new(false),
        })
    }

    /// Marks the handle as given up.
    pub(crate) fn close(&self) {
        // Relaxed: threads that must see this learn of the detach by other means that order it.
        self.closed.store(true, Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Attaches a segment for this handle alone; for writing if the segment's permissions and this
    /// process' allow it.
    pub(crate) fn add(&self, segment: &Segment) -> Result<(), Failure> {
        let usual = usual_access(segment)?;
        match self.attachment.add(segment, usual) {
            Err(EnterError::Map(MapError::NotWritable { .. })) => {
                Ok(self.attachment.add(segment, Access::ReadOnly)?)
            }
            other => Ok(other?),
        }
    }

    /// Detaches a segment that was attached for this handle alone.
    pub(crate) fn remove(&self, segment: &Segment) -> Result<(), Failure> {
        Ok(self.attachment.remove(segment)?)
    }
}

/// For writing, unless the permissions of the segment forbid it to everyone.
pub(crate) fn usual_access(segment: &Segment) -> Result<Access, Failure> {
    let mode = segment.info()?.mode;
    Ok(if mode & 0o222 == 0 {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    })
}
