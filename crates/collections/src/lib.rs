//! Types of values: **pure functions from images to images**, and the code that puts them into a
//! store.
//!
//! An image is the value of one record. [`listpack`] is Redis' format of a list of short values in
//! one piece of memory. [`PackedHash`] reads a hash in that form and [`HashEdit`] changes it;
//! [`PackedSet`] and [`SetEdit`] do so for sets.
//!
//! Every function takes time in proportion to the image. A hash of a few hundred fields is read and
//! changed faster than one with an index of its own; a hash of a million fields is not.
//!
//! ```
//! use mneme_collections::{HashEdit, PackedHash};
//!
//! let mut edit = HashEdit::new();
//! edit.set(b"name", b"Ada")?;
//! edit.set(b"born", b"1815")?;
//! edit.increment(b"born", 37)?;
//! let image = edit.into_image();
//!
//! let hash = PackedHash::read(&image)?;
//! assert_eq!(hash.len()?, 2);
//! assert_eq!(hash.get(b"born")?.unwrap().to_vec(), b"1852");
//! # Ok::<(), mneme_collections::EditError>(())
//! ```
#![deny(unsafe_code)]

use mneme_log::ValueKind;

mod check;
mod collection_type;
mod counted_tree;
mod elements;
mod error;
mod hash;
mod hash_type;
mod in_place;
mod keyed;
mod large_list;
mod large_sorted_set;
mod leaves;
mod list;
mod list_edit;
mod list_ends;
mod list_type;
pub mod listpack;
mod lot;
#[cfg(test)]
mod model;
mod open_value;
mod packed;
mod packed_builder;
mod packed_edit;
mod packed_list;
mod packed_sorted_set;
mod records;
mod score;
mod set;
mod set_type;
mod sorted_range;
mod sorted_set;
mod sorted_set_edit;
mod sorted_set_type;

pub use check::check_while;
pub use collection_type::{CollectionType, LargeEdit};
pub use elements::{
    apply, copy_collection, element_of_collection, is_same, replay, scan_collection,
};
pub use error::{CollectionError, Damage, EditError};
pub use hash::{Hash, OwnedPair};
pub use hash_type::HashType;
pub use in_place::set_in_place;
pub use keyed::{
    Form, Locking, MAX_PACKED, anchor_of, close_value, edit, edit_packed, keep_open, look_at_large,
    put, with_large,
};
pub use large_list::LargeList;
pub use large_sorted_set::LargeSortedSet;
pub use leaves::{LargeHash, LargeSet, Leaves};
pub use list::{List, index_within};
pub use list_edit::ListEdit;
pub use list_type::{ListChange, ListType};
pub use lot::Lot;
pub use packed::{Packed, PackedHash, PackedSet, Pair, Pairs, RawElement, Step, place};
pub use packed_builder::PackedBuilder;
pub use packed_edit::{HashEdit, Limits, MAX_ELEMENT, MAX_INTSET, PackedEdit, SetEdit};
pub use packed_list::{End, Items, PackedList};
pub use packed_sorted_set::{AllScored, PackedSortedSet, Scored};
pub use records::StoreRecords;
pub use score::ScoreText;
pub use set::Set;
pub use set_type::{SetChange, SetType};
pub use sorted_range::SortedRange;
pub use sorted_set::SortedSet;
pub use sorted_set_edit::{SortedSetEdit, SortedSetLimits};
pub use sorted_set_type::{ScoredMembers, SortedSetChange, SortedSetType, SortedSetView};

/// The kind of a record whose value is a hash.
pub const HASH: ValueKind = kind(1);
/// The kind of a large hash's main record.
pub const LARGE_HASH: ValueKind = HASH.large();
/// The kind of a record whose value is a set.
pub const SET: ValueKind = kind(2);
/// The kind of a large set's main record.
pub const LARGE_SET: ValueKind = SET.large();
/// The kind of a record whose value is a sorted set.
pub const SORTED_SET: ValueKind = kind(3);
/// The kind of a large sorted set's main record.
pub const LARGE_SORTED_SET: ValueKind = SORTED_SET.large();

/// The kind of a record whose value is a list.
pub const LIST: ValueKind = kind(4);
/// The kind of a large list's main record.
pub const LARGE_LIST: ValueKind = LIST.large();

const fn kind(number: u8) -> ValueKind {
    match ValueKind::new(number) {
        Some(kind) => kind,
        None => panic!("a kind that the store does not have"),
    }
}
