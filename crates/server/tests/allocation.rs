//! Commands with one key do not allocate: once buffers have grown, thousands of commands make no
//! call of the allocator.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use common::{Client, Reply, encode, server, start};

/// The bytes that were allocated and not freed.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The maximum of these since it was reset.
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Allocations of a mebibyte or more.
static LARGE: AtomicU64 = AtomicU64::new(0);

/// Held by the test that counts.
static COUNTED: Mutex<()> = Mutex::new(());

fn count(size: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    LARGE.fetch_add(u64::from(size >= 1 << 20), Ordering::Relaxed);
    let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: forwards to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn commands_do_not_allocate() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1));
    let mut client = Client::connect(address);
    let mut pipeline = Vec::new();
    let mut replies = 0;
    for i in 0..16 {
        pipeline.extend(encode(&["SET", &format!("key:{i}"), "value"]));
        pipeline.extend(encode(&["GET", &format!("key:{i}")]));
        pipeline.extend(encode(&["MGET", "key:0"]));
        pipeline.extend(encode(&["STRLEN", "key:0"]));
        pipeline.extend(encode(&["EXISTS", "key:0"]));
        pipeline.extend(encode(&["GETRANGE", "key:0", "1", "-2"]));
        pipeline.extend(encode(&["GETBIT", "key:0", "1"]));
        pipeline.extend(encode(&["BITCOUNT", "key:0"]));
        pipeline.extend(encode(&["PING"]));
        replies += b"+OK\r\n$5\r\nvalue\r\n*1\r\n$5\r\nvalue\r\n:5\r\n:1\r\n$3\r\nalu\r\n:1\r\n:21\r\n+PONG\r\n"
            .len();
    }
    let mut answer = vec![0; replies];
    let stream = client.stream.get_mut();
    let mut round = |times: u64| {
        for _ in 0..times {
            stream.write_all(&pipeline).unwrap();
            stream.read_exact(&mut answer).unwrap();
        }
    };
    round(100);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    round(1000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // These are 144,000 commands; only the store's maintainer may allocate now and then.
    assert!(allocations < 2_000, "{allocations} allocations");
}

/// `KEYS` walks many keys in many time slices. Each used to copy the command, which can be as long
/// as a client likes.
#[test]
fn a_command_that_continues_later_is_not_copied() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1).memory(256 << 20));
    let mut client = Client::connect(address);
    for from in (0..200_000).step_by(10_000) {
        let mut pairs = vec!["MSET".to_owned()];
        (from..from + 10_000).for_each(|key| pairs.extend([format!("key:{key}"), "x".into()]));
        assert_eq!(client.command(&pairs), Reply::ok());
    }
    let command = encode(&["KEYS".to_owned(), "x".repeat(8 << 20)]);
    let before = LARGE.load(Ordering::Relaxed);
    client.send(&command);
    assert_eq!(client.reply(), Reply::Array(vec![]));
    // The input buffer grows to the length of the command.
    let large = LARGE.load(Ordering::Relaxed) - before;
    assert!(large < 16, "{large} large allocations");
}

/// A client that reads nothing, and is sent short messages.
#[test]
fn what_waits_for_a_client_is_counted_as_the_memory_that_it_takes() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1));
    let mut client = Client::connect(address);
    client.command(&[
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "pubsub 0 0 0",
    ]);
    let mut subscriber = Client::connect(address);
    subscriber.line("SUBSCRIBE c");
    let publish = encode(&["PUBLISH", "c", "message"]).repeat(1_000);
    let mut publish_many = || {
        for _ in 0..150 {
            client.send(&publish);
            (0..1_000).for_each(|_| assert_eq!(client.reply(), Reply::Integer(1)));
        }
        let list = client.line("CLIENT LIST TYPE pubsub").text();
        let bytes = list.split(" tot-mem=").nth(1);
        let bytes = bytes.and_then(|rest| rest.split(' ').next()).unwrap();
        let live = LIVE.load(Ordering::Relaxed);
        (bytes.parse::<usize>().unwrap(), live)
    };
    // Until its socket accepts no further bytes.
    let (counted_before, live_before) = publish_many();
    let (counted, live) = publish_many();
    let (counted, live) = (counted - counted_before, live - live_before);
    assert!(counted > live && counted < 2 * live, "{counted} of {live}");
}

#[test]
fn the_table_of_tracked_keys_is_counted_as_the_memory_that_it_takes() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1));
    let mut admin = Client::connect(address);
    let mut client = Client::connect(address);
    client.line("CLIENT TRACKING ON");
    let mut measured = |keys: std::ops::Range<usize>| {
        for key in keys {
            client.line(&format!("GET key:{key}"));
        }
        let counted = common::info(&mut admin, "mneme_tracking_bytes") as usize;
        (counted, LIVE.load(Ordering::Relaxed))
    };
    let (counted_before, live_before) = measured(0..100);
    let (counted, live) = measured(100..60_000);
    let (counted, live) = (counted - counted_before, live - live_before);
    assert!(counted > live && counted < 2 * live, "{counted} of {live}");
}

