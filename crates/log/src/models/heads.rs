//! Writers that append to a log segment, or to a gap within one, one after the other under the
//! head's lock, against a thread that walks it from header to header.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use loom::sync::{Arc, Mutex};
use loom::thread;
use mneme_arena::Frame;
use mneme_sync::Word;

use super::{KeyspaceId, LooseLoads, LooseStores, Model, Orders, Sound, fails, holds};
use crate::log::segment::length_word;
use crate::region::layout::{GapOf, SegmentInfoOf};
use crate::region::mem::{Loc, Memory};
use crate::region::record::Header;

/// The earlier content of the segment's frame: no header.
const GARBAGE: u64 = u64::MAX;
const WORDS: usize = 8;
/// The space of the records.
const OURS: crate::region::space::KeyspaceId = crate::region::space::KeyspaceId::new(0);

struct Head<O> {
    /// Stands for the head's lock, which has models of its own.
    lock: Mutex<()>,
    info: SegmentInfoOf<Model<O>>,
    space: KeyspaceId<O>,
}

type Append<O> = fn(&Head<O>, &[Header]) -> usize;

impl<O: Orders> Head<O> {
    fn new() -> Arc<Head<O>> {
        let words = (0..WORDS).map(|_| Model::new(GARBAGE)).collect();
        let head = Head {
            lock: Mutex::new(()),
            info: SegmentInfoOf::default(),
            space: KeyspaceId::new(words, 0),
        };
        head.info.frames.store(length_word(1), Relaxed);
        head.info.used.store(length_word(0), Relaxed);
        Arc::new(head)
    }

    /// The record headers that a walk over the segment finds.
    fn walk(&self) -> Vec<Header> {
        let end = self.info.used();
        let (mut at, mut headers) = (0, Vec::new());
        while at < end {
            let header = self.space.header(Loc::of_byte(at));
            let header = header.expect("a header where the last record ends");
            at += header.size();
            headers.push(header);
        }
        assert_eq!(at, end, "the last record ends where the segment does");
        headers
    }
}

fn append<O: Orders>(head: &Head<O>, headers: &[Header]) -> usize {
    let _held = head.lock.lock().unwrap();
    let mut locs = [Loc::of_byte(0); 2];
    let locs = &mut locs[..headers.len()];
    let info = &head.info;
    info.append(&head.space, Frame(0), headers, locs, || ())
        .unwrap()
}

/// Dies after writing its headers and before taking the space; the next thread gets the lock.
fn append_and_die<O: Orders>(head: &Head<O>) {
    let _held = head.lock.lock().unwrap();
    let at = Loc::of_byte(head.info.used());
    let longer = Header::record(30, 0, OURS);
    head.space.word(at).unwrap().store(longer.0, Relaxed);
}

/// Two writers, the second after one that died, beside a walk.
fn writers<O: Orders>(append: Append<O>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let head = Head::<O>::new();
        let (short, long) = (Header::record(0, 0, OURS), Header::record(8, 0, OURS));
        let one = {
            let head = head.clone();
            thread::spawn(move || append(&head, &[short, long]))
        };
        let two = {
            let head = head.clone();
            thread::spawn(move || {
                append_and_die(&head);
                append(&head, &[long])
            })
        };
        let seen = head.walk();
        assert_eq!((one.join().unwrap(), two.join().unwrap()), (2, 1));
        let all = head.walk();
        let whole = all == [short, long, long] || all == [long, short, long];
        assert!(whole, "a record is lost");
        assert!(all.starts_with(&seen), "what was seen stays");
    }
}

#[test]
fn a_segment_can_be_walked_while_it_grows() {
    holds(writers::<Sound>(append));
}

#[test]
fn without_ordered_stores_or_loads_a_walk_meets_no_header() {
    let lost = "a header where the last record ends";
    fails(lost, writers::<LooseStores>(append));
    fails(lost, writers::<LooseLoads>(append));
}

#[test]
fn space_taken_before_the_header_is_written_cannot_be_walked() {
    let twin: Append<Sound> = |head, headers| {
        let _held = head.lock.lock().unwrap();
        let mut at = head.info.used();
        let size: u64 = headers.iter().map(|header| header.size()).sum();
        head.info.used.store(length_word(at + size), Release);
        for header in headers {
            let word = head.space.word(Loc::of_byte(at)).unwrap();
            word.store(header.0, Relaxed);
            at += header.size();
        }
        headers.len()
    };
    fails("a header where the last record ends", writers(twin));
}

#[test]
fn without_the_heads_lock_a_record_is_lost() {
    let twin: Append<Sound> = |head, headers| {
        let mut locs = [Loc::of_byte(0); 2];
        let locs = &mut locs[..headers.len()];
        let info = &head.info;
        info.append(&head.space, Frame(0), headers, locs, || ())
            .unwrap()
    };
    fails("a record is lost", writers(twin));
}

/// Bytes of the gap that [`fillers`] fill.
const GAP: u64 = 40;

/// A segment of one dead record, which is a gap.
struct Gap<O> {
    lock: Mutex<()>,
    gap: GapOf<Model<O>>,
    space: KeyspaceId<O>,
}

impl<O: Orders> Gap<O> {
    fn new() -> Arc<Gap<O>> {
        let mut words: Vec<_> = (0..WORDS).map(|_| Model::new(GARBAGE)).collect();
        words[0] = Model::new(Header::filler(GAP).0);
        let gap = Gap {
            lock: Mutex::new(()),
            gap: GapOf::default(),
            space: KeyspaceId::new(words, 0),
        };
        gap.gap.at.store(0, Relaxed);
        gap.gap.end.store(GAP, Relaxed);
        Arc::new(gap)
    }

    fn append(&self, header: Header) -> Option<Loc> {
        let _held = self.lock.lock().unwrap();
        self.gap.append(&self.space, 0..GAP, header).unwrap()
    }

    /// As `Store::walk` does.
    fn walk(&self) -> Vec<Header> {
        let (mut at, mut headers) = (0, Vec::new());
        while at < GAP {
            let header = self.space.header(Loc::of_byte(at));
            let header = header.expect("a header where the last record ends");
            <Model<O> as Word>::fence(Acquire);
            at += header.size();
            headers.push(header);
        }
        assert_eq!(at, GAP, "the last record ends where the gap does");
        headers
    }
}

/// Two writers, one of which dies after writing its header, beside a walk.
fn fillers<O: Orders>() {
    let gap = Gap::<O>::new();
    let (short, long) = (Header::record(0, 0, OURS), Header::record(8, 0, OURS));
    let other = {
        let gap = gap.clone();
        thread::spawn(move || {
            gap.append(long).unwrap();
            // The dead writer did not move the gap's beginning.
            let _held = gap.lock.lock().unwrap();
            let at = gap.gap.at.load(Relaxed);
            gap.gap.append(&gap.space, 0..GAP, short).unwrap();
            gap.gap.at.store(at, Relaxed);
        })
    };
    gap.walk();
    gap.append(long).unwrap();
    other.join().unwrap();
    let all = gap.walk();
    let count = |of| all.iter().filter(|header| **header == of).count();
    assert_eq!((count(long), count(short)), (2, 1), "a record is lost");
}

#[test]
fn a_gap_can_be_walked_while_it_is_filled() {
    holds(fillers::<Sound>);
}

#[test]
fn without_ordered_stores_a_walk_of_a_gap_meets_no_header() {
    let lost = "a header where the last record ends";
    fails(lost, fillers::<LooseStores>);
}
