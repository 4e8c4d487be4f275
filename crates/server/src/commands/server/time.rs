//! `TIME`: the server's clock.

use crate::command::*;

pub(super) static TIME: Command = Command {
    name: "time",
    summary: "Returns the server's time: seconds since 1970 and microseconds",
    since: "2.6.0",
    group: Group::Server,
    arity: 1,
    flags: &[Flag::Loading, Flag::Stale, Flag::Fast],
    tips: &["nondeterministic_output"],
    is_repeatable: true,
    run,
    ..Command::BLANK
};

fn run(call: &mut Call<'_>) -> Outcome {
    let now_us = call.server.wall_us();
    call.reply.array(2);
    for part in [now_us / 1_000_000, now_us % 1_000_000] {
        call.reply.bulk(itoa::Buffer::new().format(part).as_bytes());
    }
    Ok(())
}
