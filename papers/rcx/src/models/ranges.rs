//! A range is read whole while its boundaries move, its value changes, and it is split and joined.

use super::{Model, fails, holds, spawn};
use crate::range_map::partition::{self, Boundary, Seen, Words};
use loom::sync::Arc;
use mneme_sync::Word;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A boundary whose link is a place among all of them.
struct Place {
    words: Words<Model>,
    next: Model,
    all: std::cell::Cell<*const Place>,
}

impl Boundary for Place {
    type Word = Model;

    fn words(&self) -> &Words<Model> {
        &self.words
    }

    fn next(&self) -> &Place {
        let next = self.next.load(Acquire) as usize;
        // SAFETY: all places lie together in `Ranges`, and stay there.
        unsafe { &*self.all.get().add(next) }
    }

    fn set_next(&self, next: &Place) {
        // SAFETY: as above.
        let place = unsafe { std::ptr::from_ref(next).offset_from(self.all.get()) };
        self.next.store(place as u64, Release);
    }
}

/// From 0 to 10 the value 1, to 20 the value 2, to 30 the value 3; one place more, not linked yet.
struct Ranges {
    places: [Place; 5],
}

// SAFETY: the cells are set before others see them.
unsafe impl Sync for Ranges {}
// SAFETY: as above.
unsafe impl Send for Ranges {}

const NEW: usize = 4;

impl Ranges {
    fn new() -> Arc<Ranges> {
        let place = |start, value, next| Place {
            words: Words {
                version: Model::new(0),
                start: Model::new(start),
                value: Model::new(value),
                mark: Model::new(0),
            },
            next: Model::new(next),
            all: std::cell::Cell::new(std::ptr::null()),
        };
        let ranges = Arc::new(Ranges {
            places: [
                place(0, 1, 1),
                place(10, 2, 2),
                place(20, 3, 3),
                place(30, 0, 3),
                place(5, 1, 0),
            ],
        });
        for place in &ranges.places {
            place.all.set(ranges.places.as_ptr());
        }
        ranges
    }

    fn at(&self, place: usize) -> &Place {
        &self.places[place]
    }
}

const fn seen(start: u64, end: u64, value: u64) -> Seen {
    Seen { start, end, value }
}

/// One thread updates, another reads the first range: it must be one of `states`, which the updates
/// lead through. What is read later is not of an earlier state.
fn readers(
    update: impl Fn(&Ranges) + Send + Sync + Copy + 'static,
    states: &'static [Seen],
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ranges = Ranges::new();
        let updater = spawn(&ranges, move |ranges| update(ranges));
        let mut least = 0;
        for _ in 0..2 {
            if let Some(found) = partition::read(ranges.at(0)) {
                let state = states[least..].iter().position(|state| *state == found);
                least += state.unwrap_or_else(|| panic!("{found:?} never stood there"));
            }
        }
        updater.join().unwrap();
        let last = partition::read(ranges.at(0));
        assert_eq!(last.as_ref(), states.last());
    }
}

const CHANGED: [Seen; 3] = [seen(0, 10, 1), seen(0, 10, 7), seen(0, 15, 7)];

#[test]
fn a_value_and_an_end_are_read_as_they_stood_together() {
    holds(readers(
        |ranges| {
            partition::set_value(ranges.at(0), 7);
            partition::move_start(ranges.at(0), ranges.at(1), 15);
        },
        &CHANGED,
    ));
}

#[test]
fn a_boundary_moved_without_a_word_to_the_range_before_it_gives_that_range_a_false_end() {
    fails(readers(
        |ranges| {
            partition::set_value(ranges.at(0), 7);
            partition::announce(ranges.at(1));
            ranges.at(1).words.start.store(15, Release);
        },
        &CHANGED,
    ));
}

/// The count is there, but says nothing of the store before it.
#[test]
fn versions_that_do_not_say_what_came_before_them_let_old_values_through() {
    let announce = |place: &Place| {
        let version = &place.words.version;
        version.store(version.load(Relaxed) + 1, Relaxed);
    };
    fails(readers(
        move |ranges| {
            announce(ranges.at(0));
            ranges.at(0).words.value.store(7, Relaxed);
            announce(ranges.at(0));
            ranges.at(1).words.start.store(15, Relaxed);
        },
        &CHANGED,
    ));
}

const SPLIT: [Seen; 3] = [seen(0, 10, 1), seen(0, 5, 1), seen(0, 5, 7)];

#[test]
fn a_part_of_a_range_is_changed_by_a_split_and_then_a_value() {
    holds(readers(
        |ranges| {
            partition::insert_after(ranges.at(0), ranges.at(NEW));
            partition::set_value(ranges.at(0), 7);
        },
        &SPLIT,
    ));
}

#[test]
fn a_value_that_is_changed_before_the_split_reaches_too_far() {
    fails(readers(
        |ranges| {
            partition::set_value(ranges.at(0), 7);
            partition::insert_after(ranges.at(0), ranges.at(NEW));
        },
        &SPLIT,
    ));
}

const JOINED: [Seen; 4] = [
    seen(0, 10, 1),
    seen(0, 20, 1),
    seen(0, 25, 1),
    seen(0, 25, 7),
];

#[test]
fn a_range_that_is_joined_to_the_one_before_goes_at_one_moment() {
    holds(readers(
        |ranges| {
            partition::remove_after(ranges.at(0), ranges.at(1));
            partition::move_start(ranges.at(0), ranges.at(2), 25);
            partition::set_value(ranges.at(0), 7);
        },
        &JOINED,
    ));
}

/// Two readers in turn: one through the range before, the other, later, at the joined one itself,
/// to which a shortcut may still lead.
fn joined_and_asked(
    join: impl Fn(&Ranges) + Send + Sync + Copy + 'static,
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let ranges = Ranges::new();
        let updater = spawn(&ranges, move |ranges| join(ranges));
        let before = partition::read(ranges.at(0));
        let joined = partition::read(ranges.at(1));
        if before == Some(seen(0, 20, 1)) {
            assert_eq!(joined, None, "a range was found that was joined already");
        }
        updater.join().unwrap();
        assert_eq!(partition::read(ranges.at(1)), None);
    }
}

#[test]
fn a_range_that_was_joined_is_found_no_more_by_any_link() {
    holds(joined_and_asked(|ranges| {
        partition::remove_after(ranges.at(0), ranges.at(1));
    }));
}

#[test]
fn a_range_that_is_unlinked_before_it_is_marked_is_found_after_it_has_gone() {
    fails(joined_and_asked(|ranges| {
        let (before, removed) = (ranges.at(0), ranges.at(1));
        partition::announce(before);
        partition::announce(removed);
        before.set_next(removed.next());
        removed.words.mark.store(1, Release);
    }));
}

/// An updater stops after the mark: readers find whole ranges, and the next one mends the link.
#[test]
fn an_update_that_stops_after_the_mark_keeps_nobody_waiting() {
    holds(|| {
        let ranges = Ranges::new();
        let updater = spawn(&ranges, move |ranges| {
            partition::announce(ranges.at(0));
            partition::announce(ranges.at(1));
            ranges.at(1).words.mark.store(1, Release);
        });
        let found = partition::read(ranges.at(0));
        let whole = [Some(seen(0, 10, 1)), Some(seen(0, 20, 1)), None];
        assert!(whole.contains(&found), "{found:?}");
        updater.join().unwrap();
        assert_eq!(partition::read(ranges.at(0)), Some(seen(0, 20, 1)));
        partition::unlink_removed(ranges.at(0));
        assert!(std::ptr::eq(ranges.at(0).next(), ranges.at(2)));
    });
}
