//! Publishes the events of the command that a thread executes. See [`crate::notify`].

use crate::client::{Client, Topic};
use crate::command::{Failure, Outcome};
use crate::notify::{EventClass, KeyEvent, TRACKED};
use crate::shared::Shared;

/// Publishes what the client's command, or those of a transaction so far, have noted by now.
#[cold]
pub(crate) fn report_events(server: &Shared, client: &mut Client) {
    report_those(server, client, |_| true);
}

/// Publishes what the client's command has noted. If it has failed, it has changed nothing, and
/// there is nothing but what it has missed; if it is to run again, nothing is known yet.
#[cold]
pub(crate) fn report_events_of(server: &Shared, client: &mut Client, outcome: &Outcome) {
    report_those(server, client, |event| match outcome {
        Ok(()) => true,
        Err(Failure::NotYet(_) | Failure::Unfinished | Failure::NotAlone | Failure::Waits) => false,
        Err(_) => event.class == EventClass::KeyMiss,
    });
}

fn report_those(server: &Shared, client: &mut Client, is_meant: impl Fn(&KeyEvent) -> bool) {
    let events = server.threads[client.thread].events.take();
    let flags = client.event_flags;
    for event in events.into_iter().filter(is_meant) {
        let is_change = flags & TRACKED != 0 && event.class.is_change();
        if is_change {
            let by = Some(client.entry.id);
            server.invalidate(&event.key, by, |thread| client.wake_later(thread));
        }
        if flags & event.class as u32 != 0 {
            event.report(flags, |channel, message| {
                let posted = |thread| client.wake_later(thread);
                let pubsub = &server.pubsub;
                pubsub.publish(Topic::Channel, channel, message, posted);
            });
        }
        if is_change {
            client.changed.push(event.key);
        }
    }
}
