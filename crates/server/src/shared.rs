//! The state that all threads of a server share. All of it can be used from any thread at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mio::Waker;
use mneme_log::{LogStore, Stats};
use mneme_sys::Clock;

use crate::acl::{self, AclFileError, LoadRequest, Loader, User, Users, UsersLoaded};
use crate::background::Background;
use crate::backing::{LateStore, ServedStore};
use crate::blocking::{HASHES, Sleeper, WaitQueues};
use crate::client::{Client, Clients, Entry, Evictions, Gauge};
use crate::command::{Command, CommandTable};
use crate::counters::{CounterTotals, Counters};
use crate::eviction_policy;
use crate::exclusive::Sections;
use crate::fill_policy;
use crate::gate::{AwaitsGate, ReplyGate};
use crate::key_events::KeyEventListener;
use crate::listen::{Accepted, Bound, Listener, Listeners};
use crate::loading::Loading;
use crate::local_changes::LocalListener;
use crate::log_limiter::LogLimiter;
use crate::notify::{NotedEvents, TRACKED};
use crate::pause::Pauses;
use crate::pubsub::{Posted, PubSub};
use crate::purge::Purge;
use crate::saver::Saver;
use crate::settings::{Key, Settings};
use crate::statistics::{self, Latency, Pages, Rate, Slowlog, Statistics};
use crate::tls::{self, TlsIdentity};
use crate::tracking::Tracking;

/// How long a server must run before its start counts as successful. Errors in a store show up when
/// the maintainer first checks it, and when clients reconnect.
const SETTLED_AFTER: Duration = Duration::from_secs(1);

/// A running server's common state.
pub(crate) struct Shared {
    pub store: LateStore,
    pub settings: Arc<Settings>,
    /// Users and their permissions.
    pub users: Users,
    /// Loads of the file of users that clients request.
    pub loader: Loader,
    pub clients: Clients,
    /// The record of clients disconnected because of their memory.
    pub evictions: Evictions,
    pub pauses: Pauses,
    /// Clients whose commands wait for keys.
    pub waits: WaitQueues,
    /// Channels, and who has subscribed to them.
    pub pubsub: PubSub,
    /// Compactions that clients request.
    pub purge: Purge,
    /// Checkpoints and backups that clients request.
    pub saver: Saver,
    /// Which threads may execute commands: all, or one exclusively.
    pub sections: Sections,
    /// Slow commands.
    pub slowlog: Slowlog,
    /// Slow events.
    pub latency: Latency,
    /// The rates of commands and bytes over the last moments.
    pub rate: Rate,
    /// Connections that could not be accepted.
    pub accept_failures: LogLimiter,
    /// Connections that were closed because they speak HTTP.
    pub attacks: LogLimiter,
    /// Connections that were closed because their clients speak another protocol.
    pub foreign: LogLimiter,
    /// The current TLS identity, for clients of `tls-port`.
    pub tls: tls::Live,
    /// Connections that were closed because of errors in TLS.
    pub tls_failures: LogLimiter,
    /// The report on the pages of the store's memory.
    pub pages: Pages,
    /// The part of each I/O thread that other threads can access.
    pub threads: Arc<[ThreadSide]>,
    /// The table of all commands.
    pub commands: &'static CommandTable,
    /// The addresses it listens at.
    pub addresses: Vec<SocketAddr>,
    /// The addresses it listens at for clients that use TLS.
    pub tls_addresses: Vec<SocketAddr>,
    /// Forty hexadecimal digits that identify this run.
    pub run_id: String,
    clock: Arc<dyn Clock>,
    /// Wall-clock microseconds and monotonic nanoseconds of the same moment.
    started: (u64, u64),
    stopping: AtomicBool,
    /// The listening sockets, until the server stops; those of a server that retires stay open.
    listeners: Mutex<Vec<Listener>>,
    retired: AtomicBool,
    /// Whether a client has asked the server to end even if the last changes are lost.
    may_lose_changes: AtomicBool,
    /// Whether this start counts as successful.
    settled: AtomicBool,
    /// The counts at the last `CONFIG RESETSTAT`.
    reset: Mutex<Baseline>,
    /// Work that would take too long on an I/O thread.
    pub background: Background,
    /// The changes that local programs have made.
    pub local_changes: LocalListener,
    /// Which clients have read which keys, of those that track them.
    pub tracking: Tracking,
    /// Listens for events of keys that no command is the cause of.
    pub key_events: KeyEventListener,
    /// The address that serves metrics, and the waker of the thread that serves them.
    pub metrics: OnceLock<(SocketAddr, Waker)>,
    /// The progress of loading the store.
    pub loading: Loading,
    /// The gate that replies wait at, if the store is durable.
    gate: OnceLock<Box<dyn ReplyGate>>,
}

