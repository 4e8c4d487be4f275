//! Sorted sets, under the keys that the strings have too.

use crate::common::{Client, Redis, debugged, start};
use crate::generate::{Command, key, line, name, of_a_key, value};
use crate::parts;
use mneme_testkit::Random;
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        8 => (key(), options(), vec((score(), member()), 1..6)).prop_map(
            |(key, options, pairs)| {
                let pairs = pairs.into_iter().flat_map(|(score, member)| [score, member]);
                let begin = [b"ZADD".to_vec(), key].into_iter().chain(options);
                begin.chain(pairs).collect()
            }
        ),
        3 => (key(), score(), member()).prop_map(|(key, by, member)| {
            vec![b"ZINCRBY".to_vec(), key, by, member]
        }),
        5 => (name(&["ZSCORE", "ZRANK", "ZREVRANK", "ZREM"]), key(), member())
            .prop_map(|(name, key, member)| vec![name, key, member]),
        3 => (name(&["ZMSCORE", "ZREM"]), key(), vec(member(), 1..8))
            .prop_map(|(name, key, members)| [vec![name, key], members].concat()),
        4 => of_a_key(&["ZCARD", "ZPOPMIN", "ZPOPMAX", "ZCARD"]),
        6 => (name(&["ZCOUNT", "ZRANGEBYSCORE", "ZREVRANGEBYSCORE", "ZREMRANGEBYSCORE"]), key(), bound(), bound())
            .prop_map(|(name, key, low, high)| vec![name, key, low, high]),
        4 => (key(), bound(), bound(), vec(words_of(&[
                "WITHSCORES", "LIMIT 0 3", "LIMIT 1 -1", "LIMIT -1 2", "LIMIT 2 0", "REV", "BYSCORE",
            ]), 0..4))
            .prop_map(|(key, low, high, options)| {
                [vec![b"ZRANGE".to_vec(), key, low, high, b"BYSCORE".to_vec()], options.concat()].concat()
            }),
        4 => (name(&["ZRANGE", "ZREVRANGE"]), key(), index(), index(), vec(words_of(&["WITHSCORES", "REV"]), 0..2))
            .prop_map(|(name, key, low, high, options)| {
                [vec![name, key, low, high], options.concat()].concat()
            }),
        1 => (key(), index(), index())
            .prop_map(|(key, low, high)| vec![b"ZREMRANGEBYRANK".to_vec(), key, low, high]),
        3 => (key(), key(), bound(), bound(), vec(words_of(&["BYSCORE", "REV", "LIMIT 0 2"]), 0..3))
            .prop_map(|(to, from, low, high, options)| {
                [vec![b"ZRANGESTORE".to_vec(), to, from, low, high], options.concat()].concat()
            }),
        6 => (
                name(&["ZUNION", "ZINTER", "ZDIFF", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]),
                key(), vec(key(), 1..4), vec(score(), 3), name(&["SUM", "MIN", "MAX"]), 0..8u8,
            )
            .prop_map(|(name, to, keys, weights, aggregate, options)| {
                let mut command = vec![name.clone()];
                if name.ends_with(b"STORE") {
                    command.push(to);
                }
                command.push(keys.len().to_string().into_bytes());
                command.extend(keys.iter().cloned());
                if options & 1 == 1 {
                    command.push(b"WEIGHTS".to_vec());
                    command.extend(weights.into_iter().take(keys.len()));
                }
                if options & 2 == 2 {
                    command.extend([b"AGGREGATE".to_vec(), aggregate]);
                }
                if options & 4 == 4 {
                    command.push(b"WITHSCORES".to_vec());
                }
                command
            }),
        2 => (vec(key(), 1..4), words_of(&["", "LIMIT 1", "LIMIT 0", "LIMIT -1", "LIMIT x", "FOO"]))
            .prop_map(|(keys, options)| {
                let count = keys.len().to_string().into_bytes();
                [vec![b"ZINTERCARD".to_vec(), count], keys, options].concat()
            }),
        2 => (vec(key(), 1..4), words_of(&["MIN", "MAX", "MIN COUNT 2", "max count 99", "MIN COUNT 0", "FOO"]))
            .prop_map(|(keys, options)| {
                let count = keys.len().to_string().into_bytes();
                [vec![b"ZMPOP".to_vec(), count], keys, options].concat()
            }),
        2 => (key(), words_of(&["0 COUNT 99999", "0 COUNT 99999 MATCH m*", "0 MATCH * COUNT 99999"]))
            .prop_map(|(key, options)| [vec![b"ZSCAN".to_vec(), key], options].concat()),
        2 => (key(), words_of(&["99999", "99999 WITHSCORES", "0", "0 WITHSCORES"]))
            .prop_map(|(key, options)| [vec![b"ZRANDMEMBER".to_vec(), key], options].concat()),
        3 => line(&[
            "ZADD a", "ZADD a 1", "ZADD a 1 b 2", "ZADD k[0-2] (x|nan|1e400|1e-400|0x1p4| 1|1 ) m1",
            "ZADD k[0-2] (NX XX|GT NX|LT NX|GT LT|NX XX GT) 1 m1", "ZADD k[0-2] INCR 1 m1 2 m2",
            "ZADD k[0-2] (FOO|CH|NX)", "ZADD k[0-2] INCR (inf|-inf|nan) m[0-3]",
            "ZRANGE k[0-2] 0 -1 (LIMIT 0 1|LIMIT 0 -1|BYLEX|BYSCORE BYLEX|REV REV|FOO|LIMIT 0|WITHSCORES LIMIT 1 -1)",
            "ZRANGE k[0-2] (x|0) (x|1)", "ZRANGE k[0-2] \\[a - BYLEX WITHSCORES", "ZRANGE k[0-2] (a|x|\\(|) 1 BYSCORE",
            "ZRANGEBYSCORE k[0-2] (x|\\(x|nan|-inf) (inf|\\+inf|1e400|0x8) (WITHSCORES|LIMIT 0 x|REV|)",
            "ZRANGEBYLEX k6 (-|\\+|\\[m1|\\(m1|x) (-|\\+|\\[m2|\\(m3|)( LIMIT (0|1|-1) (1|-1|0))?",
            "ZRANGESTORE k5 k6 (-|\\+|\\[m1|\\(m1|x) (-|\\+|\\[m2|\\(m3|) BYLEX",
            "ZREVRANGEBYLEX k6 (-|\\+|\\[m2|\\(m2|x) (-|\\+|\\[m1|\\(m0|)( LIMIT (0|1|-1) (1|-1|0))?",
            "ZLEXCOUNT k6 (-|\\+|\\[m1|x) (-|\\+|\\[m2|)", "ZREMRANGEBYLEX k6 (\\[m1|\\(m7|x) (\\[m2|\\(m9|)",
            "ZADD k6 0 m[0-9] 0 m[0-9] 0 [0-9]", "ZPOPMIN (a|k[0-2]) (0|1|2|9999|-1|x)", "ZPOPMAX k[0-2] 1 2",
            "ZMPOP (0|x|-1|2|1) k[0-2] (MIN|MAX|FOO)( COUNT( (1|0|x|-1)( 1| COUNT 1)?)?)?",
            "(ZUNION|ZINTER|ZDIFF|ZINTERCARD) (0|x|-1|2|9223372036854775807) k[0-2]",
            "(ZUNION|ZINTER|ZDIFF) 1 k[0-2] (WEIGHTS|WEIGHTS x|AGGREGATE|AGGREGATE x|FOO|WITHSCORES WITHSCORES)",
            "(ZUNIONSTORE|ZINTERSTORE|ZDIFFSTORE) k5 (0|1|2) k[0-2] (WITHSCORES|WEIGHTS 2|AGGREGATE MAX)",
            "ZUNIONSTORE k[0-2] 2 k[0-2] k[0-2]", "ZRANDMEMBER (a|k[0-2]) (x|1 foo|0 foo|-9223372036854775808)",
            "ZRANDMEMBER k[0-2] (1 WITHSCORES a|9223372036854775807 WITHSCORES)", "ZRANDMEMBER none",
            "ZSCAN a (x|-|)", "ZSCAN k[0-2] 0 (FOO|COUNT|COUNT 0|COUNT x|MATCH)", "SCAN 0 COUNT 9999 TYPE (zset|ZSET)",
            "OBJECT ENCODING k[0-2]", "TYPE k[0-2]", "ZREM a", "ZSCORE a", "ZMSCORE a", "ZINCRBY k[0-2] x m1",
            "COPY k[0-2] k[3-5]( REPLACE)?", "RENAME k[0-2] k[3-5]", "DEL k[0-2]",
        ]),
    ]
}

