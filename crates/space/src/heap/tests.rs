//! The heap is compared with a model, run on damaged words, and filled up.

use super::layout::HEAP_AT;
use super::*;
use crate::process_mapping::Grow;
use mneme_sys::{PagePolicy, Region};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

const MIB: usize = 1 << 20;

/// Grows a region of this process.
struct Private(Arc<Region>);

impl Grow for Private {
    fn extend(&self, wanted: usize) -> Result<usize, HeapError> {
        let full = |_| HeapError::Full {
            wanted,
            max: self.0.max(),
        };
        self.0.grow(wanted).map_err(full)?;
        Ok(self.0.len())
    }
}

struct Rig {
    present: [ProcessMapping; 1],
    region: Arc<Region>,
}

impl Rig {
    fn new(len: usize, max: usize) -> Self {
        let region = Arc::new(Region::private(len, max, PagePolicy::Small).unwrap());
        let base = NonNull::new(region.base()).unwrap();
        // SAFETY: a region of our own, not yet used.
        unsafe { format(base, region.len(), region.max(), true) }.unwrap();
        Self {
            present: [ProcessMapping {
                name: "rig".into(),
                uuid: crate::Uuid::from_bytes([0; 16]),
                base,
                len: AtomicUsize::new(region.len()),
                exclusive: true,
                ground: Arc::new(Private(region.clone())),
            }],
            region,
        }
    }

