//! Layout changes in progress (`ops::swap_layouts`, `ops::take_layout`), and the object names that
//! they have reserved.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sheen_wire::{self as wire, Fid};

use crate::{
    Store, StoreError, key,
    record::encode,
    tables::{Tables, read},
};

/// Maximum number of exchanges remembered: at most 2.5 KiB, written with each exchange. A request
/// in progress when the MDT stopped is resent within seconds.
pub(crate) const DONE_MAX: usize = 256;

/// Exchanges in progress, and the last completed ones.
#[derive(Debug, Default)]
pub(crate) struct Swaps {
    pub(crate) begun: BTreeMap<[Fid; 2], BegunSwap>,
    /// Numbers of the completed exchanges, the latest last.
    pub(crate) done: VecDeque<u64>,
}

/// An exchange in progress.
#[derive(Clone, Debug)]
pub(crate) struct BegunSwap {
    /// The two layouts before the exchange.
    pub(crate) stored: [Bytes; 2],
    /// The two layouts after the exchange.
    pub(crate) swapped: [Bytes; 2],
    /// Numbers in the unlink log of the entries with the new names.
    pub(crate) logged: [u64; 2],
    /// The new names of the objects on the MDT.
    pub(crate) on_mdt: Vec<Fid>,
}

/// An object that will get another name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Renamed {
    /// Index of its OST, or `MDT_OST`.
    pub ost: u32,
    /// Its present name.
    pub old: Fid,
    /// Its new name, which was never used.
    pub new: Fid,
}

impl Swaps {
    /// Reads the completed exchanges from the store.
    pub(crate) fn open<S: Store>(store: &S) -> Result<Swaps, StoreError> {
        let done: Vec<u64> = read(store, key::SWAPS)?.unwrap_or_default();
        Ok(Swaps { done: done.into(), ..Swaps::default() })
    }

    /// Whether an entry of the unlink log has the new names of an exchange in progress.
    pub(crate) fn has(&self, seqno: u64) -> bool {
        self.begun.values().any(|begun| begun.logged.contains(&seqno))
    }

    /// Whether an object on the MDT has a new name of an exchange in progress.
    pub(crate) fn has_object(&self, object: Fid) -> bool {
        self.begun.values().any(|begun| begun.on_mdt.contains(&object))
    }

    /// Records a completed exchange, in the same batch as its changes.
    pub(crate) fn note<S: Store>(&mut self, tables: &mut Tables<S>, nonce: u64) -> wire::Result<()> {
        let mut done: Vec<u64> = self.done.iter().copied().chain([nonce]).collect();
        done.drain(..done.len().saturating_sub(DONE_MAX));
        let record = encode(&done, Vec::new());
        let record = tables.fail(record)?;
        tables.put_raw(key::SWAPS.to_vec(), Some(record));
        self.done = done.into();
        Ok(())
    }
}

/// Operations in progress whose copy has an object on the MDT, by file.
pub(crate) type Takes = BTreeMap<Fid, BegunTake>;

#[derive(Clone, Debug)]
pub(crate) struct BegunTake {
    /// Encoded layout of the copy, before the operation.
    pub(crate) stored: Bytes,
    /// Version in the new name of the object on the MDT.
    pub(crate) version: u32,
    /// Number in the unlink log of the entry with the new name.
    pub(crate) logged: u64,
    /// The new name.
    pub(crate) object: Option<Fid>,
}

/// Set in versions that are drawn, not set in those derived from generations.
const DRAWN: u32 = 1 << 31;
/// Set in drawn versions of new files without a name.
const UNNAMED: u32 = 1 << 30;

/// Returns a version for an object on the MDT that its file has not used. It is derived from the
/// number that the object's name gets next in the unlink log, which differs each time. `logged`:
/// the last number used.
pub(crate) fn drawn_version(logged: u64) -> u32 {
    DRAWN | (logged.wrapping_add(1) as u32 & (UNNAMED - 1))
}

/// Returns a version for the object on the MDT of a new file without a name. It differs from those
/// of earlier files with the same FID, and from [`drawn_version`]. `transno`: that of the creation.
pub(crate) fn unnamed_version(transno: u64) -> u32 {
    DRAWN | UNNAMED | (transno as u32 & (UNNAMED - 1))
}
