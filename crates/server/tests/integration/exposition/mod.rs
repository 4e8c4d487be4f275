//! A strict reader of Prometheus' text format 0.0.4: it accepts nothing that the format does not
//! allow, and also refuses families whose samples are not consecutive.

use std::collections::BTreeMap;

/// The content of a page.
pub struct Page {
    /// The values by series, in the notation of the page.
    series: BTreeMap<String, f64>,
    /// The types by family.
    types: BTreeMap<String, String>,
}

fn is_name(text: &str) -> bool {
    let start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    text.starts_with(start) && text.chars().all(|c| start(c) || c.is_ascii_digit())
}

/// The labels between braces, unescaped.
fn labels(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").expect("a label's name");
        assert!(is_name(name) && !name.contains(':'), "{name}");
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect("a label's end") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().unwrap().1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    other => panic!("\\{other}"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(
            labels.insert(name.to_owned(), value).is_none(),
            "{name} twice"
        );
        text = &rest[end + 1..];
        if !text.is_empty() {
            text = text.strip_prefix(',').expect("a comma between labels");
        }
    }
    labels
}

/// A histogram that is being read.
#[derive(Default)]
struct Spread {
    last: Option<(f64, f64)>,
    count: Option<f64>,
    has_sum: bool,
}

impl Page {
    pub fn read(body: &str) -> Self {
        assert!(body.ends_with('\n') && !body.contains('\r'));
        let mut page = Self {
            series: BTreeMap::new(),
            types: BTreeMap::new(),
        };
        let mut lines = body.lines().peekable();
        while let Some(line) = lines.next() {
            let help = line
                .strip_prefix("# HELP ")
                .unwrap_or_else(|| panic!("no help: {line}"));
            let (family, help) = help.split_once(' ').unwrap();
            assert!(is_name(family) && !help.is_empty(), "{line}");
            let kind = lines
                .next()
                .and_then(|line| line.strip_prefix(&format!("# TYPE {family} ")));
            let kind = kind.unwrap_or_else(|| panic!("{family} has no type"));
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{family}");
            let before = page.types.insert(family.to_owned(), kind.to_owned());
            assert!(before.is_none(), "{family} twice");
            let mut spreads: BTreeMap<String, Spread> = BTreeMap::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                page.sample(family, kind, line, &mut spreads);
            }
            for (series, spread) in spreads {
                let (bound, all) = spread.last.unwrap();
                assert!(
                    bound == f64::INFINITY && spread.has_sum,
                    "{family} {series}"
                );
                assert_eq!(spread.count, Some(all), "{family} {series}");
            }
        }
        page
    }

    fn sample(
        &mut self,
        family: &str,
        kind: &str,
        line: &str,
        spreads: &mut BTreeMap<String, Spread>,
    ) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value.is_finite() && value >= 0.0, "{line}");
        assert!(
            self.series.insert(series.to_owned(), value).is_none(),
            "{series} twice"
        );
        let (name, inside) = match series.split_once('{') {
            Some((name, rest)) => (name, rest.strip_suffix('}').unwrap()),
            None => (series, ""),
        };
        let mut labels = labels(inside);
        if kind != "histogram" {
            assert_eq!(name, family);
            assert!(!labels.contains_key("le"), "{line}");
            return;
        }
        let suffix = name.strip_prefix(family).unwrap();
        let bound = labels.remove("le");
        let spread = spreads.entry(format!("{labels:?}")).or_default();
        match (suffix, bound) {
            ("_bucket", Some(bound)) => {
                let bound = match bound.as_str() {
                    "+Inf" => f64::INFINITY,
                    bound => bound.parse().unwrap(),
                };
                if let Some((last, seen)) = spread.last {
                    assert!(bound > last && value >= seen, "{line}");
                }
                spread.last = Some((bound, value));
            }
            ("_sum", None) => spread.has_sum = true,
            ("_count", None) => spread.count = Some(value),
            _ => panic!("{line}"),
        }
    }

    /// The value of a series.
    pub fn value(&self, series: &str) -> f64 {
        *self
            .series
            .get(series)
            .unwrap_or_else(|| panic!("no {series}"))
    }

    /// The series whose names have the prefix `with`.
    pub fn beginning<'a>(&'a self, with: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.series.iter().filter_map(move |(series, value)| {
            series
                .starts_with(with)
                .then_some((series.as_str(), *value))
        })
    }

    /// Asserts that no counter has decreased or disappeared since `before`.
    pub fn must_follow(&self, before: &Page) {
        for (series, old) in &before.series {
            let name = series.split('{').next().unwrap();
            let is_spread = ["_bucket", "_sum", "_count"]
                .iter()
                .filter_map(|suffix| name.strip_suffix(suffix))
                .any(|family| {
                    self.types
                        .get(family)
                        .is_some_and(|kind| kind == "histogram")
                });
            if is_spread || self.types.get(name).is_some_and(|kind| kind == "counter") {
                assert!(
                    self.value(series) >= *old,
                    "{series}: {} after {old}",
                    self.value(series)
                );
            }
        }
    }
}
