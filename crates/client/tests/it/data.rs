//! The bytes of a striped file as a program sees them, over fake servers.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::fake::{Mounted, ROOT, bulk, name, root, with, with_tcp};
use proptest::prelude::*;
use sheen_client::{OpenFile, Seek, falloc};
use sheen_wire::{
    Errno, Time,
    mds::{SetAttr, SetTime, flags},
    ost::OBJECT_SIZE_MAX,
};

const KIB: usize = 1024;
const RDWR_CREATE: u32 = flags::RDWR | flags::CREAT;

async fn create(m: &Mounted, file: &str, more: u32) -> Arc<OpenFile> {
    let made = m.client.create(&ROOT, root(), &name(file), RDWR_CREATE | more, 0o644, 0).await;
    made.expect("create").1
}

async fn size(m: &Mounted, file: &OpenFile) -> u64 {
    m.client.getattr(file.fid(), Some(file)).await.expect("stat").attr.size
}

async fn truncate(m: &Mounted, file: &OpenFile, size: u64) -> Result<u64, Errno> {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    m.client.setattr(&ROOT, file.fid(), set, Some(file)).await.map(|a| a.attr.size)
}

/// Returns bytes that depend on where they are written, and are never zero.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (1 + (seed * 31 + i * 7 + i / 251) % 255) as u8).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Write(usize, usize),
    Append(usize),
    Read(usize, usize),
    Truncate(usize),
    Punch(usize, usize),
    Zero(usize, usize, bool),
    Reserve(usize, usize, bool),
    Copy(usize, usize, usize),
    Extents,
}

const SPAN: usize = 1200 * KIB;

fn act() -> impl Strategy<Value = Act> {
    let (at, len) = (0..SPAN, 1..300 * KIB);
    prop_oneof![
        3 => (at.clone(), len.clone()).prop_map(|(a, l)| Act::Write(a, l)),
        1 => (1..100 * KIB).prop_map(Act::Append),
        3 => (at.clone(), len.clone()).prop_map(|(a, l)| Act::Read(a, l)),
        2 => at.clone().prop_map(Act::Truncate),
        1 => (at.clone(), len.clone()).prop_map(|(a, l)| Act::Punch(a, l)),
        1 => (at.clone(), len.clone(), any::<bool>()).prop_map(|(a, l, k)| Act::Zero(a, l, k)),
        1 => (at.clone(), len.clone(), any::<bool>()).prop_map(|(a, l, k)| Act::Reserve(a, l, k)),
        1 => (at.clone(), at, len).prop_map(|(a, b, l)| Act::Copy(a, b, l)),
        1 => Just(Act::Extents),
    ]
}

/// Returns the extents that SEEK_DATA and SEEK_HOLE find.
async fn extents(m: &Mounted, file: &OpenFile) -> Vec<(usize, usize)> {
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        let start = match m.client.lseek(file, at, Seek::Data).await {
            Ok(start) => start,
            Err(Errno::ENXIO) => return found,
            Err(e) => panic!("{e:?}"),
        };
        let end = m.client.lseek(file, start, Seek::Hole).await.expect("a hole follows data");
        assert!(at <= start && start < end, "{at} {start} {end}");
        found.push((start as usize, end as usize));
        at = end;
        if at >= size(m, file).await {
            return found;
        }
    }
}

fn put(model: &mut Vec<u8>, at: usize, data: &[u8]) {
    if model.len() < at + data.len() {
        model.resize(at + data.len(), 0);
    }
    model[at..at + data.len()].copy_from_slice(data);
}

