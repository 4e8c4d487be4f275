//! Keyspace notifications: which changes of keys are reported on channels
//! (`notify-keyspace-events`), by the names of Redis.
//!
//! A command records its events as it makes its changes; **they are published in order after the
//! changes were made, and only then**: the events of an undone attempt of a transaction are
//! discarded with it. Misses are reported even if the command fails.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The class of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum EventClass {
    /// A key of any type.
    Generic = 1 << 2,
    String = 1 << 3,
    List = 1 << 4,
    Set = 1 << 5,
    Hash = 1 << 6,
    SortedSet = 1 << 7,
    /// A key that was removed because it had expired.
    Expired = 1 << 8,
    /// A key that was removed to free memory.
    Evicted = 1 << 9,
    /// A key that was looked up and is absent.
    KeyMiss = 1 << 11,
    /// A key that was absent.
    New = 1 << 14,
}

impl EventClass {
    /// Whether the key has changed. A new key has another event, too.
    pub fn is_change(self) -> bool {
        !matches!(self, EventClass::KeyMiss | EventClass::New)
    }
}

/// Not a class: every change is recorded, because clients track keys.
pub(crate) const TRACKED: u32 = 1 << 31;

/// Messages on `__keyspace@db__:key`.
const KEYSPACE: u32 = 1;
/// Messages on `__keyevent@db__:event`.
const KEYEVENT: u32 = 1 << 1;

/// The letters of the classes, in the order in which they are shown.
const LETTERS: [(char, u32); 14] = [
    ('g', EventClass::Generic as u32),
    ('$', EventClass::String as u32),
    ('l', EventClass::List as u32),
    ('s', EventClass::Set as u32),
    ('h', EventClass::Hash as u32),
    ('z', EventClass::SortedSet as u32),
    ('x', EventClass::Expired as u32),
    ('e', EventClass::Evicted as u32),
    ('t', 1 << 10),
    ('d', 1 << 13),
    ('n', EventClass::New as u32),
    ('K', KEYSPACE),
    ('E', KEYEVENT),
    ('m', EventClass::KeyMiss as u32),
];

/// The classes that `A` stands for: all but the last two, which are frequent.
const ALL: u32 = 0b10_0111_1111_1100;

/// The flags for a text of such letters; `None` if it contains another letter.
pub(crate) fn parse(text: &str) -> Option<u32> {
    text.chars().try_fold(0, |flags, letter| match letter {
        'A' => Some(flags | ALL),
        letter => {
            let known = LETTERS.iter().find(|(one, _)| *one == letter);
            known.map(|(_, flag)| flags | flag)
        }
    })
}

/// The text of flags.
pub(crate) fn show(flags: u32) -> String {
    let has_all = flags & ALL == ALL;
    let all = has_all.then_some('A');
    let letters = LETTERS
        .iter()
        .filter(|(_, flag)| flags & flag != 0 && !(has_all && ALL & flag != 0));
    all.into_iter()
        .chain(letters.map(|(letter, _)| *letter))
        .collect()
}

/// Something that has happened to a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyEvent {
    pub class: EventClass,
    pub name: &'static str,
    pub database: usize,
    pub key: Box<[u8]>,
}

impl KeyEvent {
    /// Whether events of any class are published.
    pub fn are_reported(flags: u32) -> bool {
        flags & (KEYSPACE | KEYEVENT) != 0
    }

    /// Calls `publish` with the channels and the messages for the event.
    pub fn report(&self, flags: u32, mut publish: impl FnMut(&[u8], &[u8])) {
        let Self {
            name,
            database,
            key,
            ..
        } = self;
        if flags & KEYSPACE != 0 {
            let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
            publish(&channel, name.as_bytes());
        }
        if flags & KEYEVENT != 0 {
            let channel = format!("__keyevent@{database}__:{name}");
            publish(channel.as_bytes(), key);
        }
    }
}

/// The events of the command that a thread executes. Used by that thread only.
#[derive(Debug, Default)]
pub(crate) struct NotedEvents(Mutex<Vec<KeyEvent>>);

impl NotedEvents {
    fn events(&self) -> MutexGuard<'_, Vec<KeyEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of events.
    pub fn len(&self) -> usize {
        self.events().len()
    }

    /// Discards all except the first `len`.
    pub fn truncate(&self, len: usize) {
        self.events().truncate(len);
    }

    /// Removes and returns all events.
    pub fn take(&self) -> Vec<KeyEvent> {
        std::mem::take(&mut *self.events())
    }
}

/// The place where a command records its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventNotes<'a> {
    flags: u32,
    noted: &'a NotedEvents,
}

impl<'a> EventNotes<'a> {
    /// For these flags; `None` if nothing is reported.
    #[inline]
    pub fn new(flags: u32, noted: &'a NotedEvents) -> Option<Self> {
        (KeyEvent::are_reported(flags) || flags & TRACKED != 0).then_some(Self { flags, noted })
    }

    /// Whether events of this class are reported.
    pub fn wants(self, class: EventClass) -> bool {
        self.flags & class as u32 != 0 || self.flags & TRACKED != 0 && class.is_change()
    }

    /// Records an event, if its class is reported.
    pub fn note(self, class: EventClass, name: &'static str, database: usize, key: &[u8]) {
        self.note_at(usize::MAX, class, name, database, key);
    }

    /// As [`note`](Self::note), but inserts the event after the first `place` events.
    pub fn note_at(
        self,
        place: usize,
        class: EventClass,
        name: &'static str,
        database: usize,
        key: &[u8],
    ) {
        if self.wants(class) {
            let key = key.into();
            let mut events = self.noted.events();
            let place = place.min(events.len());
            events.insert(
                place,
                KeyEvent {
                    class,
                    name,
                    database,
                    key,
                },
            );
        }
    }

    /// The recorded events.
    pub fn noted(self) -> &'a NotedEvents {
        self.noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_shown_as_in_redis() {
        for (text, shown) in [
            ("", ""),
            ("gKE", "gKE"),
            ("$lshzxeKE", "$lshzxeKE"),
            ("KA", "AK"),
            ("AE", "AE"),
            ("g$lshzxetd", "A"),
            ("AKEmn", "AnKEm"),
        ] {
            assert_eq!(parse(text).map(show).as_deref(), Some(shown), "{text}");
        }
        assert_eq!(parse("KEq"), None);
    }
}
