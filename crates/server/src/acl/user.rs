//! A user with its permissions, and the check whether it may make a call.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use indexmap::{IndexMap, IndexSet};

use crate::client::Topic;
use crate::glob::Steps;
use crate::resp::Arguments;
use mneme_log::MAX_KEY;

/// A set of commands, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bits(Box<[u64]>);

impl Bits {
    /// The empty set, for `len` commands.
    pub fn none(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)].into())
    }

    /// Removes or adds all commands.
    pub fn fill(&mut self, value: bool) {
        self.0.fill(if value { u64::MAX } else { 0 });
    }

    #[inline]
    pub fn has(&self, number: usize) -> bool {
        self.0
            .get(number / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub fn set(&mut self, number: usize, value: bool) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word = *word & !(1 << (number % 64)) | u64::from(value) << (number % 64);
        }
    }

    /// Adds or removes the commands of `others`.
    pub fn set_all(&mut self, others: &Bits, value: bool) {
        for (word, other) in self.0.iter_mut().zip(&others.0) {
            *word = if value { *word | other } else { *word & !other };
        }
    }

    /// How many of `others` are in the set, and how many are not.
    pub fn count(&self, others: &Bits) -> (u32, u32) {
        let pairs = self.0.iter().zip(&others.0);
        pairs.fold((0, 0), |(there, missing), (word, other)| {
            let both = (word & other).count_ones();
            (there + both, missing + other.count_ones() - both)
        })
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

/// A kind of access to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct KeyAccess {
    pub read: bool,
    pub write: bool,
}

impl KeyAccess {
    pub const ALL: Self = Self {
        read: true,
        write: true,
    };

    #[inline]
    fn covers(self, needed: Self) -> bool {
        self.read >= needed.read && self.write >= needed.write
    }
}

/// First arguments in lower case, each with its text in the first rule that named it.
pub(crate) type FirstArguments = IndexMap<Vec<u8>, Box<[u8]>>;

/// A set of permissions. A command is permitted if one set permits all of it.
///
/// Commands, channels and patterns are kept in the order of the rules, and found by hash when a
/// rule repeats one.
#[derive(Debug, Clone)]
pub(crate) struct Selector {
    pub all_keys: bool,
    pub all_channels: bool,
    /// Whether every command is permitted, so that the bits need not be checked.
    pub all_commands: bool,
    /// Whether it began with all commands, which its text must express too.
    pub is_subtractive: bool,
    pub commands: Bits,
    /// For commands that are not permitted otherwise, the first arguments with which they are.
    pub first_arguments: IndexMap<usize, FirstArguments>,
    /// Patterns, and the access to keys that match them.
    pub keys: IndexMap<Box<[u8]>, KeyAccess>,
    pub channels: IndexSet<Box<[u8]>>,
}

impl Selector {
    /// A set that permits nothing.
    pub fn new(commands: usize, all_channels: bool) -> Self {
        Self {
            all_keys: false,
            all_channels,
            all_commands: false,
            is_subtractive: false,
            commands: Bits::none(commands),
            first_arguments: IndexMap::new(),
            keys: IndexMap::new(),
            channels: IndexSet::new(),
        }
    }

    #[inline]
    fn permits_command(&self, judged: &Judged<'_>) -> bool {
        self.all_commands || self.commands.has(judged.number) || self.permits_first_argument(judged)
    }

    #[cold]
    fn permits_first_argument(&self, judged: &Judged<'_>) -> bool {
        let Judged { number, args, .. } = judged;
        let named = self.first_arguments.get(number);
        // Not looked up: the argument may be long, and its lower case would be a copy.
        let mut named = named.into_iter().flat_map(FirstArguments::values);
        args.len() > 1 && named.any(|one| one.eq_ignore_ascii_case(args.at(1)))
    }

    #[inline]
    fn permits_key(&self, key: &[u8], needed: KeyAccess) -> bool {
        // No key is this long, and matching it would take time.
        if key.len() > MAX_KEY {
            return false;
        }
        let steps = Steps::default();
        self.keys.iter().any(|(pattern, access)| {
            access.covers(needed) && steps.matches(pattern, key) && steps.check().is_ok()
        })
    }

    /// Whether the user may subscribe or publish to a channel. As in Redis, a pattern is permitted
    /// only if one of the rules has exactly the same text.
    fn permits_channel(&self, topic: Topic, name: &[u8]) -> bool {
        let steps = Steps::default();
        let permits = |one: &[u8]| match topic {
            Topic::Pattern => *one == *name,
            Topic::Channel | Topic::Shard => steps.matches(one, name) && steps.check().is_ok(),
        };
        self.all_channels || self.channels.iter().any(|one| permits(one))
    }

    #[inline]
    fn check(&self, judged: &Judged<'_>) -> Result<(), Denied> {
        if !self.permits_command(judged) {
            return Err(Denied::Command);
        }
        if !self.all_keys {
            let mut keys = judged.keys.iter();
            let denied = keys
                .find(|(position, needed)| !self.permits_key(judged.args.at(*position), *needed));
            if let Some((position, _)) = denied {
                return Err(Denied::Key(*position));
            }
        }
        match &judged.channels {
            Some((topic, positions)) => self.check_channels(judged.args, *topic, positions),
            None => Ok(()),
        }
    }

