//! Executes the commands of a batch in order, each with exactly one reply.
//!
//! Consecutive reads, and consecutive plain writes, are passed to the store together ([`batched`]):
//! it hashes and prefetches all of them before it touches the first, which is several times faster
//! than one by one. The order of replies and the effects are the same as one by one. Prefetching is
//! used for the other commands too ([`fetching`]).

mod batched;
mod fetching;
mod unknown;

use crate::acl::Context;
use crate::blocking::{Sleeper, WaitEnd};
use crate::client::{Awaits, Client, Entry, Purpose, Replies};
use crate::client_memory;
use crate::command::{Batching, Call, Command, FEED_IS_FULL, Failure, Flag, Group, Reach};
use crate::commands::TABLE;
use crate::counters::Counters;
use crate::denial;
use crate::exclusive::{ExclusiveSection, SharedSection};
use crate::monitor;
use crate::notify::{EventClass, TRACKED};
use crate::pause::Pause;
use crate::report_events::report_events_of;
use crate::resp::{Arguments, Batch, Protocol, Reply};
use crate::settings::Key;
use crate::shared::{Shared, ThreadSide};
use crate::statistics::Finished;
use crate::transaction_queue::Queue;
use mneme_log::WriteError;

/// How long a command is retried if another process is in the way.
const RETRIES_MS: u64 = 500;

/// How long it is retried if it waits for space in a change feed that this server itself makes
/// durable: a sync may be slow.
const SYNC_RETRIES_MS: u64 = 10_000;

/// A number of arguments that is too small to check its memory.
const FEW: usize = 64;

/// The maximum length of a client's replies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputBounds {
    /// From this length on, no further command is begun.
    pub full: usize,
    /// Beyond this length, replies are no longer complete and the connection must be closed.
    pub most: usize,
}

/// The commands that the store does not accept now.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    /// All except a few, because the store is still being loaded.
    Loading,
    /// Commands that may write, because the change would not become durable; with the reason.
    Writes(&'static str),
}

impl Refusal {
    /// The current refusal.
    #[inline]
    fn of(server: &Shared) -> Option<Self> {
        match server.gate() {
            _ if server.store.is_loading() => Some(Refusal::Loading),
            None => None,
            Some(gate) => gate.refusal().map(Refusal::Writes),
        }
    }

    /// Why `command` is not executed; `queue` is the transaction that waits for it if it is `EXEC`.
    fn failure(self, command: &Command, queue: Option<&Queue>) -> Option<Failure> {
        match self {
            // Watching the empty store would notice nothing.
            Refusal::Loading if !command.has(Flag::Loading) || command.name == "watch" => {
                Some(Failure::Loading)
            }
            // As in Redis, `PING` is refused too, because monitoring uses it to see whether a
            // server is healthy.
            Refusal::Writes(reason)
                if command.has(Flag::Write)
                    || command.name == "ping"
                    || command.reach == Reach::Queue && queue.is_some_and(Queue::may_write) =>
            {
                Some(Failure::NotDurable(reason))
            }
            _ => None,
        }
    }
}

/// Executes the commands of one client, within its thread's shared section.
pub(crate) struct Executor<'a> {
    server: &'a Shared,
    client: &'a mut Client,
    counters: &'a Counters,
    /// The client's unsent replies; new ones are appended.
    out: &'a mut Vec<u8>,
    /// The thread's shared section, except during exclusive commands.
    section: Option<SharedSection<'a>>,
    /// The pause in effect when the section began.
    pause: Option<Pause>,
    /// The commands that the store did not accept when the section began.
    refusal: Option<Refusal>,
    bounds: OutputBounds,
    /// When the previous command was done, in nanoseconds.
    marked_ns: u64,
    /// When the client's time slice ends, in nanoseconds.
    slice_end_ns: u64,
    /// Whether the client's time slice has ended.
    yields: bool,
    /// The first command of the batch that may be executed together with its neighbours: for those
    /// before it, that was tried and failed.
    alone_until: usize,
}

