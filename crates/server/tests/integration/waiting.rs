//! Clients that wait for keys: none waits for an existing item, and nothing is lost when one
//! leaves.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mneme_sys::ManualClock;

use crate::clients::{field, pipeline};
use crate::common::{Client, Reply, encode, info, server, start};

/// Waits until `count` clients wait.
fn await_waiting(client: &mut Client, count: u64) {
    while info(client, "blocked_clients") != count {
        std::thread::yield_now();
    }
}

/// A client that waits; with it there are `count`.
fn waiting(address: SocketAddr, admin: &mut Client, line: &str, count: u64) -> Client {
    let mut client = Client::connect(address);
    client.send(&pipeline(&[line]));
    await_waiting(admin, count);
    client
}

fn popped(key: &str, item: &str) -> Reply {
    Reply::Array(vec![Reply::bulk(key), Reply::bulk(item)])
}

fn id(client: &mut Client) -> i64 {
    match client.line("CLIENT ID") {
        Reply::Integer(id) => id,
        other => panic!("no number: {other:?}"),
    }
}

/// Whatever threads the clients are on, each item is popped once, and no client sleeps while there
/// is one.
#[test]
fn every_item_reaches_one_of_many_clients_that_wait() {
    const ITEMS: usize = 400;
    const TAKERS: [&str; 5] = [
        "BLPOP a b 0",
        "BRPOP b a 0",
        "BLMPOP 0 2 a b LEFT COUNT 3",
        "BLMOVE c a RIGHT LEFT 0",
        "BRPOPLPUSH c b 0",
    ];
    let (_running, address) = start(server().threads(3));
    let taken = Mutex::new(Vec::new());
    let take = |line: &str| {
        let mut client = Client::connect(address);
        loop {
            client.send(&pipeline(&[line]));
            match client.try_reply() {
                None => return,
                // It was moved, and belongs to another client.
                Some(Reply::Bulk(_)) => {}
                Some(reply) => {
                    let mut taken = taken.lock().unwrap();
                    match &reply.items()[1] {
                        Reply::Array(items) => taken.extend(items.iter().map(Reply::text)),
                        item => taken.push(item.text()),
                    }
                }
            }
        }
    };
    let push = |pusher: usize| {
        let mut client = Client::connect(address);
        for item in (pusher..ITEMS).step_by(3) {
            let key = ["a", "b", "c"][item / 3 % 3];
            match item % 5 {
                0 => {
                    client.line("MULTI");
                    client.line(&format!("RPUSH {key} {item}"));
                    client.line("EXEC");
                }
                1 => {
                    client.line(&format!("RPUSH other-{item} {item}"));
                    let rename = format!("RENAMENX other-{item} {key}");
                    while client.line(&rename) != Reply::Integer(1) {
                        std::thread::yield_now();
                    }
                }
                _ => drop(client.line(&format!("LPUSH {key} {item}"))),
            }
        }
    };
    std::thread::scope(|scope| {
        for number in 0..2 * TAKERS.len() {
            scope.spawn(move || take(TAKERS[number % TAKERS.len()]));
        }
        let pushers: Vec<_> = (0..3)
            .map(|pusher| scope.spawn(move || push(pusher)))
            .collect();
        pushers
            .into_iter()
            .for_each(|pusher| pusher.join().unwrap());
        // Without another push.
        while taken.lock().unwrap().len() < ITEMS {
            std::thread::yield_now();
        }
        let mut admin = Client::connect(address);
        await_waiting(&mut admin, 2 * TAKERS.len() as u64);
        admin.line("CLIENT KILL TYPE normal");
    });
    let taken = taken.into_inner().unwrap();
    let distinct: BTreeSet<_> = taken
        .iter()
        .map(|item| item.parse::<usize>().unwrap())
        .collect();
    assert!(
        taken.len() == ITEMS && distinct.into_iter().eq(0..ITEMS),
        "{taken:?}"
    );
}

