//! The write-back cache, over fake OSTs that are slow, full, restarted, or revoke locks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::fake::{FakeOst, Mounted, ROOT, bulk, name, root, with, with_tcp};
use sheen_client::OpenFile;
use sheen_rt::sim::{Sim, SimConfig};
use sheen_wire::{
    Errno, Fid, Ost,
    ldlm::{Mode, Policy, Resource},
    mds::{SetAttr, flags},
};

const PIECE: usize = 4096;
const WHOLE: Policy = Policy::extent(0, u64::MAX);
/// Longer than data stays dirty.
const LONG: Duration = Duration::from_secs(2);

/// Creates a file and writes its first bytes, so that its OSTs have granted space.
async fn file(m: &Mounted, called: &str) -> Arc<OpenFile> {
    {
        let mut state = m.world.state.lock();
        state.habits.grants_space = true;
        state.locks.on = true;
    }
    let flags = flags::RDWR | flags::CREAT;
    let file = m.client.create(&ROOT, root(), &name(called), flags, 0o644, 0).await.expect("create").1;
    write(m, &file, 0, &[1; PIECE]).await;
    m.world.asked();
    file
}

async fn write(m: &Mounted, file: &OpenFile, at: usize, bytes: &[u8]) {
    assert_eq!(m.client.write(file, at as u64, bulk(bytes)).await, Ok(bytes.len()));
}

async fn pause(m: &Mounted, time: Duration) {
    m.net.rt().sleep(time).await;
}

async fn size(m: &Mounted, file: &OpenFile) -> u64 {
    m.client.getattr(file.fid(), None).await.expect("stat").attr.size
}

/// Returns the only object.
fn object(m: &Mounted) -> Fid {
    m.world.state.lock().objects.keys().next().expect("an object").1
}

/// Returns the bytes of the only object on the OST.
fn stored(m: &Mounted) -> Vec<u8> {
    m.world.state.lock().objects.values().next().expect("an object").data.clone()
}

fn number(m: &Mounted, param: &str) -> u64 {
    let found = m.params.get(&format!("osc.*.{param}")).expect("a parameter");
    found.iter().map(|p| p.value.trim().parse::<u64>().expect("a number")).sum()
}

fn writes(log: &[String]) -> Vec<&str> {
    log.iter().filter(|line| line.contains(" write ")).map(String::as_str).collect()
}

#[test]
fn small_writes_are_flushed_together_by_age() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        for i in 1..100 {
            write(&m, &file, i * PIECE, &[i as u8; PIECE]).await;
        }
        let log = m.world.asked();
        assert_eq!(log, ["ost0 ldlm_enqueue locks=1"], "one lock for all");
        assert_eq!(number(&m, "cur_dirty_bytes"), 99 * PIECE as u64);
        let granted = number(&m, "cur_grant_bytes");
        assert_eq!(size(&m, &file).await, 100 * PIECE as u64, "the size includes dirty data");
        m.world.asked();
        pause(&m, LONG).await;
        assert_eq!(m.world.asked(), ["ost0 write parts=1 len=405504 sync=false"]);
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
        assert!(number(&m, "cur_grant_bytes") >= granted, "the OST grants new space for the used one");
        assert_eq!(m.world.state.lock().habits.used, 99 * PIECE as u64);
        let want: Vec<u8> = (0..100).flat_map(|i| [i.max(1); PIECE]).collect();
        assert!(stored(&m) == want);
    });
}

#[test]
fn write_without_grant_is_not_buffered() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        // The first grant does not last for ever.
        m.world.state.lock().habits.grants_space = false;
        for i in 1..4096 {
            write(&m, &file, i * PIECE, &[i as u8; PIECE]).await;
            let (dirty, grant) = (number(&m, "cur_dirty_bytes"), number(&m, "cur_grant_bytes"));
            assert!(dirty + grant <= 8 << 20, "{dirty} bytes are dirty, and {grant} may become dirty");
        }
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        m.world.asked();
        for i in 0..5 {
            write(&m, &file, i * PIECE, &[7; PIECE]).await;
        }
        assert_eq!(writes(&m.world.asked()), ["ost0 write parts=1 len=4096 sync=false"; 5]);
    });
}

