//! `cargo xtask errors`: `docs/errors.md` lists what the sources say about every public error of
//! the published libraries; `--write` writes it.
//!
//! A type is listed if it derives `Error` and the listing of its crate's interface (see [`api`])
//! has it. The texts are its docs and those of its variants. The kinds come from the crate's
//! implementations of `Classified`.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use crate::api;
use crate::files;
use crate::steps::{Outcome, failed};
use crate::workspace::{Package, Workspace};

/// The page.
const PAGE: &str = "docs/errors.md";

/// What the page says first.
const HEAD: &str = "\
# Errors

Every public error of the libraries for Rust, with the docs of its variants. `cargo xtask errors
--write` writes this page from the sources. Enums are `#[non_exhaustive]`, few excepted: a `match`
needs an arm for the others. An error's *kind* says what a program should do, where its crate
assigns one; `use mneme::Classified` gives errors a method `kind()`. \"As its cause\" means that the
kind is that of the error within. Guides say more about the errors of [the store](embedding.md), of
[shared stores](guides/local-clients.md) and of [the durable tree](guides/durable-store.md).
";

/// The enum of kinds, and the crate that has it.
const KINDS: (&str, &str) = ("mneme-sys", "ErrorKind");

/// Compares the page with the sources.
///
/// # Errors
/// They differ, or a source cannot be read.
pub fn check(workspace: &Workspace) -> Outcome {
    let file = workspace.root.join(PAGE);
    if fs::read_to_string(&file).unwrap_or_default() == page(workspace)? {
        return Ok(());
    }
    Err(format!("{PAGE} is out of date: `cargo xtask errors --write`").into())
}

/// Writes the page.
///
/// # Errors
/// In words, what could not be read or written.
pub fn write(workspace: &Workspace) -> Outcome {
    let file = workspace.root.join(PAGE);
    Ok(fs::write(&file, page(workspace)?).map_err(failed("write", &file))?)
}

