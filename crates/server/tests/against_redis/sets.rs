//! Sets, under the keys that strings and hashes have too.

use crate::common::{Client, Redis, Reply, debugged, start};
use crate::generate::{Command, key as any_key, line, name, value, words};
use mneme_testkit::Random;
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => (name(&["SADD", "sadd"]), key(), vec(member(), 1..14))
            .prop_map(|(name, key, members)| [vec![name, key], members].concat()),
        4 => (name(&["SREM", "SMISMEMBER"]), key(), vec(member(), 1..14))
            .prop_map(|(name, key, members)| [vec![name, key], members].concat()),
        4 => (name(&["SISMEMBER", "SREM", "SADD"]), key(), member())
            .prop_map(|(name, key, member)| vec![name, key, member]),
        3 => (name(&["SCARD", "SMEMBERS", "SCARD"]), key()).prop_map(|(name, key)| vec![name, key]),
        3 => (key(), key(), member())
            .prop_map(|(key, other, member)| vec![b"SMOVE".to_vec(), key, other, member]),
        5 => (name(&["SINTER", "SUNION", "SDIFF"]), vec(key(), 1..5))
            .prop_map(|(name, keys)| [vec![name], keys].concat()),
        5 => (name(&["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]), vec(key(), 2..5))
            .prop_map(|(name, keys)| [vec![name], keys].concat()),
        1 => (name(&["SINTERSTORE", "SUNION"]), vec(key(), 2..60))
            .prop_map(|(name, keys)| [vec![name], keys].concat()),
        2 => (vec(key(), 1..4), name(&["", " LIMIT 0", " LIMIT 2", " limit 99", " LIMIT -1"]))
            .prop_map(|(keys, limit)| {
                let limit = String::from_utf8(limit).expect("text");
                let mut command = vec![b"SINTERCARD".to_vec(), keys.len().to_string().into_bytes()];
                command.extend(keys);
                command.extend(limit.split_whitespace().map(|word| word.as_bytes().to_vec()));
                command
            }),
        2 => (key(), name(&["", " MATCH f*", " MATCH *", " match x COUNT 77"])).prop_map(|(key, options)| {
            let line = String::from_utf8(options).expect("text");
            let rest = words(&format!("0 COUNT 99999{line}"));
            [vec![b"SSCAN".to_vec(), key], rest].concat()
        }),
        // Random results differ, except for all and for nothing.
        2 => (name(&["SRANDMEMBER", "SPOP"]), key(), name(&["99999", "0"]))
            .prop_map(|(name, key, count)| vec![name, key, count]),
        2 => line(&[
            "(SADD|SREM|SISMEMBER|SMISMEMBER) k[0-2]", "SMOVE k[0-2] k[0-2]", "SCARD k[0-2] x",
            "SPOP k[0-2] (x|-1|1 2|9223372036854775808)", "SRANDMEMBER k[0-2] (x|1 2|-9223372036854775808)",
            "SPOP none", "SRANDMEMBER none", "SRANDMEMBER none -5", "SSCAN k[0-2] (x|-)", "SSCAN a (x|-|)",
            "SSCAN k[0-2] 0 (FOO|COUNT|COUNT 0|COUNT x|MATCH|MATCH a COUNT)", "SSCAN none 0 FOO",
            "SINTERCARD (0|-1|x|2|1) k[0-2]( LIMIT| LIMIT x| FOO| LIMIT 1 LIMIT)?", "SINTERCARD 1",
            "(SINTER|SUNION|SDIFF|SINTERSTORE|SUNIONSTORE|SDIFFSTORE)( k0)?",
            "TYPE k[0-5]", "OBJECT ENCODING set[0-2]", "SCAN 0 COUNT 9999 TYPE (set|SET)",
            "COPY k[0-2] k[0-5] REPLACE", "RENAME k[0-2] k[0-5]",
        ]),
    ]
}

/// A key that other values may have, or one that only sets have: in Redis the encoding of a string
/// depends on how it came about.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any_key(),
        2 => name(&["set0", "set1", "set2"]),
    ]
}

/// One of a few members, seldom a long or a strange one.
fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..12i64).prop_map(|i| (i * i * i - 99).to_string().into_bytes()),
        3 => (0..9u8).prop_map(|i| format!("f{i}").into_bytes()),
        1 => value(),
    ]
}

