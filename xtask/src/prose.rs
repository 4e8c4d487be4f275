//! How the workspace's prose reads: forms that style forbids, found in comments, docs and names.
//!
//! What is looked for is listed in [`Rule`] and `WORDS`. Places that still have some are listed
//! in `xtask/prose-allowances.txt` with their counts, which only shrink: more than that fails, and
//! `cargo xtask prose --shrink` writes down what is left.

use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Columns that a line of prose has at most.
const COLUMNS: usize = 100;

/// A word or a command of more bytes than this may make its line longer.
const UNBROKEN: usize = 80;

/// Words of a private dialect, each with the field's word. They count in comments, in docs and as
/// parts of names.
const WORDS: &[(&[&str], &str)] = &[
    (&["vigil", "vigils"], "watch registration"),
    (&["tenancy", "tenancies"], "generation"),
    (
        &["glance", "glances", "glimpse", "glimpses", "sight"],
        "optimistic read",
    ),
    (&["patience", "diligence"], "timeout, backoff, retry limit"),
    (&["told", "heard", "news"], "reported, notified"),
    (&["room"], "free space; of a record: slack"),
    (&["shun", "shuns", "shunned"], "deprioritise"),
];

/// What is not repeated here although it breaks a rule: these files name the forms.
const EXEMPT: &[&str] = &["xtask/src/prose.rs", "xtask/tests/prose.rs"];

/// Where the counts that are still allowed stand.
const ALLOWANCES: &str = "xtask/prose-allowances.txt";

/// A form that prose does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A sentence, no question, that begins with "Who" or "Whoever".
    Who,
    /// "he", "him", "his": threads and processes are "it" or "they".
    He,
    /// A doc comment that begins with "The same".
    TheSame,
    /// One of `WORDS`.
    Word,
    /// More than `COLUMNS` columns.
    Long,
}

impl Rule {
    const ALL: [Rule; 5] = [Rule::Who, Rule::He, Rule::TheSame, Rule::Word, Rule::Long];

    fn name(self) -> &'static str {
        match self {
            Rule::Who => "who",
            Rule::He => "he",
            Rule::TheSame => "the-same",
            Rule::Word => "word",
            Rule::Long => "long",
        }
    }
}

/// A place where a rule is broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the workspace's root.
    pub file: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The rule.
    pub rule: Rule,
    /// What to write instead.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, line) = (self.file.display(), self.line);
        write!(f, "{file}:{line}: {}", self.advice)
    }
}

/// How often a rule may be broken below a path.
type Allowances = BTreeMap<(String, Rule), usize>;

/// Checks the workspace, prints what is wrong, and says whether nothing is.
///
/// # Errors
/// In words: unknown arguments, an allowance that cannot be read or written.
pub fn run(workspace: &Workspace, arguments: &[String]) -> Result<bool, String> {
    let findings = find(&workspace.root)?;
    let file = workspace.root.join(ALLOWANCES);
    let text = fs::read_to_string(&file).map_err(|error| format!("{ALLOWANCES}: {error}"))?;
    let allowed = read_allowances(&text)?;
    match arguments {
        [] => {}
        [flag] if flag == "--shrink" => {
            let left = shrink(&allowed, &count(&findings));
            return fs::write(&file, write_allowances(&left))
                .map(|()| true)
                .map_err(|error| format!("{ALLOWANCES}: {error}"));
        }
        [flag, path] if flag == "--below" => {
            let below = findings.iter().filter(|found| found.file.starts_with(path));
            below.for_each(|found| println!("{found}"));
            return Ok(true);
        }
        _ => return Err(format!("`prose` has no flags `{}`", arguments.join(" "))),
    }
    let excess = judge(&allowed, &findings);
    excess.iter().for_each(|line| println!("{line}"));
    println!("prose: {} place(s) over their allowance", excess.len());
    Ok(excess.is_empty())
}

