//! The journal of a shard: what the holder of its lock is doing, for the thread that inherits the
//! lock from a dead one.
//!
//! Only this module knows the words; `docs/design/log.md` lists them. Three things are noted
//! independently: a [change of shape](ShapeChange), a [frame](MovingFrame) that is being moved into
//! the pool table or out of it, and a block that is being freed from limbo.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};

use mneme_arena::Frame;
use mneme_sync::SlotId;

use crate::error::Corrupt;
use crate::index::Index;
use crate::index::pool::Block;
use crate::index::shape::{MAX_DEPTH, SegmentRef};
use crate::region::layout::Shard;
use crate::region::mem::Loc;

/// A change of the index' shape under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShapeChange {
    /// Blocks are being filled. If the holder dies, the next one undoes it.
    Prepare {
        /// The pages that are to be replaced. Their buckets are being locked.
        old: [Option<SegmentRef>; 2],
        /// The blocks that were allocated, given back if the change is undone.
        new: [Option<Block>; NEW.len()],
    },
    /// The words are being changed. If the holder dies, the next one finishes it.
    Publish {
        /// The pages that are replaced. Their buckets are locked.
        old: [Option<SegmentRef>; 2],
        words: WordChanges,
    },
    /// The words are being cleared, and their block freed. If the holder dies, the next one
    /// finishes it.
    Strike {
        address: Loc,
        count: u64,
        block: Option<Block>,
    },
}

/// Words to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WordChanges {
    /// The first of them.
    pub address: Loc,
    pub count: u64,
    /// How many of them become `first`; the others become `second`.
    pub half: u64,
    pub first: u64,
    pub second: u64,
    /// A directory that is replaced.
    pub old_block: Option<Block>,
}

impl WordChanges {
    /// Changes `count` words from `address` on to `word`.
    pub fn words(address: Loc, count: u64, word: u64) -> WordChanges {
        WordChanges {
            address,
            count,
            half: count,
            first: word,
            second: 0,
            old_block: None,
        }
    }

    /// Each word's place, and its new value.
    pub fn iter(self) -> impl Iterator<Item = (Loc, u64)> {
        (0..self.count).map(move |i| {
            let word = if i < self.half {
                self.first
            } else {
                self.second
            };
            (self.address.add_words(i), word)
        })
    }
}

/// A frame that is being moved into the pool table or out of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MovingFrame {
    pub frame: Frame,
    /// Its generation in the arena: with another generation it does not belong to this shard.
    pub generation: u32,
}

// The words.
const KIND: usize = 0;
/// The slot of the lock's holder.
const OWNER: usize = 1;
const ADDRESS: usize = 2;
const COUNT: usize = 3;
const HALF: usize = 4;
const FIRST: usize = 5;
const SECOND: usize = 6;
/// Page words; 0: none.
const OLD: [usize; 2] = [7, 8];
/// Block words; 0: none.
const OLD_BLOCK: usize = 9;
const NEW: [usize; 3] = [10, 11, 12];
/// A frame, plus one, and in the high half its generation.
const FRAME: usize = 13;
/// A block word.
const FREE: usize = 14;

// Kinds of changes.
const IDLE: u64 = 0;
const PREPARE: u64 = 1;
const PUBLISH: u64 = 2;
const STRIKE: u64 = 3;

/// A shard's journal. The holder of the shard's lock writes it.
#[derive(Clone, Copy)]
pub(crate) struct ShardJournal<'s>(&'s [AtomicU64; 16]);

