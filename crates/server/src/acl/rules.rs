//! Rules, one word each, and how they change a user; parsed exactly as Redis 7.0 does.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

use super::user::{KeyAccess, Sanitizing, Selector, User};
use super::vocabulary::Vocabulary;
use crate::command::Category;
use crate::resp::split_line;

/// What is needed to read rules.
#[derive(Clone, Copy)]
pub(crate) struct Reading<'a> {
    pub vocabulary: &'a Vocabulary,
    /// Whether users may use all channels by default.
    pub all_channels: bool,
}

/// Why a rule is refused, in Redis's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleRefusal {
    #[error("Unknown command or category name in ACL")]
    Unknown,
    #[error("Syntax error")]
    Syntax,
    #[error(
        "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try \
         'resetkeys' to start with an empty list of patterns"
    )]
    KeyAfterAll,
    #[error(
        "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. \
         Try 'resetchannels' to start with an empty list of channels"
    )]
    ChannelAfterAll,
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    NotAHash,
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgument,
}

/// SHA-256 of a password, in hexadecimal digits.
pub(crate) fn password_hash(password: &[u8]) -> String {
    let digest = Sha256::digest(password);
    let halves = digest.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    halves
        .filter_map(|half| char::from_digit(half.into(), 16))
        .collect()
}

/// Whether a name or a pattern would not be one word of a rule.
pub(crate) fn has_spaces(text: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, 0 | b'\t'..=b'\r' | b' ');
    text.iter().any(is_space)
}

/// Joins the words of rules in parentheses. The error is the word whose parenthesis is not closed.
pub(super) fn joined<'a>(
    words: impl Iterator<Item = &'a [u8]>,
) -> Result<Vec<Cow<'a, [u8]>>, &'a [u8]> {
    let mut rules = Vec::new();
    let mut open: Option<(&[u8], Vec<u8>)> = None;
    for word in words {
        match &mut open {
            // As in Redis, another opening parenthesis replaces the earlier one.
            _ if word.starts_with(b"(") && !word.ends_with(b")") => {
                open = Some((word, word.to_vec()));
            }
            None => rules.push(Cow::Borrowed(word)),
            Some((_, rule)) => {
                rule.push(b' ');
                rule.extend_from_slice(word);
                if word.ends_with(b")") {
                    rules.extend(open.take().map(|(_, rule)| Cow::Owned(rule)));
                }
            }
        }
    }
    match open {
        Some((word, _)) => Err(word),
        None => Ok(rules),
    }
}

impl Reading<'_> {
    /// A user without permissions.
    pub fn nobody(self, name: &[u8]) -> User {
        User::new(name, self.nothing())
    }

    fn nothing(self) -> Selector {
        Selector::new(self.vocabulary.len(), self.all_channels)
    }

    /// Applies a rule to a user.
    pub fn apply(self, user: &mut User, rule: &[u8]) -> Result<(), RuleRefusal> {
        let is = |word: &[u8]| rule.eq_ignore_ascii_case(word);
        match rule {
            [] => {}
            _ if is(b"on") => user.is_on = true,
            _ if is(b"off") => user.is_on = false,
            _ if is(b"skip-sanitize-payload") => user.sanitizing = Sanitizing::Skip,
            _ if is(b"sanitize-payload") => user.sanitizing = Sanitizing::Always,
            _ if is(b"nopass") => {
                user.needs_no_password = true;
                user.passwords.clear();
            }
            _ if is(b"resetpass") => {
                user.needs_no_password = false;
                user.passwords.clear();
            }
            [b'>', ..] | [b'#', ..] => {
                let hash = hash_of(rule, b'>')?;
                user.passwords.insert(hash);
                user.needs_no_password = false;
            }
            [b'<', ..] | [b'!', ..] => {
                let hash = hash_of(rule, b'<')?;
                if !user.passwords.shift_remove(&hash) {
                    return Err(RuleRefusal::NoSuchPassword);
                }
            }
            [b'(', inner @ .., b')'] => {
                let mut selector = self.nothing();
                // As in Redis, rules with an unclosed quote are ignored.
                for rule in split_line(inner).unwrap_or_default() {
                    self.apply_to(&mut selector, &rule)?;
                }
                user.selectors.push(selector);
            }
            _ if is(b"clearselectors") => user.selectors.truncate(1),
            _ if is(b"reset") => {
                let name = user.name().to_vec();
                *user = User {
                    sanitizing: Sanitizing::Always,
                    ..self.nobody(&name)
                };
            }
            rule => {
                if let Some(root) = user.selectors.first_mut() {
                    self.apply_to(root, rule)?;
                }
            }
        }
        Ok(())
    }

    /// Applies a rule to a set of permissions.
    fn apply_to(self, selector: &mut Selector, rule: &[u8]) -> Result<(), RuleRefusal> {
        let is = |word: &[u8]| rule.eq_ignore_ascii_case(word);
        match rule {
            _ if is(b"allkeys") || is(b"~*") => {
                selector.all_keys = true;
                selector.keys.clear();
            }
            _ if is(b"resetkeys") => {
                selector.all_keys = false;
                selector.keys.clear();
            }
            _ if is(b"allchannels") || is(b"&*") => {
                selector.all_channels = true;
                selector.channels.clear();
            }
            _ if is(b"resetchannels") => {
                selector.all_channels = false;
                selector.channels.clear();
            }
            _ if is(b"allcommands") || is(b"+@all") => selector.set_all_commands(true),
            _ if is(b"nocommands") || is(b"-@all") => selector.set_all_commands(false),
            [b'~', pattern @ ..] => selector.add_keys(pattern, KeyAccess::ALL)?,
            [b'%', ..] if selector.all_keys => return Err(RuleRefusal::KeyAfterAll),
            [b'%', rest @ ..] => {
                let (access, pattern) = access(rest)?;
                selector.add_keys(pattern, access)?;
            }
            [b'&', ..] if selector.all_channels => return Err(RuleRefusal::ChannelAfterAll),
            [b'&', pattern @ ..] => {
                if has_spaces(pattern) {
                    return Err(RuleRefusal::Syntax);
                }
                selector.channels.insert(pattern.into());
            }
            [sign @ (b'+' | b'-'), b'@', category @ ..] => {
                let category = Category::from_name(category).ok_or(RuleRefusal::Unknown)?;
                selector.set_category(self.vocabulary, category, *sign == b'+');
            }
            [b'-', name @ ..] => {
                let number = self.vocabulary.find(name).ok_or(RuleRefusal::Unknown)?;
                selector.set_command(self.vocabulary, number, false);
            }
            [b'+', name @ ..] => self.permit(selector, name)?,
            _ => return Err(RuleRefusal::Syntax),
        }
        Ok(())
    }

    /// Permits a command, a subcommand, or a command with a first argument.
    fn permit(self, selector: &mut Selector, name: &[u8]) -> Result<(), RuleRefusal> {
        let vocabulary = self.vocabulary;
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let number = vocabulary.find(name).ok_or(RuleRefusal::Unknown)?;
            selector.set_command(vocabulary, number, true);
            return Ok(());
        };
        let (command, argument) = (&name[..bar], &name[bar + 1..]);
        let number = vocabulary.find(command).ok_or(RuleRefusal::Unknown)?;
        if vocabulary.container(number).is_some() {
            return Err(RuleRefusal::FirstArgument);
        }
        if argument.is_empty() {
            return Err(RuleRefusal::Syntax);
        }
        if vocabulary.subcommands(number).is_empty() {
            selector.add_first_argument(number, argument);
        } else {
            let number = vocabulary.find(name).ok_or(RuleRefusal::Unknown)?;
            selector.set_command(vocabulary, number, true);
        }
        Ok(())
    }
}

