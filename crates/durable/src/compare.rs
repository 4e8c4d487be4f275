//! Compares the files with the store: **a power loss now would leave exactly the records that the
//! store has now.**

use std::ops::ControlFlow;
use std::sync::Arc;

use mneme_collections::CollectionError;
use mneme_log::feed::Item;
use mneme_log::{Cursor, Evict, LogStore, Stored, WriteError, element_of};

use crate::DurableError;
use crate::checkpoint::{BaseSource, ElementScan};
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

/// Compares each record of `home` with that of `copy`, and then the numbers of records.
fn compare(home: &LogStore, copy: &LogStore, goes_on: &GoesOn<'_>) -> Result<u64, DurableError> {
    let differs = |what: String| Err(DurableError::Differs { what });
    for (database, root) in home.roots()?.into_iter().enumerate() {
        let of = copy.database(database)?;
        let mut cursor = Cursor::START;
        while root != 0 && cursor != Cursor::END {
            goes_on()?;
            let mut found: Result<Option<Vec<u8>>, DurableError> = Ok(None);
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
                        Ok(true) => Ok(None),
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
            cursor = next.unwrap_or(Cursor::END);
        }
    }
    let mut elements = ElementScan::default();
    loop {
        goes_on()?;
        let mut found: Result<Option<Vec<u8>>, DurableError> = Ok(None);
        let goes_on = elements.visit(home, |put| {
            if let (Ok(None), Item::Put { key, bytes, .. }) = (&found, put) {
                found = match has_element(copy, key, bytes) {
                    Ok(true) => Ok(None),
                    Ok(false) => Ok(Some(key.to_vec())),
                    Err(error) => Err(error.into()),
                };
            }
        })?;
        if let Some(key) = found? {
            let element = key.get(8..).unwrap_or_default().escape_ascii();
            return differs(format!(
                "they have another element {element} of a large value"
            ));
        }
        if !goes_on {
            break;
        }
    }
    let (here, there) = (home.records(), copy.records());
    match here == there {
        true => Ok(here),
        false => differs(format!("they have {there} records, and the store {here}")),
    }
}

/// Whether a collection of `store` has the element of this key, with this value.
fn has_element(store: &LogStore, key: &[u8], value: &[u8]) -> Result<bool, WriteError> {
    let Some((id, element)) = element_of(key) else {
        return Ok(false);
    };
    match mneme_collections::element_of_collection(store, id, element) {
        Ok(found) => Ok(found.is_some_and(|found| found == value)),
        Err(CollectionError::Store(error)) => Err(error),
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mneme_collections::HASH;
    use mneme_log::{Expiry, main_of};

    use super::*;

    fn store(elements: &[&[u8]]) -> LogStore {
        let store = LogStore::builder()
            .capacity(64 << 20)
            .open_private()
            .unwrap();
        for element in elements {
            mneme_collections::replay(&store, 1, element, Some((HASH, b"v"))).unwrap();
        }
        store
            .transaction(|t| {
                let mut of = t.database(0)?;
                of.put_kind(b"h", &main_of(1), HASH.large(), Expiry::Never)
            })
            .unwrap();
        store
    }

    /// Files that lack the removal of a field differ from the store.
    #[test]
    fn files_with_an_element_that_the_store_has_not_differ() {
        let (home, copy) = (store(&[b"a"]), store(&[b"a", b"b"]));
        assert!(compare(&home, &copy, &|| Ok(())).is_err());
    }
}
