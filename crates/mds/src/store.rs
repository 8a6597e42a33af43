//! The MDT's store: one redb table from keys to values in one file.
//!
//! Why redb: it reads like a B-tree (no compaction pauses), its commit is atomic, and with quick repair it reopens in
//! about a millisecond whatever happened (docs/decisions). It reaches its file through [`sheen_rt::File`], so the same code runs
//! on a disk of the simulator that forgets what was not synced.
//!
//! * A read uses a table that was opened at the last commit: no transaction is begun for a lookup.
//! * A commit that fails leaves redb unwilling to write; [`RedbStore::commit`] then closes and reopens it, which brings back the
//!   last durable state. The caller still holds the batch and commits it again: all it does is put and delete keys, so a batch
//!   that did reach the disk may be applied twice.

use std::fmt;
use std::io;
use std::path::Path;

use parking_lot::RwLock;
use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use sheen_namespace::{Batch, Store, StoreError};
use sheen_rt::{Disk, File, OpenOptions};

/// Memory for pages of the store, in bytes. The namespace keeps inodes and entries in a cache of its own in front.
pub const CACHE_BYTES: usize = 128 << 20;
/// The one table.
const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("mdt");

/// A redb database as a [`Store`].
pub struct RedbStore {
    file: File,
    cache_bytes: usize,
    /// `None`: closed, or a reopening after a failed commit failed too.
    open: RwLock<Option<Open>>,
}

struct Open {
    // Before the database, which is closed only when nothing reads it any more.
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    database: Database,
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedbStore")
    }
}

impl RedbStore {
    /// Opens the store at `path`, or makes an empty one. Blocks; repairs what a crash left.
    ///
    /// # Errors
    /// The file cannot be opened or is no store.
    pub fn open(disk: &Disk, path: &Path, cache_bytes: usize) -> Result<RedbStore, StoreError> {
        let file = disk.open(path, OpenOptions::CREATE).map_err(|e| failed(&e))?;
        let open = open(FileBackend(file.clone()), cache_bytes)?;
        Ok(RedbStore { file, cache_bytes, open: RwLock::new(Some(open)) })
    }

    /// Closes the file in order; every later call fails. Also done by dropping.
    pub fn close(&self) {
        self.open.write().take();
    }

    fn try_commit(&self, batch: &Batch) -> Result<(), StoreError> {
        let open = self.open.read();
        let database = &open.as_ref().ok_or_else(closed)?.database;
        write(database, |table| {
            batch.for_each(|key, value| {
                let old = match value {
                    Some(value) => table.insert(key, value),
                    None => table.remove(key),
                };
                old.map(drop).map_err(|e| failed(&e))
            })
        })
    }

    /// Lets reads see the last commit.
    fn refresh(&self) -> Result<(), StoreError> {
        let mut open = self.open.write();
        let open = open.as_mut().ok_or_else(closed)?;
        open.table = read_table(&open.database)?;
        Ok(())
    }

    fn reopen(&self) -> Result<(), StoreError> {
        let mut slot = self.open.write();
        slot.take();
        *slot = Some(open(FileBackend(self.file.clone()), self.cache_bytes)?);
        Ok(())
    }
}

impl Store for RedbStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let open = self.open.read();
        let table = &open.as_ref().ok_or_else(closed)?.table;
        let value = table.get(key).map_err(|e| failed(&e))?;
        Ok(value.map(|v| v.value().to_vec()))
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let open = self.open.read();
        let table = &open.as_ref().ok_or_else(closed)?.table;
        let range = table.range(from..to).map_err(|e| failed(&e))?;
        range
            .take(limit)
            .map(|record| record.map(|(k, v)| (k.value().to_vec(), v.value().to_vec())).map_err(|e| failed(&e)))
            .collect()
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        if self.open.read().is_none() {
            self.reopen()?;
        }
        let done = self.try_commit(batch).and_then(|()| self.refresh());
        if done.is_err() {
            // What happened to the batch is for the caller to learn; if this fails as well, the next commit tries again.
            let _ = self.reopen();
        }
        done
    }
}

fn open(backend: impl StorageBackend, cache_bytes: usize) -> Result<Open, StoreError> {
    let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(backend).map_err(|e| failed(&e))?;
    if let Err(redb::TableError::TableDoesNotExist(_)) = read_table_of(&database) {
        write(&database, |_| Ok(()))?;
    }
    let table = read_table(&database)?;
    Ok(Open { table, database })
}

/// One durable transaction; creates the table.
fn write(
    database: &Database,
    fill: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(|e| failed(&e))?;
    transaction.set_quick_repair(true);
    fill(&mut transaction.open_table(TABLE).map_err(|e| failed(&e))?)?;
    transaction.commit().map_err(|e| failed(&e))
}

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