/// Counts at the last `CONFIG RESETSTAT`, which are subtracted from later ones. The threads'
/// counters are never set back, because the threads go on counting.
#[derive(Debug, Default)]
struct Baseline {
    totals: CounterTotals,
    dropped: DroppedRecords,
    /// By the command's name.
    commands: BTreeMap<&'static str, statistics::Totals>,
}

/// The number of records that the store has removed by itself, in any process.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DroppedRecords {
    /// Records evicted for lack of free memory.
    pub evicted: u64,
    /// Records that had expired.
    pub expired: u64,
}

impl DroppedRecords {
    /// The counts since the store was made.
    fn of(store: &LogStore) -> Self {
        Self {
            evicted: store.evicted(),
            expired: store.expired(),
        }
    }
}

/// The part of an I/O thread that other threads can access.
pub(crate) struct ThreadSide {
    /// Its counters.
    pub counters: Counters,
    /// Events of the command that it executes.
    pub events: NotedEvents,
    /// Its counts by command.
    pub statistics: Statistics,
    /// Bytes that its clients take.
    pub client_memory: Gauge,
    /// Connections it serves or is about to.
    pub load: AtomicUsize,
    /// The number of its clients that wait for the end of a pause, and for no key.
    pub held: AtomicUsize,
    /// Whether replies to its clients wait at the gate.
    pub awaits_gate: AwaitsGate,
    /// Clients that have waited for a key and are to look again.
    pub woken: Posted<Sleeper>,
    /// Messages from other threads.
    mailbox: Mutex<Mail>,
    /// Ends its wait for events.
    waker: Waker,
}

/// Messages to an I/O thread.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Connections that other threads have accepted for it.
    pub accepted: Vec<Accepted>,
    /// Clients that have been killed, whose connections it must close.
    pub killed: Vec<Arc<Entry>>,
}

impl ThreadSide {
    /// Makes the threads whose replies wait at the gate check it. Called when the gate may let more
    /// pass.
    pub fn gate_has_opened(threads: &[Self]) {
        let waiting = threads.iter().filter(|side| side.awaits_gate.take());
        waiting.for_each(ThreadSide::wake);
    }

    /// Messages from other threads. A thread that adds one wakes the owner.
    pub fn mailbox(&self) -> MutexGuard<'_, Mail> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the thread check its messages at once.
    pub fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            tracing::warn!(%error, "an I/O thread could not be woken; it will look round at its next event");
        }
    }
}

impl Shared {
    pub fn new(
        store: LateStore,
        settings: Settings,
        commands: &'static CommandTable,
        wakers: Vec<Waker>,
        bound: Bound,
        run_id: String,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let thread = |waker| ThreadSide {
            counters: Counters::default(),
            events: NotedEvents::default(),
            statistics: Statistics::new(commands),
            client_memory: Gauge::default(),
            load: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            awaits_gate: AwaitsGate::default(),
            woken: Posted::new(),
            mailbox: Mutex::default(),
            waker,
        };
        // Starts are counted only for a store in a segment.
        let settled = store.segment().is_none();
        let loading = Loading::new(clock.wall_ms(), clock.now_ns());
        let before = DroppedRecords::of(&store);
        store.set_fill_policy(fill_policy::policy(&settings));
        Self {
            pages: Pages::of(&store, || clock.now_ns()),
            metrics: OnceLock::new(),
            gate: OnceLock::new(),
            loading,
            background: Background::default(),
            store,
            users: Users::new(commands.vocabulary(), &settings.text(Key::Password)),
            loader: Loader::default(),
            settings: Arc::new(settings),
            clients: Clients::default(),
            evictions: Evictions::default(),
            slowlog: Slowlog::default(),
            latency: Latency::default(),
            rate: Rate::default(),
            pauses: Pauses::default(),
            waits: WaitQueues::new(HASHES),
            pubsub: PubSub::new(wakers.len()),
            purge: Purge::default(),
            saver: Saver::default(),
            accept_failures: LogLimiter::default(),
            attacks: LogLimiter::default(),
            foreign: LogLimiter::default(),
            tls: tls::Live::default(),
            tls_failures: LogLimiter::default(),
            sections: Sections::new(wakers.len()),
            threads: wakers.into_iter().map(thread).collect(),
            commands,
            addresses: bound.addresses,
            tls_addresses: bound.tls_addresses,
            run_id,
            started: (clock.wall_ms() * 1000, clock.now_ns()),
            clock,
            stopping: AtomicBool::new(false),
            listeners: Mutex::new(bound.listeners),
            retired: AtomicBool::new(false),
            may_lose_changes: AtomicBool::new(false),
            settled: AtomicBool::new(settled),
            reset: Mutex::new(Baseline {
                dropped: before,
                ..Baseline::default()
            }),
            local_changes: LocalListener::default(),
            tracking: Tracking::default(),
            key_events: KeyEventListener::default(),
        }
    }

