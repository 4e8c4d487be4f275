//! Histories of a reader beside writers, each opening with a file handle in a directory of its own.

use mneme_testkit::TestDir;
use mneme_tree::{Builder, Durability, Store};

use super::contents;

pub fn builder() -> Builder {
    Store::builder()
        .durability(Durability::Process)
        .max_bytes(1 << 30)
}

/// A snapshot does not change, whatever writers other than its own write.
pub fn snapshots_outlive_writers() {
    let here = TestDir::new("tree-outlive");
    let path = here.path().join("db");
    let key = |n: u32| format!("key{n:04}").into_bytes();
    let churn = |db: &Store, with: u8| {
        for n in 0..400_u32 {
            let len = if n.is_multiple_of(10) { 5000 } else { 300 };
            db.put(&key(n), &vec![with; len]).unwrap();
        }
    };
    churn(&builder().open(&path).unwrap(), 0);
    let reader = builder().read_only(true).open(&path).unwrap();
    let snapshot = reader.snapshot().unwrap();
    let before = contents(&snapshot);
    for with in 1..8 {
        let db = builder().open(&path).unwrap();
        churn(&db, with);
        churn(&db, with);
        assert_eq!(contents(&snapshot), before);
        assert_eq!(reader.get(&key(20)).unwrap(), Some(vec![with; 5000]));
    }
}
