//! One call of a command: its arguments, its reply, the client that sent it and the server it runs
//! on.

use super::{Failure, Group};
use crate::blocking::{Awaited, KeyWait};
use crate::client::{Awaits, Client, Purpose, Topic};
use crate::counters::Counters;
use crate::keyspace::{Keyspace, RecordOperations};
use crate::long_double;
use crate::notify::{EventClass, EventNotes};
use crate::resp::{Arguments, Reply, parse_i64};
use crate::settings::Key;
use crate::shared::Shared;
use mneme_log::{Decision, Stored, Updated};
use std::sync::Arc;

/// The arguments of a command's `run`.
pub(crate) struct Call<'a> {
    /// The command's name and arguments, whose number is valid for the command's arity.
    pub args: Arguments<'a>,
    /// Where to write the reply: exactly one. On `Err` everything written is discarded.
    pub reply: Reply<'a>,
    /// The database that the client has selected.
    pub keyspace: Keyspace<'a>,
    /// The client that sent the command.
    pub client: &'a mut Client,
    /// The server that executes it.
    pub server: &'a Shared,
    /// When its time slice ends, in nanoseconds, if it may be interrupted.
    slice_end_ns: Option<u64>,
    /// The group of a command that may be interrupted.
    group: Group,
}

/// The result of a command's `run`: its reply was written, or an error must be sent instead.
pub(crate) type Outcome = Result<(), Failure>;

impl<'a> Call<'a> {
    /// A call of `args`, of a command of `group`, by `client`, whose reply is appended to `reply`.
    /// Its time slice ends at `slice_end_ns`.
    pub fn new(
        group: Group,
        args: Arguments<'a>,
        reply: Reply<'a>,
        client: &'a mut Client,
        server: &'a Shared,
        slice_end_ns: u64,
    ) -> Self {
        // The client's thread does the counting.
        let counters = &server.threads[client.thread].counters;
        Self {
            slice_end_ns: Some(slice_end_ns),
            group,
            ..Self::within(args, reply, client, server, counters, None)
        }
    }

