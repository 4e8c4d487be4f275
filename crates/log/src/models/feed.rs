//! Entries of the change feed come out whole, once and in order, even if a thread is stopped for a
//! lap, and if one dies.

use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};

use loom::sync::Arc;
use loom::thread;
use mneme_sync::{SlotId, Word};

use super::{LooseExchanges, LooseLoads, LooseStores, Model, Orders, Sound, fails, holds};
use crate::feed::ring::{
    Author, FeedHeader, FeedRing, HEADER_BYTES, NextEntry, ReadEntry, Reserved, RingRefused, State,
};

/// Words of the ring: two entries of a header and one word.
const WORDS: usize = 4;
/// Bytes of an entry.
const ENTRY: usize = 16;
const DEAD: SlotId = SlotId(7);

/// The thread in slot `slot`, of an opening of its own.
fn by(slot: u16) -> Author {
    Author {
        slot: SlotId(slot),
        process: slot,
    }
}

struct Scene<O> {
    tail: Model<O>,
    durable: Model<O>,
    oldest: Model<O>,
    freed: Model<O>,
    words: Vec<Model<O>>,
    secret: u64,
}

impl<O: Orders> Scene<O> {
    fn new() -> Scene<O> {
        let scene = Scene {
            tail: Model::new(0),
            durable: Model::new(0),
            oldest: Model::new(0),
            freed: Model::new(0),
            words: (0..WORDS).map(|_| Model::new(0)).collect(),
            secret: 0x1234_5678_9abc_def0,
        };
        scene.ring().clear(0);
        scene
    }

    fn ring(&self) -> FeedRing<'_, Model<O>> {
        FeedRing {
            tail: &self.tail,
            durable: &self.durable,
            oldest: &self.oldest,
            freed: &self.freed,
            words: &self.words,
            secret: self.secret,
            spare: 0,
        }
    }

    /// Enters a value, if there is space.
    fn enter(&self, who: u16, value: u64) -> bool {
        let ring = self.ring();
        let reserved = match ring.reserve(by(who), ENTRY) {
            Ok(reserved) => reserved,
            Err(RingRefused::Full) => return false,
            Err(RingRefused::Damaged(at)) => panic!("damaged at {at}"),
        };
        fill(&ring, reserved, 0, value);
        ring.complete(reserved, State::Whole);
        true
    }
}

/// Stores word number `i` of an entry's body.
fn fill<O: Orders>(ring: &FeedRing<'_, Model<O>>, entry: Reserved, i: usize, word: u64) {
    let place = ring.body(entry).into_iter().flatten().nth(i);
    place.unwrap().store(word, Relaxed);
}

/// Drains the entries.
struct Drainer<'s, O> {
    scene: &'s Scene<O>,
    at: u64,
    seen: Vec<u64>,
}

impl<'s, O: Orders> Drainer<'s, O> {
    fn of(scene: &'s Scene<O>) -> Self {
        Drainer {
            scene,
            at: 0,
            seen: Vec::new(),
        }
    }

    /// Drains one entry; returns what is there.
    fn next(&mut self) -> NextEntry {
        let ring = self.scene.ring();
        let next = match ring.next(self.at) {
            Ok(next) => next,
            Err(refused) => panic!("damaged: {refused:?}"),
        };
        if let NextEntry::Complete(stride) = next {
            let mut words = Vec::new();
            ring.copy(self.at, self.at + stride, |word| words.push(word));
            // A void entry has no content.
            if words[0] & 3 == State::Whole as u64 {
                self.seen.push(words[1]);
            }
            self.at += stride;
        }
        next
    }

    fn drain(&mut self) {
        while matches!(self.next(), NextEntry::Complete(_)) {}
    }

    fn set_durable(&self) {
        self.scene.ring().set_durable(self.at, 0);
    }
}

