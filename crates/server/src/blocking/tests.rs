//! The queues of waiting clients, used by one thread.

use std::sync::atomic::Ordering;

use super::{AfterLook, Awaited, AwaitedKey, HASHES, Sleeper, WaitEnd, WaitQueues};

fn sleeper(client: u64) -> Sleeper {
    Sleeper {
        thread: 0,
        key: client as usize,
        client,
    }
}

fn awaited(database: usize, keys: &[&str]) -> Awaited {
    let keys = keys.iter().map(|key| key.as_bytes().into()).collect();
    Awaited {
        database,
        kind: 4,
        keys,
    }
}

/// Makes a client wait.
fn wait(queues: &WaitQueues, client: u64, awaited: Awaited) {
    queues.enter(sleeper(client), awaited);
    assert_eq!(queues.sleep(client), AfterLook::Asleep);
}

fn clients(woken: &[Sleeper]) -> Vec<u64> {
    woken.iter().map(|sleeper| sleeper.client).collect()
}

fn names(keys: &[AwaitedKey]) -> Vec<&str> {
    let name = |key| std::str::from_utf8(key).unwrap();
    keys.iter().map(|key| name(&*key.key)).collect()
}

/// The keys because of which a client must look again.
fn ready(queues: &WaitQueues, client: u64) -> Vec<String> {
    match queues.sleep(client) {
        AfterLook::Ready(keys) => names(&keys).into_iter().map(String::from).collect(),
        other => panic!("nothing is ready: {other:?}"),
    }
}

#[test]
fn the_first_to_come_is_woken_for_the_keys_that_are_ready_and_keeps_its_place() {
    let queues = WaitQueues::new(4);
    for client in 1..=3 {
        wait(&queues, client, awaited(0, &["a", "b", "c", "a"]));
    }
    assert!(queues.is_anybody_waiting());
    assert_eq!(clients(&queues.wake_first(Some(0), b"b")), [1]);
    // The client is already awake, and no other is meant.
    assert!(queues.wake_first(Some(0), b"a").is_empty());
    assert_eq!(ready(&queues, 1), ["a", "b"]);
    assert!(queues.wake_first(Some(0), b"c").is_empty());
    assert_eq!(ready(&queues, 1), ["c"]);
    assert_eq!(queues.sleep(1), AfterLook::Asleep);
    assert_eq!(clients(&queues.wake_first(Some(0), b"b")), [1]);
    assert!(queues.is_preceded(2, 0, 4, b"a") && !queues.is_preceded(1, 0, 4, b"a"));
    // All precede a newcomer.
    assert!(queues.is_preceded(9, 0, 4, b"c") && !queues.is_preceded(9, 0, 4, b"d"));
    assert_eq!(ready(&queues, 1), ["b"]);
    assert!(queues.wake_first(Some(0), b"c").is_empty());
    assert_eq!(names(&queues.leave(1)), ["b", "c"]);
    assert!(queues.leave(1).is_empty());
    assert!(!queues.is_preceded(2, 0, 4, b"a"));
    assert!(queues.leave(2).is_empty(), "nothing was marked for it");
    assert_eq!(clients(&queues.wake_first(None, b"a")), [3]);
    assert_eq!(names(&queues.leave(3)), ["a"]);
    assert!(!queues.is_anybody_waiting() && queues.len() == 0);
}

#[test]
fn one_that_leaves_before_its_first_look_is_over_may_have_looked_at_any_of_its_keys() {
    let queues = WaitQueues::new(4);
    queues.enter(sleeper(1), awaited(0, &["b", "a"]));
    assert_eq!(names(&queues.leave(1)), ["b", "a"]);
}

