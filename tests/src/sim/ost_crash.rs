//! Crashes of an OSS while a client has dirty data. The data must be on the OST before any other
//! client uses the file, however late the writer reconnects.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use sheen_client::{Caller, Client, OpenFile};
use sheen_layout::{Asked, Spec};
use sheen_rt::sim::World;
use sheen_wire::{
    Bulk, Errno,
    fid::ROOT,
    mds::{SetAttr, flags},
};

use super::{
    CLIENTS, OSSES,
    cluster::{Node, bad_network_config, mount, start, start_some},
    copy::migrate,
    scenario::{Trace, simulate},
};

/// Time between a write and the crash, at most: less than the age at which dirty data is flushed.
const DIRTY_MAX: Duration = Duration::from_millis(300);
/// Time for which the OSS is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(2);
/// Time for which the writer cannot reach the restarted OSS, at most.
const LATE_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(1);
/// The OSS.
const OSS: u32 = OSSES[0];
/// Time between the start of a migration and the crash, at most: as long as a copy takes.
const COPY_MAX: Duration = Duration::from_millis(200);
/// Maximum number of times that a tool migrates the file, because servers do not answer in time.
const MIGRATIONS_MAX: usize = 10;
/// Bytes of a write.
const LEN: usize = 5000;
/// Bytes of an appended record.
const RECORD: usize = 16;

/// One file, open on all clients.
struct Shared<'a> {
    world: &'a World,
    nodes: Vec<Node>,
    clients: Vec<(Arc<Client>, Arc<OpenFile>)>,
    rng: Rng,
}

impl Shared<'_> {
    async fn boot(world: &World, seed: u64) -> Shared<'_> {
        let nodes = start_some(world, 1, false).await;
        let mut clients = Vec::new();
        for host in CLIENTS {
            let client = mount(world, host).await;
            let mode = flags::RDWR;
            let file =
                client.create(&Caller::ROOT, ROOT, &"file".into(), mode, 0o644, 0).await.expect("it is allowed").1;
            clients.push((client, file));
        }
        Shared { world, nodes, clients, rng: Rng::with_seed(seed ^ 0x05c) }
    }

    async fn write(&self, client: usize, n: u8) {
        let (client, file) = &self.clients[client];
        assert_eq!(client.write(file, 0, Bulk::from(Bytes::from(vec![n; LEN]))).await, Ok(LEN));
    }

    async fn read(&self, client: usize) -> Vec<u8> {
        let (client, file) = &self.clients[client];
        read(client, file, LEN).await
    }

    async fn fsync(&self, client: usize) -> Result<(), Errno> {
        let (client, file) = &self.clients[client];
        client.fsync(file, false).await
    }

    /// Waits for a random time.
    async fn pause(&mut self, max: Duration) {
        let time = Duration::from_micros(self.rng.u64(0..max.as_micros() as u64));
        self.world.rt(CLIENTS[0]).sleep(time).await;
    }

    /// Lets a client write data that stays dirty, and cuts the power of the OSS.
    async fn write_and_crash(&mut self, writer: usize, n: u8) {
        // For lock and grant.
        self.write(writer, n - 1).await;
        assert_eq!(self.fsync(writer).await, Ok(()));
        self.write(writer, n).await;
        self.pause(DIRTY_MAX).await;
        self.world.note(&format!("the power of the OSS fails; client {writer} has written {n}"));
        self.world.crash_host(OSS);
    }

    async fn restart(&mut self) {
        self.pause(DOWN_MAX).await;
        self.nodes.push(start(self.world, OSS).await.expect("nothing else crashes it"));
    }

    /// Returns the OSS that was started last.
    fn node(&self) -> &Node {
        self.nodes.last().expect("servers were started")
    }

    /// Ends the partition between the writer and the OSS after a time that depends on the seed.
    async fn heal_late(&self, writer: usize, seed: u64) {
        let late = Duration::from_micros(seed * 7919 % LATE_MAX.as_micros() as u64);
        self.world.rt(CLIENTS[0]).sleep(late).await;
        self.world.heal(CLIENTS[writer], OSS);
    }

    /// Asserts that each client syncs without an error, and that all of them read this.
    async fn check(&self, expected: &[u8]) {
        for client in 0..CLIENTS.len() {
            assert_eq!(self.fsync(client).await, Ok(()), "client {client}: nothing is lost");
        }
        for (n, (client, file)) in self.clients.iter().enumerate() {
            let found = read(client, file, 2 * LEN).await;
            assert!(found == expected, "client {n} reads {} bytes: {}", found.len(), runs(&found));
        }
    }

    /// The OST, which client 0 cannot reach, ends its recovery without it. Then the client comes
    /// back with its dirty data of before the crash, which must be discarded.
    async fn return_too_late(&self) {
        self.write(1, 3).await;
        assert_eq!(self.read(2).await, [3; LEN], "the recovery went on without the writer");
        self.world.heal(CLIENTS[0], OSS);
        assert_eq!(self.fsync(0).await, Err(Errno::EIO), "its data is lost");
        self.check(&[3; LEN]).await;
        assert_eq!(self.node().lost_clients(), 1);
    }
}

