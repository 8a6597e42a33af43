//! The format of a store as a whole: which releases can use it. (Single records have a version of
//! their own, see [`crate::record`].)
//!
//! | format | meaning |
//! |---|---|
//! | 1 | the store has no format record; any MDT would hand out the sequences of MDT 0 |
//! | 2 | the store has a format record; an MDT hands out its own sequences ([`sheen_wire::seq`]) |
//! | 3 | inodes with a project have records of version 2 ([`crate::record`]); changelogs |
//! | 4 | the number of files of each user, group and project; limits ([`crate::quotas`]) |
//!
//! For MDT 0 all formats use the same sequences. A store of an earlier format is therefore read,
//! and the next commit makes it format 4. The files of each user, group and project are then
//! counted in a pass over all inodes.

use sheen_wire::seq::MdtIndex;

use crate::{
    Store, StoreError, key,
    record::{Super, encode},
    tables::{Tables, read},
};

/// Format that this release writes, and the latest that it reads.
pub const STORE_FORMAT: u32 = 4;
/// Format of a store without a format record.
const UNMARKED: u32 = 1;
/// The first format with the numbers of files of users, groups and projects.
const COUNTED: u32 = 4;

/// Returns the store's format. `None`: the store is empty, or of format 1. Must be called first,
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

/// Whether a store of this format has the numbers of files of users, groups and projects.
pub(crate) fn counts_files(format: Option<u32>) -> bool {
    format.unwrap_or(UNMARKED) >= COUNTED
}

/// Returns the MDT whose sequences are handed out. `index`: the configured MDT. `found`: the
/// store's superblock.
pub(crate) fn mdt(index: u32, found: Option<&Super>, format: Option<u32>) -> Result<MdtIndex, StoreError> {
    let wrong = |why: String| Err(StoreError::Incompatible(why));
    let Some(mdt) = MdtIndex::new(index) else {
        let max = MdtIndex::MAX;
        return wrong(format!("MDT index {index} is too large; use one from 0 to {max}"));
    };
    let is_marked = format.unwrap_or(UNMARKED) > UNMARKED;
    if !is_marked && index > 0 && found.is_some_and(|found| found.mdt_index == index) {
        return wrong(format!(
            "it has format {UNMARKED}, in which MDT {index} used the FIDs of MDT 0; copy the files with the release that \
             wrote it, then format MDT {index} again"
        ));
    }
    Ok(mdt)
}

/// Marks a store with the present format, unless it is marked already.
pub(crate) fn mark<S: Store>(tables: &mut Tables<S>, found: Option<u32>) -> Result<(), StoreError> {
    if found != Some(STORE_FORMAT) {
        tables.set_raw(key::FORMAT.to_vec(), Some(encode(&STORE_FORMAT, Vec::new())?));
    }
    Ok(())
}
