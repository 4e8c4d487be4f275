//! Users and their permissions.

use std::sync::atomic::{AtomicBool, Ordering};

use mneme_server::settings::Key;
use mneme_testkit::{TestDir, make_pipe, setting};

use super::common::{Client, Reply, encode, info, server, start};

fn error(reply: &Reply) -> String {
    match reply {
        Reply::Error(text) => text.clone(),
        other => panic!("{other:?} is no error"),
    }
}

const DENIED_KEY: &str =
    "NOPERM this user has no permissions to access one of the keys used as arguments";

/// A field of the newest event of `ACL LOG`.
fn logged(client: &mut Client, field: &str) -> String {
    let log = client.line("ACL LOG 1");
    let event = log.items()[0].items().to_vec();
    let at = event.iter().position(|one| *one == Reply::bulk(field));
    match &event[at.unwrap() + 1] {
        Reply::Integer(number) => number.to_string(),
        other => other.text(),
    }
}

#[test]
fn a_restricted_user_is_denied_alone_and_in_pipelines() {
    let (_running, address) = start(server());
    let [mut admin, mut user] = [0; 2].map(|_| Client::connect(address));
    admin.line("ACL SETUSER app on >secret ~app:* %R~shared:* +@read +@write +@connection");
    assert_eq!(admin.line("SET shared:x 1"), Reply::ok());
    assert!(error(&user.line("AUTH app wrong")).starts_with("WRONGPASS"));
    assert_eq!(user.line("AUTH app secret"), Reply::ok());
    assert_eq!(user.line("GET shared:x"), Reply::bulk("1"));
    assert_eq!(error(&user.line("SET shared:x 2")), DENIED_KEY);
    assert_eq!(
        error(&user.line("CONFIG GET port")),
        "NOPERM this user has no permissions to run the 'config|get' command"
    );
    // A batch of GETs and one of SETs, each with a denied command in the middle.
    let lines = [
        "SET app:1 a",
        "SET app:2 b",
        "SET other c",
        "SET app:3 d",
        "GET app:1",
        "GET other",
        "GET shared:x",
        "GET app:3",
    ];
    let pipeline: Vec<u8> = lines
        .iter()
        .flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>()))
        .collect();
    user.send(&pipeline);
    let replies: Vec<Reply> = lines.iter().map(|_| user.reply()).collect();
    let denied = Reply::Error(DENIED_KEY.into());
    let ok = Reply::ok();
    let expected = [
        ok.clone(),
        ok.clone(),
        denied.clone(),
        ok,
        Reply::bulk("a"),
        denied,
        Reply::bulk("1"),
        Reply::bulk("d"),
    ];
    assert_eq!(replies, expected);
    assert_eq!(admin.line("EXISTS other"), Reply::Integer(0));
    assert_eq!(logged(&mut admin, "object"), "other");
    assert_eq!(logged(&mut admin, "reason"), "key");
    assert_eq!(logged(&mut admin, "username"), "app");
    assert_eq!(logged(&mut admin, "count"), "2");
    assert!(logged(&mut admin, "client-info").contains("user=app"));
}

