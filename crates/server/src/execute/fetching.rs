//! Fetching ahead for the next commands of a pipeline, **whatever they are**: the store starts
//! fetching their keys' places in the index, and their records, before the first of them runs. The
//! commands then run one by one, and their cache misses overlap.
//!
//! Nothing depends on it. Which keys a command has is asked of its key specifications; a command
//! looks up whatever it needs when its turn comes.

use super::Executor;
use crate::command::{Batching, Command};
use crate::commands::TABLE;
use crate::resp::{Arguments, Batch};

/// Keys that are fetched together, and commands that are looked at for them. More would evict each
/// other from the cache before their turn.
const KEYS: usize = 32;

impl Executor<'_> {
    /// Has the keys of the commands from `from` on fetched, the first of which is about to be
    /// executed by itself. Returns the first command that is yet to be looked at.
    #[inline]
    pub(super) fn fetch_ahead(&self, batch: &Batch, input: &[u8], from: usize) -> usize {
        // What is queued, refused or held is not executed now. One key has nothing to overlap with.
        if self.client.queue.is_some()
            || self.refusal.is_some()
            || self.pause.is_some()
            || !self.client.authenticated
            || (from + 1 == batch.len() && batch.command(from, input).len() <= 3)
        {
            return from + 1;
        }
        self.fetch_keys(batch, input, from)
    }

    #[inline(never)]
    fn fetch_keys(&self, batch: &Batch, input: &[u8], from: usize) -> usize {
        let mut keys = [&b""[..]; KEYS];
        let mut filled = 0;
        let mut before = None;
        let end = batch.len().min(from + KEYS);
        let mut index = from;
        while index < end && filled < KEYS {
            let args = batch.command(index, input);
            let command = TABLE.find(args.at(0));
            index += 1;
            let Some(command) = command else {
                before = None;
                continue;
            };
            let kind = self.batching_of(command, args);
            let is_batched = kind.is_some_and(|kind| {
                before == Some(kind) || self.is_of_kind(batch, input, index, kind)
            });
            before = kind;
            // A batch of the store fetches its own keys. The first command is in none.
            if !is_batched || index == from + 1 {
                let Ok(command) = self.resolve(command, args) else {
                    continue;
                };
                filled = add_keys(command, args, &mut keys, filled);
            }
            // The commands behind it are queued, or meet another database.
            if command.is_immediate || command.name == "select" {
                break;
            }
        }
        if filled > 1
            && let Ok(database) = self.server.store.database(self.client.database)
        {
            database.prefetch_many(&keys[..filled]);
        }
        index
    }

    /// How a call can be executed with its neighbours, if it can.
    #[inline]
    pub(super) fn batching_of(
        &self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Option<Batching> {
        (command.batching).filter(|_| self.may_batch(command, args))
    }

    /// Whether command `index` of the batch can be executed with neighbours of this kind.
    #[inline]
    pub(super) fn is_of_kind(
        &self,
        batch: &Batch,
        input: &[u8],
        index: usize,
        kind: Batching,
    ) -> bool {
        index < batch.len() && {
            let args = batch.command(index, input);
            let command = TABLE.find(args.at(0));
            command.is_some_and(|command| self.batching_of(command, args) == Some(kind))
        }
    }
}

/// Adds the keys of a call to the first `filled` of `keys`, as far as there are places. Returns how
/// many there are.
#[inline]
fn add_keys<'a>(
    command: &Command,
    args: Arguments<'a>,
    keys: &mut [&'a [u8]; KEYS],
    mut filled: usize,
) -> usize {
    for spec in command.keys {
        // Most commands have one key, at one place.
        if let (Some(position), Some(place)) = (spec.only(), keys.get_mut(filled)) {
            *place = args.at(position);
            filled += 1;
            continue;
        }
        let positions = spec.positions(&args).into_iter().flatten();
        for (place, position) in keys[filled..].iter_mut().zip(positions) {
            *place = args.at(position);
            filled += 1;
        }
    }
    filled
}
