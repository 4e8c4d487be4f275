//! Events of keys that no command is the cause of: those that expire, by a command that names them
//! or by the store's maintainer, and those that are evicted.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::common::{Client, Reply, info, server, start};
use mneme_log::LogStore;
use mneme_sys::ManualClock;

/// A client that gets the events of these classes.
pub fn listener(address: SocketAddr, classes: &str) -> Client {
    let mut listener = Client::connect(address);
    listener.line(&format!("CONFIG SET notify-keyspace-events {classes}"));
    listener.line("PSUBSCRIBE __key*");
    listener
}

/// The next event, and its key.
pub fn event(listener: &mut Client) -> String {
    let message = listener.reply();
    let [_, _, channel, key] = message.items() else {
        panic!("no message of a pattern: {message:?}");
    };
    let channel = channel.text();
    format!("{} {}", channel.rsplit(':').next().unwrap(), key.text())
}

/// The events that the client has caused so far.
fn events_until_now(client: &mut Client, listener: &mut Client) -> Vec<String> {
    client.line("PUBLISH __key_end end");
    let events = std::iter::repeat_with(|| event(listener));
    events
        .take_while(|event| event != "__key_end end")
        .collect()
}

#[test]
fn a_key_that_has_expired_is_reported_before_what_the_command_does_that_names_it() {
    let clock = Arc::new(ManualClock::new(0, 1_700_000_000_000));
    let store = LogStore::builder().capacity(64 << 20).maintainer(false);
    let store = Arc::new(store.clock(clock.clone()).open_private().unwrap());
    let (_running, address) = start(server().store(Arc::clone(&store)));
    let mut client = Client::connect(address);
    let mut listener = listener(address, "EA");
    let mut expects = |lines: &[&str], events: &[&str]| {
        for key in ["a", "b"] {
            client.line(&format!("SET {key} v PX 100"));
            let set = [event(&mut listener), event(&mut listener)];
            assert_eq!(set, [format!("set {key}"), format!("expire {key}")]);
        }
        clock.advance_ms(200);
        let replies: Vec<Reply> = lines.iter().map(|line| client.line(line)).collect();
        assert_eq!(
            events_until_now(&mut client, &mut listener),
            events,
            "{lines:?}"
        );
        client.line("DEL a b");
        events_until_now(&mut client, &mut listener);
        replies
    };
    assert_eq!(expects(&["GET a"], &["expired a"]), [Reply::Null]);
    assert_eq!(expects(&["DEL a"], &["expired a"]), [Reply::Integer(0)]);
    expects(&["SET a w"], &["expired a", "set a"]);
    expects(&["MGET b c a"], &["expired b", "expired a"]);
    expects(&["RPUSH a x"], &["expired a", "rpush a"]);
    let exec = ["MULTI", "GET b", "SET a x", "EXEC"];
    expects(&exec, &["expired b", "expired a", "set a"]);
    expects(&["DBSIZE"], &[]);
    assert!(store.stats().expired > 0);
}

#[test]
fn a_key_that_expires_is_reported_although_nobody_asks_for_it() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let mut listener = listener(address, "Ex");
    client.line("SELECT 3");
    client.line("SET k v PX 10");
    assert_eq!(
        listener.reply().items()[2..],
        [Reply::bulk("__keyevent@3__:expired"), Reply::bulk("k")]
    );
    // No longer.
    client.line("CONFIG SET notify-keyspace-events Eg");
    client.line("SET k v PX 10");
    while client.line("DBSIZE") != Reply::Integer(0) {
        std::thread::yield_now();
    }
    client.line("SET k v");
    client.line("DEL k");
    let events = events_until_now(&mut client, &mut listener);
    assert_eq!(events, ["expire k", "del k"]);
}

#[test]
fn keys_that_are_evicted_are_reported_each_once() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let mut listener = listener(address, "Ee");
    client.line("CONFIG SET maxmemory-policy allkeys-random");
    let value = "x".repeat(200_000);
    let mut stored = 0;
    while info(&mut client, "evicted_keys") < 50 {
        client.command(&["SET", &stored.to_string(), &value]);
        stored += 1;
    }
    let (mut evicted, mut seen) = (std::collections::BTreeSet::new(), 0);
    while seen < info(&mut client, "evicted_keys") {
        let event = event(&mut listener);
        let key = event.strip_prefix("evicted ").expect("an eviction");
        evicted.insert(key.parse::<u64>().unwrap());
        seen += 1;
    }
    assert_eq!(evicted.len() as u64, seen, "each was stored once");
    for key in &evicted {
        assert_eq!(client.line(&format!("EXISTS {key}")), Reply::Integer(0));
    }
}