/// Requests overtake one another, but the last write to a byte must win.
#[test]
fn overlapping_writes_end_with_the_last_data() {
    const SPACE: usize = 100_000;
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        m.params.set("osc.*.max_pages_per_rpc", "4").unwrap();
        m.world.state.lock().delay = Duration::from_millis(20);
        let rt = m.net.rt().clone();
        let below = |n: usize| (rt.random_u64() % n as u64) as usize;
        let mut want = vec![0; SPACE];
        write(&m, &file, 0, &want).await;
        for round in 0..600 {
            let (at, len) = (below(SPACE - 9000), 1 + below(9000));
            let bytes = vec![round as u8; len];
            write(&m, &file, at, &bytes).await;
            want[at..at + len].copy_from_slice(&bytes);
            match below(20) {
                0 => pause(&m, Duration::from_millis(below(800) as u64)).await,
                // A flush that is not awaited: more data is written while its requests are in
                // flight.
                1 => {
                    let (client, file) = (m.client.clone(), file.clone());
                    drop(rt.spawn("fsync", async move { client.fsync(&file, false).await }));
                }
                2 => {
                    let (from, len) = (below(SPACE), 1 + below(20_000));
                    let back = m.client.read(&file, from as u64, len).await.unwrap().into_bytes();
                    assert!(back == want[from..SPACE.min(from + len)], "round {round}: reads the last write");
                }
                _ => {}
            }
        }
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(stored(&m) == want);
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
    });
}

#[test]
fn failed_flush_is_reported_once() {
    with(1, 65536, &[0], async |m| {
        let (file, other) = (file(&m, "f").await, file(&m, "g").await);
        write(&m, &file, PIECE, &[2; PIECE]).await;
        m.world.state.lock().full.insert(0);
        pause(&m, LONG).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), 0, "it is not tried for ever");
        assert_eq!(m.client.fsync(&other, false).await, Ok(()), "another file is not affected");
        assert_eq!(m.client.fsync(&file, false).await, Err(Errno::ENOSPC));
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert_eq!(m.client.syncfs().await, Err(Errno::EIO), "a sync of all files reports it as well");
        assert_eq!(m.client.syncfs().await, Ok(()));
        m.world.state.lock().full.clear();
        write(&m, &file, PIECE, &[3; PIECE]).await;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(stored(&m)[PIECE..] == [3; PIECE]);
    });
}

#[test]
fn fsync_reports_flushed_data_that_a_power_failure_lost() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        write(&m, &file, PIECE, &[2; PIECE]).await;
        pause(&m, LONG).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), 0, "the data is flushed, and not yet durable");
        *m.world.state.lock().epochs.entry(0).or_insert(1) += 1;
        assert_eq!(m.client.fsync(&file, false).await, Err(Errno::EIO));
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
    });
}

/// An error belongs to the file, not to the descriptor.
#[test]
fn fsync_reports_flush_error_after_reopen() {
    with(1, 65536, &[0], async |m| {
        let open = file(&m, "f").await;
        let fid = open.fid();
        write(&m, &open, PIECE, &[2; PIECE]).await;
        m.world.state.lock().full.insert(0);
        m.client.release(open).await.unwrap();
        pause(&m, LONG).await;
        let again = m.client.open(&ROOT, fid, flags::RDWR).await.unwrap();
        assert_eq!(m.client.fsync(&again, false).await, Err(Errno::ENOSPC));
    });
}

#[test]
fn write_refused_with_lock_first_is_repeated_under_lock() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let large = vec![5; 1 << 20];
        m.world.state.lock().habits.lock_first = 1;
        write(&m, &file, 0, &large).await;
        let write_rpc = "ost0 write parts=1 len=1048576 sync=false";
        assert_eq!(m.world.asked(), [write_rpc, "ost0 ldlm_enqueue locks=1", write_rpc]);
        assert!(stored(&m) == large);
        // The flush of cached data has its lock, so the request is only repeated.
        write(&m, &file, 0, &[6; PIECE]).await;
        m.world.state.lock().habits.lock_first = 3;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert_eq!(writes(&m.world.asked()).len(), 4);
        assert!(stored(&m)[..PIECE] == [6; PIECE]);
    });
}

