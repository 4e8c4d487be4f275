//! `BITOP AND | OR | XOR | NOT destkey key [key ...]`: combines values bit by bit.

use crate::command::*;
use mneme_log::Expiry;

pub(super) static BITOP: Command = Command {
    name: "bitop",
    summary: "Combines the values of several keys bit by bit and stores the result",
    since: "2.6.0",
    complexity: "O(N) where N is the length of the values together",
    arity: -4,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: &[
        KeySpec::second(&[KeyFlag::Overwrite, KeyFlag::Update]),
        KeySpec::all_from(3, &[KeyFlag::ReadOnly, KeyFlag::Access]),
    ],
    arguments: &[
        Argument::new("operation", Kind::String),
        Argument::key("destkey"),
        Argument::key_of("key", 1).multiple(),
    ],
    run,
    ..Command::BITMAP
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

fn run(call: &mut Call<'_>) -> Outcome {
    let operation = operation(call)?;
    let (target, sources) = (call.args.at(2), call.args.from(3));
    if operation == Operation::Not && sources.len() != 1 {
        return Err(Failure::other(
            "ERR BITOP NOT must be called with a single source key.",
        ));
    }
    let database = call.keyspace.number();
    let keys = sources.iter().chain([target]);
    let keys: Vec<_> = keys.map(|key| (database, key)).collect();
    let len = call.keyspace.atomically_on(&keys, |keyspace| {
        let mut result = Vec::new();
        for (index, source) in sources.iter().enumerate() {
            keyspace.read(source, |value| {
                let value = value.unwrap_or_default();
                if index == 0 {
                    result.extend_from_slice(value);
                } else {
                    operation.combine(&mut result, value);
                }
            })?;
        }
        if operation == Operation::Not {
            result.iter_mut().for_each(|byte| *byte = !*byte);
        }
        if result.is_empty() {
            if keyspace.remove(target)? {
                keyspace.notify(EventClass::Generic, "del", target);
            }
        } else {
            keyspace.put(target, &result, Expiry::Never)?;
            keyspace.notify(EventClass::String, "set", target);
        }
        Ok(result.len())
    })?;
    call.reply.integer(len as i64);
    Ok(())
}

fn operation(call: &Call<'_>) -> Result<Operation, Failure> {
    [
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
    ]
    .into_iter()
    .find_map(|(word, operation)| call.is(1, word).then_some(operation))
    .ok_or(Failure::Syntax)
}

impl Operation {
    /// Combines `result` with `value`. The shorter of the two is extended by zeros.
    fn combine(self, result: &mut Vec<u8>, value: &[u8]) {
        if result.len() < value.len() {
            result.resize(value.len(), 0);
        }
        let (both, behind) = result.split_at_mut(value.len());
        // The compiler vectorises this loop.
        let pairs = both.iter_mut().zip(value);
        match self {
            Self::And => {
                pairs.for_each(|(result, byte)| *result &= byte);
                behind.fill(0);
            }
            Self::Or => pairs.for_each(|(result, byte)| *result |= byte),
            Self::Xor => pairs.for_each(|(result, byte)| *result ^= byte),
            Self::Not => {}
        }
    }
}
