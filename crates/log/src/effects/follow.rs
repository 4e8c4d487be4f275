//! The follower's side of the change feed, see [`crate::effects`].

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::Duration;

use mneme_sync::{Announced, SlotError};

use super::area::{CONTENT, SLOTS};
use super::ring::{Next, State};
use super::{Kind, LANES, WHOLE};
use crate::core::Core;
use crate::layout::DATABASES;
use crate::role::ServerRole;

/// How long the follower waits for a writer that is entering an effect. It is longer than a few
/// time slices, for each loss makes the follower look at everything.
const PATIENCE: Duration = Duration::from_millis(100);

/// The changes that others make in a store, for the holder of its [server's role](ServerRole). The
/// type allows one follower at a time.
///
/// Changes by the follower's own opening, including its maintainer, are not reported. Those by
/// another opening in the same process are. `Send`; dropping it ends the following, then releases
/// the role.
///
/// ```
/// # use mneme_log::{LogStore, Told, What, control_bytes};
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
/// let mut effects = ours.take_server_role()?.follow();
/// // Elsewhere, in any process.
/// theirs.put(b"muse", b"Clio")?;
/// // From time to time.
/// let mut seen = Vec::new();
/// effects.drain(1000, |told| match told {
///     // Always the first thing; later, whenever something was missed.
///     Told::Lost => seen.push("look at everything"),
///     Told::Effect(effect) => match effect.what {
///         What::Stored(key) if effects_of_muse(&key) => seen.push("muse"),
///         _ => {}
///     },
/// })?;
/// assert_eq!(seen, ["look at everything", "muse"]);
/// # fn effects_of_muse(key: &mneme_log::KeyOf<'_>) -> bool { key.whole() == Some(b"muse") }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Effects {
    // Ended before the role is given back.
    following: Following,
    role: ServerRole,
    /// The next position.
    at: u64,
    /// Losses that were reported to the follower.
    losses: u64,
    /// Changes that began before the following did, and may not be entered.
    owed: Announced,
    /// The barrier was refused, so writers may not see the follower: any change may be lost at any
    /// time.
    is_unheard: bool,
    /// Whether a loss is to be reported.
    lost: bool,
    /// The slot that a writer is entering an effect into, and since when.
    busy: Option<(State, u64)>,
}

/// What a follower receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told<'k> {
    /// Something has changed that is not reported otherwise: the follower must look again at all
    /// that matters to it. What it then finds is as new as what was lost, or newer. This is
    /// reported at the beginning; whenever more effects were entered than the ring holds (4,096);
    /// for a writer that was stopped for 100 ms while it entered its effect; and for each writer
    /// that died in the middle of a change, once that is repaired. It may be a false alarm.
    Lost,
    /// This has been changed.
    Effect(Effect<'k>),
}

/// A change that another opening has made, and that is visible.
///
/// Effects of one key come in the order of its changes. Those of a transaction come one by one,
/// with others in between. Clearing or swapping databases and a change of a key at about that time
/// may be reported in either order: the store has the outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Effect<'k> {
    /// The database, 0 to 63, in which the change was made. For a record that expires or is evicted
    /// while databases are swapped it may be the other one.
    pub database: usize,
    /// The id of the process that made it, in that process' own namespace.
    pub process: u32,
    /// What it was.
    pub what: What<'k>,
}

