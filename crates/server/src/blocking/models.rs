//! Falling asleep under a model checker: [loom](https://docs.rs/loom) runs every schedule of a few
//! threads. The broken twins look before they fall asleep, or ask without a fence, and must fail.

#[expect(clippy::duplicate_mod, reason = "over primitives of its own")]
#[path = "queues.rs"]
#[allow(
    dead_code,
    reason = "the product's parts that the models have no use for"
)]
mod queues;

use std::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::AtomicUsize as Word;
use loom::thread;

use queues::{Awaited, Sleeper, WaitQueues};

mod primitives {
    pub use loom::sync::atomic::{AtomicUsize, fence};
    pub use loom::sync::{Mutex, MutexGuard};
}

fn sleeper(client: u64) -> Sleeper {
    Sleeper {
        thread: 0,
        key: 0,
        client,
    }
}

fn awaited() -> Awaited {
    Awaited {
        database: 0,
        kind: 4,
        keys: vec![(*b"k").into()],
    }
}

/// Takes an item, if the store has one.
fn look(items: &Word) -> bool {
    let taken = |items: usize| items.checked_sub(1);
    items
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, taken)
        .is_ok()
}

/// A client waits for an item that another thread pushes: it has taken it, or was woken. In the
/// twin it does not look once it is asleep.
fn client_and_pusher(looks_again: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queues = Arc::new(WaitQueues::new(1));
        let items = Arc::new(Word::new(0));
        let pusher = {
            let (queues, items) = (Arc::clone(&queues), Arc::clone(&items));
            thread::spawn(move || {
                items.fetch_add(1, Ordering::Release);
                match queues.is_anybody_asleep() {
                    true => queues.wake_first(Some(0), b"k").len(),
                    false => 0,
                }
            })
        };
        let mut has_taken = look(&items);
        if !has_taken {
            queues.fall_asleep(sleeper(1), awaited);
            has_taken = looks_again && look(&items);
        }
        let woken = pusher.join().unwrap();
        assert!(has_taken || woken == 1, "the wake-up was lost");
    }
}

#[test]
fn a_client_sees_the_push_or_the_pusher_sees_the_client() {
    loom::model(client_and_pusher(true));
}

#[test]
fn if_a_client_does_not_look_once_it_is_asleep_a_wake_up_is_lost() {
    let run = std::panic::AssertUnwindSafe(|| loom::model(client_and_pusher(false)));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}

/// Runs every schedule in which threads are interrupted three times at most.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Two clients, and two items that another thread pushes: both are taken in the end, by the clients
/// in their order, if clients that were woken look again, pass over what another has waited longer
/// for, and wake the next one when they leave. In the twin they do not wake the next one.
fn two_clients_and_a_pusher(wakes_next: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queues = Arc::new(WaitQueues::new(1));
        let items = Arc::new(Word::new(0));
        queues.fall_asleep(sleeper(1), awaited);
        queues.fall_asleep(sleeper(2), awaited);
        let pusher = {
            let (queues, items) = (Arc::clone(&queues), Arc::clone(&items));
            thread::spawn(move || {
                let mut woken = Vec::new();
                for _ in 0..2 {
                    items.fetch_add(1, Ordering::Release);
                    if queues.is_anybody_asleep() {
                        woken.extend(queues.wake_first(Some(0), b"k"));
                    }
                }
                woken
            })
        };
        let mut served = Vec::new();
        let mut run = |client: u64, woken: &mut Vec<Sleeper>| {
            let may_take = || !queues.is_preceded(client, b"k") && look(&items);
            let mut has_taken = may_take();
            if !has_taken {
                queues.fall_asleep(sleeper(client), || panic!("it has a place"));
                has_taken = may_take();
            }
            if has_taken {
                served.push(client);
                queues.leave(client);
                if wakes_next && items.load(Ordering::Acquire) > 0 {
                    woken.extend(queues.wake_first(Some(0), b"k"));
                }
            }
        };
        // Client 1 looks for no reason, and keeps its place.
        let mut woken = Vec::new();
        run(1, &mut woken);
        woken.extend(pusher.join().unwrap());
        while let Some(sleeper) = woken.pop() {
            // One that was woken and has looked since is gone.
            if queues.waits(sleeper.client) {
                run(sleeper.client, &mut woken);
            }
        }
        assert_eq!(served, [1, 2], "an item is left, and a client sleeps");
    }
}

#[test]
fn every_item_reaches_a_client_and_the_first_to_come_gets_the_first() {
    check(two_clients_and_a_pusher(true));
}

#[test]
fn if_a_client_that_leaves_does_not_wake_the_next_one_an_item_is_left() {
    let run = std::panic::AssertUnwindSafe(|| check(two_clients_and_a_pusher(false)));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}
