//! `cargo xtask go-ycsb`: another's load, `go-ycsb` with its Redis binding on strings or hashes,
//! on `mneme serve` and on Redis.
//!
//! It is built from the Go module proxy at a fixed version, in the target directory, without its
//! bindings to other databases. **Whatever it counts as an error is a failure.** What it measures
//! is printed as it says it; the numbers mean something on a quiet machine alone.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::server::Server;
use crate::steps::{self, Outcome, failed, printed, succeed};
use crate::workspace::Workspace;

const MODULE: &str = "github.com/pingcap/go-ycsb";
const VERSION: &str = "v1.0.1";

/// E is nearly all scans, which the binding does not have: "scan is not supported".
const WORKLOADS: [&str; 5] = ["a", "b", "c", "d", "f"];

/// What is run.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// `mneme`, already built; it is built for release unless given
    #[arg(long)]
    server: Option<PathBuf>,
    /// Records that there are
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Operations of a workload
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// Clients
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    threads: u64,
    /// What a record is
    #[arg(long, value_enum, default_value_t = DataType::String)]
    datatype: DataType,
}

/// What a record is in the store.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DataType {
    /// A string of all fields, as JSON.
    String,
    /// A hash: an update sets fields.
    Hash,
}

/// Runs all workloads on both servers.
///
/// # Errors
/// One had an error; what could not be built or started.
pub fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.root.join("target"), PathBuf::from);
    let server = match &options.server {
        Some(server) => server.clone(),
        None => {
            let mut cargo = steps::cargo();
            cargo.args(["build", "--release", "--package", "mneme"]);
            succeed(cargo.current_dir(&workspace.root))?;
            target.join("release/mneme")
        }
    };
    let load = Load::build(&target.join("go-ycsb"))?;
    let mut well = true;
    for workload in WORKLOADS {
        let ours = Server::start(&server, &["--memory", "2gb"])?;
        let ours = std::iter::once(("mneme", ours));
        for (name, server) in ours.chain(redis()?.map(|redis| ("redis", redis))) {
            for phase in ["load", "run"] {
                println!("== {name}: {phase} {workload}");
                well &= load.go(phase, workload, server.port, options)?;
            }
        }
    }
    match well {
        true => Ok(()),
        false => Err("operations failed".into()),
    }
}

/// The built program, and its workloads.
struct Load {
    program: PathBuf,
    workloads: PathBuf,
}

impl Load {
    fn build(directory: &Path) -> Result<Self, String> {
        let failed = failed("write", directory);
        fs::create_dir_all(directory).map_err(&failed)?;
        // A module that requires this version asks the proxy for nothing but that.
        let module = format!("module load\n\ngo 1.21\n\nrequire {MODULE} {VERSION}\n");
        if !directory.join("go.mod").exists() {
            fs::write(directory.join("go.mod"), module).map_err(&failed)?;
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
        let listed = printed(&mut go(&["list", "-m", "-f", "{{.Dir}}", MODULE]))?;
        let module = PathBuf::from(listed.trim());
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
        port: u16,
        options: &Options,
    ) -> Result<bool, String> {
        let file = self.workloads.join(format!("workload{workload}"));
        let mut command = Command::new(&self.program);
        command.args([phase, "redis", "-P"]).arg(file);
        for property in [
            match options.datatype {
                DataType::String => "redis.datatype=string".to_owned(),
                DataType::Hash => "redis.datatype=hash".to_owned(),
            },
            format!("redis.addr=127.0.0.1:{port}"),
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

/// Redis; `None` where there is no such program.
fn redis() -> Result<Option<Server>, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = free.map_err(|error| format!("no port: {error}"))?.port();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--save", ""]);
    command.args(["--appendonly", "no"]);
    let Ok(process) = command.stdout(Stdio::null()).spawn() else {
        println!("there is no redis-server to compare with");
        return Ok(None);
    };
    let mut server = Server { port, process };
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Ok(Some(status)) = server.process.try_wait() {
            return Err(format!("redis-server: {status}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(Some(server))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_errors_is_recognised() {
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
}
