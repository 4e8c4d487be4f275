//! Connections and the server.

use crate::generate::{Command, line};
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    line(&[
        "SELECT ([0-3]|15|16|-1|x|)",
        "PING",
        "PING hello",
        "PING a b",
        "ECHO x",
        "ECHO",
        "TIME x",
        "HELLO (2|3|4|x)",
        "HELLO 2 AUTH default any",
        "HELLO 2 (AUTH|SETNAME|FOO)( a)?",
        "RESET",
        "CLIENT GETNAME",
        "CLIENT SETNAME (me|x\\ty)",
        "CLIENT ID x",
        "CLIENT FOO",
        "CLIENT LIST (ID x|ID 99999999|TYPE foo|TYPE pubsub|x)",
        "CONFIG GET (save|appendonly|SAVE|nothing)",
        "CONFIG FOO",
        "COMMAND GETKEYS (GET a|MSET a b c d|PING x|FOO a|GET a b|DEL a b)",
        "COMMAND FOO",
        "COMMAND INFO foo",
        "COMMAND DOCS foo",
        "COMMAND LIST FILTERBY (FOO a|MODULE a|x)",
        "NOSUCH( a){0,3}",
        "AUTH x",
        "AUTH (default|nobody) x",
        "AUTH a b c",
        "[A-Z]{1,6} [a-z]{0,200}",
    ])
}
