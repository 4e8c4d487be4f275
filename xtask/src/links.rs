//! Links of documents: where they are in the text, and whether they lead to something.
//!
//! A link is `[words](target)`, or a line `[words]: target`, outside of code. A target without a
//! scheme names a file or a directory relative to its document, and after `#` one of that
//! document's headings. What lies elsewhere in the network is not asked for.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

/// The links of a document that lead nowhere, in words; `root` is left out of the names.
pub fn broken(root: &Path, document: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(document) else {
        return vec![format!("{} cannot be read", document.display())];
    };
    let name = document.strip_prefix(root).unwrap_or(document).display();
    let targets = targets(&text).into_iter();
    let targets =
        targets.map(|range| (text[..range.start].matches('\n').count() + 1, &text[range]));
    targets
        .filter_map(|(line, target)| {
            let why = why_broken(document, &text, target)?;
            Some(format!("{name}:{line}: `{target}`: {why}"))
        })
        .collect()
}

/// The functions that a document's tables name and that are not where they say, in words. A row
/// begins with a link to a file of sources, and names functions of that file as `name()`.
pub fn missing_functions(root: &Path, document: &Path) -> Vec<String> {
    let text = fs::read_to_string(document).unwrap_or_default();
    let name = document.strip_prefix(root).unwrap_or(document).display();
    let mut missing = Vec::new();
    for (file, functions) in rows_of_functions(&text) {
        let source = fs::read_to_string(resolve(document, file)).unwrap_or_default();
        let is_there = |function: &&str| {
            ["(", "<"]
                .map(|end| format!("fn {function}{end}"))
                .iter()
                .any(|head| source.contains(head))
        };
        let absent = functions.into_iter().filter(|function| !is_there(function));
        missing.extend(absent.map(|function| format!("{name}: {file} has no `{function}()`")));
    }
    missing
}

/// The rows of tables that name functions: the file, and the functions.
fn rows_of_functions(text: &str) -> Vec<(&str, Vec<&str>)> {
    let file_of = |row: &str| {
        let (_, label) = row.split_once("][")?;
        let target = format!("\n[{}]: ", label.split_once(']')?.0);
        let at = text.find(&target)? + target.len();
        text[at..]
            .lines()
            .next()
            .filter(|file| file.ends_with(".rs"))
    };
    let rows = text.lines().filter(|line| line.starts_with("| ["));
    let rows = rows.filter_map(|row| {
        let functions = row.split('`').filter_map(|code| code.strip_suffix("()"));
        Some((file_of(row)?, functions.collect()))
    });
    rows.collect()
}

fn why_broken(document: &Path, text: &str, target: &str) -> Option<&'static str> {
    if is_elsewhere(target) {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = resolve(document, file);
    if !path.exists() {
        return Some("there is no such file");
    }
    let is_there = |text: &str| anchors(text).contains(heading);
    let found = match (heading, file) {
        ("", _) => true,
        (_, "") => is_there(text),
        _ => fs::read_to_string(path).is_ok_and(|text| is_there(&text)),
    };
    (!found).then_some("there is no such heading")
}

/// Whether a target has a scheme.
pub fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The file that a target's part before `#` names, `..` resolved.
pub fn resolve(document: &Path, file: &str) -> PathBuf {
    if file.is_empty() {
        return document.to_path_buf();
    }
    let mut path = document.parent().unwrap_or(Path::new("")).to_path_buf();
    for component in Path::new(file).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// Where in a document the targets of its links are.
pub fn targets(text: &str) -> Vec<Range<usize>> {
    let plain = without_code(text);
    let mut found = Vec::new();
    for (at, _) in plain.match_indices("](") {
        let start = at + 2;
        if let Some(length) = plain[start..].find(')') {
            found.push(start..start + length);
        }
    }
    let mut start = 0;
    for line in plain.split_inclusive('\n') {
        if let Some((words, target)) = line.split_once("]: ")
            && words.starts_with('[')
        {
            let at = start + words.len() + "]: ".len();
            found.push(at..at + target.trim_end().len());
        }
        start += line.len();
    }
    found.sort_by_key(|range| range.start);
    found
}

/// The text with blanks for code, byte for byte.
fn without_code(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let blank = |part: &str| -> String {
        let keep = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
        part.bytes().map(keep).collect()
    };
    let mut fence = None;
    for line in text.split_inclusive('\n') {
        let marks = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|mark| marks.starts_with(mark));
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), _) if mark == Some(open) => fence = None,
            (None, None) => {
                plain.push_str(line);
                continue;
            }
            _ => {}
        }
        plain.push_str(&blank(line));
    }
    // Code within a line, between equal runs of backquotes. It may be wrapped, but not over the
    // end of a paragraph.
    let mut result = String::with_capacity(plain.len());
    for paragraph in plain.split_inclusive("\n\n") {
        let mut rest = paragraph;
        while let Some(at) = rest.find('`') {
            let run = rest[at..].bytes().take_while(|byte| *byte == b'`').count();
            let (before, from) = rest.split_at(at + run);
            result.push_str(before);
            let mark = "`".repeat(run);
            let Some(end) = from.find(&mark) else {
                rest = from;
                continue;
            };
            result.push_str(&blank(&from[..end]));
            result.push_str(&mark);
            rest = &from[end + run..];
        }
        result.push_str(rest);
    }
    result
}

