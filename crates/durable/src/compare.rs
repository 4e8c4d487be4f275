//! Compares the files with the store: **a power loss now would leave exactly the records that the
//! store has now.**

use std::ops::ControlFlow;
use std::sync::Arc;

use mneme_collections::CollectionError;
use mneme_log::{Cursor, Evict, LogStore, Stored, WriteError, collection_of};

use crate::DurableError;
use crate::checkpoint::{BaseSource, scan_elements};
use crate::disk::RebuildSource;
use crate::gate::GateState;
use crate::recover::{Files, RecoveryClock, load_tree};

/// Records that are visited in one step of a scan.
const VISITED: usize = 256;

/// Returns an error once the comparison is to stop.
type GoesOn<'g> = dyn Fn() -> Result<(), DurableError> + Sync + 'g;

/// Compares the files of `source` with its store. No checkpoint is written meanwhile, and
/// everything written so far is durable. Stops early when `goes_on` returns an error.
pub(crate) fn compare_files(
    source: &BaseSource,
    goes_on: &GoesOn<'_>,
) -> Result<u64, DurableError> {
    let home = &source.shared.home;
    source.shared.await_removed();
    // The switch is in this process' memory: in a segment it would outlive a process that died
    // here, and leave the store without eviction.
    home.rest_expiry(true);
    let compared = load_again(source, goes_on).and_then(|copy| compare(home, &copy, goes_on));
    home.rest_expiry(source.shared.state() != GateState::Open);
    compared
}

/// Loads the files into a second store.
fn load_again(source: &BaseSource, goes_on: &GoesOn<'_>) -> Result<LogStore, DurableError> {
    let home = &source.shared.home;
    // No record of the second store expires.
    let clock = Arc::new(RecoveryClock::new(Arc::clone(&source.options.clock)));
    let builder = LogStore::builder().capacity(home.capacity()).clock(clock);
    let copy = builder.maintainer(false).open_private()?;
    let listener = |_| match goes_on() {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let loaded = match &source.tree {
        Some(tree) => load_tree((tree, 0), &copy, Some(&listener), Evict::None),
        None => {
            let files = Box::new(Files::look(&*source.directory)?);
            RebuildSource::Files(files).load(
                &*source.directory,
                &copy,
                Some(&listener),
                Evict::None,
            )
        }
    };
    goes_on()?;
    let loaded = loaded?;
    match loaded.end == source.shared.durable() {
        true => Ok(copy),
        false => Err(DurableError::Differs {
            what: format!(
                "they end at position {}, and what is durable at {}",
                loaded.end,
                source.shared.durable()
            ),
        }),
    }
}

/// Compares each record of `home`, and the collection that it leads to, with that of `copy`, and
/// then the numbers of records.
fn compare(home: &LogStore, copy: &LogStore, goes_on: &GoesOn<'_>) -> Result<u64, DurableError> {
    let differs = |what: String| Err(DurableError::Differs { what });
    for (database, root) in home.roots()?.into_iter().enumerate() {
        let of = copy.database(database)?;
        let mut cursor = Cursor::START;
        while root != 0 && cursor != Cursor::END {
            goes_on()?;
            let mut found: Result<Option<Vec<u8>>, DurableError> = Ok(None);
            let mut large = Vec::new();
            let visit = |key: &[u8], stored: Stored<'_>| {
                let same = || -> Result<bool, DurableError> {
                    if of.kind(key)? != Some(stored.kind)
                        || of.expiry(key)?.unwrap_or_default() != stored.expiry
                    {
                        return Ok(false);
                    }
                    let value = of.get_kind(key, stored.kind)?;
                    let is_same =
                        |value: &[u8]| mneme_collections::is_same(stored.kind, value, stored.value);
                    Ok(value.is_some_and(|value| is_same(&value).unwrap_or(false)))
                };
                if let Ok(None) = found {
                    found = match same() {
                        Ok(true) => {
                            let id = collection_of(stored.value);
                            let id = id.filter(|_| stored.kind.is_large());
                            large.extend(id.map(|id| (id, key.to_vec())));
                            Ok(None)
                        }
                        Ok(false) => Ok(Some(key.to_vec())),
                        Err(error) => Err(error),
                    };
                }
            };
            let next = home.scan_root(root, cursor, VISITED, visit)?;
            if let Some(key) = found? {
                let key = String::from_utf8_lossy(&key).into_owned();
                return differs(format!(
                    "they have another record {key:?} of database {database}"
                ));
            }
            for (id, key) in large {
                if let Some(what) = differing(home, copy, id, goes_on)? {
                    let key = key.escape_ascii();
                    return differs(format!(
                        "they have {what} in the large value \"{key}\" of database {database}"
                    ));
                }
            }
            cursor = next.unwrap_or(Cursor::END);
        }
    }
    let (here, there) = (home.records(), copy.records());
    match here == there {
        true => Ok(here),
        false => differs(format!("they have {there} records, and the store {here}")),
    }
}

/// Describes how the collection of a record that is equal in both stores differs in `copy`; `None`:
/// it does not. Collections without a record are not compared: they are being freed in one store
/// and may already be gone from the other.
fn differing(
    home: &LogStore,
    copy: &LogStore,
    id: u64,
    goes_on: &GoesOn<'_>,
) -> Result<Option<String>, DurableError> {
    let count = |store: &LogStore| {
        let anchor = store.transaction(|t| t.anchor(id));
        anchor.map(|anchor| anchor.map_or(0, |anchor| anchor.count))
    };
    let (here, there) = (count(home)?, count(copy)?);
    if here != there {
        return Ok(Some(format!("{there} elements, and the store {here},")));
    }
    let mut at = 0;
    loop {
        goes_on()?;
        let mut found: Result<Option<Vec<u8>>, WriteError> = Ok(None);
        at = scan_elements(home, (id, at), |_, element, value| {
            if let Ok(None) = found {
                let has = has_element(copy, (id, element), value);
                found = has.map(|has| (!has).then(|| element.to_vec()));
            }
        })?;
        if let Some(element) = found? {
            return Ok(Some(format!("another element {}", element.escape_ascii())));
        }
        if at == 0 {
            return Ok(None);
        }
    }
}

/// Whether a collection of `store` has this element, with this value.
fn has_element(
    store: &LogStore,
    (id, element): (u64, &[u8]),
    value: &[u8],
) -> Result<bool, WriteError> {
    match mneme_collections::element_of_collection(store, id, element) {
        Ok(found) => Ok(found.is_some_and(|found| found == value)),
        Err(CollectionError::Store(error)) => Err(error),
        Err(_) => Ok(false),
    }
}
