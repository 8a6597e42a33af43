//! Scrub: stores checksums of an object that has been at rest for a while, and compares its bytes
//! with those that are stored.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use sheen_objects::{StoredSums, sums::Claim};
use sheen_rt::Rt;
use sheen_wire::{Fid, Result};
use tracing::warn;

use super::{Store, files::Object};

/// Bytes that are read at a time, or one block if it is larger.
const STEP_BYTES: u64 = 4 << 20;
/// Size from which a sparse object gets no checksums: the zeros of terabytes would take hours.
const SPARSE_BYTES_MIN: u64 = 1 << 30;
/// Shortest pause: shorter ones are put together.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// The speed of a scrub, and whether it should stop.
pub struct Pace {
    rt: Rt,
    /// MiB per second; 0: as fast as possible.
    pub mib_per_second: AtomicU64,
    /// Whether the scrub should stop.
    pub stop: AtomicBool,
    owed: Mutex<Duration>,
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pace({} MiB/s)", self.mib_per_second.load(Relaxed))
    }
}

impl Pace {
    /// Returns a pace of some MiB per second.
    pub fn new(rt: &Rt, mib_per_second: u64) -> Pace {
        let (mib_per_second, stop) = (mib_per_second.into(), AtomicBool::new(false));
        Pace { rt: rt.clone(), mib_per_second, stop, owed: Mutex::default() }
    }

    /// Pauses after this many bytes were read.
    pub async fn after(&self, bytes: u64) {
        let speed = self.mib_per_second.load(Relaxed) << 20;
        let pause = {
            let mut owed = self.owed.lock();
            let nanos = (u128::from(bytes) * 1_000_000_000).checked_div(speed.into()).unwrap_or(0);
            *owed += Duration::from_nanos(nanos.try_into().unwrap_or(u64::MAX));
            if *owed < PAUSE_MIN {
                return;
            }
            std::mem::take(&mut *owed)
        };
        self.rt.sleep(pause).await;
    }
}

/// Result of the scrub of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Whether all blocks have checksums now.
    pub complete: bool,
    /// Whether checksums were stored.
    pub stored: bool,
    /// Number of blocks that differ from their checksum.
    pub damaged: u64,
    /// Number of blocks that differ from a checksum of before a power failure. They can have newer
    /// bytes.
    pub unclear: u64,
}

/// A claim on all of an object, which ends when it is dropped.
struct Watch<'a> {
    object: &'a Object,
    claim: Option<Claim>,
}

impl Watch<'_> {
    fn new(object: &Object) -> Watch<'_> {
        let claim = Some(object.sums().begin(0, u64::MAX, false));
        Watch { object, claim }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.object.sums().end(claim, []);
        }
    }
}

impl Store {
    /// Scrubs an object. `compare`: compares all blocks that have checksums. Blocks without a
    /// checksum get one if the object was not changed for `quiet`; `None`: they get none.
    ///
    /// # Errors
    /// EOPNOTSUPP: the local file system supports no extended attributes. Other errors of it.
    pub async fn scrub(&self, object: Fid, compare: bool, quiet: Option<Duration>, pace: &Pace) -> Result<Scrubbed> {
        let mut done = Scrubbed::default();
        if self.is_moved(object) {
            // It is scrubbed, and its space is counted, under its other name.
            done.complete = true;
            return Ok(done);
        }
        let Some(object) = self.files.existing_to_change(object, Fid::ZERO)? else { return Ok(done) };
        self.files.durable().exists(object.fid());
        if compare {
            self.compare_all(&object, &mut done, pace).await?;
        }
        object.save_time();
        let found = object.file.metadata()?;
        let age = self.rt.wall().sec.saturating_sub(found.mtime.sec);
        let is_sparse = found.len >= SPARSE_BYTES_MIN && found.blocks512.saturating_mul(512) < found.len / 2;
        if found.len == 0 || is_sparse {
            done.complete = true;
            return Ok(done);
        }
        if quiet.is_none_or(|quiet| age < quiet.as_secs() as i64) || pace.stop.load(Relaxed) {
            return Ok(done);
        }
        self.complete(&object, &mut done, pace).await?;
        Ok(done)
    }

