//! Sends equal commands to Mneme and to a real Redis 7.0, and expects equal replies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod acl;
mod bits;
#[path = "../common/mod.rs"]
mod common;
mod connection;
mod generate;
mod geo;
mod hashes;
mod keys;
mod lists;
mod pubsub;
mod sets;
mod sorted_sets;
mod strings;
mod texts;
mod tracking;
mod transactions;

use std::net::SocketAddr;

use common::{Client, Redis, Reply, debugged, encode, server, start};
use generate::Command;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::Union;
use proptest::test_runner::{Config, TestRunner};

/// Replaces the parts of a reply that may differ: identities, times, and how a string is kept,
/// which depends on how it came about in Redis.
fn normalised(command: &Command, reply: Reply) -> Reply {
    let name = command[0].to_ascii_uppercase();
    let shows_encoding = name == b"OBJECT" || name == b"EXEC";
    let is_of_string = |reply: &Reply| ["int", "embstr", "raw"].contains(&reply.text().as_str());
    let is_time = TIMES.contains(&name.as_slice()) || name == b"EXEC";
    let has_scores = name.starts_with(b"Z") || name == b"EXEC";
    let reply = match has_scores {
        true => without_negative_zeros(reply),
        false => reply,
    };
    match reply {
        Reply::Integer(time) if is_time && time >= LEAST_TIME => Reply::Integer(LEAST_TIME),
        reply @ Reply::Bulk(_) if shows_encoding && is_of_string(&reply) => Reply::bulk("raw"),
        reply if name == b"HELLO" => without_id(reply),
        Reply::Array(replies) if name == b"EXEC" => Reply::Array(
            replies
                .into_iter()
                .map(|reply| unordered(normalised(command, without_id(reply))))
                .collect(),
        ),
        reply if UNORDERED.contains(&name.as_slice()) => in_order(&name, reply),
        reply => reply,
    }
}

/// The reply with 0 for -0: a skiplist of Redis keeps the sign of a score that is zero.
fn without_negative_zeros(reply: Reply) -> Reply {
    match reply {
        Reply::Bulk(text) if text == b"-0" => Reply::bulk("0"),
        Reply::Array(items) => {
            Reply::Array(items.into_iter().map(without_negative_zeros).collect())
        }
        reply => reply,
    }
}

/// Commands whose replies have no order, or one that may differ.
const UNORDERED: [&[u8]; 15] = [
    b"HGETALL",
    b"HKEYS",
    b"HVALS",
    b"HSCAN",
    b"HRANDFIELD",
    b"SCAN",
    b"SDIFF",
    b"SINTER",
    b"SMEMBERS",
    b"SPOP",
    b"SRANDMEMBER",
    b"SSCAN",
    b"SUNION",
    b"ZRANDMEMBER",
    b"ZSCAN",
];

/// The reply to such a command, with its items or pairs of items sorted.
fn in_order(name: &[u8], reply: Reply) -> Reply {
    match reply {
        // A cursor and the keys found.
        Reply::Array(items) if name.ends_with(b"SCAN") && items.len() == 2 => {
            let width = if matches!(name, b"HSCAN" | b"ZSCAN") {
                2
            } else {
                1
            };
            let found = sorted(items[1].items(), width);
            Reply::Array(vec![items[0].clone(), found])
        }
        Reply::Array(items) if name == b"HGETALL" => sorted(&items, 2),
        Reply::Array(items) => sorted(&items, 1),
        Reply::Set(items) => sorted(&items, 1),
        Reply::Map(mut pairs) => {
            pairs.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
            Reply::Map(pairs)
        }
        reply => reply,
    }
}

/// `items` sorted, in groups of `width` that stay together.
fn sorted(items: &[Reply], width: usize) -> Reply {
    let mut parts: Vec<&[Reply]> = items.chunks(width).collect();
    parts.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
    Reply::Array(parts.concat())
}