#[test]
fn a_queued_command_is_checked_by_the_rules_at_its_execution() {
    let (_running, address) = start(server());
    let [mut admin, mut user] = [0; 2].map(|_| Client::connect(address));
    admin.line("ACL SETUSER app on nopass allkeys +@all");
    user.line("AUTH app x");
    user.line("MULTI");
    assert_eq!(user.line("SET a 1"), Reply::Simple("QUEUED".into()));
    assert_eq!(user.line("GET b"), Reply::Simple("QUEUED".into()));
    assert_eq!(admin.line("ACL SETUSER app resetkeys ~b"), Reply::ok());
    let replies = user.line("EXEC");
    assert!(error(&replies.items()[0]).contains("no permission to touch the specified keys"));
    assert_eq!(replies.items()[1], Reply::Null);
    assert_eq!(admin.line("EXISTS a"), Reply::Integer(0));
    assert_eq!(logged(&mut admin, "context"), "multi");
    // It is denied at once, and so the transaction fails.
    user.line("MULTI");
    assert_eq!(error(&user.line("SET a 1")), DENIED_KEY);
    assert!(error(&user.line("EXEC")).starts_with("EXECABORT"));
    // Here the transaction itself changes the rules.
    admin.line("ACL SETUSER app allkeys");
    for line in ["MULTI", "SET a 1", "ACL SETUSER app -set", "SET a 2"] {
        user.line(line);
    }
    let replies = user.line("EXEC");
    assert_eq!(replies.items()[..2], [Reply::ok(), Reply::ok()]);
    assert!(error(&replies.items()[2]).contains("no permission to execute the command"));
    assert_eq!(admin.line("GET a"), Reply::bulk("1"));
}

/// Writers on both threads send pipelines without a pause. After each reply to a change of rules,
/// the test reads how far they have got; nothing may be written after that.
#[test]
fn a_rule_takes_effect_with_its_reply() {
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    admin.line("ACL SETUSER app on nopass ~* +incr +client");
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let stops = &stops;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                client.line("AUTH app x");
                let key = format!("count{writer}");
                let pipeline = encode(&["INCR", &key]).repeat(50);
                while !stops.load(Ordering::Relaxed) {
                    client.send(&pipeline);
                    for _ in 0..50 {
                        client.reply();
                    }
                }
            });
        }
        let counts = |admin: &mut Client| admin.line("MGET count0 count1 count2 count3");
        for _ in 0..200 {
            admin.line("ACL SETUSER app -incr");
            let before = counts(&mut admin);
            let after = counts(&mut admin);
            if before != after {
                stops.store(true, Ordering::Relaxed);
            }
            assert_eq!(before, after);
            admin.line("ACL SETUSER app +incr");
        }
        stops.store(true, Ordering::Relaxed);
    });
}

/// Each user has a client, and each rule is changed again and again: the client's next command
/// after the reply is judged by the new rules. `MNEME_LADDER_CONNECTIONS=9000` makes a million
/// commands of it.
#[test]
fn none_of_many_clients_is_judged_by_old_rules() {
    let count = setting("MNEME_LADDER_CONNECTIONS").map_or(300, |count| count.min(9_000) as usize);
    let rounds = if count > 1000 {
        1_000_000 / count + 1
    } else {
        10
    };
    mneme_sys::allow_open_files(2 * count as u64 + 500).unwrap();
    let (_running, address) = start(server().threads(2));
    let mut admin = Client::connect(address);
    let mut clients: Vec<Client> = (0..count)
        .map(|number| {
            admin.line(&format!(
                "ACL SETUSER u{number} on nopass ~own:{number}:* +@all"
            ));
            let mut client = Client::connect(address);
            assert_eq!(client.line(&format!("AUTH u{number} x")), Reply::ok());
            client
        })
        .collect();
    for round in 0..rounds {
        // So many rules change at once, and all clients that they concern send at once.
        for first in (0..count).step_by(100) {
            let group = first..count.min(first + 100);
            let rule = if round % 2 == 0 { "-get" } else { "+get" };
            let change = |number| encode(&["ACL", "SETUSER", &format!("u{number}"), rule]);
            admin.send(&group.clone().flat_map(change).collect::<Vec<u8>>());
            for number in group.clone() {
                assert_eq!(admin.reply(), Reply::ok());
                clients[number].send(&encode(&["GET", &format!("own:{number}:key")]));
            }
            for client in &mut clients[group] {
                match client.reply() {
                    Reply::Null => assert_eq!(rule, "+get"),
                    refused => {
                        assert!(error(&refused).starts_with("NOPERM"));
                        assert_eq!(rule, "-get");
                    }
                }
            }
        }
    }
}

