//! The states of a log segment and its grace periods, beside threads that saw an earlier state and
//! were stopped before they acted on it.
//!
//! What must hold: a thread claims a victim or frees a segment only after a grace period that began
//! when the segment was closed, or condemned, *in this life*. Each model gives the first epoch for
//! which that is true (`due`), and the stamp is compared with it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use loom::sync::Arc;
use loom::thread;
use mneme_sync::{SlotId, Word};

use super::{LooseExchanges, LooseLoads, LooseStores, Model, Orders, Sound, fails, holds};
use crate::log::segment::{SegmentKind, State, StateWord};
use crate::region::layout::SegmentInfoOf;

const ME: SlotId = SlotId(3);
const EARLY: &str = "a grace period that began too early";

struct Segment<O> {
    info: SegmentInfoOf<Model<O>>,
    epoch: Model<O>,
    /// The first epoch whose end is a grace period for the present state. The checker does not see
    /// this word: it belongs to the observer.
    due: AtomicU64,
}

impl<O: Orders> Segment<O> {
    /// A segment in its first life, in state `state`, stamped or not.
    fn new(state: State, stamped: bool) -> Arc<Segment<O>> {
        let segment = Segment {
            info: SegmentInfoOf::default(),
            epoch: Model::new(10),
            due: AtomicU64::new(0),
        };
        segment.info.begin(ME, 1, SegmentKind::Ordinary);
        segment.step(state);
        if stamped {
            segment.info.stamp.store(5, Relaxed);
        }
        Arc::new(segment)
    }

    /// One step by the only thread that may take it.
    fn step(&self, to: State) {
        let word = self.info.state();
        assert!(self.info.change(word, word.to(to, None)));
    }

    /// Threads that were pinned until now may still use what is closed or condemned next.
    fn is_due_now(&self) {
        self.due.store(self.epoch.fetch_add(0, AcqRel), SeqCst);
    }

    fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, AcqRel)
    }

    /// As `Log::stamp_segments`.
    fn stamp(&self) {
        if let Some(period) = self.info.waiting() {
            self.info.begin_grace(period, self.advance());
        }
    }

    /// As `Reclaim::claim_victim` and `Log::free_condemned` do; the grace period is taken to be
    /// over.
    fn claim(&self, from: State, to: State) -> bool {
        let word = self.info.state();
        if word.state() != Some(from) {
            return false;
        }
        let Ok(epoch) = self.info.stamp() else {
            return false;
        };
        if !self.info.change(word, word.to(to, Some(ME))) {
            return false;
        }
        assert!(epoch.to_u64() >= self.due.load(SeqCst), "{EARLY}");
        true
    }

    /// Fails if a stamp that is stored now does not belong to the present state.
    fn assert_stamp_is_ours(&self) {
        if let Ok(epoch) = self.info.stamp() {
            assert!(epoch.to_u64() >= self.due.load(SeqCst), "{EARLY}");
        }
    }
}

type Rebirth<O> = fn(&SegmentInfoOf<Model<O>>);
type Stamp<O> = fn(&Segment<O>);

fn rebirth<O: Orders>(info: &SegmentInfoOf<Model<O>>) {
    info.begin(ME, 1, SegmentKind::Ordinary);
}

/// Broken: every life is the first.
fn same_life<O: Orders>(info: &SegmentInfoOf<Model<O>>) {
    let before = info.state();
    info.begin(ME, 1, SegmentKind::Ordinary);
    let life = before.0 >> 26 << 26;
    let reborn = StateWord(life).to(State::Opening, Some(ME));
    info.state.store(reborn.0, SeqCst);
}

/// From the condemned state through the next life until it is closed.
fn live_again<O: Orders>(segment: &Segment<O>, rebirth: Rebirth<O>) {
    if !segment.claim(State::Condemned, State::Freeing) {
        return;
    }
    rebirth(&segment.info);
    segment.step(State::Head);
    segment.is_due_now();
    segment.step(State::Closed);
}

/// Two threads that stamp; one of them also frees the segment and gives it its next life.
fn late_stampers<O: Orders>(stamp: Stamp<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let segment = Segment::<O>::new(State::Condemned, false);
        let late = {
            let segment = segment.clone();
            thread::spawn(move || stamp(&segment))
        };
        stamp(&segment);
        live_again(&segment, rebirth);
        late.join().unwrap();
        if segment.info.state().state() == Some(State::Closed) {
            segment.assert_stamp_is_ours();
        }
    }
}

#[test]
fn a_stamp_never_belongs_to_an_earlier_life() {
    holds(late_stampers::<Sound>(Segment::stamp));
}

