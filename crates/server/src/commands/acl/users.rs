//! `ACL SETUSER`, `DELUSER` and `WHOAMI`.
//!
//! A change is made in an exclusive section: no command that begins on any thread after the reply
//! is checked by the old permissions.

use std::collections::HashSet;

use super::{ADMIN, PLAIN, USER_NAME};
use crate::command::*;

pub(super) static SETUSER: Command = Command {
    name: "acl|setuser",
    summary: "Changes a user, or makes one, by all of the rules or none",
    complexity: "O(N) where N is the number of rules",
    arity: -3,
    arguments: &[
        USER_NAME,
        Argument::new("rule", Kind::String).optional().multiple(),
    ],
    reach: Reach::Exclusive,
    run: setuser,
    ..ADMIN
};

pub(super) static DELUSER: Command = Command {
    name: "acl|deluser",
    summary: "Removes users, and ends the connections of their clients",
    complexity: "O(N) where N is the number of users and of clients",
    arity: -3,
    arguments: &[USER_NAME.multiple()],
    reach: Reach::Exclusive,
    run: deluser,
    ..ADMIN
};

pub(super) static WHOAMI: Command = Command {
    name: "acl|whoami",
    summary: "Returns the name of the connection's user",
    arity: 2,
    run: |call| {
        call.reply.bulk(call.client.user.name());
        Ok(())
    },
    ..PLAIN
};

fn setuser(call: &mut Call<'_>) -> Outcome {
    let (name, rules) = (call.args.at(2), call.args.from(3));
    let all_channels = call.server.gives_all_channels();
    let users = &call.server.users;
    let before = users.find(name);
    let set = users.set(name, rules.iter(), all_channels);
    set.map_err(|error| Failure::other(format!("ERR {error}")))?;
    if let (Some(before), Some(now)) = (before, users.find(name)) {
        let (server, client) = (call.server, &mut *call.client);
        server.close_subscribers(&before, &now, |entry| {
            server.close_after_reply(entry, client);
        });
    }
    call.reply.ok();
    Ok(())
}

fn deluser(call: &mut Call<'_>) -> Outcome {
    let names = call.args.from(2);
    if names.iter().any(|name| name == b"default") {
        return Err(Failure::other("ERR The 'default' user cannot be removed"));
    }
    let users = &call.server.users;
    let removed: HashSet<&[u8]> = names.iter().filter(|name| users.remove(name)).collect();
    if !removed.is_empty() {
        let (server, client) = (call.server, &mut *call.client);
        for name in &removed {
            for entry in server.clients.of_user(name) {
                server.close_after_reply(&entry, client);
            }
        }
    }
    call.reply.integer(removed.len() as i64);
    Ok(())
}
