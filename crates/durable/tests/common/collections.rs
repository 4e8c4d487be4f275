//! Changes of hashes, sets, sorted sets and lists, small and large, and what they hold.

use mneme_collections::{
    CollectionError, End, HASH, Hash, LIST, List, SET, SORTED_SET, Set, SortedRange, SortedSet,
};
use mneme_log::{Database, Stored, ValueKind, WriteError};
use mneme_testkit::Random;

/// Moves the value of a key to another key.
fn rename(database: Database<'_>, from: &[u8], to: &[u8]) {
    let number = database.number();
    let renamed = database.transaction_on(&[(number, from), (number, to)], |t| {
        let mut records = t.database(number)?;
        let copy = |stored: Stored<'_>| (stored.value.to_vec(), stored.kind, stored.expiry);
        let Some((value, kind, expiry)) = records.read(from, |stored| stored.map(copy))? else {
            return Ok::<_, WriteError>(());
        };
        records.remove(from)?;
        records.put_kind(to, &value, kind, expiry)
    });
    renamed.unwrap();
}

/// Changes some elements of a hash, a set, a sorted set or a list.
pub fn change_collection(database: Database<'_>, random: &mut Random) {
    match random.below(5) {
        0 => change_set(database, random),
        1 => change_sorted_set(database, random),
        2 => change_list(database, random),
        _ => change_hash(database, random),
    }
}

/// Changes some fields of a hash.
fn change_hash(database: Database<'_>, random: &mut Random) {
    let key = format!("hash-{}", random.below(4)).into_bytes();
    let hash = Hash::new(database, &key);
    let names: Vec<_> = (0..6).map(|_| format!("f{}", random.below(12))).collect();
    // Some of the hashes become large, and are then removed, renamed, or emptied.
    let longest = if random.below(2) == 0 { 70 } else { 700 };
    let value = vec![b'v'; random.below(longest) as usize];
    match random.below(24) {
        0 => {
            database.remove(&key).unwrap();
            return;
        }
        1 => {
            let fields: Vec<_> = (0..12).map(|i| format!("f{i}")).collect();
            let fields: Vec<&[u8]> = fields.iter().map(String::as_bytes).collect();
            hash.remove_many(&fields).unwrap();
            return;
        }
        2 => {
            return rename(
                database,
                &key,
                &format!("hash-{}", random.below(4)).into_bytes(),
            );
        }
        _ => {}
    }
    let changed = match random.below(8) {
        0 => hash.remove_many(&[names[0].as_bytes(), names[1].as_bytes()]),
        1 | 2 => hash.remove(names[0].as_bytes()).map(usize::from),
        3 => {
            let pairs: Vec<_> = names
                .iter()
                .map(|name| (name.as_bytes(), &value[..]))
                .collect();
            hash.set_many(&pairs)
        }
        4 => hash.increment(b"sum", 1).map(|sum| sum as usize),
        _ => hash.set(names[0].as_bytes(), &value).map(usize::from),
    };
    changed.unwrap();
}

/// Changes some members of a set.
fn change_set(database: Database<'_>, random: &mut Random) {
    let key = format!("set-{}", random.below(4)).into_bytes();
    let set = Set::new(database, &key).max_intset(6);
    // Some of the sets have only integers at first, and some become large.
    let width = if random.below(2) == 0 { 0 } else { 500 };
    let names: Vec<_> = (0..5)
        .map(|_| format!("{:0width$}", 1 + random.below(9)))
        .collect();
    let members: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let changed = match random.below(12) {
        0 => database
            .remove(&key)
            .map(usize::from)
            .map_err(CollectionError::from),
        1 => {
            let other = format!("set-{}", random.below(4)).into_bytes();
            return rename(database, &key, &other);
        }
        2 => set.change(|set| {
            let members = set.members()?;
            set.remove_many(&members.iter().map(Vec::as_slice).collect::<Vec<_>>())
        }),
        3 => set.pop().map(|popped| usize::from(popped.is_some())),
        4 | 5 => set.remove_many(&members[..2]),
        6 | 7 => set.add(members[0]).map(usize::from),
        _ => set.add_many(&members),
    };
    changed.unwrap();
}

/// One of ninety members, with a short or a long name.
fn member_name(random: &mut Random, is_long: bool) -> Vec<u8> {
    let len = random.below(3) as usize * if is_long { 120 } else { 10 };
    format!("m{}{}", random.below(30), "x".repeat(len)).into_bytes()
}

