//! The definition of commands and what they are given: **the layer below the commands**, which
//! names none of them.
//!
//! A command's file begins with `use crate::command::*`.

mod call;
mod definition;
mod failure;
mod keys;
mod table;
mod vocabulary;

pub(crate) use crate::notify::EventClass;
pub(crate) use call::{Call, Outcome};
pub(crate) use definition::{Argument, Batching, Channels, Command, PART, Reach};
pub(crate) use failure::{FEED_IS_FULL, Failure};
pub(crate) use keys::{Begin, Find, KeyFlag, KeySpec};
pub(crate) use table::CommandTable;
pub(crate) use vocabulary::{Category, Flag, Group, Kind};
