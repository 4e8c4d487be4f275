//! All interleavings of an insertion with an invalidation, under the C11 memory model. The broken
//! twin, whose fences do nothing, fails.

use super::*;
use crate::descriptor::model::{Fenceless, Fresh, Sound};
use loom::sync::Arc;

/// A copy of the old value is entered while another participant changes the value.
fn what_was_removed_does_not_come_back<W: Fresh + Send + Sync>() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let owned = Arc::new(CacheBucketOf::<W> {
            version: W::fresh(0),
            entries: std::array::from_fn(|_| W::fresh(0)),
        });
        let theirs = owned.clone();
        let entry = Entry {
            frame: 1,
            offset: 0,
            generation: 1,
            tag: 1,
        };
        let filler = loom::thread::spawn(move || theirs.insert(0, entry, 0, |_| false));
        owned.invalidate(1);
        let found = owned.find(1).count();
        assert_eq!(found, 0, "an old value after its removal");
        filler.join().unwrap();
        assert_eq!(owned.find(1).count(), 0, "an old value after its removal");
    });
}

#[test]
fn an_old_value_does_not_reappear() {
    what_was_removed_does_not_come_back::<Sound>();
}

#[test]
#[should_panic(expected = "an old value after its removal")]
fn without_the_fences_an_old_value_reappears() {
    what_was_removed_does_not_come_back::<Fenceless>();
}
