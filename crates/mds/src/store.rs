//! The MDT's store: one redb table from keys to values in one file.
//!
//! Why redb: it reads like a B-tree (no compaction pauses), and its commit is atomic. With quick
//! repair it reopens in about a millisecond after any crash (docs/decisions). It accesses its file
//! through [`sheen_rt::File`], so the same code runs on a disk of the simulator that loses unsynced
//! writes.
//!
//! * A read uses a table that was opened at the last commit: a lookup begins no transaction.
//! * After a failed commit redb refuses to write. [`RedbStore::commit`] then closes and reopens the
//!   database, which restores the last durable state. The caller still holds the batch and commits
//!   it again. A batch only puts and deletes keys. So it may be applied twice if the first attempt
//!   did reach the disk.
//! * Damage (module `damage`) ends all writes to the file until the store is opened again. Reads of
//!   undamaged pages continue.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::RwLock;
use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};
use sheen_namespace::{Batch, DamagedStore, Records, Store, StoreError};
use sheen_rt::{Disk, File, OpenOptions};

use crate::damage::Damage;

/// Memory for pages of the store, in bytes. In front of the store the namespace has a cache of its
/// own for inodes and entries.
pub const CACHE_BYTES: usize = 128 << 20;
/// Length of the magic with which a store's file begins. redb writes it last when it creates a
/// file.
const MAGIC_BYTES: usize = 9;
/// The only table.
const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("mdt");

/// A redb database as a [`Store`].
pub struct RedbStore {
    file: File,
    cache_bytes: usize,
    damage: Arc<Damage>,
    /// `None`: the store is closed, or could not be reopened after a failed commit.
    open: RwLock<Option<Open>>,
    /// Counts how often the file was closed, or the content moved within it.
    opened: Arc<AtomicU64>,
}

struct Open {
    // Before the database, which is closed only when no table reads it any more.
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    database: Database,
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedbStore")
    }
}

impl RedbStore {
    /// Opens the store at `path`, or creates an empty one. Blocks; repairs what a crash left.
    ///
    /// # Errors
    /// The file cannot be opened, is damaged, or is not a store.
    pub fn open(disk: &Disk, path: &Path, cache_bytes: usize) -> Result<RedbStore, StoreError> {
        let file = disk.open(path, OpenOptions::CREATE).map_err(failed)?;
        let damage = Arc::new(Damage::default());
        let open = damage.guard(|| open(FileBackend::new(&file, &damage), cache_bytes))?;
        Ok(RedbStore { file, cache_bytes, damage, open: RwLock::new(Some(open)), opened: Arc::default() })
    }

    /// Closes the file; every later call fails. Dropping the store closes it as well.
    ///
    /// # Errors
    /// The file was found to be damaged when it was closed.
    pub fn close(&self) -> Result<(), StoreError> {
        self.opened.fetch_add(1, SeqCst);
        let open = self.open.write().take();
        if self.damage.is_found() {
            // Not closed: redb would read the damaged file for the close, and write to it.
            std::mem::forget(open);
            return Ok(());
        }
        self.damage.guard(|| {
            drop(open);
            Ok(())
        })
    }

    /// Moves the content to the start of the file and cuts off the rest, which removed records have
    /// left unused. Takes as long as copying the file. Blocks.
    ///
    /// # Errors
    /// The disk is full or cannot be written: the content stays as it is. The file is damaged.
    pub(crate) fn compact(&self) -> Result<(), StoreError> {
        self.opened.fetch_add(1, SeqCst);
        let mut slot = self.open.write();
        let Some(Open { table, mut database }) = slot.take() else { return Err(closed()) };
        drop(table);
        let done = self.damage.guard(|| database.compact().map(drop).map_err(failed));
        // Closed before it is opened again.
        drop(database);
        drop(slot);
        self.reopen()?;
        done
    }

    /// Ends all writes to the file, because a record in it is damaged.
    pub(crate) fn freeze(&self, why: &StoreError) {
        if !self.damage.is_found() {
            self.damage.found(why.to_string());
        }
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
                old.map(drop).map_err(failed)
            })
        })
    }

    /// Makes the last commit visible to reads.
    fn refresh(&self) -> Result<(), StoreError> {
        let mut open = self.open.write();
        let open = open.as_mut().ok_or_else(closed)?;
        open.table = read_table(&open.database)?;
        Ok(())
    }

    /// Closes and opens the file again.
    ///
    /// # Errors
    /// The file is known to be damaged: the store stays as it is. The file cannot be opened, or is
    /// found to be damaged: the store is closed.
    fn reopen(&self) -> Result<(), StoreError> {
        self.opened.fetch_add(1, SeqCst);
        let mut slot = self.open.write();
        self.damage.check()?;
        self.damage.guard(|| {
            slot.take();
            *slot = Some(open(FileBackend::new(&self.file, &self.damage), self.cache_bytes)?);
            Ok(())
        })
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        // No caller is left to report damage to; the next start finds it.
        let _ = self.close();
    }
}

