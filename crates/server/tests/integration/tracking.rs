//! Clients that track keys are notified of changes that no command makes, and of every change
//! beside many others.

use std::net::SocketAddr;

use crate::common::{Client, Reply, info, server, start};

/// A client that tracks in this way.
pub fn tracking(address: SocketAddr, mode: &str) -> Client {
    let mut client = Client::connect(address);
    client.line("HELLO 3");
    assert_eq!(
        asked(&mut client, &format!("CLIENT TRACKING {mode}")),
        Reply::ok()
    );
    client
}

/// The reply to a command, without messages before it: changes that are under way when a client
/// begins to track may be reported as changes of all keys.
pub fn asked(client: &mut Client, line: &str) -> Reply {
    let words: Vec<&str> = line.split(' ').collect();
    client.send(&crate::common::encode(&words));
    loop {
        match client.reply() {
            Reply::Push(_) => {}
            reply => return reply,
        }
    }
}

/// The message that says that any key may have changed.
fn everything_invalidated() -> Reply {
    Reply::Push(vec![Reply::bulk("invalidate"), Reply::Null])
}

/// The message that says that a key may have changed.
pub fn invalidated(key: &str) -> Reply {
    Reply::Push(vec![
        Reply::bulk("invalidate"),
        Reply::Array(vec![Reply::bulk(key)]),
    ])
}

#[test]
fn a_client_is_notified_of_a_key_that_it_tracks_and_that_expires_or_is_evicted() {
    let (_running, address) = start(server());
    let mut writer = Client::connect(address);
    writer.line("SELECT 3");
    let mut client = tracking(address, "ON");
    client.line("SELECT 3");
    // Until it has read the value before it expires.
    loop {
        writer.line("SET k v PX 1000");
        if asked(&mut client, "GET k") == Reply::bulk("v") {
            break;
        }
    }
    assert_eq!(client.reply(), invalidated("k"));
    asked(&mut client, "CLIENT TRACKING OFF");
    let mut client = tracking(address, "ON BCAST PREFIX k");
    // Until it is notified of the key both when it is stored and when it expires. A thread that was
    // stopped in between reports both as one. If the server has missed changes, it reports that for
    // all keys.
    loop {
        writer.line("SET k v PX 10");
        while writer.line("EXISTS k") == Reply::Integer(1) {}
        writer.line("SET kept v");
        let (mut messages, mut is_over) = (0, false);
        while !is_over {
            let notified = client.reply();
            is_over = notified != invalidated("k");
            messages += 1;
            if is_over && notified != everything_invalidated() {
                let keys = [Reply::bulk("k"), Reply::bulk("kept")];
                assert!(notified == invalidated("kept") || is_of(&notified, &keys));
            }
        }
        if messages >= 3 {
            break;
        }
    }
    drop(client);
    writer.line("SELECT 0");
    writer.line("CONFIG SET maxmemory-policy allkeys-random");
    let mut client = tracking(address, "ON");
    let value = "x".repeat(200_000);
    let (mut stored, mut tracked) = (0, Vec::new());
    while info(&mut writer, "evicted_keys") < 50 {
        let key = stored.to_string();
        writer.command(&["SET", &key, &value]);
        // A message may come before its reply.
        client.send(&crate::common::encode(&["EXISTS", &key]));
        loop {
            match client.reply() {
                Reply::Integer(_) => break,
                notified => tracked.push(notified),
            }
        }
        stored += 1;
    }
    let is_there = |writer: &mut Client, key: usize| {
        writer.line(&format!("EXISTS {key}")) == Reply::Integer(1)
    };
    for key in 0..stored {
        if !is_there(&mut writer, key) {
            let notified = invalidated(&key.to_string());
            let is_notified = |tracked: &[Reply]| {
                tracked.contains(&notified) || tracked.contains(&everything_invalidated())
            };
            while !is_notified(&tracked) {
                tracked.push(client.reply());
            }
        }
    }
}

