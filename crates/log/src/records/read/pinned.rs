//! Reads under a firm pin: **what they find stays unchanged until the pin is released, and is lent
//! in place.**
//!
//! The optimistic read comes first. If that finds nothing, the second read respects transactions,
//! and waits for their end.

use mneme_sync::Pin;

use crate::error::ReadError;
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::records::Records;
use crate::records::expiry::{Before, RecordLife};
use crate::records::value::Value;
use crate::region::kind::ValueKind;
use crate::region::record::Record;

impl Records {
    /// The value of `key`, kept readable by its pin.
    ///
    /// It is inlined, so that the value is not copied from one place in memory to another: a wide
    /// load of bytes that were stored in pieces has to wait.
    #[inline(always)]
    pub(crate) fn get(&self, database: u8, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        if self.lends {
            let pin = self.session().participants.pin()?;
            if let Some(value) = self.try_fast_lend(&pin, database, key) {
                return Ok(Some(Value::new(value, pin)));
            }
        }
        self.get_slowly(database, key, ValueKind::STRING)
    }

    /// The value of `key`, in place, if the optimistic read finds it. Valid as long as the caller
    /// is pinned.
    #[inline(always)]
    pub(crate) fn try_fast_lend(&self, _pin: &Pin<'_>, database: u8, key: &[u8]) -> Option<&[u8]> {
        debug_assert!(self.lends);
        let record = self.try_fast_read(database, key)?;
        // SAFETY: pinned firmly; the optimistic read finds plain records alone.
        Some(unsafe { record.lend_plain_value() })
    }

    /// As [`try_fast_lend`](Self::try_fast_lend), for a key at `place`, which led to `segment`
    /// under the same pin.
    #[inline(always)]
    pub(crate) fn try_fast_lend_in(
        &self,
        _pin: &Pin<'_>,
        root: Root,
        place: Place,
        segment: SegmentRef,
        key: &[u8],
    ) -> Option<&[u8]> {
        debug_assert!(self.lends);
        let record = self.try_fast_read_in(root, place, segment, key)?;
        // SAFETY: as in `try_fast_lend`.
        Some(unsafe { record.lend_plain_value() })
    }

    /// As [`Records::get`], if anything is unusual, or a value of another `kind` is wanted. It is
    /// one call, so that the caller of `get` need not assemble its result from several.
    #[inline(never)]
    pub(crate) fn get_slowly(
        &self,
        database: u8,
        key: &[u8],
        kind: ValueKind,
    ) -> Result<Option<Value<'_>>, ReadError> {
        if !self.lends || kind.is_packed() {
            return self.get_copied(database, key, kind);
        }
        let (pin, space) = self.index().enter_to_read(database)?;
        let Some(root) = self.index().root(space)? else {
            return Ok(None);
        };
        let place = self.index().place(key);
        let segment = self.session().mem.index_segment(root, place)?;
        let mut copy = Vec::new();
        let Some(record) = self.find_live(root, place, segment, key, &mut copy)? else {
            return Ok(None);
        };
        record.header().kind().expect(kind)?;
        Ok(Some(match record.changes() {
            true => Value::copied(copy),
            false => Value::new(record.value(), pin),
        }))
    }

    /// The record of `key` at `place`, unless it has expired. The caller is pinned, and has seen
    /// since then that `place` leads to `segment`. `copy` as for [`Records::find_whole`].
    #[inline(never)]
    pub(crate) fn find_live(
        &self,
        root: Root,
        place: Place,
        mut segment: Option<SegmentRef>,
        key: &[u8],
        copy: &mut Vec<u8>,
    ) -> Result<Option<Record<'_>>, ReadError> {
        let before = Before::default();
        loop {
            let seen = self.find_whole(root, place, segment, key, copy)?;
            let Some(found) = seen.and_then(|(found, _)| found) else {
                return Ok(None);
            };
            match self.life(found.record.expires(), &before) {
                RecordLife::Live => {
                    self.note_access(root, place);
                    return Ok(Some(found.record));
                }
                RecordLife::Expired => return Ok(None),
                RecordLife::Unsure => segment = self.session().mem.index_segment(root, place)?,
            }
        }
    }
}