/// The names of a document's headings, as they stand behind `#`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut in_code = false;
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let heading = line.trim_start_matches('#');
        if in_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let name = anchor(heading.trim());
        let times = seen.entry(name.clone()).or_default();
        names.insert(match *times {
            0 => name,
            again => format!("{name}-{again}"),
        });
        *times += 1;
    }
    names
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.collect::<String>().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        targets(text)
            .into_iter()
            .map(|range| &text[range])
            .collect()
    }

    #[test]
    fn links_are_found_outside_of_code_alone() {
        let text =
            "[a](b.md) and `[c](d.md)`, [`e`](f.md#g)\n```\n[h](i.md)\n```\n![j\nk](l.svg)\n";
        assert_eq!(found(text), ["b.md", "f.md#g", "l.svg"]);
        let text = "[a][b], [c](d)\n\n[b]: e.md#f\n";
        assert_eq!(found(text), ["d", "e.md#f"]);
        assert_eq!(found("an open ` and\n\n[a](b)"), ["b"]);
    }

    #[test]
    fn a_row_of_a_table_names_functions_of_a_file() {
        let text = "| [a][b] | `c()`, `d()` |\n| [a](e.rs) | `f()` |\n\n[b]: ../b.rs\n";
        assert_eq!(rows_of_functions(text), [("../b.rs", vec!["c", "d"])]);
    }

    #[test]
    fn the_way_of_a_request_is_counted() {
        let text = include_str!("../../docs/life-of-a-request.md");
        let text = text.split("## The functions on the way").nth(1).unwrap();
        let mut tables = text.split("|---|---|");
        let links = &text[text.find("\n[listen]: ").unwrap()..];
        let claim = tables.next().unwrap();
        let tables: Vec<BTreeSet<_>> = tables
            .map(|table| {
                let table = format!("{table}{links}");
                let rows = rows_of_functions(&table).into_iter();
                let names = rows.flat_map(|(file, functions)| {
                    functions
                        .into_iter()
                        .map(move |function| (file.to_owned(), function.to_owned()))
                });
                names.collect()
            })
            .collect();
        let count = |own: usize| {
            let all: BTreeSet<_> = tables[0].union(&tables[own]).collect();
            let files: BTreeSet<_> = all.iter().map(|(file, _)| file).collect();
            (all.len(), files.len())
        };
        let ((get, get_files), (set, set_files)) = (count(1), count(2));
        let says = format!(
            "A GET passes {get} functions in {get_files} files, a SET {set} in {set_files}."
        );
        assert!(claim.contains(&says), "{says}");
    }

    #[test]
    fn headings_have_names() {
        let text = "# A `b` and c's\n## Twice\n```\n# not this\n```\n## Twice\n";
        let names: Vec<_> = anchors(text).into_iter().collect();
        assert_eq!(names, ["a-b-and-cs", "twice", "twice-1"]);
    }

    #[test]
    fn a_link_to_a_missing_target_is_broken() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let document = here.join("src/links.rs");
        let why = |target: &str| why_broken(&document, "# One\n", target);
        assert_eq!(why("lib.rs"), None);
        assert_eq!(why("../Cargo.toml"), None);
        assert_eq!(why("#one"), None);
        assert_eq!(why("https://example.org/none"), None);
        assert_eq!(why("none.rs"), Some("there is no such file"));
        assert_eq!(why("#two"), Some("there is no such heading"));
        assert_eq!(why("lib.rs#two"), Some("there is no such heading"));
    }
}
