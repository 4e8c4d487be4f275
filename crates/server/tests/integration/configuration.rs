//! Changes to the configuration of a running server.

use std::path::PathBuf;

use crate::common::{Client, Redis, Reply, server, start};
use mneme_server::settings::Settings;
use mneme_server::{Running, Server};

fn value(client: &mut Client, name: &str) -> String {
    let reply = client.line(&format!("CONFIG GET {name}"));
    reply.items()[1].text()
}

#[test]
fn settings_change_all_together_or_not_at_all() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let get = |client: &mut Client| {
        [
            "maxclients",
            "slowlog-max-len",
            "maxmemory-policy",
            "maxmemory",
        ]
        .map(|name| value(client, name))
    };
    let before = get(&mut client);
    for refused in [
        "CONFIG SET maxclients 7 slowlog-max-len x",
        "CONFIG SET maxclients 7 port 1",
        "CONFIG SET maxclients 7 nosuch 1",
        "CONFIG SET maxclients 7 maxclients 8",
        "CONFIG SET maxclients 7 maxmemory-policy allkeys-lru maxmemory 1mb",
        "CONFIG SET maxmemory-policy allkeys-lru slowlog-max-len 7 maxmemory 900tb",
    ] {
        assert!(matches!(client.line(refused), Reply::Error(_)), "{refused}");
        assert_eq!(get(&mut client), before, "{refused}");
    }
    let set = "CONFIG SET maxclients 7 slowlog-max-len 9 MAXMEMORY-POLICY AllKeys-LRU";
    assert_eq!(client.line(set), Reply::ok());
    assert_eq!(get(&mut client)[..3], ["7", "9", "allkeys-lru"]);
    assert_eq!(
        client.line("CONFIG REWRITE"),
        Reply::Error("ERR The server is running without a config file".into())
    );
}

/// The error texts are Redis'.
#[test]
fn refusals_are_worded_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let mut ours = Client::connect(address);
    let mut theirs = Client::connect(redis.address);
    for line in [
        "CONFIG SET nosuch 1",
        "CONFIG SET nosuch 1 maxclients x",
        "CONFIG SET maxclients",
        "CONFIG SET maxclients 1 slowlog-max-len",
        "CONFIG SET databases 4",
        "CONFIG SET databases x",
        "CONFIG SET port abc",
        "CONFIG SET port 70000",
        "CONFIG SET DataBases 4 maxclients x",
        "CONFIG SET databases 4 nosuch 1",
        "CONFIG SET slowlog-max-len 5 SLOWLOG-MAX-LEN 6",
        "CONFIG SET slowlog-max-len x",
        "CONFIG SET SlowLog-max-len x",
        "CONFIG SET tcp-keepalive -1",
        "CONFIG SET tcp-keepalive 9999999999",
        "CONFIG SET protected-mode perhaps",
        "CONFIG SET maxmemory lots",
        "CONFIG SET maxmemory -1",
        "CONFIG SET maxmemory-policy lru",
        "CONFIG SET client-output-buffer-limit x",
        "CONFIG REWRITE",
        "CONFIG REWRITE x",
        "CONFIG RESETSTAT x",
        "CONFIG SET slowlog-log-slower-than -1 latency-monitor-threshold 20",
        "CONFIG GET slowlog-log-slower-than",
        "CONFIG GET Latency-Monitor-Threshold",
        "CONFIG SET latency-tracking no",
        "CONFIG GET latency-trackin?",
        "CONFIG SET maxmemory-policy Volatile-TTL",
        "CONFIG GET maxmemory-polic[xy]",
        "CONFIG SET appendonly no",
    ] {
        assert_eq!(ours.line(line), theirs.line(line), "{line}");
    }
}

/// Comparing each name with all before it would keep the server busy for minutes.
#[test]
fn a_change_of_very_many_settings_is_refused_at_once() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let many = |name| [name, "1"].repeat(400_000);
    let words = [vec!["CONFIG", "SET"], many("timeout"), many("maxclients")].concat();
    let refused = client.command(&words).text();
    assert!(refused.ends_with("duplicate parameter"), "{refused}");
}

