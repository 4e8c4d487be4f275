//! `cargo xtask book`: `docs/` as a book with a search, in `target/book`, by mdbook.
//!
//! `docs/SUMMARY.md` has the chapters. The pages of a folder that it does not name follow the last
//! one that it names, in the order of their names: below it if that is the folder's `README.md`.
//! A link to a file outside of `docs/` leads to
//! a copy of it, and one to a directory to the file that a reader opens first there. Without
//! mdbook, pages and links are still checked: each page has a chapter, and each link of every
//! document leads to something.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::files::{self, copy, write};
use crate::links;
use crate::steps::{Outcome, failed, run, skipped, succeeds};
use crate::workspace::Workspace;

const INSTALL: &str =
    "there is no mdbook; `cargo install --locked mdbook --no-default-features --features search`";

/// What a reader opens first in a directory of sources.
const FIRST: &[&str] = &[
    "README.md",
    "src/lib.rs",
    "src/main.rs",
    "lib.rs",
    "mod.rs",
    "Cargo.toml",
];

/// Checks pages and links.
///
/// # Errors
/// Some are wrong.
pub fn check(workspace: &Workspace) -> Outcome {
    let docs = workspace.root.join("docs");
    let mut wrong = without_chapter(&docs, &summary(&docs)?);
    let documents = files::below(&workspace.root, &["md"]);
    let broken = documents.iter();
    wrong.extend(broken.flat_map(|file| {
        let mut wrong = links::broken(&workspace.root, file);
        wrong.extend(links::missing_functions(&workspace.root, file));
        wrong
    }));
    for line in &wrong {
        println!("{line}");
    }
    match wrong.len() {
        0 => Ok(()),
        count => Err(format!("{count} page(s) or link(s)").into()),
    }
}

/// Checks pages and links and builds the book.
///
/// # Errors
/// Some are wrong, or mdbook is absent or fails.
pub fn build(workspace: &Workspace) -> Outcome {
    check(workspace)?;
    if !succeeds(Command::new("mdbook").arg("--version")) {
        return skipped(INSTALL);
    }
    let source = workspace.root.join("target/book-source");
    assemble(&workspace.root, &source)?;
    let book = workspace.root.join("target/book");
    let mut mdbook = Command::new("mdbook");
    mdbook.arg("build").arg(&source);
    run(mdbook.arg("--dest-dir").arg(&book))?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// The summary, with the pages that follow by themselves.
fn summary(docs: &Path) -> Result<String, String> {
    let file = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&file).map_err(failed("read", &file))?;
    let named = chapters(docs, &text);
    let mut whole = String::new();
    for line in text.lines() {
        whole += line;
        whole.push('\n');
        let Some(chapter) = chapters(docs, line).pop() else {
            continue;
        };
        let folder = chapter.parent().unwrap_or(docs);
        let last = named.iter().rfind(|page| page.parent() == Some(folder));
        if folder == docs || last != Some(&chapter) {
            continue;
        }
        let indent = if chapter.ends_with("README.md") {
            "  "
        } else {
            ""
        };
        for page in pages(folder).iter().filter(|page| !named.contains(page)) {
            let text = fs::read_to_string(page).map_err(failed("read", page))?;
            let title = text.lines().next().unwrap_or_default();
            let title = title.trim_start_matches('#').trim();
            let page = page.strip_prefix(docs).unwrap_or(page).display();
            whole += &format!("{indent}- [{title}]({page})\n");
        }
    }
    Ok(whole)
}

/// The pages to which a summary, or a line of it, leads.
fn chapters(docs: &Path, summary: &str) -> Vec<PathBuf> {
    let targets = links::targets(summary).into_iter();
    targets.map(|range| docs.join(&summary[range])).collect()
}

/// The pages below a folder, but for the summary.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut pages = files::below(folder, &["md"]);
    pages.retain(|page| !page.ends_with("SUMMARY.md"));
    pages
}

