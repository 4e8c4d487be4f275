//! `LCS key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN]`: the longest common subsequence of
//! two values.

use super::subsequence::{Match, Subsequence};
use crate::client_memory;
use crate::command::*;
use crate::settings::Key;
use mneme_log::ValueKind;

pub(super) static LCS: Command = Command {
    name: "lcs",
    summary: "Finds the longest common subsequence of the values of two keys",
    since: "7.0.0",
    complexity: "O(N*M/64) where N and M are the lengths of the values",
    arity: -3,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first_two(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        Argument::key("key1"),
        Argument::key("key2"),
        Argument::word("len", "LEN").optional(),
        Argument::word("idx", "IDX").optional(),
        Argument::new("len", Kind::Integer)
            .after("MINMATCHLEN")
            .optional(),
        Argument::word("withmatchlen", "WITHMATCHLEN").optional(),
    ],
    run,
    ..Command::STRING
};

#[derive(Default)]
struct Options {
    /// Whether to reply only with the length.
    length: bool,
    /// Whether to reply with the positions of the matches.
    places: bool,
    /// The minimum length of a match; shorter ones are left out.
    shortest: i64,
    with_lengths: bool,
}

fn run(call: &mut Call<'_>) -> Outcome {
    let options = options(call);
    let (first, second) = (call.args.at(1), call.args.at(2));
    let not_strings = |failure| match failure {
        Failure::WrongType => Failure::other("ERR The specified keys must contain string values"),
        failure => failure,
    };
    if options.is_err() {
        // As in Redis, values of another type are refused first.
        for key in [first, second] {
            let read = call.keyspace.read_part(key, |_| 0..0, |_| ());
            read.map_err(not_strings)?;
        }
    }
    let options = options?;
    // Redis's table has four bytes for each pair. This one is much smaller, but a call that would
    // take long is refused all the same; it takes at least a word for each byte of the first value.
    let most = call.server.settings.count(Key::BulkLength) as u128;
    let most_own = client_memory::limit(call.server).unwrap_or(usize::MAX);
    let read = call.keyspace.atomically(|keyspace| {
        let mut len = |key| keyspace.read(key, |value| value.unwrap_or_default().len());
        let (a, b) = (len(first)?, len(second)?);
        let own = Subsequence::bytes_for(a, b).saturating_add(a + b);
        if (a as u128 + 1) * (b as u128 + 1) * 4 > most || own > most_own {
            return Err(Failure::other(
                "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
            ));
        }
        let mut copy = |key| {
            keyspace.read_uncounted(key, ValueKind::STRING, |value| {
                value.unwrap_or_default().to_vec()
            })
        };
        Ok((copy(first)?, copy(second)?))
    });
    let (a, b) = read.map_err(not_strings)?;
    let found = Subsequence::find(&a, &b);
    if options.places {
        let mut matches: Vec<Match> = found.matches().collect();
        matches.retain(|found| found.len as i64 >= options.shortest);
        call.reply.map(2);
        call.reply.bulk(b"matches");
        call.reply.array(matches.len());
        for found in matches {
            call.reply.array(2 + usize::from(options.with_lengths));
            for start in [found.in_a, found.in_b] {
                call.reply.array(2);
                call.reply.integer(start as i64);
                call.reply.integer((start + found.len - 1) as i64);
            }
            if options.with_lengths {
                call.reply.integer(found.len as i64);
            }
        }
        call.reply.bulk(b"len");
        call.reply.integer(found.len() as i64);
    } else if options.length {
        call.reply.integer(found.len() as i64);
    } else {
        call.reply.bulk(&found.bytes());
    }
    Ok(())
}

fn options(call: &Call<'_>) -> Result<Options, Failure> {
    let mut options = Options::default();
    let mut index = 3;
    while index < call.args.len() {
        if call.is(index, "LEN") {
            options.length = true;
        } else if call.is(index, "IDX") {
            options.places = true;
        } else if call.is(index, "WITHMATCHLEN") {
            options.with_lengths = true;
        } else if call.is(index, "MINMATCHLEN") && index + 1 < call.args.len() {
            index += 1;
            options.shortest = call.integer(index)?;
        } else {
            return Err(Failure::Syntax);
        }
        index += 1;
    }
    if options.length && options.places {
        return Err(Failure::other(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}
