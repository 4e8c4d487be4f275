//! `mneme tree`: makes, reads, changes, copies and checks durable stores in files.

use std::error::Error;
use std::io::{self, Read as _, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use mneme_tree::{Builder, Durability, Holder, Store, StoreError, Tree, TreeStats};
use serde_json::{Value, json};

use super::progress::ProgressLine;
use super::{output, size};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make an empty store.
    Create {
        #[command(flatten)]
        place: Place,
    },
    /// Set a key; durable when it is done.
    Put {
        #[command(flatten)]
        of: Key,
        /// The value.
        #[arg(required_unless_present = "from")]
        value: Option<String>,
        /// Take the value from a file, - for standard input.
        #[arg(long, value_name = "FILE", conflicts_with = "value")]
        from: Option<PathBuf>,
    },
    /// Print a key's value. Fails if there is no such key.
    Get {
        #[command(flatten)]
        of: Key,
        /// Print the value's bytes as they are, and nothing else.
        #[arg(long, conflicts_with_all = ["hex", "json"])]
        raw: bool,
    },
    /// Remove a key. Fails if there is no such key.
    Remove(Key),
    /// Print keys and values in order of the keys, one pair a line.
    Scan(Scan),
    /// List the named trees and hash tables, with their keys and bytes.
    Trees {
        #[command(flatten)]
        place: Place,
    },
    /// List the versions that were given names.
    Versions {
        #[command(flatten)]
        place: Place,
    },
    /// Give the newest version a name; it can be scanned and gone back to until it is dropped.
    Keep {
        #[command(flatten)]
        place: Place,
        /// The name.
        name: String,
    },
    /// Make the newest version hold what a named one does.
    Rollback {
        #[command(flatten)]
        place: Place,
        /// The name.
        name: String,
    },
    /// Drop the name of a version, and what only that version holds; or a tree with all its keys.
    Drop {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        tree: Within,
        /// The version's name.
        #[arg(required_unless_present = "tree", conflicts_with = "tree")]
        name: Option<String>,
    },
    /// Write the newest version into a new file, a store of its own.
    Backup {
        #[command(flatten)]
        place: Place,
        /// The new file.
        to: PathBuf,
    },
    /// Read everything, or one tree, and compare checksums, order and counts.
    Check {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        tree: Within,
    },
    /// Say what a store, or one tree of it, holds and takes.
    Stat {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        tree: Within,
    },
}

#[derive(Debug, clap::Args)]
struct Place {
    /// The store's file.
    path: PathBuf,
    /// What a commit survives: `file` power loss, `flush` that too on persistent memory, `process`
    /// the death of the process alone.
    #[arg(long, default_value = "file", value_parser = durability)]
    durability: Durability,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Within {
    /// The tree of this name. `put` makes it if there is none.
    #[arg(long, value_name = "NAME")]
    tree: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Bytes {
    /// Keys and values are given and printed as hexadecimal digits.
    #[arg(long)]
    hex: bool,
}

/// A key in a tree of a store.
#[derive(Debug, clap::Args)]
struct Key {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    tree: Within,
    #[command(flatten)]
    bytes: Bytes,
    /// The key.
    key: String,
}

#[derive(Debug, clap::Args)]
struct Scan {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    tree: Within,
    #[command(flatten)]
    bytes: Bytes,
    /// Begin at this key.
    #[arg(long, value_name = "KEY")]
    from: Option<String>,
    /// End before this key.
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
    /// Only keys that begin with this.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// From the largest key to the smallest.
    #[arg(long)]
    reverse: bool,
    /// Of the version of this name instead of the newest one.
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    /// At most so many pairs.
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Print no values.
    #[arg(long)]
    keys: bool,
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "file" => Ok(Durability::File),
        "process" => Ok(Durability::Process),
        "flush" => Ok(Durability::Flush),
        _ => Err("file, process or flush".to_owned()),
    }
}

/// Executes the command and prints its result.
pub fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    match arguments.action {
        Action::Create { place } => create(&place),
        Action::Put { of, value, from } => {
            let value = match (value, from) {
                (_, Some(from)) => read(&from)?,
                (value, None) => of.bytes.read(&value.unwrap_or_default())?,
            };
            of.put(&value)
        }
        Action::Get { of, raw } => of.print(raw),
        Action::Remove(of) => of.remove(),
        Action::Scan(scan) => scan.run(),
        Action::Trees { place } => trees(&place),
        Action::Versions { place } => versions(&place),
        Action::Keep { place, name } => place.committed(place.open()?.keep(&name)?.number()),
        Action::Rollback { place, name } => {
            place.committed(place.open()?.rollback(&name)?.number())
        }
        Action::Drop { place, tree, name } => {
            let db = place.open()?;
            match (tree.tree, name) {
                (Some(tree), _) => place.committed(db.drop_tree(&tree)?.number()),
                (None, name) => Ok(db.drop_version(&name.unwrap_or_default())?),
            }
        }
        Action::Backup { place, to } => {
            let progress = ProgressLine::default();
            let copied = place
                .open_to_read()?
                .backup_with(&to, |done, total| progress.show(done, total));
            let version = copied?.number();
            match place.json {
                true => output::line(json!({ "version": version, "path": to.to_string_lossy() })),
                false => output::line(format_args!("{}: version {version}", to.display())),
            }
        }
        Action::Check { place, tree } => check(&place, tree.tree.as_deref()),
        Action::Stat { place, tree } => match tree.tree {
            Some(name) => stat_of_tree(&place, &name),
            None => stat(&place),
        },
    }
}

