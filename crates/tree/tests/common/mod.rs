//! What the tests share: a store on a recording medium, and its contents.
#![allow(dead_code, clippy::unwrap_used)]

pub mod beside;
pub mod cached;
pub mod crashes;
pub mod trees;

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use mneme_sys::medium::{Medium, MediumError, RecordingMedium};
use mneme_tree::{Durability, Snapshot, Store, StoreError};

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The most that a store of a test may grow to.
pub const MAX: u64 = 64 << 20;

/// A medium that the test keeps a handle of.
#[derive(Debug)]
struct Kept(Arc<RecordingMedium>);

impl Medium for Kept {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn max(&self) -> u64 {
        self.0.max()
    }
    fn store(&self, at: u64, bytes: &[u8]) {
        self.0.store(at, bytes);
    }
    fn store_word(&self, at: u64, word: u64) {
        self.0.store_word(at, word);
    }
    fn flush(&self, range: Range<u64>) {
        self.0.flush(range);
    }
    fn fence(&self) {
        self.0.fence();
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.0.write(at, bytes)
    }
    fn sync(&self) -> Result<(), MediumError> {
        self.0.sync()
    }
    fn grow(&self, to: u64) -> Result<(), MediumError> {
        self.0.grow(to)
    }
}

/// Opens whatever `medium` holds.
pub fn open_on(medium: &Arc<RecordingMedium>, durability: Durability) -> Result<Store, StoreError> {
    let builder = Store::builder().durability(durability);
    builder.open_on(Box::new(Kept(medium.clone())))
}

/// A new store.
pub fn open() -> (Store, Arc<RecordingMedium>) {
    let medium = Arc::new(RecordingMedium::new(MAX).unwrap());
    (open_on(&medium, Durability::File).unwrap(), medium)
}

/// A medium with the bytes of another, all durable.
pub fn copy_of(medium: &RecordingMedium) -> Arc<RecordingMedium> {
    let image = Arc::new(medium.bytes());
    Arc::new(RecordingMedium::with_image(MAX, image).unwrap())
}

/// Opens the store again that lies on `medium`.
pub fn reopen(medium: &RecordingMedium) -> (Store, Arc<RecordingMedium>) {
    let copy = copy_of(medium);
    (open_on(&copy, Durability::File).unwrap(), copy)
}

/// All that a snapshot shows.
pub fn contents(snapshot: &Snapshot) -> Model {
    let pairs = snapshot.range(..).map(|pair| {
        let (key, value) = pair.unwrap();
        (key.to_vec(), value.to_vec())
    });
    pairs.collect()
}
