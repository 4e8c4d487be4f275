//! What a command is: everything that Mneme knows of it, in one place.
//!
//! Dispatch, `COMMAND`, `COMMAND DOCS`, `COMMAND GETKEYS` and the `HELP` of containers are all
//! derived from these fields; nothing about a command stands anywhere else.

use super::{Call, Category, Failure, Flag, Group, KeyFlag, KeySpec, Kind, Outcome};
use crate::resp::Arguments;

/// What it costs to change a part of a value.
pub(crate) const PART: &str = "O(N) where N is the length of the part; of the whole value where that is short, where the part is longer than 4 KiB within the value or 1 MiB behind its end, for the first change within a transaction, when the value has outgrown its slack, and for the first change since it was read as a whole";

/// Bytes that a key takes beside itself while a command reads or changes several at one instant: a
/// little more than was measured, which is 110 to 165 of a key that is read and up to 245 of one
/// that is changed.
const KEY: usize = 256;

/// One command or subcommand.
pub(crate) struct Command {
    /// In lower case; a subcommand's is `container|name`.
    pub name: &'static str,
    /// What it does, in one line, for `COMMAND DOCS` and `HELP`.
    pub summary: &'static str,
    /// The Redis version that introduced it.
    pub since: &'static str,
    /// The chapter of the manual it belongs to.
    pub group: Group,
    /// What it costs.
    pub complexity: &'static str,
    /// How many arguments it takes, its name (and its container's) included; `-n` means n or more.
    pub arity: i32,
    /// What it does to the data and when it may run.
    pub flags: &'static [Flag],
    /// ACL categories, apart from those that follow from the flags.
    pub categories: &'static [Category],
    /// Hints for clients and proxies.
    pub tips: &'static [&'static str],
    /// Which arguments are keys.
    pub keys: &'static [KeySpec],
    /// What a call does with its keys, where a specification leaves it to the arguments
    /// (`variable_flags`).
    pub key_flags: Option<fn(&Arguments<'_>) -> &'static [KeyFlag]>,
    /// The arguments' names and types, for completion.
    pub arguments: &'static [Argument],
    /// Its subcommands, if it is a container.
    pub subcommands: &'static [&'static Command],
    /// How neighbours of it in a pipeline are executed as one.
    pub batching: Option<Batching>,
    /// Which records it may meet.
    pub reach: Reach,
    /// Which calls have the server to themselves, though the others do not. A transaction with such
    /// a command does too.
    pub exclusive_if: Option<fn(&Arguments<'_>) -> bool>,
    /// For a command without keys: whether executing it several times is the same as executing it
    /// once, but for the selected database.
    pub is_repeatable: bool,
    /// Whether a transaction carries it out at once instead of keeping it for `EXEC`.
    pub is_immediate: bool,
    /// Executes one call.
    pub run: fn(&mut Call<'_>) -> Outcome,
}

impl Command {
    /// What a definition need not mention.
    pub const BLANK: Command = Command {
        name: "",
        summary: "",
        since: "1.0.0",
        group: Group::Generic,
        complexity: "O(1)",
        arity: -1,
        flags: &[],
        categories: &[],
        tips: &[],
        keys: &[],
        key_flags: None,
        arguments: &[],
        subcommands: &[],
        batching: None,
        reach: Reach::Keys,
        exclusive_if: None,
        is_repeatable: false,
        is_immediate: false,
        run: no_run,
    };

    /// What the commands of strings have in common.
    pub const STRING: Command = Command {
        group: Group::String,
        categories: &[Category::String],
        ..Command::BLANK
    };

    /// What the commands of hashes have in common. All cost as much as the hash is long.
    pub const HASH: Command = Command {
        group: Group::Hash,
        complexity: "O(N) where N is the length of the hash in bytes",
        categories: &[Category::Hash],
        ..Command::BLANK
    };

    /// What the commands of bits have in common.
    pub const BITMAP: Command = Command {
        group: Group::Bitmap,
        categories: &[Category::Bitmap],
        ..Command::BLANK
    };

    /// What the commands of keys have in common, whatever the values are.
    pub const KEYSPACE: Command = Command {
        categories: &[Category::Keyspace],
        ..Command::BLANK
    };

    /// Whether `count` arguments, names included, suit it.
    #[inline]
    pub fn accepts(&self, count: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => count == exactly,
            Err(_) => count >= self.arity.unsigned_abs() as usize,
        }
    }

    /// Bytes that the keys of a call take while it is executed, as far as their places among the
    /// arguments tell which these are.
    pub fn bytes_for_keys(&self, args: &Arguments<'_>) -> usize {
        let found = self.keys.iter().filter_map(|spec| spec.positions(args));
        found.map(|positions| positions.len() * KEY).sum()
    }

    /// The positions of the keys of a call, and what it does with each. A rule that does not fit
    /// the arguments makes all of them doubtful: then there are none.
    pub fn keys_of(&self, args: &Arguments<'_>) -> Vec<(usize, &'static [KeyFlag])> {
        let mut keys = Vec::new();
        for spec in self.keys {
            let Some(positions) = spec.positions(args) else {
                return Vec::new();
            };
            let flags = match self.key_flags {
                Some(flags) if spec.flags.contains(&KeyFlag::VariableFlags) => flags(args),
                _ => spec.flags,
            };
            keys.extend(positions.map(|position| (position, flags)));
        }
        keys
    }

    /// Whether it carries `flag`.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether it may change data, here or where it is replicated to.
    pub fn may_change_data(&self) -> bool {
        self.has(Flag::Write) || self.has(Flag::MayReplicate)
    }

    /// Its name without its container's.
    pub fn short_name(&self) -> &'static str {
        self.name
            .split_once('|')
            .map_or(self.name, |(_, name)| name)
    }

    /// The subcommand called `name`, in any case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        self.subcommands
            .iter()
            .copied()
            .find(|sub| sub.short_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// All its ACL categories: those that follow from its flags and its own.
    pub fn acl_categories(&self) -> impl Iterator<Item = Category> {
        let implied = [
            (self.has(Flag::Write), Category::Write),
            (self.has(Flag::Readonly), Category::Read),
            (self.has(Flag::Admin), Category::Admin),
            (
                self.has(Flag::Admin) && !self.categories.contains(&Category::Dangerous),
                Category::Dangerous,
            ),
            (self.has(Flag::Fast), Category::Fast),
            (!self.has(Flag::Fast), Category::Slow),
        ];
        implied
            .into_iter()
            .filter_map(|(holds, category)| holds.then_some(category))
            .chain(self.categories.iter().copied())
    }
}

