//! Executes consecutive reads, consecutive plain writes, or consecutive changes of one large value,
//! as one call of the store.

use crate::command::{Batching, Call, Command, Failure};
use crate::commands::TABLE;
use crate::resp::{Arguments, Batch, Reply};
use crate::together::{Given, Together};
use mneme_log::BatchError;

use super::Executor;

/// The maximum number of keys in one call of the store. Its batches are fully effective at 32; a
/// few more hide the gaps between calls.
const KEYS: usize = 64;

/// The number of bytes of values in one call beyond which no further value is added: a call is not
/// interrupted, so it must not take long.
const BYTES: usize = 256 << 10;

impl Executor<'_> {
    /// Executes the plain reads from `from` on, up to the first command of another kind or until
    /// `out` is full. Returns how many.
    pub(super) fn reads(&mut self, batch: &Batch, input: &[u8], from: usize) -> usize {
        let mut keys = [&b""[..]; KEYS];
        let (mut filled, mut first) = (0, None);
        while filled < KEYS
            && let Some((command, args)) = self.next(batch, input, from + filled, Batching::is_read)
        {
            first.get_or_insert((command, args));
            keys[filled] = args.at(1);
            filled += 1;
        }
        let errors = self.counters.errors.get();
        let done = self.get_many(&keys[..filled]);
        self.noted(first, done, errors);
        done
    }

    /// Writes the values of `keys`, one reply each, until `out` is full or a value cannot be read;
    /// then the reply is the error. Returns the number of replies.
    fn get_many(&mut self, keys: &[&[u8]]) -> usize {
        let database = self.server.store.database(self.client.database);
        let mut reply = Reply::new(self.out, self.client.protocol);
        let (mut done, mut hits, mut full) = (0, 0, false);
        let result = database.map_err(Failure::from).and_then(|database| {
            let answer = |_, value: Option<&[u8]>| {
                full = full || reply.position() >= self.bounds.full;
                if !full {
                    reply.value(value);
                    hits += u64::from(value.is_some());
                    done += 1;
                }
            };
            Ok(database.get_many(keys, answer)?)
        });
        self.counters.hits.add(hits);
        self.counters.misses.add(done as u64 - hits);
        if let (Err(failure), false) = (result, full) {
            // As in Redis, a value of another type is a hit.
            let is_hit = matches!(failure, Failure::WrongType);
            self.counters.hits.add(u64::from(is_hit));
            self.fail(&failure);
            done += 1;
        }
        done
    }

    /// Executes the plain writes from `from` on, up to the first command of another kind or the
    /// first that fails. Returns how many.
    pub(super) fn writes(&mut self, batch: &Batch, input: &[u8], from: usize) -> usize {
        let mut pairs = [(&b""[..], &b""[..]); KEYS];
        let (mut filled, mut bytes, mut first) = (0, 0, None);
        while filled < KEYS
            && bytes < BYTES
            && let Some((command, args)) =
                self.next(batch, input, from + filled, Batching::is_write)
        {
            first.get_or_insert((command, args));
            pairs[filled] = (args.at(1), args.at(2));
            bytes += args.at(2).len();
            filled += 1;
        }
        let errors = self.counters.errors.get();
        let done = self.put_many(&pairs[..filled]);
        self.noted(first, done, errors);
        done
    }

    /// Counts `calls` calls, this one included; `errors` was the number of errors before.
    fn noted(
        &mut self,
        first: Option<(&'static Command, Arguments<'_>)>,
        calls: usize,
        errors: u64,
    ) {
        if let Some((command, args)) = first {
            self.client.last_command = command.name;
            let failed = self.counters.errors.get().wrapping_sub(errors);
            self.note(command, args, calls as u64, failed);
        }
    }

    /// Stores `pairs` in order, with a reply for each, up to the first that cannot be stored; then
    /// the reply is the error. It ends there because storing may have waited, and may wait again
    /// for the next pair. Returns how many.
    fn put_many(&mut self, pairs: &[(&[u8], &[u8])]) -> usize {
        let (stored, failure) = match self.server.store.database(self.client.database) {
            Ok(database) => match database.put_many(pairs) {
                Ok(()) => (pairs.len(), None),
                Err(BatchError { done, source, .. }) => (done, Some(Failure::from(source))),
            },
            Err(error) => (0, Some(Failure::from(error))),
        };
        self.counters.changes.add(stored as u64);
        let mut reply = Reply::new(self.out, self.client.protocol);
        (0..stored).for_each(|_| reply.ok());
        match failure {
            Some(failure) => {
                self.fail(&failure);
                stored + 1
            }
            None => stored,
        }
    }

    /// Executes consecutive changes of one large value from `from` on, up to the first command of
    /// another kind or with another key, in one transaction: the value's inner structure is read
    /// and stored only once. Returns the number of commands. 0: the value is not large, or the
    /// store has failed and nothing was changed; then the commands must be executed one by one.
    pub(super) fn changes_of_elements(
        &mut self,
        batch: &Batch,
        input: &[u8],
        from: usize,
    ) -> usize {
        let key = batch.command(from, input).at(1);
        if batch.command(from + 1, input).at(1) != key || !self.is_large(key) {
            return 0;
        }
        let mut commands: Vec<Given<'_>> = Vec::with_capacity(KEYS);
        let is_of_elements = Batching::is_of_elements;
        while commands.len() < KEYS
            && let Some((command, args)) =
                self.next(batch, input, from + commands.len(), is_of_elements)
            && args.at(1) == key
        {
            commands.push((command, args));
            // Clients that these commands wake come before later commands.
            if command.may_make_ready() && self.server.waits.is_anybody_waiting() {
                break;
            }
        }
        let (Some(&(first, args)), Some((last, _))) = (commands.first(), commands.last()) else {
            return 0;
        };
        self.fetch_elements(key, &commands);
        let (position, full) = (self.out.len(), self.bounds.full);
        let reply = Reply::new(self.out, self.client.protocol).up_to(self.bounds.most);
        let (client, server) = (&mut *self.client, self.server);
        let mut call = Call::new(first.group, args, reply, client, server, self.slice_end_ns);
        let mut together = Together::new(&commands);
        let none: [(usize, &[u8]); 0] = [];
        let result = server.store.transaction_on(&none, |transaction| {
            call.reply.truncate(position);
            mneme_collections::keep_open(transaction);
            together.attempt(&mut call, Some(transaction), Some(full))?;
            mneme_collections::close_value(transaction).map_err(Failure::from)
        });
        if result.is_err() {
            call.reply.truncate(position);
            self.alone_until = from + commands.len();
            return 0;
        }
        let now_ns = server.now_ns();
        together.took(now_ns.saturating_sub(self.marked_ns));
        let done = together.finish(&mut call);
        self.client.last_command = last.name;
        self.marked_ns = now_ns;
        done
    }

    /// Whether the value under `key` is a large one.
    fn is_large(&self, key: &[u8]) -> bool {
        let database = self.server.store.database(self.client.database);
        let kind = database.map(|database| database.kind(key));
        matches!(kind, Ok(Ok(Some(kind))) if kind.is_large())
    }

    /// Command `index` of the batch, if it is of the right kind and in the plain form.
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