fn words_of(lines: &'static [&'static str]) -> impl Strategy<Value = Command> {
    proptest::sample::select(lines).prop_map(|line| {
        line.split(' ')
            .filter(|word| !word.is_empty())
            .map(|word| word.as_bytes().to_vec())
            .collect()
    })
}

fn options() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => Just(Vec::new()),
        4 => vec(name(&["NX", "XX", "GT", "LT", "CH", "ch"]), 1..3),
    ]
}

/// One of a few members, seldom a long or a strange one.
fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (0..9u8).prop_map(|i| format!("m{i}").into_bytes()),
        2 => (0..300u16).prop_map(|i| i.to_string().into_bytes()),
        1 => value(),
    ]
}

fn score() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (-9..9i64).prop_map(|n| n.to_string().into_bytes()),
        1 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
        3 => "-?[1-9]{0,3}\\.[0-9]{1,4}(e-?[0-9]{1,2})?".prop_map(String::into_bytes),
        1 => name(&["inf", "-inf", "+inf", "1e17", "1e16", "-3e18", "5e-324", "1.7976931348623157e308"]),
    ]
}

fn bound() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        5 => score(),
        3 => score().prop_map(|score| [b"(", &score[..]].concat()),
        2 => name(&["-inf", "+inf", "inf"]),
    ]
}

