//! Redis' own test suite against `mneme serve`: most units from outside, as Redis' authors run them
//! against a server they did not start; units that need servers of their own with a script that
//! stands in for `redis-server`.
//!
//! The suite is Debian's source package of the Redis that Mneme speaks like, fetched once into the
//! target directory. **A test must pass unless `skipped.txt` names it and says why**, and no fewer
//! tests than recorded there may pass: a suite that ends early is a failure.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::built;
use crate::server::Server;
use crate::steps::{Outcome, failed, succeed};
use crate::workspace::Workspace;

/// The version of Redis whose behaviour is Mneme's.
const VERSION: &str = "7.0.15";

/// What of the suite concerns the commands there are.
const UNITS: &[&str] = &[
    "unit/type/string",
    "unit/type/incr",
    "unit/type/hash",
    "unit/type/set",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/list-3",
    "unit/type/zset",
    "unit/geo",
    "unit/keyspace",
    "unit/expire",
    "unit/scan",
    "unit/multi",
    "unit/bitops",
    "unit/bitfield",
    "unit/protocol",
    "unit/pubsub",
    "unit/tracking",
];

/// Units that start servers of their own.
const WITH_SERVERS: &[&str] = &["unit/acl", "unit/acl-v2", "unit/auth", "unit/pubsubshard"];

/// Starts `mneme serve` as those units start `redis-server`.
const STAND_IN: &str = include_str!("redis_suite/redis-server.sh");

/// The tests that are not run, and the number of tests expected to pass.
const SKIPPED: &str = include_str!("redis_suite/skipped.txt");

/// Before the number of tests that pass at least.
const PASSING: &str = "# passing: ";

/// Runs the suite; `missing` says what becomes of the step where it cannot be had.
pub fn check(workspace: &Workspace, missing: fn(&str) -> Outcome) -> Outcome {
    let directory = workspace.root.join("target/redis-suite");
    match source(&directory) {
        Ok(source) => suite(&built::command(workspace)?, &source),
        Err(why) => missing(&why),
    }
}

/// The directory of Redis' source: `$REDIS_SOURCE`, or fetched from where the machine's packages
/// come from.
fn source(directory: &Path) -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os("REDIS_SOURCE") {
        return Ok(given.into());
    }
    let source = directory.join(format!("redis-{VERSION}"));
    if source.join("runtest").exists() {
        return Ok(source);
    }
    let failed = |what: &str| format!("Redis' source package cannot be had: {what}");
    let io = |error: std::io::Error| failed(&error.to_string());
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(directory.join(part)).map_err(io)?;
    }
    fs::write(directory.join("sources.list"), source_lists()).map_err(io)?;
    let at = |option: &str, name: &str| format!("{option}={}", directory.join(name).display());
    let options = [
        "APT::Sandbox::User=".to_owned(),
        "Dir::Etc::sourceparts=-".to_owned(),
        at("Dir::Etc::sourcelist", "sources.list"),
        at("Dir::State::lists", "lists"),
        at("Dir::Cache", "cache"),
    ];
    let apt = |arguments: &[&str]| {
        let mut apt = Command::new("apt-get");
        apt.arg("-qq");
        apt.args(options.iter().flat_map(|option| ["-o", option]));
        succeed(apt.args(arguments).current_dir(directory)).map_err(|why| failed(&why))
    };
    apt(&["update"])?;
    apt(&["source", "--download-only", "redis"])?;
    let archive = format!("redis_{VERSION}.orig.tar.gz");
    let mut tar = Command::new("tar");
    match succeed(tar.args(["xzf", &archive]).current_dir(directory)) {
        Ok(()) => Ok(source),
        Err(_) => Err(failed(&format!("the packages' version is not {VERSION}"))),
    }
}

/// The machine's package sources, but for source packages.
fn source_lists() -> String {
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter();
    let parts = parts.flatten().flatten().map(|entry| entry.path());
    let lists = std::iter::once(PathBuf::from("/etc/apt/sources.list")).chain(parts);
    lists
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|list| source_lines(&list))
        .collect()
}

/// The lines for source packages of one list, which may be of the old form (a line each) or the new
/// one (a stanza).
fn source_lines(list: &str) -> String {
    let mut lines = String::new();
    for line in list.lines().filter(|line| line.starts_with("deb ")) {
        lines += &format!("deb-src {}\n", &line[4..]);
    }
    for stanza in list.split("\n\n") {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let (Some(uris), Some(suites)) = (field("URIs"), field("Suites")) else {
            continue;
        };
        let options = field("Signed-By").map_or(String::new(), |key| format!("[signed-by={key}] "));
        let components = field("Components").unwrap_or_default();
        for uri in uris.split_whitespace() {
            for suite in suites.split_whitespace() {
                lines += &format!("deb-src {options}{uri} {suite} {components}\n");
            }
        }
    }
    lines
}

fn suite(program: &Path, source: &Path) -> Outcome {
    let skipped = source.join("skipped.txt");
    fs::write(&skipped, SKIPPED).map_err(failed("write", &skipped))?;
    let mut found = from_outside(program, source, &skipped)?;
    found.add(with_servers(program, source, &skipped)?);
    found.judge(expected(SKIPPED))
}

