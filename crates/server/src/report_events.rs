//! Publishes the events of the command that a thread executes. See [`crate::notify`].

use crate::client::{Client, Topic};
use crate::command::{Failure, Outcome};
use crate::notify::{EventClass, KeyEvent, TRACKED};
use crate::shared::Shared;

/// Publishes the events that the client's command has recorded so far, or the commands of its
/// transaction.
#[cold]
pub(crate) fn report_events(server: &Shared, client: &mut Client) {
    report_those(server, client, |_| true);
}

/// Publishes the events that the client's command has recorded. If the command has failed, it has
/// changed nothing, and only misses are published; if it will run again, nothing is published yet.
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