#[test]
fn a_client_with_many_prefixes_costs_others_no_more_when_it_names_another() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1));
    let mut client = Client::connect(address);
    let prefixes: Vec<String> = (0..20_000).map(|number| format!("{number:05}")).collect();
    let words = prefixes.iter().flat_map(|prefix| ["PREFIX", prefix]);
    let words: Vec<&str> = ["CLIENT", "TRACKING", "ON", "BCAST"]
        .into_iter()
        .chain(words)
        .collect();
    assert_eq!(client.command(&words), Reply::ok());
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    assert_eq!(
        client.line("CLIENT TRACKING ON BCAST PREFIX another"),
        Reply::ok()
    );
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert!(allocations < 2_000, "{allocations} allocations");
}

/// A client that asks for more than its limit is cut off.
#[test]
fn no_more_is_copied_of_a_large_value_than_the_client_may_be_sent() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1).memory(256 << 20));
    let mut admin = Client::connect(address);
    for from in (0..20_000).step_by(100) {
        let elements: Vec<String> = (from..from + 100).map(|at| format!("{at:01000}")).collect();
        let elements: Vec<&str> = elements.iter().map(String::as_str).collect();
        let pairs = elements.iter().flat_map(|element| ["0", element]);
        admin.command(&[&["RPUSH", "list"][..], &elements].concat());
        admin.command(&[&["SADD", "set"][..], &elements].concat());
        admin.command(&[vec!["ZADD", "sorted"], pairs.collect()].concat());
        let pairs = elements.iter().flat_map(|element| [*element, ""]);
        admin.command(&[vec!["HSET", "hash"], pairs.collect()].concat());
    }
    admin.command(&[
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "normal 1mb 0 0",
    ]);
    for line in [
        "LRANGE list 0 -1",
        "SMEMBERS set",
        "ZRANGE sorted 0 -1",
        "HGETALL hash",
    ] {
        let before = LIVE.load(Ordering::Relaxed);
        PEAK.store(before, Ordering::Relaxed);
        let mut client = Client::connect(address);
        client.send(&encode(&line.split(' ').collect::<Vec<_>>()));
        let mut received = 0;
        let mut part = [0; 4096];
        while let Ok(read) = client.stream.read(&mut part)
            && read > 0
        {
            received += read;
        }
        assert!(received < 4 << 20, "{line}: {received} bytes");
        let more = PEAK.load(Ordering::Relaxed) - before;
        assert!(more < 8 << 20, "{line}: {more} bytes");
    }
}

#[test]
fn a_long_string_is_not_copied_for_a_command_of_another_type() {
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1).memory(256 << 20));
    let mut client = Client::connect(address);
    client.command(&["SET", "string", &"x".repeat(8 << 20)]);
    for line in [
        "HSET string field value",
        "HDEL string field",
        "SADD string member",
        "ZADD string 1 member",
        "RPUSH string item",
    ] {
        let before = LARGE.load(Ordering::Relaxed);
        let reply = client.line(line);
        assert!(reply.text().starts_with("WRONGTYPE "), "{line}: {reply:?}");
        let large = LARGE.load(Ordering::Relaxed) - before;
        assert_eq!(large, 0, "{line}: {large} large allocations");
    }
}

/// Its last command finds no space. Then all are executed one by one, without another attempt for
/// the rest of the run after each.
#[test]
fn a_run_of_changes_that_fails_is_tried_once() {
    const RUN: usize = 50;
    let _alone = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    let (_running, address) = start(server().threads(1).memory(64 << 20));
    let mut client = Client::connect(address);
    for field in 0..500 {
        client.line(&format!("HSET hash field:{field} value:{field}"));
    }
    let nothing = encode(&["HDEL", "hash", "none"]).repeat(RUN - 1);
    let measured = |client: &mut Client, last: &[u8]| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        client.send(&[&nothing, last].concat());
        (1..RUN).for_each(|_| assert_eq!(client.reply(), Reply::Integer(0)));
        let last = client.reply();
        (ALLOCATIONS.load(Ordering::Relaxed) - before, last)
    };
    let none = encode(&["HDEL", "hash", "none"]);
    let (succeeds, reply) = measured(&mut client, &none);
    assert_eq!(reply, Reply::Integer(0));
    let fill = |client: &mut Client| {
        for len in [100_000, 10_000, 1_000] {
            let push = encode(&["RPUSH", "list", &"x".repeat(len)]);
            loop {
                client.send(&push);
                if !matches!(client.reply(), Reply::Integer(_)) {
                    break;
                }
            }
        }
    };
    let set = encode(&["HSET", "hash", "long", &"x".repeat(8_000)]);
    // Compaction may have made space in between.
    let fails = loop {
        fill(&mut client);
        let (fails, reply) = measured(&mut client, &set);
        if let Reply::Error(_) = reply {
            assert!(reply.text().starts_with("OOM "), "{reply:?}");
            break fails;
        }
    };
    assert!(fails < 8 * succeeds, "{fails} of {succeeds} allocations");
}
