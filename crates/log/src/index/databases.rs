//! Databases and the spaces that hold their records.
//!
//! **Two databases are exchanged at one instant, for all threads of all processes, even if a
//! process dies in the middle. No operation is half in one space and half in the other.** An index,
//! its records and its counters belong permanently to one of 64 *spaces*. A table of 64 bytes maps
//! databases to spaces; an operation pins, loads the database's byte once, and uses that space
//! until it unpins.
//!
//! The steps of a swap, under a lock of its own:
//!
//! 1. *waited*: wait until every pin that exists now is gone, while others come and go;
//! 2. *noted*: note which two databases, and which spaces they have;
//! 3. *marked*: mark both bytes. A thread that finds a mark releases its pin and waits;
//! 4. *drained*: wait until every pin from before the marks is gone. If that takes too long, undo;
//! 5. *storing*: note that the storing begins;
//! 6. *stored*: store the two new bytes, which have no mark, and clear the note.
//!
//! The only purpose of the step *waited* is that a thread that keeps a value for long delays only
//! the swapper, and no other thread.
//!
//! If the swapper dies, the next thread that takes the lock, a waiter or the reaper, learns from
//! the lock that its owner died. It undoes a swap that is *noted* and finishes one that is
//! *storing*. At that step no thread uses the old spaces any more.
//!
//! A transaction must see all its databases as they are at one instant. So it begins while no swap
//! is noted, and a swap that is noted later waits for its pin.

use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU64, fence};

use mneme_sync::{Acquired, Guard, Holding, Pin, Slot, SlotId, Word};

use crate::error::{ReadError, WriteError};
use crate::feed::area::Binds;
use crate::feed::item::{Item, binding};
use crate::index::Index;
use crate::region::layout::LogHeader;
use crate::region::space::{DATABASES, KeyspaceId};
use crate::session::Wait;

/// Set in a database's byte while it is being swapped.
const MARK: u8 = 1 << 7;
/// The bits of a byte that hold the space.
const SPACE: u8 = DATABASES as u8 - 1;

/// In the note: both bytes are marked or about to be.
const MARKING: u64 = 1;
/// In the note: no thread uses the old spaces any more, and the new bytes are being stored.
const STORING: u64 = 2;

/// A byte of the table is space XOR database: in zeroed memory each database has the space with its
/// own number.
#[inline]
fn space_of(byte: u8, database: u8) -> KeyspaceId {
    KeyspaceId::new(byte ^ database)
}

/// The byte that assigns `space` to `database`.
fn byte_of(space: KeyspaceId, database: u8) -> u8 {
    space.number() ^ (database & SPACE)
}

/// A byte of the table.
pub(crate) trait Byte {
    fn load(&self, order: Ordering) -> u8;
    fn store(&self, value: u8, order: Ordering);
}

impl Byte for AtomicU8 {
    #[inline]
    fn load(&self, order: Ordering) -> u8 {
        self.load(order)
    }

    fn store(&self, value: u8, order: Ordering) {
        self.store(value, order);
    }
}

/// Two databases, and the spaces that they have before they are swapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Swap {
    databases: [u8; 2],
    spaces: [KeyspaceId; 2],
}

impl Swap {
    fn word(self, phase: u64) -> u64 {
        let [a, b] = self.databases.map(u64::from);
        let [of_a, of_b] = self.spaces.map(|space| u64::from(space.number()));
        phase | a << 8 | b << 16 | of_a << 24 | of_b << 32
    }

    fn of_word(word: u64) -> Swap {
        let number = |shift: u32| (word >> shift) as u8 & SPACE;
        Swap {
            databases: [number(8), number(16)],
            spaces: [KeyspaceId::new(number(24)), KeyspaceId::new(number(32))],
        }
    }
}

/// The table and the note, in a region or in a model. Only the lock's holder may do more than read.
pub(crate) struct DatabaseTable<'t, B, W> {
    pub bytes: &'t [B],
    pub note: &'t W,
}

