//! The number of instructions of a change in place: `set` (a value of 100 bytes is overwritten in a
//! store that overwrites), `append` (8 bytes after a value of 64 KiB), `setbit` (a byte within one
//! of 64 KiB), `expire`. Run `change_cost set 20000` and `change_cost set 60000` under `valgrind
//! --tool=callgrind`, and divide the difference. Valgrind does not support the `clone` that the
//! search for a barrier between processes uses: preload a `syscall` that refuses it.

#![allow(clippy::unwrap_used, reason = "an example ends where it fails")]

use std::borrow::Cow;

use mneme_log::{Expiry, LogStore, Patch, UpdatePolicy};

const KEYS: u64 = 1000;
const LONG: usize = 64 << 10;

fn write(at: usize, bytes: &[u8]) -> Patch<'_> {
    Patch::Write {
        at,
        bytes: Cow::Borrowed(bytes),
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "set".to_owned());
    let changes: u64 = args.next().map_or(100_000, |n| n.parse().unwrap());
    let policy = match what.as_str() {
        "set" => UpdatePolicy::InPlace,
        _ => UpdatePolicy::Append,
    };
    let builder = LogStore::builder().maintainer(false).update_policy(policy);
    let store = builder.capacity(256 << 20).open_private().unwrap();
    let len = match what.as_str() {
        "set" | "expire" => 100,
        _ => LONG,
    };
    let later = |i: u64| Expiry::At(4_000_000_000_000 + i);
    for i in 0..KEYS {
        let key = i.to_be_bytes();
        store.put_until(&key, &vec![7; len], later(0)).unwrap();
    }
    for i in 0..changes {
        let key = (i % KEYS).to_be_bytes();
        match what.as_str() {
            "set" => store.put_until(&key, &[i as u8; 100], later(i)).unwrap(),
            "append" => {
                let end = |len: usize| len..len;
                let append =
                    |part: Option<mneme_log::Part<'_>>| write(part.unwrap().len, b"appended");
                store.update_part(&key, end, append).map(|_| ()).unwrap();
            }
            "setbit" => {
                let at = (i as usize * 61) % LONG;
                let flip = [i as u8];
                let put = |_: Option<mneme_log::Part<'_>>| write(at, &flip);
                store
                    .update_part(&key, |_| at..at + 1, put)
                    .map(|_| ())
                    .unwrap();
            }
            "expire" => store
                .update_expiry(&key, |_| Some(later(i + 1)))
                .map(|_| ())
                .unwrap(),
            other => panic!("no change is called {other}"),
        }
    }
}
