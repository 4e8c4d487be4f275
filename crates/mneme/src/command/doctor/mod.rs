//! `mneme doctor`: finds properties of this machine, and of a running server, that cost memory,
//! speed or data, and says how to change them.
//!
//! Nothing is changed without `--fix`. Its changes last until the next boot, except for files below
//! `/etc`: making kernel settings permanent is left to the administrator.

mod checks;
mod disk;
mod host;
mod server;

use std::error::Error;
use std::process::{Command, ExitStatus};

use serde_json::{Value, json};

use self::host::Host;
use super::client::Where;
use super::output;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Where,

    /// The directory that keeps a server's data, or will: its disk is looked at, and a file is
    /// written there to see how long a sync takes.
    #[arg(long, env = "MNEME_DATA", value_name = "DIRECTORY")]
    data: Option<std::path::PathBuf>,

    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,

    /// Change what can be changed, which mostly takes root; say what was done.
    #[arg(long)]
    fix: bool,
}

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// As it should be.
    Good,
    /// It works, but could be better.
    Worth,
    /// It will make the server refuse work, or lose data.
    Bad,
}

/// How to correct it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fix {
    /// Write this text to this file.
    Write(&'static str, &'static str),
    /// Run this program with these arguments.
    Run(&'static [&'static str]),
}

/// The result of a check.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    state: State,
    found: String,
    advice: Option<&'static str>,
    fix: Option<Fix>,
    outcome: FixOutcome,
}

/// The outcome of a fix.
#[derive(Debug, PartialEq, Eq)]
enum FixOutcome {
    NotTried,
    Done,
    /// It failed, for this reason.
    Failed(String),
}

impl Finding {
    fn new(name: &'static str, state: State, found: String) -> Self {
        Self {
            name,
            state,
            found,
            advice: None,
            fix: None,
            outcome: FixOutcome::NotTried,
        }
    }

    fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    fn fix(mut self, fix: Fix) -> Self {
        self.fix = Some(fix);
        self
    }

    fn json(&self) -> Value {
        let (fixed, error) = match &self.outcome {
            FixOutcome::NotTried => (None, None),
            FixOutcome::Done => (Some(true), None),
            FixOutcome::Failed(reason) => (Some(false), Some(reason)),
        };
        json!({
            "check": self.name,
            "state": self.state.word(),
            "found": self.found,
            "advice": self.advice,
            "fix": self.fix.as_ref().map(Fix::command),
            "fixed": fixed,
            "error": error,
        })
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Good => "ok",
            State::Worth => "could be better",
            State::Bad => "problem",
        }
    }
}

impl Fix {
    /// The fix as a shell command.
    fn command(&self) -> String {
        match self {
            Fix::Write(path, text) => format!("printf '{}' > {path}", text.replace('\n', "\\n")),
            Fix::Run(words) => words.join(" "),
        }
    }

    fn apply(&self, host: &Host) -> Result<(), String> {
        match self {
            Fix::Write(path, text) => host
                .write(path, text)
                .map_err(|error| format!("{path}: {error}")),
            Fix::Run(words) => {
                let (program, arguments) = words.split_first().ok_or("no program")?;
                let ended = Command::new(program).args(arguments).output();
                let ended = ended.map_err(|error| format!("{program}: {error}"))?;
                if ExitStatus::success(&ended.status) {
                    return Ok(());
                }
                Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned())
            }
        }
    }
}

/// Runs all checks, applies fixes if that was requested, and prints the findings. A bad finding is
/// not an error.
pub fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let host = Host::here();
    let mut findings = examine(&host);
    if arguments.fix {
        mend(&host, &mut findings);
    }
    if let Some(directory) = &arguments.data {
        findings.extend(disk::examine(&host, directory));
    }
    findings.extend(server::examine(&arguments.server));
    if arguments.json {
        let list: Vec<Value> = findings.iter().map(Finding::json).collect();
        return output::line(format_args!("{:#}", Value::from(list)));
    }
    output::print(output::plain(&text(&findings)))
}

fn examine(host: &Host) -> Vec<Finding> {
    checks::CHECKS
        .iter()
        .filter_map(|check| check(host))
        .collect()
}

fn mend(host: &Host, findings: &mut [Finding]) {
    for finding in findings {
        finding.outcome = match finding.fix.as_ref().map(|fix| fix.apply(host)) {
            None => FixOutcome::NotTried,
            Some(Ok(())) => FixOutcome::Done,
            Some(Err(reason)) => FixOutcome::Failed(reason),
        };
    }
}

