//! A store in private memory of this process, overwritten by one thread.

use super::{Case, Draw, Moment, RESTED, STEPS, Scale, THINNED, goes, moved, resident};
use crate::error::{BenchError, failed};
use crate::generate::keys::{KEY_BYTES, key, stamp};
use crate::ledger::{Ledger, Metric};
use crate::progress;
use crate::server::servers::cpu_of;
use mneme_log::{Builder, LogStore, MIN_CAPACITY};
use std::time::Duration;

/// Which thread empties log segments, and when.
pub struct Arm {
    /// In tables.
    pub name: &'static str,
    set: fn(Builder) -> Builder,
    /// Whether idleness and the removal are measured as well.
    pub rests: bool,
}

/// The curve over fill targets, and the store without a maintainer. 0.8 is the default.
pub const ARMS: [Arm; 6] = [
    curve("fill 0.6", |builder| builder.target_fill(0.6)),
    curve("fill 0.7", |builder| builder.target_fill(0.7)),
    Arm {
        name: "fill 0.8",
        set: |builder| builder.target_fill(0.8),
        rests: true,
    },
    curve("fill 0.9", |builder| builder.target_fill(0.9)),
    curve("fill 0.95", |builder| builder.target_fill(0.95)),
    Arm {
        name: "no maintainer",
        set: |builder| builder.maintainer(false),
        rests: true,
    },
];

const fn curve(name: &'static str, set: fn(Builder) -> Builder) -> Arm {
    Arm {
        name,
        set,
        rests: false,
    }
}

/// Measures a case, arm by arm.
///
/// # Errors
/// No memory, or a store that refuses.
pub fn run(case: Case, scale: &Scale, seed: u64, ledger: &mut Ledger) -> Result<(), BenchError> {
    for arm in ARMS {
        progress::show(format_args!("private memory, {}, {case}", arm.name));
        live(&arm, case, scale, seed, ledger)?;
    }
    Ok(())
}

fn live(
    arm: &Arm,
    case: Case,
    scale: &Scale,
    seed: u64,
    ledger: &mut Ledger,
) -> Result<(), BenchError> {
    let each = (KEY_BYTES + case.value) as u64;
    let capacity = (scale.spacious * u64::from(case.records) * each).max(8 * MIN_CAPACITY);
    let builder = (arm.set)(LogStore::builder().capacity(capacity));
    let store = builder.open_private().map_err(failed)?;
    let mut value = vec![0x5A; case.value];
    let mut put = |id: u32| {
        stamp(&mut value, id);
        store.put(&key(id), &value).map_err(failed)
    };
    (0..case.records).try_for_each(&mut put)?;
    let look = |moment: Moment, ledger: &mut Ledger| {
        let stats = store.stats();
        let live = (stats.live_bytes + stats.index_bytes) as f64;
        let over = stats.pages.resident_bytes as f64 / live;
        ledger.add(arm.name, &resident(case, moment), Metric::Overhead, over);
    };
    let (mut draw, before) = (Draw::new(case, seed), store.stats().moved_bytes);
    let writes = u64::from(case.records) * u64::from(case.turnovers) / STEPS as u64;
    for step in 1..=STEPS {
        let begin = cpu()?;
        (0..writes).try_for_each(|_| put(draw.next()))?;
        let took = cpu()?.saturating_sub(begin);
        // The kernel counts now and then: a step may be too short for it.
        if !took.is_zero() {
            let each = took.as_nanos() as f64 / writes as f64;
            ledger.add(arm.name, &super::cpu(case), Metric::Cpu, each);
        }
        look(Moment::Overwritten(step), ledger);
    }
    let share = (store.stats().moved_bytes - before) as f64 / (STEPS as u64 * writes * each) as f64;
    ledger.add(arm.name, &moved(case), Metric::Rewritten, share);
    if !arm.rests || scale.curve {
        return Ok(());
    }
    // Idleness is what is measured.
    std::thread::sleep(scale.idle);
    look(RESTED, ledger);
    for id in (0..case.records).filter(|id| goes(*id, seed)) {
        store.remove(&key(id)).map_err(failed)?;
    }
    std::thread::sleep(scale.idle);
    look(THINNED, ledger);
    Ok(())
}

/// CPU time of all threads of this process that there are.
fn cpu() -> Result<Duration, BenchError> {
    cpu_of(std::process::id(), |_| true)
}