impl<'s> ShardJournal<'s> {
    pub fn of(shard: &'s Shard) -> ShardJournal<'s> {
        ShardJournal(&shard.journal)
    }

    /// Announces what `owner`, the holder of the lock, is about to do.
    pub fn announce(self, owner: SlotId, change: ShapeChange) {
        self.set(OWNER, u64::from(owner.0));
        let kind = match change {
            ShapeChange::Prepare { old, new } => {
                for (n, block) in new.into_iter().enumerate() {
                    self.note_new(n, block);
                }
                self.set_old(old);
                PREPARE
            }
            ShapeChange::Publish { old, words } => {
                self.set_old(old);
                self.set(ADDRESS, words.address.bits());
                self.set(COUNT, words.count);
                self.set(HALF, words.half);
                self.set(FIRST, words.first);
                self.set(SECOND, words.second);
                self.set(OLD_BLOCK, word_of(words.old_block));
                PUBLISH
            }
            ShapeChange::Strike {
                address,
                count,
                block,
            } => {
                self.set(ADDRESS, address.bits());
                self.set(COUNT, count);
                self.note_new(0, block);
                STRIKE
            }
        };
        // Stored last: without it nothing was changed.
        self.set(KIND, kind);
    }

    /// The change that is under way in the shard, and the slot of the thread that announced it.
    ///
    /// # Errors
    /// No thread leaves these words.
    pub fn announced(self, index: &Index) -> Result<Option<(SlotId, ShapeChange)>, Corrupt> {
        let change = match self.get(KIND) {
            IDLE => return Ok(None),
            PREPARE => ShapeChange::Prepare {
                old: self.old(index)?,
                new: NEW.map(|at| self.block(at)),
            },
            PUBLISH => {
                let (address, count) = self.words(index)?;
                ShapeChange::Publish {
                    old: self.old(index)?,
                    words: WordChanges {
                        address,
                        count,
                        half: self.get(HALF),
                        first: self.get(FIRST),
                        second: self.get(SECOND),
                        old_block: self.block(OLD_BLOCK),
                    },
                }
            }
            STRIKE => {
                let (address, count) = self.words(index)?;
                ShapeChange::Strike {
                    address,
                    count,
                    block: self.block(NEW[0]),
                }
            }
            kind => {
                let loc = index.session().loc_of(&self.0[KIND]);
                return Err(Corrupt::at(loc.byte(), format!("a journal of kind {kind}")));
            }
        };
        Ok(Some((SlotId(self.get(OWNER) as u16), change)))
    }

    /// Whether a change is announced of which nothing is published.
    pub fn is_preparing(self) -> bool {
        self.get(KIND) == PREPARE
    }

    /// Whether the journal has an operation that this dead thread, which had the lock, left
    /// unfinished.
    pub fn is_left_by(self, dead: SlotId) -> bool {
        self.get(FRAME) != 0 || (self.get(KIND) != IDLE && self.get(OWNER) == u64::from(dead.0))
    }

    /// Notes that the change is over.
    pub fn clear(self) {
        self.set(KIND, IDLE);
    }

    /// Notes the `n`th block that is allocated for the change. `None`: it was freed again.
    pub fn note_new(self, n: usize, block: Option<Block>) {
        self.set(NEW[n], word_of(block));
    }

    /// Notes a frame that is being moved. `None`: the move is complete.
    pub fn note_frame(self, moving: Option<MovingFrame>) {
        let word = |moving: MovingFrame| {
            (u64::from(moving.frame.0) + 1) | u64::from(moving.generation) << 32
        };
        self.set(FRAME, moving.map_or(0, word));
    }

    /// The frame that is being moved. A number that no frame of the arena has is damage, and is
    /// ignored.
    pub fn moving_frame(self) -> Option<MovingFrame> {
        let word = self.get(FRAME);
        (word as u32).checked_sub(1).map(|frame| MovingFrame {
            frame: Frame(frame),
            generation: (word >> 32) as u32,
        })
    }

    /// Notes a block that is being freed from limbo. `None`: it is free.
    pub fn note_free(self, block: Option<Block>) {
        self.set(FREE, word_of(block));
    }

    /// The block that is being freed from limbo.
    pub fn freed_block(self) -> Option<Block> {
        self.block(FREE)
    }

    fn get(self, at: usize) -> u64 {
        // SYNC: pairs with the Release store in `set` by an earlier holder of the lock.
        self.0[at].load(Acquire)
    }

    /// Writes a word, in program order with every other store: a death may come between any two
    /// instructions.
    fn set(self, at: usize, word: u64) {
        // SYNC: pairs with the Acquire load in `get` by the lock's next holder.
        self.0[at].store(word, Release);
        compiler_fence(SeqCst);
    }

    fn block(self, at: usize) -> Option<Block> {
        Block::of_word(self.get(at))
    }

    fn set_old(self, old: [Option<SegmentRef>; 2]) {
        for (at, segment) in OLD.into_iter().zip(old) {
            self.set(at, segment.map_or(0, SegmentRef::word));
        }
    }

    fn old(self, index: &Index) -> Result<[Option<SegmentRef>; 2], Corrupt> {
        let mut old = [None; 2];
        for (segment, at) in old.iter_mut().zip(OLD) {
            let word = self.get(at);
            if word != 0 {
                *segment = Some(SegmentRef::of_word(
                    word,
                    index.session().loc_of(&self.0[at]),
                )?);
            }
        }
        Ok(old)
    }

    /// The words to be changed: words of the index, or one of the header's roots, and at most as
    /// many as the longest directory has.
    fn words(self, index: &Index) -> Result<(Loc, u64), Corrupt> {
        let (address, count) = (Loc::of_word(self.get(ADDRESS)), self.get(COUNT));
        let in_header = index.session().tables.in_header(address) && count == 1;
        if !in_header && (count > 1 << MAX_DEPTH || !index.is_index(address)) {
            return Err(Corrupt::at(
                address.byte(),
                format!("a journal names {count} words there, which are not the index'"),
            ));
        }
        Ok((address, count))
    }
}

fn word_of(block: Option<Block>) -> u64 {
    block.map_or(0, Block::word)
}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::index::pool::UNIT;
    use crate::region::space::KeyspaceId;
    use crate::store::LogStore;

