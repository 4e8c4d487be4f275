//! A store in a segment of the test's own registry, attached by any number of processes.

use std::path::PathBuf;

use mneme_log::UpdatePolicy;
use mneme_shared::{Access, CONTENTS, Registry, Segment, SharedStore, StoreOptions};
use mneme_sync::Participants;
use mneme_sys::{PagePolicy, Region, Reserve};
use mneme_testkit::TestDir;

use super::common::registry;
use super::look::opened;
use super::{below, diary};

/// An opening of the store.
pub type Store = SharedStore;

/// The initial and maximum capacity of the store in bytes.
pub const CAPACITY: u64 = 64 << 20;
pub const MAX: u64 = 88 << 20;

const NAME: &str = "storm";

/// A registry of the test's own.
pub struct Place {
    pub root: PathBuf,
    registry: Registry,
    /// Only in the process that has created it.
    _directory: Option<TestDir>,
}

impl Place {
    /// A new place, with a store and empty diaries.
    pub fn create(policy: UpdatePolicy) -> (Place, Store) {
        let directory = TestDir::new("shared-storm");
        let mut place = Place::of(directory.to_path_buf());
        let diary = place.diary();
        place._directory = Some(directory);
        let bytes = diary::WHOLE.next_multiple_of(2 << 20) as u64;
        std::fs::File::create(diary)
            .unwrap()
            .set_len(bytes)
            .unwrap();
        let store = StoreOptions::new()
            .capacity(CAPACITY)
            .max_capacity(MAX)
            .update_policy(policy)
            .pages(PagePolicy::Small)
            .maintainer(false)
            .create(&place.registry, NAME);
        (place, store.unwrap())
    }

    /// The place that another process has created.
    pub fn of(root: PathBuf) -> Place {
        let registry = registry(&root);
        Place {
            root,
            registry,
            _directory: None,
        }
    }

    fn diary(&self) -> PathBuf {
        self.root.join("diary")
    }

    pub fn diaries(&self) -> Region {
        let mut options = std::fs::File::options();
        options.read(true).write(true);
        let file = options.open(self.diary()).unwrap();
        let (max, pages) = (diary::WHOLE, PagePolicy::Small);
        Region::map_with(file.into(), Access::ReadWrite, max, pages, Reserve::Lazy).unwrap()
    }

    fn attach(&self, maintainer: bool, access: Access) -> Store {
        opened(|| {
            StoreOptions::new()
                .pages(PagePolicy::Small)
                .maintainer(maintainer)
                .attach(&self.registry, NAME, access)
        })
    }

    /// Another opening of the store, with or without a maintainer.
    pub fn open(&self, maintainer: bool) -> Store {
        self.attach(maintainer, Access::ReadWrite)
    }

    /// An opening for a reader, which may be read-only.
    pub fn watch(&self, only: bool) -> Store {
        match only {
            true => self.attach(false, Access::ReadOnly),
            false => self.open(false),
        }
    }

    /// The participants of the store.
    pub fn participants(&self) -> Participants {
        opened(|| {
            let segment = Segment::open(&self.registry, NAME).unwrap();
            let parts = segment.parts(&CONTENTS, Access::ReadWrite).unwrap();
            let (uuid, control) = (parts.uuid.to_bytes(), parts.control);
            Participants::open(control, uuid, parts.liveness)
        })
    }

    /// What is left below the log when only the caller, with its opening and `participants`,
    /// remains: an attached process, a slot, a pin, or frames without an owner.
    pub fn left_over(&self, participants: &Participants) -> Vec<String> {
        let segment = Segment::open(&self.registry, NAME).unwrap();
        let parts = segment.parts(&CONTENTS, Access::ReadWrite).unwrap();
        below::left_over(parts.data, participants)
    }
}
