//! Finds a command's definition by its name, in any case, without allocating: a hash and a
//! comparison of two words.

use super::Command;
use crate::acl::{NamedCommand, Vocabulary};

/// An open-addressed table, at most an eighth full, so that nearly every probe is the first and
/// only one.
pub(crate) struct CommandTable {
    commands: Vec<&'static Command>,
    slots: Box<[Option<Entry>]>,
    /// Maps a definition's address to its position.
    places: Box<[Option<(usize, usize)>]>,
    count: usize,
}

struct Entry {
    ends: Ends,
    /// Whether equal ends imply equal names.
    is_exact: bool,
    command: &'static Command,
}

impl CommandTable {
    /// A table of `commands`, which must be in alphabetical order.
    pub fn new(commands: Vec<&'static Command>) -> Self {
        let slots = (0..(commands.len() * 8).next_power_of_two()).map(|_| None);
        let mut slots: Box<[Option<Entry>]> = slots.collect();
        for command in &commands {
            let name = command.name.as_bytes();
            let ends = Ends::of(name);
            let mut slot = ends.hash() & (slots.len() - 1);
            while slots[slot].is_some() {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = Some(Entry {
                ends,
                is_exact: name.len() <= 16 && name.iter().all(u8::is_ascii_alphabetic),
                command,
            });
        }
        let mut table = Self {
            commands,
            slots,
            places: Box::default(),
            count: 0,
        };
        table.count = table.all().count();
        let count = table.count;
        let mut places: Box<[_]> = (0..(count * 4).next_power_of_two()).map(|_| None).collect();
        for (place, command) in table.all().enumerate() {
            let mut slot = first_place(command) & (places.len() - 1);
            while places[slot].is_some() {
                slot = (slot + 1) & (places.len() - 1);
            }
            places[slot] = Some((std::ptr::from_ref(command).addr(), place));
        }
        table.places = places;
        table
    }

    /// The command called `name`, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let ends = Ends::of(name);
        let mut slot = ends.hash() & (self.slots.len() - 1);
        loop {
            let entry = self.slots[slot].as_ref()?;
            if entry.ends == ends
                && (entry.is_exact || entry.command.name.as_bytes().eq_ignore_ascii_case(name))
            {
                return Some(entry.command);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// The position of a command or subcommand: less than [`places`](Self::places), and different
    /// for each.
    #[inline]
    pub fn place(&self, command: &'static Command) -> usize {
        let address = std::ptr::from_ref(command).addr();
        let mut slot = first_place(command) & (self.places.len() - 1);
        loop {
            match self.places[slot] {
                Some((known, place)) if known == address => return place,
                Some(_) => slot = (slot + 1) & (self.places.len() - 1),
                // A definition that is not listed by its folder cannot be called.
                None => return self.count,
            }
        }
    }

    /// The number of commands and subcommands.
    pub fn places(&self) -> usize {
        self.count
    }

    /// All commands and subcommands, in the order of their positions.
    pub fn all(&self) -> impl Iterator<Item = &'static Command> {
        let with_subcommands = |&command: &&'static Command| {
            [command]
                .into_iter()
                .chain(command.subcommands.iter().copied())
        };
        self.commands.iter().flat_map(with_subcommands)
    }

    /// The commands that rules of users can name.
    pub fn vocabulary(&self) -> Vocabulary {
        Vocabulary::new(self.all().map(|command| NamedCommand {
            name: command.name,
            categories: command.acl_categories().collect(),
        }))
    }

    /// All commands, in alphabetical order.
    pub fn commands(&self) -> &[&'static Command] {
        &self.commands
    }

    /// All commands and subcommands that are ever executed, in alphabetical order.
    pub fn executable(&self) -> impl Iterator<Item = &'static Command> {
        self.commands.iter().flat_map(|&command| {
            let alone = command.subcommands.is_empty().then_some(command);
            alone.into_iter().chain(command.subcommands.iter().copied())
        })
    }
}