impl<'a> Executor<'a> {
    /// Executes for `client`, whose replies go to `out`. Enters its thread's shared section.
    pub fn new(
        server: &'a Shared,
        client: &'a mut Client,
        counters: &'a Counters,
        out: &'a mut Vec<u8>,
        bounds: OutputBounds,
    ) -> Self {
        let mut executor = Self {
            server,
            client,
            counters,
            out,
            section: None,
            pause: None,
            refusal: None,
            bounds,
            marked_ns: 0,
            slice_end_ns: 0,
            yields: false,
            alone_until: 0,
        };
        executor.enter_section();
        executor.marked_ns = server.now_ns();
        executor
    }

    /// Enters the thread's shared section, and checks what exclusive commands have changed.
    #[inline]
    fn enter_section(&mut self) {
        let server = self.server;
        self.section = Some(server.sections.shared(self.client.thread));
        self.pause = server.pauses.now(|| server.now_ms());
        self.refusal = Refusal::of(server);
        self.client.is_monitored = server.pubsub.is_monitored();
        self.client.event_flags = server.event_flags();
        if self.client.has_old_rules(&server.users) && !self.client.awaits_load() {
            self.client.renew_rules(&server.users, &server.clients);
        }
        self.client.closing |= self.client.entry.is_killed();
    }

    /// Whether the command was delayed by another thread's exclusive section, which may have
    /// changed the conditions under which it was admitted. Then it must be checked again before it
    /// is executed.
    fn is_admission_old(&self) -> bool {
        let server = self.server;
        self.client.has_old_rules(&server.users)
            || self.client.entry.is_killed()
            || self.pause != server.pauses.now(|| server.now_ms())
    }

    /// Executes the commands of `batch`, which was parsed from `input`, and returns the number
    /// executed. It stops early if the output is full, the client is to be closed, the next command
    /// must wait for the end of a pause, or its time slice is over: at `slice_end_ns`, or as soon
    /// as another thread waits for an exclusive section. At least one command is executed in a
    /// slice.
    pub fn run(&mut self, batch: &Batch, input: &[u8], slice_end_ns: u64) -> usize {
        self.slice_end_ns = slice_end_ns;
        self.alone_until = 0;
        // The first command whose keys have not been prefetched.
        let (mut done, mut fetched) = (0, 0);
        while done < batch.len() && !self.client.closing {
            let args = batch.command(done, input);
            let (silent, position) = (self.client.replies.is_silent(), self.out.len());
            let found = TABLE.find(args.at(0));
            let executed = match found {
                Some(command) => match self.together(command, batch, input, done) {
                    0 => {
                        if done >= fetched {
                            fetched = self.fetch_ahead(batch, input, done);
                        }
                        self.one(command, args)
                    }
                    executed => {
                        self.client.retries_ms = None;
                        executed
                    }
                },
                None => self.unknown(args),
            };
            done += executed;
            if executed == 0 {
                break;
            }
            if self.client.replies != Replies::On || silent {
                if silent && self.client.replies.is_silent() {
                    self.out.truncate(position);
                }
                self.out.append(&mut self.client.unsilenced);
                self.client.replies = self.client.replies.next();
            }
            if self.client.is_pushed_to {
                self.insert_pushes(found, position);
            }
            if self.client.caching.is_some()
                && self.client.queue.is_none()
                && found.is_none_or(|command| command.name != "client")
            {
                self.client.caching = None;
            }
            if self.out.len() >= self.bounds.full {
                break;
            }
            if self.marked_ns >= slice_end_ns
                // A client of this thread was woken, and is served before the next command.
                || self.side().woken.is_filled()
                || self.server.sections.is_wanted()
            {
                self.yields = true;
                break;
            }
        }
        if !self.client.changed.is_empty() {
            self.server.broadcast_changes_of(self.client);
        }
        done
    }

