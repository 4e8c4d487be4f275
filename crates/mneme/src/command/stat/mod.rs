//! `mneme stat`: shows what a running server does and holds, once or repeatedly.
//!
//! It uses `INFO` like any client, so it works with every server that it can reach, and costs that
//! server one command for each sample, or two with `--watch`.

mod commands;
mod screen;
mod spread;
mod view;

use std::error::Error;
use std::time::Duration;

use super::client::{AskError, ServerConnection, Where};
use super::output;
use view::Sample;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Where,

    /// Look again and again, every so many seconds, until Ctrl-C; a server that goes away is waited
    /// for. On a terminal the view is drawn anew each time, as much of it as fits; elsewhere, and
    /// where TERM is `dumb`, each look is one line.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = seconds)]
    watch: Option<Duration>,

    /// Print the fields of INFO as one JSON object, each time.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds from 0.1 to 86400".to_owned()),
    }
}

/// Takes samples and prints them.
pub fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let form = match (arguments.json, arguments.watch) {
        (true, _) => Form::Json,
        (false, None) => Form::Page,
        (false, Some(_)) if screen::is_drawn() => Form::Screen,
        (false, Some(_)) => Form::Lines,
    };
    let mut client = arguments.server.connect()?;
    let Some(pause) = arguments.watch else {
        let look = Sample::at(&mut client, false)?;
        return form.show(client.place(), &look, None, 0);
    };
    let mut client = Some(client);
    let mut before: Option<Sample> = None;
    for count in 0.. {
        match look_again(&arguments.server, &mut client) {
            Ok(look) => {
                let place = arguments.server.place();
                form.show(&place, &look, before.as_ref(), count)?;
                before = Some(look);
            }
            Err(error) if error.may_pass() => {
                form.wait(&error, client.is_some() || before.is_some())?;
                (client, before) = (None, None);
            }
            Err(error) => return Err(error.into()),
        }
        std::thread::sleep(pause);
    }
    Ok(())
}

/// Takes a sample over the existing connection, or over a new one if that has failed.
fn look_again(place: &Where, client: &mut Option<ServerConnection>) -> Result<Sample, AskError> {
    let client = match client {
        Some(client) => client,
        None => client.insert(place.connect()?),
    };
    Sample::at(client, true)
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A page for people, printed once.
    Page,
    /// A page that is redrawn for each sample.
    Screen,
    /// A line for each sample.
    Lines,
    /// A JSON object for each sample.
    Json,
}

impl Form {
    fn show(
        self,
        place: &str,
        look: &Sample,
        before: Option<&Sample>,
        count: usize,
    ) -> Result<(), Box<dyn Error>> {
        match self {
            Form::Page => output::print(output::plain(&view::page(place, look, before))),
            Form::Screen => output::print(screen::draw(&view::page(place, look, before))),
            Form::Json => output::line(serde_json::to_string(&look.info.0)?),
            Form::Lines => {
                if count.is_multiple_of(view::LINES) {
                    output::line(view::HEADINGS)?;
                }
                output::line(output::plain(&view::line(look, before)))
            }
        }
    }

    /// Reports that the server cannot be reached and is waited for: on a screen each time,
    /// otherwise in the log and only the `first` time.
    fn wait(self, error: &AskError, first: bool) -> Result<(), Box<dyn Error>> {
        match self {
            Form::Screen => output::print(screen::draw(&format!("{error}: waiting for it\n"))),
            _ if first => {
                tracing::warn!("{}: waiting for it", output::plain(&error.to_string()));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
