//! Listeners: followers of the [change feed](crate::feed) that learn which key has changed. No
//! thread waits for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mneme_sync::{Announced, Interest, SlotError, WatchRegistration};

use crate::feed::area::FeedArea;
use crate::feed::ring::ReadEntry;
use crate::feed::{COLLECTIONS, FeedDamage, Item, RemovalCause, bound, entries};
use crate::index::intent::CHANGE_LANES;
use crate::region::kind::ValueKind;
use crate::region::space::DATABASES;
use crate::store::components::Store;

/// How long a listener waits for a writer that has not completed its entry. It is longer than a few
/// time slices, because after each loss the listener's user must check everything.
const TIMEOUT: Duration = Duration::from_millis(100);
/// How long a listener sleeps while changes are under way that began before it listened: their
/// writers do not wake it.
const SOON: Duration = Duration::from_millis(1);
/// The maximum sleep while all changes of its own opening are entered: they do not wake it, and it
/// skips them after that time.
const LONG: Duration = Duration::from_millis(100);

/// Receives the changes that other openings make in a store, from
/// [`LogStore::listen`](crate::LogStore::listen) on. No thread waits for it, wherever it stops or
/// dies: changes that are overwritten before it has received them are reported as lost.
///
/// Changes by the listener's own opening, including its maintainer, are not reported, unless it
/// [receives](Self::hear_own_removals) keys that expire or are evicted. Those by another opening in
/// the same process are. `Send`; dropping it ends the listening.
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
/// let mut listener = ours.listen()?;
/// // Elsewhere, in any process.
/// theirs.put(b"muse", b"Clio")?;
/// let mut seen = Vec::new();
/// listener.drain(1000, |notification| match notification {
///     // Always the first thing; later, whenever something was missed.
///     Notification::Lost => seen.push("look at everything"),
///     Notification::Change(change) => match change.kind {
///         ChangeKind::Stored(b"muse") => seen.push("muse"),
///         _ => {}
///     },
/// })?;
/// assert_eq!(seen, ["look at everything", "muse"]);
/// // Until there is more to drain, or for a minute.
/// # theirs.put(b"muse", b"Erato")?;
/// if let Some(sleep) = listener.sleep() {
///     sleep.at_most(std::time::Duration::from_secs(60));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChangeListener {
    store: Arc<Store>,
    _registered: WatchRegistration,
    /// The next position.
    at: u64,
    /// The number of losses seen so far.
    losses: u64,
    /// Changes under way that may not be entered.
    owed: Announced,
    /// Whether a loss is to be reported.
    lost: bool,
    /// Whether it receives its opening's own removals.
    hears_removals: bool,
    /// The position of an entry that is not complete, and the time since when.
    unfinished: Option<(u64, u64)>,
    /// The index of each database, by the entries so far.
    roots: [u64; DATABASES],
    /// The number of swaps by this opening, whose entries are not read, that `roots` takes into
    /// account.
    own_swaps: u64,
    /// Changes of one long value whose pieces have begun, by id: index, key, total bytes.
    long: HashMap<u64, (u64, Vec<u8>, u64)>,
    /// The bytes of an entry.
    bytes: Vec<u8>,
}

/// What a listener receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notification<'k> {
    /// Some changes will not be reported: the listener must check everything that matters to it.
    /// What it then finds is at least as new as what was lost. This is reported at the beginning;
    /// when changes were overwritten before they were drained; for a transaction whose keys, or in
    /// a store with a kept feed whose values, have more than 64 KiB; and twice for a writer that
    /// was stopped for 100 ms in the middle of a change: then, and when it has continued. It may be
    /// a false alarm.
    Lost,
    /// A change.
    Change(Change<'k>),
}