/// A transaction's reply with all that it contains sorted, since the commands are not known here.
fn unordered(reply: Reply) -> Reply {
    match reply {
        Reply::Array(items) => {
            let items: Vec<Reply> = items.into_iter().map(unordered).collect();
            sorted(&items, 1)
        }
        // Its items are compared as those of an array.
        Reply::Set(items) => unordered(Reply::Array(items)),
        reply => in_order(b"", reply),
    }
}

/// The reply to `HELLO` without the client's id.
fn without_id(reply: Reply) -> Reply {
    let id = Reply::bulk("id");
    match reply {
        Reply::Map(pairs) => Reply::Map(
            pairs
                .into_iter()
                .filter(|(field, _)| *field != id)
                .collect(),
        ),
        Reply::Array(mut items) => {
            if let Some(at) = items.iter().position(|item| *item == id) {
                items.drain(at..(at + 2).min(items.len()));
            }
            Reply::Array(items)
        }
        reply => reply,
    }
}

/// The texts and numbers of a reply, sorted, whatever contains them.
fn parts(reply: &Reply) -> Vec<String> {
    let text = format!("{reply:?}").replace("Array(", "");
    let ends = [']', '[', ')', ',', ' '];
    let parts = text.split("Bulk(");
    let parts = parts.map(|part| part.trim_end_matches(ends).to_owned());
    let mut parts: Vec<String> = parts.collect();
    parts.sort();
    parts
}

/// The messages that a listener gets, up to that of `PUBLISH __key_end`.
fn events_to_the_end(listener: &mut Client) -> Vec<Reply> {
    let mut events = Vec::new();
    loop {
        let event = listener.reply();
        let is_last = event.items().get(2) == Some(&Reply::bulk("__key_end"));
        events.push(event);
        if is_last {
            return events;
        }
    }
}

/// The minimum lifetime in milliseconds: some time passes between the commands to the two servers.
const LEAST_TIME: i64 = 5_000;

/// Commands whose replies are times.
const TIMES: [&[u8]; 4] = [b"TTL", b"PTTL", b"EXPIRETIME", b"PEXPIRETIME"];

/// A command of the families that `MNEME_FAMILIES` names, separated by commas, or of any.
fn command() -> impl Strategy<Value = Command> {
    let chosen = std::env::var("MNEME_FAMILIES").ok();
    let families = [
        ("strings", 6, strings::command().boxed()),
        ("bits", 4, bits::command().boxed()),
        ("keys", 4, keys::command().boxed()),
        ("hashes", 6, hashes::command().boxed()),
        ("sets", 7, sets::command().boxed()),
        ("lists", 6, lists::command().boxed()),
        ("sorted_sets", 8, sorted_sets::command().boxed()),
        ("geo", 5, geo::command().boxed()),
        ("connection", 2, connection::command().boxed()),
        ("transactions", 2, transactions::command().boxed()),
    ];
    let is_chosen = |name| {
        let mut names = chosen.iter().flat_map(|names| names.split(','));
        chosen.is_none() || names.any(|other| other == name)
    };
    let families = families.into_iter().filter(|(name, ..)| is_chosen(*name));
    Union::new_weighted(
        families
            .map(|(_, weight, family)| (weight, family))
            .collect(),
    )
}

/// How the commands of a case reach the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sent {
    Pipelined,
    OneByOne,
    /// One by one, each by the client with its number.
    BySeveral,
}

/// The most clients of a case.
const CLIENTS: usize = 3;

/// The commands with the number of the client that sends each.
type Session = Vec<(usize, Command)>;

fn session() -> impl Strategy<Value = (Session, Sent)> {
    let sent = prop_oneof![
        Just(Sent::Pipelined),
        Just(Sent::OneByOne),
        Just(Sent::BySeveral)
    ];
    (vec((0..CLIENTS, command()), 1..60), sent)
}

fn replies(address: SocketAddr, session: &Session, sent: Sent) -> Vec<Reply> {
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    assert_eq!(clients[0].line("FLUSHALL"), Reply::ok());
    if sent == Sent::Pipelined {
        let requests = session.iter().flat_map(|(_, command)| encode(command));
        clients[0].send(&requests.collect::<Vec<_>>());
    }
    let reply = |(client, command): &(usize, Command)| {
        let reply = match sent {
            Sent::Pipelined => clients[0].reply(),
            Sent::OneByOne => clients[0].command(command),
            Sent::BySeveral => clients[*client].command(command),
        };
        normalised(command, reply)
    };
    session.iter().map(reply).collect()
}

