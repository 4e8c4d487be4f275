//! Transactions of several clients at once: every observer sees all of a transaction or nothing,
//! and if a watched key has changed it has no effect.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::common::{Client, Reply, server, start};
use mneme_server::settings::Key;
use mneme_sys::Clock;
use mneme_testkit::wait_until;

const ACCOUNTS: usize = 8;

fn balance(reply: &Reply) -> i64 {
    reply.text().parse().unwrap()
}

/// Sets the flag that ends the other threads, even if an assertion fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Moves money between accounts, in transactions of two commands.
fn move_money(address: SocketAddr, seed: usize, done: &AtomicBool, began: &AtomicUsize) {
    let mut client = Client::connect(address);
    let mut moved = 0;
    while !done.load(Ordering::Relaxed) {
        let (from, to) = ((seed + moved) % ACCOUNTS, (seed + 3 * moved + 1) % ACCOUNTS);
        client.line("MULTI");
        client.line(&format!("DECRBY a{from} 7"));
        client.line(&format!("INCRBY a{to} 7"));
        assert_eq!(client.line("EXEC").items().len(), 2);
        began.fetch_add(usize::from(moved == 0), Ordering::Relaxed);
        moved += 1;
    }
}

fn sum(client: &mut Client, look: &str) -> i64 {
    let reply = client.line(look);
    reply.items().iter().map(balance).sum()
}

#[test]
fn observers_see_all_of_a_transaction_or_nothing() {
    let (_running, address) = start(server().threads(3));
    let mut client = Client::connect(address);
    let names: Vec<String> = (0..ACCOUNTS).map(|i| format!("a{i}")).collect();
    for name in &names {
        client.line(&format!("SET {name} 100"));
    }
    let (done, began) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ends = Ends(&done);
        for seed in 0..2 {
            let (done, began) = (&done, &began);
            scope.spawn(move || move_money(address, seed, done, began));
        }
        wait_until("both move money", || began.load(Ordering::Relaxed) == 2);
        for round in 0..600 {
            // Reads by one command, by a transaction of several, or by one in an exclusive section.
            let total = match round % 3 {
                0 => sum(&mut client, &format!("MGET {}", names.join(" "))),
                1 => {
                    client.line("MULTI");
                    for name in &names {
                        client.line(&format!("GET {name}"));
                    }
                    sum(&mut client, "EXEC")
                }
                _ => {
                    client.line("MULTI");
                    client.line(&format!("MGET {}", names.join(" ")));
                    client.line("DBSIZE");
                    let reply = client.line("EXEC");
                    assert_eq!(reply.items()[1], Reply::Integer(ACCOUNTS as i64));
                    reply.items()[0].items().iter().map(balance).sum()
                }
            };
            assert_eq!(total, 100 * ACCOUNTS as i64, "round {round}");
        }
        drop(ends);
    });
}

