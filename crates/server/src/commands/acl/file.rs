//! `ACL LOAD` and `ACL SAVE`: the file of users.

use std::path::Path;

use super::ADMIN;
use crate::command::*;
use crate::settings::{Key, replace};

pub(super) static LOAD: Command = Command {
    name: "acl|load",
    summary: "Reads the users from the ACL file, all of them or none",
    complexity: "O(N) where N is the number of users and of clients",
    arity: 2,
    reach: Reach::Exclusive,
    run: load,
    ..ADMIN
};

pub(super) static SAVE: Command = Command {
    name: "acl|save",
    summary: "Writes the users to the ACL file",
    complexity: "O(N) where N is the number of users",
    arity: 2,
    run: save,
    ..ADMIN
};

fn check(call: &Call<'_>) -> Outcome {
    match call.server.settings.is(Key::AclFile) {
        true => Ok(()),
        false => Err(Failure::other(
            "ERR This Redis instance is not configured to use an ACL file. Start the server with the setting aclfile; \
             CONFIG REWRITE writes no users.",
        )),
    }
}

/// As in Redis 7.0, all clients except those of the default user are closed, whatever the file
/// contains.
fn load(call: &mut Call<'_>) -> Outcome {
    check(call)?;
    let users = &call.server.users;
    let before = users.default();
    let loaded = call.server.load_users();
    loaded.map_err(|error| Failure::other(format!("ERR {error}")))?;
    call.server
        .close_subscribers(&before, &users.default(), call.client);
    call.server
        .close_users(|name| name != b"default", call.client);
    call.reply.ok();
    Ok(())
}

fn save(call: &mut Call<'_>) -> Outcome {
    check(call)?;
    let path = call.server.settings.text(Key::AclFile);
    // The file holds hashes of passwords, so others must not read it.
    if let Err(error) = replace(Path::new(&*path), &call.server.users.file(), true) {
        tracing::warn!(%error, path = &*path, "ACL SAVE cannot write the ACL file; it is as it was");
        return Err(Failure::other(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        ));
    }
    call.reply.ok();
    Ok(())
}
