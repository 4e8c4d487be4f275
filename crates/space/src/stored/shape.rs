//! A hash of everything that the meaning of a type's bytes depends on.

use std::any::TypeId;
use std::cell::RefCell;
use std::marker::PhantomData;

use super::{Schema, Stored};

/// The compiler that chose the layouts that the language does not determine.
const COMPILER: &str = env!("MNEME_RUSTC");

/// Collects what [`Stored::describe`] reports: names, numbers, parts.
///
/// Two shapes are compared by their 64-bit hash, FNV-1a, which detects accidents, not attacks. `'s`
/// is the brand under which the described type is [`Stored`]; all of its parts must be stored under
/// the same brand.
#[derive(Debug)]
pub struct Shape<'s> {
    hash: u64,
    /// The types described so far, ignoring their lifetimes. Names would not do: two types may have
    /// the same one.
    seen: Vec<TypeId>,
    /// Invariant: a part that is stored under `'static` is not stored under `'s`.
    brand: PhantomData<fn(&'s ()) -> &'s ()>,
}

impl<'s> Shape<'s> {
    /// The shape of a schema's root.
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

    /// Adds a name.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        for byte in text.bytes() {
            self.mix(u64::from(byte));
        }
    }

    /// Adds an offset, a size or a count.
    pub fn number(&mut self, number: u64) {
        for byte in number.to_le_bytes() {
            self.mix(u64::from(byte));
        }
    }

    /// Adds a discriminant or a constant parameter.
    pub fn value(&mut self, value: i128) {
        for byte in value.to_le_bytes() {
            self.mix(u64::from(byte));
        }
    }

    /// Adds the compiler's version, for a layout that the compiler chooses and that offsets do not
    /// show: of enums and of private fields.
    pub fn by_compiler(&mut self) {
        self.text(COMPILER);
    }

    /// Adds a part of type `T`: size, alignment and, the first time, its own description.
    pub fn part<T: Stored<'s>>(&mut self) {
        self.number(size_of::<T>() as u64);
        self.number(align_of::<T>() as u64);
        let identity = typeid::of::<T>();
        if let Some(before) = self.seen.iter().position(|seen| *seen == identity) {
            // Recursive types, such as a list's node, are described once.
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

/// The result of [`Shape::of`], computed once in each thread.
pub(crate) fn shape_of<S: Schema>() -> u64 {
    let schema = TypeId::of::<S>();
    let known = SHAPES.with_borrow(|shapes| {
        let known = shapes.iter().find(|(known, _)| *known == schema);
        known.map(|(_, shape)| *shape)
    });
    known.unwrap_or_else(|| {
        // This runs code of the stored type, so the list must not be borrowed meanwhile.
        let shape = Shape::of::<S>();
        SHAPES.with_borrow_mut(|shapes| shapes.push((schema, shape)));
        shape
    })
}
