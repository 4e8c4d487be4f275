//! The full check: walks everything, verifies what the structures guarantee, and describes what is
//! wrong.
//!
//! It may run beside readers and writers. Each shard's part is checked under the shard's lock, so
//! that shapes and blocks do not change. Entries come and go meanwhile, and a number that changed
//! during the walk is not reported as damage.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::fence;

use mneme_arena::Frame;
use mneme_sync::{Announced, Holding, Slot};

use crate::error::{Corrupt, WriteError};
use crate::index::bucket::{Bucket, Entry, SLOTS};
use crate::index::intent::CHANGE_LANES;
use crate::index::lookup::Lookup;
use crate::index::pace::Pace;
use crate::index::pool::{Block, MAP_WORDS, UNIT, UNITS};
use crate::index::resize::block_of;
use crate::index::root::Root;
use crate::index::shape::{Partition, SegmentRef};
use crate::log::head::no_head;
use crate::log::segment::{State, TAG_INDEX, TAG_LOG, frame_byte};
use crate::region::mem::Loc;
use crate::region::record::Record;
use crate::region::space::KeyspaceId;
use crate::session::Wait;
use crate::store::components::Store;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records seen.
    pub records: u64,
    /// Of these, those with an expiry.
    pub expiring: u64,
    /// Entries that lie behind their home bucket.
    pub displaced: u64,
    /// Slots of all index pages.
    pub slots: u64,
    /// Collections, each with an anchor.
    pub collections: u64,
    /// Their inner records.
    pub inner_records: u64,
    /// What is wrong, in words; empty: nothing.
    pub problems: Vec<String>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// The maximum number of problems that are collected: a damaged region could fill the memory with
/// them.
const MOST: usize = 100;
/// Walks over a space before a wrong count is reported. During a walk as many records may be added
/// behind it as are removed in front of it. A count is not reported while a thread remains in the
/// middle of a change.
const WALKS: usize = 3;

impl Report {
    pub(super) fn problem(&mut self, what: String) {
        if self.problems.len() < MOST && !self.problems.contains(&what) {
            self.problems.push(what);
        }
    }

    /// Records damage that ended a part of the check as a problem, so that the next part runs.
    fn damage(&mut self, part: Result<(), WriteError>) -> Result<(), WriteError> {
        match part {
            Err(WriteError::Corrupt(corrupt)) => {
                self.problem(corrupt.to_string());
                Ok(())
            }
            other => other,
        }
    }

    fn add(&mut self, part: Report) {
        self.records += part.records;
        self.expiring += part.expiring;
        self.displaced += part.displaced;
        self.collections += part.collections;
        self.inner_records += part.inner_records;
        self.slots += part.slots;
        for what in part.problems {
            self.problem(what);
        }
    }
}

