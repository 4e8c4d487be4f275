//! `cargo xtask go-ycsb`: another's load, `go-ycsb` with its Redis binding on strings, on
//! `mneme serve` and on Redis.
//!
//! It is built from the Go module proxy at a fixed version, in the target directory, without its
//! bindings to other databases. **Whatever it counts as an error is a failure.** What it measures
//! is printed as it says it; the numbers mean something on a quiet machine alone.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::steps::succeed;
use crate::workspace::Workspace;

const MODULE: &str = "github.com/pingcap/go-ycsb";
const VERSION: &str = "v1.0.1";

/// E is nearly all scans, which the binding does not have: "scan is not supported".
const WORKLOADS: [&str; 5] = ["a", "b", "c", "d", "f"];

/// What is run.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    /// `mneme`, already built; otherwise it is built for release.
    server: Option<PathBuf>,
    records: u64,
    operations: u64,
    threads: u64,
}

impl Options {
    /// Reads the command's arguments.
    ///
    /// # Errors
    /// In words, for an unknown flag or a number that is none.
    pub fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            server: None,
            records: 100_000,
            operations: 1_000_000,
            threads: 32,
        };
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{flag} wants a value"))?;
            let number = || {
                let number = value.parse::<u64>().ok().filter(|number| *number > 0);
                number.ok_or_else(|| format!("{flag} {value}: not a number from 1 on"))
            };
            match flag.as_str() {
                "--server" => options.server = Some(value.into()),
                "--records" => options.records = number()?,
                "--operations" => options.operations = number()?,
                "--threads" => options.threads = number()?,
                other => return Err(format!("`go-ycsb` has no flag `{other}`")),
            }
        }
        Ok(options)
    }
}

/// Runs all workloads on both servers; true when none had an error.
///
/// # Errors
/// In words, what could not be built or started.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.root.join("target"), PathBuf::from);
    let server = match &options.server {
        Some(server) => server.clone(),
        None => {
            let mut cargo = Command::new("cargo");
            cargo.args(["build", "--release", "--package", "mneme"]);
            succeed(cargo.current_dir(&workspace.root))?;
            target.join("release/mneme")
        }
    };
    let load = Load::build(&target.join("go-ycsb"))?;
    let mut well = true;
    for workload in WORKLOADS {
        let (ours, redis) = (Server::mneme(&server)?, Server::redis());
        for server in std::iter::once(ours).chain(redis?) {
            for phase in ["load", "run"] {
                println!("== {}: {phase} {workload}", server.name);
                well &= load.go(phase, workload, &server, options)?;
            }
        }
    }
    Ok(well)
}

/// The built program, and its workloads.
struct Load {
    program: PathBuf,
    workloads: PathBuf,
}

impl Load {
    fn build(directory: &Path) -> Result<Self, String> {
        let failed = |error| format!("cannot write {}: {error}", directory.display());
        fs::create_dir_all(directory).map_err(failed)?;
        // A module that requires this version asks the proxy for nothing but that.
        let module = format!("module load\n\ngo 1.21\n\nrequire {MODULE} {VERSION}\n");
        if !directory.join("go.mod").exists() {
            fs::write(directory.join("go.mod"), module).map_err(failed)?;
        }
        let go = |arguments: &[&str]| {
            let local = Path::new("/usr/local/go/bin/go");
            let mut go = Command::new(if local.exists() {
                local
            } else {
                Path::new("go")
            });
            go.args(arguments).current_dir(directory);
            go.env("GOFLAGS", "-mod=mod -modcacherw")
                .env("CGO_ENABLED", "0");
            go.env("GOPATH", directory.join("path"));
            go.env("GOCACHE", directory.join("cache"));
            go
        };
        succeed(&mut go(&["mod", "download", MODULE]))?;
        let listed = go(&["list", "-m", "-f", "{{.Dir}}", MODULE]).output();
        let listed = listed.map_err(|error| format!("go list: {error}"))?;
        let module = PathBuf::from(String::from_utf8_lossy(&listed.stdout).trim());
        let program = directory.join("go-ycsb");
        if !program.exists() {
            copy_command(&module.join("cmd/go-ycsb"), directory).map_err(failed)?;
            succeed(&mut go(&["build", "-o", "go-ycsb", "."]))?;
        }
        Ok(Self {
            program,
            workloads: module.join("workloads"),
        })
    }

