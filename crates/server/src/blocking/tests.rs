//! The queues of clients that wait, used by one thread.

use super::{Awaited, Sleeper, WaitEnd, WaitQueues};

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

fn clients(woken: &[Sleeper]) -> Vec<u64> {
    woken.iter().map(|sleeper| sleeper.client).collect()
}

#[test]
fn clients_are_woken_in_the_order_in_which_they_came_and_keep_their_places() {
    let queues = WaitQueues::new(4);
    for client in 1..=3 {
        queues.fall_asleep(sleeper(client), || awaited(0, &["a", "b", "a"]));
    }
    assert!(queues.is_anybody_asleep());
    assert_eq!(clients(&queues.wake_first(Some(0), b"a")), [1]);
    assert_eq!(clients(&queues.wake_first(Some(0), b"b")), [2]);
    // They find nothing.
    queues.fall_asleep(sleeper(2), || panic!("it has a place"));
    queues.fall_asleep(sleeper(1), || panic!("it has a place"));
    assert_eq!(clients(&queues.wake_first(Some(0), b"b")), [1]);
    assert!(queues.is_preceded(2, b"a") && !queues.is_preceded(1, b"a"));
    assert!(queues.leave(1).is_some() && queues.leave(1).is_none());
    assert!(queues.leave(2).is_some());
    assert_eq!(clients(&queues.wake_first(None, b"a")), [3]);
    assert!(queues.leave(3).is_some());
    assert!(!queues.is_anybody_asleep() && queues.len() == 0);
}

#[test]
fn a_key_of_one_database_is_none_of_another() {
    let queues = WaitQueues::new(1);
    for (client, database) in [(1, 3), (2, 0), (3, 3)] {
        queues.fall_asleep(sleeper(client), || awaited(database, &["a"]));
    }
    assert!(queues.wake_first(Some(1), b"a").is_empty());
    assert!(queues.wake_first(Some(0), b"other").is_empty());
    assert_eq!(clients(&queues.wake_first(None, b"a")), [2, 1]);
    assert_eq!(clients(&queues.wake_first(Some(3), b"a")), [3]);
    assert_eq!(queues.len(), 3);
}

#[test]
fn a_wait_is_ended_once() {
    let queues = WaitQueues::new(1);
    assert_eq!(queues.end(1, WaitEnd::TimedOut), (false, None));
    queues.fall_asleep(sleeper(1), || awaited(0, &["a"]));
    assert_eq!(queues.end(1, WaitEnd::Unblocked), (true, Some(sleeper(1))));
    assert_eq!(queues.end(1, WaitEnd::TimedOut), (false, None));
    assert_eq!(queues.ended(1), Some(WaitEnd::Unblocked));
    assert!(queues.wake_first(Some(0), b"a").is_empty());
    assert!(queues.leave(1).is_some());
    // One that was woken and has not looked yet.
    queues.fall_asleep(sleeper(2), || awaited(0, &["a"]));
    queues.wake_first(Some(0), b"a");
    assert_eq!(queues.end(2, WaitEnd::TimedOut), (true, None));
    assert!(!queues.fall_asleep(sleeper(2), || panic!("it has a place")));
    assert!(queues.leave(2).is_some());
}

#[test]
fn a_client_that_waits_for_another_type_is_in_nobodys_way() {
    let queues = WaitQueues::new(1);
    for (client, kind) in [(1, 3), (2, 4), (3, 4)] {
        queues.fall_asleep(sleeper(client), || Awaited {
            kind,
            ..awaited(0, &["a"])
        });
    }
    assert!(!queues.is_preceded(2, b"a") && queues.is_preceded(3, b"a"));
    assert_eq!(clients(&queues.wake_first(Some(0), b"a")), [1, 2]);
    assert!(
        queues.is_preceded(3, b"a"),
        "the one before it is about to look"
    );
    queues.leave(2);
    assert!(!queues.is_preceded(3, b"a"));
}
