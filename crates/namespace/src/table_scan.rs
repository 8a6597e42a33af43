//! Reads of a whole table of the store, without the layers over it.

use crate::{Store, StoreError, key};

/// Records read at once.
const SCAN_RECORDS: usize = 1024;

/// Calls `f` with each record of a table of the store.
pub(crate) fn for_each_in(
    store: &impl Store,
    table: u8,
    mut f: impl FnMut(&[u8], &[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let (from, to) = key::table(table);
    let mut from = from.to_vec();
    loop {
        let records = store.range(&from, &to, SCAN_RECORDS)?;
        for (key, value) in &records {
            f(key, value)?;
        }
        match records.into_iter().nth(SCAN_RECORDS - 1) {
            Some((last, _)) => {
                from = last;
                from.push(0);
            }
            None => return Ok(()),
        }
    }
}