async fn run(m: &Mounted, acts: &[Act]) {
    let file = create(m, "f", 0).await;
    let tail = m.client.open(&ROOT, file.fid(), flags::WRONLY | flags::APPEND).await.unwrap();
    let mut model: Vec<u8> = Vec::new();
    for (i, act) in acts.iter().enumerate() {
        match *act {
            Act::Write(at, len) => {
                let data = pattern(i, len);
                assert_eq!(m.client.write(&file, at as u64, bulk(&data)).await, Ok(len));
                put(&mut model, at, &data);
            }
            Act::Append(len) => {
                let (data, end) = (pattern(i, len), model.len());
                assert_eq!(m.client.write(&tail, 0, bulk(&data)).await, Ok(len));
                put(&mut model, end, &data);
            }
            Act::Read(at, len) => {
                let read = m.client.read(&file, at as u64, len).await.unwrap().into_bytes();
                let want = &model[at.min(model.len())..(at + len).min(model.len())];
                assert!(read == want, "act {i}: read {at}+{len} of {} bytes", model.len());
            }
            Act::Truncate(to) => {
                assert_eq!(truncate(m, &file, to as u64).await, Ok(to as u64));
                model.resize(to, 0);
            }
            Act::Punch(at, len) => {
                let mode = falloc::PUNCH_HOLE | falloc::KEEP_SIZE;
                m.client.fallocate(&file, mode, at as u64, len as u64).await.unwrap();
                let end = (at + len).min(model.len());
                model[at.min(end)..end].fill(0);
            }
            Act::Zero(at, len, keep) | Act::Reserve(at, len, keep) => {
                let zero = matches!(act, Act::Zero(..));
                let mode = if zero { falloc::ZERO_RANGE } else { 0 } | if keep { falloc::KEEP_SIZE } else { 0 };
                m.client.fallocate(&file, mode, at as u64, len as u64).await.unwrap();
                if !keep && model.len() < at + len {
                    model.resize(at + len, 0);
                }
                if zero {
                    let end = (at + len).min(model.len());
                    model[at.min(end)..end].fill(0);
                }
            }
            Act::Copy(from, to, len) => {
                let got = m.client.copy_file_range(&file, from as u64, &file, to as u64, len as u64).await;
                if from.abs_diff(to) < len {
                    assert_eq!(got, Err(Errno::EINVAL));
                } else {
                    let data = model[from.min(model.len())..(from + len).min(model.len())].to_vec();
                    assert_eq!(got, Ok(data.len() as u64));
                    if !data.is_empty() {
                        put(&mut model, to, &data);
                    }
                }
            }
            Act::Extents => {
                let found = extents(m, &file).await;
                let mut covered = vec![false; model.len()];
                found.iter().for_each(|(a, b)| covered[*a..*b].fill(true));
                let lost = model.iter().zip(&covered).position(|(byte, c)| *byte != 0 && !c);
                assert_eq!(lost, None, "act {i}: data that the seeks do not find");
            }
        }
        assert_eq!(size(m, &file).await, model.len() as u64, "after act {i}: {act:?}");
    }
    let all = m.client.read(&file, 0, 4 * SPAN).await.unwrap().into_bytes();
    assert!(all == model, "the whole file");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The file behaves like an array of bytes for any layout and request size, and for fast and
    /// slow OSTs.
    #[test]
    fn operations_on_striped_file_match_array_of_bytes(
        osts in prop::collection::vec(0u32..4, 1..9),
        units in 1u32..4,
        pages in prop::sample::select(vec![1u32, 7, 16, 64, 1024]),
        slow: bool,
        acts in prop::collection::vec(act(), 1..20),
    ) {
        with(4, units << 16, &osts, async |m| {
            m.params.set("osc.*.max_pages_per_rpc", &pages.to_string()).unwrap();
            if slow {
                m.world.state.lock().delay = Duration::from_micros(30);
            }
            run(&m, &acts).await;
        });
    }
}

#[test]
fn io_sends_one_request_per_ost() {
    with(2, 65536, &[0, 1, 0, 1, 0, 1, 0, 1], async |m| {
        let file = create(&m, "f", 0).await;
        m.world.asked();
        m.client.write(&file, 0, bulk(&pattern(1, 1024 * KIB))).await.unwrap();
        let half = "parts=4 len=524288 sync=false";
        assert_eq!(m.world.asked(), [format!("ost0 write {half}"), format!("ost1 write {half}")]);
        m.client.read(&file, 0, 1024 * KIB).await.unwrap();
        assert_eq!(m.world.asked(), ["ost0 read parts=4", "ost1 read parts=4"]);
        size(&m, &file).await;
        assert_eq!(m.world.asked(), ["mds getattr", "ost0 getattr objects=4", "ost1 getattr objects=4"]);
        m.client.fsync(&file, false).await.unwrap();
        assert_eq!(m.world.asked(), ["ost0 sync objects=4", "ost1 sync objects=4", "mds sync"]);
        let set = m.params.set("osc.*.max_pages_per_rpc", "32").unwrap();
        assert!(set.iter().all(|s| s.result.is_ok()));
        m.client.write(&file, 0, bulk(&pattern(1, 512 * KIB))).await.unwrap();
        assert_eq!(m.world.asked().len(), 4, "128 KiB a request");
    });
}

