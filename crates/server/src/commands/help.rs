//! Common parts of the containers (`CLIENT`, `CONFIG`, ...): without a subcommand they do nothing,
//! and `HELP` is derived from their subcommands.

use crate::command::*;
use crate::command::{Argument, Kind};

/// The common fields of the `HELP` subcommands.
pub(super) const HELP: Command = Command {
    summary: "Prints this help",
    since: "5.0.0",
    group: Group::Server,
    arity: 2,
    flags: &[Flag::Loading, Flag::Stale],
    ..Command::BLANK
};

/// The common fields of the containers.
pub(super) const CONTAINER: Command = Command {
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: -2,
    run,
    ..Command::BLANK
};

/// A container is never executed itself: its arity demands a subcommand.
fn run(_: &mut Call<'_>) -> Outcome {
    Err(Failure::Syntax)
}

/// Replies with the subcommands of `container`.
pub(super) fn of(call: &mut Call<'_>, container: &Command) -> Outcome {
    let name = container.name.to_ascii_uppercase();
    call.reply.array(1 + 2 * container.subcommands.len());
    call.reply.simple(&format!(
        "{name} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"
    ));
    for subcommand in container.subcommands {
        let mut line = subcommand.short_name().to_ascii_uppercase();
        for argument in subcommand.arguments {
            line.push(' ');
            line.push_str(&usage(argument));
        }
        call.reply.simple(&line);
        call.reply.simple(&format!("    {}.", subcommand.summary));
    }
    Ok(())
}

/// An argument in the notation of a manual page.
pub(super) fn usage(argument: &Argument) -> String {
    let inner = |separator| {
        argument
            .arguments
            .iter()
            .map(usage)
            .collect::<Vec<_>>()
            .join(separator)
    };
    let value = match argument.kind {
        Kind::PureToken => String::new(),
        Kind::OneOf => format!("({})", inner("|")),
        Kind::Block => inner(" "),
        _ => format!("<{}>", argument.name),
    };
    let mut text = match argument.token {
        Some(token) if value.is_empty() => token.to_owned(),
        Some(token) => format!("{token} {value}"),
        None => value,
    };
    if argument.multiple {
        text = format!("{text} [{text} ...]");
    }
    if argument.optional {
        format!("[{text}]")
    } else {
        text
    }
}
