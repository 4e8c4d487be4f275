//! Hashes, under the keys that the strings have too.

use crate::common::{Client, Redis, debugged, start};
use crate::generate::{Command, key, line, name, of_a_key, value, words};
use crate::parts;
use mneme_testkit::Random;
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => (name(&["HSET", "HMSET", "hset"]), key(), vec((field(), value()), 1..6)).prop_map(
            |(name, key, pairs)| {
                let pairs = pairs.into_iter().flat_map(|(field, value)| [field, value]);
                [name, key].into_iter().chain(pairs).collect()
            }
        ),
        2 => (name(&["HSETNX"]), key(), field(), value())
            .prop_map(|(name, key, field, value)| vec![name, key, field, value]),
        4 => (name(&["HINCRBY", "HINCRBYFLOAT"]), key(), field(), number())
            .prop_map(|(name, key, field, by)| vec![name, key, field, by]),
        5 => (name(&["HGET", "HEXISTS", "HSTRLEN", "HDEL"]), key(), field())
            .prop_map(|(name, key, field)| vec![name, key, field]),
        3 => (name(&["HMGET", "HDEL"]), key(), vec(field(), 1..14))
            .prop_map(|(name, key, fields)| [vec![name, key], fields].concat()),
        4 => of_a_key(&["HLEN", "HGETALL", "HKEYS", "HVALS", "HLEN"]),
        2 => (key(), name(&["", " MATCH f*", " MATCH *", " match x COUNT 77"])).prop_map(|(key, options)| {
            let line = String::from_utf8(options).expect("text");
            let rest = words(&format!("0 COUNT 99999{line}"));
            [vec![b"HSCAN".to_vec(), key], rest].concat()
        }),
        2 => (key(), name(&["99999", "99999 WITHVALUES", "0", "0 WITHVALUES"])).prop_map(|(key, count)| {
            let count = String::from_utf8(count).expect("text");
            [vec![b"HRANDFIELD".to_vec(), key], words(&count)].concat()
        }),
        2 => line(&[
            "(HSET|HMSET|hset) a( b( c d)?)?", "HSETNX a b", "HGET a", "HDEL a", "HMGET a", "HLEN",
            "(HINCRBY|HINCRBYFLOAT) k[0-2] f1 (x|inf|-inf|nan|9223372036854775808||1 )", "HSCAN a (x|-|)",
            "HSCAN k[0-2] 0 (FOO|COUNT|COUNT 0|COUNT x|MATCH|MATCH a COUNT)", "HSCAN none 0 FOO",
            "HRANDFIELD (a|k[0-2]) (x|1 foo|0 foo|-9223372036854775808|9223372036854775807 WITHVALUES)",
            "HRANDFIELD k[0-2] 1 WITHVALUES a", "HRANDFIELD none", "SCAN 0 COUNT 9999 TYPE (hash|HASH)",
            "TYPE k[0-5]", "LCS k[0-2] k[0-2] (LEN|FOO)", "BITOP (AND|NOT) k5 k[0-2]", "GETEX k[0-2] EX (x|0)",
            "SET k[0-2] v (XX|NX|XX GET|KEEPTTL)", "INCRBYFLOAT k[0-2] x", "SETRANGE k[0-2] 0 ",
            "BITCOUNT k[0-2] x y", "BITPOS k[0-2] (2|1 x)", "GETBIT k[0-2] x", "SETBIT k[0-2] 0 2",
            "BITFIELD k[0-2] GET u99 0", "BITFIELD k[0-2] (GET|SET|INCRBY) u8 0 1", "EXPIRE k[0-2] -1",
        ]),
    ]
}

/// One of a few fields, seldom a long or a strange one.
fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..9u8).prop_map(|i| format!("f{i}").into_bytes()),
        2 => (0..300u16).prop_map(|i| i.to_string().into_bytes()),
        1 => value(),
    ]
}

fn number() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        3 => (-9..9i64).prop_map(|n| n.to_string().into_bytes()),
        2 => "-?[0-9]{0,3}(\\.[0-9]{1,4})?(e[0-9])?".prop_map(String::into_bytes),
    ]
}

