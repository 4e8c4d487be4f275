//! Sections without a closure, and heaps without types: they take the same locks with the same care
//! as the typed form, and neither form accepts the other's contents.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Duration;

use crate::common::Scene;
use mneme_space::{Attachment, EnterError, HeapError, Schema, SectionGuard, UntypedHeap};
use mneme_sys::Access;

struct Number;

impl Schema for Number {
    type Root<'s> = u64;
}

fn attach(scene: &Scene, name: &str) -> Attachment {
    let at = Attachment::new([(&scene.open(name), Access::ReadWrite)]).unwrap();
    at.timeout(Duration::from_millis(20))
}

fn inside(at: &Attachment, access: Access) -> Result<SectionGuard<'_>, EnterError> {
    // SAFETY: every test drops it before its attachment.
    unsafe { at.switch_in(access) }
}

fn heap(inside: &SectionGuard<'_>) -> UntypedHeap {
    let base = inside.segments().next().unwrap().base.addr().get();
    inside.heap(base).unwrap()
}

fn block(heap: UntypedHeap, size: usize) -> NonNull<u8> {
    heap.allocate(Layout::from_size_align(size, 16).unwrap())
        .unwrap()
}

/// The guard keeps other sections out until it is dropped, as the closure form does; readers do not
/// exclude each other.
#[test]
fn a_guard_holds_the_locks_until_it_is_dropped() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let at = attach(&scene, "s");
    let elsewhere = |read: bool| {
        let enter = || {
            if read {
                at.read(|_| ())
            } else {
                at.enter(|_| ())
            }
        };
        std::thread::scope(|scope| scope.spawn(enter).join().unwrap())
    };
    let held = inside(&at, Access::ReadWrite).unwrap();
    assert!(matches!(elsewhere(true), Err(EnterError::Stalled(_))));
    assert!(matches!(at.enter(|_| ()), Err(EnterError::Nested)));
    assert!(matches!(
        inside(&at, Access::ReadOnly),
        Err(EnterError::Nested)
    ));
    drop(held);
    let held = inside(&at, Access::ReadOnly).unwrap();
    elsewhere(true).unwrap();
    assert!(matches!(elsewhere(false), Err(EnterError::Stalled(_))));
    drop(held);
    elsewhere(false).unwrap();
}

/// Dropped, the guard leaves the segments consistent; abandoned, or dropped during a panic, it
/// leaves them poisoned.
#[test]
fn a_segment_left_in_the_middle_of_a_change_is_poisoned() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let at = attach(&scene, "s");
    drop(inside(&at, Access::ReadWrite).unwrap());
    at.read(|_| ()).unwrap();
    inside(&at, Access::ReadOnly).unwrap().abandon();
    at.read(|_| ()).unwrap();

    inside(&at, Access::ReadWrite).unwrap().abandon();
    assert!(matches!(at.read(|_| ()), Err(EnterError::Poisoned { .. })));
    at.rebuild("s").unwrap();

    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _inside = inside(&at, Access::ReadWrite).unwrap();
        panic!("in the middle");
    }));
    assert!(caught.is_err());
    assert!(matches!(at.enter(|_| ()), Err(EnterError::Poisoned { .. })));
    at.rebuild("s").unwrap();
    at.enter(|_| ()).unwrap();
}

/// The next section finds blocks and roots without types. An address that is no block is refused,
/// and so is everything after the section.
#[test]
fn blocks_and_roots_without_types_last_and_others_are_refused() {
    let scene = Scene::new();
    let _ = scene.create("s");
    let at = attach(&scene, "s");
    let held = inside(&at, Access::ReadWrite).unwrap();
    let heap = heap(&held);
    assert_eq!(heap.root().unwrap(), None);
    let first = block(heap, 40);
    assert!(heap.usable(first).unwrap() >= 40);
    // SAFETY: 40 bytes of our own block.
    unsafe { first.write_bytes(7, 40) };
    let layout = Layout::from_size_align(100_000, 16).unwrap();
    // SAFETY: from here on only the new address is used.
    let grown = unsafe { heap.resize(first, layout) }.unwrap();
    // SAFETY: the first bytes were kept.
    assert_eq!(unsafe { grown.add(39).read() }, 7);
    // SAFETY: within the block; nothing is freed, because no block begins there.
    assert!(!unsafe { heap.free(grown.add(16)) });
    assert!(matches!(
        // SAFETY: as above.
        heap.set_root(Some(unsafe { grown.add(16) })),
        Err(HeapError::NoBlock { .. })
    ));
    heap.set_root(Some(grown)).unwrap();
    let twice = block(heap, 24);
    // SAFETY: nobody uses it.
    assert!(unsafe { heap.free(twice) });
    // SAFETY: refused, because it is no longer a block.
    assert!(!unsafe { heap.free(twice) });
    drop(held);
    assert!(heap.allocate(layout).is_none() && heap.root().is_err());

    let held = inside(&at, Access::ReadOnly).unwrap();
    assert_eq!(heap.root().unwrap(), Some(grown));
    assert!(heap.allocate(layout).is_none());
    // SAFETY: refused, because the section only reads.
    assert!(!unsafe { heap.free(grown) });
    assert!(matches!(
        heap.set_root(None),
        Err(HeapError::ReadOnly { .. })
    ));
    drop(held);
    at.read(|here| assert!(here.heap("s").unwrap().check().unwrap().is_whole()))
        .unwrap();
}

/// A typed program cannot read an untyped program's root, nor the reverse.
#[test]
fn roots_with_and_without_types_are_kept_apart() {
    let scene = Scene::new();
    let _ = (scene.create("typed"), scene.create("untyped"));
    let at = attach(&scene, "untyped");
    let held = inside(&at, Access::ReadWrite).unwrap();
    let untyped = heap(&held);
    untyped.set_root(Some(block(untyped, 8))).unwrap();
    drop(held);
    at.read(|here| {
        let asked = here.root::<Number>("untyped").map(|_| ());
        assert!(matches!(asked, Err(HeapError::Layout { .. })));
    })
    .unwrap();

    let at = attach(&scene, "typed");
    at.enter(|here| *here.create_root::<Number>("typed", |_| 7).unwrap())
        .unwrap();
    let held = inside(&at, Access::ReadWrite).unwrap();
    assert!(matches!(heap(&held).root(), Err(HeapError::Layout { .. })));
    assert!(matches!(
        heap(&held).set_root(None),
        Err(HeapError::Layout { .. })
    ));
}
