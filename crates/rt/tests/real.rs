//! The real runtime and network, where they differ from the simulated ones.

#![allow(clippy::disallowed_methods, reason = "these tests stand in for the outside world")]
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    io::{ErrorKind, IoSlice},
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::thread::{UnshareFlags, unshare_unsafe};
use sheen_rt::{Elapsed, Instant, JoinError, OpenOptions, RealOptions, Rt, Runtime};

/// Time limit for a test: longer than any busy machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn start() -> (Runtime, Rt) {
    Rt::real(RealOptions { worker_threads: 2, name: "test".into() }).unwrap()
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn work_on_its_own_thread_does_not_wait_for_other_blocking_work() {
    const MORE_THAN_THREADS: usize = 200;
    let (runtime, rt) = start();
    let (gate, begun) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
    let closed = gate.lock().unwrap();
    let waiting: Vec<_> = (0..MORE_THAN_THREADS)
        .map(|_| {
            let (rt2, gate, begun) = (rt.clone(), gate.clone(), begun.clone());
            rt.spawn("blocked", async move {
                let wait = move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    drop(gate.lock());
                };
                rt2.run_blocking(wait).await;
            })
        })
        .collect();
    runtime.block_on(async {
        let mut last = 0;
        // The pool has no free thread when no more work begins.
        while last == 0 || last < begun.load(Ordering::SeqCst) {
            last = begun.load(Ordering::SeqCst);
            rt.sleep(Duration::from_millis(20)).await;
        }
        let done = rt.timeout(PATIENCE, rt.run_on_own_thread("own", || 7)).await;
        assert_eq!(done.unwrap().unwrap(), 7);
    });
    drop(closed);
    runtime.block_on(async {
        for task in waiting {
            task.await.unwrap();
        }
    });
    assert_eq!(begun.load(Ordering::SeqCst), MORE_THAN_THREADS);
}

#[test]
fn time_passes_and_timeouts_fire() {
    let (runtime, rt) = start();
    runtime.block_on(async {
        let before = rt.now();
        rt.sleep(Duration::from_millis(20)).await;
        assert!(rt.now().since(before) >= Duration::from_millis(20));
        assert_eq!(rt.timeout(Duration::from_millis(5), std::future::pending::<()>()).await, Err(Elapsed));
        assert_eq!(rt.timeout(Duration::ZERO, async { 7 }).await, Ok(7), "a ready future never times out");
    });
    assert!(rt.wall().sec > 1_600_000_000);
    assert_ne!(rt.random_u64(), rt.random_u64());
    let (mut a, mut b) = ([0; 16], [0; 16]);
    rt.fill_random(&mut a);
    rt.fill_random(&mut b);
    assert_ne!(a, b);
}

#[test]
fn spawn_returns_result_panic_or_abort() {
    let (runtime, rt) = start();
    runtime.block_on(async {
        assert_eq!(rt.spawn("answers", async { 5 }).await, Ok(5));
        let never = rt.spawn("never", std::future::pending::<()>());
        assert!(!never.is_finished());
        never.abort();
        assert_eq!(never.await, Err(JoinError::Aborted));
        let bad = rt.spawn("bad", async {
            if true {
                panic!("on purpose");
            }
        });
        assert_eq!(bad.await, Err(JoinError::Panicked));
        assert_eq!(rt.run_blocking(|| 6).await, 6);
        let inner = rt.clone();
        assert_eq!(rt.spawn("worker", async move { inner.block_in_place(|| 7) }).await, Ok(7));
        let inner = rt.clone();
        let on_worker = rt.spawn("blocks", async move { inner.block_on_thread(async { 8 }).unwrap() });
        assert_eq!(on_worker.await, Ok(8));
    });
    assert_eq!(rt.block_in_place(|| 9), 9);
}

#[test]
fn block_on_thread_connects_and_sleeps_on_a_plain_thread() {
    let (_runtime, rt) = start();
    let used = std::thread::spawn(move || {
        rt.block_on_thread(async {
            let listener = rt.listen(any()).await.unwrap();
            let stream = rt.connect(listener.local_addr().unwrap()).await.unwrap();
            rt.sleep(Duration::from_millis(1)).await;
            let (accepted, from) = listener.accept().await.unwrap();
            assert_eq!(stream.local_addr().unwrap(), from);
            assert_eq!(accepted.local_addr().unwrap(), stream.peer_addr().unwrap());
        })
    });
    used.join().unwrap().unwrap();
}