/// The pages that the summary does not name, in words.
fn without_chapter(docs: &Path, summary: &str) -> Vec<String> {
    let chapters = chapters(docs, summary);
    let pages = pages(docs).into_iter();
    let missing = pages.filter(|page| !chapters.contains(page));
    missing
        .map(|page| format!("{}: docs/SUMMARY.md does not name it", page.display()))
        .collect()
}

/// What mdbook reads: the pages with their links, and the files that they lead to.
fn assemble(root: &Path, source: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(source);
    copy(&root.join("book.toml"), &source.join("book.toml"))?;
    let (docs, to) = (root.join("docs"), source.join("docs"));
    for file in files::below(&docs, &[]) {
        let target = to.join(file.strip_prefix(&docs).unwrap_or(&file));
        if file.extension().is_none_or(|ending| ending != "md") {
            copy(&file, &target)?;
            continue;
        }
        let text = fs::read_to_string(&file).map_err(failed("read", &file))?;
        let (text, outside) = lead_inside(root, &docs, &file, &text);
        write(&target, &text)?;
        for file in outside {
            copy(&file, &to.join(copied(root, &file)))?;
        }
    }
    write(&to.join("SUMMARY.md"), &summary(&docs)?)
}

/// A page whose links lead out of `docs` no more, and the files to which they led.
fn lead_inside(root: &Path, docs: &Path, page: &Path, text: &str) -> (String, Vec<PathBuf>) {
    let depth = page
        .strip_prefix(docs)
        .map_or(1, |below| below.components().count());
    let up = "../".repeat(depth - 1);
    let (mut result, mut outside, mut done) = (String::new(), Vec::new(), 0);
    for range in links::targets(text) {
        let target = &text[range.clone()];
        let (file, _) = target.split_once('#').unwrap_or((target, ""));
        let path = links::resolve(page, file);
        if links::is_elsewhere(target) || path.starts_with(docs) {
            continue;
        }
        let first = FIRST
            .iter()
            .map(|name| path.join(name))
            .find(|file| file.is_file());
        let path = first.unwrap_or(path);
        result += &text[done..range.start];
        result += &format!("{up}{}", copied(root, &path).display());
        done = range.end;
        outside.push(path);
    }
    result += &text[done..];
    (result, outside)
}

/// Where the copy of a file is, below the book's directory. Browsers show text; a name with `.md`
/// in it mdbook takes for a page.
fn copied(root: &Path, file: &Path) -> PathBuf {
    let below = file.strip_prefix(root).unwrap_or(file).to_string_lossy();
    let below = below.strip_suffix(".md").unwrap_or(&below);
    Path::new("files").join(format!("{below}.txt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_chapter_and_every_link_leads_somewhere() {
        let workspace = Workspace::load().unwrap();
        assert_eq!(check(&workspace), Ok(()));
    }

    #[test]
    fn a_page_without_chapter_is_found() {
        let docs = Workspace::load().unwrap().root.join("docs");
        let summary = summary(&docs).unwrap();
        // The other pages of a folder follow.
        assert!(summary.contains("  - [001: "), "{summary}");
        let shorter = summary.replace("(limits.md)", "(none.md)");
        let missing = without_chapter(&docs, &shorter);
        assert!(missing[0].contains("docs/limits.md"), "{missing:?}");
        assert_eq!(missing.len(), 1);
    }

    #[test]
    fn links_out_of_the_book_lead_to_copies() {
        let root = Workspace::load().unwrap().root;
        let docs = root.join("docs");
        let page = docs.join("guides/some.md");
        let text = "[a](../limits.md#x) [b](../../Cargo.toml) [c](../../crates/log)";
        let (text, outside) = lead_inside(&root, &docs, &page, text);
        assert_eq!(
            text,
            "[a](../limits.md#x) [b](../files/Cargo.toml.txt) \
             [c](../files/crates/log/README.txt)"
        );
        assert_eq!(outside.len(), 2);
        assert!(outside.iter().all(|file| file.is_file()));
    }
}
