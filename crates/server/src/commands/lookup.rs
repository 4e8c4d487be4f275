//! From a command's name to its definition, in any case, without allocating: one hash of the name's ends and one
//! comparison.

use std::sync::LazyLock;

use super::definition::Command;

/// The table of all commands, built on first use.
pub(crate) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::new(super::all()));

/// An open-addressed table, an eighth full, so that nearly every probe is the first and only one.
pub(crate) struct Table {
    commands: Vec<&'static Command>,
    /// Index into `commands` plus one; 0 is empty.
    slots: Box<[u16]>,
}

impl Table {
    fn new(commands: Vec<&'static Command>) -> Self {
        let mut slots = vec![0u16; (commands.len() * 8).next_power_of_two()].into_boxed_slice();
        for (index, command) in commands.iter().enumerate() {
            let mut slot = hash(command.name.as_bytes()) & (slots.len() - 1);
            while slots[slot] != 0 {
                slot = (slot + 1) & (slots.len() - 1);
            }
            slots[slot] = index as u16 + 1;
        }
        Self { commands, slots }
    }

    /// The command called `name`, in any case.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Command> {
        let mut slot = hash(name) & (self.slots.len() - 1);
        loop {
            let index = usize::from(self.slots[slot]).checked_sub(1)?;
            let command = self.commands[index];
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some(command);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// All commands, in alphabetical order.
    pub fn commands(&self) -> &[&'static Command] {
        &self.commands
    }
}

/// A hash of a name's length, first eight and last eight bytes, blind to the case of letters (and to bit 5 of the
/// other bytes, which the comparison sorts out).
#[inline]
fn hash(name: &[u8]) -> usize {
    let (first, last) = match (name.first_chunk::<8>(), name.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (Some(first), Some(last)) => (
                u64::from(u32::from_le_bytes(*first)),
                u64::from(u32::from_le_bytes(*last)),
            ),
            _ => (
                name.iter()
                    .fold(0, |word, &byte| word << 8 | u64::from(byte | 0x20)),
                0,
            ),
        },
    };
    const CASE: u64 = 0x2020_2020_2020_2020;
    let mixed = ((first | CASE) ^ (last | CASE).rotate_left(29) ^ name.len() as u64)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 40) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn names_are_unique_and_definitions_complete() {
        let commands = TABLE.commands();
        assert!(commands.is_sorted_by(|a, b| a.name < b.name));
        for command in commands
            .iter()
            .flat_map(|c| std::iter::once(c).chain(c.subcommands))
        {
            let name = command.name;
            assert!(
                !command.summary.is_empty()
                    && !command.since.is_empty()
                    && !command.complexity.is_empty(),
                "{name}"
            );
            assert_eq!(name, name.to_ascii_lowercase());
            assert_ne!(command.arity, 0, "{name}");
        }
    }
}