/// The hash in a rule about a password: given as such, or computed from the password, which follows
/// the byte `plain`.
fn hash_of(rule: &[u8], plain: u8) -> Result<String, RuleRefusal> {
    let (sign, text) = (rule[0], &rule[1..]);
    if sign == plain {
        return Ok(password_hash(text));
    }
    let is_hash = text.len() == 64 && text.iter().all(|b| matches!(b, b'a'..=b'f' | b'0'..=b'9'));
    match std::str::from_utf8(text) {
        Ok(text) if is_hash => Ok(text.to_owned()),
        _ => Err(RuleRefusal::NotAHash),
    }
}

/// The access between `%` and `~`, and the pattern after it.
fn access(rest: &[u8]) -> Result<(KeyAccess, &[u8]), RuleRefusal> {
    let mut access = KeyAccess::default();
    for (place, byte) in rest.iter().enumerate() {
        match byte {
            b'R' | b'r' if !access.read => access.read = true,
            b'W' | b'w' if !access.write => access.write = true,
            b'~' if access != KeyAccess::default() => return Ok((access, &rest[place + 1..])),
            _ => return Err(RuleRefusal::Syntax),
        }
    }
    match access == KeyAccess::default() {
        true => Err(RuleRefusal::Syntax),
        // As in Redis: an empty pattern matches the empty key.
        false => Ok((access, &[])),
    }
}

impl Selector {
    pub(super) fn set_all_commands(&mut self, value: bool) {
        self.commands.fill(value);
        self.all_commands = value;
        self.is_subtractive = value;
        self.first_arguments.clear();
    }

    /// Permits or forbids a command and its subcommands.
    pub(super) fn set_command(&mut self, vocabulary: &Vocabulary, number: usize, value: bool) {
        self.commands.set(number, value);
        self.all_commands &= value;
        self.first_arguments.shift_remove(&number);
        for sub in vocabulary.subcommands(number) {
            self.commands.set(*sub, value);
        }
    }

    pub(super) fn set_category(
        &mut self,
        vocabulary: &Vocabulary,
        category: Category,
        value: bool,
    ) {
        let reached = vocabulary.reached(category);
        self.commands.set_all(reached, value);
        self.all_commands &= value || reached.is_empty();
        self.first_arguments
            .retain(|number, _| !vocabulary.is_in(*number, category));
    }

    fn add_keys(&mut self, pattern: &[u8], access: KeyAccess) -> Result<(), RuleRefusal> {
        if self.all_keys {
            return Err(RuleRefusal::KeyAfterAll);
        }
        if has_spaces(pattern) {
            return Err(RuleRefusal::Syntax);
        }
        let known = self.keys.entry(pattern.into()).or_default();
        known.read |= access.read;
        known.write |= access.write;
        Ok(())
    }

    fn add_first_argument(&mut self, number: usize, argument: &[u8]) {
        let known = self.first_arguments.entry(number).or_default();
        let named = known.entry(argument.to_ascii_lowercase());
        named.or_insert_with(|| argument.into());
    }
}
