//! Counting changes of watched keys, and checking whether a key is unchanged: see
//! [`Watch`](crate::Watch).

use std::sync::atomic::Ordering::{Acquire, Release};

use mneme_sync::{Interest, Slot, Word};

use super::Records;
use crate::error::{Corrupt, ReadError, WriteError};
use crate::index::bucket::HomeWord;
use crate::index::lookup::Lookup;
use crate::index::resize::retired;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::region::space::KeyspaceId;
use crate::session::Wait;

/// The state of a key when it was added to the watch.
pub(crate) struct Watched {
    space: KeyspaceId,
    pub place: Place,
    /// The number of its index; 0: there was none.
    root: u64,
    /// The value of its counter.
    changes: u64,
    /// How often databases had been swapped.
    swaps: u64,
    /// When it expires; 0: never, or it was not there.
    expires: u64,
}

/// Counts a change, before it is visible.
pub(crate) fn count<W: Word>(counter: &W) {
    // SYNC: pairs with the Acquire load in `changes`, for `begin_watching` and `is_as_noted`: a
    // thread that sees the new count sees the home locked.
    counter.fetch_add(1, Release);
}

impl Records {
    /// Counts a change of the key at `place`, if any process watches. The caller holds the key's
    /// home, and the change is not visible yet.
    #[inline(always)]
    pub(crate) fn note_change(&self, root: Root, place: Place) {
        if self.session().participants.is_watched(Interest::Keys) {
            self.count_change(root.space(), place);
        }
    }

    #[cold]
    fn count_change(&self, space: KeyspaceId, place: Place) {
        count(self.session().tables.changes_of(hash(space, place)));
    }

    fn changes(&self, space: KeyspaceId, place: Place) -> u64 {
        // SYNC: pairs with the Release in `count`.
        self.session()
            .tables
            .changes_of(hash(space, place))
            .load(Acquire)
    }

    fn swaps(&self) -> u64 {
        // SYNC: pairs with the Release in `swap_databases`.
        self.session().tables.header().swaps.load(Acquire)
    }

    /// Notes the present state of a key. The watch is registered.
    pub(crate) fn begin_watching(&self, database: u8, key: &[u8]) -> Result<Watched, ReadError> {
        let index = self.index();
        let slot = self.session().participants.slot()?;
        // Everything that is compared later is noted before the key is looked up.
        let swaps = self.swaps();
        let (_pin, space) = index.enter(&slot, database)?;
        let place = index.place(key);
        let changes = self.changes(space, place);
        let mut noted = Watched {
            space,
            place,
            root: 0,
            changes,
            swaps,
            expires: 0,
        };
        if let Some(root) = index.root(space)? {
            noted.root = index.root_id(root)?;
            self.await_home(&slot, root, place)
                .map_err(WriteError::while_reading)?;
            let segment = self.session().mem.index_segment(root, place)?;
            let seen = index.find(root, place, segment, key)?;
            let found = seen.and_then(|(found, _)| found);
            let expires = found.map_or(0, |found| found.record.expires());
            if !self.has_passed(expires) {
                noted.expires = expires;
            }
        }
        Ok(noted)
    }

    /// Waits until the thread that held the home of `place` when this began has released it.
    fn await_home(&self, slot: &Slot<'_>, root: Root, place: Place) -> Result<(), WriteError> {
        let mut wait = Wait::new();
        let mut first: Option<HomeWord> = None;
        loop {
            // Without a page no thread holds a home: a thread that makes one sees the registration.
            let Some(segment) = self.session().mem.index_segment(root, place)? else {
                return Ok(());
            };
            let home = (self.session().mem).bucket(segment, segment.home(place.tag))?;
            let word = home.word();
            let now = segment.home_word(place.tag, word);
            if !word.locked() {
                return Ok(());
            }
            if word.retired() {
                if !wait.found_retired(segment.word()) {
                    return Err(retired(segment.loc()).into());
                }
                first = None;
                continue;
            }
            match first {
                // Another thread has taken the lock since then, and has seen the registration.
                Some(first) if first.at == now.at && !now.same_version(first) => return Ok(()),
                Some(first) if first.at == now.at => {}
                _ => first = Some(now),
            }
            self.index().wait_for(slot, &mut wait, word)?;
        }
    }

    /// Whether a key is unchanged since then. The caller is pinned. While it holds the key's home
    /// the answer stays right, except that the key may expire.
    pub(crate) fn is_as_noted(&self, noted: &Watched) -> bool {
        let same_root = |root: Root| self.index().root_id(root).is_ok_and(|id| id == noted.root);
        self.swaps() == noted.swaps
            && self.changes(noted.space, noted.place) == noted.changes
            && !self.has_passed(noted.expires)
            && (noted.root == 0
                || matches!(self.index().root(noted.space), Ok(Some(root)) if same_root(root)))
    }

    /// The index page of a watched key's home, if there is one.
    pub(crate) fn watched_segment(&self, noted: &Watched) -> Result<Option<SegmentRef>, Corrupt> {
        match self.index().root(noted.space)? {
            Some(root) => self.session().mem.index_segment(root, noted.place),
            None => Ok(None),
        }
    }
}

/// The hash that selects the counter of a key of a space. Keys of different places or spaces seldom
/// share one.
fn hash(space: KeyspaceId, place: Place) -> u64 {
    let word =
        u64::from(place.partition) << 32 | u64::from(place.tag) << 6 | u64::from(space.number());
    let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 40
}
