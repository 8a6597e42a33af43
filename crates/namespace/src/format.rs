//! The format of a store as a whole: which releases can go on with it. (The form of single records
//! has a version of its own, see [`crate::record`].)
//!
//! | format | what it means |
//! |---|---|
//! | 1 | no record says so; any MDT would give out the sequences of MDT 0 |
//! | 2 | a record says so; an MDT gives out its own sequences ([`sheen_wire::seq`]) |
//!
//! A store of MDT 0 has the same numbers in both. So one of format 1 is read, and the next commit
//! makes it format 2.

use sheen_wire::seq::MdtIndex;

use crate::{
    Store, StoreError, key,
    record::{Super, encode},
    tables::{Tables, read},
};

/// The format that this release writes, and the latest that it reads.
pub const STORE_FORMAT: u32 = 2;
/// A store without a record of its format.
const UNMARKED: u32 = 1;

/// What a store says of its format; `None`: it is empty, or of format 1. To be called first,
/// because a later format may have other records.
pub(crate) fn check(store: &impl Store) -> Result<Option<u32>, StoreError> {
    let format: Option<u32> = read(store, key::FORMAT)?;
    match format {
        Some(later) if later > STORE_FORMAT => Err(StoreError::Incompatible(format!(
            "it has format {later}, this release reads up to {STORE_FORMAT}; use the release that wrote it, or a \
             later one"
        ))),
        _ => Ok(format),
    }
}

/// The MDT whose sequences are given out. `index` is the configured one, `found` what the store
/// has.
pub(crate) fn mdt(index: u32, found: Option<&Super>, format: Option<u32>) -> Result<MdtIndex, StoreError> {
    let wrong = |why: String| Err(StoreError::Incompatible(why));
    let Some(mdt) = MdtIndex::new(index) else {
        let max = MdtIndex::MAX;
        return wrong(format!("MDT index {index} is too large; use one from 0 to {max}"));
    };
    let is_marked = format.unwrap_or(UNMARKED) > UNMARKED;
    if !is_marked && index > 0 && found.is_some_and(|found| found.mdt_index == index) {
        return wrong(format!(
            "it has format {UNMARKED}, which named files and objects of MDT {index} as MDT 0 does; copy the files with \
             the release that wrote it, and format MDT {index} anew"
        ));
    }
    Ok(mdt)
}

/// Marks a store with the present format, if it is not.
pub(crate) fn mark<S: Store>(tables: &mut Tables<S>, found: Option<u32>) -> Result<(), StoreError> {
    if found != Some(STORE_FORMAT) {
        tables.set_raw(key::FORMAT.to_vec(), Some(encode(&STORE_FORMAT, Vec::new())?));
    }
    Ok(())
}
