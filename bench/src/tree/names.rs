//! The engines' names.

/// The name of ours.
pub const OURS: &str = "mneme";
/// The name of the map in memory.
pub const MAP: &str = "BTreeMap";

/// How an engine is called in arguments.
pub fn argument(name: &'static str) -> &'static str {
    match name {
        "lmdb writemap" => "lmdb-writemap",
        _ => name,
    }
}

/// The engines of this build beside ours, as they are called in arguments.
pub fn peers() -> Vec<&'static str> {
    let names = all().into_iter().filter(|name| *name != OURS);
    names.map(argument).collect()
}

/// All engines of this build.
pub fn all() -> Vec<&'static str> {
    let mut names = vec![OURS];
    if cfg!(feature = "lmdb") {
        names.extend(["lmdb", "lmdb writemap"]);
    }
    if cfg!(feature = "redb") {
        names.push("redb");
    }
    if cfg!(feature = "bdb") {
        names.push("bdb");
    }
    if cfg!(feature = "rocksdb") {
        names.push("rocksdb");
    }
    names.push(MAP);
    names
}