fn text(findings: &[Finding]) -> String {
    let width = findings
        .iter()
        .map(|finding| finding.name.len())
        .max()
        .unwrap_or(0);
    let mut lines = String::new();
    let mut line = |words: &str| {
        lines.push_str(words);
        lines.push('\n');
    };
    for finding in findings {
        let mark = match finding.state {
            State::Good => "  ok  ",
            State::Worth => " note ",
            State::Bad => "  !!  ",
        };
        line(&format!(
            "{mark} {:width$}  {}",
            finding.name, finding.found
        ));
        let below = " ".repeat(width + 9);
        if let Some(advice) = finding.advice {
            line(&format!("{below}{advice}"));
        }
        if let Some(fix) = finding.fix.as_ref().map(Fix::command) {
            line(&match &finding.outcome {
                FixOutcome::NotTried => format!("{below}as root: {fix}"),
                FixOutcome::Done => format!("{below}done: {fix}"),
                FixOutcome::Failed(reason) => format!("{below}not done ({reason}): {fix}"),
            });
        }
    }
    let bad = findings
        .iter()
        .filter(|finding| finding.state == State::Bad)
        .count();
    let fixable = findings
        .iter()
        .filter(|finding| finding.fix.is_some() && matches!(finding.outcome, FixOutcome::NotTried))
        .count();
    line("");
    line(&match (bad, fixable) {
        (0, 0) => "nothing to do".to_owned(),
        (0, _) => format!(
            "nothing is wrong; {fixable} setting(s) could be better: `mneme doctor --fix` as root"
        ),
        (_, 0) => format!("{bad} problem(s)"),
        (..) => {
            format!("{bad} problem(s); `mneme doctor --fix` as root changes {fixable} setting(s)")
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A machine made of files, removed at the end of the test.
    struct Machine {
        host: Host,
        root: PathBuf,
    }

    impl Machine {
        fn new(name: &str, uid: u32, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("mneme-doctor-{name}-{}", std::process::id()));
            let host = Host::at(root.clone(), uid);
            for (path, text) in files {
                host.write(path, text).unwrap();
            }
            Self { host, root }
        }

        fn finding(&self, name: &str) -> Option<Finding> {
            examine(&self.host)
                .into_iter()
                .find(|finding| finding.name == name)
        }

        fn state(&self, name: &str) -> Option<State> {
            self.finding(name).map(|finding| finding.state)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.root);
        }
    }

    const MEMORY: (&str, &str) = (
        "/proc/meminfo",
        "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapTotal: 0 kB\n",
    );

    #[test]
    fn small_shared_memory_in_a_container_is_a_problem() {
        let mounts = "30 1 0:25 / /dev/shm rw - tmpfs shm rw,size=65536k\n";
        let machine = Machine::new("container", 0, &[MEMORY, ("/proc/self/mountinfo", mounts)]);
        let finding = machine.finding("shared memory").unwrap();
        assert_eq!(finding.state, State::Bad);
        assert!(finding.found.contains("64.0 MiB"), "{}", finding.found);
        assert!(
            finding
                .fix
                .unwrap()
                .command()
                .starts_with("mount -o remount")
        );
        machine
            .host
            .write(
                "/proc/self/mountinfo",
                "30 1 0:25 / /dev/shm rw - tmpfs tmpfs rw\n",
            )
            .unwrap();
        assert_eq!(machine.state("shared memory"), Some(State::Good));
        machine
            .host
            .write(
                "/proc/self/mountinfo",
                "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n",
            )
            .unwrap();
        assert_eq!(machine.state("shared memory"), Some(State::Bad));
    }

    #[test]
    fn segments_that_go_with_the_session_are_a_problem_of_ordinary_users_only() {
        let sessions = ("/run/systemd/sessions/1", "");
        assert_eq!(
            Machine::new("no-logind", 1000, &[]).state("RemoveIPC"),
            None
        );
        assert_eq!(
            Machine::new("system", 999, &[sessions]).state("RemoveIPC"),
            Some(State::Good)
        );
        let mut machine = Machine::new(
            "user",
            1000,
            &[
                sessions,
                ("/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n"),
            ],
        );
        assert_eq!(machine.state("RemoveIPC"), Some(State::Bad));
        machine
            .host
            .write("/usr/lib/systemd/logind.conf.d/10-a.conf", "RemoveIPC=no\n")
            .unwrap();
        assert_eq!(machine.state("RemoveIPC"), Some(State::Good));
        machine
            .host
            .write("/etc/systemd/logind.conf.d/20-b.conf", "RemoveIPC=yes\n")
            .unwrap();
        assert_eq!(machine.state("RemoveIPC"), Some(State::Bad));
        let mut findings = examine(&machine.host);
        mend(&machine.host, &mut findings);
        assert_eq!(machine.state("RemoveIPC"), Some(State::Good));
        machine.host.uid = 0;
        assert_eq!(machine.state("RemoveIPC"), Some(State::Good));
    }

    #[test]
    fn data_whose_registry_was_removed_are_shown() {
        let machine = Machine::new("unnamed", 7, &[MEMORY]);
        let place = machine.root.join("made");
        let registry = mneme_space::Registry::open(&place).unwrap();
        let segment = registry.segment("notes").create().unwrap();
        let data = std::fs::read_link(segment.directory().join("data")).unwrap();
        let name = data.file_name().unwrap().to_str().unwrap().to_owned();
        let description = std::fs::read_to_string(place.join("registry")).unwrap();
        registry.remove_segment("notes").unwrap();

        assert_eq!(machine.state("unnamed data"), None);
        let (file, own) = (
            format!("/dev/shm/mneme-7/{name}"),
            "/run/user/0/mneme/registry",
        );
        machine.host.write(&file, "data").unwrap();
        machine.host.write(own, &description).unwrap();
        assert_eq!(machine.state("unnamed data"), None);
        std::fs::remove_file(machine.root.join(&own[1..])).unwrap();
        let finding = machine.finding("unnamed data").unwrap();
        assert!(finding.found.contains("in 1 file(s)"), "{}", finding.found);
    }

    #[test]
    fn huge_pages_are_judged_by_the_setting_that_counts_and_mended() {
        let thp = "/sys/kernel/mm/transparent_hugepage";
        let (own, general) = (
            format!("{thp}/hugepages-2048kB/enabled"),
            format!("{thp}/enabled"),
        );
        let never = "always madvise [never]\n";
        let machine = Machine::new("thp", 0, &[(&general, never)]);
        assert_eq!(machine.state("huge pages"), Some(State::Worth));
        machine
            .host
            .write(&own, "[always] inherit madvise never\n")
            .unwrap();
        assert_eq!(machine.state("huge pages"), Some(State::Good));
        machine
            .host
            .write(&own, "always [inherit] madvise never\n")
            .unwrap();
        assert_eq!(machine.state("huge pages"), Some(State::Worth));
        let mut findings = examine(&machine.host);
        mend(&machine.host, &mut findings);
        let silent = FixOutcome::Failed(String::new());
        let outcomes = || findings.iter().map(|finding| &finding.outcome);
        assert!(outcomes().all(|outcome| *outcome != silent));
        assert_eq!(machine.host.read(&general).as_deref(), Some("madvise"));
    }

    #[test]
    fn limits_and_strict_accounting_are_named() {
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax address space  1073741824  unlimited  bytes\nMax open files  64  4096  files\n";
        let files = [
            MEMORY,
            ("/proc/self/limits", limits),
            ("/proc/sys/vm/overcommit_memory", "2\n"),
            ("/proc/sys/vm/max_map_count", "100\n"),
        ];
        let machine = Machine::new("limits", 0, &files);
        assert_eq!(machine.state("address space"), Some(State::Bad));
        assert_eq!(machine.state("open files"), Some(State::Worth));
        assert_eq!(machine.state("overcommit"), Some(State::Worth));
        assert_eq!(machine.state("mappings"), Some(State::Worth));
        assert_eq!(machine.state("swap"), Some(State::Good));
        let said = text(&examine(&machine.host));
        assert!(
            said.contains("limited to 1.0 GiB") && said.contains("2 problem(s)"),
            "{said}"
        );
    }

    #[test]
    fn a_fix_that_fails_says_why() {
        let host = Host::at(PathBuf::from("/"), 0);
        let fix = Fix::Run(&["false"]);
        assert!(fix.apply(&host).is_err());
        let absent = Fix::Run(&["a program that is not there"]);
        assert!(absent.apply(&host).unwrap_err().contains("not there"));
    }
}
