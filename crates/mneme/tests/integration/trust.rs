//! Checks that another user of the machine can do nothing with a server's files, directories and
//! sockets, as `docs/trust.md` says, and that passwords are stored in no readable place.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use mneme_testkit::{TestDir, runs_as_nobody, wait_until};

use crate::common::Registry;
use crate::common::serving::{self, Serving};

/// Names the file with the list of paths for the process that another user runs.
const LIST: &str = "MNEME_TEST_PATHS";

/// Adds a path and everything below it, including the targets of links.
fn below(path: &Path, found: &mut Vec<PathBuf>) {
    let path = path.canonicalize().unwrap();
    if path.is_dir() {
        for entry in std::fs::read_dir(&path).unwrap() {
            below(&entry.unwrap().path(), found);
        }
    }
    found.push(path);
}

/// The paths of what a process has open or mapped in common with others.
fn held(pid: u32) -> Vec<PathBuf> {
    let opened = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let opened = opened.flat_map(|entry| std::fs::read_link(entry.unwrap().path()));
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mapped = maps.lines().filter(|line| line.contains(" rw-s "));
    let mapped = mapped.filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
    let is_meant = |path: &PathBuf| {
        let is_in = |directory| path.starts_with(directory);
        path.is_absolute() && path.exists() && !["/proc", "/sys", "/dev/null"].iter().any(is_in)
    };
    opened.chain(mapped).filter(is_meant).collect()
}

/// The operations that this user can do on a path.
fn permitted(path: &Path) -> Vec<&'static str> {
    let is_permitted = |outcome: std::io::Result<()>| match outcome {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => false,
        // Any other error means that the path is gone or of another kind, so that the test checks
        // nothing.
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let kind = std::fs::metadata(path).map(|data| data.file_type());
    let mut found = Vec::new();
    let mut note = |what, outcome| {
        if is_permitted(outcome) {
            found.push(what);
        }
    };
    match kind {
        Ok(kind) if kind.is_socket() => note("connect", UnixStream::connect(path).map(drop)),
        Ok(kind) if kind.is_dir() => {
            note("list", std::fs::read_dir(path).map(drop));
            note(
                "create in",
                File::create_new(path.join("planted")).map(drop),
            );
        }
        _ => {
            note("read", File::open(path).map(drop));
            let append = OpenOptions::new().append(true).open(path);
            note("write", append.map(drop));
            note("remove", std::fs::remove_file(path));
        }
    }
    found
}

/// Of a server with a journal and one with a tree, with backups, and of segments and spaces.
#[test]
fn another_user_has_no_access() {
    if let Some(list) = std::env::var_os(LIST) {
        let list = std::fs::read_to_string(list).unwrap();
        let mut paths = list.lines().map(Path::new);
        // Checks that the test can detect an accessible file.
        assert_eq!(permitted(paths.next().unwrap()), ["read"]);
        let open: Vec<_> = paths
            .map(|path| (path, permitted(path)))
            .filter(|(_, permitted)| !permitted.is_empty())
            .collect();
        assert!(open.is_empty(), "{open:?}");
        return;
    }
    if mneme_sys::files::user() != 0 {
        eprintln!("skipped: only root can run a program as another user");
        return;
    }
    for (durability, of_it) in [("journal", ".journal"), ("tree", "/mneme-tree-")] {
        another_user_is_kept_out_of(durability, of_it);
    }
}

fn another_user_is_kept_out_of(durability: &str, of_it: &str) {
    let dir = TestDir::on_disk("trust");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (data, socket, users) = (at("data"), at("socket"), at("users.acl"));
    let config = at("mneme.toml");
    // With the mode that editors give to files: readable by all.
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    std::fs::write(&config, "timeout = 0\n").unwrap();
    let registry = Registry::new("segment", "doors");
    let mut command = serving::command(&["--port", "0", "--memory", "64mb", "--config", &config]);
    command.args([
        "--data",
        &data,
        "--unixsocket",
        &socket,
        "--unixsocketperm",
        "700",
    ]);
    command.args(["--aclfile", &users, "--durability", durability]);
    command.env("MNEME_DIR", &registry.root);
    let serving = Serving::start(command);
    let said = serving.said(
        "SET key value\r\nACL SETUSER app on >secret\r\nACL SAVE\r\n\
         MNEME BACKUP monday\r\nCONFIG SET requirepass secret\r\nCONFIG REWRITE\r\n",
    );
    assert!(said.lines().all(|line| !line.starts_with('-')), "{said}");
    // It is written in the background.
    let backup = Path::new(&data).join("monday.backup");
    wait_until("the backup is whole", || backup.exists());
    registry.done(&["create", "heap", "--size", "4mb"]);
    for more in [&["create", "space"][..], &["add", "space", "heap"]] {
        let (code, _, error) = registry.run_as("space", more);
        assert_eq!(code, Some(0), "{error}");
    }
    let public = dir.join("public");
    std::fs::write(&public, "").unwrap();
    let mut paths = vec![public];
    for path in [Path::new(&data), &registry.root] {
        below(path, &mut paths);
    }
    for path in [&socket, &users, &config] {
        paths.push(path.into());
    }
    // Without what it has inherited.
    let own = held(std::process::id());
    let held = held(serving.process.id()).into_iter();
    paths.extend(held.filter(|path| !own.contains(path)));
    paths[1..].sort_unstable();
    paths.dedup();
    let listed: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    for name in [
        of_it,
        "/monday.backup",
        "/control",
        "/server.sock",
        ".segment",
        "/heap/",
        "/spaces/space/",
    ] {
        let is_there = listed.iter().any(|path| path.contains(name));
        assert!(is_there, "no {name} in {listed:?}");
    }
    let list = dir.join("list");
    std::fs::write(&list, listed.join("\n")).unwrap();
    let ran = runs_as_nobody("trust::another_user_has_no_access", [(LIST, &list)]);
    // Repeated without the protecting directories, since each file has a mode of its own.
    if ran {
        let shields = paths.iter().filter(|path| path.is_dir());
        for shield in shields {
            std::fs::set_permissions(shield, PermissionsExt::from_mode(0o711)).unwrap();
        }
        let of_its_own = |path: &&str| {
            // This file has only the number of failed starts.
            !Path::new(path).is_dir() && !path.ends_with("/starts.note")
        };
        let listed: Vec<_> = listed.iter().copied().filter(of_its_own).collect();
        std::fs::write(&list, listed.join("\n")).unwrap();
        runs_as_nobody("trust::another_user_has_no_access", [(LIST, &list)]);
    }
}

