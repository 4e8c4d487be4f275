//! Several processes count words into one map. `docs/guides/sharing-data.md` explains it line by
//! line.
//!
//! ```sh
//! cargo run -p mneme-space --example words -- count README.md
//! cargo run -p mneme-space --example words -- top 10
//! ```

use std::error::Error;

use mneme_space::{Access, Attachment, EnterError, Registry, Schema, Section, SegMap, SegString};

/// The segment's name.
const WORDS: &str = "words";

/// The segment's content: how often each word was seen.
struct Counts;

impl Schema for Counts {
    type Root<'s> = SegMap<'s, SegString<'s>, u64>;
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["count", file] => count(&std::fs::read_to_string(file)?),
        ["top", number] => top(number.parse()?),
        ["rebuild"] => Ok(attach(Access::ReadWrite)?.rebuild(WORDS)?),
        ["remove"] => Ok(Registry::open_default()?.remove_segment(WORDS)?),
        _ => Err("count FILE | top NUMBER | rebuild | remove".into()),
    }
}

/// The first process creates the segment.
fn attach(access: Access) -> Result<Attachment, Box<dyn Error>> {
    let registry = Registry::open_default()?;
    let words = registry.segment(WORDS).max_size(4 << 30).open_or_create()?;
    Ok(Attachment::new([(&words, access)])?)
}

fn count(text: &str) -> Result<(), Box<dyn Error>> {
    let attached = attach(Access::ReadWrite)?;
    let mut words = text.split_whitespace().peekable();
    while words.peek().is_some() {
        // A section handles a thousand words, so other processes can enter in between.
        let some = words.by_ref().take(1000);
        section(attached.try_enter(|here| add(here, some)))?;
    }
    println!("counted by process {}", std::process::id());
    Ok(())
}

fn add<'t>(here: &mut Section<'_>, words: impl Iterator<Item = &'t str>) -> Result<(), EnterError> {
    let heap = here.heap(WORDS)?;
    let counts = here.root_or_create::<Counts>(WORDS, SegMap::new_in)?;
    for word in words {
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                // The fallible forms, because the segment may be full.
                counts.try_insert(SegString::try_from_str_in(word, heap)?, 1)?;
            }
        }
    }
    Ok(())
}

fn top(number: usize) -> Result<(), Box<dyn Error>> {
    let attached = attach(Access::ReadOnly)?;
    // Words are read in place; what must outlast the section is copied.
    let mut counts = section(attached.try_read(|here| {
        let counts = here.root::<Counts>(WORDS)?.iter();
        Ok(counts
            .map(|(word, count)| (*count, word.to_string()))
            .collect::<Vec<_>>())
    }))?;
    counts.sort_unstable_by(|a, b| b.cmp(a));
    for (count, word) in counts.into_iter().take(number) {
        println!("{count:8} {word}");
    }
    Ok(())
}

/// A section's result, or the reason why there was none, with a hint.
fn section<T>(result: Result<T, EnterError>) -> Result<T, Box<dyn Error>> {
    match result {
        Ok(done) => Ok(done),
        Err(EnterError::Poisoned { .. }) => {
            Err("somebody died while counting: `words rebuild` begins anew".into())
        }
        Err(EnterError::Stalled(stalled)) => Err(format!("{stalled}; try again").into()),
        Err(other) => Err(other.into()),
    }
}
