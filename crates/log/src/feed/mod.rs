//! The change feed: **every change of a store, by any process, in an order in which it may be
//! replayed.**
//!
//! Each change is entered before it can be seen, as long as the feed has a follower. A store
//! created with a feed that is kept has one follower that loses nothing, a journal or a tree
//! ([`ChangeFeed`](crate::ChangeFeed)): it drains whole [entries]. The [items](Item) of an entry
//! give the state after the change, so that *replaying any suffix onto any newer state ends in the
//! same state*. Any number of [listeners](crate::ChangeListener) read the entries of any store
//! beside it, and are notified when they have lost some.
//!
//! `docs/design/log.md` has the layout and the argument. Inside: `ring` knows positions and
//! entries, `item` their content, `area` where they lie; `bell` wakes listeners; `ahead` enters
//! long changes in pieces, and `assembly` reassembles them.

mod ahead;
pub(crate) mod area;
mod assembly;
pub(crate) mod bell;
pub(crate) mod item;
pub(crate) mod ring;

pub use assembly::Assembly;
pub use item::{
    COLLECTIONS, Entry, FeedDamage, Item, MAX_ITEMS, RemovalCause, append_change, append_entry,
    binding, bound, entries,
};