/// Two threads enter values, beside a thread that drains them.
fn beside<O: Orders>(entered: [u64; 2]) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene::<O>::new());
        let writers: Vec<_> = (1..)
            .zip(entered)
            .map(|(who, values)| {
                let scene = scene.clone();
                thread::spawn(move || {
                    let entered =
                        (1..=values).take_while(|i| scene.enter(who, u64::from(who) * 10 + i));
                    entered.count() as u64
                })
            })
            .collect();
        let mut drainer = Drainer::of(&scene);
        drainer.next();
        drainer.set_durable();
        let entered: Vec<u64> = writers.into_iter().map(|w| w.join().unwrap()).collect();
        drainer.drain();
        let mut expected = Vec::new();
        for (who, values) in (1..).zip(entered) {
            expected.extend((1..=values).map(|i| who * 10 + i));
            let of = drainer.seen.iter().filter(|value| **value / 10 == who);
            assert!(of.is_sorted(), "out of order");
        }
        drainer.seen.sort_unstable();
        assert_eq!(drainer.seen, expected, "not as entered");
        drainer.set_durable();
        // It continues for a lap.
        let seen = drainer.seen.len();
        assert!(scene.enter(3, 30) && scene.enter(3, 31), "stuck");
        drainer.drain();
        assert_eq!(drainer.seen[seen..], [30, 31], "stuck");
    }
}

#[test]
fn entries_come_out_whole_and_once() {
    holds(beside::<Sound>([1, 1]));
    holds(beside::<Sound>([2, 1]));
}

#[test]
fn without_one_kind_of_ordering_it_does_not() {
    fails("not as entered", beside::<LooseStores>([1, 0]));
    fails("damaged", beside::<LooseLoads>([1, 0]));
    fails("damaged", beside::<LooseExchanges>([1, 0]));
}

/// A thread that may be stopped for any time enters a value, while others fill two laps with zeros.
/// If blank words were zero, it would take one of their words for the tail.
fn stands_still(blanks: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene::<Sound>::new());
        let slow = {
            let scene = scene.clone();
            thread::spawn(move || {
                if blanks {
                    return scene.enter(1, 11);
                }
                // Broken: the header replaces a zero.
                let at = scene.tail.load(Acquire);
                let word = &scene.words[at as usize / 8 % WORDS];
                let header = 1 << 19 | (ENTRY as u64) << 2 | State::Whole as u64;
                word.compare_exchange(0, header, AcqRel, Relaxed).is_ok()
            })
        };
        let mut drainer = Drainer::of(&scene);
        // Entries of three words, so that no header of the next lap lies where one lay before.
        for _ in 0..2 {
            let ring = scene.ring();
            let Ok(entry) = ring.reserve(by(2), 24) else {
                break;
            };
            // Zeros, as the content of an entry, and where nothing is entered yet.
            fill(&ring, entry, 0, 0);
            fill(&ring, entry, 1, 0);
            ring.complete(entry, State::Whole);
            let before = drainer.at;
            while drainer.at == before && matches!(drainer.next(), NextEntry::Complete(_)) {}
            drainer.drain();
            if drainer.at < entry.end() {
                break;
            }
            drainer.set_durable();
        }
        let entered = slow.join().unwrap();
        drainer.drain();
        let mine = drainer.seen.iter().filter(|value| **value == 11).count();
        assert_eq!(mine, usize::from(entered), "not as entered");
        assert!(
            drainer.seen.iter().all(|value| [0, 11].contains(value)),
            "overwritten"
        );
    }
}

#[test]
fn a_thread_that_stands_still_for_a_lap_overwrites_nothing() {
    holds(stands_still(true));
}

#[test]
fn with_zeros_for_blanks_it_does() {
    fails("not as entered", stands_still(false));
}

/// A thread dies after it has reserved an entry, before or after the tail moved past it. It is
/// repaired beside a thread that enters another one.
fn dies(moved: bool, settle: fn(&Scene<Sound>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene::<Sound>::new());
        let dead = scene
            .ring()
            .reserve(by(DEAD.0), ENTRY)
            .expect("an empty ring");
        fill(&scene.ring(), dead, 0, 70);
        if !moved {
            scene.tail.store(0, Relaxed);
        }
        let other = {
            let scene = scene.clone();
            thread::spawn(move || assert!(scene.enter(1, 11), "refused"))
        };
        settle(&scene);
        other.join().unwrap();
        let mut drainer = Drainer::of(&scene);
        drainer.drain();
        assert_eq!(drainer.seen, [70, 11], "not as it happened");
    }
}

