//! `MNEME`: subcommands that only this server has.

use super::enabled;
use crate::background::TaskState;
use crate::command::*;
use crate::commands::help;
use crate::settings::Key;

pub(super) static MNEME: Command = Command {
    name: "mneme",
    summary: "A container for commands about the store",
    since: "7.0.0",
    subcommands: &[&BACKUP, &CHECK, &HELP, &REPORT],
    ..help::CONTAINER
};

/// The common fields of the subcommands.
const PLAIN: Command = Command {
    since: "7.0.0",
    group: Group::Server,
    arity: 2,
    flags: &[Flag::Admin, Flag::NoScript, Flag::Loading, Flag::Stale],
    tips: &["nondeterministic_output"],
    ..Command::BLANK
};

static BACKUP: Command = Command {
    name: "mneme|backup",
    summary: "Writes a backup that is kept by name, and replies with its number; without a name it describes the last one",
    complexity: "O(1); the backup reads every record",
    arity: -2,
    arguments: &[Argument::new("name", Kind::String).optional()],
    run: backup,
    ..PLAIN
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
    run: |call| help::of(call, &MNEME),
    ..help::HELP
};

fn report(call: &mut Call<'_>) -> Outcome {
    let check = call.server.background.last_check();
    let (state, failure) = check.state.words();
    let report = match &check.state {
        TaskState::Done(report) => report.clone(),
        _ => Default::default(),
    };
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

fn backup(call: &mut Call<'_>) -> Outcome {
    super::save::durability(call)?;
    match call.args.len() {
        2 => tell_of_backup(call),
        3 => {
            enabled::check(call, Key::EnableBackup, "MNEME BACKUP")?;
            let name = String::from_utf8_lossy(call.args.at(2)).into_owned();
            let Some(number) = call.server.saver.back_up(&name) else {
                return Err(Failure::other("ERR a backup is being written already"));
            };
            call.reply.integer(number as i64);
            Ok(())
        }
        _ => Err(Failure::WrongArity("mneme|backup")),
    }
}

fn tell_of_backup(call: &mut Call<'_>) -> Outcome {
    let backup = call.server.saver.last_backup();
    let durability = call.server.store.durability();
    let running = durability.and_then(|durability| durability.stats().checkpoints.running);
    let (state, failure) = backup.state.words();
    let (records, bytes) = match &backup.state {
        TaskState::Running => running.unwrap_or_default(),
        TaskState::Done(report) => (report.records, report.bytes),
        TaskState::None | TaskState::Failed(_) => (0, 0),
    };
    let texts = [
        ("state", state),
        ("name", &backup.name),
        ("failure", failure),
    ];
    // An estimate while it is being written.
    let of = call.server.stats().live_bytes.max(bytes);
    let counts = [
        ("backup", backup.number),
        ("records", records),
        ("bytes", bytes),
        ("of", of),
    ];
    let reply = &mut call.reply;
    reply.map(texts.len() + counts.len());
    for (name, text) in texts {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    for (name, count) in counts {
        reply.bulk(name.as_bytes());
        reply.integer(count as i64);
    }
    Ok(())
}
