//! Strings.

use crate::generate::{
    Command, key, line, of_a_key, of_a_key_and_value, of_keys, of_pairs, value, words,
};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => of_a_key(&["GET", "get", "STRLEN", "INCR", "DECR"]),
        6 => of_a_key_and_value(&["SET", "SETNX", "GETSET", "APPEND", "INCRBY", "DECRBY"]),
        2 => set(),
        1 => of_keys(&["MGET"]),
        2 => of_pairs(&["MSET"]),
        1 => line(&["GET", "SET a", "MSET a", "MSET a b c"]),
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
