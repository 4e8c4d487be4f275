//! The types of settings, and why a value is refused. The messages are Redis', where Redis has such
//! a setting.

use std::fmt;
use std::sync::Arc;

use crate::notify;

use super::address::{addresses, endpoint, words};
use super::output_limit;
use super::size::{SizeError, parse_size};

/// The type of a setting.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// `yes` or `no`.
    Flag,
    /// A whole number from `least` to `most`, both included.
    Number {
        /// The minimum.
        least: i64,
        /// The maximum.
        most: i64,
    },
    /// Bytes: a whole number, or one with a unit as in `512mb`, `4gb` (1024) or `4g` (1000).
    Size {
        /// The minimum.
        least: i64,
        /// The maximum.
        most: i64,
    },
    /// As `Size`, except that 0 is also allowed and means a value derived from the machine's
    /// memory.
    Capacity {
        /// The minimum of values other than 0.
        least: i64,
    },
    /// As `Size`, where 0 means none, or a percentage of `maxmemory` as in `5%`, which is stored as
    /// a negative number.
    SizeOrPercent,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// Any text; shown only if it is asked for by its name.
    Secret,
    /// A file's permissions in octal, as for `chmod`; 0 leaves them to the process' umask.
    Permissions,
    /// IP addresses, `localhost` or `*`, separated by spaces or commas. A `-` before an address
    /// makes it optional.
    Addresses,
    /// One address and port, as in `127.0.0.1:9121`, `[::1]:9121` or `localhost:9121`, or empty for
    /// none.
    Endpoint,
    /// Redis' `class hard soft seconds`; the only class is `normal`.
    OutputLimit,
    /// Letters of classes of events, as Redis has them.
    Events,
    /// Pairs of seconds and changes, as in `900 1 300 10`, or empty for none.
    SavePoints,
}

/// A setting's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Value {
    /// The number, the index of the word in its list, or 1 for yes; for a text, its length.
    pub number: i64,
    /// The text, if the number does not determine it.
    pub text: Arc<str>,
}

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Not a flag.
    #[error("argument must be 'yes' or 'no'")]
    NotAFlag,
    /// Not a number.
    #[error("argument couldn't be parsed into an integer")]
    NotANumber,
    /// Not a size.
    #[error("argument must be a memory value")]
    NotASize,
    /// Neither a size nor a percentage.
    #[error("argument must be a memory or percent value")]
    NotASizeOrPercent,
    /// A percentage above 100.
    #[error("percentage argument must be less or equal to 100")]
    MoreThanAll,
    /// Out of range.
    #[error("argument must be between {0} and {1} inclusive")]
    OutOfRange(i64, i64),
    /// Too small for a store, or larger than the largest number.
    #[error("argument must be 0, or between {0} and {max} inclusive", max = i64::MAX)]
    NotACapacity(i64),
    /// A text that is not UTF-8.
    #[error("argument must be UTF-8 text")]
    NotUtf8,
    /// A word other than the only valid one.
    #[error("argument must be {}", quoted(.0))]
    NotTheOnly(&'static str),
    /// A word other than the valid ones.
    #[error("argument(s) must be one of the following: {}", .0.join(", "))]
    NotAWord(&'static [&'static str]),
    /// Not octal permissions.
    #[error("argument must be octal, between 0 and 777 inclusive")]
    NotPermissions,
    /// Not an address.
    #[error("'{0}' is not an address: give an IP address, `localhost`, or `*` for all")]
    NotAnAddress(String),
    /// Not an address and a port.
    #[error("'{0}' is not an address and a port: give one such as 127.0.0.1:9121 or [::1]:9121")]
    NotAnEndpoint(String),
    /// A class that is not followed by three values.
    #[error("Wrong number of arguments in buffer limit configuration.")]
    NotFour,
    /// An unknown class.
    #[error("Invalid client class specified in buffer limit configuration.")]
    NoSuchClass,
    /// Not a limit.
    #[error("Error in hard, soft or soft_seconds setting in buffer limit configuration.")]
    NotALimit,
    /// A letter that stands for no class of events.
    #[error("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")]
    NotEvents,
    /// Not pairs of seconds, at least 1, and changes.
    #[error("Invalid save parameters")]
    NotSavePoints,
    /// A setting that needs a server that keeps its data on disk.
    #[error("nothing is kept on disk: start the server with --data DIR")]
    NeedsData,
    /// The journal cannot be switched off.
    #[error("with --data every change is appended to the journal: this can only be yes")]
    AlwaysAppends,
}