impl Store {
    /// Checks everything, until `goes_on` returns false.
    pub(crate) fn check(
        &self,
        slot: &Slot<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Report, WriteError> {
        let mut report = Report::default();
        self.check_segments(slot, goes_on, &mut report);
        self.check_heads(slot, &mut report);
        report.add(self.check_index(slot, goes_on)?);
        match self.log().arena.check() {
            Ok(problems) => report
                .problems
                .extend(problems.iter().map(ToString::to_string)),
            Err(error) => report.problem(error.to_string()),
        }
        report.problems.extend(
            self.session()
                .participants
                .check()
                .into_iter()
                .map(|p| p.to_string()),
        );
        Ok(report)
    }

    /// The part of [`Store::check`] that reads the log only where the index leads there.
    pub(crate) fn check_index(
        &self,
        slot: &Slot<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Report, WriteError> {
        let mut report = Report::default();
        if let Some(what) = self.index().check_spaces(slot)? {
            report.problem(what);
        }
        if let Err(refused) = self.session().feed.ring().walk(|_, _| {}) {
            report.problem(self.session().feed.refused(refused).to_string());
        }
        for space in KeyspaceId::with_hidden() {
            let checked = self.check_space(slot, space, goes_on, &mut report);
            report.damage(checked)?;
        }
        let checked = self.check_collections(slot, goes_on, &mut report);
        report.damage(checked)?;
        if goes_on() {
            // No thread frees a dropped index while its blocks are counted.
            let _sweeping = self.session().tables.header().sweep.lock(slot)?;
            for shard in 0..self.session().tables.geometry.shards {
                if !goes_on() {
                    return Ok(report);
                }
                let checked = self.check_pool(slot, shard, &mut report);
                report.damage(checked)?;
            }
        }
        Ok(report)
    }

    /// Every partition of a space, and that its number of records is the counted one.
    fn check_space(
        &self,
        slot: &Slot<'_>,
        space: KeyspaceId,
        goes_on: &dyn Fn() -> bool,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        let session = self.session();
        let (mut walk, mut wait) = (1, Wait::new());
        loop {
            // Threads that may be between a change and its count. Collected only after a count was
            // wrong.
            let mut changing = match walk {
                1 => Announced::default(),
                _ => session.participants.announced(&CHANGE_LANES)?,
            };
            let mut seen = Report::default();
            let counted = || match space.is_hidden() {
                true => Ok((0, 0)),
                false => self.index().records_of(space),
            };
            let before = counted()?;
            let mut first = None;
            let mut cleared = false;
            let mut pace = Pace::new(&*session.clock);
            for partition in 0..self.index().partitions() as u32 {
                if !goes_on() {
                    return Ok(());
                }
                pace.step();
                // The root is looked up under the pin, which keeps its block from being freed.
                let _pin = slot.pin();
                let root = self.index().root(space)?;
                cleared = *first.get_or_insert(root) != root;
                let (Some(root), false) = (root, cleared) else {
                    break;
                };
                let shard = root.shard(partition, session.tables.geometry.shards);
                let walked = self.index().with_shard(slot, shard, |_| {
                    Ok(self.check_partition(root, partition, &mut seen))
                })?;
                if let Err(corrupt) = walked {
                    seen.problem(corrupt.to_string());
                }
            }
            let held = (seen.records, seen.expiring);
            let right = space.is_hidden() || cleared || held == before || counted()? != before;
            session.participants.settle(&mut changing);
            if let (false, Some(standing)) = (right, changing.first()) {
                // This also repairs what dead threads have left.
                session.wait_on(slot, &mut wait, standing, Holding::Lock)?;
                continue;
            }
            if right || walk == WALKS {
                if !right {
                    seen.problem(format!(
                        "space {space} counts {} records, {} of them with an expiry, and holds {} and {}",
                        before.0, before.1, held.0, held.1
                    ));
                }
                if space.is_hidden() {
                    let count = match space {
                        KeyspaceId::ANCHORS => &mut seen.collections,
                        _ => &mut seen.inner_records,
                    };
                    *count = std::mem::take(&mut seen.records);
                }
                report.add(seen);
                return Ok(());
            }
            walk += 1;
        }
    }

    /// Every entry leads to a record of its key, near its home; records in the partition.
    fn check_partition(
        &self,
        root: Root,
        partition: u32,
        report: &mut Report,
    ) -> Result<(), Corrupt> {
        let mut keys: HashMap<&[u8], (&Bucket, usize, Entry)> = HashMap::new();
        for (prefix, segment) in self.index().partition_segments(root, partition)? {
            report.slots += segment.buckets() * SLOTS as u64;
            for i in 0..segment.buckets() {
                let bucket = self.session().mem.bucket(segment, i)?;
                let at = || format!("space {}, partition {partition}, bucket {i}", root.space());
                if let Some(what) = self.wrong_lock(bucket) {
                    report.problem(format!("{}: {what}", at()));
                }
                for (at_slot, entry) in (0..SLOTS)
                    .map(|s| (s, bucket.entry(s)))
                    .filter(|(_, e)| !e.is_empty())
                {
                    report.records += 1;
                    let record = match self.session().mem.record(entry.loc()) {
                        Ok(record) => record,
                        Err(corrupt) => {
                            report.problem(format!("{}: {corrupt}", at()));
                            continue;
                        }
                    };
                    report.expiring += u64::from(record.expires() != 0);
                    let mut wrong = |what: &str| report.problem(format!("{}: {what}", at()));
                    let place = self.index().place(record.key());
                    if place.partition != partition || place.tag != entry.tag() {
                        wrong("an entry leads to a record of another hash");
                        continue;
                    }
                    if segment.depth() > 0 && entry.tag() >> (22 - segment.depth()) != prefix {
                        wrong("an entry of another segment");
                    }
                    let its_space = record.header().space();
                    if its_space != root.space() {
                        wrong(&format!("a record of space {its_space}"));
                    }
                    let home = segment.home(entry.tag());
                    let distance = (i + segment.buckets() - home) % segment.buckets();
                    let home = self.session().mem.bucket(segment, home)?;
                    if distance > home.word().reach() {
                        wrong(&format!(
                            "an entry {distance} buckets behind its home, beyond its reach"
                        ));
                    }
                    let checked = self.check_record(entry.loc(), &record, home, &mut wrong);
                    if let Err(corrupt) = &checked {
                        wrong(&corrupt.to_string());
                    }
                    report.displaced += u64::from(distance > 0);
                    if checked.is_err() {
                        continue;
                    }
                    // A key that was removed and stored again meanwhile is seen in two places.
                    let stays = |(bucket, slot, entry): (&Bucket, usize, Entry)| {
                        bucket.entry(slot) == entry
                    };
                    let other = keys.insert(record.key(), (bucket, at_slot, entry));
                    if other.is_some_and(stays) && stays((bucket, at_slot, entry)) {
                        report.problem(format!("{}: a key is indexed twice", at()));
                    }
                }
            }
        }
        Ok(())
    }

    /// A record lies in the written part of a log segment, and its value, if it is patched, is
    /// whole. `wrong` is called with each violation.
    fn check_record(
        &self,
        loc: Loc,
        record: &Record<'_>,
        home: &Bucket,
        wrong: &mut impl FnMut(&str),
    ) -> Result<(), Corrupt> {
        let frame = self.log().segment_of(loc)?;
        let info = self.session().tables.info(frame);
        if (record.patch()).is_some_and(|(_, w)| w.len() > record.header().patch_capacity()) {
            wrong("a value longer than its record");
        }
        if self.is_left_odd(record, home) {
            wrong("a value is being patched, and nobody patches it");
        }
        let end = loc.byte() - frame_byte(frame) + record.header().size();
        let state = info.state().state();
        if end > info.used() || matches!(state, None | Some(State::Free | State::Freeing)) {
            wrong("a record outside the written part of its log segment");
        }
        Ok(())
    }

    /// Whether a record's word shows a patch in progress, although no thread holds its home.
    fn is_left_odd(&self, record: &Record<'_>, home: &Bucket) -> bool {
        let odd = || {
            record
                .patch()
                .map(|(_, word)| word)
                .filter(|word| word.is_odd())
        };
        // A patching thread makes the word even before it unlocks, and no word value recurs.
        odd().is_some_and(|word| !home.word().locked() && odd() == Some(word))
    }

    /// Describes what is wrong with a bucket's lock word, if anything. The caller holds the shard.
    fn wrong_lock(&self, bucket: &Bucket) -> Option<&'static str> {
        let word = bucket.word();
        if word.retired() {
            return Some("retired, and yet in use");
        }
        if !word.locked() {
            return (word.in_transaction() || word.holder().is_some())
                .then_some("nobody has its lock, which names somebody");
        }
        // Loaded after the word was seen: if a thread that held the bucket then has no slot now, it
        // has released the bucket, or its reaper has.
        let nobodys = self.session().participants.pid_of(word.holder()) == 0;
        (nobodys && bucket.word() == word).then_some("its lock is held by nobody")
    }

    /// Every log segment can be walked from header to header, and the arena has its extent.
    fn check_segments(&self, slot: &Slot<'_>, goes_on: &dyn Fn() -> bool, report: &mut Report) {
        for (frame, info, word, state) in self.log().segments().take_while(|_| goes_on()) {
            let _pin = slot.pin();
            let (frames, written) = (info.frames(), info.written_at(frame));
            let arena = self.log().arena.extent_of(frame);
            let first = self.log().segment_of(Loc::of_byte(frame_byte(frame)));
            if info.state() != word {
                continue;
            }
            let known = arena
                .filter(|a| a.extent.start == frame && a.tag == TAG_LOG)
                .map(|a| a.extent.frames);
            let end = match written {
                Ok(end) if known.is_some() && known == frames && first == Ok(frame) => end,
                Ok(_) => {
                    report.problem(format!(
                        "log segment at frame {} ({state:?}): the arena knows it otherwise",
                        frame.0
                    ));
                    continue;
                }
                Err(corrupt) => {
                    report.problem(corrupt.to_string());
                    continue;
                }
            };
            if let Err(corrupt) = self.walk(frame, end)
                && info.state() == word
            {
                report.problem(format!("log segment at frame {}: {corrupt}", frame.0));
            }
        }
        for frame in self.log().stateless() {
            report.problem(format!(
                "the log segment at frame {} is in no state there is",
                frame.0
            ));
        }
        for found in self.log().arena.extents() {
            let state = self
                .session()
                .tables
                .info(found.extent.start)
                .state()
                .state();
            let held = found.state == mneme_arena::ExtentState::Held;
            if found.tag == TAG_LOG && held && matches!(state, None | Some(State::Free)) {
                report.problem(format!(
                    "the extent at frame {} belongs to the log, which does not know it",
                    found.extent.start.0
                ));
            }
            let linked = || {
                (0..self.session().tables.geometry.shards)
                    .any(|i| self.index().pool_frames(i).any(|f| f == found.extent.start))
            };
            if found.tag == TAG_INDEX && held && !linked() {
                report.problem(format!(
                    "frame {} belongs to the index, which does not know it",
                    found.extent.start.0
                ));
            }
        }
    }

    /// Every head appends to an open log segment, and no two to the same one.
    fn check_heads(&self, slot: &Slot<'_>, report: &mut Report) {
        // The pin keeps segments from being freed and opened again meanwhile.
        let _pin = slot.pin();
        let mut seen = Vec::new();
        for i in 0..self.session().tables.geometry.all_heads() {
            let head = self.session().tables.head(i);
            let word = head.segment.load(Acquire);
            if word == 0 {
                continue;
            }
            let open = self.session().tables.named(word).is_some_and(|(_, info)| {
                let state = info.state().state();
                info.first.load(Relaxed) == word
                    && matches!(state, Some(State::Opening | State::Head))
            });
            // A head moves on before its old segment is closed.
            let stays = head.segment.load(Acquire) == word;
            if stays && (!open || seen.contains(&word)) {
                report.problem(no_head(self.session().loc_of(&head.segment)).to_string());
            }
            seen.push(word);
        }
    }

    /// Steps from header to header through a log segment, whose last record ends at `end`.
    fn walk(&self, frame: Frame, end: u64) -> Result<(), Corrupt> {
        let mut at = 0;
        while at < end {
            let loc = Loc::of_byte(frame_byte(frame) + at);
            at += self.session().mem.record(loc)?.header().size();
            // SYNC: pairs with the Release stores of headers in gaps: a header behind this one was
            // written before it.
            fence(Acquire);
            if at > end {
                return Err(Corrupt::at(
                    loc.byte(),
                    "a record that goes beyond its log segment",
                ));
            }
        }
        Ok(())
    }

    /// The units in use are those that something refers to: no block is lost, and none is used
    /// twice.
    fn check_pool(
        &self,
        slot: &Slot<'_>,
        shard: u64,
        report: &mut Report,
    ) -> Result<(), WriteError> {
        let index = self.index();
        index.with_shard(slot, shard, |held| {
            let mut used = UsedUnits::new(shard);
            for frame in index.pool_frames(shard) {
                let bitmap = Block {
                    loc: Loc::of_byte(frame_byte(frame)),
                    units: 4,
                };
                used.take(bitmap, "a bitmap", report);
            }
            let limbo = held.limbo().and_then(Iterator::collect);
            let limbo: Vec<Block> = limbo.unwrap_or_else(|error| {
                report.problem(error.to_string());
                Vec::new()
            });
            for block in limbo {
                used.take(block, "a block in limbo", report);
            }
            for root in index.all_roots()? {
                if shard == 0 {
                    used.take(index.root_block(root), "a root", report);
                }
                for partition in (0..self.index().partitions() as u32)
                    .filter(|&p| root.shard(p, self.session().tables.geometry.shards) == shard)
                {
                    self.take_partition(root, partition, &mut used, report)?;
                }
            }
            for frame in index.pool_frames(shard) {
                let ours = used.frames.remove(&frame).unwrap_or([0; MAP_WORDS]);
                let wrong: u32 = match index.bitmap(frame) {
                    Ok(map) => map
                        .iter()
                        .zip(ours)
                        .map(|(word, ours)| (word.load(Relaxed) ^ ours).count_ones())
                        .sum(),
                    Err(corrupt) => {
                        report.problem(format!("shard {shard}: {corrupt}"));
                        continue;
                    }
                };
                if wrong > 0 {
                    report.problem(format!(
                        "shard {shard}: {wrong} units of frame {} are lost or used unmarked",
                        frame.0
                    ));
                }
            }
            for frame in index.miscounted(shard) {
                report.problem(format!(
                    "shard {shard}: the free units of frame {} are miscounted",
                    frame.0
                ));
            }
            if let Some(frame) = used.frames.keys().next() {
                report.problem(format!(
                    "shard {shard}: blocks in frame {}, which is not its own",
                    frame.0
                ));
            }
            Ok(())
        })
    }

    /// Notes the blocks of a partition.
    fn take_partition(
        &self,
        root: Root,
        partition: u32,
        used: &mut UsedUnits,
        report: &mut Report,
    ) -> Result<(), Corrupt> {
        let mut segment = |s: SegmentRef, used: &mut UsedUnits| {
            used.take(block_of(s), "an index segment", report);
        };
        let at = root.partition(partition);
        let word = self.session().mem.word(at)?.load(Acquire);
        match Partition::of_word(word, at)? {
            Partition::Empty => {}
            Partition::One(s) => segment(s, used),
            Partition::Directory { loc, depth } => {
                let mut last = 0;
                for i in 0..1u64 << depth {
                    let at = loc.add_words(i);
                    let word = self.session().mem.word(at)?.load(Acquire);
                    if word != 0 && word != last {
                        segment(SegmentRef::of_word(word, at)?, used);
                    }
                    last = word;
                }
                let units = (8u64 << depth).div_ceil(UNIT);
                used.take(Block { loc, units }, "a directory", report);
            }
        }
        Ok(())
    }
}

/// The units of a shard's index frames that something refers to, a bit each.
struct UsedUnits {
    shard: u64,
    frames: HashMap<Frame, [u64; MAP_WORDS]>,
}

impl UsedUnits {
    fn new(shard: u64) -> UsedUnits {
        UsedUnits {
            shard,
            frames: HashMap::new(),
        }
    }

