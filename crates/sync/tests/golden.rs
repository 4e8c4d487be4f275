//! This build opens control regions written by earlier builds.
//!
//! An image is the list of nonzero words: `offset value`, both hexadecimal. `write_image`
//! (`--ignored`) wrote it when its format version was new (then the boot id, words a8 and b0, was
//! replaced by a fictitious one), and must not write it again: an image that no longer opens means
//! that the format has changed and needs a new version.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

mod common;

use common::{UUID, map, options};
use mneme_sync::{Lane, OpenError, Participants};
use mneme_sys::{HeaderError, PagePolicy, Region, ScriptedLiveness};
use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const VERSION_2: &str = include_str!("golden/control-2.txt");

fn words(region: &Region) -> &[AtomicU64] {
    region.slice_at::<AtomicU64>(0, region.len() / 8).unwrap()
}

fn parse(image: &str) -> Vec<(usize, u64)> {
    image
        .lines()
        .map(|line| {
            let (offset, value) = line.split_once(' ').unwrap();
            (
                usize::from_str_radix(offset, 16).unwrap(),
                u64::from_str_radix(value, 16).unwrap(),
            )
        })
        .collect()
}

fn load(image: &str) -> Region {
    let region = Region::memfd("golden", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    for (offset, value) in parse(image) {
        words(&region)[offset / 8].store(value, Relaxed);
    }
    region
}

/// A region with every kind of content, whose process has died.
fn life(script: &ScriptedLiveness) -> Region {
    let region = Region::memfd("golden", 1 << 21, 1 << 26, PagePolicy::Small).unwrap();
    let copy = map(region.duplicate_fd().unwrap().unwrap());
    let p = Participants::create(region, options(), Arc::new(script.process(1))).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| p.slot().unwrap().count(1, 2, 30))
            .join()
            .unwrap();
    });
    let slot = p.slot().unwrap();
    slot.count(1, 2, 3);
    slot.intent(Lane::Arena).begin(5, &[6, 7]);
    assert!(slot.undo().write(0, b"golden"));
    let gate = p.fenced_gate(1).unwrap();
    std::mem::forget(gate.shared(&slot).unwrap());
    p.advance().unwrap();
    std::mem::forget(p.pin().unwrap());
    script.kill(1);
    copy
}

#[test]
#[ignore = "prints the image of a new format version"]
fn write_image() {
    let region = life(&ScriptedLiveness::new());
    let mut image = String::new();
    for (i, word) in words(&region).iter().enumerate() {
        let value = word.load(Relaxed);
        if value != 0 {
            writeln!(image, "{:x} {value:x}", i * 8).unwrap();
        }
    }
    print!("{image}");
}

#[test]
fn version_2_opens_with_its_counts_and_epoch() {
    // It belongs to another boot, so the region is rebuilt.
    let script = ScriptedLiveness::new();
    let p = Participants::open(load(VERSION_2), UUID, Arc::new(script.process(2))).unwrap();
    assert_eq!(p.counters(1, 2), 33);
    assert_eq!(p.epoch().to_u64(), 3);
    assert_eq!(p.check(), Vec::<String>::new());
}

#[test]
fn dead_processes_in_version_2_are_reaped_within_the_same_boot() {
    let region = load(VERSION_2);
    // The words of the boot id, taken from a current region.
    let today = life(&ScriptedLiveness::new());
    for word in [21, 22] {
        words(&region)[word].store(words(&today)[word].load(Relaxed), Relaxed);
    }
    let script = ScriptedLiveness::new();
    let p = Participants::open(region, UUID, Arc::new(script.process(2))).unwrap();
    let g = p.advance().unwrap();
    assert!(!p.quiescent(g), "a dead pin holds until it is reaped");
    let mut seen = 0;
    p.reap(|dead| {
        let intent = dead.intent(Lane::Arena).unwrap();
        assert_eq!((intent.kind, &intent.words[..3]), (5, &[6, 7, 0][..]));
        let mut bytes = [0; 6];
        assert!(dead.undo().read(0, &mut bytes));
        assert_eq!(&bytes, b"golden");
        assert_eq!(dead.counted(1, 2), 3);
        assert_eq!(dead.counted(1, 1), 0, "another index");
        seen += 1;
        Ok::<_, Infallible>(())
    })
    .unwrap();
    assert_eq!(seen, 1);
    assert!(p.quiescent(g));
    assert_eq!(p.counters(1, 2), 33);
    assert_eq!(p.check(), Vec::<String>::new());
}

/// Every header word is damaged in turn: the result is a typed error, or a region that is still
/// consistent.
#[test]
fn a_damaged_header_is_refused_or_harmless() {
    for word in 0..(128 + 128) / 8 {
        for flip in [1, 1 << 31, 1 << 63] {
            let region = load(VERSION_2);
            words(&region)[word].fetch_xor(flip, Relaxed);
            let script = ScriptedLiveness::new();
            let opened = Participants::open(region, UUID, Arc::new(script.process(2)));
            if let Ok(p) = opened {
                drop(p.pin().unwrap());
                let _ = p.check();
                p.reap(|_| Ok::<_, Infallible>(())).unwrap();
            }
        }
    }
    let refused = |word: usize| {
        let region = load(VERSION_2);
        words(&region)[word].fetch_xor(2, Relaxed);
        let script = ScriptedLiveness::new();
        Participants::open(region, UUID, Arc::new(script.process(2))).unwrap_err()
    };
    assert!(matches!(
        refused(0),
        OpenError::Header(HeaderError::Magic { .. })
    ));
    assert!(matches!(
        refused(1),
        OpenError::Header(HeaderError::Format { .. })
    ));
    assert!(matches!(
        refused(3),
        OpenError::Header(HeaderError::Damaged { .. })
    ));
    assert!(matches!(refused(19), OpenError::OtherData { .. }));
}
