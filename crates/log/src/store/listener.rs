//! The listener's side of the change notifications, see [`crate::records::notify`].

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use mneme_sync::{Announced, SlotError};

use crate::records::notify::area::{CONTENT, SLOTS};
use crate::records::notify::ring::{NextNotification, State};
use crate::records::notify::{LANES, NotifyKind, WHOLE};
use crate::region::space::DATABASES;
use crate::store::components::Store;
use crate::store::role::ServerRole;

/// How long the listener waits for a writer that is entering a notification. It is longer than a
/// few time slices, for each loss makes the listener look at everything.
const TIMEOUT: Duration = Duration::from_millis(100);

/// Notifications of the changes that others make in a store, for the holder of its [server's
/// role](ServerRole). The type allows one listener at a time.
///
/// Changes by the listener's own opening, including its maintainer, are not reported. Those by
/// another opening in the same process are. `Send`; dropping it ends the listening, then releases
/// the role.
///
/// ```
/// # use mneme_log::{LogStore, Notification, ChangeKind, control_bytes};
/// # use mneme_sys::{Access, OfdLiveness, PagePolicy, Region};
/// # use std::sync::Arc;
/// # let (size, small) = (64 << 20, PagePolicy::Small);
/// # let data = Region::memfd("doc-data", size, size, small)?;
/// # let control = Region::memfd("doc-control", control_bytes(), control_bytes(), small)?;
/// # let again = |r: &Region| {
/// #     let fd = r.duplicate_fd().expect("a memfd").unwrap();
/// #     Region::map(fd, Access::ReadWrite, r.max(), small).unwrap()
/// # };
/// # let open = || (again(&data), again(&control));
/// # let alive = || {
/// #     let fd = control.duplicate_fd().expect("a memfd").unwrap();
/// #     Arc::new(OfdLiveness::reopen(std::os::fd::AsFd::as_fd(&fd), 0).unwrap())
/// # };
/// # let builder = || LogStore::builder().maintainer(false);
/// # let (d, c) = open();
/// # let ours = builder().create_in(d, c, alive())?;
/// # let (d, c) = open();
/// # let theirs = builder().open_in(d, c, alive())?;
/// let mut listener = ours.take_server_role()?.listen();
/// // Elsewhere, in any process.
/// theirs.put(b"muse", b"Clio")?;
/// // From time to time.
/// let mut seen = Vec::new();
/// listener.drain(1000, |notification| match notification {
///     // Always the first thing; later, whenever something was missed.
///     Notification::Lost => seen.push("look at everything"),
///     Notification::Change(change) => match change.kind {
///         ChangeKind::Stored(key) if is_muse(&key) => seen.push("muse"),
///         _ => {}
///     },
/// })?;
/// assert_eq!(seen, ["look at everything", "muse"]);
/// # fn is_muse(key: &mneme_log::ChangedKey<'_>) -> bool { key.whole() == Some(b"muse") }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChangeListener {
    // Ended before the role is given back.
    listening: Listening,
    role: ServerRole,
    /// The next position.
    at: u64,
    /// Losses that were reported to the listener.
    losses: u64,
    /// Changes that began before the listening did, and may not be entered.
    owed: Announced,
    /// The barrier was refused, so writers may not see the listener: any change may be lost at any
    /// time.
    is_unseen: bool,
    /// Whether a loss is to be reported.
    lost: bool,
    /// The slot that a writer is entering a notification into, and since when.
    busy: Option<(State, u64)>,
}

/// What a listener receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notification<'k> {
    /// Something has changed that is not reported otherwise: the listener must look again at all
    /// that matters to it. What it then finds is as new as what was lost, or newer. This is
    /// reported at the beginning; whenever more notifications were entered than the ring holds
    /// (4,096); for a writer that was stopped for 100 ms while it entered one; and for each writer
    /// that died in the middle of a change, once that is repaired. It may be a false alarm.
    Lost,
    /// This has been changed.
    Change(Change<'k>),
}

/// A change that another opening has made, and that is visible.
///
/// Notifications of one key come in the order of its changes. Those of a transaction come one by
/// one, with others in between. Clearing or swapping databases and a change of a key at about that
/// time may be reported in either order: the store has the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Change<'k> {
    /// The database, 0 to 63, in which the change was made. For a record that expires or is evicted
    /// while databases are swapped it may be the other one.
    pub database: usize,
    /// The id of the process that made it, in that process' own namespace.
    pub process: u32,
    /// What it was.
    pub kind: ChangeKind<'k>,
}