/// Fields come in the order in which they were set, until Redis would convert the hash to a table;
/// the conversion happens at the same point.
#[test]
fn a_hash_becomes_a_table_when_it_does_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    let long = "x".repeat(65);
    let mut both = |line: &str| {
        let line = line.replace("LONG", &long);
        let [ours, theirs] = clients.each_mut().map(|client| client.line(&line));
        assert_eq!(ours, theirs, "{line}");
    };
    for line in [
        "CONFIG GET hash-max-listpack-entries",
        "CONFIG GET hash-max-listpack-value",
        "HSET a x 1 y 2 z 3",
        "HSET a y 22 w 4",
        "HGETALL a",
        "HSCAN a 7 COUNT 1",
        "HRANDFIELD a 99 WITHVALUES",
        "OBJECT ENCODING a",
        "HSET a y LONG",
        "OBJECT ENCODING a",
        "HSET a y 1",
        "OBJECT ENCODING a",
        "COPY a copy",
        "OBJECT ENCODING copy",
        "RENAME copy renamed",
        "OBJECT ENCODING renamed",
        "HSETNX b LONG 1",
        "OBJECT ENCODING b",
        "HINCRBY c LONG 1",
        "OBJECT ENCODING c",
        "HINCRBYFLOAT d LONG 1.5",
        "OBJECT ENCODING d",
        "HSET e x 1",
        "HDEL e LONG",
        "OBJECT ENCODING e",
        "HSETNX e x LONG",
        "OBJECT ENCODING e",
        "CONFIG SET hash-max-ziplist-entries 2 hash-max-listpack-value 3",
        "CONFIG GET hash-max-listpack-entries",
        "CONFIG GET hash-max-listpack-value",
        "OBJECT ENCODING e",
        "HSET e y 1",
        "OBJECT ENCODING e",
        "HSET e y 2",
        "OBJECT ENCODING e",
        "HSET e z 2",
        "OBJECT ENCODING e",
        "HDEL e z y",
        "OBJECT ENCODING e",
        "HSET f x four",
        "OBJECT ENCODING f",
        "HSET g x 1 y 2 z 3",
        "OBJECT ENCODING g",
        "HDEL g x y z",
        "EXISTS g",
        "HSET g x 1",
        "OBJECT ENCODING g",
    ] {
        both(line);
    }
}

/// Commands on large hashes, beside expiry, transactions and other keys. If Redis has an order of
/// its own, the parts of a reply are compared without one.
#[test]
fn commands_on_large_hashes_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    let mut random = Random::new(7);
    let mut below = |bound: u64| random.below(bound);
    let mut both = |line: &str| {
        let [ours, theirs] = clients.each_mut().map(|client| client.line(line));
        if ours == theirs {
            return;
        }
        let is_unordered = ["HGETALL", "HKEYS", "HVALS", "HSCAN", "HRANDFIELD", "EXEC"];
        let is_unordered = is_unordered.iter().any(|name| line.starts_with(name));
        let is_same = is_unordered && parts(&ours) == parts(&theirs);
        assert!(is_same, "another reply to {line:.60}");
    };
    for round in 0..4000 {
        let key = format!("large{}", below(3));
        let other = format!("large{}", below(4));
        let mut pairs = |many: u64| {
            let mut line = String::new();
            for _ in 0..1 + below(many) {
                let value = "v".repeat(below(90) as usize + 1);
                line += &format!(" f{} {value}{}", below(300), below(9));
            }
            line
        };
        let (some, many) = (pairs(4), pairs(60));
        let field = |n: u64| format!("f{n}");
        match below(40) {
            0..8 => both(&format!("HSET {key}{some}")),
            8..11 => both(&format!("HSET {key}{many}")),
            11..14 => both(&format!(
                "HDEL {key} {} {} {}",
                field(below(300)),
                field(below(300)),
                field(below(300))
            )),
            14..17 => both(&format!("HGET {key} {}", field(below(300)))),
            17 => both(&format!(
                "HMGET {key} {} {} none",
                field(below(300)),
                field(below(300))
            )),
            18 => both(&format!("HINCRBY {key} sum {}", below(100))),
            19 => both(&format!("HINCRBYFLOAT {key} float 1.5")),
            20 => both(&format!("HSETNX {key} {} v", field(below(300)))),
            21 => both(&format!("HEXISTS {key} {}", field(below(300)))),
            22 => both(&format!("HSTRLEN {key} {}", field(below(300)))),
            23 | 24 => both(&format!("HLEN {key}")),
            25 => both(&format!("HGETALL {key}")),
            26 => both(&format!("HSCAN {key} 0 COUNT 999999")),
            27 => both(&format!("HRANDFIELD {key} 999999 WITHVALUES")),
            28 => both(&format!("COPY {key} {other} REPLACE")),
            29 => both(&format!("RENAME {key} {other}")),
            30 => both(&format!("DEL {key}")),
            31 => both(&format!("SET {key} string")),
            32 => both(&format!(
                "PEXPIRE {key} {}",
                if below(3) == 0 { -1 } else { 90_000_000 }
            )),
            33 => both(&format!("OBJECT ENCODING {key}")),
            34 => both(&format!("TYPE {key}")),
            35 => {
                for line in [
                    "MULTI".into(),
                    format!("HSET {key}{some}"),
                    format!("HGET {key} f1"),
                    format!("HDEL {key} f2 f3"),
                    format!("HLEN {key}"),
                    format!("HSET {key}{many}"),
                    format!("COPY {key} {other} REPLACE"),
                    "EXEC".to_owned(),
                ] {
                    both(&line);
                }
            }
            36 => both(&format!("MOVE {key} 1")),
            37 => both("HKEYS large1"),
            38 => both(&format!("PERSIST {key}")),
            _ => both(&format!("EXISTS {key} {other}")),
        }
        if round % 1000 == 999 {
            both("DBSIZE");
        }
    }
}
