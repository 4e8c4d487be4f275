//! What a client has said between `MULTI` and `EXEC`.

use crate::command::{Command, Flag, Reach};
use crate::resp::{Arguments, KeptArguments};
use mneme_log::DATABASES;

/// Commands that wait for `EXEC`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    commands: Vec<Queued>,
    /// Bytes of their arguments, and those that their keys take when they are carried out.
    bytes: usize,
    /// Whether one of them was refused, so that none is to be executed.
    pub refused: bool,
}

/// What the allocator takes for itself and for rounding, for the two blocks of a command.
const ALLOCATIONS: usize = 64;

/// One of them.
pub(crate) struct Queued {
    /// The command, or subcommand.
    pub command: &'static Command,
    args: KeptArguments,
}

impl Queue {
    /// Takes one more.
    pub fn push(&mut self, command: &'static Command, args: Arguments<'_>) {
        if self.refused {
            return;
        }
        self.bytes += command.bytes_for_keys(&args);
        let args = args.keep();
        self.bytes += args.bytes() + size_of::<Queued>() + ALLOCATIONS;
        self.commands.push(Queued { command, args });
    }

    /// The commands in the order in which the client sent them.
    pub fn commands(&self) -> &[Queued] {
        &self.commands
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Memory that it takes, or will when it is carried out.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The keys that the commands name, each with its database, if they change anything: what is
    /// to be locked so that they are carried out once. `database` is the one selected. A key that
    /// its place among the arguments does not tell is left out.
    pub fn keys(&self, database: usize) -> Vec<(usize, &[u8])> {
        match self.may_change_data() {
            true => self.named_keys(database),
            false => Vec::new(),
        }
    }

    /// The keys that the commands name, each with its database.
    pub fn named_keys(&self, mut database: usize) -> Vec<(usize, &[u8])> {
        let mut keys = Vec::new();
        for queued in &self.commands {
            let args = queued.args();
            if queued.command.name == "select" {
                let number = crate::resp::parse_u64(args.at(1)).map(|n| n as usize);
                database = number.filter(|n| *n < DATABASES).unwrap_or(database);
            }
            let specs = queued.command.keys.iter();
            for at in specs.filter_map(|spec| spec.positions(&args)).flatten() {
                keys.push((database, args.at(at)));
            }
        }
        keys
    }

    /// Whether one of them may change data.
    pub fn may_change_data(&self) -> bool {
        self.commands
            .iter()
            .any(|queued| queued.command.may_change_data())
    }

    /// Whether one of them is a change in the eyes of clients.
    pub fn has_change(&self) -> bool {
        self.commands
            .iter()
            .any(|queued| queued.command.is_change())
    }

    /// Whether one of them may change data of this server.
    pub fn may_write(&self) -> bool {
        self.commands
            .iter()
            .any(|queued| queued.command.has(Flag::Write))
    }

    /// Whether it may be executed again after an attempt without effect: if all commands are on
    /// keys, or have the same effect when done twice. Otherwise it needs an exclusive section.
    pub fn may_run_again(&self) -> bool {
        self.commands.iter().all(|Queued { command, .. }| {
            command.reach == Reach::Keys && (!command.keys.is_empty() || command.is_repeatable)
        })
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
