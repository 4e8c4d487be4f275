//! What a source file names: paths after resolving its `use`s, macros, string literals, foreign
//! blocks; and the types that it shows to others.
//!
//! It works on tokens, not on a syntax tree, so that the bodies of macros are seen as well. Items
//! for tests only (`#[test]`, `#[cfg(test)]`) are left out: a test may use deadlines and files.

use proc_macro2::{Delimiter, Ident, Spacing, TokenStream, TokenTree};
use std::collections::{HashMap, HashSet};

/// What a file names, with lines.
#[derive(Debug, Default)]
pub struct Named {
    /// Paths by segments; a glob import ends in `*`. Local aliases are resolved, `core` and `alloc`
    /// read as `std`.
    pub paths: Vec<(Vec<String>, usize)>,
    /// Those of `paths`, by place, that a `pub use` names: what the file passes on.
    pub exports: HashSet<usize>,
    /// What each imported or passed-on name stands for.
    pub aliases: HashMap<String, Vec<String>>,
    /// Names of invoked macros.
    pub macros: Vec<(String, usize)>,
    /// String literals as written.
    pub strings: Vec<(String, usize)>,
    /// Lines of `extern "..." { }` blocks.
    pub foreign_blocks: Vec<usize>,
    /// Types that this file shows to others, by `pub` or `pub(..)`.
    pub types: Vec<(String, usize)>,
    /// Modules declared under `#[cfg(test)]`, whose files are for tests only.
    pub test_modules: Vec<String>,
}

impl Named {
    /// Reads a source text.
    ///
    /// # Errors
    /// In words, when it is not made of Rust's tokens.
    pub fn read(text: &str) -> Result<Self, String> {
        let tokens: TokenStream = text.parse().map_err(|error| format!("not Rust: {error}"))?;
        let mut reader = Reader::default();
        if !reader.walk(tokens) {
            reader = Reader::default();
        }
        Ok(reader.finish())
    }
}

#[derive(Default)]
struct Reader {
    named: Named,
}

impl Reader {
    /// Reads one level and what it contains; false if an inner `#![cfg(test)]` takes the whole
    /// level out.
    fn walk(&mut self, stream: TokenStream) -> bool {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut at = 0;
        let mut skip = false;
        while at < tokens.len() {
            if let Some((content, inner, next)) = attribute(&tokens, at) {
                if for_tests_only(&content) {
                    if inner {
                        return false;
                    }
                    skip = true;
                } else if !skip {
                    self.attribute_names(content);
                }
                at = next;
                continue;
            }
            if skip {
                at = self.skip_item(&tokens, at);
                skip = false;
                continue;
            }
            at = self.step(&tokens, at);
        }
        true
    }

    /// Reads the paths in an attribute: `#[error("{}", crate::LIMIT)]` needs what it names. Its
    /// strings are prose.
    fn attribute_names(&mut self, content: TokenStream) {
        let strings = self.named.strings.len();
        self.walk(content);
        self.named.strings.truncate(strings);
    }

    /// Reads the token at `at` and whatever belongs to it; returns where to go on.
    fn step(&mut self, tokens: &[TokenTree], at: usize) -> usize {
        let line = tokens[at].span().start().line;
        match &tokens[at] {
            TokenTree::Group(group) => {
                self.walk(group.stream());
                at + 1
            }
            TokenTree::Literal(literal) => {
                let written = literal.to_string();
                if written.contains('"') {
                    self.named.strings.push((written, line));
                }
                at + 1
            }
            TokenTree::Ident(ident) if ident == "use" && !punct(tokens, at + 1, '<') => {
                let first = self.named.paths.len();
                let next = self.import(Vec::new(), tokens, at + 1);
                if is_public(&tokens[..at]) {
                    self.named.exports.extend(first..self.named.paths.len());
                }
                next
            }
            TokenTree::Ident(ident)
                if ident == "extern"
                    && matches!(tokens.get(at + 1), Some(TokenTree::Literal(_)))
                    && braced(tokens, at + 2) =>
            {
                self.named.foreign_blocks.push(line);
                at + 2
            }
            TokenTree::Ident(keyword) if is_of_types(keyword) => {
                if let Some(TokenTree::Ident(name)) = tokens.get(at + 1)
                    && is_public(before_unsafe(&tokens[..at]))
                {
                    self.named.types.push((name.to_string(), line));
                }
                at + 1
            }
            TokenTree::Ident(_) => self.path(tokens, at, line),
            TokenTree::Punct(_) => at + 1,
        }
    }

