//! Measures a segment's heap beside other allocators: `cargo run --release -p mneme-space --example
//! heap_speed`.
//!
//! The others are the system's allocator, and two that could be placed in a segment: `rlsf` (TLSF)
//! and `dlmalloc`, which the paper used. In each round all do the same work in a rotated order, on
//! memory that was touched before. Each of our figures is the median over the rounds, in ns for an
//! allocation with its release (for a vector: for a push). The others' figures are the median of
//! their ratio to ours in the same round; above 1 they are slower.
//!
//! Arguments: the number of rounds, and the one row to run.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::ptr::NonNull;
use std::time::Instant;

use allocator_api2::alloc::Allocator;
use mneme_space::{Heap, LocalSegment};
use mneme_sys::{PagePolicy, Region};
use rlsf::Tlsf;

const POOL: usize = 512 << 20;
const FILLED: usize = 64 << 20;

/// An allocator under test. A block is freed and grown with the layout that it was allocated with.
trait Memory {
    fn get(&mut self, layout: Layout) -> NonNull<u8>;
    /// # Safety
    /// `at` must be a block of this layout, allocated here.
    unsafe fn give(&mut self, at: NonNull<u8>, layout: Layout);
    /// # Safety
    /// As `give`; `size` must be larger than the layout's.
    unsafe fn grow(&mut self, at: NonNull<u8>, layout: Layout, size: usize) -> NonNull<u8>;
}

impl Memory for Heap<'_> {
    #[inline]
    fn get(&mut self, layout: Layout) -> NonNull<u8> {
        self.allocate(layout).unwrap().cast()
    }

    #[inline]
    unsafe fn give(&mut self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(at, layout) }
    }

    #[inline]
    unsafe fn grow(&mut self, at: NonNull<u8>, layout: Layout, size: usize) -> NonNull<u8> {
        let new = Layout::from_size_align(size, layout.align()).unwrap();
        // SAFETY: the caller's promise.
        unsafe { Allocator::grow(self, at, layout, new) }
            .unwrap()
            .cast()
    }
}

impl Memory for System {
    #[inline]
    fn get(&mut self, layout: Layout) -> NonNull<u8> {
        // SAFETY: no layout here is empty.
        NonNull::new(unsafe { self.alloc(layout) }).unwrap()
    }

    #[inline]
    unsafe fn give(&mut self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.dealloc(at.as_ptr(), layout) }
    }

    #[inline]
    unsafe fn grow(&mut self, at: NonNull<u8>, layout: Layout, size: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        NonNull::new(unsafe { self.realloc(at.as_ptr(), layout, size) }).unwrap()
    }
}

impl Memory for Tlsf<'_, u32, u32, 28, 32> {
    #[inline]
    fn get(&mut self, layout: Layout) -> NonNull<u8> {
        self.allocate(layout).unwrap()
    }

    #[inline]
    unsafe fn give(&mut self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(at, layout.align()) }
    }

    #[inline]
    unsafe fn grow(&mut self, at: NonNull<u8>, layout: Layout, size: usize) -> NonNull<u8> {
        let new = Layout::from_size_align(size, layout.align()).unwrap();
        // SAFETY: the caller's promise.
        unsafe { self.reallocate(at, new) }.unwrap()
    }
}

impl Memory for dlmalloc::Dlmalloc {
    #[inline]
    fn get(&mut self, layout: Layout) -> NonNull<u8> {
        // SAFETY: a valid layout.
        NonNull::new(unsafe { self.malloc(layout.size(), layout.align()) }).unwrap()
    }

    #[inline]
    unsafe fn give(&mut self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { self.free(at.as_ptr(), layout.size(), layout.align()) }
    }

    #[inline]
    unsafe fn grow(&mut self, at: NonNull<u8>, layout: Layout, size: usize) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        let grown = unsafe { self.realloc(at.as_ptr(), layout.size(), layout.align(), size) };
        NonNull::new(grown).unwrap()
    }
}

/// A generator of the same numbers for all, in each round.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        ((self.next() >> 32) as usize * end) >> 32
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// Allocates a block and writes to it.
#[inline]
fn get(memory: &mut impl Memory, size: usize) -> (NonNull<u8>, Layout) {
    let layout = layout(size);
    let at = memory.get(layout);
    // SAFETY: at least eight bytes, eight of alignment.
    unsafe { at.cast::<u64>().write(size as u64) };
    (at, layout)
}

