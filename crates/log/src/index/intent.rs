//! Intents: what a thread of the log is about to do, announced in its slot before it does it.
//!
//! Only this module knows the words of an intent line. A writer builds an [`IndexIntent`] and
//! announces it; recovery, [`processes`](crate::LogStore::processes) and the reaper decode one and
//! match it. Words that no writer leaves are reported as damage. `docs/design/log.md` has every
//! word.
//!
//! An operation on a key announces its home bucket before it locks it. Once it holds the bucket and
//! has decided on its change, it adds its [`HomeChange`] to the intent in place. The word that
//! names the change is stored last: without it nothing was changed.

use mneme_sync::{AttachedThread, DeadSlot, Intent as Line, Lane, Slot};

use crate::error::Corrupt;
use crate::index::bucket::Entry;
use crate::index::counts::CountsAfter;
use crate::index::shape::SegmentRef;
use crate::region::mem::Loc;
use crate::region::patch_word::PatchWord;
use crate::region::space::DATABASES;
use crate::region::space::KeyspaceId;

/// The lane of one operation on a key, or on a whole database.
pub(crate) const OPERATION_LANE: Lane = Lane::Log;
/// The lane of a change of the index' shape.
pub(crate) const INDEX_LANE: Lane = Lane::Index;
/// The lane of a transaction.
pub(crate) const TRANSACTION_LANE: Lane = Lane::Txn;

/// What a thread has announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IndexIntent {
    /// It locks the bucket at `home`, unless it has done so, and makes this change there. `None`:
    /// it has changed nothing so far.
    Home {
        home: Loc,
        change: Option<HomeChange>,
    },
    /// It clears a database, or swaps two.
    ReplaceDatabases,
    /// It locks a shard of the index, unless it has done so, and works there. The shard's journal
    /// has the details.
    Reshape { shard: u64 },
    /// It commits a transaction.
    Transaction {
        phase: Phase,
        /// The byte of the data region at which its notes lie; 0: in the thread's undo area.
        notes: u64,
        counts: NoteCounts,
    },
}

/// What an operation does under the lock of its key's home bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HomeChange {
    /// It publishes an entry.
    Publish {
        /// The index page in which the home lies.
        segment: SegmentRef,
        /// The entry to be published; empty: a removal.
        new: Entry,
        /// The entry that it replaces; empty: an insertion.
        old: Entry,
        counts: Option<CountsAfter>,
    },
    /// It makes the [change set](crate::records::change_set) that consists of this word.
    Word {
        record: Loc,
        /// Bytes from the record's start.
        offset: u64,
        word: u64,
        counts: Option<CountsAfter>,
    },
    /// It makes the [change set](crate::records::change_set) in its redo area.
    Bytes {
        /// The number of pieces of the change set.
        pieces: u8,
        guard: Option<PatchGuard>,
        counts: Option<CountsAfter>,
    },
}

/// The word of a patchable record that is odd while the pieces of a change set are being stored. It
/// shows readers whether the value is changing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PatchGuard {
    /// The record.
    pub record: Loc,
    /// The word at the time at which the change set was decided on.
    pub before: PatchWord,
    /// The length of the value afterwards.
    pub len: u32,
}

/// The phase of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Phase {
    Locking = 1,
    Inserting = 2,
    Committed = 3,
}

/// How many notes of each kind a transaction has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoteCounts {
    pub homes: usize,
    pub writes: usize,
    pub databases: usize,
}

// Kinds of intents. Kinds 3 and 4 are of earlier formats.
const RESHAPE: u16 = 1;
const HOME: u16 = 2;
const TRANSACTION: u16 = 5;
const REPLACE_DATABASES: u16 = 6;

/// Words of an operation on a key. What words 1 to 5 hold depends on the change.
const HOME_AT: usize = 0;
/// Bits 0..8 the space in which records are counted, 32..40 the change, 40..48 the pieces.
const CHANGE_AT: usize = 6;
const CHANGE_SHIFT: u32 = 32;
const PIECES_SHIFT: u32 = 40;
const PUBLISH: u8 = 1;
const BYTES: u8 = 2;
const WORD: u8 = 3;