/// Fills a hash, a set and a sorted set until they are large.
pub fn fill_collections(database: Database<'_>, random: &mut Random) {
    let value = vec![b'v'; 400];
    let fields: Vec<_> = (0..12).map(|i| format!("f{i}").into_bytes()).collect();
    let pairs: Vec<(&[u8], &[u8])> = fields.iter().map(|f| (&f[..], &value[..])).collect();
    Hash::new(database, b"hash-0").set_many(&pairs).unwrap();
    let members: Vec<_> = (1..10).map(|i| format!("{i:0500}")).collect();
    let members: Vec<&[u8]> = members.iter().map(String::as_bytes).collect();
    let set = Set::new(database, b"set-0").max_intset(6);
    set.add_many(&members).unwrap();
    let members: Vec<_> = (0..60)
        .map(|i| (member_name(random, true), f64::from(i % 9)))
        .collect();
    let members: Vec<(&[u8], f64)> = members.iter().map(|(m, s)| (&m[..], *s)).collect();
    let set = SortedSet::new(database, b"zset-0");
    set.set_many(&members).unwrap();
    for (key, kind) in [("hash-0", HASH), ("set-0", SET), ("zset-0", SORTED_SET)] {
        assert_eq!(database.kind(key.as_bytes()).unwrap(), Some(kind.large()));
    }
}

/// Changes some members of a sorted set.
fn change_sorted_set(database: Database<'_>, random: &mut Random) {
    let key = format!("zset-{}", random.below(4)).into_bytes();
    let set = SortedSet::new(database, &key);
    let is_long = random.below(2) == 0;
    let name = |random: &mut Random| member_name(random, is_long);
    let score = |random: &mut Random| random.below(40) as f64 / 4.0;
    let member = name(random);
    match random.below(16) {
        0 => drop(database.remove(&key).unwrap()),
        1 => drop(set.pop_first(20).unwrap()),
        2 => drop(set.remove_range(&SortedRange::Ranks(2, -3)).unwrap()),
        3 => rename(
            database,
            &key,
            &format!("zset-{}", random.below(4)).into_bytes(),
        ),
        4..7 => drop(set.remove(&member).unwrap()),
        7 => drop(set.increment(&member, 0.1).unwrap()),
        // Some of the sets become large.
        8..10 => {
            let many: Vec<_> = (0..60).map(|_| (name(random), score(random))).collect();
            let many: Vec<(&[u8], f64)> = many.iter().map(|(m, s)| (&m[..], *s)).collect();
            set.set_many(&many).unwrap();
        }
        _ => drop(set.set(&member, score(random)).unwrap()),
    }
}

/// Changes some items of a list.
fn change_list(database: Database<'_>, random: &mut Random) {
    let key = format!("list-{}", random.below(4)).into_bytes();
    let list = List::new(database, &key);
    // Some of the lists become large.
    let longest = if random.below(2) == 0 { 5 } else { 700 };
    let item = |random: &mut Random| {
        let len = random.below(longest) as usize;
        format!("{}{}", random.below(6), "x".repeat(len)).into_bytes()
    };
    let end = match random.below(2) {
        0 => End::Front,
        _ => End::Back,
    };
    let (one, other) = (item(random), item(random));
    let index = random.below(8) as usize;
    match random.below(24) {
        0 => drop(database.remove(&key).unwrap()),
        1 => drop(list.pop_many(end, 100).unwrap()),
        2 => {
            let other = format!("list-{}", random.below(4)).into_bytes();
            rename(database, &key, &other);
        }
        3 => list.change(|list| list.trim(1..index + 4)).unwrap(),
        4 | 5 => drop(list.change(|list| list.remove(end, 2, &one)).unwrap()),
        6..9 => drop(list.pop_many(end, 2).unwrap()),
        9..11 => drop(list.set(index, &one).unwrap()),
        11..16 => {
            let pivot = list.get(index).unwrap().unwrap_or_default();
            let inserted = list.change(|list| list.insert(&pivot, end == End::Front, &one));
            inserted.unwrap();
        }
        _ => drop(list.push(end, &[&one, &other]).unwrap()),
    }
}

/// The value of a key. A replay may have changed the order of its elements.
pub fn held(database: Database<'_>, key: &[u8], kind: ValueKind) -> Vec<u8> {
    match kind.packed() {
        HASH if key.starts_with(b"hash") => {
            let mut pairs = Hash::new(database, key).pairs().unwrap();
            pairs.sort();
            format!("{pairs:?}").into_bytes()
        }
        SET => {
            let mut members = Set::new(database, key).members().unwrap();
            members.sort();
            format!("{members:?}").into_bytes()
        }
        LIST => {
            let items = List::new(database, key).range(0..usize::MAX).unwrap();
            format!("{items:?}").into_bytes()
        }
        SORTED_SET => {
            let set = SortedSet::new(database, key);
            let all = set.range(&SortedRange::Ranks(0, -1), false).unwrap();
            format!("{all:?}").into_bytes()
        }
        _ => database.get_kind(key, kind).unwrap().unwrap().to_vec(),
    }
}