    /// A call that is not interrupted: `counters` count its keys, and it belongs to `transaction`
    /// if there is one.
    pub fn within(
        args: Arguments<'a>,
        reply: Reply<'a>,
        client: &'a mut Client,
        server: &'a Shared,
        counters: &'a Counters,
        transaction: Option<&'a mut (dyn RecordOperations + 'a)>,
    ) -> Self {
        Self {
            keyspace: Keyspace::new(
                &server.store,
                counters,
                EventNotes::new(client.event_flags, &server.threads[client.thread].events),
                client.database,
                transaction,
            )
            .for_arguments(args.len()),
            args,
            reply,
            client,
            server,
            slice_end_ns: None,
            group: Group::Generic,
        }
    }

    /// Replies with the number of elements removed from the value of the first key, and records the
    /// change.
    pub fn reply_taken(
        &mut self,
        class: EventClass,
        event: &'static str,
        number: u64,
        updated: Updated,
    ) {
        if number > 0 {
            (self.keyspace).notify_taken(class, event, self.args.at(1), updated);
        }
        self.reply.integer(number as i64);
    }

    /// The number of elements to draw, in argument 2, which is negative if elements may be drawn
    /// repeatedly; and whether their values or scores are wanted too, as requested by the word
    /// `with`.
    pub fn count_to_draw(&self, with: Option<&str>) -> Result<(i64, bool), Failure> {
        let count = self.integer(2)?;
        if count == i64::MIN {
            return Err(Failure::other(format!(
                "ERR value is out of range, value must between {} and {}",
                -i64::MAX,
                i64::MAX
            )));
        }
        match (self.args.len(), with) {
            (3, _) => Ok((count, false)),
            (4, Some(word)) if self.is(3, word) => match count.unsigned_abs() > i64::MAX as u64 / 2
            {
                true => Err(Failure::other("ERR value is out of range")),
                false => Ok((count, true)),
            },
            _ => Err(Failure::Syntax),
        }
    }

    /// Whether it is one of the commands of an `EXEC`.
    pub fn is_within_exec(&self) -> bool {
        self.slice_end_ns.is_none()
    }

    /// Whether a command that can be continued should let other clients be served first
    /// ([`Failure::Unfinished`]). Never within `EXEC`.
    pub fn is_slice_over(&self) -> bool {
        self.slice_end_ns.is_some_and(|end_ns| {
            self.server.sections.is_wanted() || self.server.now_ns() >= end_ns
        })
    }

    /// Makes the command wait until one of `keys` may be ready, with a value of the kind that its
    /// group awaits, for at most this many milliseconds; 0: without a limit. It is then called
    /// again. After the timeout it is not called, and its client gets a null array. Within `EXEC`
    /// it gets that at once.
    pub fn wait_for<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        timeout_ms: u64,
    ) -> Outcome {
        if self.is_within_exec() {
            self.reply.null_array();
            return Ok(());
        }
        if self.client.wait.is_none() {
            let ends_ms = self.server.now_ms().saturating_add(timeout_ms);
            let awaited = Awaited {
                database: self.client.database,
                kind: self.group.awaited_kind().number(),
                keys: keys.map(Arc::from).collect(),
            };
            self.client.wait = Some(Box::new(KeyWait {
                ends_ms: (timeout_ms > 0).then_some(ends_ms),
                bytes: awaited.bytes(),
                awaited: Some(awaited),
                is_counted: false,
                is_asleep: false,
                is_over: false,
            }));
        }
        Err(Failure::Waits)
    }

    /// Whether it is called again after a wait: then keys of other kinds than it waits for count as
    /// absent.
    pub fn has_waited(&self) -> bool {
        self.client.wait.is_some()
    }

    /// Whether another client has waited longer for `key` than this one, which may be new: then the
    /// key counts as absent. Never true within `EXEC`.
    pub fn is_preceded(&self, key: &[u8]) -> bool {
        let kind = self.group.awaited_kind().number();
        let (client, database) = (self.client.entry.id, self.client.database);
        !self.is_within_exec() && (self.server.waits).is_preceded(client, database, kind, key)
    }

    /// Argument `index`, a timeout in seconds, in milliseconds; 0: without a limit.
    pub fn timeout_ms(&self, index: usize) -> Result<u64, Failure> {
        let seconds = long_double::parse(self.args.at(index))
            .ok_or(Failure::other("ERR timeout is not a float or out of range"))?;
        // As in Redis 7.0, a value that is too large counts as negative.
        let milliseconds = i64::try_from(seconds.in_thousandths()).unwrap_or(-1);
        u64::try_from(milliseconds).map_err(|_| Failure::other("ERR timeout is negative"))
    }

    /// Delays the reply until every shared section of `threads` has ended that may have begun too
    /// early to see this command's effect. Within `EXEC` there are no such sections.
    pub fn await_sections(&mut self, threads: impl IntoIterator<Item = usize>) {
        if self.slice_end_ns.is_some() {
            self.client.awaits = Some(Awaits {
                earlier: self.server.sections.earlier(threads),
                purpose: Purpose::Reply(Vec::new(), false),
            });
        }
    }

    /// Requests a load of the file of users, and delays the reply until it is done.
    pub fn await_load(&mut self) {
        let request = self.server.loader.request(self.client.entry.id);
        self.client.awaits = Some(Awaits {
            earlier: self.server.sections.earlier([]),
            purpose: Purpose::Load(request),
        });
    }

    /// Writes a part of the reply that has the form of a message: the client gets it even if it
    /// wants no replies.
    pub fn push(&mut self, write: impl FnOnce(&mut Reply<'_>)) {
        match self.client.replies.is_silent() {
            true => write(&mut Reply::new(
                &mut self.client.unsilenced,
                self.client.protocol,
            )),
            false => write(&mut self.reply),
        }
    }

    /// Puts the messages that were published for the client so far before the replies that follow.
    /// Within `EXEC`, a client that tracks keys gets them after all of its replies: an invalidation
    /// may arrive at any time, and must not be taken for one of the replies.
    pub fn drain_pushes(&mut self) {
        let is_tracking = self.client.tracking.is_some();
        if !self.client.is_pushed_to || is_tracking && self.is_within_exec() {
            return;
        }
        self.server.pubsub.dispatch(self.client.thread);
        if !self.client.entry.pushes.is_empty() {
            let mut pushes = Vec::new();
            self.client.take_pushes(&mut pushes, usize::MAX);
            self.push(|reply| reply.raw(&pushes));
        }
    }

    /// Sends a message to all subscribers of `channel`; returns their number.
    pub fn publish(&mut self, topic: Topic, channel: &[u8], message: &[u8]) -> usize {
        let client = &mut *self.client;
        let posted = |thread| client.wake_later(thread);
        self.server.pubsub.publish(topic, channel, message, posted)
    }

    /// Milliseconds since the Unix epoch, by which keys expire. Equal for all commands of an `EXEC`
    /// that is a transaction of the store.
    pub fn wall_ms(&self) -> u64 {
        let transaction = self.keyspace.time_of_transaction();
        transaction.unwrap_or_else(|| self.server.store.wall_ms())
    }

    /// Argument `index` as an integer.
    pub fn integer(&self, index: usize) -> Result<i64, Failure> {
        parse_i64(self.args.at(index)).ok_or(Failure::NotAnInteger)
    }

    /// Argument `index` as the number of a database.
    pub fn database(&self, index: usize) -> Result<usize, Failure> {
        let number = i32::try_from(self.integer(index)?).map_err(|_| Failure::NotAnInt)?;
        usize::try_from(number)
            .ok()
            .filter(|number| *number < self.server.settings.count(Key::Databases))
            .ok_or(Failure::NoSuchDatabase)
    }

    /// Changes the key in argument 1 depending on its value, and replies with that value, or null.
    /// `decide` may be called again, as in [`Keyspace::update`]. Counts a hit or a miss, and
    /// returns whether it was a hit.
    pub fn update_returning(
        &mut self,
        mut decide: impl FnMut(Option<Stored<'_>>) -> Decision,
    ) -> Result<bool, Failure> {
        let (key, reply) = (self.args.at(1), &mut self.reply);
        let position = reply.position();
        let (mut found, noted) = (false, self.keyspace.noted_events());
        self.keyspace.update(key, |old| {
            found = old.is_some();
            reply.truncate(position);
            reply.value(old.map(|old| old.value));
            decide(old)
        })?;
        self.keyspace.count(found);
        if !found {
            // As in Redis, which looks the key up before it changes it.
            (self.keyspace).notify_at(noted, EventClass::KeyMiss, "keymiss", key);
        }
        Ok(found)
    }

    /// Replies with the number of arguments, all of them keys, for which `holds` returns true at
    /// one instant; so `holds` may be called again.
    pub fn count_keys(
        &mut self,
        mut holds: impl FnMut(&mut Keyspace<'_>, &[u8]) -> Result<bool, Failure>,
    ) -> Outcome {
        let keys = self.args.from(1);
        let count = self.keyspace.atomically_if(keys.len() > 1, |keyspace| {
            keys.iter()
                .try_fold(0, |count, key| Ok(count + i64::from(holds(keyspace, key)?)))
        })?;
        self.reply.integer(count);
        Ok(())
    }

    /// The error for an unknown subcommand of `container` in argument 1, or a wrong number of
    /// arguments.
    pub fn no_such_subcommand(&self, container: &str) -> Failure {
        let before = "ERR unknown subcommand or wrong number of arguments for '";
        let behind = format!("'. Try {container} HELP.");
        Failure::quoting(before, self.args.at(1), &behind)
    }

    /// Whether argument `index` is `word`, in any case.
    pub fn is(&self, index: usize, word: &str) -> bool {
        self.args.at(index).eq_ignore_ascii_case(word.as_bytes())
    }
}
