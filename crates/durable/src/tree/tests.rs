//! Entries that have not taken effect yet, across commits, deaths and the loss of the segment.

use mneme_journal::Identity;
use mneme_log::Expiry;
use mneme_log::feed::{Item, RemovalCause, append_change, append_entry, binding};
use mneme_sys::medium::RecordingDirectory;

use super::layout::{CommitStamp, FILE};
use super::records::TreeRecords;
use super::replica::Replica;
use super::{file, open};
use crate::directory::{DirectoryMedium, Opened};

/// A feed whose drained prefixes are committed.
struct Fed {
    opened: Opened,
    replica: Option<Replica>,
    position: u64,
}

impl Fed {
    fn new() -> Self {
        let directory = RecordingDirectory::new();
        let opened = Opened {
            directory: std::sync::Arc::new(directory.clone()),
            medium: DirectoryMedium::Recorded(directory),
        };
        let identity = Identity { uuid: [3; 16] };
        let store = file::create(&opened, FILE).unwrap();
        let replica = Replica::begin(store, identity).unwrap();
        let mut fed = Self {
            opened,
            replica: Some(replica),
            position: 0,
        };
        let bind = Item::Bind {
            databases: &[binding(0, 1)],
            dead: &[],
        };
        fed.enter(&[bind]);
        fed.commit();
        fed
    }

    fn replica(&mut self) -> &mut Replica {
        self.replica.as_mut().unwrap()
    }

    fn drained(&mut self, bytes: &[u8]) {
        let at = self.position;
        self.position += bytes.len() as u64;
        self.replica().bytes(at, bytes).unwrap();
    }