#[test]
fn changes_of_the_dead_come_out() {
    for moved in [true, false] {
        holds(dies(moved, |scene| {
            scene
                .ring()
                .settle(|slot| slot == DEAD, State::Whole)
                .expect("sound");
            // Another reaper does it again.
            scene
                .ring()
                .settle(|slot| slot == DEAD, State::Void)
                .expect("sound");
        }));
    }
}

#[test]
fn an_entry_that_no_reaper_settles_holds_up_all_behind_it() {
    fails("not as it happened", dies(true, |_| {}));
}

#[test]
fn an_entry_at_the_tail_is_missed_by_a_reaper_that_does_not_look_there() {
    fails(
        "not as it happened",
        dies(false, |scene| {
            if scene.tail.load(Acquire) != 0 {
                scene
                    .ring()
                    .settle(|slot| slot == DEAD, State::Whole)
                    .expect("sound");
            }
        }),
    );
}

/// A reader that has seen a change finds the tail behind its entry.
fn is_seen(change: fn(&Scene<Sound>, &Model<Sound>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new((Scene::<Sound>::new(), Model::new(0)));
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || change(&scene.0, &scene.1))
        };
        if scene.1.load(Acquire) != 0 {
            assert!(
                scene.0.ring().tail() >= ENTRY as u64,
                "seen before it is fed"
            );
        }
        writer.join().unwrap();
    }
}

fn complete(scene: &Scene<Sound>, entry: Reserved) {
    fill(&scene.ring(), entry, 0, 1);
    scene.ring().complete(entry, State::Whole);
}

#[test]
fn the_tail_is_behind_all_that_can_be_seen() {
    holds(is_seen(|scene, visible| {
        let entry = scene.ring().reserve(by(1), ENTRY).expect("space");
        visible.store(1, Release);
        complete(scene, entry);
    }));
}

#[test]
fn a_change_that_is_made_before_its_entry_is_reserved_is_not_behind_it() {
    fails(
        "seen before it is fed",
        is_seen(|scene, visible| {
            visible.store(1, Release);
            let entry = scene.ring().reserve(by(1), ENTRY).expect("space");
            complete(scene, entry);
        }),
    );
}

/// An entry that is not completed for a long time holds up those after it, and a void one has no
/// content.
#[test]
fn a_void_entry_says_nothing_and_an_unfinished_one_lets_nothing_pass() {
    holds(|| {
        let scene = Scene::<Sound>::new();
        let slow = scene.ring().reserve(by(1), ENTRY).expect("space");
        assert!(scene.enter(2, 20));
        let mut drainer = Drainer::of(&scene);
        assert_eq!(drainer.next(), NextEntry::Unfinished(SlotId(1)));
        assert!(!scene.enter(2, 21), "there is no space");
        scene.ring().complete(slow, State::Void);
        drainer.drain();
        assert_eq!(drainer.seen, [20]);
        assert!(!scene.enter(2, 21), "nothing is durable yet");
        drainer.set_durable();
        assert!(scene.enter(2, 21));
    });
}

/// A reaper goes through the entries while what is before them is freed.
#[test]
fn a_reaper_is_not_led_astray_by_what_is_freed_meanwhile() {
    holds(|| {
        let scene = Arc::new(Scene::<Sound>::new());
        assert!(scene.enter(1, 11));
        let dead = scene.ring().reserve(by(DEAD.0), ENTRY).expect("space");
        fill(&scene.ring(), dead, 0, 70);
        let drainer = {
            let scene = scene.clone();
            thread::spawn(move || {
                let mut drainer = Drainer::of(&scene);
                drainer.next();
                drainer.set_durable();
                // The next lap begins where the first entry was.
                assert!(scene.enter(2, 22), "refused");
            })
        };
        let settled = scene.ring().settle(|slot| slot == DEAD, State::Whole);
        assert_eq!(settled, Ok(()), "led astray");
        drainer.join().unwrap();
        let mut drainer = Drainer::of(&scene);
        drainer.at = ENTRY as u64;
        drainer.drain();
        assert_eq!(drainer.seen, [70, 22], "not as it happened");
    });
}