/// Replaces random blocks among `live` ones.
fn churn(
    memory: &mut impl Memory,
    live: usize,
    times: usize,
    size: impl Fn(&mut Random) -> usize,
) -> f64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut blocks: Vec<_> = (0..live).map(|_| get(memory, size(&mut random))).collect();
    let start = Instant::now();
    for _ in 0..times {
        let old = &mut blocks[random.below(live)];
        // SAFETY: allocated above, and replaced below.
        unsafe { memory.give(old.0, old.1) };
        *old = get(memory, size(&mut random));
    }
    let took = start.elapsed();
    for (at, layout) in blocks {
        // SAFETY: allocated above.
        unsafe { memory.give(at, layout) };
    }
    took.as_nanos() as f64 / times as f64
}

/// Allocates many blocks and then frees them all, in the order of a list or at random.
fn build_and_drop(memory: &mut impl Memory, count: usize, shuffled: bool) -> f64 {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut order: Vec<usize> = (0..count).collect();
    if shuffled {
        for last in (1..count).rev() {
            order.swap(last, random.below(last + 1));
        }
    }
    let mut blocks = Vec::with_capacity(count);
    let start = Instant::now();
    for _ in 0..count {
        blocks.push(get(memory, 48));
    }
    for index in order {
        let (at, layout) = blocks[index];
        // SAFETY: allocated above; each is freed once.
        unsafe { memory.give(at, layout) };
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

/// Lets vectors of words double, several at a time.
fn vectors(memory: &mut impl Memory, count: usize, len: usize) -> f64 {
    let start = Instant::now();
    let mut all: Vec<(NonNull<u8>, usize)> =
        (0..count).map(|_| (memory.get(layout(32)), 4)).collect();
    for word in 0..len {
        for (at, capacity) in &mut all {
            if word == *capacity {
                // SAFETY: allocated with this layout.
                *at = unsafe { memory.grow(*at, layout(*capacity * 8), *capacity * 16) };
                *capacity *= 2;
            }
            // SAFETY: within the capacity.
            unsafe { at.cast::<u64>().add(word).write(word as u64) };
        }
    }
    for (at, capacity) in all {
        black_box(at);
        // SAFETY: allocated with this layout.
        unsafe { memory.give(at, layout(capacity * 8)) };
    }
    start.elapsed().as_nanos() as f64 / (count * len) as f64
}

/// Sizes between `1 << from` and `1 << to` bytes, with each power of two equally likely.
fn mixed(from: u32, to: u32) -> impl Fn(&mut Random) -> usize {
    move |random| {
        let magnitude = 1 << (from as usize + random.below((to - from) as usize));
        magnitude + random.below(magnitude)
    }
}

const PATTERNS: [&str; 7] = [
    "64 B, 10,000 live, replaced at random",
    "16 B to 1 KiB, 10,000 live, replaced at random",
    "16 B to 16 KiB, 10,000 live, replaced at random",
    "64 KiB to 1 MiB, 100 live, replaced at random",
    "100,000 x 48 B, freed in order",
    "100,000 x 48 B, freed at random",
    "64 vectors of 20,000 words, pushed in turn",
];

fn run(memory: &mut impl Memory, pattern: usize) -> f64 {
    match pattern {
        0 => churn(memory, 10_000, 100_000, |_| 64),
        1 => churn(memory, 10_000, 100_000, mixed(4, 10)),
        2 => churn(memory, 10_000, 50_000, mixed(4, 14)),
        3 => churn(memory, 100, 2000, mixed(16, 20)),
        4 => build_and_drop(memory, 100_000, false),
        5 => build_and_drop(memory, 100_000, true),
        _ => vectors(memory, 64, 20_000),
    }
}

/// How many of [`FILLED`] bytes can be allocated before the memory is full, after half of the
/// blocks that fit were replaced once.
fn fill(
    mut get: impl FnMut(Layout) -> Option<NonNull<u8>>,
    mut give: impl FnMut(NonNull<u8>, Layout),
    size: impl Fn(&mut Random) -> usize,
) -> f64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut blocks = Vec::new();
    let mut all = |blocks: &mut Vec<_>, random: &mut Random| {
        loop {
            let layout = layout(size(random));
            match get(layout) {
                Some(at) => blocks.push((at, layout)),
                None => break,
            }
        }
    };
    all(&mut blocks, &mut random);
    for _ in 0..blocks.len() / 2 {
        let (at, layout) = blocks.swap_remove(random.below(blocks.len()));
        give(at, layout);
    }
    all(&mut blocks, &mut random);
    let asked: usize = blocks.iter().map(|(_, layout)| layout.size()).sum();
    asked as f64 / FILLED as f64
}

/// Compares [`fill`] of a segment with that of a pool of `rlsf`.
fn fullness(name: &str, size: impl Fn(&mut Random) -> usize) {
    let segment = LocalSegment::new("s", FILLED).unwrap();
    let ours = segment.enter(|here| {
        let heap = here.heap("s").unwrap();
        let get = |layout| heap.allocate(layout).ok().map(NonNull::cast);
        // SAFETY: allocated there.
        fill(
            get,
            |at, layout| unsafe { heap.deallocate(at, layout) },
            &size,
        )
    });
    let pool = Region::private(FILLED, FILLED, PagePolicy::Small).unwrap();
    let mut tlsf = Tlsf::<u32, u32, 28, 32>::new();
    let bytes = NonNull::slice_from_raw_parts(NonNull::new(pool.base()).unwrap(), FILLED);
    // SAFETY: the region belongs to this function, and outlives the allocator.
    unsafe { tlsf.insert_free_block_ptr(bytes) }.unwrap();
    let tlsf = std::cell::RefCell::new(tlsf);
    let get = |layout| tlsf.borrow_mut().allocate(layout);
    // SAFETY: allocated there.
    let give = |at, layout: Layout| unsafe { tlsf.borrow_mut().deallocate(at, layout.align()) };
    let rlsf = fill(get, give, &size);
    println!("{name:<50}{:>8.2}{:>8}{rlsf:>8.2}", ours.unwrap(), "");
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let rounds = std::env::args()
        .nth(1)
        .map_or(41, |rounds| rounds.parse().expect("a number of rounds"));
    let only: Option<usize> = std::env::args()
        .nth(2)
        .map(|pattern| pattern.parse().expect("a pattern"));
    let pool = Region::private(POOL, POOL, PagePolicy::Small).unwrap();
    let mut tlsf = Tlsf::<u32, u32, 28, 32>::new();
    let bytes = NonNull::slice_from_raw_parts(NonNull::new(pool.base()).unwrap(), POOL);
    // SAFETY: the region belongs to this program, and lives as long as it.
    unsafe { tlsf.insert_free_block_ptr(bytes) }.unwrap();
    let mut dlmalloc = dlmalloc::Dlmalloc::new();
    let segment = LocalSegment::new("s", POOL).unwrap();
    segment
        .enter(|here| {
            let mut heap = here.heap("s").unwrap();
            println!(
                "{:<50}{:>8}{:>8}{:>8}{:>10}",
                "", "ours/ns", "system", "rlsf", "dlmalloc"
            );
            for (pattern, name) in PATTERNS.iter().enumerate() {
                if only.is_some_and(|only| only != pattern) {
                    continue;
                }
                let mut took: [Vec<f64>; 4] = Default::default();
                for round in 0..=rounds {
                    let mut now = [0.0; 4];
                    for turn in 0..4 {
                        let which = (turn + round) % 4;
                        now[which] = match which {
                            0 => run(&mut heap, pattern),
                            1 => run(&mut System, pattern),
                            2 => run(&mut tlsf, pattern),
                            _ => run(&mut dlmalloc, pattern),
                        };
                    }
                    // The first round only touches the memory.
                    if round > 0 {
                        took[0].push(now[0]);
                        (1..4).for_each(|other| took[other].push(now[other] / now[0]));
                    }
                }
                let [ours, system, rlsf, dlmalloc] = took.map(median);
                println!("{name:<50}{ours:>8.1}{system:>8.2}{rlsf:>8.2}{dlmalloc:>10.2}");
            }
        })
        .unwrap();
    if only.is_none() {
        println!(
            "\nof 64 MiB, bytes that can be asked for{:>19}{:>16}",
            "ours", "rlsf"
        );
        fullness("48 B", |_| 48);
        fullness("16 B to 1 KiB", mixed(4, 10));
        fullness("16 B to 16 KiB", mixed(4, 14));
        fullness("64 KiB to 1 MiB", mixed(16, 20));
    }
}
