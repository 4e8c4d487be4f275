//! One request at a time: a program that has attached the store, beside a client of Redis on a unix
//! socket.

use super::commands::{Command, Shape, Type};
use super::{ATTACHED, Scale};
use crate::client::attached::SEGMENT;
use crate::error::{BenchError, failed};
use crate::generate::random::{Random, mix};
use crate::ledger::{Ledger, Metric};
use crate::rounds::{self, Job};
use crate::scratch::{Scratch, space};
use crate::served::Served;
use crate::server::servers::{REDIS, Server, stores};
use crate::systems::pipeline::{Pipeline, connected};
use mneme_collections::{Hash, SortedSet};
use mneme_shared::SharedStore;
use std::time::Instant;

/// What is measured, of values of so many elements.
pub fn shapes(elements: u32, keys: u32) -> [Shape; 2] {
    [
        (Type::Hash, Command::Hget),
        (Type::SortedSet, Command::Zadd),
    ]
    .map(|(of, command)| Shape {
        of,
        elements,
        keys,
        commands: vec![command],
    })
}

/// The case of a command.
pub fn case(shape: &Shape, command: Command) -> String {
    format!("{}, one at a time", shape.case(command))
}

/// Nanoseconds a request.
fn each(
    operations: u64,
    seed: u64,
    mut request: impl FnMut(&mut Random) -> Result<(), BenchError>,
) -> Result<f64, BenchError> {
    let mut random = Random::new(seed);
    let begin = Instant::now();
    for _ in 0..operations {
        request(&mut random)?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / operations as f64)
}

/// A request of the program that has attached the store.
fn request(
    store: &SharedStore,
    command: Command,
    shape: &Shape,
    random: &mut Random,
) -> Result<(), BenchError> {
    let (key, id) = shape.draw(random);
    let element = shape.of.element(id);
    let is_right = match command {
        Command::Hget => {
            let hash = Hash::of(store, &key).map_err(failed)?;
            hash.get(&element).map_err(failed)?.is_some()
        }
        _ => {
            let set = SortedSet::of(store, &key).map_err(failed)?;
            let score = random.below(u64::from(shape.elements)) as f64;
            !set.set(&element, score).map_err(failed)?
        }
    };
    match is_right {
        true => Ok(()),
        false => {
            let what = "an element is missing";
            Err(BenchError::wrong(ATTACHED, case(shape, command), what))
        }
    }
}

/// Measures both commands.
///
/// # Errors
/// A server does not start, refuses, or the store cannot be attached.
pub fn run(
    shape: &Shape,
    scale: &Scale,
    seed: u64,
    rounds: usize,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let memory = shape.memory();
    let scratch = Scratch::new("collections", 1 << 20)?;
    let socket = scratch.root().join("socket");
    let bytes = memory.to_string();
    let served = Served::start(
        scratch.registry().root(),
        SEGMENT,
        &socket,
        &[&"--memory", &bytes],
    )?;
    let mut filling = Pipeline::new(connected(&socket)?);
    shape.build(&mut filling)?;
    let store = SharedStore::attach_writable(scratch.registry(), SEGMENT).map_err(space)?;
    let redis = match stores().contains(&REDIS) {
        false => None,
        true => {
            let server = Server::start(REDIS, 1, memory)?;
            let mut commands = Pipeline::new(connected(&server.socket())?);
            shape.build(&mut commands)?;
            Some((commands, server))
        }
    };
    let (mut commands, _server) = redis.unzip();
    let Some(&command) = shape.commands.first() else {
        return Ok(());
    };
    let of_round = |round: usize| mix(seed ^ round as u64);
    let mut jobs = vec![Job::new(
        ATTACHED,
        case(shape, command),
        Metric::Latency,
        |round| {
            each(scale.operations, of_round(round), |random| {
                request(&store, command, shape, random)
            })
        },
    )];
    if let Some(commands) = &mut commands {
        let operations = (scale.operations / 10).max(1);
        jobs.push(Job::new(
            REDIS,
            case(shape, command),
            Metric::Latency,
            move |round| {
                each(operations, of_round(round), |random| {
                    command.queue(shape, random, commands);
                    commands.drain().map(drop)
                })
            },
        ));
    }
    rounds::run(jobs, rounds, ledger)?;
    drop((store, served));
    Ok(())
}
