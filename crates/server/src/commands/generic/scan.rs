//! `SCAN cursor [MATCH pattern] [COUNT n] [TYPE type]`: returns the keys, a few at a time.

use crate::command::*;
use crate::glob::Steps;
use crate::key_types::type_name;
use crate::resp::{Reply, parse_u64};
use mneme_log::Cursor;

pub(super) static SCAN: Command = Command {
    name: "scan",
    summary: "Walks through the keys, a few at a time",
    since: "2.8.0",
    group: Group::Generic,
    complexity: "O(1) a call, O(N) for all N keys",
    arity: -2,
    flags: &[Flag::Readonly],
    categories: &[Category::Keyspace],
    tips: &["nondeterministic_output", "request_policy:special"],
    arguments: &[
        CURSOR,
        PATTERN,
        COUNT,
        Argument::new("type", Kind::String)
            .after("TYPE")
            .since("6.0.0")
            .optional(),
    ],
    reach: Reach::Databases,
    run,
    ..Command::BLANK
};

const CURSOR: Argument = Argument::new("cursor", Kind::Integer);
const PATTERN: Argument = Argument::new("pattern", Kind::Pattern)
    .after("MATCH")
    .optional();
const COUNT: Argument = Argument::new("count", Kind::Integer)
    .after("COUNT")
    .optional();
/// The arguments of the commands that walk through the elements of a value.
pub(crate) const SCAN_ELEMENTS: &[Argument] = &[Argument::key("key"), CURSOR, PATTERN, COUNT];

/// The maximum number of empty steps of the store in one call.
const STEPS: usize = 64;

/// The number of keys requested in one step of the store.
const STEP: usize = 1024;

/// The maximum number of keys that one call examines, and of bytes of the keys that it returns,
/// whatever its `COUNT`. Beyond either, or if matching takes long, it ends with the current step.
const MOST_KEYS: usize = 100_000;
const MOST_BYTES: usize = 1 << 20;

fn run(call: &mut Call<'_>) -> Outcome {
    let cursor = cursor(call.args.at(1)).ok_or(Failure::other("ERR invalid cursor"))?;
    let ScanOptions {
        pattern,
        count,
        of_type,
    } = ScanOptions::of(call, 2, true)?;
    let database = call.keyspace.whole()?;
    let mut cursor = Cursor::from_u64(cursor);
    let count = count.min(MOST_KEYS);
    let (mut keys, mut seen, mut bytes, mut empty) = (Vec::new(), 0, 0, 0);
    let steps = Steps::default();
    // In a sparse database a step of the store may return nothing; the client's round trip costs
    // more than a few steps.
    while empty < STEPS {
        let before = seen;
        cursor = database.scan_kinds(cursor, (count - seen).min(STEP), |key, kind| {
            seen += 1;
            let is_of_type = |name: &[u8]| name.eq_ignore_ascii_case(type_name(kind).as_bytes());
            if of_type.is_none_or(is_of_type)
                && pattern.is_none_or(|pattern| steps.matches(pattern, key))
            {
                bytes += key.len();
                keys.push(key.to_vec());
            }
        })?;
        steps.check()?;
        if seen >= count || bytes >= MOST_BYTES || steps.are_many() || cursor == Cursor::END {
            break;
        }
        empty += usize::from(seen == before);
    }
    let next = if cursor == Cursor::END {
        0
    } else {
        cursor.to_u64()
    };
    reply_step(&mut call.reply, next, keys.len());
    for key in &keys {
        call.reply.bulk(key);
    }
    Ok(())
}

/// Begins the reply of a step: the next cursor, and the number of elements that follow.
pub(crate) fn reply_step(reply: &mut Reply<'_>, next: u64, elements: usize) {
    reply.array(2);
    reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    reply.array(elements);
}

/// The options after the cursor of `SCAN` and related commands.
pub(crate) struct ScanOptions<'a> {
    /// The pattern to match; `None` for all.
    pub pattern: Option<&'a [u8]>,
    /// The number of keys wanted, at least 1.
    pub count: usize,
    /// The type wanted.
    pub of_type: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Parses the options from argument `first` on; `TYPE` only if the command `takes_type`.
    pub fn of(call: &Call<'a>, first: usize, takes_type: bool) -> Result<Self, Failure> {
        let (mut pattern, mut count, mut of_type) = (None, 10, None);
        for option in (first..call.args.len()).step_by(2) {
            if option + 1 >= call.args.len() {
                return Err(Failure::Syntax);
            } else if call.is(option, "MATCH") {
                pattern = Some(call.args.at(option + 1)).filter(|pattern| *pattern != b"*");
            } else if call.is(option, "COUNT") {
                count = call.integer(option + 1)?;
                if count < 1 {
                    return Err(Failure::Syntax);
                }
            } else if takes_type && call.is(option, "TYPE") {
                of_type = Some(call.args.at(option + 1));
            } else {
                return Err(Failure::Syntax);
            }
        }
        Ok(Self {
            pattern,
            count: usize::try_from(count).unwrap_or(usize::MAX),
            of_type,
        })
    }
}

/// Parses a cursor as Redis does, with the permissiveness of C's `strtoul`: a sign, leading zeros,
/// and empty text for the beginning.
pub(crate) fn cursor(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let number = match &digits[zeros..] {
        [] => 0,
        digits => parse_u64(digits)?,
    };
    Some(if is_negative {
        number.wrapping_neg()
    } else {
        number
    })
}
