//! `SSCAN key cursor [MATCH pattern] [COUNT n]`: the members of a set, a few at a time. If Redis
//! would keep the value as an intset, all of it is returned at once, as by Redis.

use crate::command::*;
use crate::commands::generic::SCAN_ELEMENTS;
use crate::commands::hashes::scan_elements;
use mneme_collections::SetType;

pub(super) static SSCAN: Command = Command {
    name: "sscan",
    summary: "Walks through the members of a set, a few at a time",
    since: "2.8.0",
    complexity: "O(1) for every call; a small set is looked through",
    arity: -3,
    flags: &[Flag::Readonly],
    tips: &["nondeterministic_output"],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: SCAN_ELEMENTS,
    run: scan_elements::<SetType, 1>,
    ..Command::SET
};