/// An OST that holds too many bytes of waiting writes answers like this also under a lock.
#[test]
fn write_refused_with_lock_first_under_lock_is_repeated_after_pauses() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        m.world.state.lock().habits.lock_first = 20;
        let before = m.net.rt().now();
        write(&m, &file, 0, &vec![5; 1 << 20]).await;
        assert_eq!(writes(&m.world.asked()).len(), 21);
        assert!(m.net.rt().now().since(before) > Duration::from_secs(1));
    });
}

#[test]
fn write_bypasses_cache_while_owner_is_near_limit() {
    const WRITE_RPC: &str = "ost0 write parts=1 len=4096 sync=false";
    with(1, 65536, &[0], async |m| {
        let (file, other) = (file(&m, "f").await, file(&m, "g").await);
        write(&m, &file, PIECE, &[2; PIECE]).await;
        m.world.state.lock().habits.tight = true;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        // Other replies do not end it.
        m.world.state.lock().habits.tight = false;
        m.world.asked();
        for i in 0..3 {
            write(&m, &file, i * PIECE, &[3; PIECE]).await;
        }
        assert_eq!(m.world.asked(), [WRITE_RPC; 3]);
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
        m.world.state.lock().habits.write_error = Some(Errno::EDQUOT);
        assert_eq!(m.client.write(&file, 0, bulk(&[4; PIECE])).await, Err(Errno::EDQUOT));
        m.world.state.lock().habits.write_error = None;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()), "the program knows it already");
        m.world.asked();
        write(&m, &other, PIECE, &[2; PIECE]).await;
        assert_eq!(writes(&m.world.asked()), [""; 0], "the writes to another file are cached");
        pause(&m, Duration::from_secs(11)).await;
        m.world.asked();
        write(&m, &file, PIECE, &[5; PIECE]).await;
        assert_eq!(writes(&m.world.asked()), [""; 0]);
    });
}

#[test]
fn reply_to_open_or_lock_request_keeps_write_out_of_cache() {
    const WRITE_RPC: &str = "ost0 write parts=1 len=4096 sync=false";
    with(1, 65536, &[0], async |m| {
        let locked = file(&m, "f").await;
        m.world.state.lock().habits.tight = true;
        write(&m, &locked, PIECE, &[2; PIECE]).await;
        assert_eq!(m.world.asked(), ["ost0 ldlm_enqueue locks=1", WRITE_RPC]);
        {
            let mut state = m.world.state.lock();
            (state.habits.tight, state.habits.tight_opens) = (false, true);
        }
        let opened = file(&m, "g").await;
        write(&m, &opened, PIECE, &[3; PIECE]).await;
        assert_eq!(m.world.asked(), [WRITE_RPC]);
    });
}

#[test]
fn changes_name_the_file_of_their_objects() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let fid = file.fid();
        let named = || std::mem::take(&mut m.world.state.lock().habits.files);
        assert_eq!(named(), BTreeSet::from([("write", fid)]));
        write(&m, &file, PIECE, &[2; PIECE]).await;
        assert_eq!(named(), BTreeSet::new(), "cached");
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert_eq!(named(), BTreeSet::from([("write", fid)]));
        m.client.fallocate(&file, 0, 0, 8192).await.unwrap();
        let cut = SetAttr { size: Some(5), ..SetAttr::default() };
        m.client.setattr(&ROOT, fid, cut, Some(&file)).await.unwrap();
        assert_eq!(named(), BTreeSet::from([("fallocate", fid), ("punch", fid)]));
    });
}

