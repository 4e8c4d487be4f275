//! The contents of a segment: vectors, boxes, pointers; which threads may read and change them;
//! what is refused.

#![allow(missing_docs, clippy::unwrap_used)]

use allocator_api2::alloc::{Allocator, Layout};
use mneme_space::{
    EnterError, Heap, HeapError, LocalSegment, Ptr, PtrError, Schema, Section, SegBox, SegVec,
    Shape, Stored,
};

type Fallible = Result<(), Box<dyn std::error::Error>>;

#[derive(Stored)]
struct Node<'s> {
    number: u64,
    next: Option<Ptr<'s, Node<'s>>>,
}

#[derive(Stored)]
enum Tree<'s, T: Stored<'s>> {
    Leaf,
    Inner(SegBox<'s, (Tree<'s, T>, T, Tree<'s, T>)>),
}

#[derive(Stored)]
struct Contents<'s> {
    names: SegVec<'s, SegVec<'s, u8>>,
    list: Option<Ptr<'s, Node<'s>>>,
    tree: Tree<'s, u32>,
}

struct Test;
impl Schema for Test {
    type Root<'s> = Contents<'s>;
}

impl<'s> Tree<'s, u32> {
    fn insert(&mut self, heap: Heap<'s>, value: u32) {
        match self {
            Tree::Leaf => {
                *self = Tree::Inner(SegBox::new_in((Tree::Leaf, value, Tree::Leaf), heap))
            }
            Tree::Inner(inner) if value < inner.1 => inner.0.insert(heap, value),
            Tree::Inner(inner) => inner.2.insert(heap, value),
        }
    }

    fn collect(&self, into: &mut Vec<u32>) {
        if let Tree::Inner(inner) = self {
            inner.0.collect(into);
            into.push(inner.1);
            inner.2.collect(into);
        }
    }
}

fn new() -> LocalSegment {
    let segment = LocalSegment::new("a", 16 << 20).unwrap();
    let made = segment.enter(|here| {
        here.create_root::<Test>("a", |heap| Contents {
            names: SegVec::new_in(heap),
            list: None,
            tree: Tree::Leaf,
        })
        .map(|_| ())
    });
    made.unwrap().unwrap();
    segment
}

/// Later sections find what earlier ones left; when the root is dropped, all memory is freed.
#[test]
fn contents_last_from_section_to_section() -> Fallible {
    let segment = new();
    segment.enter(|here| -> Fallible {
        let heap = here.heap("a")?;
        let mut list = None;
        for number in 0..10 {
            list = Some(here.alloc(Node { number, next: list })?);
        }
        let root = here.root_mut::<Test>("a")?;
        root.list = list;
        for text in ["one", "two", "three"] {
            let mut name = SegVec::new_in(heap);
            name.extend_from_slice(text.as_bytes());
            root.names.push(name);
        }
        for value in [5, 2, 8, 1, 9, 3] {
            root.tree.insert(heap, value);
        }
        list.ok_or("no list")?.get_mut(here)?.number = 100;
        Ok(())
    })??;
    segment.read(|here| -> Fallible {
        let root = here.root::<Test>("a")?;
        let names: Vec<_> = root.names.iter().map(|name| &**name).collect();
        assert_eq!(names, [&b"one"[..], b"two", b"three"]);
        let mut values = Vec::new();
        root.tree.collect(&mut values);
        assert_eq!(values, [1, 2, 3, 5, 8, 9]);
        assert_eq!(sum(here, root.list), 100 + 36);
        // Threads of a scope read in parallel.
        let here = &*here;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| sum(here, root.list));
            assert_eq!(other.join().unwrap(), 136);
        });
        Ok(())
    })??;
    segment.enter(|here| -> Fallible {
        assert_eq!(here.heap("a")?.check()?.problems, []);
        drop(here.remove_root::<Test>("a")?);
        // Nobody owns what `alloc` created.
        let stats = here.heap("a")?.stats()?;
        assert_eq!((stats.blocks, stats.damage), (10, 0));
        Ok(())
    })??;
    Ok(())
}

fn sum<'s>(here: &Section<'s>, list: Option<Ptr<'s, Node<'s>>>) -> u64 {
    let (mut at, mut sum) = (list, 0);
    while let Some(node) = at {
        let node = node.get(here).unwrap();
        sum += node.number;
        at = node.next;
    }
    sum
}

