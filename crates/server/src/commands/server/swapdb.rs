//! `SWAPDB index1 index2`: exchanges two databases, at one instant for all clients.
//!
//! A local program that holds a value of the store delays the exchange. The command waits for it in
//! short attempts, which delay only the clients of its own thread; they are served between
//! attempts.

use std::time::Duration;

use crate::command::*;
use crate::resp::parse_i64;
use crate::settings::Key;
use mneme_log::WriteError;

/// How long the thread's other clients may have to wait for one attempt.
const ATTEMPT: Duration = Duration::from_millis(2);

pub(super) static SWAPDB: Command = Command {
    name: "swapdb",
    summary: "Has two databases change places",
    since: "4.0.0",
    group: Group::Server,
    arity: 3,
    flags: &[Flag::Write, Flag::Fast],
    categories: &[Category::Keyspace, Category::Dangerous],
    arguments: &[
        Argument::new("index1", Kind::Integer),
        Argument::new("index2", Kind::Integer),
    ],
    reach: Reach::Databases,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let number = |index, which| {
        parse_i64(call.args.at(index))
            .and_then(|number| i32::try_from(number).ok())
            .ok_or_else(|| Failure::other(format!("ERR invalid {which} DB index")))
    };
    let numbers = [number(1, "first")?, number(2, "second")?];
    let [a, b] = numbers.map(|number| {
        usize::try_from(number)
            .ok()
            .filter(|number| *number < call.server.settings.count(Key::Databases))
    });
    let (Some(a), Some(b)) = (a, b) else {
        return Err(Failure::NoSuchDatabase);
    };
    if a != b {
        let swapped = call.server.store.swap_databases_within(a, b, ATTEMPT);
        match swapped {
            Err(stalled @ WriteError::Stalled { .. }) => {
                return Err(Failure::NotYet(stalled.to_string()));
            }
            swapped => swapped?,
        }
    }
    let client = &mut *call.client;
    (call.server).invalidate_all(|thread| client.wake_later(thread));
    call.reply.ok();
    Ok(())
}
