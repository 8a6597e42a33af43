//! Files whose components get their objects when data is written into them, over fake servers:
//! which requests go to the MDT, and when none is needed.

use std::{sync::Arc, time::Duration};

use crate::fake::{FakeMds, Kernel, Mounted, ROOT, State, World, bulk, name, root, with};
use sheen_client::{Invalidate, OpenFile, Seek, falloc};
use sheen_layout::{Count, Layout, Spec, Template, TemplateComponent};
use sheen_wire::{
    Errno, Fid, Mds,
    ldlm::{Resource, bits},
    mds::{SetAttr, flags},
};

const RDWR_CREATE: u32 = flags::RDWR | flags::CREAT;
const K: u64 = 1 << 10;
const STEPS: [(u64, u16); 3] = [(128 * K, 1), (512 * K, 2), (u64::MAX, 3)];

/// Runs a test with new files of one stripe for the first 128 KiB, two up to 512 KiB, then three.
/// The stripe size is 64 KiB. Locks are granted.
fn steps<F: Future<Output = ()>>(test: impl FnOnce(Mounted) -> F) {
    with(4, 65536, &[0], |m| {
        let mut start = 0;
        let component = |(end, n): (u64, u16)| {
            let spec = Spec { count: Some(Count::Stripes(n)), stripe_size: Some(65536), ..Spec::default() };
            let from = std::mem::replace(&mut start, end);
            TemplateComponent::striped(from, end, spec)
        };
        let template = Template::new(STEPS.into_iter().map(component).collect());
        {
            let mut state = m.world.state.lock();
            state.template = Some(template);
            state.locks.on = true;
        }
        test(m)
    });
}

async fn create(m: &Mounted, file: &str) -> Arc<OpenFile> {
    m.client.create(&ROOT, root(), &name(file), RDWR_CREATE, 0o644, 0).await.expect("create").1
}

async fn write(m: &Mounted, file: &OpenFile, at: u64, bytes: &[u8]) {
    assert_eq!(m.client.write(file, at, bulk(bytes)).await, Ok(bytes.len()));
}

async fn read(m: &Mounted, file: &OpenFile, at: u64, len: usize) -> Vec<u8> {
    m.client.read(file, at, len).await.expect("read").into_bytes().to_vec()
}

async fn size(m: &Mounted, file: &OpenFile) -> u64 {
    m.client.getattr(file.fid(), Some(file)).await.expect("stat").attr.size
}

fn with_objects(m: &Mounted, fid: Fid) -> Vec<bool> {
    let layout = m.world.state.lock().nodes[&fid].layout.clone().unwrap();
    Layout::decode(&layout).unwrap().components().iter().map(|c| c.is_instantiated()).collect()
}

/// Returns the requests to the MDT.
fn mds(m: &Mounted) -> Vec<String> {
    m.world.asked().into_iter().filter(|line| line.starts_with("mds")).collect()
}

/// Acts as another client that gets objects for a range, after this client has cancelled LAYOUT.
async fn somebody_writes(m: &Mounted, fid: Fid, at: u64, bytes: &[u8]) {
    m.world.revoke_bits(Resource::bits(fid), bits::LAYOUT);
    m.net.rt().sleep(Duration::from_millis(50)).await;
    assert!(!m.world.state.lock().locks.converted.is_empty(), "LAYOUT was cancelled");
    write_elsewhere(m, fid, at, bytes);
}

/// Adds objects for a range and writes into them, as another client.
fn write_elsewhere(m: &Mounted, fid: Fid, at: u64, bytes: &[u8]) {
    let mut state = m.world.state.lock();
    let layout = crate::fake::mds::intend(&mut state, fid, at, at + bytes.len() as u64).unwrap();
    for chunk in layout.map(at, bytes.len() as u64) {
        let stripe = layout.stripes()[chunk.stripe];
        let from = (chunk.file_offset - at) as usize;
        let object = state.objects.entry((stripe.ost, stripe.object)).or_default();
        object.fill(chunk.object_offset as usize, &bytes[from..from + chunk.len as usize]);
    }
}

