//! Messages to a client other than replies: **each is sent once, in the order of publication**,
//! until the client reads it or its connection is closed.
//!
//! The bytes of a message are shared by all its recipients, until they are copied into a
//! recipient's output.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Gauge;
use crate::resp::{Protocol, Reply};

/// One message for one client, or for several of the same kind.
#[derive(Debug, Clone)]
pub(crate) struct Push {
    pub head: PushHead,
    /// The rest of the message, encoded.
    pub body: Arc<Vec<u8>>,
}

/// The beginning of a message, which depends on the client's protocol.
#[derive(Debug, Clone)]
pub(crate) enum PushHead {
    /// From a channel. The body is the channel's name and the message.
    Message,
    /// As `Message`, from a shard channel.
    ShardMessage,
    /// As `Message`, from a channel that matches this pattern.
    PatternMessage(Arc<[u8]>),
    /// A tracked key has changed. The body is an array with the key; an empty one means all keys.
    Invalidation,
    /// The client that was to receive this client's messages is gone. The body is the whole
    /// message.
    BrokenRedirection,
    /// The body is the whole message.
    Nothing,
}

/// What determines which messages a client can read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient {
    pub protocol: Protocol,
    /// Whether it has any subscription: with RESP2, other clients would take a message for a reply.
    pub is_subscriber: bool,
}

/// The memory of a message without its pattern and its body, in bytes: its place in a queue of up
/// to twice the length, the header of the shared body, and the allocator's overhead. The beginning
/// of a message is never longer in an output.
const OWN: usize = 2 * size_of::<Push>() + 64;

impl Push {
    /// The memory that it takes in bytes, at least as much as in an output. Each of several
    /// recipients counts the body as its own.
    pub fn bytes(&self) -> usize {
        let pattern = match &self.head {
            PushHead::PatternMessage(pattern) => pattern.len(),
            PushHead::Message
            | PushHead::ShardMessage
            | PushHead::Invalidation
            | PushHead::BrokenRedirection
            | PushHead::Nothing => 0,
        };
        OWN + pattern + self.body.capacity()
    }

    /// Whether this client, which may have changed since the message was sent, can read it.
    fn suits(&self, recipient: Recipient) -> bool {
        let is_modern = recipient.protocol == Protocol::Resp3;
        match self.head {
            PushHead::Invalidation => is_modern || recipient.is_subscriber,
            PushHead::BrokenRedirection => is_modern,
            _ => true,
        }
    }

    /// Writes it in the form of the client's protocol.
    fn write(&self, reply: &mut Reply<'_>) {
        match &self.head {
            PushHead::Message => {
                reply.push(3);
                reply.bulk(b"message");
            }
            PushHead::ShardMessage => {
                reply.push(3);
                reply.bulk(b"smessage");
            }
            PushHead::PatternMessage(pattern) => {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(pattern);
            }
            PushHead::Invalidation => {
                match reply.protocol() {
                    Protocol::Resp3 => {
                        reply.push(2);
                        reply.bulk(b"invalidate");
                    }
                    Protocol::Resp2 => {
                        reply.push(3);
                        reply.bulk(b"message");
                        reply.bulk(b"__redis__:invalidate");
                    }
                }
                if self.body.is_empty() {
                    reply.null();
                }
            }
            PushHead::BrokenRedirection | PushHead::Nothing => {}
        }
        reply.raw(&self.body);
    }
}

/// The messages that wait for one client. Only its own thread adds and removes them.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    queue: Mutex<Queue>,
    /// The number of bytes that wait.
    bytes: Gauge,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Push>,
    /// The last round in which a message was added.
    round: u64,
}

impl Pushes {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. Returns whether it is the first in this round.
    pub fn add(&self, push: Push, round: u64) -> bool {
        let mut queue = self.queue();
        self.bytes.set(self.bytes.get() + push.bytes());
        queue.waiting.push_back(push);
        std::mem::replace(&mut queue.round, round) != round
    }

    /// The number of bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    /// The size of the next message in bytes.
    pub fn next_bytes(&self) -> usize {
        self.queue().waiting.front().map_or(0, Push::bytes)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes.get() == 0
    }

    /// Appends waiting messages that the client can read to `out`, until that has `most` bytes.
    pub fn take(&self, out: &mut Vec<u8>, recipient: Recipient, most: usize) {
        let mut queue = self.queue();
        while out.len() < most
            && let Some(push) = queue.waiting.pop_front()
        {
            self.bytes.set(self.bytes.get() - push.bytes());
            if push.suits(recipient) {
                push.write(&mut Reply::new(out, recipient.protocol));
            }
        }
        if queue.waiting.is_empty() {
            queue.waiting = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(text: &str) -> Push {
        Push {
            head: PushHead::Message,
            body: Arc::new(text.as_bytes().to_vec()),
        }
    }

    #[test]
    fn pushes_leave_in_order_and_their_bytes_are_counted() {
        let pushes = Pushes::default();
        assert!(pushes.add(push("a"), 1));
        assert!(!pushes.add(push("b"), 1));
        assert!(pushes.add(push("c"), 2));
        assert_eq!(pushes.bytes(), 3 * (OWN + 1));
        let mut out = Vec::new();
        let recipient = |protocol| Recipient {
            protocol,
            is_subscriber: true,
        };
        pushes.take(&mut out, recipient(Protocol::Resp2), 1);
        assert_eq!(out, b"*3\r\n$7\r\nmessage\r\na");
        out.clear();
        pushes.take(&mut out, recipient(Protocol::Resp3), usize::MAX);
        assert_eq!(out, b">3\r\n$7\r\nmessage\r\nb>3\r\n$7\r\nmessage\r\nc");
        assert!(pushes.is_empty());
    }

    #[test]
    fn no_head_is_longer_than_it_is_counted() {
        let pattern: Arc<[u8]> = vec![b'p'; 1 << 20].into();
        for head in [
            PushHead::Message,
            PushHead::ShardMessage,
            PushHead::PatternMessage(pattern),
            PushHead::Invalidation,
        ] {
            let push = Push {
                head,
                body: Arc::default(),
            };
            for protocol in [Protocol::Resp2, Protocol::Resp3] {
                let mut out = Vec::new();
                push.write(&mut Reply::new(&mut out, protocol));
                assert!(out.len() <= push.bytes(), "{:?}", out.len());
            }
        }
    }
}
