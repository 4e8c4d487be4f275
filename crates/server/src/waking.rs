//! Wakes clients that wait for keys once these may be ready. See [`crate::blocking`].

use crate::blocking::{Awaited, Sleeper, WaitEnd};
use crate::command::{Command, Flag, Group, KeyFlag};
use crate::local_changes::OnLocalChange;
use crate::pubsub::Posted;
use crate::resp::Arguments;
use crate::shared::{Shared, ThreadSide};
use crate::transaction_queue::Queued;

impl Command {
    /// Whether it may make a key ready that clients wait for.
    fn may_make_ready(&self) -> bool {
        self.has(Flag::Write)
            && !matches!(
                self.group,
                Group::String | Group::Bitmap | Group::Hash | Group::Set | Group::HyperLogLog
            )
    }

    /// Calls `ready` with each key of a call that it may have made ready, and its database, which
    /// is `database` if the command says no other. `None`: in whichever.
    fn ready_keys<'a>(
        &self,
        args: &Arguments<'a>,
        database: usize,
        mut ready: impl FnMut(Option<usize>, &'a [u8]),
    ) {
        // RENAME, MOVE, COPY and the like: the key may be of any type, and in another database.
        let database = (self.group != Group::Generic).then_some(database);
        for (at, flags) in self.keys_of(args) {
            let makes = [KeyFlag::Insert, KeyFlag::Update, KeyFlag::Overwrite];
            if makes.iter().any(|flag| flags.contains(flag)) {
                ready(database, args.at(at));
            }
        }
    }
}

impl Shared {
    /// Wakes the first client of each key that a call, whose changes are made, may have made ready.
    /// `wake` is called with each thread that is to look at its sleepers.
    #[inline]
    pub fn wake_for(
        &self,
        command: &Command,
        args: &Arguments<'_>,
        database: usize,
        wake: impl FnMut(usize),
    ) {
        if command.may_make_ready() && self.waits.is_anybody_asleep() {
            self.wake_for_call(command, args, database, wake);
        }
    }

    #[cold]
    fn wake_for_call(
        &self,
        command: &Command,
        args: &Arguments<'_>,
        database: usize,
        wake: impl FnMut(usize),
    ) {
        let mut woken = Vec::new();
        match command.name {
            "swapdb" => woken = self.waits.wake_all(),
            _ => command.ready_keys(args, database, |database, key| {
                woken.extend(self.waits.wake_first(database, key));
            }),
        }
        self.tell_sleepers(woken, wake);
    }

    /// As [`wake_for`](Self::wake_for), for the commands of an `EXEC`, each with its database.
    pub fn wake_for_all<'q>(
        &self,
        commands: impl Iterator<Item = (&'q Queued, usize)>,
        mut wake: impl FnMut(usize),
    ) {
        if !self.waits.is_anybody_asleep() {
            return;
        }
        for (queued, database) in commands {
            if queued.command.may_make_ready() {
                self.wake_for_call(queued.command, &queued.args(), database, &mut wake);
            }
        }
    }

    /// Ends a client's wait, and wakes the next client of each of its keys that is there.
    pub fn stop_waiting(&self, client: u64, wake: impl FnMut(usize)) {
        let Some(Awaited { database, keys, .. }) = self.waits.leave(client) else {
            return;
        };
        if !self.waits.is_anybody_asleep() {
            return;
        }
        let is_there = |key: &[u8]| match self.store.database(database) {
            // What cannot be read may be there.
            Ok(database) => database.kind(key).map_or(true, |kind| kind.is_some()),
            Err(_) => true,
        };
        let left = keys.iter().filter(|key| is_there(key));
        let woken = left.flat_map(|key| self.waits.wake_first(Some(database), key));
        self.tell_sleepers(woken.collect(), wake);
    }

    /// Ends the wait of a client, which its own thread then tells. Whether it waits.
    pub fn end_wait(&self, client: u64, ended: WaitEnd) -> bool {
        let (waits, sleeper) = self.waits.end(client, ended);
        let sleeper = sleeper.into_iter().collect();
        self.tell_sleepers(sleeper, |thread| self.threads[thread].wake());
        waits
    }

    /// Lets the threads of these clients serve them.
    fn tell_sleepers(&self, mut woken: Vec<Sleeper>, wake: impl FnMut(usize)) {
        if woken.is_empty() {
            return;
        }
        // In the order in which they were woken, by thread.
        woken.sort_by_key(|sleeper| sleeper.thread);
        let woken = woken.into_iter().map(|sleeper| (sleeper.thread, sleeper));
        let side = |thread: usize| &self.threads[thread].woken;
        Posted::post(side, woken.collect(), wake);
    }
}

impl OnLocalChange for Shared {
    fn stored(&self, database: usize, key: &[u8]) {
        if self.waits.is_anybody_asleep() {
            let woken = self.waits.wake_first(Some(database), key);
            self.tell_sleepers(woken, |thread| self.threads[thread].wake());
        }
    }

    fn anything(&self) {
        if self.waits.is_anybody_asleep() {
            let woken = self.waits.wake_all();
            self.tell_sleepers(woken, |thread| self.threads[thread].wake());
        }
    }
}

impl ThreadSide {
    /// The clients of this thread that were woken since this was called last.
    pub fn take_woken(&self) -> Vec<Sleeper> {
        self.woken.take()
    }
}
