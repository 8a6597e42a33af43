//! The contract of disk and network, tested with the real and the simulated ones.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    io::{ErrorKind, IoSlice, IoSliceMut},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use sheen_rt::{
    DirEntryKind, Listener, OpenOptions, RealOptions, Rt,
    sim::{Sim, SimConfig},
};
use sheen_wire::{
    Errno, FileKind, Time,
    ost::{Allocate, Seek},
};

/// Runs a test in the real world, in its own directory, and in simulated ones.
fn on_both<F: Future<Output = ()>>(test: impl Fn(Rt, PathBuf) -> F) {
    let (runtime, rt) = Rt::real(RealOptions { worker_threads: 2, name: "test".into() }).unwrap();
    let dir = tempfile::tempdir().unwrap();
    runtime.block_on(test(rt, dir.path().to_owned()));
    for seed in 0..8 {
        let sim = Sim::new(seed, SimConfig::default());
        sim.rt(1).disk().create_dir_all("/work").unwrap();
        sim.run(test(sim.rt(1), "/work".into())).unwrap();
    }
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Listens at an address that no other process takes in the moments when it is free. The host is an
/// address of 127.0.0.0/8 chosen by the process id. The port is outside the range that the kernel
/// assigns (32768 to 60999).
async fn listen_at_own(rt: &Rt) -> Listener {
    const PORTS: std::ops::Range<u16> = 20_000..30_000;
    let host = Ipv4Addr::from_bits(0x7f40_0000 | (std::process::id() & 0x3f_ffff));
    for port in PORTS {
        if let Ok(listener) = rt.listen((host, port).into()).await {
            return listener;
        }
    }
    panic!("no port is free at {host}");
}

/// Returns bytes without repetition.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn memory_bytes_is_a_plausible_size() {
    on_both(async |rt, _| assert!((1 << 20..1 << 60).contains(&rt.memory_bytes()), "{}", rt.memory_bytes()));
}

