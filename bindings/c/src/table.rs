//! Handles of spaces, segments and attachments: numbers that C programs see as pointers.
//!
//! **Invalid handles are detected: numbers that were never assigned, numbers of closed objects, and
//! numbers of another kind.** A number consists of the kind, an index into a table, and the count
//! of earlier uses of that entry. It is never dereferenced.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::code::{Code, Failure};

const KIND_BITS: u32 = 8;
const PLACE_BITS: u32 = 24;

/// Objects of one kind, by number.
pub(crate) struct Table<T> {
    kind: u8,
    /// The kind's name, for error texts.
    noun: &'static str,
    places: RwLock<Vec<Place<T>>>,
}

struct Place<T> {
    /// The number of objects that were in this entry before.
    uses: u32,
    thing: Option<T>,
}

impl<T: Clone> Table<T> {
    /// An empty table. `kind` must not be 0, so that no number is below 256: the header gives
    /// special meanings to such numbers.
    pub(crate) const fn new(kind: u8, noun: &'static str) -> Self {
        Self {
            kind,
            noun,
            places: RwLock::new(Vec::new()),
        }
    }

    /// Usable even after a panic, since every change is one step.
    fn read(&self) -> RwLockReadGuard<'_, Vec<Place<T>>> {
        self.places.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Vec<Place<T>>> {
        self.places.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of an entry.
    fn number(&self, place: usize, uses: u32) -> usize {
        (uses as usize) << (KIND_BITS + PLACE_BITS)
            | (place + 1) << KIND_BITS
            | usize::from(self.kind)
    }

    /// The entry of a number and the count of its earlier uses, if the number is of this kind.
    fn place(&self, number: usize) -> Option<(usize, u32)> {
        if number & ((1 << KIND_BITS) - 1) != usize::from(self.kind) {
            return None;
        }
        let place = number >> KIND_BITS & ((1 << PLACE_BITS) - 1);
        let uses = u32::try_from(number >> (KIND_BITS + PLACE_BITS)).ok()?;
        Some((place.checked_sub(1)?, uses))
    }

    fn unknown(&self, number: usize) -> Failure {
        let noun = self.noun;
        let text = match number {
            0 => format!("NULL is no {noun}"),
            _ => format!("{number:#x} is no {noun} of this process, or it is none any more"),
        };
        Failure::new(Code::Handle, text)
    }

    /// The object with a number.
    pub(crate) fn get(&self, number: usize) -> Result<T, Failure> {
        let found = self.place(number).and_then(|(place, uses)| {
            let places = self.read();
            let found = places.get(place).filter(|place| place.uses == uses)?;
            found.thing.clone()
        });
        found.ok_or_else(|| self.unknown(number))
    }

    /// Assigns a number to an object; if `same` is true for an object in the table, returns that
    /// one's number instead.
    pub(crate) fn enter(&self, thing: T, same: impl Fn(&T) -> bool) -> Result<usize, Failure> {
        self.enter_in(&mut self.write(), thing, same)
    }

    /// As [`enter`](Self::enter), for an object that `of` makes from the object with the number
    /// `beside`. If `beside` is removed meanwhile, the new entry is removed with it, or the call
    /// fails.
    pub(crate) fn enter_beside(
        &self,
        beside: usize,
        of: impl FnOnce(&T) -> Result<T, Failure>,
        same: impl Fn(&T, &T) -> bool,
    ) -> Result<usize, Failure> {
        let thing = of(&self.get(beside)?)?;
        #[cfg(test)]
        tests::before_entering();
        let mut places = self.write();
        let is_there = self.place(beside).is_some_and(|(place, uses)| {
            let place = places.get(place).filter(|place| place.uses == uses);
            place.is_some_and(|place| place.thing.is_some())
        });
        if !is_there {
            return Err(self.unknown(beside));
        }
        let again = thing.clone();
        self.enter_in(&mut places, thing, |known| same(known, &again))
    }

    fn enter_in(
        &self,
        places: &mut Vec<Place<T>>,
        thing: T,
        same: impl Fn(&T) -> bool,
    ) -> Result<usize, Failure> {
        let is_same = |place: &Place<T>| place.thing.as_ref().is_some_and(&same);
        if let Some(at) = places.iter().position(is_same) {
            return Ok(self.number(at, places[at].uses));
        }
        // An entry whose use count has reached its maximum is never used again.
        let is_free = |place: &Place<T>| place.thing.is_none() && place.uses < u32::MAX;
        if let Some(at) = places.iter().position(is_free) {
            places[at].thing = Some(thing);
            return Ok(self.number(at, places[at].uses));
        }
        if places.len() + 1 >= 1 << PLACE_BITS {
            let text = format!("too many {}s in this process", self.noun);
            return Err(Failure::new(Code::NoMemory, text));
        }
        places.push(Place {
            uses: 0,
            thing: Some(thing),
        });
        Ok(self.number(places.len() - 1, 0))
    }

    /// Removes a number, and returns its object.
    pub(crate) fn remove(&self, number: usize) -> Result<T, Failure> {
        let removed = self.place(number).and_then(|(place, uses)| {
            let mut places = self.write();
            let found = places.get_mut(place).filter(|place| place.uses == uses)?;
            let thing = found.thing.take()?;
            found.uses += 1;
            Some(thing)
        });
        removed.ok_or_else(|| self.unknown(number))
    }

    /// Atomically removes a number and those of all objects that depend on its object.
    pub(crate) fn remove_with(
        &self,
        number: usize,
        is_beside: impl Fn(&T, &T) -> bool,
    ) -> Result<(), Failure> {
        let mut removed = Vec::new();
        let mut places = self.write();
        let found = self.place(number).and_then(|(place, uses)| {
            let found = places.get(place).filter(|place| place.uses == uses)?;
            found.thing.clone()
        });
        let gone = found.ok_or_else(|| self.unknown(number))?;
        for place in places.iter_mut() {
            let such = |thing: &T| is_beside(thing, &gone);
            if place.thing.as_ref().is_some_and(such) {
                removed.extend(place.thing.take());
                place.uses += 1;
            }
        }
        // Objects are dropped without the table's lock, since that may take long.
        drop(places);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Called once, between making an object and entering it.
        static MEANWHILE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
    }

    pub(super) fn before_entering() {
        if let Some(meanwhile) = MEANWHILE.take() {
            meanwhile();
        }
    }

    /// A handle that depends on one that is closed meanwhile keeps nothing open.
    #[test]
    fn nothing_is_entered_beside_an_object_removed_meanwhile() {
        static STORES: Table<(char, u8)> = Table::new(1, "store");
        let same = |a: &(char, u8), b: &(char, u8)| a == b;
        let beside = |a: &(char, u8), b: &(char, u8)| a.0 == b.0;
        let first = STORES.enter(('a', 0), |_| false).unwrap();
        let second = STORES.enter_beside(first, |one| Ok((one.0, 1)), same);
        let second = second.unwrap();
        MEANWHILE.set(Some(Box::new(move || {
            STORES.remove_with(second, beside).unwrap();
        })));
        let third = STORES.enter_beside(first, |one| Ok((one.0, 2)), same);
        assert_eq!(third.unwrap_err().code, Code::Handle);
        assert!(STORES.read().iter().all(|place| place.thing.is_none()));
        assert!(STORES.remove_with(first, beside).is_err());
    }

    #[test]
    fn a_number_is_never_assigned_to_a_second_object() {
        let (letters, other) = (Table::new(1, "letter"), Table::new(2, "other"));
        let a = letters.enter('a', |_| false).unwrap();
        assert_eq!(letters.enter('a', |known| *known == 'a').unwrap(), a);
        let b = letters.enter('b', |_| false).unwrap();
        assert_eq!(
            (letters.get(a).unwrap(), letters.get(b).unwrap()),
            ('a', 'b')
        );
        assert_eq!(letters.remove(a).unwrap(), 'a');
        let c = letters.enter('c', |_| false).unwrap();
        assert_ne!(c, a);
        let d = other.enter('d', |_| false).unwrap();
        for wrong in [
            0,
            1,
            2,
            255,
            256,
            a,
            d,
            usize::MAX,
            c ^ 1 << 40,
            c + 0x100_0000,
        ] {
            assert_eq!(
                letters.get(wrong).unwrap_err().code,
                Code::Handle,
                "{wrong:#x}"
            );
            assert_eq!(letters.remove(wrong).unwrap_err().code, Code::Handle);
        }
        assert_eq!(letters.get(c).unwrap(), 'c');
    }
}
