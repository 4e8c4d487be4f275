//! How the workspace's prose reads: forms that style forbids, found in comments, docs and names.
//!
//! What is looked for is listed in [`Rule`] and `WORDS`.

use crate::files;
use crate::steps::Outcome;
use crate::workspace::Workspace;
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

/// Phrases that need a second reading, each with what to write instead.
const PHRASES: &[(&str, &str)] = &[
    (
        "to be had",
        "say whether there is one, or whether it can be allocated",
    ),
    ("tell of", "name, report, describe"),
    ("tells of", "names, reports, describes"),
    ("that are all", "all of which are"),
    ("for they", "because they"),
    ("comes to nothing", "fails, has no effect"),
    ("come to nothing", "fail, have no effect"),
    ("came to nothing", "failed, had no effect"),
    ("comes of it", "results, happens"),
    ("came of it", "resulted, happened"),
    ("stands still", "is stopped, hangs, does not advance"),
    ("stand still", "be stopped, hang, not advance"),
    ("stood still", "was stopped, did not advance"),
    ("hears of", "receives, learns, notices"),
    ("hear of", "receive, learn, notice"),
    ("in vain", "without success, without effect"),
    ("needed no more", "no longer needed"),
    ("counts no more", "no longer counts"),
    ("count no more", "no longer count"),
    ("goes on behind", "continues after"),
    ("go on behind", "continue after"),
];

/// Beginnings of docs that are clauses without a main sentence.
const CLAUSES: &[&str] = &[
    "That ",
    "What cannot ",
    "What may not ",
    "What must not ",
    "What is not ",
    "What came of ",
    "What comes of ",
    "What became of ",
    "So many ",
    "As many ",
];

/// Beginnings and ends of a first sentence that together make it such a clause.
const BRACKETED: &[(&str, &[&str])] = &[
    ("Where ", &["lies", "lie", "stands", "stand"]),
    ("What ", &["comes to", "come to", "came to"]),
];

/// Words after "Has" at the beginning of docs that make it mean "causes".
const CAUSED: &[&str] = &[
    "a", "all", "an", "another", "each", "every", "it", "its", "that", "the", "them", "this",
];

/// What is not repeated here although it breaks a rule: these files name the forms.
const EXEMPT: &[&str] = &["xtask/src/prose.rs", "xtask/tests/prose.rs"];

/// It gives old names beside the new ones.
const CHANGELOG: &str = "CHANGELOG.md";

/// A form that prose does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A sentence, no question, that begins with "Who" or "Whoever".
    Who,
    /// "he", "him", "his": threads and processes are "it" or "they".
    He,
    /// A doc comment that begins with "The same".
    TheSame,
    /// A doc comment that begins with "Whose".
    Whose,
    /// A doc comment that begins with a clause and no sentence: "That it holds", "Where it lies", "What
    /// came of a step", "So many bytes".
    Clause,
    /// A doc comment that begins with "Has" in the sense of "causes".
    Has,
    /// One of `WORDS`.
    Word,
    /// One of `PHRASES`.
    Phrase,
    /// More than `COLUMNS` columns.
    Long,
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

/// Checks the workspace, or what is below a path, and prints what is wrong.
///
/// # Errors
/// Something is wrong, or a file cannot be read.
pub fn run(workspace: &Workspace, below: Option<&Path>) -> Outcome {
    let mut findings = find(&workspace.root)?;
    findings.retain(|found| below.is_none_or(|below| found.file.starts_with(below)));
    findings.iter().for_each(|found| println!("{found}"));
    println!("prose: {} place(s)", findings.len());
    match findings.is_empty() {
        true => Ok(()),
        false => Err("see CONTRIBUTING.md, \"Prose\"".into()),
    }
}

/// All findings below `root`.
fn find(root: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for file in files::below(root, &["rs", "md"]) {
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
    let has_old_names = file == Path::new(CHANGELOG);
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
            let mut known = WORDS.iter().filter(|_| !has_old_names);
            if let Some((_, instead)) = known.find(|(words, _)| words.contains(&&*word)) {
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
            let phrase = PHRASES.iter().filter(|_| !has_old_names);
            for (phrase, instead) in phrase.filter(|(phrase, _)| has_phrase(text, phrase)) {
                found(number, Rule::Phrase, format!("`{phrase}`: {instead}"));
            }
            if is_negated_start(text) {
                let advice = "`from here on` with `not`: write `no longer`";
                found(number, Rule::Phrase, advice.to_owned());
            }
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
        if line.begins_docs && line.text.trim_start().starts_with("Whose ") {
            let advice = "begins with `Whose`: name the owner".to_owned();
            found(line.number, Rule::Whose, advice);
        }
        if line.begins_docs {
            let rest = paragraph[place..].iter().map(|line| line.text.trim());
            let text = rest.collect::<Vec<_>>().join(" ");
            let sentence = text.split(". ").next().unwrap_or_default();
            let sentence = sentence.trim_end_matches('.');
            if is_clause(sentence) {
                let advice = "begins with a clause: name what it is, or say what it does";
                found(line.number, Rule::Clause, advice.to_owned());
            }
            if is_causing(sentence) {
                let advice = "begins with `Has`: makes, lets, requests";
                found(line.number, Rule::Has, advice.to_owned());
            }
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

/// Whether the first sentence of docs is only a clause.
fn is_clause(sentence: &str) -> bool {
    let is_bracketed = |(first, last): &(&str, &[&str])| {
        let mut last = last.iter().map(|last| format!(" {last}"));
        sentence.starts_with(first) && last.any(|last| sentence.ends_with(&last))
    };
    CLAUSES.iter().any(|first| sentence.starts_with(first)) || BRACKETED.iter().any(is_bracketed)
}

/// Whether the first sentence of docs begins with "Has" in the sense of "causes".
fn is_causing(sentence: &str) -> bool {
    let mut words = sentence.split(' ');
    words.next() == Some("Has") && words.next().is_some_and(|word| CAUSED.contains(&word))
}

/// Whether a sentence on this line says that from here on something is not so.
fn is_negated_start(text: &str) -> bool {
    let mut sentences = text.split_inclusive(['.', ';', ':']);
    sentences.any(|sentence| {
        let start = sentence.to_lowercase().find("from here on ");
        start.is_some_and(|at| has_phrase(&sentence[at..], "not"))
    })
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

/// Whether these words stand in the text one after the other, in small letters.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        is_edge(before.chars().next_back()) && is_edge(after.chars().next())
    })
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
