//! The mappings of a segment's bytes for views: additional ones, at any address, that live as long
//! as the views.
//!
//! **A view's address stays valid, whatever other segments the process enters, and also in a forked
//! child.** The mapping for sections does not guarantee that: it must be at the segment's own
//! address, where a clone of the segment may be mapped in between, and forked children do not have
//! it. Views do not need that address. Their mappings are of the same file; those for reading are
//! mapped read-only. [`forks`](crate::forks) says what forked children keep of them.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use mneme_space::{Segment, Uuid};
use mneme_sys::{Access, Region, files};

use crate::current::Views;
use crate::errors::{Failure, Reason, failure};
use crate::forks::{self, Inherited};

/// The mappings of a segment, each made when the first view needs it.
pub(crate) struct Mapped {
    segment: Segment,
    access: Access,
    regions: Arc<Regions>,
}

/// The mappings for reading and for writing, and the state that forked children inherit with them.
#[derive(Default)]
pub(crate) struct Regions {
    read: OnceLock<Region>,
    pub(crate) write: OnceLock<Region>,
    inherited: OnceLock<Inherited>,
}

fn map(segment: &Segment, access: Access) -> Result<Region, Failure> {
    let path = segment.info()?.data;
    let mut options = OpenOptions::new();
    options.read(true).write(access == Access::ReadWrite);
    let file = files::open_plain(&path, &mut options).map_err(|error| {
        let text = format!(
            "the data of segment {} at {path:?}: {error}",
            segment.name()
        );
        failure(Reason::System, text)
    })?;
    Ok(Region::map(
        file.into(),
        access,
        segment.max_size(),
        segment.pages(),
    )?)
}

impl Mapped {
    pub(crate) fn new(segment: Segment, access: Access) -> Self {
        Self {
            segment,
            access,
            regions: Arc::default(),
        }
    }

    fn region(&self, access: Access) -> Result<&Region, Failure> {
        let place = match access {
            Access::ReadOnly => &self.regions.read,
            Access::ReadWrite => &self.regions.write,
        };
        if let Some(region) = place.get() {
            return Ok(region);
        }
        if self.regions.inherited.get().is_none() {
            let views = views_of(self.segment.uuid());
            let inherited = Inherited::new(self.segment.info()?.data, views)?;
            // If two threads make it at once, one drops its own.
            self.regions.inherited.get_or_init(|| inherited);
            forks::note(&self.regions);
        }
        // If two threads map it at once, one drops its own.
        let region = map(&self.segment, access)?;
        Ok(place.get_or_init(|| region))
    }

    /// The address of bytes of the segment in a mapping.
    pub(crate) fn at(
        &self,
        offset: usize,
        bytes: usize,
        access: Access,
    ) -> Result<NonNull<u8>, Failure> {
        if access == Access::ReadWrite && self.access == Access::ReadOnly {
            let text = "the segment was opened for reading";
            return Err(failure(Reason::ReadOnly, text));
        }
        let region = self.region(access)?;
        let end = offset.checked_add(bytes);
        let end = end.ok_or_else(|| failure(Reason::Damaged, "an array without an end"))?;
        // If other processes have enlarged the segment, the mapping is extended.
        if end > region.len() && region.refresh()? < end {
            return Err(failure(
                Reason::Damaged,
                "an array lies behind the segment's end",
            ));
        }
        // SAFETY: inside the mapping.
        Ok(unsafe { region.first_byte().add(offset) })
    }
}

impl Regions {
    pub(crate) fn inherited(&self) -> Option<&Inherited> {
        self.inherited.get()
    }
}

/// The counts of views of each segment, shared by all handles of this process to it.
static SEGMENTS: Mutex<BTreeMap<[u8; 16], Weak<Views>>> = Mutex::new(BTreeMap::new());

/// The count of views of a segment.
pub(crate) fn views_of(segment: Uuid) -> Arc<Views> {
    let mut segments = SEGMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    segments.retain(|_, views| views.strong_count() > 0);
    let known = segments.entry(segment.to_bytes()).or_default();
    known.upgrade().unwrap_or_else(|| {
        let views = Arc::default();
        *known = Arc::downgrade(&views);
        views
    })
}
