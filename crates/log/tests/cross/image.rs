//! Prepared stores: each kind is made once, and laid into memory that other scenarios have used. To
//! make one, and to bring in the pages of new memory, takes longer than a scenario does.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use mneme_log::{Builder, control_bytes};
use mneme_sys::{Access, PagePolicy, Region, fault};

use crate::calendar::Calendar;
use crate::memory::{self, Memory};
use crate::model::Model;
use crate::replayed::Replayed;
use crate::scenario::{GROWS_TO, Kind, filled};

/// Bytes that are compared with zero at a time.
const PAGE: usize = 64 << 10;

/// Scenarios that use memory one after the other. Threads that have died in it keep it mapped.
const USES: u32 = 64;

/// A prepared store that no process has open.
pub struct Image {
    data: Vec<(u64, Vec<u8>)>,
    control: Vec<(u64, Vec<u8>)>,
    pub model: Model,
    pub calendar: Calendar,
    pub replayed: Option<Replayed>,
}

static IMAGES: Mutex<Vec<(Kind, Arc<Image>)>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<Files>> = Mutex::new(Vec::new());

/// Memory of two regions.
struct Files {
    data: OwnedFd,
    control: OwnedFd,
    uses: u32,
}

/// Memory with a store of some kind in it. It is used again if it is [given back](Self::give_back).
pub struct Loan {
    files: Option<Files>,
}

impl Image {
    /// The store of this kind.
    pub fn of(kind: Kind) -> Arc<Image> {
        let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, image)) = images.iter().find(|(of, _)| *of == kind) {
            return Arc::clone(image);
        }
        let (memory, calendar, model, replayed) = filled(kind);
        let image = Arc::new(Image {
            // The arena's and the log's tables, and the ring of the feed.
            data: pages(&memory.data, if kind.fed { 8 << 20 } else { 2 << 20 }),
            control: pages(&memory.control, 0),
            model,
            calendar: calendar.again(),
            replayed,
        });
        images.push((kind, Arc::clone(&image)));
        image
    }

    /// Memory that holds this store.
    pub fn lay(&self, builder: Builder) -> (Loan, Memory) {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let files = free.unwrap_or_else(Files::new);
        let control = File::from(files.control.try_clone().unwrap());
        fault::discard(&files.control, control_len()).unwrap();
        let data = File::from(files.data.try_clone().unwrap());
        for (file, pages) in [(&data, &self.data), (&control, &self.control)] {
            for (at, bytes) in pages {
                file.write_all_at(bytes, *at).unwrap();
            }
        }
        let map = |file: File, max, pages| {
            Region::map(file.into(), Access::ReadWrite, max, pages).unwrap()
        };
        let (thp, small) = (PagePolicy::Thp, PagePolicy::Small);
        let (data, control) = (map(data, GROWS_TO, thp), map(control, control_len(), small));
        let memory = Memory::around(data, control, builder, thp);
        (Loan { files: Some(files) }, memory)
    }
}

/// What `region` holds: all of its first `whole` bytes, and what is not zero.
fn pages(region: &Region, whole: usize) -> Vec<(u64, Vec<u8>)> {
    let file = File::from(region.duplicate_fd().unwrap().unwrap());
    let mut pages: Vec<(u64, Vec<u8>)> = Vec::new();
    for at in (0..region.len()).step_by(PAGE) {
        let mut page = vec![0; PAGE.min(region.len() - at)];
        file.read_exact_at(&mut page, at as u64).unwrap();
        if at >= whole && page.iter().all(|byte| *byte == 0) {
            continue;
        }
        match pages.last_mut() {
            Some((from, bytes)) if *from + bytes.len() as u64 == at as u64 => bytes.extend(page),
            _ => pages.push((at as u64, page)),
        }
    }
    pages
}

fn control_len() -> usize {
    control_bytes().next_multiple_of(2 << 20)
}

impl Files {
    fn new() -> Files {
        let new = |name, len, max, pages| {
            let region = Region::memfd(name, len, max, pages).unwrap();
            region.duplicate_fd().unwrap().unwrap()
        };
        let control = control_len();
        Files {
            data: new("log-data", memory::CAPACITY, GROWS_TO, PagePolicy::Thp),
            control: new("log-control", control, control, PagePolicy::Small),
            uses: 0,
        }
    }
}

impl Loan {
    /// Nobody will touch the memory any more.
    pub fn give_back(mut self) {
        let Some(mut files) = self.files.take() else {
            return;
        };
        files.uses += 1;
        let grown = File::from(files.data.try_clone().unwrap());
        if files.uses < USES && grown.metadata().unwrap().len() == memory::CAPACITY as u64 {
            FREE.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(files);
        } else {
            self.files = Some(files);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(files) = &self.files {
            fault::discard(&files.data, GROWS_TO).unwrap();
            fault::discard(&files.control, control_len()).unwrap();
        }
    }
}
