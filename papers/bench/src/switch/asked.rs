//! A thread that is asked for data: through a socket, and through cache lines that both sides
//! watch.

use mneme_bench::error::BenchError;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// What is asked for: the first bytes of some data, by their number. Nothing ends a server.
const END: u64 = 0;

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |why| BenchError::server("the asked thread", format!("{what}: {why}"))
}

/// Answers over a Unix socket, as servers on one machine do.
pub struct Socket {
    stream: UnixStream,
    server: Option<JoinHandle<()>>,
}

impl Socket {
    pub fn new(data: Arc<[u8]>) -> Result<Self, BenchError> {
        let (stream, mut other) = UnixStream::pair().map_err(failed("a socket"))?;
        let server = std::thread::spawn(move || {
            let mut asked = [0; 8];
            while other.read_exact(&mut asked).is_ok() {
                let bytes = u64::from_le_bytes(asked);
                if bytes == END || other.write_all(&data[..bytes as usize]).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            stream,
            server: Some(server),
        })
    }

    pub fn ask(&mut self, into: &mut [u8]) -> Result<(), BenchError> {
        let asked = (into.len() as u64).to_le_bytes();
        self.stream.write_all(&asked).map_err(failed("asking"))?;
        self.stream.read_exact(into).map_err(failed("the answer"))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = self.stream.write_all(&END.to_le_bytes());
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

/// One cache line each way, and a buffer: what both sides watch without sleeping.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

struct Shared {
    asked: Line,
    answered: Line,
    buffer: Vec<AtomicU64>,
    end: AtomicBool,
}

/// Answers through memory that both sides watch: the quickest that asking another core can be (the
/// paper's URPC), at the price of a core that does nothing else.
pub struct Watched {
    shared: Arc<Shared>,
    number: u64,
    server: Option<JoinHandle<()>>,
}

/// Bytes of an answer that travel at once; longer ones come in several.
const BUFFER: usize = 4096;

impl Watched {
    pub fn new(data: Arc<[u8]>) -> Self {
        let shared = Arc::new(Shared {
            asked: Line::default(),
            answered: Line::default(),
            buffer: (0..BUFFER / 8).map(|_| AtomicU64::new(0)).collect(),
            end: AtomicBool::new(false),
        });
        let server = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || serve(&shared, &data)
        });
        Self {
            shared,
            number: 0,
            server: Some(server),
        }
    }

    pub fn ask(&mut self, into: &mut [u8]) {
        for part in into.chunks_mut(BUFFER) {
            self.number += 1;
            let asked = self.number << 32 | part.len() as u64;
            // SYNC: pairs with the Acquire load in `serve`.
            self.shared.asked.0.store(asked, Ordering::Release);
            // SYNC: pairs with the Release store in `serve`.
            while self.shared.answered.0.load(Ordering::Acquire) != self.number {
                std::hint::spin_loop();
            }
            for (word, bytes) in self.shared.buffer.iter().zip(part.chunks_mut(8)) {
                // Relaxed: ordered by the answer's number.
                let word = word.load(Ordering::Relaxed).to_le_bytes();
                bytes.copy_from_slice(&word[..bytes.len()]);
            }
        }
    }
}

fn serve(shared: &Shared, data: &[u8]) {
    let mut last = 0;
    while !shared.end.load(Ordering::Relaxed) {
        // SYNC: pairs with the Release store in `ask`.
        let asked = shared.asked.0.load(Ordering::Acquire);
        let (number, bytes) = (asked >> 32, asked as u32 as usize);
        if number == last {
            std::hint::spin_loop();
            continue;
        }
        last = number;
        for (word, bytes) in shared.buffer.iter().zip(data[..bytes].chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            // Relaxed: ordered by the answer's number.
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        // SYNC: pairs with the Acquire load in `ask`.
        shared.answered.0.store(number, Ordering::Release);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_answer_with_the_data() {
        let data: Arc<[u8]> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
        let (mut socket, mut watched) = (
            Socket::new(Arc::clone(&data)).unwrap(),
            Watched::new(Arc::clone(&data)),
        );
        for bytes in [1, 8, 13, 4096] {
            let (mut one, mut other) = (vec![0; bytes], vec![0; bytes]);
            socket.ask(&mut one).unwrap();
            watched.ask(&mut other);
            assert_eq!(one, data[..bytes]);
            assert_eq!(other, data[..bytes]);
        }
        // In parts, each of them the beginning.
        let mut long = vec![0; 5000];
        watched.ask(&mut long);
        assert_eq!(long[..4096], data[..4096]);
        assert_eq!(long[4096..], data[..904]);
        let mut long = vec![0; 90_000];
        socket.ask(&mut long).unwrap();
        assert_eq!(long, data[..90_000]);
    }
}
