//! Files that are read, and closed around a crash of the MDS. Their access times must be those of
//! the closes, however long these wait for the MDT.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use sheen_client::{Caller, Client, OpenFile};
use sheen_rt::sim::{SimConfig, World};
use sheen_wire::{Bulk, Fid, FileKind, Time, fid::ROOT, mds::flags};

use super::{
    CLIENTS, MDS,
    cluster::{mount, start, start_some},
    lost_client::random,
    scenario::{Trace, simulate},
};

const USER: &Caller = &Caller::ROOT;
/// The files.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Bytes of a file.
const LEN: usize = 1000;
/// Time between the first close and the crash, at most: about a round trip.
const CLOSED_MAX: Duration = Duration::from_millis(1);
/// Time between two closes while the MDS is down, at most.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// Time for which the MDS is down after the last close, at most.
const DOWN_MAX: Duration = Duration::from_secs(60);
/// Time for which the recovery waits for a client, at most.
const RECOVERY_MAX: Duration = Duration::from_secs(20);
/// Time between the end of the closes and the second crash, at most.
const UNCOMMITTED_MAX: Duration = Duration::from_millis(150);
const POLL: Duration = Duration::from_millis(1);
/// Access times may be later than the closes by the time on the network.
const NETWORK_MAX: Duration = Duration::from_secs(1);

/// Creates a file, reads it, and leaves it open.
async fn read_file(client: &Client, name: &'static str) -> (Fid, Arc<OpenFile>) {
    let mode = FileKind::Regular.mode_bits() | 0o644;
    let fid = client.mknod(USER, ROOT, &name.into(), mode, 0, 0).await.expect("the root is empty").attr.fid;
    let written = client.open(USER, fid, flags::RDWR).await.expect("it is there");
    assert_eq!(client.write(&written, 0, Bulk::from(Bytes::from(vec![1; LEN]))).await, Ok(LEN));
    client.release(written).await.expect("it is open");
    let file = client.open(USER, fid, flags::RDONLY).await.expect("it is there");
    assert_eq!(client.read(&file, 0, LEN).await.map(|read| read.into_bytes().len()), Ok(LEN));
    (fid, file)
}

async fn access_time(client: &Client, fid: Fid) -> Time {
    client.getattr(fid, None).await.expect("it is there").attr.atime
}

/// Returns the time since 1970.
fn since_1970(time: Time) -> Duration {
    Duration::new(time.sec as u64, time.nsec)
}

fn assert_time(found: Time, closed: Time, what: &str) {
    let (found, closed) = (since_1970(found), since_1970(closed));
    assert!(found >= closed && found <= closed + NETWORK_MAX, "{what}: accessed at {found:?}, closed at {closed:?}");
}

/// 1. A client reads files, and closes the first.
/// 2. The power of the MDS fails. The client closes the others.
/// 3. The MDS starts again. Its recovery waits for another client.
/// 4. The power of the MDS fails again: the client replays the closes.
pub fn late_closes(seed: u64, log: usize) -> Trace {
    let config = SimConfig { time_max: Duration::from_secs(3600), ..SimConfig::default() };
    simulate(seed, log, config, async |world: &World| {
        let mut rng = Rng::with_seed(seed ^ 0xa71e);
        let mut nodes = start_some(world, 1, false).await;
        let (reader, other) = (mount(world, CLIENTS[0]).await, mount(world, CLIENTS[1]).await);
        other.mkdir(USER, ROOT, &"other".into(), 0o755, 0).await.expect("the root is empty");
        let (mut files, mut before) = (Vec::new(), Vec::new());
        for name in NAMES {
            files.push(read_file(&reader, name).await);
        }
        assert_eq!(reader.syncfs().await, Ok(()));
        for (fid, _) in &files {
            before.push(access_time(&reader, *fid).await);
        }
        let rt = world.rt(CLIENTS[0]);
        let close = |file: &Arc<OpenFile>| {
            let (client, file) = (reader.clone(), file.clone());
            (rt.wall(), rt.spawn("close", async move { client.release(file).await }))
        };
        // Later than the changes of the files.
        rt.sleep(PAUSE_MAX).await;
        let mut closes = vec![close(&files[0].1)];
        rt.sleep(random(&mut rng, CLOSED_MAX)).await;
        world.note("the power of the MDS fails");
        world.crash_host(MDS);
        world.partition(CLIENTS[1], MDS);
        for (_, file) in &files[1..] {
            rt.sleep(random(&mut rng, PAUSE_MAX)).await;
            closes.push(close(file));
        }
        rt.sleep(random(&mut rng, DOWN_MAX)).await;
        nodes.push(start(world, MDS).await.expect("nothing else crashes it"));
        rt.sleep(random(&mut rng, RECOVERY_MAX)).await;
        world.heal(CLIENTS[1], MDS);
        let mut closed = Vec::new();
        for (at, closing) in closes {
            closed.push(at);
            assert_eq!(closing.await.expect("clients do not crash"), Ok(()));
        }
        for (n, (fid, _)) in files.iter().enumerate() {
            while access_time(&reader, *fid).await == before[n] {
                rt.sleep(POLL).await;
            }
            assert_time(access_time(&reader, *fid).await, closed[n], NAMES[n]);
        }
        rt.sleep(random(&mut rng, UNCOMMITTED_MAX)).await;
        world.note("the power of the MDS fails again");
        world.crash_host(MDS);
        nodes.push(start(world, MDS).await.expect("nothing else crashes it"));
        for (n, (fid, _)) in files.iter().enumerate() {
            assert_time(access_time(&other, *fid).await, closed[n], NAMES[n]);
        }
        drop(nodes);
    })
}
