//! `ACL LOG [count | RESET]`: the log of denied calls.

use super::ADMIN;
use crate::command::*;

pub(super) static LOG: Command = Command {
    name: "acl|log",
    summary: "Returns the newest events that were denied, ten unless said otherwise, or forgets them",
    complexity: "O(N) where N is the number of events returned",
    arity: -2,
    arguments: &[Argument::one_of(
        "operation",
        &[
            Argument::new("count", Kind::Integer),
            Argument::word("reset", "RESET"),
        ],
    )
    .optional()],
    run,
    ..ADMIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    let most = match call.args.len() {
        2 => 10,
        3 if call.is(2, "RESET") => {
            call.server.users.log.trim(0);
            call.reply.ok();
            return Ok(());
        }
        3 => usize::try_from(call.integer(2)?).unwrap_or(0),
        _ => return Err(call.no_such_subcommand("ACL")),
    };
    let now_ms = call.server.wall_ms();
    let events = call.server.users.log.newest(most);
    let reply = &mut call.reply;
    reply.array(events.len());
    for event in events {
        reply.map(7);
        reply.bulk(b"count");
        reply.integer(event.count as i64);
        for (field, value) in [
            ("reason", event.reason.name().as_bytes()),
            ("context", event.context.name().as_bytes()),
            ("object", &event.object),
            ("username", &event.user),
        ] {
            reply.bulk(field.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double(now_ms.saturating_sub(event.at_ms) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(event.client.as_bytes());
    }
    Ok(())
}
