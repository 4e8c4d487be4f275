//! The commands that are measured, and the values that they meet.

use crate::error::BenchError;
use crate::generate::random::Random;
use crate::systems::pipeline::Pipeline;
use mneme_log::MIN_CAPACITY;

/// Elements that one command adds while a value is built.
const AT_ONCE: u32 = 128;

/// What `LRANGE` and `ZRANGE` return.
pub const RANGE: u32 = 100;

/// A type of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// Fields of 10 bytes with values of 10.
    Hash,
    /// Members of 16 bytes.
    Set,
    /// Members of 16 bytes.
    SortedSet,
    /// Items of 10 bytes.
    List,
}

impl Type {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Set => "set",
            Self::SortedSet => "sorted set",
            Self::List => "list",
        }
    }

    /// An element's own bytes: of a hash the field's.
    pub fn element(self, id: u32) -> Vec<u8> {
        match self {
            Self::Hash | Self::List => format!("e:{id:08}"),
            Self::Set | Self::SortedSet => format!("member:{id:09}"),
        }
        .into_bytes()
    }

    /// Adds elements to a value, all with one command.
    fn add(self, ids: std::ops::Range<u32>, key: &[u8], to: &mut Pipeline) {
        let name: &[u8] = match self {
            Self::Hash => b"HSET",
            Self::Set => b"SADD",
            Self::SortedSet => b"ZADD",
            Self::List => b"RPUSH",
        };
        let mut words = vec![name.to_vec(), key.to_vec()];
        for id in ids {
            match self {
                Self::Hash => words.extend([self.element(id), value(id)]),
                Self::SortedSet => words.extend([id.to_string().into(), self.element(id)]),
                Self::Set | Self::List => words.push(self.element(id)),
            }
        }
        queue(&words, to);
    }
}

fn value(id: u32) -> Vec<u8> {
    format!("v:{id:08}").into_bytes()
}

fn queue(words: &[Vec<u8>], to: &mut Pipeline) {
    to.queue(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

/// What is asked for. Those of two names leave the value as they found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// A field's value.
    Hget,
    /// A field's value replaced.
    Hset,
    /// The whole value.
    Hgetall,
    /// A member that is there.
    Sismember,
    /// A member that is there, removed and added again.
    SremSadd,
    /// The members that two sets share: half of each.
    Sinter,
    /// A member's score.
    Zscore,
    /// A member's score replaced.
    Zadd,
    /// A member's rank.
    Zrank,
    /// Members by rank.
    Zrange,
    /// An item added at the front, and one removed from the back.
    LpushRpop,
    /// An item anywhere.
    Lindex,
    /// An item replaced anywhere.
    Lset,
    /// Items that follow one another.
    Lrange,
}

impl Command {
    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hget => "HGET",
            Self::Hset => "HSET",
            Self::Hgetall => "HGETALL",
            Self::Sismember => "SISMEMBER",
            Self::SremSadd => "SREM, SADD",
            Self::Sinter => "SINTER",
            Self::Zscore => "ZSCORE",
            Self::Zadd => "ZADD",
            Self::Zrank => "ZRANK",
            Self::Zrange => "ZRANGE",
            Self::LpushRpop => "LPUSH, RPOP",
            Self::Lindex => "LINDEX",
            Self::Lset => "LSET",
            Self::Lrange => "LRANGE",
        }
    }

    /// Elements, numbers and states that its replies hold if they are right.
    pub fn expected(self, elements: u32) -> usize {
        (match self {
            Self::Hgetall => 2 * elements,
            Self::Sinter => elements / 2,
            Self::SremSadd | Self::LpushRpop => 2,
            Self::Zrange | Self::Lrange => RANGE.min(elements),
            _ => 1,
        }) as usize
    }

    /// Commands that it is.
    pub fn count(self) -> u64 {
        match self {
            Self::SremSadd | Self::LpushRpop => 2,
            _ => 1,
        }
    }

    /// Queues it, for an element that is drawn.
    pub fn queue(self, shape: &Shape, random: &mut Random, to: &mut Pipeline) {
        let ((key, id), elements) = (shape.draw(random), shape.elements);
        let number = |number: u32| number.to_string().into_bytes();
        let start = id.min(elements.saturating_sub(RANGE));
        let range = || [number(start), number(start + RANGE - 1)];
        let mut ask = |name: &str, words: &[Vec<u8>]| {
            let head = [name.as_bytes().to_vec(), key.clone()];
            queue(&[&head, words].concat(), to);
        };
        match self {
            Self::Hget => ask("HGET", &[Type::Hash.element(id)]),
            Self::Hset => ask("HSET", &[Type::Hash.element(id), value(id)]),
            Self::Hgetall => ask("HGETALL", &[]),
            Self::Sismember => ask("SISMEMBER", &[Type::Set.element(id)]),
            Self::SremSadd => {
                ask("SREM", &[Type::Set.element(id)]);
                ask("SADD", &[Type::Set.element(id)]);
            }
            Self::Sinter => ask("SINTER", &[other_set()]),
            Self::Zscore => ask("ZSCORE", &[Type::SortedSet.element(id)]),
            Self::Zadd => {
                let score = number(random.below(u64::from(elements)) as u32);
                ask("ZADD", &[score, Type::SortedSet.element(id)]);
            }
            Self::Zrank => ask("ZRANK", &[Type::SortedSet.element(id)]),
            Self::Zrange => ask("ZRANGE", &range()),
            Self::LpushRpop => {
                ask("LPUSH", &[Type::List.element(id)]);
                ask("RPOP", &[]);
            }
            Self::Lindex => ask("LINDEX", &[number(id)]),
            Self::Lset => ask("LSET", &[number(id), Type::List.element(id)]),
            Self::Lrange => ask("LRANGE", &range()),
        }
    }
}

