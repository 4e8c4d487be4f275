//! The change feed: **every change of a store, in an order in which it may be replayed.**
//!
//! `docs/design/log.md` has the layout and the argument. The ring knows positions and entries,
//! [`item`] what they say.

pub(crate) mod item;
pub(crate) mod ring;