/// Words of a transaction.
const PHASE_AT: usize = 0;
const NOTES_AT: usize = 1;
const HOMES_AT: usize = 2;
const WRITES_AT: usize = 3;
const DATABASES_AT: usize = 4;
/// Counts the steps of the transaction. No repair reads it.
const PROGRESS_AT: usize = 5;

/// The lanes of intents that announce changes of keys and databases.
pub(crate) const CHANGE_LANES: [Lane; 2] = [OPERATION_LANE, TRANSACTION_LANE];

impl IndexIntent {
    /// Runs `work`, which clears a database or swaps two, while that is announced. `work` locks no
    /// bucket, because a thread has only one such intent at a time. It may reap.
    pub fn replace_databases<T>(slot: &Slot<'_>, work: impl FnOnce() -> T) -> T {
        IndexIntent::ReplaceDatabases.announce(slot);
        mneme_sys::fault!("log.databases.announced");
        let done = work();
        slot.intent(OPERATION_LANE).clear();
        done
    }

    /// Announces this intent. Others see it before anything that the caller stores later with
    /// Release, or by an exchange. It replaces the thread's earlier intent in this lane.
    #[inline(always)]
    pub fn announce(self, slot: &Slot<'_>) {
        match self {
            IndexIntent::Home { home, change } => {
                slot.intent(OPERATION_LANE).begin(HOME, &[home.bits()]);
                if let Some(change) = change {
                    change.announce(slot);
                }
            }
            IndexIntent::ReplaceDatabases => {
                slot.intent(OPERATION_LANE).begin(REPLACE_DATABASES, &[])
            }
            IndexIntent::Reshape { shard } => slot.intent(INDEX_LANE).begin(RESHAPE, &[shard]),
            IndexIntent::Transaction {
                phase,
                notes,
                counts,
            } => {
                let [homes, writes, databases] = counts.as_words();
                let words = [phase as u64, notes, homes, writes, databases];
                slot.intent(TRANSACTION_LANE).begin(TRANSACTION, &words);
            }
        }
    }

    /// The intent that a dead thread has left in a lane of the log, if any.
    ///
    /// # Errors
    /// No thread leaves these words.
    pub fn of_dead(dead: &DeadSlot<'_>, lane: Lane) -> Result<Option<IndexIntent>, Corrupt> {
        dead.intent(lane)
            .map(|line| decode(lane, &line))
            .transpose()
    }

    /// What a thread has announced in a lane of the log, as another thread sees it at present.
    ///
    /// # Errors
    /// No thread leaves these words.
    pub fn of_thread(thread: &AttachedThread, lane: Lane) -> Result<Option<IndexIntent>, Corrupt> {
        let line = thread.intents[lane as usize].as_ref();
        line.map(|line| decode(lane, line)).transpose()
    }
}

impl HomeChange {
    /// Adds this change to the intent of the operation that holds the home.
    #[inline(always)]
    pub fn announce(self, slot: &Slot<'_>) {
        let line = slot.intent(OPERATION_LANE);
        let (change, counts) = match self {
            HomeChange::Publish {
                segment,
                new,
                old,
                counts,
            } => {
                line.set(1, new.0);
                line.set(2, old.0);
                line.set(5, segment.word());
                (u64::from(PUBLISH), counts)
            }
            HomeChange::Word {
                record,
                offset,
                word,
                counts,
            } => {
                line.set(1, record.bits());
                line.set(2, offset);
                line.set(5, word);
                (u64::from(WORD), counts)
            }
            HomeChange::Bytes {
                pieces,
                guard,
                counts,
            } => {
                if let Some(guard) = guard {
                    line.set(1, guard.record.bits());
                    line.set(2, guard.before.0);
                    line.set(5, u64::from(guard.len));
                }
                let change = u64::from(pieces) << (PIECES_SHIFT - CHANGE_SHIFT) | u64::from(BYTES);
                (change, counts)
            }
        };
        let mut space = 0;
        if let Some(counts) = counts {
            line.set(3, counts.root);
            line.set(4, counts.word);
            space = u64::from(counts.space.number());
        }
        line.set(CHANGE_AT, change << CHANGE_SHIFT | space);
    }
}