impl<'t> DatabaseTable<'t, AtomicU8, AtomicU64> {
    #[inline]
    pub fn of(header: &'t LogHeader) -> Self {
        DatabaseTable {
            bytes: &header.spaces,
            note: &header.swapping,
        }
    }
}

impl<B: Byte, W: Word> DatabaseTable<'_, B, W> {
    /// The space of `database`. `None` while it is being swapped. The caller is pinned, and uses no
    /// result from before that pin.
    #[inline]
    pub fn space(&self, database: u8) -> Option<KeyspaceId> {
        // SYNC: pairs with the Release stores in `mark` and `set`: a thread that loads the new
        // space sees what was done there while it was another database's.
        let byte = self.byte(database).load(Acquire);
        (byte & MARK == 0).then_some(space_of(byte, database))
    }

    /// As [`space`](Self::space), marked or not: for a thread whose pin is older than any mark.
    pub fn space_as_pinned(&self, database: u8) -> KeyspaceId {
        // SYNC: as in `space`.
        space_of(self.byte(database).load(Acquire), database)
    }

    /// Whether no swap is under way. If so, no swap changes anything until the caller's pin is
    /// gone.
    pub fn is_settled(&self) -> bool {
        // SYNC: pairs with the Release stores of the note: with the last swap's end come its bytes.
        self.note.load(Acquire) == 0
    }

    #[inline]
    fn byte(&self, database: u8) -> &B {
        &self.bytes[usize::from(database & SPACE)]
    }

    /// The steps *noted* and *marked*.
    pub fn mark(&self, databases: [u8; 2]) -> Swap {
        let swap = Swap {
            databases,
            spaces: databases.map(|database| self.space_as_pinned(database)),
        };
        // SYNC: pairs with the Acquire loads in `settle` and `is_settled`.
        self.note.store(swap.word(MARKING), Release);
        mneme_sys::fault!("log.swap.noted");
        for (database, space) in databases.into_iter().zip(swap.spaces) {
            // SYNC: pairs with the Acquire load in `space`; threads that do not see it have pinned
            // before the epoch that the step *drained* waits for.
            let byte = self.byte(database);
            byte.store(byte_of(space, database) | MARK, Release);
            mneme_sys::fault!("log.swap.marked");
        }
        swap
    }

    /// The steps *storing* and *stored*.
    pub fn exchange(&self, swap: Swap) {
        // SYNC: pairs with the Acquire load in `settle`.
        self.note.store(swap.word(STORING), Release);
        mneme_sys::fault!("log.swap.storing");
        let [a, b] = swap.databases;
        let [of_a, of_b] = swap.spaces;
        self.set(a, of_b);
        mneme_sys::fault!("log.swap.stored");
        self.set(b, of_a);
        mneme_sys::fault!("log.swap.stored");
        self.clear_note();
    }

    /// Removes the marks.
    pub fn undo(&self, swap: Swap) {
        for (database, space) in swap.databases.into_iter().zip(swap.spaces) {
            self.set(database, space);
            mneme_sys::fault!("log.swap.unmarked");
        }
        self.clear_note();
    }

    fn set(&self, database: u8, space: KeyspaceId) {
        // SYNC: pairs with the Acquire loads in `space` and `space_as_pinned`.
        self.byte(database).store(byte_of(space, database), Release);
    }

    fn clear_note(&self) {
        // SYNC: pairs with the Acquire load in `is_settled`.
        self.note.store(0, Release);
        mneme_sys::fault!("log.swap.done");
    }

    /// Whether a swap is noted that has not reached *storing*.
    pub fn is_marking(&self) -> bool {
        // SYNC: as in `settle`.
        !matches!(self.note.load(Acquire) & 0xff, 0 | STORING)
    }

    /// Undoes or finishes a swap whose swapper died.
    pub fn settle(&self) {
        // SYNC: pairs with the Release stores of the note.
        let word = self.note.load(Acquire);
        let swap = Swap::of_word(word);
        match word & 0xff {
            0 => {}
            STORING => self.exchange(swap),
            _ => self.undo(swap),
        }
        // No swap is noted, so a mark is damage, and threads would wait for it for ever.
        for byte in self.bytes {
            let marked = byte.load(Relaxed);
            if marked & MARK != 0 {
                byte.store(marked & !MARK, Release);
            }
        }
    }
}

