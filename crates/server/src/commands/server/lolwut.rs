//! `LOLWUT`: only the version, without Redis's art.

use crate::command::*;
use crate::version;

pub(super) static LOLWUT: Command = Command {
    name: "lolwut",
    summary: "Returns the server's version",
    since: "5.0.0",
    group: Group::Server,
    arity: -1,
    flags: &[Flag::Readonly, Flag::Fast],
    arguments: &[Argument::new("version", Kind::Integer)
        .after("VERSION")
        .optional()],
    run: |call| {
        if call.args.len() > 2 && call.is(1, "VERSION") {
            call.integer(2)?;
        }
        let text = format!(
            "Mneme ver. {} (Redis ver. {})\n",
            version::MNEME,
            version::REDIS
        );
        call.reply.verbatim(&text);
        Ok(())
    },
    ..Command::BLANK
};
