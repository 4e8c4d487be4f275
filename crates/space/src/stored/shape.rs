//! A hash over everything that the meaning of a type's bytes depends on.

use std::any::{TypeId, type_name};
use std::cell::RefCell;

use super::{Schema, Stored};

/// The compiler that laid out what has no layout of its own by decree.
const COMPILER: &str = env!("MNEME_RUSTC");

/// Takes down what [`Stored::describe`] tells: names, numbers, parts.
///
/// Two shapes are compared by their hash, of 64 bits: FNV-1a, which finds accidents, not malice.
#[derive(Debug)]
pub struct Shape {
    hash: u64,
    /// Types told of before: names in this program, editions.
    seen: Vec<(&'static str, &'static str)>,
}

impl Shape {
    /// The shape of what a schema's root is.
    #[must_use]
    pub fn of<S: Schema>() -> u64 {
        let mut shape = Self {
            hash: 0xcbf2_9ce4_8422_2325,
            seen: Vec::new(),
        };
        shape.number(u64::from(S::VERSION));
        shape.part::<S::Root<'_>>();
        shape.hash
    }

    /// A name.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        for byte in text.bytes() {
            self.mix(u64::from(byte));
        }
    }

    /// An offset, a size, a count.
    pub fn number(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.mix(u64::from(byte));
        }
    }

    /// That the layout is the compiler's own choice, in a way that offsets do not tell: of enums, of private fields.
    pub fn by_compiler(&mut self) {
        self.text(COMPILER);
    }

    /// A part of type `T`: size, alignment and, the first time, what it consists of.
    pub fn part<'s, T: Stored<'s>>(&mut self) {
        self.number(size_of::<T>() as u64);
        self.number(align_of::<T>() as u64);
        let key = (type_name::<T>(), T::EDITION);
        if let Some(before) = self.seen.iter().position(|seen| *seen == key) {
            // A list's node leads to a list's node.
            self.text("again");
            self.number(before as u64);
            return;
        }
        self.seen.push(key);
        T::describe(self);
        self.text("end");
    }

    fn mix(&mut self, byte: u64) {
        self.hash = (self.hash ^ byte).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

thread_local! {
    static SHAPES: RefCell<Vec<(TypeId, u64)>> = const { RefCell::new(Vec::new()) };
}

/// [`Shape::of`], taken once in each thread.
pub(crate) fn shape_of<S: Schema>() -> u64 {
    let schema = TypeId::of::<S>();
    let known = SHAPES.with_borrow(|shapes| {
        let known = shapes.iter().find(|(known, _)| *known == schema);
        known.map(|(_, shape)| *shape)
    });
    known.unwrap_or_else(|| {
        // A stored type's own code, which must not find the list borrowed.
        let shape = Shape::of::<S>();
        SHAPES.with_borrow_mut(|shapes| shapes.push((schema, shape)));
        shape
    })
}
