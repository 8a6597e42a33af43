//! Checksums of objects at rest ([`StoredSums`]): damage on the disk becomes an error in place of
//! wrong bytes.
//!
//! Invariants:
//! * before bytes of a block change, its stored checksum is removed. Checksums are stored only if
//!   no request changed the object since its bytes were read
//!   ([`super::files::Object::store_sums`]);
//! * a read of a damaged block fails, also of a part of it. Of large blocks that were not compared
//!   yet, only reads of whole blocks notice the damage;
//! * a read that finds a difference fails only if the checksum is of the present epoch, and if it
//!   is still stored after the read. So a change in progress is never taken for damage, and neither
//!   is what a power failure left behind.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_objects::{
    StoredSums,
    stored_sums::{Crc, NAME, crc_of},
};
use sheen_rt::File;
use sheen_wire::{Bulk, Fid, ost::DamagedBlock};
use tracing::warn;

/// Bytes that are read at a time to compute a checksum.
const PIECE_BYTES: u64 = 1 << 20;
/// Largest block that is read as a whole to check a part of it: about what the host reads ahead.
const EXTRA_BYTES_MAX: u64 = 128 << 10;

/// A block that was not compared yet, or that is intact, or damaged.
const UNCHECKED: u8 = 0;
const INTACT: u8 = 1;
const DAMAGED: u8 = 2;

/// The checksums that are stored with an object.
pub struct AtRest {
    object: Fid,
    file: File,
    state: Mutex<State>,
}

/// The findings on them.
enum State {
    /// The attribute was not read yet.
    Unread,
    /// The object has none.
    Without,
    /// The object has some.
    With(Arc<Known>),
}

/// The stored checksums of an object.
#[derive(Debug)]
pub struct Known {
    /// The checksums.
    pub stored: StoredSums,
    /// For each block what was found since the object was opened.
    found: Vec<AtomicU8>,
}

impl Known {
    fn new(stored: StoredSums, found: u8) -> Known {
        let found = (0..stored.block_count()).map(|_| AtomicU8::new(found)).collect();
        Known { stored, found }
    }

    /// Whether a block was found intact when it was last compared since the object was opened.
    pub fn is_intact(&self, block: usize) -> bool {
        self.found.get(block).is_some_and(|found| found.load(Relaxed) == INTACT)
    }

    /// Returns the blocks that a read of `[offset, offset + len)` has to compare.
    fn to_compare(&self, offset: u64, len: u64) -> impl Iterator<Item = usize> {
        let (some, whole) = (self.stored.blocks_of(offset, len), self.stored.within(offset, len));
        let is_small = self.stored.block_bytes() <= EXTRA_BYTES_MAX;
        some.filter(move |block| {
            self.stored.get(*block).is_some()
                && match self.found[*block].load(Relaxed) {
                    UNCHECKED => is_small || whole.contains(block),
                    found => found == DAMAGED,
                }
        })
    }
}

impl AtRest {
    /// Returns the state of an object that was just opened. `is_new`: it has no bytes.
    pub fn opened(object: Fid, file: &File, is_new: bool) -> AtRest {
        let state = Mutex::new(if is_new { State::Without } else { State::Unread });
        AtRest { object, file: file.clone(), state }
    }

    /// Removes the checksums of the blocks of which bytes are going to change.
    pub fn forget(&self, offset: u64, len: u64) {
        let mut state = self.state.lock();
        let Some(known) = self.load(&mut state) else { return };
        let mut stored = known.stored.clone();
        if !stored.forget(offset, len) {
            return;
        }
        if self.put(&mut state, stored, Some(&known)).is_err() {
            // A full disk. Removing all of them takes no space.
            *state = State::Without;
            self.remove_all();
        }
    }

    /// Removes all stored checksums, for a change whose begin was not announced.
    pub fn forget_all(&self) {
        self.remove_all();
        *self.state.lock() = State::Unread;
    }

    fn remove_all(&self) {
        if let Err(e) = self.file.remove_attr(NAME) {
            // Once the object has been closed and opened again, reads of changed blocks will fail.
            warn!("{}: cannot remove the stored checksums of bytes that change: {e}", self.object);
        }
    }

    /// Returns the stored checksums, if there are any.
    pub fn stored(&self) -> Option<Arc<Known>> {
        self.load(&mut self.state.lock())
    }

    fn load(&self, state: &mut State) -> Option<Arc<Known>> {
        if let State::Unread = state {
            *state = match self.read_stored() {
                Some(stored) => State::With(Arc::new(Known::new(stored, UNCHECKED))),
                None => State::Without,
            };
        }
        if let State::With(known) = state { Some(known.clone()) } else { None }
    }

