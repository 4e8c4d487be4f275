//! Publishes the events of the command that a thread executes. See [`crate::notify`].

use crate::client::{Client, Topic};
use crate::shared::Shared;

/// Publishes what the client's command has noted by now, or forgets it if the command has failed.
#[cold]
pub(crate) fn report_events(server: &Shared, client: &mut Client, succeeded: bool) {
    let events = server.threads[client.thread].events.take();
    let flags = client.event_flags;
    for event in events.into_iter().filter(|_| succeeded) {
        event.report(flags, |channel, message| {
            let posted = |thread| client.wake_later(thread);
            let pubsub = &server.pubsub;
            pubsub.publish(Topic::Channel, channel, message, posted);
        });
    }
}