    /// Executes `command`, number `from` of the batch, and its neighbours as one call of the store.
    /// Returns how many; 0: they cannot be combined, and none was executed.
    #[inline]
    fn together(
        &mut self,
        command: &'static Command,
        batch: &Batch,
        input: &[u8],
        from: usize,
    ) -> usize {
        let kind = self.batching_of(command, batch.command(from, input));
        // A command without such a neighbour cannot be combined.
        let kind = kind.filter(|kind| {
            self.is_of_kind(batch, input, from + 1, *kind)
                && (kind.is_read() || self.server.store.has_feed_space())
        });
        match kind {
            Some(Batching::Value) => self.reads(batch, input, from),
            Some(Batching::Pair) => self.writes(batch, input, from),
            Some(Batching::Elements) if from >= self.alone_until => {
                self.changes_of_elements(batch, input, from)
            }
            Some(Batching::Elements) => 0,
            None => 0,
        }
    }

    /// Inserts the messages that were published for the client before the finished command took
    /// effect in front of its reply, which begins at `position`. Subscribing and publishing
    /// commands do that themselves.
    #[cold]
    fn insert_pushes(&mut self, command: Option<&'static Command>, position: usize) {
        self.server.pubsub.dispatch(self.client.thread);
        let pushes = &self.client.entry.pushes;
        if pushes.is_empty() || command.is_some_and(|command| command.group == Group::PubSub) {
            return;
        }
        if self.client.is_monitor || self.client.tracking.is_some() {
            // As in Redis: among the messages is the command itself (for `MONITOR`), after its
            // reply, or the invalidation of a key that it has changed. And the invalidation of a
            // key that changed after the command has read it must not arrive before the old value.
            self.client.take_pushes(self.out, usize::MAX);
            return;
        }
        let replies = self.out.split_off(position);
        self.client.take_pushes(self.out, usize::MAX);
        self.out.extend_from_slice(&replies);
    }

    /// When the last command was done, in nanoseconds.
    pub fn done_ns(&self) -> u64 {
        self.marked_ns
    }

    /// Whether the client's time slice has ended, so that others should be served first.
    pub fn yields(&self) -> bool {
        self.yields
    }

    /// Whether this call is in the plain form that can be combined with its neighbours.
    #[inline]
    fn may_batch(&self, command: &'static Command, args: Arguments<'_>) -> bool {
        self.client.authenticated
            && !self.client.is_pushed_to
            && self.client.event_flags == 0
            && !self.client.is_monitored
            && self.client.queue.is_none()
            && self.pause.is_none()
            && self.refusal.is_none()
            && matches!(self.client.replies, Replies::On | Replies::Off)
            // With a threshold of 0 every command is in the SLOWLOG, with its own time.
            && self.server.settings.number(Key::SlowerThan) != 0
            && match command.batching {
                Some(Batching::Value) => args.len() == 2,
                Some(Batching::Pair) => args.len() == 3,
                Some(Batching::Elements) => args.len() <= FEW && command.accepts(args.len()),
                None => false,
            }
            && (self.client.user.is_unrestricted()
                || denial::check(self.server, &self.client.user, command, args).is_ok())
    }

