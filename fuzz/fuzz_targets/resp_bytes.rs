//! Any bytes, cut anywhere: the parser never panics, and the cuts change neither the commands nor
//! the error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mneme_server::resp::{Batch, RequestLimits, Parser, ProtocolError, Stop};

fuzz_target!(|input: (Vec<u8>, Vec<u16>)| {
    let (bytes, cuts) = input;
    assert_eq!(parse(&bytes, &cuts), parse(&bytes, &[]));
});

type Found = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

fn parse(bytes: &[u8], lengths: &[u16]) -> Found {
    let mut parser = Parser::new(RequestLimits::default());
    let mut batch = Batch::new();
    let mut found = Vec::new();
    let mut seen = Vec::new();
    let mut rest = bytes;
    for len in lengths
        .iter()
        .map(|len| usize::from(*len))
        .chain([usize::MAX])
    {
        let (piece, behind) = rest.split_at(len.min(rest.len()));
        seen.extend_from_slice(piece);
        rest = behind;
        loop {
            let parsed = parser.parse(&mut seen, &mut batch);
            let command = |i| batch.command(i, &seen).iter().map(<[u8]>::to_vec).collect();
            found.extend((0..batch.len()).map(command));
            seen.drain(..parsed.consumed);
            match parsed.stop {
                Stop::Incomplete => break,
                Stop::Full => {}
                Stop::Broken(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}
