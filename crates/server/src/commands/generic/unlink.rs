//! `UNLINK key [key ...]`: removes keys and returns how many existed.

use crate::command::*;

pub(super) static UNLINK: Command = Command {
    name: "unlink",
    summary: "Removes keys; their memory is reclaimed in the background, as it always is",
    since: "4.0.0",
    flags: &[Flag::Write, Flag::Fast],
    keys: &[KeySpec::all(&[KeyFlag::Remove, KeyFlag::Delete])],
    run: super::del::remove,
    ..super::del::COUNTED
};