    /// Executes one call individually. Returns the number executed: none if it has to wait.
    fn one(&mut self, command: &'static Command, args: Arguments<'_>) -> usize {
        let position = self.out.len();
        if let Some(Awaits {
            purpose: Purpose::Reply(..) | Purpose::Load(_),
            ..
        }) = self.client.awaits
        {
            // The command was admitted when it began, and a pause that it began itself does not
            // hold it.
            return self.acknowledge(self.resolve(command, args).unwrap_or(command), args);
        }
        if self.client.wait.is_some()
            && let Some(ended) = self.ended_wait()
        {
            return self.end_wait(self.resolve(command, args).unwrap_or(command), args, ended);
        }
        let failure = match self.admit(command, args) {
            Ok(command) if self.must_wait(command) => return 0,
            Ok(command) => match self.call_or_wait(command, args) {
                Ok(Made::Queued) => None,
                Ok(Made::Done) if self.client.awaits.is_some() => {
                    self.withhold(position);
                    return self.acknowledge(command, args);
                }
                Ok(Made::Done) => {
                    self.client.retries_ms = None;
                    self.note(command, args, 1, 0);
                    None
                }
                Err(Failure::NotYet(_)) if self.tries_again() => {
                    self.out.truncate(position);
                    return 0;
                }
                Err(Failure::Unfinished | Failure::NotAlone) => {
                    self.out.truncate(position);
                    self.interrupt();
                    return 0;
                }
                Err(Failure::Waits) => return 0,
                Err(failure) => {
                    self.client.retries_ms = None;
                    self.note(command, args, 1, 1);
                    Some(match failure {
                        // The command was not begun.
                        Failure::NotYet(_) if !self.server.store.has_feed_space() => {
                            let full = Failure::NotDurable(FEED_IS_FULL);
                            match command.reach {
                                Reach::Queue => self.discard_queue(&full),
                                _ => full,
                            }
                        }
                        Failure::NotYet(_) if command.reach == Reach::Queue => {
                            self.discard_queue(&failure)
                        }
                        failure => failure,
                    })
                }
            },
            Err(failure) => {
                let command = self.resolve(command, args).unwrap_or(command);
                self.side().statistics.rejected(command);
                Some(failure)
            }
        };
        if self.client.wait.is_some() {
            self.stop_waiting();
        }
        if let Some(failure) = failure {
            (self.client.unfinished, self.client.unfinished_ns) = (None, 0);
            self.client.awaits = None;
            self.out.truncate(position);
            self.fail(&failure);
        }
        1
    }

    /// Calls a command. If it waits for keys, its client is added to their queues, and the command
    /// is called once more: a key may have become ready in between. If it finds nothing, its client
    /// falls asleep.
    fn call_or_wait(
        &mut self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Result<Made, Failure> {
        let position = self.out.len();
        let mut made = self.call(command, args);
        let wait = self.client.wait.as_mut();
        if let (Err(Failure::Waits), Some(awaited)) = (&made, wait.and_then(|it| it.awaited.take()))
        {
            self.out.truncate(position);
            // Before other clients can see that it waits.
            self.note(command, args, 0, 0);
            let Entry {
                id, thread, key, ..
            } = *self.client.entry;
            let sleeper = Sleeper {
                thread,
                key,
                client: id,
            };
            self.server.waits.enter(sleeper, awaited);
            made = self.call(command, args);
        }
        if let (Err(Failure::Waits), Some(wait)) = (&made, &mut self.client.wait) {
            self.out.truncate(position);
            wait.is_asleep = self.server.falls_asleep(self.client.entry.id);
            self.client.yields = !wait.is_asleep;
        }
        made
    }

    /// The reason why the client must stop waiting for a key, if there is one.
    #[cold]
    fn ended_wait(&self) -> Option<WaitEnd> {
        match &self.client.wait {
            Some(wait) if wait.is_over => Some(WaitEnd::TimedOut),
            _ => self.server.waits.ended(self.client.entry.id),
        }
    }

    /// Replies to a command whose wait has timed out or was ended. Returns the number of commands
    /// done.
    fn end_wait(
        &mut self,
        command: &'static Command,
        args: Arguments<'_>,
        ended: WaitEnd,
    ) -> usize {
        match ended {
            // As in Redis, this is not counted.
            WaitEnd::TimedOut => Reply::new(self.out, self.client.protocol).null_array(),
            WaitEnd::Unblocked => {
                self.fail(&Failure::other(
                    "UNBLOCKED client unblocked via CLIENT UNBLOCK",
                ));
                self.note(command, args, 1, 1);
            }
        }
        self.stop_waiting();
        1
    }

    /// Ends the client's wait, because its command is done.
    fn stop_waiting(&mut self) {
        self.client.wait = None;
        let (server, client) = (self.server, &mut *self.client);
        server.stop_waiting(client.entry.id, |thread| client.wake_later(thread));
    }

    /// Lets an unfinished command continue after other clients have been served.
    fn interrupt(&mut self) {
        let now_ns = self.server.now_ns();
        self.client.unfinished_ns += now_ns.saturating_sub(self.marked_ns);
        self.marked_ns = now_ns;
        self.client.retries_ms = None;
        self.client.yields = true;
    }

    /// Delays the reply from `position` on until other threads have noticed the command's effect.
    fn withhold(&mut self, position: usize) {
        if let Some(Awaits {
            purpose: Purpose::Reply(reply, closing),
            ..
        }) = &mut self.client.awaits
        {
            *reply = self.out.split_off(position);
            *closing = std::mem::take(&mut self.client.closing);
        }
    }

    /// Replies to a finished command if other threads have noticed its effect, or to `ACL LOAD`
    /// once the file's users are in force. Returns the number of commands done: none if it has to
    /// wait.
    fn acknowledge(&mut self, command: &'static Command, args: Arguments<'_>) -> usize {
        let Some(mut awaits) = self.client.awaits.take() else {
            return 0;
        };
        let is_loading = match &awaits.purpose {
            Purpose::Load(request) => request.answered().is_none(),
            _ => false,
        };
        if is_loading || !self.server.sections.are_over(&mut awaits.earlier) {
            self.client.awaits = Some(awaits);
            self.interrupt();
            return 0;
        }
        let mut failed = 0;
        match awaits.purpose {
            Purpose::Reply(reply, closing) => {
                self.out.extend_from_slice(&reply);
                self.client.closing |= closing;
            }
            Purpose::Load(request) => {
                match request.answered() {
                    Some(Ok(loaded)) => {
                        Reply::new(self.out, self.client.protocol).ok();
                        self.client.closing |= loaded.closes;
                    }
                    Some(Err(text)) => {
                        self.fail(&Failure::other(text.clone()));
                        failed = 1;
                    }
                    None => {}
                }
                // Its user may be gone, which must not cost it the reply.
                if self.client.has_old_rules(&self.server.users) {
                    (self.client).renew_rules(&self.server.users, &self.server.clients);
                }
            }
            Purpose::Alone(_) => {}
        }
        self.note(command, args, 1, failed);
        1
    }

    /// Begins an exclusive section, if no other thread's section is in the way for long.
    fn have_server_alone(&mut self) -> Result<ExclusiveSection<'a>, Failure> {
        let server = self.server;
        let mut tried = 0;
        if let Some(awaits) = &mut self.client.awaits {
            if !server.sections.are_over(&mut awaits.earlier) {
                return Err(Failure::NotAlone);
            }
            if let Purpose::Alone(attempts) = awaits.purpose {
                tried = attempts;
            }
        }
        self.client.awaits = None;
        self.section = None;
        let alone = server.sections.attempt(tried, || server.now_ns());
        alone.map_err(|earlier| {
            self.client.awaits = Some(Awaits {
                earlier,
                purpose: Purpose::Alone(tried + 1),
            });
            self.enter_section();
            Failure::NotAlone
        })
    }

