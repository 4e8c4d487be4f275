//! Connections that the server refuses.

use crate::settings::{Key, Settings};

const OUTSIDER: &str = "-DENIED Mneme is running in protected mode because protected mode is enabled and no password \
is set. In this mode connections are only accepted from the loopback interface. If you want to connect from other \
computers you may adopt one of the following solutions: 1) Set a password with '--requirepass' or \
MNEME_REQUIREPASS and restart the server, or with CONFIG SET requirepass. 2) If nobody but you can reach the server, \
restart it with '--protected-mode no'. 3) Use a tunnel that ends on the server's own machine. NOTE: You only need to do one of the \
above things in order for the server to start accepting connections from the outside.\r\n";

const TOO_MANY: &str = "-ERR max number of clients reached\r\n";

/// The error with which to refuse a connection, or `None` to serve it. `has_password`: whether the
/// default user needs a password.
pub(crate) fn refusal(
    settings: &Settings,
    is_local: bool,
    has_password: bool,
    connected: usize,
) -> Option<&'static str> {
    if connected >= settings.count(Key::MaxClients) {
        Some(TOO_MANY)
    } else if settings.is(Key::ProtectedMode) && !has_password && !is_local {
        Some(OUTSIDER)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Source;

    #[test]
    fn outsiders_need_a_password_or_an_unprotected_server() {
        let protected = Settings::default();
        let open = Settings::default();
        open.say(Key::ProtectedMode, "no", Source::Said).unwrap();
        let most = open.count(Key::MaxClients);
        let refused = refusal(&protected, false, false, 0);
        assert!(refused.is_some_and(|text| text.starts_with("-DENIED ")));
        assert_eq!(refusal(&protected, true, false, 0), None);
        assert_eq!(refusal(&open, false, false, 0), None);
        assert_eq!(refusal(&protected, false, true, 0), None);
        assert_eq!(refusal(&open, true, false, most), Some(TOO_MANY));
    }
}