/// Whether a message names these keys, in any order.
fn is_of(message: &Reply, keys: &[Reply]) -> bool {
    let Reply::Push(parts) = message else {
        return false;
    };
    match &parts[..] {
        [_, Reply::Array(found)] => {
            found.len() == keys.len() && keys.iter().all(|key| found.contains(key))
        }
        _ => false,
    }
}

/// Readers cache what they read, and drop it when they are notified. In the end they have the
/// server's values.
#[test]
fn caches_of_many_clients_hold_no_old_values_once_all_have_been_notified() {
    const KEYS: usize = 8;
    let (_running, address) = start(server().threads(3));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    for round in 0..1_000 {
                        let key = (round * 7 + writer) % KEYS;
                        match round % 5 {
                            0 => client.line(&format!("DEL k{key}")),
                            1 => {
                                client.line("MULTI");
                                client.line(&format!("APPEND k{key} x"));
                                client.line("EXEC")
                            }
                            _ => client.line(&format!("SET k{key} {writer}-{round}")),
                        };
                    }
                })
            })
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut client = tracking(address, "ON");
                    let mut cache = std::collections::BTreeMap::new();
                    let mut round = 0;
                    loop {
                        // Read before the last check for notifications.
                        let was_over = is_over.load(std::sync::atomic::Ordering::Acquire);
                        let key = round % KEYS;
                        round += 1;
                        let is_cached = cache.contains_key(&key);
                        let line = match is_cached {
                            true => "PING".to_owned(),
                            false => format!("GET k{key}"),
                        };
                        let words: Vec<&str> = line.split(' ').collect();
                        client.send(&crate::common::encode(&words));
                        let value = loop {
                            match client.reply() {
                                Reply::Push(notified) => match &notified[1] {
                                    Reply::Array(keys) => {
                                        let name = keys[0].text();
                                        cache.remove(&name[1..].parse().unwrap());
                                    }
                                    _ => cache.clear(),
                                },
                                value => break value,
                            }
                        };
                        if !is_cached {
                            cache.insert(key, value);
                        }
                        if was_over && round % KEYS == 0 {
                            break;
                        }
                    }
                    for (key, value) in cache {
                        assert_eq!(asked(&mut client, &format!("GET k{key}")), value, "k{key}");
                    }
                })
            })
            .collect();
        writers
            .into_iter()
            .for_each(|writer| writer.join().unwrap());
        is_over.store(true, std::sync::atomic::Ordering::Release);
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn the_table_of_tracked_keys_is_bounded_and_ends_with_the_last_client() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    admin.line("CONFIG SET tracking-table-max-keys 10");
    let mut client = tracking(address, "ON");
    for key in 0..30 {
        client.send(&crate::common::encode(&["GET", &format!("k{key}")]));
    }
    let (mut notified, mut replies) = (0, 0);
    while replies < 30 || notified < 20 {
        match client.reply() {
            Reply::Push(_) => notified += 1,
            _ => replies += 1,
        }
    }
    assert_eq!(info(&mut admin, "tracking_total_keys"), 10);
    assert_eq!(info(&mut admin, "tracking_clients"), 1);
    drop(client);
    while info(&mut admin, "tracking_clients") > 0 || info(&mut admin, "tracking_total_keys") > 0 {
        std::thread::yield_now();
    }
}

