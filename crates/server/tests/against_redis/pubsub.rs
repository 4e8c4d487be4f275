//! Sessions of several clients with channels, compared byte by byte.

use std::io::Read;
use std::net::SocketAddr;

use crate::common::{Client, Redis, encode, server, start};

/// What a client receives up to the reply to a `PING` that it sends now.
fn received(client: &mut Client, marker: &str) -> String {
    client.send(&encode(&["PING", marker]));
    let end = format!("{marker}\r\n").into_bytes();
    let mut bytes = Vec::new();
    while !bytes.ends_with(&end) {
        let mut byte = [0];
        client.stream.read_exact(&mut byte).expect("a reply");
        bytes.push(byte[0]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A step: the number of a client, and the commands that it sends together.
type Step<'s> = (usize, &'s str);

/// What each client was sent after each step.
fn transcript(address: SocketAddr, protocols: &[u8], steps: &[Step<'_>]) -> Vec<String> {
    let mut clients: Vec<Client> = (0..protocols.len())
        .map(|_| Client::connect(address))
        .collect();
    for (client, protocol) in clients.iter_mut().zip(protocols) {
        client.line(&format!("HELLO {protocol}"));
    }
    let mut seen = Vec::new();
    for (number, (sender, commands)) in steps.iter().enumerate() {
        let mut bytes = Vec::new();
        for command in commands.split(';') {
            let words: Vec<&str> = command.split_whitespace().collect();
            bytes.extend(encode(&words));
        }
        clients[*sender].send(&bytes);
        // The sender first: when it is done, its commands have taken effect.
        let others = (0..clients.len()).filter(|one| one != sender);
        for one in std::iter::once(*sender).chain(others) {
            let marker = format!("step-{number}-{one}");
            let text = received(&mut clients[one], &marker);
            seen.push(format!("{commands} -> {one}: {text}"));
        }
    }
    seen
}

const SESSION: &[Step<'_>] = &[
    (0, "PUBLISH nobody hello"),
    (1, "SUBSCRIBE a b a"),
    (2, "PSUBSCRIBE a* [bx] a*"),
    (0, "PUBLISH a one; PUBLISH b two; PUBLISH c three"),
    (0, "PUBSUB NUMSUB a b c; PUBSUB NUMPAT; PUBSUB CHANNELS c*"),
    (0, "PUBSUB NUMSUB; PUBSUB SHARDNUMSUB; PUBSUB SHARDCHANNELS"),
    (1, "GET a"),
    (1, "MULTI; DISCARD"),
    (1, "CLIENT ID x"),
    (1, "PING x y"),
    (1, "PUBLISH a self"),
    (1, "SUBSCRIBE"),
    (1, "SSUBSCRIBE s t"),
    (
        0,
        "SPUBLISH s shard; SPUBLISH a none; PUBSUB SHARDNUMSUB s t u",
    ),
    (1, "SUNSUBSCRIBE x s"),
    (
        0,
        "SPUBLISH s shard; PUBSUB CHANNELS s; PUBSUB SHARDCHANNELS t",
    ),
    (1, "UNSUBSCRIBE b nothing"),
    (0, "PUBLISH b two; PUBLISH a one"),
    (2, "PUNSUBSCRIBE [bx]"),
    (0, "PUBLISH b two; PUBLISH a one"),
    (1, "UNSUBSCRIBE; SUNSUBSCRIBE"),
    (1, "UNSUBSCRIBE; PUNSUBSCRIBE; SUNSUBSCRIBE"),
    (1, "GET a"),
    (2, "PUNSUBSCRIBE"),
    (0, "PUBLISH a one"),
    (
        0,
        "MULTI; SUBSCRIBE x; PUBLISH x in; SSUBSCRIBE y; UNSUBSCRIBE x; PUBLISH x out; EXEC",
    ),
    (
        0,
        "MULTI; PSUBSCRIBE x*; PUBLISH x in; EXEC; PUBLISH x again",
    ),
    (0, "PUNSUBSCRIBE"),
    (1, "CLIENT REPLY SKIP; SUBSCRIBE q"),
    (1, "UNSUBSCRIBE"),
    (1, "SUBSCRIBE q; SSUBSCRIBE q; PSUBSCRIBE q*"),
    (0, "PUBLISH q 1; SPUBLISH q 2"),
    (1, "RESET"),
    (0, "PUBLISH q 1; SPUBLISH q 2"),
    (1, "GET q"),
    (0, "PUBSUB; PUBSUB X; PUBSUB NUMPAT x; PUBSUB CHANNELS a b"),
    (
        0,
        "PUBLISH; PUBLISH a; PUBLISH a b c; SPUBLISH a; PSUBSCRIBE",
    ),
];

#[test]
fn sessions_with_channels_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    for protocols in [[2, 2, 2], [3, 3, 3], [2, 3, 2], [3, 2, 3]] {
        let ours = transcript(address, &protocols, SESSION);
        let theirs = transcript(redis.address, &protocols, SESSION);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{protocols:?}");
        }
    }
}

#[test]
fn a_client_that_changes_its_protocol_gets_messages_in_the_new_one() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let steps: &[Step<'_>] = &[
        (0, "SUBSCRIBE a"),
        (1, "PUBLISH a 1"),
        (0, "HELLO 2 SETNAME x; GET a"),
        (1, "PUBLISH a 2"),
        (0, "HELLO 3"),
    ];
    let without_id = |mut transcript: Vec<String>| {
        // The reply to HELLO names the client's number.
        transcript.retain(|line| !line.contains("redis"));
        transcript
    };
    let ours = without_id(transcript(address, &[3, 3], steps));
    let theirs = without_id(transcript(redis.address, &[3, 3], steps));
    assert_eq!(ours, theirs);
}

