//! The same commands to Mneme and to a real Redis 7.0: the same replies.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::net::SocketAddr;

use common::{Client, Redis, Reply, encode, server, start};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

type Command = Vec<Vec<u8>>;

fn words(line: &str) -> Command {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..6u8).prop_map(|i| format!("k{i}").into_bytes()),
        1 => Just(Vec::new()),
        1 => vec(any::<u8>(), 1..5),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let integer = prop_oneof![
        any::<i64>(),
        -3..3i64,
        Just(i64::MAX),
        Just(i64::MIN),
        Just(i64::MAX - 1),
    ];
    prop_oneof![
        4 => integer.prop_map(|n| n.to_string().into_bytes()),
        2 => vec(any::<u8>(), 0..30),
        1 => "[ +-]?0?[0-9]{1,3}[ ]?".prop_map(String::into_bytes),
        1 => (0..30_000usize).prop_map(|len| vec![b'v'; len]),
    ]
}

/// A command of the supported set, mostly with sensible arguments.
fn command() -> impl Strategy<Value = Command> {
    let name = |name: &'static str| Just(name.as_bytes().to_vec());
    let one_key = prop_oneof![
        name("GET"),
        name("get"),
        name("STRLEN"),
        name("INCR"),
        name("DECR"),
        name("EXISTS"),
        name("DEL"),
        name("MGET"),
        name("UNLINK"),
    ];
    let key_value = prop_oneof![
        name("SET"),
        name("SETNX"),
        name("GETSET"),
        name("APPEND"),
        name("INCRBY"),
        name("DECRBY"),
    ];
    let set_option = prop_oneof![
        Just("NX"),
        Just("XX"),
        Just("GET"),
        Just("KEEPTTL"),
        Just("nx"),
        Just("EX"),
        Just("PX 0"),
        Just("foo"),
        Just("EX x"),
        Just("EX 1000"),
    ];
    let many_keys = prop_oneof![name("MGET"), name("DEL"), name("EXISTS"), name("UNLINK")];
    let fixed = prop_oneof![
        "SELECT ([0-3]|15|16|-1|x|)",
        "PING",
        "PING hello",
        "PING a b",
        "ECHO x",
        "ECHO",
        "DBSIZE",
        "FLUSHDB",
        "FLUSHALL",
        "FLUSHALL (SYNC|ASYNC|NOW)",
        "GET",
        "SET a",
        "MSET a",
        "MSET a b c",
        "TIME x",
        "SCAN x",
        "SCAN 0 COUNT (0|x)",
        "SCAN 0 MATCH",
        "HELLO (2|3|4|x)",
        "HELLO 2 AUTH default any",
        "HELLO 2 (AUTH|SETNAME|FOO)( a)?",
        "RESET",
        "CLIENT GETNAME",
        "CLIENT SETNAME (me|x\\ty)",
        "CLIENT ID x",
        "CLIENT FOO",
        "CLIENT LIST (ID x|ID 99999999|TYPE foo|TYPE pubsub|x)",
        "CONFIG GET (save|appendonly|SAVE|nothing)",
        "CONFIG FOO",
        "COMMAND GETKEYS (GET a|MSET a b c d|PING x|FOO a|GET a b|DEL a b)",
        "COMMAND FOO",
        "COMMAND INFO foo",
        "COMMAND DOCS foo",
        "COMMAND LIST FILTERBY (FOO a|MODULE a|x)",
        "NOSUCH( a){0,3}",
        "AUTH x",
        "AUTH (default|nobody) x",
        "AUTH a b c",
        "[A-Z]{1,6} [a-z]{0,200}",
        "KEYS none*",
    ];
    prop_oneof![
        6 => (one_key, key()).prop_map(|(name, key)| vec![name, key]),
        6 => (key_value, key(), value()).prop_map(|(name, key, value)| vec![name, key, value]),
        2 => (key(), value(), vec(set_option, 0..4)).prop_map(|(key, value, options)| {
            let options = options.into_iter().flat_map(words);
            [b"SET".to_vec(), key, value].into_iter().chain(options).collect()
        }),
        2 => (many_keys, vec(key(), 1..80)).prop_map(|(name, keys)| [vec![name], keys].concat()),
        2 => vec((key(), value()), 1..5).prop_map(|pairs| {
            std::iter::once(b"MSET".to_vec()).chain(pairs.into_iter().flat_map(|(key, value)| [key, value])).collect()
        }),
        4 => fixed.prop_map(|line| words(&line)),
    ]
}

