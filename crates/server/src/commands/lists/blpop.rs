//! `BLPOP`, `BRPOP key [key ...] timeout`, `BLMPOP timeout numkeys key [key ...] <LEFT | RIGHT>
//! [COUNT count]`: as `LPOP`, `RPOP` and `LMPOP`, but they wait until a list has items.

use super::lmpop::{self, COUNT, KEYS, NUMBER, POPPED, Popped, WHERE};
use crate::command::*;
use mneme_collections::End;

pub(super) static BLPOP: Command = Command {
    name: "blpop",
    summary: "Removes an item from the front of the first list that has some, or waits for one",
    run: |call| pop_one(call, End::Front),
    ..POP
};

pub(super) static BRPOP: Command = Command {
    name: "brpop",
    summary: "Removes an item from the back of the first list that has some, or waits for one",
    run: |call| pop_one(call, End::Back),
    ..POP
};

const POP: Command = Command {
    since: "2.0.0",
    complexity: "O(N) where N is the number of keys",
    arity: -3,
    flags: &[Flag::Write, Flag::NoScript, Flag::Blocking],
    keys: &[KeySpec::all_but_last(POPPED)],
    arguments: &[KEYS, TIMEOUT],
    ..Command::LIST
};

pub(super) static BLMPOP: Command = Command {
    name: "blmpop",
    summary: "Removes items from an end of the first list that has some, or waits for one",
    since: "7.0.0",
    complexity: "O(N+M) where N is the number of keys and M the number of items returned",
    arity: -5,
    flags: &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
    keys: &[KeySpec::counted(2, POPPED)],
    arguments: &[TIMEOUT, NUMBER, KEYS, WHERE, COUNT],
    run: |call| {
        let popped = lmpop::parse(call, 2)?;
        let timeout_ms = call.timeout_ms(1)?;
        pop(call, &popped, timeout_ms)
    },
    ..Command::LIST
};

pub(super) const TIMEOUT: Argument = Argument::new("timeout", Kind::Double);

fn pop_one(call: &mut Call<'_>, end: End) -> Outcome {
    let last = call.args.len() - 1;
    let timeout_ms = call.timeout_ms(last)?;
    let popped = Popped {
        keys: (1..last).map(|key| call.args.at(key)).collect(),
        end,
        count: None,
    };
    pop(call, &popped, timeout_ms)
}

fn pop(call: &mut Call<'_>, popped: &Popped<'_>, timeout_ms: u64) -> Outcome {
    let keys = popped.keys.iter().copied();
    let keys: Vec<_> = keys.filter(|key| !call.is_preceded(key)).collect();
    if lmpop::pop(call, popped, &keys)? {
        return Ok(());
    }
    call.wait_for(popped.keys.iter().copied(), timeout_ms)
}
