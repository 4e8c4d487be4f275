//! Processes are killed while they allocate and free. A segment that is accepted afterwards has a
//! consistent heap with every block that they had recorded, and allocates none of them again.
//!
//! Kills 25 processes, or as many as `MNEME_LADDER_KILLS` says, starting with the seed
//! `MNEME_LADDER_SEED`.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use common::Scene;
use common::visitor::{self, here};
use mneme_space::{Attachment, EnterError, Registry, Segment, UntypedHeap};
use mneme_sys::Access;
use mneme_testkit::{Random, setting};

const NAME: &str = "blocks";

/// The maximum number of recorded blocks.
const NOTED: usize = 512;

/// A block's address, or 0, and its length. Kept in the segment, which lies at one address in all
/// processes.
#[repr(C)]
struct Note {
    at: AtomicU64,
    len: AtomicU64,
}

fn attach(registry: &Registry) -> Attachment {
    let segment = Segment::open(registry, NAME).unwrap();
    Attachment::new([(&segment, Access::ReadWrite)]).unwrap()
}

/// Runs `f` inside the segment, with the records.
fn inside<R>(
    at: &Attachment,
    f: impl FnOnce(UntypedHeap, &[Note; NOTED]) -> R,
) -> Result<R, EnterError> {
    // SAFETY: dropped at the end of this call.
    let guard = unsafe { at.switch_in(Access::ReadWrite) }?;
    let base = guard.segments().next().unwrap().base;
    let heap = guard.heap(base.addr().get()).unwrap();
    let root = heap.root().unwrap().unwrap_or_else(|| {
        let root = heap
            .allocate_zeroed(Layout::new::<[Note; NOTED]>())
            .unwrap();
        heap.set_root(Some(root)).unwrap();
        root
    });
    // SAFETY: a block for this many records, whose words are atomics.
    Ok(f(heap, unsafe { root.cast().as_ref() }))
}

fn bytes<'a>(note: &Note) -> Option<&'a mut [u8]> {
    let at = NonNull::new(note.at.load(Acquire) as *mut u8)?;
    // SAFETY: a block of that length, recorded only once, in a segment that this thread is in.
    Some(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), note.len.load(Acquire) as usize) })
}

/// Frees a recorded block, after checking its content, or allocates one.
fn change(heap: UntypedHeap, notes: &[Note; NOTED], random: &mut Random) {
    let index = random.below(NOTED as u64) as usize;
    let note = &notes[index];
    if let Some(bytes) = bytes(note) {
        assert!(bytes.iter().all(|byte| *byte == index as u8), "{index}");
        let block = NonNull::from(bytes).cast();
        note.at.store(0, Release);
        // SAFETY: no record leads to it any more.
        assert!(unsafe { heap.free(block) });
        return;
    }
    let most = [64, 1_000, 20_000, 300_000][random.below(4) as usize];
    let len = 1 + random.below(most) as usize;
    let block = heap.allocate(Layout::from_size_align(len, 8).unwrap());
    let block = block.expect("a segment that is large enough for all of them");
    // SAFETY: just allocated, with this length.
    unsafe { block.write_bytes(index as u8, len) };
    note.len.store(len as u64, Release);
    note.at.store(block.addr().get() as u64, Release);
}

#[test]
fn role() {
    let Some((seed, registry)) = visitor::role() else {
        return;
    };
    let mut random = Random::new(seed.parse().unwrap());
    let at = attach(&registry);
    here();
    loop {
        let changed = inside(&at, |heap, notes| {
            (0..200).for_each(|_| change(heap, notes, &mut random));
        });
        changed.unwrap();
    }
}

/// Checks that the records are true, and that no two of them cover the same byte.
fn verify(heap: UntypedHeap, notes: &[Note; NOTED]) {
    let mut spans = Vec::new();
    for (index, note) in notes.iter().enumerate() {
        let Some(bytes) = bytes(note) else { continue };
        assert!(bytes.iter().all(|byte| *byte == index as u8), "{index}");
        let start = bytes.as_ptr().addr();
        let usable = heap.usable(NonNull::from(&mut *bytes).cast());
        spans.push(start..start + usable.expect("a noted block is handed out"));
    }
    spans.sort_by_key(|span| span.start);
    assert!(spans.windows(2).all(|two| two[0].end <= two[1].start));
}

#[test]
fn an_accepted_heap_is_consistent_and_has_every_block() {
    let kills = setting("MNEME_LADDER_KILLS").unwrap_or(25);
    let mut random = Random::new(setting("MNEME_LADDER_SEED").unwrap_or(11));
    let scene = Scene::new();
    let segment = scene.registry.segment(NAME).max_size(1 << 30);
    drop(segment.create().unwrap());
    let at = attach(&scene.registry);
    let mut poisoned = 0;
    for _ in 0..kills {
        let mut victim = visitor::start(&scene, &random.next().to_string());
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        assert!(victim.is_running(), "a process ended by itself");
        victim.kill();
        match inside(&at, |_, _| ()) {
            Err(EnterError::Poisoned { .. }) => {
                poisoned += 1;
                // SAFETY: the records are true at any moment.
                unsafe { at.accept(NAME) }.unwrap();
            }
            entered => entered.unwrap(),
        }
        let problems = at.read(|here| here.heap(NAME).unwrap().check().unwrap().problems);
        assert_eq!(problems.unwrap(), []);
        let changed = inside(&at, |heap, notes| {
            verify(heap, notes);
            (0..100).for_each(|_| change(heap, notes, &mut random));
            verify(heap, notes);
        });
        changed.unwrap();
    }
    assert!(poisoned > 0, "no death was inside of a section");
}
