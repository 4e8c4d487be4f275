//! Wakes clients that wait for keys once these may be ready. See [`crate::blocking`].

use crate::blocking::{AfterLook, AwaitedKey, Sleeper, WaitEnd};
use crate::command::{Command, Flag, Group, KeyFlag};
use crate::local_changes::OnLocalChange;
use crate::pubsub::Posted;
use crate::resp::{Arguments, parse_i64};
use crate::shared::{Shared, ThreadSide};
use crate::together::Given;

impl Command {
    /// Whether it may make a key ready that clients wait for.
    pub fn may_make_ready(&self) -> bool {
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
        if command.may_make_ready() && self.waits.is_anybody_waiting() {
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
        if command.name == "swapdb" {
            let numbers = [1, 2].map(|index| parse_i64(args.at(index)));
            let is_swapped = |number| numbers.contains(&i64::try_from(number).ok());
            return self.wake_present(is_swapped, wake);
        }
        command.ready_keys(args, database, |database, key| {
            woken.extend(self.waits.wake_first(database, key));
        });
        self.tell_sleepers(woken, wake);
    }

    /// As [`wake_for`](Self::wake_for), for commands that were carried out together, each with its
    /// database.
    pub fn wake_for_all<'c>(
        &self,
        commands: impl Iterator<Item = (Given<'c>, usize)>,
        mut wake: impl FnMut(usize),
    ) {
        if !self.waits.is_anybody_waiting() {
            return;
        }
        for ((command, args), database) in commands {
            if command.may_make_ready() {
                self.wake_for_call(command, &args, database, &mut wake);
            }
        }
    }

    /// Wakes the first client of each key that is there in a database of which `is_meant` holds, as
    /// if it had been made ready just now.
    fn wake_present(&self, is_meant: impl Fn(usize) -> bool, wake: impl FnMut(usize)) {
        self.wake_those_present(self.waits.awaited(is_meant), wake);
    }

    fn wake_those_present(&self, keys: Vec<AwaitedKey>, wake: impl FnMut(usize)) {
        let present = keys.into_iter().filter(|key| self.is_present(key));
        let woken = present.flat_map(|AwaitedKey { database, key, .. }| {
            self.waits.wake_first(Some(database), &key)
        });
        self.tell_sleepers(woken.collect(), wake);
    }

    /// Whether there is a value of the kind that clients wait for. What cannot be read may be
    /// there.
    fn is_present(
        &self,
        AwaitedKey {
            database,
            kind,
            key,
        }: &AwaitedKey,
    ) -> bool {
        match self.store.database(*database) {
            Ok(database) => database.kind(key).map_or(true, |present| {
                present.is_some_and(|present| present.packed().number() == *kind)
            }),
            Err(_) => true,
        }
    }

    /// Whether a client, whose command has found nothing or that was woken, falls asleep: none of
    /// the keys that were marked for it is there.
    pub fn falls_asleep(&self, client: u64) -> bool {
        loop {
            match self.waits.sleep(client) {
                AfterLook::Asleep => return true,
                AfterLook::Ready(keys) if !keys.iter().any(|key| self.is_present(key)) => {}
                AfterLook::Ready(_) | AfterLook::Ended => return false,
            }
        }
    }

    /// Ends a client's wait, and wakes the next client of each key that is left.
    pub fn stop_waiting(&self, client: u64, wake: impl FnMut(usize)) {
        let mut keys = self.waits.leave(client);
        keys.retain(|key| self.waits.may_await(&key.key));
        self.wake_those_present(keys, wake);
    }

    /// Ends the wait of a client, which its own thread then tells. Whether it waits.
    pub fn end_wait(&self, client: u64, ended: WaitEnd) -> bool {
        let sleeper: Vec<_> = self.waits.end(client, ended).into_iter().collect();
        let waits = !sleeper.is_empty();
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
        if self.waits.is_anybody_waiting() {
            let woken = self.waits.wake_first(Some(database), key);
            self.tell_sleepers(woken, |thread| self.threads[thread].wake());
        }
    }

    fn swapped(&self, databases: [usize; 2]) {
        if self.waits.is_anybody_waiting() {
            let is_swapped = |number| databases.contains(&number);
            self.wake_present(is_swapped, |thread| self.threads[thread].wake());
        }
    }

    fn anything(&self) {
        if self.waits.is_anybody_waiting() {
            self.wake_present(|_| true, |thread| self.threads[thread].wake());
        }
    }
}

impl ThreadSide {
    /// The clients of this thread that were woken since this was called last.
    pub fn take_woken(&self) -> Vec<Sleeper> {
        self.woken.take()
    }
}