    /// Serves `store`, whose data was loaded while clients were waiting.
    pub fn open(&self, store: ServedStore) {
        *self.lock_reset() = Baseline {
            dropped: DroppedRecords::of(&store),
            ..Baseline::default()
        };
        self.settled
            .store(store.segment().is_none(), Ordering::Relaxed);
        self.pages.refresh(&store, 0, || self.clock.now_ns());
        self.store.open(store);
        self.keep_filled();
    }

    /// Makes the store fill its log segments as far as the settings say.
    pub fn keep_filled(&self) {
        let policy = fill_policy::policy(&self.settings);
        self.store.set_fill_policy(policy);
    }

    /// A setting as `CONFIG GET` shows it. A value that the store holds is read from the store.
    pub fn shown(&self, key: Key) -> String {
        match key {
            Key::MaxMemory => self.store.capacity().to_string(),
            Key::MaxMemoryPolicy => eviction_policy::name(self.store.eviction()).to_owned(),
            Key::Threads => self.threads.len().to_string(),
            // Yes even while the data is loaded.
            Key::AppendOnly if self.settings.is(Key::Data) => "yes".to_owned(),
            key => self.settings.show(key),
        }
    }

    /// Which events are to be noted.
    #[inline]
    pub fn event_flags(&self) -> u32 {
        let tracked = if self.tracking.is_active() {
            TRACKED
        } else {
            0
        };
        self.settings.number(Key::NotifyEvents) as u32 | tracked
    }

    /// Nanoseconds of the same.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Milliseconds of a clock that never goes back.
    pub fn now_ms(&self) -> u64 {
        self.clock.now_ns() / 1_000_000
    }

    /// When the server started: seconds since 1970.
    pub fn started_s(&self) -> u64 {
        self.started.0 / 1_000_000
    }

    /// Seconds since the server has started.
    pub fn uptime_s(&self) -> u64 {
        self.clock.now_ns().saturating_sub(self.started.1) / 1_000_000_000
    }

    /// Milliseconds since 1970. Expiry uses the time of the [store](mneme_log::LogStore::wall_ms),
    /// which may be ahead of this one.
    pub fn wall_ms(&self) -> u64 {
        self.clock.wall_ms()
    }

    /// Microseconds since 1970.
    pub fn wall_us(&self) -> u64 {
        let wall_us = self.clock.wall_ms() * 1000;
        // The wall clock counts milliseconds; between them the monotonic one does, while the two
        // agree.
        let fine_us = self.started.0 + self.clock.now_ns().saturating_sub(self.started.1) / 1000;
        if fine_us.abs_diff(wall_us) < 2000 {
            fine_us
        } else {
            wall_us
        }
    }

    /// The current number of connections.
    pub fn connected(&self) -> usize {
        // SYNC: pairs with nothing; a statistic, and a limit that may be exceeded by connections
        // accepted at the same moment.
        self.threads
            .iter()
            .map(|thread| thread.load.load(Ordering::Relaxed))
            .sum()
    }

    /// The number of clients that wait for the end of a pause, and for no key.
    pub fn held(&self) -> usize {
        // SYNC: pairs with nothing; a statistic.
        self.threads
            .iter()
            .map(|thread| thread.held.load(Ordering::Relaxed))
            .sum()
    }

    /// The number of clients that wait: for a key, or for the end of a pause.
    pub fn blocked(&self) -> usize {
        self.held() + self.waits.len()
    }