#[test]
fn a_client_that_leaves_while_it_waits_takes_nothing_with_it() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let killed = waiting(address, &mut admin, "BLPOP k 0", 1);
    let dropped = waiting(address, &mut admin, "BLPOP k 0", 2);
    let mut stays = waiting(address, &mut admin, "BLPOP k 0", 3);
    let list = admin.line("CLIENT LIST").text();
    let first = list.lines().find(|line| line.contains("flags=b")).unwrap();
    let first = first.split([' ', '=']).nth(1).unwrap();
    assert_eq!(
        admin.line(&format!("CLIENT KILL ID {first}")),
        Reply::Integer(1)
    );
    drop(dropped);
    await_waiting(&mut admin, 1);
    assert_eq!(admin.line("RPUSH k item"), Reply::Integer(1));
    assert_eq!(stays.reply(), popped("k", "item"));
    assert_eq!(info(&mut admin, "blocked_clients"), 0);
    drop(killed);
}

#[test]
fn another_client_ends_a_wait() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let mut client = Client::connect(address);
    let unblock = format!("CLIENT UNBLOCK {}", id(&mut client));
    assert_eq!(admin.line(&unblock), Reply::Integer(0));
    client.send(&pipeline(&[
        "BLPOP k 0",
        "BLMOVE k l LEFT LEFT 1000000",
        "PING",
    ]));
    await_waiting(&mut admin, 1);
    assert_eq!(admin.line(&format!("{unblock} TIMEOUT")), Reply::Integer(1));
    assert_eq!(client.reply(), Reply::Null);
    await_waiting(&mut admin, 1);
    while admin.line(&format!("{unblock} ERROR")) != Reply::Integer(1) {}
    let error = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
    assert_eq!(client.reply(), Reply::Error(error.into()));
    assert_eq!(client.reply(), Reply::Simple("PONG".into()));
    // Later items are given to no client.
    admin.line("RPUSH k item");
    assert_eq!(admin.line("LLEN k"), Reply::Integer(1));
}

#[test]
fn rules_that_have_changed_hold_for_a_command_that_has_waited() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    admin.line("ACL SETUSER u on nopass ~* +@all");
    let mut client = Client::connect(address);
    client.line("AUTH u x");
    client.send(&pipeline(&["BLPOP k 0"]));
    await_waiting(&mut admin, 1);
    let mut next = waiting(address, &mut admin, "BLPOP k 0", 2);
    admin.line("ACL SETUSER u -blpop");
    admin.line("RPUSH k item");
    assert!(matches!(client.reply(), Reply::Error(error) if error.starts_with("NOPERM")));
    assert_eq!(next.reply(), popped("k", "item"));
    // A deleted user has no waiting clients.
    admin.line("ACL SETUSER u +blpop");
    client.send(&pipeline(&["BLPOP k 0"]));
    await_waiting(&mut admin, 1);
    admin.line("ACL DELUSER u");
    assert!(client.try_reply().is_none());
    await_waiting(&mut admin, 0);
}

/// Of two waiting clients, the first gets the item that is pushed first once the pause is over.
#[test]
fn a_pause_of_writes_holds_what_is_pushed_and_no_reply_to_one_that_has_waited_in_vain() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let mut first = waiting(address, &mut admin, "BLPOP k 0", 1);
    let mut short = waiting(address, &mut admin, "BLPOP k 0.2", 2);
    let mut pusher = Client::connect(address);
    assert_eq!(admin.line("CLIENT PAUSE 100000000 WRITE"), Reply::ok());
    pusher.send(&pipeline(&["RPUSH k one"]));
    assert_eq!(short.reply(), Reply::Null);
    assert_eq!(admin.line("EXISTS k"), Reply::Integer(0));
    assert_eq!(admin.line("CLIENT UNPAUSE"), Reply::ok());
    assert_eq!(pusher.reply(), Reply::Integer(1));
    assert_eq!(first.reply(), popped("k", "one"));
}

#[test]
fn a_server_that_stops_closes_the_connections_of_clients_that_wait() {
    let (running, address) = start(server());
    let mut admin = Client::connect(address);
    let mut client = waiting(address, &mut admin, "BLPOP k 0", 1);
    running.stopper().stop();
    assert!(client.try_reply().is_none());
    running.join().unwrap();
}

/// Clients that push do not examine clients that wait for other keys, or all that wait for this
/// one.
#[test]
fn many_clients_wait_and_each_is_served_in_its_turn() {
    const CLIENTS: usize = 300;
    let (_running, address) = start(server().threads(2));
    let mut admin = Client::connect(address);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|number| waiting(address, &mut admin, "BLPOP k 0", number as u64 + 1))
        .collect();
    for (number, client) in clients.iter_mut().enumerate() {
        admin.line(&format!("RPUSH k {number}"));
        assert_eq!(client.reply(), popped("k", &number.to_string()));
    }
    assert_eq!(admin.line("EXISTS k"), Reply::Integer(0));
    assert_eq!(info(&mut admin, "blocked_clients"), 0);
}

