//! Reading and setting the expiry of a key.

use mneme_sync::Slot;

use super::components::Store;
use super::ops::{Decision, Takes, Updated};
use crate::error::{ReadError, WriteError};
use crate::feed::item::Item;
use crate::index::counts::RecordCounts;
use crate::index::intent::OPERATION_LANE;
use crate::index::lookup::Lookup;
use crate::index::root::Root;
use crate::index::shape::Place;
use crate::records::change_set::Counted;
use crate::records::expiry::{Before, Expiry, RecordLife, Stored};
use crate::records::publish::{Expect, KeyChange};
use crate::region::kind::ValueKind;
use crate::region::mem::Loc;
use crate::region::record::{EXPIRY_AT, MAX_KEY};
use crate::session::Wait;

impl Store {
    /// When `key` expires. `None`: it is absent.
    pub(crate) fn expiry(&self, database: u8, key: &[u8]) -> Result<Option<Expiry>, ReadError> {
        let found = self.records().find_copying(database, key)?;
        Ok(found.map(|outline| Expiry::of_word(outline.expires)))
    }

    /// Sets the expiry of `key` to what `decide` returns for the present record, atomically. If it
    /// `reads`, the value must be a string; otherwise the value that `decide` sees is empty.
    pub(crate) fn update_expiry(
        &self,
        database: u8,
        key: &[u8],
        reads: bool,
        decide: &mut impl FnMut(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Updated, WriteError> {
        self.session().may_write()?;
        if key.len() > MAX_KEY {
            return Ok(Updated::Absent);
        }
        // A value that may be overwritten is read as a copy, in the general way.
        if !(reads && self.records().overwrites())
            && let Some(updated) = self.update_expiry_word(database, key, reads, decide)?
        {
            return Ok(updated);
        }
        let takes = match reads {
            true => Takes::Only(ValueKind::STRING),
            false => Takes::Any,
        };
        self.update(database, key, takes, None, |stored| {
            match stored.and_then(|s| Some((s, decide(s)?))) {
                Some((stored, expiry)) if expiry != stored.expiry => {
                    Decision::ReplaceUntil(stored.value.to_vec(), expiry)
                }
                _ => Decision::Keep,
            }
        })
    }

    /// Removes `key` if it has expired. Returns whether it had.
    pub(crate) fn remove_if_expired(&self, database: u8, key: &[u8]) -> Result<bool, WriteError> {
        let slot = self.session().writer()?;
        if key.len() > MAX_KEY {
            return Ok(false);
        }
        let (_pin, space) = self.index().enter(&slot, database)?;
        let Some(root) = self.index().root(space)? else {
            return Ok(false);
        };
        let place = self.index().place(key);
        let segment = self.session().mem.index_segment(root, place)?;
        let seen = self.index().find(root, place, segment, key)?;
        let expired = seen
            .and_then(|(found, _)| found)
            .filter(|found| self.records().is_expired(&found.record));
        match expired {
            Some(found) => {
                let removal = KeyChange::removal(root, place, key);
                self.reclaim()
                    .remove_expired(&slot, removal, found.entry.loc())
            }
            None => Ok(false),
        }
    }

    /// Sets the expiry in place. `None`: the record has no word for it.
    fn update_expiry_word(
        &self,
        database: u8,
        key: &[u8],
        reads: bool,
        decide: &mut impl FnMut(Stored<'_>) -> Option<Expiry>,
    ) -> Result<Option<Updated>, WriteError> {
        let index = self.index();
        let records = self.records();
        let slot = self.session().participants.slot()?;
        let (_pin, space) = index.enter(&slot, database)?;
        let Some(root) = index.root(space)? else {
            return Ok(Some(Updated::Absent));
        };
        let place = index.place(key);
        let (mut wait, before) = (Wait::new(), Before::default());
        let mut copy = Vec::new();
        loop {
            let segment = self.session().mem.index_segment(root, place)?;
            // A value that is lent whole no longer changes in place: a writer that changes it makes
            // another record, and `decide` is called again.
            let seen = match reads {
                true => records.find_whole(root, place, segment, key, &mut copy)?,
                false => index.find(root, place, segment, key)?,
            };
            let found = seen.as_ref().and_then(|(found, _)| found.as_ref());
            // Read once: the expiry may change in place.
            let Some((found, expires)) = found.map(|found| (found, found.record.expires())) else {
                return Ok(Some(Updated::Absent));
            };
            match records.life(expires, &before) {
                RecordLife::Live => {}
                RecordLife::Expired => return Ok(Some(Updated::Absent)),
                RecordLife::Unsure => continue,
            }
            if reads {
                found.record.header().kind().expect(ValueKind::STRING)?;
            }
            records.note_access(root, place);
            // Called before the bucket is locked, so that `decide` may do anything, even panic.
            let now = Expiry::of_word(expires);
            let decided = decide(Stored {
                value: if reads { found.record.value() } else { &[] },
                expiry: now,
                kind: found.record.header().kind(),
            });
            self.session().may_go_on(&slot)?;
            let to = match decided {
                Some(to) if to != now => to,
                _ => return Ok(Some(Updated::Kept)),
            };
            if !found.record.header().has_expiry() {
                return Ok(None);
            }
            let seen = (found.entry.loc(), expires);
            let item = Item::Expire {
                root: index.root_id(root)?,
                key,
                expiry: to,
            };
            let mut set = || self.set_expiry_if(&slot, (root, place), key, seen, to, &mut wait);
            let is_set = match set() {
                Err(WriteError::FeedFull) => records.in_pieces(&slot, item, set)?,
                is_set => is_set?,
            };
            if is_set {
                records.expect_expiries();
                return Ok(Some(Updated::Replaced));
            }
        }
    }

    /// Sets the expiry of a record that has a word for it, if it still is the record that was seen,
    /// with the same expiry. Returns whether it was.
    fn set_expiry_if(
        &self,
        slot: &Slot<'_>,
        (root, place): (Root, Place),
        key: &[u8],
        (loc, expires): (Loc, u64),
        to: Expiry,
        wait: &mut Wait,
    ) -> Result<bool, WriteError> {
        let records = self.records();
        let id = self.index().root_id(root)?;
        let Some(segment) = self.session().mem.index_segment(root, place)? else {
            return Ok(false);
        };
        let Some(held) = records.lock_home(slot, segment, place, wait)? else {
            return Ok(false);
        };
        let found = self.session().mem.find_in(segment, place.tag, key);
        let expect = Expect::Expiring(loc, expires);
        let as_seen = match &found {
            Ok(Some(found)) if records.is_expected(&held, expect, Some(found)) => {
                Some(&found.record)
            }
            _ => None,
        };
        let as_seen = as_seen.filter(|record| record.header().has_expiry());
        if let Some(record) = as_seen {
            let (held, fed) = records.enter_or_unlock(slot, held, || {
                Ok(Item::Expire {
                    root: id,
                    key,
                    expiry: to,
                })
            })?;
            records.note_change(root, place);
            let counted = Counted {
                space: root.space(),
                root: id,
                delta: RecordCounts::change(Some(expires != 0), Some(to != Expiry::Never)),
            };
            records.change_word(slot, (loc, record), (EXPIRY_AT, to.word()), counted);
            records.complete_change(fed);
            held.unlock();
        } else {
            held.unlock_unchanged();
        }
        let set = as_seen.is_some();
        slot.intent(OPERATION_LANE).clear();
        found?;
        Ok(set)
    }
}
