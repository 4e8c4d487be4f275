//! The stores with which scenarios begin, by kind: their settings, their records, and the dead
//! participant in some.

use std::sync::{Arc, LazyLock};

use mneme_arena::LendingOptions;
use mneme_log::{Builder, Expiry, LogStore, UpdatePolicy};
use mneme_sys::fault::{self, Outcome};
use mneme_sys::{CpuId, SyntheticTopology};

use crate::actions::{
    FAR, FILLERS, FILLING, GROWN, LARGE, LONG, RECORDS, START, expires, kept, key, look_at_copies,
    other, rent,
};
use crate::calendar::Calendar;
use crate::image::{Image, Loan};
use crate::memory::{self, Memory};
use crate::model::{FILLED, Kept, Key, Model};
use crate::replayed::{Reader, Replayed};

/// Bytes that a store may grow to.
pub const GROWS_TO: usize = memory::CAPACITY + GROWN;

/// The initial state of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kind {
    pub policy: UpdatePolicy,
    pub fed: bool,
    pub lends: bool,
    /// Whether a tenant has used it.
    pub rented: bool,
    /// Whether most of it is in use already, because it is going to be filled.
    pub filled: bool,
}

/// The length of the value [`LARGE`]. It enters a feed in pieces, some of which fit the ring.
pub fn large(fed: bool) -> usize {
    if fed { 150_000 } else { 1_200_000 }
}

/// A store with records of each kind, in log segments that compaction may choose.
pub struct Prepared {
    pub memory: Memory,
    pub clock: Arc<Calendar>,
    pub store: LogStore,
    pub model: Model,
    /// The replay of the feed, if there is one.
    pub reader: Option<Reader>,
}

/// A participant that is dead before the scenario begins.
const THIRD: u32 = 3;
/// The opening that drains the feed.
const READER: u32 = 6;
pub const OF_THE_THIRD: &[u8] = b"third";

/// Two CPUs, whatever the machine has: otherwise a thread might use other heads in each run. X runs
/// on the first, the other operation on either.
pub static CPUS: LazyLock<Arc<SyntheticTopology>> =
    LazyLock::new(|| Arc::new(SyntheticTopology::new(1, 2)));

fn builder(kind: Kind, clock: Arc<Calendar>) -> Builder {
    let builder = LogStore::builder()
        .update_policy(kind.policy)
        .clock(clock)
        .topology(CPUS.clone())
        // The growth of the index depends on the hashes: each run generates the scenarios anew.
        .entropy([crate::seed() as u8; 24])
        .change_feed(kind.fed);
    match kind.lends {
        true => builder.lend_idle(LendingOptions {
            records: 1000,
            max_frames: u32::MAX,
        }),
        false => builder,
    }
}

/// Creates and fills a store of this kind. It is closed, and its feed is drained.
pub fn filled(kind: Kind) -> (Memory, Arc<Calendar>, Model, Option<Replayed>) {
    let fed = kind.fed;
    CPUS.run_on(CpuId(0));
    let clock = Arc::new(Calendar::at(START - 20));
    let builder = builder(kind, clock.clone());
    let (memory, store) = Memory::built(memory::CAPACITY, GROWS_TO, builder);
    let mut model = Model {
        now: START,
        ..Model::default()
    };
    let mut reader = fed.then(|| Reader::of(&memory.open(READER)));
    let mut drain = || reader.iter_mut().for_each(drained);
    // Values that are not compared are zero, so that an image need not hold them.
    if kind.filled {
        let database = store.database(FILLED).unwrap();
        for i in 0..FILLING {
            let key = (FILLERS + i).to_le_bytes();
            let value = &[0; 90_000];
            database.put_until(&key, value, Expiry::At(FAR)).unwrap();
        }
    }
    if kind.lends {
        // Only memory that the store has used before is lent.
        for i in 0..if fed { 96 } else { 12 } {
            store.put(&[i], &vec![0; large(fed)]).unwrap();
            drain();
            store.remove(&[i]).unwrap();
        }
        store.compact().unwrap();
    }
    let mut put = |key: Key, kept: Kept| {
        let expiry = match kept.expires {
            0 => Expiry::Never,
            at => Expiry::At(at),
        };
        let database = store.database(key.0).unwrap();
        database.put_until(&key.1, &kept.value, expiry).unwrap();
        model.records.insert(key, kept);
    };
    for i in 0..RECORDS {
        // Every other one is to be removed, so that there is something to gain in each log segment.
        store.put(b"filler", &[0; 16_000]).unwrap();
        if i % 32 == 0 {
            drain();
        }
        put(key(i), kept(i, 0, 100, expires(i)));
        if i < 40 {
            put(other(i), kept(i, 0, 60, expires(i)));
        }
    }
    put(key(LONG), kept(LONG, 0, 12_000, 0));
    put(key(LARGE), kept(LARGE, 0, large(fed), 0));
    for i in 0..130 {
        store.put(b"filler", &[0; 16_000]).unwrap();
        if i % 32 == 0 {
            drain();
        }
    }
    store.remove(b"filler").unwrap();
    if kind.rented {
        rent(&store, &clock).unwrap();
        look_at_copies(&store, &clock);
        let lent = store.stats().lent;
        assert!(lent.is_some_and(|lent| lent.frames > 0), "nothing is lent");
    }
    // The grace periods of all closed segments begin, and do not end until nothing is being moved.
    let pinned = store.transaction(|_| store.compact());
    assert_eq!(pinned.unwrap(), 0, "nothing is moved beside a pin");
    clock.set(START);
    reader.iter_mut().for_each(drained);
    (memory, clock, model, reader.map(|reader| reader.replayed))
}

/// Such a store. The loan must be given back once no thread uses the memory.
pub fn prepared(kind: Kind, is_reaped: bool) -> (Loan, Prepared) {
    let image = Image::of(kind);
    let clock = Arc::new(image.calendar.again());
    let (loan, memory) = image.lay(builder(kind, clock.clone()));
    let store = memory.open(1);
    let reader = image.replayed.clone().map(|replayed| Reader {
        replayed,
        ..Reader::of(&memory.open(READER))
    });
    if is_reaped {
        let third = memory.open(THIRD);
        let outcome = fault::run("txn.applied", fault::Action::Abandon, 2, move || {
            let keys = (0..4).map(|i| [OF_THE_THIRD, &[i]].concat());
            let keys: Vec<_> = keys.collect();
            third.transaction(|t| keys.iter().try_for_each(|key| t.put(key, b"half")))
        });
        assert!(matches!(outcome, Outcome::Abandoned), "nobody died");
        memory.script.kill(THIRD);
    }
    let prepared = Prepared {
        memory,
        clock,
        store,
        model: image.model.clone(),
        reader,
    };
    (loan, prepared)
}

/// Drains and replays the feed, and frees its space.
pub fn drained(reader: &mut Reader) {
    reader.drain();
    reader.keep_nothing();
}
