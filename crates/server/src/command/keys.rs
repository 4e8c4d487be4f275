//! Finds the keys among a command's arguments, by Redis 7's key specifications.

use std::iter::StepBy;
use std::ops::Range;

use crate::resp::Arguments;

use super::vocabulary::named;

/// One rule that finds keys among a command's arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeySpec {
    /// The command's access to these keys.
    pub flags: &'static [KeyFlag],
    /// Where they begin.
    pub begin: Begin,
    /// Which arguments from there on are keys.
    pub find: Find,
    /// A remark for `COMMAND INFO`.
    pub notes: Option<&'static str>,
}

/// Where the keys begin.
#[derive(Debug, Clone, Copy)]
#[allow(
    dead_code,
    reason = "Redis' whole vocabulary, so that a new command finds its words"
)]
pub(crate) enum Begin {
    /// At this argument; the command's name is argument 0.
    Index(usize),
    /// After this word, which is searched from this argument on.
    Keyword(&'static str, usize),
}

/// Which arguments are keys, counted from their beginning.
#[derive(Debug, Clone, Copy)]
#[allow(
    dead_code,
    reason = "Redis' whole vocabulary, so that a new command finds its words"
)]
pub(crate) enum Find {
    /// Every `step`-th argument up to `last`, which is an offset or, if negative, counts from the
    /// end of the command.
    Range {
        last: i32,
        step: usize,
        limit: usize,
    },
    /// Their number is the value of the argument at offset `count`. They are every `step`-th
    /// argument from offset `first` on.
    Count {
        count: usize,
        first: usize,
        step: usize,
    },
}

named! {
    /// A command's access to a key and its value.
    KeyFlag {
        ReadOnly => "RO",
        ReadWrite => "RW",
        Overwrite => "OW",
        Remove => "RM",
        Access => "access",
        Update => "update",
        Insert => "insert",
        Delete => "delete",
        NotKey => "not_key",
        Incomplete => "incomplete",
        VariableFlags => "variable_flags",
    }
}

impl KeySpec {
    /// The first argument is the key.
    pub const fn first(flags: &'static [KeyFlag]) -> Self {
        Self::range(flags, 0, 1)
    }

    /// The second argument is the key.
    pub const fn second(flags: &'static [KeyFlag]) -> Self {
        Self {
            begin: Begin::Index(2),
            ..Self::first(flags)
        }
    }

    /// The first two arguments are keys.
    pub const fn first_two(flags: &'static [KeyFlag]) -> Self {
        Self::range(flags, 1, 1)
    }

    /// All arguments are keys.
    pub const fn all(flags: &'static [KeyFlag]) -> Self {
        Self::range(flags, -1, 1)
    }

    /// All arguments but the last are keys.
    pub const fn all_but_last(flags: &'static [KeyFlag]) -> Self {
        Self::range(flags, -2, 1)
    }

    /// The argument after the first `word` from argument `from` on is a key.
    pub const fn behind(word: &'static str, from: usize, flags: &'static [KeyFlag]) -> Self {
        Self {
            begin: Begin::Keyword(word, from),
            ..Self::first(flags)
        }
    }

    /// All arguments from `index` on are keys.
    pub const fn all_from(index: usize, flags: &'static [KeyFlag]) -> Self {
        Self {
            begin: Begin::Index(index),
            ..Self::all(flags)
        }
    }

    /// The number of keys is in argument `index`, and the keys follow it.
    pub const fn counted(index: usize, flags: &'static [KeyFlag]) -> Self {
        Self {
            begin: Begin::Index(index),
            find: Find::Count {
                count: 0,
                first: 1,
                step: 1,
            },
            ..Self::first(flags)
        }
    }

    /// Every second argument is a key, beginning with the first.
    pub const fn pairs(flags: &'static [KeyFlag]) -> Self {
        Self::range(flags, -1, 2)
    }

    const fn range(flags: &'static [KeyFlag], last: i32, step: usize) -> Self {
        Self {
            flags,
            begin: Begin::Index(1),
            find: Find::Range {
                last,
                step,
                limit: 0,
            },
            notes: None,
        }
    }

    /// Adds a remark.
    pub const fn with_notes(self, notes: &'static str) -> Self {
        Self {
            notes: Some(notes),
            ..self
        }
    }

    /// The first key, last key and step of a command with these rules, as in `COMMAND INFO` before
    /// Redis 7; zeros if that cannot be expressed.
    pub fn legacy(specs: &[Self]) -> (i64, i64, i64) {
        let mut specs = specs.iter().map(Self::legacy_of_one);
        let first = specs.next().unwrap_or_default();
        // Rules for adjacent keys form one range.
        specs.fold(first, |(first, last, step), next| {
            if next.0 == last + 1 && next.2 == 1 {
                (first, next.1, step)
            } else {
                (first, last, step)
            }
        })
    }

