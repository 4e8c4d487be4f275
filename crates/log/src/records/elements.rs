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
    /// Whether the feed is kept.
    is_fed: bool,
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
    pub(crate) fn new(kind: ValueKind, is_fed: bool) -> Elements {
        Elements {
            kind,
            is_fed,
            bytes: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Whether the feed is kept: otherwise nothing needs to be noted.
    #[must_use]
    pub fn are_wanted(&self) -> bool {
        self.is_fed
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
        if self.is_fed {
            self.bytes.extend_from_slice(element);
            self.bytes.extend_from_slice(value.unwrap_or_default());
            self.changes.push(Changed {
                element: element.len(),
                value: value.map(<[u8]>::len),
            });
        }
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

    /// Whether an entry with these elements of `key` is shorter than one with all of `value`.
    pub(crate) fn are_shorter(&self, key: &[u8], value: &[u8]) -> bool {
        if self.changes.is_empty() {
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
}

impl Records {
    /// Enters the changed elements of the value of `key`; the feed is kept.
    ///
    /// # Errors
    /// There is no space. The caller gives the change up.
    #[cold]
    #[inline(never)]
    pub(crate) fn enter_elements(
        &self,
        slot: &Slot<'_>,
        root: u64,
        key: &[u8],
        elements: &Elements,
    ) -> Result<Option<Reserved>, WriteError> {
        self.session().feed.enter(slot, &elements.items(root, key))
    }
}