    /// Makes all threads check their messages at once.
    pub fn wake_all(&self) {
        self.threads.iter().for_each(ThreadSide::wake);
        if let Some((_, waker)) = self.metrics.get()
            && let Err(error) = waker.wake()
        {
            tracing::warn!(%error, "the thread of metrics could not be woken; it will look round at its next event");
        }
    }

    /// The gate that replies wait at; `None` unless the store is durable.
    #[inline]
    pub fn gate(&self) -> Option<&dyn ReplyGate> {
        self.gate.get().map(|gate| &**gate)
    }

    /// Sets the gate that replies wait at. Called before the first client's request.
    pub fn set_gate(&self, gate: Box<dyn ReplyGate>) {
        // No other code sets it.
        let _ = self.gate.set(gate);
    }

    /// Sets the TLS identity for new clients of `tls-port`. Logs a warning if its certificate
    /// expires soon.
    pub fn set_identity(&self, identity: TlsIdentity) {
        self.tls.set(identity);
        match self.certificate_days() {
            Some(..0) => tracing::error!("the TLS certificate is no longer valid"),
            Some(days @ ..tls::WARNING_DAYS) => {
                tracing::warn!(days, "the TLS certificate is valid for a few days only");
            }
            _ => {}
        }
    }

    /// The number of days until its certificate expires; negative if it has expired.
    pub fn certificate_days(&self) -> Option<i64> {
        let expires_s = self.tls.get()?.expires_s?;
        let now_s = i64::try_from(self.wall_ms() / 1000).unwrap_or(i64::MAX);
        Some((expires_s - now_s).div_euclid(24 * 3600))
    }

    /// Whether clients on other machines are served without a password.
    pub fn is_open_to_network(&self) -> bool {
        let mut addresses = self.addresses.iter().chain(&self.tls_addresses);
        !self.settings.is(Key::ProtectedMode)
            && self.users.is_open()
            && addresses.any(|address| !address.ip().to_canonical().is_loopback())
    }

    /// The users of the file `aclfile`, as long as `goes_on` returns true.
    fn read_users(
        &self,
        (all_channels, password): &(bool, Arc<str>),
        goes_on: impl Fn() -> bool,
    ) -> Result<acl::Table, AclFileError> {
        let path = self.settings.text(Key::AclFile);
        self.users
            .read(Path::new(&*path), *all_channels, password, goes_on)
    }

    /// The settings that the users of a file depend on.
    fn user_settings(&self) -> (bool, Arc<str>) {
        (self.gives_all_channels(), self.settings.text(Key::Password))
    }

    /// Replaces all users by those of the file `aclfile`; if the file has an error, nothing
    /// changes. The caller is in an exclusive section, or there are no clients yet.
    pub fn load_users(&self) -> Result<(), AclFileError> {
        let users = self.read_users(&self.user_settings(), || true)?;
        self.users.count_file_use();
        self.users.take(users);
        Ok(())
    }

    /// Loads the file `aclfile` for clients that ask for it, until the server stops.
    pub fn serve_loads(&self) {
        self.loader.serve(|requests| {
            let (loaded, closes) = match self.load_beside_clients(requests) {
                Ok(closes) => (Ok(()), closes),
                Err(error) => (Err(format!("ERR {error}")), BTreeSet::new()),
            };
            for request in requests {
                let closes = closes.contains(&request.client);
                request.answer(loaded.clone().map(|()| UsersLoaded { closes }));
            }
            // The texts of their rules are made here, before a client asks for them.
            let users = self.users.list();
            let users = users.iter().take_while(|_| !self.stopping());
            users.for_each(|user| drop(self.users.line(user)));
        });
    }

    /// As [`load_users`](Self::load_users), without an exclusive section while the file is read.
    /// Returns the clients that are to be closed once they have got their replies to `requests`.
    fn load_beside_clients(&self, requests: &[LoadRequest]) -> Result<BTreeSet<u64>, AclFileError> {
        let goes_on = || !self.stopping();
        loop {
            let (uses, settings) = (self.users.file_uses(), self.user_settings());
            let users = self.read_users(&settings, goes_on)?;
            let section = self.sections.exclusive_while(|| self.now_ns(), goes_on);
            let section = section.ok_or(AclFileError::Stopping)?;
            if self.users.file_uses() != uses || self.user_settings() != settings {
                continue;
            }
            let default = self.users.default();
            let before = self.users.take(users);
            let mut closes = BTreeSet::new();
            self.close_users_of_file(&default, |entry| {
                match requests.iter().any(|request| request.client == entry.id) {
                    true => drop(closes.insert(entry.id)),
                    false => self.kill(entry),
                }
            });
            drop(section);
            // This takes a while for many users.
            drop(before);
            return Ok(closes);
        }
    }