#[test]
fn large_lone_read_over_tcp_is_split_in_halves() {
    const LEN: usize = 1024 * KIB;
    with_tcp(2, 1 << 20, &[1], |m| async move {
        let file = create(&m, "f", 0).await;
        let data = pattern(1, 2 * LEN - 5);
        for at in [0, LEN] {
            m.client.write(&file, at as u64, bulk(&data[at..data.len().min(at + LEN)])).await.expect("write");
        }
        m.world.asked();
        // A read of the whole; from an unaligned offset; that ends in the second half, in the first
        // half, and past the end.
        for (at, halves) in [(0, 2), (333, 2), (LEN, 2), (2 * LEN - 300 * KIB, 2), (2 * LEN, 2)] {
            let got = m.client.read(&file, at as u64, LEN).await.expect("read").into_bytes();
            assert!(got == data[at.min(data.len())..data.len().min(at + LEN)], "at {at}");
            let asked = m.world.asked();
            assert_eq!(asked[..halves], vec!["ost1 read parts=1"; halves], "at {at}");
            // Past the end, the client asks: another client may have dirty data there.
            let short = at + LEN > data.len();
            assert_eq!(asked[halves..], vec!["ost1 getattr objects=1"; usize::from(short)], "at {at}");
        }
        m.client.read(&file, 0, 256 * KIB).await.expect("read");
        assert_eq!(m.world.asked(), ["ost1 read parts=1"], "a small read is not split");
        // Two at once: the first one does not know of the second.
        let (a, b) = tokio::join!(m.client.read(&file, 0, LEN), m.client.read(&file, LEN as u64, LEN));
        assert!(a.expect("read").into_bytes() == data[..LEN] && b.expect("read").into_bytes() == data[LEN..]);
        let reads = m.world.asked().into_iter().filter(|a| a.contains("read")).count();
        assert_eq!(reads, 3, "the second is not alone");
        m.client.read(&file, 0, LEN).await.expect("read");
        assert_eq!(m.world.asked().len(), 2, "alone again");
    });
}

#[test]
fn read_queries_size_only_if_bytes_are_missing_at_the_end() {
    with(2, 65536, &[0, 1], async |m| {
        let file = create(&m, "f", 0).await;
        m.client.write(&file, 64 * KIB as u64, bulk(&[7; 10])).await.unwrap();
        m.world.asked();
        let read = m.client.read(&file, 0, 64 * KIB + 10).await.unwrap().into_bytes();
        assert!(read[..64 * KIB].iter().all(|b| *b == 0) && read[64 * KIB..] == [7; 10]);
        assert!(m.world.asked().iter().all(|a| a.contains("read")), "data behind the hole shows that it is one");
        assert_eq!(m.client.read(&file, 0, 200 * KIB).await.unwrap().len(), 64 * KIB + 10);
        assert!(m.world.asked().iter().any(|a| a.contains("getattr")));
    });
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f", 0).await;
        m.client.write(&file, 0, bulk(&[7; 10])).await.unwrap();
        m.world.asked();
        assert_eq!(m.client.read(&file, 0, 4096).await.unwrap().len(), 10);
        assert_eq!(
            m.world.asked(),
            ["ost0 read parts=1", "ost0 getattr objects=1"],
            "another client may have dirty data"
        );
        assert!(m.client.read(&file, 10, 4096).await.unwrap().is_empty());
    });
}

