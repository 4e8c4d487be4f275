//! The possible contents of one file or mapping after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CrashState, FailureModel, LINE, Operation, SECTOR};

/// The words that one operation stored into one unit.
type Touch = Vec<(u64, u64)>;

/// The words of a unit that may differ from the durable image, by offset.
type Content = BTreeMap<u64, u64>;

/// A unit of the medium that may have more than one content.
#[derive(Debug, Clone, Default)]
struct Unit {
    /// The stores since the durable image, in order.
    touches: Vec<Touch>,
    /// The number of stores that have certainly reached the medium.
    floor: usize,
    /// The number of stores that will have reached it after the next fence.
    flushed: usize,
    /// A failed sync dropped its page: nothing reaches the medium until the page is stored to
    /// again.
    lost: bool,
}

/// The possible contents of one file or mapping after a crash at the current point.
#[derive(Debug, Clone)]
pub(super) struct CrashContents {
    model: FailureModel,
    durable: Arc<Vec<u8>>,
    durable_len: u64,
    units: BTreeMap<u64, Unit>,
    /// The lengths since the last sync, the durable one first.
    lengths: Vec<u64>,
    /// The latest content of words that changed since `durable`.
    latest: BTreeMap<u64, u64>,
}

impl CrashContents {
    /// The medium contains `image`, and no operation is pending.
    pub(super) fn new(image: Arc<Vec<u8>>, model: FailureModel) -> Self {
        let durable_len = image.len() as u64;
        Self {
            model,
            durable: image,
            durable_len,
            units: BTreeMap::new(),
            lengths: vec![durable_len],
            latest: BTreeMap::new(),
        }
    }

    /// The bytes to which every state is a difference.
    pub(super) fn durable(&self) -> &Arc<Vec<u8>> {
        &self.durable
    }

