//! A registry of a test's own, and alignments in a segment of it, visited anew for each question as
//! another process would.
#![allow(dead_code)]

use mneme_genomics::load::{self, Summary};
use mneme_genomics::{Alignments, LoadError, Store};
use mneme_space::{Attachment, Heap, Registry, RegistryOptions, Segment};
use mneme_sys::Access;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const NAME: &str = "reads";

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A registry whose data lie beside it, at addresses that no other test of this process has. It
/// goes when it is dropped.
pub struct Scene {
    pub registry: Registry,
    pub root: PathBuf,
}

impl Scene {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mneme-genomics-test-{}-{number}", std::process::id());
        let root = Path::new("/dev/shm").join(name);
        let memory = root.join("memory");
        std::fs::create_dir_all(&memory).unwrap();
        let options = RegistryOptions {
            window_base: 0x2000_0000_0000 + number * (128 << 30),
            window_slots: 128,
            shared_directory: Some(memory),
        };
        let registry = Registry::open_with(root.join("registry"), &options).unwrap();
        Self { registry, root }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// A file's alignments in the scene's segment.
pub struct Kept<'a> {
    scene: &'a Scene,
}

impl<'a> Kept<'a> {
    pub fn load(scene: &'a Scene, file: &Path) -> Result<(Self, Summary), LoadError> {
        let _ = scene.registry.remove_segment(NAME);
        let made = scene.registry.segment(NAME).max_size(4 << 30).create();
        made.unwrap();
        let kept = Self { scene };
        let summary = kept.attach(Access::ReadWrite).enter(|here| {
            let (store, summary) = load::from_path(file, here.heap(NAME).unwrap())?;
            here.create_root::<Alignments>(NAME, |_| store).unwrap();
            Ok::<Summary, LoadError>(summary)
        });
        Ok((kept, summary.unwrap()?))
    }

    fn attach(&self, access: Access) -> Attachment {
        let segment = Segment::open(&self.scene.registry, NAME).unwrap();
        Attachment::new([(&segment, access)]).unwrap()
    }

    pub fn read<R>(&self, ask: impl for<'s> FnOnce(&Store<Heap<'s>>) -> R) -> R {
        let at = self.attach(Access::ReadOnly);
        at.enter(|here| ask(here.root::<Alignments>(NAME).unwrap()))
            .unwrap()
    }

    pub fn change<R>(&self, change: impl for<'s> FnOnce(&mut Store<Heap<'s>>) -> R) -> R {
        let at = self.attach(Access::ReadWrite);
        at.enter(|here| change(here.root_mut::<Alignments>(NAME).unwrap()))
            .unwrap()
    }

    /// Whether the heap is whole, and how many blocks it has given out.
    pub fn check(&self) -> u64 {
        let at = self.attach(Access::ReadOnly);
        at.enter(|here| {
            let heap = here.heap(NAME).unwrap();
            assert_eq!(heap.check().unwrap().problems, []);
            heap.stats().unwrap().blocks
        })
        .unwrap()
    }
}
