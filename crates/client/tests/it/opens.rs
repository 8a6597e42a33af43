//! Files opened without a request to the MDT, and when they are registered there, over a fake MDT
//! that grants and revokes locks.

use std::{sync::Arc, time::Duration};

use crate::fake::{FakeMds, Kernel, Mounted, ROOT, bulk, name, root, with};
use sheen_client::{Caller, OpenFile};
use sheen_wire::{
    Fid, Mds,
    ldlm::{Resource, bits},
    mds::flags,
};

/// Creates and closes a file with some bytes, and looks it up after locks were switched on. Clears
/// the log.
async fn known(m: &Mounted, file: &str) -> Fid {
    let flags = flags::RDWR | flags::CREAT;
    let open = m.client.create(&ROOT, root(), &name(file), flags, 0o644, 0).await.unwrap().1;
    m.client.write(&open, 0, bulk(b"bytes")).await.unwrap();
    m.client.release(open).await.unwrap();
    // So the next close is the first one in a while, and is sent at once.
    settle(m).await;
    m.world.state.lock().locks.on = true;
    let fid = m.client.lookup(&ROOT, root(), &name(file)).await.unwrap().attr.fid;
    m.world.asked();
    fid
}

async fn open_as(m: &Mounted, who: &Caller, fid: Fid, flags: u32) -> Arc<OpenFile> {
    m.client.open(who, fid, flags).await.unwrap()
}

async fn open(m: &Mounted, fid: Fid) -> Arc<OpenFile> {
    open_as(m, &ROOT, fid, flags::RDWR).await
}

/// Returns the requests to the MDT.
fn asked(m: &Mounted) -> Vec<String> {
    let mut asked = m.world.asked();
    asked.retain(|what| what.starts_with("mds"));
    asked
}

/// Returns the files that the MDT has open.
fn at_mdt(m: &Mounted) -> Vec<Fid> {
    m.world.state.lock().open.values().copied().collect()
}

async fn settle(m: &Mounted) {
    m.net.rt().sleep(Duration::from_millis(50)).await;
}

#[test]
fn open_and_close_of_cached_file_send_no_request() {
    with(1, 65536, &[0], async |m| {
        let fid = known(&m, "f").await;
        let files = [open(&m, fid).await, open_as(&m, &ROOT, fid, flags::RDONLY).await];
        assert_eq!(m.params.get("llite.*.open_files").unwrap()[0].value, "2");
        assert_eq!(m.client.read(&files[0], 0, 10).await.unwrap().into_bytes(), "bytes");
        assert_eq!(asked(&m), [""; 0]);
        let [first, second] = files;
        m.client.release(second).await.unwrap();
        assert_eq!(asked(&m), [""; 0]);
        // The file was read for the first time.
        m.client.release(first).await.unwrap();
        assert_eq!(asked(&m), ["mds close", "mds closed 0 read 1"]);
        let again = open(&m, fid).await;
        m.client.read(&again, 0, 10).await.unwrap();
        m.client.release(again).await.unwrap();
        assert_eq!(asked(&m), [""; 0], "its access time is newer than its last change");
        assert_eq!(at_mdt(&m), []);
    });
}

#[test]
fn closes_of_read_files_are_sent_together() {
    with(1, 65536, &[0], async |m| {
        let mut files = Vec::new();
        for i in 0..20 {
            files.push(known(&m, &format!("f{i}")).await);
        }
        let read = async |i: usize| {
            let file = open(&m, files[i]).await;
            m.client.read(&file, 0, 10).await.unwrap();
            m.client.release(file).await.unwrap();
        };
        read(0).await;
        assert_eq!(asked(&m), ["mds close", "mds closed 0 read 1"], "the first close is sent at once");
        for i in 1..10 {
            read(i).await;
        }
        assert_eq!(asked(&m), [""; 0], "the next closes wait for each other");
        settle(&m).await;
        assert_eq!(asked(&m), ["mds close", "mds closed 0 read 9"]);
        for i in [10, 11] {
            read(i).await;
        }
        asked(&m);
        let atime = async |i: usize| m.client.getattr(files[i], None).await.unwrap().attr.atime.sec;
        assert_ne!(atime(12).await, i64::MAX);
        assert_eq!(asked(&m), [""; 0]);
        assert_eq!(atime(11).await, i64::MAX, "a stat sends the close first");
        assert_eq!(asked(&m), ["mds close", "mds closed 0 read 1"]);
        settle(&m).await;
        for i in [13, 14] {
            read(i).await;
        }
        m.client.umount().await;
        assert!(asked(&m).ends_with(&["mds close".into(), "mds closed 0 read 1".into()]));
    });
}