impl Store for RedbStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let open = self.open.read();
        let table = &open.as_ref().ok_or_else(closed)?.table;
        get(table, &self.damage, key)
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError> {
        let open = self.open.read();
        range(&open.as_ref().ok_or_else(closed)?.table, &self.damage, (from, to), limit, Order::Up)
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.damage.check()?;
        if self.open.read().is_none() {
            self.reopen()?;
        }
        let done = self.damage.guard(|| self.try_commit(batch).and_then(|()| self.refresh()));
        if done.is_err() {
            // The caller has to learn the result of the commit. If the reopening fails as well, the
            // next commit tries again.
            let _ = self.reopen();
        }
        done
    }
}

impl DamagedStore for RedbStore {
    fn range_back(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError> {
        let open = self.open.read();
        let table = &open.as_ref().ok_or_else(closed)?.table;
        range(table, &self.damage, (from, to), limit, Order::Down)
    }
}

/// The state of the last commit before it was made. Later commits do not change it, and the file
/// grows by what they change. Read-only.
///
/// Invariants:
/// * When the store was closed or opened again, the snapshot returns errors: pages that it has may
///   be used for something else by then.
/// * Damage that it meets does not end the writes to the store. The MDT finds that damage itself,
///   if it exists.
pub struct Snapshot {
    table: Table,
    damage: Damage,
    opened: Arc<AtomicU64>,
    /// Value of `opened` when it was made.
    at: u64,
    stop: Arc<AtomicBool>,
}

impl RedbStore {
    /// Makes a snapshot. Setting `stop` makes all later reads fail.
    ///
    /// # Errors
    /// The store is closed or damaged.
    pub(crate) fn snapshot(&self, stop: Arc<AtomicBool>) -> Result<Snapshot, StoreError> {
        let open = self.open.read();
        let database = &open.as_ref().ok_or_else(closed)?.database;
        let table = self.damage.guard(|| read_table(database))?;
        let at = self.opened.load(SeqCst);
        Ok(Snapshot { table, damage: Damage::default(), opened: self.opened.clone(), at, stop })
    }
}

impl Snapshot {
    /// Returns the result of a read, unless it may be wrong.
    fn read<T>(&self, read: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.stop.load(Relaxed) {
            return Err(StoreError::Failed("stopped".to_string()));
        }
        let result = read();
        if self.opened.load(SeqCst) == self.at {
            return result;
        }
        // The pages may have held anything.
        std::mem::forget(result);
        Err(StoreError::Failed("the store was opened again meanwhile".to_string()))
    }
}

impl Store for Snapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|| get(&self.table, &self.damage, key))
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Records, StoreError> {
        self.read(|| range(&self.table, &self.damage, (from, to), limit, Order::Up))
    }

    fn commit(&self, _: &Batch) -> Result<(), StoreError> {
        Err(StoreError::Failed("a snapshot cannot be changed".to_string()))
    }
}

fn get(table: &Table, damage: &Damage, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    damage.guard(|| {
        let value = table.get(key).map_err(failed)?;
        Ok(value.map(|v| v.value().to_vec()))
    })
}

/// Order of the records that [`range`] returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Up,
    Down,
}

fn range(
    table: &Table,
    damage: &Damage,
    (from, to): (&[u8], &[u8]),
    limit: usize,
    order: Order,
) -> Result<Records, StoreError> {
    if from >= to {
        return Ok(Vec::new());
    }
    damage.guard(|| {
        let mut records = Records::new();
        let mut range = table.range(from..to).map_err(failed)?;
        while records.len() < limit {
            let next = if order == Order::Up { range.next() } else { range.next_back() };
            let Some(record) = next else { break };
            let (key, value) = record.map_err(failed)?;
            let key = key.value().to_vec();
            // A caller that walks a table continues after the last key. A key out of order would
            // make the walk endless.
            let is_next = records.last().is_none_or(|(last, _)| *last != key && (*last < key) == (order == Order::Up));
            if !is_next || *key < *from || *key >= *to {
                return Err(StoreError::Damaged("records out of order".to_string()));
            }
            records.push((key, value.value().to_vec()));
        }
        Ok(records)
    })
}

