//! The path of a command with one key does not allocate: once warm, thousands of them cost no call
//! of the allocator.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that panics fails"
)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use common::{Client, encode, server, start};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is left to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn commands_do_not_allocate() {
    let (_running, address) = start(server().threads(1));
    let mut client = Client::connect(address);
    let mut pipeline = Vec::new();
    let mut replies = 0;
    for i in 0..16 {
        pipeline.extend(encode(&["SET", &format!("key:{i}"), "value"]));
        pipeline.extend(encode(&["GET", &format!("key:{i}")]));
        pipeline.extend(encode(&["MGET", "key:0"]));
        pipeline.extend(encode(&["STRLEN", "key:0"]));
        pipeline.extend(encode(&["EXISTS", "key:0"]));
        pipeline.extend(encode(&["GETRANGE", "key:0", "1", "-2"]));
        pipeline.extend(encode(&["GETBIT", "key:0", "1"]));
        pipeline.extend(encode(&["BITCOUNT", "key:0"]));
        pipeline.extend(encode(&["PING"]));
        replies += b"+OK\r\n$5\r\nvalue\r\n*1\r\n$5\r\nvalue\r\n:5\r\n:1\r\n$3\r\nalu\r\n:1\r\n:21\r\n+PONG\r\n"
            .len();
    }
    let mut answer = vec![0; replies];
    let stream = client.stream.get_mut();
    let mut round = |times: u64| {
        for _ in 0..times {
            stream.write_all(&pipeline).unwrap();
            stream.read_exact(&mut answer).unwrap();
        }
    };
    round(100);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    round(1000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // 144,000 commands. The store's maintainer may allocate now and then.
    assert!(allocations < 2_000, "{allocations} allocations");
}
