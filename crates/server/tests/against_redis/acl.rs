//! Random ACL rules give users the same texts and the same permissions as in Redis.

use std::cell::{Cell, RefCell};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::common::{Client, Redis, Reply, encode, server, start};
use super::generate::{Command, words};

/// Commands of Redis that a rule may name, including some that the server does not have.
const COMMANDS: &[&str] = &[
    "get",
    "set",
    "SET",
    "mget",
    "del",
    "lpush",
    "publish",
    "config",
    "config|get",
    "Config|Set",
    "config|nope",
    "client",
    "client|kill",
    "client|list|x",
    "acl|whoami",
    "select",
    "select|0",
    "select|1",
    "debug|sleep",
    "nope",
    "object|freq",
    "xinfo|stream",
    "eval",
    "ping",
    "bitfield",
    "copy",
    "get|",
    "flushall",
    "memory|usage",
    "",
    "|",
    "select|",
];

const CATEGORIES: &[&str] = &[
    "all",
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "SLOW",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
    "nope",
    "",
];

const WORDS: &[&str] = &[
    "on",
    "off",
    "ON",
    "nopass",
    "resetpass",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "reset",
    "clearselectors",
    "sanitize-payload",
    "skip-sanitize-payload",
    ">secret",
    ">",
    "<secret",
    "#abc",
    "!abc",
    "(",
    ")",
    "()",
    "nope",
    "#34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6",
    "!34344e4d60c2b6d639b7bd22e18f2b0b91bc34bf0ac5f9952744435093cfb4e6",
    "~*",
    "~",
    "%R~r*",
    "%W~w*",
    "%rw~x",
    "%R~k1",
    "%W~k1",
    "%RR~a",
    "%X~a",
    "%R",
    "~k[0-2]*",
    "~k1",
    "~a b",
    "&*",
    "&c",
    "&c*",
    "%RW~*",
    "%R~*",
];

fn simple_rule() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (select(&["+", "-"][..]), select(COMMANDS)).prop_map(|(a, b)| format!("{a}{b}")),
        3 => (select(&["+@", "-@"][..]), select(CATEGORIES)).prop_map(|(a, b)| format!("{a}{b}")),
        2 => select(WORDS).prop_map(str::to_owned),
        1 => "[~&%+<>!#(@-]?[a-zRW~*? |()]{0,5}",
    ]
    // Redis crashes at these rules: a pattern that permits neither reads nor writes, and an empty
    // text.
    .prop_filter("Redis survives it", |rule| {
        !rule.starts_with("%~") && rule != "%"
    })
}

fn rule() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => simple_rule(),
        1 => vec(simple_rule(), 0..4).prop_map(|rules| format!("({})", rules.join(" "))),
    ]
    .prop_filter("Redis survives it", |rule| {
        !rule.contains("%~") && !rule.contains("% ") && !rule.contains("%)")
    })
}

/// A call of a command whose keys may match the patterns.
fn call() -> impl Strategy<Value = Command> {
    prop_oneof![3 => simple_call(), 2 => super::command()]
}

fn simple_call() -> impl Strategy<Value = Command> {
    let key = || select(&["k0", "k1", "k2x", "k9", "r1", "w1", "x", "a", "", "0", "1"][..]);
    let line = select(
        &[
            "get K",
            "GET K",
            "set K v",
            "set K v get",
            "set K v nx ex 10",
            "mget K K K",
            "mset K v K v",
            "del K K",
            "unlink K",
            "copy K K",
            "rename K K",
            "append K v",
            "getset K v",
            "getdel K",
            "getex K",
            "incr K",
            "strlen K",
            "setbit K 0 1",
            "getbit K 0",
            "bitcount K",
            "bitop and K K K",
            "bitfield K get u4 0",
            "bitfield K set u4 0 1",
            "bitfield_ro K get u4 0",
            "bitpos K 1",
            "expire K 10",
            "ttl K",
            "persist K",
            "type K",
            "exists K K",
            "touch K",
            "object freq K",
            "object help",
            "object nope K",
            "keys *",
            "scan 0",
            "dbsize",
            "randomkey",
            "flushall",
            "flushdb",
            "select 0",
            "select 1",
            "swapdb 0 1",
            "ping",
            "echo K",
            "auth K",
            "hello",
            "quit",
            "reset",
            "client list",
            "client kill id 1",
            "client",
            "client nope",
            "config get K",
            "config set K v",
            "config",
            "acl whoami",
            "acl list",
            "acl setuser K",
            "multi",
            "exec",
            "discard",
            "watch K K",
            "unwatch",
            "info",
            "memory usage K",
            "debug sleep 0",
            "shutdown",
            "time",
            "command",
            "command count",
            "slowlog get",
            "latency reset",
            "lcs K K",
            "msetnx K v K v",
            "substr K 0 1",
            "getrange K 0 1",
            "setrange K 0 v",
            "psetex K 1 v",
            "incrbyfloat K 1",
            "expireat K 1",
            "move K 1",
            "save",
            "lastsave",
            "nope",
            "get",
            "get K K",
        ][..],
    );
    (line, vec(key(), 4)).prop_map(|(line, keys)| {
        let mut keys = keys.into_iter();
        let mut word = |word: &str| match word {
            "K" => keys.next().unwrap_or("k1").to_owned(),
            word => word.to_owned(),
        };
        line.split(' ')
            .map(|part| word(part).into_bytes())
            .collect()
    })
}