/// A command that needs an exclusive section was permitted by the old rules, and waits behind a
/// change of rules that needs one too. It is checked again after the change.
#[test]
fn a_rule_takes_effect_for_commands_that_wait_for_the_change() {
    let (_running, address) = start(server().threads(4));
    let mut admin = Client::connect(address);
    admin.line("ACL SETUSER app on nopass ~* +flushall +client");
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let stops = &stops;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                client.line("AUTH app x");
                let pipeline = encode(&["FLUSHALL"]).repeat(5);
                while !stops.load(Ordering::Relaxed) {
                    client.send(&pipeline);
                    for _ in 0..5 {
                        client.reply();
                    }
                }
            });
        }
        let is_kept = (0..200).all(|_| {
            admin.line("ACL SETUSER app -flushall");
            admin.line("SET key value");
            let is_kept = (0..3).all(|_| admin.line("EXISTS key") == Reply::Integer(1));
            admin.line("ACL SETUSER app +flushall");
            is_kept
        });
        stops.store(true, Ordering::Relaxed);
        assert!(is_kept, "a command was executed that is not permitted");
    });
}

/// A client that waits for a key is checked again when it is woken, and then the next one is
/// served.
#[test]
fn a_waiting_client_that_has_lost_its_key_is_refused() {
    let (_running, address) = start(server().threads(2));
    let [mut admin, mut first, mut second] = [0; 3].map(|_| Client::connect(address));
    for command in ["BLPOP list", "BLMOVE list app:to LEFT LEFT"] {
        admin.line("ACL SETUSER app on nopass ~list ~app:* +@all");
        admin.line("ACL SETUSER gone on nopass ~list +@all");
        let waits = |client: &mut Client, waiting: u64| {
            client.send(&encode(
                &format!("{command} 0").split(' ').collect::<Vec<_>>(),
            ));
            let mut reader = Client::connect(address);
            while info(&mut reader, "blocked_clients") < waiting {}
        };
        first.line("AUTH app x");
        waits(&mut first, 1);
        let mut gone = Client::connect(address);
        gone.line("AUTH gone x");
        gone.send(&encode(&["BLPOP", "list", "0"]));
        waits(&mut second, 3);
        admin.line("ACL SETUSER app resetkeys ~app:*");
        admin.line("ACL DELUSER gone");
        assert_eq!(gone.try_reply(), None);
        assert_eq!(admin.line("RPUSH list item"), Reply::Integer(1));
        assert_eq!(error(&first.reply()), DENIED_KEY);
        assert!(!matches!(second.reply(), Reply::Error(_) | Reply::Null));
        assert_eq!(admin.line("LLEN list"), Reply::Integer(0));
    }
}

/// A command takes the last `STORE`, and Redis checks the first.
#[test]
fn every_key_that_a_command_may_store_to_is_checked() {
    let (_running, address) = start(server());
    let [mut admin, mut user] = [0; 2].map(|_| Client::connect(address));
    admin.line("ACL SETUSER app on nopass ~app:* ~*STORE* +@all");
    for key in ["app:places", "secret:places"] {
        assert_eq!(
            admin.line(&format!("GEOADD {key} 13.4 52.5 berlin")),
            Reply::Integer(1)
        );
    }
    user.line("AUTH app x");
    for (around, options) in [
        (
            "GEORADIUS app:places 13 52 900 km",
            "STORE app:x STORE secret",
        ),
        (
            "GEORADIUS app:places 13 52 900 km",
            "STORE app:x STOREDIST app:y STORE secret",
        ),
        (
            "GEORADIUS app:places 13 52 900 km",
            "STOREDIST STORE STORE secret",
        ),
        (
            "GEORADIUS app:places 13 52 900 km",
            "STORE STOREDIST STOREDIST secret",
        ),
        ("GEORADIUS secret:places 13 52 900 km", "STOREDIST STORE"),
        ("GEORADIUS secret:places 13 52 900 km", "STORE STOREDIST"),
        (
            "GEORADIUSBYMEMBER app:places berlin 9 km",
            "STORE app:x STORE secret",
        ),
        (
            "GEORADIUSBYMEMBER secret:places berlin 9 km",
            "STOREDIST STORE",
        ),
    ] {
        let call = format!("{around} {options}");
        assert_eq!(error(&user.line(&call)), DENIED_KEY, "{call}");
    }
    let call = "GEORADIUS app:places 13 52 900 km STORE app:x STORE app:y";
    assert_eq!(user.line(call), Reply::Integer(1));
    assert_eq!(admin.line("EXISTS secret app:x app:y"), Reply::Integer(1));
}

