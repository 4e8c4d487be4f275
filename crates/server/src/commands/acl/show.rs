//! `ACL GETUSER`, `LIST` and `USERS`: the users and their rules.

use super::{ADMIN, USER_NAME};
use crate::acl::{Selector, Vocabulary};
use crate::command::*;
use crate::resp::Reply;

pub(super) static GETUSER: Command = Command {
    name: "acl|getuser",
    summary: "Returns the rules of a user",
    complexity: "O(N) where N is the number of rules and of commands",
    arity: 3,
    arguments: &[USER_NAME],
    run: getuser,
    ..ADMIN
};

pub(super) static LIST: Command = Command {
    name: "acl|list",
    summary: "Returns all users with their rules, as the ACL file has them",
    complexity: "O(N) where N is the number of users",
    arity: 2,
    run: list,
    ..ADMIN
};

pub(super) static USERS: Command = Command {
    name: "acl|users",
    summary: "Returns the names of all users",
    complexity: "O(N) where N is the number of users",
    arity: 2,
    run: users,
    ..ADMIN
};

fn getuser(call: &mut Call<'_>) -> Outcome {
    let users = &call.server.users;
    let Some(user) = users.find(call.args.at(2)) else {
        call.reply.null();
        return Ok(());
    };
    let reply = &mut call.reply;
    reply.map(6);
    reply.bulk(b"flags");
    let flags: Vec<_> = user.flags().collect();
    reply.set(flags.len());
    for flag in flags {
        reply.bulk(flag.as_bytes());
    }
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    for hash in user.passwords() {
        reply.bulk(hash.as_bytes());
    }
    let mut selectors = user.selectors().iter();
    if let Some(root) = selectors.next() {
        describe(reply, root, users.vocabulary());
    }
    reply.bulk(b"selectors");
    reply.array(selectors.len());
    for selector in selectors {
        reply.map(3);
        describe(reply, selector, users.vocabulary());
    }
    Ok(())
}

/// The three fields of a set of permissions.
fn describe(reply: &mut Reply<'_>, selector: &Selector, vocabulary: &Vocabulary) {
    for (field, text) in [
        ("commands", selector.commands_text(vocabulary)),
        ("keys", selector.keys_text()),
        ("channels", selector.channels_text()),
    ] {
        reply.bulk(field.as_bytes());
        reply.bulk(&text);
    }
}

fn list(call: &mut Call<'_>) -> Outcome {
    let users = call.server.users.list();
    call.reply.array(users.len());
    for user in users {
        call.reply.bulk(&call.server.users.line(&user));
    }
    Ok(())
}

fn users(call: &mut Call<'_>) -> Outcome {
    let users = call.server.users.list();
    call.reply.array(users.len());
    for user in users {
        call.reply.bulk(user.name());
    }
    Ok(())
}
