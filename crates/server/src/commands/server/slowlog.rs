//! `SLOWLOG`: the commands that took longer than `slowlog-log-slower-than`.
//!
//! Consecutive GETs or SETs of a pipeline are executed as one, and share their time: such an entry
//! shows the first of them, and its last argument gives the number of others.

use crate::command::*;
use crate::commands::help;

pub(super) static SLOWLOG: Command = Command {
    name: "slowlog",
    summary: "A container for commands about commands that took long",
    since: "2.2.12",
    subcommands: &[&GET, &HELP, &LEN, &RESET],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
const PLAIN: Command = Command {
    since: "2.2.12",
    group: Group::Server,
    arity: 2,
    flags: &[Flag::Admin, Flag::Loading, Flag::Stale],
    ..Command::BLANK
};

static GET: Command = Command {
    name: "slowlog|get",
    summary: "Returns the newest entries; ten unless said otherwise, all of them for -1",
    complexity: "O(N) where N is the number of entries returned",
    arity: -2,
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    arguments: &[Argument::new("count", Kind::Integer).optional()],
    run: get,
    ..PLAIN
};

static LEN: Command = Command {
    name: "slowlog|len",
    summary: "Returns how many entries there are",
    tips: &[
        "request_policy:all_nodes",
        "response_policy:agg_sum",
        "nondeterministic_output",
    ],
    run: |call| {
        let len = call.server.slowlog.len();
        call.reply.integer(len as i64);
        Ok(())
    },
    ..PLAIN
};

static RESET: Command = Command {
    name: "slowlog|reset",
    summary: "Forgets all entries",
    complexity: "O(N) where N is the number of entries",
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    run: |call| {
        call.server.slowlog.trim(0);
        call.reply.ok();
        Ok(())
    },
    ..PLAIN
};

static HELP: Command = Command {
    name: "slowlog|help",
    since: "6.2.0",
    run: |call| help::of(call, &SLOWLOG),
    ..help::HELP
};

fn get(call: &mut Call<'_>) -> Outcome {
    let most = match call.args.len() {
        2 => 10,
        3 => match call.integer(2) {
            Ok(-1) => usize::MAX,
            Ok(count) if count >= 0 => count as usize,
            _ => {
                return Err(Failure::other(
                    "ERR count should be greater than or equal to -1",
                ));
            }
        },
        _ => {
            return Err(call.no_such_subcommand("SLOWLOG"));
        }
    };
    let entries = call.server.slowlog.newest(most);
    call.reply.array(entries.len());
    for slow in entries {
        call.reply.array(6);
        for number in [slow.id, slow.at_s, slow.took_us] {
            call.reply.integer(number as i64);
        }
        call.reply.array(slow.arguments.len());
        for argument in &slow.arguments {
            call.reply.bulk(argument);
        }
        call.reply.bulk(slow.client.0.as_bytes());
        call.reply.bulk(&slow.client.1);
    }
    Ok(())
}
