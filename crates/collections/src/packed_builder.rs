//! Images that are built from elements of other images, **which are copied in their encoded form**:
//! nothing is decoded or encoded again.

use mneme_log::MAX_VALUE;

use crate::error::{Damage, EditError};
use crate::listpack::{self, EMPTY, Element, Encoded, HEAD};
use crate::packed::{FORM, PACKED, Packed, RawElement, TABLE};

/// The longest image that is only read, in bytes: the head of a longer one could not hold its
/// length.
pub(crate) const MAX_VIEW: usize = u32::MAX as usize;

/// A packed value that is being built. An element that is appended twice occurs twice.
#[derive(Debug)]
pub struct PackedBuilder<const ENTRIES: usize> {
    image: Vec<u8>,
    entries: usize,
}

impl<const ENTRIES: usize> Default for PackedBuilder<ENTRIES> {
    fn default() -> Self {
        PackedBuilder::with_capacity(0)
    }
}

impl<const ENTRIES: usize> PackedBuilder<ENTRIES> {
    /// No elements, and capacity for some of `bytes` bytes.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let mut image = Vec::with_capacity(FORM + EMPTY.len() + bytes);
        image.push(TABLE);
        image.extend_from_slice(&EMPTY[..HEAD]);
        PackedBuilder { image, entries: 0 }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries / ENTRIES
    }

    /// Appends an element of another image. O(its length).
    pub fn push(&mut self, element: &RawElement<'_>) {
        self.image.extend_from_slice(element.bytes());
        self.entries += ENTRIES;
    }

    /// Appends all elements of another value. O(bytes).
    ///
    /// # Errors
    /// The value is damaged; then nothing was appended.
    pub fn push_all(&mut self, of: &Packed<'_, ENTRIES>) -> Result<(), Damage> {
        self.entries += ENTRIES * of.count()?;
        self.image.extend_from_slice(of.entry_bytes());
        Ok(())
    }

    /// The image, in the form of a table.
    ///
    /// # Errors
    /// The image would be longer than a value may be.
    pub fn into_image(self) -> Result<Vec<u8>, EditError> {
        match self.image.len() {
            len if len >= MAX_VALUE => Err(EditError::TooLong(len + 1)),
            _ => self.into_view(),
        }
    }

    /// As [`into_image`](Self::into_image), for an image that is not stored.
    ///
    /// # Errors
    /// The image would be longer than [`MAX_VIEW`].
    pub(crate) fn into_view(mut self) -> Result<Vec<u8>, EditError> {
        self.image.push(EMPTY[HEAD]);
        if self.image.len() > MAX_VIEW {
            return Err(EditError::TooLong(self.image.len()));
        }
        listpack::finish(&mut self.image[FORM..], Some(self.entries));
        Ok(self.image)
    }

    /// The number of bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.image.len()
    }
}

impl PackedBuilder<1> {
    /// Appends members that are given as strings. O(their length).
    pub fn push_strings(&mut self, members: &[&[u8]]) {
        for member in members {
            Encoded::of(member).append_to(&mut self.image);
        }
        self.entries += members.len();
    }

    /// The image of a set; each member must have been appended once. If there are at most
    /// `max_intset` members, all integers, the image has the form of an intset.
    ///
    /// # Errors
    /// The image would be longer than a value may be.
    pub fn into_set(self, max_intset: usize) -> Result<Vec<u8>, EditError> {
        let (is_small, image) = (self.len() <= max_intset, self.into_image()?);
        if !is_small {
            return Ok(image);
        }
        let integer = |member: RawElement<'_>| match member.field() {
            Element::Integer(number) => Some(number),
            Element::Bytes(_) => None,
        };
        let integers: Option<Vec<_>> = Packed::<1>::read(&image)?
            .raw()
            .map(|member| member.map(|member| Some((integer(member)?, member))))
            .collect::<Result<_, _>>()?;
        let Some(mut integers) = integers else {
            return Ok(image);
        };
        integers.sort_unstable_by_key(|(number, _)| *number);
        let mut sorted = PackedBuilder::<1>::with_capacity(image.len());
        integers.iter().for_each(|(_, member)| sorted.push(member));
        let mut image = sorted.into_image()?;
        image[0] = PACKED;
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{HashEdit, PackedHash, PackedSet, SetEdit};

    fn members(image: &[u8]) -> Vec<Vec<u8>> {
        let set = PackedSet::read(image).unwrap();
        set.members().map(|of| of.unwrap().to_vec()).collect()
    }

    #[test]
    fn elements_are_what_they_were() {
        let mut hash = HashEdit::new();
        let long = vec![b'v'; 5000];
        hash.set_many(&[(b"a", b"12"), (b"-7", &long), (b"c", b"")])
            .unwrap();
        let image = hash.into_image();
        let hash = PackedHash::read(&image).unwrap();
        let (mut all, mut each) = (
            PackedBuilder::<2>::default(),
            PackedBuilder::<2>::with_capacity(99),
        );
        all.push_all(&hash).unwrap();
        hash.raw().for_each(|element| each.push(&element.unwrap()));
        assert_eq!((all.len(), each.is_empty()), (3, false));
        let (all, each) = (all.into_image().unwrap(), each.into_image().unwrap());
        assert_eq!(all, each);
        let gathered = PackedHash::read(&all).unwrap();
        gathered.check().unwrap();
        assert!(gathered.is_table());
        assert!(gathered.pairs().eq(hash.pairs()));
    }

    #[test]
    fn integers_become_an_intset_up_to_its_limit() {
        let gathered = |strings: &[&[u8]]| {
            let mut gathered = PackedBuilder::default();
            gathered.push_strings(strings);
            gathered
        };
        let image = gathered(&[b"10", b"-3", b"9"]).into_set(3).unwrap();
        let mut set = SetEdit::new();
        set.add_many(&[b"10", b"-3", b"9"]).unwrap();
        assert_eq!(image, set.into_image());
        let image = gathered(&[b"10", b"-3", b"9"]).into_set(2).unwrap();
        assert_eq!(members(&image), [&b"10"[..], b"-3", b"9"]);
        let image = gathered(&[b"10", b"x"]).into_set(3).unwrap();
        assert!(PackedSet::read(&image).unwrap().is_table());
        assert_eq!(members(&image), [&b"10"[..], b"x"]);
    }

    #[test]
    fn nothing_of_a_damaged_value_is_appended() {
        let mut gathered = PackedBuilder::<1>::default();
        gathered.push_strings(&[b"one", b"two"]);
        let sound = gathered.into_image().unwrap();
        let mut damaged = sound.clone();
        damaged[FORM + HEAD] = 0xbf;
        let mut gathered = PackedBuilder::<1>::default();
        assert!(gathered.push_all(&Packed::read(&damaged).unwrap()).is_err());
        gathered.push_all(&Packed::read(&sound).unwrap()).unwrap();
        assert_eq!(gathered.into_image().unwrap(), sound);
        // Three entries are not a whole number of pairs.
        let odd = [&[TABLE][..], &listpack::of([&b"a"[..], b"b", b"c"])].concat();
        assert!(
            PackedBuilder::<2>::default()
                .push_all(&Packed::read(&odd).unwrap())
                .is_err()
        );
    }
}