    /// Moves the crash to the point after `operation`.
    pub(super) fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Store { at, bytes } => self.store(*at, bytes),
            Operation::Flush(range) => {
                let unit = self.unit_len();
                for (_, unit) in self
                    .units
                    .range_mut(range.start / unit..range.end.div_ceil(unit))
                {
                    unit.flushed = unit.touches.len();
                }
            }
            Operation::Fence => {
                if self.model == FailureModel::Dax {
                    for unit in self.units.values_mut() {
                        unit.floor = unit.flushed;
                    }
                }
            }
            Operation::Sync => self.sync(),
            Operation::FailedSync { keep } => self.lose(*keep),
            Operation::DropCached => self.drop_cached(),
            Operation::Grow(to) => self.lengths.push(*to),
            Operation::Mark(_) => {}
        }
    }

    /// What a program reads at the current point.
    pub(super) fn visible(&self) -> Vec<u8> {
        let mut bytes = self.durable.to_vec();
        let len = self.lengths.last().copied().unwrap_or(self.durable_len);
        bytes.resize(len as usize, 0);
        for (at, word) in &self.latest {
            let at = *at as usize;
            let word = word.to_le_bytes();
            let end = (at + 8).min(bytes.len());
            if at < end {
                bytes[at..end].copy_from_slice(&word[..end - at]);
            }
        }
        bytes
    }

    fn unit_len(&self) -> u64 {
        match self.model {
            FailureModel::File => SECTOR,
            FailureModel::Dax => LINE,
        }
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        let unit_len = self.unit_len();
        let end = at + bytes.len() as u64;
        let mut word_at = at / 8 * 8;
        while word_at < end {
            let mut word = self.word(word_at).to_le_bytes();
            for (i, byte) in word.iter_mut().enumerate() {
                let place = word_at + i as u64;
                if (at..end).contains(&place) {
                    *byte = bytes[(place - at) as usize];
                }
            }
            let word = u64::from_le_bytes(word);
            self.latest.insert(word_at, word);
            let first = word_at == at / 8 * 8 || word_at.is_multiple_of(unit_len);
            let unit = self.units.entry(word_at / unit_len).or_default();
            if first {
                unit.touches.push(Touch::new());
            }
            if let Some(touch) = unit.touches.last_mut() {
                touch.push((word_at, word));
            }
            word_at += 8;
        }
        // Storing to a page makes all of it dirty, including what a failed sync had dropped.
        let pages = at / 4096 * 4096 / unit_len..end.div_ceil(4096) * 4096 / unit_len;
        for (_, unit) in self.units.range_mut(pages) {
            unit.lost = false;
        }
    }

    /// The word at `at` as the program sees it.
    fn word(&self, at: u64) -> u64 {
        if let Some(word) = self.latest.get(&at) {
            return *word;
        }
        self.durable_word(at)
    }

    fn durable_word(&self, at: u64) -> u64 {
        let bytes = self.durable.get(at as usize..at as usize + 8);
        bytes.map_or(0, |bytes| {
            u64::from_le_bytes(bytes.try_into().unwrap_or_default())
        })
    }

    fn sync(&mut self) {
        self.durable_len = self.lengths.last().copied().unwrap_or(self.durable_len);
        self.lengths = vec![self.durable_len];
        let image = Arc::make_mut(&mut self.durable);
        image.resize(self.durable_len as usize, 0);
        let lost: BTreeMap<u64, Unit>;
        (lost, self.units) = std::mem::take(&mut self.units)
            .into_iter()
            .partition(|(_, unit)| unit.lost);
        for unit in self.units.values() {
            for &(at, word) in unit.touches.iter().flatten() {
                if let Some(place) = image.get_mut(at as usize..at as usize + 8) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
            }
        }
        let kept: BTreeSet<u64> = lost
            .values()
            .flat_map(|u| u.touches.iter().flatten())
            .map(|w| w.0)
            .collect();
        self.latest.retain(|at, _| kept.contains(at));
        self.units = lost;
    }

    fn lose(&mut self, keep: u64) {
        let per_page = 4096 / self.unit_len();
        let pages: BTreeSet<u64> = self.units.keys().map(|unit| unit / per_page).collect();
        for (nth, page) in pages.into_iter().enumerate() {
            let kept = keep != 0 && (nth as u64 + 1).is_multiple_of(keep);
            for (_, unit) in self.units.range_mut(page * per_page..(page + 1) * per_page) {
                unit.lost |= !kept;
            }
        }
    }

    /// After failed syncs have lost data, the program too sees what the medium contains.
    fn drop_cached(&mut self) {
        let latest = &mut self.latest;
        self.units.retain(|_, unit| {
            if unit.lost {
                for (at, _) in unit.touches.iter().flatten() {
                    latest.remove(at);
                }
            }
            !unit.lost
        });
    }

    /// The number of possible contents of a unit, not counting torn ones.
    fn choices(unit: &Unit) -> usize {
        if unit.lost {
            1
        } else {
            unit.touches.len() - unit.floor + 1
        }
    }

    /// Every state without torn units, if there are at most `limit`. Also states in which *one*
    /// unit is torn in its last store (for a sector: in all its stores), in each way that leaves
    /// out one word or keeps one word, while the other units have either nothing or everything.
    pub(super) fn all(&self, limit: usize) -> Option<Vec<CrashState>> {
        let units: Vec<&Unit> = self.units.values().collect();
        let radix: Vec<usize> = units.iter().map(|unit| Self::choices(unit)).collect();
        let lengths = self.lengths.len();
        let total = radix.iter().try_fold(lengths, |n, r| n.checked_mul(*r))?;
        if total > limit {
            return None;
        }
        let mut states = BTreeSet::new();
        for mut number in 0..total {
            let len = self.lengths[number % lengths];
            number /= lengths;
            let mut contents = Vec::new();
            for (unit, radix) in units.iter().zip(&radix) {
                contents.push(Self::content(unit, number % radix));
                number /= radix;
            }
            states.insert(self.state(len, &contents));
        }
        let len = self.lengths.last().copied().unwrap_or(self.durable_len);
        for newest in [false, true] {
            let chosen = units.iter().map(|unit| {
                let instant = if newest { Self::choices(unit) - 1 } else { 0 };
                Self::content(unit, instant)
            });
            let mut contents: Vec<_> = chosen.collect();
            for (i, unit) in units.iter().enumerate() {
                let whole = contents[i].clone();
                for torn in self.torn(unit) {
                    contents[i] = torn;
                    states.insert(self.state(len, &contents));
                }
                contents[i] = whole;
            }
        }
        Some(states.into_iter().collect())
    }

    /// The torn contents of a unit.
    fn torn(&self, unit: &Unit) -> Vec<Content> {
        let choices = Self::choices(unit);
        let mut torn = Vec::new();
        if choices > 1 {
            self.torn_from(unit, choices - 2, &mut torn);
        }
        // A line's stores arrive in order.
        if choices > 2 && self.model == FailureModel::File {
            self.torn_from(unit, 0, &mut torn);
        }
        torn
    }

    /// The contents of a unit that was torn between an instant and the last one.
    fn torn_from(&self, unit: &Unit, instant: usize, torn: &mut Vec<Content>) {
        let before = Self::content(unit, instant);
        let later: Content = unit.touches[unit.floor + instant..]
            .iter()
            .flatten()
            .copied()
            .collect();
        let word_before = |at: &u64| before.get(at).copied().unwrap_or(self.durable_word(*at));
        for (chosen, word) in &later {
            if word_before(chosen) == *word || later.len() == 1 {
                continue;
            }
            for keep in [true, false] {
                let mut content = before.clone();
                let mine = later.iter().filter(|(at, _)| (*at == chosen) == keep);
                content.extend(mine.map(|(at, word)| (*at, *word)));
                torn.push(content);
            }
        }
    }

    /// One random state: each unit as of an instant of its own, some of them torn. `random` returns
    /// 64 random bits.
    pub(super) fn sample(&self, mut random: impl FnMut() -> u64) -> CrashState {
        let len = self.lengths[random() as usize % self.lengths.len()];
        let mut contents = Vec::with_capacity(self.units.len());
        // Whole regions of the medium often arrive together, or not at all.
        let bias = random() % 4;
        for unit in self.units.values() {
            let choices = Self::choices(unit);
            let instant = match bias {
                0 => random() as usize % choices,
                1 if !random().is_multiple_of(8) => choices - 1,
                2 if !random().is_multiple_of(8) => 0,
                _ => random() as usize % choices,
            };
            let mut content = Self::content(unit, instant);
            if instant + 1 < choices && random().is_multiple_of(3) {
                let bits = random();
                let later = match self.model {
                    FailureModel::Dax => 1,
                    FailureModel::File => 1 + random() as usize % (choices - instant - 1),
                };
                let from = unit.floor + instant;
                for &(at, word) in unit.touches[from..from + later].iter().flatten() {
                    if bits >> (at / 8 % 64) & 1 == 1 {
                        content.insert(at, word);
                    }
                }
            }
            contents.push(content);
        }
        self.state(len, &contents)
    }

    /// The words of a unit as of the `instant`-th of its possible instants.
    fn content(unit: &Unit, instant: usize) -> Content {
        let touches = &unit.touches[..unit.floor + instant];
        touches.iter().flatten().copied().collect()
    }

    fn state(&self, len: u64, contents: &[Content]) -> CrashState {
        // Units are sorted by their places, and so are the words of each.
        let kept = contents
            .iter()
            .flatten()
            .filter(|(at, word)| **at + 8 <= len && self.durable_word(**at) != **word);
        CrashState {
            len,
            words: kept.map(|(at, word)| (*at, *word)).collect(),
        }
    }
}