/// Linux refuses a keepalive of more than 32767 seconds; for that each new connection used to be
/// dropped.
#[test]
fn a_keepalive_beyond_what_the_system_counts_drops_no_client() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    for seconds in ["32767", "32768", "2147483647"] {
        let set = client.command(&["CONFIG", "SET", "tcp-keepalive", seconds]);
        assert_eq!(set, Reply::ok(), "{seconds}");
        let mut later = Client::connect(address);
        assert_eq!(
            later.line("PING"),
            Reply::Simple("PONG".into()),
            "{seconds}"
        );
        assert_eq!(value(&mut later, "tcp-keepalive"), seconds);
    }
}

#[test]
fn the_settings_of_active_defragmentation_are_the_stores_policy_at_once() {
    let (running, address) = start(server());
    let mut client = Client::connect(address);
    let set = "CONFIG SET activedefrag no active-defrag-ignore-bytes 1mb \
               active-defrag-threshold-lower 100 active-defrag-threshold-upper 300 \
               active-defrag-cycle-min 2 active-defrag-cycle-max 50";
    assert_eq!(client.line(set), Reply::ok());
    let policy = running.store().fill_policy();
    let fills = (policy.target_fill, policy.least_fill);
    let shares = (policy.least_share, policy.greatest_share);
    assert!(!policy.active);
    assert_eq!((fills, shares), ((0.5, 0.25), (0.02, 0.5)));
    assert_eq!(policy.ignored_bytes, 1 << 20);
    let info = client.line("INFO memory").text();
    assert!(info.contains("mneme_target_fill:0.000"), "{info}");
    assert!(info.contains("active_defrag_running:0"), "{info}");
    assert_eq!(client.line("CONFIG SET activedefrag yes"), Reply::ok());
    let info = client.line("INFO memory").text();
    assert!(info.contains("mneme_target_fill:0.500"), "{info}");
    // A change that is refused in part has changed nothing.
    let refused =
        client.line("CONFIG SET active-defrag-threshold-lower 25 active-defrag-cycle-min 0");
    assert!(refused.text().contains("between 1 and 99"), "{refused:?}");
    assert_eq!(running.store().fill_policy().target_fill, 0.5);
}

#[test]
fn a_store_grows_while_it_serves_and_does_not_shrink() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let value_of = "x".repeat(100_000);
    let fill = |from: usize| {
        let mut client = Client::connect(address);
        (from..)
            .find(|i| client.command(&["SET", &format!("k{i}"), &value_of]) != Reply::ok())
            .unwrap()
    };
    let full = fill(0);
    // Its records are some 80 % of it; the rest is for compaction.
    let advice = client.line("MEMORY DOCTOR").text();
    assert!(advice.contains("nearly full"), "{advice}");
    assert_eq!(client.line("CONFIG SET maxmemory 128mb"), Reply::ok());
    let advice = client.line("MEMORY DOCTOR").text();
    assert!(!advice.contains("nearly full"), "{advice}");
    let more = fill(full);
    assert!(more > full + full / 2, "{full} and then {more}");
    assert_eq!(value(&mut client, "maxmemory"), (128 << 20).to_string());
    let shrink = client.line("CONFIG SET maxmemory 64mb").text();
    assert!(shrink.contains("does not shrink"), "{shrink}");
    assert_eq!(client.line("CONFIG SET maxmemory 0"), Reply::ok());
    assert_eq!(value(&mut client, "maxmemory"), (128 << 20).to_string());
    let info = client.line("INFO memory").text();
    assert!(
        info.contains(&format!("\r\nmaxmemory:{}\r\n", 128 << 20)),
        "{info}"
    );
}

