//! `mneme stat`: what a running server does and holds, once or again and again.
//!
//! It asks as any client does (`INFO`), so it works on every server that it can reach and costs that server one command
//! each time, or two where it is watched.

mod commands;
mod spread;
mod view;

use std::error::Error;
use std::io::IsTerminal;
use std::time::Duration;

use mneme_sys::{Clock, SystemClock};

use super::client::Where;
use super::output;
use spread::Spreads;
use view::Look;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    server: Where,

    /// Look again and again, every so many seconds, until Ctrl-C. On a terminal the view is drawn anew each time;
    /// elsewhere each look is one line.
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

/// Asks and shows.
pub fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut client = arguments.server.connect()?;
    let clock = SystemClock;
    let is_drawn = std::io::stdout().is_terminal();
    let mut before: Option<Look> = None;
    for count in 0.. {
        let look = Look {
            at_ns: clock.now_ns(),
            info: client.info()?,
            spreads: match arguments.watch {
                Some(_) => Spreads::ask(&mut client)?,
                None => Spreads::default(),
            },
        };
        if arguments.json {
            output::line(serde_json::to_string(&look.info.0)?)?;
        } else if arguments.watch.is_none() || is_drawn {
            let page = view::page(client.place(), &look, before.as_ref());
            // Home, the page, and away with what is left of a longer one before.
            let around = if arguments.watch.is_some() {
                ("\x1b[H\x1b[2J", "\x1b[J")
            } else {
                ("", "")
            };
            output::print(format_args!("{}{page}{}", around.0, around.1))?;
        } else {
            if count % view::LINES == 0 {
                output::line(view::HEADINGS)?;
            }
            output::line(view::line(&look, before.as_ref()))?;
        }
        let Some(pause) = arguments.watch else {
            return Ok(());
        };
        before = Some(look);
        std::thread::sleep(pause);
    }
    Ok(())
}