#[test]
fn clients_of_a_deleted_user_are_disconnected() {
    let (_running, address) = start(server());
    let [mut admin, mut user, mut own] = [0; 3].map(|_| Client::connect(address));
    admin.line("ACL SETUSER app on nopass +@all");
    user.line("AUTH app x");
    own.line("AUTH app x");
    assert!(admin.line("CLIENT LIST").text().contains("user=app"));
    // One of them deletes its own user, and gets the reply.
    assert_eq!(own.line("ACL DELUSER app"), Reply::Integer(1));
    assert_eq!(own.try_reply(), None);
    assert_eq!(user.try_reply(), None);
    assert_eq!(admin.line("PING"), Reply::Simple("PONG".into()));
    admin.line("ACL SETUSER app on nopass +@all");
    let mut user = Client::connect(address);
    user.line("AUTH app x");
    assert_eq!(admin.line("CLIENT KILL USER app"), Reply::Integer(1));
    assert_eq!(user.try_reply(), None);
}

#[test]
fn the_default_users_password_is_requirepass() {
    let (_running, address) = start(server().password("first"));
    let mut client = Client::connect(address);
    assert!(error(&client.line("PING")).starts_with("NOAUTH"));
    assert_eq!(client.line("AUTH first"), Reply::ok());
    assert_eq!(client.line("CONFIG SET requirepass second"), Reply::ok());
    let mut other = Client::connect(address);
    assert!(error(&other.line("AUTH first")).starts_with("WRONGPASS"));
    assert_eq!(other.line("AUTH default second"), Reply::ok());
    // A further password, set by a rule only.
    client.line("ACL SETUSER default >third");
    assert_eq!(Client::connect(address).line("AUTH third"), Reply::ok());
    // When no password is needed any more, connections from before need none either.
    let mut waiting = Client::connect(address);
    assert!(error(&waiting.line("PING")).starts_with("NOAUTH"));
    client.command(&["CONFIG", "SET", "requirepass", ""]);
    assert_eq!(waiting.line("PING"), Reply::Simple("PONG".into()));
    client.line("ACL SETUSER default off");
    assert!(error(&Client::connect(address).line("PING")).starts_with("NOAUTH"));
}

#[test]
fn a_client_that_tries_passwords_is_disconnected() {
    let (_running, address) = start(server().password("secret"));
    let mut client = Client::connect(address);
    let wrong = |client: &mut Client| {
        let reply = error(&client.line("AUTH wrong"));
        assert!(reply.starts_with("WRONGPASS"), "{reply}");
    };
    // The right password resets the count; RESET does not.
    (0..19).for_each(|_| wrong(&mut client));
    assert_eq!(client.line("AUTH secret"), Reply::ok());
    (0..10).for_each(|_| wrong(&mut client));
    client.line("RESET");
    (0..10).for_each(|_| wrong(&mut client));
    assert_eq!(client.try_reply(), None);
}