    /// One phase of a workload; whether nothing of it failed.
    fn go(
        &self,
        phase: &str,
        workload: &str,
        server: &Server,
        options: &Options,
    ) -> Result<bool, String> {
        let file = self.workloads.join(format!("workload{workload}"));
        let mut command = Command::new(&self.program);
        command.args([phase, "redis", "-P"]).arg(file);
        for property in [
            "redis.datatype=string".to_owned(),
            format!("redis.addr=127.0.0.1:{}", server.port),
            format!("recordcount={}", options.records),
            format!("operationcount={}", options.operations),
            format!("threadcount={}", options.threads),
        ] {
            command.args(["-p", &property]);
        }
        let output = command
            .output()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let summary = summary(&said);
        summary.iter().for_each(|line| println!("{line}"));
        let failed = summary.is_empty() || has_errors(&said) || !output.status.success();
        if failed {
            println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(!failed)
    }
}

/// Copies the program's own sources, but without the bindings to other databases: with them come
/// some hundred modules.
fn copy_command(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let source = fs::read_to_string(entry.path())?;
        fs::write(to.join(entry.file_name()), without_bindings(&source))?;
    }
    Ok(())
}

/// A source that imports no binding but Redis'.
fn without_bindings(source: &str) -> String {
    let is_other = |line: &&str| line.contains("/go-ycsb/db/") && !line.contains("/db/redis\"");
    let kept = source.lines().filter(|line| !is_other(line));
    kept.flat_map(|line| [line, "\n"]).collect()
}

/// The counts of the whole phase: what follows its end.
fn summary(said: &str) -> Vec<&str> {
    let rest = said.split_once("Run finished").map_or("", |(_, rest)| rest);
    rest.lines()
        .filter(|line| line.contains(" - Takes(s)"))
        .collect()
}

/// Whether it counts operations that failed.
fn has_errors(said: &str) -> bool {
    said.lines()
        .any(|line| line.contains("_ERROR") || line.contains("not supported"))
}

/// A server that ends with this value.
struct Server {
    name: &'static str,
    port: u16,
    process: Child,
}

impl Server {
    fn mneme(program: &Path) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(["serve", "--private", "--port", "0", "--memory", "2gb"]);
        let failed = |error| format!("{}: {error}", program.display());
        let started = command.stdout(Stdio::piped()).spawn();
        let mut server = Self {
            name: "mneme",
            port: 0,
            process: started.map_err(failed)?,
        };
        let mut port = None;
        if let Some(banner) = server.process.stdout.take() {
            for line in BufReader::new(banner).lines().map_while(Result::ok) {
                let is_address = line.contains("listening on");
                port = port.or(line
                    .rsplit(':')
                    .next()
                    .filter(|_| is_address)
                    .map(str::to_owned));
                if line.contains("Stop it:") {
                    break;
                }
            }
        }
        let port = port.and_then(|port| port.trim().parse().ok());
        server.port = port.ok_or_else(|| "mneme says no port".to_owned())?;
        Ok(server)
    }

    /// `None` where there is no such program.
    fn redis() -> Result<Option<Self>, String> {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = free.map_err(|error| format!("no port: {error}"))?.port();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let Ok(process) = command.stdout(Stdio::null()).spawn() else {
            println!("there is no redis-server to compare with");
            return Ok(None);
        };
        let mut server = Self {
            name: "redis",
            port,
            process,
        };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Ok(Some(status)) = server.process.try_wait() {
                return Err(format!("redis-server: {status}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(server))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_counts_as_an_error_is_one() {
        let well =
            "READ - Takes(s): 1.0\nRun finished, takes 2s\nREAD   - Takes(s): 2.0, Count: 9\n";
        assert_eq!(summary(well), ["READ   - Takes(s): 2.0, Count: 9"]);
        assert!(!has_errors(well));
        assert!(has_errors("SCAN_ERROR - Takes(s): 2.0, Count: 9\n"));
        assert!(summary("").is_empty());
    }

    #[test]
    fn one_binding_is_kept() {
        let source = "import (\n\t_ \"x/go-ycsb/db/pg\"\n\t_ \"x/go-ycsb/db/redis\"\n)\n";
        assert_eq!(
            without_bindings(source),
            "import (\n\t_ \"x/go-ycsb/db/redis\"\n)\n"
        );
    }

    #[test]
    fn flags_have_values_in_range() {
        let parse = |line: &str| {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            Options::parse(&words)
        };
        assert_eq!(parse("--records 7").unwrap().records, 7);
        assert!(parse("--records 0").is_err() && parse("--records").is_err());
        assert!(parse("--speed 1").is_err());
    }
}
