//! What a client has said between `MULTI` and `EXEC`.

use crate::commands::{Command, Reach};
use crate::resp::{Arguments, KeptArguments};

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    commands: Vec<Queued>,
    /// Bytes of their arguments.
    bytes: usize,
    /// Whether one of them could not be taken, so that none is to be carried out.
    pub refused: bool,
}

/// One of them.
pub(crate) struct Queued {
    /// The command, or subcommand.
    pub command: &'static Command,
    args: KeptArguments,
}

impl Queue {
    /// Takes one more.
    pub fn push(&mut self, command: &'static Command, args: Arguments<'_>) {
        let args = args.keep();
        self.bytes += args.bytes();
        self.commands.push(Queued { command, args });
    }

    /// The commands, in the order said.
    pub fn commands(&self) -> &[Queued] {
        &self.commands
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether one of them may change data.
    pub fn may_change_data(&self) -> bool {
        self.commands
            .iter()
            .any(|queued| queued.command.may_change_data())
    }

    /// Whether carrying it out takes having the server to oneself.
    pub fn reaches_beyond_keys(&self) -> bool {
        self.commands
            .iter()
            .any(|queued| queued.command.reach != Reach::Keys)
    }
}

impl Queued {
    /// The name and the arguments.
    pub fn args(&self) -> Arguments<'_> {
        self.args.arguments()
    }
}

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.command.name)
    }
}
