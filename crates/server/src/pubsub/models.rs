//! Posting under a model checker: [loom](https://docs.rs/loom) runs every schedule of a few
//! threads. The broken twin posts to the threads one after the other, and must fail.

#[expect(clippy::duplicate_mod, reason = "over primitives of its own")]
#[path = "posting.rs"]
#[allow(
    dead_code,
    reason = "the product's parts that the models have no use for"
)]
mod posting;

use loom::sync::Arc;
use loom::thread;

use posting::Posted;

mod primitives {
    pub use loom::sync::atomic::AtomicBool;
    pub use loom::sync::{Mutex, MutexGuard};
}

/// Two publishers each post something to two threads, which must then have both in the same order.
/// In the twin they post to the threads one after the other.
fn two_publishers(at_once: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let boxes: Arc<[Posted<u8>; 2]> = Arc::new([Posted::new(), Posted::new()]);
        let publish = move |boxes: &[Posted<u8>; 2], thing: u8| {
            let things = match at_once {
                true => vec![vec![(0, thing), (1, thing)]],
                false => vec![vec![(0, thing)], vec![(1, thing)]],
            };
            for things in things {
                Posted::post(|thread| &boxes[thread], things, |_| ());
            }
        };
        let other = {
            let boxes = Arc::clone(&boxes);
            thread::spawn(move || publish(&boxes, 1))
        };
        publish(&boxes, 2);
        other.join().unwrap();
        let [first, second] = boxes.each_ref().map(Posted::take);
        assert_eq!(first.len(), 2, "one was lost");
        assert_eq!(first, second, "two threads have them in different orders");
    }
}

#[test]
fn threads_that_get_the_same_messages_get_them_in_the_same_order() {
    loom::model(two_publishers(true));
}

#[test]
fn if_one_thread_gets_them_after_the_other_orders_differ() {
    let run = std::panic::AssertUnwindSafe(|| loom::model(two_publishers(false)));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}

/// A thread takes what it has received while two others post. Each of them wakes it after it has
/// posted everything, if asked to. The thread looks again only if it was woken.
#[test]
fn a_posted_message_is_taken_or_its_thread_is_woken() {
    loom::model(|| {
        let inbox = Arc::new(Posted::new());
        let woken = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let publishers: Vec<_> = [0..1_u8, 1..2]
            .into_iter()
            .map(|things| {
                let (inbox, woken) = (Arc::clone(&inbox), Arc::clone(&woken));
                thread::spawn(move || {
                    for thing in things {
                        Posted::post(|_| &*inbox, vec![(0, thing)], |_| ());
                    }
                    if inbox.asks_to_be_woken() {
                        woken.store(true, std::sync::atomic::Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let mut taken = inbox.take();
        for publisher in publishers {
            publisher.join().unwrap();
        }
        if woken.load(std::sync::atomic::Ordering::SeqCst) {
            taken.extend(inbox.take());
        }
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

/// A poster that wakes the thread much later does not prevent another from waking it.
#[test]
fn each_that_posts_is_asked_to_wake_until_one_has() {
    loom::model(|| {
        let inbox = Posted::new();
        Posted::post(|_| &inbox, vec![(0, 1_u8)], |_| ());
        Posted::post(|_| &inbox, vec![(0, 2)], |_| ());
        assert!(inbox.asks_to_be_woken());
        assert!(!inbox.asks_to_be_woken());
        assert_eq!(inbox.take(), [1, 2]);
        assert!(!inbox.asks_to_be_woken());
    });
}