/// A future that is first polled on a thread outside the runtime, as FUSE workers do, and
/// then continues as a task.
#[test]
fn connect_started_on_a_plain_thread_completes_in_a_task() {
    let (runtime, rt) = start();
    let listener = runtime.block_on(rt.listen(any())).unwrap();
    let addr = listener.local_addr().unwrap();
    let inner = rt.clone();
    let mut connect = Box::pin(async move { inner.connect(addr).await.map(|_| ()) });
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let first = connect.as_mut().poll(&mut cx);
    if first.is_pending() {
        runtime.block_on(rt.spawn("connect", connect)).unwrap().unwrap();
    }
    runtime.block_on(listener.accept()).unwrap();
}

#[test]
fn try_write_fills_the_socket_from_any_thread_then_refuses() {
    let (runtime, rt) = start();
    let (w, mut r) = runtime.block_on(async {
        let listener = rt.listen(any()).await.unwrap();
        let (_r, w) = rt.connect(listener.local_addr().unwrap()).await.unwrap().split();
        (w, listener.accept().await.unwrap().0.split().0)
    });
    let chunk = vec![7; 1 << 20];
    let (w, sent) = std::thread::spawn(move || {
        let mut sent = 0;
        loop {
            match w.try_write_vectored(&[IoSlice::new(&chunk)]) {
                Ok(n) => sent += n,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::WouldBlock);
                    return (w, sent);
                }
            }
        }
    })
    .join()
    .unwrap();
    assert!(sent > 0);
    runtime.block_on(async {
        r.read_exact(&mut vec![0; sent]).await.unwrap();
        w.writable().await.unwrap();
        assert_eq!(w.try_write_vectored(&[IoSlice::new(b"more")]).unwrap(), 4);
    });
}

#[test]
fn read_exact_completes_with_slow_senders_and_later_small_reads_do_not_hang() {
    const LARGE: usize = (1 << 20) + 300;
    let (runtime, rt) = start();
    runtime.block_on(async {
        let listener = rt.listen(any()).await.unwrap();
        let (mut ack, mut w) = rt.connect(listener.local_addr().unwrap()).await.unwrap().split();
        let (mut r, mut back) = listener.accept().await.unwrap().0.split();
        let data: Vec<u8> = (0..LARGE).map(|i| (i % 253) as u8).collect();
        let (sent, timer) = (data.clone(), rt.clone());
        let writer = rt.spawn("writer", async move {
            // The piece size is neither a divisor nor a multiple of any low-water mark. The pauses
            // make the reader sleep at many positions.
            for (i, piece) in sent.chunks(70_001).enumerate() {
                w.write_all_vectored(&[IoSlice::new(piece)]).await.unwrap();
                if i % 3 == 0 {
                    timer.sleep(Duration::from_millis(2)).await;
                }
            }
            for _ in 0..3 {
                ack.read_exact(&mut [0]).await.unwrap();
                w.write_all_vectored(&[IoSlice::new(b"x")]).await.unwrap();
            }
            // Sends the first part of the bytes that the reader expects, and then closes.
            ack.read_exact(&mut [0]).await.unwrap();
            w.write_all_vectored(&[IoSlice::new(&sent[..100_000])]).await.unwrap();
        });
        let reading = async {
            let mut got = vec![0; LARGE];
            r.read_exact(&mut got).await.unwrap();
            assert!(got == data);
            for way in 0..3 {
                back.write_all_vectored(&[IoSlice::new(b"a")]).await.unwrap();
                let mut one = [0; 64];
                match way {
                    0 => r.read_exact(&mut one[..1]).await.unwrap(),
                    _ => assert_eq!(r.read_some(&mut one).await.unwrap(), 1),
                }
                assert_eq!(one[0], b'x');
            }
            back.write_all_vectored(&[IoSlice::new(b"a")]).await.unwrap();
            assert_eq!(r.read_exact(&mut got).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        };
        rt.timeout(PATIENCE, reading).await.expect("the reader waits for more bytes than arrive");
        writer.await.unwrap();
    });
}

#[test]
fn shutdown_drops_waiting_tasks() {
    let (runtime, rt) = start();
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Flag(ended.clone());
    rt.spawn("waits", async move {
        let _flag = flag;
        std::future::pending::<()>().await
    });
    runtime.shutdown(PATIENCE);
    assert!(ended.load(Ordering::Acquire));
}

#[test]
fn device_differs_between_file_systems() {
    let (_runtime, rt) = start();
    let dir = tempfile::tempdir().unwrap();
    let disk = rt.disk();
    assert_eq!(disk.device(dir.path()).unwrap(), disk.device(dir.path()).unwrap());
    assert_ne!(disk.device("/proc").unwrap(), disk.device(dir.path()).unwrap());
}

#[test]
fn mount_id_changes_with_the_next_mount_and_not_with_a_bind_mount() {
    const MOUNT: &str = "mount -o loop image a";
    let test = || {
        // SAFETY: the mounts that this thread sees change; nothing else does.
        if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
            return println!("skipped: needs root");
        }
        let (_runtime, rt) = start();
        let dir = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            let script = format!("set -e; PATH=$PATH:/usr/sbin:/sbin; {script}");
            Command::new("sh").args(["-c", &script]).current_dir(dir.path()).status().unwrap().success()
        };
        let id = |name: &str| rt.disk().mount_id(dir.path().join(name)).unwrap();
        if !shell(&format!("mount --make-rprivate /; truncate -s 8M image; mkfs.ext4 -q image; mkdir a b; {MOUNT}")) {
            return println!("skipped: needs mkfs.ext4 and loop devices");
        }
        let first = id("a");
        assert_ne!(first, id("."), "another file system");
        assert!(shell("mount --bind a b"));
        assert_eq!((id("a"), id("b")), (first, first), "the same superblock");
        assert!(shell(&format!("umount a b; {MOUNT}")));
        assert_ne!(id("a"), first);
        assert!(shell("umount a"));
    };
    thread::spawn(test).join().unwrap();
}