/// The members of a set of integers come in ascending order, until Redis would convert it to a
/// table; the conversion happens at the same point.
#[test]
fn a_set_becomes_a_table_when_it_does_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    for line in [
        "CONFIG GET set-max-intset-entries",
        "SADD a 3 -7 2147483648 0 3 9223372036854775807 -9223372036854775808",
        "SMEMBERS a",
        "SSCAN a 7 COUNT 1",
        "SRANDMEMBER a 99",
        "OBJECT ENCODING a",
        "SREM a 0",
        "SMEMBERS a",
        "SUNION a a",
        "SADD b 3 4 5",
        "SUNION a b",
        "SINTER a b",
        "SDIFF a b",
        "COPY a copy",
        "OBJECT ENCODING copy",
        "SADD a 07",
        "OBJECT ENCODING a",
        "SREM a 07",
        "OBJECT ENCODING a",
        "RENAME copy renamed",
        "OBJECT ENCODING renamed",
        "SADD c x",
        "OBJECT ENCODING c",
        "SUNIONSTORE d b c",
        "OBJECT ENCODING d",
        "SDIFFSTORE d d c",
        "OBJECT ENCODING d",
        "SMEMBERS d",
        "SINTERSTORE d b b",
        "OBJECT ENCODING d",
        "SMOVE c b x",
        "OBJECT ENCODING b",
        "EXISTS c",
        "CONFIG SET set-max-intset-entries 4",
        "CONFIG GET set-max-intset-entries",
        "SADD e 1 2 3 4",
        "OBJECT ENCODING e",
        "SADD e 4",
        "OBJECT ENCODING e",
        "SADD e 5",
        "OBJECT ENCODING e",
        "SREM e 5",
        "OBJECT ENCODING e",
        "SADD f 1 2 3 4",
        "SADD g 6 7 8 9",
        "SUNIONSTORE d f g",
        "OBJECT ENCODING d",
        "SDIFFSTORE d f g",
        "OBJECT ENCODING d",
        "SADD many 1 2 3 4 5 6 7 8 9 10 11 12",
        "SDIFFSTORE d many g",
        "OBJECT ENCODING d",
        "SDIFFSTORE d many f g",
        "OBJECT ENCODING d",
        "SDIFFSTORE d many f g e e",
        "OBJECT ENCODING d",
        "SINTERSTORE d many f",
        "OBJECT ENCODING d",
        "CONFIG SET set-max-intset-entries 2",
        "OBJECT ENCODING f",
        "SADD f 4",
        "OBJECT ENCODING f",
        "SMOVE g f 6",
        "OBJECT ENCODING f",
        "SREM g 7 8 9",
        "EXISTS g",
    ] {
        let [ours, theirs] = clients.each_mut().map(|client| client.line(line));
        assert_eq!(ours, theirs, "{line}");
    }
}

