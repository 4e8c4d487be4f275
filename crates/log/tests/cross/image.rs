//! Prepared stores: each kind is created once, and copied into memory that other scenarios have
//! used. Creating one, and faulting in new memory, takes longer than a scenario. The memory is in
//! huge pages if the system has them: scenarios would spend half of their time on faults.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use mneme_log::{Builder, control_bytes};
use mneme_sys::{Access, PagePolicy, Region, fault};

use crate::calendar::Calendar;
use crate::memory::{self, Memory};
use crate::model::Model;
use crate::replayed::Replayed;
use crate::stores::{GROWS_TO, Kind, filled};

/// The number of words that are compared with zero at a time.
const CHUNK: usize = 64;

/// The number of scenarios that use the same memory in turn. Threads that have died in it keep it
/// mapped.
const USES: u32 = 1000;

/// A prepared store that no process has open.
pub struct Image {
    data: Vec<Run>,
    control: Vec<Run>,
    pub model: Model,
    pub calendar: Calendar,
    pub replayed: Option<Replayed>,
}

/// The index of the first word in its region, and the words.
type Run = (usize, Vec<u64>);

static IMAGES: Mutex<Vec<(Kind, Arc<Image>)>> = Mutex::new(Vec::new());
static FREE: Mutex<Vec<Files>> = Mutex::new(Vec::new());

/// The memory of two regions.
struct Files {
    data: OwnedFd,
    control: OwnedFd,
    uses: u32,
}

/// Memory with a store of some kind. It is reused if it is [given back](Self::give_back).
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
            // The tables of the arena and the log, the ring of the feed, and the first frame, which
            // belongs to the index.
            data: runs(&memory.data, if kind.fed { 8 << 20 } else { 4 << 20 }),
            control: runs(&memory.control, control_len()),
            model,
            calendar: calendar.again(),
            replayed,
        });
        images.push((kind, Arc::clone(&image)));
        image
    }

    /// Memory with this store.
    pub fn lay(&self, builder: Builder) -> (Loan, Memory) {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let files = free.unwrap_or_else(Files::new);
        let map = |file: &OwnedFd, max| {
            let file = file.try_clone().unwrap();
            Region::map(file, Access::ReadWrite, max, PagePolicy::Thp).unwrap()
        };
        let data = map(&files.data, GROWS_TO);
        let control = map(&files.control, control_len());
        for (region, runs) in [(&data, &self.data), (&control, &self.control)] {
            let all = words(region);
            for (from, run) in runs {
                let words = &all[*from..][..run.len()];
                let each = words.iter().zip(run);
                each.for_each(|(word, value)| word.store(*value, Relaxed));
            }
        }
        let memory = Memory::around(data, control, builder, PagePolicy::Thp);
        (Loan { files: Some(files) }, memory)
    }
}

fn words(region: &Region) -> &[AtomicU64] {
    region.slice_at(0, region.len() / size_of::<u64>()).unwrap()
}

/// The content of `region`: all of its first `whole` bytes, and the words that are not zero.
fn runs(region: &Region, whole: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (i, chunk) in words(region).chunks(CHUNK).enumerate() {
        let at = i * CHUNK;
        let chunk = chunk.iter().map(|word| word.load(Relaxed));
        if at * size_of::<u64>() >= whole && chunk.clone().all(|word| word == 0) {
            continue;
        }
        match runs.last_mut() {
            Some((from, run)) if *from + run.len() == at => run.extend(chunk),
            _ => runs.push((at, chunk.collect())),
        }
    }
    runs
}

fn control_len() -> usize {
    control_bytes().next_multiple_of(2 << 20)
}

impl Files {
    fn new() -> Files {
        let new = |name, len, max| {
            let region = Region::memfd(name, len, max, PagePolicy::Thp).unwrap();
            region.prefault(0..len).unwrap();
            region.duplicate_fd().unwrap().unwrap()
        };
        let control = control_len();
        Files {
            data: new("log-data", memory::CAPACITY, GROWS_TO),
            control: new("log-control", control, control),
            uses: 0,
        }
    }
}

impl Loan {
    /// No thread will touch the memory any more.
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
