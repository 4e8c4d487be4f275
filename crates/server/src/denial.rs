//! Checks a call against its client's user, and handles one that is denied.

use crate::acl::{Context, DenialReason, Denied, Event, Judged, KeyAccess, User};
use crate::client::Client;
use crate::command::{Command, Failure, Flag, KeyFlag};
use crate::resp::Arguments;
use crate::settings::Key;
use crate::shared::Shared;

/// The number of bytes kept of a name that a client chooses, which may be long.
const BYTES: usize = 1024;

/// Checks whether `user` may make this call; otherwise returns what is missing.
#[inline]
pub(crate) fn check(
    server: &Shared,
    user: &User,
    command: &'static Command,
    args: Arguments<'_>,
) -> Result<(), Denied> {
    let may_all = match command.channels {
        None => user.is_unrestricted(),
        Some(_) => user.has_all(),
    };
    if may_all || command.has(Flag::NoAuth) {
        return Ok(());
    }
    let channels = (command.channels).map(|channels| channels.positions(args.len()));
    let number = server.commands.place(command);
    // Most commands have one key, at a position that does not depend on the arguments.
    if let [spec] = command.keys
        && let Some(position) = spec.only()
        && command.key_flags.is_none()
    {
        let keys = [(position, access(spec.flags))];
        let keys = match position < args.len() && is_key(spec.flags) {
            true => &keys[..],
            false => &[],
        };
        return user.check(&Judged {
            number,
            args,
            keys,
            channels,
        });
    }
    let keys = command.keys_of(&args);
    let keys: Vec<_> = keys
        .into_iter()
        .filter(|(_, flags)| is_key(flags))
        .map(|(position, flags)| (position, access(flags)))
        .collect();
    user.check(&Judged {
        number,
        args,
        keys: &keys,
        channels,
    })
}

fn is_key(flags: &[KeyFlag]) -> bool {
    !flags.contains(&KeyFlag::NotKey)
}

/// The permission needed for a key that a command accesses in this way.
#[inline]
fn access(flags: &[KeyFlag]) -> KeyAccess {
    let mut access = KeyAccess::default();
    for flag in flags {
        match flag {
            KeyFlag::Access => access.read = true,
            KeyFlag::Update | KeyFlag::Insert | KeyFlag::Delete => access.write = true,
            _ => {}
        }
    }
    access
}

/// The error for a call that is denied.
pub(crate) fn refusal(denied: Denied, command: &'static Command) -> Failure {
    match denied {
        Denied::Command => Failure::DeniedCommand(command.name),
        Denied::Key(_) => Failure::DeniedKey,
        Denied::Channel(_) => Failure::DeniedChannel,
    }
}

/// The error for a call that was queued before its user lost the permission.
pub(crate) fn of_queued(denied: Denied) -> Failure {
    let reason = match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
    };
    Failure::other(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command \
         is no longer allowed for the following reason: {reason}"
    ))
}

/// Records in `ACL LOG` a call that is denied to `user`.
#[cold]
pub(crate) fn log(
    server: &Shared,
    client: &Client,
    user: &User,
    denied: Denied,
    context: Context,
    command: &'static Command,
    args: Arguments<'_>,
) {
    let (reason, object) = match denied {
        Denied::Command => (DenialReason::Command, command.name.as_bytes()),
        Denied::Key(position) => (DenialReason::Key, args.at(position)),
        Denied::Channel(position) => (DenialReason::Channel, args.at(position)),
    };
    enter(server, client, reason, context, object, user.name());
}

/// Records in `ACL LOG` something else that is denied.
pub(crate) fn enter(
    server: &Shared,
    client: &Client,
    reason: DenialReason,
    context: Context,
    object: &[u8],
    user: &[u8],
) {
    client.publish();
    let event = Event {
        reason,
        context,
        object: object[..object.len().min(BYTES)].to_vec(),
        user: user[..user.len().min(BYTES)].to_vec(),
        client: client.entry.short_line(server.now_ms()).to_string(),
        at_ms: server.wall_ms(),
        count: 1,
    };
    let most = server.settings.count(Key::AclLogLength);
    server.users.log.enter(event, most);
}