/// A reader that no thread waits for, beside a thread that enters more than the ring holds and
/// frees the oldest: what it reads is whole and in order, and it knows what it has missed.
fn reads_beside(
    look: fn(&Scene<Sound>, u64, &mut Vec<u64>) -> ReadEntry,
) -> impl Fn() + Send + Sync {
    move || {
        let scene = Arc::new(Scene::<Sound>::new());
        assert!(scene.enter(1, 11));
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                assert!(scene.enter(1, 12));
                let ring = scene.ring();
                ring.free_oldest(ENTRY as u64);
                // In the place of the first entry.
                assert!(scene.enter(1, 13));
            })
        };
        let (mut at, mut words, mut next) = (0, Vec::new(), 11);
        for _ in 0..2 {
            words.clear();
            match look(&scene, at, &mut words) {
                ReadEntry::Nothing | ReadEntry::Unfinished(_) => break,
                ReadEntry::Lost(oldest) => {
                    next += (oldest - at) / ENTRY as u64;
                    at = oldest;
                }
                ReadEntry::Complete(header) => {
                    assert_eq!(words[1], next, "read what was overwritten");
                    next += 1;
                    at += header.stride();
                }
            }
        }
        writer.join().unwrap();
    }
}

#[test]
fn a_reader_that_may_lose_entries_knows_what_it_has_lost() {
    holds(reads_beside(|scene, at, to| {
        scene.ring().read(at, |_| true, |word| to.push(word))
    }));
}

#[test]
fn one_that_does_not_look_again_reads_what_was_overwritten() {
    fails(
        "read what was overwritten",
        reads_beside(|scene, at, to| {
            let ring = scene.ring();
            let seen = ring.read(at, |_| false, |_| {});
            if let ReadEntry::Complete(header) = seen {
                ring.copy(at, at + header.stride(), |word| to.push(word));
            }
            seen
        }),
    );
}

/// A ring that is not kept is blanked by the first thread that finds no space.
#[test]
fn a_ring_that_was_never_blanked_is_blanked_when_it_is_used() {
    holds(|| {
        let scene = Scene::<Sound>::new();
        let ring = scene.ring();
        scene.words.iter().for_each(|word| word.store(0, Relaxed));
        scene.freed.store(ring.size().wrapping_neg(), Relaxed);
        assert!(!scene.enter(1, 11));
        for value in 11..20 {
            if !ring.has_space(ENTRY as u64) {
                ring.free_oldest(ENTRY as u64);
            }
            assert!(scene.enter(1, value));
        }
        let mut words = Vec::new();
        assert_eq!(
            ring.read(0, |_| true, |_| {}),
            ReadEntry::Lost(7 * ENTRY as u64)
        );
        let seen = ring.read(7 * ENTRY as u64, |_| true, |word| words.push(word));
        assert!(matches!(seen, ReadEntry::Complete(_)) && words[1] == 18);
    });
}

/// A reader's own entry and another's are overwritten. A reader that learns that the other's entry
/// is gone sees what was noted about it before it was complete.
fn learns_of_a_loss<O: Orders>() -> impl Fn() + Send + Sync {
    || {
        let scene = Arc::new((Scene::<O>::new(), Model::<O>::new(0)));
        assert!(scene.0.enter(1, 11));
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                let ring = scene.0.ring();
                let entry = ring.reserve(by(2), ENTRY).expect("space");
                scene.1.fetch_max(entry.end(), Relaxed);
                fill(&ring, entry, 0, 21);
                ring.complete(entry, State::Whole);
                ring.free_oldest(2 * ENTRY as u64);
            })
        };
        let seen = scene.0.ring().read(0, |_| false, |_| {});
        if seen == ReadEntry::Lost(2 * ENTRY as u64) {
            let last = scene.1.load(Relaxed);
            assert_eq!(last, 2 * ENTRY as u64, "missed for ever");
        }
        writer.join().unwrap();
    }
}

