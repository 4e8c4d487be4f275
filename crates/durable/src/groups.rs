//! [`Groups`]: which positions of the feed lie within groups, that is changes made together.
//!
//! **Nothing within a group is durable before the group has ended.** A recovery that does not find
//! the end of a group cuts off all of it, including what other threads have entered meanwhile. So
//! the durable position stops where an open group begins, even if the files hold more.

use std::collections::VecDeque;

use mneme_log::feed::{Item, entries};
use mneme_sys::fault::without;

use crate::DurableError;

/// The groups of the feed, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// Where the group that is open at the last settled position begins.
    open: Option<u64>,
    /// Where groups noted since then begin and end; an end is the position after the group's last
    /// entry.
    edges: VecDeque<Edge>,
    /// Everything before it has been noted.
    noted: u64,
}

#[derive(Debug, Clone, Copy)]
enum Edge {
    Begin(u64),
    End(u64),
}

impl Groups {
    /// Continues at `position`, which may lie within a group.
    pub fn begin_at(position: u64, is_within: bool) -> Self {
        Self {
            open: is_within.then_some(position),
            edges: VecDeque::new(),
            noted: position,
        }
    }

    /// Notes entries that were drained, possibly not for the first time.
    pub fn note(&mut self, position: u64, bytes: &[u8]) -> Result<(), DurableError> {
        for entry in entries(position, bytes) {
            let entry = entry?;
            let end = entry.position + entry.stride() as u64;
            if end <= self.noted {
                continue;
            }
            self.noted = end;
            match entry.items().next().transpose()? {
                Some(Item::Open) => self.edges.push_back(Edge::Begin(entry.position)),
                Some(Item::Close) => self.edges.push_back(Edge::End(end)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns how far the feed is durable when the files hold everything before `position`.
    pub fn settle(&mut self, position: u64) -> u64 {
        while let Some(edge) = self.edges.front().copied() {
            match edge {
                Edge::Begin(begin) if begin < position => {
                    self.open.get_or_insert(begin);
                }
                Edge::End(end) if end <= position => self.open = None,
                _ => break,
            }
            self.edges.pop_front();
        }
        match self.open {
            Some(begin) if !without("pump.groups") => begin,
            _ => position,
        }
    }
}

#[cfg(test)]
mod tests {
    use mneme_log::feed::{RemovalCause, append_change};

    use super::*;

    #[test]
    fn positions_within_an_open_group_are_not_durable() {
        let mut bytes = Vec::new();
        let root = 1;
        let remove = Item::Remove {
            root,
            key: b"key",
            cause: RemovalCause::Asked,
        };
        let mut ends = vec![0];
        for item in [remove, Item::Open, remove, Item::Close, Item::Open, remove] {
            append_change(&[item], 0, &mut bytes);
            ends.push(bytes.len() as u64);
        }
        let mut groups = Groups::begin_at(0, false);
        let half = ends[3] as usize;
        groups.note(0, &bytes[..half]).unwrap();
        // Drained a second time, with more.
        groups.note(0, &bytes).unwrap();
        let expected = [0, 1, 1, 1, 4, 4, 4].map(|i| ends[i]);
        let settled: Vec<_> = ends.iter().map(|end| groups.settle(*end)).collect();
        assert_eq!(settled, expected);
        // A feed that continues within a group.
        let mut groups = Groups::begin_at(ends[2], true);
        groups.note(ends[2], &bytes[ends[2] as usize..]).unwrap();
        let expected = [2, 4, 4, 4].map(|i| ends[i]);
        let settled: Vec<_> = ends[3..].iter().map(|end| groups.settle(*end)).collect();
        assert_eq!(settled, expected);
    }
}