/// Takes a transaction from one phase to the next.
pub(crate) fn set_phase(slot: &Slot<'_>, phase: Phase) {
    slot.intent(TRANSACTION_LANE).set(PHASE_AT, phase as u64);
}

/// Notes that a transaction makes progress within its phase, so that a thread that has waited for
/// it without success does not keep others from waiting.
#[inline]
pub(crate) fn count_progress(slot: &Slot<'_>) {
    slot.intent(TRANSACTION_LANE).count(PROGRESS_AT);
}

/// Stores how many writes and databases the notes of a transaction in the phase *locking* have
/// space for.
pub(crate) fn set_note_counts(slot: &Slot<'_>, counts: NoteCounts) {
    let line = slot.intent(TRANSACTION_LANE);
    line.set(WRITES_AT, counts.writes as u64);
    line.set(DATABASES_AT, counts.databases as u64);
}

impl NoteCounts {
    fn as_words(self) -> [u64; 3] {
        [self.homes, self.writes, self.databases].map(|n| n as u64)
    }
}

fn decode(lane: Lane, line: &Line) -> Result<IndexIntent, Corrupt> {
    let words = &line.words;
    match (lane, line.kind) {
        (OPERATION_LANE, HOME) => {
            let home = Loc::of_word(words[HOME_AT]);
            let change = home_change(home, words)?;
            Ok(IndexIntent::Home { home, change })
        }
        (OPERATION_LANE, REPLACE_DATABASES) => Ok(IndexIntent::ReplaceDatabases),
        (INDEX_LANE, RESHAPE) => Ok(IndexIntent::Reshape { shard: words[0] }),
        (TRANSACTION_LANE, TRANSACTION) => {
            // Numbers that no notes can hold are refused where the notes are looked up.
            let count = |i: usize| words[i].min(1 << 32) as usize;
            Ok(IndexIntent::Transaction {
                phase: Phase::of_word(words[PHASE_AT])?,
                notes: words[NOTES_AT],
                counts: NoteCounts {
                    homes: count(HOMES_AT),
                    writes: count(WRITES_AT),
                    databases: count(DATABASES_AT),
                },
            })
        }
        (lane, kind) => Err(unknown(format!(
            "an intent of kind {kind} in lane {lane:?}"
        ))),
    }
}

fn home_change(home: Loc, words: &[u64; 7]) -> Result<Option<HomeChange>, Corrupt> {
    let what = words[CHANGE_AT];
    let counts = (words[3] != 0).then(|| CountsAfter {
        space: KeyspaceId::new((what % DATABASES as u64) as u8),
        root: words[3],
        word: words[4],
    });
    Ok(Some(match (what >> CHANGE_SHIFT) as u8 {
        0 if what == 0 => return Ok(None),
        PUBLISH => HomeChange::Publish {
            segment: SegmentRef::of_word(words[5], home)?,
            new: Entry(words[1]),
            old: Entry(words[2]),
            counts,
        },
        WORD => HomeChange::Word {
            record: Loc::of_word(words[1]),
            offset: words[2],
            word: words[5],
            counts,
        },
        BYTES => HomeChange::Bytes {
            pieces: (what >> PIECES_SHIFT) as u8,
            guard: (words[1] != 0).then(|| PatchGuard {
                record: Loc::of_word(words[1]),
                before: PatchWord(words[2]),
                len: words[5] as u32,
            }),
            counts,
        },
        other => {
            return Err(unknown(format!(
                "an intent to make a change of kind {other}"
            )));
        }
    }))
}

impl Phase {
    fn of_word(word: u64) -> Result<Phase, Corrupt> {
        let all = [Phase::Locking, Phase::Inserting, Phase::Committed];
        let found = all.into_iter().find(|phase| *phase as u64 == word);
        found.ok_or_else(|| unknown(format!("a transaction in phase {word}")))
    }
}