    /// Runs `f` with the heap, and checks it afterwards.
    fn with<R>(&self, f: impl FnOnce(Heap<'_>) -> R) -> R {
        // SAFETY: mapped, and only this thread uses it.
        let _marked = unsafe { process_mapping::mark(&self.present) }.unwrap();
        let heap = Heap::new(self.present[0].base);
        let result = f(heap);
        assert_eq!(heap.check().unwrap().problems, []);
        result
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[derive(Debug, Clone)]
enum Op {
    Allocate {
        size: usize,
        align: u32,
        zeroed: bool,
    },
    Free {
        which: usize,
    },
    FreeAgain {
        which: usize,
    },
    Resize {
        which: usize,
        size: usize,
    },
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        6 => 0_usize..300,
        3 => 300_usize..40_000,
        1 => 40_000_usize..1_500_000,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (sizes(), prop_oneof![5 => 0_u32..4, 1 => 4_u32..17], any::<bool>())
            .prop_map(|(size, align, zeroed)| Op::Allocate { size, align, zeroed }),
        3 => any::<usize>().prop_map(|which| Op::Free { which }),
        1 => any::<usize>().prop_map(|which| Op::FreeAgain { which }),
        2 => (any::<usize>(), sizes()).prop_map(|(which, size)| Op::Resize { which, size }),
    ]
}

/// Fills and verifies only the ends of long blocks under Miri, where each byte takes a microsecond.
fn touched(len: usize) -> impl Iterator<Item = usize> {
    let step = if cfg!(miri) { (len / 8).max(1) } else { 1 };
    (0..len).step_by(step).chain(len.checked_sub(1))
}

struct Block {
    at: NonNull<u8>,
    layout: Layout,
    fill: u8,
}

impl Block {
    /// Writes the block's bytes.
    fn paint(&self) {
        if cfg!(miri) {
            for i in touched(self.layout.size()) {
                // SAFETY: within a live block.
                unsafe { self.at.add(i).write(self.fill) };
            }
        } else {
            // SAFETY: as above.
            unsafe { self.at.write_bytes(self.fill, self.layout.size()) };
        }
    }

    /// Checks that the first `len` bytes at `from` have the values that `paint` wrote.
    fn verify(&self, from: NonNull<u8>, len: usize) {
        for i in touched(len) {
            // SAFETY: within a live block.
            assert_eq!(unsafe { from.add(i).read() }, self.fill);
        }
    }

    fn verify_all(&self) {
        self.verify(self.at, self.layout.size());
    }
}

/// The blocks that should exist, by address.
#[derive(Default)]
struct Model {
    live: BTreeMap<usize, Block>,
    freed: Vec<NonNull<u8>>,
}

impl Model {
    fn enter(&mut self, block: Block) {
        let address = block.at.addr().get();
        let mut before = self.live.range(..address + block.layout.size());
        if let Some((start, before)) = before.next_back() {
            assert!(start + before.layout.size() <= address, "blocks overlap");
        }
        block.paint();
        self.live.insert(address, block);
    }

    fn take(&mut self, which: usize) -> Option<Block> {
        let address = *self.live.keys().nth(which % self.live.len().max(1))?;
        self.live.remove(&address)
    }

    fn allocate(&mut self, heap: &Heap<'_>, layout: Layout, zeroed: bool, fill: u8) {
        let got = match zeroed {
            true => heap.allocate_zeroed(layout),
            false => heap.allocate(layout),
        };
        let Ok(got) = got else { return };
        assert!(got.len() >= layout.size());
        let at = got.cast::<u8>();
        assert!(at.addr().get().is_multiple_of(layout.align()));
        if layout.size() == 0 {
            return;
        }
        if zeroed {
            Block {
                at,
                layout,
                fill: 0,
            }
            .verify_all();
        }
        self.enter(Block { at, layout, fill });
    }

    fn free(&mut self, heap: &Heap<'_>, block: &Block) {
        block.verify_all();
        // SAFETY: allocated with this layout.
        unsafe { heap.deallocate(block.at, block.layout) };
        self.freed.push(block.at);
    }

    fn free_again(&self, heap: &Heap<'_>, which: usize) {
        let Some(&at) = self.freed.get(which % self.freed.len().max(1)) else {
            return;
        };
        if !self.live.contains_key(&at.addr().get()) {
            // SAFETY: no live block begins there, so nobody uses one.
            assert!(!unsafe { UntypedHeap::new(heap.base).free(at) });
        }
    }

    fn resize(&mut self, heap: &Heap<'_>, which: usize, size: usize, fill: u8) {
        let Some(block) = self.take(which) else {
            return;
        };
        let old = block.layout;
        let new = layout(size.max(1), old.align());
        let got = if new.size() >= old.size() {
            // SAFETY: allocated with the old layout, and it grows.
            unsafe { heap.grow(block.at, old, new) }
        } else {
            // SAFETY: as above, it shrinks.
            unsafe { heap.shrink(block.at, old, new) }
        };
        let Ok(got) = got else {
            self.live.insert(block.at.addr().get(), block);
            return;
        };
        let at = got.cast::<u8>();
        let kept = match cfg!(miri) {
            true => 1,
            false => old.size().min(new.size()),
        };
        block.verify(at, kept);
        self.enter(Block {
            at,
            layout: new,
            fill,
        });
    }
}

/// Checks that blocks hold what was written to them, never overlap, and that after any history no
/// memory is lost.
fn against_model(ops: Vec<Op>, max: usize) {
    let rig = Rig::new(2 * MIB, max);
    rig.with(|heap| {
        let mut model = Model::default();
        let mut fill = 0_u8;
        for op in ops {
            fill = fill.wrapping_add(1);
            match op {
                Op::Allocate {
                    size,
                    align,
                    zeroed,
                } => model.allocate(&heap, layout(size, 1 << align), zeroed, fill),
                Op::Free { which } => {
                    if let Some(block) = model.take(which) {
                        model.free(&heap, &block);
                    }
                }
                Op::FreeAgain { which } => model.free_again(&heap, which),
                Op::Resize { which, size } => model.resize(&heap, which, size, fill),
            }
        }
        for block in std::mem::take(&mut model.live).into_values() {
            model.free(&heap, &block);
        }
        let stats = heap.stats().unwrap();
        assert_eq!((stats.blocks, stats.used_bytes, stats.damage), (0, 0, 0));
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn blocks_hold_their_content_and_no_memory_is_lost(
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 40 } else { 400 }),
    ) {
        against_model(ops, 16 * MIB);
    }

    #[test]
    fn a_full_heap_refuses_allocations_and_stays_consistent(
        ops in prop::collection::vec(op(), 1..if cfg!(miri) { 20 } else { 400 }),
    ) {
        against_model(ops, 4 * MIB);
    }
}

/// Inside a section the segment grows by what is needed and 16 MiB at most, however large it is.
#[test]
#[cfg_attr(miri, ignore = "512 MiB")]
fn a_segment_grows_little_beyond_the_need_inside_a_section() {
    let rig = Rig::new(512 * MIB, 1024 * MIB);
    rig.with(|heap| {
        while rig.region.len() == 512 * MIB {
            heap.allocate(layout(MIB, 8)).unwrap();
        }
    });
    let grown = rig.region.len() - 512 * MIB;
    assert!((MIB..=18 * MIB).contains(&grown), "{grown}");
}

/// A second `free` of a large block is refused, also after the block was merged with its free
/// neighbours.
#[test]
fn a_large_block_cannot_be_freed_twice() {
    let rig = Rig::new(8 * MIB, 8 * MIB);
    rig.with(|heap| {
        let untyped = UntypedHeap::new(heap.base);
        let large = layout(100_000, 16);
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let blocks = [(); 3].map(|()| untyped.allocate(large).unwrap());
            for (step, which) in order.into_iter().enumerate() {
                // SAFETY: allocated above, and nobody uses it.
                assert!(unsafe { untyped.free(blocks[which]) });
                for again in &order[..=step] {
                    // SAFETY: as above.
                    let freed = unsafe { untyped.free(blocks[*again]) };
                    assert!(!freed, "block {again}, freed in the order {order:?}");
                }
            }
        }
        assert_eq!(heap.stats().unwrap().blocks, 0);
    });
}

/// After everything was freed, all memory can be allocated again as one block.
#[test]
#[cfg_attr(miri, ignore = "fills 8 MiB with small blocks")]
fn freed_blocks_merge_to_one_run() {
    let rig = Rig::new(8 * MIB, 8 * MIB);
    rig.with(|heap| {
        let free = heap.stats().unwrap().free_bytes as usize;
        for size in [24, 700, 5000, 30_000, 100_000] {
            let mut blocks = Vec::new();
            while let Ok(block) = heap.allocate(layout(size, 8)) {
                blocks.push(block.cast::<u8>());
            }
            assert!(blocks.len() * size > free * 6 / 7, "{size}");
            // Even blocks first, so that nothing merges before the end.
            for half in [0, 1] {
                for block in blocks.iter().skip(half).step_by(2) {
                    // SAFETY: allocated with this layout.
                    unsafe { heap.deallocate(*block, layout(size, 8)) };
                }
            }
            // The empty slabs that classes keep are freed when the memory is needed.
            let whole = heap.allocate(layout(free, 1)).unwrap().cast();
            // SAFETY: as above.
            unsafe { heap.deallocate(whole, layout(free, 1)) };
        }
    });
}

/// A vector that doubles at the segment's end is never copied: it grows in place, across several
/// leaves.
#[test]
#[cfg_attr(miri, ignore = "a quarter of a GiB")]
fn the_last_block_grows_in_place_as_the_segment_does() {
    let rig = Rig::new(2 * MIB, 512 * MIB);
    rig.with(|heap| {
        let mut size = 64 << 10;
        let first = heap.allocate(layout(size, 8)).unwrap().cast::<u8>();
        let mut moves = 0;
        let mut at = first;
        while size < 256 * MIB {
            // SAFETY: allocated with this layout.
            let grown = unsafe { heap.grow(at, layout(size, 8), layout(size * 2, 8)) };
            moves += usize::from(grown.unwrap().cast() != at);
            at = grown.unwrap().cast();
            size *= 2;
        }
        // A leaf may be placed after it while there is no free space for the leaf elsewhere.
        assert!(moves <= 2, "{moves}");
    });
    assert!(rig.region.len() < 420 * MIB, "{}", rig.region.len());
}

/// Freeing an address where no block begins, or a block that is already free, is refused and does
/// no harm.
#[test]
fn freeing_twice_or_at_a_wrong_address_is_detected() {
    let rig = Rig::new(2 * MIB, 2 * MIB);
    // SAFETY: mapped, and only this thread uses it.
    let _marked = unsafe { process_mapping::mark(&rig.present) }.unwrap();
    let heap = Heap::new(rig.present[0].base);
    let keep = heap.allocate(layout(100, 8)).unwrap().cast::<u8>();
    let small = heap.allocate(layout(100, 8)).unwrap().cast::<u8>();
    let large = heap.allocate(layout(100_000, 8)).unwrap().cast::<u8>();
    // SAFETY: not sound for a client; the heap only looks at the address.
    unsafe {
        heap.deallocate(small, layout(100, 8));
        heap.deallocate(small, layout(100, 8));
        heap.deallocate(keep.add(8), layout(100, 8));
        heap.deallocate(large, layout(100_000, 8));
        heap.deallocate(large, layout(100_000, 8));
        heap.deallocate(rig.present[0].base, layout(1, 1));
    }
    let report = heap.check().unwrap();
    assert_eq!(report.problems, [HeapProblem::Met { times: 4 }]);
    assert_eq!(report.stats.blocks, 1);
}

/// Outside a section, in a read-only section and in another thread, a heap allocates nothing.
#[test]
fn a_heap_works_only_where_the_segment_is_held_exclusively() {
    let mut rig = Rig::new(2 * MIB, 2 * MIB);
    let heap = Heap::new(rig.present[0].base);
    assert!(heap.allocate(layout(8, 8)).is_err());
    assert!(matches!(heap.check(), Err(HeapError::Outside)));
    let block = rig.with(|heap| {
        std::thread::scope(|scope| {
            scope
                .spawn(|| assert!(heap.allocate(layout(8, 8)).is_err()))
                .join()
                .unwrap();
        });
        heap.allocate(layout(8, 8)).unwrap().cast::<u8>()
    });
    rig.present[0].exclusive = false;
    let lost = Heap::lost();
    rig.with(|_| {
        let heap = Heap::new(heap.base);
        assert!(heap.allocate(layout(8, 8)).is_err());
        // SAFETY: allocated with this layout.
        unsafe { heap.deallocate(block, layout(8, 8)) };
        assert!(Heap::lost() > lost);
        assert_eq!(heap.stats().unwrap().blocks, 1);
    });
}

/// Formatting creates a heap from any bytes, and allocating zeroed blocks returns zeros.
#[test]
fn a_segment_full_of_garbage_can_be_formatted_anew() {
    let rig = Rig::new(2 * MIB, 4 * MIB);
    let base = rig.present[0].base;
    // SAFETY: within the region, which nobody else uses.
    unsafe { base.write_bytes(0xa5, 2 * MIB) };
    // SAFETY: as above.
    unsafe { format(base, 2 * MIB, 4 * MIB, false) }.unwrap();
    rig.with(|heap| {
        let free = heap.stats().unwrap().free_bytes as usize;
        let block = heap.allocate_zeroed(layout(free, 1)).unwrap();
        // SAFETY: allocated with this length.
        assert!(touched(free).all(|i| unsafe { block.cast::<u8>().add(i).read() } == 0));
    });
}

/// After any word of the heap's own pages is overwritten, every call returns, and nothing outside
/// the segment is touched.
#[test]
fn damaged_words_lead_to_errors_inside_the_segment() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut found = 0;
    let rounds = if cfg!(miri) { 3 } else { 3000 };
    for round in 0..rounds {
        let rig = Rig::new(2 * MIB, 4 * MIB);
        // SAFETY: mapped, and only this thread uses it.
        let _marked = unsafe { process_mapping::mark(&rig.present) }.unwrap();
        let heap = Heap::new(rig.present[0].base);
        let mut blocks = Vec::new();
        for _ in 0..60 {
            let layout = layout(1 + (random() as usize % (8 << (random() % 14))), 8);
            blocks.push((heap.allocate(layout).unwrap().cast::<u8>(), layout));
            if random().is_multiple_of(3) {
                let (block, layout) = blocks.swap_remove(random() as usize % blocks.len());
                // SAFETY: allocated with this layout.
                unsafe { heap.deallocate(block, layout) };
            }
        }
        for _ in 0..=round % 4 {
            // Header, directory, leaf and the first slabs, in turn.
            let (from, len) = [
                (HEAP_AT as u64, 1344),
                (8192, 64),
                (PAGE as u64, 4096),
                (9 * PAGE as u64, 16 * PAGE as u64),
            ][random() as usize % 4];
            let at = from + random() % len / 8 * 8;
            // Not atomic: the heap uses some of these words as two halves, and Miri does not
            // support overlapping atomics.
            let word = rig.region.base().wrapping_add(at as usize).cast::<u64>();
            // SAFETY: in the region, which only this thread uses.
            let was = unsafe { word.read() };
            let now = match random() % 5 {
                0 => 0,
                1 => u64::MAX,
                2 => was ^ 1 << (random() % 64),
                3 => random() % 256,
                _ => random(),
            };
            // SAFETY: as above.
            unsafe { word.write(now) };
        }
        found += usize::from(heap.check().is_ok_and(|report| !report.is_whole()));
        for _ in 0..100 {
            let layout = layout(1 + (random() as usize % (8 << (random() % 16))), 8);
            match random() % 3 {
                0 => {
                    if let Ok(block) = heap.allocate(layout) {
                        let at = block.cast::<u8>().addr().get() - rig.region.base().addr();
                        assert!(at + block.len() <= rig.region.len());
                        blocks.push((block.cast(), layout));
                    }
                }
                _ if blocks.is_empty() => {}
                1 => {
                    let (block, layout) = blocks.swap_remove(random() as usize % blocks.len());
                    // SAFETY: the heap may have handed it out twice by now; it only looks at the
                    // address.
                    unsafe { heap.deallocate(block, layout) };
                }
                _ => {
                    let (block, old) = blocks.swap_remove(random() as usize % blocks.len());
                    let new = Layout::from_size_align(old.size() * 2, 8).unwrap();
                    // The contents may be wrong by now, but they lie in the segment.
                    if block.addr().get() - rig.region.base().addr() + new.size() < 2 * MIB {
                        // SAFETY: as above.
                        if let Ok(grown) = unsafe { heap.grow(block, old, new) } {
                            blocks.push((grown.cast(), new));
                        }
                    }
                }
            }
        }
        let _ = (heap.check(), heap.stats());
    }
    // Most words matter; some of the damaged ones belong to unused pages.
    assert!(cfg!(miri) || found > rounds as usize / 4, "{found}");
}

