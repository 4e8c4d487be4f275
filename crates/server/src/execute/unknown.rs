//! Unknown commands: an error, and for those that only a web browser sends, the end of the
//! connection.
//!
//! Any web page can make its reader's browser post to a port of the reader's own machine. The lines
//! of such a request would be inline commands, including the page's own text. As in Redis, `POST`
//! and `Host:`, one of which comes before any text of the page's choosing, end the connection:
//! **nothing after them is executed**.

use super::{Executor, first};
use crate::command::Failure;
use crate::resp::Arguments;

impl Executor<'_> {
    /// Replies to an unknown command. Returns the number of calls: one.
    pub(super) fn unknown(&mut self, args: Arguments<'_>) -> usize {
        let name = args.at(0);
        self.client.last_command = "NULL";
        if name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:") {
            self.cut_off();
            return 1;
        }
        // Redis quotes as much of the command as fits into about 128 bytes.
        let mut text = b"ERR unknown command '".to_vec();
        text.extend_from_slice(up_to_nul(first(name, 128)));
        text.extend_from_slice(b"', with args beginning with: ");
        let begin = text.len();
        for arg in args.from(1).iter() {
            let quoted = text.len() - begin;
            if quoted >= 128 {
                break;
            }
            text.push(b'\'');
            text.extend_from_slice(up_to_nul(first(arg, 128 - quoted)));
            text.extend_from_slice(b"' ");
        }
        self.refuse_queue();
        self.fail(&Failure::Bytes(text));
        1
    }

    /// Disconnects a client that speaks HTTP.
    fn cut_off(&mut self) {
        self.client.closing = true;
        if let Some(connections) = self.server.attacks.count(self.server.now_ms()) {
            tracing::warn!(
                peer = %self.client.entry.peer,
                connections,
                "possible SECURITY ATTACK detected: a client sends POST or Host: commands, probably to have the browser of a web \
                 page execute commands here (cross-protocol scripting); the connection is closed"
            );
        }
    }
}

/// The part that Redis quotes.
fn up_to_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