/// Runs the units that do with a server that they have not started.
fn from_outside(program: &Path, source: &Path, skipped: &Path) -> Result<Results, String> {
    let settings = [
        "--memory",
        "1gb",
        "--log",
        "error",
        "--enable-debug-command",
        "yes",
    ];
    let server = Server::start(program, &settings)?;
    let mut command = Command::new("./runtest");
    command.args(["--host", "127.0.0.1", "--port", &server.port.to_string()]);
    command.args(["--ignore-encoding", "--ignore-digest"]);
    run(&mut command, UNITS, source, skipped)
}

/// Runs the units that start servers, which are the stand-in.
fn with_servers(program: &Path, source: &Path, skipped: &Path) -> Result<Results, String> {
    let stand_in = source.join("src/redis-server");
    let written = fs::write(&stand_in, STAND_IN)
        .and_then(|()| fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)));
    written.map_err(|error| format!("{}: {error}", stand_in.display()))?;
    let mut command = Command::new("./runtest");
    command.args(["--clients", "1"]).env("MNEME", program);
    run(&mut command, WITH_SERVERS, source, skipped)
}

fn run(
    command: &mut Command,
    units: &[&str],
    source: &Path,
    skipped: &Path,
) -> Result<Results, String> {
    command.args(["--durable", "--tags", "-slow"]);
    command.arg("--skipfile").arg(skipped);
    for unit in units {
        command.args(["--single", unit]);
    }
    let output = command
        .current_dir(source)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("runtest: {error}"))?;
    Ok(Results::parse(&String::from_utf8_lossy(&output.stdout)))
}

/// How the suite's tests ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Results {
    passed: Vec<String>,
    /// What went wrong, by the test's name.
    failed: BTreeMap<String, String>,
}

impl Results {
    fn parse(output: &str) -> Self {
        let mut results = Self::default();
        let output = without_colours(output);
        let mut lines = output.lines().peekable();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix("[ok]: ") {
                let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
                results.passed.push(name.to_owned());
            } else if let Some(name) = line
                .strip_prefix("[err]: ")
                .or(line.strip_prefix("[exception]: "))
            {
                let name = name
                    .rsplit_once(" in tests/")
                    .map_or(name, |(name, _)| name);
                let reason = lines.peek().copied().unwrap_or_default();
                results.failed.insert(name.to_owned(), reason.to_owned());
            }
        }
        results
    }

    fn add(&mut self, others: Self) {
        self.passed.extend(others.passed);
        self.failed.extend(others.failed);
    }

    fn judge(&self, expected: usize) -> Outcome {
        for (name, reason) in &self.failed {
            println!("fails: {name}\n    {reason}");
        }
        let passed = self.passed.len();
        println!("{passed} tests of Redis {VERSION} have passed");
        match self.failed.len() {
            0 if passed >= expected => Ok(()),
            0 => Err(format!("{passed} tests have passed, and {expected} are expected to").into()),
            count => Err(format!("{count} test(s) have failed").into()),
        }
    }
}

/// How many tests pass at least, as the list of those that are skipped says.
fn expected(list: &str) -> usize {
    list.lines()
        .find_map(|line| line.strip_prefix(PASSING)?.parse().ok())
        .unwrap_or(usize::MAX)
}

/// `text` without the escape sequences that colour it.
fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').map_or(part, |(_, rest)| rest);
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\x1b[0;32;49m[ok]\x1b[0m: SET and (GET) an item (1 ms)\n\
        \x1b[0;31;49m[err]\x1b[0m: LPUSH in lists in tests/unit/type/string.tcl\nERR unknown command 'lpush'\n";

    #[test]
    fn results_are_read_from_the_suites_coloured_output() {
        let results = Results::parse(OUTPUT);
        assert_eq!(results.passed, ["SET and (GET) an item"]);
        assert_eq!(
            results.failed["LPUSH in lists"],
            "ERR unknown command 'lpush'"
        );
    }

    #[test]
    fn neither_a_failure_nor_an_early_end_goes_unnoticed() {
        let failed = Results::parse(OUTPUT);
        let passed = Results {
            failed: BTreeMap::new(),
            ..Results::parse(OUTPUT)
        };
        assert!(failed.judge(1).is_err());
        assert!(passed.judge(2).is_err());
        assert_eq!(passed.judge(1), Ok(()));
    }

    #[test]
    fn the_list_says_how_many_tests_pass() {
        assert!(expected(SKIPPED) > 100 && expected(SKIPPED) < usize::MAX);
        assert_eq!(expected("# why\na test\n"), usize::MAX);
    }

    #[test]
    fn both_forms_of_package_lists_are_read() {
        assert_eq!(
            source_lines("# a\ndeb http://m d main\n"),
            "deb-src http://m d main\n"
        );
        assert_eq!(
            source_lines(
                "Types: deb\n# r\nURIs: http://m\nSuites: d e\nComponents: main\nSigned-By: /k\n"
            ),
            "deb-src [signed-by=/k] http://m d main\ndeb-src [signed-by=/k] http://m e main\n"
        );
    }
}