fn page(workspace: &Workspace) -> Result<String, String> {
    let mut page = HEAD.to_owned();
    for package in workspace.published() {
        let mut found = Found::default();
        for file in files::below(&package.directory.join("src"), &["rs"]) {
            let text = fs::read_to_string(&file).map_err(failed("read", &file))?;
            found
                .read(&text)
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
        if package.name == KINDS.0 {
            let kinds = found.types.iter().find(|found| found.name == KINDS.1);
            page.insert_str(HEAD.len(), &kinds.map(described_kinds).unwrap_or_default());
        }
        page.push_str(&section(workspace, package, &found));
    }
    Ok(page)
}

fn described_kinds(kinds: &Type) -> String {
    let mut text = "\n## Kinds\n\n| kind | what happened, and what to do |\n|---|---|\n".to_owned();
    for (kind, docs) in &kinds.variants {
        let _ = writeln!(text, "| `{kind}` | {} |", cell(docs));
    }
    text
}

/// What the page says about one crate; nothing if it has no public errors.
fn section(workspace: &Workspace, package: &Package, found: &Found) -> String {
    let listed = fs::read_to_string(api::listing(workspace, &package.name)).unwrap_or_default();
    let is_public = |name: &str| {
        let mut items = listed.lines().filter_map(|line| {
            let (_, item) = line
                .split_once("pub enum ")
                .or(line.split_once("pub struct "))?;
            item.rsplit("::").next()?.split(['<', '(', ' ']).next()
        });
        items.any(|item| item == name)
    };
    let mut errors: Vec<_> = found.types.iter().filter(|error| error.is_error).collect();
    errors.retain(|error| is_public(&error.name));
    errors.sort_by(|one, other| one.name.cmp(&other.name));
    let mut text = String::new();
    for error in errors {
        if text.is_empty() {
            let _ = writeln!(text, "\n## {}", package.name);
        }
        let kind = |variant: &str| found.kinds.get(&(error.name.clone(), variant.to_owned()));
        let _ = writeln!(text, "\n### `{}`\n\n{}", error.name, wrapped(&error.docs));
        if let Some(kind) = kind("") {
            let _ = writeln!(text, "\nIts kind is {kind}.");
        }
        let has_kinds = error.variants.iter().any(|(name, _)| kind(name).is_some());
        match (error.variants.is_empty(), has_kinds) {
            (true, _) => continue,
            (_, true) => text.push_str("\n| variant | when | kind |\n|---|---|---|\n"),
            (_, false) => text.push_str("\n| variant | when |\n|---|---|\n"),
        }
        for (name, docs) in &error.variants {
            let _ = write!(text, "| `{name}` | {} |", cell(docs));
            if has_kinds {
                let _ = write!(text, " {} |", kind(name).map_or("", |kind| kind));
            }
            text.push('\n');
        }
    }
    text
}

/// A public type: an error, or another enum.
#[derive(Debug, Default, PartialEq, Eq)]
struct Type {
    name: String,
    is_error: bool,
    docs: String,
    /// Each variant of an enum, with its docs.
    variants: Vec<(String, String)>,
}

/// What the sources of one crate say.
#[derive(Debug, Default)]
struct Found {
    types: Vec<Type>,
    /// The kind of each variant, in words; of a struct under an empty name.
    kinds: BTreeMap<(String, String), String>,
}

impl Found {
    fn read(&mut self, text: &str) -> Result<(), String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut attributes = Attributes::default();
        let mut at = 0;
        while at < tokens.len() {
            if let Some(content) = attribute(&tokens, at) {
                attributes.add(content);
                at += 2;
                continue;
            }
            let words: Vec<String> = tokens[at..].iter().take(4).map(word).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match words[..] {
                ["pub", form @ ("enum" | "struct"), name, ..] => {
                    let body = tokens[at..]
                        .iter()
                        .find_map(braced)
                        .filter(|_| form == "enum");
                    self.types.push(Type {
                        name: name.to_owned(),
                        is_error: attributes.derives_error,
                        docs: std::mem::take(&mut attributes.docs),
                        variants: body.map(variants).unwrap_or_default(),
                    });
                }
                ["kinds", "!", "{", ..] => {
                    self.read_table(braced(&tokens[at + 2]).unwrap_or_default());
                }
                ["Classified", "for", name, ..] => {
                    let body = tokens[at..].iter().find_map(braced).unwrap_or_default();
                    self.read_match(name, body);
                }
                _ => {}
            }
            if !matches!(words[0], "pub" | "(") {
                attributes = Attributes::default();
            }
            at += 1;
        }
        Ok(())
    }

    /// Reads the entries of a `kinds!` table: `Error as (A, B) for (C) { D | E => Kind, }`.
    fn read_table(&mut self, table: TokenStream) {
        let mut error = String::new();
        for token in table {
            match &token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    self.read_match(&error, group.stream());
                    error.clear();
                }
                TokenTree::Group(group) => {
                    for variant in group.stream().into_iter().map(|token| word(&token)) {
                        self.assign(&error, &mut vec![variant], CAUSE);
                    }
                }
                _ if error.is_empty() => error = word(&token),
                _ => {}
            }
        }
    }

    /// Reads the arms of a match, or of an entry of a `kinds!` table.
    fn read_match(&mut self, error: &str, arms: TokenStream) {
        let mut words = Vec::new();
        flatten(arms, &mut words);
        let mut named = Vec::new();
        let mut words = words.iter().map(String::as_str).peekable();
        while let Some(word) = words.next() {
            match word {
                // An arm of a table has no path before a kind.
                "=" if words.next_if_eq(&">").is_some() => {
                    if let Some(kind) = words.next_if(|next| *next != "ErrorKind") {
                        self.assign(error, &mut named, kind);
                    }
                }
                "ErrorKind" if words.next_if_eq(&":").is_some() => {
                    words.next();
                    if let Some(kind) = words.next() {
                        self.assign(error, &mut named, kind);
                    }
                }
                _ if word.starts_with(char::is_uppercase)
                    && !matches!(word, "Self" | "ErrorKind") =>
                {
                    named.push(word.to_owned());
                }
                _ => {}
            }
        }
    }

    fn assign(&mut self, error: &str, variants: &mut Vec<String>, kind: &str) {
        let kind = match kind.starts_with(char::is_uppercase) {
            true => format!("`{kind}`"),
            false => CAUSE.to_owned(),
        };
        if variants.is_empty() {
            variants.push(String::new());
        }
        for variant in variants.drain(..) {
            self.kinds.insert((error.to_owned(), variant), kind.clone());
        }
    }
}

/// The kind of an error that has its cause's.
const CAUSE: &str = "as its cause";

/// What the attributes before an item say.
#[derive(Debug, Default)]
struct Attributes {
    docs: String,
    derives_error: bool,
}

impl Attributes {
    fn add(&mut self, content: TokenStream) {
        let mut words = Vec::new();
        flatten(content.clone(), &mut words);
        match words.first().map(String::as_str) {
            Some("doc") => {
                if let Some(TokenTree::Literal(line)) = content.into_iter().last() {
                    self.docs.push_str(&unquoted(&line.to_string()));
                    self.docs.push('\n');
                }
            }
            Some("derive") => self.derives_error |= words.iter().any(|word| word == "Error"),
            _ => {}
        }
    }
}

/// The content of the attribute at that place.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<TokenStream> {
    match (&tokens[at], tokens.get(at + 1)) {
        (TokenTree::Punct(hash), Some(TokenTree::Group(group))) => {
            let is_one = hash.as_char() == '#' && group.delimiter() == Delimiter::Bracket;
            is_one.then(|| group.stream())
        }
        _ => None,
    }
}

/// The variants of an enum, with their docs.
fn variants(body: TokenStream) -> Vec<(String, String)> {
    let tokens: Vec<TokenTree> = body.into_iter().collect();
    let mut variants = Vec::new();
    let mut attributes = Attributes::default();
    let mut at = 0;
    while at < tokens.len() {
        if let Some(content) = attribute(&tokens, at) {
            attributes.add(content);
            at += 2;
            continue;
        }
        if let TokenTree::Ident(name) = &tokens[at] {
            let docs = std::mem::take(&mut attributes).docs;
            variants.push((name.to_string(), docs));
        }
        at += 1;
    }
    variants
}