#[test]
fn a_file_of_users_is_loaded_completely_or_not_at_all() {
    let directory = TestDir::new("acl");
    let path = directory.path().join("users.acl");
    let write = |text: &str| std::fs::write(&path, text).unwrap();
    let with_file = || server().set(Key::AclFile, path.to_str().unwrap()).unwrap();
    write("user alice on nopass ~* +@all\n\nuser bob on >pw +lpush (~a* +get)\n");
    let (running, address) = start(with_file().password("secret"));
    let mut alice = Client::connect(address);
    // A default user that is not in the file keeps its password.
    assert!(error(&alice.line("PING")).starts_with("NOAUTH"));
    assert_eq!(alice.line("AUTH alice x"), Reply::ok());
    write("user alice on nopass ~* +@all\nuser carol on +nope\nnonsense\nuser alice off\n");
    let refused = error(&alice.line("ACL LOAD"));
    for part in [
        ":2: Error in applying operation '+nope'",
        ":3 should start",
        "Duplicate user 'alice'",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(alice.line("ACL WHOAMI"), Reply::bulk("alice"));
    let names = |client: &mut Client| {
        let users = client.line("ACL USERS");
        users.items().iter().map(Reply::text).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut alice), ["alice", "bob", "default"]);
    alice.line("ACL SETUSER dave on nopass +ping");
    // As in Redis, a user's name may be empty.
    alice.command(&["ACL", "SETUSER", "", "on", "nopass", "~a"]);
    let list = alice.line("ACL LIST");
    assert_eq!(alice.line("ACL SAVE"), Reply::ok());
    assert_eq!(alice.line("ACL LOAD"), Reply::ok());
    assert_eq!(alice.try_reply(), None, "its user is another one now");
    let mut alice = Client::connect(address);
    alice.line("AUTH alice x");
    assert_eq!(alice.line("ACL LIST"), list);
    // A pipe into which nobody writes.
    std::fs::remove_file(&path).unwrap();
    make_pipe(&path);
    let refused = error(&alice.line("ACL LOAD"));
    assert!(refused.contains("not a file"), "{refused}");
    assert_eq!(alice.line("ACL LIST"), list);
    drop(running);
    let refused = with_file().start().err().unwrap().to_string();
    assert!(refused.contains("not a file"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    write("user alice on %X~a");
    let refused = with_file().start().err().unwrap().to_string();
    assert!(refused.contains(":1: Syntax error"), "{refused}");
}

/// Uses the file shown in `docs/guides/operating.md`.
/// A file of so many users that clients do much while it is loaded.
fn large_file(directory: &TestDir, more: &str) -> std::path::PathBuf {
    let path = directory.path().join("users.acl");
    let user = |number: usize| {
        format!("user u{number} on >pw{number} ~app{number}:* +@read +@write -@dangerous\n")
    };
    let users: String = (0..3000).map(user).collect();
    std::fs::write(&path, users + more).unwrap();
    path
}

fn has_user(client: &mut Client, name: &str) -> bool {
    client.line(&format!("ACL GETUSER {name}")) != Reply::Null
}

/// A user that is set before the load is lost with it, and not saved then. One that was saved is
/// not lost by a load whose file was read before.
#[test]
fn users_that_are_saved_while_the_file_is_loaded_are_kept() {
    let directory = TestDir::new("acl-load");
    let path = large_file(&directory, "user default on nopass ~* &* +@all\n");
    let with_file = server().set(Key::AclFile, path.to_str().unwrap()).unwrap();
    let (_running, address) = start(with_file.threads(2));
    let [mut loads, mut other] = [0; 2].map(|_| Client::connect(address));
    for round in 0..10 {
        let name = format!("saved{round}");
        loads.send(&encode(&["ACL", "LOAD"]));
        let set = format!("ACL SETUSER {name} on nopass +ping");
        assert_eq!(other.line(&set), Reply::ok());
        match round % 2 {
            0 => assert_eq!(other.line("ACL SAVE"), Reply::ok()),
            _ => {
                other.line("MULTI");
                other.line("ACL SAVE");
                other.line("ACL LOAD");
                let ok = Reply::Array(vec![Reply::ok(), Reply::ok()]);
                assert_eq!(other.line("EXEC"), ok);
            }
        }
        // What the client sends behind it is done after it.
        let last = format!("last{round}");
        loads.send(&encode(&["ACL", "SETUSER", &last, "on"]));
        assert_eq!([loads.reply(), loads.reply()], [Reply::ok(), Reply::ok()]);
        assert!(has_user(&mut other, &last), "{last}");
        let file = std::fs::read_to_string(&path).unwrap();
        let is_saved = file.contains(&format!("user {name} "));
        assert_eq!(has_user(&mut other, &name), is_saved, "{name}");
    }
}

#[test]
fn a_load_goes_on_without_its_client() {
    let directory = TestDir::new("acl-left");
    let more = "user default on nopass ~* &* +@all\nuser own on nopass +@all\n";
    let path = large_file(&directory, more);
    let with_file = server().set(Key::AclFile, path.to_str().unwrap()).unwrap();
    let (running, address) = start(with_file.threads(2));
    let mut other = Client::connect(address);
    for _ in 0..5 {
        other.line("ACL DELUSER u7");
        let mut leaves = Client::connect(address);
        leaves.send(&encode(&["ACL", "LOAD"]));
        // It was begun.
        while !other.line("CLIENT LIST").text().contains("cmd=acl|load") {}
        drop(leaves);
        while !has_user(&mut other, "u7") {}
    }
    // A client whose user another removes meanwhile. It may get its reply first.
    let mut own = Client::connect(address);
    own.line("AUTH own x");
    own.send(&encode(&["ACL", "LOAD"]));
    other.line("ACL DELUSER own");
    while own.try_reply().is_some() {}
    // The file has this user again, unless the removal was later.
    assert_eq!(other.line("ACL LOAD"), Reply::ok());
    assert!(has_user(&mut other, "own"));
    // It is closed as one of a user that the file may change, behind its reply.
    let mut own = Client::connect(address);
    own.line("AUTH own x");
    assert_eq!(own.line("ACL LOAD"), Reply::ok());
    assert_eq!(own.try_reply(), None);
    other.send(&encode(&["ACL", "LOAD"]));
    Client::connect(address).send(&encode(&["SHUTDOWN"]));
    running.join().unwrap();
}

/// As `a_rule_takes_effect_with_its_reply`, with rules from a file.
#[test]
fn the_rules_of_a_file_take_effect_with_its_reply() {
    let directory = TestDir::new("acl-effect");
    let path = directory.path().join("users.acl");
    let write = |rules: &str| {
        let admin = "user admin on nopass ~* &* +@all";
        std::fs::write(&path, format!("user default on nopass {rules}\n{admin}\n")).unwrap();
    };
    write("~* &* +@all");
    let with_file = server().set(Key::AclFile, path.to_str().unwrap()).unwrap();
    let (_running, address) = start(with_file.threads(2));
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let stops = &stops;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let key = format!("count{writer}");
                let pipeline = encode(&["INCR", &key]).repeat(50);
                while !stops.load(Ordering::Relaxed) {
                    client.send(&pipeline);
                    for _ in 0..50 {
                        client.reply();
                    }
                }
            });
        }
        let admin = || {
            let mut admin = Client::connect(address);
            admin.line("AUTH admin x");
            admin
        };
        let counts = |admin: &mut Client| admin.line("MGET count0 count1 count2 count3");
        let holds = (0..100).all(|_| {
            write("~* &* +@all -incr");
            let (mut loads, mut reads) = (admin(), admin());
            // It closes the connections of all users but the default one.
            assert_eq!(loads.line("ACL LOAD"), Reply::ok());
            assert_eq!(reads.try_reply(), None);
            let mut reads = admin();
            let before = counts(&mut reads);
            let holds = counts(&mut reads) == before;
            write("~* &* +@all");
            reads.line("ACL LOAD");
            holds
        });
        stops.store(true, Ordering::Relaxed);
        assert!(holds, "a command was executed that is not permitted");
    });
}