#[test]
fn a_client_that_pushes_and_pops_in_one_pipeline_overtakes_nobody() {
    let (_running, address) = start(server().threads(3));
    let mut admin = Client::connect(address);
    let takers = [
        "BLPOP k 0",
        "BRPOP other k 0",
        "BLMOVE k moved LEFT LEFT 0",
        "BLMPOP 0 1 k LEFT",
    ];
    for taker in takers {
        let mut first = waiting(address, &mut admin, "BLPOP k 0", 1);
        let mut newcomer = Client::connect(address);
        newcomer.send(&pipeline(&["RPUSH k first", taker]));
        assert_eq!(first.reply(), popped("k", "first"));
        assert_eq!(newcomer.reply(), Reply::Integer(1));
        await_waiting(&mut admin, 1);
        admin.line("RPUSH k second");
        assert!(!matches!(newcomer.reply(), Reply::Null | Reply::Error(_)));
        await_waiting(&mut admin, 0);
    }
    // A client that waits for a value of another type, or in another database, does not affect
    // others.
    let _other = waiting(address, &mut admin, "BLPOP k 0", 1);
    let mut newcomer = Client::connect(address);
    newcomer.line("SELECT 1");
    newcomer.send(&pipeline(&["RPUSH k item", "BLPOP k 0"]));
    assert_eq!(newcomer.reply(), Reply::Integer(1));
    assert_eq!(newcomer.reply(), popped("k", "item"));
    // Commands within a transaction do not wait.
    newcomer.line("SELECT 0");
    newcomer.send(&pipeline(&["MULTI", "RPUSH k item", "BLPOP k 0", "EXEC"]));
    let replies = [(); 4].map(|()| newcomer.reply());
    assert_eq!(
        replies[3],
        Reply::Array(vec![Reply::Integer(1), popped("k", "item")])
    );
}

#[test]
fn what_a_client_waits_for_is_counted_as_its_memory() {
    const KEYS: usize = 20_000;
    let (_running, address) = start(server().threads(1));
    let mut admin = Client::connect(address);
    let mut client = Client::connect(address);
    let own = format!("CLIENT LIST ID {}", id(&mut client));
    let total = |admin: &mut Client, field_name: &str| -> usize {
        let line = admin.line(&own).text();
        field(&line, field_name).parse().unwrap()
    };
    let before = total(&mut admin, "tot-mem");
    let keys: Vec<String> = (0..KEYS).map(|key| format!("{key:016}")).collect();
    let mut command = vec!["BLPOP"];
    command.extend(keys.iter().map(String::as_str));
    command.push("0");
    client.send(&encode(&command));
    await_waiting(&mut admin, 1);
    let query = total(&mut admin, "qbuf") + total(&mut admin, "qbuf-free");
    let waiting = total(&mut admin, "tot-mem") - before - query;
    assert!((100 * KEYS..300 * KEYS).contains(&waiting), "{waiting}");
    admin.line(&format!("RPUSH {} item", keys[KEYS / 2]));
    assert_eq!(client.reply(), popped(&keys[KEYS / 2], "item"));
    while total(&mut admin, "tot-mem") > before + 1024 {
        std::thread::yield_now();
    }
    // The limit of all clients applies to it: one of two that wait for that many keys is
    // disconnected.
    admin.line(&format!("CONFIG SET maxmemory-clients {}", 260 * KEYS));
    let mut other = Client::connect(address);
    client.send(&encode(&command));
    other.send(&encode(&command));
    while info(&mut admin, "connected_clients") != 2 {
        std::thread::yield_now();
    }
    await_waiting(&mut admin, 1);
}

