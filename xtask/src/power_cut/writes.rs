//! What was written to a disk, in order, and what may be left of it when the power goes.
//!
//! QEMU's driver `blklogwrites` appends each write and each flush to a file when it is done. A
//! flush makes durable what was done before it. Of the writes since the last flush a disk with a
//! write cache may have kept any part, in sectors of 512 bytes: [`Writes::cut`] draws one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::random::Random;

use crate::steps::failed;

const SECTOR: u64 = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;

const FLUSH: u64 = 1;
const UNIT_ACCESS: u64 = 2;
const DISCARD: u64 = 4;

/// One write or flush.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// Where on the disk, and how much, in bytes.
    at: u64,
    bytes: u64,
    flags: u64,
    /// Where its bytes begin in the log.
    data: u64,
}

impl Entry {
    fn is_flush(&self) -> bool {
        self.flags & FLUSH != 0
    }

    /// Where the log ends behind it.
    fn end(&self) -> u64 {
        self.data + self.bytes
    }
}

/// The log of a disk, whole: no request was under way when it ended.
pub struct Writes {
    log: File,
    entries: Vec<Entry>,
}

/// What a power cut left.
pub struct Cut {
    /// The log's length when the power went: all that was acknowledged by then must be there.
    pub log_bytes: u64,
    /// Sectors written since the last flush, and those of them that are lost.
    pub unflushed: u64,
    pub lost: u64,
}

/// How writes since the last flush are lost.
enum Losing {
    All,
    None,
    Writes,
    Sectors,
}

impl Writes {
    /// Reads the log of a disk.
    ///
    /// # Errors
    /// In words, when it cannot be read or is none.
    pub fn read(path: &Path) -> Result<Self, String> {
        let log = File::open(path).map_err(failed("open", path))?;
        let length = log.metadata().map_err(failed("read", path))?.len();
        let words = |at: u64| {
            let mut header = [0; 32];
            let read = log.read_exact_at(&mut header, at);
            read.map_err(failed("read", path)).map(|()| {
                [0, 8, 16, 24].map(|at| {
                    let mut word = [0; 8];
                    word.copy_from_slice(&header[at..at + 8]);
                    u64::from_le_bytes(word)
                })
            })
        };
        // The first sector is written at the first flush.
        let [magic, version, _, sector] = words(0)?;
        let described = (magic, version, sector & 0xffff_ffff) == (MAGIC, 1, SECTOR);
        if magic != 0 && !described {
            return Err(format!("{} is no log of writes", path.display()));
        }
        let (mut entries, mut at) = (Vec::new(), SECTOR);
        while at + SECTOR <= length {
            let [sector, sectors, flags, _] = words(at)?;
            if (sectors, flags) == (0, 0) {
                return Err(format!("{}: a hole at {at}", path.display()));
            }
            let kept = if flags & DISCARD == 0 { sectors } else { 0 };
            let entry = Entry {
                at: sector * SECTOR,
                bytes: kept * SECTOR,
                flags,
                data: at + SECTOR,
            };
            at = entry.end();
            entries.push(entry);
        }
        Ok(Self { log, entries })
    }

    /// Draws a moment and what is left then, and writes it to the disk's image, which is as it was
    /// when the log began. Every other moment is the last one.
    ///
    /// # Errors
    /// In words, when the image cannot be written.
    pub fn cut(&self, image: &Path, random: &mut Random) -> Result<Cut, String> {
        // The guest did not ask for the flush at which QEMU stopped.
        let asked = self.entries.iter().rposition(|entry| !entry.is_flush());
        let asked = asked.map_or(0, |last| last + 1);
        let until = match random.below(2) {
            0 => asked,
            _ => random.below(asked as u64 + 1) as usize,
        };
        let entries = &self.entries[..until];
        let flushed = entries.iter().rposition(Entry::is_flush).unwrap_or(0);
        let losing = match random.below(5) {
            0 => Losing::All,
            1 => Losing::None,
            2 | 3 => Losing::Writes,
            _ => Losing::Sectors,
        };
        let mut cut = Cut {
            log_bytes: entries.last().map_or(SECTOR, Entry::end),
            unflushed: 0,
            lost: 0,
        };
        let file = File::options().write(true).open(image);
        let file = file.map_err(failed("open", image))?;
        for (number, entry) in entries.iter().enumerate() {
            let mut bytes = vec![0; entry.bytes as usize];
            let read = self.log.read_exact_at(&mut bytes, entry.data);
            read.map_err(|error| format!("the log of writes: {error}"))?;
            let put =
                |bytes: &[u8], at| file.write_all_at(bytes, at).map_err(failed("write", image));
            if number <= flushed || entry.flags & UNIT_ACCESS != 0 {
                put(&bytes, entry.at)?;
                continue;
            }
            let keeps_write = random.below(2) == 0;
            for (sector, part) in bytes.chunks(SECTOR as usize).enumerate() {
                let is_kept = match losing {
                    Losing::All => false,
                    Losing::None => true,
                    Losing::Writes => keeps_write,
                    Losing::Sectors => random.below(2) == 0,
                };
                cut.unflushed += 1;
                cut.lost += u64::from(!is_kept);
                if is_kept {
                    put(part, entry.at + sector as u64 * SECTOR)?;
                }
            }
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mneme_testkit::TestDir;

    /// The log of writes of one byte's sectors, and of flushes (`None`).
    fn log(entries: &[Option<(u64, u8)>]) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR as usize];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8] = 1;
        bytes[24..28].copy_from_slice(&512_u32.to_le_bytes());
        for entry in entries {
            let (sector, sectors, flags) = match entry {
                Some((sector, _)) => (*sector, 1, 0),
                None => (0, 0, FLUSH),
            };
            let mut header: Vec<u8> = [sector, sectors, flags, 0].map(u64::to_le_bytes).concat();
            header.resize(SECTOR as usize, 0);
            bytes.extend(header);
            bytes.extend(entry.iter().flat_map(|(_, byte)| [*byte; SECTOR as usize]));
        }
        bytes
    }

    #[test]
    fn flushed_writes_are_kept_and_any_part_of_the_rest_is_lost() {
        let dir = TestDir::new("power-cut-writes");
        let (path, image) = (dir.path().join("log"), dir.path().join("image"));
        let entries = [
            Some((0, 1)),
            Some((1, 2)),
            None,
            Some((0, 3)),
            Some((2, 4)),
            None,
        ];
        std::fs::write(&path, log(&entries)).unwrap();
        let writes = Writes::read(&path).unwrap();
        let mut random = Random::new(5);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..400 {
            std::fs::write(&image, [0; 3 * SECTOR as usize]).unwrap();
            let cut = writes.cut(&image, &mut random).unwrap();
            let left = std::fs::read(&image).unwrap();
            let left = [0, 1, 2].map(|n| left[n * SECTOR as usize]);
            if cut.log_bytes == writes.entries[4].end() {
                assert_eq!(cut.unflushed, 2);
                seen.insert(left);
            }
        }
        // The last flush is not the guest's.
        let all = [[1, 2, 0], [1, 2, 4], [3, 2, 0], [3, 2, 4]];
        assert_eq!(seen, all.into_iter().collect());
    }

    #[test]
    fn a_log_with_a_hole_is_refused() {
        let dir = TestDir::new("power-cut-hole");
        let path = dir.path().join("log");
        let mut bytes = log(&[Some((0, 1)), None]);
        bytes.extend([0; SECTOR as usize]);
        std::fs::write(&path, bytes).unwrap();
        assert!(Writes::read(&path).err().unwrap().contains("a hole"));
    }
}