#[test]
fn first_write_to_component_sends_one_layout_intent() {
    steps(async |m| {
        let f = create(&m, "f").await;
        m.world.asked();
        write(&m, &f, 0, &[1; 1000]).await;
        assert_eq!(with_objects(&m, f.fid()), [true, false, false]);
        assert_eq!(mds(&m), [""; 0], "there are objects, and the open brought the LAYOUT lock");
        write(&m, &f, 120 * K, &[2; 16 << 10]).await;
        assert_eq!(with_objects(&m, f.fid()), [true, true, false]);
        assert_eq!(mds(&m), ["mds layout_intent"]);
        write(&m, &f, 300 * K, &[3; 100]).await;
        assert_eq!(read(&m, &f, 120 * K, 16 << 10).await, [2; 16 << 10]);
        assert_eq!(size(&m, &f).await, 300 * K + 100);
        assert_eq!(mds(&m).iter().filter(|line| *line != "mds getattr").count(), 0);
        write(&m, &f, 600 * K, &[4; 100]).await;
        assert_eq!(mds(&m), ["mds layout_intent"]);
        m.world.revoke(Resource::bits(f.fid()));
        m.net.rt().sleep(Duration::from_millis(50)).await;
        m.world.asked();
        write(&m, &f, 800 * K, &[5; 100]).await;
        assert_eq!(mds(&m), ["mds getattr"], "the components may have been edited");
        m.world.state.lock().locks.on = false;
        write(&m, &f, 900 * K, &[5; 100]).await;
        assert_eq!(mds(&m), [""; 0], "all components have objects: no lock is needed");
        let all = read(&m, &f, 0, 1 << 20).await;
        let mut want = vec![0; 900 * K as usize + 100];
        for (at, len, byte) in [(0, 1000, 1), (120 << 10, 16 << 10, 2), (300 << 10, 100, 3), (600 << 10, 100, 4)] {
            want[at..at + len].fill(byte);
        }
        want[800 << 10..(800 << 10) + 100].fill(5);
        want[900 << 10..].fill(5);
        assert!(all == want);
    });
}

#[test]
fn concurrent_writes_share_one_layout_intent() {
    steps(async |m| {
        m.world.state.lock().delay = Duration::from_millis(3);
        let f = create(&m, "f").await;
        m.world.asked();
        let writes = (0..8u64).map(|i| {
            let (m, f) = (&m, &f);
            async move { write(m, f, 130 * K + i * 10 * K, &[i as u8 + 1; 10 << 10]).await }
        });
        futures_join(writes.collect()).await;
        assert_eq!(mds(&m).iter().filter(|line| *line == "mds layout_intent").count(), 1);
        let got = read(&m, &f, 130 * K, 80 << 10).await;
        assert!(got.iter().enumerate().all(|(i, byte)| usize::from(*byte) == i / (10 << 10) + 1));
    });
}