#[cold]
fn unknown(what: String) -> Corrupt {
    Corrupt::at(0, format!("in the control region: {what}"))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::LogStore;
    use crate::index::lookup::Lookup;

    fn line(kind: u16, words: [u64; 7]) -> Line {
        Line { kind, words }
    }

    #[test]
    fn an_announced_intent_is_decoded() {
        let store = LogStore::builder().maintainer(false);
        let store = store.capacity(64 << 20).open_private().unwrap();
        store.put(b"key", b"value").unwrap();
        let inner = store.inner();
        let slot = inner.session().participants.slot().unwrap();
        let read = |lane| decode(lane, &slot.intent(lane).read().unwrap()).unwrap();
        let _pin = slot.pin();
        let space = inner.index().entered_space(0);
        let root = inner.index().root(space).unwrap().unwrap();
        let place = inner.index().place(b"key");
        let segment = inner
            .session()
            .mem
            .index_segment(root, place)
            .unwrap()
            .unwrap();
        let (home, record) = (segment.home_at(place.tag), Loc::of_byte(1 << 30));
        let counts = Some(CountsAfter {
            space: KeyspaceId::new(63),
            root: 7,
            word: u64::MAX - 1,
        });
        for counts in [None, counts] {
            let changes = [
                HomeChange::Publish {
                    segment,
                    new: Entry(u64::MAX),
                    old: Entry(0),
                    counts,
                },
                HomeChange::Word {
                    record,
                    offset: 8,
                    word: u64::MAX,
                    counts,
                },
                HomeChange::Bytes {
                    pieces: 0,
                    guard: Some(PatchGuard {
                        record,
                        before: PatchWord(u64::MAX),
                        len: u32::MAX,
                    }),
                    counts,
                },
                HomeChange::Bytes {
                    pieces: 255,
                    guard: None,
                    counts,
                },
            ];
            for change in changes {
                let intent = IndexIntent::Home { home, change: None };
                intent.announce(&slot);
                assert_eq!(read(OPERATION_LANE), intent);
                change.announce(&slot);
                let change = Some(change);
                assert_eq!(read(OPERATION_LANE), IndexIntent::Home { home, change });
            }
        }
        let counts = NoteCounts {
            homes: 1,
            writes: 2,
            databases: 3,
        };
        let transaction = |phase| IndexIntent::Transaction {
            phase,
            notes: 2 << 20,
            counts,
        };
        transaction(Phase::Locking).announce(&slot);
        set_phase(&slot, Phase::Committed);
        assert_eq!(read(TRANSACTION_LANE), transaction(Phase::Committed));
        IndexIntent::Reshape { shard: 3 }.announce(&slot);
        assert_eq!(read(INDEX_LANE), IndexIntent::Reshape { shard: 3 });
        IndexIntent::ReplaceDatabases.announce(&slot);
        assert_eq!(read(OPERATION_LANE), IndexIntent::ReplaceDatabases);
        for lane in [OPERATION_LANE, INDEX_LANE, TRANSACTION_LANE] {
            slot.intent(lane).clear();
        }
    }

    #[test]
    fn words_that_nobody_leaves_are_damage() {
        let change = |change: u64| [8, 8, 8, 8, 8, 8, change << CHANGE_SHIFT];
        for (lane, damaged) in [
            (OPERATION_LANE, line(RESHAPE, [0; 7])),
            (OPERATION_LANE, line(u16::MAX, [0; 7])),
            (INDEX_LANE, line(HOME, [0; 7])),
            (TRANSACTION_LANE, line(HOME, [0; 7])),
            (OPERATION_LANE, line(HOME, change(4))),
            (OPERATION_LANE, line(HOME, change(u64::from(u32::MAX)))),
            // It names no index page.
            (OPERATION_LANE, line(HOME, change(u64::from(PUBLISH)))),
            (TRANSACTION_LANE, line(TRANSACTION, [0; 7])),
            (TRANSACTION_LANE, line(TRANSACTION, [4; 7])),
            (Lane::Arena, line(RESHAPE, [0; 7])),
        ] {
            decode(lane, &damaged).unwrap_err();
        }
    }
}