async fn read(client: &Client, file: &OpenFile, len: usize) -> Vec<u8> {
    client.read(file, 0, len).await.expect("it is there").into_bytes().to_vec()
}

/// Shows bytes as lengths of equal ones.
fn runs(bytes: &[u8]) -> String {
    let runs = bytes.chunk_by(|a, b| a == b).map(|run| format!("{} times {}", run.len(), run[0]));
    runs.collect::<Vec<_>>().join(", ")
}

/// Crashes the OSS `crashes` times while a client has dirty data and another one is about to read
/// or write the same bytes.
pub fn ost_crashes(seed: u64, crashes: u8, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        for turn in 0..crashes {
            let n = 3 * turn + 2;
            let writer = shared.rng.usize(0..CLIENTS.len());
            let other = (writer + shared.rng.usize(1..CLIENTS.len())) % CLIENTS.len();
            shared.write_and_crash(writer, n).await;
            let is_late = shared.rng.bool();
            if is_late {
                world.partition(CLIENTS[writer], OSS);
            }
            shared.restart().await;
            let expected = if shared.rng.bool() { n } else { n + 1 };
            let using = async {
                if expected != n {
                    shared.write(other, n + 1).await;
                }
                assert_eq!(shared.read(other).await, vec![expected; LEN], "client {other}");
            };
            tokio::join!(using, shared.heal_late(writer, seed));
            shared.check(&[expected; LEN]).await;
        }
    })
}

/// Crashes the OSS while a client has dirty data and then cannot reach it until the recovery is
/// over. Its data must not overwrite what others have written since, and its fsync fails.
pub fn late_writer(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        shared.write_and_crash(0, 2).await;
        world.partition(CLIENTS[0], OSS);
        shared.restart().await;
        shared.return_too_late().await;
    })
}

/// Crashes the OSS once more while it waits for a client with dirty data and all others are back.
/// With every second seed, that client comes back in time, and nothing is lost. With the others,
/// the recovery ends without it.
pub fn crash_in_recovery(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        // The OST waits only for clients that have used it.
        for client in 1..CLIENTS.len() {
            shared.write(client, 1).await;
        }
        shared.write_and_crash(0, 2).await;
        world.partition(CLIENTS[0], OSS);
        shared.restart().await;
        while shared.node().clients_back() < CLIENTS.len() - 1 {
            world.rt(CLIENTS[0]).sleep(POLL).await;
        }
        shared.pause(DIRTY_MAX).await;
        assert_eq!(shared.node().lost_clients(), 0, "it waits for the writer");
        world.note("the power of the OSS fails in its recovery");
        world.crash_host(OSS);
        shared.restart().await;
        if seed.is_multiple_of(2) {
            shared.heal_late(0, seed).await;
            shared.check(&[2; LEN]).await;
            assert_eq!(shared.node().lost_clients(), 0);
        } else {
            shared.return_too_late().await;
        }
    })
}

/// Crashes the OSS while one client has dirty data and another one migrates the file. The writer
/// reaches the restarted OSS later than others. With every second seed, it cannot reach the OSS
/// from the beginning of the migration. Its data is in the file at the end.
pub fn migration_and_crash(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        let is_first = seed.is_multiple_of(2);
        // For lock and grant.
        shared.write(0, 1).await;
        assert_eq!(shared.fsync(0).await, Ok(()));
        if is_first {
            shared.write(0, 2).await;
            world.partition(CLIENTS[0], OSS);
        }
        let (client, file) = shared.clients[1].clone();
        let moving = world.rt(CLIENTS[1]).spawn("migrate", async move {
            let asked: Bytes = Asked::Plain(Spec::default()).encode().into();
            let mut moved = Err(Errno::EBUSY);
            for _ in 0..MIGRATIONS_MAX {
                moved = migrate(&client, file.fid(), asked.clone(), None).await;
                if moved.is_ok() {
                    break;
                }
            }
            moved
        });
        shared.pause(COPY_MAX).await;
        if !is_first {
            shared.write(0, 2).await;
            world.partition(CLIENTS[0], OSS);
        }
        world.note("the power of the OSS fails beside a migration");
        world.crash_host(OSS);
        shared.restart().await;
        shared.heal_late(0, seed).await;
        assert_eq!(moving.await.expect("clients do not crash"), Ok(()));
        shared.check(&[2; LEN]).await;
        assert_eq!(shared.node().lost_clients(), 0);
    })
}

/// A request that waits for the lock of another client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiting {
    Write,
    Append,
    Read,
    Truncate,
}