/// Polls all futures until all are done.
async fn futures_join<F: Future<Output = ()>>(all: Vec<F>) {
    let mut all: Vec<_> = all.into_iter().map(|f| Some(Box::pin(f))).collect();
    std::future::poll_fn(|cx| {
        for slot in &mut all {
            if slot.as_mut().is_some_and(|f| f.as_mut().poll(cx).is_ready()) {
                *slot = None;
            }
        }
        if all.iter().all(Option::is_none) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn read_sees_other_clients_write_to_new_component() {
    steps(async |m| {
        m.client.set_kernel(Arc::new(Kernel));
        let f = create(&m, "f").await;
        write(&m, &f, 0, b"abc").await;
        assert_eq!((size(&m, &f).await, read(&m, &f, 200 * K, 10).await.len()), (3, 0));
        somebody_writes(&m, f.fid(), 200 * K, b"from elsewhere").await;
        m.world.asked();
        assert_eq!(size(&m, &f).await, 200 * K + 14);
        assert_eq!(read(&m, &f, 200 * K, 100).await, b"from elsewhere");
        assert!(mds(&m).contains(&"mds getattr".to_owned()));
        m.world.asked();
        assert_eq!(read(&m, &f, 200 * K + 5, 100).await, b"elsewhere");
        assert_eq!(mds(&m), [""; 0], "the lock came back with the answer");
        // A file that is opened and read with cached metadata.
        m.client.release(f.clone()).await.unwrap();
        let again = m.client.open(&ROOT, f.fid(), flags::RDONLY).await.unwrap();
        assert_eq!(read(&m, &again, 200 * K, 4).await, b"from");
        somebody_writes(&m, f.fid(), 600 * K, b"and there").await;
        assert_eq!(size(&m, &again).await, 600 * K + 9);
        assert_eq!(read(&m, &again, 600 * K, 100).await, b"and there");
        assert_eq!(read(&m, &again, 599 * K, 1 << 10).await, [0; 1 << 10]);
    });
}

/// A kernel that logs when its pages are dropped.
struct Pages(Arc<World>);

impl Invalidate for Pages {
    fn names(&self) {}
    fn attr(&self, _: Fid) -> bool {
        true
    }
    fn data(&self, _: Fid) {
        self.0.state.lock().log.push("kernel data".into());
    }
    fn part(&self, fid: Fid, _: u64, _: u64) {
        self.data(fid);
    }
    fn keeps_names(&self) -> bool {
        true
    }
}

#[test]
fn pages_of_holes_are_dropped_before_layout_cancel() {
    steps(async |m| {
        m.client.set_kernel(Arc::new(Pages(m.world.clone())));
        let f = create(&m, "f").await;
        write(&m, &f, 600 * K, b"end").await;
        let dropped = |m: &Mounted| m.world.asked().iter().filter(|line| *line == "kernel data").count();
        drop(m.client.read_as(&f, 600 * K, 3, true).await.unwrap());
        dropped(&m);
        // Data is guarded by the OSTs' locks, not by LAYOUT.
        somebody_writes(&m, f.fid(), 0, b"x").await;
        assert_eq!(dropped(&m), 0);
        let refs = m.client.read_as(&f, 200 * K, 100, true).await.unwrap();
        assert_eq!(refs.bulk.clone().into_bytes(), [0; 100][..]);
        assert_eq!(dropped(&m), 0);
        let given_up = || m.world.state.lock().locks.converted.len();
        let before = given_up();
        m.world.revoke_bits(Resource::bits(f.fid()), bits::LAYOUT);
        m.net.rt().sleep(Duration::from_millis(50)).await;
        assert_eq!((given_up(), dropped(&m)), (before, 0), "the pages are in transit to the kernel");
        drop(refs);
        m.net.rt().sleep(Duration::from_millis(50)).await;
        assert_eq!((given_up(), dropped(&m)), (before + 1, 1));
        // This client's own layout intent drops them as well.
        drop(m.client.read_as(&f, 200 * K, 100, true).await.unwrap());
        dropped(&m);
        write(&m, &f, 300 * K, b"own").await;
        assert!(dropped(&m) > 0);
    });
}

#[test]
fn cached_size_is_dropped_with_layout_lock() {
    steps(async |m| {
        m.client.set_kernel(Arc::new(Kernel));
        let f = create(&m, "f").await;
        write(&m, &f, 0, b"abc").await;
        let fid = f.fid();
        m.client.release(f).await.unwrap();
        m.net.rt().sleep(Duration::from_secs(3)).await;
        let stat = async || m.client.getattr(fid, None).await.unwrap();
        stat().await;
        m.world.asked();
        let entry = stat().await;
        assert_eq!((entry.attr.size, entry.keep.attr), (3, true));
        assert!(m.world.asked().is_empty(), "everything is cached");
        drop(entry);
        somebody_writes(&m, fid, 513 * K, b"abc").await;
        assert_eq!(stat().await.attr.size, 513 * K + 3);
        m.world.asked();
        assert_eq!(stat().await.attr.size, 513 * K + 3);
        assert!(m.world.asked().is_empty(), "cached again, under another lock");
    });
}

#[test]
fn truncate_append_and_fallocate_instantiate_only_components_in_range() {
    steps(async |m| {
        let f = create(&m, "f").await;
        let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
        let cut = async |size| m.client.setattr(&ROOT, f.fid(), set(size), Some(&f)).await.map(|e| e.attr.size);
        assert_eq!(cut(700 * K).await, Ok(700 * K));
        assert_eq!(with_objects(&m, f.fid()), [true, false, true]);
        assert_eq!(read(&m, &f, 100 * K, 500 << 10).await, vec![0; 500 << 10]);
        assert_eq!(m.client.lseek(&f, 200 * K, Seek::Hole).await, Ok(200 * K));
        assert_eq!(m.client.lseek(&f, 200 * K, Seek::Data).await, Err(Errno::ENXIO));
        assert_eq!(cut(500 * K).await, Ok(500 * K));
        assert_eq!(cut(100 * K).await, Ok(100 * K));
        assert_eq!(size(&m, &f).await, 100 * K);

        let g = create(&m, "g").await;
        write(&m, &g, 0, &[1; 128 << 10]).await;
        let append = async |bytes: &[u8]| m.client.write_as(&g, 0, bulk(bytes), true, false).await;
        assert_eq!(append(&[2; 100]).await, Ok(100));
        assert_eq!(with_objects(&m, g.fid()), [true, true, false]);
        assert_eq!(append(&[3; 400 << 10]).await, Ok(400 << 10));
        assert_eq!((size(&m, &g).await, with_objects(&m, g.fid())), (528 * K + 100, vec![true; 3]));
        assert_eq!(m.client.lseek(&g, 0, Seek::Hole).await, Ok(528 * K + 100), "no hole at the components' ends");
        let got = read(&m, &g, 127 * K, 2 << 10).await;
        assert_eq!((&got[..1024], &got[1024..1124], got[1124]), (&[1; 1024][..], &[2; 100][..], 3));

        let h = create(&m, "h").await;
        m.client.fallocate(&h, falloc::PUNCH_HOLE | falloc::KEEP_SIZE, 0, 900 * K).await.unwrap();
        assert_eq!(with_objects(&m, h.fid()), [true, false, false]);
        m.client.fallocate(&h, 0, 0, 200 * K).await.unwrap();
        assert_eq!((size(&m, &h).await, with_objects(&m, h.fid())), (200 * K, vec![true, true, false]));
    });
}

#[test]
fn io_without_layout_lock_asks_mdt_each_time() {
    steps(async |m| {
        m.world.state.lock().locks.on = false;
        let f = create(&m, "f").await;
        write(&m, &f, 0, b"abc").await;
        assert_eq!(read(&m, &f, 0, 10).await, b"abc");
        crate::fake::mds::intend(&mut m.world.state.lock(), f.fid(), 600 * K, 601 * K).unwrap();
        m.world.asked();
        write(&m, &f, 600 * K, b"def").await;
        assert_eq!(mds(&m), ["mds getattr"; 2], "once before the write, and once to check for mirrors afterwards");
        write(&m, &f, 200 * K, b"ghi").await;
        assert_eq!(with_objects(&m, f.fid()), [true; 3]);
        let fid = f.fid();
        m.client.release(f).await.unwrap();
        let f = m.client.open(&ROOT, fid, flags::RDONLY).await.unwrap();
        assert_eq!(read(&m, &f, 200 * K, 3).await, b"ghi");
    });
}

/// Restarts the MDT, and changes its layouts.
fn restart(m: &Mounted, change: impl FnOnce(&mut State)) {
    m.server.remove("sheen-MDT0000");
    {
        let mut state = m.world.state.lock();
        state.incarnation += 1;
        state.open.clear();
        change(&mut state);
    }
    m.server.add::<Mds>("sheen-MDT0000", Arc::new(FakeMds(m.world.clone())));
}

#[test]
fn mdt_restart_keeps_open_file_unless_its_objects_are_lost() {
    steps(async |m| {
        let f = create(&m, "f").await;
        write(&m, &f, 0, b"abc").await;
        let first = m.world.state.lock().nodes[&f.fid()].layout.clone();
        restart(&m, |state| drop(crate::fake::mds::intend(state, f.fid(), 200 * K, 201 * K).unwrap()));
        m.client.statfs().await.expect("it is back");
        write(&m, &f, 200 * K, b"def").await;
        assert_eq!((size(&m, &f).await, read(&m, &f, 200 * K, 9).await), (200 * K + 3, b"def".to_vec()));
        assert_eq!(mds(&m).iter().filter(|line| *line == "mds layout_intent").count(), 0, "the objects exist already");
        restart(&m, |state| state.nodes.get_mut(&f.fid()).unwrap().layout = first.clone());
        m.client.statfs().await.expect("it is back");
        m.client.getattr(f.fid(), None).await.unwrap();
        let lost = m.client.write(&f, 200 * K, bulk(b"ghi")).await;
        assert_eq!(lost, Err(Errno::ESTALE), "its objects belong to no file");
        let f = m.client.open(&ROOT, f.fid(), flags::RDWR).await.unwrap();
        assert_eq!((size(&m, &f).await, read(&m, &f, 0, 9).await), (3, b"abc".to_vec()));
        write(&m, &f, 200 * K, b"ghi").await;
        assert_eq!(read(&m, &f, 200 * K, 9).await, b"ghi");
    });
}

#[test]
fn sync_write_to_new_objects_also_syncs_the_inode() {
    steps(async |m| {
        let f = create(&m, "f").await;
        let sync = async |at: u64| {
            m.world.asked();
            assert_eq!(m.client.write_as(&f, at, bulk(b"abc"), false, true).await, Ok(3));
            mds(&m)
        };
        assert_eq!(sync(0).await, ["mds sync"]);
        assert_eq!(sync(9).await, [""; 0]);
        assert_eq!(sync(200 * K).await, ["mds layout_intent", "mds sync"]);
        assert_eq!(sync(201 * K).await, [""; 0]);
    });
}

#[test]
fn stat_and_read_without_layout_lock_cache_nothing() {
    steps(async |m| {
        m.client.set_kernel(Arc::new(Pages(m.world.clone())));
        m.world.state.lock().locks.refused = bits::LAYOUT;
        let f = create(&m, "f").await;
        write(&m, &f, 600 * K, b"abc").await;
        let fid = f.fid();
        let reader = m.client.open(&ROOT, fid, flags::RDONLY).await.unwrap();
        m.client.release(f).await.unwrap();
        m.net.rt().sleep(Duration::from_secs(3)).await;
        for _ in 0..2 {
            let entry = m.client.getattr(fid, None).await.unwrap();
            assert_eq!((entry.attr.size, entry.keep.attr), (600 * K + 3, false));
        }
        m.world.asked();
        drop(m.client.read_as(&reader, 200 * K, 100, true).await.unwrap());
        m.net.rt().sleep(Duration::from_millis(50)).await;
        assert!(m.world.asked().contains(&"kernel data".to_owned()), "the kernel caches no hole");
        write_elsewhere(&m, fid, 200 * K, b"def");
        assert_eq!(read(&m, &reader, 200 * K, 3).await, b"def");
    });
}

#[test]
fn group_lock_instantiates_all_components() {
    steps(async |m| {
        let f = create(&m, "f").await;
        m.client.group_lock(&f, 7, false).await.unwrap();
        assert_eq!(with_objects(&m, f.fid()), [true; 3]);
        write(&m, &f, 600 * K, b"abc").await;
        m.client.group_unlock(&f, 7).unwrap();
        assert_eq!(read(&m, &f, 600 * K, 9).await, b"abc");
    });
}

/// The group can be that of a migration, which waits for the LAYOUT lock.
#[test]
fn stat_that_waits_for_a_group_cancels_its_layout_lock_when_asked() {
    steps(async |m| {
        let f = create(&m, "f").await;
        write(&m, &f, 0, b"x").await;
        let empty = SetAttr { size: Some(0), ..SetAttr::default() };
        m.client.setattr(&ROOT, f.fid(), empty, Some(&f)).await.expect("it is open for writing");
        let object = m.world.state.lock().objects.keys().next().expect("an object").1;
        m.world.revoke(Resource::extent(object));
        m.net.rt().sleep(Duration::from_secs(2)).await;
        m.world.state.lock().locks.others_group = true;
        let mut stat = Box::pin(m.client.getattr(f.fid(), Some(&f)));
        assert!(m.net.rt().timeout(Duration::from_secs(2), &mut stat).await.is_err(), "a group has the file");
        m.world.state.lock().locks.converted.clear();
        assert!(m.world.revoke_bits(Resource::bits(f.fid()), bits::LAYOUT) > 0);
        assert!(m.net.rt().timeout(Duration::from_secs(2), &mut stat).await.is_err());
        let converted = m.world.state.lock().locks.converted.clone();
        assert!(matches!(converted[..], [(_, retained)] if retained & bits::LAYOUT == 0), "{converted:?}");
        m.world.state.lock().locks.others_group = false;
        assert_eq!(stat.await.expect("the group has ended").attr.size, 0);
    });
}
