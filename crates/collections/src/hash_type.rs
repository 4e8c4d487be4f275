//! Implements [`CollectionType`](crate::CollectionType) for a hash.

use mneme_log::{Decision, Elements, ValueKind};

use crate::HASH;
use crate::collection_type::{CollectionType, LargeEdit};
use crate::error::{CollectionError, Damage};
use crate::keyed::MAX_PACKED;
use crate::leaves::LargeHash;
use crate::packed::PackedHash;
use crate::packed_edit::{HashEdit, MAX_ELEMENT};
use crate::records::StoreRecords;

/// Hashes. One that Redis would keep as a listpack stays packed, whatever its length, because its
/// fields must be returned in the order in which they were set.
pub enum HashType {}

impl CollectionType for HashType {
    const KIND: ValueKind = HASH;
    type Packed<'b> = PackedHash<'b>;
    type Large<'r> = LargeHash<'r>;
    type Edit<'r> = HashEdit;
    /// The fields that are accessed; `None`: all.
    type Wanted<'w> = Option<&'w [&'w [u8]]>;

    fn read(image: &[u8]) -> Result<PackedHash<'_>, Damage> {
        PackedHash::read(image)
    }

    fn outgrows(image: &[u8]) -> Result<bool, Damage> {
        if image.len() <= MAX_PACKED {
            return Ok(false);
        }
        let hash = PackedHash::read(image)?;
        if !hash.is_table() {
            return Ok(false);
        }
        // A field that is too long for a large hash keeps the value packed.
        let mut pairs = hash.pairs();
        let is_long = |field: usize| field > MAX_ELEMENT;
        pairs.try_fold(true, |fits, pair| {
            Ok(fits && !is_long(pair?.field.string_len()))
        })
    }

    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut HashEdit) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        HashEdit::decide(old, elements, change)
    }

    fn open(records: &mut dyn StoreRecords, id: u64) -> Result<LargeHash<'_>, CollectionError> {
        LargeHash::open(records, id)
    }

    fn build(records: &mut dyn StoreRecords, id: u64, image: &[u8]) -> Result<(), CollectionError> {
        LargeHash::build(records, id, HASH, image)?.finish()
    }

    fn edit<R, E: From<CollectionError>>(
        large: LargeHash<'_>,
        wanted: Option<&[&[u8]]>,
        change: impl FnOnce(&mut HashEdit) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        large.edit(wanted, change)
    }
}
