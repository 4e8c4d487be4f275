//! Attempts: a transaction's body runs until the transaction commits, fails, or is cancelled by its
//! watch.

use mneme_sync::Slot;

use crate::error::WriteError;
use crate::index::shape::Place;
use crate::reclaim::evict::Evict;
use crate::reclaim::free_space::{DEADLINE, SpaceSearch, VAIN};
use crate::session::back_off;
use crate::store::components::Store;
use crate::store::watch::Watch;

use super::Transaction;
use super::commit::CommitOutcome;
use super::index_growth::{Growing, Growth};
use super::known_keys::KnownKeys;

/// The number of attempts that may end with an error while others have changed what the attempt
/// read. It is small: the error may come from a wait, which took its time.
const MOST_ERRORS: u32 = 8;

impl Store {
    /// Runs `body` until its changes are made at one instant, or it fails. `None`: a watched key
    /// has changed, so the transaction did not take place. The `keys` are locked before `body`
    /// runs.
    pub(crate) fn transaction<T, E: From<WriteError>>(
        &self,
        watch: Option<&Watch>,
        keys: &[(u8, Place)],
        body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let slot = self
            .session()
            .participants
            .slot()
            .map_err(|e| E::from(WriteError::from(e)))?;
        let mut growing = Growing::new(self);
        let result = self.attempts(&slot, watch, keys, &mut growing, body);
        growing.end(&slot, matches!(result, Ok(Some(_))));
        result
    }

    fn attempts<T, E: From<WriteError>>(
        &self,
        slot: &Slot<'_>,
        watch: Option<&Watch>,
        keys: &[(u8, Place)],
        growing: &mut Growing<'_>,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        let session = self.session();
        let mut overtaken = KnownKeys::of(keys);
        let (mut growth, mut refusals) = (Growth::Unprepared, Refusals::new());
        let mut errors = 0;
        loop {
            refusals.begin();
            let mut attempt = Transaction::new(self, slot, watch)?;
            attempt.growth = growth;
            if watch.is_some_and(|watch| !watch.is_as_noted()) {
                return Ok(None);
            }
            if overtaken.locks_ahead() && !session.read_only {
                attempt.lock_ahead(&overtaken)?;
                attempt.now_ms = session.clock.wall_ms();
            }
            let began = overtaken.is_close().then(|| session.clock.now_ns());
            let result = body(&mut attempt);
            // A child that was forked by `body` does not have the store.
            attempt.may_go_on()?;
            if let Some(began) = began {
                let took = session.clock.now_ns().saturating_sub(began);
                overtaken.learn(&attempt, took);
            }
            if attempt.awaits_feed {
                // Retried, whatever the body returned for that error.
                drop(attempt);
                session.await_feed()?;
                continue;
            }
            let written = attempt.bytes();
            let (notes, frees) = (attempt.notes_bytes(), attempt.frees_space);
            let (wanting, beside) = match attempt.wanting {
                // An attempt that lacked space is retried, whatever the body returned for that
                // error.
                Some(wanted) => {
                    drop(attempt);
                    (wanted, notes)
                }
                None => {
                    let value = match result {
                        Ok(value) => value,
                        // The error may be caused by changes that others have made between two
                        // reads.
                        Err(error) => match attempt.settle_what_was_read() {
                            Ok(CommitOutcome::Conflict) if errors < MOST_ERRORS => {
                                errors += 1;
                                back_off(&mut overtaken.conflicts);
                                continue;
                            }
                            _ => {
                                drop(attempt);
                                return Err(error);
                            }
                        },
                    };
                    let outcome = match attempt.commit() {
                        Err(WriteError::FeedFull) => {
                            session.await_feed()?;
                            continue;
                        }
                        outcome => outcome?,
                    };
                    match outcome {
                        CommitOutcome::Committed => return Ok(Some(value)),
                        CommitOutcome::Changed => return Ok(None),
                        CommitOutcome::Conflict => {
                            back_off(&mut overtaken.conflicts);
                            continue;
                        }
                        CommitOutcome::GiveWay(to_come) => {
                            self.reclaim().await_limbo(slot, &mut refusals.search)?;
                            if growth != Growth::ByStep {
                                growth = self.grow_ahead(slot, &to_come, growing)?;
                            }
                            continue;
                        }
                        // The missing space may be that for the notes.
                        CommitOutcome::NoSpace(wanted) => (wanted, notes.saturating_sub(wanted)),
                    }
                }
            };
            let total = written + wanting + beside;
            session.with_feed(|| refusals.make_space(self, slot, (wanting, total), frees))?;
            if growth == Growth::ByStep {
                // By now there may be enough free space for all at once.
                growth = Growth::Unprepared;
            }
        }
    }
}

/// The attempts that failed because they lacked space.
struct Refusals {
    search: SpaceSearch,
    /// When the first attempt was refused, in nanoseconds.
    since: Option<u64>,
    /// The number of failed attempts for which space was freed before the next one failed too.
    number: u64,
    /// What blocked the search for more space, this time and the time before.
    held_up: [Option<WriteError>; 2],
}

impl Refusals {
    fn new() -> Self {
        Refusals {
            search: SpaceSearch::new(0),
            since: None,
            number: 0,
            held_up: [None, None],
        }
    }

    /// Starts another attempt.
    fn begin(&mut self) {
        let [now, before] = &mut self.held_up;
        *before = now.take();
    }

    /// Frees space for the whole of an attempt, of `total` bytes, that found none for `wanting` of
    /// them. One that `frees` at least as much may use the frames that are reserved for compaction,
    /// if compaction frees them again.
    fn make_space(
        &mut self,
        store: &Store,
        slot: &Slot<'_>,
        (wanting, total): (u64, u64),
        frees: bool,
    ) -> Result<(), WriteError> {
        let reclaim = store.reclaim();
        let now = store.session().clock.now_ns();
        let since = now.saturating_sub(*self.since.get_or_insert(now));
        let in_time = since <= DEADLINE.as_nanos() as u64;
        // A transaction that fills much of the store either gets the space that others leave within
        // few attempts, or not at all. So it does not compact its own dead records for ever.
        let mut most = (store.log().capacity() / total.max(1)).max(4);
        if !in_time || frees {
            most = most.min(VAIN.into());
        }
        let full = !frees && reclaim.eviction() == Evict::None && reclaim.is_full(total);
        if full || !reclaim.could_hold(total) || self.number >= most {
            return Err(reclaim.out_of_memory(total));
        }
        if let Some(held_up) = self.held_up[1].take() {
            return Err(held_up);
        }
        self.search.want(wanting);
        let won = reclaim.gain_space(slot, &mut self.search)?;
        // If it has only waited, no other thread has taken freed space.
        self.number += u64::from(won || !in_time);
        if frees {
            return Ok(());
        }
        match reclaim.make_more_space(slot, &mut self.search, total) {
            // The present space may be enough.
            Err(stalled @ WriteError::Stalled(_)) => self.held_up[0] = Some(stalled),
            other => other?,
        }
        Ok(())
    }
}