/// A visible change that another opening has made.
///
/// Notifications of one key come in the order of its changes. Those of a transaction follow one
/// another directly. When a database is cleared or swapped and a key changes at about the same
/// time, the two may be reported in either order: the store has the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Change<'k> {
    /// The database, 0 to 63, in which the change was made. While databases are swapped it may be
    /// the other one.
    pub database: usize,
    /// The kind of change.
    pub kind: ChangeKind<'k>,
    /// What was done to the value, if it was [stored](ChangeKind::Stored).
    pub value: ValueChange,
}

/// What is known of a change of a value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct ValueChange {
    /// The packed kind of the value's type. `None`: it is not known.
    pub kind: Option<ValueKind>,
    /// Whether elements of the value were set, or all of it.
    pub set: bool,
    /// Whether elements of the value were removed. Of several changes of a small value that were
    /// made at once only the last is known.
    pub removed: bool,
}

impl ValueChange {
    /// What an item says of the value under its key.
    fn of_item(item: &Item<'_>) -> ValueChange {
        let (kind, set) = match *item {
            Item::Put { kind, .. } | Item::Edit { kind, .. } => (kind, true),
            Item::Patch { .. } => (ValueKind::STRING.number(), true),
            Item::Unedit { kind, .. } => (kind, false),
            _ => return ValueChange::default(),
        };
        ValueChange {
            kind: ValueKind::new(kind).map(ValueKind::packed),
            set,
            removed: !set,
        }
    }

    /// What the items of an entry say of elements of large values, whose keys others name.
    fn of_large<'e>(items: impl Iterator<Item = Item<'e>>) -> ValueChange {
        let mut value = ValueChange::default();
        for item in items {
            match item {
                Item::Put { root, .. } => value.set |= root == COLLECTIONS,
                Item::Remove { root, .. } => value.removed |= root == COLLECTIONS,
                _ => {}
            }
        }
        value
    }

    /// Adds what another item of the entry says of elements of the value. If it `is_whole`, all of
    /// it was said before, and the other item says why.
    fn add(&mut self, other: ValueChange, is_whole: bool) {
        if is_whole {
            *self = other;
        }
        self.set |= other.set;
        self.removed |= other.removed;
    }
}

/// Whether an item says something of an element of this value.
fn is_element_of(item: &Result<Item<'_>, FeedDamage>, of: u64, value: &[u8]) -> bool {
    match *item {
        Ok(Item::Edit { root, key, .. } | Item::Unedit { root, key, .. }) => {
            (root, key) == (of, value)
        }
        _ => false,
    }
}

