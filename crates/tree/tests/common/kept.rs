//! A medium that outlives the store on it.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use mneme_sys::medium::{Medium, MediumError, RecordingMedium};

/// A medium of which the test keeps a handle.
#[derive(Debug)]
pub struct Kept(pub Arc<RecordingMedium>);

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
