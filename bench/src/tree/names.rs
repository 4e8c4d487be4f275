//! The engines' names.

/// The name of ours.
pub const OURS: &str = "mneme";
/// The name of ours that survives kills alone, which is the thesis' volatile mode.
pub const VOLATILE: &str = "mneme volatile";
/// The name of our hash table: a tree whose keys begin with a hash.
pub const HASHED: &str = "mneme hash";
/// The name of the map in memory.
pub const MAP: &str = "BTreeMap";

/// How an engine is called in arguments.
pub fn argument(name: &'static str) -> &'static str {
    match name {
        "lmdb writemap" => "lmdb-writemap",
        VOLATILE => "mneme-volatile",
        HASHED => "mneme-hash",
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
    let mut names = vec![OURS, VOLATILE, HASHED];
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
