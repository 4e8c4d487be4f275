//! The work of a lane until it is killed.

use std::borrow::Cow;
use std::time::Duration;

use mneme_log::{BatchError, Decision, Expiry, GrowError, LogStore, Patch, Updated, WriteError};
use mneme_sys::Region;
use mneme_testkit::Random;

use super::collected;
use super::diary::{Diary, MOST};
use super::expected::{How, Span, State, now};
use super::look::{MayPass, look, place, read};
use super::names::{
    LARGE, LEFT, MAIN, RIGHT, SHARED, TIED, TIED_TOGETHER, canonical, database, key, value_kind,
};
use super::place::MAX;
use super::roles::Twin;
use super::value::{ELEMENTS, LEAST, PART, Shared, Stamp};

/// Bytes of a shared record.
const SHARED_BYTES: usize = 8 * (ELEMENTS + 1);

/// The expiry of values that are to stay, in ms from now.
const FAR: u64 = 10_000_000;

/// A refused operation: the number of finished steps, and the error.
pub(super) type Refused = (usize, WriteError);

/// An operation that is done, or refused as a whole.
fn whole<T>(result: Result<T, WriteError>) -> Result<(), Refused> {
    result.map(drop).map_err(|error| (0, error))
}

fn batch<T>(result: Result<T, BatchError>) -> Result<(), Refused> {
    let refused = |error: BatchError| (error.done, error.source);
    result.map(drop).map_err(refused)
}

/// Whether the store shows that these steps took place, whatever it held before.
fn is_seen(steps: &[(usize, State)]) -> bool {
    steps.iter().any(|(_, new)| new.is_there())
}

/// Where a broken twin stops, so that a kill surely finds it there, however the threads run.
pub(super) fn await_kill() -> ! {
    loop {
        std::thread::park();
    }
}

pub struct Lane<'s> {
    pub(super) store: &'s LogStore,
    pub(super) diary: Diary<'s>,
    pub(super) number: usize,
    pub(super) random: Random,
    pub(super) twin: Twin,
    /// The number of operations until it writes as before, after it found no free space.
    pub(super) lean: u32,
}

