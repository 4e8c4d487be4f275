//! Well-formed commands with one mistake among them, cut anywhere: what comes before the mistake is
//! found as it was sent. Bytes alone rarely get past the first header.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use mneme_server::resp::{Batch, RequestLimits, Parser, Stop};

#[derive(Debug, Arbitrary)]
struct Session {
    commands: Vec<Vec<Vec<u8>>>,
    mistake: Vec<u8>,
    after: Vec<Vec<Vec<u8>>>,
    cuts: Vec<u16>,
}

fuzz_target!(|session: Session| {
    let Session {
        commands,
        mistake,
        after,
        cuts,
    } = session;
    let commands: Vec<_> = commands
        .into_iter()
        .filter(|command| !command.is_empty())
        .collect();
    let mut bytes: Vec<u8> = commands
        .iter()
        .flat_map(|command| encode(command))
        .collect();
    let sent = bytes.len();
    bytes.extend(mistake);
    bytes.extend(after.iter().flat_map(|command| encode(command)));

    let mut parser = Parser::new(RequestLimits::default());
    let mut batch = Batch::new();
    let mut found = 0;
    let (mut seen, mut dropped) = (Vec::new(), 0);
    let mut rest = &bytes[..];
    for len in cuts.into_iter().map(usize::from).chain([usize::MAX]) {
        let (piece, behind) = rest.split_at(len.min(rest.len()));
        seen.extend_from_slice(piece);
        rest = behind;
        loop {
            let parsed = parser.parse(&mut seen, &mut batch);
            for index in 0..batch.len() {
                if let Some(expected) = commands.get(found) {
                    let arguments: Vec<_> = batch.command(index, &seen).iter().collect();
                    assert_eq!(arguments, *expected);
                }
                found += 1;
            }
            assert!(parsed.consumed <= seen.len());
            dropped += parsed.consumed;
            seen.drain(..parsed.consumed);
            match parsed.stop {
                Stop::Incomplete => break,
                Stop::Full => {}
                Stop::Broken(_) => {
                    assert!(dropped >= sent, "a good command was refused");
                    return;
                }
            }
        }
    }
    assert!(found >= commands.len());
});

fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