#[test]
fn glimpse_returns_dirty_size_without_flush() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let before = m.net.rt().wall();
        write(&m, &file, 10 * PIECE, &[2; 5000]).await;
        m.world.asked();
        assert_eq!(m.world.glimpse(object(&m)), 1);
        pause(&m, Duration::from_millis(10)).await;
        assert_eq!(m.world.asked(), ["ost0 ldlm_glimpse"]);
        let answers = std::mem::take(&mut m.world.state.lock().habits.glimpsed);
        let [(_, Some(known))] = answers[..] else { panic!("{answers:?}") };
        assert_eq!((known.size, known.blocks), (10 * PIECE as u64 + 5000, 16));
        assert!(known.mtime >= Some(before) && known.mtime <= Some(m.net.rt().wall()));
        assert_eq!(
            m.client.getattr(file.fid(), None).await.unwrap().attr.mtime,
            known.mtime.unwrap(),
            "this mount sees the same"
        );

        // Also while the data is in flight, because it is not on the OST yet.
        m.world.state.lock().habits.hold = true;
        pause(&m, LONG).await;
        assert_eq!(m.world.glimpse(object(&m)), 1);
        pause(&m, Duration::from_millis(10)).await;
        let answers = std::mem::take(&mut m.world.state.lock().habits.glimpsed);
        assert!(matches!(answers[..], [(_, Some(attr))] if attr.size == known.size && attr.mtime == known.mtime));
        assert_eq!(size(&m, &file).await, known.size);

        m.world.state.lock().habits.hold = false;
        pause(&m, LONG).await;
        assert_eq!(m.world.glimpse(object(&m)), 1);
        pause(&m, Duration::from_millis(10)).await;
        let answers = std::mem::take(&mut m.world.state.lock().habits.glimpsed);
        assert!(matches!(answers[..], [(_, None)]), "the OST has all data: {answers:?}");
        assert_eq!(
            m.client.getattr(file.fid(), None).await.unwrap().attr.mtime,
            known.mtime.unwrap(),
            "the flush does not change the time"
        );
    });
}

#[test]
fn dirty_data_is_flushed_before_lock_cancel() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        write(&m, &file, PIECE, &[2; PIECE]).await;
        m.world.state.lock().delay = Duration::from_millis(50);
        m.world.asked();
        assert_eq!(m.world.want(object(&m), Mode::Pr, WHOLE), 1);
        pause(&m, Duration::from_millis(600)).await;
        assert_eq!(m.world.asked(), ["ost0 write parts=1 len=4096 sync=false", "ost0 ldlm_cancel locks=1"]);
        let object = Resource::extent(object(&m));
        assert_eq!(m.world.state.lock().locks.count(object), 0);
        // The next write requests a lock again.
        write(&m, &file, PIECE, &[3; PIECE]).await;
        assert!(m.world.asked().contains(&"ost0 ldlm_enqueue locks=1".into()));
    });
}

#[test]
fn dirty_data_of_removed_object_is_discarded() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let granted = number(&m, "cur_grant_bytes");
        for i in 1..50 {
            write(&m, &file, i * PIECE, &[2; PIECE]).await;
        }
        assert_eq!(number(&m, "cur_dirty_bytes"), 49 * PIECE as u64);
        m.world.asked();
        assert_eq!(m.world.want(object(&m), Mode::Ex, WHOLE), 1);
        pause(&m, LONG).await;
        assert_eq!(m.world.asked(), ["ost0 ldlm_cancel locks=1"], "the object is removed");
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
        assert!(number(&m, "cur_grant_bytes") >= granted, "the grant is free again");
        assert_eq!(m.client.fsync(&file, false).await, Ok(()), "nothing went wrong");
    });
}

#[test]
fn read_truncate_and_large_write_flush_dirty_data_first() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let ops = |log: &[String]| -> Vec<String> {
            let osts = log.iter().filter_map(|l| l.strip_prefix("ost0 ")).map(|l| l.split(' ').next().unwrap());
            osts.filter(|op| !op.starts_with("ldlm")).map(str::to_owned).collect()
        };
        let keep = async || {
            write(&m, &file, PIECE, &[2; PIECE]).await;
            m.world.asked();
        };
        keep().await;
        assert!(m.client.read(&file, 0, 3 * PIECE).await.unwrap().into_bytes()[PIECE..] == [2; PIECE]);
        assert_eq!(ops(&m.world.asked())[..2], ["write", "read"]);
        keep().await;
        let set = SetAttr { size: Some(PIECE as u64 + 10), ..SetAttr::default() };
        m.client.setattr(&ROOT, file.fid(), set, None).await.unwrap();
        assert_eq!(ops(&m.world.asked())[..2], ["write", "punch"]);
        assert_eq!(size(&m, &file).await, PIECE as u64 + 10);
        keep().await;
        m.client.fallocate(&file, 3, PIECE as u64, 100).await.unwrap();
        assert_eq!(ops(&m.world.asked())[..2], ["write", "fallocate"]);
        assert!(stored(&m)[PIECE..PIECE + 100] == [0; 100]);
        keep().await;
        write(&m, &file, 0, &vec![9; 1 << 20]).await;
        assert_eq!(ops(&m.world.asked())[..2], ["write", "write"]);
        assert!(stored(&m) == vec![9; 1 << 20]);
        keep().await;
        assert_eq!(m.client.write_as(&file, 0, bulk(b"tail"), true, false).await, Ok(4));
        assert_eq!(&stored(&m)[1 << 20..], b"tail");
        keep().await;
        assert_eq!(m.client.write_as(&file, PIECE as u64, bulk(b"sync"), false, true).await, Ok(4));
        assert_eq!(&stored(&m)[PIECE..PIECE + 4], b"sync");
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert_eq!(&stored(&m)[PIECE..PIECE + 6], b"sync\x02\x02", "the dirty data around it");
    });
}