    /// Notes a block's units, unless they are noted already.
    fn take(&mut self, block: Block, what: &str, report: &mut Report) {
        let UsedUnits { shard, frames } = self;
        let at = block.loc.byte();
        let map = frames.entry(Frame((at >> 21) as u32));
        let map = map.or_insert([0; MAP_WORDS]);
        let first = at % (2 << 20) / UNIT;
        if block.units == 0 || first + block.units > UNITS {
            report.problem(format!(
                "shard {shard}: {what} at byte {at} is empty, or goes beyond its frame"
            ));
            return;
        }
        for unit in first..first + block.units {
            let word = &mut map[(unit / 64) as usize];
            if *word >> (unit % 64) & 1 == 1 {
                report.problem(format!(
                    "shard {shard}: {what} at byte {at} overlaps another block"
                ));
                return;
            }
            *word |= 1 << (unit % 64);
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::store::LogStore;

    #[test]
    fn between_the_shards_it_is_asked_whether_to_go_on() {
        let builder = LogStore::builder().capacity(4 << 30).maintainer(false);
        let store = builder.open_private().unwrap();
        let store = store.inner();
        let slot = store.session().writer().unwrap();
        let asked = Cell::new(0);
        let count = || {
            asked.set(asked.get() + 1);
            true
        };
        assert!(store.check_index(&slot, &count).unwrap().is_sound());
        let (spaces, shards) = (
            KeyspaceId::all().count(),
            store.session().tables.geometry.shards,
        );
        assert!(shards > 1);
        assert!(asked.get() >= spaces + shards as usize, "{}", asked.get());
    }
}