    /// After all users were loaded, calls `close` for the clients that are to be closed, where the
    /// default user was this one before. As in Redis 7.0, these are all clients except those of the
    /// default user, whatever the file contains. The caller is in an exclusive section.
    pub fn close_users_of_file(&self, default: &User, mut close: impl FnMut(&Arc<Entry>)) {
        self.close_subscribers(default, &self.users.default(), &mut close);
        self.close_users(|name| name != b"default", close);
    }

    /// Whether new users may access all channels.
    pub fn gives_all_channels(&self) -> bool {
        self.settings.number(Key::AclPubSub) == 0
    }

    /// Calls `close` for the clients of the users with these names. The caller is in an exclusive
    /// section.
    pub fn close_users(&self, is_meant: impl Fn(&[u8]) -> bool, close: impl FnMut(&Arc<Entry>)) {
        let clients = self.clients.list();
        let meant = clients.iter().filter(|entry| is_meant(&entry.state().user));
        meant.for_each(close);
    }

    /// Calls `close` for a user's clients that have subscribed to what its new rules do not allow,
    /// where they allow less than `before`. The caller is in an exclusive section.
    pub fn close_subscribers(&self, before: &User, now: &User, close: impl FnMut(&Arc<Entry>)) {
        if now.keeps_channels_of(before) {
            return;
        }
        let clients = self.clients.of_user(now.name());
        let denied = clients.iter().filter(|entry| {
            (entry.subscriptions()).any_of(|topic, name| !now.permits_channel(topic, name))
        });
        denied.for_each(close);
    }

    /// Ends a client's connection; that of the calling client, `this`, once it has its reply.
    pub fn close_after_reply(&self, entry: &Arc<Entry>, this: &mut Client) {
        match entry.id == this.entry.id {
            true => this.closing = true,
            false => self.kill(entry),
        }
    }

    /// Ends a client's connection. None of its commands begins in a section that sees this
    /// announcement, nor after the caller's exclusive section.
    pub fn kill(&self, entry: &Arc<Entry>) {
        self.clients.kill(entry);
        if let Some(thread) = self.threads.get(entry.thread) {
            let mut mail = thread.mailbox();
            mail.killed.push(Arc::clone(entry));
            // Otherwise it was woken for the first of them.
            if let [_] = mail.killed[..] {
                drop(mail);
                thread.wake();
            }
        }
    }

    /// The counts of all threads since the start or the last `CONFIG RESETSTAT`.
    pub fn totals(&self) -> CounterTotals {
        // Read first, so that it is not later than the counts it is subtracted from.
        let before = self.lock_reset();
        self.all_time().since(&before.totals)
    }

    /// The number of records that the store has removed since then.
    pub fn dropped(&self) -> DroppedRecords {
        let (now, before) = (DroppedRecords::of(&self.store), self.lock_reset().dropped);
        DroppedRecords {
            evicted: now.evicted.saturating_sub(before.evicted),
            expired: now.expired.saturating_sub(before.expired),
        }
    }

    /// Resets the statistics.
    pub fn reset_totals(&self) {
        let mut before = self.lock_reset();
        let commands = self.commands.executable();
        *before = Baseline {
            totals: self.all_time(),
            dropped: DroppedRecords::of(&self.store),
            commands: commands
                .map(|command| (command.name, self.all_calls(command)))
                .filter(|(_, totals)| totals.calls + totals.rejected > 0)
                .collect(),
        };
        drop(before);
        self.local_changes.reset(&self.store, self);
        self.evictions.reset();
        self.statistics().for_each(Statistics::forget_errors);
    }

    /// The store's accounts. The count of the pages in them may be [older](Shared::pages_age_ms),
    /// since this call does not wait for the system.
    pub fn stats(&self) -> Stats {
        let (report, age_ns) = self.pages.last(self.now_ns());
        self.background.want_pages(age_ns);
        self.store.stats_with(report)
    }

    /// Milliseconds since the pages were counted.
    pub fn pages_age_ms(&self) -> u64 {
        self.pages.last(self.now_ns()).1 / 1_000_000
    }