fn braced(token: &TokenTree) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => Some(group.stream()),
        _ => None,
    }
}

/// A token as a word; of a group its first sign.
fn word(token: &TokenTree) -> String {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Brace => "{".to_owned(),
            Delimiter::Parenthesis => "(".to_owned(),
            _ => "[".to_owned(),
        },
        other => other.to_string(),
    }
}

/// The words within, those of groups too.
fn flatten(stream: TokenStream, words: &mut Vec<String>) {
    for token in stream {
        match token {
            TokenTree::Group(group) => flatten(group.stream(), words),
            other => words.push(other.to_string()),
        }
    }
}

/// The text of a string literal as the compiler makes it of a doc comment.
fn unquoted(literal: &str) -> String {
    let text = literal.trim_start_matches('r').trim_matches('#');
    let text = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let text = text.unwrap_or_default();
    match literal.starts_with('r') {
        true => text.to_owned(),
        false => text
            .replace("\\\"", "\"")
            .replace("\\'", "'")
            .replace("\\\\", "\\"),
    }
}

/// Docs as one paragraph: the text before the first heading or example, without links, which lead
/// nowhere from a page.
fn paragraph(docs: &str) -> String {
    let lines = docs.lines().map(str::trim);
    let lines = lines.take_while(|line| !line.starts_with('#') && !line.starts_with("```"));
    let text = lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((label, behind)) = after.split_once(']') else {
            plain.push('[');
            rest = after;
            continue;
        };
        plain.push_str(label);
        rest = match behind
            .strip_prefix('(')
            .and_then(|behind| behind.split_once(')'))
        {
            Some((_, behind)) => behind,
            None => behind,
        };
    }
    plain + rest
}

/// Docs as the cell of a table.
fn cell(docs: &str) -> String {
    paragraph(docs).replace('|', "\\|")
}

/// Docs in lines of at most 100 columns.
fn wrapped(docs: &str) -> String {
    let mut lines = vec![String::new()];
    for word in paragraph(docs).split(' ') {
        let last = lines.len() - 1;
        if lines[last].chars().count() + 1 + word.chars().count() > 100 {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        /// Why a door stays shut.
        ///
        /// # Use
        /// None.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum DoorError {
            /// It is locked: see [`Key`](crate::Key), or [wait](Self::wait).
            #[error("locked")]
            Locked,
            /// Another
            /// door.
            #[error(transparent)]
            Other(#[from] OtherError),
            /// The kernel says so.
            #[error("no")]
            Os { source: std::io::Error },
        }
        /// A plain enum.
        pub enum Colour { Red }
        /// A broken hinge.
        #[derive(Debug, Error)]
        pub struct Hinge(pub u8);
        #[derive(Error)]
        pub(crate) enum Hidden { No }
        sys::kinds! {
            DoorError as (Other) {
                Locked => Busy,
            }
        }
        impl Classified for Hinge {
            fn kind(&self) -> ErrorKind { ErrorKind::Damaged }
        }
        impl Classified for Third {
            fn kind(&self) -> ErrorKind {
                match self {
                    Self::A { .. } | Self::B => ErrorKind::Io,
                    Self::C { source } => ErrorKind::of_io(source),
                }
            }
        }
    "#;

    #[test]
    fn public_errors_are_found_with_their_docs() {
        let mut found = Found::default();
        found.read(SOURCE).unwrap();
        let errors: Vec<_> = found.types.iter().filter(|one| one.is_error).collect();
        let names: Vec<_> = errors.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["DoorError", "Hinge"]);
        assert_eq!(wrapped(&errors[0].docs), "Why a door stays shut.");
        let cells = errors[0].variants.iter();
        let cells: Vec<_> = cells
            .map(|(name, docs)| (name.as_str(), cell(docs)))
            .collect();
        assert_eq!(
            cells[0],
            ("Locked", "It is locked: see `Key`, or wait.".to_owned())
        );
        assert_eq!(cells[1], ("Other", "Another door.".to_owned()));
        assert_eq!(cells.len(), 3);
    }

    #[test]
    fn kinds_are_those_of_tables_and_of_matches() {
        let mut found = Found::default();
        found.read(SOURCE).unwrap();
        let kind = |error: &str, variant: &str| {
            let kind = found.kinds.get(&(error.to_owned(), variant.to_owned()));
            kind.map_or("", String::as_str)
        };
        assert_eq!(kind("DoorError", "Locked"), "`Busy`");
        assert_eq!(kind("DoorError", "Other"), CAUSE);
        assert_eq!(kind("DoorError", "Os"), "");
        assert_eq!(kind("Hinge", ""), "`Damaged`");
        assert_eq!((kind("Third", "A"), kind("Third", "B")), ("`Io`", "`Io`"));
        assert_eq!(kind("Third", "C"), CAUSE);
    }
}