    /// Whether the command must wait for the end of a pause; the client is then held.
    fn must_wait(&mut self, command: &Command) -> bool {
        let Some(pause) = self.pause else {
            return false;
        };
        let queue = self.client.queue.as_ref();
        let is_change = command.is_change()
            || command.reach == Reach::Queue && queue.is_some_and(Queue::has_change);
        // The pause that would hold it: any, or only one of all commands.
        let holds = if is_change { Pause::Writes } else { Pause::All };
        let waits = pause >= holds;
        if waits {
            self.client.held = Some(holds);
            // Earlier retries no longer count.
            self.client.retries_ms = None;
        }
        waits
    }

    /// Whether the command may change data: by itself, or through queued commands.
    fn may_change_data(&self, command: &Command) -> bool {
        let queue = self.client.queue.as_ref();
        command.may_change_data()
            || command.reach == Reach::Queue && queue.is_some_and(Queue::may_change_data)
    }

    /// Refuses a change for which the change feed may have no space, before it begins, so that no
    /// thread waits in the middle of it. It is retried while the feed's content becomes durable.
    fn find_feed_space(&mut self, command: &Command) -> Result<(), Failure> {
        let store = &self.server.store;
        if !self.may_change_data(command) || store.has_feed_space() {
            return Ok(());
        }
        let durable = store.feed_durable().unwrap_or(0);
        if std::mem::replace(&mut self.client.durable, durable) != durable {
            self.client.retries_ms = None;
        }
        Err(Failure::NotYet(WriteError::FeedFull.to_string()))
    }

