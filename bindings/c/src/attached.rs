//! An attachment as a handle means it.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use mneme_space::{AttachError, Attachment, MapError, Segment, Space, Uuid};
use mneme_sys::Access;

use crate::code::Failure;
use crate::process;

/// What a handle means.
pub(crate) struct Attached {
    pub(crate) attachment: Attachment,
    /// The space that it is of; none of a thread's own segments in its primary space.
    pub(crate) space: Option<Uuid>,
    /// Its handle was given up; threads that are inside stay there without one.
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

    /// For segments that are attached to a thread's primary space.
    pub(crate) fn of_nothing() -> Result<Self, Failure> {
        let attachment = Attachment::new([])?;
        Ok(Self {
            attachment: attachment.timeout(process::timeout()),
            space: None,
            closed: AtomicBool::new(false),
        })
    }

    /// The handle is one no more.
    pub(crate) fn close(&self) {
        // Relaxed: a thread that learns of it in any other way sees it.
        self.closed.store(true, Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Attaches a segment for this handle alone: for writing, if its permissions and this process'
    /// let it.
    pub(crate) fn add(&self, segment: &Segment) -> Result<(), Failure> {
        let usual = usual_access(segment)?;
        match self.attachment.add(segment, usual) {
            Err(AttachError::Map(MapError::NotWritable { .. })) => {
                Ok(self.attachment.add(segment, Access::ReadOnly)?)
            }
            other => Ok(other?),
        }
    }

    /// Takes such a segment off.
    pub(crate) fn remove(&self, segment: &Segment) -> Result<(), Failure> {
        Ok(self.attachment.remove(segment)?)
    }
}

/// For writing, unless nobody may write it.
pub(crate) fn usual_access(segment: &Segment) -> Result<Access, Failure> {
    let mode = segment.info()?.mode;
    Ok(if mode & 0o222 == 0 {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    })
}
