//! What the tests share: a store on a recording medium, and its contents.
#![allow(dead_code, clippy::unwrap_used)]

pub mod beside;
pub mod cached;
pub mod crashes;
pub mod kept;
pub mod trees;

use std::collections::BTreeMap;
use std::sync::Arc;

use mneme_sys::medium::RecordingMedium;
use mneme_tree::{Durability, Snapshot, Store, StoreError};

use kept::Kept;

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The maximum size of a test's store.
pub const MAX: u64 = 64 << 20;

/// Opens the store on `medium`.
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

/// Opens the store on `medium` again.
pub fn reopen(medium: &RecordingMedium) -> (Store, Arc<RecordingMedium>) {
    let copy = copy_of(medium);
    (open_on(&copy, Durability::File).unwrap(), copy)
}

/// The whole content of a snapshot.
pub fn contents(snapshot: &Snapshot) -> Model {
    let pairs = snapshot.range(..).map(|pair| {
        let (key, value) = pair.unwrap();
        (key.to_vec(), value.to_vec())
    });
    pairs.collect()
}