/// Under `noeviction` a full store refuses writes; with eviction it takes everything, at once and
/// without a restart.
#[test]
fn the_policy_changes_what_a_full_store_does() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let long = "x".repeat(20_000);
    let mut stored = 0;
    while client.command(&["SET", &format!("k{stored}"), &long]) == Reply::ok() {
        stored += 1;
    }
    let oom = Reply::Error("OOM command not allowed when used memory > 'maxmemory'.".into());
    assert_eq!(client.command(&["SET", "more", &long]), oom);
    // None of the records expires, so none may be evicted.
    assert_eq!(
        client.line("CONFIG SET maxmemory-policy volatile-ttl"),
        Reply::ok()
    );
    assert_eq!(client.command(&["SET", "more", &long]), oom);
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        let set = format!("CONFIG SET maxmemory-policy {policy}");
        assert_eq!(client.line(&set), Reply::ok());
        for i in 0..stored / 2 {
            let key = format!("{policy}:{i}");
            assert_eq!(client.command(&["SET", &key, &long]), Reply::ok(), "{key}");
        }
        let info = client.line("INFO").text();
        assert!(info.contains(&format!("maxmemory_policy:{policy}\r\n")));
    }
    assert_eq!(
        client.line("CONFIG SET maxmemory-policy noeviction"),
        Reply::ok()
    );
    let refused = (0..stored).any(|i| client.command(&["SET", &format!("x{i}"), &long]) == oom);
    assert!(refused);
}

#[test]
fn a_password_set_at_run_time_is_asked_of_newcomers() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    assert_eq!(client.line("CONFIG SET requirepass secret"), Reply::ok());
    assert_eq!(client.line("PING"), Reply::Simple("PONG".into()));
    let mut other = Client::connect(address);
    assert_eq!(
        other.line("GET a"),
        Reply::Error("NOAUTH Authentication required.".into())
    );
    assert_eq!(other.line("AUTH secret"), Reply::ok());
    assert_eq!(
        client.command(&["CONFIG", "SET", "requirepass", ""]),
        Reply::ok()
    );
    assert_eq!(Client::connect(address).line("GET a"), Reply::Null);
}

#[test]
fn more_clients_than_the_system_has_descriptors_for_are_refused_as_in_redis() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    let before = value(&mut client, "maxclients");
    let set = "CONFIG SET maxmemory-policy allkeys-lru maxclients 4000000000";
    let Reply::Error(refused) = client.line(set) else {
        panic!("nobody has so many descriptors");
    };
    let (words, possible) = refused.rsplit_once(' ').unwrap();
    assert_eq!(
        words,
        "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able to handle \
         the specified number of clients, try with"
    );
    assert_eq!(value(&mut client, "maxclients"), before);
    assert_eq!(value(&mut client, "maxmemory-policy"), "noeviction");
    let set = format!("CONFIG SET maxclients {possible}");
    assert_eq!(client.line(&set), Reply::ok());
    assert_eq!(value(&mut client, "maxclients"), possible);
}

/// A server with a configuration file that is removed at the end of the test.
struct Configured {
    path: PathBuf,
    running: Running,
}

