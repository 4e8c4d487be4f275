//! A machine of several nodes: words that cost what the caches' directory makes them cost, threads
//! with clocks of their own, and transactions.
//!
//! **One simulated thread runs at a time: the one whose clock is behind**, up to [`Costs::slack`].
//! So a run is decided by its seed, and what a thread reads is what had been written by that time
//! of its clock, up to the slack.

use mneme_sync::Word;
use mneme_sys::TransactionAborted;
use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What things cost, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A word in the thread's own cache.
    pub hit: u64,
    /// A line from another cache of the node.
    pub local: u64,
    /// A line from another node, in hundredths of a local one.
    pub remote_percent: u64,
    /// A read-modify-write, beside what its line costs.
    pub atomic: u64,
    /// A transaction's beginning and end, each.
    pub transaction: u64,
    /// What an abort costs.
    pub abort: u64,
    /// Lines of a transaction; one more aborts it.
    pub capacity: usize,
    /// How far a thread's clock may run ahead of the others.
    pub slack: u64,
}

impl Costs {
    /// Those of a present machine, about.
    pub const PLAUSIBLE: Costs = Costs {
        hit: 1,
        local: 40,
        remote_percent: 300,
        atomic: 8,
        transaction: 15,
        abort: 60,
        capacity: 64,
        slack: 100,
    };
}

/// Threads, by node: the first ones fill the first node.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes.
    pub nodes: usize,
    /// Threads of each.
    pub threads_a_node: usize,
    /// Threads that run.
    pub threads: usize,
}

#[derive(Default, Clone)]
struct Line {
    /// Threads that have it; the caches are as large as need be.
    holders: u128,
    /// When the last transfer of it is over.
    free_at: u64,
}

#[derive(Default)]
struct Transaction {
    lines: Vec<usize>,
    written: Vec<usize>,
    doomed: Option<TransactionAborted>,
    /// What the words that it has stored to held before, in the order of the stores.
    before: Vec<(Value, u64)>,
}

impl Transaction {
    /// Aborts it, once: what it has stored is gone before anyone else reads it.
    fn doom(&mut self, why: TransactionAborted) {
        if self.doomed.is_none() {
            self.doomed = Some(why);
            for (value, before) in self.before.drain(..).rev() {
                *locked(&value) = before;
            }
        }
    }
}

/// A word's value, which a transaction may have to put back.
type Value = Arc<Mutex<u64>>;

fn locked(value: &Mutex<u64>) -> MutexGuard<'_, u64> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

struct State {
    clocks: Vec<u64>,
    over: Vec<bool>,
    turn: usize,
    lines: Vec<Line>,
    transactions: Vec<Option<Transaction>>,
    /// Where the pauses after aborts come from.
    jitter: u64,
}