#[test]
fn counters_that_are_watched_lose_no_increment() {
    let (_running, address) = start(server().threads(2));
    let increment = || {
        let mut client = Client::connect(address);
        for _ in 0..300 {
            loop {
                client.line("WATCH n");
                let next = match client.line("GET n") {
                    Reply::Null => 1,
                    value => balance(&value) + 1,
                };
                client.line("MULTI");
                client.line(&format!("SET n {next}"));
                if client.line("EXEC") != Reply::Null {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(increment);
        }
    });
    assert_eq!(Client::connect(address).line("GET n").text(), "900");
}

#[test]
fn changes_of_a_watched_key_are_noticed() {
    let (_running, address) = start(server());
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    let mut carried_out = |change: &str| {
        other.line("SELECT 0");
        other.line("SET k v");
        client.line("WATCH k");
        let reply = other.line(change);
        assert!(!matches!(reply, Reply::Error(_)), "{change}: {reply:?}");
        client.line("MULTI");
        client.line("PING");
        client.line("EXEC") != Reply::Null
    };
    for change in [
        "SET k v",
        "DEL k",
        "APPEND k x",
        "EXPIRE k 100",
        "EXPIREAT k 1",
        "FLUSHDB",
        "FLUSHALL",
        "RENAME k l",
        "MOVE k 1",
    ] {
        other_database_is_empty(address);
        assert!(!carried_out(change), "{change}");
    }
    for harmless in ["GET k", "SET else v", "TTL k", "PING"] {
        assert!(carried_out(harmless), "{harmless}");
    }
}

fn other_database_is_empty(address: SocketAddr) {
    let mut client = Client::connect(address);
    client.line("SELECT 1");
    client.line("FLUSHDB");
}

#[test]
fn a_transaction_without_free_memory_changes_nothing() {
    // The transaction needs more memory than the store has.
    let unbounded = server().set(Key::MaxMemoryClients, "0").unwrap();
    let (_running, address) = start(unbounded.memory(64 << 20));
    let mut client = Client::connect(address);
    let value = "v".repeat(1 << 20);
    client.line("SET first before");
    client.line("MULTI");
    client.line("SET first after");
    for i in 0..80 {
        client.command(&["SET", &format!("k{i}"), &value]);
    }
    let reply = client.line("EXEC");
    let text = reply.text();
    let begins = "EXECABORT Transaction discarded because of: OOM command not allowed when used memory > 'maxmemory'. The transaction takes ";
    assert!(text.starts_with(begins), "{text}");
    assert_eq!(client.line("GET first").text(), "before");
    assert_eq!(client.line("DBSIZE"), Reply::Integer(1));
    assert_eq!(client.line("SET other v"), Reply::ok());
}

/// Another client makes changes between `WATCH` and `EXEC`: first exactly one, then repeated ones,
/// some of them during the transaction.
#[test]
fn a_failed_transaction_leaves_the_clients_state_unchanged() {
    let (_running, address) = start(server().threads(2));
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    let rest = b"MULTI\r\nSELECT 5\r\nSET x 1\r\nGET k\r\nEXEC\r\nCLIENT LIST ID 0\r\n";
    let takes_place = |client: &mut Client| {
        client.send(rest);
        let replies: Vec<Reply> = (0..6).map(|_| client.reply()).collect();
        let took_place = replies[4] != Reply::Null;
        let info = client.line("CLIENT INFO").text();
        assert!(
            info.contains(if took_place { " db=5 " } else { " db=0 " }),
            "{info}"
        );
        client.line("SELECT 0");
        took_place
    };
    client.line("WATCH k");
    other.line("INCR k");
    assert!(!takes_place(&mut client));
    client.line("WATCH k");
    assert!(takes_place(&mut client));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                other.line("INCR k");
            }
        });
        for _ in 0..2_000 {
            client.line("WATCH k");
            takes_place(&mut client);
        }
    });
}

/// A clock that advances by a millisecond whenever it is read.
#[derive(Debug, Default)]
struct Hasty(AtomicU64);

impl Clock for Hasty {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed) * 1_000_000
    }
    fn wall_ms(&self) -> u64 {
        1_700_000_000_000 + self.0.fetch_add(1, Ordering::Relaxed)
    }
}

#[test]
fn time_stands_still_within_a_transaction() {
    let (_running, address) = start(server().clock(Arc::new(Hasty::default())));
    let mut client = Client::connect(address);
    client.line("MULTI");
    client.line("SET k v PX 5");
    for _ in 0..20 {
        client.line("GETRANGE k 0 0");
    }
    client.line("PTTL k");
    client.line("EXPIRE k 100 GT");
    client.line("PEXPIRE k 7");
    client.line("PTTL k");
    client.line("GETEX k PX 9");
    client.line("PTTL k");
    let reply = client.line("EXEC");
    let last = &reply.items()[21..];
    let expected = [
        Reply::Integer(5),
        Reply::Integer(1),
        Reply::Integer(1),
        Reply::Integer(7),
        Reply::bulk("v"),
        Reply::Integer(9),
    ];
    assert_eq!(last, &expected[..]);
    // After the transaction, time continues.
    while client.line("GET k") != Reply::Null {}
}

#[test]
fn commands_that_must_not_be_repeated_run_once_and_see_earlier_changes() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    for line in [
        "MULTI",
        "SET a 1",
        "INFO keyspace",
        "CLIENT SETNAME me",
        "CLIENT GETNAME",
        "EXEC",
    ] {
        client.line(line);
    }
    client.line("MULTI");
    client.line("SET b 1");
    client.line("INFO keyspace");
    let reply = client.line("EXEC");
    assert!(reply.items()[1].text().contains("db0:keys=2"), "{reply:?}");
}