impl Kind {
    /// Parses a value as `CONFIG SET`, the command line, the environment and the file give it.
    pub fn parse(&self, text: &str) -> Result<Value, Refused> {
        let within = |number: i64, least, most| {
            (least..=most)
                .contains(&number)
                .then_some(number)
                .ok_or(Refused::OutOfRange(least, most))
        };
        let number =
            match *self {
                Kind::Flag if text.eq_ignore_ascii_case("yes") => 1,
                Kind::Flag if text.eq_ignore_ascii_case("no") => 0,
                Kind::Flag => return Err(Refused::NotAFlag),
                Kind::Number { least, most } => {
                    let number = text.parse().map_err(|_| Refused::NotANumber)?;
                    within(number, least, most)?
                }
                Kind::Size { least, most } => {
                    let bytes = size(text, Refused::OutOfRange(least, most))?;
                    within(bytes, least, most)?
                }
                Kind::Capacity { least } => {
                    let bytes = size(text, Refused::NotACapacity(least))?;
                    match bytes {
                        0 => 0,
                        bytes if bytes >= least => bytes,
                        _ => return Err(Refused::NotACapacity(least)),
                    }
                }
                Kind::SizeOrPercent => match text.strip_suffix('%') {
                    Some(percent) => match percent.parse::<u32>() {
                        Ok(percent @ 0..=100) => -i64::from(percent),
                        Ok(_) => return Err(Refused::MoreThanAll),
                        Err(_) => return Err(Refused::NotASizeOrPercent),
                    },
                    None => size(text, Refused::OutOfRange(0, i64::MAX)).map_err(|refused| {
                        match refused {
                            Refused::NotASize => Refused::NotASizeOrPercent,
                            refused => refused,
                        }
                    })?,
                },
                Kind::Word([only]) if only.eq_ignore_ascii_case(text) => 0,
                Kind::Word([only]) => return Err(Refused::NotTheOnly(only)),
                Kind::Word(words) => words
                    .iter()
                    .position(|word| word.eq_ignore_ascii_case(text))
                    .ok_or(Refused::NotAWord(words))? as i64,
                Kind::Text | Kind::Secret => return Ok(Value::text(text.to_owned())),
                Kind::Permissions => i64::from_str_radix(text, 8)
                    .ok()
                    .filter(|mode| (0..=0o777).contains(mode))
                    .ok_or(Refused::NotPermissions)?,
                Kind::Addresses => {
                    let words: Vec<_> = words(text).collect();
                    for word in &words {
                        addresses(word).ok_or_else(|| Refused::NotAnAddress((*word).to_owned()))?;
                    }
                    return Ok(Value::text(words.join(" ")));
                }
                Kind::Endpoint => {
                    let text = text.trim();
                    let is_endpoint = text.is_empty() || endpoint(text).is_some();
                    return match is_endpoint {
                        true => Ok(Value::text(text.to_owned())),
                        false => Err(Refused::NotAnEndpoint(text.to_owned())),
                    };
                }
                Kind::Events => i64::from(notify::parse(text).ok_or(Refused::NotEvents)?),
                Kind::OutputLimit => return output_limit::normalised(text).map(Value::text),
                Kind::SavePoints => {
                    let points = save_points(text).ok_or(Refused::NotSavePoints)?;
                    let words = points.map(|(seconds, changes)| format!("{seconds} {changes}"));
                    return Ok(Value::text(words.collect::<Vec<_>>().join(" ")));
                }
            };
        Ok(Value::number(number))
    }
}

/// The pairs of seconds and changes in a value of [`Kind::SavePoints`]; `None` if it is not valid.
pub(crate) fn save_points(text: &str) -> Option<impl Iterator<Item = (u64, u64)>> {
    let numbers = text.split_whitespace().map(|word| word.parse::<u32>());
    let numbers: Vec<_> = numbers.collect::<Result<_, _>>().ok()?;
    let (points, []) = numbers.as_chunks::<2>() else {
        return None;
    };
    let points: Vec<_> = points
        .iter()
        .map(|[seconds, changes]| (u64::from(*seconds), u64::from(*changes)))
        .collect();
    points
        .iter()
        .all(|(seconds, _)| *seconds > 0)
        .then(|| points.into_iter())
}