#[test]
fn random_commands_have_the_same_replies() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let config = Config {
        source_file: Some(file!()),
        ..Config::default()
    };
    let compared = std::cell::Cell::new(0);
    let refused_without_cause = std::cell::Cell::new(0);
    let run = |(session, sent): (Session, Sent)| {
        let ours = replies(address, &session, sent);
        let theirs = replies(redis.address, &session, sent);
        for (((_, command), ours), theirs) in session.iter().zip(ours).zip(theirs) {
            let shown = command
                .iter()
                .map(|word| String::from_utf8_lossy(&word[..word.len().min(100)]))
                .collect::<Vec<_>>();
            if command[0].eq_ignore_ascii_case(b"EXEC") && ours != theirs && ours == Reply::Null {
                // Only a needless failure of a transaction is allowed, which is rare: a watched key
                // that has not changed may share its counter with one that has, or its database was
                // empty and has been flushed.
                prop_assert!(matches!(theirs, Reply::Array(_)), "{:?}", theirs);
                refused_without_cause.set(refused_without_cause.get() + 1);
                break;
            }
            prop_assert_eq!(ours, theirs, "{:?}", shown);
            compared.set(compared.get() + 1);
        }
        Ok(())
    };
    TestRunner::new(config).run(&session(), run).unwrap();
    let (compared, refused) = (compared.get(), refused_without_cause.get());
    println!("{compared} commands had equal replies; {refused} transactions failed without cause");
    assert!(refused < 10 + compared / 1_000);
}

/// A reply in which the order of sets and maps does not matter, without the fields named in
/// `left_out`.
fn ordered(reply: Reply, left_out: &[&str]) -> Reply {
    let sorted = |mut items: Vec<Reply>| {
        items.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
        items
    };
    match reply {
        Reply::Set(items) => Reply::Set(sorted(
            items
                .into_iter()
                .map(|item| ordered(item, left_out))
                .collect(),
        )),
        Reply::Array(items) => Reply::Array(
            items
                .into_iter()
                .map(|item| ordered(item, left_out))
                .collect(),
        ),
        Reply::Map(pairs) => {
            let pairs = pairs
                .into_iter()
                .filter(|(field, _)| !left_out.contains(&field.text().as_str()));
            let pairs =
                pairs.map(|(field, value)| Reply::Array(vec![field, ordered(value, left_out)]));
            Reply::Array(sorted(pairs.collect()))
        }
        other => other,
    }
}

#[test]
fn commands_are_described_as_redis_describes_them() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let mut ours = Client::connect(address);
    let mut theirs = Client::connect(redis.address);
    ours.line("HELLO 3");
    theirs.line("HELLO 3");
    let all = ours.line("COMMAND LIST");
    let names: Vec<String> = all.items().iter().map(Reply::text).collect();
    assert!(names.len() > 25);
    // Redis has `client|setinfo` since 7.2, and has no commands with our name.
    let is_theirs = |name: &&String| *name != "client|setinfo" && !name.starts_with("mneme");
    for name in names.iter().filter(is_theirs) {
        let describe = |client: &mut Client| {
            let info = client.line(&format!("COMMAND INFO {name}"));
            let Reply::Array(mut fields) = info.items()[0].clone() else {
                panic!("{name}: {info:?}")
            };
            // Mneme's containers have fewer subcommands.
            if !fields[9].items().is_empty() {
                fields.truncate(9);
            }
            ordered(Reply::Array(fields), &[])
        };
        assert_eq!(describe(&mut ours), describe(&mut theirs), "{name}");
        // Compared without the summaries, which are in our words, the costs, which are ours, and
        // the history, which is Redis'.
        let document = |client: &mut Client| {
            let docs = client.line(&format!("COMMAND DOCS {name}"));
            ordered(
                docs,
                &[
                    "summary",
                    "complexity",
                    "history",
                    "subcommands",
                    "doc_flags",
                    "deprecated_since",
                    "replaced_by",
                ],
            )
        };
        assert_eq!(document(&mut ours), document(&mut theirs), "{name}");
    }
}