    /// Reads `a::b::c` or `a::b!`.
    fn path(&mut self, tokens: &[TokenTree], mut at: usize, line: usize) -> usize {
        let mut segments = Vec::new();
        while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
            segments.push(ident.to_string());
            at += 1;
            if !colons(tokens, at) {
                break;
            }
            at += 2;
        }
        let group_follows = matches!(tokens.get(at + 1), Some(TokenTree::Group(_)));
        if punct(tokens, at, '!') && group_follows {
            if let Some(name) = segments.last() {
                self.named.macros.push((name.clone(), line));
            }
            at += 1;
        }
        self.named.paths.push((segments, line));
        at
    }

    /// Reads one branch of a `use` tree that continues `prefix`; stops at `;`, `,` or the end.
    fn import(&mut self, prefix: Vec<String>, tokens: &[TokenTree], mut at: usize) -> usize {
        let mut path = prefix;
        let mut line = 0;
        while let Some(token) = tokens.get(at) {
            line = token.span().start().line;
            match token {
                TokenTree::Ident(ident) if ident == "as" => {
                    if let Some(TokenTree::Ident(alias)) = tokens.get(at + 1) {
                        self.named.aliases.insert(alias.to_string(), path.clone());
                    }
                    at += 1;
                }
                TokenTree::Ident(ident) if ident == "self" && !path.is_empty() => {
                    self.alias_of_last(&path);
                }
                TokenTree::Ident(ident) => {
                    path.push(ident.to_string());
                    if !colons(tokens, at + 1) {
                        self.alias_of_last(&path);
                    }
                }
                TokenTree::Group(group) => {
                    let branches: Vec<TokenTree> = group.stream().into_iter().collect();
                    let mut branch = 0;
                    while branch < branches.len() {
                        branch = self.import(path.clone(), &branches, branch);
                    }
                    return at + 1;
                }
                TokenTree::Punct(mark) if mark.as_char() == '*' => path.push("*".to_owned()),
                TokenTree::Punct(mark) if mark.as_char() == ':' => {}
                _ => break,
            }
            at += 1;
        }
        if !path.is_empty() {
            self.named.paths.push((path, line));
        }
        at + 1
    }

    fn alias_of_last(&mut self, path: &[String]) {
        if let Some(last) = path.last() {
            self.named.aliases.insert(last.clone(), path.to_vec());
        }
    }

    /// Steps over an item that is for tests only, remembering the name of a module kept in a file.
    fn skip_item(&mut self, tokens: &[TokenTree], mut at: usize) -> usize {
        let start = at;
        while at < tokens.len() {
            if punct(tokens, at, ';') || braced(tokens, at) {
                break;
            }
            at += 1;
        }
        let item = &tokens[start..at.min(tokens.len())];
        if let Some(place) = item
            .iter()
            .position(|t| matches!(t, TokenTree::Ident(i) if i == "mod"))
            && let Some(TokenTree::Ident(name)) = item.get(place + 1)
            && punct(tokens, at, ';')
        {
            self.named.test_modules.push(name.to_string());
        }
        at + 1
    }

    /// Resolves the first segments.
    fn finish(mut self) -> Named {
        for (path, _) in &mut self.named.paths {
            if let Some(whole) = self.named.aliases.get(&path[0]) {
                path.splice(0..1, whole.iter().cloned());
            }
            if path[0] == "core" || path[0] == "alloc" {
                path[0] = "std".to_owned();
            }
        }
        self.named
    }
}

/// An attribute at `at`: its content, whether it is an inner one, and where to go on.
fn attribute(tokens: &[TokenTree], at: usize) -> Option<(TokenStream, bool, usize)> {
    if !punct(tokens, at, '#') {
        return None;
    }
    let inner = punct(tokens, at + 1, '!');
    let place = at + 1 + usize::from(inner);
    match tokens.get(place) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Bracket => {
            Some((group.stream(), inner, place + 1))
        }
        _ => None,
    }
}

/// Whether an attribute's content is `test`, `cfg(test)` or `cfg(all(.., test, ..))`.
fn for_tests_only(content: &TokenStream) -> bool {
    let tokens: Vec<TokenTree> = content.clone().into_iter().collect();
    match (tokens.first(), tokens.get(1)) {
        (Some(TokenTree::Ident(name)), None) => name == "test",
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(condition))) if name == "cfg" => {
            implies_test(&condition.stream().into_iter().collect::<Vec<_>>())
        }
        _ => false,
    }
}

fn implies_test(condition: &[TokenTree]) -> bool {
    match (condition.first(), condition.get(1)) {
        (Some(TokenTree::Ident(name)), None) => name == "test",
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(parts))) if name == "all" => {
            let parts: Vec<TokenTree> = parts.stream().into_iter().collect();
            parts
                .split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ','))
                .any(implies_test)
        }
        _ => false,
    }
}

/// Whether this is what the definition of a type begins with. An associated type is never `pub`.
fn is_of_types(keyword: &Ident) -> bool {
    let keywords = ["struct", "enum", "union", "trait", "type"];
    keywords.iter().any(|known| keyword == known)
}

/// These tokens without `unsafe` at their end.
fn before_unsafe(before: &[TokenTree]) -> &[TokenTree] {
    match before {
        [before @ .., TokenTree::Ident(word)] if word == "unsafe" => before,
        before => before,
    }
}

/// Whether what follows these tokens is public: they end in `pub` or `pub(..)`.
fn is_public(before: &[TokenTree]) -> bool {
    let is_pub = |token: &TokenTree| matches!(token, TokenTree::Ident(name) if name == "pub");
    match before {
        [.., word, TokenTree::Group(of)] if of.delimiter() == Delimiter::Parenthesis => {
            is_pub(word)
        }
        [.., word] => is_pub(word),
        [] => false,
    }
}

fn punct(tokens: &[TokenTree], at: usize, wanted: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == wanted)
}

/// `::` at `at`, followed by a name (not by a turbofish).
fn colons(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(mark)) if mark.as_char() == ':' && mark.spacing() == Spacing::Joint)
        && punct(tokens, at + 1, ':')
        && !punct(tokens, at + 2, '<')
}

fn braced(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}
