//! The store's lock-free protocols under a model checker: [loom](https://docs.rs/loom) runs every
//! schedule of a few threads, and every value that C11 lets a load return, up to a bound on
//! preemptions.
//!
//! The code that runs is the product's own, over [`Model`] words and a [`KeyspaceId`] instead of a
//! region. Each model has twins that are broken on purpose: accesses of one kind that order nothing
//! ([`LooseLoads`] and so on), a step left out, or two swapped. A twin must fail; a model whose
//! twins pass shows nothing.
//!
//! Not here are pins and epochs, robust locks and intents, which have models of their own in
//! `mneme-sync`. Here an epoch is a counter and a head's lock a mutex of the checker.

mod bell;
mod buckets;
mod change_sets;
mod expiries;
mod feed;
mod heads;
mod patches;
mod segments;
mod swaps;
mod transactions;
mod watches;

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;
use mneme_sync::Word;

use crate::error::Corrupt;
use crate::index::tags::Tagged;
use crate::region::mem::{Keyed, Loc, Memory};

/// Preemptions per schedule. Two find every twin's fault; the deeper bound is for the long form
/// (`--cfg loom`).
const PREEMPTIONS: usize = if cfg!(loom) { 3 } else { 2 };

/// The actual ordering of an access.
trait Orders: Send + Sync + 'static {
    fn of(access: Access, order: Ordering) -> Ordering;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Load,
    Store,
    Exchange,
}

/// The ordering of the product.
struct Sound;

/// Broken: loads that order nothing.
struct LooseLoads;

/// Broken: stores that order nothing.
struct LooseStores;

/// Broken: exchanges that order nothing.
struct LooseExchanges;

impl Orders for Sound {
    fn of(_: Access, order: Ordering) -> Ordering {
        order
    }
}

macro_rules! loose {
    ($($orders:ident: $access:ident),*) => {
        $(impl Orders for $orders {
            fn of(access: Access, order: Ordering) -> Ordering {
                if access == Access::$access { Ordering::Relaxed } else { order }
            }
        })*
    };
}
loose!(LooseLoads: Load, LooseStores: Store, LooseExchanges: Exchange);

/// A word of the model checker.
///
/// Loom tries two orders of a load and a store only if the load was the *last* access before the
/// store. If the storing thread itself loads in between, loom forgets the other thread's load, and
/// schedules with it (loom issues 166 and 392). So every access to a word that changes during the
/// model first touches a companion by an unordered read-modify-write, of which loom tries all
/// orders.
struct Model<O> {
    word: AtomicU64,
    turn: Option<AtomicU64>,
    orders: PhantomData<O>,
}

impl<O> Model<O> {
    /// A word that threads change.
    fn new(value: u64) -> Model<O> {
        Model {
            turn: Some(AtomicU64::new(0)),
            ..Model::still(value)
        }
    }

    /// A word that no thread changes while threads run.
    fn still(value: u64) -> Model<O> {
        Model {
            word: AtomicU64::new(value),
            turn: None,
            orders: PhantomData,
        }
    }

    fn turn(&self) -> &AtomicU64 {
        if let Some(turn) = &self.turn {
            turn.fetch_add(1, Ordering::Relaxed);
        }
        &self.word
    }
}

impl<O> Default for Model<O> {
    fn default() -> Model<O> {
        Model::new(0)
    }
}

impl<O: Orders> Word for Model<O> {
    fn load(&self, order: Ordering) -> u64 {
        self.turn().load(O::of(Access::Load, order))
    }

    fn store(&self, value: u64, order: Ordering) {
        assert!(self.turn.is_some(), "a still word is stored to");
        self.turn().store(value, O::of(Access::Store, order));
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        assert!(self.turn.is_some(), "a still word is exchanged");
        self.turn().compare_exchange(
            current,
            new,
            O::of(Access::Exchange, success),
            O::of(Access::Exchange, failure),
        )
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.turn().fetch_add(value, O::of(Access::Exchange, order))
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.turn().fetch_max(value, O::of(Access::Exchange, order))
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

impl<O: Orders> Tagged for Model<O> {}

/// Word offset from which locations name records instead of words.
const RECORDS: u64 = 1 << 20;

/// A region of the model: words, and records that are plain memory, for which the checker reports a
/// read before the write.
struct KeyspaceId<O> {
    words: Vec<Model<O>>,
    records: Vec<UnsafeCell<Contents>>,
}

/// What a record holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Contents {
    key: u8,
    version: u64,
}

/// The contents of a record that was not written yet.
const UNWRITTEN: Contents = Contents {
    key: 0,
    version: u64::MAX,
};

impl<O: Orders> KeyspaceId<O> {
    fn new(words: Vec<Model<O>>, records: usize) -> KeyspaceId<O> {
        let records = (0..records).map(|_| UnsafeCell::new(UNWRITTEN)).collect();
        KeyspaceId { words, records }
    }

    /// Copies a record's body to place `i`, as does a writer that reserved it.
    fn write(&self, i: usize, contents: Contents) -> Loc {
        // SAFETY: the protocol's claim (the place is this thread's alone until it is published);
        // loom fails the model where it does not hold.
        self.records[i].with_mut(|record| unsafe { *record = contents });
        record_loc(i)
    }

    fn contents(&self, loc: Loc) -> Contents {
        let i = loc.bits().checked_sub(RECORDS).expect("a record's place");
        // SAFETY: the protocol's claim (a thread that finds a record finds it written); loom fails
        // the model where it does not hold.
        self.records[i as usize].with(|record| unsafe { *record })
    }
}

fn record_loc(i: usize) -> Loc {
    Loc::of_word(RECORDS + i as u64)
}

impl Keyed for Contents {
    fn has_key(&self, key: &[u8]) -> bool {
        *key == [self.key]
    }
}

impl<O: Orders> Memory for KeyspaceId<O> {
    type Word = Model<O>;
    type Record<'m> = Contents;

    fn words<const N: usize>(&self, loc: Loc) -> Result<&[Model<O>; N], Corrupt> {
        let at = loc.bits() as usize;
        Ok(self.words[at..at + N].try_into().expect("N words"))
    }

    fn record(&self, loc: Loc) -> Result<Contents, Corrupt> {
        let contents = self.contents(loc);
        assert_ne!(contents, UNWRITTEN, "a reader sees an unwritten record");
        Ok(contents)
    }
}

/// Runs a model through all its schedules.
fn holds(model: impl Fn() + Send + Sync + 'static) {
    explore(PREEMPTIONS, model);
}

/// Runs a broken twin: some schedule must fail with a message that begins with `how`.
fn fails(how: &str, twin: impl Fn() + Send + Sync + 'static) {
    let run = std::panic::AssertUnwindSafe(|| explore(PREEMPTIONS, twin));
    let Err(panic) = std::panic::catch_unwind(run) else {
        panic!("the broken twin passed: the model shows nothing");
    };
    let words = match panic.downcast_ref::<&str>() {
        Some(words) => *words,
        None => panic.downcast_ref::<String>().map_or("", String::as_str),
    };
    assert!(words.contains(how), "it failed otherwise: {words}");
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}
