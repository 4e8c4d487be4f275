//! Commands for keys of any type.

use crate::common::{Client, Redis, Reply, server, start};
use crate::events_to_the_end;
use crate::generate::{Command, key, line, name, of_a_key, of_keys, words};
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => of_a_key(&["EXISTS", "TYPE", "TOUCH", "DEL", "UNLINK", "TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "PERSIST"]),
        1 => of_keys(&["DEL", "EXISTS", "UNLINK", "TOUCH"]),
        1 => (name(&["FREQ", "freq"]), key()).prop_map(|(kind, key)| vec![b"OBJECT".to_vec(), kind, key]),
        3 => expire(),
        3 => (name(&["RENAME", "RENAMENX", "COPY"]), key(), key()).prop_map(|(name, from, to)| vec![name, from, to]),
        2 => copy(),
        2 => (key(), 0..4u8).prop_map(|(key, database)| vec![b"MOVE".to_vec(), key, database.to_string().into_bytes()]),
        2 => line(&[
            "SWAPDB (0|1|2|15|16|-1|x|) (0|1|3|x|99999999999)", "SWAPDB 0 1", "OBJECT", "OBJECT (FOO|ENCODING)( a b)?",
            "OBJECT (REFCOUNT|IDLETIME|FREQ) absent", "RANDOMKEY a", "TYPE", "TOUCH", "SCAN (-0|\\+0|00|-1|-|\\+|1x|) MATCH none COUNT 9999",
            "SCAN 0 (MATCH|COUNT|TYPE|FOO)( none COUNT)?", "SCAN 0 TYPE (list|nosuch) COUNT 9999", "SCAN 0 COUNT -1", "SCAN",
            "SCAN 18446744073709551616", "SCAN 0 COUNT 9223372036854775808", "KEYS", "KEYS (a|k\\[|k\\[9-5]x)",
            "DBSIZE", "FLUSHDB", "FLUSHALL", "FLUSHALL (SYNC|ASYNC|NOW)", "SCAN x", "SCAN 0 COUNT (0|x)",
            "SCAN 0 MATCH", "KEYS none*", "MOVE a (x|-1|16|15|)", "COPY a a", "COPY a b DB", "COPY a b DB (x|99|-1)",
            "EXPIRE a x", "EXPIRE a 9223372036854775807", "EXPIREAT a -9223372036854775808",
        ]),
    ]
}

fn expire() -> impl Strategy<Value = Command> {
    let time = prop_oneof![
        // Different times, with few exceptions: which of two equal ones is later would depend on
        // the milliseconds between the commands.
        4 => (1_001..900_000i64).prop_map(|time| time * 1_000 + 7),
        2 => (99_000_000..99_999_999i64).prop_map(|time| time * 1_000 + 3),
        1 => -2..1i64,
        1 => proptest::sample::select(&[i64::MAX, i64::MIN, i64::MAX / 1000, i64::MIN / 1000][..]),
    ];
    let options = proptest::sample::select(
        &[
            "", " NX", " XX", " GT", " LT", " gT XX", " NX XX", " GT LT", " foo",
        ][..],
    );
    (
        name(&["EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"]),
        key(),
        time,
        options,
    )
        .prop_map(|(mut name, key, time, options)| {
            // A relative time may or may not be later than an equal one sent before, depending on
            // the milliseconds between.
            if options.contains('T') && !name.ends_with(b"AT") {
                name.extend(b"AT");
            }
            let rest = words(&format!("{time}{options}"));
            [vec![name, key], rest].concat()
        })
}

fn copy() -> impl Strategy<Value = Command> {
    let options = proptest::sample::select(
        &[
            " DB 1",
            " REPLACE",
            " replace DB 0",
            " DB 2 REPLACE",
            " foo",
        ][..],
    );
    (key(), key(), options).prop_map(|(from, to, options)| {
        let rest = words(options.trim());
        [vec![b"COPY".to_vec(), from, to], rest].concat()
    })
}

