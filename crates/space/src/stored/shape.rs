//! A hash over everything that the meaning of a type's bytes depends on.

use std::any::TypeId;
use std::cell::RefCell;
use std::marker::PhantomData;

use super::{Schema, Stored};

/// The compiler that laid out what has no layout of its own by decree.
const COMPILER: &str = env!("MNEME_RUSTC");

/// Takes down what [`Stored::describe`] tells: names, numbers, parts.
///
/// Two shapes are compared by their hash, of 64 bits: FNV-1a, which finds accidents, not malice.
/// `'s` is the brand under which the type that tells is [`Stored`], and all of its parts must be.
#[derive(Debug)]
pub struct Shape<'s> {
    hash: u64,
    /// Types described before, whatever their lifetimes. Not their names: two types may have one.
    seen: Vec<TypeId>,
    /// Neither longer nor shorter: a part that is stored under `'static` is not stored under `'s`.
    brand: PhantomData<fn(&'s ()) -> &'s ()>,
}

impl<'s> Shape<'s> {
    /// The shape of what a schema's root is.
    #[must_use]
    pub fn of<S: Schema>() -> u64 {
        let mut shape = Self {
            hash: 0xcbf2_9ce4_8422_2325,
            seen: Vec::new(),
            brand: PhantomData,
        };
        shape.number(u64::from(S::VERSION));
        shape.part::<S::Root<'s>>();
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

    /// A discriminant, or a parameter that is a constant.
    pub fn value(&mut self, value: i128) {
        for byte in value.to_le_bytes() {
            self.mix(u64::from(byte));
        }
    }

    /// That the layout is the compiler's own choice, in a way that offsets do not tell: of enums,
    /// of private fields.
    pub fn by_compiler(&mut self) {
        self.text(COMPILER);
    }

    /// A part of type `T`: size, alignment and, the first time, what it consists of.
    pub fn part<T: Stored<'s>>(&mut self) {
        self.number(size_of::<T>() as u64);
        self.number(align_of::<T>() as u64);
        let identity = typeid::of::<T>();
        if let Some(before) = self.seen.iter().position(|seen| *seen == identity) {
            // A list's node leads to a list's node.
            self.text("again");
            self.number(before as u64);
            return;
        }
        self.seen.push(identity);
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
