//! `AUTH [username] password`: authenticates the client.

use crate::acl::{Context, DenialReason, password_hash};
use crate::command::*;
use crate::denial;

use super::ALWAYS;

pub(super) static AUTH: Command = Command {
    name: "auth",
    summary: "Authenticates the connection",
    since: "1.0.0",
    complexity: "O(N) where N is the length of the password",
    arity: -2,
    arguments: &[
        Argument::new("username", Kind::String)
            .since("6.0.0")
            .optional(),
        Argument::new("password", Kind::String),
    ],
    run,
    ..ALWAYS
};

fn run(call: &mut Call<'_>) -> Outcome {
    match call.args.len() {
        2 if call.server.users.default().needs_no_password() => {
            return Err(Failure::other(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => authenticate(call, b"default", call.args.at(1))?,
        3 => authenticate(call, call.args.at(1), call.args.at(2))?,
        _ => return Err(Failure::Syntax),
    }
    call.reply.ok();
    Ok(())
}

/// The number of failed attempts in a row that end a connection, so that trying passwords by the
/// million needs many connections.
const ATTEMPTS: u32 = 20;

/// Authenticates the client if there is such a user, which is enabled, with this password.
pub(super) fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Outcome {
    // Computed whether or not the user exists: the duration of a refusal must not reveal that.
    let hash = password_hash(password);
    let found = call.server.users.find(user);
    match found.filter(|user| user.accepts(&hash)) {
        Some(user) => {
            call.client.become_user(user, &call.server.clients);
            call.client.failed_attempts = 0;
            Ok(())
        }
        None => {
            let context = match call.client.queue {
                Some(_) => Context::Multi,
                None => Context::TopLevel,
            };
            let command = call.args.at(0);
            denial::enter(
                call.server,
                call.client,
                DenialReason::Auth,
                context,
                command,
                user,
            );
            call.client.failed_attempts += 1;
            if call.client.failed_attempts >= ATTEMPTS {
                tracing::debug!(
                    peer = call.client.entry.peer,
                    "closing a connection: its client has tried too many passwords"
                );
                call.client.closing = true;
            }
            Err(Failure::WrongPassword)
        }
    }
}
