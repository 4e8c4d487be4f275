//! A small store's bytes with words of any kind overwritten: whatever is then done with it answers
//! or says what is wrong, and as long as nothing is hurt that readers need, every record is read as
//! it was.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;

#[path = "../../crates/log/tests/image/mod.rs"]
mod image;

use image::{Area, Change, DATABASES, Damage, Image, KEYS, Op, contents, inflict, operate};

#[derive(Debug, Arbitrary)]
struct Case {
    /// Done to the bytes before the store is opened, or else while it is open.
    before: bool,
    damages: Vec<(u8, u32, bool, Word)>,
    ops: Vec<(u8, u32)>,
}

#[derive(Debug, Arbitrary)]
enum Word {
    Set(u64),
    Small(u8),
    Flip(u8),
    Add(i8),
    Copy(u32),
    Locked(u16),
}

impl Case {
    fn damages(&self) -> Vec<Damage> {
        let damage = |(area, pick, used, word): &(u8, u32, bool, Word)| Damage {
            area: Area::ALL[usize::from(*area) % Area::ALL.len()],
            pick: *pick,
            used: *used,
            change: match *word {
                Word::Set(word) => Change::Set(word),
                Word::Small(word) => Change::Set(word.into()),
                Word::Flip(bit) => Change::Flip(bit),
                Word::Add(n) => Change::Add(n),
                Word::Copy(n) => Change::Copy(n),
                Word::Locked(slot) => Change::Locked(slot),
            },
        };
        self.damages.iter().take(16).map(damage).collect()
    }

    fn ops(&self) -> impl Iterator<Item = (usize, Op)> {
        self.ops.iter().take(12).map(|(op, n)| {
            let key = n % KEYS;
            let ops = [
                Op::Get(key),
                Op::GetMany(key),
                Op::Put(key, (n >> 9) as u16),
                Op::PutMany(key),
                Op::PutLarge,
                Op::Update(key),
                Op::Patch(key),
                Op::Transact(key),
                Op::Remove(key),
                Op::RemoveMany(key),
                Op::Scan(u64::from(*n) << 7),
                Op::Clear,
                Op::Compact,
                Op::Check,
                Op::Stats,
                Op::Reap,
                Op::Fill,
            ];
            let op = usize::from(*op);
            (op / ops.len() % DATABASES, ops[op % ops.len()])
        })
    }
}

fuzz_target!(|case: Case| {
    let memory = Image::the().copy();
    let damages = case.damages();
    if case.before {
        inflict(&memory, &damages);
    }
    if let Ok(store) = memory.open(1) {
        if !case.before {
            inflict(&memory, &damages);
        }
        if damages.iter().all(|damage| !damage.area.is_read()) {
            for (database, key, value) in contents() {
                let database = store.database(database).unwrap();
                assert_eq!(database.get(&key).unwrap().as_deref(), Some(&value[..]));
            }
        }
        case.ops()
            .for_each(|(database, op)| operate(&store, database, op));
        operate(&store, 0, Op::Check);
    }
    memory.script.kill(1);
    if let Ok(store) = memory.open(2) {
        operate(&store, 0, Op::Check);
        case.ops()
            .for_each(|(database, op)| operate(&store, database, op));
        operate(&store, 0, Op::Reap);
    }
});