/// Where there are more findings than allowed: the place with both counts, then each finding.
pub fn judge(allowed: &Allowances, findings: &[Finding]) -> Vec<String> {
    let mut lines = Vec::new();
    for ((place, rule), found) in count(findings) {
        let most = allowed.get(&(place.clone(), rule)).copied().unwrap_or(0);
        if found <= most {
            continue;
        }
        let name = rule.name();
        lines.push(format!(
            "{place}: rule `{name}` broken {found} times, {most} allowed"
        ));
        let here = findings
            .iter()
            .filter(|f| f.rule == rule && place_of(&f.file) == place);
        lines.extend(here.map(|finding| format!("    {finding}")));
    }
    lines
}

/// The lower of what is allowed and what is found.
fn shrink(allowed: &Allowances, found: &Allowances) -> Allowances {
    let left = allowed.iter().filter_map(|(place, most)| {
        let left = *most.min(found.get(place)?);
        Some((place.clone(), left))
    });
    left.collect()
}

fn count(findings: &[Finding]) -> Allowances {
    let mut counts = Allowances::new();
    for finding in findings {
        *counts
            .entry((place_of(&finding.file), finding.rule))
            .or_default() += 1;
    }
    counts
}

/// What shares an allowance: a crate, an example, a folder of documents.
fn place_of(file: &Path) -> String {
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    match &parts[..] {
        [_] => ".".to_owned(),
        [top, _] => top.to_string(),
        [top, ..] if ["fuzz", "xtask"].contains(&top.as_ref()) => top.to_string(),
        [top, next, ..] => format!("{top}/{next}"),
        [] => String::new(),
    }
}

/// Reads lines `path rule count`.
///
/// # Errors
/// In words, for a line that is none.
pub fn read_allowances(text: &str) -> Result<Allowances, String> {
    let mut allowances = Allowances::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
    {
        let (place, rule, count) = allowance(line)
            .ok_or_else(|| format!("{ALLOWANCES}: not `path rule count`: {line}"))?;
        allowances.insert((place.to_owned(), rule), count);
    }
    Ok(allowances)
}

fn allowance(line: &str) -> Option<(&str, Rule, usize)> {
    let mut parts = line.split_whitespace();
    let (place, name, count) = (parts.next()?, parts.next()?, parts.next()?);
    let rule = Rule::ALL.into_iter().find(|rule| rule.name() == name)?;
    Some((place, rule, count.parse().ok()?))
}

fn write_allowances(allowances: &Allowances) -> String {
    let mut text = String::from(
        "# Where forms that `cargo xtask prose` looks for are still allowed: path, rule, how many.\n\
         # Numbers only shrink: `cargo xtask prose --shrink` lowers them to what is left.\n",
    );
    for ((place, rule), count) in allowances {
        text += &format!("{place} {} {count}\n", rule.name());
    }
    text
}

/// All findings below `root`.
fn find(root: &Path) -> Result<Vec<Finding>, String> {
    let mut files = Vec::new();
    collect(root, &mut files);
    let mut findings = Vec::new();
    for file in files {
        let shown = file.strip_prefix(root).unwrap_or(&file);
        if EXEMPT.iter().any(|exempt| shown == Path::new(exempt)) {
            continue;
        }
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", shown.display()))?;
        findings.extend(check(shown, &text));
    }
    Ok(findings)
}

/// Rust sources and Markdown, without what is built or hidden.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !name.starts_with('.') && !["target", "corpus", "artifacts"].contains(&name.as_ref())
            {
                collect(&path, files);
            }
        } else if path
            .extension()
            .is_some_and(|kind| kind == "rs" || kind == "md")
        {
            files.push(path);
        }
    }
}

/// A line of prose: a comment's content, or a line of a document.
struct Line<'a> {
    number: usize,
    text: &'a str,
    /// Of a doc comment whose first line this is.
    begins_docs: bool,
}

