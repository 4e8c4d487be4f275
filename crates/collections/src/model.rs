//! A store for tests: the records of one collection, in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mneme_log::{Anchor, Expiry, Stored, ValueKind, WriteError};

use crate::list_ends::ListEnds;
use crate::records::StoreRecords;

/// The records of collection 1, and the reported changes of its elements. The inner records of
/// other collections are copies.
#[derive(Default)]
pub(crate) struct Model {
    pub anchor: Option<Anchor>,
    pub inner: BTreeMap<u64, Vec<u8>>,
    pub copies: BTreeMap<u64, Vec<u8>>,
    pub said: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The number of times that inner records were stored or removed.
    pub stored: usize,
    /// Whether every change is refused.
    pub refuses: bool,
    /// Where the ends of a list wait; `None`: they are stored at once.
    pub ends: Option<ListEnds>,
}

impl StoreRecords for Model {
    fn read(
        &mut self,
        _: usize,
        _: &[u8],
        _: &mut dyn FnMut(Option<Stored<'_>>),
    ) -> Result<(), WriteError> {
        unreachable!("there are no keys")
    }

    fn put(
        &mut self,
        _: usize,
        _: &[u8],
        _: &[u8],
        _: (ValueKind, Expiry),
    ) -> Result<(), WriteError> {
        unreachable!("there are no keys")
    }

    fn remove(&mut self, _: usize, _: &[u8]) -> Result<bool, WriteError> {
        unreachable!("there are no keys")
    }

    fn touch(&mut self, _: usize, _: &[u8]) -> Result<(), WriteError> {
        unreachable!("there are no keys")
    }

    fn new_collection(&mut self) -> u64 {
        1
    }

    fn anchor(&mut self, _: u64) -> Result<Option<Anchor>, WriteError> {
        Ok(self.anchor)
    }

    fn set_anchor(&mut self, _: u64, anchor: Option<&Anchor>) -> Result<(), WriteError> {
        self.anchor = anchor.copied();
        Ok(())
    }

    fn lend_inner(&mut self, id: u64, number: u64) -> Result<Option<Cow<'_, [u8]>>, WriteError> {
        let records = if id == 1 { &self.inner } else { &self.copies };
        Ok(records.get(&number).map(Cow::from))
    }

    fn set_inner(&mut self, id: u64, n: u64, image: Option<&[u8]>) -> Result<(), WriteError> {
        if self.refuses {
            return Err(WriteError::ReadOnly);
        }
        self.stored += 1;
        let records = match id {
            1 => &mut self.inner,
            _ => &mut self.copies,
        };
        match image {
            Some(image) => drop(records.insert(n, image.to_vec())),
            None => assert!(records.remove(&n).is_some(), "removed twice"),
        }
        Ok(())
    }

    fn say(&mut self, _: u64, _: ValueKind, element: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => drop(self.said.insert(element.to_vec(), value.to_vec())),
            None => drop(self.said.remove(element)),
        }
    }

    fn list_ends(&mut self, id: u64) -> Option<&mut ListEnds> {
        self.ends.as_mut()?.of(id)
    }
}
