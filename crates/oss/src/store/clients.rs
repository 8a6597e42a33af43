//! The durable list of clients: those for which the OST waits after a restart.
//!
//! The file `DIR/clients` has the uuid of one client in each line. A missing file is an empty list.
//!
//! Invariant: [`ClientList::add`] returns once the client is on the durable list, or the list
//! cannot be written, which is logged.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use sheen_rt::Rt;

/// Name of the file.
pub const CLIENTS: &str = "clients";
/// First line of the file.
const HEAD: &str = "# Clients of a Sheen target; do not edit.";
/// Export id of a client that has not come back since the restart.
const ABSENT: u64 = 0;

/// The list of an OST.
pub struct ClientList {
    rt: Rt,
    path: PathBuf,
    state: Mutex<State>,
    /// Serializes writes of the file.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Export id of each client on the list.
    clients: BTreeMap<String, u64>,
    /// Number of changes of the list, and the number of those that the file has.
    changes: u64,
    written: u64,
    /// The directory was released: another process may have written the file since.
    closed: bool,
}

impl ClientList {
    /// Reads the list in `dir`.
    ///
    /// # Errors
    /// The file exists and cannot be read.
    pub fn open(rt: &Rt, dir: &Path) -> io::Result<ClientList> {
        let path = dir.join(CLIENTS);
        let clients = match rt.disk().read(&path) {
            Ok(bytes) => parse(&bytes),
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(e),
        };
        let state = Mutex::new(State { clients, ..State::default() });
        Ok(ClientList { rt: rt.clone(), path, state, writing: tokio::sync::Mutex::default() })
    }

    /// Returns all clients on the list.
    pub fn names(&self) -> Vec<String> {
        self.state.lock().clients.keys().cloned().collect()
    }

    /// Records that a client on the list is back, under this export id.
    pub fn returned(&self, client: &str, export: u64) {
        self.state.lock().clients.entry(client.to_owned()).and_modify(|id| *id = export);
    }

    /// Puts a client on the list.
    pub async fn add(&self, client: &str, export: u64) {
        // A line must be one client.
        if client.contains('\n') {
            return;
        }
        let change = {
            let mut state = self.state.lock();
            if state.clients.insert(client.to_owned(), export).is_none() {
                state.changes += 1;
            }
            state.changes
        };
        self.write(change).await;
    }

    /// Takes a client off the list, unless it has come back under another export id. Returns
    /// whether [`ClientList::flush`] has work to do.
    pub fn remove(&self, client: &str, export: u64) -> bool {
        let mut state = self.state.lock();
        let is_same = state.clients.get(client).is_some_and(|id| *id == export || *id == ABSENT);
        if is_same {
            state.clients.remove(client);
            state.changes += 1;
        }
        is_same
    }

    /// Takes all clients off the list whose export ids are not among these.
    pub fn retain(&self, exports: impl Fn(u64) -> bool) {
        let mut state = self.state.lock();
        state.clients.retain(|_, id| exports(*id));
        state.changes += 1;
    }

    /// Makes all changes of the list durable.
    pub async fn flush(&self) {
        let change = self.state.lock().changes;
        self.write(change).await;
    }

    /// As [`ClientList::flush`], for the last time.
    pub async fn close(&self) {
        self.flush().await;
        let _turn = self.writing.lock().await;
        self.state.lock().closed = true;
    }

    /// Writes the file, unless it has the change of this number.
    async fn write(&self, change: u64) {
        if self.state.lock().written >= change {
            return;
        }
        let _turn = self.writing.lock().await;
        let (text, changes) = {
            let state = self.state.lock();
            if state.written >= change || state.closed {
                return;
            }
            (print(&state.clients), state.changes)
        };
        let disk = self.rt.disk();
        let written = self.rt.block_in_place(|| disk.write_atomic(&self.path, text.as_bytes()));
        if let Err(e) = written {
            let path = self.path.display();
            tracing::error!("cannot write {path}: {e}; a restart will not wait for all clients; check the disk");
        }
        // Also after an error: otherwise each lock request would try it again.
        self.state.lock().written = changes;
    }
}

fn print(clients: &BTreeMap<String, u64>) -> String {
    let lines: Vec<&str> = std::iter::once(HEAD).chain(clients.keys().map(String::as_str)).collect();
    lines.join("\n") + "\n"
}

fn parse(bytes: &[u8]) -> BTreeMap<String, u64> {
    let text = String::from_utf8_lossy(bytes);
    let clients = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    clients.map(|client| (client.to_owned(), ABSENT)).collect()
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    #[test]
    fn list_survives_a_power_failure() {
        let world = Sim::new(1, SimConfig::default());
        let dir = Path::new("/ost");
        let first = world.rt(1);
        world
            .run(async {
                first.disk().create_dir_all(dir).unwrap();
                first.disk().sync_dir("/").await.unwrap();
                let list = ClientList::open(&first, dir).unwrap();
                assert_eq!(list.names(), Vec::<String>::new());
                list.add("a", 1).await;
                list.add("b", 2).await;
                list.add("c", 3).await;
                assert!(!list.remove("b", 7), "it came back under another export");
                assert!(list.remove("c", 3));
                list.flush().await;
                world.crash_host(1);
                let rt = world.rt(1);
                let list = ClientList::open(&rt, dir).unwrap();
                assert_eq!(list.names(), ["a", "b"]);
                list.returned("a", 5);
                list.returned("c", 5);
                list.retain(|export| export == 5);
                list.flush().await;
                assert_eq!(ClientList::open(&rt, dir).unwrap().names(), ["a"]);
            })
            .unwrap();
    }

    #[test]
    fn list_that_could_not_be_written_is_complete_after_the_next_write() {
        let world = Sim::new(2, SimConfig::default());
        let (rt, dir) = (world.rt(1), Path::new("/ost"));
        world
            .run(async {
                rt.disk().create_dir_all(dir).unwrap();
                let list = ClientList::open(&rt, dir).unwrap();
                // No file can replace a directory.
                rt.disk().create_dir_all(dir.join(CLIENTS)).unwrap();
                list.add("a", 1).await;
                list.add("b", 2).await;
                assert!(list.remove("a", 1));
                list.flush().await;
                assert_eq!(list.names(), ["b"], "the clients work nevertheless");
                rt.disk().remove_dir_all(dir.join(CLIENTS)).unwrap();
                list.add("b", 2).await;
                assert!(rt.disk().metadata(dir.join(CLIENTS)).is_err(), "nothing new to write");
                list.add("c", 3).await;
                assert_eq!(ClientList::open(&rt, dir).unwrap().names(), ["b", "c"]);
            })
            .unwrap();
    }
}
