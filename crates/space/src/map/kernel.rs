//! Segments that a kernel module shows at their addresses, where `papers/kernel/vas` is loaded.
//!
//! **Everything that the map promises holds here too; only what a switch does differs.** The module
//! stores an entry of page tables for each GiB, where [`Region::park`](mneme_sys::Region::park)
//! moves a mapping there and another one back. The segment's [`Region`](mneme_sys::Region) lies
//! elsewhere, at addresses of its own, for access by offsets: both have the same pages.
//!
//! A process that has its first segment with an address in shared memory, in the first 512 GiB of
//! the usual window, gets those addresses from the module, if it may use `/dev/mneme-vas`.
//! Otherwise, and for all other segments, nothing changes. What it cannot map then are segments in
//! those 512 GiB that are in files or in the hugetlb pool ([`MapError::Window`](crate::MapError)).
//!
//! After SpaceJMP (§4.1).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use mneme_sys::{Region, RegionError, SwitchedFile, SwitchedWindow};

use crate::segment::meta::SegmentMeta;
use crate::{Backing, MapError};

/// The window, once a segment has asked for it.
#[derive(Default)]
pub(super) enum KernelWindow {
    #[default]
    Unasked,
    Absent,
    Open(SwitchedWindow),
}

impl KernelWindow {
    /// The window for a segment, if the module shows it.
    pub(super) fn for_segment(
        &mut self,
        meta: &SegmentMeta,
        addresses: &Range<usize>,
    ) -> Option<SwitchedWindow> {
        if meta.backing != Backing::Shared || !SwitchedWindow::has(addresses) {
            return None;
        }
        if matches!(self, Self::Unasked) {
            // It also fails where a part of the window is in use.
            *self = SwitchedWindow::open().map_or(Self::Absent, Self::Open);
        }
        match self {
            Self::Open(window) => Some(window.clone()),
            Self::Unasked | Self::Absent => None,
        }
    }
}

/// What the module shows of a segment whose file is mapped as `region`.
pub(super) fn view(
    window: &SwitchedWindow,
    file: &File,
    base: usize,
    region: &Region,
) -> Result<SwitchedFile, MapError> {
    let made = window.file(file.as_fd(), base, region.len(), region.max());
    made.map_err(failed("let the kernel module show the segment"))
        .map_err(MapError::from)
}

/// An error of the module's, during `what`.
pub(super) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> RegionError {
    move |source| RegionError::Os { what, source }
}
