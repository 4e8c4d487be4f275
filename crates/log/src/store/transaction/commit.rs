//! Committing: lock all, check all, publish all, unlock all.
//!
//! 1. *Announced*: the index pages of all keys are looked up, or created. Their home buckets,
//!    sorted by location, are written down, with the changes there as far as they are known; then
//!    the intent.
//! 2. *Locked*: the homes are locked in that order: a transaction that holds one never waits for a
//!    lower one, so no two transactions wait for each other. A change of the index' shape gives up
//!    its locks when it cannot have all of them. Readers read past these locks until all are held.
//!    Then all are marked (*excluded*), and readers of these homes wait.
//! 3. *Checked*: all reads are checked again, and also whether the databases still have the same
//!    indexes, because one may have been cleared. If anything changed, everything is unlocked: a
//!    conflict. The homes of watched keys are locked and checked too: if one changed, the
//!    transaction does not take place. A transaction that only reads locks nothing, see
//!    `Transaction::settle_reads`.
//! 4. *Inserted*: new keys are inserted. If some find no slot, all are taken out again, their pages
//!    grow, and the commit starts over.
//! 5. *Committed*: if any process watches, all changes are counted. One store of the intent's phase
//!    commits. Only then are old entries replaced and removed, so that an entry which compaction
//!    does not find never comes back. Records are counted, a listener is notified of the changes,
//!    and the homes are unlocked.
//!
//! The locks and the check make it serialisable (optimistic concurrency control in the manner of
//! Silo, Tu et al., SOSP 2013, §4.4, with all keys locked).

use std::collections::HashSet;

use mneme_arena::Class;
use mneme_sync::Holding;
use mneme_sys::fault::without;
use smallvec::SmallVec;

use crate::error::{Corrupt, WriteError};
use crate::feed::item::{Item, MAX_ITEMS, RemovalCause};
use crate::feed::ring::Reserved;
use crate::index::bucket::Entry;
use crate::index::counts::{self, RecordCounts};
use crate::index::lookup::Lookup;
use crate::index::resize::Why;
use crate::index::root::Root;
use crate::index::shape::{Place, SegmentRef};
use crate::records::expiry::Expiry;
use crate::records::watched::Watched;
use crate::region::mem::Loc;
use crate::session::Wait;
use crate::store::watch::Watch;

use super::few::Few;
use super::home_buckets::{Home, Homes};
use super::index_growth::{Grown, Growth, MANY, ToCome};
use super::undo::{Counts, LANE, NoteMemory, Noted, Notes, Phase};
use super::{Touched, Transaction, Write};
use crate::index::intent::{self, IndexIntent};

/// The result of an attempt to commit. Unless it committed, the appended records are abandoned.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum CommitOutcome {
    Committed,
    /// A record that was read has changed, or has expired.
    Conflict,
    /// A watched key has changed.
    Changed,
    /// Pins must be released, perhaps the transaction's own, before the index has space for these
    /// entries.
    GiveWay(ToCome),
    /// There is no free space for this number of bytes.
    NoSpace(u64),
}

/// How one round of locking, checking and publishing ended.
enum Round {
    Committed,
    Conflict,
    Changed,
    /// The index has changed its shape: look again.
    Again,
    /// The index has no free slots for these entries.
    Full(Full),
}

struct Full {
    /// All that the transaction adds.
    to_come: ToCome,
    /// The writes that found no slot, one for each page.
    found_none: Vec<usize>,
}

/// What an intent refers to, before its buckets are locked or while they are.
struct Announced<'c> {
    homes: Homes<'c>,
    memory: NoteMemory<'c>,
    counts: Counts,
}

/// The homes of all keys of a transaction.
#[derive(Clone, Copy)]
struct Found<'h> {
    writes: &'h [Home],
    /// `None`: there is no such bucket.
    reads: &'h [Option<Home>],
    watched: &'h [Option<Home>],
}

/// The changes of a transaction, as they are written down.
struct Changes {
    /// The change of the index, for each write.
    noted: Few<Noted>,
    /// The change of the number of records of each database that is written to.
    deltas: SmallVec<[RecordCounts; 2]>,
}