    /// The counts of a command over all threads since the last `CONFIG RESETSTAT`.
    pub fn calls(&self, command: &'static Command) -> statistics::Totals {
        // Read first, as in `totals`.
        let before = self.lock_reset();
        let totals = self.all_calls(command);
        match before.commands.get(command.name) {
            Some(before) => totals.since(before),
            None => totals,
        }
    }

    /// The counts of a command over all threads since the start.
    fn all_calls(&self, command: &'static Command) -> statistics::Totals {
        statistics::Totals::of(self.statistics(), command)
    }

    /// All threads' statistics by command.
    pub fn statistics(&self) -> impl Iterator<Item = &Statistics> {
        self.threads.iter().map(|thread| &thread.statistics)
    }

    /// Counts an error reply of thread `thread`.
    pub fn count_error(&self, thread: usize, error: &dyn std::fmt::Display) {
        let thread = &self.threads[thread];
        thread.counters.errors.add(1);
        thread.statistics.error(&error.to_string());
    }

    fn lock_reset(&self) -> MutexGuard<'_, Baseline> {
        self.reset.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts of all threads since the start.
    pub fn all_time(&self) -> CounterTotals {
        CounterTotals::of(self.threads.iter().map(|thread| &thread.counters))
    }

    /// Whether this start counts as successful.
    pub fn is_settled(&self) -> bool {
        // SYNC: pairs with nothing: settling twice has no effect.
        self.settled.load(Ordering::Relaxed)
    }

    /// Once the server has run for a while, records in a store's segment that this start was
    /// successful.
    pub fn settle(&self) {
        if self.is_settled() {
            return;
        }
        let running = Duration::from_nanos(self.clock.now_ns().saturating_sub(self.started.1));
        // If the server is ending, it was stopped or has failed.
        if running >= SETTLED_AFTER && !self.stopping() {
            self.declare_settled();
        }
    }

    fn declare_settled(&self) {
        if let Err(error) = self.store.settle() {
            tracing::warn!(%error, "the store will be checked after some more starts");
        }
        self.settled.store(true, Ordering::Relaxed);
    }

    fn lock_listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Duplicated handles of the listening sockets.
    pub fn listeners(&self) -> io::Result<Listeners> {
        Listener::share_all(&self.lock_listeners()).map(Listeners::of)
    }

    /// Stops the server, and keeps the listening sockets for a successor.
    pub fn retire(&self) {
        // If the server was stopped before, there is nothing left to hand over.
        if !self.stopping() {
            // SYNC: pairs with the Acquire load in `has_retired`.
            self.retired.store(true, Ordering::Release);
            self.stop();
        }
    }

    /// Whether the listening sockets are kept for a successor.
    pub fn has_retired(&self) -> bool {
        // SYNC: pairs with the Release store in `retire`.
        self.retired.load(Ordering::Acquire)
    }

    /// The listening sockets of a server that has retired, and its users.
    pub fn retired(&self) -> Option<Listeners> {
        self.has_retired().then(|| Listeners {
            users: Some(self.users.by_name()),
            ..Listeners::of(std::mem::take(&mut *self.lock_listeners()))
        })
    }

    /// Makes the server end without an error even if the last changes are lost.
    pub fn accept_loss(&self) {
        self.may_lose_changes.store(true, Ordering::Relaxed);
    }

    /// Whether that was requested. Call it when all threads have ended.
    pub fn may_lose_changes(&self) -> bool {
        self.may_lose_changes.load(Ordering::Relaxed)
    }

    /// Stops every thread after its current work. If nothing failed before, this start counts as
    /// successful.
    pub fn stop(&self) {
        if !self.stopping() {
            self.declare_settled();
        }
        self.end();
    }

    /// Ends a server that was not stopped: its start counts as failed, unless it had counted as
    /// successful before.
    pub fn end(&self) {
        if !self.has_retired() {
            // New connections are refused from here on; they do not wait.
            self.lock_listeners().clear();
        }
        // SYNC: pairs with the Acquire load in `stopping`.
        self.stopping.store(true, Ordering::Release);
        self.store.wake_listeners();
        self.key_events.wake();
        self.purge.end();
        self.saver.end();
        self.loader.end();
        if let Some(durability) = self.store.durability() {
            // Background work ends, since nothing waits for it any more.
            durability.end_checkpoints();
        }
        self.wake_all();
        self.background.wake();
    }

    /// Whether the server is to end.
    pub fn stopping(&self) -> bool {
        // SYNC: pairs with the Release store in `stop`.
        self.stopping.load(Ordering::Acquire)
    }
}
