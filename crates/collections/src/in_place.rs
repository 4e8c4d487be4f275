//! Changes of a packed hash where it lies: **what stays as it is is neither copied nor stored.**

use mneme_log::{Database, ValueEdit};

use crate::HASH;
use crate::error::CollectionError;
use crate::keyed::MAX_PACKED;
use crate::listpack::{Encoded, Entry, head_of};
use crate::packed::{FORM, PackedHash};
use crate::packed_edit::Limits;

/// Sets `field` of the hash under `key` to `value`, if that is a packed one, whose record has space
/// for it, and that keeps its form. Returns whether it is a new field. `None`: nothing was changed.
/// A field that has this value already is stored again, and counts as a change, if `stores_same`.
///
/// # Errors
/// Those of [`LogStore::put`](mneme_log::LogStore::put).
pub fn set_in_place(
    database: &Database<'_>,
    key: &[u8],
    (field, value): (&[u8], &[u8]),
    limits: Limits,
    stores_same: bool,
) -> Result<Option<bool>, CollectionError> {
    let mut is_new = false;
    let edited = database.edit_in_place(key, HASH, |image, edit| {
        let hash = PackedHash::read(image).ok()?;
        let old = hash.find(field).ok()?.and_then(|found| found.value);
        if !stores_same && old.is_some_and(|old| old.is(&Encoded::of(value))) {
            return Some(false);
        }
        is_new = old.is_none();
        set(image, &hash, old, edit, (field, value), limits)?;
        edit.elements().set(field, value);
        Some(true)
    })?;
    Ok(edited.map(|_| is_new))
}

/// Writes into `edit` what `field` and `value` change of `image`, in which the field has the value
/// `old`. `None`: they change the form.
fn set(
    image: &[u8],
    hash: &PackedHash<'_>,
    old: Option<Entry<'_>>,
    edit: &mut ValueEdit,
    (field, value): (&[u8], &[u8]),
    limits: Limits,
) -> Option<()> {
    let count = hash.listpack_len()? + if old.is_some() { 0 } else { 2 };
    // As in Redis, whatever is changed of a hash that is beyond a limit that was lowered.
    let is_beyond = field.len().max(value.len()) > limits.value || count / 2 > limits.entries;
    if !hash.is_table() && is_beyond {
        return None;
    }
    let new = Encoded::of(value);
    let place = match old {
        Some(old) => old.begin + FORM..old.end + FORM,
        None => image.len() - 1..image.len() - 1,
    };
    if old.is_some() && place.len() == new.entry_len() {
        return edit
            .write(place.start, |to| new.append_to(to))
            .then_some(());
    }
    let field = old.is_none().then(|| Encoded::of(field));
    let added = field.as_ref().map_or(0, Encoded::entry_len) + new.entry_len();
    let len = image.len() - place.len() + added;
    if hash.is_table() && len > MAX_PACKED {
        return None;
    }
    let written = edit.write(place.start, |to| {
        if let Some(field) = &field {
            field.append_to(to);
        }
        new.append_to(to);
        to.extend_from_slice(&image[place.end..]);
    });
    let head = head_of(len - FORM, Some(count));
    let written = written && edit.write(FORM, |to| to.extend_from_slice(&head));
    edit.set_len(len);
    written.then_some(())
}