#[test]
fn operations_over_lo_complete_at_first_poll() {
    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(out) => out,
            Poll::Pending => panic!("the operation is pending"),
        }
    }
    with(4, 65536, &[0, 1, 2, 3], async |m| {
        let c = &m.client;
        let (_, file) = now(c.create(&ROOT, root(), &name("f"), RDWR_CREATE, 0o644, 0)).unwrap();
        assert_eq!(now(c.write(&file, 0, bulk(&pattern(1, 1024 * KIB)))), Ok(1024 * KIB));
        assert_eq!(now(c.read(&file, 0, 1024 * KIB)).unwrap().len(), 1024 * KIB);
        assert_eq!(now(c.lookup(&ROOT, root(), &name("f"))).unwrap().attr.size, 1 << 20);
        assert_eq!(now(c.getattr(file.fid(), None)).unwrap().attr.size, 1 << 20);
        now(c.release(file.clone())).unwrap();
        let file = now(c.open(&ROOT, file.fid(), flags::WRONLY | flags::APPEND)).unwrap();
        assert_eq!(now(c.write(&file, 0, bulk(b"x"))), Ok(1));
        now(c.release(file)).unwrap();
        now(c.unlink(&ROOT, root(), &name("f"))).unwrap();
        assert_eq!(now(c.lookup(&ROOT, root(), &name("f"))).unwrap_err(), Errno::ENOENT);
    });
}

#[test]
fn truncate_up_creates_only_the_last_object() {
    with(4, 65536, &[0, 1, 2, 3], async |m| {
        let file = create(&m, "f", 0).await;
        assert_eq!(truncate(&m, &file, 1_000_000).await, Ok(1_000_000));
        assert_eq!(m.world.state.lock().objects.len(), 1);
        assert_eq!(truncate(&m, &file, 0).await, Ok(0));
        assert!(m.client.read(&file, 0, 10).await.unwrap().is_empty());
    });
}

#[test]
fn write_past_largest_size_of_layout_is_refused() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f", 0).await;
        assert_eq!(m.client.write(&file, OBJECT_SIZE_MAX, bulk(b"x")).await, Err(Errno::EFBIG));
        assert_eq!(m.client.fallocate(&file, 0, OBJECT_SIZE_MAX - 1, 2).await, Err(Errno::EFBIG));
        assert_eq!(truncate(&m, &file, OBJECT_SIZE_MAX + 1).await, Err(Errno::EFBIG));
        assert_eq!(m.client.fallocate(&file, 0x8, 0, 4096).await, Err(Errno::EOPNOTSUPP));
        assert_eq!(m.client.fallocate(&file, 0, 0, 0).await, Err(Errno::EINVAL));
        assert_eq!(size(&m, &file).await, 0);
    });
}

#[test]
fn write_to_full_ost_is_short_or_fails() {
    with(2, 65536, &[0, 1], async |m| {
        let file = create(&m, "f", 0).await;
        m.world.state.lock().full.insert(1);
        let data = pattern(3, 256 * KIB);
        assert_eq!(m.client.write(&file, 0, bulk(&data)).await, Ok(64 * KIB), "the first stripe is written");
        assert_eq!(m.client.read(&file, 0, 64 * KIB).await.unwrap().into_bytes()[..], data[..64 * KIB]);
        assert_eq!(m.client.write(&file, 64 * KIB as u64, bulk(&data)).await, Err(Errno::ENOSPC));
        assert_eq!(m.client.write(&file, 64 * KIB as u64, bulk(&data[..10])).await, Err(Errno::ENOSPC));
    });
}

#[test]
fn write_passes_on_ebusy_of_an_ost_at_once() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f", 0).await;
        m.world.state.lock().habits.write_error = Some(Errno::EBUSY);
        m.world.asked();
        assert_eq!(m.client.write(&file, 0, bulk(b"abc")).await, Err(Errno::EBUSY));
        let asked = m.world.asked();
        assert_eq!(asked.iter().filter(|a| a.contains("write")).count(), 1, "{asked:?}");
    });
}