impl Index {
    #[inline]
    pub(crate) fn table(&self) -> DatabaseTable<'_, AtomicU8, AtomicU64> {
        DatabaseTable::of(self.session().tables.header())
    }

    /// Pins. Returns the space of `database`, which does not change until the pin is released.
    #[inline(always)]
    pub(crate) fn enter<'p>(
        &'p self,
        slot: &Slot<'p>,
        database: u8,
    ) -> Result<(Pin<'p>, KeyspaceId), ReadError> {
        let pin = slot.pin();
        match self.table().space(database) {
            Some(space) => Ok((pin, space)),
            None => {
                drop(pin);
                self.enter_after_swap(slot, database)
            }
        }
    }

    /// As [`enter`](Self::enter), for readers, which need no slot until they have to wait.
    pub(crate) fn enter_to_read(&self, database: u8) -> Result<(Pin<'_>, KeyspaceId), ReadError> {
        let pin = self.session().participants.pin()?;
        match self.space(database) {
            Some(space) => Ok((pin, space)),
            None => {
                drop(pin);
                self.enter_after_swap(&self.session().participants.slot()?, database)
            }
        }
    }

    /// The space of `database` until the caller's pin is released. `None` while it is being
    /// swapped.
    #[inline(always)]
    pub(crate) fn space(&self, database: u8) -> Option<KeyspaceId> {
        self.table().space(database)
    }

    #[cold]
    fn enter_after_swap<'p>(
        &'p self,
        slot: &Slot<'p>,
        database: u8,
    ) -> Result<(Pin<'p>, KeyspaceId), ReadError> {
        let mut wait = Wait::new();
        loop {
            self.await_swap(slot, &mut wait)
                .map_err(WriteError::while_reading)?;
            let pin = slot.pin();
            if let Some(space) = self.table().space(database) {
                return Ok((pin, space));
            }
        }
    }

    /// Pins so that the space of no database changes until the pin is released.
    pub(crate) fn enter_all<'p>(&'p self, slot: &Slot<'p>) -> Result<Pin<'p>, WriteError> {
        let mut wait = Wait::new();
        loop {
            let pin = slot.pin();
            if self.table().is_settled() {
                return Ok(pin);
            }
            drop(pin);
            self.await_swap(slot, &mut wait)?;
        }
    }

    /// Whether databases are being swapped, or their swap was left half done.
    pub(crate) fn is_swapping(&self) -> bool {
        !self.table().is_settled()
    }

    /// The space of a database, for a caller pinned by [`enter_all`](Self::enter_all).
    pub(crate) fn entered_space(&self, database: u8) -> KeyspaceId {
        self.table().space_as_pinned(database)
    }

    /// The database whose space is `space`. The caller is pinned.
    ///
    /// While a swap stores its two bytes, two databases have the same space. It belongs to the one
    /// whose byte no longer has a mark.
    pub(crate) fn database_of(&self, space: KeyspaceId) -> u8 {
        let table = self.table();
        let has_it = |database: &u8| table.space(*database) == Some(space);
        let had_it = |database: &u8| table.space_as_pinned(*database) == space;
        // Usually a database has never been swapped.
        let all = || [space.number()].into_iter().chain(0..DATABASES as u8);
        let found = all().find(has_it).or_else(|| all().find(had_it));
        found.unwrap_or(space.number())
    }

    /// One round of waiting for the swapper.
    #[cold]
    pub(crate) fn await_swap(&self, slot: &Slot<'_>, wait: &mut Wait) -> Result<(), WriteError> {
        let lock = &self.session().tables.header().swap;
        match lock.owner() {
            Some(swapper) => self.session().wait_on(slot, wait, swapper, Holding::Lock),
            // The lock is in the data region, which this opening may not write. Either its holder
            // has just released it, or an opening that may write will repair it.
            None if self.session().read_only => {
                self.session()
                    .wait_on(slot, wait, SlotId::NONE, Holding::Lock)
            }
            None => {
                if let Some(acquired) = lock.try_lock_free(slot) {
                    drop(self.settle_swap(acquired));
                }
                Ok(())
            }
        }
    }

    /// Settles the swap that the lock's last owner left, if it died.
    pub(crate) fn settle_swap<'g>(&self, acquired: Acquired<Guard<'g>>) -> Guard<'g> {
        let guard = acquired.into_inner();
        let is_undone = self.table().is_marking();
        (self.session().feed).settle_binding(Binds::Swapping, |_| !is_undone);
        self.table().settle();
        guard.repaired();
        guard
    }

    /// Enters a swap into the change feed, if there is one. No thread uses the two databases, and
    /// the caller holds the lock.
    pub(crate) fn enter_swap(&self, slot: &Slot<'_>, swap: Swap) -> Result<(), WriteError> {
        if !self.session().feed.is_followed() {
            return Ok(());
        }
        let [a, b] = swap.databases;
        let mut roots = [0; 2];
        for (id, space) in roots.iter_mut().zip(swap.spaces) {
            if let Some(root) = self.root(space)? {
                *id = self.root_id(root)?;
            }
        }
        let databases = [binding(a, roots[1]), binding(b, roots[0])];
        let bind = Item::Bind {
            databases: &databases,
            dead: &[],
        };
        if let Some(entry) = self.session().feed.enter(slot, &[bind])? {
            self.session().feed.note_binding(Binds::Swapping, entry, 0);
        }
        Ok(())
    }

    /// Completes the entry of a swap that this opening has made.
    pub(crate) fn complete_swap(&self) {
        self.session()
            .feed
            .settle_binding(Binds::Swapping, |_| true);
        self.session().feed.count_own_swap();
    }

    /// Ends the swap that a dead participant has left.
    pub(crate) fn repair_swap(&self, slot: &Slot<'_>) -> Result<(), WriteError> {
        drop(self.settle_swap(self.session().tables.header().swap.lock(slot)?));
        Ok(())
    }

    /// Describes what is wrong with the table, checked when no swap is under way.
    pub(crate) fn check_spaces(&self, slot: &Slot<'_>) -> Result<Option<String>, WriteError> {
        let _held = self.settle_swap(self.session().tables.header().swap.lock(slot)?);
        let bytes = &self.session().tables.header().spaces;
        let without = bytes.iter().position(|byte| byte.load(Relaxed) > SPACE);
        Ok(match without {
            Some(database) => Some(format!("database {database} has no space")),
            None => self.shared_space(),
        })
    }

    /// Describes two databases that have the same space, provided that no swap is visibly under
    /// way. Takes no lock.
    pub(crate) fn settled_shared_space(&self) -> Option<String> {
        let standing = || {
            // SYNC: pairs with the Release in `swap_databases`.
            let swaps = self.session().tables.header().swaps.load(Acquire);
            self.table().is_settled().then_some(swaps)
        };
        let before = standing()?;
        let shared = self.shared_space()?;
        fence(Acquire);
        (standing() == Some(before)).then_some(shared)
    }

    fn shared_space(&self) -> Option<String> {
        let mut databases = [None; DATABASES];
        for database in 0..DATABASES as u8 {
            let space = self.table().space_as_pinned(database);
            if let Some(other) = databases[space.index()].replace(database) {
                return Some(format!(
                    "databases {other} and {database} both have space {space}"
                ));
            }
        }
        None
    }
}
