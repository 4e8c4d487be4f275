//! `AUTH [username] password`: authenticates the client.

use crate::command::*;
use crate::settings::Key;

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
        2 if !call.server.settings.is(Key::Password) => {
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

/// Lets the client in if there is such a user with this password. The only user is `default`;
/// without a password of its own it takes any.
pub(super) fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Outcome {
    let expected = call.server.settings.text(Key::Password);
    let right = expected.is_empty() || equal(password, expected.as_bytes());
    if user != b"default" || !right {
        return Err(Failure::WrongPassword);
    }
    call.client.authenticated = true;
    Ok(())
}

/// Compares without telling by its time where the first difference lies.
fn equal(given: &[u8], expected: &[u8]) -> bool {
    let difference = given
        .iter()
        .zip(expected)
        .fold(0, |bits, (a, b)| bits | (a ^ b));
    given.len() == expected.len() && std::hint::black_box(difference) == 0
}
