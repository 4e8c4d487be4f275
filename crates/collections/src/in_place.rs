//! Changes a packed hash in place: **unchanged parts are neither copied nor stored.**

use mneme_log::{Database, ValueEdit};

use crate::HASH;
use crate::error::CollectionError;
use crate::keyed::MAX_PACKED;
use crate::listpack::{Encoded, Entry, head_of};
use crate::packed::{FORM, PackedHash};
use crate::packed_edit::Limits;

/// Sets `field` of the hash under `key` to `value`, if the hash is packed, its record has enough
/// space, and its form stays the same. Returns whether the field is new; `None`: nothing was
/// changed. If the field already has this value, it is stored again, and counts as a change, only
/// if `stores_same`.
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

/// Writes into `edit` how `image` changes when `field`, whose value is `old`, gets `value`. `None`:
/// the form would change.
fn set(
    image: &[u8],
    hash: &PackedHash<'_>,
    old: Option<Entry<'_>>,
    edit: &mut ValueEdit,
    (field, value): (&[u8], &[u8]),
    limits: Limits,
) -> Option<()> {
    let count = hash.listpack_len()? + if old.is_some() { 0 } else { 2 };
    // As in Redis, any change of a hash that exceeds a lowered limit converts it.
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
