//! The commands that rules can name: the server's, and those of Redis that it does not have.
//!
//! Rules in Redis's own files may name commands that the server does not have yet. They are kept,
//! so that they are written unchanged, and take effect once there is such a command.

use std::collections::HashMap;

use super::user::Bits;
use crate::command::Category;

/// Commands of Redis 7.0 that the server does not have, a line each, with their categories.
const ABSENT: &str = include_str!("absent_commands.txt");

/// A command or subcommand of the server.
pub(crate) struct NamedCommand {
    /// The name in lower case; a subcommand's is `container|name`.
    pub name: &'static str,
    pub categories: Vec<Category>,
}

/// All commands that a rule can name. A command's number is its position in the server's table;
/// those that the server does not have follow.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    commands: Vec<Entry>,
    numbers: HashMap<&'static str, usize>,
    /// The numbers, ordered by name: a container before its subcommands.
    ordered: Vec<usize>,
    /// The commands of each category that Redis has too, in the order of `Category::ALL`.
    counted: Vec<Bits>,
    /// The commands that a rule about a category changes: its own, and their subcommands.
    reached: Vec<Bits>,
}

#[derive(Debug)]
struct Entry {
    name: &'static str,
    categories: Vec<Category>,
    container: Option<usize>,
    subcommands: Vec<usize>,
}

/// Whether only Mneme, or a later Redis, has this command, so that Redis's texts do not count it.
fn is_foreign_to_redis(name: &str) -> bool {
    name == "client|setinfo" || name == "mneme" || name.starts_with("mneme|")
}

impl Vocabulary {
    /// The vocabulary of a server with these commands, in the order of its table.
    pub fn new(own: impl Iterator<Item = NamedCommand>) -> Self {
        let absent = ABSENT.lines().filter(|line| !line.starts_with('#'));
        let absent = absent.filter_map(|line| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let categories = words.filter_map(|word| Category::from_name(word.as_bytes()));
            Some(NamedCommand {
                name,
                categories: categories.collect(),
            })
        });
        let mut commands: Vec<Entry> = Vec::new();
        let mut numbers = HashMap::new();
        for NamedCommand { name, categories } in own.chain(absent) {
            if numbers.contains_key(name) {
                continue;
            }
            numbers.insert(name, commands.len());
            commands.push(Entry {
                name,
                categories,
                container: None,
                subcommands: Vec::new(),
            });
        }
        for number in 0..commands.len() {
            let container = commands[number].name.split_once('|');
            let container = container.and_then(|(name, _)| numbers.get(name).copied());
            if let Some(container) = container {
                commands[number].container = Some(container);
                commands[container].subcommands.push(number);
            }
        }
        let mut ordered: Vec<_> = (0..commands.len()).collect();
        ordered.sort_by_key(|number| commands[*number].name);
        let (mut counted, mut reached) = (Vec::new(), Vec::new());
        for category in Category::ALL {
            let none = || Bits::none(commands.len());
            let (mut counts, mut reaches) = (none(), none());
            for (number, entry) in commands.iter().enumerate() {
                if !entry.categories.contains(category) {
                    continue;
                }
                if !is_foreign_to_redis(entry.name) {
                    counts.set(number, true);
                }
                reaches.set(number, true);
                for sub in &entry.subcommands {
                    reaches.set(*sub, true);
                }
            }
            counted.push(counts);
            reached.push(reaches);
        }
        Self {
            commands,
            numbers,
            ordered,
            counted,
            reached,
        }
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// The number of the command called `name`, or `container|name`, in any case.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.numbers.get(&*name).copied()
    }

    /// A command's name.
    pub fn name(&self, number: usize) -> &'static str {
        self.commands[number].name
    }

    /// Its container, if it is a subcommand.
    pub fn container(&self, number: usize) -> Option<usize> {
        self.commands[number].container
    }

    /// Its subcommands.
    pub fn subcommands(&self, number: usize) -> &[usize] {
        &self.commands[number].subcommands
    }

    /// The numbers of all commands by name: a container comes before its subcommands.
    pub fn ordered(&self) -> &[usize] {
        &self.ordered
    }

    /// The commands of a category as Redis counts them.
    pub fn counted(&self, category: Category) -> &Bits {
        &self.counted[category as usize]
    }

    /// The commands that a rule about a category changes.
    pub fn reached(&self, category: Category) -> &Bits {
        &self.reached[category as usize]
    }

    /// Whether a command itself is of the category.
    pub fn is_in(&self, number: usize, category: Category) -> bool {
        self.commands[number].categories.contains(&category)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::TABLE;

    #[test]
    fn a_command_that_the_server_has_is_not_listed_as_absent() {
        let names: Vec<&str> = ABSENT
            .lines()
            .filter_map(|line| line.split(' ').next())
            .filter(|name| TABLE.all().any(|command| command.name == *name))
            .collect();
        assert!(
            names.is_empty(),
            "take {names:?} out of absent_commands.txt"
        );
    }

    #[test]
    fn a_commands_number_is_its_place_in_the_table() {
        let vocabulary = TABLE.vocabulary();
        for command in TABLE.all() {
            let number = vocabulary.find(command.name.to_ascii_uppercase().as_bytes());
            assert_eq!(number, Some(TABLE.place(command)), "{}", command.name);
        }
        assert!(vocabulary.len() > TABLE.places());
    }
}
