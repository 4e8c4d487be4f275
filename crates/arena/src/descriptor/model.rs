//! All interleavings of the lock-free readers, and of the second class, with the lock's holder,
//! under the C11 memory model. The broken twins fail: words without orderings, words without
//! fences, a tenant that stores after its seal.

use super::*;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64 as LoomU64;
use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};

/// A word as the product uses it.
pub(crate) struct Sound(LoomU64);
/// A broken twin: a word that ignores every ordering.
struct Forgetful(LoomU64);
/// A broken twin: a word whose fences do nothing.
pub(crate) struct Fenceless(LoomU64);

pub(crate) trait Fresh: Word + 'static {
    fn fresh(value: u64) -> Self;
}

macro_rules! word {
    ($name:ident, |$order:ident| $effective:expr, |$fence:ident| $fenced:expr) => {
        impl Word for $name {
            fn load(&self, $order: Ordering) -> u64 {
                self.0.load($effective)
            }
            fn store(&self, value: u64, $order: Ordering) {
                self.0.store(value, $effective);
            }
            fn compare_exchange(
                &self,
                old: u64,
                new: u64,
                $order: Ordering,
                failure: Ordering,
            ) -> Result<u64, u64> {
                self.0.compare_exchange(old, new, $effective, failure)
            }
            fn fetch_add(&self, value: u64, $order: Ordering) -> u64 {
                self.0.fetch_add(value, $effective)
            }
            fn fetch_max(&self, value: u64, $order: Ordering) -> u64 {
                self.0.fetch_max(value, $effective)
            }
            fn fence($fence: Ordering) {
                $fenced
            }
        }
        impl Fresh for $name {
            fn fresh(value: u64) -> Self {
                $name(LoomU64::new(value))
            }
        }
    };
}
word!(Sound, |order| order, |order| loom::sync::atomic::fence(
    order
));
word!(Forgetful, |_order| Ordering::Relaxed, |_order| ());
word!(Fenceless, |order| order, |_order| ());

fn fresh_table<W: Fresh>(frames: usize) -> Arc<Vec<DescriptorOf<W>>> {
    let free = Status::free(0).pack();
    Arc::new(
        (0..frames)
            .map(|_| DescriptorOf {
                status: W::fresh(free),
                run: W::fresh(0),
            })
            .collect(),
    )
}

/// A run ends, and a longer one begins at the same frame, while another thread reads.
fn a_reader_sees_the_old_run_or_the_new_one_or_none<W: Fresh + Send + Sync>(
    asked: u32,
    second: Range<u32>,
) {
    loom::model(move || {
        let owned = fresh_table::<W>(3);
        DescriptorTable(&owned)
            .write_run(0..2, 1, 7, 1, |_| ())
            .unwrap();
        let (theirs, new) = (owned.clone(), second.clone());
        let writer = loom::thread::spawn(move || {
            let table = DescriptorTable(&theirs);
            table.free_run(0..2, 1, false, || ());
            let generation = table.next_generation(new.clone()).unwrap();
            table.write_run(new, 2, 7, generation, |_| ()).unwrap();
        });
        if let Some(run) = DescriptorTable(&owned).run_of(asked) {
            match run.status.generation {
                1 => assert_eq!((run.range(), run.status.tag), (0..2, 1)),
                2 => assert_eq!((run.range(), run.status.tag), (second.clone(), 2)),
                other => panic!("generation {other} never was"),
            }
        }
        writer.join().unwrap();
        assert_eq!(
            DescriptorTable(&owned).run_of(asked).map(|run| run.range()),
            second.contains(&asked).then(|| second.clone())
        );
    });
}

#[test]
fn a_reader_sees_complete_runs() {
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Sound>(0, 0..3);
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Sound>(1, 0..3);
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Sound>(1, 1..3);
}

#[test]
#[should_panic(expected = "left == right")]
fn without_orderings_a_reader_sees_torn_runs() {
    a_reader_sees_the_old_run_or_the_new_one_or_none::<Forgetful>(0, 0..3);
}

#[test]
fn a_run_is_either_adopted_or_freed() {
    loom::model(|| {
        let owned = fresh_table::<Sound>(2);
        DescriptorTable(&owned)
            .write_run(0..2, 0, 7, 1, |_| ())
            .unwrap();
        let theirs = owned.clone();
        let adopter = loom::thread::spawn(move || DescriptorTable(&theirs).adopt(0..2));
        let taken = DescriptorTable(&owned).free_run(0..2, 1, true, || ());
        let adopted = adopter.join().unwrap();
        assert_eq!(adopted.is_ok(), !taken);
        assert_eq!(DescriptorTable(&owned).run_of(0).is_some(), !taken);
        assert_eq!(DescriptorTable(&owned).run_of(1).is_some(), !taken);
    });
}

/// The value that a tenant stores, and the one that the first class stores.
const COPY: u64 = 1;
const FIRST_CLASS: u64 = 2;

/// A frame with the one word of its content that is read, and its entry in a cache's index.
struct Lent<W> {
    descriptors: Vec<DescriptorOf<W>>,
    content: W,
    entry: W,
}

