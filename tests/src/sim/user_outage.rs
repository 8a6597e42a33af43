//! A mount that acts as one user ([`super::cluster::as_user`]), while a server is stopped for
//! longer than its capabilities last. It must lose nothing that it has written.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_client::{Caller, Client, OpenFile};
use sheen_rt::sim::{SimConfig, World};
use sheen_wire::{Bulk, Fid, FileKind, fid::ROOT, mds::flags, ost::CAPABILITY_SECS};

use super::{
    CLIENTS, MDS, OSSES,
    cluster::{mount, start, start_all},
    scenario::{Trace, simulate},
};
use crate::noise;

const USER: &Caller = &Caller::ROOT;
/// The files.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
/// Bytes of one write.
const PIECE: usize = 10_000;
/// Time for one write while the capabilities are valid: less than that after which an OST evicts a
/// client that holds up others.
const WRITE_MAX: Duration = Duration::from_secs(15);
/// Time for which a capability is valid, and time after which it is renewed.
const LIFE: Duration = Duration::from_secs(CAPABILITY_SECS as u64);
const FRESH: Duration = Duration::from_secs(CAPABILITY_SECS as u64 / 2);

fn calm() -> SimConfig {
    SimConfig { time_max: Duration::from_secs(3600), ..SimConfig::default() }
}

async fn create(client: &Client, name: &'static str) -> (Fid, Arc<OpenFile>) {
    let mode = FileKind::Regular.mode_bits() | 0o644;
    let made = client.mknod(USER, ROOT, &name.into(), mode, 0, 0).await.expect("the root is empty");
    let file = client.open(USER, made.attr.fid, flags::RDWR | flags::DIRECT).await.expect("it is there");
    (made.attr.fid, file)
}

async fn write(client: &Client, file: &OpenFile, at: usize, bytes: &[u8]) {
    let bulk = Bulk::from(Bytes::copy_from_slice(&bytes[at..at + PIECE]));
    assert_eq!(client.write(file, at as u64, bulk).await, Ok(PIECE));
}

async fn assert_content(client: &Client, fid: Fid, bytes: &[u8]) {
    let file = client.open(USER, fid, flags::RDONLY).await.expect("it is there");
    let read = client.read(&file, 0, bytes.len() + 1).await.expect("all servers are there").into_bytes();
    assert!(read == bytes, "other bytes");
    client.release(file).await.expect("it is open");
}

/// Writes a piece to each file at the same time.
async fn write_all(
    world: &World,
    client: &Arc<Client>,
    files: &[(Fid, Arc<OpenFile>)],
    at: usize,
    bytes: &Arc<Vec<u8>>,
) {
    let one = |(_, file): &(Fid, Arc<OpenFile>)| {
        let (client, file, bytes) = (client.clone(), file.clone(), bytes.clone());
        world.rt(CLIENTS[0]).spawn("write", async move { write(&client, &file, at, &bytes).await })
    };
    for writing in files.iter().map(one).collect::<Vec<_>>() {
        writing.await.expect("clients do not crash");
    }
}

/// The MDT is stopped. Writes to known files go on until the capabilities expire. The next ones
/// wait.
pub fn without_mdt(seed: u64, log: usize) -> Trace {
    simulate(seed, log, calm(), async |world: &World| {
        let mut nodes = start_all(world).await;
        let (writer, reader) = (mount(world, CLIENTS[0]).await, mount(world, CLIENTS[1]).await);
        let mut files = Vec::new();
        for name in NAMES {
            files.push(create(&writer, name).await);
        }
        let pause = Duration::from_secs(10 + seed % 30);
        let count = (LIFE.as_secs() / pause.as_secs()) as usize;
        let bytes = Arc::new(noise(seed, (count + 1) * PIECE));
        write_all(world, &writer, &files, 0, &bytes).await;
        for (_, file) in &files {
            writer.fsync(file, false).await.expect("all servers are there");
        }
        world.crash_host(MDS);
        let rt = world.rt(CLIENTS[0]);
        let since = rt.now();
        let mut written = PIECE;
        while rt.now().since(since) + pause + WRITE_MAX < LIFE {
            rt.sleep(pause).await;
            let in_time = rt.timeout(WRITE_MAX, write_all(world, &writer, &files, written, &bytes)).await;
            in_time.expect("the capabilities are valid, so the OSTs accept them");
            written += PIECE;
        }
        rt.sleep(LIFE - rt.now().since(since)).await;
        let late = write_all(world, &writer, &files, written, &bytes);
        let mds = async {
            rt.sleep(Duration::from_secs(60)).await;
            start(world, MDS).await.expect("it comes up again")
        };
        nodes.push(tokio::join!(late, mds).1);
        for (fid, file) in &files {
            writer.fsync(file, false).await.expect("all servers are there");
            assert_content(&reader, *fid, &bytes[..written + PIECE]).await;
        }
    })
}

/// The host of an OST fails after writes to files, and stays down until the capabilities are old.
/// Another client removes half of them. The writes to the others are replayed.
pub fn without_ost(seed: u64, log: usize) -> Trace {
    simulate(seed, log, calm(), async |world: &World| {
        let mut nodes = start_all(world).await;
        let (writer, other) = (mount(world, CLIENTS[0]).await, mount(world, CLIENTS[1]).await);
        let bytes = noise(seed, PIECE);
        let mut files = Vec::new();
        for name in NAMES {
            files.push(create(&writer, name).await);
        }
        for (_, file) in &files {
            write(&writer, file, 0, &bytes).await;
        }
        let (ost, rt) = ((seed % 4) as usize, world.rt(CLIENTS[1]));
        for (_, file) in &files[..4] {
            writer.release(file.clone()).await.expect("it is open");
        }
        world.crash_host(OSSES[ost]);
        rt.sleep(Duration::from_secs(1)).await;
        // Each OST has objects of two of all files.
        for removed in &NAMES[..4] {
            other.unlink(USER, ROOT, &(*removed).into()).await.expect("it is there");
        }
        rt.sleep(FRESH).await;
        nodes.push(start(world, OSSES[ost]).await.expect("it comes up again"));
        for (fid, file) in &files[4..] {
            writer.fsync(file, false).await.expect("no change is lost");
            assert_content(&other, *fid, &bytes).await;
        }
    })
}