/// What was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangeKind<'k> {
    /// The key has another value, or is new.
    Stored(ChangedKey<'k>),
    /// The key expires at another time.
    Retimed(ChangedKey<'k>),
    /// The key was removed.
    Removed(ChangedKey<'k>),
    /// The key had expired, and its record was removed: by a sweep, or by a removal that came too
    /// late.
    Expired(ChangedKey<'k>),
    /// The key was evicted, to free space.
    Evicted(ChangedKey<'k>),
    /// All keys of the database were removed.
    Cleared,
    /// The database was exchanged with this one.
    Swapped(usize),
}

/// The key of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangedKey<'k> {
    /// The key. Of up to 112 bytes.
    Whole(&'k [u8]),
    /// The [hash](ChangeListener::hash_of) of a longer one. Two keys may share a hash, seldom.
    Hash(u64),
}

impl<'k> ChangedKey<'k> {
    /// The key, if it is there.
    #[must_use]
    pub fn whole(&self) -> Option<&'k [u8]> {
        match self {
            ChangedKey::Whole(key) => Some(key),
            ChangedKey::Hash(_) => None,
        }
    }
}

/// That an opening listens; dropping it ends that.
struct Listening {
    store: Arc<Store>,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if self.store.participants.is_forked() {
            return;
        }
        // Fails where this process was declared dead, by a script, and another listens.
        let listener = self.store.notifications.listener();
        let _ = listener.compare_exchange(self.number, 0, AcqRel, Relaxed);
        self.store.notifications.own.store(0, Relaxed);
    }
}

impl ServerRole {
    /// Begins to listen to what other openings change in the store. Costs a barrier between
    /// processes, up to 10 us, and a look at the ring; waits for nobody. From here on until the
    /// listening ends, each change by another opening copies its key to the ring. In a forked
    /// child, which does not have the role, it does nothing.
    ///
    /// Whatever was changed before, and may not have been seen, is said to be
    /// [lost](Notification::Lost) by the first [`drain`](ChangeListener::drain); every change that
    /// comes after this is reported, or a loss is.
    pub fn listen(self) -> ChangeListener {
        let store = Arc::clone(&self.store);
        let forked = store.participants.is_forked();
        let mut listener = ChangeListener {
            listening: Listening { store, number: 0 },
            role: self,
            at: 0,
            losses: 0,
            owed: Announced::default(),
            is_unseen: false,
            lost: true,
            busy: None,
        };
        if !forked {
            listener.begin();
        }
        listener
    }
}

impl ChangeListener {
    fn begin(&mut self) {
        let store = &self.listening.store;
        let (area, ring) = (&store.notifications, store.notifications.ring());
        // Relaxed: only that it is another's never matters.
        self.listening.number = area.number().fetch_add(1, Relaxed) + 1;
        // Read before any writer counts for this listener: a loss from here on is reported.
        self.losses = ring.losses();
        area.own.store(self.listening.number, Relaxed);
        // SYNC: pairs with the Acquire load in `has_listener`. The barrier in `announced` pairs
        // with that which writers pass between their intents and `notify`.
        area.listener().store(self.listening.number, Release);
        mneme_sys::fault!("log.notify.listening");
        match store.participants.announced(&LANES) {
            Ok(owed) => self.owed = owed,
            // Writers may never learn that there is a listener.
            Err(_) => self.is_unseen = true,
        }
        // Entries for earlier listeners are dropped. A producer that is still writing one is
        // skipped, and counts a loss.
        self.at = area.drained().load(Acquire);
        let (mut skip, mut dropped) = (None, [0; CONTENT]);
        for _ in 0..2 * SLOTS {
            match ring.next(&mut self.at, skip, &mut dropped) {
                NextNotification::Nothing => break,
                NextNotification::Busy(state) => skip = Some(state),
                NextNotification::Entered | NextNotification::Skipped => {}
            }
        }
        mneme_sys::fault!("log.notify.dropped");
        area.drained().store(self.at, Release);
    }

    /// Calls `receive` with the changes since the last time, at most `most` of them. Returns how
    /// many there were. If there were `most`, there may be more. Never waits: a notification that a
    /// writer is just entering, and all behind it, are left for the next call, until that has been
    /// so for 100 ms.
    ///
    /// # Errors
    /// [`SlotError::Forked`].
    pub fn drain(
        &mut self,
        most: usize,
        mut receive: impl FnMut(Notification<'_>),
    ) -> Result<usize, SlotError> {
        let store = Arc::clone(&self.listening.store);
        if store.participants.is_forked() {
            return Err(SlotError::Forked);
        }
        let ring = store.notifications.ring();
        let losses = ring.losses();
        self.lost |= std::mem::replace(&mut self.losses, losses) != losses;
        self.lost |= self.is_unseen;
        if !self.owed.is_empty() {
            self.lost |= store.participants.settle(&mut self.owed) > 0;
        }
        if std::mem::take(&mut self.lost) {
            receive(Notification::Lost);
        }
        let (mut count, mut words) = (0, [0; CONTENT]);
        while count < most {
            let skip = self.timed_out(&store);
            match ring.next(&mut self.at, skip, &mut words) {
                NextNotification::Nothing => {
                    self.busy = None;
                    break;
                }
                NextNotification::Busy(state) => {
                    if self.busy.is_none_or(|(before, _)| before != state) {
                        self.busy = Some((state, store.clock.now_ns()));
                    }
                    break;
                }
                NextNotification::Skipped => receive(Notification::Lost),
                NextNotification::Entered => {
                    // The writer that was waited for has finished: an equal state later belongs to
                    // another entry.
                    self.busy = None;
                    count += 1;
                    decode(&words, &mut receive);
                }
            }
        }
        // A listener that dies, or panics, before this store counts as not having read these
        // changes. SYNC: pairs with the Acquire load in `begin`, by the listener after this
        // process.
        store.notifications.drained().store(self.at, Release);
        Ok(count)
    }

    /// The slot whose writer the listener has waited for long enough.
    fn timed_out(&self, store: &Store) -> Option<State> {
        let (state, since) = self.busy?;
        let waited = store.clock.now_ns().saturating_sub(since);
        (waited >= TIMEOUT.as_nanos() as u64).then_some(state)
    }

    /// The hash that a change has for a key of more than 112 bytes. It is equal in all openings of
    /// a store.
    #[must_use]
    pub fn hash_of(&self, key: &[u8]) -> u64 {
        self.listening.store.hash(key)
    }

    /// Ends the listening, and keeps the role.
    pub fn stop(self) -> ServerRole {
        self.role
    }
}

impl std::fmt::Debug for ChangeListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeListener")
            .field("number", &self.listening.number)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Decodes an entry's words and passes them to `receive`. Words that no writer enters count as a
/// loss.
fn decode(words: &[u64; CONTENT], receive: &mut impl FnMut(Notification<'_>)) {
    let number = |shift: u32| (words[0] >> shift) as u8;
    let mut bytes = [0; WHOLE];
    for (part, word) in bytes.chunks_exact_mut(8).zip(&words[1..]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let key = match usize::from(number(24)) {
        len if len <= WHOLE => ChangedKey::Whole(&bytes[..len]),
        _ => ChangedKey::Hash(words[1]),
    };
    let (database, other) = (usize::from(number(8)), usize::from(number(16)));
    let kind = match NotifyKind::of_byte(number(0)) {
        _ if database.max(other) >= DATABASES => return receive(Notification::Lost),
        None => return receive(Notification::Lost),
        Some(NotifyKind::Stored) => ChangeKind::Stored(key),
        Some(NotifyKind::Retimed) => ChangeKind::Retimed(key),
        Some(NotifyKind::Removed) => ChangeKind::Removed(key),
        Some(NotifyKind::Expired) => ChangeKind::Expired(key),
        Some(NotifyKind::Evicted) => ChangeKind::Evicted(key),
        Some(NotifyKind::Cleared) => ChangeKind::Cleared,
        Some(NotifyKind::Swapped) => ChangeKind::Swapped(other),
    };
    receive(Notification::Change(Change {
        database,
        process: (words[0] >> 32) as u32,
        kind,
    }));
}
