//! `HELLO [protover [AUTH username password] [SETNAME clientname]]`: selects the protocol, and
//! describes the server.

use crate::command::*;
use crate::resp::{Protocol, parse_i64};
use crate::version;

use super::{ALWAYS, auth, client};

pub(super) static HELLO: Command = Command {
    name: "hello",
    summary: "Introduces client and server, and chooses the protocol",
    since: "6.0.0",
    arguments: &[Argument::block(
        "arguments",
        &[
            Argument::new("protover", Kind::Integer),
            Argument::block(
                "username_password",
                &[
                    Argument::new("username", Kind::String),
                    Argument::new("password", Kind::String),
                ],
            )
            .after("AUTH")
            .optional(),
            Argument::new("clientname", Kind::String)
                .after("SETNAME")
                .optional(),
        ],
    )
    .optional()],
    run,
    ..ALWAYS
};

fn run(call: &mut Call<'_>) -> Outcome {
    let protocol = match call.args.len() {
        1 => call.client.protocol,
        _ => match parse_i64(call.args.at(1)) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Failure::other("NOPROTO unsupported protocol version")),
            None => {
                return Err(Failure::other(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        },
    };
    // Options take effect one after the other, as in Redis: those before an error remain. A name
    // that precedes the password counts only once the password is right, because strangers' names
    // would use memory.
    let mut name = None;
    let mut index = 2;
    while index < call.args.len() {
        let left = call.args.len() - index - 1;
        if call.is(index, "AUTH") && left >= 2 {
            let (user, password) = (call.args.at(index + 1), call.args.at(index + 2));
            auth::authenticate(call, user, password)?;
            index += 3;
        } else if call.is(index, "SETNAME") && left >= 1 {
            client::check_name(call.args.at(index + 1))?;
            name = Some(call.args.at(index + 1));
            index += 2;
        } else {
            let option = call.args.at(index);
            return Err(Failure::quoting(
                "ERR Syntax error in HELLO option '",
                option,
                "'",
            ));
        }
        if call.client.authenticated
            && let Some(name) = name.take()
        {
            call.client.entry.state().name = name.to_vec();
        }
    }
    if !call.client.authenticated {
        return Err(Failure::other(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the same \
             time",
        ));
    }
    // Messages that were already sent to it have the old protocol.
    call.drain_pushes();
    call.client.speak(protocol);
    call.reply.set_protocol(protocol);
    introduce(call);
    Ok(())
}

fn introduce(call: &mut Call<'_>) {
    let reply = &mut call.reply;
    reply.map(7);
    reply.bulk(b"server");
    // Clients check which server this is, to know which commands they may send.
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(version::REDIS.as_bytes());
    reply.bulk(b"proto");
    reply.integer(i64::from(call.client.protocol.number()));
    reply.bulk(b"id");
    reply.integer(call.client.entry.id as i64);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}
