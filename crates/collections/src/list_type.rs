//! What makes a list a type of collections.

use std::convert::Infallible;

use mneme_log::{Decision, Elements, ValueKind};

use crate::LIST;
use crate::collection_type::{CollectionType, LargeEdit};
use crate::error::{CollectionError, Damage};
use crate::list_edit::ListEdit;
use crate::packed_list::PackedList;
use crate::records::StoreRecords;

/// Lists, which are packed whatever their length.
pub enum ListType {}

impl CollectionType for ListType {
    const KIND: ValueKind = LIST;
    type Packed<'b> = PackedList<'b>;
    type Large<'r> = Infallible;
    type Edit<'r> = ListEdit;
    type Wanted<'w> = ();

    fn read(image: &[u8]) -> Result<PackedList<'_>, Damage> {
        PackedList::read(image)
    }

    fn outgrows(_: &[u8]) -> Result<bool, Damage> {
        Ok(false)
    }

    fn decide<R, E: From<CollectionError>>(
        old: Option<&[u8]>,
        elements: Option<&mut Elements>,
        change: impl FnOnce(&mut ListEdit) -> Result<(R, bool), E>,
    ) -> Result<(R, Decision), E> {
        ListEdit::decide(old, elements, change)
    }

    fn open(_: &mut dyn StoreRecords, _: u64) -> Result<Infallible, CollectionError> {
        Err(no_large_list().into())
    }

    fn build(_: &mut dyn StoreRecords, _: u64, _: &[u8]) -> Result<(), CollectionError> {
        Err(no_large_list().into())
    }

    fn edit<R, E: From<CollectionError>>(
        large: Infallible,
        (): (),
        _: impl FnOnce(&mut ListEdit) -> Result<(R, bool), E>,
    ) -> Result<(R, LargeEdit), E> {
        match large {}
    }
}

fn no_large_list() -> Damage {
    Damage {
        at: 0,
        what: "a list in inner records, which this version does not make",
    }
}