fn read_table(database: &Database) -> Result<Table, StoreError> {
    read_table_of(database).map_err(|e| failed(&e))
}

fn read_table_of(database: &Database) -> Result<Table, redb::TableError> {
    let transaction = database.begin_read().map_err(|e| match e {
        redb::TransactionError::Storage(e) => redb::TableError::Storage(e),
        other => redb::TableError::Storage(redb::StorageError::Io(io::Error::other(other.to_string()))),
    })?;
    transaction.open_table(TABLE)
}

fn failed(error: &dyn fmt::Display) -> StoreError {
    StoreError::Failed(error.to_string())
}

fn closed() -> StoreError {
    StoreError::Failed("it is closed".to_string())
}

/// The file as redb wants it. It is locked by the directory's lock file, not here.
struct FileBackend(File);

impl fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileBackend")
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.read_at(offset, out)? {
            n if n == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data_blocking()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(offset, data)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use redb::ReadableTable;
    use sheen_rt::sim::{Sim, SimConfig, World};

    use super::*;

    /// A file whose host loses power at its n-th change.
    struct Dying {
        file: FileBackend,
        left: AtomicU64,
        world: World,
    }

    impl Dying {
        fn step(&self) {
            if self.left.fetch_sub(1, Relaxed) == 1 {
                self.world.crash_host(1);
            }
        }
    }

    impl fmt::Debug for Dying {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Dying")
        }
    }

    impl StorageBackend for Dying {
        fn len(&self) -> io::Result<u64> {
            self.file.len()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.file.read(offset, out)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            self.step();
            self.file.set_len(len)
        }

        fn sync_data(&self) -> io::Result<()> {
            self.step();
            self.file.sync_data()
        }

        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.step();
            self.file.write(offset, data)
        }
    }

    /// Keys that every round writes.
    const KEYS: u64 = 200;

    /// Round n gives all keys the value n and moves one more key along.
    fn round(database: &Database, n: u64) -> Result<(), StoreError> {
        write(database, |table| {
            for key in 0..KEYS {
                let value = n.to_le_bytes().repeat(10);
                table.insert(&key.to_be_bytes()[..], &value[..]).map_err(|e| failed(&e))?;
            }
            table.remove(&(KEYS + n - 1).to_be_bytes()[..]).map_err(|e| failed(&e))?;
            table.insert(&(KEYS + n).to_be_bytes()[..], &[][..]).map_err(|e| failed(&e))?;
            Ok(())
        })
    }

    /// Which round a store shows. It must show one whole.
    fn shown(open: &Open) -> u64 {
        let mut records = Vec::new();
        for record in open.table.iter().unwrap() {
            let (key, value) = record.unwrap();
            records.push((key.value().to_vec(), value.value().to_vec()));
        }
        let Some(((_, moved), all)) = records.split_last().map(|(last, all)| (last.clone(), all)) else { return 0 };
        assert!(moved.is_empty());
        let n = u64::from_le_bytes(all[0].1[..8].try_into().unwrap());
        assert_eq!(all.len() as u64, KEYS);
        assert!(all.iter().all(|(_, v)| *v == n.to_le_bytes().repeat(10)));
        assert_eq!(records[all.len()].0, (KEYS + n).to_be_bytes());
        n
    }

    #[test]
    fn a_power_failure_at_any_write_leaves_a_whole_commit() {
        let mut torn = 0;
        for seed in 0..150 {
            let sim = Sim::new(seed, SimConfig::default());
            let disk = sim.rt(1).disk();
            // Its name is durable, its content is redb's business.
            disk.write_atomic("/store", b"").unwrap();
            let file = |options| FileBackend(disk.open("/store", options).unwrap());
            drop(open(file(OpenOptions::READ_WRITE), 1 << 20).unwrap());
            let file = file(OpenOptions::READ_WRITE);
            let dying = Dying { file, left: AtomicU64::new(1 + seed * 7 % 400), world: (*sim).clone() };
            let mut acknowledged = 0;
            // The power may also fail while it opens.
            if let Ok(open) = open(dying, 1 << 20) {
                while acknowledged < 20 && round(&open.database, acknowledged + 1).is_ok() {
                    acknowledged += 1;
                }
            }
            torn += u64::from((1..20).contains(&acknowledged));
            let file = FileBackend(sim.rt(1).disk().open("/store", OpenOptions::READ_WRITE).unwrap());
            let open = open(file, 1 << 20).unwrap();
            let shown = shown(&open);
            assert!(shown == acknowledged || shown == acknowledged + 1, "seed {seed}: {shown} of {acknowledged}");
            round(&open.database, shown + 1).unwrap();
        }
        assert!(torn > 50, "the power failed within commits in only {torn} runs");
    }
}
