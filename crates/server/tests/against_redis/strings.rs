//! Commands for strings.

use crate::generate::{
    Command, key, line, name, of_a_key, of_a_key_and_value, of_keys, of_pairs, position, value,
    words,
};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => of_a_key(&["GET", "get", "STRLEN", "INCR", "DECR", "GETDEL"]),
        6 => of_a_key_and_value(&["SET", "SETNX", "GETSET", "APPEND", "INCRBY", "DECRBY"]),
        2 => set(),
        1 => setex(),
        2 => getex(),
        2 => range(),
        2 => setrange(),
        3 => (key(), float()).prop_map(|(key, number)| vec![b"INCRBYFLOAT".to_vec(), key, number]),
        1 => (name(&["SET"]), key(), float()).prop_map(|(name, key, number)| vec![name, key, number]),
        2 => (key(), "[ab]{0,80}").prop_map(|(key, text)| vec![b"SET".to_vec(), key, text.into()]),
        2 => lcs(),
        1 => of_keys(&["MGET"]),
        2 => of_pairs(&["MSET", "MSETNX"]),
        1 => line(&[
            "GET", "SET a", "(MSET|MSETNX|msetnx) a( b c)?", "SETEX a 10", "GETRANGE a 1", "SETRANGE a 1",
            "SETRANGE none 5 ", "SETRANGE none (x|-1|536870913) ", "GETEX none EX x",
        ]),
    ]
}

fn set() -> impl Strategy<Value = Command> {
    let option = proptest::sample::select(
        &[
            "NX",
            "XX",
            "GET",
            "KEEPTTL",
            "nx",
            "EX",
            "PX 0",
            "foo",
            "EX x",
            "EX 1000",
            "PX 9000000",
            "EXAT 99999999999",
            "PXAT 99999999999999",
            "EX 9223372036854775807",
            "PX 9223372036854775807",
        ][..],
    );
    (key(), value(), vec(option, 0..4)).prop_map(|(key, value, options)| {
        let options = options.into_iter().flat_map(words);
        [b"SET".to_vec(), key, value]
            .into_iter()
            .chain(options)
            .collect()
    })
}

fn setex() -> impl Strategy<Value = Command> {
    let time = proptest::sample::select(
        &[
            "1000000",
            "100000000",
            "0",
            "-1",
            "x",
            "9223372036854775807",
            "9223372036854775",
        ][..],
    );
    (name(&["SETEX", "PSETEX"]), key(), time, value())
        .prop_map(|(name, key, time, value)| vec![name, key, time.into(), value])
}

fn getex() -> impl Strategy<Value = Command> {
    let option = proptest::sample::select(
        &[
            "PERSIST",
            "persist",
            "EX 1000",
            "PX 9000000",
            "ex 10000",
            "EXAT 99999999999",
            "PXAT 99999999999999",
            "EXAT 1",
            "PXAT 1000",
            "EX 0",
            "PX -1",
            "EX x",
            "EX",
            "KEEPTTL",
            "NX",
            "EX 9223372036854775807",
        ][..],
    );
    (key(), vec(option, 0..3)).prop_map(|(key, options)| {
        let options = options.into_iter().flat_map(words);
        [b"GETEX".to_vec(), key]
            .into_iter()
            .chain(options)
            .collect()
    })
}

fn range() -> impl Strategy<Value = Command> {
    (name(&["GETRANGE", "SUBSTR"]), key(), position(), position())
        .prop_map(|(name, key, start, end)| vec![name, key, start, end])
}

fn setrange() -> impl Strategy<Value = Command> {
    let offset = prop_oneof![
        8 => 0..50i64,
        2 => 0..40_000i64,
        1 => -2..0i64,
        1 => proptest::sample::select(&[i64::MAX, i64::MIN, 512 << 20, (512 << 20) + 1][..]),
    ];
    (key(), offset, value()).prop_map(|(key, offset, value)| {
        vec![
            b"SETRANGE".to_vec(),
            key,
            offset.to_string().into_bytes(),
            value,
        ]
    })
}

/// A number, or something similar to one.
fn float() -> impl Strategy<Value = Vec<u8>> {
    let decimal = "[+-]?[0-9]{0,20}[.]?[0-9]{0,20}";
    let text = prop_oneof![
        6 => "-?[0-9]{1,3}[.][0-9]{1,3}",
        4 => decimal,
        2 => (decimal, -40..40i32).prop_map(|(digits, power)| format!("{digits}e{power}")),
        1 => (decimal, -5_100..5_100i32).prop_map(|(digits, power)| format!("{digits}E{power}")),
        1 => "[+-]?0[xX][0-9a-fA-F]{0,20}[.]?[0-9a-f]{0,20}([pP][+-]?[0-9]{1,2})?",
        1 => proptest::sample::select(
            &[
                "inf", "-INF", "+Infinity", "nan", "", " 1", "1 ", "1e", ".", "1.1897314953572317650e4932",
                "-1.1897314953572317650e4932", "1e4932", "3.6e-4951", "0x", "9223372036854775807", "0.00000000000000001",
                "0.000000000000000005", "0.000000000000000015", "18446744073709551617", "-0.0",
            ][..],
        ).prop_map(str::to_owned),
    ];
    text.prop_map(String::into_bytes)
}

fn lcs() -> impl Strategy<Value = Command> {
    let option = proptest::sample::select(
        &[
            "IDX",
            "IDX",
            "LEN",
            "WITHMATCHLEN",
            "MINMATCHLEN 3",
            "minmatchlen -1",
            "MINMATCHLEN x",
            "MINMATCHLEN",
            "foo",
        ][..],
    );
    (key(), key(), vec(option, 0..4)).prop_map(|(first, second, options)| {
        let options = options.into_iter().flat_map(words);
        [b"LCS".to_vec(), first, second]
            .into_iter()
            .chain(options)
            .collect()
    })
}