#[test]
fn no_log_and_no_file_but_the_configuration_has_a_password() {
    const MARKER: &str = "MARKER-9d41";
    let dir = TestDir::on_disk("trust");
    let users = dir.join("users.acl");
    std::fs::write(&users, "user default on nopass ~* &* +@all\n").unwrap();
    let registry = Registry::new("trust", "marker");
    let mut command: Command = serving::command(&["--port", "0", "--memory", "64mb"]);
    command.args(["--log", "trace", "--aclfile", users.to_str().unwrap()]);
    command.env("MNEME_DIR", &registry.root);
    let serving = Serving::start(command);
    let lines = [
        format!("ACL SETUSER app on >{MARKER} +@all ~*"),
        format!("ACL SETUSER app >{MARKER} +nope"),
        format!("ACL SETUSER app <{MARKER}x"),
        format!("AUTH app {MARKER}"),
        format!("AUTH app {MARKER}x"),
        format!("HELLO 3 AUTH app {MARKER}"),
        format!("HELLO 3 AUTH app {MARKER}x"),
        format!("CONFIG SET requirepass {MARKER}"),
        format!("CONFIG SET requirepass {MARKER} nope"),
        format!("AUTH {MARKER}x"),
        "ACL SAVE".to_owned(),
        "ACL LOG".to_owned(),
        "SLOWLOG GET".to_owned(),
        "CLIENT LIST".to_owned(),
        "INFO everything".to_owned(),
    ];
    let said = serving.said(&(lines.join("\r\n") + "\r\n"));
    // An error may quote a command, but only to the client that sent it.
    let quoted = said.lines().filter(|line| line.contains(MARKER));
    let all_errors = quoted
        .clone()
        .all(|line| line.starts_with("-ERR Error in ACL SETUSER"));
    assert!(all_errors, "{:?}", quoted.collect::<Vec<_>>());
    let saved = std::fs::read_to_string(&users).unwrap();
    assert!(
        saved.contains("user app on #") && !saved.contains(MARKER),
        "{saved}"
    );
    serving.signal("-TERM");
    let (_, log) = serving.end();
    assert!(!log.is_empty() && !log.contains(MARKER), "{log}");
}

/// The core dump that a server leaves when it crashes after a client has sent it a password;
/// `None` if it leaves none.
fn core_dump_with(arguments: &[&str], password: &str) -> Option<Vec<u8>> {
    let dir = TestDir::on_disk("trust");
    let registry = Registry::new("trust", "core");
    let mut server = serving::command(&["--port", "0", "--memory", "64mb"]);
    server.args(arguments);
    // In a shell, which raises the limit for it.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -c unlimited && exec \"$@\"", "sh"]);
    command.arg(server.get_program()).args(server.get_args());
    for (name, _) in server.get_envs() {
        command.env_remove(name);
    }
    command.env("MNEME_DIR", &registry.root);
    command.env("MNEME_REQUIREPASS", password);
    command.current_dir(dir.path());
    let serving = Serving::start(command);
    let said = serving.said(&format!("AUTH {password}\r\nPING\r\n"));
    assert!(said.contains("PONG"), "{said}");
    serving.signal("-ABRT");
    serving.end();
    let mut left = std::fs::read_dir(dir.path()).unwrap();
    let core = left.next()?.unwrap().path();
    Some(std::fs::read(core).unwrap())
}

#[test]
fn a_crash_leaves_no_core_dump_with_passwords() {
    const MARKER: &str = "MARKER-77c0";
    assert!(core_dump_with(&[], MARKER).is_none());
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.contains(['|', '/', '@']) {
        return eprintln!("skipped: core dumps are not written to the working directory here");
    }
    let dump = core_dump_with(&["--core-dumps", "yes"], MARKER).expect("a core dump");
    let mut windows = dump.windows(MARKER.len());
    assert!(windows.any(|window| window == MARKER.as_bytes()));
}
