//! What was pushed and popped at the ends of a large list, while it is [open](crate::open_value).

use std::collections::VecDeque;

use crate::packed_list::End;

/// Bytes of items that were pushed, or have been read ahead, at most.
const MOST_BYTES: usize = 64 << 10;

/// Both ends of a list.
#[derive(Default, Debug)]
pub struct ListEnds {
    id: Option<u64>,
    front: ListEnd,
    back: ListEnd,
}

/// One end of a list.
#[derive(Default, Debug)]
pub(crate) struct ListEnd {
    /// The positions of items of the tree that were popped, in the order in which they went.
    pub gone: Vec<i64>,
    /// Items of the tree that go next.
    pub next: VecDeque<(i64, Vec<u8>)>,
    /// Items that were pushed, each behind the one before it: their bytes, and how many each has.
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl ListEnds {
    /// The ends of list `id`. `None`: those of another one wait.
    pub(crate) fn of(&mut self, id: u64) -> Option<&mut ListEnds> {
        if self.id != Some(id) {
            if self.waits_for().is_some() {
                return None;
            }
            *self = ListEnds {
                id: Some(id),
                ..ListEnds::default()
            };
        }
        Some(self)
    }

    /// The list in which items are to be removed or put.
    pub(crate) fn waits_for(&self) -> Option<u64> {
        let is_changed = |end: &ListEnd| !(end.gone.is_empty() && end.lens.is_empty());
        self.id
            .filter(|_| is_changed(&self.front) || is_changed(&self.back))
    }

    pub(crate) fn end(&mut self, end: End) -> &mut ListEnd {
        match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        }
    }

    /// Items that were pushed.
    pub(crate) fn pushed(&self) -> u64 {
        (self.front.lens.len() + self.back.lens.len()) as u64
    }

    /// Items of the tree that were popped.
    pub(crate) fn gone(&self) -> u64 {
        (self.front.gone.len() + self.back.gone.len()) as u64
    }
}

impl ListEnd {
    /// Adds items, if they are few bytes.
    pub fn push(&mut self, items: &[&[u8]]) -> bool {
        let bytes: usize = items.iter().map(|item| item.len()).sum();
        let fits = self.bytes.len().saturating_add(bytes) <= MOST_BYTES;
        if fits {
            for item in items {
                self.bytes.extend_from_slice(item);
                self.lens.push(item.len());
            }
        }
        fits
    }

    /// Calls `visit` with the item that was pushed last, which is gone then. Whether there was one.
    pub fn pop_pushed(&mut self, visit: impl FnOnce(&[u8])) -> bool {
        let Some(len) = self.lens.pop() else {
            return false;
        };
        let begin = self.bytes.len() - len;
        visit(&self.bytes[begin..]);
        self.bytes.truncate(begin);
        true
    }

    /// The items that were pushed, the first one first.
    pub(crate) fn pushed(&self) -> Vec<&[u8]> {
        let mut rest = self.bytes.as_slice();
        let items = self.lens.iter().map(|len| {
            let (item, behind) = rest.split_at(*len);
            rest = behind;
            item
        });
        items.collect()
    }
}
