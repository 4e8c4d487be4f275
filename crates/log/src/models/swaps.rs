//! An operation, or a transaction, beside a swap of the model's two databases.
//!
//! The index of each space is plain memory, so that the checker reports any use that is not ordered
//! before or after every other. So a thread sees what was prepared in a database even if it finds
//! it as the other database afterwards, and a thread that has taken a database out of service has
//! exclusive use of it.
//!
//! The ordering of the table's bytes has no twin: the checker lets two sequentially consistent
//! fences order more than C11 does, so the fences of pin and swap hide a weaker ordering.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use mneme_sync::Word;

use super::{Model, Sound, fails, holds};
use crate::index::databases::{Byte, DatabaseTable};
use crate::region::space::KeyspaceId;

/// A byte of the table.
struct ModelByte(Model<Sound>);

impl Byte for ModelByte {
    fn load(&self, order: Ordering) -> u8 {
        self.0.load(order) as u8
    }

    fn store(&self, value: u8, order: Ordering) {
        self.0.store(u64::from(value), order);
    }
}

struct Store {
    bytes: [ModelByte; 2],
    note: Model<Sound>,
    epoch: Model<Sound>,
    /// The only user's pin; 0: not pinned.
    pin: Model<Sound>,
    /// The content of each space: how often it was used.
    indexes: [UnsafeCell<u64>; 2],
}

impl Store {
    fn new() -> Arc<Store> {
        Arc::new(Store {
            bytes: [ModelByte(Model::new(0)), ModelByte(Model::new(0))],
            note: Model::new(0),
            epoch: Model::new(1),
            pin: Model::new(0),
            indexes: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    fn table(&self) -> DatabaseTable<'_, ModelByte, Model<Sound>> {
        DatabaseTable {
            bytes: &self.bytes,
            note: &self.note,
        }
    }

    /// As `mneme-sync` does it.
    fn pin(&self) {
        self.pin.store(self.epoch.load(Acquire), Release);
        loom::sync::atomic::fence(SeqCst);
    }

    fn unpin(&self) {
        self.pin.store(0, Release);
    }

    fn await_users(&self) {
        loom::sync::atomic::fence(SeqCst);
        let epoch = self.epoch.fetch_add(1, AcqRel);
        while (1..=epoch).contains(&self.pin.load(Acquire)) {
            thread::yield_now();
        }
    }

    fn use_index(&self, space: KeyspaceId) -> u64 {
        // SAFETY: the protocol's claim (a pinned user has the space of its database, a swapper that
        // of the one that no other thread uses); loom fails the model where it does not hold.
        self.indexes[space.index()].with_mut(|uses| unsafe {
            *uses += 1;
            *uses
        })
    }

    fn space_now(&self, database: u8) -> KeyspaceId {
        self.table().space(database).expect("no swap is under way")
    }
}

/// How a user finds its database's space. `None`: it must retry.
type Enter = fn(&Store) -> Option<KeyspaceId>;

fn enter(store: &Store) -> Option<KeyspaceId> {
    store.table().space(0)
}

/// How a swapper swaps.
type Exchange = fn(&Store);

fn exchange(store: &Store) {
    let swap = store.table().mark([0, 1]);
    store.await_users();
    store.table().exchange(swap);
}

/// Database 1 is prepared, and swapped with the one in use.
fn swap(enter: Enter, exchange: Exchange) -> impl Fn() + Send + Sync + 'static {
    move || {
        let store = Store::new();
        let user = {
            let store = store.clone();
            thread::spawn(move || {
                loop {
                    store.pin();
                    if let Some(space) = enter(&store) {
                        let uses = store.use_index(space);
                        store.unpin();
                        break uses;
                    }
                    store.unpin();
                    thread::yield_now();
                }
            })
        };
        store.use_index(store.space_now(1));
        exchange(&store);
        let taken_out = store.use_index(store.space_now(1));
        let uses = user.join().unwrap();
        let before = (uses, taken_out) == (1, 2);
        let after = (uses, taken_out) == (2, 1);
        assert!(before || after, "neither before nor after");
    }
}

#[test]
fn an_operation_is_before_a_swap_or_after_it() {
    holds(swap(enter, exchange));
}

#[test]
fn a_thread_that_ignores_the_mark_uses_a_database_taken_out() {
    let overlooking: Enter = |store| Some(store.table().space_as_pinned(0));
    fails("Causality violation", swap(overlooking, exchange));
}

#[test]
fn a_swap_that_does_not_wait_takes_out_a_database_in_use() {
    let hasty: Exchange = |store| {
        let swap = store.table().mark([0, 1]);
        store.table().exchange(swap);
    };
    fails("Causality violation", swap(enter, hasty));
}

#[test]
fn nor_does_a_swap_that_marks_after_it_has_waited() {
    let late: Exchange = |store| {
        store.await_users();
        let swap = store.table().mark([0, 1]);
        store.table().exchange(swap);
    };
    fails("Causality violation", swap(enter, late));
}

/// A swapper that dies before it stores, and a thread that completes the repair, beside a user.
#[test]
fn a_swap_that_its_swapper_left_did_not_happen() {
    holds(swap(enter, |store| {
        store.table().mark([0, 1]);
        store.table().settle();
        exchange(store);
    }));
}

/// A transaction on both databases.
fn transaction(begins: fn(&Store) -> bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let store = Store::new();
        let swapper = {
            let store = store.clone();
            thread::spawn(move || exchange(&store))
        };
        loop {
            store.pin();
            if begins(&store) {
                break;
            }
            store.unpin();
            thread::yield_now();
        }
        let spaces = [0, 1].map(|database| store.table().space_as_pinned(database));
        assert_ne!(spaces[0], spaces[1], "both databases in one space");
        for space in spaces {
            store.use_index(space);
        }
        store.unpin();
        swapper.join().unwrap();
        assert_eq!(store.note.load(Relaxed), 0);
    }
}

#[test]
fn a_transaction_finds_both_databases_as_they_are_at_one_instant() {
    holds(transaction(|store| store.table().is_settled()));
}

#[test]
fn one_that_does_not_ask_finds_them_in_one_space() {
    fails("both databases in one space", transaction(|_| true));
}