/// After an eviction, other clients may have written.
#[test]
fn eviction_discards_dirty_data_and_fsync_reports_it() {
    with_tcp(1, 65536, &[0], async |m| {
        let (file, other) = (file(&m, "f").await, file(&m, "g").await);
        m.world.state.lock().habits.hold = true;
        // Some of the data is in flight, some is not.
        write(&m, &file, PIECE, &[2; PIECE]).await;
        pause(&m, LONG).await;
        write(&m, &file, PIECE, &[3; PIECE]).await;
        write(&m, &file, 9 * PIECE, &[3; PIECE]).await;
        let object = object(&m);
        {
            let mut state = m.world.state.lock();
            state.locks.held.clear();
            let export = state.locks.osts.remove(&0).expect("the client is connected");
            drop(state);
            export.evict("test");
        }
        pause(&m, Duration::from_millis(500)).await;
        m.world.state.lock().habits.hold = false;
        pause(&m, LONG).await;
        // The request that the server had begun may be executed, but no other data arrives.
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
        let stored = || m.world.state.lock().objects[&(0, object)].data.clone();
        assert!(stored().len() <= 2 * PIECE && !stored().contains(&3), "no later data arrives");
        assert_eq!(m.client.fsync(&other, false).await, Ok(()), "another file is not affected");
        assert_eq!(m.client.fsync(&file, false).await, Err(Errno::EIO));
        assert_eq!(m.client.fsync(&file, false).await, Ok(()), "reported once");
        // The write-back cache works again.
        for i in 0..10 {
            write(&m, &file, i * PIECE, &[4; PIECE]).await;
        }
        assert!(number(&m, "cur_dirty_bytes") > 0, "data is cached again");
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(stored() == vec![4; 10 * PIECE]);
    });
}

#[test]
fn dirty_data_is_written_after_ost_restart() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        for i in 1..10 {
            write(&m, &file, i * PIECE, &[2; PIECE]).await;
        }
        m.server.remove("sheen-OST0000");
        {
            let mut state = m.world.state.lock();
            state.habits.restarts = 1;
            state.locks.held.clear();
        }
        pause(&m, LONG).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), 9 * PIECE as u64, "dirty as long as the OST is down");
        m.server.add::<Ost>("sheen-OST0000", Arc::new(FakeOst(m.world.clone(), 0)));
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        let mut want = vec![2; 10 * PIECE];
        want[..PIECE].fill(1);
        assert!(stored(&m) == want);
    });
}

/// Creates a file whose writes are cached even while its OST is down: there is a lock and a grant.
async fn locked_file(m: &Mounted, called: &str) -> Arc<OpenFile> {
    let file = file(m, called).await;
    write(m, &file, PIECE, &[1; PIECE]).await;
    assert_eq!(m.client.fsync(&file, false).await, Ok(()));
    file
}

/// Stops the only OST. Once restarted, it grants nothing.
fn stop_ost(m: &Mounted) {
    m.server.remove("sheen-OST0000");
    let mut state = m.world.state.lock();
    state.habits.restarts += 1;
    state.habits.grants_space = false;
    state.habits.used = 0;
}

fn start_ost(m: &Mounted) {
    m.server.add::<Ost>("sheen-OST0000", Arc::new(FakeOst(m.world.clone(), 0)));
}

/// Leaves data in flight to a stopped OST, and later data to the same bytes, which stays dirty.
async fn write_twice(m: &Mounted, file: &OpenFile) {
    write(m, file, PIECE, &[2; PIECE]).await;
    pause(m, LONG).await;
    write(m, file, PIECE, &[3; PIECE]).await;
    assert_eq!(number(m, "cur_dirty_bytes"), 2 * PIECE as u64);
}