impl<W: Fresh> Lent<W> {
    fn new(frames: usize) -> Lent<W> {
        let free = Status::free(1).pack();
        Lent {
            descriptors: (0..frames)
                .map(|_| DescriptorOf {
                    status: W::fresh(free),
                    run: W::fresh(0),
                })
                .collect(),
            content: W::fresh(0),
            entry: W::fresh(0),
        }
    }

    fn table(&self) -> DescriptorTable<'_, W> {
        DescriptorTable(&self.descriptors)
    }

    /// Fills frame 0 with a copy, which is found through its entry.
    fn fill(&self, late: bool) {
        let frame = &self.descriptors[0];
        // The initial status: a load here would hide interleavings from the model checker.
        let Some(generation) = frame.begin_filling(Status::free(1)) else {
            return;
        };
        if late {
            frame.seal(generation);
        }
        self.content.store(COPY, Relaxed);
        self.entry.store(u64::from(generation), Release);
        if !late {
            frame.seal(generation);
        }
    }

    /// Claims frame 0 for the first class, if possible, and writes to it.
    fn claim(&self) -> bool {
        let table = self.table();
        let claimed = table
            .next_generation(0..1)
            .and_then(|generation| table.write_run(0..1, 0, 7, generation, |_| ()));
        if claimed.is_ok() {
            self.content.store(FIRST_CLASS, Relaxed);
        }
        claimed.is_ok()
    }

    /// The value that a reader accepts as a copy.
    fn get(&self) -> Option<u64> {
        let generation = self.entry.load(Acquire) as u32;
        let frame = &self.descriptors[0];
        frame.lent().filter(|now| *now == generation)?;
        let content = self.content.load(Relaxed);
        frame.is_still_lent(generation).then_some(content)
    }
}

/// A rented frame is claimed, or filled again, while a reader copies from it.
fn a_reader_accepts_only_the_copy<W: Fresh + Send + Sync>() {
    loom::model(|| {
        let owned = Arc::new(Lent::<W>::new(1));
        owned.fill(false);
        let theirs = owned.clone();
        let claimer = loom::thread::spawn(move || theirs.claim());
        if let Some(content) = owned.get() {
            assert_eq!(content, COPY, "bytes of the first class were believed");
        }
        claimer.join().unwrap();
    });
}

#[test]
fn a_reader_accepts_only_the_copy_of_a_lent_frame() {
    a_reader_accepts_only_the_copy::<Sound>();
}

#[test]
#[should_panic(expected = "bytes of the first class were believed")]
fn without_the_fences_a_reader_accepts_other_bytes() {
    a_reader_accepts_only_the_copy::<Fenceless>();
}

/// A tenant fills a frame while another thread claims it.
fn the_first_class_keeps_what_it_stored(late: bool) {
    loom::model(move || {
        let owned = Arc::new(Lent::<Sound>::new(1));
        let theirs = owned.clone();
        let tenant = loom::thread::spawn(move || theirs.fill(late));
        let claimed = owned.claim();
        tenant.join().unwrap();
        if claimed {
            assert_eq!(
                owned.content.load(Relaxed),
                FIRST_CLASS,
                "a late store of the tenant"
            );
        } else {
            // The claim found it filling. The next one gets it.
            assert_eq!(owned.get(), Some(COPY));
            assert!(owned.claim());
            assert_eq!(owned.get(), None);
        }
    });
}

#[test]
fn no_tenant_stores_into_a_frame_that_was_claimed() {
    the_first_class_keeps_what_it_stored(false);
}

#[test]
#[should_panic(expected = "a late store of the tenant")]
fn a_tenant_that_stores_after_its_seal_overwrites_a_claimed_frame() {
    the_first_class_keeps_what_it_stored(true);
}

/// One of two frames is the reserve. An ordinary claim wants one, and so does a tenant.
fn a_tenant_leaves_the_reserve_alone<W: Fresh + Send + Sync>() {
    loom::model(|| {
        let owned = Arc::new((Lent::<W>::new(2), W::fresh(0), W::fresh(2)));
        let theirs = owned.clone();
        let claimer = loom::thread::spawn(move || {
            let (frames, lock, claimable) = &*theirs;
            lock.compare_exchange(0, 1, Acquire, Relaxed).unwrap();
            W::fence(SeqCst);
            let filling = frames.descriptors[1].status().unwrap().state == State::Filling;
            let may = claimable.load(Relaxed) - u64::from(filling) > 1;
            if may {
                assert!(frames.claim());
                claimable.store(1, Relaxed);
            }
            lock.store(0, Release);
            may
        });
        let (frames, lock, claimable) = &*owned;
        let frame = &frames.descriptors[1];
        let generation = frame.begin_filling(frame.status().unwrap()).unwrap();
        let mut kept = true;
        if lock.load(Acquire) != 0 || claimable.load(Relaxed) < 2 {
            let filling = Status {
                state: State::Filling,
                ..Status::free(generation)
            };
            assert!(frame.give_back(filling));
            kept = false;
        }
        let claimed = claimer.join().unwrap();
        assert!(!(claimed && kept), "the reserve is gone");
    });
}

#[test]
fn the_reserve_is_never_lent() {
    a_tenant_leaves_the_reserve_alone::<Sound>();
}

#[test]
#[should_panic(expected = "the reserve is gone")]
fn without_the_fences_the_reserve_may_be_lent() {
    a_tenant_leaves_the_reserve_alone::<Fenceless>();
}
