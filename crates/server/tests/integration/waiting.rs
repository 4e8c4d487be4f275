//! Clients that wait for keys: nobody waits for what is there, and nothing is lost when one leaves.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;

use crate::clients::pipeline;
use crate::common::{Client, Reply, info, server, start};

/// Waits until so many clients wait.
fn await_waiting(client: &mut Client, count: u64) {
    while info(client, "blocked_clients") != count {
        std::thread::yield_now();
    }
}

/// A client that waits, which is one of `count` then.
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

/// Whatever threads the clients are on, each item is popped once, and nobody sleeps while there is
/// one.
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
                // It was moved, and is another client's.
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
    // What comes later is nobody's.
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
    // A user that is no more has no client that waits.
    admin.line("ACL SETUSER u +blpop");
    client.send(&pipeline(&["BLPOP k 0"]));
    await_waiting(&mut admin, 1);
    admin.line("ACL DELUSER u");
    assert!(client.try_reply().is_none());
    await_waiting(&mut admin, 0);
}

/// Of the two that wait, the first gets what is pushed first once the pause is over.
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

/// Clients that wait for other keys, or for this one, are not looked at by those who push.
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
