//! A mapped file of a recorded directory.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use super::{Medium, MediumError, MemoryMedium, RecordingDirectory, inside};

/// A page of zeros.
static ZEROS: [u8; 4096] = [0; 4096];

/// Memory whose operations are recorded as those of a file in a [`RecordingDirectory`].
#[derive(Debug)]
pub(super) struct RecordedMapping {
    directory: RecordingDirectory,
    file: usize,
    memory: MemoryMedium,
    poisoned: Mutex<bool>,
}

impl RecordedMapping {
    pub(super) fn new(
        directory: &RecordingDirectory,
        file: usize,
        bytes: &[u8],
        max: u64,
    ) -> Result<Self, MediumError> {
        let memory = MemoryMedium::new(max)?;
        memory.grow(bytes.len() as u64)?;
        // New memory is zero, and so is most of a file: pages that are not touched cost nothing.
        for (nth, page) in bytes.chunks(ZEROS.len()).enumerate() {
            if page != &ZEROS[..page.len()] {
                memory.store((nth * ZEROS.len()) as u64, page);
            }
        }
        Ok(Self {
            directory: directory.clone(),
            file,
            memory,
            poisoned: Mutex::new(false),
        })
    }
}

impl Medium for RecordedMapping {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn max(&self) -> u64 {
        self.memory.max()
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        self.memory.store(at, bytes);
        self.directory.lock().store(self.file, at, bytes);
    }

    fn store_word(&self, at: u64, word: u64) {
        self.memory.store_word(at, word);
        let bytes = word.to_le_bytes();
        self.directory.lock().store(self.file, at, &bytes);
    }

    // Files need neither flush nor fence.
    fn flush(&self, _: Range<u64>) {}

    fn fence(&self) {}

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        inside(at, bytes.len(), self.len())?;
        self.store(at, bytes);
        Ok(())
    }

    fn sync(&self) -> Result<(), MediumError> {
        let mut poisoned = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
        if *poisoned {
            return Err(MediumError::Poisoned);
        }
        let synced = self.directory.lock().sync(self.file);
        *poisoned = synced.is_err();
        synced
    }

    fn grow(&self, to: u64) -> Result<(), MediumError> {
        if to > self.max() {
            return Err(MediumError::NoSpace { wanted: to });
        }
        self.directory.lock().grow(self.file, to)?;
        self.memory.grow(to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Directory, DirectoryStates};
    use super::*;

    fn read(mapped: &dyn Medium, at: usize) -> u64 {
        let mut word = [0; 8];
        // SAFETY: the test reads only words inside the mapping, which lives long enough.
        unsafe { crate::racy::load(mapped.base().as_ptr().add(at), &mut word) };
        u64::from_le_bytes(word)
    }

    /// Both zero pages and others appear at their places.
    #[test]
    fn a_mapping_has_the_files_content() {
        let directory = RecordingDirectory::new();
        let file = directory.create("a").unwrap();
        let len = 5 * 4096 + 16;
        file.write(len - 16, &[7; 16]).unwrap();
        file.write(2 * 4096 - 8, &[8; 16]).unwrap();
        let mapped = directory.map("a", 1 << 20).unwrap();
        assert_eq!(mapped.len(), len);
        let expected = &directory.files()["a"];
        for (at, word) in (0..).step_by(8).zip(expected.chunks(8)) {
            assert_eq!(read(&*mapped, at).to_le_bytes(), word, "at {at}");
        }
    }

    /// What is stored in a mapping is found in the file, and is durable once the mapping is synced.
    #[test]
    fn stores_to_a_mapping_change_the_file() {
        let directory = RecordingDirectory::new();
        let file = directory.create("a").unwrap();
        file.write(0, &[1; 16]).unwrap();
        let mapped = directory.map("a", 1 << 20).unwrap();
        assert_eq!((mapped.len(), mapped.max() >= 1 << 20), (16, true));
        assert_eq!(read(&*mapped, 0), 0x0101_0101_0101_0101);
        mapped.grow(4096).unwrap();
        mapped.store_word(8, u64::MAX);
        mapped.store(100, b"stored");
        directory.sync().unwrap();
        let lengths = |directory: &RecordingDirectory| {
            let trace = directory.trace();
            let mut states = DirectoryStates::new(&trace);
            while states.advance() {}
            states.all(10_000).unwrap().len()
        };
        assert!(lengths(&directory) > 1);
        mapped.sync().unwrap();
        assert_eq!(lengths(&directory), 1);
        let bytes = &directory.files()["a"];
        assert_eq!(
            (&bytes[..9], &bytes[100..106]),
            (&[1, 1, 1, 1, 1, 1, 1, 1, 255][..], &b"stored"[..])
        );
        // Limits of space and failing syncs are those of the directory.
        directory.limit(Some(4096));
        assert!(matches!(
            mapped.grow(8192),
            Err(MediumError::NoSpace { .. })
        ));
        directory.fail_sync(1, 0, 0);
        assert!(matches!(mapped.sync(), Err(MediumError::Sync(_))));
        assert!(matches!(mapped.sync(), Err(MediumError::Poisoned)));
    }
}