/// The text of rules with the rules for single commands sorted, whose order Redis draws at its
/// start.
fn ordered_text(text: &str) -> String {
    let text = text.replace('(', "( ").replace(')', " )");
    let mut words: Vec<&str> = text.split_whitespace().collect();
    // Commands that Redis does not have are left out, since its rules cannot name them.
    words.retain(|word| {
        !word.trim_start_matches(['+', '-']).starts_with("mneme")
            && !word.ends_with("client|setinfo")
    });
    // GETUSER's selectors are compared as sets of words.
    words.sort_unstable();
    words.join(" ")
}

fn normalised(reply: Reply) -> Reply {
    match reply {
        Reply::Bulk(text) if text.contains(&b'@') => {
            Reply::bulk(ordered_text(&String::from_utf8_lossy(&text)))
        }
        // Redis shows a key up to its first NUL byte.
        Reply::Bulk(text) if text.contains(&0) => {
            let mut shown = text.split(|byte| *byte == 0).next().unwrap().to_vec();
            shown.extend_from_slice(b"' key");
            Reply::Bulk(shown)
        }
        Reply::Array(items) => Reply::Array(items.into_iter().map(normalised).collect()),
        other => other,
    }
}

#[test]
fn random_rules_make_the_same_users() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let clients = RefCell::new([address, redis.address].map(Client::connect));
    let config = Config {
        source_file: Some(file!()),
        ..Config::default()
    };
    let count = Cell::new(0);
    let run = |(settings, calls): (Vec<Vec<String>>, Vec<Command>)| {
        let mut commands = vec![words("ACL DELUSER u")];
        for rules in settings {
            let rules = rules.into_iter().map(String::into_bytes);
            commands.push([words("ACL SETUSER u"), rules.collect()].concat());
            commands.extend(["ACL GETUSER u", "ACL LIST", "ACL USERS"].map(words));
        }
        commands.extend(
            calls
                .into_iter()
                .map(|call| [words("ACL DRYRUN u"), call].concat()),
        );
        let sent: Vec<u8> = commands.iter().flat_map(|one| encode(one)).collect();
        let [ours, theirs] = clients.borrow_mut().each_mut().map(|client| {
            client.send(&sent);
            let replies = commands.iter().map(|_| normalised(client.reply()));
            replies.collect::<Vec<_>>()
        });
        for (place, command) in commands.iter().enumerate() {
            let shown =
                |command: &Command| String::from_utf8_lossy(&command.join(&b' ')).into_owned();
            let before: Vec<_> = commands[..place]
                .iter()
                .filter(|one| one[1] == b"SETUSER")
                .map(shown)
                .collect();
            let same = ours[place] == theirs[place];
            prop_assert!(
                same,
                "{:?} and {:?}: {} after {:?}",
                ours[place],
                theirs[place],
                shown(command),
                before
            );
        }
        count.set(count.get() + commands.len());
        Ok(())
    };
    TestRunner::new(config)
        .run(&(vec(vec(rule(), 0..6), 1..4), vec(call(), 0..30)), run)
        .unwrap();
    println!("{} replies are Redis'", count.get());
}

#[test]
fn categories_hold_the_commands_that_they_hold_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [mut ours, mut theirs] = [address, redis.address].map(Client::connect);
    let names = |client: &mut Client, line: &str| {
        let reply = client.line(line);
        let mut names: Vec<String> = reply.items().iter().map(Reply::text).collect();
        names.sort();
        names
    };
    let all = names(&mut ours, "COMMAND LIST");
    let categories = names(&mut ours, "ACL CAT");
    assert_eq!(categories, names(&mut theirs, "ACL CAT"));
    for category in &categories {
        let line = format!("ACL CAT {category}");
        let (mut own, mut redis) = (names(&mut ours, &line), names(&mut theirs, &line));
        own.retain(|name| name != "client|setinfo" && !name.starts_with("mneme"));
        redis.retain(|name| all.contains(name));
        assert_eq!(own, redis, "{category}");
    }
    for line in [
        "ACL CAT nope",
        "ACL CAT a b",
        "ACL GENPASS 0",
        "ACL GENPASS 5000",
        "ACL GENPASS x",
        "ACL LOG x",
        "ACL GETUSER nope",
        "ACL DELUSER default",
        "ACL DELUSER nope",
        "ACL nope",
        "ACL DRYRUN nope get k",
        "AUTH a b c",
        "AUTH x",
        "AUTH nope x",
        "CLIENT KILL USER nope",
        "ACL WHOAMI",
    ] {
        assert_eq!(ours.line(line), theirs.line(line), "{line}");
    }
}
