//! The flags of `mneme serve` and their environment variables: one of each for every setting in the
//! server's table.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use mneme::server::settings::{Changes, Key, Kind, SETTINGS, Setting, Settings, Source};

/// Settings from the flags and the environment.
#[derive(Debug, Clone)]
pub struct Flags(pub Settings);

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let settings = Settings::default();
        for setting in SETTINGS {
            if let Some(words) = matches.get_many::<String>(setting.name) {
                let words: Vec<_> = words.map(String::as_str).collect();
                said(&settings, setting, &words.join(" "), Source::Said, || {
                    format!("--{}", setting.name)
                })?;
                continue;
            }
            for variable in setting.variables() {
                let Some(text) = std::env::var_os(&variable) else {
                    continue;
                };
                if is_service_link(&variable, &text) {
                    continue;
                }
                let text = text.into_string().map_err(|text| {
                    let text = text.to_string_lossy();
                    refused(&text, &variable, "the text is not UTF-8")
                })?;
                said(&settings, setting, &text, Source::Environment, || {
                    variable.clone()
                })?;
                break;
            }
        }
        Ok(Self(settings))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Whether a variable is one that Kubernetes and Docker's links set for a service named `mneme`,
/// such as `MNEME_PORT=tcp://10.0.0.1:6379`. It is not a setting.
pub fn is_service_link(variable: &str, text: &OsStr) -> bool {
    let begins_with = |scheme: &str| text.as_bytes().starts_with(scheme.as_bytes());
    variable == "MNEME_PORT" && (begins_with("tcp://") || begins_with("udp://"))
}

fn said(
    settings: &Settings,
    setting: &Setting,
    text: &str,
    source: Source,
    place: impl FnOnce() -> String,
) -> Result<(), clap::Error> {
    settings.say(setting.key, text, source).map_err(|reason| {
        let shown = if matches!(setting.kind, Kind::Secret) {
            "..."
        } else {
            text
        };
        refused(shown, &place(), &setting.refusal(&reason))
    })
}

/// An error in the form of the command line parser's own.
pub fn refused(value: &str, place: &str, reason: &str) -> clap::Error {
    let text = format!("invalid value '{value}' for '{place}': {reason}\n");
    clap::Error::raw(ErrorKind::ValueValidation, text)
}

fn flag(setting: &'static Setting) -> Arg {
    let doc = setting.doc.lines().map(str::trim).collect::<Vec<_>>();
    let short = doc.join(" ");
    let default = match setting.default {
        "" => "empty",
        default => default,
    };
    let when = match setting.changes {
        Changes::AtStart => "",
        Changes::Live => ", changes at any time",
    };
    let help = format!(
        "{short} [{}; default: {default}; env: {}{when}]",
        setting.range(),
        setting.variable()
    );
    let mut arg = Arg::new(setting.name)
        .long(setting.name)
        .help(help)
        .value_name(value_name(setting.kind))
        .allow_negative_numbers(true)
        .value_parser(parser(setting));
    if let Some(alias) = setting.alias {
        arg = arg.visible_alias(alias);
    }
    if let Some(short) = short_name(setting.key) {
        arg = arg.short(short);
    }
    match setting.kind {
        // `--private` alone means yes.
        Kind::Flag => arg.num_args(0..=1).default_missing_value("yes"),
        // `-::1` is an optional address, not a flag.
        Kind::Addresses => arg
            .action(ArgAction::Append)
            .value_delimiter(',')
            .allow_hyphen_values(true),
        _ => arg,
    }
}

/// The parser for a setting's values, which also lets shells complete words.
fn parser(setting: &'static Setting) -> ValueParser {
    match setting.kind {
        Kind::Flag => PossibleValuesParser::new(["yes", "no"]).into(),
        Kind::Word(words) if words.len() > 1 => PossibleValuesParser::new(words)
            .map(|word: String| word)
            .into(),
        _ => ValueParser::string(),
    }
}

fn value_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Flag => "yes|no",
        Kind::Number { .. } => "N",
        Kind::Size { .. } | Kind::Capacity { .. } => "SIZE",
        Kind::SizeOrPercent => "SIZE|PERCENT%",
        Kind::Word(_) => "WORD",
        Kind::Text => "TEXT",
        Kind::Secret => "PASSWORD",
        Kind::Addresses => "ADDRESS",
        Kind::Permissions => "MODE",
        Kind::Endpoint => "ADDRESS:PORT",
        Kind::SavePoints => "SECONDS CHANGES",
        Kind::OutputLimit => "LIMITS",
        Kind::Events => "LETTERS",
    }
}

/// The one-letter flags of settings.
fn short_name(key: Key) -> Option<char> {
    match key {
        Key::Port => Some('p'),
        Key::MaxMemory => Some('m'),
        Key::Segment => Some('s'),
        Key::Threads => Some('t'),
        _ => None,
    }
}