/// 512 bytes for each of the keys that the settings allow, but no more than all clients may take.
#[test]
fn the_bytes_of_the_table_of_tracked_keys_are_bounded() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    for (setting, most) in [
        ("tracking-table-max-keys 1000", 512_000),
        ("maxmemory-clients 300000", 300_000),
    ] {
        admin.line(&format!("CONFIG SET {setting}"));
        // A client that by itself exceeds the limit of all clients.
        let mut client = Client::connect(address);
        client.line("CLIENT NO-EVICT ON");
        client.line("HELLO 3");
        client.line("CLIENT TRACKING ON");
        let mut notified = 0;
        for key in 0..300 {
            client.send(&crate::common::encode(&["GET", &format!("{key:05000}")]));
            while matches!(client.reply(), Reply::Push(_)) {
                notified += 1;
            }
            let bytes = info(&mut admin, "mneme_tracking_bytes");
            assert!(bytes <= most, "{bytes} bytes");
        }
        client.line("PING");
        assert!(notified > 150, "{notified} messages");
        let keys = info(&mut admin, "tracking_total_keys");
        assert!(keys >= most / 10_000 && keys <= most / 5_000, "{keys} keys");
        drop(client);
        while info(&mut admin, "mneme_tracking_bytes") > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_key_that_the_table_forgets_is_not_broadcast() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    admin.line("CONFIG SET tracking-table-max-keys 1");
    let mut client = tracking(address, "ON BCAST");
    let mut reader = tracking(address, "ON");
    reader.line("GET forgotten");
    reader.send(&crate::common::encode(&["GET", "k"]));
    let replies = [reader.reply(), reader.reply()];
    assert!(replies.contains(&invalidated("forgotten")), "{replies:?}");
    admin.line("SET k v");
    assert_eq!(client.reply(), invalidated("k"));
}

/// However long the keys that they have read stay unchanged.
#[test]
fn the_table_of_tracked_keys_keeps_nothing_of_clients_that_are_gone() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let mut stays = tracking(address, "ON");
    stays.line("GET k0");
    for mode in ["OFF", ""] {
        let mut leaves = tracking(address, "ON");
        for key in 0..10 {
            leaves.line(&format!("GET k{key}"));
        }
        if !mode.is_empty() {
            leaves.line("CLIENT TRACKING OFF");
        }
        drop(leaves);
        while info(&mut admin, "tracking_total_items") > 1 {
            std::thread::yield_now();
        }
    }
    assert_eq!(info(&mut admin, "tracking_total_keys"), 1);
    admin.line("SET k0 v");
    assert_eq!(stays.reply(), invalidated("k0"));
}

#[test]
fn a_table_with_more_keys_than_a_new_limit_shrinks_as_keys_are_read() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let mut client = tracking(address, "ON");
    let mut read = |keys: std::ops::Range<usize>| {
        let number = keys.len();
        for key in keys {
            client.send(&crate::common::encode(&["GET", &format!("k{key}")]));
        }
        let mut replies = 0;
        while replies < number {
            replies += usize::from(!matches!(client.reply(), Reply::Push(_)));
        }
    };
    read(0..100);
    assert_eq!(info(&mut admin, "tracking_total_keys"), 100);
    admin.line("CONFIG SET tracking-table-max-keys 10");
    read(100..200);
    assert_eq!(info(&mut admin, "tracking_total_keys"), 10);
}

#[test]
fn what_a_client_has_said_to_track_counts_as_its_memory_and_long_keys_are_not_tracked() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let mut client = tracking(address, "ON");
    let long = "k".repeat(1 << 16);
    assert!(matches!(
        client.command(&["GET", &long]),
        Reply::Error(_) | Reply::Null
    ));
    assert_eq!(info(&mut admin, "tracking_total_keys"), 0);
    client.line("CLIENT TRACKING OFF");
    let prefixes: Vec<String> = (0..1_000).map(|number| format!("{number:0500}")).collect();
    let words = prefixes.iter().flat_map(|prefix| ["PREFIX", prefix]);
    let words: Vec<&str> = ["CLIENT", "TRACKING", "ON", "BCAST"]
        .into_iter()
        .chain(words)
        .collect();
    let memory = |client: &mut Client| {
        let info = client.line("CLIENT INFO").text();
        let bytes = info
            .split(" tot-mem=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        bytes.unwrap().parse::<usize>().unwrap()
    };
    let before = memory(&mut client);
    assert_eq!(client.command(&words), Reply::ok());
    assert!(memory(&mut client) > before + 1_000_000);
    client.line("CLIENT TRACKING OFF");
    assert!(memory(&mut client) < before + 500_000);
}
