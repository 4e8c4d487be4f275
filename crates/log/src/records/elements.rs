//! The elements that a change sets or removes: **the feed has the elements instead of the whole
//! value.**
//!
//! The store knows nothing about elements. The crate that defines the kind of value says which ones
//! a change sets or removes, and applies them again when the feed is replayed.

use mneme_sync::Slot;

use crate::error::WriteError;
use crate::feed::item::Item;
use crate::feed::ring::Reserved;
use crate::records::Records;
use crate::region::kind::ValueKind;
use crate::region::layout::MAX_ENTRY;

/// The elements of a value that an update sets and removes, see
/// [`LogStore::update_elements`](crate::LogStore::update_elements).
#[derive(Debug)]
pub struct Elements {
    kind: ValueKind,
    /// Whether anything follows the store: the feed, or a listener.
    are_wanted: bool,
    /// Each element, followed by its value.
    bytes: Vec<u8>,
    changes: Vec<Changed>,
}

/// The lengths of an element, and of its value; `None`: it is removed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    element: usize,
    value: Option<usize>,
}

impl Elements {
    pub(crate) fn new(kind: ValueKind, are_wanted: bool) -> Elements {
        Elements {
            kind,
            are_wanted,
            bytes: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Whether anything follows the store: otherwise nothing needs to be noted.
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.are_wanted
    }

    /// The value has this element now, with this value.
    pub fn set(&mut self, element: &[u8], value: &[u8]) {
        self.say(element, Some(value));
    }

    /// The value no longer has this element.
    pub fn remove(&mut self, element: &[u8]) {
        self.say(element, None);
    }

    fn say(&mut self, element: &[u8], value: Option<&[u8]>) {
        if self.are_wanted {
            self.bytes.extend_from_slice(element);
            self.bytes.extend_from_slice(value.unwrap_or_default());
            self.changes.push(Changed {
                element: element.len(),
                value: value.map(<[u8]>::len),
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.changes.clear();
    }

    /// The items for these elements of `key`.
    fn items<'e>(&'e self, root: u64, key: &'e [u8]) -> Vec<Item<'e>> {
        let (mut rest, kind) = (self.bytes.as_slice(), self.kind.number());
        let item = |changed: &Changed| {
            let (element, behind) = rest.split_at(changed.element);
            let (value, behind) = behind.split_at(changed.value.unwrap_or_default());
            rest = behind;
            match changed.value {
                Some(_) => Item::Edit {
                    root,
                    key,
                    kind,
                    element,
                    value,
                },
                None => Item::Unedit {
                    root,
                    key,
                    kind,
                    element,
                },
            }
        };
        self.changes.iter().map(item).collect()
    }

    /// Items that report that elements of `key` were set, or removed, without naming them.
    fn abridged<'e>(&self, root: u64, key: &'e [u8]) -> Vec<Item<'e>> {
        let (kind, element) = (self.kind.number(), &[][..]);
        let is_set = |changed: &Changed| changed.value.is_some();
        let set = self.changes.iter().any(is_set).then_some(Item::Edit {
            root,
            key,
            kind,
            element,
            value: &[],
        });
        let removed = (!self.changes.iter().all(is_set)).then_some(Item::Unedit {
            root,
            key,
            kind,
            element,
        });
        set.into_iter().chain(removed).collect()
    }

    /// Whether an entry with these elements of `key` is shorter than one with all of `value`.
    pub(crate) fn are_shorter(&self, key: &[u8], value: &[u8]) -> bool {
        if self.is_empty() {
            return false;
        }
        let each = Item::Edit {
            root: 0,
            key,
            kind: 0,
            element: &[],
            value: &[],
        };
        // A length of more than 16 bits takes another word.
        let bytes = self.bytes.len() + self.changes.len() * (each.encoded_len() + 8);
        bytes < (key.len() + value.len()).min(MAX_ENTRY / 2)
    }

    /// Whether the last change removed an element. It is reported to listeners even where the feed
    /// has the whole value, which does not show what the change was.
    fn end_with_a_removal(&self) -> bool {
        self.changes.last().is_some_and(|last| last.value.is_none())
    }
}

impl Records {
    /// Whether the feed gets these elements of a change that makes `value` that of `key`; otherwise
    /// it gets the whole value alone.
    pub(crate) fn are_entered(&self, elements: &Elements, key: &[u8], value: &[u8]) -> bool {
        if self.session().feed.kept().is_none() {
            return !elements.is_empty();
        }
        elements.are_shorter(key, value)
            || elements.end_with_a_removal()
                && 2 * key.len() + value.len() + elements.bytes.len() < MAX_ENTRY / 2
                && self.session().feed.has_other_followers()
    }

    /// Enters the changed elements of a value, which is `whole` after the change.
    ///
    /// # Errors
    /// There is no space. The caller gives the change up.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_elements<'i>(
        &self,
        slot: &Slot<'_>,
        elements: &Elements,
        whole: Item<'i>,
    ) -> Result<Option<Reserved>, WriteError> {
        let Item::Put {
            root, key, bytes, ..
        } = whole
        else {
            return self.enter_change(slot, || Ok(whole));
        };
        if !self.session().feed.is_followed() {
            return Ok(None);
        }
        let items = match self.session().feed.kept() {
            None => elements.abridged(root, key),
            Some(_) if elements.are_shorter(key, bytes) => elements.items(root, key),
            // What the last change removed is not there afterwards.
            Some(_) => {
                let last = elements.items(root, key).pop();
                std::iter::once(whole).chain(last).collect()
            }
        };
        self.session().feed.enter(slot, &items)
    }
}