/// The client that pushes and pauses is served by the same thread, which then serves those that
/// wait.
#[test]
fn a_client_that_was_woken_and_is_held_by_a_pause_waits_once_and_its_wait_can_be_ended() {
    let (_running, address) = start(server().threads(1));
    let mut admin = Client::connect(address);
    let mut ended = Client::connect(address);
    let unblock = format!("CLIENT UNBLOCK {}", id(&mut ended));
    let wakes_and_pauses = [
        "MULTI",
        "RPUSH k item",
        "CLIENT PAUSE 100000000 WRITE",
        "EXEC",
    ];
    let wake_and_pause = |admin: &mut Client| wakes_and_pauses.map(|line| admin.line(line));
    ended.send(&pipeline(&["BLPOP k 0"]));
    await_waiting(&mut admin, 1);
    wake_and_pause(&mut admin);
    assert_eq!(info(&mut admin, "blocked_clients"), 1);
    assert_eq!(admin.line(&unblock), Reply::Integer(1));
    assert_eq!(ended.reply(), Reply::Null);
    assert_eq!(info(&mut admin, "blocked_clients"), 0);
    admin.line("CLIENT UNPAUSE");
    assert_eq!(admin.line("LPOP k"), Reply::bulk("item"));
    // Its timeout may expire as well.
    ended.send(&pipeline(&["BLPOP k 0.05"]));
    await_waiting(&mut admin, 1);
    wake_and_pause(&mut admin);
    assert_eq!(ended.reply(), Reply::Null);
    assert_eq!(info(&mut admin, "blocked_clients"), 0);
    // And the end of the pause.
    admin.line("CLIENT UNPAUSE");
    admin.line("DEL k");
    ended.send(&pipeline(&["BLPOP k 0"]));
    await_waiting(&mut admin, 1);
    wake_and_pause(&mut admin);
    assert_eq!(admin.line("EXISTS k"), Reply::Integer(1));
    admin.line("CLIENT UNPAUSE");
    assert_eq!(ended.reply(), popped("k", "item"));
    assert_eq!(info(&mut admin, "blocked_clients"), 0);
}

/// The clock is stopped: the server does not find out that a client has not read for a second.
#[test]
fn a_client_that_does_not_read_holds_up_none_that_wait_behind_it() {
    let clock: Arc<dyn mneme_sys::Clock> = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    let (_running, address) = start(server().clock(clock));
    let mut admin = Client::connect(address);
    admin.line("CONFIG SET client-output-buffer-pause 65536");
    admin.command(&["SET", "large", &"x".repeat(20_000)]);
    let mut silent = Client::connect(address);
    let own = format!("CLIENT LIST ID {}", id(&mut silent));
    let mut sent = 0;
    loop {
        sent += 1;
        silent.send(&pipeline(&["GET large", "INCR sent"]));
        while admin.line("GET sent") != Reply::bulk(sent.to_string()) {
            std::thread::yield_now();
        }
        if field(&admin.line(&own).text(), "obl") != "0" {
            break;
        }
    }
    let large = [&["GET large"; 6][..], &["BLPOP k 0"]].concat();
    silent.send(&pipeline(&large));
    await_waiting(&mut admin, 1);
    let mut next = waiting(address, &mut admin, "BLPOP k 0", 2);
    assert_eq!(admin.line("RPUSH k one two"), Reply::Integer(2));
    assert_eq!(next.reply(), popped("k", "two"));
    for _ in 0..sent {
        silent.reply();
        silent.reply();
    }
    (0..6).for_each(|_| drop(silent.reply()));
    assert_eq!(silent.reply(), popped("k", "one"));
}

/// The waiting client takes one of two items, so there is always another one.
#[test]
fn a_command_that_does_not_wait_takes_what_is_there_beside_clients_that_wait() {
    let (_running, address) = start(server().threads(3));
    let mut admin = Client::connect(address);
    let lists = ["LPOP k", "LMOVE k other LEFT LEFT", "LMPOP 1 k LEFT"];
    let sets = ["ZPOPMIN k", "ZMPOP 1 k MIN"];
    let lists = lists.map(|line| ("BLPOP k 0", "RPUSH k 1 2", line));
    let sets = sets.map(|line| ("BZPOPMIN k 0", "ZADD k 1 a 2 b", line));
    for (waits, adds, takes) in lists.into_iter().chain(sets) {
        for _ in 0..20 {
            let mut waiter = waiting(address, &mut admin, waits, 1);
            admin.send(&pipeline(&[adds, takes]));
            assert_eq!(admin.reply(), Reply::Integer(2));
            let taken = admin.reply();
            let is_nothing = [Reply::Null, Reply::Array(Vec::new())].contains(&taken);
            assert!(!is_nothing, "{takes}: {taken:?}");
            waiter.reply();
            admin.line("DEL k other");
        }
    }
}
