//! The optimistic read: **almost every successful lookup ends here, and stores nothing except its
//! pin.**
//!
//! It follows only the common path: the page that the index leads to, the first entry with the
//! key's tag in its home bucket, and a plain record. It accepts the result if the bucket was
//! unlocked before and its word is unchanged after.
//!
//! `None` does not mean that the key is absent. The caller looks again in [`pinned`](super::pinned)
//! or [`copying`](super::copying), which wait for transactions, follow entries behind their home,
//! map new parts of a region that has grown, and distinguish damage from absence.
//!
//! Everything is loaded by atomics from what was mapped when the read began, and each location is
//! checked against that mapping, so that the read may also run under a pin that is revoked. The
//! result of each step fits in a register;
//! `docs/decisions/007-what-a-lookup-carries-fits-registers.md` has the measured gain.

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::error::Corrupt;
use crate::index::databases::DatabaseTable;
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::records::Records;
use crate::region::mem::{Loc, Mem, Memory};
use crate::region::racing::RacingRecord;
use crate::region::record::Header;

/// The region as it was mapped at one moment: its address and length, loaded once and kept in
/// registers. A slower read sees how far the region has grown since.
#[derive(Clone, Copy)]
struct Mapped<'m> {
    base: *const u8,
    len: u64,
    region: PhantomData<&'m Mem>,
}

impl<'m> Mapped<'m> {
    #[inline(always)]
    fn now(mem: &'m Mem) -> Mapped<'m> {
        Mapped {
            base: mem.base(),
            len: mem.region().len() as u64,
            region: PhantomData,
        }
    }

    #[inline(always)]
    fn address(&self, loc: Loc, bytes: u64) -> Result<*const u8, Corrupt> {
        // A Loc is below 2^45, and no record longer than 2^33, so that the sum cannot overflow.
        if loc.byte() + bytes <= self.len {
            Ok(self.base.wrapping_add(loc.byte() as usize))
        } else {
            Err(not_mapped(loc))
        }
    }
}

#[cold]
fn not_mapped(loc: Loc) -> Corrupt {
    Corrupt::at(loc.byte(), "beyond what was mapped at that moment")
}

impl<'a> Memory for Mapped<'a> {
    type Word = AtomicU64;
    type Record<'m>
        = RacingRecord<'a>
    where
        Self: 'm;

    #[inline(always)]
    fn words<const N: usize>(&self, loc: Loc) -> Result<&[AtomicU64; N], Corrupt> {
        let address = self.address(loc, N as u64 * 8)?;
        // SAFETY: the range lies inside the mapping (checked), a Loc is a multiple of 8 bytes from
        // a page-aligned base, any bits are valid AtomicU64s, and the mapping lives as long as the
        // `Mem`.
        Ok(unsafe { &*address.cast::<[AtomicU64; N]>() })
    }

    #[inline(always)]
    fn record(&self, loc: Loc) -> Result<RacingRecord<'a>, Corrupt> {
        let header = Memory::header(self, loc)?;
        let address = self.address(loc, header.size())?;
        // SAFETY: checked just now; a Loc is a multiple of 8 bytes from a page-aligned base.
        Ok(unsafe { RacingRecord::new(header, address) })
    }

    #[inline(always)]
    fn plain_record(&self, loc: Loc) -> Option<RacingRecord<'a>> {
        let word = self.word(loc).ok()?;
        // Half of all short records lie in two lines. The second line is prefetched before the
        // header in the first shows the length.
        mneme_sys::prefetch(std::ptr::from_ref(word).cast::<u8>().wrapping_add(63));
        let header = Header(word.load(Relaxed));
        let end = header.plain_end()?;
        // The padding after the end belongs to the last word.
        let address = self.address(loc, end as u64).ok()?;
        // SAFETY: as in `record`.
        Some(unsafe { RacingRecord::new(header, address) })
    }
}

impl Records {
    /// The plain record of `key`, if it has not expired and nothing is unusual. The caller is
    /// pinned, firmly if it lends the value.
    #[inline(always)]
    pub(crate) fn try_fast_read(&self, database: u8, key: &[u8]) -> Option<RacingRecord<'_>> {
        let (mapped, header) = (
            Mapped::now(&self.session().mem),
            self.session().tables.header(),
        );
        let space = DatabaseTable::of(header).space(database)?;
        let root = Root::try_fast(header, &mapped, space)?;
        let place = self.index().place(key);
        let segment = mapped.try_fast_segment(root, place)?;
        self.read_in(mapped, root, place, segment, key)
    }

    /// As [`try_fast_read`](Self::try_fast_read), for a key at `place`, which led to `segment`
    /// under the caller's pin.
    #[inline(always)]
    pub(crate) fn try_fast_read_in(
        &self,
        root: Root,
        place: Place,
        segment: SegmentRef,
        key: &[u8],
    ) -> Option<RacingRecord<'_>> {
        self.read_in(Mapped::now(&self.session().mem), root, place, segment, key)
    }

    #[inline(always)]
    fn read_in<'m>(
        &self,
        mapped: Mapped<'m>,
        root: Root,
        place: Place,
        segment: SegmentRef,
        key: &[u8],
    ) -> Option<RacingRecord<'m>> {
        let record = mapped.try_fast_record(segment, place.tag, key)?;
        if self.has_passed(record.expires()) {
            return None;
        }
        self.note_access(root, place);
        Some(record)
    }
}
