//! The definition of a command: everything that the server knows about it, in one place.
//!
//! Dispatch, `COMMAND`, `COMMAND DOCS`, `COMMAND GETKEYS` and the `HELP` of containers are derived
//! from these fields. Nothing about a command is defined anywhere else.

use super::{Call, Category, Failure, Flag, Group, KeyFlag, KeySpec, Kind, Outcome};
use crate::client::Topic;
use crate::resp::Arguments;
use std::ops::Range;

/// The complexity of changing a part of a value.
pub(crate) const PART: &str = "O(N) where N is the length of the part; of the whole value where that is short, where the part is longer than 4 KiB within the value or 1 MiB behind its end, for the first change within a transaction, when the value has outgrown its slack, and for the first change since it was read as a whole";

/// The number of bytes that a key takes in addition to its own length while a command reads or
/// changes several at one instant: a little more than the measured 110 to 165 for a key that is
/// read, and up to 245 for one that is changed.
const KEY: usize = 256;

/// One command or subcommand.
pub(crate) struct Command {
    /// The name in lower case; a subcommand's is `container|name`.
    pub name: &'static str,
    /// A summary in one line, for `COMMAND DOCS` and `HELP`.
    pub summary: &'static str,
    /// The Redis version that introduced it.
    pub since: &'static str,
    /// The chapter of the manual that it belongs to.
    pub group: Group,
    /// Its complexity.
    pub complexity: &'static str,
    /// The number of arguments, including its name (and its container's); `-n` means n or more.
    pub arity: i32,
    /// Its effects and the states in which it may run.
    pub flags: &'static [Flag],
    /// The ACL categories that do not follow from the flags.
    pub categories: &'static [Category],
    /// Hints for clients and proxies.
    pub tips: &'static [&'static str],
    /// Which arguments are keys.
    pub keys: &'static [KeySpec],
    /// A call's access to its keys, if the specification says that it depends on the arguments
    /// (`variable_flags`).
    pub key_flags: Option<fn(&Arguments<'_>) -> &'static [KeyFlag]>,
    /// Which arguments are channels that the client's user must be permitted.
    pub channels: Option<Channels>,
    /// The arguments' names and types, for completion.
    pub arguments: &'static [Argument],
    /// Its subcommands, if it is a container.
    pub subcommands: &'static [&'static Command],
    /// How consecutive calls in a pipeline are executed as one.
    pub batching: Option<Batching>,
    /// The records that it may access.
    pub reach: Reach,
    /// The calls that need an exclusive section, although others of this command do not. A
    /// transaction with such a call needs one too.
    pub exclusive_if: Option<fn(&Arguments<'_>) -> bool>,
    /// For a command without keys: whether executing it several times has the effect of executing
    /// it once, except for the selected database.
    pub is_repeatable: bool,
    /// Whether a subscriber that speaks RESP2 may send it.
    pub suits_subscribers: bool,
    /// Whether it is executed at once within a transaction, instead of being queued for `EXEC`.
    pub is_immediate: bool,
    /// Executes one call.
    pub run: fn(&mut Call<'_>) -> Outcome,
}

impl Command {
    /// The defaults of a definition.
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
        channels: None,
        arguments: &[],
        subcommands: &[],
        batching: None,
        reach: Reach::Keys,
        exclusive_if: None,
        is_repeatable: false,
        suits_subscribers: false,
        is_immediate: false,
        run: no_run,
    };

    /// The common fields of string commands.
    pub const STRING: Command = Command {
        group: Group::String,
        categories: &[Category::String],
        ..Command::BLANK
    };

    /// The common fields of hash commands, all of which take time proportional to the hash's
    /// length.
    pub const HASH: Command = Command {
        group: Group::Hash,
        complexity: "O(N) where N is the length of the hash in bytes",
        categories: &[Category::Hash],
        ..Command::BLANK
    };

    /// The common fields of set commands.
    pub const SET: Command = Command {
        group: Group::Set,
        categories: &[Category::Set],
        ..Command::BLANK
    };

    /// The common fields of list commands.
    pub const LIST: Command = Command {
        group: Group::List,
        complexity: "O(N) where N is the length of the list in bytes",
        categories: &[Category::List],
        ..Command::BLANK
    };

    /// The common fields of geo commands.
    pub const GEO: Command = Command {
        group: Group::Geo,
        categories: &[Category::Geo],
        ..Command::BLANK
    };

    /// The common fields of sorted set commands, which read all of a small set.
    pub const SORTED_SET: Command = Command {
        group: Group::SortedSet,
        complexity: "O(N) where N is the length of the sorted set in bytes",
        categories: &[Category::SortedSet],
        ..Command::BLANK
    };

    /// The common fields of bit commands.
    pub const BITMAP: Command = Command {
        group: Group::Bitmap,
        categories: &[Category::Bitmap],
        ..Command::BLANK
    };

    /// The common fields of commands on keys of any type.
    pub const KEYSPACE: Command = Command {
        categories: &[Category::Keyspace],
        ..Command::BLANK
    };

    /// Whether `count` arguments, including names, are valid.
    #[inline]
    pub fn accepts(&self, count: usize) -> bool {
        match usize::try_from(self.arity) {
            Ok(exactly) => count == exactly,
            Err(_) => count >= self.arity.unsigned_abs() as usize,
        }
    }

    /// The number of bytes that a call's keys take while it is executed, as far as the keys can be
    /// found from their positions.
    pub fn bytes_for_keys(&self, args: &Arguments<'_>) -> usize {
        let found = self.keys.iter().filter_map(|spec| spec.positions(args));
        found.flatten().count() * KEY
    }

    /// The positions of a call's keys, and its access to each. If a rule does not fit the
    /// arguments, none is returned, because all are doubtful.
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

    /// Whether it has `flag`.
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether it may change data, here or on a replica.
    pub fn may_change_data(&self) -> bool {
        self.has(Flag::Write) || self.has(Flag::MayReplicate)
    }

    /// Whether it is a change in the eyes of clients: it may change data, or sends a message, which
    /// Redis passes on to replicas as it does changes.
    pub fn is_change(&self) -> bool {
        self.may_change_data() || matches!(self.channels, Some(Channels::First(_)))
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

    /// All its ACL categories: its own, and those that follow from its flags.
    pub fn acl_categories(&self) -> impl Iterator<Item = Category> {
        let implied = [
            (self.has(Flag::Write), Category::Write),
            (self.has(Flag::Readonly), Category::Read),
            (self.has(Flag::Admin), Category::Admin),
            (
                self.has(Flag::Admin) && !self.categories.contains(&Category::Dangerous),
                Category::Dangerous,
            ),
            (self.has(Flag::Blocking), Category::Blocking),
            (self.has(Flag::Fast), Category::Fast),
            (!self.has(Flag::Fast), Category::Slow),
        ];
        implied
            .into_iter()
            .filter_map(|(holds, category)| holds.then_some(category))
            .chain(self.categories.iter().copied())
    }
}

/// The default for a definition without `run`: every call gets a reply.
fn no_run(_: &mut Call<'_>) -> Outcome {
    Err(Failure::other("ERR this command's definition has no `run`"))
}

/// The records that a command may access, which determines how it is isolated from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of its keys, if any; the store isolates them, in a transaction too.
    Keys,
    /// Any record of one database or of all. On its own it is not isolated; a transaction with such
    /// a command needs an exclusive section.
    Databases,
    /// As `Databases`, but it always needs an exclusive section.
    Exclusive,
    /// Those of the queued commands.
    Queue,
    /// None. It may take long, and no other thread waits for it.
    Nothing,
}