/// The default of a command whose definition lacks `run`: every call gets a reply.
fn no_run(_: &mut Call<'_>) -> Outcome {
    Err(Failure::other("ERR this command's definition has no `run`"))
}

/// Which records a command may meet, and so what isolates it from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of its keys, if any: isolated by the store, in a transaction too.
    Keys,
    /// Any of a database, or of all. By itself it takes no notice of others; a transaction with
    /// such a command has the server to itself.
    Databases,
    /// As `Databases`, and it always has the server to itself.
    Exclusive,
    /// Those of the commands that wait for it.
    Queue,
    /// None. It may wait for long, and no other thread for it.
    Nothing,
}

/// How consecutive commands of a pipeline become one call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batching {
    /// One argument, a key; the reply is its value.
    Value,
    /// Exactly a key and a value, to be stored; with more arguments the command is executed by
    /// itself.
    Pair,
}

impl Batching {
    /// Whether it reads the values of keys.
    #[inline]
    pub fn is_read(self) -> bool {
        self == Batching::Value
    }

    /// Whether it stores a value.
    #[inline]
    pub fn is_write(self) -> bool {
        self == Batching::Pair
    }
}

/// One argument, as `COMMAND DOCS` describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Argument {
    pub name: &'static str,
    pub kind: Kind,
    pub token: Option<&'static str>,
    pub since: Option<&'static str>,
    pub optional: bool,
    pub multiple: bool,
    /// Whether its token is repeated with it.
    pub multiple_token: bool,
    /// Which of the command's key specifications finds it, if it is a key.
    pub key_spec: usize,
    pub arguments: &'static [Argument],
}

impl Argument {
    /// An argument of a simple type.
    pub const fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            token: None,
            since: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec: 0,
            arguments: &[],
        }
    }

    /// A key.
    pub const fn key(name: &'static str) -> Self {
        Self::new(name, Kind::Key)
    }

    /// A key that the command's key specification `key_spec` finds.
    pub const fn key_of(name: &'static str, key_spec: usize) -> Self {
        Self {
            key_spec,
            ..Self::key(name)
        }
    }

    /// A word that stands for itself.
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, Kind::PureToken).after(token)
    }

    /// One of several.
    pub const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Self {
        Self {
            arguments,
            ..Self::new(name, Kind::OneOf)
        }
    }

    /// Several, one after the other.
    pub const fn block(name: &'static str, arguments: &'static [Argument]) -> Self {
        Self {
            arguments,
            ..Self::new(name, Kind::Block)
        }
    }

    /// Preceded by the word `token`.
    pub const fn after(self, token: &'static str) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// Understood since this version of Redis.
    pub const fn since(self, since: &'static str) -> Self {
        Self {
            since: Some(since),
            ..self
        }
    }

    /// May be left out.
    pub const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// May be repeated.
    pub const fn multiple(self) -> Self {
        Self {
            multiple: true,
            ..self
        }
    }

    /// May be repeated, the token in front of it too.
    pub const fn multiple_with_token(self) -> Self {
        Self {
            multiple_token: true,
            ..self.multiple()
        }
    }
}