impl Waiting {
    /// Executes the request on the file, which another client has filled with 2.
    async fn run(self, client: &Client, file: &OpenFile) {
        let bytes = |n: u8, len| Bulk::from(Bytes::from(vec![n; len]));
        match self {
            Waiting::Write => assert_eq!(client.write(file, 0, bytes(3, RECORD)).await, Ok(RECORD)),
            Waiting::Append => {
                assert_eq!(client.write_as(file, 0, bytes(3, RECORD), true, false).await, Ok(RECORD));
            }
            Waiting::Read => assert!(read(client, file, LEN).await == [2; LEN], "without the writer's data"),
            Waiting::Truncate => {
                let set = SetAttr { size: Some(RECORD as u64), ..SetAttr::default() };
                let cut = client.setattr(&Caller::ROOT, file.fid(), set, Some(file)).await;
                assert_eq!(cut.map(|entry| entry.attr.size), Ok(RECORD as u64));
            }
        }
    }

    /// Returns the content of the file after the request.
    fn content(self) -> Vec<u8> {
        match self {
            Waiting::Write => [vec![3; RECORD], vec![2; LEN - RECORD]].concat(),
            Waiting::Append => [vec![2; LEN], vec![3; RECORD]].concat(),
            Waiting::Read => vec![2; LEN],
            Waiting::Truncate => vec![2; RECORD],
        }
    }
}

/// Crashes the OSS while a request waits for the lock of a client that has dirty data and cannot be
/// reached. The request is executed once, after the data is there.
pub fn waiting_requests(seed: u64, log: usize) -> Trace {
    let waiting = [Waiting::Write, Waiting::Append, Waiting::Read, Waiting::Truncate][(seed % 4) as usize];
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        shared.write(0, 1).await;
        assert_eq!(shared.fsync(0).await, Ok(()));
        shared.write(0, 2).await;
        world.partition(CLIENTS[0], OSS);
        let (client, file) = shared.clients[1].clone();
        let request = world.rt(CLIENTS[1]).spawn("wait", async move { waiting.run(&client, &file).await });
        shared.pause(DIRTY_MAX).await;
        assert!(!request.is_finished(), "{waiting:?} waits for the lock");
        world.note(&format!("the power of the OSS fails while {waiting:?} waits"));
        world.crash_host(OSS);
        shared.restart().await;
        assert!(!request.is_finished(), "{waiting:?} waits for the data");
        shared.heal_late(0, seed).await;
        request.await.expect("clients do not crash");
        shared.check(&waiting.content()).await;
        assert_eq!(shared.node().lost_clients(), 0);
    })
}

/// A client overwrites data that another client has synced, and syncs as well. Then its host and
/// the OSS crash. The replay of the other client must not undo the later write.
pub fn lost_writer(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        for (writer, n) in [(0, 1), (1, 2)] {
            shared.write(writer, n).await;
            assert_eq!(shared.fsync(writer).await, Ok(()));
        }
        shared.pause(DIRTY_MAX).await;
        world.note("the power of the OSS and of client 1 fails");
        world.crash_host(CLIENTS[1]);
        world.crash_host(OSS);
        shared.restart().await;
        for client in [0, 2] {
            assert_eq!(shared.read(client).await, [2; LEN], "client {client}");
            assert_eq!(shared.fsync(client).await, Ok(()));
        }
    })
}

/// Crashes the OSS while all clients append synchronous records. Each record is there once.
pub fn appends_and_crashes(seed: u64, appends: usize, crashes: usize, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut shared = Shared::boot(world, seed).await;
        let programs: Vec<_> = (0..CLIENTS.len())
            .map(|program| {
                let (client, file) = shared.clients[program].clone();
                world.rt(CLIENTS[program]).spawn("append", async move {
                    for n in 0..appends {
                        let record = Bytes::from(format!("{program:>7} {n:>7}\n"));
                        let written = client.write_as(&file, 0, Bulk::from(record), true, true).await;
                        assert_eq!(written, Ok(RECORD));
                    }
                })
            })
            .collect();
        for _ in 0..crashes {
            shared.pause(DIRTY_MAX).await;
            world.note("the power of the OSS fails");
            world.crash_host(OSS);
            shared.restart().await;
        }
        for program in programs {
            program.await.expect("clients do not crash");
        }
        let (client, file) = &shared.clients[0];
        let all = client.read(file, 0, 1 << 20).await.expect("it is there").into_bytes();
        let mut found: Vec<&[u8]> = all.chunks(RECORD).collect();
        found.sort_unstable();
        let all: Vec<String> =
            (0..CLIENTS.len()).flat_map(|p| (0..appends).map(move |n| format!("{p:>7} {n:>7}\n"))).collect();
        let expected: Vec<&[u8]> = all.iter().map(String::as_bytes).collect();
        assert_eq!(found.len(), expected.len(), "records");
        assert!(found == expected, "each record once");
    })
}
