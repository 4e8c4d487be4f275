//! `ACL CAT [category]`: the categories, or the commands of one.

use super::PLAIN;
use crate::command::*;

pub(super) static CAT: Command = Command {
    name: "acl|cat",
    summary: "Returns the categories, or the commands of one",
    complexity: "O(N) where N is the number of commands",
    arity: -2,
    arguments: &[Argument::new("categoryname", Kind::String).optional()],
    run,
    ..PLAIN
};

fn run(call: &mut Call<'_>) -> Outcome {
    let names: Vec<&str> = match call.args.len() {
        2 => Category::ALL.iter().map(|one| one.name()).collect(),
        3 => {
            let name = call.args.at(2);
            let unknown = || {
                let shown = &name[..name.len().min(128)];
                Failure::quoting("ERR Unknown category '", shown, "'")
            };
            let category = Category::from_name(name).ok_or_else(unknown)?;
            let commands = call.server.commands.all();
            commands
                .filter(|command| command.acl_categories().any(|one| one == category))
                .map(|command| command.name)
                .collect()
        }
        _ => return Err(call.no_such_subcommand("ACL")),
    };
    call.reply.array(names.len());
    for name in names {
        call.reply.bulk(name.as_bytes());
    }
    Ok(())
}
