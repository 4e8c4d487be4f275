//! Connections that the server refuses.

use crate::settings::Key;
use crate::shared::Shared;

const OUTSIDER: &str = "-DENIED Mneme is running in protected mode because protected mode is enabled and no password \
is set. In this mode connections are only accepted from the loopback interface. If you want to connect from other \
computers you may adopt one of the following solutions: 1) Set a password with '--requirepass' or \
MNEME_REQUIREPASS and restart the server, or with CONFIG SET requirepass. 2) If nobody but you can reach the server, \
restart it with '--protected-mode no'. 3) Use a tunnel that ends on the server's own machine. NOTE: You only need to do one of the \
above things in order for the server to start accepting connections from the outside.\r\n";

const TOO_MANY: &str = "-ERR max number of clients reached\r\n";

/// The error with which to refuse a connection, if it is not to be served.
pub(crate) fn refusal(server: &Shared, is_local: bool) -> Option<&'static str> {
    let settings = &server.settings;
    if server.connected() >= settings.count(Key::MaxClients) {
        Some(TOO_MANY)
    } else if settings.is(Key::ProtectedMode)
        && !is_local
        && server.users.default().needs_no_password()
    {
        Some(OUTSIDER)
    } else {
        None
    }
}
