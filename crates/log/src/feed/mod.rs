//! The change feed: **every change of a store, by any process, in an order in which it may be
//! replayed.**
//!
//! A store that was created with a feed enters each change before it can be seen. What is drained
//! ([`ChangeFeed`](crate::ChangeFeed)) are whole [entries]. Each says in its [items](Item) what is
//! there afterwards, so that *replaying any suffix onto any newer state ends in the same state*.
//!
//! `docs/design/log.md` has the layout and the argument. Inside: `ring` knows positions and
//! entries, `item` what they say, `area` where they lie; `ahead` enters long changes in pieces, and
//! `assembly` puts them together again.

mod ahead;
pub(crate) mod area;
mod assembly;
pub(crate) mod item;
pub(crate) mod ring;

pub use assembly::Assembly;
pub use item::{
    Entry, FeedDamage, Item, MAX_ITEMS, append_change, append_entry, binding, bound, entries,
};
