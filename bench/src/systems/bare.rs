//! No store at all: a record's number is its place. The floor that every store is measured against.
//!
//! Copies are plain ones, as fast as the machine has them, and so must never race: where threads
//! write, each keeps to records of its own, every `n`th beginning with its number, which are spread
//! over the same memory as all the others'.

use super::{Entry, Load, System, change};
use crate::error::BenchError;
use crate::generate::keys::{KEY_BYTES, stamp_of};
use crate::memory::Bare;
use mneme_sys::PagePolicy;
use std::cell::Cell;

/// Its name in reports.
pub const NAME: &str = "bare";

/// Places behind the last record, one for each thread that there may be.
const BEYOND: usize = 1024;

thread_local! {
    /// This thread's number and of how many, where threads write; `(0, 1)` where it may use every
    /// record.
    static SHARE: Cell<(u32, u32)> = const { Cell::new((0, 1)) };
}

/// Bytes from one record to the next: a header of 8, the key, the value, rounded as a log rounds
/// them.
pub fn stride(value: usize) -> usize {
    (8 + KEY_BYTES + value).next_multiple_of(8)
}

/// Values at fixed places in huge-page memory.
pub struct BareRecords {
    memory: Bare,
    stride: usize,
}

impl BareRecords {
    /// Memory for the records and no others.
    ///
    /// # Errors
    /// [`BenchError::Memory`].
    pub fn new(load: Load) -> Result<Self, BenchError> {
        let stride = stride(load.value);
        // Every thread's share of the last few records exists, too, and is stamped as if it were
        // loaded.
        let records = load.records as usize + BEYOND;
        let memory = Bare::new(stride * records, PagePolicy::Huge)?;
        let bare = Self { memory, stride };
        for own in records - BEYOND..records {
            // SAFETY: nobody else has this memory yet.
            unsafe {
                bare.memory
                    .copy_in(bare.place(own as u32), &(own as u64).to_le_bytes())
            };
        }
        Ok(bare)
    }

    /// The record of this thread's share that stands for `id`.
    #[inline]
    fn own(id: u32) -> u32 {
        let (thread, threads) = SHARE.get();
        match threads {
            1 => id,
            2 => (id & !1) | thread,
            _ => id / threads * threads + thread,
        }
    }

    #[inline]
    fn place(&self, own: u32) -> usize {
        own as usize * self.stride + 8 + KEY_BYTES
    }
}

impl System for BareRecords {
    fn enter(&self, entry: Entry) {
        SHARE.set(if entry.writers {
            (entry.thread, entry.threads)
        } else {
            (0, 1)
        });
    }

    #[inline]
    fn read(&self, id: u32, into: &mut [u8]) -> bool {
        let own = Self::own(id);
        // SAFETY: all threads have entered; either none writes, or only this one uses `own`.
        unsafe { self.memory.copy_out(self.place(own), into) };
        std::hint::black_box(&mut *into);
        // The stamp is its own or, where threads keep to their shares, that of a record beside it.
        stamp_of(into).abs_diff(u64::from(own)) < BEYOND as u64
    }

    #[inline]
    fn write(&self, id: u32, value: &[u8]) -> bool {
        // SAFETY: all threads have entered and this one writes, so only this one uses the record.
        unsafe { self.memory.copy_in(self.place(Self::own(id)), value) };
        true
    }

    #[inline]
    fn modify(&self, id: u32, into: &mut [u8]) -> bool {
        let own = self.read(id, into);
        change(into);
        self.write(id, into) && own
    }

    fn remove(&self, _: u32) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_a_share_of_the_last_record() {
        let load = Load {
            records: 3,
            value: 100,
        };
        let bare = BareRecords::new(load).unwrap();
        for thread in 0..2 {
            bare.enter(Entry {
                thread,
                threads: 2,
                writers: true,
            });
            let mut value = [0; 100];
            crate::generate::keys::stamp(&mut value, 2);
            // The first thread's is the record itself, which loading stores.
            if thread == 0 {
                bare.write(2, &value);
            }
            assert!(bare.read(2, &mut value), "thread {thread}");
        }
    }
}
