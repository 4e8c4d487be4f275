//! `CLIENT ID`, `GETNAME`, `SETNAME`, `SETINFO`: the client's number, name and library.

use super::PLAIN;
use crate::command::*;

pub(super) static ID: Command = Command {
    name: "client|id",
    summary: "Returns the connection's ID",
    since: "5.0.0",
    arity: 2,
    run: id,
    ..PLAIN
};

pub(super) static GETNAME: Command = Command {
    name: "client|getname",
    summary: "Returns the connection's name",
    since: "2.6.9",
    arity: 2,
    run: getname,
    ..PLAIN
};

pub(super) static SETNAME: Command = Command {
    name: "client|setname",
    summary: "Names the connection",
    since: "2.6.9",
    arity: 3,
    arguments: &[Argument::new("connection-name", Kind::String)],
    run: setname,
    ..PLAIN
};

pub(super) static SETINFO: Command = Command {
    name: "client|setinfo",
    summary: "Sets the name and version of the client's library",
    since: "7.2.0",
    arity: 4,
    arguments: &[Argument::one_of(
        "attr",
        &[
            Argument::new("libname", Kind::String).after("LIB-NAME"),
            Argument::new("libver", Kind::String).after("LIB-VER"),
        ],
    )],
    run: setinfo,
    ..PLAIN
};

fn id(call: &mut Call<'_>) -> Outcome {
    call.reply.integer(call.client.entry.id as i64);
    Ok(())
}

fn getname(call: &mut Call<'_>) -> Outcome {
    let state = call.client.entry.state();
    call.reply
        .value(Some(&state.name[..]).filter(|name| !name.is_empty()));
    Ok(())
}

fn setname(call: &mut Call<'_>) -> Outcome {
    let name = call.args.at(2);
    check_name(name)?;
    call.client.entry.state().name = name.to_vec();
    call.reply.ok();
    Ok(())
}

fn setinfo(call: &mut Call<'_>) -> Outcome {
    let (option, value) = (call.args.at(2), call.args.at(3));
    let is_name = call.is(2, "LIB-NAME");
    if !is_name && !call.is(2, "LIB-VER") {
        return Err(Failure::quoting("ERR Unrecognized option '", option, "'"));
    }
    if !is_printable(value) {
        let option = if is_name { "lib-name" } else { "lib-ver" };
        return Err(Failure::other(format!(
            "ERR {option} cannot contain spaces, newlines or special characters."
        )));
    }
    let mut state = call.client.entry.state();
    *(if is_name {
        &mut state.library.0
    } else {
        &mut state.library.1
    }) = value.to_vec();
    call.reply.ok();
    Ok(())
}

/// A name must not break the lines of `CLIENT LIST`.
pub(crate) fn check_name(name: &[u8]) -> Outcome {
    match is_printable(name) {
        true => Ok(()),
        false => Err(Failure::other(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn is_printable(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}