    /// Whether the command that could not be executed yet is retried after other clients have been
    /// served.
    fn tries_again(&mut self) -> bool {
        let now_ms = self.server.now_ms();
        let since_ms = *self.client.retries_ms.get_or_insert(now_ms);
        let awaits_space = self.server.gate().is_some() && !self.server.store.has_feed_space();
        let most_ms = match awaits_space {
            true => SYNC_RETRIES_MS,
            false => RETRIES_MS,
        };
        self.client.yields = now_ms.saturating_sub(since_ms) < most_ms;
        self.client.awaits_space = self.client.yields && awaits_space;
        self.client.yields
    }

    /// The command, or subcommand, if the call is well formed and the client may make it.
    fn admit(
        &mut self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Result<&'static Command, Failure> {
        let admitted = self.resolve(command, args).and_then(|command| {
            self.client.last_command = command.name;
            if !command.accepts(args.len()) {
                return Err(Failure::WrongArity(command.name));
            }
            if !self.client.authenticated && !command.has(Flag::NoAuth) {
                return Err(Failure::NotAuthenticated);
            }
            if self.client.queue.is_some() && command.has(Flag::NoMulti) {
                return Err(Failure::NotInTransaction);
            }
            // A few arguments never take too much memory. Checked before permissions, which also
            // need memory for each argument.
            if args.len() > FEW
                && !client_memory::admits(self.server, command.bytes_for_keys(&args))
            {
                return Err(Failure::TooManyKeys);
            }
            self.judge(command, args)?;
            if self.client.is_subscriber()
                && self.client.protocol == Protocol::Resp2
                && !command.suits_subscribers
            {
                return Err(Failure::Subscribed(command.name));
            }
            if self.client.is_monitor && (command.is_change() || command.has(Flag::Readonly)) {
                return Err(Failure::other(
                    "ERR Replica can't interact with the keyspace",
                ));
            }
            if let Some(refusal) = self.refusal
                && let Some(failure) = refusal.failure(command, self.client.queue.as_ref())
            {
                return Err(failure);
            }
            Ok(command)
        });
        admitted.map_err(|failure| {
            if command.reach == Reach::Queue {
                self.discard_queue(&failure)
            } else {
                self.refuse_queue();
                failure
            }
        })
    }

    /// Refuses calls that the client's user may not make.
    #[inline]
    fn judge(&mut self, command: &'static Command, args: Arguments<'_>) -> Result<(), Failure> {
        if self.client.user.has_all() {
            return Ok(());
        }
        let verdict = denial::check(self.server, &self.client.user, command, args);
        verdict.map_err(|denied| {
            let context = match self.client.queue {
                Some(_) => Context::Multi,
                None => Context::TopLevel,
            };
            let user = &self.client.user;
            denial::log(
                self.server,
                self.client,
                user,
                denied,
                context,
                command,
                args,
            );
            denial::refusal(denied, command)
        })
    }

    /// Discards the queued commands for this reason.
    fn discard_queue(&mut self, failure: &Failure) -> Failure {
        self.client.queue = None;
        self.client.unwatch();
        Failure::aborted_because(failure)
    }

    /// A command that cannot be queued fails the whole transaction.
    fn refuse_queue(&mut self) {
        if let Some(queue) = &mut self.client.queue {
            queue.refused = true;
        }
    }