/// What was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum What<'k> {
    /// The key has another value, or is new.
    Stored(KeyOf<'k>),
    /// The key expires at another time.
    Retimed(KeyOf<'k>),
    /// The key was removed.
    Removed(KeyOf<'k>),
    /// The key had expired, and its record was removed: by a sweep, or by a removal that came too
    /// late.
    Expired(KeyOf<'k>),
    /// The key was evicted, to free space.
    Evicted(KeyOf<'k>),
    /// All keys of the database were removed.
    Cleared,
    /// The database was exchanged with this one.
    Swapped(usize),
}

/// The key of an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOf<'k> {
    /// The key. Of up to 112 bytes.
    Whole(&'k [u8]),
    /// The [hash](Effects::hash_of) of a longer one. Two keys may share a hash, seldom.
    Hash(u64),
}

impl<'k> KeyOf<'k> {
    /// The key, if it is there.
    #[must_use]
    pub fn whole(&self) -> Option<&'k [u8]> {
        match self {
            KeyOf::Whole(key) => Some(key),
            KeyOf::Hash(_) => None,
        }
    }
}

/// That an opening follows; dropping it ends that.
struct Following {
    core: Arc<Core>,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        if self.core.participants.is_forked() {
            return;
        }
        // Fails where this process was declared dead, by a script, and another follows.
        let followed = self.core.effects.followed();
        let _ = followed.compare_exchange(self.number, 0, AcqRel, Relaxed);
        self.core.effects.own.store(0, Relaxed);
    }
}

impl ServerRole {
    /// Begins to be told what other openings change in the store. Costs a barrier between
    /// processes, up to 10 us, and a look at the ring; waits for nobody. From here on until the
    /// following ends, each change by another opening copies its key to the ring. In a forked
    /// child, which does not have the role, it does nothing.
    ///
    /// Whatever was changed before, and may not have been seen, is said to be [lost](Told::Lost) by
    /// the first [`drain`](Effects::drain); every change that comes after this is told, or said to
    /// be lost.
    pub fn follow(self) -> Effects {
        let core = Arc::clone(&self.core);
        let forked = core.participants.is_forked();
        let mut effects = Effects {
            following: Following { core, number: 0 },
            role: self,
            at: 0,
            losses: 0,
            owed: Announced::default(),
            is_unheard: false,
            lost: true,
            busy: None,
        };
        if !forked {
            effects.begin();
        }
        effects
    }
}

impl Effects {
    fn begin(&mut self) {
        let core = &self.following.core;
        let (area, ring) = (&core.effects, core.effects.ring());
        // Relaxed: only that it is another's never matters.
        self.following.number = area.number().fetch_add(1, Relaxed) + 1;
        // Read before anybody is told to count: what is lost from here on is told once more.
        self.losses = ring.losses();
        area.own.store(self.following.number, Relaxed);
        // SYNC: pairs with the Acquire load in `is_followed`. The barrier in `announced` pairs with
        // that which writers pass between their intents and `tell`.
        area.followed().store(self.following.number, Release);
        mneme_sys::fault!("log.effects.followed");
        match core.participants.announced(&LANES) {
            Ok(owed) => self.owed = owed,
            // Writers may never learn that they are followed.
            Err(_) => self.is_unheard = true,
        }
        // What was entered for others is dropped; who is still at it is left, and counts a loss.
        self.at = area.come().load(Acquire);
        let (mut leave, mut dropped) = (None, [0; CONTENT]);
        for _ in 0..2 * SLOTS {
            match ring.next(&mut self.at, leave, &mut dropped) {
                Next::Nothing => break,
                Next::Busy(state) => leave = Some(state),
                Next::Entered | Next::Left => {}
            }
        }
        mneme_sys::fault!("log.effects.dropped");
        area.come().store(self.at, Release);
    }

    /// Calls `told` with the changes since the last time, at most `most` effects. Returns how many
    /// there were. If there were `most`, there may be more. Never waits: an effect that a writer is
    /// just entering, and all behind it, are left for the next call, until that has been so for 100
    /// ms.
    ///
    /// # Errors
    /// [`SlotError::Forked`].
    pub fn drain(
        &mut self,
        most: usize,
        mut told: impl FnMut(Told<'_>),
    ) -> Result<usize, SlotError> {
        let core = Arc::clone(&self.following.core);
        if core.participants.is_forked() {
            return Err(SlotError::Forked);
        }
        let ring = core.effects.ring();
        let losses = ring.losses();
        self.lost |= std::mem::replace(&mut self.losses, losses) != losses;
        self.lost |= self.is_unheard;
        if !self.owed.is_empty() {
            self.lost |= core.participants.settle(&mut self.owed) > 0;
        }
        if std::mem::take(&mut self.lost) {
            told(Told::Lost);
        }
        let (mut count, mut words) = (0, [0; CONTENT]);
        while count < most {
            let leave = self.leave(&core);
            match ring.next(&mut self.at, leave, &mut words) {
                Next::Nothing => {
                    self.busy = None;
                    break;
                }
                Next::Busy(state) => {
                    if self.busy.is_none_or(|(before, _)| before != state) {
                        self.busy = Some((state, core.clock.now_ns()));
                    }
                    break;
                }
                Next::Left => told(Told::Lost),
                Next::Entered => {
                    // The writer that was waited for has finished: an equal state later belongs to
                    // another entry.
                    self.busy = None;
                    count += 1;
                    read(&words, &mut told);
                }
            }
        }
        // A follower that dies, or panics, before this store counts as not having read these
        // effects. SYNC: pairs with the Acquire load in `begin`, by the follower after this
        // process.
        core.effects.come().store(self.at, Release);
        Ok(count)
    }

    /// The slot whose writer the follower has waited for long enough.
    fn leave(&self, core: &Core) -> Option<State> {
        let (state, since) = self.busy?;
        let waited = core.clock.now_ns().saturating_sub(since);
        (waited >= PATIENCE.as_nanos() as u64).then_some(state)
    }

    /// The hash that an effect has for a key of more than 112 bytes. It is equal in all openings of
    /// a store.
    #[must_use]
    pub fn hash_of(&self, key: &[u8]) -> u64 {
        self.following.core.hash(key)
    }

    /// Ends the following, and keeps the role.
    pub fn stop(self) -> ServerRole {
        self.role
    }
}

impl std::fmt::Debug for Effects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effects")
            .field("number", &self.following.number)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Decodes an entry's words and passes them to `told`. Words that no writer enters count as a loss.
fn read(words: &[u64; CONTENT], told: &mut impl FnMut(Told<'_>)) {
    let number = |shift: u32| (words[0] >> shift) as u8;
    let mut bytes = [0; WHOLE];
    for (part, word) in bytes.chunks_exact_mut(8).zip(&words[1..]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let key = match usize::from(number(24)) {
        len if len <= WHOLE => KeyOf::Whole(&bytes[..len]),
        _ => KeyOf::Hash(words[1]),
    };
    let (database, other) = (usize::from(number(8)), usize::from(number(16)));
    let what = match Kind::of_byte(number(0)) {
        _ if database.max(other) >= DATABASES => return told(Told::Lost),
        None => return told(Told::Lost),
        Some(Kind::Stored) => What::Stored(key),
        Some(Kind::Retimed) => What::Retimed(key),
        Some(Kind::Removed) => What::Removed(key),
        Some(Kind::Expired) => What::Expired(key),
        Some(Kind::Evicted) => What::Evicted(key),
        Some(Kind::Cleared) => What::Cleared,
        Some(Kind::Swapped) => What::Swapped(other),
    };
    told(Told::Effect(Effect {
        database,
        process: (words[0] >> 32) as u32,
        what,
    }));
}