/// A type that is generic over its allocator has the shape of its parts, and lies in a segment like
/// any other.
#[test]
fn a_type_generic_over_its_allocator_lies_in_a_segment() -> Fallible {
    #[derive(Stored)]
    #[stored(allocator = A)]
    struct Chain<T, A: Allocator>
    where
        A: Copy,
    {
        values: allocator_api2::vec::Vec<T, A>,
        next: Option<allocator_api2::boxed::Box<Chain<T, A>, A>>,
    }
    impl<T, A: Allocator + Copy> Chain<T, A> {
        fn new(value: T, next: Option<Self>, memory: A) -> Self {
            let mut values = allocator_api2::vec::Vec::new_in(memory);
            values.push(value);
            let next = next.map(|next| allocator_api2::boxed::Box::new_in(next, memory));
            Self { values, next }
        }
    }
    struct Chains;
    impl Schema for Chains {
        type Root<'s> = Chain<u64, Heap<'s>>;
    }
    struct Others;
    impl Schema for Others {
        type Root<'s> = Chain<i64, Heap<'s>>;
    }
    assert_ne!(Shape::of::<Chains>(), Shape::of::<Others>());
    let segment = LocalSegment::new("a", 2 << 20)?;
    segment.enter(|here| {
        here.create_root::<Chains>("a", |heap| {
            Chain::new(1, Some(Chain::new(2, None, heap)), heap)
        })
        .map(|_| ())
    })??;
    segment.read(|here| -> Fallible {
        let first = here.root::<Chains>("a")?;
        let next = first.next.as_ref().ok_or("nothing follows")?;
        assert_eq!((&*first.values, &*next.values), (&[1][..], &[2][..]));
        Ok(())
    })??;
    Ok(())
}

/// A section that only reads neither allocates nor changes anything, whatever it tries.
#[test]
fn a_reading_section_changes_nothing() -> Fallible {
    let segment = new();
    segment.enter(|here| -> Fallible {
        let list = here.heap("a")?.place(Node {
            number: 1,
            next: None,
        })?;
        here.root_mut::<Test>("a")?.list = Some(list);
        Ok(())
    })??;
    segment.read(|here| -> Fallible {
        let heap = here.heap("a")?;
        assert!(heap.allocate(Layout::new::<u64>()).is_err());
        assert!(SegVec::<u8>::new_in(heap).try_reserve(1).is_err());
        assert!(matches!(heap.place(1_u8), Err(HeapError::Refused)));
        assert!(matches!(
            here.root_mut::<Test>("a"),
            Err(HeapError::ReadOnly { .. })
        ));
        let list = here.root::<Test>("a")?.list.ok_or("no list")?;
        assert!(matches!(list.get_mut(here), Err(PtrError::ReadOnly)));
        Ok(())
    })??;
    Ok(())
}