/// The databases that a transaction writes to: their roots, with their ids.
type Counters = SmallVec<[(Root, u64); 2]>;

impl<'a> Transaction<'a> {
    /// Commits the transaction, if what it read is unchanged.
    pub(super) fn commit(mut self) -> Result<CommitOutcome, WriteError> {
        self.may_go_on()?;
        if self.writes.is_empty() {
            // A change is counted before it is visible: if a watched key had changed before the
            // moment at which all of this was as it was read, the watch would report it now.
            return Ok(match self.settle_what_was_read()? {
                CommitOutcome::Committed if !self.is_as_watched() => CommitOutcome::Changed,
                other => other,
            });
        }
        self.settle()?;
        self.send_ahead()?;
        let outcome = self.commit_writes();
        if self.sent_ahead {
            // It fails only because of damage, which the check reports.
            let _ = self.store.session().feed.forget(self.slot, self.slot.id());
        }
        if outcome
            .as_ref()
            .is_ok_and(|o| *o == CommitOutcome::Committed)
        {
            let expiring = |w: &Write| w.new.is_some() && w.expiry != Expiry::Never;
            if self.writes.iter().any(expiring) {
                self.store.records().expect_expiries();
            }
            // No other thread has seen these mains. If this thread dies before, its reaper notes
            // it.
            for id in self.unowned.drain(..) {
                self.store.index().lose_main(Some(id));
            }
            self.writes.clear();
            self.may_be_committed = false;
        }
        outcome
    }

    /// Whether all that the transaction has read was valid at one instant.
    pub(super) fn settle_what_was_read(&mut self) -> Result<CommitOutcome, WriteError> {
        match self.settle_held()? {
            Some(settled) => Ok(settled),
            None => self.settle_reads(),
        }
    }

    /// Whether all watched keys, if any, are unchanged. The transaction is pinned.
    fn is_as_watched(&self) -> bool {
        self.watch.is_none_or(Watch::is_as_noted)
    }

    fn commit_writes(&mut self) -> Result<CommitOutcome, WriteError> {
        let mut wait = Wait::new();
        while self.ahead.is_none() && self.slot.intent(LANE).read().is_some() {
            // A transaction in the body of one that has locked ahead fails with the thread that
            // stalls.
            (self.store.session()).wait_on(self.slot, &mut wait, self.slot.id(), Holding::Lock)?;
        }
        loop {
            let mut writes = Few::<Home>::with_capacity(self.writes.len());
            for write in &self.writes {
                match self.home_of(write.root, write.place, &mut wait)? {
                    Some(home) => writes.push(home),
                    None => return Ok(CommitOutcome::NoSpace(0)),
                }
            }
            let mut reads = Few::<Option<Home>>::with_capacity(self.reads.len());
            for read in &self.reads {
                reads.push(self.home_of_read(read)?);
            }
            let mut watched = Vec::new();
            for noted in self.watched() {
                watched.push(self.home_of_watched(noted)?);
            }
            let all = writes.iter().chain(reads.iter().flatten());
            let all = all.chain(watched.iter().flatten());
            let homes = Homes::of(all.map(|home| home.loc));
            let counters = self.counters()?;
            let counts = Counts {
                homes: homes.locs.len(),
                writes: writes.len(),
                databases: counters.len(),
            };
            let Announced {
                mut homes,
                memory,
                counts,
            } = match self.announce(homes, counts)? {
                Some(announced) => announced,
                None => return Ok(CommitOutcome::NoSpace(counts.bytes())),
            };
            self.may_be_committed = true;
            let notes = self.store.notes(&memory, counts);
            let found = Found {
                writes: &writes,
                reads: &reads,
                watched: &watched,
            };
            let round = notes
                .map_err(WriteError::from)
                .and_then(|(notes, _)| self.round(&mut homes, found, &notes, &counters, &mut wait));
            homes.unlock(self.slot);
            self.slot.intent(LANE).clear();
            mneme_sys::fault!("txn.cleared");
            let dropped = self.store.drop_notes(self.slot, memory);
            self.may_be_committed = matches!(round, Ok(Round::Committed));
            let round = round?;
            if !matches!(round, Round::Committed) {
                // Otherwise it is committed, whether or not the arena could take the notes back.
                dropped?;
            }
            match round {
                Round::Committed => return Ok(CommitOutcome::Committed),
                Round::Conflict => return Ok(CommitOutcome::Conflict),
                Round::Changed => return Ok(CommitOutcome::Changed),
                Round::Again => {}
                Round::Full(full) => match self.make_space_for(&full, &writes, &mut wait)? {
                    Grown::Yes | Grown::Busy => {}
                    Grown::GiveWay => return Ok(CommitOutcome::GiveWay(full.to_come)),
                    Grown::NoSpace => return Ok(CommitOutcome::NoSpace(0)),
                },
            }
        }
    }

