//! Falling asleep under a model checker: [loom](https://docs.rs/loom) runs every schedule of a few
//! threads. The broken twins look before they enter the queue, or ask without a fence, and must
//! fail.

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

use queues::{AfterLook, Awaited, Sleeper, WaitQueues};

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

/// A client waits for an item that another thread pushes: in the end it has taken the item or was
/// woken. In the twin it does not look again after entering.
fn client_and_pusher(looks_again: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queues = Arc::new(WaitQueues::new(1));
        let items = Arc::new(Word::new(0));
        let pusher = {
            let (queues, items) = (Arc::clone(&queues), Arc::clone(&items));
            thread::spawn(move || {
                items.fetch_add(1, Ordering::Release);
                match queues.is_anybody_waiting() {
                    true => queues.wake_first(Some(0), b"k").len(),
                    false => 0,
                }
            })
        };
        let mut has_taken = look(&items);
        let mut is_ready = false;
        if !has_taken {
            queues.enter(sleeper(1), awaited());
            has_taken = looks_again && look(&items);
            is_ready = !has_taken && queues.sleep(1) != AfterLook::Asleep;
        }
        let woken = pusher.join().unwrap();
        assert!(has_taken || is_ready || woken == 1, "the wake-up was lost");
    }
}

#[test]
fn a_client_sees_the_push_or_the_pusher_sees_the_client() {
    loom::model(client_and_pusher(true));
}

#[test]
fn if_a_client_does_not_look_once_it_has_entered_a_wake_up_is_lost() {
    let run = std::panic::AssertUnwindSafe(|| loom::model(client_and_pusher(false)));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}

/// Runs every schedule with at most three preemptions.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Simulates a client that runs its command: it takes an item unless another client has waited
/// longer; otherwise it falls asleep. Returns whether it has taken one; then it adds the next
/// client to `woken`.
fn run(queues: &WaitQueues, items: &Word, client: u64, woken: &mut Vec<Sleeper>) -> bool {
    let may_take = || !queues.is_preceded(client, 0, 4, b"k") && look(items);
    let mut has_taken = may_take();
    if !has_taken && !queues.waits(client) {
        queues.enter(sleeper(client), awaited());
        has_taken = may_take();
    }
    while !has_taken && matches!(queues.sleep(client), AfterLook::Ready(_)) {
        has_taken = may_take();
    }
    if has_taken {
        let left = queues.leave(client);
        let is_left = !left.is_empty() && items.load(Ordering::Acquire) > 0;
        if is_left {
            woken.extend(queues.wake_first(Some(0), b"k"));
        }
    }
    has_taken
}

/// Two clients, and two items that another thread pushes: in the end both are taken, by the clients
/// in order. In the twin a client that leaves does not wake the next one.
fn two_clients_and_a_pusher(wakes_next: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queues = Arc::new(WaitQueues::new(1));
        let items = Arc::new(Word::new(0));
        for client in [1, 2] {
            queues.enter(sleeper(client), awaited());
            queues.sleep(client);
        }
        let pusher = {
            let (queues, items) = (Arc::clone(&queues), Arc::clone(&items));
            thread::spawn(move || {
                let mut woken = Vec::new();
                for _ in 0..2 {
                    items.fetch_add(1, Ordering::Release);
                    if queues.is_anybody_waiting() {
                        woken.extend(queues.wake_first(Some(0), b"k"));
                    }
                }
                woken
            })
        };
        let (mut served, mut woken) = (Vec::new(), Vec::new());
        // Client 1 was not woken; it looks and keeps its place.
        if run(&queues, &items, 1, &mut woken) {
            served.push(1);
        }
        if !wakes_next {
            woken.clear();
        }
        woken.extend(pusher.join().unwrap());
        while let Some(Sleeper { client, .. }) = woken.pop() {
            // A client that was woken and has looked since is no longer in the queue.
            if queues.waits(client) && run(&queues, &items, client, &mut woken) {
                served.push(client);
                if !wakes_next {
                    woken.clear();
                }
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

/// A client waits, and another one pushes an item and tries to take one itself: it gets none,
/// because the first has waited longer. In the twin the newcomer does not check that.
fn client_and_newcomer(asks: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let queues = Arc::new(WaitQueues::new(1));
        let items = Arc::new(Word::new(0));
        queues.enter(sleeper(1), awaited());
        queues.sleep(1);
        let newcomer = {
            let (queues, items) = (Arc::clone(&queues), Arc::clone(&items));
            thread::spawn(move || {
                items.fetch_add(1, Ordering::Release);
                let mut woken = Vec::new();
                if queues.is_anybody_waiting() {
                    woken = queues.wake_first(Some(0), b"k");
                }
                let has_taken = match asks {
                    true => run(&queues, &items, 2, &mut woken),
                    false => look(&items),
                };
                (has_taken, woken)
            })
        };
        let mut woken = Vec::new();
        let mut is_served = run(&queues, &items, 1, &mut woken);
        let (has_taken, posted) = newcomer.join().unwrap();
        woken.extend(posted);
        while let Some(Sleeper { client, .. }) = woken.pop() {
            if queues.waits(client) {
                is_served |= run(&queues, &items, client, &mut woken);
            }
        }
        assert!(is_served && !has_taken, "a client was overtaken");
    }
}

#[test]
fn a_client_that_waits_is_not_overtaken_by_one_that_has_just_come() {
    check(client_and_newcomer(true));
}

#[test]
fn if_one_that_has_just_come_does_not_ask_it_overtakes_those_that_wait() {
    let run = std::panic::AssertUnwindSafe(|| check(client_and_newcomer(false)));
    let failed = std::panic::catch_unwind(run).is_err();
    assert!(failed, "the broken twin passed: the model shows nothing");
}