/// Where the search for a definition's position begins.
#[inline]
fn first_place(command: &'static Command) -> usize {
    let address = std::ptr::from_ref(command).addr() as u64;
    (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

/// A name's length and its first and last eight bytes, each with the bit set that distinguishes the
/// cases of a letter.
///
/// Setting that bit turns no other byte into a letter, so names of up to 16 letters are equal,
/// ignoring case, if their ends are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ends {
    first: u64,
    last: u64,
    len: usize,
}

impl Ends {
    #[inline]
    fn of(name: &[u8]) -> Self {
        const CASE: u64 = 0x2020_2020_2020_2020;
        let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
                (Some(first), Some(last)) => (
                    u64::from(u32::from_le_bytes(*first)),
                    u64::from(u32::from_le_bytes(*last)),
                ),
                // The first, a middle and the last byte are the whole name.
                _ => match name {
                    [] => (0, 0),
                    [first, ..] => {
                        let bytes = [*first, name[name.len() / 2], name[name.len() - 1], 0];
                        (u64::from(u32::from_le_bytes(bytes)), 0)
                    }
                },
            },
        };
        Self {
            first: first | CASE,
            last: last | CASE,
            len: name.len(),
        }
    }

    #[inline]
    fn hash(&self) -> usize {
        let mixed = self.first ^ self.last.rotate_left(29) ^ self.len as u64;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Flag, Reach};
    use crate::commands::TABLE;

    #[test]
    fn every_command_has_a_position_of_its_own() {
        let executable = TABLE.executable();
        let mut places: Vec<_> = executable.map(|command| TABLE.place(command)).collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), count);
        assert!(places.iter().all(|place| *place < TABLE.places()));
    }

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for command in TABLE.commands() {
            let upper = command.name.to_ascii_uppercase();
            for name in [command.name, &upper] {
                assert!(
                    std::ptr::eq(TABLE.find(name.as_bytes()).unwrap(), *command),
                    "{name}"
                );
            }
            for absent in [
                format!("{}x", command.name),
                command.name[1..].to_owned(),
                command.name.replace('e', "\r"),
            ] {
                if let Some(found) = TABLE.find(absent.as_bytes()) {
                    assert_eq!(found.name, absent);
                }
            }
        }
        assert!(TABLE.find(b"").is_none());
        assert!(TABLE.find(&[b'a'; 100_000]).is_none());
    }

    /// Describes a required part that a definition lacks.
    fn fault(command: &Command) -> Option<&'static str> {
        let has_own_run = !std::ptr::fn_addr_eq(command.run, Command::BLANK.run);
        let is_described = [command.summary, command.since, command.complexity]
            .iter()
            .all(|words| !words.is_empty());
        let reaches_nothing = command.keys.is_empty() && command.reach == Reach::Keys;
        if !is_described {
            Some("it is not described")
        } else if command.name != command.name.to_ascii_lowercase() || command.arity == 0 {
            Some("its name or its arity cannot be")
        } else if !has_own_run && command.subcommands.is_empty() {
            Some("it has no `run`")
        } else if command.has(Flag::Write) && reaches_nothing && !command.is_repeatable {
            Some("it writes, and says neither by `keys` nor by `reach` to which records")
        } else {
            None
        }
    }

    #[test]
    fn names_are_unique_and_definitions_complete() {
        let commands = TABLE.commands();
        assert!(commands.is_sorted_by(|a, b| a.name < b.name));
        for command in commands
            .iter()
            .flat_map(|c| std::iter::once(c).chain(c.subcommands))
        {
            assert_eq!(fault(command), None, "{}", command.name);
        }
    }

    #[test]
    fn a_definition_that_forgets_what_it_needs_is_refused() {
        const WHOLE: Command = Command {
            name: "x",
            summary: "x",
            run: |_| Ok(()),
            ..Command::BLANK
        };
        assert_eq!(fault(&WHOLE), None);
        for forgetful in [
            Command {
                run: Command::BLANK.run,
                ..WHOLE
            },
            Command {
                flags: &[Flag::Write],
                ..WHOLE
            },
            Command { arity: 0, ..WHOLE },
            Command { name: "X", ..WHOLE },
            Command {
                summary: "",
                ..WHOLE
            },
        ] {
            assert!(fault(&forgetful).is_some());
        }
    }
}
