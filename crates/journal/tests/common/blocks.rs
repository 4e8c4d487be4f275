//! A simulated directory on a disk whose files have blocks only where they were written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use mneme_sys::medium::{Directory, MediumError, RecordingDirectory, Storage};

const BLOCK: u64 = 4096;

type Written = Arc<Mutex<BTreeSet<u64>>>;

#[derive(Debug, Default)]
struct Disk {
    /// The blocks of each file.
    files: BTreeMap<String, Written>,
    /// The maximum number of blocks of all files together.
    limit: Option<usize>,
}

impl Disk {
    fn used(&self) -> usize {
        self.files
            .values()
            .map(|file| file.lock().unwrap().len())
            .sum()
    }
}

#[derive(Debug, Clone, Default)]
pub struct Blocks {
    pub inner: RecordingDirectory,
    disk: Arc<Mutex<Disk>>,
}

impl Blocks {
    /// From now on only this many more blocks can be allocated.
    pub fn leave(&self, blocks: Option<usize>) {
        let mut disk = self.disk.lock().unwrap();
        disk.limit = blocks.map(|blocks| disk.used() + blocks);
    }

    /// The files that do not have all their blocks.
    pub fn with_holes(&self) -> Vec<String> {
        let lens = self.inner.files();
        let disk = self.disk.lock().unwrap();
        let files = disk.files.iter();
        let with_holes = files.filter(|(name, file)| {
            let blocks = lens[*name].len().div_ceil(BLOCK as usize);
            file.lock().unwrap().len() < blocks
        });
        with_holes.map(|(name, _)| name.clone()).collect()
    }

    fn storage(&self, name: &str, inner: Box<dyn Storage>) -> Box<dyn Storage> {
        let mut disk = self.disk.lock().unwrap();
        let written = Arc::clone(disk.files.entry(name.to_owned()).or_default());
        Box::new(File {
            inner,
            written,
            disk: Arc::clone(&self.disk),
        })
    }
}

#[derive(Debug)]
struct File {
    inner: Box<dyn Storage>,
    written: Written,
    disk: Arc<Mutex<Disk>>,
}

impl Storage for File {
    fn len(&self) -> Result<u64, MediumError> {
        self.inner.len()
    }
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), MediumError> {
        self.inner.read(at, buffer)
    }
    /// The number of blocks that there is space for.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), MediumError> {
        let end = at + bytes.len() as u64;
        let disk = self.disk.lock().unwrap();
        for block in at / BLOCK..end.div_ceil(BLOCK) {
            let is_full = disk.limit.is_some_and(|limit| disk.used() >= limit);
            if is_full && !self.written.lock().unwrap().contains(&block) {
                return Err(MediumError::NoSpace { wanted: end });
            }
            self.written.lock().unwrap().insert(block);
            let [from, to] = [block, block + 1].map(|n| (n * BLOCK).clamp(at, end));
            let part = &bytes[(from - at) as usize..(to - at) as usize];
            self.inner.write(from, part)?;
        }
        Ok(())
    }
    fn sync(&self) -> Result<(), MediumError> {
        self.inner.sync()
    }
    fn is_named(&self) -> Result<bool, MediumError> {
        self.inner.is_named()
    }
    fn drop_cached(&self) -> Result<(), MediumError> {
        self.inner.drop_cached()
    }
}

impl Directory for Blocks {
    fn names(&self) -> Result<Vec<String>, MediumError> {
        self.inner.names()
    }
    fn create(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        Ok(self.storage(name, self.inner.create(name)?))
    }
    fn open(&self, name: &str) -> Result<Box<dyn Storage>, MediumError> {
        Ok(self.storage(name, self.inner.open(name)?))
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), MediumError> {
        self.inner.rename(from, to)?;
        let mut disk = self.disk.lock().unwrap();
        let written = disk.files.remove(from).unwrap();
        disk.files.insert(to.to_owned(), written);
        Ok(())
    }
    fn remove(&self, name: &str) -> Result<(), MediumError> {
        self.inner.remove(name)?;
        self.disk.lock().unwrap().files.remove(name);
        Ok(())
    }
    fn sync(&self) -> Result<(), MediumError> {
        self.inner.sync()
    }
}