impl Value {
    /// A value that consists of a number.
    pub fn number(number: i64) -> Self {
        Self {
            number,
            text: "".into(),
        }
    }

    /// A value that consists of a text.
    pub fn text(text: String) -> Self {
        Self {
            number: text.len() as i64,
            text: text.into(),
        }
    }

    /// The value as `CONFIG GET` shows it.
    pub fn show(&self, kind: Kind) -> String {
        match kind {
            Kind::Flag => ["no", "yes"][usize::from(self.number != 0)].to_owned(),
            Kind::Number { .. } | Kind::Size { .. } | Kind::Capacity { .. } => {
                self.number.to_string()
            }
            Kind::SizeOrPercent if self.number < 0 => format!("{}%", -self.number),
            Kind::SizeOrPercent => self.number.to_string(),
            Kind::Permissions => format!("{:o}", self.number),
            Kind::Events => notify::show(u32::try_from(self.number).unwrap_or(0)),
            Kind::Word(words) => usize::try_from(self.number)
                .ok()
                .and_then(|place| words.get(place))
                .map_or(String::new(), |word| (*word).to_owned()),
            Kind::Text
            | Kind::Secret
            | Kind::Addresses
            | Kind::Endpoint
            | Kind::SavePoints
            | Kind::OutputLimit => self.text.to_string(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Flag => f.write_str("yes or no"),
            Kind::Number { least, most } if least == most => write!(f, "{least} only"),
            Kind::Number {
                least,
                most: i64::MAX,
            } => write!(f, "a number from {least} on"),
            Kind::Number { least, most } => write!(f, "a number from {least} to {most}"),
            Kind::Size {
                least,
                most: i64::MAX,
            } => write!(
                f,
                "bytes, or with a unit as in 512mb or 4gb, from {least} on"
            ),
            Kind::Size { least, most } => {
                write!(
                    f,
                    "bytes, or with a unit as in 512mb or 4gb, from {least} to {most}"
                )
            }
            Kind::Capacity { least } => write!(
                f,
                "0, or bytes, also with a unit as in 512mb or 4gb, from {least} on"
            ),
            Kind::SizeOrPercent => f.write_str(
                "bytes, also with a unit as in 512mb or 4gb, or a percentage of maxmemory as in 5%; 0 is no limit",
            ),
            Kind::Word([""]) => f.write_str("empty only"),
            Kind::Word([only]) => write!(f, "{only} only"),
            Kind::Word(words) => f.write_str(&words.join(", ")),
            Kind::Text | Kind::Secret => f.write_str("a text"),
            Kind::Permissions => f.write_str("octal, from 0 to 777"),
            Kind::Addresses => f.write_str("addresses"),
            Kind::Endpoint => f.write_str("an address and a port"),
            Kind::SavePoints => f.write_str("pairs of seconds and changes"),
            Kind::Events => f.write_str("letters of Ag$lshzxeKEtmdn"),
            Kind::OutputLimit => f.write_str("classes, each with two sizes and seconds"),
        }
    }
}

/// Parses a number of bytes; `too_large` is the error for 2^63 and more.
fn size(text: &str, too_large: Refused) -> Result<i64, Refused> {
    match parse_size(text) {
        Ok(bytes) => Ok(i64::try_from(bytes).unwrap_or(i64::MAX)),
        Err(SizeError::NotASize) => Err(Refused::NotASize),
        Err(SizeError::TooLarge) => Err(too_large),
    }
}

/// A word as an error message shows it.
fn quoted(word: &str) -> String {
    match word {
        "" => "empty".to_owned(),
        word => format!("'{word}'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal() {
        let parse = |text| Kind::Permissions.parse(text);
        for (text, mode) in [("0", 0), ("700", 0o700), ("0660", 0o660)] {
            assert_eq!(parse(text), Ok(Value::number(mode)), "{text}");
        }
        assert_eq!(Value::number(0o660).show(Kind::Permissions), "660");
        for nonsense in ["", "8", "-1", "1000", "rw", "0o7"] {
            assert_eq!(parse(nonsense), Err(Refused::NotPermissions), "{nonsense}");
        }
    }
}