    fn legacy_of_one(&self) -> (i64, i64, i64) {
        match (self.begin, self.find) {
            (Begin::Index(first), Find::Range { last, step, .. }) => {
                let last = if last < 0 {
                    i64::from(last)
                } else {
                    first as i64 + i64::from(last)
                };
                (first as i64, last, step as i64)
            }
            _ => (0, 0, 0),
        }
    }

    /// The position of the key, if there is exactly one, which is at that position in every call.
    #[inline]
    pub const fn only(&self) -> Option<usize> {
        match (self.begin, self.find) {
            (Begin::Index(index), Find::Range { last: 0, .. }) => Some(index),
            _ => None,
        }
    }

    /// The positions of the keys in `args`. `None`: the arguments contradict the rule. A word
    /// counts wherever it is: a command that takes the last `STORE` must not be checked by the
    /// first one.
    pub fn positions<'a>(
        &self,
        args: &Arguments<'a>,
    ) -> Option<impl Iterator<Item = usize> + use<'a>> {
        let (args, find) = (*args, self.find);
        let (range, word) = match self.begin {
            Begin::Index(index) => (find.positions(index, args)?, None),
            Begin::Keyword(word, from) => ((0..0).step_by(1), Some((word, from))),
        };
        let words = word.into_iter().flat_map(move |(word, from)| {
            let is_word = move |at: &usize| args.at(*at).eq_ignore_ascii_case(word.as_bytes());
            (from..args.len()).filter(is_word)
        });
        let behind = words.filter_map(move |at| find.positions(at + 1, args));
        Some(range.chain(behind.flatten()))
    }
}

impl Find {
    /// The positions of the keys that begin at argument `begin`. `None`: they do not fit.
    fn positions(self, begin: usize, args: Arguments<'_>) -> Option<StepBy<Range<usize>>> {
        let (first, end, step) = match self {
            Find::Range { last, step, limit } => {
                let end = match usize::try_from(last) {
                    Ok(offset) => begin + offset + 1,
                    Err(_) => (args.len() + 1).checked_sub(last.unsigned_abs() as usize)?,
                };
                // A limit of n means that the first n-th of the rest are keys.
                let end = if limit > 1 {
                    begin + end.saturating_sub(begin) / limit
                } else {
                    end
                };
                (begin, end, step)
            }
            Find::Count { count, first, step } => {
                let keys = usize::try_from(crate::resp::parse_u64(args.at(begin + count))?).ok()?;
                let first = begin + first;
                (first, first.checked_add(keys.checked_mul(step)?)?, step)
            }
        };
        (end <= args.len()).then(|| (first..end).step_by(step.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Batch, Parser, RequestLimits};

    fn positions(spec: KeySpec, line: &str) -> Option<Vec<usize>> {
        let mut input = format!("{line}\n").into_bytes();
        let mut batch = Batch::new();
        Parser::new(RequestLimits::default()).parse(&mut input, &mut batch);
        let found = spec.positions(&batch.command(0, &input))?;
        Some(found.collect())
    }

    #[test]
    fn keys_are_found_by_each_kind_of_rule() {
        let ro = &[KeyFlag::ReadOnly];
        assert_eq!(positions(KeySpec::first(ro), "get a"), Some(vec![1]));
        assert_eq!(
            positions(KeySpec::all(ro), "del a b c"),
            Some(vec![1, 2, 3])
        );
        assert_eq!(
            positions(KeySpec::pairs(ro), "mset a 1 b 2"),
            Some(vec![1, 3])
        );
        assert_eq!(positions(KeySpec::first(ro), "get"), None);
        assert_eq!(KeySpec::first(ro).only(), Some(1));
        assert_eq!(KeySpec::second(ro).only(), Some(2));
        assert_eq!(KeySpec::all(ro).only(), None);

        let counted = Find::Count {
            count: 0,
            first: 1,
            step: 1,
        };
        let spec = KeySpec {
            begin: Begin::Index(2),
            find: counted,
            ..KeySpec::first(ro)
        };
        assert_eq!(
            positions(spec, "zunionstore d 2 a b weights"),
            Some(vec![3, 4])
        );
        assert_eq!(positions(spec, "zunionstore d 9 a b"), None);
        assert_eq!(positions(spec, "zunionstore d x a b"), None);

        let halves = Find::Range {
            last: -1,
            step: 1,
            limit: 2,
        };
        let spec = KeySpec {
            begin: Begin::Keyword("streams", 1),
            find: halves,
            ..KeySpec::first(ro)
        };
        assert_eq!(
            positions(spec, "xread count 2 STREAMS a b 0 0"),
            Some(vec![4, 5])
        );
        assert_eq!(positions(spec, "xread count 2"), Some(vec![]));

        let spec = KeySpec::behind("STORE", 3, ro);
        assert_eq!(
            positions(spec, "search k x store a storedist store store b"),
            Some(vec![4, 7, 8])
        );
        assert_eq!(positions(spec, "search k x storedist store"), Some(vec![]));
    }
}