#[test]
fn without_ordered_loads_or_stores_it_does() {
    fails(EARLY, late_stampers::<LooseLoads>(Segment::stamp));
    fails(EARLY, late_stampers::<LooseStores>(Segment::stamp));
}

#[test]
fn a_stamper_who_does_not_look_at_the_state_again_stamps_the_next_life() {
    let twin: Stamp<Sound> = |segment| {
        let state = segment.info.state().state();
        if matches!(state, Some(State::Closed | State::Condemned))
            && let Err(period) = segment.info.stamp()
        {
            segment.info.begin_grace(period, segment.advance());
        }
    };
    fails(EARLY, late_stampers(twin));
}

#[test]
fn an_epoch_taken_before_the_period_was_seen_is_too_early() {
    let twin: Stamp<Sound> = |segment| {
        let epoch = segment.advance();
        if let Some(period) = segment.info.waiting() {
            segment.info.begin_grace(period, epoch);
        }
    };
    fails(
        EARLY,
        condemning::<Sound>(twin, |segment, word| segment.info.condemn(word)),
    );
}

/// A victim that two threads try to claim. The first gives the segment its next life.
fn late_claimers<O: Orders>(rebirth: Rebirth<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let segment = Segment::<O>::new(State::Closed, true);
        let late = {
            let segment = segment.clone();
            thread::spawn(move || segment.claim(State::Closed, State::Compacting))
        };
        if segment.claim(State::Closed, State::Compacting) {
            segment.is_due_now();
            segment.info.condemn(segment.info.state());
            segment.stamp();
            live_again(&segment, rebirth);
        }
        late.join().unwrap();
    }
}

#[test]
fn a_victim_is_claimed_in_the_life_in_which_it_was_chosen() {
    holds(late_claimers::<Sound>(rebirth));
}

#[test]
fn if_lives_were_not_distinguished_a_late_claim_would_hit_the_next() {
    fails(EARLY, late_claimers::<Sound>(same_life));
}

/// A condemned segment that two threads try to free. The first gives the segment its next life.
fn late_freers<O: Orders>(rebirth: Rebirth<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let segment = Segment::<O>::new(State::Condemned, true);
        let late = {
            let segment = segment.clone();
            thread::spawn(move || segment.claim(State::Condemned, State::Freeing))
        };
        live_again(&segment, rebirth);
        if segment.info.state().state() == Some(State::Closed) {
            // Stamped, claimed and emptied: only the second grace period has still to come.
            segment.stamp();
            if segment.claim(State::Closed, State::Compacting) {
                segment.is_due_now();
                segment.info.condemn(segment.info.state());
            }
        }
        late.join().unwrap();
    }
}

#[test]
fn a_segment_is_freed_in_the_life_in_which_it_was_condemned() {
    holds(late_freers::<Sound>(rebirth));
}

#[test]
fn if_lives_were_not_distinguished_the_next_one_would_be_freed_early() {
    fails(EARLY, late_freers::<Sound>(same_life));
}

/// A compactor that has emptied its victim, beside a thread that stamps and one that frees.
fn condemning<O: Orders>(
    stamp: Stamp<O>,
    condemn: fn(&Segment<O>, StateWord) -> bool,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let segment = Segment::<O>::new(State::Compacting, true);
        let other = |work: Stamp<O>| {
            let segment = segment.clone();
            thread::spawn(move || work(&segment))
        };
        let stamper = other(stamp);
        let freer = other(|segment| {
            segment.claim(State::Condemned, State::Freeing);
        });
        segment.is_due_now();
        assert!(condemn(&segment, segment.info.state()));
        stamper.join().unwrap();
        freer.join().unwrap();
        if segment.info.state().state() == Some(State::Condemned) {
            segment.assert_stamp_is_ours();
        }
    }
}

#[test]
fn a_condemned_segment_waits_for_a_grace_period_of_its_own() {
    holds(condemning::<Sound>(Segment::stamp, |segment, word| {
        segment.info.condemn(word)
    }));
}

#[test]
fn without_ordered_loads_or_exchanges_it_does_not() {
    fails(
        EARLY,
        condemning::<LooseLoads>(Segment::stamp, |segment, word| segment.info.condemn(word)),
    );
    fails(
        EARLY,
        condemning::<LooseExchanges>(Segment::stamp, |segment, word| segment.info.condemn(word)),
    );
}

#[test]
fn a_segment_condemned_before_its_old_period_is_ended_is_freed_at_once() {
    let twin = |segment: &Segment<Sound>, word: StateWord| {
        let condemned = segment.info.change(word, word.to(State::Condemned, None));
        segment.info.unstamp();
        condemned
    };
    fails(EARLY, condemning(Segment::stamp, twin));
}