#[test]
fn appends_of_one_client_do_not_overwrite_each_other() {
    with(2, 65536, &[0, 1], async |m| {
        m.world.state.lock().delay = Duration::from_micros(100);
        let first = create(&m, "f", flags::APPEND).await;
        let tasks: Vec<_> = (1..=8u8)
            .map(|i| {
                let (client, rt, fid) = (m.client.clone(), m.net.rt(), first.fid());
                rt.spawn("appender", async move {
                    let file = client.open(&ROOT, fid, flags::WRONLY | flags::APPEND).await.unwrap();
                    for _ in 0..10 {
                        assert_eq!(client.write(&file, 0, bulk(&[i; 5000])).await, Ok(5000));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let all = m.client.read(&first, 0, 1024 * KIB).await.unwrap().into_bytes();
        assert_eq!(all.len(), 8 * 10 * 5000);
        let mut counts = [0; 9];
        for record in all.chunks(5000) {
            assert!(record.iter().all(|b| *b == record[0]), "a record is whole");
            counts[usize::from(record[0])] += 1;
        }
        assert_eq!(counts[1..], [10; 8]);
    });
}

#[test]
fn open_with_trunc_empties_existing_file_only() {
    with(2, 65536, &[0, 1], async |m| {
        let file = create(&m, "f", flags::TRUNC).await;
        assert!(m.world.asked().iter().all(|a| a.starts_with("mds")), "a new file has nothing to cut");
        m.client.write(&file, 0, bulk(&pattern(1, 100 * KIB))).await.unwrap();
        let again = m.client.create(&ROOT, root(), &name("f"), RDWR_CREATE, 0o644, 0).await.unwrap();
        assert_eq!((again.0.attr.fid, again.0.attr.size), (file.fid(), 100 * KIB as u64));
        let cut = m.client.create(&ROOT, root(), &name("f"), RDWR_CREATE | flags::TRUNC, 0o644, 0).await.unwrap();
        assert_eq!(cut.0.attr.size, 0);
        m.client.write(&file, 0, bulk(b"abc")).await.unwrap();
        m.client.open(&ROOT, file.fid(), flags::WRONLY | flags::TRUNC).await.unwrap();
        assert_eq!(size(&m, &file).await, 0);
    });
}

#[test]
fn stat_shows_times_of_last_change() {
    with(2, 65536, &[0, 1], async |m| {
        let file = create(&m, "f", 0).await;
        let stat = async || m.client.getattr(file.fid(), None).await.unwrap().attr;
        let born = stat().await;
        m.client.write(&file, 0, bulk(b"a")).await.unwrap();
        let written = stat().await;
        assert!(written.mtime > born.mtime && written.ctime == written.mtime);

        let old = Time { sec: 5, nsec: 6 };
        let set = SetAttr { mtime: Some(SetTime::At(old)), ..SetAttr::default() };
        m.client.setattr(&ROOT, file.fid(), set, None).await.unwrap();
        assert_eq!(stat().await.mtime, old, "utimensat sets the time");
        m.world.asked();
        m.client.write(&file, 0, bulk(b"b")).await.unwrap();
        let again = stat().await;
        assert!(again.mtime > written.mtime, "a later write changes the time");

        let chmod = SetAttr { perm: Some(0o600), ..SetAttr::default() };
        m.client.setattr(&ROOT, file.fid(), chmod, None).await.unwrap();
        let after = stat().await;
        assert_eq!((after.mtime, after.perm), (again.mtime, 0o600), "chmod does not hide the write's time");
        assert!(after.ctime > again.ctime);
        m.client.release(file.clone()).await.unwrap();
        assert_eq!(stat().await, after, "times do not move by themselves");

        // Now the file is not open, so no open file knows that it was written.
        let chmod = SetAttr { perm: Some(0o640), ..SetAttr::default() };
        let shown = m.client.setattr(&ROOT, file.fid(), chmod, None).await.unwrap().attr;
        assert_eq!((shown.mtime, shown.perm), (again.mtime, 0o640));
        assert!(shown.ctime > after.ctime);
        assert_eq!(stat().await, shown);
    });
}

#[test]
fn copy_within_file_ends_at_former_end() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f", 0).await;
        m.client.write(&file, 0, bulk(&pattern(1, 1000))).await.unwrap();
        // The bytes written at 5000 extend the file past the end of the source range.
        assert_eq!(m.client.copy_file_range(&file, 0, &file, 5000, 4000).await, Ok(1000));
        assert_eq!(size(&m, &file).await, 6000);
    });
}

#[test]
fn first_dsync_write_also_syncs_the_inode() {
    with(1, 65536, &[0], async |m| {
        let file = create(&m, "f", flags::DSYNC).await;
        m.world.asked();
        m.client.write(&file, 0, bulk(b"abc")).await.unwrap();
        m.client.write(&file, 3, bulk(b"abc")).await.unwrap();
        let write = "ost0 write parts=1 len=3 sync=true";
        assert_eq!(m.world.asked(), [write, "mds sync", write]);
    });
}

#[test]
fn fsync_reports_lost_writes_once() {
    with(2, 65536, &[0, 1], async |m| {
        let power_fails = |ost| *m.world.state.lock().epochs.entry(ost).or_insert(1) += 1;
        let fsync = async |file: &OpenFile| m.client.fsync(file, true).await;
        let lost = Err(Errno::EIO);
        let (one, both) = (create(&m, "one", 0).await, create(&m, "both", 0).await);
        m.client.write(&one, 0, bulk(&pattern(1, 4096))).await.unwrap();
        m.client.write(&both, 0, bulk(&pattern(2, 256 * KIB))).await.unwrap();
        power_fails(1);
        assert_eq!((fsync(&one).await, fsync(&both).await, fsync(&both).await), (Ok(()), lost, Ok(())));
        // Every kind of change. At the end, every loss was reported and everything else synced.
        truncate(&m, &one, 100).await.unwrap();
        power_fails(0);
        assert_eq!((fsync(&one).await, fsync(&one).await), (lost, Ok(())));
        m.client.fallocate(&one, 0, 0, 4096).await.unwrap();
        power_fails(0);
        assert_eq!((m.client.syncfs().await, m.client.syncfs().await), (lost, Ok(())));
        // A sync of the file reports the loss, too, even through a later open.
        let again = m.client.open(&ROOT, one.fid(), flags::RDONLY).await.unwrap();
        m.client.release(one).await.unwrap();
        assert_eq!((fsync(&again).await, fsync(&again).await), (lost, Ok(())));
        m.client.write(&both, 0, bulk(b"quick")).await.unwrap();
        power_fails(0);
        let durable = async || m.client.write_as(&both, 0, bulk(b"safe"), false, true).await;
        assert_eq!((durable().await, durable().await), (Err(Errno::EIO), Ok(4)));
        assert_eq!(fsync(&both).await, Ok(()));
        let safe = create(&m, "safe", flags::SYNC).await;
        m.client.write(&safe, 0, bulk(b"safe")).await.unwrap();
        power_fails(0);
        let synced = (fsync(&both).await, fsync(&safe).await, m.client.syncfs().await);
        assert_eq!(synced, (Ok(()), Ok(()), Ok(())), "durable data is not lost");
    });
}

#[test]
fn read_of_file_without_layout_is_empty_until_first_write() {
    with(1, 65536, &[0], async |m| {
        let attr = m.client.mknod(&ROOT, root(), &name("f"), 0o100644, 0, 0).await.unwrap().attr;
        let reader = m.client.open(&ROOT, attr.fid, flags::RDONLY).await.unwrap();
        assert!(m.client.read(&reader, 0, 100).await.unwrap().is_empty());
        assert_eq!(m.client.write(&reader, 0, bulk(b"x")).await, Err(Errno::EBADF));
        let writer = m.client.open(&ROOT, attr.fid, flags::WRONLY).await.unwrap();
        m.client.write(&writer, 0, bulk(b"hello")).await.unwrap();
        assert_eq!(m.client.read(&reader, 0, 100).await.unwrap().into_bytes(), "hello");
        assert_eq!(m.client.read(&writer, 0, 100).await.unwrap_err(), Errno::EBADF);
    });
}

/// A concurrent stat sees a size between the old one and the new one: here the old one. If the
/// first object were cut first, the size would be 65,636 bytes.
#[test]
fn truncate_cuts_object_with_new_end_first() {
    with(2, 65536, &[0, 1], async |m| {
        let file = create(&m, "f", 0).await;
        for at in [65536, 131_072] {
            assert_eq!(m.client.write(&file, at, bulk(&[1; 100])).await, Ok(100));
        }
        m.world.asked();
        let cut = SetAttr { size: Some(131_000), ..SetAttr::default() };
        assert_eq!(m.client.setattr(&ROOT, file.fid(), cut, Some(&file)).await.unwrap().attr.size, 131_000);
        let log = m.world.asked();
        let cuts: Vec<_> = log.iter().filter(|line| line.contains("punch")).collect();
        assert_eq!(cuts, ["ost1 punch objects=1", "ost0 punch objects=1"]);
        assert_eq!((m.size_of_object(0), m.size_of_object(1)), (Some(65536), Some(65464)));
    });
}