#[test]
fn flush_after_ost_restart_uses_no_later_grant() {
    with(1, 65536, &[0], async |m| {
        let file = locked_file(&m, "f").await;
        stop_ost(&m);
        write_twice(&m, &file).await;
        start_ost(&m);
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(stored(&m)[PIECE..] == [3; PIECE]);
        // The request that was in flight during the restart is sent again as it was.
        assert_eq!(m.world.state.lock().habits.used, PIECE as u64);
    });
}

#[test]
fn failed_flush_after_ost_restart_adds_no_grant() {
    with(1, 65536, &[0], async |m| {
        let file = locked_file(&m, "f").await;
        stop_ost(&m);
        write(&m, &file, PIECE, &[2; PIECE]).await;
        m.world.state.lock().full.insert(0);
        start_ost(&m);
        assert_eq!(m.client.fsync(&file, false).await, Err(Errno::ENOSPC));
        assert_eq!(number(&m, "cur_grant_bytes"), 0);
    });
}

#[test]
fn discard_after_ost_restart_adds_no_grant() {
    with(1, 65536, &[0], async |m| {
        let file = locked_file(&m, "f").await;
        stop_ost(&m);
        write_twice(&m, &file).await;
        m.world.state.lock().habits.hold = true;
        start_ost(&m);
        pause(&m, LONG).await;
        m.client.statfs().await.unwrap(); // the fake OST learns of the new connection
        assert!(m.world.want(object(&m), Mode::Ex, WHOLE) > 0);
        pause(&m, LONG).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), PIECE as u64, "the later data is discarded");
        assert_eq!(number(&m, "cur_grant_bytes"), 0);
        m.world.state.lock().habits.hold = false;
        pause(&m, LONG).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
    });
}

#[test]
fn umount_flushes_dirty_data() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        write(&m, &file, PIECE, &[2; PIECE]).await;
        m.client.umount().await;
        assert!(stored(&m)[PIECE..] == [2; PIECE]);
    });
}

/// A program that writes faster than the OST has to wait.
#[test]
fn writer_waits_at_max_dirty_mb() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        m.params.set("osc.*.max_dirty_mb", "1").unwrap();
        m.world.state.lock().delay = Duration::from_millis(10);
        let mut most = 0;
        for i in 0..2000 {
            write(&m, &file, i * PIECE, &[i as u8; PIECE]).await;
            most = most.max(number(&m, "cur_dirty_bytes"));
        }
        assert!((512 << 10..=1 << 20).contains(&most), "{most} bytes");
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        let want: Vec<u8> = (0..2000).flat_map(|i| [i as u8; PIECE]).collect();
        assert!(stored(&m) == want);
    });
}

#[test]
fn flushes_in_flight_are_bounded_by_max_rpcs_in_flight() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        m.params.set("osc.*.max_pages_per_rpc", "1").unwrap();
        m.world.state.lock().habits.hold = true;
        let limit = |n: &str| m.params.set("osc.*.max_rpcs_in_flight", n).unwrap();
        limit("2");
        for i in 0..20 {
            write(&m, &file, i * PIECE, &[i as u8; PIECE]).await;
        }
        for (at_a_time, sent) in [("2", 2), ("5", 5), ("3", 5), ("12", 12)] {
            limit(at_a_time);
            pause(&m, LONG).await;
            assert_eq!(m.world.state.lock().habits.held, sent, "{at_a_time} at a time");
        }
        m.world.state.lock().habits.hold = false;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(stored(&m) == (0..20).flat_map(|i| [i as u8; PIECE]).collect::<Vec<u8>>());
    });
}

#[test]
fn max_rpcs_in_flight_of_one_ost_bounds_flushes_to_it_alone() {
    with(2, 65536, &[0, 1], async |m| {
        let file = file(&m, "f").await;
        // Both OSTs have granted space.
        write(&m, &file, 65_536, &[1; PIECE]).await;
        m.params.set("osc.*.max_pages_per_rpc", "1").unwrap();
        m.world.state.lock().habits.hold = true;
        let limit = |ost: &str, n: &str| m.params.set(&format!("osc.*{ost}*.max_rpcs_in_flight"), n).unwrap();
        limit("OST0000", "3");
        limit("OST0001", "1");
        for i in 0..10 {
            write(&m, &file, i * PIECE, &[2; PIECE]).await;
            write(&m, &file, 65_536 + i * PIECE, &[3; PIECE]).await;
        }
        pause(&m, LONG).await;
        assert_eq!(m.world.state.lock().habits.held, 3 + 1);
        limit("OST0001", "256");
        pause(&m, LONG).await;
        assert_eq!(m.world.state.lock().habits.held, 3 + 10, "all of the other OST");
        m.world.state.lock().habits.hold = false;
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
    });
}

