//! `MNEME`: what only this server has.

use crate::background::CheckState;
use crate::command::*;
use crate::commands::help;

pub(super) static MNEME: Command = Command {
    name: "mneme",
    summary: "A container for commands about the store",
    since: "7.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    subcommands: &[&CHECK, &HELP, &REPORT],
    run: help::run,
    ..Command::BLANK
};

/// What the subcommands have in common.
const PLAIN: Command = Command {
    since: "7.0.0",
    group: Group::Server,
    arity: 2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    tips: &["nondeterministic_output"],
    ..Command::BLANK
};

static CHECK: Command = Command {
    name: "mneme|check",
    summary: "Checks the whole store in the background, and replies with the check's number",
    complexity: "O(1); the check reads every record's header and key",
    run: |call| {
        let number = call.server.background.check();
        call.reply.integer(number as i64);
        Ok(())
    },
    ..PLAIN
};

static REPORT: Command = Command {
    name: "mneme|report",
    summary: "Returns what the last check of the store has found, or that it goes on",
    run: report,
    ..PLAIN
};

static HELP: Command = Command {
    name: "mneme|help",
    since: "7.0.0",
    group: Group::Server,
    categories: &[],
    run: |call| help::of(call, &MNEME),
    ..help::HELP
};

fn report(call: &mut Call<'_>) -> Outcome {
    let check = call.server.background.last_check();
    let (state, report, failure) = match check.state {
        CheckState::None => ("none", None, String::new()),
        CheckState::Running => ("running", None, String::new()),
        CheckState::Done(report) => ("done", Some(report), String::new()),
        CheckState::Failed(failure) => ("failed", None, failure),
    };
    let report = report.unwrap_or_default();
    let counts = [
        ("check", check.number),
        ("milliseconds", check.took_ms),
        ("records", report.records),
        ("displaced", report.displaced),
        ("slots", report.slots),
    ];
    let reply = &mut call.reply;
    reply.map(counts.len() + 3);
    reply.bulk(b"state");
    reply.bulk(state.as_bytes());
    for (name, count) in counts {
        reply.bulk(name.as_bytes());
        reply.integer(count as i64);
    }
    reply.bulk(b"failure");
    reply.bulk(failure.as_bytes());
    reply.bulk(b"problems");
    reply.array(report.problems.len());
    for problem in &report.problems {
        reply.bulk(problem.as_bytes());
    }
    Ok(())
}