    /// Compares the blocks that have a checksum of this epoch.
    async fn compare_all(&self, object: &Arc<Object>, done: &mut Scrubbed, pace: &Pace) -> Result<()> {
        let Some(known) = object.at_rest.stored().filter(|known| known.stored.epoch == self.epoch()) else {
            return Ok(());
        };
        for blocks in steps(&known.stored, 0..known.stored.block_count()) {
            if pace.stop.load(Relaxed) {
                return Ok(());
            }
            let bytes = blocks.clone().map(|block| known.stored.place(block).1).sum();
            let (reader, sums) = (object.clone(), known.clone());
            let damaged = self.rt.run_blocking(move || reader.at_rest.damaged_blocks(&sums, blocks)).await?;
            done.bytes += bytes;
            done.damaged += damaged.len() as u64;
            damaged.into_iter().for_each(|damage| self.note_damage(object.fid(), damage));
            pace.after(bytes).await;
        }
        Ok(())
    }

    /// Stores the missing checksums of an object.
    async fn complete(&self, object: &Arc<Object>, done: &mut Scrubbed, pace: &Pace) -> Result<()> {
        let watch = Watch::new(object);
        // From here on, a change of the length is a change during the watch.
        let len = object.file.len()?;
        let before = object.at_rest.stored();
        let current = before.as_ref().filter(|known| known.stored.epoch == self.epoch());
        let mut stored = match current {
            // Truncated by something else than the OST: it remains damaged.
            Some(known) if known.stored.known_end() > len => return Ok(()),
            Some(known) => known.stored.resized(len),
            None => StoredSums::new(self.epoch(), len),
        };
        if stored.is_complete() && current.is_some_and(|known| known.stored.object_len() == len) {
            done.complete = true;
            return Ok(());
        }
        let missing: Vec<usize> = (0..stored.block_count()).filter(|block| stored.get(*block).is_none()).collect();
        for blocks in missing.chunk_by(|one, next| one + 1 == *next).map(|run| run[0]..run[0] + run.len()) {
            for blocks in steps(&stored, blocks) {
                if pace.stop.load(Relaxed) {
                    return Ok(());
                }
                let places: Vec<_> = blocks.clone().map(|block| stored.place(block)).collect();
                let bytes = places.iter().map(|(_, len)| len).sum();
                let reader = object.clone();
                let sums = self.rt.run_blocking(move || {
                    places
                        .into_iter()
                        .map(|(offset, len)| reader.at_rest.crc(offset, len))
                        .collect::<std::io::Result<Vec<_>>>()
                });
                blocks.zip(sums.await?).for_each(|(block, sum)| stored.set(block, sum));
                done.bytes += bytes;
                pace.after(bytes).await;
            }
        }
        if let (Some(before), None) = (&before, current) {
            done.unclear = differing(&before.stored, &stored);
        }
        if let Some(claim) = &watch.claim {
            done.stored = object.store_sums(claim, stored)?;
            self.files.recount(object); // the sums may take a block
            done.complete = done.stored;
        }
        if done.stored && done.unclear > 0 {
            warn!(
                "{}: object {}: {} blocks differ from their checksums of before a power failure: they have newer \
                 bytes, or are damaged",
                self.home.dir().display(),
                object.fid(),
                done.unclear
            );
        }
        Ok(())
    }
}

/// Returns the number of blocks of the same place whose checksums differ.
fn differing(before: &StoredSums, after: &StoredSums) -> u64 {
    let blocks = 0..before.block_count().min(after.block_count());
    let differ = |block: usize| {
        before.place(block) == after.place(block)
            && before.get(block).is_some_and(|sum| after.get(block).is_some_and(|now| now != sum))
    };
    blocks.filter(|block| differ(*block)).count() as u64
}

/// Divides blocks into steps of at most [`STEP_BYTES`], or of one block.
fn steps(stored: &StoredSums, blocks: Range<usize>) -> Vec<Range<usize>> {
    let each = (STEP_BYTES / stored.block_bytes()).max(1) as usize;
    let end = blocks.end;
    blocks.step_by(each).map(|first| first..end.min(first + each)).collect()
}