/// Checks one file's text.
pub fn check(file: &Path, text: &str) -> Vec<Finding> {
    let is_rust = file.extension().is_some_and(|kind| kind == "rs");
    let mut findings = Vec::new();
    let mut found = |line: usize, rule: Rule, advice: String| {
        let file = file.to_path_buf();
        findings.push(Finding {
            file,
            line,
            rule,
            advice,
        });
    };
    let (mut is_code, mut was_docs) = (false, false);
    let mut paragraph: Vec<Line<'_>> = Vec::new();
    for (number, whole) in (1..).zip(text.lines()) {
        for word in words(whole) {
            if let Some((_, instead)) = WORDS.iter().find(|(known, _)| known.contains(&&*word)) {
                found(number, Rule::Word, format!("`{word}`: {instead}"));
            }
            if ["he", "him", "his", "himself"].contains(&&*word) {
                found(number, Rule::He, format!("`{word}`: it, they"));
            }
        }
        let prose = if is_rust { comment(whole) } else { Some(whole) };
        if prose.is_some_and(|text| text.trim_start().starts_with("```")) {
            is_code = !is_code;
        } else if is_rust && prose.is_none() {
            is_code = false;
        }
        let is_docs = is_rust
            && ["///", "//!"]
                .iter()
                .any(|mark| whole.trim_start().starts_with(mark));
        let prose = prose.filter(|text| !is_code && !text.trim().is_empty());
        if let Some(text) = prose {
            // A table's row cannot be broken, nor can a link, a long path or a long command.
            let mut commands = text.split('`').skip(1).step_by(2);
            let is_whole = text.trim_start().starts_with('|')
                || whole.contains("](http")
                || commands.any(|command| command.len() > UNBROKEN)
                || whole.split(' ').any(|word| word.len() > UNBROKEN);
            if whole.chars().count() > COLUMNS && !is_whole {
                found(number, Rule::Long, format!("more than {COLUMNS} columns"));
            }
            let begins_docs = is_docs && !was_docs;
            paragraph.push(Line {
                number,
                text,
                begins_docs,
            });
        } else {
            sentences(&paragraph, &mut found);
            paragraph.clear();
        }
        was_docs = is_docs;
    }
    sentences(&paragraph, &mut found);
    findings
}

/// The comment on a line of Rust.
fn comment(line: &str) -> Option<&str> {
    let content = match line.trim_start().strip_prefix("//") {
        Some(content) => content,
        None => line.split_once(" // ")?.1,
    };
    Some(content.trim_start_matches(['/', '!']))
}

/// What the sentences of a paragraph begin with.
fn sentences(paragraph: &[Line<'_>], found: &mut impl FnMut(usize, Rule, String)) {
    let mut before = String::new();
    for (place, line) in paragraph.iter().enumerate() {
        if line.begins_docs && line.text.trim_start().starts_with("The same") {
            found(line.number, Rule::TheSame, "say what differs".to_owned());
        }
        for (at, word) in words_at(line.text) {
            let begins = is_beginning(&before, &line.text[..at]);
            if begins && ["Who", "Whoever"].contains(&word) {
                let rest = paragraph[place + 1..].iter().map(|line| line.text);
                let rest: Vec<&str> = std::iter::once(&line.text[at..]).chain(rest).collect();
                if !is_question(&rest.join(" ")) {
                    let advice = format!("begins with `{word}`: name the subject first");
                    found(line.number, Rule::Who, advice);
                }
            }
        }
        before = line.text.trim_end().to_owned();
    }
}

/// Whether a sentence begins behind these two lines' text.
fn is_beginning(line_before: &str, before: &str) -> bool {
    let marks = |c: char| c.is_whitespace() || "*_\"(#->`".contains(c);
    let before = before.trim_end_matches(marks);
    let before = if before.is_empty() {
        line_before.trim_end_matches(marks)
    } else {
        before
    };
    before.is_empty() || before.ends_with(['.', '!', '?', ':', '|'])
}

fn is_question(text: &str) -> bool {
    text.find(['.', '?', '!', ';'])
        .is_some_and(|at| text[at..].starts_with('?'))
}

/// The alphabetic words of a text and where they begin.
fn words_at(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr().addr() - text.as_ptr().addr(), word))
}

/// The words of a text in small letters, those that names are made of too.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (_, word) in words_at(text) {
        let mut part = String::new();
        let mut was_small = false;
        for letter in word.chars() {
            if letter.is_uppercase() && was_small {
                words.push(std::mem::take(&mut part));
            }
            was_small = letter.is_lowercase();
            part.extend(letter.to_lowercase());
        }
        words.push(part);
    }
    words
}