fn absent(key: &str) -> Box<dyn Error> {
    format!("there is no key {key}").into()
}

/// The contents of a file, or of standard input.
fn read(from: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    let done = match from == Path::new("-") {
        true => io::stdin().lock().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(from).map(|read| bytes = read),
    };
    done.map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    Ok(bytes)
}

impl Key {
    fn put(&self, value: &[u8]) -> Result<(), Box<dyn Error>> {
        let (db, key) = (self.place.open()?, self.bytes.read(&self.key)?);
        let version = match &self.tree.tree {
            Some(name) => db.tree(name)?.put(&key, value)?,
            None => db.put(&key, value)?,
        };
        self.place.committed(version.number())
    }

    /// Prints the value; if `raw`, only its bytes.
    fn print(&self, raw: bool) -> Result<(), Box<dyn Error>> {
        let (db, wanted) = (self.place.open_to_read()?, self.bytes.read(&self.key)?);
        let found = match &self.tree.tree {
            Some(name) => db.open_tree(name)?.get(&wanted)?,
            None => db.get(&wanted)?,
        };
        let value = found.ok_or_else(|| absent(&self.key))?;
        if raw {
            return output::to(|out| out.write_all(&value));
        }
        match self.place.json {
            true => output::line(json_of(&[("value", self.bytes.json(&value))])),
            false => output::line(self.bytes.show(&value)),
        }
    }

    fn remove(&self) -> Result<(), Box<dyn Error>> {
        let db = self.place.open()?;
        let tree = self.tree.tree.as_ref().map(|name| db.open_tree(name));
        let tree = tree.transpose()?;
        let mut tx = db.write();
        let wanted = self.bytes.read(&self.key)?;
        let found = match &tree {
            Some(tree) => tx.get_in(tree, &wanted),
            None => tx.get(&wanted),
        };
        match found {
            // The value is damaged, but the key exists and can be removed.
            Err(StoreError::DamagedValue { .. }) => {}
            found => drop(found?.ok_or_else(|| absent(&self.key))?),
        }
        match &tree {
            Some(tree) => tx.remove_in(tree, &wanted)?,
            None => tx.remove(&wanted)?,
        }
        self.place.committed(tx.commit()?.number())
    }
}

impl Place {
    /// Opens an existing store for changes.
    fn open(&self) -> Result<Store, Box<dyn Error>> {
        self.open_by(Store::builder())
    }

    /// Opens an existing store for reading, also while another process changes it.
    fn open_to_read(&self) -> Result<Store, Box<dyn Error>> {
        self.open_by(Store::builder().read_only(true))
    }

