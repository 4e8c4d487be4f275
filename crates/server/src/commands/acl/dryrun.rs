//! `ACL DRYRUN username command [arg ...]`: whether a user may make a call, which is not made.

use super::{ADMIN, USER_NAME};
use crate::acl::Denied;
use crate::command::*;
use crate::denial;

pub(super) static DRYRUN: Command = Command {
    name: "acl|dryrun",
    summary: "Returns whether a user may call a command, without calling it",
    since: "7.0.0",
    complexity: "O(N) where N is the number of key patterns of the user, for each key of the command",
    arity: -4,
    arguments: &[
        USER_NAME,
        Argument::new("command", Kind::String),
        Argument::new("arg", Kind::String).optional().multiple(),
    ],
    run,
    ..ADMIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    let (name, args) = (call.args.at(2), call.args.from(3));
    let user = call.server.users.find(name);
    let user = user.ok_or_else(|| Failure::quoting("ERR User '", name, "' not found"))?;
    let command = call.server.commands.find(args.at(0));
    let command = command.and_then(|command| match command.subcommands {
        [_, ..] if args.len() > 1 => command.subcommand(args.at(1)),
        _ => Some(command),
    });
    let unknown = || Failure::quoting("ERR Command '", args.at(0), "' not found");
    let command = command.ok_or_else(unknown)?;
    if !command.accepts(args.len()) {
        return Err(Failure::WrongArity(command.name));
    }
    let (verb, what, kind) = match denial::check(call.server, &user, command, args) {
        Ok(()) => {
            call.reply.ok();
            return Ok(());
        }
        Err(Denied::Command) => ("run", command.name.as_bytes(), "command"),
        Err(Denied::Key(position)) => ("access", args.at(position), "key"),
        Err(Denied::Channel(position)) => ("access", args.at(position), "channel"),
    };
    let before = format!("This user has no permissions to {verb} the '");
    let text = [before.as_bytes(), what, b"' ", kind.as_bytes()].concat();
    call.reply.bulk(&text);
    Ok(())
}
