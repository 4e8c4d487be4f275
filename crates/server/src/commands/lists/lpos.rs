//! `LPOS key element [RANK rank] [COUNT num-matches] [MAXLEN len]`: the index of an item.

use super::list::{ELEMENT, KEY};
use crate::command::*;
use crate::resp::parse_i64;
use mneme_collections::{End, Form, ListType};

pub(super) static LPOS: Command = Command {
    name: "lpos",
    summary: "Returns the indices of the items of a list that equal a value",
    since: "6.0.6",
    arity: -3,
    flags: &[Flag::Readonly],
    keys: &[KeySpec::first(&[KeyFlag::ReadOnly, KeyFlag::Access])],
    arguments: &[
        KEY,
        ELEMENT,
        Argument::new("rank", Kind::Integer)
            .after("RANK")
            .optional(),
        Argument::new("num-matches", Kind::Integer)
            .after("COUNT")
            .optional(),
        Argument::new("len", Kind::Integer)
            .after("MAXLEN")
            .optional(),
    ],
    run,
    ..Command::LIST
};

/// What to search for.
struct Sought {
    from: End,
    /// The number of matches to skip.
    passed: usize,
    /// The number of matches to report; 0: all; `None`: one, which is not replied as an array.
    count: Option<usize>,
    /// The maximum number of items to compare; 0: all.
    most: usize,
}

fn parse(call: &Call<'_>) -> Result<Sought, Failure> {
    let mut sought = Sought {
        from: End::Front,
        passed: 0,
        count: None,
        most: 0,
    };
    let natural = |index: usize, error: &'static str| {
        let number = parse_i64(call.args.at(index));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.ok_or(Failure::other(error))
    };
    for option in (3..call.args.len()).step_by(2) {
        if option + 1 == call.args.len() {
            return Err(Failure::Syntax);
        }
        if call.is(option, "RANK") {
            let rank = call.integer(option + 1)?;
            if rank == 0 {
                return Err(Failure::other(
                    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                     second ... or use negative to start from the end of the list",
                ));
            }
            sought.from = if rank < 0 { End::Back } else { End::Front };
            // As in Redis, the lowest number skips nothing.
            sought.passed = rank.checked_abs().map_or(0, |rank| rank as usize - 1);
        } else if call.is(option, "COUNT") {
            sought.count = Some(natural(option + 1, "ERR COUNT can't be negative")?);
        } else if call.is(option, "MAXLEN") {
            sought.most = natural(option + 1, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(Failure::Syntax);
        }
    }
    Ok(sought)
}

/// Matches so far.
#[derive(Default)]
struct Matches {
    passed: usize,
    indices: Vec<usize>,
}

fn run(call: &mut Call<'_>) -> Outcome {
    let sought = parse(call)?;
    let (key, item) = (call.args.at(1), call.args.at(2));
    let most = match sought.most {
        0 => usize::MAX,
        most => most,
    };
    let wanted = match sought.count {
        Some(0) => usize::MAX,
        Some(count) => count,
        None => 1,
    };
    let take = |found: &mut Matches, index: usize| {
        if found.passed < sought.passed {
            found.passed += 1;
        } else {
            found.indices.push(index);
        }
        found.indices.len() < wanted
    };
    let found = call.keyspace.read_collection::<ListType, _, _>(
        key,
        |mut large| {
            let mut found = Matches::default();
            large.positions(item, sought.from, most, |index| take(&mut found, index))?;
            Ok(found.indices)
        },
        |list| match list {
            Some(Form::Packed(list)) => {
                let mut found = Matches::default();
                list.positions(item, sought.from, most, |index| take(&mut found, index))?;
                Ok(found.indices)
            }
            Some(Form::Large(found)) => Ok(found),
            None => Ok(Vec::new()),
        },
    )?;
    match sought.count {
        Some(_) => {
            call.reply.array(found.len());
            (found.iter()).for_each(|index| call.reply.integer(*index as i64));
        }
        None => match found.first() {
            Some(index) => call.reply.integer(*index as i64),
            None => call.reply.null(),
        },
    }
    Ok(())
}
