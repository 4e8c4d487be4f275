//! The parts of random commands.

use proptest::collection::vec;
use proptest::prelude::*;

pub type Command = Vec<Vec<u8>>;

/// The words of a line.
pub fn words(line: &str) -> Command {
    line.split(' ')
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

/// One of a few keys; seldom an unusual one.
pub fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (0..6u8).prop_map(|i| format!("k{i}").into_bytes()),
        1 => Just(Vec::new()),
        1 => vec(any::<u8>(), 1..5),
    ]
}

/// A value: often a number; seldom a long one.
pub fn value() -> impl Strategy<Value = Vec<u8>> {
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

/// A position in a value: often near one of its ends, seldom outside.
pub fn position() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (-40..40i64).prop_map(|n| n.to_string().into_bytes()),
        3 => (-40_000..40_000i64).prop_map(|n| n.to_string().into_bytes()),
        1 => proptest::sample::select(&["9223372036854775807", "-9223372036854775808", "-0", "x", ""][..])
            .prop_map(|text| text.into()),
    ]
}

/// One of `names`.
pub fn name(names: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    proptest::sample::select(names).prop_map(|name| name.as_bytes().to_vec())
}

/// A name of `names`, then a key.
pub fn of_a_key(names: &'static [&'static str]) -> impl Strategy<Value = Command> {
    (name(names), key()).prop_map(|(name, key)| vec![name, key])
}

/// A name of `names`, then a key and a value.
pub fn of_a_key_and_value(names: &'static [&'static str]) -> impl Strategy<Value = Command> {
    (name(names), key(), value()).prop_map(|(name, key, value)| vec![name, key, value])
}

/// A name of `names`, then keys.
pub fn of_keys(names: &'static [&'static str]) -> impl Strategy<Value = Command> {
    (name(names), vec(key(), 1..80)).prop_map(|(name, keys)| [vec![name], keys].concat())
}

/// A name of `names`, then keys and values, alternating.
pub fn of_pairs(names: &'static [&'static str]) -> impl Strategy<Value = Command> {
    (name(names), vec((key(), value()), 1..5)).prop_map(|(name, pairs)| {
        let pairs = pairs.into_iter().flat_map(|(key, value)| [key, value]);
        std::iter::once(name).chain(pairs).collect()
    })
}

/// A line that matches one of these regular expressions.
pub fn line(patterns: &'static [&'static str]) -> impl Strategy<Value = Command> {
    proptest::sample::select(patterns)
        .prop_flat_map(|pattern| proptest::string::string_regex(pattern).expect("a pattern"))
        .prop_map(|line| words(&line))
}