/// If each rule were compared with all others, every reply would take minutes here.
#[test]
fn the_cost_of_a_rule_does_not_depend_on_the_number_of_others() {
    const RULES: usize = 200_000;
    let (_running, address) = start(server());
    let mut admin = Client::connect(address);
    let set = |admin: &mut Client, rule: &dyn Fn(usize) -> String| {
        let mut words: Vec<String> = ["ACL", "SETUSER", "app"].map(String::from).to_vec();
        words.extend((0..RULES).map(rule));
        // A repeated rule changes nothing.
        words.push(rule(0));
        assert_eq!(admin.command(&words), Reply::ok());
    };
    set(&mut admin, &|rule| format!("~key:{rule}:*"));
    set(&mut admin, &|rule| format!("%R~read:{rule}"));
    set(&mut admin, &|rule| format!("&channel:{rule}:*"));
    set(&mut admin, &|rule| format!("#{rule:064x}"));
    set(&mut admin, &|rule| format!("+get|{rule}"));
    // This compares the channels before and after it.
    assert_eq!(admin.line("ACL SETUSER app on +set"), Reply::ok());
    let line = admin.line("ACL LIST").items()[0].text();
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(
        words.len(),
        3 + 5 * RULES + "resetchannels -@all +set".split(' ').count()
    );
    let place = |word: &str| words.iter().position(|one| *one == word);
    assert_eq!(place("~key:1:*"), place("~key:0:*").map(|first| first + 1));
    let last = RULES - 1;
    let dryrun = |admin: &mut Client, key: &str| admin.line(&format!("ACL DRYRUN app SET {key} x"));
    assert_eq!(dryrun(&mut admin, &format!("key:{last}:x")), Reply::ok());
    assert!(
        dryrun(&mut admin, &format!("read:{last}"))
            .text()
            .contains("access")
    );
    // The command is permitted with this first argument, and the key is not.
    let get = |admin: &mut Client, key| admin.line(&format!("ACL DRYRUN app GET {key}")).text();
    assert!(get(&mut admin, last).contains("access"));
    assert!(get(&mut admin, RULES).contains("run"));
}

