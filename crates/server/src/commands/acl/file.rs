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

/// Within a transaction the file is read in its exclusive section, while all clients wait.
fn load(call: &mut Call<'_>) -> Outcome {
    check(call)?;
    if !call.is_within_exec() {
        call.await_load();
        return Ok(());
    }
    let (server, client) = (call.server, &mut *call.client);
    let default = server.users.default();
    let loaded = server.load_users();
    loaded.map_err(|error| Failure::other(format!("ERR {error}")))?;
    server.close_users_of_file(&default, |entry| server.close_after_reply(entry, client));
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
    call.server.users.count_file_use();
    call.reply.ok();
    Ok(())
}