/// Creates and closes a file.
async fn make(m: &Mounted, file: &str) -> Fid {
    let made = m.client.create(&ROOT, root(), &name(file), flags::RDWR | flags::CREAT, 0o644, 0).await.unwrap().1;
    let fid = made.fid();
    m.client.release(made).await.unwrap();
    fid
}

#[test]
fn closes_of_new_files_are_sent_together() {
    with(1, 65536, &[0], async |m| {
        m.world.state.lock().locks.on = true;
        for i in 0..10 {
            make(&m, &format!("f{i}")).await;
        }
        let mut log = asked(&m);
        log.retain(|what| what != "mds create");
        assert_eq!(log, ["mds close", "mds closed 1 read 0"], "the first close is sent at once");
        assert_eq!(at_mdt(&m).len(), 9);
        m.client.lookup(&ROOT, root(), &name("f9")).await.unwrap();
        assert_eq!(asked(&m), [""; 0], "a lookup of a new file needs no request to the MDT");
        settle(&m).await;
        assert_eq!(asked(&m), ["mds close", "mds closed 9 read 0"]);
        assert_eq!(at_mdt(&m), []);

        m.world.state.lock().locks.on = false;
        for file in ["g", "h"] {
            make(&m, file).await;
            assert_eq!(at_mdt(&m), [], "without a lock the close is sent at once");
        }
        m.world.state.lock().locks.on = true;
        make(&m, "i").await;
        assert_eq!(at_mdt(&m).len(), 1);
        m.client.umount().await;
        assert_eq!(at_mdt(&m), []);
    });
}

#[test]
fn delayed_close_is_sent_before_layout_cancel_and_unlink() {
    with(1, 65536, &[0], async |m| {
        m.world.state.lock().locks.on = true;
        make(&m, "first").await;
        let fid = make(&m, "f").await;
        asked(&m);
        m.world.revoke_bits(Resource::bits(fid), bits::UPDATE);
        m.net.rt().sleep(Duration::from_millis(5)).await;
        assert_eq!((asked(&m), at_mdt(&m)), (vec!["mds ldlm_cancel".into()], vec![fid]));
        m.world.revoke_bits(Resource::bits(fid), bits::LAYOUT);
        m.net.rt().sleep(Duration::from_millis(5)).await;
        assert_eq!(asked(&m), ["mds close", "mds closed 1 read 0", "mds ldlm_cancel"]);
        assert_eq!(at_mdt(&m), []);

        make(&m, "g").await;
        asked(&m);
        m.client.unlink(&ROOT, root(), &name("g")).await.unwrap();
        assert_eq!(asked(&m), ["mds close", "mds closed 1 read 0", "mds unlink"], "no open handle is left");
        let dir = m.client.mkdir(&ROOT, root(), &name("d"), 0o755, 0).await.unwrap().attr.fid;
        let open = m.client.opendir(&ROOT, dir, 0).await.unwrap();
        m.client.releasedir(open).await.unwrap();
        asked(&m);
        m.client.rmdir(&ROOT, root(), &name("d")).await.unwrap();
        assert_eq!(asked(&m), ["mds close", "mds closed 1 read 0", "mds rmdir"]);
    });
}

#[test]
fn open_asks_mdt_if_it_must_act_or_may_refuse() {
    with(1, 65536, &[0], async |m| {
        let fid = known(&m, "f").await;
        let (owner, other) = (Caller::new(0, 0, 0), Caller::new(1000, 1000, 42));
        for (who, flags) in [(&owner, flags::RDWR | flags::TRUNC), (&other, flags::RDONLY), (&owner, flags::EXEC)] {
            let file = open_as(&m, who, fid, flags).await;
            assert_eq!(asked(&m), ["mds open"], "{who:?} {flags:#o}");
            m.client.release(file).await.unwrap();
            m.client.lookup(&ROOT, root(), &name("f")).await.unwrap();
            asked(&m);
        }
        // A kernel checks permissions itself. It does not check for file capabilities.
        m.client.set_kernel(Arc::new(Kernel));
        open_as(&m, &other, fid, flags::RDWR).await;
        assert_eq!(asked(&m), [""; 0], "the file has no capabilities");
        m.client.setxattr(&ROOT, fid, &name("security.capability"), &name("x"), 0).await.unwrap();
        m.client.getattr(fid, None).await.unwrap();
        asked(&m);
        open_as(&m, &other, fid, flags::RDWR).await;
        assert_eq!(asked(&m), ["mds open"], "the file may have capabilities");
    });
}