#[test]
fn boot_id_is_equal_in_two_runtimes() {
    let ((_one, a), (_other, b)) = (start(), start());
    assert_eq!(a.boot_id(), b.boot_id());
}

#[test]
fn file_made_for_appends_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let (_runtime, rt) = start();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    rt.disk().open_append(&path).unwrap().append(b"line\n").unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn files_do_not_change_after_the_end_of_the_lease() {
    static ENDS: AtomicUsize = AtomicUsize::new(0);
    let ended = || {
        ENDS.fetch_add(1, Ordering::SeqCst);
    };
    let (runtime, rt) = start();
    let dir = tempfile::tempdir().unwrap();
    let (disk, path) = (rt.disk(), dir.path().join("f"));
    assert!(rt.has_lease(), "without one, nothing ends");
    rt.lease_until(rt.boot_time() + PATIENCE, ended);
    let file = disk.open(&path, OpenOptions::CREATE).unwrap();
    file.write_all_at(0, b"before").unwrap();
    assert!(rt.has_lease());

    rt.lease_until(rt.boot_time(), ended);
    assert!(!rt.has_lease());
    let other = dir.path().join("other");
    let refused = [
        file.write_all_at(0, b"after").err(),
        file.append(b"after").err(),
        file.set_len(1).err(),
        runtime.block_on(file.sync_data()).err(),
        file.sync_data_blocking().err(),
        disk.write_atomic(&path, b"after").err(),
        disk.open(&other, OpenOptions::CREATE).err(),
        disk.rename(&path, &other).err(),
        disk.hard_link(&path, &other).err(),
        disk.remove_file(&path).err(),
        disk.create_dir_all(&other).err(),
        disk.remove_dir_all(dir.path()).err(),
        runtime.block_on(disk.sync_dir(dir.path())).err(),
        runtime.block_on(disk.sync_fs(dir.path())).err(),
    ];
    let expected = vec![Some(ErrorKind::TimedOut); refused.len()];
    assert_eq!(refused.iter().map(|e| e.as_ref().map(std::io::Error::kind)).collect::<Vec<_>>(), expected);
    assert_eq!(ENDS.load(Ordering::SeqCst), refused.len());
    assert_eq!(disk.read(&path).unwrap(), b"before", "reads go on");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    rt.lease_until(Instant::FAR, ended);
    file.write_all_at(0, b"later!").unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"later!");
}
