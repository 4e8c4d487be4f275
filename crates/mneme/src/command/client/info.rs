//! The fields of a server's `INFO`, by name.

use std::collections::BTreeMap;

/// The fields of `INFO`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Info(pub BTreeMap<String, String>);

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = fields.filter_map(|line| line.split_once(':'));
        Self(
            pairs
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// A field's text; empty if the server has no such field.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A field's number; 0 if the server has no such field.
    pub fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// The fields whose names begin with `with`, with that prefix removed.
    pub fn beginning<'a>(&'a self, with: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0
            .iter()
            .filter_map(move |(name, value)| Some((name.strip_prefix(with)?, value.as_str())))
    }
}

/// The value of `name` in a list such as `calls=1,usec=2`.
pub fn part<'a>(list: &'a str, name: &str) -> &'a str {
    list.split(',')
        .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name_and_by_beginning() {
        let info = Info::parse(
            "# Stats\r\na:1\r\ncmdstat_get:calls=3,usec=7\r\n\r\ncmdstat_set:calls=2\r\nb:x:y\r\n",
        );
        assert_eq!(
            (info.number("a"), info.number("none"), info.text("b")),
            (1, 0, "x:y")
        );
        let commands: Vec<_> = info
            .beginning("cmdstat_")
            .map(|(name, list)| (name, part(list, "calls")))
            .collect();
        assert_eq!(commands, [("get", "3"), ("set", "2")]);
        assert_eq!(part("calls=3,usec=7", "usec"), "7");
        assert_eq!(part("calls=3", "failed"), "");
    }
}