/// What was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChangeKind<'k> {
    /// The key has another value, or is new.
    Stored(&'k [u8]),
    /// The expiry of the key has changed.
    Retimed(&'k [u8]),
    /// The key was removed.
    Removed(&'k [u8]),
    /// The key had expired, and its record was removed: by a sweep, or by a removal that came too
    /// late.
    Expired(&'k [u8]),
    /// The key was evicted, to free space.
    Evicted(&'k [u8]),
    /// All keys of the database were removed. Not reported if it was not written to since its
    /// creation or last clearing.
    Cleared,
    /// The database was exchanged with this one.
    Swapped(usize),
}

/// The means by which a listener sleeps, see [`ChangeListener::sleep`].
#[must_use = "it sleeps in `at_most`"]
pub struct Sleep {
    store: Arc<Store>,
    armed: u64,
    limit: Duration,
}

impl Sleep {
    /// Sleeps until the listener may have something to drain, at most for `limit`. A change by
    /// another opening ends the sleep at once; so does
    /// [`wake_listeners`](crate::LogStore::wake_listeners).
    pub fn at_most(self, limit: Duration) {
        self.store
            .session()
            .feed
            .bell()
            .wait(self.armed, limit.min(self.limit));
    }
}

impl ChangeListener {
    pub(crate) fn of(store: &Arc<Store>) -> Result<ChangeListener, SlotError> {
        // From now on other openings enter their changes, or have announced them before.
        let registered = (store.session().participants).register_watch(Interest::Changes)?;
        mneme_sys::fault!("log.listen.registered");
        let mut listener = ChangeListener {
            store: Arc::clone(store),
            _registered: registered,
            at: 0,
            losses: 0,
            owed: Announced::default(),
            lost: true,
            hears_removals: false,
            unfinished: None,
            roots: [0; DATABASES],
            own_swaps: 0,
            long: HashMap::new(),
            bytes: Vec::new(),
        };
        // Before the look at announced changes: everything that is entered from now on is received.
        listener.at = store.session().feed.ring().tail();
        listener.losses = store.session().feed.losses();
        listener.lose()?;
        Ok(listener)
    }

    /// Some change is not received: a loss is reported now, and another one once the changes that
    /// are under way are over.
    fn lose(&mut self) -> Result<(), SlotError> {
        self.lost = true;
        self.owed = self.store.session().participants.announced(&CHANGE_LANES)?;
        Ok(())
    }

    /// Sets whether the listener also receives the keys that its own opening removes without a
    /// caller's request: those that have [expired](ChangeKind::Expired) or are
    /// [evicted](ChangeKind::Evicted). If no listener receives them, they cost as little as other
    /// changes without a listener. A [loss](Notification::Lost) marks the beginning.
    ///
    /// # Errors
    /// [`SlotError::Barrier`]: it receives as much as before.
    pub fn hear_own_removals(&mut self, hears: bool) -> Result<(), SlotError> {
        if hears == self.hears_removals {
            return Ok(());
        }
        self.store.session().feed.hear_removals(hears);
        self.hears_removals = hears;
        if hears && let Err(refused) = self.lose() {
            self.store.session().feed.hear_removals(false);
            self.hears_removals = false;
            return Err(refused);
        }
        Ok(())
    }

    /// Calls `receive` with the changes since the last time, about `most` of them. Returns their
    /// number. If that is `most`, there may be more. Never waits: an entry that a writer has not
    /// completed, and all after it, are left for the next call, until that has lasted for 100 ms.
    ///
    /// # Errors
    /// [`SlotError::Forked`]; [`SlotError::Barrier`], after which some changes may be reported only
    /// later, as lost.
    pub fn drain(
        &mut self,
        most: usize,
        mut receive: impl FnMut(Notification<'_>),
    ) -> Result<usize, SlotError> {
        let store = Arc::clone(&self.store);
        if store.session().participants.is_forked() {
            return Err(SlotError::Forked);
        }
        let feed = &store.session().feed;
        let own = store.session().participants.process_number();
        self.pass_own_entries(feed);
        let mut count = 0;
        loop {
            self.look_for_losses(feed)?;
            if std::mem::take(&mut self.lost) {
                self.find_roots();
                self.long.clear();
                receive(Notification::Lost);
            }
            if count >= most {
                return Ok(count);
            }
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.clear();
            let seen = feed.ring().read(
                self.at,
                |header| !header.is_of(own),
                |word| bytes.extend_from_slice(&word.to_le_bytes()),
            );
            match seen {
                ReadEntry::Nothing => return Ok(count),
                ReadEntry::Unfinished(header) => {
                    if !header.is_of(own) {
                        if !self.has_waited(&store) {
                            return Ok(count);
                        }
                        self.lose()?;
                    }
                    self.at = self.at.wrapping_add(header.stride());
                }
                ReadEntry::Lost(oldest) => {
                    self.lost = feed.have_others_entered(self.at);
                    self.at = oldest;
                }
                ReadEntry::Complete(header) => {
                    let is_own = !self.hears_removals && header.is_of(feed.own_removals());
                    count += self.hand_out(&bytes, is_own, &mut receive);
                    self.at = self.at.wrapping_add(header.stride());
                }
            }
            self.bytes = bytes;
        }
    }

    /// Entries that are durable and made by this opening need not be read.
    fn pass_own_entries(&mut self, feed: &FeedArea) {
        let durable = feed.kept().map_or(self.at, FeedArea::durable);
        if durable.wrapping_sub(self.at) as i64 > 0 && !feed.have_others_entered(self.at) {
            self.at = durable;
        }
    }

    fn look_for_losses(&mut self, feed: &FeedArea) -> Result<(), SlotError> {
        if !self.owed.is_empty() {
            self.lost |= self.store.session().participants.settle(&mut self.owed) > 0;
        }
        let losses = feed.losses();
        if self.losses != losses {
            self.lose()?;
            // Not before: the changes under way must be known.
            self.losses = losses;
        }
        Ok(())
    }

    /// Whether the entry at this position has been incomplete for long enough.
    fn has_waited(&mut self, store: &Store) -> bool {
        let now = store.session().clock.now_ns();
        match self.unfinished {
            Some((at, since)) if at == self.at => {
                now.saturating_sub(since) >= TIMEOUT.as_nanos() as u64
            }
            _ => {
                self.unfinished = Some((self.at, now));
                false
            }
        }
    }

    /// Finds out which database has which index. If that fails, the next unknown index is a loss.
    fn find_roots(&mut self) {
        // Before the lookup.
        self.own_swaps = self.store.session().feed.own_swaps();
        let found = self.store.records().root_ids_now().ok().flatten();
        self.roots = found.unwrap_or([0; DATABASES]);
    }

    fn database_of(&mut self, root: u64) -> Option<usize> {
        if self.own_swaps != self.store.session().feed.own_swaps() {
            self.find_roots();
        }
        let find = |roots: &[u64]| roots.iter().position(|id| *id == root);
        find(&self.roots).or_else(|| match self.store.records().root_ids_now() {
            Ok(Some(roots)) => {
                self.roots = roots;
                // If no database has the index, it was dropped, which is reported separately.
                find(&roots)
            }
            // No wait for it.
            Ok(None) | Err(_) => {
                self.lost = true;
                None
            }
        })
    }

    /// Hands out the changes of an entry; returns their number. If it `is_own`, only removals
    /// without a caller's request are handed out.
    fn hand_out(
        &mut self,
        bytes: &[u8],
        is_own: bool,
        receive: &mut impl FnMut(Notification<'_>),
    ) -> usize {
        let mut count = 0;
        let mut long;
        let at = self.at;
        let items = || {
            let entries = entries(at, bytes).flatten();
            entries.flat_map(|entry| entry.items())
        };
        let of_large = ValueChange::of_large(items().flatten());
        let mut items = items().peekable();
        while let Some(item) = items.next() {
            let mut value = match item {
                Ok(Item::Touch { .. }) => of_large,
                Ok(ref item) => ValueChange::of_item(item),
                Err(_) => ValueChange::default(),
            };
            let (root, kind) = match item {
                // Elements of collections, whose keys are named by other items of the entry.
                Ok(
                    Item::Put { root, .. } | Item::Remove { root, .. } | Item::Drop { root, .. },
                ) if root == COLLECTIONS => continue,
                Ok(Item::Patch { root, key, .. }) => (root, ChangeKind::Stored(key)),
                Ok(
                    Item::Put { root, key, .. }
                    | Item::Edit { root, key, .. }
                    | Item::Unedit { root, key, .. },
                ) => {
                    // A change of several elements is reported once.
                    let mut is_whole = matches!(item, Ok(Item::Put { .. }));
                    while let Some(Ok(next)) = items.next_if(|next| is_element_of(next, root, key))
                    {
                        value.add(ValueChange::of_item(&next), is_whole);
                        is_whole = false;
                    }
                    (root, ChangeKind::Stored(key))
                }
                Ok(Item::Remove { cause, .. }) if is_own && cause != RemovalCause::Asked => {
                    continue;
                }
                Ok(Item::Touch { root, key }) => (root, ChangeKind::Stored(key)),
                Ok(Item::Expire { root, key, .. }) => (root, ChangeKind::Retimed(key)),
                Ok(Item::Remove { root, key, cause }) => (
                    root,
                    match cause {
                        RemovalCause::Asked => ChangeKind::Removed(key),
                        RemovalCause::Expired => ChangeKind::Expired(key),
                        RemovalCause::Evicted => ChangeKind::Evicted(key),
                    },
                ),
                Ok(Item::Bind { databases, dead }) => {
                    count += self.bind(databases, dead, receive);
                    continue;
                }
                Ok(Item::Piece { id, offset, bytes }) => {
                    if offset == 0
                        && let Some((root, key, length)) = Item::stored_at(bytes)
                        && root != COLLECTIONS
                    {
                        self.long.insert(id, (root, key.to_vec(), length));
                    }
                    continue;
                }
                Ok(Item::Pieces { id, length }) => match self.long.remove(&id) {
                    Some((root, key, all)) if all == length => {
                        long = key;
                        (root, ChangeKind::Stored(&long))
                    }
                    _ => {
                        self.lost |= length != 0;
                        continue;
                    }
                },
                Ok(Item::Open | Item::Close) => continue,
                // It is damaged, or of a later version.
                _ => {
                    self.lost = true;
                    continue;
                }
            };
            if let Some(database) = self.database_of(root) {
                count += 1;
                let change = Change {
                    database,
                    kind,
                    value,
                };
                receive(Notification::Change(change));
            }
        }
        count
    }

    fn bind(
        &mut self,
        databases: &[[u8; 8]],
        dead: &[[u8; 8]],
        receive: &mut impl FnMut(Notification<'_>),
    ) -> usize {
        let bound: Vec<(usize, u64)> = databases
            .iter()
            .map(|word| bound(*word))
            .map(|(database, root)| (usize::from(database), root))
            .collect();
        match self.store.session().feed.own_swaps() {
            0 => (bound.iter()).for_each(|(database, root)| self.roots[*database] = *root),
            // The entry may be older than a swap that `roots` takes into account.
            _ => self.find_roots(),
        }
        let (database, kind) = match bound[..] {
            [(one, _), (other, _)] => (one, ChangeKind::Swapped(other)),
            [(database, _)] if !dead.is_empty() => (database, ChangeKind::Cleared),
            // An empty database now has an index.
            _ => return 0,
        };
        let value = ValueChange::default();
        receive(Notification::Change(Change {
            database,
            kind,
            value,
        }));
        1
    }

    /// The means to sleep, if the listener may sleep because there is nothing to drain. Another
    /// thread may drain meanwhile.
    #[must_use]
    pub fn sleep(&self) -> Option<Sleep> {
        let feed = &self.store.session().feed;
        if self.store.session().participants.is_forked() {
            return None;
        }
        let armed = feed.bell().arm();
        let own = self.store.session().participants.process_number();
        let mut at = self.at;
        let others = loop {
            match feed.ring().read(at, |_| false, |_| {}) {
                ReadEntry::Complete(header) | ReadEntry::Unfinished(header)
                    if header.is_of(own) =>
                {
                    at = at.wrapping_add(header.stride());
                }
                ReadEntry::Lost(oldest) if !feed.have_others_entered(at) => at = oldest,
                seen => break seen,
            }
        };
        let limit = match others {
            _ if self.lost || feed.losses() != self.losses => return None,
            ReadEntry::Complete(_) | ReadEntry::Lost(_) => return None,
            ReadEntry::Nothing if !self.owed.is_empty() => SOON,
            ReadEntry::Nothing if feed.kept().is_some() => LONG,
            ReadEntry::Nothing => Duration::MAX,
            // Its writer rings, unless it is stopped or dies.
            ReadEntry::Unfinished(_) if self.owed.is_empty() => TIMEOUT,
            ReadEntry::Unfinished(_) => SOON,
        };
        let store = Arc::clone(&self.store);
        Some(Sleep {
            store,
            armed,
            limit,
        })
    }
}

impl Drop for ChangeListener {
    fn drop(&mut self) {
        if self.hears_removals {
            self.store.session().feed.hear_removals(false);
        }
    }
}

impl std::fmt::Debug for ChangeListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChangeListener")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