#[test]
fn the_guides_users_have_the_permissions_that_it_describes() {
    let guide = include_str!("../../../../docs/guides/operating.md");
    let file = guide.split("```text\n").nth(1).unwrap();
    let file = file
        .split("```")
        .next()
        .unwrap()
        .replace("#HASH", ">secret");
    let directory = TestDir::new("acl");
    let path = directory.path().join("users.acl");
    let lines: Vec<&str> = file.lines().map(str::trim).collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let (_running, address) = start(server().set(Key::AclFile, path.to_str().unwrap()).unwrap());
    let as_user = |name: &str| {
        let mut client = Client::connect(address);
        assert!(error(&client.line("PING")).starts_with("NOAUTH"));
        assert_eq!(client.line(&format!("AUTH {name} secret")), Reply::ok());
        client
    };
    let [mut app, mut report, mut operator] = ["app", "report", "operator"].map(as_user);
    assert_eq!(app.line("SET app:1 a"), Reply::ok());
    assert_eq!(report.line("GET app:1"), Reply::bulk("a"));
    assert_eq!(operator.line("SET other x"), Reply::ok());
    let of_app = ["GET other", "FLUSHALL", "KEYS *", "ACL LIST", "CLIENT LIST"];
    let of_report = [
        "SET app:1 b",
        "GETDEL app:1",
        "GET other",
        "CONFIG GET port",
    ];
    for (client, lines) in [(&mut app, &of_app[..]), (&mut report, &of_report)] {
        for line in lines {
            assert!(error(&client.line(line)).starts_with("NOPERM"), "{line}");
        }
    }
    app.line("MULTI");
    app.line("GET app:1");
    assert_eq!(app.line("EXEC").items(), [Reply::bulk("a")]);
}