#[test]
fn vectored_bytes_arrive_in_order_through_partial_writes() {
    on_both(async |rt, _| {
        let listener = rt.listen(any()).await.unwrap();
        let addr = listener.local_addr().unwrap();
        // More bytes than any socket buffer holds, in pieces of odd sizes, and more pieces than the
        // kernel accepts in one call.
        let data = Arc::new(pattern(11 << 20));
        let sent = data.clone();
        let inner = rt.clone();
        let writer = rt.spawn("writer", async move {
            let (_r, mut w) = inner.connect(addr).await.unwrap().split();
            let pieces: Vec<_> = sent.chunks(9_973).map(IoSlice::new).collect();
            assert!(pieces.len() > 1024);
            w.write_all_vectored(&[]).await.unwrap();
            w.write_all_vectored(&[IoSlice::new(&[]), IoSlice::new(b"start")]).await.unwrap();
            w.write_all_vectored(&pieces).await.unwrap();
            w.shutdown().await.unwrap();
            std::future::pending::<()>().await
        });
        let (stream, from) = listener.accept().await.unwrap();
        assert_eq!((stream.peer_addr().unwrap(), stream.local_addr().unwrap()), (from, addr));
        let (mut r, _w) = stream.split();
        let mut start = [0; 5];
        r.read_exact(&mut start).await.unwrap();
        assert_eq!(&start, b"start");
        let mut got = vec![0; data.len()];
        r.read_exact(&mut got).await.unwrap();
        assert!(got == *data, "the same bytes");
        assert_eq!(r.read_some(&mut start).await.unwrap(), 0, "end of stream after shutdown");
        assert_eq!(r.read_exact(&mut start).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        writer.abort();
    });
}

#[test]
fn write_to_dead_peer_and_connect_to_closed_port_fail() {
    on_both(async |rt, _| {
        let listener = listen_at_own(&rt).await;
        let addr = listener.local_addr().unwrap();
        let (mut r, mut w) = rt.connect(addr).await.unwrap().split();
        drop(listener.accept().await.unwrap());
        assert_eq!(r.read_some(&mut [0; 4]).await.unwrap(), 0);
        // The first write may still succeed; then the peer's reset breaks the connection.
        let broken = loop {
            if let Err(e) = w.write_all_vectored(&[IoSlice::new(b"anyone there?")]).await {
                break e;
            }
            rt.sleep(std::time::Duration::from_millis(1)).await;
        };
        assert!(matches!(broken.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{broken}");
        assert!(rt.listen(addr).await.is_err_and(|e| e.kind() == ErrorKind::AddrInUse));
        drop((r, w, listener));
        let refused = rt.connect(addr).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // A restarted server gets the same port at once.
        rt.listen(addr).await.unwrap();
    });
}

#[test]
fn source_address_equals_the_connections_local_address() {
    on_both(async |rt, _| {
        let listener = rt.listen(any()).await.unwrap();
        let to = listener.local_addr().unwrap();
        let stream = rt.connect(to).await.unwrap();
        assert_eq!(rt.source_address(to).unwrap(), stream.local_addr().unwrap().ip());
        assert!(rt.source_address("127.9.9.9:1".parse().unwrap()).unwrap().is_loopback());
    });
}

#[test]
fn file_write_read_truncate_and_mtime_round_trip() {
    on_both(async |rt, dir| {
        let disk = rt.disk();
        let path = dir.join("f");
        assert_eq!(disk.open(&path, OpenOptions::READ).err().unwrap().kind(), ErrorKind::NotFound);
        let file = disk.open(&path, OpenOptions::CREATE).unwrap();
        assert_eq!(disk.open(&path, OpenOptions::CREATE_NEW).err().unwrap().kind(), ErrorKind::AlreadyExists);

        // More pieces than fit into one call, with empty ones among them.
        let data = pattern(300_000);
        let pieces: Vec<Bytes> = data.chunks(1_009).flat_map(|c| [Bytes::copy_from_slice(c), Bytes::new()]).collect();
        file.write_all_vectored_at(77, &pieces).unwrap();
        file.write_all_at(10, b"head").unwrap();
        assert_eq!(file.len().unwrap(), 300_077);
        let (mut a, mut b) = (vec![0; 4_000], vec![0; 400_000]);
        let n = file.read_vectored_at(77, &mut [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)]).unwrap();
        assert_eq!(n, 300_000);
        a.extend_from_slice(&b[..n - 4_000]);
        assert!(a == data);
        let mut head = [9; 16];
        assert_eq!(file.read_at(4, &mut head).unwrap(), 16);
        assert_eq!(&head, b"\0\0\0\0\0\0head\0\0\0\0\0\0");
        assert_eq!(file.read_at(1 << 30, &mut head).unwrap(), 0);

        file.set_len(12).unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"\0\0\0\0\0\0\0\0\0\0he");
        let meta = disk.metadata(&path).unwrap();
        assert_eq!((meta.len, meta.kind), (12, FileKind::Regular));
        assert!((rt.wall().sec - meta.mtime.sec).abs() < 3600);
        for time in [Time { sec: 1_000_000_000, nsec: 123_456_789 }, Time { sec: -1, nsec: 999_999_999 }] {
            file.set_mtime(time).unwrap();
            let meta = disk.metadata(&path).unwrap();
            assert_eq!((meta.mtime, meta.len), (time, 12));
        }
        file.write_all_at(0, b"\0").unwrap();
        assert!((rt.wall().sec - file.metadata().unwrap().mtime.sec).abs() < 3600, "a write is newer");
        let reader = disk.open(&path, OpenOptions::READ).unwrap();
        assert_eq!(Errno::from(reader.write_all_at(0, b"x").unwrap_err()), Errno::EBADF);
        disk.open(&path, OpenOptions { write: true, truncate: true, ..Default::default() }).unwrap();
        assert_eq!(file.len().unwrap(), 0);

        // A removed file stays readable through open handles.
        file.write_all_at(0, b"still here").unwrap();
        disk.remove_file(&path).unwrap();
        assert_eq!(file.read_at(0, &mut head).unwrap(), 10);
        assert_eq!(disk.metadata(&path).unwrap_err().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn append_writes_at_the_present_end_of_the_file() {
    on_both(async |rt, dir| {
        let (disk, path) = (rt.disk(), dir.join("log"));
        let (one, two) = (disk.open_append(&path).unwrap(), disk.open_append(&path).unwrap());
        one.append(b"first ").unwrap();
        two.append(b"second ").unwrap();
        one.append(b"third").unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"first second third");
        // As logrotate with copytruncate.
        disk.open(&path, OpenOptions::READ_WRITE).unwrap().set_len(0).unwrap();
        two.append(b"fourth").unwrap();
        assert_eq!(disk.read(&path).unwrap(), b"fourth");
        assert_eq!(Errno::from(disk.open_append(&dir).err().unwrap()), Errno::EISDIR);
        assert_eq!(disk.open_append(dir.join("missing/log")).err().unwrap().kind(), ErrorKind::NotFound);
    });
}

#[test]
fn allocate_makes_holes_that_seek_finds() {
    on_both(async |rt, dir| {
        let file = rt.disk().open(dir.join("f"), OpenOptions::CREATE).unwrap();
        const M: u64 = 1 << 20;
        file.set_len(4 * M).unwrap();
        file.write_all_at(M, &vec![1; 2 << 20]).unwrap();
        assert_eq!(file.seek(Seek::Data, 0).unwrap(), Some(M));
        assert_eq!(file.seek(Seek::Hole, M).unwrap(), Some(3 * M));
        assert_eq!(file.seek(Seek::Data, 3 * M).unwrap(), None);
        assert_eq!(file.seek(Seek::Hole, 4 * M).unwrap(), None, "past the end");

        let full = file.metadata().unwrap().blocks512;
        file.allocate(Allocate::PunchHole, M, M).unwrap();
        assert!(file.metadata().unwrap().blocks512 < full);
        assert_eq!(file.seek(Seek::Data, 0).unwrap(), Some(2 * M));
        let mut byte = [9];
        file.read_at(M, &mut byte).unwrap();
        assert_eq!(byte, [0]);

        file.allocate(Allocate::ZeroRange { keep_size: false }, 2 * M, 4 * M).unwrap();
        file.read_at(2 * M, &mut byte).unwrap();
        assert_eq!((byte, file.len().unwrap()), ([0], 6 * M));
        file.allocate(Allocate::Reserve { keep_size: true }, 6 * M, M).unwrap();
        assert_eq!(file.len().unwrap(), 6 * M);
        file.allocate(Allocate::Reserve { keep_size: false }, 6 * M, M).unwrap();
        assert_eq!(file.len().unwrap(), 7 * M);
        assert!(file.allocate(Allocate::Reserve { keep_size: true }, 0, 0).is_err());
    });
}

#[test]
fn directory_changes_locks_and_syncs_succeed() {
    on_both(async |rt, dir| {
        let disk = rt.disk();
        let sub = dir.join("a/b");
        disk.create_dir_all(&sub).unwrap();
        disk.create_dir_all(&sub).unwrap();
        for name in ["z", "m", "k"] {
            disk.open(sub.join(name), OpenOptions::CREATE).unwrap();
        }
        disk.create_dir_all(sub.join("d")).unwrap();
        disk.rename(sub.join("z"), sub.join("c")).unwrap();
        disk.remove_file(sub.join("m")).unwrap();
        let entries = disk.read_dir(&sub).unwrap().into_iter();
        let entries: Vec<_> = entries.map(|e| (e.name.into_string().unwrap(), e.kind)).collect();
        use DirEntryKind::{Dir, File};
        assert_eq!(entries, [("c".into(), File), ("d".into(), Dir), ("k".into(), File)]);
        let errno = |r: std::io::Result<()>| Errno::from(r.unwrap_err());
        assert_eq!(errno(disk.rename(sub.join("c"), sub.join("d"))), Errno::EISDIR);
        assert_eq!(errno(disk.rename(sub.join("d"), sub.join("c"))), Errno::ENOTDIR);
        assert_eq!(errno(disk.rename(sub.join("d"), sub.join("d/e"))), Errno::EINVAL);
        assert_eq!(errno(disk.create_dir_all(sub.join("c"))), Errno::EEXIST);
        assert_eq!(errno(disk.open(sub.join("c/x"), OpenOptions::READ).map(|_| ())), Errno::ENOTDIR);

        let config = sub.join("config");
        disk.write_atomic(&config, b"one").unwrap();
        disk.write_atomic(&config, b"two!").unwrap();
        assert_eq!(disk.read(&config).unwrap(), b"two!");
        assert_eq!(disk.read_dir(&sub).unwrap().len(), 4, "no temporary file remains");

        let lock = disk.try_lock(sub.join("lock")).unwrap();
        assert_eq!(disk.try_lock(sub.join("lock")).err().unwrap().kind(), ErrorKind::WouldBlock);
        drop(lock);
        disk.try_lock(sub.join("lock")).unwrap();

        let file = disk.open(sub.join("k"), OpenOptions::READ_WRITE).unwrap();
        file.write_all_at(0, b"synced").unwrap();
        file.sync_data_blocking().unwrap();
        file.sync_data().await.unwrap();
        disk.sync_dir(&sub).await.unwrap();
        disk.sync_fs(&sub).await.unwrap();
        let space = disk.statvfs(&sub).unwrap();
        assert!(space.bsize >= 512 && space.blocks >= space.bfree && space.bfree >= space.bavail);
        assert_eq!(disk.device(&sub).unwrap(), disk.device(&dir).unwrap());
        let held = disk.open_dir(&sub).unwrap();
        assert_eq!(errno(disk.open_dir(sub.join("c")).map(drop)), Errno::ENOTDIR);
        assert_eq!(held.statvfs().unwrap().blocks, space.blocks);
        held.sync_fs().await.unwrap();
        let moved = dir.join("a/moved");
        disk.rename(&sub, &moved).unwrap();
        assert!(!held.is_removed(), "renamed only");
        disk.rename(&moved, &sub).unwrap();
        disk.remove_dir_all(dir.join("a")).unwrap();
        assert!(held.is_removed());
        assert!(held.statvfs().is_ok(), "it is still on its file system");
        assert_eq!(Errno::from(disk.metadata(&sub).unwrap_err()), Errno::ENOENT);
    });
}
