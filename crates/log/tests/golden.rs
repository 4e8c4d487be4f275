//! The format, byte for byte: the words of a small store that is always created in the same way are
//! those in `golden/format-N.txt`, and a store with those words can be opened. (The control
//! region's format belongs to `mneme-sync`, which has images of its own.)
//!
//! A change that fails here changes the content of regions. If that is intended, it is a new
//! version of the format: raise `FORMAT`, write its image (`MNEME_GOLDEN=write cargo test -p
//! mneme-log --test golden the_words_of_a_store`), and decide what happens to images of the old
//! one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mneme_log::{Builder, Expiry, FORMAT, LogStore, Part, Patch, ValueKind, control_bytes};
use mneme_sys::{Access, ManualClock, PagePolicy, Region, ScriptedLiveness, SyntheticTopology};

const CAPACITY: usize = 64 << 20;

/// Words that differ from one run or machine to the next.
const VARIES: [usize; 1] = [
    160, // arena: incarnation of the control region
];

/// Where each part begins.
const PARTS: [(usize, &str); 17] = [
    (0, "region header"),
    (0x80, "arena: header"),
    (0x280, "arena: zones"),
    (0x1280, "arena: frame descriptors"),
    (0x1480, "arena: free frames"),
    (0x1500, "arena: search tree"),
    (0x1580, "log: header"),
    (0x1d80, "log: heads"),
    (0x1e40, "log: segment infos"),
    (0x2640, "log: shard"),
    (0x3f00, "log: pool table"),
    (0x4100, "log: change counters"),
    (0xc100, "log: change feed"),
    (0x20_0000, "index frame: bitmap"),
    (0x20_0400, "index frame: root"),
    (0x20_0700, "index frame: two segments of two buckets"),
    (0x40_0000, "log segment: five records"),
];
fn regions() -> [Region; 2] {
    let control = control_bytes().next_multiple_of(2 << 20);
    [("golden-data", CAPACITY), ("golden-control", control)]
        .map(|(name, len)| Region::memfd(name, len, len, PagePolicy::Small).unwrap())
}

fn map(region: &Region) -> Region {
    let fd = region.duplicate_fd().unwrap().unwrap();
    Region::map(fd, Access::ReadWrite, region.max(), PagePolicy::Small).unwrap()
}

fn builder() -> Builder {
    LogStore::builder()
        .maintainer(false)
        .topology(Arc::new(SyntheticTopology::new(1, 1)))
        .clock(Arc::new(ManualClock::new(1_000, 2_000)))
        .entropy(*b"identity of 16 b\x07\x06\x05\x04\x03\x02\x01\x00")
}

/// A store with a record, a patchable one, one of another kind, and two dead ones.
fn make([data, control]: &[Region; 2]) {
    let liveness = ScriptedLiveness::new().process(1);
    let store = builder()
        .create_in(map(data), map(control), Arc::new(liveness))
        .unwrap();
    store.put(b"calliope", b"epic poetry").unwrap();
    store.put(b"clio", b"history").unwrap();
    assert!(store.remove(b"clio").unwrap());
    store.put(b"thalia", &[0; 5000]).unwrap();
    let patch = Patch::Write {
        at: 8,
        bytes: Cow::Borrowed(b"comedy"),
    };
    store
        .update_part(b"thalia", |_| 0..0, |_| patch.clone())
        .unwrap();
    let kind = ValueKind::new(1).unwrap();
    let expiry = Expiry::At(3_000);
    store.put_kind(b"urania", b"typed", kind, expiry).unwrap();
}

fn words(region: &Region) -> &[AtomicU64] {
    region.slice_at(0, region.len() / 8).unwrap()
}

/// The words that are not zero: `offset word`, `*` for one that varies.
fn shown(region: &Region) -> String {
    let mut text = format!("# {} bytes\n", region.len());
    for (i, word) in words(region).iter().enumerate() {
        if let Some((_, part)) = PARTS.iter().find(|(at, _)| *at == i * 8) {
            writeln!(text, "# {part}").unwrap();
        }
        let word = word.load(Relaxed);
        if VARIES.contains(&(i * 8)) {
            writeln!(text, "{:07x} *", i * 8).unwrap();
        } else if word != 0 {
            writeln!(text, "{:07x} {word:016x}", i * 8).unwrap();
        }
    }
    text
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/format-{FORMAT}.txt"))
}

#[test]
fn the_words_of_a_store_are_those_of_the_format() {
    let regions = regions();
    make(&regions);
    let now = shown(&regions[0]);
    if std::env::var_os("MNEME_GOLDEN").is_some_and(|v| v == "write") {
        std::fs::write(golden(), now).unwrap();
        return;
    }
    let then = std::fs::read_to_string(golden()).expect("an image of this format");
    for (now, then) in now.lines().zip(then.lines()) {
        assert_eq!(now, then, "the format changed, and its number did not");
    }
    assert_eq!(now.len(), then.len());
}

#[test]
fn a_store_with_the_words_of_the_format_can_be_opened() {
    let regions = regions();
    make(&regions);
    let [data, control] = &regions;
    // Its control region stays as it was created; everything else comes from the image.
    for (i, word) in words(data).iter().enumerate() {
        if !VARIES.contains(&(i * 8)) {
            word.store(0, Relaxed);
        }
    }
    let image = std::fs::read_to_string(golden()).expect("an image of this format");
    for line in image.lines().filter(|line| !line.starts_with('#')) {
        let (offset, word) = line.split_once(' ').unwrap();
        if word != "*" {
            let at = usize::from_str_radix(offset, 16).unwrap() / 8;
            let word = u64::from_str_radix(word, 16).unwrap();
            words(data)[at].store(word, Relaxed);
        }
    }
    let liveness = ScriptedLiveness::new().process(2);
    let store = builder()
        .open_in(map(data), map(control), Arc::new(liveness))
        .unwrap();
    assert_eq!(store.get(b"calliope").unwrap().unwrap(), b"epic poetry");
    assert!(store.get(b"clio").unwrap().is_none());
    let comedy = |part: Option<Part<'_>>| part.map(|part| (part.bytes.to_vec(), part.len));
    let read = store.read_part(b"thalia", |_| 8..14, comedy).unwrap();
    assert_eq!(read, Some((b"comedy".to_vec(), 5000)));
    let kind = ValueKind::new(1).unwrap();
    assert_eq!(store.get_kind(b"urania", kind).unwrap().unwrap(), b"typed");
    assert_eq!(store.kind(b"calliope").unwrap(), Some(ValueKind::STRING));
    assert_eq!(store.len(), 3);
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
    store.put(b"clio", b"history again").unwrap();
    assert_eq!(store.get(b"clio").unwrap().unwrap(), b"history again");
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
