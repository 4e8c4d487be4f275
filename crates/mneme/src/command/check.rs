//! `mneme check`: makes a running server check its whole store while it serves clients (`MNEME
//! CHECK`), and prints the problems.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;

use super::client::{Answer, ServerConnection, Where};
use super::output;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 0 if the store is sound, and with 1 if it is not, or if nobody could be asked."
)]
pub struct Arguments {
    #[command(flatten)]
    server: Where,

    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
}

/// How long to wait before the server is asked again whether the check is over: the first time, and
/// at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

/// The result of a check.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    records: i64,
    milliseconds: i64,
    problems: Vec<String>,
}

/// Requests a check, waits for its end, and prints the result.
pub fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut client = arguments.server.connect()?;
    let found = check(&mut client)?;
    output::print(match arguments.json {
        true => json(&found),
        false => output::plain(&text(client.place(), &found)),
    })?;
    match found.problems.len() {
        0 => Ok(()),
        1 => Err("one thing is wrong with the store".into()),
        problems => Err(format!("{problems} things are wrong with the store").into()),
    }
}

fn check(client: &mut ServerConnection) -> Result<Found, Box<dyn Error>> {
    let strange = || format!("the server at {} answers strangely", client.place());
    let strange = strange();
    let Answer::Number(number) = client.request(&["MNEME", "CHECK"])? else {
        return Err(strange.into());
    };
    let mut pause = PAUSES.0;
    loop {
        let mut fields = client.request(&["MNEME", "REPORT"])?.fields();
        match fields.remove("state") {
            Some(Answer::Text(state)) if state == "running" => {}
            Some(Answer::Text(state)) if state == "done" => {
                // Another client may have started a later check meanwhile. Its result serves as
                // well.
                return match value(&fields, "check") {
                    Some(done) if done >= number => Ok(found(fields)),
                    _ => Err(strange.into()),
                };
            }
            Some(Answer::Text(state)) if state == "failed" => {
                let reason = match fields.remove("failure") {
                    Some(Answer::Text(reason)) => reason,
                    _ => String::new(),
                };
                return Err(format!("the store could not be checked: {reason}").into());
            }
            _ => return Err(strange.into()),
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(PAUSES.1);
    }
}

fn value(fields: &BTreeMap<String, Answer>, name: &str) -> Option<i64> {
    match fields.get(name) {
        Some(Answer::Number(number)) => Some(*number),
        _ => None,
    }
}

fn found(mut fields: BTreeMap<String, Answer>) -> Found {
    let problems = match fields.remove("problems") {
        Some(Answer::List(items)) => items,
        _ => Vec::new(),
    };
    let texts = problems.into_iter().map(|problem| match problem {
        Answer::Text(text) => text,
        other => format!("{other:?}"),
    });
    Found {
        problems: texts.collect(),
        records: value(&fields, "records").unwrap_or(0),
        milliseconds: value(&fields, "milliseconds").unwrap_or(0),
    }
}

fn json(found: &Found) -> String {
    let report = json!({
        "sound": found.problems.is_empty(),
        "records": found.records,
        "milliseconds": found.milliseconds,
        "problems": found.problems,
    });
    format!("{report:#}\n")
}

fn text(place: &str, found: &Found) -> String {
    let state = match found.problems.is_empty() {
        true => "sound",
        false => "damaged",
    };
    let mut text = format!(
        "the store at {place} is {state}: {} records, checked in {} ms\n",
        found.records, found.milliseconds
    );
    for problem in &found.problems {
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "  {problem}");
    }
    text
}