fn index() -> impl Strategy<Value = Vec<u8>> {
    (-12..12i64).prop_map(|n| n.to_string().into_bytes())
}

/// The encoding that Redis would choose, and that stays.
#[test]
fn a_sorted_set_becomes_a_skiplist_when_it_does_in_redis() {
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
        "CONFIG GET zset-max-listpack-entries",
        "CONFIG GET zset-max-listpack-value",
        "ZADD a 1 x 2.5 y 1e17 z 17 17",
        "ZSCAN a 7 COUNT 1",
        "ZRANGE a 0 -1 WITHSCORES",
        "OBJECT ENCODING a",
        "ZADD a 1 LONG",
        "OBJECT ENCODING a",
        "ZREM a LONG",
        "OBJECT ENCODING a",
        "ZSCAN a 0 COUNT 999 MATCH z",
        "COPY a copy",
        "OBJECT ENCODING copy",
        "RENAME copy renamed",
        "OBJECT ENCODING renamed",
        "ZRANGESTORE b a 0 -1",
        "OBJECT ENCODING b",
        "ZINCRBY c 1 LONG",
        "OBJECT ENCODING c",
        "ZUNIONSTORE d 2 a c",
        "OBJECT ENCODING d",
        "ZREM d LONG",
        "ZUNIONSTORE e 1 d",
        "OBJECT ENCODING e",
        "ZADD e XX 1 LONG",
        "OBJECT ENCODING e",
        "CONFIG SET zset-max-ziplist-entries 2 zset-max-listpack-value 3",
        "CONFIG GET zset-max-listpack-entries",
        "ZADD e XX 9 y",
        "OBJECT ENCODING e",
        "ZADD e 9 w",
        "OBJECT ENCODING e",
        "ZADD f 1 a 2 b",
        "OBJECT ENCODING f",
        "ZADD f NX 1 a",
        "OBJECT ENCODING f",
        "ZADD f 1 c",
        "OBJECT ENCODING f",
        "ZADD g 1 four",
        "OBJECT ENCODING g",
        "ZREM g four",
        "EXISTS g",
        "ZADD g 1 a",
        "OBJECT ENCODING g",
    ] {
        both(line);
    }
}

