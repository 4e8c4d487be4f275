//! `mneme segment unstick`: shows which process keeps others from entering a segment, and resolves
//! that.

use std::error::Error;

use mneme_space::{Attachment, Condition, Registry, Segment};
use mneme_sys::Access;
use serde_json::json;

use super::{output, segment_store};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The segment.
    name: String,

    #[command(flatten)]
    recovery: Recovery,

    /// End this process, of those that have the store in the segment, and repair what it leaves.
    #[arg(long, value_name = "PID", conflicts_with_all = ["accept", "rebuild", "from"])]
    end: Option<u32>,

    /// Print the outcome as JSON.
    #[arg(long)]
    json: bool,
}

/// What to do about a poisoned segment.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Recovery {
    /// Declare it whole as it is: only if you know that what was being changed is whole. Programs
    /// may crash on it otherwise.
    #[arg(long)]
    accept: bool,

    /// Make it empty.
    #[arg(long)]
    rebuild: bool,

    /// Give it the content of its clone, as it was when that was made.
    #[arg(long, value_name = "CLONE")]
    from: Option<String>,
}

impl Recovery {
    fn is_asked(&self) -> bool {
        self.accept || self.rebuild || self.from.is_some()
    }
}

/// Executes the command and prints its result.
pub fn run(registry: &Registry, arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let segment = Segment::open(registry, &arguments.name)?;
    if segment_store::is_one(&segment) {
        let Arguments {
            name,
            recovery,
            end,
            json,
        } = arguments;
        if recovery.is_asked() {
            return Err(
                "a store is never poisoned: what the dead leave in it is repaired by whoever comes next; nothing was done"
                    .into(),
            );
        }
        return segment_store::unstick(registry, &name, end, json);
    }
    if arguments.end.is_some() {
        return Err(
            "only processes that have a store can be ended so: the segment holds none".into(),
        );
    }
    let found = segment.condition()?;
    let recovered = match found {
        Condition::Poisoned => recover(registry, &segment, &arguments.recovery)?,
        Condition::Whole | Condition::Held { .. } => None,
    };
    if arguments.recovery.is_asked() && recovered.is_none() {
        return Err(format!("nothing was done: {}", described(&segment, found)).into());
    }
    let now = segment.condition()?;
    if arguments.json {
        let (state, pid, alone) = match now {
            Condition::Whole => ("whole", None, None),
            Condition::Poisoned => ("poisoned", None, None),
            Condition::Held { pid, alone } => ("held", Some(pid), Some(alone)),
        };
        let report = json!({
            "name": segment.name().as_str(),
            "state": state,
            "pid": pid,
            "changes": alone,
            "process": pid.and_then(process),
            "recovered": recovered,
        });
        return output::line(format_args!("{report:#}"));
    }
    output::line(described(&segment, now))
}

/// Recovers the segment and returns a description of how; `None` if no recovery was requested.
fn recover(
    registry: &Registry,
    segment: &Segment,
    how: &Recovery,
) -> Result<Option<&'static str>, Box<dyn Error>> {
    let name = segment.name().as_str();
    if let Some(clone) = &how.from {
        segment.restore_from(&Segment::open(registry, clone)?)?;
        return Ok(Some("from"));
    }
    if !(how.accept || how.rebuild) {
        return Ok(None);
    }
    let attached = Attachment::new([(segment, Access::ReadWrite)])?;
    if how.rebuild {
        attached.rebuild(name)?;
        return Ok(Some("rebuild"));
    }
    // SAFETY: by the option, the caller states that the segment is whole.
    unsafe { attached.accept(name) }?;
    Ok(Some("accept"))
}

fn described(segment: &Segment, found: Condition) -> String {
    let name = segment.name();
    match found {
        Condition::Whole => format!("{name} is whole, and nobody is in a section of it"),
        Condition::Poisoned => format!(
            "{name} is poisoned: a process died or panicked while changing it. `--from CLONE` gives it a clone's content, \
             `--rebuild` makes it empty, `--accept` declares it whole as it is"
        ),
        Condition::Held { pid, alone } => {
            let does = if alone {
                "may be changing"
            } else {
                "is reading"
            };
            let who = process(pid).map_or_else(String::new, |process| format!(" ({process})"));
            format!(
                "process {pid}{who} {does} {name}; if it is stopped, `kill -CONT {pid}` lets it go on, and `kill -KILL {pid}` \
                 ends it, which poisons the segment if it was changing it"
            )
        }
    }
}

/// The program and the state of a process of this machine, according to the kernel.
fn process(pid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim().to_owned())
    };
    Some(format!("{}, {}", field("Name:")?, field("State:")?))
}