/// Empties a file that redb did not finish creating, so that redb creates it anew. Any other file
/// stays as it is.
pub(crate) fn discard_unfinished(disk: &Disk, path: &Path) -> io::Result<()> {
    let file = disk.open(path, OpenOptions::READ_WRITE)?;
    let mut magic = [0; MAGIC_BYTES];
    let read = file.read_at(0, &mut magic)?;
    if read > 0 && magic == [0; MAGIC_BYTES] { file.set_len(0) } else { Ok(()) }
}

fn open(backend: impl StorageBackend, cache_bytes: usize) -> Result<Open, StoreError> {
    let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(backend).map_err(failed)?;
    if let Err(redb::TableError::TableDoesNotExist(_)) = read_table_of(&database) {
        write(&database, |_| Ok(()))?;
    }
    let table = read_table(&database)?;
    Ok(Open { table, database })
}

/// Runs one durable transaction; creates the table if it is missing.
fn write(
    database: &Database,
    fill: impl FnOnce(&mut redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_quick_repair(true);
    fill(&mut transaction.open_table(TABLE).map_err(failed)?)?;
    transaction.commit().map_err(failed)
}

type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

fn read_table(database: &Database) -> Result<Table, StoreError> {
    read_table_of(database).map_err(failed)
}

fn read_table_of(database: &Database) -> Result<Table, redb::TableError> {
    let transaction = database.begin_read().map_err(|e| match e {
        redb::TransactionError::Storage(e) => redb::TableError::Storage(e),
        other => redb::TableError::Storage(redb::StorageError::Io(io::Error::other(other.to_string()))),
    })?;
    transaction.open_table(TABLE)
}

/// Converts an error of redb. An I/O error comes from a write, because [`FileBackend`] returns none
/// for a read.
fn failed<E: Into<redb::Error>>(error: E) -> StoreError {
    match error.into() {
        redb::Error::Corrupted(what) => StoreError::Damaged(what),
        error @ redb::Error::LockPoisoned(_) => StoreError::Damaged(error.to_string()),
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => StoreError::Damaged(error.to_string()),
        error => StoreError::Failed(error.to_string()),
    }
}

fn closed() -> StoreError {
    StoreError::Failed("the store is closed".to_string())
}

/// The file as redb's storage backend. It takes no lock: the directory's lock file protects it.
struct FileBackend {
    file: File,
    damage: Arc<Damage>,
}

impl FileBackend {
    fn new(file: &File, damage: &Arc<Damage>) -> FileBackend {
        FileBackend { file: file.clone(), damage: damage.clone() }
    }

    /// Checks that the file may be written.
    ///
    /// # Errors
    /// EROFS: the file is damaged.
    fn writable(&self) -> io::Result<()> {
        if self.damage.is_found() { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }
}

impl fmt::Debug for FileBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileBackend")
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    /// Reads a page. An unreadable page is recorded as damage and reads as zeros, which redb cannot
    /// decode. After an error redb would refuse to read any page, undamaged ones included.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let len = out.len();
        let why = match self.file.read_at(offset, out) {
            Ok(read) if read == len => return Ok(()),
            Ok(_) => format!("page at byte {offset} is beyond the end of the file"),
            Err(e) => format!("unreadable page at byte {offset}: {e}"),
        };
        self.damage.found(why);
        out.fill(0);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writable()?;
        self.file.sync_data_blocking()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writable()?;
        self.file.write_all_at(offset, data)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use redb::ReadableTable;
    use sheen_rt::sim::{Sim, SimConfig, World};

    use super::*;

    /// A file whose host loses power at the n-th write, sync or resize.
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

    fn backend(disk: &Disk) -> FileBackend {
        FileBackend::new(&disk.open("/store", OpenOptions::READ_WRITE).unwrap(), &Arc::default())
    }

    /// Keys that every round writes.
    const KEYS: u64 = 200;

    /// Round n sets all keys to n, and replaces the key that marks the round.
    fn round(database: &Database, n: u64) -> Result<(), StoreError> {
        write(database, |table| {
            for key in 0..KEYS {
                let value = n.to_le_bytes().repeat(10);
                table.insert(&key.to_be_bytes()[..], &value[..]).map_err(failed)?;
            }
            table.remove(&(KEYS + n - 1).to_be_bytes()[..]).map_err(failed)?;
            table.insert(&(KEYS + n).to_be_bytes()[..], &[][..]).map_err(failed)?;
            Ok(())
        })
    }

    /// Returns the round that a store shows, and asserts that it shows the whole round.
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
            // The file's name is durable. Its content is up to redb.
            disk.write_atomic("/store", b"").unwrap();
            drop(open(backend(&disk), 1 << 20).unwrap());
            let file = backend(&disk);
            let dying = Dying { file, left: AtomicU64::new(1 + seed * 7 % 400), world: (*sim).clone() };
            let mut acknowledged = 0;
            // The power may also fail during the open.
            if let Ok(open) = open(dying, 1 << 20) {
                while acknowledged < 20 && round(&open.database, acknowledged + 1).is_ok() {
                    acknowledged += 1;
                }
            }
            torn += u64::from((1..20).contains(&acknowledged));
            let open = open(backend(&sim.rt(1).disk()), 1 << 20).unwrap();
            let shown = shown(&open);
            assert!(shown == acknowledged || shown == acknowledged + 1, "seed {seed}: {shown} of {acknowledged}");
            round(&open.database, shown + 1).unwrap();
        }
        assert!(torn > 50, "the power failed within commits in only {torn} runs");
    }

    /// Size of redb's header, in bytes. Pages follow it.
    const HEADER_BYTES: usize = 4096;
    /// Number of records of a store that is larger than redb's cache, which holds only the root.
    const RECORDS: u64 = 2000;

    fn large_store(disk: &Disk) -> RedbStore {
        let store = RedbStore::open(disk, Path::new("/store"), 0).unwrap();
        write(&store.open.read().as_ref().unwrap().database, |table| {
            for key in 0..RECORDS {
                table.insert(&key.to_be_bytes()[..], &[7u8; 100][..]).map_err(failed)?;
            }
            Ok(())
        })
        .unwrap();
        store.refresh().unwrap();
        store
    }

    fn key(key: u64) -> Vec<u8> {
        key.to_be_bytes().to_vec()
    }

    fn is_damaged<T>(result: Result<T, StoreError>) -> bool {
        matches!(result, Err(StoreError::Damaged(_)))
    }

    #[test]
    fn damaged_pages_fail_reads_and_end_all_writes() {
        let sim = Sim::new(1, SimConfig::default());
        let disk = sim.rt(1).disk();
        let store = large_store(&disk);
        assert_eq!(store.get(&key(7)), Ok(Some(vec![7; 100])));
        let file = disk.open("/store", OpenOptions::READ_WRITE).unwrap();
        let pages = file.len().unwrap() as usize - HEADER_BYTES;
        file.write_all_at(HEADER_BYTES as u64, &vec![0xA5; pages]).unwrap();
        let damaged = disk.read("/store").unwrap();
        assert!(is_damaged(store.get(&key(7))));
        assert!(is_damaged(store.range(&key(0), &key(RECORDS), 10)));
        assert!(is_damaged(store.reopen()), "redb writes to a file that it opens");
        assert_eq!(store.close(), Ok(()));
        assert!(disk.read("/store").unwrap() == damaged, "something was written");
        assert!(is_damaged(RedbStore::open(&disk, Path::new("/store"), 0)));
    }

    #[test]
    fn truncated_store_is_reported_as_damaged() {
        let sim = Sim::new(2, SimConfig::default());
        let disk = sim.rt(1).disk();
        let store = large_store(&disk);
        disk.open("/store", OpenOptions::READ_WRITE).unwrap().set_len(HEADER_BYTES as u64).unwrap();
        assert!(is_damaged(store.get(&key(7))));
        let found = store.damage.check().unwrap_err().to_string();
        assert!(found.contains("beyond the end of the file"), "{found}");
    }

    #[test]
    fn discard_unfinished_empties_only_half_created_stores() {
        let sim = Sim::new(3, SimConfig::default());
        let disk = sim.rt(1).disk();
        for (content, left) in [(&[0; 8192][..], 0), (&b"something else"[..], 14), (&b""[..], 0)] {
            disk.write_atomic("/store", content).unwrap();
            discard_unfinished(&disk, Path::new("/store")).unwrap();
            assert_eq!(disk.metadata("/store").unwrap().len, left);
        }
        drop(large_store(&disk));
        discard_unfinished(&disk, Path::new("/store")).unwrap();
        assert!(disk.metadata("/store").unwrap().len > 0);
    }
}
