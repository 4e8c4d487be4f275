//! Two segments are restored from each other.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use mneme_sys::fault::{self, Action};

use crate::common::Scene;

/// A thread that has the first of the two locks can also get the second.
#[test]
fn two_restores_of_each_other_do_not_deadlock() {
    let scene = Scene::new();
    let first = scene.create("s");
    let second = first.clone_as("t").unwrap();
    let (inside, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    std::thread::scope(|scope| {
        for (this, that) in [(&first, &second), (&second, &first)] {
            let (inside, most) = (Arc::clone(&inside), Arc::clone(&most));
            let stay = Action::Call(Arc::new(move || {
                most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                inside.fetch_sub(1, SeqCst);
            }));
            scope.spawn(move || {
                for _ in 0..5 {
                    fault::arm("space.restore.first", stay.clone(), 1);
                    // On a busy machine one thread may have waited long enough to give up.
                    let _ = this.restore_from(that);
                    fault::disarm();
                }
            });
        }
    });
    assert_eq!(most.load(SeqCst), 1);
}
