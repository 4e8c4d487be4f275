//! Prometheus's text format, version 0.0.4: families of samples, each preceded by its help and its
//! type. <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>

use std::fmt::{Display, Write as _};

/// The type of the body, for HTTP.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A body that is being written.
#[derive(Default)]
pub(super) struct Exposition(String);

/// A family that is being written.
pub(super) struct Family<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// Adds a family of values that only grow, until the server or `CONFIG RESETSTAT` resets them.
    pub fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "counter", help)
    }

    /// Adds a family of values that go up and down.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// Adds a family of distributions.
    pub fn histogram(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let text = &mut self.0;
        // Writing to a `String` does not fail, here and below.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Family { text, name }
    }

    /// The complete text.
    pub fn into_text(self) -> String {
        self.0
    }
}

impl Family<'_> {
    /// Writes its only sample.
    pub fn is(mut self, value: impl Display) {
        self.add(&[], value);
    }

    /// Adds one sample.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.sample("", labels, value);
    }

    /// Adds one distribution: for each bound in seconds the number of values up to it, the total
    /// number, and the sum in seconds.
    pub fn spread(
        &mut self,
        label: (&str, &str),
        rows: impl Iterator<Item = (f64, u64)>,
        count: u64,
        sum: f64,
    ) {
        for (seconds, seen) in rows {
            self.sample("_bucket", &[label, ("le", &seconds.to_string())], seen);
        }
        self.sample("_bucket", &[label, ("le", "+Inf")], count);
        self.sample("_sum", &[label], sum);
        self.sample("_count", &[label], count);
    }

    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let text = &mut *self.text;
        let _ = write!(text, "{}{suffix}", self.name);
        for (index, (name, value)) in labels.iter().enumerate() {
            let value = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n");
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(text, "{before}{name}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(text, "{after} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_escaped_and_numbers_are_plain() {
        let mut page = Exposition::default();
        let mut family = page.counter("a_total", "one\\two\nthree");
        family.add(&[("code", "x\"y\\z\n"), ("b", "")], 7);
        page.gauge("b", "B.").is(0.000_001_023);
        let mut family = page.histogram("c", "C.");
        family.spread(("d", "e"), [(0.5, 1)].into_iter(), 2, 1.25);
        assert_eq!(
            page.into_text(),
            "# HELP a_total one\\\\two\\nthree\n# TYPE a_total counter\na_total{code=\"x\\\"y\\\\z\\n\",b=\"\"} 7\n\
             # HELP b B.\n# TYPE b gauge\nb 0.000001023\n\
             # HELP c C.\n# TYPE c histogram\nc_bucket{d=\"e\",le=\"0.5\"} 1\nc_bucket{d=\"e\",le=\"+Inf\"} 2\n\
             c_sum{d=\"e\"} 1.25\nc_count{d=\"e\"} 2\n"
        );
    }
}