    #[test]
    fn what_is_announced_is_what_is_read() {
        let builder = LogStore::builder().capacity(64 << 20).maintainer(false);
        let store = builder.open_private().unwrap();
        let index: &Index = store.inner().index();
        let shard = index.session().tables.shard(0);
        let (journal, owner) = (ShardJournal::of(shard), SlotId(3));
        let root = index.session().loc_of(
            index
                .session()
                .tables
                .header()
                .root_word(KeyspaceId::new(0)),
        );
        let block = |unit| {
            Some(Block {
                loc: Loc::of_byte(unit * UNIT),
                units: 3,
            })
        };
        let old = [Some(SegmentRef::new(Loc::of_byte(1 << 20), 12, 3)), None];
        let new = [block(1), None, block(2)];
        let words = WordChanges {
            half: 0,
            second: 7,
            old_block: block(9),
            ..WordChanges::words(root, 1, 5)
        };
        let strike = ShapeChange::Strike {
            address: root,
            count: 1,
            block: block(4),
        };
        for change in [
            ShapeChange::Prepare { old, new },
            ShapeChange::Publish { old, words },
            strike,
        ] {
            journal.announce(owner, change);
            assert_eq!(journal.announced(index), Ok(Some((owner, change))));
            assert!(journal.is_left_by(owner) && !journal.is_left_by(SlotId(4)));
            journal.clear();
            assert_eq!(journal.announced(index), Ok(None));
        }
        let moving = Some(MovingFrame {
            frame: Frame(0),
            generation: 2,
        });
        journal.note_frame(moving);
        assert_eq!(journal.moving_frame(), moving);
        assert!(journal.is_left_by(SlotId(4)), "whoever holds the lock");
        journal.note_frame(None);
        assert_eq!(journal.moving_frame(), None);
        shard.journal[KIND].store(STRIKE + 1, Relaxed);
        assert!(journal.announced(index).is_err(), "no thread leaves this");
        journal.clear();
    }
}
