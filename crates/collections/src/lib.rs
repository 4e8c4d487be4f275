//! Types of values: **pure functions from images to images**, and what puts them into a store.
//!
//! An image is the value of one record. [`listpack`] is Redis' form of a list of short values in
//! one piece of memory. [`PackedHash`] reads a hash that is such a list, [`HashEdit`] changes one.
//!
//! Every function takes time in proportion to the image: a hash of a few hundred fields is read and
//! changed faster than one with an index of its own, and one of a million fields is not.
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
mod elements;
mod error;
mod hash;
mod hash_edit;
mod hash_type;
mod keyed;
mod large_hash;
pub mod listpack;
mod packed_hash;
mod records;

pub use check::check_while;
pub use collection_type::{CollectionType, LargeEdit};
pub use elements::{
    apply, copy_collection, element_of_collection, is_same, replay, scan_collection,
};
pub use error::{CollectionError, Damage, EditError};
pub use hash::{Hash, OwnedPair};
pub use hash_edit::{HashEdit, Limits};
pub use hash_type::HashType;
pub use keyed::{Form, MAX_PACKED, anchor_of, decide_packed, edit, put, with_large};
pub use large_hash::{LARGE_HASH, LargeHash};
pub use packed_hash::{PackedHash, Pair, Step};
pub use records::StoreRecords;

/// The kind of a record whose value is a hash.
pub const HASH: ValueKind = match ValueKind::new(1) {
    Some(kind) => kind,
    None => panic!("a kind that the store does not have"),
};