    fn read_stored(&self) -> Option<StoredSums> {
        match self.file.attr(NAME) {
            Ok(found) => found.and_then(|bytes| StoredSums::decode(&bytes)),
            Err(e) => {
                warn!("{}: cannot read the stored checksums: {e}", self.object);
                None
            }
        }
    }

    /// Stores checksums, or removes the attribute if there are none. `before`: the former ones.
    /// For blocks that keep theirs, the finding remains; the bytes of others were just read.
    fn put(&self, state: &mut State, stored: StoredSums, before: Option<&Known>) -> io::Result<()> {
        if stored.is_empty() {
            self.file.remove_attr(NAME)?;
            *state = State::Without;
            return Ok(());
        }
        self.file.set_attr(NAME, &stored.encode())?;
        let known = Known::new(stored, INTACT);
        if let Some(before) = before {
            let unchanged = (0..known.found.len()).filter(|block| known.stored.keeps(&before.stored, *block));
            unchanged.for_each(|block| known.found[block].store(before.found[block].load(Relaxed), Relaxed));
        }
        *state = State::With(Arc::new(known));
        Ok(())
    }

    /// Stores checksums.
    ///
    /// # Errors
    /// EOPNOTSUPP: the local file system supports no attributes. Other errors of it.
    pub fn store(&self, stored: StoredSums) -> io::Result<()> {
        let mut state = self.state.lock();
        let before = self.load(&mut state);
        self.put(&mut state, stored, before.as_deref())
    }

    /// Returns the stored checksums if a read of `[offset, offset + len)` has to be compared with
    /// them, and they are of this epoch.
    pub fn to_compare(&self, epoch: u64, offset: u64, len: u64) -> Option<Arc<Known>> {
        let known = self.stored()?;
        let compare = known.stored.epoch == epoch && known.to_compare(offset, len).next().is_some();
        compare.then_some(known)
    }

    /// Returns the stored checksums and the number of a block that was found damaged. `None`: it
    /// was changed since, also through an object that had left the cache, or the epoch is another
    /// one.
    pub fn find(&self, epoch: u64, damaged: &DamagedBlock) -> Option<(Arc<Known>, usize)> {
        let known = self.stored().filter(|known| known.stored.epoch == epoch)?;
        let block = known.stored.find(damaged)?;
        let is_stored = self.read_stored().is_some_and(|stored| stored.keeps(&known.stored, block));
        is_stored.then_some((known, block))
    }

    /// Compares bytes with the checksums from [`AtRest::to_compare`]: those of a read of
    /// `[offset, offset + len)`. They are fewer if the file ends before.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn compare(&self, known: &Known, offset: u64, len: u64, bytes: &Bulk) -> io::Result<Option<DamagedBlock>> {
        let end = offset + bytes.len() as u64;
        for block in known.to_compare(offset, len) {
            let (start, len) = known.stored.place(block);
            let crc = if offset <= start && start + len <= end {
                let piece = bytes.slice((start - offset) as usize, len as usize);
                crc_of(piece.segments().iter().map(|segment| &segment[..]))
            } else {
                self.crc(start, len)?
            };
            if let Some(damage) = self.judge(known, block, crc) {
                return Ok(Some(damage));
            }
        }
        Ok(None)
    }

    /// Compares the checksum of a block's bytes with the stored one, and notes the finding. A block
    /// that has lost its checksum meanwhile is being changed.
    fn judge(&self, known: &Known, block: usize, crc: u32) -> Option<DamagedBlock> {
        let is_intact = known.stored.get(block) == Some(crc);
        if !is_intact && !self.read_stored().is_some_and(|stored| stored.keeps(&known.stored, block)) {
            return None;
        }
        known.found[block].store(if is_intact { INTACT } else { DAMAGED }, Relaxed);
        (!is_intact).then(|| known.stored.damaged(block))
    }

    /// Returns the blocks of a range of blocks that differ from the stored checksums.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn damaged_blocks(&self, known: &Known, blocks: Range<usize>) -> io::Result<Vec<DamagedBlock>> {
        let mut damaged = Vec::new();
        for block in blocks {
            if known.stored.get(block).is_some() {
                let (offset, len) = known.stored.place(block);
                damaged.extend(self.judge(known, block, self.crc(offset, len)?));
            }
        }
        Ok(damaged)
    }

    /// Returns the checksum of bytes of the file, up to its end.
    ///
    /// # Errors
    /// Errors of the local file system.
    pub fn crc(&self, offset: u64, len: u64) -> io::Result<u32> {
        let mut buffer = vec![0; len.min(PIECE_BYTES) as usize];
        let mut digest = Crc::default();
        let mut done = 0;
        while done < len {
            let want = (len - done).min(PIECE_BYTES) as usize;
            let got = self.file.read_at(offset + done, &mut buffer[..want])?;
            digest.update(&buffer[..got]);
            if got < want {
                break;
            }
            done += got as u64;
        }
        Ok(digest.finish())
    }
}