/// Which arguments of a command are channels, or patterns of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channels {
    /// The first.
    First(Topic),
    /// All.
    All(Topic),
}

impl Channels {
    /// Their kind, and their positions among `count` arguments, the name included.
    pub fn positions(self, count: usize) -> (Topic, Range<usize>) {
        match self {
            Channels::First(topic) => (topic, 1..2.min(count)),
            Channels::All(topic) => (topic, 1..count),
        }
    }
}

/// How consecutive commands of a pipeline are combined into one call of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Batching {
    /// One argument, a key; the reply is its value.
    Value,
    /// Exactly a key and a value to be stored; with more arguments the command is executed
    /// individually.
    Pair,
    /// A change of elements of the value under its only key, argument 1, that accesses few of them.
    /// Consecutive changes of one key share a transaction if the value is large.
    Elements,
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

    /// Whether it changes elements of a value.
    #[inline]
    pub fn is_of_elements(self) -> bool {
        self == Batching::Elements
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
    /// The index of the key specification that finds it, if it is a key.
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

    /// A literal word.
    pub const fn word(name: &'static str, token: &'static str) -> Self {
        Self::new(name, Kind::PureToken).after(token)
    }

    /// One of several alternatives.
    pub const fn one_of(name: &'static str, arguments: &'static [Argument]) -> Self {
        Self {
            arguments,
            ..Self::new(name, Kind::OneOf)
        }
    }

    /// Several arguments, one after the other.
    pub const fn block(name: &'static str, arguments: &'static [Argument]) -> Self {
        Self {
            arguments,
            ..Self::new(name, Kind::Block)
        }
    }

    /// Makes it follow the word `token`.
    pub const fn after(self, token: &'static str) -> Self {
        Self {
            token: Some(token),
            ..self
        }
    }

    /// Sets the version of Redis that introduced it.
    pub const fn since(self, since: &'static str) -> Self {
        Self {
            since: Some(since),
            ..self
        }
    }

    /// Makes it optional.
    pub const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }

    /// Allows repeating it.
    pub const fn multiple(self) -> Self {
        Self {
            multiple: true,
            ..self
        }
    }

    /// Allows repeating it together with its token.
    pub const fn multiple_with_token(self) -> Self {
        Self {
            multiple_token: true,
            ..self.multiple()
        }
    }
}