/// What is rightly different: identities, and what Mneme says of its own limits.
fn normalised(command: &Command, reply: Reply) -> Reply {
    let name = command[0].to_ascii_uppercase();
    match reply {
        Reply::Map(pairs) if name == b"HELLO" => Reply::Map(
            pairs
                .into_iter()
                .filter(|(field, _)| *field != Reply::bulk("id"))
                .collect(),
        ),
        Reply::Array(mut items) if name == b"HELLO" => {
            if let Some(id) = items.iter().position(|item| *item == Reply::bulk("id")) {
                items.drain(id..id + 2);
            }
            Reply::Array(items)
        }
        reply => reply,
    }
}

fn replies(address: SocketAddr, commands: &[Command], pipelined: bool) -> Vec<Reply> {
    let mut client = Client::connect(address);
    assert_eq!(client.line("FLUSHALL"), Reply::ok());
    if pipelined {
        client.send(
            &commands
                .iter()
                .flat_map(|command| encode(command))
                .collect::<Vec<_>>(),
        );
    }
    let reply = |command: &Command| {
        let reply = if pipelined {
            client.reply()
        } else {
            client.command(command)
        };
        normalised(command, reply)
    };
    commands.iter().map(reply).collect()
}

#[test]
fn random_commands_have_the_same_replies() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let config = Config {
        cases: 300,
        source_file: Some(file!()),
        ..Config::default()
    };
    let run = |(commands, pipelined): (Vec<Command>, bool)| {
        let ours = replies(address, &commands, pipelined);
        let theirs = replies(redis.address, &commands, pipelined);
        for ((command, ours), theirs) in commands.iter().zip(ours).zip(theirs) {
            let shown = command
                .iter()
                .map(|word| String::from_utf8_lossy(&word[..word.len().min(100)]))
                .collect::<Vec<_>>();
            // Expiry is the one option that is understood and refused.
            let refused = matches!(&ours, Reply::Error(text) if text.contains("not supported yet"));
            if refused {
                prop_assert!(
                    !matches!(theirs, Reply::Error(_)),
                    "{:?}: {:?}",
                    shown,
                    theirs
                );
                // From here on the data differ.
                break;
            }
            prop_assert_eq!(ours, theirs, "{:?}", shown);
        }
        Ok(())
    };
    TestRunner::new(config)
        .run(&(vec(command(), 1..60), any::<bool>()), run)
        .unwrap();
}

/// A reply in which the order of sets and maps does not matter, and the fields named in `left_out` are missing.
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
    let mut names: Vec<String> = all.items().iter().map(Reply::text).collect();
    assert!(names.len() > 25);
    for container in [
        "client|id",
        "client|list",
        "client|setname",
        "client|info",
        "config|get",
        "command|info",
        "command|list",
    ] {
        names.push(container.to_owned());
    }
    for name in names {
        let describe = |client: &mut Client| {
            let info = client.line(&format!("COMMAND INFO {name}"));
            let Reply::Array(mut fields) = info.items()[0].clone() else {
                panic!("{name}: {info:?}")
            };
            // Mneme's containers hold fewer subcommands.
            fields.truncate(9);
            ordered(Reply::Array(fields), &[])
        };
        assert_eq!(describe(&mut ours), describe(&mut theirs), "{name}");
        // Summaries are in our words, costs are our own, and history is Redis'.
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
fn broken_requests_have_the_same_answers() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let long = |start: &str| format!("{start}{}", "1".repeat(70_000)).into_bytes();
    let mut requests: Vec<Vec<u8>> = [
        "*2147483648\r\n",
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
            // The last command ends the connection where the request itself does not.
            client.send(&[&request[..], b"\r\nECHO end\r\nQUIT\r\n"].concat());
            String::from_utf8_lossy(&client.rest()).into_owned()
        };
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        assert_eq!(answer(address), answer(redis.address), "{shown:?}");
    }
}