    fn check_channels(
        &self,
        args: Arguments<'_>,
        topic: Topic,
        positions: &Range<usize>,
    ) -> Result<(), Denied> {
        let mut positions = positions.clone();
        match positions.find(|position| !self.permits_channel(topic, args.at(*position))) {
            Some(position) => Err(Denied::Channel(position)),
            None => Ok(()),
        }
    }
}

/// A call that is to be checked.
pub(crate) struct Judged<'a> {
    /// The command's number.
    pub number: usize,
    pub args: Arguments<'a>,
    /// The positions of its keys, and its access to each.
    pub keys: &'a [(usize, KeyAccess)],
    /// The kind of its channels, and their positions.
    pub channels: Option<(Topic, Range<usize>)>,
}

/// What a user is not permitted in a call; later variants are more specific.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denied {
    /// The command.
    Command,
    /// The key in this argument.
    Key(usize),
    /// The channel in this argument.
    Channel(usize),
}

/// How thoroughly a client's payload for `RESTORE` is checked; kept only for the text of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sanitizing {
    /// No rule sets it.
    Unsaid,
    Skip,
    Always,
}

/// A user. It is immutable: a change creates a new one.
#[derive(Debug)]
pub(crate) struct User {
    pub(super) name: Arc<[u8]>,
    pub(super) is_on: bool,
    pub(super) needs_no_password: bool,
    pub(super) sanitizing: Sanitizing,
    /// SHA-256 of each password, in hexadecimal digits.
    pub(super) passwords: IndexSet<String>,
    /// The rules outside parentheses belong to the first set.
    pub(super) selectors: Vec<Selector>,
    pub(super) is_unrestricted: bool,
    pub(super) has_all: bool,
    /// The text of its rules, once it was requested.
    pub(super) text: OnceLock<Vec<u8>>,
}

impl User {
    /// A user without permissions, as which nobody can authenticate.
    pub fn new(name: &[u8], root: Selector) -> Self {
        Self {
            name: name.into(),
            is_on: false,
            needs_no_password: false,
            sanitizing: Sanitizing::Unsaid,
            passwords: IndexSet::new(),
            selectors: vec![root],
            is_unrestricted: false,
            has_all: false,
            text: OnceLock::new(),
        }
    }

    /// A copy that can be changed.
    pub fn draft(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            passwords: self.passwords.clone(),
            selectors: self.selectors.clone(),
            text: OnceLock::new(),
            ..*self
        }
    }

    /// Makes the draft a published user.
    pub fn finished(mut self) -> Arc<Self> {
        let is_unrestricted = |one: &Selector| one.all_commands && one.all_keys;
        self.is_unrestricted = self.selectors.iter().any(is_unrestricted);
        let has_all = |one: &Selector| is_unrestricted(one) && one.all_channels;
        self.has_all = self.selectors.iter().any(has_all);
        Arc::new(self)
    }

    pub fn name(&self) -> &Arc<[u8]> {
        &self.name
    }

    /// Whether a client can authenticate as this user.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether any password is accepted.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// The hashes of its passwords.
    pub fn passwords(&self) -> impl ExactSizeIterator<Item = &String> {
        self.passwords.iter()
    }

    /// Its sets of permissions; the rules outside parentheses belong to the first.
    pub fn selectors(&self) -> &[Selector] {
        &self.selectors
    }

    /// Whether it may call every command with any key.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.is_unrestricted
    }

    /// Whether it may call every command with any key and any channel.
    #[inline]
    pub fn has_all(&self) -> bool {
        self.has_all
    }

    /// Whether it may subscribe or publish to a channel.
    pub fn permits_channel(&self, topic: Topic, name: &[u8]) -> bool {
        let mut selectors = self.selectors.iter();
        selectors.any(|selector| selector.permits_channel(topic, name))
    }

    /// Whether its rules allow every channel that those of `before` allowed, comparing patterns as
    /// text.
    pub fn keeps_channels_of(&self, before: &User) -> bool {
        let has_all = |user: &User| user.selectors.iter().any(|one| one.all_channels);
        let keeps_each = || {
            let kept: HashSet<_> = self
                .selectors
                .iter()
                .flat_map(|one| &one.channels)
                .collect();
            let mut channels = before.selectors.iter().flat_map(|one| &one.channels);
            channels.all(|channel| kept.contains(channel))
        };
        has_all(self) || !has_all(before) && keeps_each()
    }

    /// Checks whether it may make this call; otherwise returns what is missing, according to the
    /// set of permissions that comes closest.
    pub fn check(&self, judged: &Judged<'_>) -> Result<(), Denied> {
        let mut lacking = Denied::Command;
        for selector in &self.selectors {
            match selector.check(judged) {
                Ok(()) => return Ok(()),
                Err(denied) => lacking = lacking.max(denied),
            }
        }
        Err(lacking)
    }

    /// Whether a password with this [hash](super::password_hash) is one of its passwords. The
    /// time that this takes does not reveal where the first difference lies.
    pub fn accepts(&self, hash: &str) -> bool {
        if !self.is_on {
            return false;
        }
        if self.needs_no_password {
            return true;
        }
        let each = self.passwords.iter();
        each.fold(false, |right, one| {
            right | equal(one.as_bytes(), hash.as_bytes())
        })
    }
}

/// Compares in a time that does not reveal where the first difference lies.
fn equal(a: &[u8], b: &[u8]) -> bool {
    let difference = a.iter().zip(b).fold(0, |bits, (a, b)| bits | (a ^ b));
    a.len() == b.len() && std::hint::black_box(difference) == 0
}