    fn open_by(&self, builder: Builder) -> Result<Store, Box<dyn Error>> {
        let path = self.path.display();
        match self.path.metadata() {
            Ok(data) if data.is_dir() => {
                return Err(format!("{path} is a directory, not a store").into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let advice = format!("make it with `mneme tree create {path}`");
                return Err(format!("there is no store at {path}: {advice}").into());
            }
            Err(error) => return Err(format!("cannot look at {path}: {error}").into()),
        }
        let opened = builder.durability(self.durability).open(&self.path);
        opened.map_err(|error| self.explained(error))
    }

    /// Adds advice for the operator to the error of a store that cannot be opened.
    fn explained(&self, error: StoreError) -> Box<dyn Error> {
        let path = self.path.display();
        match error {
            StoreError::Locked { pid: Some(pid), .. } => {
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
                let name =
                    name.map_or_else(|_| "not seen here".to_owned(), |n| n.trim().to_owned());
                format!("{path} is open in process {pid} ({name}): one process at a time writes it")
                    .into()
            }
            StoreError::Foreign => format!("{path} is not a store of mneme-tree").into(),
            StoreError::NotClean | StoreError::Damaged { .. } | StoreError::Truncated { .. } => {
                format!("{path}: {error}; restore a backup").into()
            }
            other => format!("{path}: {}", output::with_causes(&other)).into(),
        }
    }

    fn committed(&self, version: u64) -> Result<(), Box<dyn Error>> {
        match self.json {
            true => output::line(json!({ "version": version })),
            false => output::line(format_args!("version {version}")),
        }
    }
}

impl Bytes {
    /// Parses bytes from an argument, as text or as hexadecimal digits.
    fn read(&self, text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        if !self.hex {
            return Ok(text.as_bytes().to_vec());
        }
        let digits: Option<Vec<u8>> = text
            .chars()
            .map(|c| c.to_digit(16).map(|digit| digit as u8))
            .collect();
        match digits.as_deref().map(<[u8]>::as_chunks) {
            Some((pairs, [])) => Ok(pairs.iter().map(|[high, low]| high << 4 | low).collect()),
            _ => Err(format!("{text} is not a number of pairs of hexadecimal digits").into()),
        }
    }

    /// Bytes as they are printed, as text or as hexadecimal digits.
    fn show(&self, bytes: &[u8]) -> String {
        match self.hex {
            true => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            false => bytes.escape_ascii().to_string(),
        }
    }