/// Each write of every existing command, with the events that are reported.
const EVENTS: &[Step<'_>] = &[
    (0, "FLUSHALL; CONFIG SET notify-keyspace-events KEAnm"),
    (1, "PSUBSCRIBE __key*"),
    (
        0,
        "SET a 1; SET a 2; SET b 1 EX 100; SET c 1 XX; SET c 1 NX GET; SET d 1 KEEPTTL",
    ),
    (
        0,
        "SETNX a 1; SETNX e 1; SETEX f 100 1; PSETEX f 100000 1; GETSET g 1; GETSET g 2",
    ),
    (0, "SET h 1 GET; SET h 2 GET PX 100000; SET a 1 NX GET"),
    (
        0,
        "APPEND a x; APPEND new x; SETRANGE a 2 y; SETRANGE n2 2 y; SETRANGE n3 0 ;",
    ),
    (
        0,
        "INCR n; INCRBY n 2; DECR n; DECRBY n 2; INCRBYFLOAT n 1.5; INCR a; INCR fresh",
    ),
    (
        0,
        "MSET m1 1 m2 2 m1 3; MSETNX m1 1 m3 1; MSETNX m4 1 m5 1; MGET m1 nothing m2",
    ),
    (
        0,
        "GETDEL m1; GETDEL m1; GETEX m2; GETEX m2 EX 100; GETEX m2 PERSIST; GETEX m2 PERSIST",
    ),
    (
        0,
        "GETEX m2 EXAT 1; GETEX m2 EX 100; GET m2; STRLEN m2; GETRANGE m2 0 1",
    ),
    (
        0,
        "EXPIRE a 100; PEXPIRE a 100000 NX; EXPIREAT a 1; EXPIRE a 100; PERSIST a; PERSIST b",
    ),
    (
        0,
        "SET t 1; EXPIRE t -1; TTL t; PTTL t; TYPE t; EXISTS t b t; TOUCH t b",
    ),
    (
        0,
        "SETBIT bits 7 1; SETBIT bits 7 1; SETBIT bits 6 0; SETBIT bits 900 0; GETBIT none 1",
    ),
    (
        0,
        "BITFIELD bits SET u8 0 1 GET u8 0; BITFIELD bits GET u8 0; BITFIELD bits INCRBY u8 0 1",
    ),
    (
        0,
        "BITFIELD none GET u8 0; BITCOUNT none; BITPOS none 1; BITOP AND dest bits none",
    ),
    (0, "BITOP OR dest none none2; BITOP OR dest none none2"),
    (
        0,
        "HSET hash f 1 g 2; HSET hash f 1; HSETNX hash f 1; HSETNX hash h 1; HMSET hash i 1",
    ),
    (
        0,
        "HINCRBY hash f 1; HINCRBY h2 f 1; HINCRBYFLOAT hash f 1.5; HGET none f; HGETALL none",
    ),
    (
        0,
        "HDEL hash x; HDEL hash f g; HDEL h2 f; HDEL h2 f; HEXISTS none f; HSCAN none 0",
    ),
    (
        0,
        "SADD s 1 2 x; SADD s 1; SREM s 9; SREM s 1; SMOVE s s2 9; SMOVE s s2 2; SMOVE s s2 x",
    ),
    (
        0,
        "SMOVE s2 s2 x; SMOVE none s2 x; SPOP none; SPOP s2 0; SREM s2 2; SPOP s2 9; SADD s3 a; SPOP s3; SPOP none 3",
    ),
    (
        0,
        "SADD s a b; SADD s2 b c; SINTERSTORE s4 s s2; SINTERSTORE s4 s none; SINTERSTORE s4 s none",
    ),
    (
        0,
        "SUNIONSTORE s4 s s2; SDIFFSTORE s4 s s2; SDIFFSTORE s4 s s; SUNIONSTORE n9 s none; SMEMBERS none",
    ),
    (
        0,
        "SINTER s none none2; SCARD none; SISMEMBER none x; SMISMEMBER none x y; SRANDMEMBER none; SSCAN none 0",
    ),
    (
        0,
        "SINTERCARD 2 s none; SDIFF none s; SUNION none none2; SREM s a b; MULTI; SADD s a; SPOP s; SADD s b; EXEC; DEL s s2 n9",
    ),
    (
        0,
        "RENAME bits bats; RENAME bats n; RENAMENX n fresh; RENAMENX n n9; RENAME n9 n9",
    ),
    (
        0,
        "COPY n9 c9; COPY n9 c9; COPY n9 c9 REPLACE; COPY n9 c9 DB 1; COPY none c; MOVE c9 2",
    ),
    (0, "MOVE none 2; SELECT 2; SET two 1; MOVE two 0; SELECT 0"),
    (0, "DEL two n9 none; UNLINK hash none; DEL none"),
    (
        0,
        "MULTI; SET a 1; GET nothing; INCR a; HSET a f 1; DEL a; EXEC",
    ),
    (0, "MULTI; SET a 1; PUBLISH __keyother x; DEL a; EXEC"),
    (
        0,
        "MULTI; SET a 1; CONFIG SET notify-keyspace-events A; SET a 2; EXEC; SET a 3",
    ),
    (
        0,
        "MULTI; CONFIG SET notify-keyspace-events KEAnm; DEL a; EXEC; SET a 1; DEL a",
    ),
    (0, "MULTI; SET a 1; DISCARD; FLUSHDB; FLUSHALL"),
    (
        0,
        "CONFIG SET notify-keyspace-events Kg; SET a 1; DEL a; HSET a f 1; DEL a",
    ),
    (
        0,
        "CONFIG SET notify-keyspace-events Eh; SET a 1; DEL a; HSET a f 1; HDEL a f; SADD a b; SPOP a",
    ),
    (
        0,
        "CONFIG SET notify-keyspace-events Es; SET a 1; DEL a; HSET a f 1; HDEL a f; SADD a b; SPOP a",
    ),
    (0, "CONFIG SET notify-keyspace-events A; SET a 1; DEL a"),
    (
        0,
        "CONFIG SET notify-keyspace-events q; CONFIG GET notify-keyspace-events",
    ),
    (
        0,
        "CONFIG SET notify-keyspace-events KEA; CONFIG GET notify-keyspace-events",
    ),
    (2, "SUBSCRIBE __keyspace@0__:own"),
    (2, "SET own 1; GET own; DEL own; DEL own"),
    (0, "SET a 1; SET b 2; SET c 3; GET a; GET b; DEL a b c"),
];