#[test]
fn lock_with_dirty_data_is_cancelled_with_one_request_in_flight() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        m.params.set("osc.*.max_pages_per_rpc", "1").unwrap();
        m.params.set("osc.*.max_rpcs_in_flight", "1").unwrap();
        for i in 0..10 {
            write(&m, &file, i * PIECE, &[4; PIECE]).await;
        }
        let object = object(&m);
        assert_eq!(m.world.want(object, Mode::Pr, WHOLE), 1);
        pause(&m, LONG).await;
        assert_eq!(m.world.state.lock().locks.count(Resource::extent(object)), 0);
        assert!(stored(&m) == [4; 10 * PIECE]);
    });
}

/// The client that holds the lock may wait for one of them.
#[test]
fn refused_flush_does_not_block_flushes_of_other_objects() {
    with(1, 65536, &[0], async |m| {
        let one = file(&m, "f").await;
        let refused = object(&m);
        let other = file(&m, "g").await;
        m.params.set("osc.*.max_rpcs_in_flight", "1").unwrap();
        m.world.state.lock().habits.refused = Some(refused);
        write(&m, &one, 0, &[2; PIECE]).await;
        pause(&m, LONG).await;
        write(&m, &other, PIECE, &[3; PIECE]).await;
        pause(&m, LONG).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), PIECE as u64, "only the refused data");
        m.world.state.lock().habits.refused = None;
        assert_eq!(m.client.fsync(&one, false).await, Ok(()));
        assert_eq!(m.client.fsync(&other, false).await, Ok(()));
        assert!(m.world.state.lock().objects[&(0, refused)].data == [2; PIECE]);
    });
}

#[test]
fn flush_requests_the_grant_that_it_uses() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let granted = number(&m, "cur_grant_bytes");
        for i in 1..100 {
            write(&m, &file, i * PIECE, &[i as u8; PIECE]).await;
        }
        assert!(number(&m, "cur_grant_bytes") < granted);
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(number(&m, "cur_grant_bytes") >= granted);
    });
}

/// Dirty data takes grant in whole blocks.
#[test]
fn flush_of_small_records_requests_the_grant_that_it_uses() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        let granted = number(&m, "cur_grant_bytes");
        for i in 1..200 {
            write(&m, &file, i * 8192, &[i as u8; 100]).await;
        }
        assert_eq!(number(&m, "cur_grant_bytes"), granted - 199 * 4096);
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert!(number(&m, "cur_grant_bytes") >= granted);
    });
}

/// The OSTs together can have more dirty data than the memory has room for.
#[test]
fn dirty_data_of_all_osts_stays_below_half_of_the_memory() {
    const DIRTY_MAX: usize = 20 * PIECE;
    let sim = Sim::new(1, SimConfig { memory_bytes: 2 * DIRTY_MAX as u64, ..SimConfig::default() });
    let rt = sim.rt(1);
    let run = async {
        let m = Mounted::new(rt, 2, 65536, &[0, 1]).await;
        let file = file(&m, "f").await;
        // Both OSTs have granted space.
        write(&m, &file, 65536, &[1; PIECE]).await;
        m.world.asked();
        for i in 0..24 {
            write(&m, &file, i * PIECE, &[i as u8; PIECE]).await;
        }
        assert_eq!(number(&m, "cur_dirty_bytes"), DIRTY_MAX as u64);
        let asked = m.world.asked();
        let sent = writes(&asked);
        assert!(sent.len() == 4 && sent.iter().all(|line| line.contains("parts=1 len=4096")), "{sent:?}");
        assert_eq!(m.client.fsync(&file, false).await, Ok(()));
        assert_eq!(number(&m, "cur_dirty_bytes"), 0);
        let read = m.client.read_as(&file, 0, 24 * PIECE, false).await.expect("read").into_bytes();
        assert!(read[..] == (0..24).flat_map(|i| [i as u8; PIECE]).collect::<Vec<u8>>());
        write(&m, &file, 0, &[7; PIECE]).await;
        assert_eq!(number(&m, "cur_dirty_bytes"), PIECE as u64, "cached again");
    };
    sim.run(run).expect("the simulation ends");
}

