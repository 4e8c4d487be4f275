//! Accounting for a command that has ended, or that waits now: it is counted, and entered into the
//! slow log if it took long.

use super::slowlog::{Slow, cut, shortened};
use crate::client::Client;
use crate::command::{Command, Flag};
use crate::resp::Arguments;
use crate::settings::Key;
use crate::shared::Shared;

/// A call that has ended, or several consecutive calls that were executed together. One that waits
/// for a key is counted when it has begun, and when it has ended.
pub(crate) struct Finished<'a> {
    pub command: &'static Command,
    /// The arguments of the first call.
    pub args: Arguments<'a>,
    /// How many have ended.
    pub calls: u64,
    /// How many have begun, and were not counted then.
    pub begun: u64,
    /// The number of calls that failed.
    pub failed: u64,
    /// The nanoseconds they took together.
    pub nanoseconds: u64,
}

impl Finished<'_> {
    /// Counts the calls for the client's thread, and enters them into the slow log if they took
    /// long.
    #[inline]
    pub fn note(&self, server: &Shared, client: &Client) {
        let settings = &server.settings;
        let thread = &server.threads[client.thread];
        let statistics = &thread.statistics;
        thread.counters.commands.add(self.begun);
        let spread = settings.is(Key::LatencyTracking);
        let calls = (self.begun, self.calls);
        statistics.called(self.command, calls, self.nanoseconds, spread);
        if self.calls == 0 {
            return;
        }
        if self.failed > 0 {
            statistics.failed(self.command, self.failed);
        }
        let slow_us = settings.number(Key::SlowerThan);
        if slow_us >= 0 && self.nanoseconds / 1000 >= slow_us as u64 {
            self.enter(server, client, settings.count(Key::SlowlogLength));
        }
        let late_ms = settings.number(Key::LatencyThreshold);
        if late_ms > 0 && self.nanoseconds / 1_000_000 >= late_ms as u64 {
            let event = match self.command.has(Flag::Fast) {
                true => "fast-command",
                false => "command",
            };
            let second = server.wall_ms() / 1000;
            server
                .latency
                .add(event, second, self.nanoseconds / 1_000_000);
        }
    }

    #[cold]
    fn enter(&self, server: &Shared, client: &Client, most: usize) {
        if self.command.has(Flag::SkipSlowlog) {
            return;
        }
        let slow = Slow {
            id: 0,
            at_s: server.wall_ms() / 1000,
            took_us: self.nanoseconds / 1000,
            arguments: shortened(self.args, self.calls),
            client: (client.entry.peer.clone(), cut(&client.entry.state().name)),
        };
        server.slowlog.enter(slow, most);
    }
}