    /// Writes down what is to be locked, or takes over what is locked already. `None`: there is no
    /// free space for the notes.
    fn announce(
        &mut self,
        homes: Homes<'a>,
        counts: Counts,
    ) -> Result<Option<Announced<'a>>, WriteError> {
        if let Some(ahead) = self.take_ahead() {
            if let Some(counts) = ahead.covers(&homes.locs, counts) {
                // No repair reads these counts in this phase.
                intent::set_note_counts(self.slot, counts);
                return Ok(Some(Announced {
                    homes: ahead.homes,
                    memory: ahead.memory,
                    counts,
                }));
            }
            self.keep_ahead(ahead);
            self.give_up_locks()?;
        }
        // A transaction that only removes may use the reserve of a full store: it gives the reserve
        // back at once, and frees space soon.
        let removes = self.frees_space || self.writes.iter().all(|write| write.new.is_none());
        let class = match removes {
            true => Class::Reserved,
            false => Class::Ordinary,
        };
        let Some(memory) = self.store.note_memory(self.slot, counts, class)? else {
            return Ok(None);
        };
        let (notes, at) = self.store.notes(&memory, counts)?;
        for (i, loc) in homes.locs.iter().enumerate() {
            notes.set_home(i, *loc);
        }
        let announced = IndexIntent::Transaction {
            phase: Phase::Locking,
            notes: at,
            counts,
        };
        announced.announce(self.slot);
        mneme_sys::fault!("txn.intent");
        Ok(Some(Announced {
            homes,
            memory,
            counts,
        }))
    }

    /// The home bucket of `place`, whose page is created if necessary. `None`: there is no free
    /// space for it.
    pub(super) fn home_of(
        &self,
        root: Root,
        place: Place,
        wait: &mut Wait,
    ) -> Result<Option<Home>, WriteError> {
        loop {
            if let Some(segment) = self.store.session().mem.index_segment(root, place)? {
                return Ok(Some(Home::of(segment, place)));
            }
            // A first page replaces no block that would have to wait in limbo.
            if self.grow(root, place, None, wait)? == Grown::NoSpace {
                return Ok(None);
            }
        }
    }

    /// Grows the index for the entries that found no slot, and at once for all that will be added.
    /// Step by step it would take as many rounds as a page is doubled.
    fn make_space_for(
        &self,
        full: &Full,
        writes: &[Home],
        wait: &mut Wait,
    ) -> Result<Grown, WriteError> {
        match self.growth {
            Growth::Unprepared if full.to_come.len() > MANY => return Ok(Grown::GiveWay),
            Growth::Unprepared | Growth::Prepared => {
                let grown = self.store.grow_within(self.slot, &full.to_come, wait)?;
                if grown == Grown::GiveWay {
                    return Ok(grown);
                }
            }
            Growth::ByStep => {}
        }
        for &i in &full.found_none {
            let (write, segment) = (&self.writes[i], writes[i].segment);
            match self.grow(write.root, write.place, Some(segment), wait)? {
                Grown::Yes | Grown::Busy => {}
                other => return Ok(other),
            }
        }
        Ok(Grown::Yes)
    }

    /// Grows the index around `place`.
    fn grow(
        &self,
        root: Root,
        place: Place,
        seen: Option<SegmentRef>,
        wait: &mut Wait,
    ) -> Result<Grown, WriteError> {
        (self.store).grow_once(self.slot, root, place, seen, Why::Full, wait)
    }

    pub(super) fn watched(&self) -> impl Iterator<Item = &Watched> {
        self.watch.into_iter().flat_map(Watch::keys)
    }

    /// Its writes to databases. The other records are neither counted nor reported.
    fn counted_writes(&self) -> impl Iterator<Item = &Write> {
        let is_hidden = |write: &&Write| write.root.space().is_hidden();
        self.writes.iter().filter(move |write| !is_hidden(write))
    }

    /// The databases that are written to.
    fn counters(&self) -> Result<Counters, Corrupt> {
        let mut counters = Counters::new();
        for Write { root, .. } in self.counted_writes() {
            if !counters.iter().any(|(counted, _)| counted == root) {
                counters.push((*root, self.store.index().root_id(*root)?));
            }
        }
        Ok(counters)
    }

    /// The steps from *locked* to *committed*, without the unlocking.
    fn round(
        &self,
        homes: &mut Homes<'a>,
        found: Found<'_>,
        notes: &Notes<'_>,
        counters: &[(Root, u64)],
        wait: &mut Wait,
    ) -> Result<Round, WriteError> {
        if !homes.are_locked() && !self.lock(homes, wait)? {
            return Ok(Round::Again);
        }
        // If readers have waited since before this attempt read the clock, no thread has found an
        // entry absent that had not expired at that time.
        let stood_still = homes.have_begun();
        if !stood_still {
            homes.begin();
        }
        mneme_sys::fault!("txn.locked");
        if !stood_still && self.has_outlived_what_it_saw() {
            return Ok(Round::Conflict);
        }
        if let Some(ended) = self.outdated(homes, found)? {
            return Ok(ended);
        }
        let changes = self.note(found.writes, notes, counters)?;
        let noted = &changes.noted;
        intent::set_phase(self.slot, Phase::Inserting);
        mneme_sys::fault!("txn.noted");
        let inserted = self.insert(homes, found.writes, noted);
        if !matches!(&inserted, Ok(none) if none.is_empty()) {
            for note in noted {
                self.store.take_back(*note)?;
                mneme_sys::fault!("txn.taken_back");
            }
            intent::set_phase(self.slot, Phase::Locking);
            let added = self.writes.iter().zip(noted);
            let added = added.filter(|(_, note)| note.is_insertion());
            return Ok(Round::Full(Full {
                found_none: inserted?,
                to_come: ToCome::of(added.map(|(write, _)| (write.root, write.place))),
            }));
        }
        let fed = match self.enter(noted, counters) {
            Ok(fed) => fed,
            Err(error) => {
                for note in noted {
                    self.store.take_back(*note)?;
                }
                intent::set_phase(self.slot, Phase::Locking);
                return Err(error);
            }
        };
        // Readers wait for the unlocking, so no thread has seen any of it yet.
        for write in self.counted_writes() {
            self.store.records().note_change(write.root, write.place);
        }
        for touched in &self.touched {
            (self.store.records()).note_change(touched.root, touched.place);
        }
        mneme_sys::fault!("txn.watched");
        intent::set_phase(self.slot, Phase::Committed);
        mneme_sys::fault!("txn.committed");
        self.carry_out(&changes, counters, fed);
        Ok(Round::Committed)
    }

    /// The step *checked*: the result of the round if something has changed.
    fn outdated(
        &self,
        homes: &mut Homes<'_>,
        found: Found<'_>,
    ) -> Result<Option<Round>, WriteError> {
        if !self.roots_are_current()? {
            return Ok(Some(Round::Conflict));
        }
        for (read, home) in self.reads.iter().zip(found.reads) {
            intent::count_progress(self.slot);
            if !self.is_as_read(read, *home, homes)? && !without("txn.checked") {
                return Ok(Some(Round::Conflict));
            }
        }
        for (noted, home) in self.watched().zip(found.watched) {
            if home.is_none() && self.store.records().watched_segment(noted)?.is_some() {
                return Ok(Some(Round::Again));
            }
            if !self.store.records().is_as_noted(noted) {
                return Ok(Some(Round::Changed));
            }
        }
        Ok(None)
    }

    /// Writes down what each write changes in the index, and the counts afterwards.
    fn note(
        &self,
        writes: &[Home],
        notes: &Notes<'_>,
        counters: &[(Root, u64)],
    ) -> Result<Changes, WriteError> {
        let mut noted = Few::with_capacity(writes.len());
        let mut deltas: SmallVec<[RecordCounts; 2]> =
            SmallVec::from_elem(RecordCounts::default(), counters.len());
        for (i, (write, home)) in self.writes.iter().zip(writes).enumerate() {
            let found =
                (self.store.session().mem).find_in(home.segment, write.place.tag, &write.key)?;
            let new = write
                .new
                .map_or(Entry(0), |(loc, _)| Entry::new(write.place.tag, loc));
            let note = Noted {
                segment: home.segment,
                home: home.loc,
                old: found.as_ref().map_or(Entry(0), |f| f.entry),
                new,
                at: found.as_ref().map_or(Loc::of_word(0), |f| {
                    self.store.session().loc_of(f.bucket.slot(f.slot))
                }),
            };
            notes.set_write(i, note);
            if let Some(at) = counters.iter().position(|(root, _)| *root == write.root) {
                deltas[at] = deltas[at].plus(RecordCounts::change(
                    found.map(|found| found.record.expires() != 0),
                    write.new.map(|_| write.expiry != Expiry::Never),
                ));
            }
            noted.push(note);
            intent::count_progress(self.slot);
        }
        for (i, (&(root, id), &delta)) in counters.iter().zip(&deltas).enumerate() {
            let afterwards = counts::counted(self.slot, root.space(), id).plus(delta);
            notes.set_count(i, root.space(), id, afterwards);
        }
        Ok(Changes { noted, deltas })
    }

    /// The steps after it is committed: old entries are replaced and removed, and the change is
    /// counted and reported.
    fn carry_out(&self, changes: &Changes, counters: &[(Root, u64)], fed: Option<Reserved>) {
        let Changes { noted, deltas } = changes;
        for note in noted {
            // The entry was found there a moment ago, and the transaction is committed. The check
            // reports damage there.
            let _ = self.store.carry_out(*note);
            intent::count_progress(self.slot);
            mneme_sys::fault!("txn.applied");
        }
        for (&(root, id), &delta) in counters.iter().zip(deltas) {
            counts::count(self.slot, root.space(), id, delta);
            mneme_sys::fault!("txn.counted");
        }
        self.store.records().complete_change(fed);
        for note in noted.iter().filter(|note| !note.old.is_empty()) {
            if let Ok(old) = self.store.session().mem.record(note.old.loc()) {
                self.store.index().note_main_gone(&old);
                let _ = self
                    .store
                    .log()
                    .mark_dead(note.old.loc(), old.header().size());
                intent::count_progress(self.slot);
            }
        }
    }

    /// Sends the changes ahead, if there is a change feed and they are too long for an entry. Locks
    /// that were taken ahead are kept if that finds space at once.
    fn send_ahead(&mut self) -> Result<(), WriteError> {
        let Some(feed) = self
            .store
            .session()
            .feed
            .kept()
            .filter(|feed| feed.enters())
        else {
            return Ok(());
        };
        // An upper bound for the bytes of their items.
        let most = |write: &Write| write.key.len() as u64 + write.new.map_or(0, |new| new.1) + 32;
        let most: u64 = self.counted_writes().map(most).sum();
        let touched = self.touched.iter().map(|of| of.key.len() as u64 + 32);
        let most = most + touched.sum::<u64>() + self.said.most_bytes();
        if most <= MAX_ITEMS as u64 {
            return Ok(());
        }
        let counters = self.counters()?;
        let items = self
            .counted_writes()
            .map(|write| self.item_of(write, &counters));
        // It is not known yet whether there will be listeners.
        let items = items
            .chain(self.touches())
            .chain(self.said.items().map(Ok))
            .collect::<Result<Vec<Item<'_>>, Corrupt>>()?;
        if !feed.is_too_long(&items) {
            return Ok(());
        }
        let wait = || match self.ahead.is_some() {
            true => Err(WriteError::FeedFull),
            false => self.store.session().await_feed(),
        };
        let sent = feed.send_ahead(self.slot, &items, wait);
        match sent {
            Err(WriteError::FeedFull) if self.ahead.is_some() => {
                drop(items);
                self.give_up_locks()?;
                return self.send_ahead();
            }
            sent => sent?,
        }
        self.sent_ahead = true;
        Ok(())
    }

    /// The item of a write in the feed.
    fn item_of<'w>(
        &'w self,
        write: &'w Write,
        counters: &[(Root, u64)],
    ) -> Result<Item<'w>, Corrupt> {
        let its = counters.iter().find(|(root, _)| *root == write.root);
        let root = its.map_or(0, |(_, id)| *id);
        match write.new {
            Some((loc, _)) => self.store.records().put_item(root, loc),
            None => Ok(Item::Remove {
                root,
                key: &write.key,
                cause: RemovalCause::Asked,
            }),
        }
    }

    /// The keys whose collections, but not records, it changes, for listeners.
    fn touches(&self) -> impl Iterator<Item = Result<Item<'_>, Corrupt>> {
        let number = |of: &Touched| self.number_of_write(of.database, of.place, &of.key);
        let is_written = move |of: &Touched| number(of).is_some();
        let touched = self.touched.iter().filter(move |of| !is_written(of));
        touched.map(|of| {
            Ok(Item::Touch {
                root: self.store.index().root_id(of.root)?,
                key: &of.key,
            })
        })
    }

    /// Enters all changes as one entry of the change feed, if it has a follower.
    fn enter(
        &self,
        noted: &[Noted],
        counters: &[(Root, u64)],
    ) -> Result<Option<Reserved>, WriteError> {
        let feed = &self.store.session().feed;
        if !feed.is_followed() {
            return Ok(None);
        }
        if self.sent_ahead {
            return feed.enter_sent(self.slot).map(Some);
        }
        let mut items = Vec::with_capacity(noted.len());
        for (write, note) in self.writes.iter().zip(noted) {
            let is_said = write.new.is_some() || !note.old.is_empty();
            if is_said && !write.root.space().is_hidden() {
                items.push(self.item_of(write, counters)?);
            }
        }
        if feed.has_other_followers() {
            for touch in self.touches() {
                items.push(touch?);
            }
        }
        items.extend(self.said.items());
        match items.is_empty() {
            true => Ok(None),
            false => feed.enter(self.slot, &items),
        }
    }

    /// Inserts new keys. Returns those that found no slot, one for each page.
    ///
    /// It continues after the first failure, so that all pages that are too small grow before all
    /// homes are locked again: the number of rounds is that of the doublings of one page, not of
    /// all.
    fn insert(
        &self,
        homes: &mut Homes<'_>,
        writes: &[Home],
        noted: &[Noted],
    ) -> Result<Vec<usize>, WriteError> {
        let mut full = Vec::new();
        let mut segments = HashSet::new();
        for (i, (note, home)) in noted.iter().zip(writes).enumerate() {
            if !note.is_insertion() || segments.contains(&home.segment.word()) {
                continue;
            }
            let held = homes.lock_of(*home);
            let distance = self
                .store
                .session()
                .mem
                .insert_entry(home.segment, held, note.new)?;
            if distance.is_none() {
                segments.insert(home.segment.word());
                full.push(i);
                continue;
            }
            intent::count_progress(self.slot);
            mneme_sys::fault!("txn.inserted");
        }
        Ok(full)
    }
}
