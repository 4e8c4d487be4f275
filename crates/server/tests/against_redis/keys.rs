//! Keys, whatever their values are.

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
        // Seldom the same twice: which of two equal times is later depends on the milliseconds
        // between the commands.
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
            // A time from now may be later than the same one before, or not: that depends on the
            // milliseconds between.
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