#[test]
fn writer_without_room_for_dirty_data_is_listed_as_waiting() {
    with(1, 65536, &[0], async |m| {
        let file = file(&m, "f").await;
        m.params.set("osc.*.max_dirty_mb", "1").unwrap();
        m.world.state.lock().delay = Duration::from_millis(10);
        let (client, writer) = (m.client.clone(), file.clone());
        let writing = m.net.rt().spawn("write", async move {
            for i in 0..2000 {
                assert_eq!(client.write(&writer, i * PIECE as u64, bulk(&[1; PIECE])).await, Ok(PIECE));
            }
        });
        let waits = || m.params.get("llite.*.waits").unwrap()[0].value.clone();
        while !waits().contains("\"kind\": \"dirty\", \"target\": \"sheen-OST0000\"") {
            assert!(!writing.is_finished(), "it waits for room");
            pause(&m, Duration::from_millis(1)).await;
        }
        writing.await.unwrap();
        assert!(!waits().contains("dirty"), "{}", waits());
    });
}

#[test]
fn write_blocked_on_one_ost_releases_locks_of_other_osts() {
    with(2, 65536, &[0, 1], async |m| {
        let file = file(&m, "f").await;
        m.params.set("llite.*.lockless_write_kb", "0").unwrap()[0].result.clone().unwrap();
        write(&m, &file, 65_536, &[1; 300_000]).await;
        // Dirty data for the OST that is then disconnected.
        write(&m, &file, 65_536, &[2; PIECE]).await;
        m.world.state.lock().habits.disconnected = Some(1);
        let (client, writer) = (m.client.clone(), file.clone());
        let writing = m.net.rt().spawn("write", async move { client.write(&writer, 0, bulk(&vec![3; 300_000])).await });
        pause(&m, Duration::from_millis(50)).await;
        let other = m.world.state.lock().objects.keys().find(|(ost, _)| *ost == 0).expect("an object").1;
        let held = || m.world.state.lock().locks.count(Resource::extent(other));
        assert_eq!(m.world.want(other, Mode::Pw, WHOLE), 1);
        pause(&m, Duration::from_millis(50)).await;
        assert_eq!(held(), 1, "in use");
        pause(&m, Duration::from_secs(6)).await;
        assert_eq!(held(), 0);
        assert!(!writing.is_finished());
        m.world.state.lock().habits.disconnected = None;
        assert_eq!(writing.await.unwrap(), Ok(300_000));
        let read = m.client.read_as(&file, 0, 400_000, false).await.unwrap().into_bytes();
        assert_eq!(read[..], [vec![3; 300_000], vec![1; 65_536]].concat());
    });
}

/// Each object gets the locks on its parts of the next records, also of those that cross the end of
/// a stripe unit. An object sees only some of the records, at unequal distances.
#[test]
fn records_at_equal_distances_are_locked_ahead_in_each_object() {
    const RECORD: usize = 47_008;
    with(4, 65536, &[0, 1, 2, 3], async |m| {
        let file = file(&m, "f").await;
        for stripe in 1..4 {
            write(&m, &file, stripe * 65536, &[1; PIECE]).await; // all OSTs have granted space
        }
        m.world.asked();
        for i in 1..40 {
            write(&m, &file, i * 4 * RECORD, &[i as u8; RECORD]).await;
        }
        let log = m.world.asked();
        let requests: Vec<&str> = log.iter().filter(|line| line.contains("enqueue")).map(String::as_str).collect();
        let (one, ahead): (Vec<&str>, Vec<&str>) = requests.iter().partition(|line| line.ends_with("locks=1"));
        assert_eq!(one.len(), 4, "until the stride is known: {requests:?}");
        let each = (0..4).map(|ost| format!("ost{ost} ldlm_enqueue locks=64"));
        assert_eq!(BTreeSet::from_iter(ahead.iter().map(|line| (*line).to_owned())), each.collect());
        assert_eq!(ahead.len(), 4, "each once: {requests:?}");
    });
}
