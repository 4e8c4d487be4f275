//! `BITFIELD`, `BITFIELD_RO key [GET | SET | INCRBY | OVERFLOW ...] ...`: integers of any width within a value.

use std::borrow::Cow;

use super::field::{Field, Overflow};
use crate::commands::extend::extended;
use crate::commands::prelude::*;
use crate::resp::Reply;
use mneme_log::Decision;

pub(super) static BITFIELD: Command = Command {
    name: "bitfield",
    summary: "Reads and changes integers of any width within the value of a key",
    since: "3.2.0",
    complexity: "O(1) for each operation where nothing changes; else O(N) once where N is the length of the value: it is stored in one piece",
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Update,
        KeyFlag::Access,
        KeyFlag::VariableFlags,
    ])
    .with_notes("This command allows both access and modification of the key")],
    arguments: &[
        Argument::key("key"),
        Argument::one_of(
            "operation",
            &[
                Argument::block("encoding_offset", PLACE).after("GET"),
                Argument::block("write", &[OVERFLOW, WRITE]),
            ],
        )
        .optional()
        .multiple(),
    ],
    run: |call| {
        let operations = operations(call)?;
        execute(call, &operations)
    },
    ..BOTH
};

pub(super) static BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    summary: "Reads integers of any width within the value of a key",
    since: "6.0.0",
    complexity: "O(1) for each operation",
    flags: &[Flag::Readonly, Flag::Fast],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key"),
        Argument::block("encoding_offset", PLACE)
            .after("GET")
            .optional()
            .multiple_with_token(),
    ],
    run: |call| {
        let operations = operations(call)?;
        if operations.iter().any(Operation::is_write) {
            return Err(Failure::other(
                "ERR BITFIELD_RO only supports the GET subcommand",
            ));
        }
        execute(call, &operations)
    },
    ..BOTH
};

const BOTH: Command = Command {
    group: Group::Bitmap,
    arity: -2,
    categories: &[Category::Bitmap],
    ..Command::BLANK
};

const PLACE: &[Argument] = &[
    Argument::new("encoding", Kind::String),
    Argument::new("offset", Kind::Integer),
];

const OVERFLOW: Argument = Argument::one_of(
    "wrap_sat_fail",
    &[
        Argument::word("wrap", "WRAP"),
        Argument::word("sat", "SAT"),
        Argument::word("fail", "FAIL"),
    ],
)
.after("OVERFLOW")
.optional();

const WRITE: Argument = Argument::one_of(
    "write_operation",
    &[
        Argument::block(
            "encoding_offset_value",
            &[
                Argument::new("encoding", Kind::String),
                Argument::new("offset", Kind::Integer),
                Argument::new("value", Kind::Integer),
            ],
        )
        .after("SET"),
        Argument::block(
            "encoding_offset_increment",
            &[
                Argument::new("encoding", Kind::String),
                Argument::new("offset", Kind::Integer),
                Argument::new("increment", Kind::Integer),
            ],
        )
        .after("INCRBY"),
    ],
);

/// One of the things to do, each answered by an element of the reply.
struct Operation {
    field: Field,
    /// Of its first bit.
    offset: usize,
    action: Action,
    overflow: Overflow,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

impl Operation {
    fn is_write(&self) -> bool {
        !matches!(self.action, Action::Get)
    }

    /// Bytes of a value that has room for the field.
    fn end(&self) -> usize {
        (self.offset + self.field.width() as usize).div_ceil(8)
    }

    /// Carries it out on `value`, which is long enough if this is a write: the answer, or `None` if nothing has been
    /// done.
    fn carry_out(&self, value: &mut Cow<'_, [u8]>) -> Option<i64> {
        let old = self.field.read(value, self.offset);
        let (new, answer) = match self.action {
            Action::Get => return Some(old),
            Action::Set(new) => (self.field.fit(new, self.overflow)?, old),
            Action::Add(increment) => {
                let new = self.field.add(old, increment, self.overflow)?;
                (new, new)
            }
        };
        if new != old {
            self.field.write(value.to_mut(), self.offset, new);
        }
        Some(answer)
    }
}

fn execute(call: &mut Call<'_>, operations: &[Operation]) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let writes = operations.iter().filter(|operation| operation.is_write());
    let Some(end) = writes.map(Operation::end).max() else {
        return call.keyspace.read(key, |value| {
            carry_out(operations, &mut value.unwrap_or_default().into(), reply);
        });
    };
    let position = reply.position();
    call.keyspace.update(key, |old| {
        let old = old.map_or(&b""[..], |old| old.value);
        let mut value = Cow::Borrowed(old);
        if old.len() < end {
            value = Cow::Owned(extended(old, end));
        }
        reply.truncate(position);
        carry_out(operations, &mut value, reply);
        match value {
            Cow::Borrowed(_) => Decision::Keep,
            Cow::Owned(value) => Decision::Replace(value),
        }
    })?;
    Ok(())
}

fn carry_out(operations: &[Operation], value: &mut Cow<'_, [u8]>, reply: &mut Reply<'_>) {
    reply.array(operations.len());
    for operation in operations {
        match operation.carry_out(value) {
            Some(answer) => reply.integer(answer),
            None => reply.null(),
        }
    }
}

fn operations(call: &Call<'_>) -> Result<Vec<Operation>, Failure> {
    let (mut operations, mut overflow) = (Vec::new(), Overflow::Wrap);
    let mut index = 2;
    while index < call.args.len() {
        let following = call.args.len() - index - 1;
        let is = |word, arguments| call.is(index, word) && following >= arguments;
        if is("OVERFLOW", 1) {
            overflow = parse_overflow(call, index + 1)?;
            index += 2;
            continue;
        }
        let arguments = if is("GET", 2) {
            2
        } else if is("SET", 3) || is("INCRBY", 3) {
            3
        } else {
            return Err(Failure::Syntax);
        };
        let field = Field::parse(call.args.at(index + 1)).ok_or(Failure::other(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
        ))?;
        let offset = match call.args.at(index + 2) {
            [b'#', number @ ..] => call.scaled_bit_offset(number, field.width())?,
            number => call.scaled_bit_offset(number, 1)?,
        };
        let action = if is("GET", 2) {
            Action::Get
        } else if is("SET", 3) {
            Action::Set(call.integer(index + 3)?)
        } else {
            Action::Add(call.integer(index + 3)?)
        };
        operations.push(Operation {
            field,
            offset,
            action,
            overflow,
        });
        index += 1 + arguments;
    }
    Ok(operations)
}

fn parse_overflow(call: &Call<'_>, index: usize) -> Result<Overflow, Failure> {
    [
        ("WRAP", Overflow::Wrap),
        ("SAT", Overflow::Saturate),
        ("FAIL", Overflow::Fail),
    ]
    .into_iter()
    .find_map(|(word, overflow)| call.is(index, word).then_some(overflow))
    .ok_or(Failure::other("ERR Invalid OVERFLOW type specified"))
}