impl Configured {
    /// `words` may contain SOCKET for the path of the unix socket.
    fn new(test: &str, words: &str) -> Self {
        let name = format!("mneme-configured-{}-{test}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let socket = path.with_extension("sock");
        let words = words.replace("SOCKET", &socket.display().to_string());
        std::fs::write(&path, words + "threads = 1\nmemory = \"64mb\"\n").unwrap();
        let mut settings = Settings::default();
        settings.read(&path).unwrap();
        let running = Server::builder().settings(settings).start().unwrap();
        Self { path, running }
    }

    /// The answer over the unix socket to these lines, up to the end of the connection.
    fn said(&self, lines: &str) -> String {
        use std::io::{Read as _, Write as _};
        let socket = self.path.with_extension("sock");
        let mut client = std::os::unix::net::UnixStream::connect(socket).unwrap();
        client
            .write_all(format!("{lines}QUIT\r\n").as_bytes())
            .unwrap();
        let mut replies = String::new();
        client.read_to_string(&mut replies).unwrap();
        replies
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A port that the system has chosen is shown, and not written for the next start.
#[test]
fn a_free_port_is_shown_and_not_written() {
    let server = Configured::new("free", "port = 0\nunixsocket = \"SOCKET\"\n");
    let before = server.text();
    let port = server.running.addresses()[0].port().to_string();
    let answer = server.said("CONFIG GET port\r\nCONFIG REWRITE\r\n");
    assert!(answer.contains(&format!("\r\n{port}\r\n+OK")), "{answer}");
    assert_eq!(server.text(), before);
}

#[test]
fn a_server_without_addresses_has_no_port() {
    let words = "port = 7000\nbind = \"\"\nunixsocket = \"SOCKET\"\n";
    let server = Configured::new("unix", words);
    let before = server.text();
    assert!(server.running.addresses().is_empty());
    let answer = server.said("CONFIG GET port\r\nCONFIG GET bind\r\nCONFIG REWRITE\r\n");
    assert!(answer.contains("$4\r\nport\r\n$1\r\n0\r\n"), "{answer}");
    assert!(answer.contains("$4\r\nbind\r\n$0\r\n\r\n+OK"), "{answer}");
    assert_eq!(server.text(), before);
}

/// `192.0.2.1` is in a range that no machine has.
#[test]
fn an_address_that_need_not_be_there_is_left_out() {
    let server = Configured::new("optional", "port = 0\nbind = \"127.0.0.1 -192.0.2.1\"\n");
    let [address] = server.running.addresses() else {
        panic!("{:?}", server.running.addresses());
    };
    let mut client = Client::connect(*address);
    assert_eq!(value(&mut client, "bind"), "127.0.0.1 -192.0.2.1");
    let must = Server::builder().port(0).memory(64 << 20);
    let must = must
        .set(mneme_server::settings::Key::Bind, "127.0.0.1 192.0.2.1")
        .unwrap();
    assert!(must.start().is_err());
}

#[test]
fn a_setting_is_read_and_set_by_its_alias() {
    let server = Configured::new("alias", "port = 0\n");
    let mut client = Client::connect(server.running.addresses()[0]);
    let bytes = (64 << 20).to_string();
    let pair = |name: &str, value: &str| vec![Reply::bulk(name), Reply::bulk(value)];
    let get = client.line("CONFIG GET Memory THREADS");
    let both = [pair("Memory", &bytes), pair("THREADS", "1")].concat();
    assert_eq!(get, Reply::Array(both));
    // Each setting is shown once, in any case of letters; patterns match the main names only.
    let get = client.line("CONFIG GET maxmemory MAXMEMORY *xmemory memory");
    let both = [pair("maxmemory", &bytes), pair("memory", &bytes)].concat();
    assert_eq!(get, Reply::Array(both));
    for refused in ["memory 1mb", "memory 70mb maxmemory 70mb"] {
        let reply = client.line(&format!("CONFIG SET {refused}")).text();
        assert!(reply.contains("argument 'm"), "{reply}");
    }
    assert_eq!(client.line("CONFIG SET memory 66mb"), Reply::ok());
    assert_eq!(client.line("CONFIG REWRITE"), Reply::ok());
    let text = server.text();
    assert!(text.contains("memory = 69206016"), "{text}");
    assert!(!text.contains("maxmemory"), "{text}");
}

/// Compares the names and the order of the flags of keys, for every command.
#[test]
fn keys_are_described_as_in_redis() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let mut ours = Client::connect(address);
    let mut theirs = Client::connect(redis.address);
    let specs = |client: &mut Client, name: &str| {
        let described = client.command(&["COMMAND", "INFO", name]);
        match described.items() {
            [Reply::Array(fields)] => Some(fields[8].clone()),
            _ => None,
        }
    };
    let mut compared = 0;
    for name in ours.line("COMMAND LIST").items() {
        let name = name.text();
        if let Some(described) = specs(&mut theirs, &name) {
            assert_eq!(specs(&mut ours, &name), Some(described), "{name}");
            compared += 1;
        }
    }
    assert!(compared > 90, "{compared}");
}

/// The configuration files shown in the documentation are valid.
#[test]
fn the_documented_files_are_valid() {
    for page in ["coming-from-redis.md", "guides/operating.md"] {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/");
        let text = std::fs::read_to_string(format!("{docs}{page}")).unwrap();
        let (_, block) = text.split_once("```toml\n").unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let name = format!("mneme-documented-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, block).unwrap();
        let taken = Settings::default().read(&path);
        std::fs::remove_file(&path).unwrap();
        taken.unwrap_or_else(|error| panic!("{page}: {error}"));
    }
}
