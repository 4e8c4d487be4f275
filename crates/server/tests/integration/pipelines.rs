//! A pipeline has the same replies as its commands sent one by one: consecutive commands are
//! batched and keys are prefetched, but neither changes a reply, its order, or the data.

use crate::common::{Client, Reply, encode, server, start};
use proptest::collection::vec;
use proptest::prelude::*;

/// Commands with one key and some with several; `K` stands for a key. Their replies depend on the
/// data only, not on the time.
const COMMANDS: &[&str] = &[
    "GET K",
    "GET K",
    "GET K",
    "SET K 10",
    "SET K 10",
    "SET K text",
    "SET K 5 NX",
    "SET K 6 XX GET",
    "SET K 7 EXAT 4000000000",
    "SET K 8 KEEPTTL",
    "SETNX K 1",
    "SET K soon EXAT 4000000003",
    "GETSET K 11",
    "GETDEL K",
    "GETEX K PERSIST",
    "GETEX K EXAT 4000000001",
    "GETEX K PXAT 1",
    "INCR K",
    "DECR K",
    "INCRBY K 3",
    "DECRBY K x",
    "INCRBYFLOAT K 0.5",
    "APPEND K 7",
    "STRLEN K",
    "GETRANGE K 0 3",
    "SETRANGE K 2 ab",
    "SETRANGE K 6000 long",
    "SETBIT K 9 1",
    "GETBIT K 9",
    "BITCOUNT K",
    "BITFIELD K INCRBY u8 0 1",
    "EXISTS K",
    "TYPE K",
    "OBJECT ENCODING K",
    "TOUCH K",
    "EXPIREAT K 4000000002",
    "EXPIREAT K 1",
    "EXPIRETIME K",
    "PERSIST K",
    "DEL K",
    "UNLINK K",
    "MGET K K K",
    "MSET K 1 K 2",
    "EXISTS K K",
    "RENAME K K",
    "COPY K K REPLACE",
    "MOVE K 5",
    "DBSIZE",
    "PING",
    "SELECT 5",
    "SELECT 0",
    "FLUSHDB",
    "SWAPDB 0 5",
    "MULTI",
    "EXEC",
    "WATCH K",
    "DISCARD",
    "CLIENT REPLY SKIP",
    "CLIENT REPLY OFF",
    "CLIENT REPLY ON",
    "CLIENT REPLY ON",
    "GET",
    "GET K K",
    "SET K",
    "NOSUCH K",
];

fn commands() -> impl Strategy<Value = Vec<String>> {
    let keys = proptest::array::uniform3(0usize..6);
    let one = (0..COMMANDS.len(), keys).prop_map(|(command, keys)| {
        // Most keys are short; one is longer than the cache lines next to it.
        let long = "k".repeat(300);
        let names = ["a", "b", "c", "d", "key:0000000001", &long];
        let words = COMMANDS[command].split(' ');
        let mut keys = keys.iter().map(|key| names[*key]);
        let words = words.map(|word| match word {
            "K" => keys.next().unwrap_or("a"),
            other => other,
        });
        words.collect::<Vec<_>>().join(" ")
    });
    // Runs of one kind of command, as clients send them, mixed with others.
    vec((one, 1usize..5), 1..60).prop_map(|runs| {
        let runs = runs.into_iter();
        runs.flat_map(|(command, times)| std::iter::repeat_n(command, times))
            .collect()
    })
}

fn bytes_of(command: &str) -> Vec<u8> {
    encode(&command.split(' ').collect::<Vec<_>>())
}

/// Which replies a client gets, according to `CLIENT REPLY`. In `MULTI` that command is queued.
#[derive(Default)]
struct Replies {
    off: bool,
    skips: u32,
    queues: bool,
}

impl Replies {
    /// Whether `command` is answered.
    fn answers(&mut self, command: &str) -> bool {
        self.skips = self.skips.saturating_sub(1);
        match command {
            "CLIENT REPLY OFF" => self.off = true,
            "CLIENT REPLY SKIP" if !self.off => self.skips = 2,
            "CLIENT REPLY ON" => (self.off, self.skips) = (false, 0),
            _ => {}
        }
        !self.off && self.skips == 0
    }
}

/// The commands without those that change replies inside a transaction, which another test covers.
fn plain(commands: &[String]) -> Vec<&str> {
    let mut replies = Replies::default();
    let kept = commands.iter().map(String::as_str).filter(|command| {
        match *command {
            "MULTI" => replies.queues = true,
            "EXEC" | "DISCARD" => replies.queues = false,
            _ => {}
        }
        !(replies.queues && command.starts_with("CLIENT REPLY"))
    });
    kept.collect()
}

/// All data.
fn content(client: &mut Client) -> Vec<Reply> {
    let mut all = Vec::new();
    for database in ["0", "5"] {
        client.line(&format!("SELECT {database}"));
        let keys = client.line("KEYS *");
        let mut keys: Vec<String> = keys.items().iter().map(Reply::text).collect();
        keys.sort();
        for key in keys {
            all.push(Reply::bulk(&key));
            all.push(client.command(&["GET", &key]));
            all.push(client.command(&["PEXPIRETIME", &key]));
        }
    }
    all
}

#[test]
fn a_pipeline_is_answered_as_its_commands_one_by_one() {
    let servers = [(); 2].map(|()| start(server().threads(1)));
    let config = ProptestConfig {
        cases: 200,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(commands in commands())| {
        let commands = plain(&commands);
        let [mut piped, mut single] = [0, 1].map(|i| Client::connect(servers[i].1));
        for client in [&mut piped, &mut single] {
            client.line("FLUSHALL");
        }
        let (mut replies, mut all, mut expected) = (Replies::default(), Vec::new(), Vec::new());
        for command in &commands {
            let bytes = bytes_of(command);
            single.send(&bytes);
            all.extend(bytes);
            if replies.answers(command) {
                expected.push((*command, single.reply()));
            }
        }
        piped.send(&all);
        for (command, reply) in expected {
            prop_assert_eq!(piped.reply(), reply, "{}", command);
        }
        let mut stored = Vec::new();
        for client in [&mut piped, &mut single] {
            // Replies may be off until the second of these.
            for command in ["DISCARD", "CLIENT REPLY ON", "ECHO end"] {
                client.send(&bytes_of(command));
            }
            while client.reply() != Reply::bulk("end") {}
            stored.push(content(client));
        }
        prop_assert_eq!(&stored[0], &stored[1]);
    });
}