/// Commands on large sorted sets, beside expiry, transactions and other keys. If Redis has an order
/// of its own, the parts of a reply are compared without one.
#[test]
fn commands_on_large_sorted_sets_have_the_replies_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(debugged());
    let mut clients = [address, redis.address].map(Client::connect);
    let mut random = Random::new(11);
    let mut below = |bound: u64| random.below(bound);
    let mut both = |line: &str| {
        let [ours, theirs] = clients.each_mut().map(|client| client.line(line));
        if ours == theirs {
            return;
        }
        let is_unordered = ["ZSCAN", "ZRANDMEMBER"];
        let is_unordered = is_unordered.iter().any(|name| line.starts_with(name));
        let is_same = is_unordered && parts(&ours) == parts(&theirs);
        assert!(
            is_same,
            "another reply to {line:.60}: {ours:.300?} {theirs:.300?}"
        );
    };
    for round in 0..3000 {
        let key = format!("large{}", below(3));
        let other = format!("large{}", below(4));
        let mut pairs = |many: u64| {
            let mut line = String::new();
            for _ in 0..1 + below(many) {
                let score = below(400) as f64 / 8.0;
                line += &format!(" {score} member{}", below(400));
            }
            line
        };
        let (some, many) = (pairs(4), pairs(120));
        let member = format!("member{}", below(400));
        let (low, high) = (below(50), below(50));
        let (first, last) = (below(300), below(400));
        match below(40) {
            0..8 => both(&format!("ZADD {key}{some}")),
            8..12 => both(&format!("ZADD {key}{many}")),
            12 => both(&format!("ZADD {key} GT CH{some}")),
            13..16 => both(&format!("ZREM {key} {member} member{first} member{last}")),
            16 => both(&format!("ZINCRBY {key} 1.5 {member}")),
            17 => both(&format!("ZSCORE {key} {member}")),
            18 => both(&format!("ZRANK {key} {member}")),
            19 => both(&format!("ZREVRANK {key} {member}")),
            20 => both(&format!("ZCOUNT {key} {low} ({high}")),
            21 => both(&format!(
                "ZRANGE {key} {low} {high} BYSCORE WITHSCORES LIMIT 3 20"
            )),
            22 => both(&format!("ZRANGE {key} {high} {low} BYSCORE REV LIMIT 1 9")),
            23 => both(&format!("ZRANGE {key} {first} {last} WITHSCORES")),
            24 => both(&format!("ZREVRANGE {key} {first} {last}")),
            25 => both(&format!("ZREMRANGEBYSCORE {key} {low} {}", low + 2)),
            26 => both(&format!("ZREMRANGEBYRANK {key} {first} {}", first + 9)),
            27 => both(&format!("ZPOPMIN {key} {}", below(9))),
            28 => both(&format!("ZPOPMAX {key}")),
            29 => both(&format!("ZUNIONSTORE {key} 2 {key} {other} WEIGHTS 1 0.5")),
            30 => both(&format!("ZINTER 2 {key} {other} WITHSCORES")),
            31 => both(&format!("ZRANGESTORE {other} {key} 10 300")),
            32 => both(&format!("ZSCAN {key} 0 COUNT 999999")),
            33 => both(&format!("ZRANDMEMBER {key} 999999 WITHSCORES")),
            34 => both(&format!("COPY {key} {other} REPLACE")),
            35 => both(&format!("RENAME {key} {other}")),
            36 => both(&format!("OBJECT ENCODING {key}")),
            37 => {
                for line in [
                    "MULTI".into(),
                    format!("ZADD {key}{some}"),
                    format!("ZRANK {key} {member}"),
                    format!("ZREM {key} {member}"),
                    format!("ZADD {key}{many}"),
                    format!("ZCARD {key}"),
                    format!("COPY {key} {other} REPLACE"),
                    "EXEC".to_owned(),
                ] {
                    both(&line);
                }
            }
            38 if below(4) == 0 => both(&format!("DEL {key}")),
            _ => both(&format!("ZCARD {key}")),
        }
        if round % 1000 == 999 {
            both("DBSIZE");
        }
    }
}
