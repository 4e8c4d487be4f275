//! Transactions. Between `MULTI` and `EXEC` come random commands.

use crate::generate::{Command, line, of_keys};
use proptest::prelude::*;

pub fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => line(&["MULTI", "EXEC", "EXEC", "DISCARD", "UNWATCH", "EXEC a", "WATCH", "MULTI a"]),
        1 => of_keys(&["WATCH"]),
    ]
}