#[test]
fn local_open_is_registered_before_lock_cancel() {
    with(1, 65536, &[0], async |m| {
        let fid = known(&m, "f").await;
        let (one, two) = (open(&m, fid).await, open(&m, fid).await);
        // The OPEN bit is not revoked, so the file stays open only here.
        m.world.revoke_bits(Resource::bits(fid), bits::UPDATE | bits::PERM);
        settle(&m).await;
        assert_eq!(asked(&m), ["mds ldlm_cancel"]);
        m.world.revoke(Resource::bits(fid));
        settle(&m).await;
        assert_eq!(asked(&m), ["mds reopen", "mds ldlm_cancel"]);
        assert_eq!(at_mdt(&m), [fid, fid]);
        m.client.release(one).await.unwrap();
        m.client.release(two).await.unwrap();
        assert_eq!(at_mdt(&m), []);
        asked(&m);
        open(&m, fid).await;
        assert_eq!(asked(&m), ["mds open"], "the lock was cancelled, and comes with the reply");
        open(&m, fid).await;
        assert_eq!(asked(&m), [""; 0]);
    });
}

#[test]
fn file_closed_during_registration_is_closed_at_mdt() {
    with(1, 65536, &[0], async |m| {
        let fid = known(&m, "f").await;
        let (closed, retained) = (open(&m, fid).await, open(&m, fid).await);
        m.world.state.lock().delay = Duration::from_millis(100);
        m.world.revoke(Resource::bits(fid));
        m.net.rt().sleep(Duration::from_millis(50)).await;
        m.client.release(closed).await.unwrap();
        m.net.rt().sleep(Duration::from_secs(5)).await;
        assert_eq!(asked(&m), ["mds reopen", "mds close", "mds closed 1 read 0", "mds ldlm_cancel"]);
        assert_eq!(at_mdt(&m), [fid]);
        m.client.release(retained).await.unwrap();
        assert_eq!(at_mdt(&m), []);
    });
}

#[test]
fn local_open_is_registered_at_restarted_mdt() {
    with(1, 65536, &[0], async |m| {
        let fid = known(&m, "f").await;
        let (file, closed) = (open(&m, fid).await, open(&m, fid).await);
        m.server.remove("sheen-MDT0000");
        m.world.state.lock().incarnation = 2;
        m.client.release(closed).await.unwrap();
        m.server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
        m.client.getattr(root(), None).await.unwrap();
        assert_eq!(at_mdt(&m), [fid]);
        assert_eq!(m.client.read(&file, 0, 10).await.unwrap().into_bytes(), "bytes");
        m.client.release(file).await.unwrap();
        assert_eq!(at_mdt(&m), []);
    });
}

#[test]
fn unlink_and_rename_release_open_bit_in_same_request() {
    with(1, 65536, &[0], async |m| {
        for (file, remove) in [("f", true), ("g", false)] {
            let fid = known(&m, file).await;
            let other = known(&m, "other").await;
            if remove {
                m.client.unlink(&ROOT, root(), &name(file)).await.unwrap();
            } else {
                m.client.rename(&ROOT, root(), &name("other"), root(), &name(file), 0).await.unwrap();
            }
            let converted = std::mem::take(&mut m.world.state.lock().locks.converted);
            let retained = bits::LOOKUP | bits::UPDATE | bits::PERM | bits::XATTR | bits::LAYOUT;
            let of = |id| m.world.state.lock().locks.held[id].resource;
            let locks: Vec<_> = converted.iter().map(|(id, bits)| (of(id), *bits)).collect();
            assert_eq!(locks, [(Resource::bits(fid), retained)]);
            assert_eq!(asked(&m).len(), 1, "with the same request");
            if m.client.lookup(&ROOT, root(), &name(file)).await.is_ok() {
                asked(&m);
                open(&m, other).await;
                assert_eq!(asked(&m), [""; 0], "the other file can still be opened");
            }
        }
        // If the file is open, the OPEN lock stays until it is revoked.
        let fid = known(&m, "f").await;
        let _file = open(&m, fid).await;
        m.client.unlink(&ROOT, root(), &name("f")).await.unwrap();
        assert_eq!(m.world.state.lock().locks.converted, []);
        m.world.revoke_bits(Resource::bits(fid), bits::OPEN);
        settle(&m).await;
        assert_eq!(at_mdt(&m), [fid]);
    });
}
