//! Redis' own tools and a client library used with the server. If one is not installed, its test is
//! skipped, with a message on the terminal.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::common::{Client, Redis, Reply, server, start};

fn tool(name: &str, address: SocketAddr, arguments: &[&str]) -> Option<String> {
    let port = address.port().to_string();
    let output = match Command::new(name)
        .args(["-p", &port])
        .args(arguments)
        .output()
    {
        Ok(output) => output,
        Err(error) => {
            eprintln!("skipped: {name}: {error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{name} {arguments:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(text)
}

#[test]
fn redis_cli_works_with_the_server() {
    let (_running, address) = start(server());
    for (arguments, expected) in [
        (&["set", "greeting", "hello"][..], "OK\n"),
        (&["get", "greeting"], "hello\n"),
        (&["incr", "visits"], "1\n"),
        (&["-3", "mget", "greeting", "nothing"], "hello\n\n"),
        (&["--scan", "--pattern", "greet*"], "greeting\n"),
        (&["-n", "3", "dbsize"], "0\n"),
    ] {
        let Some(text) = tool("redis-cli", address, arguments) else {
            return;
        };
        assert_eq!(text, expected, "{arguments:?}");
    }
    let info = tool("redis-cli", address, &["info", "server"]).unwrap();
    assert!(info.contains("mneme_version:"));
}

/// There are two keys of each type, one of which is the larger.
#[test]
fn redis_cli_finds_the_largest_keys_of_all_types() {
    let fill = |address| {
        let mut client = Client::connect(address);
        for line in [
            "SET short v",
            "SET string a-longer-value",
            "RPUSH list a b c",
            "RPUSH short-list a",
            "HSET hash a 1 b 2 c 3 d 4",
            "HSET short-hash a 1",
            "SADD set a b",
            "SADD short-set 1",
            "ZADD sorted-set 1 a 2 b 3 c",
            "ZADD short-sorted-set 1 a",
        ] {
            client.line(line);
        }
    };
    // Its report after it has read all keys, in whichever order.
    let summary = |address, option| -> Option<Vec<String>> {
        let text = tool("redis-cli", address, &[option])?;
        let (_, summary) = text.split_once("summary").expect("a summary");
        let mut lines: Vec<String> = summary.lines().map(String::from).collect();
        lines.sort_unstable();
        Some(lines)
    };
    let (_running, address) = start(server());
    fill(address);
    let Some(largest) = summary(address, "--bigkeys") else {
        return;
    };
    let memory = summary(address, "--memkeys").unwrap().concat();
    for kind in ["string", "list", "hash", "set", "zset"] {
        assert!(memory.contains(&format!("2 {kind}s with ")), "{memory}");
    }
    let Some(redis) = Redis::start() else { return };
    fill(redis.address);
    assert_eq!(Some(largest), summary(redis.address, "--bigkeys"));
}

#[test]
fn redis_cli_inserts_in_bulk() {
    let (_running, address) = start(server());
    let commands: String = (0..10_000)
        .map(|i| format!("SET key:{i} {i}\r\n"))
        .collect();
    let path = std::env::temp_dir().join(format!("mneme-pipe-{}", std::process::id()));
    std::fs::write(&path, commands).unwrap();
    let child = Command::new("redis-cli")
        .args(["-p", &address.port().to_string(), "--pipe"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output();
    std::fs::remove_file(&path).unwrap();
    match child {
        Err(error) => eprintln!("skipped: redis-cli: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("errors: 0, replies: 10000"), "{text}");
            assert_eq!(
                Client::connect(address).line("DBSIZE"),
                Reply::Integer(10_000)
            );
        }
    }
}

/// Sends the commands of `docs/guides/job-queue.md`, in their order, over one connection.
#[test]
fn the_guide_to_job_queues_shows_what_redis_cli_prints() {
    const PROMPT: &str = "127.0.0.1:6379> ";
    let (_running, address) = start(server());
    let guide = include_str!("../../../../docs/guides/job-queue.md");
    let blocks = guide.split("```text\n").skip(1);
    let session: String = blocks
        .filter_map(|block| block.split("```").next())
        .collect();
    let commands = session.lines().filter_map(|line| line.strip_prefix(PROMPT));
    let commands: String = commands.map(|line| format!("{line}\n")).collect();
    let printed = session.lines().filter(|line| !line.starts_with(PROMPT));
    let printed: String = printed.map(|line| format!("{line}\n")).collect();
    let child = Command::new("redis-cli")
        .args(["--no-raw", "-p", &address.port().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return eprintln!("skipped: redis-cli: {error}"),
    };
    let mut input = child.stdin.take().unwrap();
    input.write_all(commands.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), printed);
}

#[test]
fn redis_benchmark_runs_through() {
    let (_running, address) = start(server());
    let arguments = [
        "-q",
        "-n",
        "2000",
        "-P",
        "16",
        "-r",
        "100",
        "-t",
        "ping,set,get,incr,mset",
    ];
    let Some(text) = tool("redis-benchmark", address, &arguments) else {
        return;
    };
    for name in [
        "PING_INLINE",
        "PING_MBULK",
        "SET",
        "GET",
        "INCR",
        "MSET (10 keys)",
    ] {
        assert!(text.contains(&format!("{name}: ")), "{text}");
    }
    assert!(!text.contains("rror"), "{text}");
}

#[test]
fn programs_with_redis_py_run() {
    let (_running, address) = start(server());
    programs_with_redis_py(address, &[]);
}

/// Runs `redis_py.py` with a server: over TLS with an authority, a certificate and a key.
pub fn programs_with_redis_py(address: SocketAddr, files: &[&str]) {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/redis_py.py");
    // The system's Python, which has the system's packages.
    let python = |arguments: &[&str]| Command::new("/usr/bin/python3").args(arguments).output();
    let there = python(&["-c", "import redis"]);
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no redis-py for /usr/bin/python3");
        return;
    }
    let port = address.port().to_string();
    let output = python(&[&[program, &port], files].concat()).unwrap();
    let [said, failed] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(
        output.status.success() && said == "done\n",
        "{said}{failed}"
    );
}

/// The program on the page "Coming from Redis" copies bytes unchanged, and keeps the expiry of
/// keys.
#[test]
fn strings_and_hashes_are_copied_from_redis_as_the_documentation_says() {
    let Some(redis) = Redis::start() else { return };
    let python = || Command::new("/usr/bin/python3");
    let there = python().args(["-c", "import redis"]).output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no redis-py for /usr/bin/python3");
        return;
    }
    let (_running, address) = start(server());
    let mut theirs = Client::connect(redis.address);
    let binary: Vec<u8> = (0..=255).collect();
    let key = |n: usize| [format!("key:{n}:").as_bytes(), &binary].concat();
    for n in 0..1000 {
        let value = binary.repeat(n % 50);
        theirs.command(&[&b"SET"[..], &key(n), &value]);
    }
    let hour = 3_600_000;
    for n in 0..500 {
        let time = (hour + n as i64).to_string();
        theirs.command(&[&b"PEXPIRE"[..], &key(n), time.as_bytes()]);
    }
    theirs.line("RPUSH list a");
    theirs.command(&[&b"HSET"[..], b"hash", &binary, b"1", b"f", &binary]);
    theirs.command(&[&b"SADD"[..], b"set", &binary, b"1"]);
    // In a database that is not copied.
    theirs.line("SELECT 1");
    theirs.line("SET elsewhere 1");

    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/coming-from-redis.md"
    );
    let page = std::fs::read_to_string(page).unwrap();
    let (_, program) = page.split_once("```python\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let [from, to] = [redis.address, address].map(|at| format!("redis://{at}/0"));
    let output = python().args(["-c", program, &from, &to]).output().unwrap();
    let [said, failed] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{failed}");
    assert_eq!(said, "1002 copied, 1 of other types were left out\n");

    let mut ours = Client::connect(address);
    assert_eq!(ours.line("DBSIZE"), Reply::Integer(1002));
    let copied = ours.command(&[&b"HGET"[..], b"hash", b"f"]);
    assert_eq!(copied, Reply::bulk(binary.clone()));
    let copied = ours.command(&[&b"HGET"[..], b"hash", &binary]);
    assert_eq!(copied, Reply::bulk(b"1"));
    let copied = ours.command(&[&b"SMISMEMBER"[..], b"set", &binary, b"1", b"2"]);
    assert_eq!(copied, Reply::Array([1, 1, 0].map(Reply::Integer).into()));
    for n in 0..1000 {
        let value = ours.command(&[&b"GET"[..], &key(n)]);
        assert_eq!(value, Reply::bulk(binary.repeat(n % 50)));
        let left = match ours.command(&[&b"PTTL"[..], &key(n)]) {
            Reply::Integer(left) => left,
            other => panic!("{other:?}"),
        };
        let is_kept = match n < 500 {
            true => (1..=hour + n as i64).contains(&left),
            false => left == -1,
        };
        assert!(is_kept, "{n}: {left}");
    }
}

/// The page "Coming from Redis" lists every command of Redis that is missing here, by its own name
/// or its family's.
#[test]
fn missing_commands_are_listed_in_the_documentation() {
    let Some(redis) = Redis::start() else { return };
    let (_running, address) = start(server());
    let known = |address| {
        let list = Client::connect(address).line("COMMAND LIST");
        let names: Vec<String> = list.items().iter().map(Reply::text).collect();
        names
    };
    let ours = known(address);
    let mut client = Client::connect(redis.address);
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/coming-from-redis.md"
    );
    let page = std::fs::read_to_string(path).unwrap();
    let (_, absent) = page.split_once("\n## Absent\n").unwrap();
    for name in known(redis.address) {
        if ours.contains(&name) || name.contains('|') {
            continue;
        }
        let docs = client.line(&format!("COMMAND DOCS {name}"));
        let about = docs.items()[1].items();
        let place = about.iter().position(|one| *one == Reply::bulk("group"));
        let chapter = match &about[place.unwrap() + 1].text()[..] {
            "list" => "lists",
            "hash" => "hashes",
            "set" => "sets",
            "sorted-set" => "sorted sets",
            "stream" => "streams",
            "geo" => "geographical",
            "hyperloglog" => "HyperLogLog",
            "pubsub" => "Pub/sub",
            "scripting" => "Scripts",
            "cluster" => "cluster",
            _ => "",
        };
        let is_named = absent.contains(&format!("`{}`", name.to_ascii_uppercase()));
        assert!(
            is_named || !chapter.is_empty() && absent.contains(chapter),
            "{name}"
        );
    }
}