/// Commands on large sets, beside expiry, transactions and other keys.
#[test]
fn commands_on_large_sets_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    clients.iter_mut().for_each(|client| {
        client.line("HELLO 3");
    });
    let mut random = Random::new(11);
    let mut below = |bound: u64| random.below(bound);
    let mut both = |line: &str| {
        let [ours, theirs] = clients.each_mut().map(|client| sorted(client.line(line)));
        assert_eq!(ours, theirs, "{line:.60}");
    };
    for round in 0..3000 {
        let key = format!("large{}", below(4));
        let other = format!("large{}", below(4));
        let mut members = |many: u64| {
            let mut line = String::new();
            for _ in 0..1 + below(many) {
                let number = below(300);
                line += &match number % 3 {
                    0 => format!(" {number}"),
                    1 => format!(" m{number}"),
                    _ => format!(" m{number}{}", "x".repeat(number as usize / 3)),
                };
            }
            line
        };
        let (one, some, many) = (members(1), members(5), members(80));
        match below(36) {
            0..7 => both(&format!("SADD {key}{many}")),
            7..9 => both(&format!("SADD {key}{some}")),
            9..12 => both(&format!("SREM {key}{some}")),
            12 => both(&format!("SREM {key}{many}")),
            13 => both(&format!("SISMEMBER {key}{one}")),
            14 => both(&format!("SMISMEMBER {key}{many}")),
            15 => both(&format!("SCARD {key}")),
            16 => both(&format!("SMEMBERS {key}")),
            17 => both(&format!("SSCAN {key} 0 COUNT 999999")),
            18 => both(&format!("SRANDMEMBER {key} 999999")),
            19 => both(&format!("SMOVE {key} {other}{one}")),
            20 => both(&format!("SINTER {key} {other}")),
            21 => both(&format!("SUNION {key} {other} large1")),
            22 => both(&format!("SDIFF {key} {other}")),
            23 => both(&format!("SINTERCARD 2 {key} {other} LIMIT {}", below(40))),
            24 => both(&format!("SINTERSTORE large4 {key} {other}")),
            25 => both(&format!("SUNIONSTORE large4 {key} {other}")),
            26 => both(&format!("SDIFFSTORE {key} {key} {other} large4")),
            27 => both(&format!("COPY {key} {other} REPLACE")),
            28 => both(&format!("RENAME {key} {other}")),
            29 => both(&format!("SPOP {key} 999999")),
            30 => both(&format!("SET {key} string")),
            31 => both(&format!(
                "PEXPIRE {key} {}",
                if below(3) == 0 { -1 } else { 90_000_000 }
            )),
            32 => both(&format!("OBJECT ENCODING {key}")),
            33 => {
                for line in [
                    "MULTI".into(),
                    format!("SADD {key}{some}"),
                    format!("SMISMEMBER {key}{some}"),
                    format!("SREM {key}{some}"),
                    format!("SCARD {key}"),
                    format!("SADD {key}{many}"),
                    format!("SMOVE {key} {other}{one}"),
                    format!("SUNIONSTORE large4 {key} {other}"),
                    format!("SINTER {key} large4"),
                    format!("SPOP {other} 999999"),
                    format!("COPY {key} {other} REPLACE"),
                    "EXEC".to_owned(),
                ] {
                    both(&line);
                }
            }
            34 => both(&format!("DEL {key}")),
            _ => both(&format!("EXISTS {key} {other}")),
        }
        if round % 1000 == 999 {
            both("DBSIZE");
        }
    }
}

/// A reply whose sets, and the results of a scan, are sorted.
fn sorted(reply: Reply) -> Reply {
    let in_order = |mut items: Vec<Reply>| {
        items.sort_by(|a, b| a.partial_cmp(b).expect("no floats"));
        items
    };
    match reply {
        Reply::Set(items) => Reply::Set(in_order(items)),
        Reply::Array(items) => {
            let is_bulk = |item: &Reply| matches!(item, Reply::Bulk(_));
            match items.iter().all(is_bulk) {
                true => Reply::Array(in_order(items)),
                false => Reply::Array(items.into_iter().map(sorted).collect()),
            }
        }
        other => other,
    }
}

/// Randomly chosen members are from the set, in the requested number, and are gone if they were
/// popped.
#[test]
fn what_is_drawn_by_lot_is_from_the_set() {
    let (_running, address) = start(debugged());
    let mut client = Client::connect(address);
    for (size, prefix) in [(5, ""), (5, "m"), (200, "m"), (3000, "m")] {
        let members: Vec<String> = (0..size).map(|i| format!("{prefix}{i}")).collect();
        let all: std::collections::BTreeSet<String> = members.iter().cloned().collect();
        client.line("DEL k");
        client.line(&format!("SADD k {}", members.join(" ")));
        let texts =
            |reply: Reply| -> Vec<String> { reply.items().iter().map(Reply::text).collect() };
        for count in [1, 4, size - 1, size, size + 1] {
            let drawn = texts(client.line(&format!("SRANDMEMBER k {count}")));
            let distinct: std::collections::BTreeSet<String> = drawn.iter().cloned().collect();
            assert_eq!(
                (drawn.len(), distinct.len()),
                (count.min(size), drawn.len())
            );
            assert!(distinct.is_subset(&all));
            let drawn = texts(client.line(&format!("SRANDMEMBER k -{count}")));
            assert_eq!(drawn.len(), count);
            assert!(drawn.iter().all(|member| all.contains(member)));
        }
        assert!(all.contains(&client.line("SRANDMEMBER k").text()));
        let mut left = all.clone();
        for _ in 0..3 {
            assert!(left.remove(&client.line("SPOP k").text()));
        }
        let popped = texts(client.line(&format!("SPOP k {}", left.len() - 1)));
        assert!(popped.iter().all(|member| left.remove(member)));
        let last: Vec<String> = left.iter().cloned().collect();
        assert_eq!(texts(client.line("SMEMBERS k")), last);
        assert_eq!(client.line("SPOP k").text(), last[0]);
        assert_eq!(client.line("EXISTS k"), Reply::Integer(0));
    }
}
