//! The values that a section's closure has captured may do anything when they are dropped, at any
//! time: enter other sections, change the attachment, or run while the thread unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::Scene;
use mneme_space::{Access, Attachment, EnterError, Segment};

/// Calls a function when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn attach(segments: &[&Segment]) -> Attachment {
    let segments = segments.iter().map(|segment| (*segment, Access::ReadWrite));
    Attachment::new(segments).unwrap()
}

fn poison(at: &Attachment) {
    let panicked = catch_unwind(AssertUnwindSafe(|| at.enter(|_| panic!("inside"))));
    panicked.unwrap_err();
    assert!(is_poisoned(at));
}

fn is_poisoned(at: &Attachment) -> bool {
    matches!(at.enter(|_| ()), Err(EnterError::Poisoned { .. }))
}

/// Two segments in locking order: if the second is refused, the first is already locked.
fn ordered(scene: &Scene) -> [Segment; 2] {
    let mut two = [scene.create("one"), scene.create("two")];
    two.sort_by_key(Segment::uuid);
    two
}

#[test]
fn a_refused_closure_may_enter_a_segment_that_claims_the_locked_ones_addresses() {
    let scene = Scene::new();
    let [first, second] = ordered(&scene);
    let rival = attach(&[&first.clone_as("rival").unwrap()]);
    poison(&attach(&[&second]));
    poison(&rival);
    let both = attach(&[&first, &second]);
    let entered = OnDrop(|| assert!(is_poisoned(&rival)));
    let refused = both.enter(move |_| _ = &entered);
    assert!(matches!(refused, Err(EnterError::Poisoned { .. })));
    assert!(!is_poisoned(&attach(&[&first])), "nothing was changed");
    assert!(is_poisoned(&rival), "nobody accepted it");
}

#[test]
fn a_refused_closure_may_enter_and_detach_the_same_segment() {
    let scene = Scene::new();
    let [first, second] = ordered(&scene);
    let other = attach(&[&scene.create("other")]);
    poison(&attach(&[&second]));
    let both = attach(&[&first, &second]);
    let changed = OnDrop(|| {
        other.read(|_| ()).unwrap();
        both.remove(&first).unwrap();
        assert!(is_poisoned(&both));
    });
    let refused = both.enter(move |_| _ = &changed);
    assert!(matches!(refused, Err(EnterError::Poisoned { .. })));
    assert_eq!(both.segments().unwrap().len(), 1);
}

#[test]
fn a_closure_that_ran_drops_what_it_captured_inside() {
    let scene = Scene::new();
    let at = attach(&[&scene.create("s")]);
    let nested = OnDrop(|| assert!(matches!(at.enter(|_| ()), Err(EnterError::Nested))));
    at.enter(move |_| _ = &nested).unwrap();
    at.enter(|_| ()).unwrap();
}

/// A section that begins while the thread unwinds is like any other: only a panic inside it
/// poisons.
#[test]
fn a_section_entered_while_unwinding_poisons_nothing() {
    let scene = Scene::new();
    let [first, second] = ordered(&scene);
    poison(&attach(&[&second]));
    let (both, one) = (attach(&[&first, &second]), attach(&[&first]));
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _entered = OnDrop(|| {
            assert!(is_poisoned(&both));
            one.enter(|_| ()).unwrap();
            // SAFETY: dropped at once.
            drop(unsafe { one.switch_in(Access::ReadWrite) }.unwrap());
        });
        panic!("elsewhere");
    }));
    unwound.unwrap_err();
    assert!(!is_poisoned(&one));
}
