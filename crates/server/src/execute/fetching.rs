//! Prefetches for the next commands of a pipeline, **whatever they are**: the store starts fetching
//! their keys' index entries and records before the first of them runs. The commands then run one
//! by one, and their cache misses overlap.
//!
//! Correctness does not depend on it. A command's key specifications determine its keys; when its
//! turn comes, a command looks up whatever it needs.

use super::Executor;
use crate::command::{Batching, Command, Group};
use crate::commands::TABLE;
use crate::resp::{Arguments, Batch};
use crate::together::Given;

/// The maximum number of keys that are fetched together, and of commands examined for them. More
/// would evict each other from the cache before their turn.
const KEYS: usize = 32;

impl Executor<'_> {
    /// Prefetches the keys of the commands from `from` on, the first of which is about to be
    /// executed individually. Returns the first command that has yet to be examined.
    #[inline]
    pub(super) fn fetch_ahead(&self, batch: &Batch, input: &[u8], from: usize) -> usize {
        // Commands that are queued, refused or held are not executed now. A single key has nothing
        // to overlap with.
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
        // Elements of one value, named by the first commands.
        let (first, mut elements) = (batch.command(from, input), [&b""[..]; KEYS]);
        let mut sought = 0;
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
            if sought + 1 == index - from
                && let Some(element) = element_of(command, args)
                && args.at(1) == first.at(1)
            {
                elements[sought] = element;
                sought += 1;
            }
            let kind = self.batching_of(command, args);
            // Changes of elements are seldom consecutive changes of one key.
            let kind = kind.filter(|kind| !kind.is_of_elements());
            let is_batched = kind.is_some_and(|kind| {
                before == Some(kind) || self.is_of_kind(batch, input, index, kind)
            });
            before = kind;
            // A batch of the store prefetches its own keys. The first command is in no batch.
            if !is_batched || index == from + 1 {
                let Ok(command) = self.resolve(command, args) else {
                    continue;
                };
                filled = add_keys(command, args, &mut keys, filled);
            }
            // The commands after it are queued, or use another database.
            if command.is_immediate || command.name == "select" {
                break;
            }
        }
        if filled > 1
            && let Ok(database) = self.server.store.database(self.client.database)
        {
            database.prefetch_many(&keys[..filled]);
            if sought > 1 {
                let elements = elements[..sought].iter();
                let places = elements.map(|element| mneme_collections::place(element));
                database.prefetch_leaves(first.at(1), places);
            }
        }
        index
    }

    /// Prefetches what the following changes of elements of one value, which share a transaction,
    /// will access.
    pub(super) fn fetch_elements(&self, key: &[u8], changes: &[Given<'_>]) {
        if let Ok(database) = self.server.store.database(self.client.database) {
            let elements = changes
                .iter()
                .filter_map(|(command, args)| element_of(command, *args));
            let places = elements.map(mneme_collections::place);
            database.prefetch_leaves(key, places);
        }
    }

    /// How a call can be combined with its neighbours, if it can.
    #[inline]
    pub(super) fn batching_of(
        &self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Option<Batching> {
        (command.batching).filter(|_| self.may_batch(command, args))
    }

    /// Whether command `index` of the batch can be combined with neighbours of this kind.
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

/// The first element that a call names of the value under its first argument, if it names any.
#[inline]
fn element_of<'a>(command: &Command, args: Arguments<'a>) -> Option<&'a [u8]> {
    let at = match command.group {
        Group::Hash | Group::Set => 2,
        Group::SortedSet if matches!(command.name, "zadd" | "zincrby") => 3,
        Group::SortedSet => 2,
        _ => return None,
    };
    (at < args.len()).then(|| args.at(at))
}

/// Adds the keys of a call to the first `filled` of `keys`, as far as there is space. Returns how
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
