//! A store in a file after a reboot: it opens if all processes had left it, and is refused
//! otherwise.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mneme_log::OpenError;
use mneme_shared::{Access, AttachError, MIN_CAPACITY, Registry, SharedStore, StoreOptions};
use mneme_space::{Backing, MapError};
use mneme_sys::PagePolicy;
use mneme_testkit::{Process, TestDir};

const CHILD: &str = "MNEME_SHARED_REBOOT";
const RECORDS: u32 = 2_000;
/// The offset of word 1 of the data header's client words: the boot in which the data were changed.
const UNSYNCED: u64 = 56 + 8;
/// The offset of the boot id in the control header.
const BOOT: u64 = 128 + 40;

/// A registry and a directory for files, for one test.
struct Scene(TestDir);

impl Scene {
    fn new(name: &str) -> Scene {
        let root = TestDir::on_disk(name);
        std::fs::create_dir(root.join("disk")).unwrap();
        Scene(root)
    }

    fn registry(&self) -> Registry {
        Registry::open(self.0.join("registry")).unwrap()
    }

    /// A store with records that all processes have left.
    fn store(&self) {
        let directory = self.0.join("disk");
        let options = options().backing(Backing::File { directory });
        let store = options.create(&self.registry(), "s").unwrap();
        assert!(!store.is_volatile());
        for i in 0..RECORDS {
            store.put(&i.to_le_bytes(), &i.to_be_bytes()).unwrap();
        }
    }

    /// A process that has the store open for writing.
    fn writer(&self) -> Process {
        Process::start_ready("writes", [(CHILD, self.0.path())])
    }

    /// Makes the files look as after a reboot: the control files and the existing records belong to
    /// another boot.
    fn reboot(&self) {
        let directory = self.registry();
        let segment = mneme_space::Segment::open(&directory, "s").unwrap();
        let open = |name: &str| {
            let path: PathBuf = segment.directory().join(name);
            File::options().read(true).write(true).open(path).unwrap()
        };
        for (name, at) in [("data", UNSYNCED), ("control", BOOT)] {
            let (file, mut word) = (open(name), [0; 8]);
            file.read_exact_at(&mut word, at).unwrap();
            if word != [0; 8] {
                word[7] ^= 1;
                file.write_all_at(&word, at).unwrap();
            }
        }
    }

    fn attach(&self, access: Access) -> Result<SharedStore, AttachError> {
        options().attach(&self.registry(), "s", access)
    }
}

fn options() -> StoreOptions {
    StoreOptions::new()
        .capacity(MIN_CAPACITY)
        .max_capacity(MIN_CAPACITY)
        .pages(PagePolicy::Small)
        .maintainer(false)
}

fn whole(store: &SharedStore) {
    assert_eq!(store.len(), u64::from(RECORDS));
    for i in 0..RECORDS {
        let found = store.get(&i.to_le_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(&i.to_be_bytes()[..]));
    }
}

/// The process that is killed.
#[test]
fn writes() {
    let Some(root) = std::env::var_os(CHILD) else {
        return;
    };
    let registry = Registry::open(Path::new(&root).join("registry")).unwrap();
    let store = options().attach(&registry, "s", Access::ReadWrite).unwrap();
    store.put(b"k", b"v").unwrap();
    store.remove(b"k").unwrap();
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_store_that_all_had_left_opens_after_a_reboot() {
    let scene = Scene::new("clean");
    scene.store();
    for _ in 0..2 {
        scene.reboot();
        let refused = scene.attach(Access::ReadOnly).unwrap_err();
        let expected = matches!(refused, AttachError::Store(OpenError::NotRecovered));
        assert!(expected && !refused.is_damage(), "{refused}");
        let store = scene.attach(Access::ReadWrite).unwrap();
        whole(&store);
        whole(&scene.attach(Access::ReadOnly).unwrap());
        assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
        store.put(b"k", b"v").unwrap();
        store.remove(b"k").unwrap();
    }
}

/// In the same boot the kernel has all writes; in the next, nobody knows which of them.
#[test]
fn a_store_that_a_process_had_not_left_is_refused_only_after_a_reboot() {
    let scene = Scene::new("unclean");
    scene.store();
    scene.writer().kill();
    whole(&scene.attach(Access::ReadWrite).unwrap());
    scene.reboot();
    whole(&scene.attach(Access::ReadWrite).unwrap());

    scene.writer().kill();
    scene.reboot();
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let refused = scene.attach(access).unwrap_err();
        let expected = matches!(refused, AttachError::Map(MapError::NotClean { .. }));
        assert!(expected && !refused.is_damage(), "{refused}");
    }
    scene.registry().remove_segment("s").unwrap();
}