/// Simulates a death before a store.
pub(super) mod deaths {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    thread_local! {
        /// The number of stores that are left until the thread "dies".
        static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
    }

    struct Died;

    pub(in super::super) fn step() {
        match LEFT.get() {
            Some(0) => {
                LEFT.set(None);
                resume_unwind(Box::new(Died));
            }
            left => LEFT.set(left.map(|left| left - 1)),
        }
    }

    /// Runs `f`, which "dies" after that many stores; `None` if it did.
    pub(super) fn after<R>(stores: u32, f: impl FnOnce() -> R) -> Option<R> {
        LEFT.set(Some(stores));
        let ended = catch_unwind(AssertUnwindSafe(f));
        LEFT.set(None);
        match ended {
            Ok(done) => Some(done),
            Err(died) if died.is::<Died>() => None,
            Err(panicked) => resume_unwind(panicked),
        }
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

/// Repairs the heap, "dying" several times on the way; afterwards the heap is consistent, and every
/// block is there.
fn mend_by_dying(rig: &Rig, heap: &Heap<'_>, model: &Model, dice: &mut Dice) {
    let base = rig.present[0].base;
    // SAFETY: mapped, and only this thread uses it.
    let mend = || unsafe { mend(base, rig.region.len()) };
    while dice.below(4) == 0 {
        if let Some(mended) = deaths::after(dice.below(300) as u32, mend) {
            mended.unwrap();
        }
    }
    mend().unwrap();
    assert_eq!(heap.check().unwrap().problems, []);
    let untyped = UntypedHeap::new(base);
    for block in model.live.values() {
        assert!(untyped.usable(block.at) >= Some(block.layout.size()));
    }
}

/// Sizes so large that growth puts tables between the blocks.
fn long(dice: &mut Dice) -> usize {
    let most = [100, 5_000, 40_000, 3 * MIB, 40 * MIB][dice.below(5)];
    1 + dice.below(most)
}

fn short(dice: &mut Dice) -> usize {
    let most = [64, 300, 5_000, 40_000, 400_000][dice.below(5)];
    1 + dice.below(most)
}

/// A process is killed before any store of any operation. The repaired heap has every block that
/// was allocated and not freed, with its content, allocates none of them again, and is consistent.
fn deaths_against_model(seed: u64, max: usize, size: fn(&mut Dice) -> usize, steps: u32) -> u32 {
    let rig = Rig::new(2 * MIB, max);
    let mut dice = Dice(seed);
    let mut died = 0;
    rig.with(|heap| {
        let mut model = Model::default();
        for step in 0..steps {
            let most = [3, 8, 30, 100][dice.below(4)];
            let stores = dice.below(most) as u32;
            let size = size(&mut dice);
            let which = dice.below(1 << 20);
            let fill = step as u8;
            let ended = match dice.below(5) {
                0 | 1 => {
                    let align = 1 << [0, 3, 3, 4, 12, 15, 17][dice.below(7)];
                    let layout = layout(size, align);
                    let zeroed = dice.below(3) == 0 && size < MIB;
                    let allocate = || match zeroed {
                        true => heap.allocate_zeroed(layout),
                        false => heap.allocate(layout),
                    };
                    deaths::after(stores, allocate).map(|got| {
                        let Ok(got) = got else { return };
                        let at = got.cast();
                        let zeros = Block {
                            at,
                            layout,
                            fill: 0,
                        };
                        if zeroed {
                            zeros.verify_all();
                        }
                        model.enter(Block { fill, ..zeros });
                    })
                }
                2 | 3 => model.take(which).and_then(|block| {
                    block.verify_all();
                    // SAFETY: allocated with this layout.
                    let free = || unsafe { heap.deallocate(block.at, block.layout) };
                    deaths::after(stores, free)
                }),
                _ => model.take(which).and_then(|block| {
                    let new = layout(size, block.layout.align());
                    // SAFETY: allocated with this layout.
                    let resize = || unsafe {
                        match new.size() >= block.layout.size() {
                            true => heap.grow(block.at, block.layout, new),
                            false => heap.shrink(block.at, block.layout, new),
                        }
                    };
                    deaths::after(stores, resize).map(|got| match got {
                        Err(_) => model.enter(block),
                        Ok(got) => model.enter(Block {
                            at: got.cast(),
                            layout: new,
                            fill,
                        }),
                    })
                }),
            };
            if ended.is_none() {
                died += 1;
                mend_by_dying(&rig, &heap, &model, &mut dice);
            }
        }
        for block in std::mem::take(&mut model.live).into_values() {
            model.free(&heap, &block);
        }
    });
    died
}

#[test]
fn a_heap_is_repaired_after_a_death_at_any_store() {
    let (seeds, steps) = if cfg!(miri) { (1, 8) } else { (40, 400) };
    let mut died = 0;
    for seed in 1..=seeds {
        died += deaths_against_model(seed * 0x9e37_79b9, 16 * MIB, short, steps);
    }
    assert!(cfg!(miri) || died > 2_000, "{died}");
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of MiB")]
fn a_heap_is_repaired_after_a_death_during_growth() {
    for seed in 1..=5 {
        deaths_against_model(seed * 0x9e37_79b9, 512 * MIB, long, 150);
    }
}

/// Damage that a death cannot leave is refused with its place, and the heap stays as it was.
#[test]
fn damage_that_a_death_cannot_leave_is_refused() {
    let rig = Rig::new(4 * MIB, 4 * MIB);
    // SAFETY: mapped, and only this thread uses it.
    let _marked = unsafe { process_mapping::mark(&rig.present) }.unwrap();
    let (heap, base) = (Heap::new(rig.present[0].base), rig.present[0].base);
    let small = heap.allocate(layout(100, 8)).unwrap().cast::<u8>();
    let large = heap.allocate(layout(100_000, 8)).unwrap().cast::<u8>();
    let raw = rig.present[0].raw().unwrap();
    let page = |block: NonNull<u8>| raw.place(block).unwrap().0;
    let word = |block: NonNull<u8>| &raw.entry(page(block)).unwrap().state;
    // SAFETY: as above.
    let mend = || unsafe { mend(base, rig.region.len()) };
    for (at, damaged, expected) in [
        (large, u64::MAX, "its length is impossible"),
        (
            large,
            PageState::new(PageUse::LargeEnd, 0, 7).word(),
            "no kind",
        ),
        (
            large,
            PageState::new(PageUse::Large, 0, 8).word(),
            "its length is impossible",
        ),
        (
            small,
            PageState::new(PageUse::Slab, 200, 1).word(),
            "size class",
        ),
        (
            small,
            PageState::new(PageUse::Free, 0, 8).word(),
            "within it",
        ),
    ] {
        let was = word(at).load(Relaxed);
        word(at).put(damaged);
        let image = || {
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts(base.as_ptr(), 256 << 10) }.to_vec()
        };
        let before = image();
        let refused = mend().unwrap_err();
        assert!(matches!(refused, HeapError::NotMended { .. }), "{refused}");
        let said = refused.to_string();
        assert!(said.contains(expected), "{said}, not {expected}");
        assert!(image() == before);
        word(at).put(was);
    }
    mend().unwrap();
    assert_eq!(heap.check().unwrap().problems, []);
}
