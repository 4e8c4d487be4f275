//! `BITFIELD`, `BITFIELD_RO key [GET | SET | INCRBY | OVERFLOW ...] ...`: integers of any width
//! within a value.

use std::borrow::Cow;
use std::ops::Range;

use super::field::{Field, Overflow};
use super::span::bytes_of;
use crate::command::*;
use crate::resp::{Arguments, Reply};
use mneme_log::{Decision, Patch, Updated};

pub(super) static BITFIELD: Command = Command {
    name: "bitfield",
    summary: "Reads and changes integers of any width within the value of a key",
    since: "3.2.0",
    complexity: "As of SETRANGE, of all bytes from the first to the last that it looks at, where these lie within 1 MiB; otherwise O(N) where N is the length of the value, which is stored anew if it changes",
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[KeySpec::first(&[
        KeyFlag::ReadWrite,
        KeyFlag::Access,
        KeyFlag::Update,
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
    key_flags: Some(key_flags),
    run: |call| {
        let operations = operations(call)?;
        execute(call, &operations)
    },
    ..BOTH
};

/// Like Redis, assumes the worst of arguments that are no operation.
fn key_flags(args: &Arguments<'_>) -> &'static [KeyFlag] {
    let is = |index, word: &str| args.at(index).eq_ignore_ascii_case(word.as_bytes());
    let mut index = 2;
    while index < args.len() {
        let following = args.len() - index - 1;
        if is(index, "GET") && following >= 2 {
            index += 3;
        } else if is(index, "OVERFLOW") && following >= 1 {
            index += 2;
        } else {
            return &[KeyFlag::ReadWrite, KeyFlag::Access, KeyFlag::Update];
        }
    }
    &[KeyFlag::ReadOnly, KeyFlag::Access]
}

pub(super) static BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    summary: "Reads integers of any width within the value of a key",
    since: "6.0.0",
    complexity: "O(N) where N is the number of bytes from the first to the last that it looks at, up to 1 MiB; O(1) for each operation beyond, and the next change of a part of a long value copies the value",
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
    arity: -2,
    ..Command::BITMAP
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

/// One of the operations; each has one element of the reply.
struct Operation {
    field: Field,
    /// The offset of its first bit.
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

    /// The bytes of a value that contain the field.
    fn bytes(&self) -> Range<usize> {
        bytes_of(&(self.offset..self.offset + self.field.width() as usize))
    }

    /// Performs it on `part`, the value's bytes from `first` on, which must be long enough for a
    /// write. Returns the element of the reply, or `None` if nothing was done.
    fn carry_out(&self, part: &mut Cow<'_, [u8]>, first: usize) -> Option<i64> {
        let offset = self.offset - first * 8;
        let old = self.field.read(part, offset);
        let (new, answer) = match self.action {
            Action::Get => return Some(old),
            Action::Set(new) => (self.field.fit(new, self.overflow)?, old),
            Action::Add(increment) => {
                let new = self.field.add(old, increment, self.overflow)?;
                (new, new)
            }
        };
        if new != old {
            self.field.write(part.to_mut(), offset, new);
        }
        Some(answer)
    }
}

/// Operations whose offsets lie within this many bytes also read the bytes in between. That part is
/// copied if the value may be patched in place; copying costs less than the next change of such a
/// value after a reader has seen all of it.
const NEAR: usize = 1 << 20;

fn execute(call: &mut Call<'_>, operations: &[Operation]) -> Outcome {
    // All bytes that they read, in one range.
    let places = || operations.iter().map(Operation::bytes);
    let first = places().map(|bytes| bytes.start).min().unwrap_or(0);
    let behind = places().map(|bytes| bytes.end).max().unwrap_or(0);
    let piece = first..behind;
    let writes = operations.iter().filter(|operation| operation.is_write());
    match writes.map(|write| write.bytes().end).max() {
        None if piece.len() <= NEAR => look(call, operations, piece),
        None => look_far(call, operations),
        Some(end) if piece.len() <= NEAR => change(call, operations, piece, end),
        Some(end) => change_far(call, operations, end),
    }
}

/// Performs operations that only read, all within `piece`.
fn look(call: &mut Call<'_>, operations: &[Operation], piece: Range<usize>) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    call.keyspace.read_part(
        key,
        |_| piece.clone(),
        |part| {
            let part = part.map_or(&[][..], |part| part.bytes);
            carry_out(operations, &mut part.into(), piece.start, reply);
        },
    )
}

/// Performs reads at arbitrary offsets, in place.
fn look_far(call: &mut Call<'_>, operations: &[Operation]) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    call.keyspace.read(key, |value| {
        carry_out(operations, &mut value.unwrap_or_default().into(), 0, reply);
    })
}

/// Performs operations within `piece`; those that write reach to `end`.
fn change(
    call: &mut Call<'_>,
    operations: &[Operation],
    piece: Range<usize>,
    end: usize,
) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let (first, position) = (piece.start, reply.position());
    let range = |_| piece.clone();
    let updated = call.keyspace.update_part(key, range, |old| {
        let (old, len) = old.map_or((&[][..], 0), |old| (old.bytes, old.len));
        let mut part = Cow::Borrowed(old);
        if len < end {
            part.to_mut().resize(end - first, 0);
        }
        reply.truncate(position);
        carry_out(operations, &mut part, first, reply);
        match part {
            Cow::Borrowed(_) => Patch::Keep,
            Cow::Owned(bytes) => Patch::Write {
                at: first,
                bytes: bytes.into(),
            },
        }
    })?;
    if !matches!(updated, Updated::Kept | Updated::Absent) {
        call.keyspace.notify(EventClass::String, "setbit", key);
    }
    Ok(())
}

/// Performs writes at arbitrary offsets: only one patch is possible at a time, so the whole value
/// is stored again.
fn change_far(call: &mut Call<'_>, operations: &[Operation], end: usize) -> Outcome {
    let (key, reply) = (call.args.at(1), &mut call.reply);
    let position = reply.position();
    let updated = call.keyspace.update(key, |old| {
        let old = old.map_or(&[][..], |old| old.value);
        let mut value = Cow::Borrowed(old);
        if old.len() < end {
            // Memory for a long tail of zeros is allocated only after the store has found that it
            // has free space.
            let mut longer = vec![0; end];
            longer[..old.len()].copy_from_slice(old);
            value = longer.into();
        }
        reply.truncate(position);
        carry_out(operations, &mut value, 0, reply);
        match value {
            Cow::Borrowed(_) => Decision::Keep,
            Cow::Owned(value) => Decision::Replace(value),
        }
    })?;
    if !matches!(updated, Updated::Kept | Updated::Absent) {
        call.keyspace.notify(EventClass::String, "setbit", key);
    }
    Ok(())
}

fn carry_out(
    operations: &[Operation],
    part: &mut Cow<'_, [u8]>,
    first: usize,
    reply: &mut Reply<'_>,
) {
    reply.array(operations.len());
    for operation in operations {
        match operation.carry_out(part, first) {
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
