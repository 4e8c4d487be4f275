//! Neighbouring reads, and neighbouring plain writes, as one call of the store.

use crate::commands::{Batching, Command, Failure, TABLE};
use crate::resp::{Arguments, Batch, Reply};
use mneme_log::BatchError;

use super::Executor;

/// Keys in one call of the store. Its batches pay off fully at 32; a few more cover the seams between calls.
const KEYS: usize = 64;

/// What a key is to its command's reply.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Its value is the reply.
    Alone,
    /// Its value is the first of an array.
    First { of: usize },
    /// Its value is a later one of an array.
    Within,
}

impl Place {
    fn begins(self) -> bool {
        !matches!(self, Place::Within)
    }
}

impl Executor<'_> {
    /// Executes the reading commands from `from` on, up to the first of another kind or until `out` is full.
    /// Returns how many.
    pub(super) fn reads(&mut self, batch: &Batch, input: &[u8], from: usize) -> usize {
        let mut keys = [&b""[..]; KEYS];
        let mut places = [Place::Within; KEYS];
        let mut filled = 0;
        let (mut gathered, mut done) = (0, 0);
        while let Some((command, args)) =
            self.next(batch, input, from + gathered, Batching::is_read)
        {
            self.client.last_command = command.name;
            for (index, key) in args.from(1).iter().enumerate() {
                if filled == KEYS {
                    let (answered, full) = self.get_many(&keys, &places);
                    done += answered;
                    filled = 0;
                    if full {
                        return done;
                    }
                }
                keys[filled] = key;
                places[filled] = match command.batching {
                    Some(Batching::Value) => Place::Alone,
                    _ if index == 0 => Place::First { of: args.len() - 1 },
                    _ => Place::Within,
                };
                filled += 1;
            }
            gathered += 1;
        }
        done + self.get_many(&keys[..filled], &places[..filled]).0
    }

    /// Writes the values of `keys`. Returns how many commands' replies it has begun, and whether it has left the
    /// rest because `out` is full; a reply that has been begun is always finished.
    fn get_many(&mut self, keys: &[&[u8]], places: &[Place]) -> (usize, bool) {
        let database = self.server.store.database(self.client.database);
        let mut reply = Reply::new(self.out, self.client.protocol);
        let (mut next, mut commands, mut hits, mut full) = (0, 0, 0, false);
        let result = database.map_err(Failure::from).and_then(|database| {
            let answer = |index: usize, value: Option<&[u8]>| {
                debug_assert!(
                    full || index == next,
                    "values come in the order of their keys"
                );
                full = full || (places[index].begins() && reply.position() >= self.full);
                if full {
                    return;
                }
                if let Place::First { of } = places[index] {
                    reply.array(of);
                }
                reply.value(value);
                commands += usize::from(places[index].begins());
                hits += u64::from(value.is_some());
                next += 1;
            };
            Ok(database.get_many(keys, answer)?)
        });
        self.counters.hits.add(hits);
        self.counters.misses.add(next as u64 - hits);
        if let (Err(failure), false) = (result, full) {
            for place in &places[next..] {
                if let Place::First { of } = place {
                    Reply::new(self.out, self.client.protocol).array(*of);
                }
                commands += usize::from(place.begins());
                self.fail(&failure);
            }
        }
        (commands, full)
    }

    /// Executes the plain writes from `from` on, up to the first command of another kind. Returns how many.
    pub(super) fn writes(&mut self, batch: &Batch, input: &[u8], from: usize) -> usize {
        let mut pairs = [(&b""[..], &b""[..]); KEYS];
        // Whether the pair is its command's last one, so that the reply follows it.
        let mut lasts = [false; KEYS];
        let mut filled = 0;
        let mut done = 0;
        // Whether a pair of the command at hand has failed, and the reply with it.
        let mut failed = false;
        while let Some((command, args)) = self.next(batch, input, from + done, Batching::is_write) {
            self.client.last_command = command.name;
            let count = (args.len() - 1) / 2;
            for index in 0..count {
                if filled == KEYS {
                    self.put_many(&pairs, &lasts, &mut failed);
                    filled = 0;
                }
                pairs[filled] = (args.at(1 + 2 * index), args.at(2 + 2 * index));
                lasts[filled] = index + 1 == count;
                filled += 1;
            }
            done += 1;
        }
        self.put_many(&pairs[..filled], &lasts[..filled], &mut failed);
        done
    }

    /// Stores `pairs` in order and writes a reply after each command's last one. A pair that cannot be stored fails
    /// its command: the pairs before it stay, those behind it are left out.
    fn put_many(&mut self, pairs: &[(&[u8], &[u8])], lasts: &[bool], failed: &mut bool) {
        let mut from = 0;
        while from < pairs.len() {
            if *failed {
                // The rest of the command that failed.
                *failed = !lasts[from];
                from += 1;
                continue;
            }
            let result = match self.server.store.database(self.client.database) {
                Ok(database) => database
                    .put_many(&pairs[from..])
                    .map_err(|BatchError { done, source, .. }| (done, Failure::from(source))),
                Err(error) => Err((0, Failure::from(error))),
            };
            let stored = match &result {
                Ok(()) => pairs.len() - from,
                Err((done, _)) => *done,
            };
            for _ in lasts[from..from + stored].iter().filter(|last| **last) {
                Reply::new(self.out, self.client.protocol).ok();
            }
            from += stored;
            if let Err((_, failure)) = result {
                self.fail(&failure);
                *failed = !lasts[from];
                from += 1;
            }
        }
    }

    /// Command `index` of the batch, if it is of the right kind and of the plain form.
    #[inline]
    fn next<'b>(
        &self,
        batch: &'b Batch,
        input: &'b [u8],
        index: usize,
        kind: fn(Batching) -> bool,
    ) -> Option<(&'static Command, Arguments<'b>)> {
        if index >= batch.len() {
            return None;
        }
        let args = batch.command(index, input);
        let command = TABLE
            .find(args.at(0))
            .filter(|command| command.batching.is_some_and(kind))?;
        self.may_batch(command, args).then_some((command, args))
    }
}
