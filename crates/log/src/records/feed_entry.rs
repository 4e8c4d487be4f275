//! Entering changes into the change feed. Without a follower, a change costs a load of a word.
//!
//! A change is entered while its home is held, after the present record was found to be as the
//! change expects, and before the intent names the change. From then on the thread, or its reaper,
//! completes the entry before the home is unlocked: as whole if the change has happened, else as
//! void.

use mneme_sync::{DeadSlot, Slot};

use crate::error::{Corrupt, WriteError};
use crate::feed::item::{Item, RemovalCause};
use crate::feed::ring::{Reserved, State};
use crate::index::bucket::Held;
use crate::index::intent::OPERATION_LANE;
use crate::records::Records;
use crate::records::publish::KeyChange;
use crate::region::expiry::Expiry;
use crate::region::mem::Loc;

impl Records {
    /// Whether the maintainer removes nothing, see
    /// [`LogStore::rest_expiry`](crate::LogStore::rest_expiry).
    pub(crate) fn expiry_rests(&self) -> bool {
        self.session().feed.rests()
    }

    /// Enters `item`, if the feed has a follower. The change is announced.
    ///
    /// # Errors
    /// There is no space, or the entry would be too long. The caller gives the change up.
    #[inline(always)]
    pub(crate) fn enter_change<'i>(
        &self,
        slot: &Slot<'_>,
        item: impl FnOnce() -> Result<Item<'i>, Corrupt>,
    ) -> Result<Option<Reserved>, WriteError> {
        match self.session().feed.is_followed() {
            false => Ok(None),
            true => self.session().feed.enter(slot, &[item()?]),
        }
    }

    /// As [`enter_change`](Self::enter_change), for a removal that no caller has requested:
    /// listeners of this opening may receive it, too.
    #[inline(always)]
    pub(crate) fn enter_own_removal<'i>(
        &self,
        slot: &Slot<'_>,
        item: impl FnOnce() -> Result<Item<'i>, Corrupt>,
    ) -> Result<Option<Reserved>, WriteError> {
        match self.session().feed.is_followed() || self.session().feed.are_removals_reported() {
            false => Ok(None),
            true => self.session().feed.enter(slot, &[item()?]),
        }
    }

    /// As [`enter_change`](Self::enter_change), for an operation that has announced itself and
    /// holds an unchanged home: both end if nothing can be entered.
    #[inline(always)]
    pub(crate) fn enter_or_unlock<'b, 'i>(
        &self,
        slot: &Slot<'_>,
        held: Held<'b>,
        item: impl FnOnce() -> Result<Item<'i>, Corrupt>,
    ) -> Result<(Held<'b>, Option<Reserved>), WriteError> {
        self.or_unlock(slot, held, self.enter_change(slot, item))
    }

    /// As there, with the result of entering.
    #[inline(always)]
    pub(crate) fn or_unlock<'b>(
        &self,
        slot: &Slot<'_>,
        held: Held<'b>,
        entered: Result<Option<Reserved>, WriteError>,
    ) -> Result<(Held<'b>, Option<Reserved>), WriteError> {
        match entered {
            Ok(fed) => Ok((held, fed)),
            Err(error) => {
                held.unlock_unchanged();
                slot.intent(OPERATION_LANE).clear();
                Err(error)
            }
        }
    }

    /// Makes the change of `item`, by `attempt`, which enters it. An item that is too long for an
    /// entry is sent ahead in pieces. The caller holds no lock.
    ///
    /// # Errors
    /// Those of `attempt`; there is no space in the feed. Nothing was changed.
    #[cold]
    #[inline(never)]
    pub(crate) fn in_pieces<'i, T>(
        &self,
        slot: &Slot<'_>,
        item: Item<'i>,
        attempt: impl FnOnce() -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let items = [item];
        let feed = &self.session().feed;
        match feed.is_too_long(&items) {
            true => {
                feed.send_ahead(slot, &items, || self.session().await_feed())?;
                let done = attempt();
                // It fails only because of damage, which the check reports, whether or not the
                // change was made.
                let _ = feed.forget(slot, slot.id());
                done
            }
            // It lacked space.
            false => Err(WriteError::FeedFull),
        }
    }

    /// The change has happened.
    #[inline(always)]
    pub(crate) fn complete_change(&self, entry: Option<Reserved>) {
        if let Some(entry) = entry {
            self.session().feed.complete(entry);
        }
    }

    /// The change has not happened.
    #[inline(always)]
    pub(crate) fn void_change(&self, entry: Option<Reserved>) {
        if let Some(entry) = entry {
            self.session().feed.void(entry);
        }
    }

    /// Completes the entry that a dead thread has left, if any, as whole or void, depending on
    /// whether its change has happened. Its reaper calls this before it unlocks.
    pub(crate) fn settle_change_of(
        &self,
        dead: &DeadSlot<'_>,
        happened: bool,
    ) -> Result<(), WriteError> {
        let state = match happened {
            true => State::Whole,
            false => State::Void,
        };
        self.session().feed.settle(dead.id(), state)
    }

    /// Ends what the dead thread has sent ahead or opened. By now its change either has taken place
    /// or never will.
    pub(crate) fn end_feeding_of(
        &self,
        slot: &Slot<'_>,
        dead: &DeadSlot<'_>,
    ) -> Result<(), WriteError> {
        self.session().feed.forget(slot, dead.id())?;
        self.session().feed.close(slot, dead.id())
    }

    /// The item for a change of a key. `root` is the id of its index; `cause` is the reason of a
    /// removal.
    pub(crate) fn item_of<'i>(
        &'i self,
        root: u64,
        change: &KeyChange<'i>,
        cause: RemovalCause,
    ) -> Result<Item<'i>, Corrupt> {
        match change.new {
            Some((loc, _)) => self.put_item(root, loc),
            None => Ok(Item::Remove {
                root,
                key: change.key,
                cause,
            }),
        }
    }

    /// The item for storing the record at `loc`, which this thread has written.
    pub(crate) fn put_item(&self, root: u64, loc: Loc) -> Result<Item<'_>, Corrupt> {
        let record = self.session().mem.record(loc)?;
        Ok(Item::Put {
            root,
            key: record.key(),
            kind: record.header().kind().number(),
            expiry: Expiry::of_word(record.expires()),
            bytes: record.value(),
        })
    }
}