    fn enter(&mut self, items: &[Item<'_>]) {
        let mut bytes = Vec::new();
        append_entry(items, &mut bytes).unwrap();
        self.drained(&bytes);
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.enter(&[put(key, value)]);
    }

    fn commit(&mut self) {
        let position = self.position;
        let stamp = CommitStamp {
            run: 7,
            position,
            wall_ms: 1,
        };
        self.replica().commit(stamp).unwrap();
    }

    /// The process dies after a commit; the segment survives.
    fn reopen(&mut self) {
        self.commit();
        self.replica = None;
        let replica = open(&self.opened).unwrap();
        assert_eq!(replica.stamp().position, self.position);
        self.replica = Some(replica);
    }

    /// Keys and lengths of values in the last commit.
    fn records(&mut self) -> Vec<(Vec<u8>, usize)> {
        self.commit();
        let mut all = Vec::new();
        let mut records = TreeRecords::of(self.replica().store()).unwrap();
        // Two records at a time, so that a visit continues after a key.
        while records
            .visit(2, |record| {
                all.push((record.key.to_vec(), record.value.len()));
                Ok(())
            })
            .unwrap()
        {}
        all
    }
}

fn put<'i>(key: &'i [u8], bytes: &'i [u8]) -> Item<'i> {
    Item::Put {
        root: 1,
        key,
        kind: 0,
        expiry: Expiry::Never,
        bytes,
    }
}

fn record(key: &[u8], len: usize) -> (Vec<u8>, usize) {
    (key.to_vec(), len)
}

/// A group takes effect as a whole when it is closed, even if the successor of a dead process
/// closes it; if the segment is lost, the whole group is lost.
fn groups_are_whole() {
    let mut fed = Fed::new();
    fed.put(b"before", b"1");
    fed.enter(&[Item::Open]);
    fed.put(b"within", b"22");
    fed.reopen();
    fed.enter(&[Item::Remove {
        root: 1,
        key: b"before",
        cause: RemovalCause::Asked,
    }]);
    assert_eq!(fed.records(), [record(b"before", 1)]);
    fed.reopen();
    fed.enter(&[Item::Close]);
    fed.put(b"behind", b"333");
    let all = [record(b"behind", 3), record(b"within", 2)];
    assert_eq!(fed.records(), all);
    fed.reopen();
    fed.enter(&[Item::Open]);
    let cleared = Item::Bind {
        databases: &[binding(0, 0)],
        dead: &[1u64.to_le_bytes()],
    };
    fed.enter(&[cleared]);
    fed.reopen();
    // As for a store that is rebuilt.
    fed.replica().give_up_pending();
    fed.put(b"last", b"4444");
    fed.reopen();
    assert_eq!(
        fed.records(),
        [&all[..1], &[record(b"last", 4)], &all[1..]].concat()
    );
}

/// A change in pieces takes effect when all pieces have arrived, whichever process drained them.
fn pieces_are_whole() {
    let mut fed = Fed::new();
    let long = vec![5; 200_000];
    let mut bytes = Vec::new();
    append_change(&[put(b"long", &long)], 9, &mut bytes);
    let mut strides = Vec::new();
    for entry in mneme_log::feed::entries(0, &bytes) {
        strides.push(entry.unwrap().stride());
    }
    assert!(strides.len() > 3);
    let mut rest = &bytes[..];
    for stride in strides {
        assert_eq!(fed.records().len(), 0);
        let piece;
        (piece, rest) = rest.split_at(stride);
        fed.drained(piece);
        fed.reopen();
    }
    assert_eq!(fed.records(), [record(b"long", 200_000)]);
    let kept = |fed: &mut Fed| {
        let snapshot = fed.replica().store().snapshot().unwrap();
        snapshot.range(super::layout::PENDING..&b"q"[..]).count()
    };
    assert_eq!(kept(&mut fed), 0, "what has taken place is forgotten");
    // Pieces whose rest is lost with the segment.
    let (piece, _) = bytes.split_at(
        mneme_log::feed::entries(0, &bytes)
            .next()
            .unwrap()
            .unwrap()
            .stride(),
    );
    fed.drained(piece);
    fed.reopen();
    assert_eq!(kept(&mut fed), 1);
    fed.replica().give_up_pending();
    fed.put(b"last", b"1");
    fed.reopen();
    assert_eq!(kept(&mut fed), 0);
}

#[test]
fn entries_that_are_not_whole_wait() {
    groups_are_whole();
    pieces_are_whole();
}

/// Every kind of item takes effect on committed records and on records that are about to be
/// committed.
#[test]
fn entries_change_what_is_committed_and_what_is_not() {
    for commits in [false, true] {
        let mut fed = Fed::new();
        let settle = |fed: &mut Fed| {
            if commits {
                fed.reopen();
            }
        };
        for key in [&b"a1"[..], b"a2", b"b"] {
            fed.put(key, b"value");
        }
        settle(&mut fed);
        let patch = |offset, length, bytes| Item::Patch {
            root: 1,
            key: b"b",
            offset,
            length,
            bytes,
        };
        fed.enter(&[patch(7, 9, b"9")]);
        let expire = |key| Item::Expire {
            root: 1,
            key,
            expiry: Expiry::At(77),
        };
        fed.enter(&[expire(b"b"), expire(b"none")]);
        fed.enter(&[Item::Drop {
            root: 1,
            prefix: b"a",
        }]);
        settle(&mut fed);
        assert_eq!(fed.records(), [record(b"b", 9)]);
        let mut records = TreeRecords::of(fed.replica().store()).unwrap();
        records
            .visit(1, |record| {
                assert_eq!(record.value, b"value\0\x009\0");
                assert_eq!(record.expiry, Expiry::At(77));
                Ok(())
            })
            .unwrap();
        // A dead root stays dead, whatever later entries say about it.
        fed.enter(&[Item::Bind {
            databases: &[binding(0, 2)],
            dead: &[1u64.to_le_bytes()],
        }]);
        settle(&mut fed);
        fed.put(b"late", b"value");
        settle(&mut fed);
        assert_eq!(fed.records(), []);
        assert_eq!(fed.replica().store().trees().unwrap(), ["root 2"]);
    }
}

/// A tree that is created from a store in use has a newer state than the entries that follow.
#[test]
fn a_change_of_a_former_life_leaves_the_large_hash_of_a_newer_one_as_it_is() {
    use mneme_collections::HASH;
    use mneme_log::feed::COLLECTIONS;
    use mneme_log::{element_key, main_of};
    let mut fed = Fed::new();
    let (main, field) = (main_of(7), element_key(7, b"field"));
    let put_main = Item::Put {
        root: 1,
        key: b"h",
        kind: HASH.large().number(),
        expiry: Expiry::Never,
        bytes: &main,
    };
    let put_field = Item::Put {
        root: COLLECTIONS,
        key: &field,
        kind: HASH.number(),
        expiry: Expiry::Never,
        bytes: b"new",
    };
    // In the form in which a scan finds them.
    fed.enter(&[put_main]);
    fed.enter(&[put_field]);
    // The entry that is still in the feed.
    fed.enter(&[Item::Edit {
        root: 1,
        key: b"h",
        kind: HASH.number(),
        element: b"old",
        value: b"of the former life",
    }]);
    fed.enter(&[Item::Remove {
        root: 1,
        key: b"h",
        cause: RemovalCause::Asked,
    }]);
    fed.enter(&[put_main, put_field]);
    let keys: Vec<_> = fed.records().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"h".to_vec(), field.clone()]);
}

/// The tests notice each step that is left out.
#[test]
fn every_step_is_needed() {
    use mneme_sys::fault::leave_out;

    let catches: [(&str, fn()); 2] = [
        ("tree.group", groups_are_whole),
        ("tree.pending", pieces_are_whole),
    ];
    assert_eq!(
        catches.map(|(step, _)| step),
        crate::breakage::REPLICA_STEPS
    );
    for (step, test) in catches {
        leave_out(step);
        let caught = std::panic::catch_unwind(test).is_err();
        leave_out("");
        assert!(caught, "nothing needs {step}");
    }
}