/// Types of the same name and size differ if their fields differ, also behind a pointer.
#[test]
fn a_root_is_returned_only_as_its_own_type() -> Fallible {
    mod other {
        use super::*;
        #[derive(Stored)]
        pub struct Behind {
            pub other_name: u64,
        }
        #[derive(Stored)]
        pub struct Before {
            pub name: u64,
        }
    }
    struct Behind;
    impl Schema for Behind {
        type Root<'s> = SegVec<'s, other::Behind>;
    }
    struct Before;
    impl Schema for Before {
        type Root<'s> = SegVec<'s, other::Before>;
    }
    struct Later;
    impl Schema for Later {
        type Root<'s> = SegVec<'s, other::Before>;
        const VERSION: u32 = 1;
    }
    assert_eq!(Shape::of::<Before>(), Shape::of::<Before>());
    assert_ne!(Shape::of::<Before>(), Shape::of::<Behind>());
    assert_ne!(Shape::of::<Before>(), Shape::of::<Later>());
    let segment = new();
    let refused = segment.read(|here| here.root::<Before>("a").map(|_| ()))?;
    match refused {
        Err(HeapError::Layout {
            expected, found, ..
        }) => {
            assert_eq!(
                (expected, found),
                (Shape::of::<Before>(), Shape::of::<Test>())
            );
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// Types of one name are different types, even if one of them was described before: two numbers are
/// not mistaken for a box.
#[test]
fn types_of_one_name_are_distinguished() {
    #[derive(Stored)]
    struct Twin([u64; 2]);
    type Numbers = Twin;
    struct Plain;
    impl Schema for Plain {
        type Root<'s> = (Numbers, Numbers);
    }
    let boxed = {
        #[derive(Stored)]
        struct Twin<'s>(SegBox<'s, u64>);
        struct Boxed;
        impl Schema for Boxed {
            type Root<'s> = (Numbers, Twin<'s>);
        }
        Shape::of::<Boxed>()
    };
    assert_ne!(Shape::of::<Plain>(), boxed);
}

/// The shapes of types that differ only in what is given to `shapes!`.
macro_rules! shapes {
    ($($(#[$attribute:meta])* $kind:ident $body:tt;)*) => {
        [$({
            #[derive(Stored)]
            $(#[$attribute])*
            #[allow(dead_code)]
            $kind Given $body
            struct Root;
            impl Schema for Root {
                type Root<'s> = Given;
            }
            Shape::of::<Root>()
        }),*]
    };
}

/// The layout of an enum's fields and the values of its discriminants are part of its shape, as
/// values and not as source text.
#[test]
fn representations_and_discriminants_change_the_hash_of_a_type() {
    const NAMED: isize = 7;
    let different = shapes! {
        enum { V(u8, u32, u8, u64), X([u64; 4]) };
        #[repr(u8)] enum { V(u8, u32, u8, u64), X([u64; 4]) };
        #[repr(u16)] enum { V(u8, u32, u8, u64), X([u64; 4]) };
        #[repr(C)] enum { V(u8, u32, u8, u64), X([u64; 4]) };
        #[repr(C, u8)] enum { V(u8, u32, u8, u64), X([u64; 4]) };
        struct { whole: u64 };
        #[repr(C)] struct { whole: u64 };
        #[repr(transparent)] struct { whole: u64 };
        #[repr(C, packed)] struct { whole: u64 };
        enum { V = NAMED, X };
        enum { V = -7, X };
        enum { V, X = NAMED };
        #[repr(u64)] enum { V = u64::MAX, X = 0 };
        #[repr(u64)] enum { V = u64::MAX - 1, X = 0 };
    };
    for (at, one) in different.iter().enumerate() {
        assert!(!different[..at].contains(one), "{at}");
    }
    let same = shapes! {
        #[repr(C, u8)] enum { V = 3, X(u8) };
        #[repr(u8)] #[repr(C)] enum { V = 1 + 2, X(u8) };
        #[repr(u8, C,)] enum { V = { const THREE: u8 = 3; THREE }, X(u8) };
    };
    assert_eq!(same, [same[0]; 3]);
}

/// The shape of types that the language lays out is the same with every compiler: data on disk
/// depend on this number.
#[test]
fn shapes_that_no_compiler_chooses_stay_the_same() {
    #[derive(Stored)]
    #[repr(C)]
    struct Fixed<'s> {
        numbers: [u64; 2],
        list: List<'s>,
    }
    #[derive(Stored)]
    #[repr(u8)]
    #[allow(dead_code)]
    enum List<'s> {
        End = 1,
        More(Ptr<'s, Fixed<'s>>),
    }
    struct Root;
    impl Schema for Root {
        type Root<'s> = Fixed<'s>;
    }
    assert_eq!(Shape::of::<Root>(), 3_797_292_142_377_695_788);
}

/// A constant parameter is part of the shape.
#[test]
fn constant_parameters_change_the_hash_of_a_type() {
    #[derive(Stored)]
    struct Fixed<const DIGITS: i8, const SIGNED: bool>(u64);
    struct Root<const DIGITS: i8, const SIGNED: bool>;
    impl<const DIGITS: i8, const SIGNED: bool> Schema for Root<DIGITS, SIGNED> {
        type Root<'s> = Fixed<DIGITS, SIGNED>;
    }
    assert_ne!(Shape::of::<Root<2, true>>(), Shape::of::<Root<-2, true>>());
    assert_ne!(Shape::of::<Root<2, true>>(), Shape::of::<Root<2, false>>());
}

/// Missing and existing roots, nested sections and sections after a panic give typed errors.
#[test]
fn missing_taken_nested_and_panicking_uses_are_typed_errors() -> Fallible {
    let segment = LocalSegment::new("a", 2 << 20)?;
    segment.enter(|here| -> Fallible {
        assert!(matches!(
            here.root::<Test>("a"),
            Err(HeapError::NoRoot { .. })
        ));
        assert!(matches!(here.heap("b"), Err(HeapError::NoSegment { .. })));
        let taken = here.beside("a", |_, _| ());
        assert!(matches!(taken, Err(HeapError::Taken { .. })));
        assert!(matches!(segment.enter(|_| ()), Err(EnterError::Nested)));
        Ok(())
    })??;
    let again = new().enter(|here| {
        let exists = here.create_root::<Test>("a", |heap| Contents {
            names: SegVec::new_in(heap),
            list: None,
            tree: Tree::Leaf,
        });
        matches!(exists, Err(HeapError::RootExists { .. }))
    });
    assert!(again?);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        segment.enter(|_| panic!("on purpose"))
    }));
    assert!(panicked.is_err());
    assert!(matches!(
        segment.enter(|_| ()),
        Err(EnterError::Poisoned { .. })
    ));
    Ok(())
}