#[test]
fn events_of_keys_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    for protocols in [[2, 2, 3], [3, 3, 3]] {
        let ours = transcript(address, &protocols, EVENTS);
        let theirs = transcript(redis.address, &protocols, EVENTS);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{protocols:?}");
        }
    }
}

#[test]
fn events_of_large_hashes_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let fields: String = (0..60).map(|i| format!(" f{i}")).collect();
    let value = "v".repeat(70);
    let pairs = fields.replace(" f", &format!(" {value} f"));
    let set = |key: &str| format!("HSET {key} first{pairs} {value}");
    let steps = [
        "FLUSHALL; CONFIG SET notify-keyspace-events KEAnm".to_owned(),
        set("a"),
        "HSET a f1 x; HSETNX a f1 y; HSETNX a new y; HINCRBY a n 1; HINCRBYFLOAT a n 1.5".into(),
        "HGET a f1; HGET a none; HGET none f1; HDEL a none; HDEL a f1 none".into(),
        "COPY a b; COPY a b REPLACE; RENAME a c; MOVE c 2; RENAME b d".into(),
        format!("HDEL d first new n; HDEL d{fields}; HDEL d f1"),
        format!(
            "{}; {}; RENAME e f; SET f 1; {}",
            set("e"),
            set("f"),
            set("e")
        ),
        format!("MULTI; HSET e f1 x; HDEL e first; HDEL e{fields}; EXEC"),
        format!("{}; MULTI; {}; HDEL g first; EXEC", set("g"), set("h")),
        "DEL g; EXPIRE h 100; EXPIRE h -1; FLUSHALL".into(),
    ];
    let mut steps: Vec<Step<'_>> = steps.iter().map(|step| (0, &**step)).collect();
    steps.insert(1, (1, "PSUBSCRIBE __key*"));
    let ours = transcript(address, &[2, 2], &steps);
    let theirs = transcript(redis.address, &[2, 2], &steps);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

