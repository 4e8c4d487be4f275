//! Sessions of several clients with channels, compared byte by byte.

use std::io::Read;
use std::net::SocketAddr;

use crate::common::{Client, Redis, encode, server, start};

/// What one client is sent until it has the reply to a `PING` that it sends now.
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
type Step = (usize, &'static str);

/// What each client was sent after each step.
fn transcript(address: SocketAddr, protocols: &[u8], steps: &[Step]) -> Vec<String> {
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
        // The sender first: what it does has been done then.
        let others = (0..clients.len()).filter(|one| one != sender);
        for one in std::iter::once(*sender).chain(others) {
            let marker = format!("step-{number}-{one}");
            let text = received(&mut clients[one], &marker);
            seen.push(format!("{commands} -> {one}: {text}"));
        }
    }
    seen
}

const SESSION: &[Step] = &[
    (0, "PUBLISH nobody hello"),
    (1, "SUBSCRIBE a b a"),
    (2, "PSUBSCRIBE a* [ab] a*"),
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
    (2, "PUNSUBSCRIBE [ab]"),
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
    let steps: &[Step] = &[
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
