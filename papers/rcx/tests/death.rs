//! A participant dies at every named point of an update of two items; the next update finds the
//! lanes free, and is notified of the death.
//!
//! Needs the feature `fault`. Liveness is scripted: a thread is abandoned at the point, then its
//! "process" is declared dead.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../crates/sync/tests/common/mod.rs"]
mod common;

use common::Pair;
use mneme_rcx::{Item, LaneSet, NodeLane, Rcx, TakeLanes};
use mneme_sync::{Participants, RobustLock};
use mneme_sys::fault::{self, Action, Outcome};
use mneme_sys::{NodeId, SyntheticTopology};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Every point of an update, and whether an item's lock is held there.
const POINTS: [(&str, bool); 4] = [
    ("rcx.update.item", true),
    ("rcx.update.items_released", false),
    ("rcx.update.lane", false),
    ("rcx.update.locked", true),
];

/// Two items that are updated together, and their lanes.
struct Items {
    locks: [RobustLock; 2],
    lanes: Arc<[NodeLane]>,
}

impl Items {
    fn rcx(&self, participants: &Participants) -> Rcx<Arc<[NodeLane]>> {
        let lanes = LaneSet::over(self.lanes.clone(), 2).unwrap();
        Rcx::with_lanes(participants, Arc::new(SyntheticTopology::new(2, 1)), lanes)
            .take_lanes(TakeLanes::Always)
            .lane_timeout(Duration::from_secs(60))
    }

    fn both(&self) -> [Item<'_>; 2] {
        [Item::new(1, &self.locks[0]), Item::new(2, &self.locks[1])]
    }
}

#[test]
fn an_update_after_a_death_at_any_point_leads_and_reports_it() {
    for (point, holds) in POINTS {
        let Pair { a, b, script } = Pair::new();
        let items = Arc::new(Items {
            locks: Default::default(),
            lanes: (0..4).map(|_| NodeLane::default()).collect(),
        });
        let dying = Arc::clone(&items);
        let outcome = fault::run(point, Action::Abandon, 1, move || {
            drop(dying.rcx(&b).lock(dying.both()).unwrap());
        });
        assert_eq!(outcome, Outcome::Abandoned, "nobody died at {point}");
        script.kill(2);
        let rcx = items.rcx(&a);
        let next = rcx.lock(items.both()).expect(point);
        assert_eq!(next.owner_died(), holds, "{point}");
        let guard = next.into_inner();
        assert_eq!(
            guard.led_on(),
            Some(NodeId(0)),
            "{point}: a lane of the dead"
        );
        guard.repaired();
        drop(guard);
        assert!(!rcx.lock(items.both()).expect(point).owner_died());
    }
}

/// Every name in the source is one at which a test kills here, or one of range maps. No range map
/// outlives its process: threads stop and panic at those, in `range_map`.
#[test]
fn a_participant_dies_at_every_name() {
    let named = fault::named_in(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let of_updates = POINTS.iter().map(|(point, _)| (*point).to_owned());
    let mut known: BTreeSet<String> = of_updates.collect();
    let tests = include_str!("range_map.rs");
    known.extend(
        named
            .iter()
            .filter(|name| name.starts_with("rcx.range.") && tests.contains(&format!("\"{name}\"")))
            .cloned(),
    );
    assert_eq!(named, known);
}
