//! Writes a user's rules as text, from which the same user can be created again.
//!
//! The permitted commands are described as Redis does it: the text begins with all commands or
//! none, then lists the categories that fit best, and then the remaining commands.

use super::user::{KeyAccess, Sanitizing, Selector, User};
use super::vocabulary::Vocabulary;
use crate::command::Category;

impl User {
    /// The user's flags.
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        let flags = [
            (self.is_on, "on"),
            (!self.is_on, "off"),
            (self.needs_no_password, "nopass"),
            (self.sanitizing == Sanitizing::Skip, "skip-sanitize-payload"),
            (self.sanitizing == Sanitizing::Always, "sanitize-payload"),
        ];
        flags
            .into_iter()
            .filter_map(|(holds, name)| holds.then_some(name))
    }

    /// All its rules, as in `ACL LIST` and in the file of users.
    pub fn text(&self, vocabulary: &Vocabulary) -> &[u8] {
        self.text.get_or_init(|| {
            let flags = self.flags().map(|flag| flag.as_bytes().to_vec());
            let passwords = self.passwords.iter().map(|hash| format!("#{hash}").into());
            let selectors = self.selectors.iter().enumerate().map(|(place, selector)| {
                let text = selector.text(vocabulary);
                match place {
                    0 => text,
                    _ => [b"(", &text[..], b")"].concat(),
                }
            });
            let words: Vec<Vec<u8>> = flags.chain(passwords).chain(selectors).collect();
            words.join(&b' ')
        })
    }
}

impl Selector {
    /// All its rules.
    fn text(&self, vocabulary: &Vocabulary) -> Vec<u8> {
        let mut words = vec![self.keys_text()];
        if !self.all_channels {
            words.push(b"resetchannels".to_vec());
        }
        words.push(self.channels_text());
        words.push(self.commands_text(vocabulary));
        words.retain(|word| !word.is_empty());
        words.join(&b' ')
    }

    /// Its rules about keys.
    pub fn keys_text(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let words = self.keys.iter().map(|(pattern, access)| {
            let sign: &[u8] = match *access {
                KeyAccess::ALL => b"~",
                KeyAccess { read: true, .. } => b"%R~",
                KeyAccess { .. } => b"%W~",
            };
            [sign, pattern].concat()
        });
        words.collect::<Vec<_>>().join(&b' ')
    }

    /// Its rules about channels.
    pub fn channels_text(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let words = self.channels.iter().map(|one| [b"&", &one[..]].concat());
        words.collect::<Vec<_>>().join(&b' ')
    }

    /// Its rules about commands.
    pub fn commands_text(&self, vocabulary: &Vocabulary) -> Vec<u8> {
        let adds = !self.is_subtractive;
        let mut text = if adds { b"-@all" } else { b"+@all" }.to_vec();
        // The permissions that the text expresses so far.
        let mut said = Selector::new(vocabulary.len(), false);
        said.set_all_commands(!adds);
        // The commands that no category has covered yet.
        let mut rest = Selector::new(vocabulary.len(), false);
        rest.commands = self.commands.clone();
        let mut left: Vec<Category> = Category::ALL.to_vec();
        while let Some(place) = best_fit(&rest, vocabulary, &left, adds) {
            let category = left.remove(place);
            said.set_category(vocabulary, category, adds);
            rest.set_category(vocabulary, category, !adds);
            text.extend_from_slice(if adds { b" +@" } else { b" -@" });
            text.extend_from_slice(category.name().as_bytes());
        }
        for &number in vocabulary.ordered() {
            let name = vocabulary.name(number).as_bytes();
            let is_permitted = self.commands.has(number);
            if is_permitted != said.commands.has(number) {
                text.extend_from_slice(if is_permitted { b" +" } else { b" -" });
                text.extend_from_slice(name);
                said.set_command(vocabulary, number, is_permitted);
            }
            if !is_permitted {
                let named = self.first_arguments.get(&number);
                for argument in named.into_iter().flat_map(|named| named.values()) {
                    text.extend_from_slice(&[b" +", name, b"|", argument].concat());
                }
            }
        }
        text
    }
}

/// The index of the category that leaves the fewest commands to be listed individually; among equal
/// ones, that with the most commands; `None` if each covers more wrong commands than right ones.
fn best_fit(
    rest: &Selector,
    vocabulary: &Vocabulary,
    categories: &[Category],
    adds: bool,
) -> Option<usize> {
    let mut best: Option<(usize, u32, u32)> = None;
    for (place, category) in categories.iter().enumerate() {
        let (on, off) = rest.commands.count(vocabulary.counted(*category));
        let (right, wrong) = if adds { (on, off) } else { (off, on) };
        let is_better =
            best.is_none_or(|(_, most, least)| wrong < least || wrong == least && right > most);
        if right > wrong && is_better {
            best = Some((place, right, wrong));
        }
    }
    best.map(|(place, ..)| place)
}
