//! Mirrored files while an OST is down. Files whose mirrors are in sync stay readable, and data
//! written during the outage is read back afterwards.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sheen_client::{Caller, Client};
use sheen_layout::{Asked, Count, Spec, Template, TemplateComponent};
use sheen_rt::sim::World;
use sheen_wire::{Bulk, Fid, FileKind, fid::ROOT, mds::flags};

use super::{
    CLIENTS, OSSES,
    cluster::{bad_network_config, mount, start, start_all},
    copy::resync,
    scenario::{Trace, simulate},
    striping::layout,
};
use crate::noise;

const ROOT_USER: &Caller = &Caller::ROOT;
/// Size of the file in bytes.
const SIZE: usize = 300_000;
/// Time limit for reading the whole file while its first mirror is down. Clients need a while to
/// detect a broken connection.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Takes down each of two OSTs that have a mirror once. During the outage all clients read and one
/// writes.
pub fn read_through_outages(seed: u64, log: usize) -> Trace {
    simulate(seed, log, bad_network_config(seed), async |world| {
        let mut nodes = start_all(world).await;
        let mut clients = Vec::new();
        for host in CLIENTS {
            clients.push(mount(world, host).await);
        }
        let osts = [(seed % 4) as u32, ((seed + 1 + seed / 4 % 3) % 4) as u32];
        let fid = mirrored(&clients[0], osts).await;
        let mut bytes = noise(seed, SIZE);
        write(&clients[0], fid, 0, bytes.clone()).await;
        for (turn, ost) in osts.into_iter().enumerate() {
            let stale = layout(&clients[0], fid).await.expect("it is there").stale_mirrors();
            assert_eq!(stale.len(), 1, "only the mirror that was not written is stale");
            resync(&clients[0], &world.rt(CLIENTS[0]), fid, &stale).await.expect("no client writes");
            let host = OSSES[ost as usize];
            world.note(&format!("OST {ost} goes down"));
            world.crash_host(host);
            all_read(world, &clients, fid, &bytes).await;
            let (at, more) = (seed % 200_000 + turn as u64 * 50_000, noise(seed + 1, 10_000));
            bytes[at as usize..at as usize + more.len()].copy_from_slice(&more);
            let writer = clients[1 + turn].clone();
            let writing =
                world.rt(CLIENTS[1 + turn]).spawn("write", async move { write(&writer, fid, at, more).await });
            // The write may finish before the restart, or wait for it.
            world.rt(CLIENTS[0]).sleep(Duration::from_millis(seed * 37 % 5000)).await;
            nodes.push(start(world, host).await.expect("it comes up again"));
            writing.await.expect("clients do not crash");
            all_read(world, &clients, fid, &bytes).await;
        }
    })
}

/// Creates a file with one mirror on each of these OSTs.
async fn mirrored(client: &Client, osts: [u32; 2]) -> Fid {
    let mode = FileKind::Regular.mode_bits() | 0o644;
    let made = client.mknod(ROOT_USER, ROOT, &"file".into(), mode, 0, 0).await.expect("the root is empty");
    let spec =
        |ost| Spec { stripe_size: Some(64 << 10), count: Some(Count::Stripes(1)), start: Some(ost), ..Spec::default() };
    let components = osts.map(|ost| TemplateComponent::striped(0, u64::MAX, spec(ost))).to_vec();
    let asked = Asked::Composite(Template { components, mirrors: 2 }).encode();
    let lov = Bytes::from_static(b"lustre.lov");
    client.setxattr(ROOT_USER, made.attr.fid, &lov, &asked.into(), 0).await.expect("it has no layout");
    made.attr.fid
}

async fn write(client: &Client, fid: Fid, at: u64, bytes: Vec<u8>) {
    let file = client.open(ROOT_USER, fid, flags::RDWR).await.expect("it is there");
    let len = bytes.len();
    assert_eq!(client.write(&file, at, Bulk::from(Bytes::from(bytes))).await, Ok(len));
    assert_eq!(client.fsync(&file, false).await, Ok(()));
    client.release(file).await.expect("it is open");
}

/// Reads the whole file on all clients at once, and asserts its content.
async fn all_read(world: &World, clients: &[Arc<Client>], fid: Fid, bytes: &[u8]) {
    let reading = clients.iter().zip(CLIENTS).map(|(client, host)| {
        let client = client.clone();
        world.rt(host).spawn("read", async move {
            let file = client.open(ROOT_USER, fid, flags::RDONLY).await.expect("it is there");
            let read = client.read(&file, 0, 2 * SIZE).await.expect("one mirror is available").into_bytes();
            client.release(file).await.expect("it is open");
            read
        })
    });
    for (client, reading) in reading.collect::<Vec<_>>().into_iter().enumerate() {
        let read = world.rt(CLIENTS[0]).timeout(READ_TIMEOUT, reading).await;
        let read = read.unwrap_or_else(|_| panic!("client {client} still waits")).expect("clients do not crash");
        assert!(read == bytes, "client {client} reads other bytes");
    }
}
