//! Crashes of an OSS while a client has dirty data. The data must be on the OST before any other
//! client uses the file, however late the writer reconnects.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use sheen_client::{Caller, Client, OpenFile};
use sheen_rt::sim::World;
use sheen_wire::{Bulk, Errno, fid::ROOT, mds::flags};

use super::{
    CLIENTS, OSSES,
    cluster::{Node, bad_network_config, mount, start, start_some},
    scenario::{Trace, simulate},
};

/// Time between a write and the crash, at most: less than the age at which dirty data is flushed.
const DIRTY_MAX: Duration = Duration::from_millis(300);
/// Time for which the OSS is down, at most.
const DOWN_MAX: Duration = Duration::from_secs(2);
/// Time for which the writer cannot reach the restarted OSS, at most.
const LATE_MAX: Duration = Duration::from_secs(5);
/// The OSS.
const OSS: u32 = OSSES[0];
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
        client.read(file, 0, LEN).await.expect("it is there").into_bytes().to_vec()
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
            let healing = async {
                world.rt(CLIENTS[0]).sleep(Duration::from_micros(seed * 7919 % LATE_MAX.as_micros() as u64)).await;
                world.heal(CLIENTS[writer], OSS);
            };
            tokio::join!(using, healing);
            for client in 0..CLIENTS.len() {
                assert_eq!(shared.fsync(client).await, Ok(()), "client {client}: nothing is lost");
            }
            for client in 0..CLIENTS.len() {
                assert_eq!(shared.read(client).await, vec![expected; LEN], "client {client}");
            }
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
        shared.write(1, 3).await;
        assert_eq!(shared.read(2).await, [3; LEN], "the recovery went on without the writer");
        world.heal(CLIENTS[0], OSS);
        assert_eq!(shared.fsync(0).await, Err(Errno::EIO), "its data is lost");
        assert_eq!(shared.fsync(0).await, Ok(()), "a loss is reported once");
        for client in 0..CLIENTS.len() {
            assert_eq!(shared.read(client).await, [3; LEN], "client {client}");
        }
        let Some(Node::Oss(_, ost)) = shared.nodes.last() else { panic!("the OSS was started last") };
        assert_eq!(ost.recovery_counts().dropped, 1);
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
