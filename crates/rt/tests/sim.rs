//! The simulated world: order of tasks, virtual time, and faults.

#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    collections::BTreeSet,
    io::{ErrorKind, IoSlice},
    sync::{Arc, Mutex},
    time::{Duration, Instant as RealInstant},
};

use sheen_rt::{
    JoinError, OpenOptions, ReadHalf, Rt, WriteHalf,
    sim::{Sim, SimConfig, SimError, World},
};
use sheen_wire::Errno;

const PORT: u16 = 988;

fn sim(seed: u64) -> Sim {
    Sim::new(seed, SimConfig::default())
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Opens a connection from host 1 to host 2. Returns both ends, split.
async fn connection(world: &World) -> ((ReadHalf, WriteHalf), (ReadHalf, WriteHalf)) {
    let listener = world.rt(2).listen(world.addr(2, PORT)).await.unwrap();
    let accepting = world.rt(2).spawn("accept", async move { listener.accept().await.unwrap().0.split() });
    let opened = world.rt(1).connect(world.addr(2, PORT)).await.unwrap().split();
    (opened, accepting.await.unwrap())
}

async fn say(w: &mut WriteHalf, what: &[u8]) -> std::io::Result<()> {
    w.write_all_vectored(&[IoSlice::new(what)]).await
}

/// Accepts connections and echoes their bytes until the stream ends.
async fn echo(rt: Rt, world: World) {
    let listener = rt.listen(world.addr(2, PORT)).await.unwrap();
    loop {
        let (mut r, mut w) = listener.accept().await.unwrap().0.split();
        rt.spawn("echo", async move {
            let mut buf = [0; 1000];
            while let Ok(n @ 1..) = r.read_some(&mut buf).await {
                if say(&mut w, &buf[..n]).await.is_err() {
                    break;
                }
            }
        });
    }
}

/// Runs three tasks that communicate, sleep, sync and draw random numbers. Returns the trace and
/// the order in which they ended.
fn busy_run(seed: u64) -> (u64, Vec<u64>, Vec<String>) {
    let sim = Sim::new(seed, SimConfig { loss: 0.05, log_events_max: 50, ..SimConfig::default() });
    let ended = Arc::new(Mutex::new(Vec::new()));
    let world = sim.clone();
    sim.rt(2).spawn("server", echo(sim.rt(2), world.clone()));
    let clients = (0..3u64).map(|i| {
        let (rt, world, ended) = (sim.rt(1), world.clone(), ended.clone());
        sim.rt(1).spawn("client", async move {
            rt.sleep(ms(1)).await; // until the server listens
            let (mut r, mut w) = rt.connect(world.addr(2, PORT)).await.unwrap().split();
            let data = vec![i as u8; 20_000];
            say(&mut w, &data).await.unwrap();
            let mut back = vec![0; data.len()];
            r.read_exact(&mut back).await.unwrap();
            assert!(back == data);
            let file = rt.disk().open(format!("/f{i}"), OpenOptions::CREATE).unwrap();
            file.write_all_at(0, &back).unwrap();
            file.sync_data().await.unwrap();
            rt.run_blocking(|| ()).await;
            ended.lock().unwrap().push(i);
        })
    });
    let clients: Vec<_> = clients.collect();
    sim.run(async {
        for client in clients {
            client.await.unwrap();
        }
    })
    .unwrap();
    let ended = ended.lock().unwrap().clone();
    (sim.trace_hash(), ended, sim.log())
}

#[test]
fn same_seed_replays_and_other_seeds_differ() {
    let (mut hashes, mut orders) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..20 {
        let (first, again) = (busy_run(seed), busy_run(seed));
        assert_eq!(first, again);
        assert_eq!(first.2.len(), 50, "the log is bounded");
        hashes.insert(first.0);
        orders.insert(first.1);
    }
    assert_eq!(hashes.len(), 20, "each seed is another run");
    assert!(orders.len() >= 4, "of the 6 orders only {orders:?}");
}

#[test]
fn ready_tasks_run_in_any_order() {
    let mut orders = BTreeSet::new();
    for seed in 0..200 {
        let sim = sim(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = [0, 1, 2].map(|i| {
            let order = order.clone();
            sim.rt(1).spawn("one of three", async move { order.lock().unwrap().push(i) })
        });
        sim.run(async {
            for t in tasks {
                t.await.unwrap();
            }
        })
        .unwrap();
        orders.insert(order.lock().unwrap().clone());
    }
    assert_eq!(orders.len(), 6);
}

#[test]
fn time_is_virtual_and_timers_fire_in_order() {
    let real = real_now();
    let sim = sim(1);
    let rt = sim.rt(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    for n in [50, 10, 40, 20, 30] {
        let (rt, order) = (rt.clone(), order.clone());
        rt.clone().spawn("sleeps", async move {
            let before = rt.now();
            rt.sleep(Duration::from_secs(n)).await;
            assert_eq!(rt.now().since(before), Duration::from_secs(n), "to the nanosecond");
            order.lock().unwrap().push(n);
        });
    }
    sim.run(async {
        let wall = rt.wall();
        rt.sleep(Duration::from_secs(3600)).await;
        assert_eq!(rt.wall().sec - wall.sec, 3600);
        assert!(rt.timeout(ms(5), std::future::pending::<()>()).await.is_err());
        assert_eq!(rt.timeout(ms(5), async { 3 }).await, Ok(3));
        assert_eq!(rt.timeout(ms(5), rt.sleep(ms(4))).await, Ok(()));
    })
    .unwrap();
    assert_eq!(*order.lock().unwrap(), [10, 20, 30, 40, 50]);
    assert!(real.elapsed() < Duration::from_secs(3600), "an hour passed in less");
}

#[allow(clippy::disallowed_methods, reason = "compares virtual with real time")]
fn real_now() -> RealInstant {
    RealInstant::now()
}

#[test]
fn tokio_sync_works_and_tasks_can_be_aborted() {
    let sim = sim(2);
    let rt = sim.rt(1);
    sim.run(async {
        let (tx, mut rx) = tokio::sync::mpsc::channel(1);
        let sender = rt.spawn("sender", async move {
            for i in 0..10 {
                tx.send(i).await.unwrap();
            }
        });
        let mut got = Vec::new();
        while let Some(i) = rx.recv().await {
            got.push(i);
        }
        sender.await.unwrap();
        assert_eq!(got, (0..10).collect::<Vec<_>>());

        let (tx, rx) = tokio::sync::oneshot::channel::<()>();
        let never = rt.spawn("never", async move {
            let _tx = tx;
            std::future::pending::<()>().await
        });
        rt.sleep(ms(1)).await;
        assert!(!never.is_finished());
        never.abort();
        assert_eq!(never.await, Err(JoinError::Aborted));
        assert!(rx.await.is_err(), "what the task held is dropped");
        assert_eq!(rt.block_on_thread(async {}).unwrap_err().kind(), ErrorKind::Unsupported);
    })
    .unwrap();
}

#[test]
fn packet_delay_is_within_the_configured_range() {
    let config = SimConfig { delay: ms(10)..ms(14), ..SimConfig::default() };
    let mut times = BTreeSet::new();
    for seed in 0..50 {
        let sim = Sim::new(seed, config.clone());
        let world = sim.clone();
        sim.run(async {
            let ((_r, mut w), (mut r2, _w2)) = connection(&world).await;
            let before = world.now();
            say(&mut w, b"x").await.unwrap();
            r2.read_exact(&mut [0]).await.unwrap();
            let took = world.now().since(before);
            assert!((ms(10)..ms(14)).contains(&took), "{took:?}");
            times.insert(took);
        })
        .unwrap();
    }
    assert!(times.len() > 40, "with jitter");
}

#[test]
fn packet_loss_delays_and_total_loss_times_out() {
    let mut delayed = 0;
    for seed in 0..30 {
        let sim = Sim::new(seed, SimConfig { loss: 0.3, ..SimConfig::default() });
        let world = sim.clone();
        sim.run(async {
            let ((_r, mut w), (mut r2, _w2)) = connection(&world).await;
            let data: Vec<u8> = (0..200_000u32).map(|i| (i % 251) as u8).collect();
            let before = world.now();
            say(&mut w, &data).await.unwrap();
            let mut got = vec![0; data.len()];
            r2.read_exact(&mut got).await.unwrap();
            assert!(got == data, "no byte is lost, duplicated or out of order");
            delayed += u32::from(world.now().since(before) > ms(200));

            world.configure(|c| c.loss = 1.0);
            say(&mut w, b"into the void").await.unwrap();
            world.rt(1).sleep(Duration::from_secs(300)).await;
            let broken = say(&mut w, b"still there?").await.unwrap_err();
            assert_eq!(broken.kind(), ErrorKind::TimedOut);
            world.configure(|c| c.loss = 0.0);
            assert!(r2.read_some(&mut got).await.is_err(), "the other end learns it too");
        })
        .unwrap();
    }
    assert!(delayed > 25, "of at least 13 packets, some are nearly always lost: {delayed} of 30");
}

#[test]
fn write_blocks_when_the_window_is_full() {
    let sim = Sim::new(5, SimConfig { window_bytes: 10_000, ..SimConfig::default() });
    let world = sim.clone();
    sim.run(async {
        let ((_r, w), (mut r2, _w2)) = connection(&world).await;
        let mut sent = 0;
        let full = loop {
            match w.try_write_vectored(&[IoSlice::new(&[1; 3000]), IoSlice::new(&[2; 500])]) {
                Ok(n) => sent += n,
                Err(e) => break e,
            }
        };
        assert_eq!((full.kind(), sent), (ErrorKind::WouldBlock, 10_000));
        assert!(world.rt(1).timeout(Duration::from_secs(9), w.writable()).await.is_err(), "no reader");
        r2.read_exact(&mut [0; 6000]).await.unwrap();
        w.writable().await.unwrap();
        assert!(w.try_write_vectored(&[IoSlice::new(b"more")]).unwrap() > 0);
    })
    .unwrap();
}

#[test]
fn partition_stalls_traffic_and_times_out_connections() {
    for seed in 0..20 {
        let sim = sim(seed);
        let world = sim.clone();
        sim.run(async {
            let ((mut r, mut w), (mut r2, mut w2)) = connection(&world).await;
            let rt = world.rt(1);
            let mut buf = [0; 5];
            world.partition(2, 1);
            say(&mut w, b"hello").await.unwrap();
            say(&mut w2, b"world").await.unwrap();
            let waited = rt.timeout(Duration::from_secs(15), r2.read_some(&mut buf)).await;
            assert!(waited.is_err(), "nothing passes");
            world.heal(1, 2);
            r2.read_exact(&mut buf).await.unwrap();
            assert_eq!(&buf, b"hello", "waiting packets are sent on");
            r.read_exact(&mut buf).await.unwrap();
            assert_eq!(&buf, b"world", "in both directions");

            world.partition(1, 2);
            let before = world.now();
            let no = rt.connect(world.addr(2, PORT)).await.err().unwrap();
            assert_eq!((no.kind(), world.now().since(before)), (ErrorKind::TimedOut, Duration::from_secs(10)));
            let (a, b) = (r.read_some(&mut buf).await.unwrap_err(), w2.writable().await.unwrap_err());
            assert_eq!((a.kind(), b.kind()), (ErrorKind::TimedOut, ErrorKind::TimedOut));
            assert_eq!(world.now().since(before), Duration::from_secs(20));

            // Other hosts are not affected. After healing, new connections work again.
            let ok = rt.listen(world.addr(1, 7)).await.unwrap();
            world.rt(3).connect(world.addr(1, 7)).await.unwrap();
            world.heal(1, 2);
            world.rt(2).connect(world.addr(1, 7)).await.unwrap();
            drop(ok);
        })
        .unwrap();
    }
}

#[test]
fn reset_connections_breaks_both_ends_between_two_hosts() {
    let sim = sim(3);
    let world = sim.clone();
    sim.run(async {
        let ((mut r, mut w), (mut r2, _w2)) = connection(&world).await;
        say(&mut w, b"unread").await.unwrap();
        world.rt(1).sleep(ms(10)).await;
        world.reset_connections(1, 3);
        assert_eq!(r2.read_some(&mut [0]).await.unwrap(), 1, "not this one");
        world.reset_connections(2, 1);
        assert_eq!(r.read_some(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(r2.read_some(&mut [0]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(say(&mut w, b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    })
    .unwrap();
}

#[test]
fn dropped_listener_resets_its_waiting_connections() {
    let sim = sim(4);
    let world = sim.clone();
    sim.run(async {
        let listener = world.rt(2).listen("0.0.0.0:0".parse().unwrap()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (mut r, _w) = world.rt(1).connect(world.addr(2, port)).await.unwrap().split();
        drop(listener);
        assert!(r.read_some(&mut [0]).await.is_err());
        let elsewhere = world.rt(2).listen(world.addr(3, PORT)).await.err().unwrap();
        assert_eq!(elsewhere.kind(), ErrorKind::AddrNotAvailable);
    })
    .unwrap();
}

/// Writes sectors of 1s, syncs them, and overwrites them with unsynced sectors of 2s. Returns the
/// value of each sector after a crash.
fn crashed_sectors(seed: u64) -> Vec<u8> {
    let sim = sim(seed);
    let world = sim.clone();
    sim.run(async {
        let file = world.rt(1).disk().open("/f", OpenOptions::CREATE).unwrap();
        world.rt(1).disk().sync_dir("/").await.unwrap();
        file.write_all_at(0, &[1; 4096]).unwrap();
        file.sync_data().await.unwrap();
        for write in 0..4 {
            file.write_all_at(write * 1024, &[2; 1024]).unwrap();
        }
        world.crash_host(1);
        assert_eq!(Errno::from(file.write_all_at(0, &[3]).unwrap_err()), Errno::EIO, "file of a life that has ended");
        let bytes = world.rt(1).disk().read("/f").unwrap();
        assert_eq!(bytes.len(), 4096);
        bytes
            .chunks(512)
            .map(|sector| {
                assert!(sector.iter().all(|&b| b == sector[0] && (b == 1 || b == 2)), "a sector is whole");
                sector[0]
            })
            .collect()
    })
    .unwrap()
}

#[test]
fn crash_preserves_synced_data_and_some_unsynced_sectors() {
    let outcomes: Vec<Vec<u8>> = (0..100).map(crashed_sectors).collect();
    let writes: BTreeSet<&[u8]> = outcomes.iter().flat_map(|o| o.chunks(2)).collect();
    let all: BTreeSet<&[u8]> = [&[1, 1][..], &[2, 2], &[1, 2], &[2, 1]].into();
    assert_eq!(writes, all, "lost, survived, and torn both ways");
}

#[test]
fn crash_preserves_synced_names_and_a_prefix_of_the_rest() {
    let mut survivors = BTreeSet::new();
    for seed in 0..100 {
        let sim = sim(seed);
        let world = sim.clone();
        sim.run(async {
            let disk = world.rt(1).disk();
            disk.create_dir_all("/d").unwrap();
            disk.open("/d/synced", OpenOptions::CREATE).unwrap();
            disk.sync_dir("/d").await.unwrap();
            disk.write_atomic("/d/atomic", b"old").unwrap();
            disk.open("/d/a", OpenOptions::CREATE).unwrap();
            disk.rename("/d/a", "/d/b").unwrap();
            disk.remove_file("/d/synced").unwrap();
            world.crash_host(1);
            let disk = world.rt(1).disk();
            assert_eq!(disk.read("/d/atomic").unwrap(), b"old");
            let names = disk.read_dir("/d").unwrap().into_iter().map(|e| e.name.into_string().unwrap());
            survivors.insert(names.collect::<Vec<_>>().join(" "));
        })
        .unwrap();
    }
    let expected = ["atomic synced", "a atomic synced", "atomic b synced", "atomic b"];
    assert_eq!(survivors, expected.map(String::from).into());
}

#[test]
fn sync_dir_does_not_sync_later_changes_elsewhere() {
    let mut lost = false;
    for seed in 0..50 {
        let sim = sim(seed);
        let world = sim.clone();
        sim.run(async {
            let disk = world.rt(1).disk();
            disk.create_dir_all("/d").unwrap();
            disk.open("/d/f", OpenOptions::CREATE).unwrap();
            disk.open("/other", OpenOptions::CREATE).unwrap();
            disk.sync_dir("/d").await.unwrap();
            world.crash_host(1);
            let disk = world.rt(1).disk();
            disk.metadata("/d/f").unwrap();
            lost |= disk.metadata("/other").is_err();
        })
        .unwrap();
    }
    assert!(lost);
}

#[test]
fn fsync_covers_only_earlier_writes() {
    let mut later_lost = false;
    for seed in 0..50 {
        let sim = sim(seed);
        let world = sim.clone();
        sim.run(async {
            let rt = world.rt(1);
            let file = rt.disk().open("/f", OpenOptions::CREATE).unwrap();
            file.write_all_at(0, b"before").unwrap();
            let syncing = file.clone();
            let sync = rt.spawn("sync", async move { syncing.sync_data().await });
            rt.sleep(Duration::from_micros(50)).await; // shorter than any fsync
            file.write_all_at(6, b"after").unwrap();
            sync.await.unwrap().unwrap();
            rt.disk().sync_dir("/").await.unwrap();
            world.crash_host(1);
            let left = world.rt(1).disk().read("/f").unwrap();
            assert!(left.starts_with(b"before"));
            later_lost |= left == b"before";
        })
        .unwrap();
    }
    assert!(later_lost, "later writes are not covered");
}

#[test]
fn sync_fs_makes_all_files_and_names_durable() {
    for seed in 0..20 {
        let sim = sim(seed);
        let world = sim.clone();
        sim.run(async {
            let disk = world.rt(1).disk();
            disk.create_dir_all("/a/b").unwrap();
            disk.open("/a/b/f", OpenOptions::CREATE).unwrap().write_all_at(3, b"x").unwrap();
            disk.sync_fs("/").await.unwrap();
            world.crash_host(1);
            assert_eq!(world.rt(1).disk().read("/a/b/f").unwrap(), b"\0\0\0x");
        })
        .unwrap();
    }
}

#[test]
fn write_to_a_full_disk_returns_enospc() {
    let sim = Sim::new(1, SimConfig { disk_bytes: 10 * 4096, ..SimConfig::default() });
    let disk = sim.rt(1).disk();
    let file = disk.open("/f", OpenOptions::CREATE).unwrap();
    file.write_all_at(0, &[1; 8 * 4096]).unwrap();
    file.write_all_at(1, &[1; 8 * 4096]).unwrap();
    assert_eq!(disk.statvfs("/").unwrap().bfree, 1);
    assert_eq!(Errno::from(file.write_all_at(1 << 30, &[1; 4097]).unwrap_err()), Errno::ENOSPC);
    file.set_len(1).unwrap();
    assert_eq!(disk.statvfs("/").unwrap().bfree, 9);
    disk.remove_file("/f").unwrap();
    drop(file);
    assert_eq!(sim.rt(2).disk().read_dir("/").unwrap(), [], "each host has its own disk");
}

#[test]
fn crash_kills_the_hosts_tasks_and_resets_its_connections() {
    for seed in 0..20 {
        let sim = sim(seed);
        let world = sim.clone();
        sim.run(async {
            /// Tries to undo the crash from its destructor.
            struct Undo(Rt);
            impl Drop for Undo {
                fn drop(&mut self) {
                    assert!(self.0.disk().write_atomic("/undone", b"").is_err());
                    self.0.spawn("undo", async { panic!("must not run") });
                }
            }
            let ((mut r, mut w), server_end) = connection(&world).await;
            let rt = world.rt(2);
            let undo = Undo(rt.clone());
            let inner = rt.clone();
            let server = rt.spawn("server", async move {
                let _held = (undo, server_end, inner.disk().try_lock("/lock").unwrap());
                inner.sleep(Duration::from_secs(5)).await;
                panic!("polled after the crash");
            });
            let client = world.rt(1).spawn("client", async move {
                let error = r.read_some(&mut [0]).await.unwrap_err();
                (error.kind(), say(&mut w, b"x").await.unwrap_err().kind())
            });
            world.rt(1).sleep(Duration::from_secs(1)).await;
            let crashed_at = world.now();
            world.crash_host(2);
            assert_eq!(server.await, Err(JoinError::Aborted));
            assert_eq!(client.await.unwrap(), (ErrorKind::ConnectionReset, ErrorKind::ConnectionReset));
            let took = world.now().since(crashed_at);
            assert!(!took.is_zero() && took < ms(1), "the delay of a packet: {took:?}");

            // The old life is dead, and the new one starts afresh.
            assert_eq!(rt.listen(world.addr(2, PORT)).await.err().unwrap().raw_os_error(), Some(Errno::EIO.0));
            let refused = world.rt(1).connect(world.addr(2, PORT)).await.err().unwrap();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let rt = world.rt(2);
            let _lock = rt.disk().try_lock("/lock").unwrap();
            rt.spawn("server", echo(rt.clone(), world.clone()));
            world.rt(1).sleep(Duration::from_secs(30)).await;
            let (mut r, mut w) = world.rt(1).connect(world.addr(2, PORT)).await.unwrap().split();
            say(&mut w, b"again").await.unwrap();
            let mut buf = [0; 5];
            r.read_exact(&mut buf).await.unwrap();
            assert_eq!(&buf, b"again");
        })
        .unwrap();
    }
}

#[test]
fn wake_order_of_watch_receivers_does_not_change_the_trace() {
    let run = || {
        let sim = sim(5);
        let sender = tokio::sync::watch::Sender::new(0);
        for _ in 0..20 {
            let mut receiver = sender.subscribe();
            drop(sim.rt(1).spawn("receives", async move { while receiver.changed().await.is_ok() {} }));
        }
        let rt = sim.rt(1);
        sim.run(async {
            for n in 1..10 {
                rt.sleep(ms(1)).await;
                let _ = sender.send(n);
            }
        })
        .unwrap();
        sim.trace_hash()
    };
    assert_eq!(run(), run());
}

#[test]
fn endless_run_fails_with_the_names_of_waiting_tasks() {
    let sim = sim(1);
    sim.rt(7).spawn("stuck", std::future::pending::<()>());
    sim.rt(7).spawn("ends", async {});
    let Err(SimError::Deadlock { waiting, .. }) = sim.run(std::future::pending::<()>()) else { panic!("no deadlock?") };
    assert_eq!(waiting, ["main", "stuck@7#1"]);
    // The world is still usable.
    assert_eq!(sim.run(async { 1 }), Ok(1));

    let rt = sim.rt(1);
    let ticking = rt.clone();
    rt.spawn("ticks", async move {
        loop {
            ticking.sleep(Duration::from_secs(60)).await;
        }
    });
    assert!(matches!(sim.run(std::future::pending::<()>()), Err(SimError::TimeLimit { .. })));
}

#[test]
fn spinning_task_fails_the_run_as_livelock() {
    let sim = Sim::new(1, SimConfig { polls_per_instant_max: 1000, ..SimConfig::default() });
    let spins = std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        std::task::Poll::<()>::Pending
    });
    sim.rt(1).spawn("spins", spins);
    let Err(SimError::Livelock { busy, .. }) = sim.run(std::future::pending::<()>()) else { panic!("no livelock?") };
    assert_eq!(busy, ["spins@1#1"]);
}

#[test]
#[should_panic(expected = "a bug")]
fn task_panic_ends_the_simulated_run() {
    let sim = sim(1);
    sim.rt(1).spawn("bad", async { panic!("a bug") });
    let _ = sim.run(std::future::pending::<()>());
}

#[test]
fn dropped_simulation_drops_all_tasks() {
    let alive = Arc::new(());
    let sim = sim(1);
    let (held, inner) = (alive.clone(), sim.clone());
    sim.rt(2).spawn("serves", async move {
        let _held = held;
        echo(inner.rt(2), inner.clone()).await;
    });
    let world = sim.clone();
    sim.run(async { world.rt(1).sleep(ms(5)).await }).unwrap();
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(sim);
    assert_eq!(Arc::strong_count(&alive), 1, "tasks are dropped although they hold the world");
}

#[test]
fn crash_changes_only_the_hosts_boot_id() {
    let sim = Sim::new(1, SimConfig::default());
    let (a, b) = (sim.rt(1).boot_id(), sim.rt(2).boot_id());
    assert_eq!(sim.rt(1).boot_id(), a);
    sim.crash_host(1);
    assert_ne!(sim.rt(1).boot_id(), a);
    assert_eq!(sim.rt(2).boot_id(), b);
}

#[test]
fn remount_of_a_disk_loses_unsynced_data_and_changes_its_mount_id_in_the_same_boot() {
    let sim = Sim::new(1, SimConfig::default());
    let mount_id = |sim: &Sim, host| sim.rt(host).disk().mount_id("/").unwrap();
    let (boot, mount, other) = (sim.rt(1).boot_id(), mount_id(&sim, 1), mount_id(&sim, 2));
    // With so many names, some are lost for almost every seed.
    (0..100).for_each(|n| drop(sim.rt(1).disk().open(format!("/{n}"), OpenOptions::CREATE).unwrap()));
    sim.remount_disk(1);
    assert_eq!(sim.rt(1).boot_id(), boot);
    assert_ne!(mount_id(&sim, 1), mount);
    assert_eq!(mount_id(&sim, 2), other);
    assert!(sim.rt(1).disk().read_dir("/").unwrap().len() < 100, "names that were not synced are lost");
}