#[test]
fn passwords_of_rules_are_nowhere_to_be_read() {
    let (_running, address) = start(server());
    let mut client = Client::connect(address);
    client.line("CONFIG SET slowlog-log-slower-than 0 slowlog-max-len 100");
    for line in [
        "ACL SETUSER app on >marker +@all",
        "ACL SETUSER app >marker +nope",
        "AUTH app marker",
        "AUTH app marker2",
        "HELLO 3 AUTH app marker",
        "CONFIG SET requirepass marker",
        // Redis' own setting, which is refused here.
        "CONFIG SET masterauth marker",
    ] {
        client.line(line);
    }
    for line in [
        "SLOWLOG GET -1",
        "ACL LOG",
        "ACL LIST",
        "ACL GETUSER app",
        "CLIENT LIST",
    ] {
        let shown = format!("{:?}", printable(client.line(line)));
        assert!(!shown.contains("marker"), "{line}: {shown}");
    }
}

/// A client without any permissions can still set its name and fail to authenticate.
#[test]
fn an_event_of_the_log_is_short_however_long_the_names_of_its_client_are() {
    let (_running, address) = start(server());
    let [mut admin, mut user] = [0; 2].map(|_| Client::connect(address));
    admin.line("ACL SETUSER none on nopass");
    let name = "n".repeat(1 << 20);
    user.command(&["HELLO", "3", "AUTH", "none", "x", "SETNAME", &name]);
    assert!(error(&user.line("GET a")).starts_with("NOPERM"));
    let logged = logged(&mut admin, "client-info");
    assert!(logged.len() < 1024, "{} bytes", logged.len());
    assert!(logged.contains(" name=nnnn") && logged.contains(" user=none "));
    assert!(admin.line("CLIENT LIST").text().contains(&name));
}

/// Checking keys takes memory, which `maxmemory-clients` limits for restricted users too.
#[test]
fn too_many_keys_are_refused_before_each_is_checked() {
    let (_running, address) = start(server());
    let [mut admin, mut user] = [0; 2].map(|_| Client::connect(address));
    admin.line("ACL SETUSER app on nopass ~a* +exists");
    admin.line("CONFIG SET maxmemory-clients 1mb");
    user.line("AUTH app x");
    let call = [&["EXISTS"][..], &["b"; 5000]].concat();
    let refused = error(&user.command(&call));
    assert!(refused.starts_with("ERR too many keys"), "{refused}");
}

#[test]
fn a_denied_command_of_a_transaction_is_logged_with_the_user_that_was_denied() {
    let (_running, address) = start(server());
    let [mut admin, mut user] = [0; 2].map(|_| Client::connect(address));
    admin.line("ACL SETUSER guest on nopass ~* +@all");
    admin.line("ACL SETUSER app on nopass ~* +@all -get");
    for line in [
        "AUTH guest x",
        "MULTI",
        "AUTH app x",
        "GET a",
        "AUTH guest x",
    ] {
        user.line(line);
    }
    let replies = user.line("EXEC");
    assert!(error(&replies.items()[1]).starts_with("NOPERM"));
    assert_eq!(logged(&mut admin, "username"), "app");
}

fn printable(reply: Reply) -> Vec<String> {
    match reply {
        Reply::Array(items) | Reply::Set(items) => items.into_iter().flat_map(printable).collect(),
        Reply::Map(pairs) => pairs
            .into_iter()
            .flat_map(|(a, b)| [printable(a), printable(b)].concat())
            .collect(),
        Reply::Bulk(bytes) | Reply::Verbatim(bytes) => {
            vec![String::from_utf8_lossy(&bytes).into_owned()]
        }
        other => vec![format!("{other:?}")],
    }
}