    /// Bytes in JSON: a string if they are UTF-8, otherwise an object with their hexadecimal
    /// digits.
    fn json(&self, bytes: &[u8]) -> Value {
        match std::str::from_utf8(bytes) {
            Ok(text) if !self.hex => json!(text),
            _ => json!({ "hex": Self { hex: true }.show(bytes) }),
        }
    }
}

fn json_of(fields: &[(&str, Value)]) -> Value {
    let fields = fields.iter();
    fields
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn create(place: &Place) -> Result<(), Box<dyn Error>> {
    let path = place.path.display();
    if place.path.try_exists()? {
        return Err(format!("{path} exists").into());
    }
    let opened = Store::builder()
        .durability(place.durability)
        .open(&place.path);
    opened.map_err(|error| place.explained(error))?.close()?;
    match place.json {
        true => output::line(json!({ "path": place.path.to_string_lossy() })),
        false => output::line(format_args!("{path}: an empty store")),
    }
}

/// The tree with this name, or the one that stores the hash table with this name; the flag is true
/// for a hash table.
fn open_any(db: &Store, name: &str) -> Result<(bool, Tree), StoreError> {
    match db.open_tree(name) {
        Err(StoreError::OtherKind { .. }) => Ok((true, db.hash_table(name)?.tree().clone())),
        tree => Ok((false, tree?)),
    }
}

fn json_of_tree(name: &str, is_table: bool, stats: &TreeStats) -> Value {
    json!({
        "name": name,
        "hash_table": is_table,
        "keys": stats.entries,
        "live_bytes": stats.live_bytes,
        "leaves": stats.leaves,
        "extents": stats.extents,
        "extent_bytes": stats.extent_bytes,
    })
}

fn trees(place: &Place) -> Result<(), Box<dyn Error>> {
    let db = place.open_to_read()?;
    let mut found = Vec::new();
    for name in db.trees()? {
        let (is_table, tree) = open_any(&db, &name)?;
        found.push((name, is_table, tree.stats()?));
    }
    if place.json {
        let trees = found.iter();
        let trees = trees.map(|(name, is_table, stats)| json_of_tree(name, *is_table, stats));
        return output::line(Value::Array(trees.collect()));
    }
    output::to(|out| {
        found.iter().try_for_each(|(name, is_table, stats)| {
            let kind = if *is_table { ", a hash table" } else { "" };
            let (name, bytes) = (output::plain(name), stats.live_bytes + stats.extent_bytes);
            let (keys, bytes) = (stats.entries, size::show(bytes));
            writeln!(out, "{name}\t{keys} keys, {bytes}{kind}")
        })
    })
}

fn versions(place: &Place) -> Result<(), Box<dyn Error>> {
    let holders = place.open_to_read()?.holders()?;
    if place.json {
        let holders = holders.iter().map(|(version, holder)| match holder {
            Holder::Snapshot {
                process,
                thread,
                held,
                ..
            } => json!({
                "version": version.number(),
                "process": process,
                "thread": thread,
                "seconds": held.as_secs(),
            }),
            Holder::Name(name) => json!({ "name": name, "version": version.number() }),
            _ => json!({ "version": version.number() }),
        });
        return output::line(Value::Array(holders.collect()));
    }
    output::to(|out| {
        holders.iter().try_for_each(|(version, holder)| {
            let version = version.number();
            match holder {
                Holder::Snapshot {
                    process,
                    thread,
                    held,
                    ..
                } => {
                    let (thread, held) = (output::plain(thread), held.as_secs());
                    writeln!(
                        out,
                        "{version}\ta snapshot of process {process}, thread {thread}, for {held} s"
                    )
                }
                Holder::Name(name) => writeln!(out, "{version}\t{name}"),
                _ => writeln!(out, "{version}"),
            }
        })
    })
}

impl Scan {
    fn run(&self) -> Result<(), Box<dyn Error>> {
        let (low, high) = match &self.prefix {
            Some(prefix) => {
                let low = self.bytes.read(prefix)?;
                let high = after(&low);
                (Some(low), high)
            }
            None => (self.key(&self.from)?, self.key(&self.to)?),
        };
        let db = self.place.open_to_read()?;
        let snapshot = match &self.of {
            Some(name) => db.version_named(name)?,
            None => db.snapshot()?,
        };
        let low = low.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let high = high.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = match &self.tree.tree {
            Some(name) => snapshot.tree(name)?.range((low, high)),
            None => snapshot.range((low, high)),
        };
        let pairs: Box<dyn Iterator<Item = _>> = match self.reverse {
            true => Box::new(range.rev()),
            false => Box::new(range),
        };
        let mut failed = None;
        output::to(|out| {
            for pair in pairs.take(self.limit.unwrap_or(usize::MAX)) {
                match pair {
                    Ok((key, value)) => self.write(out, key, value)?,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            Ok(())
        })?;
        failed.map_or(Ok(()), |error| Err(self.place.explained(error)))
    }

    fn key(&self, text: &Option<String>) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
        text.as_deref()
            .map(|text| self.bytes.read(text))
            .transpose()
    }

    fn write(&self, out: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
        let bytes = &self.bytes;
        match (self.place.json, self.keys) {
            (true, true) => writeln!(out, "{}", json_of(&[("key", bytes.json(key))])),
            (true, false) => {
                let pair = [("key", bytes.json(key)), ("value", bytes.json(value))];
                writeln!(out, "{}", json_of(&pair))
            }
            (false, true) => writeln!(out, "{}", bytes.show(key)),
            (false, false) => writeln!(out, "{}\t{}", bytes.show(key), bytes.show(value)),
        }
    }
}

/// The smallest key above all keys with the prefix `prefix`, if there is one.
fn after(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut above = prefix[..=last].to_vec();
    above[last] += 1;
    Some(above)
}

fn check(place: &Place, tree: Option<&str>) -> Result<(), Box<dyn Error>> {
    let db = place.open_to_read()?;
    let tree = tree.map(|name| open_any(&db, name)).transpose()?;
    let found = match &tree {
        Some((_, tree)) => tree.check(),
        None => {
            let progress = ProgressLine::default();
            db.check_with(|done, total| progress.show(done, total))
        }
    };
    if place.json {
        let error = found.as_ref().err().map(StoreError::to_string);
        output::line(json!({ "whole": found.is_ok(), "error": error }))?;
    }
    found.map_err(|error| place.explained(error))?;
    if place.json {
        return Ok(());
    }
    let (path, stats) = (place.path.display(), db.stats()?);
    let version = stats.version.number();
    let (what, keys) = match &tree {
        Some((_, tree)) => (format!(", {}", tree.name()), tree.stats()?.entries),
        None => (String::new(), stats.entries),
    };
    let what = output::plain(&what);
    output::line(format_args!(
        "{path}{what}: whole, {keys} keys, version {version}"
    ))
}

fn stat_of_tree(place: &Place, name: &str) -> Result<(), Box<dyn Error>> {
    let (is_table, tree) = open_any(&place.open_to_read()?, name)?;
    let stats = tree.stats()?;
    if place.json {
        return output::line(json_of_tree(name, is_table, &stats));
    }
    let kind = if is_table { "a hash table" } else { "a tree" };
    rows(&[
        ("kind", kind.to_owned()),
        ("keys", stats.entries.to_string()),
        ("live", size::show(stats.live_bytes)),
        ("leaves", stats.leaves.to_string()),
        ("extents", extents(stats.extents, stats.extent_bytes)),
    ])
}

fn extents(count: u64, bytes: u64) -> String {
    format!("{count}, {}", size::show(bytes))
}

/// Prints names and values, one pair on each line.
fn rows(rows: &[(&str, String)]) -> Result<(), Box<dyn Error>> {
    let lines = rows.iter();
    let lines = lines.map(|(what, value)| format!("{what:14}{value}\n"));
    output::print(lines.collect::<String>())
}

fn stat(place: &Place) -> Result<(), Box<dyn Error>> {
    let stats = place.open_to_read()?.stats()?;
    if place.json {
        return output::line(json!({
            "version": stats.version.number(),
            "keys": stats.entries,
            "live_bytes": stats.live_bytes,
            "file_bytes": stats.file_bytes,
            "leaf_bytes": stats.leaf_bytes,
            "leaves": stats.leaves,
            "retained_leaves": stats.retained_leaves,
            "free_leaves": stats.free_leaves,
            "extents": stats.extents,
            "extent_bytes": stats.extent_bytes,
            "oldest_reader": stats.oldest_reader,
            "dead_versions": stats.dead_versions,
        }));
    }
    rows(&[
        ("version", stats.version.number().to_string()),
        ("keys", stats.entries.to_string()),
        ("live", size::show(stats.live_bytes)),
        ("file", size::show(stats.file_bytes)),
        (
            "leaves",
            format!(
                "{}, {} kept for older versions, {} free",
                stats.leaves, stats.retained_leaves, stats.free_leaves
            ),
        ),
        ("extents", extents(stats.extents, stats.extent_bytes)),
        (
            "oldest reader",
            stats
                .oldest_reader
                .map_or_else(|| "none".to_owned(), |pid| format!("process {pid}")),
        ),
        (
            "dead versions",
            format!("{} left by unclean ends", stats.dead_versions),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(after(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after(b"\xff"), None);
        assert_eq!(after(b""), None);
    }

    #[test]
    fn digits_are_read_as_they_are_printed() {
        let hex = Bytes { hex: true };
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(hex.read(&hex.show(&all)).unwrap(), all);
        for wrong in ["abc", "zz", "0 "] {
            assert!(hex.read(wrong).is_err(), "{wrong}");
        }
    }
}