#[test]
fn a_reader_that_learns_of_a_loss_sees_whose_it_was() {
    holds(learns_of_a_loss::<Sound>());
}

#[test]
fn with_loads_that_order_nothing_it_does_not() {
    fails("missed for ever", learns_of_a_loss::<LooseLoads>());
}

/// A reaper of a thread that has left no entry, beside a thread that frees the place at which the
/// reaper looks, and enters a body there with a word that looks like an entry of the dead thread.
#[test]
fn a_reaper_does_not_take_a_later_body_for_an_entry() {
    holds(|| {
        let scene = Arc::new(Scene::<Sound>::new());
        let ring = scene.ring();
        let like = FeedHeader::new(State::Reserved, ENTRY, by(DEAD.0), 0).word();
        let like = u64::from_le_bytes(like);
        assert!(scene.enter(1, 11));
        let short = ring.reserve(by(1), HEADER_BYTES).expect("space");
        ring.complete(short, State::Void);
        let writer = {
            let scene = scene.clone();
            thread::spawn(move || {
                let ring = scene.ring();
                ring.set_durable(ENTRY as u64, 0);
                let entry = ring.reserve(by(2), ENTRY).expect("space");
                // After the ring's end, where the first entry was.
                fill(&ring, entry, 0, like);
                ring.complete(entry, State::Whole);
            })
        };
        let settled = ring.settle(|slot| slot == DEAD, State::Whole);
        assert_eq!(settled, Ok(()), "led astray");
        writer.join().unwrap();
        assert_eq!(scene.words[0].load(Relaxed), like, "overwritten");
    });
}

/// A word of the model checker without the companion of a [`Model`], which would order what one
/// thread stores and another overwrites.
struct Bare(loom::sync::atomic::AtomicU64);

impl Word for Bare {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn compare_exchange(
        &self,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        self.0.compare_exchange(current, new, success, failure)
    }

    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_add(value, order)
    }

    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.fetch_max(value, order)
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }
}

/// One thread frees what a reader copies, and another enters something there.
#[test]
fn a_reader_knows_what_it_has_lost_to_two_threads() {
    holds(|| {
        let words: Vec<Bare> = (0..WORDS + 4)
            .map(|_| Bare(loom::sync::atomic::AtomicU64::new(0)))
            .collect();
        let words = Arc::new(words);
        fn ring(words: &[Bare]) -> FeedRing<'_, Bare> {
            FeedRing {
                tail: &words[WORDS],
                durable: &words[WORDS + 1],
                oldest: &words[WORDS + 2],
                freed: &words[WORDS + 3],
                words: &words[..WORDS],
                secret: 0x1234_5678_9abc_def0,
                spare: 0,
            }
        }
        let enter = |ring: &FeedRing<'_, Bare>, value| {
            if let Ok(entry) = ring.reserve(by(1), ENTRY) {
                let place = ring.body(entry).into_iter().flatten().next();
                place.unwrap().store(value, Relaxed);
                ring.complete(entry, State::Whole);
            }
        };
        ring(&words).clear(0);
        enter(&ring(&words), 11);
        enter(&ring(&words), 12);
        let freer = words.clone();
        let freer = thread::spawn(move || ring(&freer).free_oldest(ENTRY as u64));
        let writer = words.clone();
        let writer = thread::spawn(move || enter(&ring(&writer), 13));
        let mut seen = Vec::new();
        let read = ring(&words).read(0, |_| true, |word| seen.push(word));
        if matches!(read, ReadEntry::Complete(_)) {
            assert_eq!(seen[1], 11, "read what was overwritten");
        }
        freer.join().unwrap();
        writer.join().unwrap();
    });
}