impl<'s> Lane<'s> {
    pub fn new(
        store: &'s LogStore,
        diaries: &'s Region,
        number: usize,
        seed: u64,
        twin: Twin,
    ) -> Lane<'s> {
        let diary = Diary::of(diaries, number);
        diary.begin_life();
        Lane {
            store,
            diary,
            number,
            random: Random::new(seed),
            twin,
            lean: 0,
        }
    }

    pub(super) fn wrong(&self, what: &str) -> ! {
        panic!("lane {}: {what}", self.number)
    }

    /// Does `work`, and notes it before and after. Returns whether it took place.
    pub(super) fn change(
        &mut self,
        kind: &'static str,
        how: How,
        steps: &[(usize, State)],
        work: impl FnOnce(&Self) -> Result<(), Refused>,
    ) -> bool {
        if steps.is_empty() {
            return false;
        }
        let old: Vec<State> = steps.iter().map(|s| self.diary.state(s.0)).collect();
        self.diary.begin(kind, how, steps);
        if self.twin == Twin::Early {
            self.diary.end(steps.len());
            if is_seen(steps) {
                await_kill();
            }
        }
        let result = work(self);
        let done = result.as_ref().err().map_or(steps.len(), |(done, _)| *done);
        self.diary.end(done);
        self.diary.settled(steps, done);
        match result {
            Ok(()) => self.diary.count_done(),
            Err((_, WriteError::OutOfMemory { .. })) => {
                self.diary.count_refused();
                self.lean = 100;
            }
            Err((_, error)) if error.may_pass() => self.diary.count_stalled(),
            Err((done, error)) => self.wrong(&format!("{kind} after {done} steps: {error}")),
        }
        // A refused change has not taken place, and an accepted one is there at once.
        let all_went_well = done == steps.len();
        if !all_went_well || self.random.one_in(16) {
            let one = self.random.below(steps.len() as u64) as usize;
            for i in [one, done.min(steps.len() - 1)] {
                let (name, new) = steps[i];
                self.expect(name, if i < done { new } else { old[i] }, kind);
            }
        }
        all_went_well
    }

    /// Fails unless the name has this state.
    fn expect(&self, name: usize, state: State, after: &str) {
        let since = now();
        match look(self.store, self.number, name) {
            Ok(seen) if state.allows(seen, Span::since(since)) => {}
            Ok(seen) => self.wrong(&format!(
                "name {name} after {after}: {state:?} expected, {seen:?} found"
            )),
            Err(error) => self.wrong(&format!("name {name} after {after}: {error}")),
        }
    }

    pub(super) fn key(&self, name: usize) -> Vec<u8> {
        key(self.number, name)
    }

    fn length(&mut self) -> usize {
        let most = match self.random.below(40) {
            0..2 => 60_000,
            2..8 => 8_000,
            8..20 => 2_000,
            _ => 300,
        };
        LEAST + self.random.below(most) as usize
    }

    /// The next state of a name.
    pub(super) fn next(&mut self, len: usize, until: u64) -> State {
        let seq = self.diary.issue();
        State { seq, len, until }
    }

    pub(super) fn removal(&mut self) -> State {
        self.next(0, 0)
    }

    pub(super) fn value(&self, name: usize, state: State) -> Vec<u8> {
        let stamp = Stamp {
            lane: self.number,
            name: canonical(name),
            seq: state.seq,
            whole: state.seq,
            len: state.len,
        };
        stamp.bytes()
    }

    /// A part of a value that is likely to be long enough.
    fn patch_one(&mut self) {
        let large = self.random.among(&LARGE);
        let some: [usize; 8] = std::array::from_fn(|_| self.random.among(&MAIN));
        let long = some
            .into_iter()
            .find(|name| self.diary.state(*name).len > PART);
        self.patch(long.unwrap_or(large));
    }

    /// The first part of a long value, in place; for a name whose value does not expire.
    fn patch(&mut self, name: usize) {
        let old = self.diary.state(name);
        if old.until != 0 || old.len <= PART {
            return;
        }
        let new = self.next(old.len, 0);
        self.change("patch", How::Whole, &[(name, new)], |lane| {
            let at = place(lane.store, lane.number, name);
            whole(at.update_part(
                &lane.key(name),
                |_| 0..LEAST,
                |part| {
                    let seen = part.map(|part| Stamp::of_head(part.bytes));
                    if seen.map(|seen| (seen.seq, seen.len)) != Some((old.seq, old.len)) {
                        lane.wrong(&format!("name {name}: {old:?} expected, {seen:?} shown"));
                    }
                    let whole = seen.map_or(0, |seen| seen.whole);
                    let stamp = Stamp {
                        lane: lane.number,
                        name: canonical(name),
                        seq: new.seq,
                        whole,
                        len: new.len,
                    };
                    Patch::Write {
                        at: 0,
                        bytes: Cow::Owned(stamp.bytes()[..PART].to_vec()),
                    }
                },
            ))
        });
    }

    fn put(&mut self, kind: &'static str, name: usize, len: usize) {
        let new = self.next(len, 0);
        self.change(kind, How::Whole, &[(name, new)], |lane| {
            let at = place(lane.store, lane.number, name);
            let value = lane.value(name, new);
            whole(at.put_kind(&lane.key(name), &value, value_kind(name), Expiry::Never))
        });
    }

    fn remove(&mut self, kind: &'static str, name: usize) {
        let (new, old, since) = (self.removal(), self.diary.state(name), now());
        self.change(kind, How::Whole, &[(name, new)], |lane| {
            let at = place(lane.store, lane.number, name);
            let was_there = at.remove(&lane.key(name));
            if let Ok(was_there) = was_there {
                let seen = was_there.then_some(old);
                if !old.allows(seen, Span::since(since)) {
                    lane.wrong(&format!("name {name} removed: {was_there}, was {old:?}"));
                }
            }
            whole(was_there)
        });
    }

    /// An update depending on the present value; for a name whose value does not expire.
    fn update(&mut self, name: usize) {
        let old = self.diary.state(name);
        if old.until != 0 {
            return;
        }
        let remove = self.random.one_in(8);
        // Often of the same length, or a little shorter: it may be overwritten in place.
        let len = match self.random.below(3) {
            0 => self.length(),
            _ => old
                .len
                .saturating_sub(self.random.below(9) as usize)
                .max(LEAST),
        };
        let new = match remove {
            true => self.removal(),
            false => self.next(len, 0),
        };
        self.change("update", How::Whole, &[(name, new)], |lane| {
            let at = place(lane.store, lane.number, name);
            let done = at.update_elements(&lane.key(name), value_kind(name), |seen, elements| {
                lane.compare(name, old, seen.map(|seen| seen.value));
                elements.set(b"element", b"value");
                match remove {
                    true => Decision::Remove,
                    false => Decision::Replace(lane.value(name, new)),
                }
            });
            if let Ok(done) = &done {
                let expected = match (old.is_there(), remove) {
                    (true, true) => Updated::Removed,
                    (false, true) => Updated::Absent,
                    (true, false) => Updated::Replaced,
                    (false, false) => Updated::Inserted,
                };
                assert_eq!(*done, expected);
            }
            whole(done)
        });
    }

    /// An operation that returns a value returns the one that the lane stored; expiries aside.
    fn compare(&self, name: usize, state: State, seen: Option<&[u8]>) {
        let seen = seen.map(|bytes| match read(self.number, name, bytes) {
            Ok(seen) => seen,
            Err(error) => self.wrong(&error),
        });
        let seen = seen.filter(|seen| seen.is_there());
        let same =
            seen.map(|s| (s.seq, s.len)) == state.is_there().then_some((state.seq, state.len));
        if !same && (seen.is_some() || state.until == 0) {
            self.wrong(&format!("name {name}: {state:?} expected, {seen:?} shown"));
        }
    }

    /// Up to `most` different names of the main ones.
    fn some(&mut self, most: u64) -> Vec<usize> {
        let count = 1 + self.random.below(most) as usize;
        let (first, step) = (self.random.among(&MAIN), 1 + self.random.below(7) as usize);
        (0..count)
            .map(|i| MAIN.start + (first - MAIN.start + i * step) % MAIN.len())
            .collect()
    }

    fn put_many(&mut self) {
        let names = self.some(60);
        let steps: Vec<_> = names
            .into_iter()
            .map(|name| {
                let len = self.length().min(5000);
                (name, self.next(len, 0))
            })
            .collect();
        self.change("put_many", How::InOrder, &steps, |lane| {
            let pairs: Vec<_> = steps
                .iter()
                .map(|(name, state)| (lane.key(*name), lane.value(*name, *state)))
                .collect();
            batch(lane.store.put_many(&pairs))
        });
    }

    fn remove_many(&mut self) {
        let names = self.some(60);
        let steps: Vec<_> = names
            .into_iter()
            .map(|name| (name, self.removal()))
            .collect();
        self.change("remove_many", How::InOrder, &steps, |lane| {
            let keys: Vec<_> = steps.iter().map(|(name, _)| lane.key(*name)).collect();
            batch(lane.store.remove_many(&keys))
        });
    }

    fn any_expiry(&mut self) -> u64 {
        match self.random.below(3) {
            0 => now() + 10 + self.random.below(2000),
            _ => now() + FAR + self.random.below(1000),
        }
    }

    fn put_until(&mut self, name: usize) {
        let (len, until) = (self.length(), self.any_expiry());
        let new = self.next(len, until);
        self.change("put_until", How::Whole, &[(name, new)], |lane| {
            let value = lane.value(name, new);
            whole(
                lane.store
                    .put_until(&lane.key(name), &value, Expiry::At(until)),
            )
        });
    }

    fn set_expiry(&mut self, name: usize) {
        let old = self.diary.state(name);
        let stays = old.until == 0 || old.until > now() + FAR / 2;
        if !stays || !old.is_there() {
            return;
        }
        let until = self.any_expiry();
        let new = State { until, ..old };
        self.change("set_expiry", How::Whole, &[(name, new)], |lane| {
            let set = lane.store.set_expiry(&lane.key(name), Expiry::At(until));
            if matches!(set, Ok(false)) {
                lane.wrong(&format!("name {name} has no expiry to be set"));
            }
            whole(set)
        });
    }

    /// Several names at once, those of shared records among them if requested.
    fn transact(&mut self, kind: &'static str, steps: &[(usize, State)]) {
        let before: Vec<State> = steps.iter().map(|s| self.diary.state(s.0)).collect();
        self.change(kind, How::Whole, steps, |lane| {
            if lane.twin == Twin::Torn {
                return lane.one_by_one(steps);
            }
            whole(lane.store.transaction(|t| {
                for ((name, new), old) in steps.iter().zip(&before) {
                    let mut at = t.database(database(lane.number, *name))?;
                    let key = lane.key(*name);
                    if SHARED.contains(name) {
                        let found = at.get(&key)?;
                        lane.compare(*name, *old, found.as_deref());
                        at.put(&key, &lane.with_mine(*name, found.as_deref(), new.seq))?;
                        continue;
                    }
                    if new.seq.is_multiple_of(2) {
                        lane.compare(*name, *old, at.get(&key)?.as_deref());
                    }
                    match new.is_there() {
                        true => at.put(&key, &lane.value(*name, *new))?,
                        false => drop(at.remove(&key)?),
                    }
                }
                Ok::<_, WriteError>(())
            }))
        });
    }

    /// What a transaction must not be. It stops where half of it can be seen.
    fn one_by_one(&self, steps: &[(usize, State)]) -> Result<(), Refused> {
        for (i, (name, new)) in steps.iter().enumerate() {
            if is_seen(&steps[..i]) && is_seen(&steps[i..]) {
                await_kill();
            }
            let (at, key) = (place(self.store, self.number, *name), self.key(*name));
            let done = match () {
                () if SHARED.contains(name) => at
                    .update(&key, |found| {
                        Decision::Replace(self.with_mine(*name, found, new.seq))
                    })
                    .map(drop),
                () if new.is_there() => at.put(&key, &self.value(*name, *new)),
                () => at.remove(&key).map(drop),
            };
            done.map_err(|error| (i, error))?;
        }
        Ok(())
    }

    /// A shared record in which this lane's element has become `seq`.
    fn with_mine(&self, name: usize, found: Option<&[u8]>, seq: u64) -> Vec<u8> {
        let mut shared = match found.map(|bytes| Shared::of(bytes, name)) {
            None => Shared::default(),
            Some(Ok(shared)) => shared,
            Some(Err(error)) => self.wrong(&error),
        };
        shared.0[self.number] = seq;
        shared.bytes(name)
    }

    fn several(&mut self) {
        let most = if self.random.one_in(20) { 400 } else { 20 };
        let steps: Vec<_> = self
            .some(most)
            .into_iter()
            .map(|name| {
                let len = self.length() % 3000 + LEAST;
                match self.random.one_in(3) {
                    true => (name, self.removal()),
                    false => (name, self.next(len, 0)),
                }
            })
            .collect();
        self.transact("transaction", &steps);
    }

    /// The names of a group, all with the same number.
    fn tied(&mut self) {
        let groups = (TIED.len() / TIED_TOGETHER) as u64;
        let first = TIED.start + self.random.below(groups) as usize * TIED_TOGETHER;
        let len = match self.random.one_in(5) {
            true => 0,
            false => LEAST + self.random.below(300) as usize,
        };
        let new = self.next(len, 0);
        let names = first..first + TIED_TOGETHER;
        let steps: Vec<_> = names.map(|name| (name, new)).collect();
        self.transact("tied", &steps);
    }

    fn shared_update(&mut self) {
        let name = self.random.among(&SHARED);
        let (old, new) = (self.diary.state(name), self.next(SHARED_BYTES, 0));
        self.change("shared update", How::Whole, &[(name, new)], |lane| {
            let at = place(lane.store, lane.number, name);
            whole(at.update(&lane.key(name), |found| {
                lane.compare(name, old, found);
                Decision::Replace(lane.with_mine(name, found, new.seq))
            }))
        });
    }

    fn shared_transaction(&mut self) {
        let (first, second) = (self.random.among(&SHARED), self.random.among(&SHARED));
        let main = self.random.among(&MAIN);
        let mut steps = vec![(first, self.next(SHARED_BYTES, 0))];
        if second != first {
            steps.push((second, self.next(SHARED_BYTES, 0)));
        }
        steps.push((main, self.next(200, 0)));
        self.transact("shared transaction", &steps);
    }

    fn clear(&mut self) {
        let names = if self.random.one_in(2) { LEFT } else { RIGHT };
        let steps: Vec<_> = names
            .clone()
            .filter(|name| self.diary.state(*name).is_there())
            .map(|name| (name, State::default()))
            .collect();
        self.change("clear", How::Whole, &steps, |lane| {
            whole(place(lane.store, lane.number, names.start).clear())
        });
    }

    fn swap(&mut self) {
        let crossed = LEFT.zip(RIGHT).flat_map(|(left, right)| {
            let (of_left, of_right) = (self.diary.state(left), self.diary.state(right));
            [(left, of_right), (right, of_left)]
        });
        let steps: Vec<_> = crossed.collect();
        assert!(steps.len() <= MOST);
        self.change("swap", How::Whole, &steps, |lane| {
            let of = |name| database(lane.number, name);
            whole(lane.store.swap_databases(of(LEFT.start), of(RIGHT.start)))
        });
    }

    fn own_put(&mut self) {
        let name = match self.random.one_in(2) {
            true => self.random.among(&LEFT),
            false => self.random.among(&RIGHT),
        };
        if self.random.one_in(3) {
            return self.update(name);
        }
        let len = self.length().min(1000);
        self.put("own put", name, len);
    }

    /// Operations that change no name.
    fn upkeep(&mut self) {
        match self.random.below(40) {
            0 => self.passes(self.store.compact()),
            1..4 => self.passes(self.store.remove_expired()),
            // Only now and then, because the store should also be full before that.
            4 if self.random.one_in(40) => {
                let now = self.store.stats().capacity;
                let more = (now + (2 << 20)).min(MAX);
                match self.store.grow(more) {
                    Ok(_) | Err(GrowError::Stalled(_)) => {}
                    Err(error) => self.wrong(&format!("growth to {more}: {error}")),
                }
            }
            // Memory is given back, and is claimed again at once.
            5..8 => self.passes(self.store.give_back_memory()),
            8 => {
                let mut policy = self.store.fill_policy();
                (policy.target_fill, policy.ignored_bytes) = (0.95, 1);
                self.store.set_fill_policy(policy);
                self.passes(self.store.compact_for(Duration::from_millis(2)));
            }
            _ => {
                let name = self.random.below(super::names::NAMES as u64) as usize;
                self.expect(name, self.diary.state(name), "nothing");
            }
        }
    }

    pub(super) fn passes<T>(&self, result: Result<T, WriteError>) {
        match result {
            Err(error) if !error.may_pass() => self.wrong(&error.to_string()),
            _ => {}
        }
    }

    /// One operation.
    pub fn step(&mut self) {
        if collected::is_next(&mut self.random) {
            return self.step_collected();
        }
        let name = self.random.among(&MAIN);
        if self.lean > 0 {
            self.lean -= 1;
            let large = self.random.among(&LARGE);
            match self.random.below(12) {
                0..6 => return self.remove("remove", name),
                6 => return self.remove("large remove", large),
                7..9 => return self.remove_many(),
                _ => {}
            }
        }
        match self.random.below(1000) {
            0..200 => {
                let len = self.length();
                self.put("put", name, len);
            }
            200..260 => self.remove("remove", name),
            260..360 => self.update(name),
            360..430 => self.put_many(),
            430..460 => self.remove_many(),
            460..520 => self.put_until(name),
            520..550 => self.set_expiry(name),
            550..640 => self.several(),
            640..720 => self.tied(),
            720..800 => self.shared_update(),
            800..840 => self.shared_transaction(),
            840..850 => {
                let (large, len) = (self.random.among(&LARGE), self.random.below(4 << 20));
                self.put("large put", large, LEAST + len as usize);
            }
            850..854 => {
                let large = self.random.among(&LARGE);
                self.remove("large remove", large);
            }
            854..858 => self.clear(),
            858..862 => self.swap(),
            862..900 => self.own_put(),
            900..940 => self.patch_one(),
            _ => self.upkeep(),
        }
    }
}
