//! Commands for bits.

use crate::generate::{Command, key, line, name, of_a_key, position, words};
use proptest::collection::vec;
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => setbit(),
        2 => (key(), offset()).prop_map(|(key, offset)| vec![b"GETBIT".to_vec(), key, offset]),
        1 => (key(), vec(proptest::sample::select(&[0, 0xff, 0xf0, 1][..]), 0..40))
            .prop_map(|(key, value)| vec![b"SET".to_vec(), key, value]),
        1 => of_a_key(&["BITCOUNT", "BITFIELD", "BITFIELD_RO"]),
        4 => bitcount(),
        4 => bitpos(),
        3 => bitop(),
        6 => bitfield(),
        2 => line(&[
            "SETBIT a 1", "SETBIT a (x|-1|1) (2|x|-1)", "SETBIT a (4294967296|1) (2|1)", "GETBIT a (4294967296|4294967295|x)",
            "BITCOUNT none (x|1)( x)?( y)?", "BITPOS none (2|x|0|1) (x|1)", "BITPOS a 1 1 1 (bit|byte|x)( 1)?",
            "BITOP (NOT|AND|foo) a", "BITOP NOT a b c", "BITFIELD (a|none) GET", "BITFIELD a GET u8 0 SET u8 0",
        ]),
    ]
}

/// An offset of a bit; seldom something else.
fn offset() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => (0..200i64).prop_map(|offset| offset.to_string().into_bytes()),
        2 => (0..300_000i64).prop_map(|offset| offset.to_string().into_bytes()),
        1 => proptest::sample::select(&["-1", "x", "4294967296", "9223372036854775807", ""][..])
            .prop_map(|text| text.into()),
    ]
}

fn setbit() -> impl Strategy<Value = Command> {
    let bit = proptest::sample::select(&["0", "1", "1", "1", "1", "2", "x"][..]);
    (key(), offset(), bit)
        .prop_map(|(key, offset, bit)| vec![b"SETBIT".to_vec(), key, offset, bit.into()])
}

fn unit() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&["", "", "BYTE", "BIT", "bit", "BIT", "foo"][..])
}

fn bitcount() -> impl Strategy<Value = Command> {
    (key(), position(), position(), unit()).prop_map(|(key, start, end, unit)| {
        let mut command = vec![b"BITCOUNT".to_vec(), key, start, end];
        command.extend((!unit.is_empty()).then(|| unit.into()));
        command
    })
}

fn bitpos() -> impl Strategy<Value = Command> {
    let bit = proptest::sample::select(&["0", "1", "0", "1", "0", "1", "2", "x"][..]);
    (key(), bit, vec(position(), 0..3), unit()).prop_map(|(key, bit, ends, unit)| {
        let is_whole = ends.len() == 2 && !unit.is_empty();
        let mut command = vec![b"BITPOS".to_vec(), key, bit.into()];
        command.extend(ends);
        command.extend(is_whole.then(|| unit.into()));
        command
    })
}

fn bitop() -> impl Strategy<Value = Command> {
    let operation = name(&["AND", "OR", "XOR", "xor", "NOT"]);
    (operation, key(), vec(key(), 1..6)).prop_map(|(operation, target, mut sources)| {
        if operation == b"NOT" {
            sources.truncate(1);
        }
        [vec![b"BITOP".to_vec(), operation, target], sources].concat()
    })
}

fn bitfield() -> impl Strategy<Value = Command> {
    let field = prop_oneof![
        12 => (any::<bool>(), 1..=63u8).prop_map(|(signed, width)| format!("{}{width}", if signed { 'i' } else { 'u' })),
        6 => proptest::sample::select(&["u8", "i8", "u1", "i1", "i64", "u63"][..]).prop_map(str::to_owned),
        1 => proptest::sample::select(&["u64", "i65", "i0", "8", "I8", "u"][..]).prop_map(str::to_owned),
    ];
    let offset = prop_oneof![
        12 => (0..200u32).prop_map(|offset| offset.to_string()),
        6 => (0..20u32).prop_map(|offset| format!("#{offset}")),
        1 => proptest::sample::select(&["-1", "#-1", "#", "x", "4294967296", "#4294967296", "100000"][..]).prop_map(str::to_owned),
    ];
    let integer = prop_oneof![
        8 => (-300..300i64).prop_map(|integer| integer.to_string()),
        4 => any::<i64>().prop_map(|integer| integer.to_string()),
        2 => proptest::sample::select(&[i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1][..]).prop_map(|integer| integer.to_string()),
        1 => Just("x".to_owned()),
    ];
    let operation =
        (0..16u8, field, offset, integer).prop_map(|(kind, field, offset, integer)| match kind {
            0..4 => format!("GET {field} {offset}"),
            4..8 => format!("SET {field} {offset} {integer}"),
            8..12 => format!("INCRBY {field} {offset} {integer}"),
            12 => "OVERFLOW WRAP".to_owned(),
            13 => "OVERFLOW sat".to_owned(),
            14 => "overflow FAIL".to_owned(),
            _ => ["get u8 0", "GET u8", "OVERFLOW foo", "foo"][field.len() % 4].to_owned(),
        });
    (
        name(&["BITFIELD", "BITFIELD", "BITFIELD", "BITFIELD_RO"]),
        key(),
        vec(operation, 1..5),
    )
        .prop_map(|(name, key, operations)| {
            let is_read_only = name == b"BITFIELD_RO" && operations.len() % 4 != 0;
            let operations = operations
                .into_iter()
                .map(|operation| {
                    if is_read_only {
                        operation.replace("SET", "GET")
                    } else {
                        operation
                    }
                })
                .flat_map(|operation| words(&operation));
            [name, key].into_iter().chain(operations).collect()
        })
}