#[test]
fn values_have_the_encoding_of_a_new_value_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let mut clients = [address, redis.address].map(Client::connect);
    let length = |len: usize| "x".repeat(len);
    for value in [
        "",
        "0",
        "-0",
        "01",
        "-1",
        "10000",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "1.0",
        " 1",
        "+1",
        &length(44),
        &length(45),
        &length(100_000),
        "12345678901234567890",
        "00000000000000000000001",
    ] {
        let encodings = clients.each_mut().map(|client| {
            assert_eq!(client.command(&["SET", "key", value]), Reply::ok());
            client.line("OBJECT ENCODING key")
        });
        assert_eq!(encodings[0], encodings[1], "{value:?}");
    }
}

#[test]
fn broken_requests_have_the_same_answers() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let long = |start: &str| format!("{start}{}", "1".repeat(70_000)).into_bytes();
    let mut requests: Vec<Vec<u8>> = [
        "*2147483648\r\n",
        "*2147483647\r\n",
        "*1048577\r\n",
        "*abc\r\n",
        "*-5\r\nPING\r\n",
        "*01\r\n$4\r\nPING\r\n",
        "*1\r\n$-1\r\n",
        "*1\r\n$536870913\r\n",
        "*1\r\n$04\r\n",
        "*1\r\n+PING\r\n",
        "*1\r\n\r\n",
        "\"abc\r\n",
        "set a 'b'c\r\n",
        "PING\n",
        "\r\n\r\nPING\r\n",
        "  PING  \r\n",
        "PING \"a\\x41b\\n\"\r\n",
        "PING 'a\\'b'\r\n",
        "PING a\x0bb\r\n",
        "PING \x0c\r\n",
        "PING a\x0c b\x0b\r\n",
        "\x0bPING 'a'\x0b\r\n",
        "CLIENT REPLY OFF\r\nMULTI\r\nPING\r\nCLIENT REPLY ON\r\nPING\r\nEXEC\r\n",
        "CLIENT REPLY SKIP\r\nMULTI\r\nCLIENT REPLY SKIP\r\nPING\r\nEXEC\r\nPING\r\nPING a\r\n",
        "MULTI\r\nCLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\nPING\r\nEXEC\r\n",
        "SET \"\" 1\r\nKEYS **\r\nSCAN 0 MATCH **\r\nKEYS *\r\nSCAN 0 MATCH *\r\n",
        "KEYS \"\"\r\nKEYS ?*\r\nDEL \"\"\r\n",
        "*1\r\n$4\r\nPINGxxPING\r\n",
        "*1\r\n$0\r\n\r\n",
        "foo a b c\r\n",
        "foo \"a\\r\\nb\"\r\n",
        "quit\r\nPING\r\n",
        "quit a b\r\n",
    ]
    .into_iter()
    .map(|request| request.as_bytes().to_vec())
    .collect();
    requests.extend([long("*"), long("*1\r\n$"), long("")]);
    requests.push(format!("foo {}\r\n", "abcdefg ".repeat(60)).into_bytes());
    requests.push(format!("foo {} b\r\n", "a".repeat(200)).into_bytes());
    requests.push(format!("{} b\r\n", "foo".repeat(60)).into_bytes());
    for request in requests {
        let answer = |address| {
            let mut client = Client::connect(address);
            // The last command ends the connection if the request itself does not.
            client.send(&[&request[..], b"\r\nECHO end\r\nQUIT\r\n"].concat());
            String::from_utf8_lossy(&client.rest()).into_owned()
        };
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        assert_eq!(answer(address), answer(redis.address), "{shown:?}");
    }
}

/// A test never takes a server that has Redis' port for Redis.
#[test]
fn a_server_that_has_the_port_is_not_taken_for_redis() {
    if Redis::start().is_none() {
        return;
    }
    let (_other, address) = start(server());
    assert!(Redis::start_at(address.port()).is_none());
}