#[test]
fn an_mset_that_cannot_be_stored_stores_nothing_within_a_transaction_either() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let long = "k".repeat(70_000);
    client.line("MULTI");
    client.command(&["MSET", "a", "1", &long, "2"]);
    client.line("SET b 1");
    let reply = client.line("EXEC");
    assert!(matches!(&reply.items()[0], Reply::Error(_)), "{reply:?}");
    assert_eq!(client.line("EXISTS a b"), Reply::Integer(1));
}

/// Executes `commands`, all of which must succeed, in one transaction.
fn exec(client: &mut Client, commands: impl Iterator<Item = String>) {
    let mut pipeline = b"MULTI\r\n".to_vec();
    let mut count = 0;
    for command in commands {
        pipeline.extend(format!("{command}\r\n").into_bytes());
        count += 1;
    }
    client.send(&[&pipeline[..], b"EXEC\r\n"].concat());
    for _ in 0..=count {
        client.reply();
    }
    let reply = client.reply();
    assert!(
        matches!(&reply, Reply::Array(replies) if replies.len() == count
            && !replies.iter().any(|reply| matches!(reply, Reply::Error(_)))),
        "{reply:?}"
    );
}

/// Each command used to need memory for a copy of the value: hundreds of copies, in a store with
/// space for some sixty.
#[test]
fn a_transaction_may_change_a_long_value_often() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    const MIB: usize = 1 << 20;
    client.line(&format!("SETBIT long {} 0", 8 * MIB - 1));
    exec(
        &mut client,
        (0..2_000).map(|i| format!("SETBIT long {} 1", 37 * i)),
    );
    assert_eq!(client.line("BITCOUNT long"), Reply::Integer(2_000));
    exec(&mut client, (0..200).map(|_| "APPEND long x".to_owned()));
    exec(
        &mut client,
        (0..200).map(|i| format!("SETRANGE long {} text", 5_000 * i)),
    );
    let expire = |i| match i % 3 {
        0 => format!("EXPIREAT long {}", 4_000_000_000u64 + i),
        1 => "PERSIST long".to_owned(),
        _ => format!("EXPIREAT long {} GT", 4_000_000_000u64 + i),
    };
    exec(&mut client, (0..80).map(expire));
    let rename = |i| match i % 2 {
        0 => "RENAME long other",
        _ => "RENAME other long",
    };
    exec(&mut client, (0..200).map(|i| rename(i).to_owned()));
    let copy = |i: u32| match i % 4 {
        0 => "COPY long copy REPLACE",
        1 => "BITOP NOT copy long",
        2 => "DEL copy",
        _ => "BITOP AND copy long long",
    };
    exec(&mut client, (0..200).map(|i| copy(i).to_owned()));
    let len = Reply::Integer(MIB as i64 + 200);
    assert_eq!(
        [client.line("STRLEN long"), client.line("STRLEN copy")],
        [len.clone(), len]
    );
    assert_eq!(client.line("EXPIRETIME long"), Reply::Integer(-1));
}

#[test]
fn a_transaction_that_finds_no_space_says_how_full_the_store_is() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("MULTI");
    for i in 0..8 {
        client.line(&format!("SETRANGE k{i} 10000000 x"));
    }
    let Reply::Error(text) = client.line("EXEC") else {
        panic!("it does not fit")
    };
    assert!(
        text.starts_with("EXECABORT Transaction discarded because of: OOM command not allowed"),
        "{text}"
    );
    assert!(text.contains(" of 67108864 bytes are in use."), "{text}");
    assert_eq!(client.line("DBSIZE"), Reply::Integer(0));
}

#[test]
fn a_command_on_two_sets_that_fails_within_a_transaction_changes_neither() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("SADD set member other");
    client.line("MULTI");
    client.line(&format!("SMOVE set {} member", "k".repeat(70_000)));
    client.line("SET after 1");
    let replies = client.line("EXEC");
    let [Reply::Error(_), Reply::Simple(_)] = replies.items() else {
        panic!("{replies:?}")
    };
    assert_eq!(client.line("SISMEMBER set member"), Reply::Integer(1));
    assert_eq!(client.line("DBSIZE"), Reply::Integer(2));
}