    fn call(&mut self, command: &'static Command, args: Arguments<'_>) -> Result<Made, Failure> {
        if let Some(queue) = &mut self.client.queue
            && !command.is_immediate
        {
            queue.push(command, args);
            if queue.bytes() > self.server.settings.count(Key::QueryBuffer) {
                tracing::warn!(
                    client = self.client.entry.id,
                    "a transaction exceeds the query buffer; cutting its client off"
                );
                self.client.closing = true;
            }
            Reply::new(self.out, self.client.protocol).simple("QUEUED");
            return Ok(Made::Queued);
        }
        self.find_feed_space(command)?;
        let is_exclusive = match command.reach {
            Reach::Keys | Reach::Databases | Reach::Nothing => {
                command.exclusive_if.is_some_and(|asks| asks(&args))
            }
            Reach::Exclusive => true,
            Reach::Queue => self
                .client
                .queue
                .as_ref()
                .is_some_and(|queue| !queue.may_run_again()),
        };
        let server = self.server;
        let guard = match is_exclusive {
            true => Some(self.have_server_alone()?),
            false => None,
        };
        if command.reach == Reach::Nothing {
            self.section = None;
        }
        if is_exclusive && self.is_admission_old() {
            drop(guard);
            self.enter_section();
            return Err(Failure::NotAlone);
        }
        if self.client.event_flags & (EventClass::Expired as u32 | TRACKED) != 0
            && self.refusal.is_none()
        {
            let (database, queue) = (self.client.database, self.client.queue.as_ref());
            server.expire_keys_of(command, &args, database, queue);
        }
        if self.client.tracking.is_some() {
            server.remember_keys_of(self.client, command, &args);
        }
        let reply = Reply::new(self.out, self.client.protocol).up_to(self.bounds.most);
        let outcome = (command.run)(&mut Call::new(
            command.group,
            args,
            reply,
            self.client,
            server,
            self.slice_end_ns,
        ));
        if self.client.event_flags != 0 {
            report_events_of(server, self.client, &outcome);
        }
        if outcome.is_ok() {
            let (database, client) = (self.client.database, &mut *self.client);
            server.wake_for(command, &args, database, |thread| client.wake_later(thread));
        }
        if self.section.is_none() {
            drop(guard);
            self.enter_section();
        }
        outcome.map(|()| Made::Done)
    }

    /// The subcommand, if the command is a container.
    fn resolve(
        &self,
        command: &'static Command,
        args: Arguments<'_>,
    ) -> Result<&'static Command, Failure> {
        if command.subcommands.is_empty() || args.len() < 2 {
            return Ok(command);
        }
        command.subcommand(args.at(1)).ok_or_else(|| {
            let container = command.name.to_ascii_uppercase();
            let try_help = format!("'. Try {container} HELP.");
            Failure::quoting(
                "ERR unknown subcommand '",
                first(args.at(1), 128),
                &try_help,
            )
        })
    }

    fn fail(&mut self, failure: &Failure) {
        self.server.count_error(self.client.thread, failure);
        Reply::new(self.out, self.client.protocol).error(&failure.text());
    }

    fn side(&self) -> &'a ThreadSide {
        &self.server.threads[self.client.thread]
    }

    /// Counts `calls` calls of `command` that were just made together, the first of them with
    /// `args`; `failed` of them have failed. `calls` is 0 for a command that waits for a key: it is
    /// counted when the wait begins. The calls took the time since the previous ones: reading the
    /// clock once more for each call would cost 20 ns.
    #[inline]
    fn note(&mut self, command: &'static Command, args: Arguments<'_>, calls: u64, failed: u64) {
        let is_counted = (self.client.wait.as_mut())
            .is_some_and(|wait| std::mem::replace(&mut wait.is_counted, true));
        let begun = if is_counted { 0 } else { calls.max(1) };
        if self.client.is_monitored && !is_counted {
            let database = self.client.database;
            monitor::show(self.server, self.client, database, command, args);
        }
        let now_ns = self.server.now_ns();
        let earlier_ns = std::mem::take(&mut self.client.unfinished_ns);
        let nanoseconds = earlier_ns + now_ns.saturating_sub(self.marked_ns);
        self.marked_ns = now_ns;
        Finished {
            command,
            args,
            calls,
            begun,
            failed,
            nanoseconds,
        }
        .note(self.server, self.client);
    }
}

/// The result of a successful call.
enum Made {
    /// It was queued for `EXEC`.
    Queued,
    Done,
}

/// At most the first `len` bytes.
fn first(bytes: &[u8], len: usize) -> &[u8] {
    &bytes[..bytes.len().min(len)]
}
