//! What is entered into the notifications' ring comes out whole, once and in order, or is counted
//! as lost, whichever producer is skipped while it enters it.

use std::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::thread;
use mneme_sync::{SlotId, Word};

use super::{LooseExchanges, LooseLoads, Model, Orders, Sound, fails, holds};
use crate::records::notify::ring::{NextNotification, NotifyRing, State};

/// State, and two words that must be equal.
const STRIDE: usize = 3;
const DEAD: SlotId = SlotId(7);

struct Scene<O> {
    head: Model<O>,
    losses: Model<O>,
    words: Vec<Model<O>>,
}

impl<O: Orders> Scene<O> {
    fn new(slots: usize) -> Scene<O> {
        Scene {
            head: Model::new(0),
            losses: Model::new(0),
            words: (0..slots * STRIDE).map(|_| Model::new(0)).collect(),
        }
    }

    fn ring(&self) -> NotifyRing<'_, Model<O>> {
        NotifyRing {
            head: &self.head,
            losses: &self.losses,
            words: &self.words,
            stride: STRIDE,
        }
    }

    fn enter(&self, who: u16, value: u64) -> bool {
        self.ring().enter(SlotId(who), &[value, value])
    }
}

/// Takes out what is entered.
struct Consumer<'s, O> {
    scene: &'s Scene<O>,
    at: u64,
    seen: Vec<u64>,
    skipped: u64,
}

/// How a consumer passes over a slot that is busy.
type Skip<O> = fn(&mut Consumer<'_, O>, State) -> NextNotification;

impl<O: Orders> Consumer<'_, O> {
    fn next(&mut self, skip: Option<State>) -> NextNotification {
        let mut content = [0; STRIDE - 1];
        let next = self.scene.ring().next(&mut self.at, skip, &mut content);
        match next {
            NextNotification::Entered => {
                assert_eq!(content[0], content[1], "mixed");
                self.seen.push(content[0]);
            }
            NextNotification::Skipped => self.skipped += 1,
            NextNotification::Nothing | NextNotification::Busy(_) => {}
        }
        next
    }

    fn drain(&mut self) {
        while self.next(None) != NextNotification::Nothing {}
    }
}

fn skip(consumer: &mut Consumer<'_, Sound>, state: State) -> NextNotification {
    consumer.next(Some(state))
}

/// Threads that each enter some values, and a consumer that passes over who is busy, if it is to.
fn beside<O: Orders>(
    slots: usize,
    entered: [u64; 2],
    skip: Option<Skip<O>>,
    counted: bool,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene::<O>::new(slots));
        let producers: Vec<_> = (1..)
            .zip(entered)
            .map(|(who, values)| {
                let scene = scene.clone();
                thread::spawn(move || {
                    let mut refused = 0;
                    for i in 0..values {
                        if !scene.enter(who, u64::from(who) * 10 + i) {
                            refused += 1;
                            if counted {
                                scene.ring().lose();
                            }
                        }
                    }
                    refused
                })
            })
            .collect();
        let mut consumer = Consumer {
            scene: &scene,
            at: 0,
            seen: Vec::new(),
            skipped: 0,
        };
        if let (NextNotification::Busy(state), Some(skip)) = (consumer.next(None), skip) {
            skip(&mut consumer, state);
        }
        let refused: u64 = producers.into_iter().map(|p| p.join().unwrap()).sum();
        consumer.drain();
        let all = entered.iter().sum::<u64>();
        let missing = all - consumer.seen.len() as u64;
        assert!(missing == 0 || scene.ring().losses() > 0, "lost in silence");
        assert_eq!(missing, refused, "twice, or never");
        for who in [1, 2] {
            let of = consumer.seen.iter().filter(|value| **value / 10 == who);
            assert!(of.is_sorted(), "out of order");
        }
        // It goes on.
        assert!(scene.enter(3, 30), "stuck");
        assert_eq!(consumer.next(None), NextNotification::Entered, "stuck");
    }
}

#[test]
fn what_is_entered_comes_out() {
    holds(beside::<Sound>(2, [1, 1], None, true));
    holds(beside::<Sound>(2, [2, 1], None, true));
    holds(beside::<Sound>(1, [1, 1], None, true));
}

#[test]
fn who_is_passed_over_says_that_something_was_lost() {
    holds(beside::<Sound>(1, [1, 1], Some(skip), true));
    holds(beside::<Sound>(2, [1, 1], Some(skip), true));
}

#[test]
fn what_is_not_counted_is_lost_in_silence() {
    fails(
        "lost in silence",
        beside::<Sound>(1, [1, 1], Some(skip), false),
    );
}

#[test]
fn a_slot_that_is_used_again_while_its_producer_is_at_it_loses_another() {
    let hasty: Skip<Sound> = |consumer, state| {
        let word = &consumer.scene.words[0];
        let freed = word.compare_exchange(state.word(), State::free_in(1).word(), Relaxed, Relaxed);
        if freed.is_ok() {
            consumer.at += 1;
        }
        NextNotification::Skipped
    };
    fails("twice, or never", beside(1, [1, 1], Some(hasty), true));
}

#[test]
fn loads_that_order_nothing_mix_them() {
    fails("mixed", beside::<LooseLoads>(1, [1, 0], None, true));
}

#[test]
fn exchanges_that_order_nothing_mix_them() {
    fails("mixed", beside::<LooseExchanges>(1, [1, 0], None, true));
}

/// A producer that died while it entered something is released by a reaper, and perhaps skipped
/// meanwhile.
fn released<O: Orders>(release: fn(&Scene<O>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let scene = Arc::new(Scene::<O>::new(1));
        let busy = State::busy(DEAD, 0);
        scene.words[0].store(busy.word(), Relaxed);
        scene.head.store(1, Relaxed);
        let reaper = {
            let scene = scene.clone();
            thread::spawn(move || release(&scene))
        };
        let mut consumer = Consumer {
            scene: &scene,
            at: 0,
            seen: Vec::new(),
            skipped: 0,
        };
        if let NextNotification::Busy(state) = consumer.next(None) {
            consumer.next(Some(state));
        }
        reaper.join().unwrap();
        consumer.drain();
        assert!(scene.ring().losses() > 0, "lost in silence");
        assert!(scene.enter(3, 30), "stuck");
        assert_eq!(consumer.next(None), NextNotification::Entered, "stuck");
    }
}

#[test]
fn a_slot_of_the_dead_is_used_again() {
    holds(released::<Sound>(|scene| {
        scene.ring().release(DEAD);
        scene.ring().lose();
    }));
}

#[test]
fn one_that_nobody_releases_is_not() {
    fails(
        "stuck",
        released::<Sound>(|scene| {
            scene.ring().lose();
        }),
    );
}