/// The machine.
pub struct Machine {
    costs: Costs,
    shape: Shape,
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

thread_local! {
    /// The thread's machine and its number there.
    static HERE: RefCell<Option<(Arc<Machine>, usize)>> = const { RefCell::new(None) };
}

fn here<T>(then: impl FnOnce(&Machine, usize) -> T) -> Option<T> {
    HERE.with_borrow(|here| here.as_ref().map(|(machine, me)| then(machine, *me)))
}

/// What a transaction of the calling thread's costs that aborts at once.
pub fn abort_here() {
    here(|machine, me| machine.pass(me, machine.costs.transaction + machine.costs.abort));
}

/// Runs `body` as a transaction of the calling thread's, which a simulated machine runs.
///
/// # Errors
/// The reason for which the transaction was aborted.
pub fn transact_here(body: &mut dyn FnMut() -> bool) -> Result<(), TransactionAborted> {
    // A thread that no machine runs has no transactions.
    here(|machine, me| machine.transact(me, body)).unwrap_or(Err(TransactionAborted::Capacity))
}

impl Machine {
    /// An idle one, with cold caches.
    pub fn new(shape: Shape, costs: Costs) -> Arc<Machine> {
        Arc::new(Machine {
            costs,
            shape,
            state: Mutex::new(State {
                clocks: vec![0; shape.threads],
                over: vec![false; shape.threads],
                turn: 0,
                lines: Vec::new(),
                transactions: (0..shape.threads).map(|_| None).collect(),
                jitter: 1,
            }),
            turns: (0..shape.threads).map(|_| Condvar::new()).collect(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new line.
    pub fn line(&self) -> usize {
        let mut state = self.state();
        state.lines.push(Line::default());
        state.lines.len() - 1
    }

    fn node_of(&self, thread: usize) -> usize {
        thread / self.shape.threads_a_node
    }

    /// Runs all threads to their ends, each with its number; the time when the last one was over.
    pub fn run(self: &Arc<Self>, work: impl Fn(usize) + Sync) -> u64 {
        std::thread::scope(|scope| {
            for me in 0..self.shape.threads {
                let work = &work;
                scope.spawn(move || {
                    HERE.set(Some((Arc::clone(self), me)));
                    self.wait_for_turn(me);
                    work(me);
                    let mut state = self.state();
                    state.over[me] = true;
                    self.pass_on(&mut state);
                    HERE.set(None);
                });
            }
        });
        self.state().clocks.iter().copied().max().unwrap_or(0)
    }

    fn wait_for_turn(&self, me: usize) {
        let mut state = self.state();
        while state.turn != me {
            state = self.turns[me]
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn pass_on(&self, state: &mut State) {
        let running = (0..state.clocks.len()).filter(|thread| !state.over[*thread]);
        if let Some(next) = running.min_by_key(|thread| state.clocks[*thread]) {
            state.turn = next;
            self.turns[next].notify_one();
        }
    }

    /// Lets time pass for a thread.
    pub fn pass(&self, me: usize, time: u64) {
        self.state().clocks[me] += time;
        self.let_others_run(me);
    }

    /// The thread's clock.
    pub fn now(&self, me: usize) -> u64 {
        self.state().clocks[me]
    }

    fn let_others_run(&self, me: usize) {
        let mut state = self.state();
        let mine = state.clocks[me];
        let others = state.clocks.iter().zip(&state.over);
        let behind = others.filter(|(_, over)| !**over).map(|(clock, _)| *clock);
        if behind
            .min()
            .is_some_and(|least| least + self.costs.slack < mine)
        {
            self.pass_on(&mut state);
            while state.turn != me {
                state = self.turns[me]
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// A use of a line, and what it makes of other threads' transactions.
    fn touch(&self, me: usize, line: usize, writes: bool, atomic: bool) {
        // Those behind come first; then the use and what it does to others are one.
        self.let_others_run(me);
        let mut state = self.state();
        let mine = state.transactions[me].as_ref();
        if mine.is_some_and(|mine| mine.doomed.is_some()) {
            // It has aborted: nothing of what follows takes place.
            return;
        }
        for (thread, transaction) in state.transactions.iter_mut().enumerate() {
            if let Some(transaction) = transaction.as_mut().filter(|_| thread != me) {
                let met = if writes {
                    &transaction.lines
                } else {
                    &transaction.written
                };
                if met.contains(&line) {
                    transaction.doom(TransactionAborted::Conflict);
                }
            }
        }
        if let Some(transaction) = &mut state.transactions[me] {
            for set in [&mut transaction.lines, &mut transaction.written]
                .into_iter()
                .take(1 + usize::from(writes))
            {
                if !set.contains(&line) {
                    set.push(line);
                }
            }
            if transaction.lines.len() > self.costs.capacity {
                transaction.doom(TransactionAborted::Capacity);
            }
        }
        let now = state.clocks[me];
        let bit = 1 << me;
        let found = &mut state.lines[line];
        let others = found.holders & !bit;
        let moves = match writes {
            true => others != 0 || found.holders == 0,
            false => found.holders & bit == 0,
        };
        let mut cost = self.costs.hit;
        if moves {
            let mine = self.node_of(me) * self.shape.threads_a_node;
            let width = self.shape.threads_a_node.min(127);
            let node = ((1_u128 << width) - 1) << mine;
            let remote = match writes {
                // All copies go.
                true => others & !node != 0,
                // The nearest copy will do, unless one has changed it.
                false => others & node == 0 && others != 0,
            };
            cost = match remote {
                true => self.costs.local * self.costs.remote_percent / 100,
                false => self.costs.local,
            };
            // One transfer of a line at a time.
            let begins = now.max(found.free_at);
            cost += begins - now;
            found.free_at = now + cost;
        }
        found.holders = if writes { bit } else { found.holders | bit };
        state.clocks[me] = now + cost + if atomic { self.costs.atomic } else { 0 };
    }

    /// Runs `body` as a transaction: all of its stores take place, or none. It gives up where
    /// `body` returns false.
    ///
    /// # Errors
    /// The reason for which the transaction was aborted.
    pub fn transact(
        &self,
        me: usize,
        body: impl FnOnce() -> bool,
    ) -> Result<(), TransactionAborted> {
        self.state().transactions[me] = Some(Transaction::default());
        self.pass(me, self.costs.transaction);
        let goes_on = body();
        self.pass(me, self.costs.transaction);
        let mut state = self.state();
        let mut ended = state.transactions[me].take().unwrap_or_default();
        if !goes_on {
            ended.doom(TransactionAborted::ByBody);
        }
        let Some(why) = ended.doomed else {
            return Ok(());
        };
        // Threads that abort each other do not fall into step for ever.
        state.jitter = state
            .jitter
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let jitter = (state.jitter >> 33) % (4 * self.costs.abort + 1);
        state.clocks[me] += self.costs.abort + jitter;
        Err(why)
    }

    /// Whether a store to a word takes place, which held `before`: not behind an abort.
    fn stores(&self, me: usize, value: &Value, before: u64) -> bool {
        match &mut self.state().transactions[me] {
            Some(Transaction {
                doomed: Some(_), ..
            }) => false,
            Some(open) => {
                open.before.push((Arc::clone(value), before));
                true
            }
            None => true,
        }
    }
}

/// A word that costs what its line costs.
pub struct CostedWord {
    line: usize,
    value: Value,
}

impl CostedWord {
    /// A word in a line, which others may lie in too.
    pub fn new(line: usize, value: u64) -> CostedWord {
        let value = Arc::new(Mutex::new(value));
        CostedWord { line, value }
    }

    /// The change and its cost. The thread runs alone until the next use.
    fn change(&self, atomic: bool, change: impl FnOnce(u64) -> Option<u64>) -> Result<u64, u64> {
        here(|machine, me| machine.touch(me, self.line, true, atomic));
        let old = *locked(&self.value);
        let new = change(old).ok_or(old)?;
        if here(|machine, me| machine.stores(me, &self.value, old)).unwrap_or(true) {
            *locked(&self.value) = new;
        }
        Ok(old)
    }
}

impl Word for CostedWord {
    fn load(&self, _: Ordering) -> u64 {
        here(|machine, me| machine.touch(me, self.line, false, false));
        *locked(&self.value)
    }

    fn store(&self, value: u64, _: Ordering) {
        let _ = self.change(false, |_| Some(value));
    }

    fn compare_exchange(&self, old: u64, new: u64, _: Ordering, _: Ordering) -> Result<u64, u64> {
        self.change(true, |now| (now == old).then_some(new))
    }

    fn fetch_add(&self, add: u64, _: Ordering) -> u64 {
        let add = self.change(true, |now| Some(now.wrapping_add(add)));
        add.unwrap_or_else(|old| old)
    }

    fn fetch_max(&self, other: u64, _: Ordering) -> u64 {
        let max = self.change(true, |now| Some(now.max(other)));
        max.unwrap_or_else(|old| old)
    }

    fn fence(_: Ordering) {}
}
