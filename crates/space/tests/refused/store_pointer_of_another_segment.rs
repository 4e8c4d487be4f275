//! Rule 1: a pointer of one segment is stored in another.
use mneme_space::{Section, Ptr, Stored};

#[derive(Stored)]
struct Node<'s> {
    next: Option<Ptr<'s, Node<'s>>>,
}

fn link<'a, 'b>(from: Ptr<'a, Node<'a>>, here: &mut Section<'a>, to: Ptr<'b, Node<'b>>) {
    from.get_mut(here).unwrap().next = Some(to);
}

fn main() {}
