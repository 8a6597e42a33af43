//! A recovery of the MDT that goes on without one client, while all clients change files in
//! directories of their own. The others lose nothing. The directory of the lost client is as it was
//! after one of its changes. The client reports each file whose later changes are missing, once. It
//! may report other recent changes as well, because nobody tells it which of them survived.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use fastrand::Rng;
use sheen_client::{Caller, Client, OpenFile};
use sheen_wire::{
    Errno, Fid,
    mds::{SetAttr, flags},
};

use super::{
    CLIENTS, MDS,
    cluster::{bad_network_config, start_some},
    lost_client::{End, LOST, Member, crash_without_lost, random},
    perform::entries,
    scenario::{Trace, simulate},
};

const ROOT_USER: &Caller = &Caller::ROOT;
/// Number of changes of a client: at most the number of different modes.
const CHANGES: usize = 80;
/// Number of changes before a client syncs.
const SYNCED: usize = 10;
/// Time for which all clients work before the crash, at most.
const LOAD_MAX: Duration = Duration::from_millis(300);
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// Bytes of a readdir page.
const PAGE: u32 = 4096;

/// A change in the directory of a client.
#[derive(Clone, Copy, Debug)]
enum Change {
    Create(&'static str),
    Chmod(&'static str),
    Rename(&'static str, &'static str),
    Unlink(&'static str),
}

/// Names in a directory, each with the number of its file and the mode.
type Names = BTreeMap<&'static str, (usize, u32)>;

/// A file that a client has created and has open.
#[derive(Clone)]
struct Made {
    open: Arc<OpenFile>,
    /// Number of the last change of its attributes, or of its creation.
    changed: usize,
    /// Number of the last change of its name; 0: none.
    moved: usize,
}

/// The changes of a client, which are numbered from 1. Each create and chmod sets its own number as
/// the mode. So no two changes lead to the same modes.
#[derive(Clone)]
struct Log {
    /// The names before the first change, and after each one. The last change may be under way.
    states: Vec<Names>,
    files: Vec<Made>,
    /// Number of the last change that was answered.
    answered: usize,
    /// Number of the last change that was synced.
    synced: usize,
    /// A sync of the program has reported the loss.
    has_reported: bool,
    /// The client begins no further change, and its last one may fail.
    is_stopped: bool,
}

fn one_of(rng: &mut Rng, names: &[&'static str]) -> &'static str {
    names[rng.usize(0..names.len())]
}

impl Log {
    fn new() -> Log {
        Log {
            states: vec![Names::new()],
            files: Vec::new(),
            answered: 0,
            synced: 0,
            has_reported: false,
            is_stopped: false,
        }
    }

    fn names(&self) -> &Names {
        self.states.last().expect("there is a first state")
    }

    /// Draws a change, which is possible, and records the names after it. Returns its number.
    fn draw(&mut self, rng: &mut Rng) -> (usize, Change) {
        let (number, mut names) = (self.states.len(), self.names().clone());
        let (used, free): (Vec<_>, Vec<_>) = NAMES.into_iter().partition(|name| names.contains_key(name));
        let change = match rng.u32(0..8) {
            0..4 if !free.is_empty() => Change::Create(one_of(rng, &free)),
            _ if used.is_empty() => Change::Create(one_of(rng, &free)),
            0..6 => Change::Chmod(one_of(rng, &used)),
            6 => Change::Unlink(one_of(rng, &used)),
            _ => {
                let name = one_of(rng, &used);
                let others: Vec<_> = NAMES.into_iter().filter(|other| *other != name).collect();
                Change::Rename(name, one_of(rng, &others))
            }
        };
        match change {
            Change::Create(name) => {
                names.insert(name, (self.files.len(), number as u32));
            }
            Change::Chmod(name) => {
                let (file, mode) = names.get_mut(name).expect("it is used");
                *mode = number as u32;
                self.files[*file].changed = number;
            }
            Change::Rename(name, new_name) => {
                let file = names.remove(name).expect("it is used");
                let replaced = names.insert(new_name, file);
                [Some(file), replaced].into_iter().flatten().for_each(|(file, _)| self.files[file].moved = number);
            }
            Change::Unlink(name) => {
                let (file, _) = names.remove(name).expect("it is used");
                self.files[file].moved = number;
            }
        }
        self.states.push(names);
        (number, change)
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().expect("no panic is survived")
}

/// Executes a change. Returns the file that it created.
async fn execute(member: &Member, change: Change, mode: u32) -> Result<Option<Arc<OpenFile>>, Errno> {
    let Member { client, dir } = member;
    match change {
        Change::Create(name) => {
            let made = client.create(ROOT_USER, *dir, &name.into(), flags::RDWR, mode, 0).await?;
            return Ok(Some(made.1));
        }
        Change::Chmod(name) => {
            let fid = client.lookup(ROOT_USER, *dir, &name.into()).await?.attr.fid;
            let set = SetAttr { perm: Some(mode), ..SetAttr::default() };
            client.setattr(ROOT_USER, fid, set, None).await?;
        }
        Change::Rename(name, new_name) => {
            client.rename(ROOT_USER, *dir, &name.into(), *dir, &new_name.into(), 0).await?;
        }
        Change::Unlink(name) => client.unlink(ROOT_USER, *dir, &name.into()).await?,
    }
    Ok(None)
}

/// Changes the directory of a client, and looks up names in that of another one.
async fn program(member: Arc<Member>, watched: Fid, log: Arc<Mutex<Log>>, mut rng: Rng) {
    for done in 0..CHANGES {
        if done == SYNCED {
            let synced = member.client.syncfs().await;
            let mut log = locked(&log);
            if log.is_stopped {
                log.has_reported = synced.is_err();
                return;
            }
            assert_eq!(synced, Ok(()));
            log.synced = log.answered;
        }
        if rng.u32(0..4) == 0 {
            // There may be no such file.
            let _ = member.client.lookup(ROOT_USER, watched, &one_of(&mut rng, &NAMES).into()).await;
        }
        let (number, change) = {
            let mut log = locked(&log);
            if log.is_stopped {
                return;
            }
            log.draw(&mut rng)
        };
        let done = execute(&member, change, number as u32).await;
        let mut log = locked(&log);
        if log.is_stopped {
            return;
        }
        let made = done.unwrap_or_else(|errno| panic!("change {number}, {change:?}: {errno}"));
        log.files.extend(made.map(|open| Made { open, changed: number, moved: 0 }));
        log.answered = number;
    }
}

/// Returns the names in a directory, with the modes of the files, as a client sees them.
async fn listing(client: &Client, dir: Fid) -> BTreeMap<String, u32> {
    let mut found = BTreeMap::new();
    let names = entries(client, dir, PAGE, false).await.expect("it can be read");
    for name in names.into_keys().filter(|name| name != "." && name != "..") {
        let entry = client.lookup(ROOT_USER, dir, &Bytes::from(name.clone())).await.expect("it is listed");
        found.insert(name, entry.attr.perm);
    }
    found
}

fn modes(names: &Names) -> BTreeMap<String, u32> {
    names.iter().map(|(name, (_, mode))| ((*name).to_owned(), *mode)).collect()
}

/// Checks that nothing of a client is lost.
async fn check_complete(member: &Member, log: &Log, other: &Client) {
    assert_eq!(listing(other, member.dir).await, modes(log.names()));
    for file in &log.files {
        assert_eq!(member.client.fsync(&file.open, false).await, Ok(()));
    }
    assert_eq!(member.client.syncfs().await, Ok(()));
}

/// Checks what the lost client reports. `last`: the number of its last change that the MDT has.
/// `has_reported`: a sync of the program has reported the loss.
async fn check_reports(client: &Client, log: &Log, last: usize, has_reported: bool) {
    for (n, file) in log.files.iter().enumerate() {
        if file.changed.max(file.moved) > log.answered {
            continue; // It was executed later, or not.
        }
        let [synced, again] = [client.fsync(&file.open, false).await, client.fsync(&file.open, false).await];
        let exists = log.states[last].values().any(|(number, _)| *number == n);
        let expected: &[Result<(), Errno>] = if !exists {
            &[Err(Errno::ESTALE), Err(Errno::EIO)]
        } else if file.changed > last {
            &[Err(Errno::EIO)]
        } else if file.changed.max(file.moved) <= log.synced {
            &[Ok(())]
        } else {
            &[Ok(()), Err(Errno::EIO)]
        };
        assert!(expected.contains(&synced), "file {n} after change {last}: {synced:?}, expected {expected:?}");
        assert!(!exists || again == Ok(()), "file {n}: a loss is reported once, not {again:?}");
    }
    let synced = client.syncfs().await;
    let is_reported = has_reported || synced == Err(Errno::EIO);
    assert!(last >= log.answered || is_reported, "{} changes are lost", log.answered - last);
    assert_eq!(client.syncfs().await, Ok(()), "once");
}

/// Crashes the MDS while all clients change their directories. One client comes back only after the
/// recovery.
pub fn lost_under_load(seed: u64, log: usize) -> Trace {
    let end = if seed.is_multiple_of(2) { End::Aborted } else { End::Limit };
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut nodes = start_some(world, 1, false).await;
        let mut rng = Rng::with_seed(seed ^ 0x10ad);
        let mut members = Vec::new();
        for n in 0..CLIENTS.len() {
            members.push(Arc::new(Member::new(world, n).await));
        }
        let logs: Vec<_> = members.iter().map(|_| Arc::new(Mutex::new(Log::new()))).collect();
        let mut programs = Vec::new();
        for (n, member) in members.iter().enumerate() {
            let watched = members[(n + CLIENTS.len() - 1) % CLIENTS.len()].dir;
            let work = program(member.clone(), watched, logs[n].clone(), Rng::with_seed(rng.u64(..)));
            programs.push(world.rt(CLIENTS[n]).spawn("program", work));
        }
        world.rt(CLIENTS[LOST]).sleep(random(&mut rng, LOAD_MAX)).await;
        let node = crash_without_lost(world, MDS, end, &mut rng).await;
        let lost_program = programs.remove(LOST);
        for program in programs {
            program.await.expect("clients do not crash");
        }
        let (lost, other) = (&members[LOST], &members[LOST + 1].client);
        for (n, member) in members.iter().enumerate().filter(|(n, _)| *n != LOST) {
            let log = locked(&logs[n]).clone();
            check_complete(member, &log, &members[CLIENTS.len() - n].client).await;
        }
        assert_eq!(node.lost_clients(), 1, "only the client that is not there");
        nodes.push(node);
        let log = locked(&logs[LOST]).clone();
        let found = listing(other, lost.dir).await;
        let last = log.states.iter().rposition(|names| modes(names) == found);
        let last = last.unwrap_or_else(|| panic!("{found:?} is no state of the directory: {:?}", log.states));
        assert!(last >= log.synced, "the sync of {} changes succeeded, and {last} are there", log.synced);
        locked(&logs[LOST]).is_stopped = true;
        world.heal(CLIENTS[LOST], MDS);
        lost_program.await.expect("clients do not crash");
        let has_reported = locked(&logs[LOST]).has_reported;
        check_reports(&lost.client, &log, last, has_reported).await;
    })
}