/// What a client that has sent `MONITOR` receives, without times and addresses.
fn without_addresses(text: &str) -> String {
    let line = |line: &str| match (line.split_once(" ["), line.split_once("] \"")) {
        (Some((_, rest)), Some((_, command))) => {
            let database = rest.split(' ').next().unwrap_or_default();
            format!("[{database}] \"{command}")
        }
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

const MONITORED: &[Step<'_>] = &[
    (1, "MONITOR"),
    (0, "SET a 1; GET a; SELECT 1; GET \\\"q\\xff"),
    (
        0,
        "AUTH secret; AUTH default secret; HELLO 3 AUTH default secret; HELLO 2 AUTH nobody secret",
    ),
    (
        0,
        "CONFIG SET requirepass x y; ACL SETUSER u >secret; ACL WHOAMI",
    ),
    (0, "MULTI; SET a 1; SELECT 0; GET a; EXEC"),
    (0, "MULTI; NOSUCH; EXEC; NOSUCH; GET; INCR"),
    (0, "HSET a f 1; PUBLISH x y; SUBSCRIBE x; UNSUBSCRIBE x"),
    (0, "MULTI; MONITOR; EXEC"),
    (
        1,
        "GET a; SET a 1; PUBLISH x y; SPUBLISH x y; PING; CLIENT ID x; MONITOR",
    ),
    (2, "MONITOR"),
    (0, "GET a"),
    (1, "RESET"),
    (0, "GET a"),
    (2, "RESET"),
    (0, "GET a"),
    (0, "ACL DELUSER u"),
];

#[test]
fn clients_that_monitor_are_shown_what_redis_shows() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let shown = |address| -> Vec<String> {
        let transcript = transcript(address, &[2, 2, 3], MONITORED);
        // The reply to HELLO names the client's number.
        let lines = transcript.iter().map(|text| without_addresses(text));
        lines
            .map(|text| {
                text.split("$2\nid\n")
                    .map(|part| part.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit()))
                    .collect()
            })
            .collect()
    };
    for (ours, theirs) in shown(address).iter().zip(&shown(redis.address)) {
        assert_eq!(ours, theirs);
        assert!(!ours.contains("secret") || ours.starts_with("AUTH") || ours.starts_with("CONFIG"));
    }
}
