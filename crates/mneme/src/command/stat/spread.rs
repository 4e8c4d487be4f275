//! The distribution of commands' times between two samples, computed from the cumulative counts of
//! `LATENCY HISTOGRAM`.

use std::collections::BTreeMap;

use crate::command::client::{Answer, AskError, ServerConnection};

/// For each bound in microseconds, the number of calls that took no longer. A missing bound has the
/// same count as the bound below it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Spread(BTreeMap<u64, u64>);

/// The distribution of each command.
#[derive(Debug, Default, Clone)]
pub struct Spreads(BTreeMap<String, Spread>);

impl Spreads {
    /// The server's counts so far; empty if it does not know the command.
    pub fn ask(client: &mut ServerConnection) -> Result<Self, AskError> {
        match client.request(&["LATENCY", "HISTOGRAM"]) {
            Ok(reply) => Ok(Self::of(reply)),
            Err(AskError::Refused { .. }) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn of(reply: Answer) -> Self {
        let commands = reply.fields().into_iter().filter_map(|(name, about)| {
            let Some(Answer::List(rows)) = about.fields().remove("histogram_usec") else {
                return None;
            };
            let mut spread = Spread::default();
            for pair in rows.chunks(2) {
                if let [Answer::Number(bound), Answer::Number(count)] = pair {
                    let number = |number: &i64| u64::try_from(*number).unwrap_or(0);
                    spread.0.insert(number(bound), number(count));
                }
            }
            Some((name, spread))
        });
        Self(commands.collect())
    }

    /// The distribution of one command since `before`.
    pub fn since(&self, name: &str, before: &Spreads) -> Spread {
        let now = self.0.get(name).cloned().unwrap_or_default();
        match before.0.get(name) {
            // If the counts were reset meanwhile, there are fewer calls than before.
            Some(old) if old.calls() <= now.calls() => now.without(old),
            _ => now,
        }
    }

    /// The distribution of all commands together since `before`.
    pub fn all_since(&self, before: &Spreads) -> Spread {
        let each: Vec<_> = self.0.keys().map(|name| self.since(name, before)).collect();
        let bounds = each.iter().flat_map(|spread| spread.0.keys().copied());
        let mut all = Spread::default();
        for bound in bounds {
            let count = each.iter().map(|spread| spread.up_to(bound)).sum();
            all.0.insert(bound, count);
        }
        all
    }
}

impl Spread {
    fn up_to(&self, bound: u64) -> u64 {
        self.0
            .range(..=bound)
            .next_back()
            .map_or(0, |(_, count)| *count)
    }

    fn without(&self, old: &Spread) -> Spread {
        let bounds = self.0.keys().chain(old.0.keys());
        Spread(
            bounds
                .map(|bound| (*bound, self.up_to(*bound).saturating_sub(old.up_to(*bound))))
                .collect(),
        )
    }

    fn calls(&self) -> u64 {
        self.up_to(u64::MAX)
    }

    /// The bound, in microseconds, that the fraction `part` of the calls did not exceed; `None` if
    /// there were no calls.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let calls = self.calls();
        let wanted = ((calls as f64 * part).ceil() as u64).max(1);
        let mut rows = self.0.iter();
        rows.find(|(_, count)| **count >= wanted)
            .map(|(bound, _)| *bound)
    }

    /// The 50th, 99th and 99.9th percentile as text.
    pub fn percentiles(&self) -> [String; 3] {
        [0.5, 0.99, 0.999].map(|part| {
            self.quantile(part)
                .map_or("-".to_owned(), |bound| bound.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spreads(commands: &[(&str, &[(i64, i64)])]) -> Spreads {
        let text = |text: &str| Answer::Text(text.to_owned());
        let number = |number: &i64| Answer::Number(*number);
        let list = commands.iter().flat_map(|(name, rows)| {
            let calls = rows.last().map_or(0, |row| row.1);
            let rows = rows
                .iter()
                .flat_map(|(bound, count)| [number(bound), number(count)]);
            let about = [
                text("calls"),
                Answer::Number(calls),
                text("histogram_usec"),
                Answer::List(rows.collect()),
            ];
            [text(name), Answer::List(about.into())]
        });
        Spreads::of(Answer::List(list.collect()))
    }

    #[test]
    fn calls_before_the_last_sample_do_not_count() {
        let before = spreads(&[("get", &[(1, 90), (66, 100)])]);
        // Ten more calls: nine within 2 us, one within 1049.
        let now = spreads(&[
            ("get", &[(1, 90), (2, 99), (66, 109), (1049, 110)]),
            ("set", &[(4, 10)]),
        ]);
        let get = now.since("get", &before);
        assert_eq!(get.calls(), 10);
        assert_eq!(
            [0.5, 0.9, 0.99].map(|part| get.quantile(part)),
            [Some(2), Some(2), Some(1049)]
        );
        let all = now.all_since(&before);
        assert_eq!(all.calls(), 20);
        assert_eq!(
            [0.4, 0.9, 1.0].map(|part| all.quantile(part)),
            [Some(2), Some(4), Some(1049)]
        );
        assert_eq!(now.since("get", &now).percentiles(), ["-", "-", "-"]);
        // After a reset.
        assert_eq!(before.since("get", &now).calls(), 100);
        assert_eq!(now.since("none", &before).quantile(0.5), None);
    }
}
