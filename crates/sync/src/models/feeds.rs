//! A follower gets every entry, in order, or learns that it fell behind; and data that are
//! published after their entries are never seen without them.

use super::{Model, fails, holds};
use crate::atomics::Word;
use crate::ring_feed;
use loom::sync::Arc;
use loom::thread;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

struct Shared {
    reserved: Model,
    head: Model,
    ring: [[Model; 2]; 2],
    /// The number of the last entry of the published data.
    durable: Model,
}

/// The content of entry `number`.
fn entry(number: u64) -> [u64; 2] {
    [number + 1, (number + 1) * 10]
}

impl Shared {
    fn marks(&self) -> (&Model, &Model) {
        (&self.reserved, &self.head)
    }

    fn append(&self, number: u64) {
        ring_feed::append(self.marks(), &self.ring, [entry(number)].into_iter());
    }

    fn publish(&self, count: u64) {
        self.durable.store(count, Release);
    }
}

fn publish(shared: &Shared) {
    for number in 0..3 {
        shared.append(number);
        shared.publish(number + 1);
    }
}

fn follow(shared: &Shared) {
    let durable = shared.durable.load(Acquire);
    if let Ok(entries) = ring_feed::read(shared.marks(), &shared.ring, 0) {
        assert!(
            entries.len() as u64 >= durable,
            "published without its entry"
        );
        for (number, found) in entries.into_iter().enumerate() {
            assert_eq!(found, entry(number as u64));
        }
    }
}

fn together(
    writer: impl Fn(&Shared) + Send + Sync + 'static,
    follower: fn(&Shared),
) -> impl Fn() + Send + Sync + 'static {
    move || {
        let word = || Model::new(0);
        let shared = Arc::new(Shared {
            reserved: word(),
            head: word(),
            ring: std::array::from_fn(|_| [word(), word()]),
            durable: word(),
        });
        let other = Arc::clone(&shared);
        let following = thread::spawn(move || follower(&other));
        writer(&shared);
        following.join().unwrap();
    }
}

#[test]
fn a_follower_gets_every_entry_or_learns_that_it_fell_behind() {
    holds(together(publish, follow));
}

/// Fills the ring; the writer is killed after it has overwritten all of it, and another writer
/// continues.
fn killed(next: fn(&Shared)) -> impl Fn(&Shared) + Send + Sync + 'static {
    move |shared| {
        shared.append(0);
        shared.append(1);
        let lost = [[666, 666]; 2].into_iter();
        ring_feed::overwrite(shared.marks(), &shared.ring, lost);
        next(shared);
    }
}

/// A follower that needs the second entry.
fn follow_late(shared: &Shared) {
    if let Ok(entries) = ring_feed::read(shared.marks(), &shared.ring, 1) {
        for (number, found) in entries.into_iter().enumerate() {
            assert_eq!(found, entry(1 + number as u64));
        }
    }
}

#[test]
fn entries_that_a_killed_writer_overwrote_are_not_read() {
    holds(together(killed(|shared| shared.append(2)), follow_late));
}

#[test]
fn if_the_next_writer_lowers_the_reservation_a_follower_reads_overwritten_entries() {
    fails(together(
        killed(|shared| {
            shared.reserved.store(2, Relaxed);
            shared.append(2);
        }),
        follow_late,
    ));
}

#[test]
fn data_published_before_its_entry_is_seen_without_the_entry() {
    fails(together(
        |shared| {
            for number in 0..2 {
                shared.publish(number + 1);
                shared.append(number);
            }
        },
        follow,
    ));
}

#[test]
fn entries_overwritten_without_a_reservation_are_read() {
    fails(together(
        |shared| {
            for number in 0..3 {
                let [first, second] = entry(number);
                let place = &shared.ring[number as usize % 2];
                place[0].store(first, Relaxed);
                place[1].store(second, Relaxed);
                shared.reserved.store(number + 1, Relaxed);
                shared.head.store(number + 1, Release);
                shared.publish(number + 1);
            }
        },
        follow,
    ));
}

#[test]
fn without_the_second_check_a_change_is_missed() {
    fails(together(publish, |shared| {
        let to = shared.head.load(Acquire);
        for number in 0..to.min(2) {
            let place = &shared.ring[number as usize % 2];
            let found = [place[0].load(Relaxed), place[1].load(Relaxed)];
            assert_eq!(found, entry(number));
        }
    }));
}
