//! A store on two files in a directory of the test, opened by any number of processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mneme_arena::Arena;
use mneme_log::{LogStore, UpdatePolicy, control_bytes};
use mneme_sync::Participants;
use mneme_sys::{Access, Liveness, OfdLiveness, PagePolicy, Region, Reserve};
use mneme_testkit::TestDir;

use super::look::opened;
use super::{below, diary};

/// The initial and the maximum size of the store in bytes.
pub const CAPACITY: u64 = 64 << 20;
pub const MAX: u64 = 88 << 20;

/// An opening of the store.
pub type Store = LogStore;

/// A directory of the test's own.
pub struct Place {
    pub root: PathBuf,
    /// In the process that has created it.
    _directory: Option<TestDir>,
}

fn map(path: &Path, max: u64) -> Region {
    map_for(path, max, Access::ReadWrite)
}

fn map_for(path: &Path, max: u64, access: Access) -> Region {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Region::map_with(
        file.into(),
        access,
        max as usize,
        PagePolicy::Small,
        Reserve::Lazy,
    )
    .unwrap()
}

fn lay_out(path: &Path, bytes: usize) {
    let file = File::create(path).unwrap();
    let whole = bytes.next_multiple_of(2 << 20) as u64;
    file.set_len(whole).unwrap();
}

impl Place {
    /// A new one, with a store and empty diaries.
    pub fn create(policy: UpdatePolicy) -> (Place, Store) {
        let directory = TestDir::new("log-storm");
        let place = Place {
            root: directory.to_path_buf(),
            _directory: Some(directory),
        };
        lay_out(&place.root.join("data"), CAPACITY as usize);
        lay_out(&place.root.join("control"), control_bytes());
        lay_out(&place.root.join("diary"), diary::WHOLE);
        let store = LogStore::builder()
            .update_policy(policy)
            .maintainer(false)
            .page_policy(PagePolicy::Small)
            .create_in(place.data(), place.control(), place.liveness())
            .unwrap();
        (place, store)
    }

    /// The one that another process has created.
    pub fn of(root: PathBuf) -> Place {
        Place {
            root,
            _directory: None,
        }
    }

    fn data(&self) -> Region {
        map(&self.root.join("data"), MAX)
    }

    fn control(&self) -> Region {
        map(&self.root.join("control"), control_bytes() as u64)
    }

    fn liveness(&self) -> Arc<dyn Liveness> {
        Arc::new(OfdLiveness::open(&self.root.join("control"), 1 << 40).unwrap())
    }

    pub fn diaries(&self) -> Region {
        map(&self.root.join("diary"), diary::WHOLE as u64)
    }

    /// Another opening of the store, with a maintainer or without.
    pub fn open(&self, maintainer: bool) -> Store {
        opened(|| {
            LogStore::builder()
                .maintainer(maintainer)
                .page_policy(PagePolicy::Small)
                .open_in(self.data(), self.control(), self.liveness())
        })
    }

    /// An opening for a reader; if `only`, one that may not write.
    pub fn watch(&self, only: bool) -> Store {
        if !only {
            return self.open(false);
        }
        opened(|| {
            let data = map_for(&self.root.join("data"), MAX, Access::ReadOnly);
            LogStore::builder()
                .maintainer(false)
                .page_policy(PagePolicy::Small)
                .open_in(data, self.control(), self.liveness())
        })
    }

    /// The participants of the store.
    pub fn participants(&self) -> Participants {
        let uuid = Arena::identity(&self.data()).unwrap();
        opened(|| Participants::open(self.control(), uuid, self.liveness()))
    }

    /// What is wrong below the log when only the caller with its opening and `participants` is
    /// left: a process that is still attached, a slot, a pin, or frames that were never adopted.
    pub fn left_over(&self, participants: &Participants) -> Vec<String> {
        below::left_over(self.data(), participants)
    }
}
