//! `COMMAND`: describes the server's commands. Clients use it for completion, checks and routing.

use crate::command::*;
use crate::commands::{describe, help};
use crate::glob::Steps;

pub(super) static COMMAND: Command = Command {
    name: "command",
    summary: "Describes all commands",
    complexity: "O(N) where N is the number of commands",
    arity: -1,
    tips: &["nondeterministic_output_order"],
    subcommands: &[
        &COUNT,
        &DOCS,
        &GETKEYS,
        &GETKEYSANDFLAGS,
        &HELP,
        &INFO,
        &LIST,
    ],
    run: all,
    ..PLAIN
};

/// The common fields of the subcommands.
const PLAIN: Command = Command {
    since: "2.8.13",
    group: Group::Server,
    flags: &[Flag::Loading, Flag::Stale],
    categories: &[Category::Connection],
    ..Command::BLANK
};

static COUNT: Command = Command {
    name: "command|count",
    summary: "Returns the number of commands",
    arity: 2,
    run: count,
    ..PLAIN
};

static INFO: Command = Command {
    name: "command|info",
    summary: "Describes some commands, or all",
    complexity: "O(N) where N is the number of commands to look up",
    arity: -2,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::new("command-name", Kind::String)
        .optional()
        .multiple()],
    run: info,
    ..PLAIN
};

static DOCS: Command = Command {
    name: "command|docs",
    summary: "Documents some commands, or all",
    since: "7.0.0",
    complexity: "O(N) where N is the number of commands to look up",
    arity: -2,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::new("command-name", Kind::String)
        .optional()
        .multiple()],
    run: docs,
    ..PLAIN
};

static LIST: Command = Command {
    name: "command|list",
    summary: "Returns the names of the commands",
    since: "7.0.0",
    complexity: "O(N) where N is the number of commands",
    arity: -2,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::one_of(
        "filterby",
        &[
            Argument::new("module-name", Kind::String).after("MODULE"),
            Argument::new("category", Kind::String).after("ACLCAT"),
            Argument::new("pattern", Kind::Pattern).after("PATTERN"),
        ],
    )
    .after("FILTERBY")
    .optional()],
    run: list,
    ..PLAIN
};

static GETKEYS: Command = Command {
    name: "command|getkeys",
    summary: "Returns the keys among the arguments of a command",
    complexity: "O(N) where N is the number of arguments",
    arity: -4,
    run: |call| getkeys(call, false),
    ..PLAIN
};

static GETKEYSANDFLAGS: Command = Command {
    name: "command|getkeysandflags",
    summary: "Returns the keys among the arguments of a command, and what it does with each",
    since: "7.0.0",
    complexity: "O(N) where N is the number of arguments",
    arity: -4,
    run: |call| getkeys(call, true),
    ..PLAIN
};

static HELP: Command = Command {
    name: "command|help",
    categories: &[Category::Connection],
    run: |call| help::of(call, &COMMAND),
    ..help::HELP
};

fn all(call: &mut Call<'_>) -> Outcome {
    let commands = call.server.commands.commands();
    call.reply.array(commands.len());
    for command in commands {
        if call.reply.is_over() {
            break;
        }
        describe::info(&mut call.reply, command);
    }
    Ok(())
}

fn count(call: &mut Call<'_>) -> Outcome {
    call.reply
        .integer(call.server.commands.commands().len() as i64);
    Ok(())
}

fn info(call: &mut Call<'_>) -> Outcome {
    if call.args.len() == 2 {
        return all(call);
    }
    let (names, table) = (call.args.from(2), call.server.commands);
    call.reply.array(names.len());
    for name in names.iter() {
        if call.reply.is_over() {
            break;
        }
        match named(table, name) {
            Some(command) => describe::info(&mut call.reply, command),
            None => call.reply.null(),
        }
    }
    Ok(())
}

fn docs(call: &mut Call<'_>) -> Outcome {
    let (names, table) = (call.args.from(2), call.server.commands);
    let commands: Vec<_> = match call.args.len() {
        2 => table.commands().to_vec(),
        _ => names.iter().filter_map(|name| named(table, name)).collect(),
    };
    call.reply.map(commands.len());
    for command in commands {
        if call.reply.is_over() {
            break;
        }
        call.reply.bulk(command.name.as_bytes());
        describe::docs(&mut call.reply, command);
    }
    Ok(())
}

fn list(call: &mut Call<'_>) -> Outcome {
    let steps = Steps::default();
    let keep: Box<dyn Fn(&Command) -> bool> = match call.args.len() {
        2 => Box::new(|_| true),
        5 if call.is(2, "FILTERBY") => {
            let wanted = call.args.at(4);
            if call.is(3, "MODULE") {
                Box::new(|_| false)
            } else if call.is(3, "ACLCAT") {
                let category = Category::from_name(wanted);
                Box::new(move |command| command.acl_categories().any(|own| Some(own) == category))
            } else if call.is(3, "PATTERN") {
                Box::new(|command| steps.matches_any_case(wanted, command.name.as_bytes()))
            } else {
                return Err(Failure::Syntax);
            }
        }
        _ => return Err(Failure::Syntax),
    };
    let commands = call.server.commands.commands();
    let with_subcommands = commands
        .iter()
        .flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let names: Vec<_> = with_subcommands
        .filter(|command| keep(command))
        .map(|command| command.name)
        .collect();
    steps.check()?;
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(name.as_bytes());
    }
    Ok(())
}

fn getkeys(call: &mut Call<'_>, with_flags: bool) -> Outcome {
    let args = call.args.from(2);
    let command = call.server.commands.find(args.at(0)).and_then(|command| {
        if args.len() == 1 || command.subcommands.is_empty() {
            Some(command)
        } else {
            command.subcommand(args.at(1))
        }
    });
    let command = command.ok_or(Failure::other("ERR Invalid command specified"))?;
    if command.keys.is_empty() {
        return Err(Failure::other("ERR The command has no key arguments"));
    }
    if !command.accepts(args.len()) {
        return Err(Failure::other(
            "ERR Invalid number of arguments specified for command",
        ));
    }
    let keys = command.keys_of(&args);
    if keys.is_empty() && !command.has(Flag::NoMandatoryKeys) {
        return Err(Failure::other(
            "ERR Invalid arguments specified for command",
        ));
    }
    call.reply.array(keys.len());
    for (position, flags) in keys {
        if with_flags {
            call.reply.array(2);
        }
        call.reply.bulk(args.at(position));
        if with_flags {
            call.reply.set(flags.len());
            flags.iter().for_each(|flag| call.reply.simple(flag.name()));
        }
    }
    Ok(())
}

/// The command, or `container|subcommand`, of that name.
fn named(table: &CommandTable, name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|&byte| byte == b'|') {
        None => table.find(name),
        Some(bar) => table.find(&name[..bar])?.subcommand(&name[bar + 1..]),
    }
}
