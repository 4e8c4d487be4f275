//! `cargo xtask clients`: applications of other people, with their own client libraries, on
//! `mneme serve`.
//!
//! Each file in `clients/` is a program that uses one of them and ends well, or says why not. The
//! libraries are of fixed versions, from Python's and Node's package registries, in
//! `target/clients`. **Whatever ends ill is a failure.**

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::built;
use crate::server::Server;
use crate::steps::{Outcome, failed, skipped, succeeds};
use crate::workspace::Workspace;

/// Seconds that a program may take: one that waits for ever is a failure.
const SECONDS: &str = "120";

const PYTHON: &[(&str, &str)] = &[
    ("django_cache.py", include_str!("clients/django_cache.py")),
    (
        "flask_sessions.py",
        include_str!("clients/flask_sessions.py"),
    ),
    ("rq_queue.py", include_str!("clients/rq_queue.py")),
];

const NODE: &[(&str, &str)] = &[
    (
        "express_session.js",
        include_str!("clients/express_session.js"),
    ),
    (
        "ioredis_client.js",
        include_str!("clients/ioredis_client.js"),
    ),
    (
        "redis_sessions.js",
        include_str!("clients/redis_sessions.js"),
    ),
    ("socket_io.js", include_str!("clients/socket_io.js")),
];

/// Runs all of them.
///
/// # Errors
/// In words, what failed; it is skipped where there is neither Python nor Node with their
/// registries.
pub fn check(workspace: &Workspace) -> Outcome {
    let directory = workspace.root.join("target/clients");
    fs::create_dir_all(&directory).map_err(failed("make", &directory))?;
    let programs = [(python(&directory)?, PYTHON), (node(&directory)?, NODE)];
    let there = programs
        .iter()
        .filter(|(interpreter, _)| interpreter.is_some());
    if there.count() == 0 {
        return skipped("there is neither pip nor npm with a registry");
    }
    let server = Server::start(&built::command(workspace)?, &[])?;
    let mut ill = Vec::new();
    for (interpreter, programs) in programs {
        let Some(interpreter) = interpreter else {
            continue;
        };
        for (name, source) in programs {
            write(&directory, name, source)?;
            let mut program = Command::new("timeout");
            program.arg(SECONDS).arg(&interpreter).arg(name);
            program.arg(server.port.to_string()).current_dir(&directory);
            let is_well = program.status().is_ok_and(|status| status.success());
            println!("{name}: {}", if is_well { "well" } else { "FAILED" });
            if !is_well {
                ill.push(*name);
            }
        }
    }
    match &ill[..] {
        [] => Ok(()),
        ill => Err(ill.join(", ").into()),
    }
}

fn write(directory: &Path, name: &str, content: &str) -> Result<(), String> {
    let path = directory.join(name);
    fs::write(&path, content).map_err(failed("write", &path))
}

/// Python with the libraries; `None` where they cannot be had.
fn python(directory: &Path) -> Result<Option<PathBuf>, String> {
    let requirements = include_str!("clients/requirements.txt");
    write(directory, "requirements.txt", requirements)?;
    let made = succeeds(
        Command::new("python3")
            .args(["-m", "venv", "python"])
            .current_dir(directory),
    );
    let mut install = Command::new(directory.join("python/bin/pip"));
    install.args(["install", "--quiet", "-r", "requirements.txt"]);
    let is_there = made && succeeds(install.current_dir(directory));
    if !is_there {
        println!("without programs in Python: pip cannot have their libraries here");
    }
    Ok(is_there.then(|| directory.join("python/bin/python")))
}

/// Node, with the libraries beside the programs; `None` where they cannot be had.
fn node(directory: &Path) -> Result<Option<PathBuf>, String> {
    write(
        directory,
        "package.json",
        include_str!("clients/package.json"),
    )?;
    let mut install = Command::new("npm");
    install.args([
        "install",
        "--silent",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
    ]);
    let is_there = succeeds(install.current_dir(directory));
    if !is_there {
        println!("without programs in JavaScript: npm cannot have their libraries here");
    }
    Ok(is_there.then(|| PathBuf::from("node")))
}