/// The set that `SINTER` meets the first with.
fn other_set() -> Vec<u8> {
    b"other".to_vec()
}

/// Values of one type and size, and what is asked of them.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Of the values.
    pub of: Type,
    /// Elements of each.
    pub elements: u32,
    /// Values.
    pub keys: u32,
    /// What is asked.
    pub commands: Vec<Command>,
}

impl Shape {
    /// In tables.
    pub fn name(&self) -> String {
        format!("{} of {}", self.of.name(), self.elements)
    }

    /// The case of a command.
    pub fn case(&self, command: Command) -> String {
        format!("{}, {}", command.name(), self.name())
    }

    /// The key of a value.
    pub fn key(&self, id: u32) -> Vec<u8> {
        format!("key:{id:012}").into_bytes()
    }

    /// Builds all values.
    ///
    /// # Errors
    /// The server refuses.
    pub fn build(&self, to: &mut Pipeline) -> Result<(), BenchError> {
        let fill = |key: &[u8], ids: std::ops::Range<u32>, to: &mut Pipeline| {
            for first in ids.clone().step_by(AT_ONCE as usize) {
                self.of.add(first..ids.end.min(first + AT_ONCE), key, to);
                if to.queued_bytes() > 64 << 10 {
                    to.drain()?;
                }
            }
            Ok::<_, BenchError>(())
        };
        for id in 0..self.keys {
            fill(&self.key(id), 0..self.elements, to)?;
        }
        if self.commands.contains(&Command::Sinter) {
            let half = self.elements / 2;
            fill(&other_set(), half..half + self.elements, to)?;
        }
        to.drain().map(drop)
    }

    /// A key and an element of it, drawn evenly.
    pub fn draw(&self, random: &mut Random) -> (Vec<u8>, u32) {
        let key = self.key(random.below(u64::from(self.keys)) as u32);
        (key, random.below(u64::from(self.elements)) as u32)
    }

    /// Bytes that ours may take: what other forms than the packed one take at most, and as much
    /// again to work in.
    pub fn memory(&self) -> u64 {
        (300 * self.all_elements()).max(8 * MIN_CAPACITY)
    }

    /// Elements of all values that are built.
    pub fn all_elements(&self) -> u64 {
        let values = self.keys + u32::from(self.commands.contains(&Command::Sinter));
        u64::from(values) * u64::from(self.elements)
    }
}