#[test]
fn a_key_of_one_database_is_none_of_another() {
    let queues = WaitQueues::new(1);
    for (client, database) in [(1, 3), (2, 0), (3, 3)] {
        wait(&queues, client, awaited(database, &["a", "b"]));
    }
    assert!(queues.wake_first(Some(1), b"a").is_empty());
    assert!(queues.wake_first(Some(0), b"other").is_empty());
    assert!(queues.is_preceded(9, 0, 4, b"a") && !queues.is_preceded(9, 1, 4, b"a"));
    assert_eq!(clients(&queues.wake_first(None, b"a")), [2, 1]);
    assert!(queues.wake_first(Some(3), b"a").is_empty());
    assert_eq!(names(&queues.awaited(|number| number == 3)), ["a", "b"]);
    assert_eq!(names(&queues.awaited(|_| true)), ["a", "a", "b", "b"]);
    assert_eq!(queues.len(), 3);
}

#[test]
fn a_wait_is_ended_once() {
    let queues = WaitQueues::new(1);
    assert_eq!(queues.end(1, WaitEnd::TimedOut), None);
    wait(&queues, 1, awaited(0, &["a"]));
    assert_eq!(queues.end(1, WaitEnd::Unblocked), Some(sleeper(1)));
    assert_eq!(queues.end(1, WaitEnd::TimedOut), None);
    assert_eq!(queues.ended(1), Some(WaitEnd::Unblocked));
    assert!(queues.wake_first(Some(0), b"a").is_empty());
    assert_eq!(names(&queues.leave(1)), ["a"]);
    // A client that was woken and has not looked yet: its thread must serve it, too.
    wait(&queues, 2, awaited(0, &["a"]));
    assert_eq!(clients(&queues.wake_first(Some(0), b"a")), [2]);
    assert_eq!(queues.end(2, WaitEnd::TimedOut), Some(sleeper(2)));
    assert_eq!(queues.sleep(2), AfterLook::Ended);
    assert_eq!(names(&queues.leave(2)), ["a"]);
}

#[test]
fn a_client_that_waits_for_another_type_is_in_nobodys_way() {
    let queues = WaitQueues::new(1);
    for (client, kind) in [(1, 3), (2, 4), (3, 4)] {
        let of_kind = Awaited {
            kind,
            ..awaited(0, &["a"])
        };
        wait(&queues, client, of_kind);
    }
    assert!(!queues.is_preceded(2, 0, 4, b"a") && queues.is_preceded(3, 0, 4, b"a"));
    assert!(!queues.is_preceded(9, 0, 5, b"a"));
    assert_eq!(clients(&queues.wake_first(Some(0), b"a")), [1, 2]);
    assert!(
        queues.is_preceded(3, 0, 4, b"a"),
        "the one before it is about to look"
    );
    queues.leave(2);
    assert!(!queues.is_preceded(3, 0, 4, b"a"));
}

/// How often the common lock is taken.
#[test]
fn ten_thousand_clients_that_wait_cost_others_next_to_nothing() {
    const CLIENTS: u64 = 10_000;
    let queues = WaitQueues::new(HASHES);
    for client in 0..CLIENTS {
        wait(&queues, client, awaited(0, &[&format!("awaited:{client}")]));
    }
    let before = queues.locked.load(Ordering::Relaxed);
    for number in 0..CLIENTS {
        let key = format!("other:{number}");
        assert!(queues.wake_first(Some(0), key.as_bytes()).is_empty());
        assert!(!queues.is_preceded(CLIENTS, 0, 4, key.as_bytes()));
    }
    // Twice for each key that has the hash of an awaited key.
    let locked = queues.locked.load(Ordering::Relaxed) - before;
    assert!(locked < CLIENTS as usize, "{locked}");
    // A wake-up costs the same for any number of keys that its client waits for.
    let many: Vec<String> = (0..CLIENTS).map(|key| format!("many:{key}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    wait(&queues, CLIENTS, awaited(0, &many));
    assert_eq!(clients(&queues.wake_first(Some(0), b"many:7")), [CLIENTS]);
    assert_eq!(ready(&queues, CLIENTS), ["many:7"]);
    assert_eq!(names(&queues.leave(CLIENTS)), ["many:7"]);
}