/// Redis stores such a key; here it never exists.
#[test]
fn a_key_that_is_too_long_to_be_stored_is_absent() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let mut clients = [address, redis.address].map(Client::connect);
    let long = "k".repeat(65_536);
    let mut lines: Vec<&str> = ABSENT.to_vec();
    lines.push("MULTI");
    lines.extend(ABSENT.iter().filter(|line| !line.contains("WATCH")));
    lines.push("EXEC");
    for line in lines {
        let [ours, theirs] = clients.each_mut().map(|client| {
            let words = line.split(' ');
            let words: Vec<&str> = words
                .map(|word| match word {
                    "LONG" => &long,
                    "EMPTY" => "",
                    word => word,
                })
                .collect();
            client.command(&words)
        });
        assert_eq!(ours, theirs, "{line}");
    }
    let mut client = Client::connect(address);
    for line in [
        "SET LONG v",
        "SET LONG v NX",
        "SETNX LONG v",
        "SETEX LONG 10 v",
        "GETSET LONG v",
        "APPEND LONG v",
        "INCR LONG",
        "INCRBYFLOAT LONG 1",
        "SETRANGE LONG 0 v",
        "SETBIT LONG 0 1",
        "BITFIELD LONG SET u8 0 1",
        "BITOP NOT LONG a",
        "MSET a 1 LONG 2",
        "MSETNX b 1 LONG 2",
        "COPY a LONG",
        "RENAME a LONG",
        "RENAMENX a LONG",
    ] {
        client.line("SET a x");
        let refused = client.command(&words(&line.replace("LONG", &long)));
        let expected = "ERR the key has 65536 bytes; at most 65535 are allowed";
        assert_eq!(refused, Reply::Error(expected.into()), "{line}");
        assert_eq!(
            client.line("MGET a b").items()[0],
            Reply::bulk("x"),
            "{line}"
        );
    }
}

/// Commands that find no key LONG, and store nothing.
const ABSENT: &[&str] = &[
    "SET a x",
    "GET LONG",
    "MGET a LONG LONG",
    "EXISTS LONG a LONG",
    "TTL LONG",
    "PTTL LONG",
    "EXPIRETIME LONG",
    "PEXPIRETIME LONG",
    "TYPE LONG",
    "STRLEN LONG",
    "GETRANGE LONG 0 -1",
    "GETBIT LONG 7",
    "BITCOUNT LONG",
    "BITPOS LONG 1",
    "BITFIELD LONG GET u8 0",
    "BITFIELD_RO LONG GET u8 0",
    "LCS LONG a",
    "LCS a LONG LEN",
    "OBJECT ENCODING LONG",
    "OBJECT IDLETIME LONG",
    "MEMORY USAGE LONG",
    "TOUCH LONG a",
    "DEL LONG",
    "UNLINK LONG LONG",
    "GETDEL LONG",
    "GETEX LONG",
    "GETEX LONG EX 100",
    "GETEX LONG PERSIST",
    "EXPIRE LONG 100",
    "EXPIRE LONG -1",
    "PEXPIRE LONG 100 NX",
    "EXPIREAT LONG 99999999999 GT",
    "PEXPIREAT LONG 1 LT",
    "PERSIST LONG",
    "SET LONG v XX",
    "SET LONG v XX GET",
    "SET LONG v XX KEEPTTL",
    "SETRANGE LONG 5 EMPTY",
    "BITOP AND LONG LONG none",
    "COPY LONG b",
    "COPY LONG b REPLACE",
    "RENAME LONG b",
    "RENAME LONG LONG",
    "RENAMENX LONG b",
    "MOVE LONG 1",
    "WATCH LONG",
    "UNWATCH",
    "EXISTS a b",
];

/// Whether the command that reads the key finds that it has expired, or an earlier one.
#[test]
fn events_of_keys_that_expire_are_those_of_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let [ours, theirs] = [address, redis.address].map(|address| {
        let mut client = Client::connect(address);
        let mut listener = Client::connect(address);
        client.line("CONFIG SET notify-keyspace-events KEA");
        listener.line("PSUBSCRIBE __key*");
        for line in ["SET a v PX 5", "SET a w PX 5", "HSET a f v", "PEXPIRE a 5"] {
            client.line(line);
            let has_expiry = line.contains('P');
            while has_expiry && client.line("EXISTS a") != Reply::Integer(0) {
                std::thread::yield_now();
            }
        }
        client.line("PUBLISH __key_end 1");
        events_to_the_end(&mut listener)
    });
    assert_eq!(ours, theirs);
}
