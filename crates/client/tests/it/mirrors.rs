//! Mirrored files over fake servers: a write is not lost if its mirror becomes stale meanwhile.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use crate::fake::{Kernel, Mounted, Object, ROOT, bulk, mds, name, root, with};
use sheen_client::{Caller, OpenFile, Seek, falloc};
use sheen_layout::{Layout, Spec, Template, TemplateComponent};
use sheen_wire::{
    Errno,
    ldlm::{Resource, bits},
    mds::{SetAttr, flags},
};

const RDWR_CREATE: u32 = flags::RDWR | flags::CREAT;

/// New files have two mirrors. Locks are granted.
fn mirrored<F: Future<Output = ()>>(test: impl FnOnce(Mounted) -> F) {
    with(4, 65536, &[0], |m| {
        let one = TemplateComponent::striped(0, u64::MAX, Spec::default());
        {
            let mut state = m.world.state.lock();
            state.template = Some(Template { components: vec![one.clone(), one], mirrors: 2 });
            state.locks.on = true;
        }
        test(m)
    });
}

async fn create(m: &Mounted, file: &str) -> Arc<OpenFile> {
    m.client.create(&ROOT, root(), &name(file), RDWR_CREATE, 0o644, 0).await.expect("create").1
}

/// Returns the bytes in the first object of a mirror.
fn in_mirror(m: &Mounted, file: &OpenFile, id: u16) -> Vec<u8> {
    let state = m.world.state.lock();
    let layout = Layout::decode(state.nodes[&file.fid()].layout.as_ref().unwrap()).unwrap();
    let stripe = layout.mirror(id).unwrap().stripes()[0];
    state.objects.get(&(stripe.ost, stripe.object)).map(|object| object.data.clone()).unwrap_or_default()
}

fn change(m: &Mounted, file: &OpenFile, change: impl FnOnce(Layout) -> Layout) {
    mds::change(&mut m.world.state.lock(), file.fid(), change);
}

async fn a_while(m: &Mounted) {
    m.net.rt().sleep(Duration::from_millis(50)).await;
}

/// Returns the layout after another client's resync and write: the second mirror alone is fresh.
fn the_second_counts(layout: Layout) -> Layout {
    let begun = layout.resync_begun(&[2]).unwrap();
    begun.resynced(begun.generation(), &[2]).unwrap().with_stale_others(2).unwrap()
}

/// The client learns of no layout change: the MDT does not grant LAYOUT, or the blocking callback
/// for the lock overtakes the reply that brings it.
#[test]
fn a_write_that_holds_no_lock_looks_back_before_it_returns() {
    for (hasty, append) in [(false, false), (true, false), (false, true)] {
        mirrored(async |m| {
            m.world.hasty.store(hasty, Relaxed);
            m.world.state.lock().locks.refused = if hasty { 0 } else { bits::LAYOUT };
            let fid = create(&m, "f").await.fid();
            let open_flags = if append { flags::RDWR | flags::APPEND } else { flags::RDWR };
            let f = m.client.open(&ROOT, fid, open_flags).await.unwrap();
            m.world.state.lock().habits.hold = true;
            let (client, writer) = (m.client.clone(), f.clone());
            let written = m.net.rt().spawn("write", async move { client.write(&writer, 0, bulk(b"bytes")).await });
            a_while(&m).await;
            assert!(!written.is_finished());
            change(&m, &f, the_second_counts);
            m.world.state.lock().habits.hold = false;
            assert_eq!(written.await.unwrap(), Ok(5));
            assert_eq!(in_mirror(&m, &f, 2), b"bytes", "hasty: {hasty}, append: {append}");
        });
    }
}

/// Sets the bytes in the first object of a mirror.
fn fill_mirror(m: &Mounted, file: &OpenFile, id: u16, bytes: &[u8]) {
    let mut state = m.world.state.lock();
    let layout = Layout::decode(state.nodes[&file.fid()].layout.as_ref().unwrap()).unwrap();
    let stripe = layout.mirror(id).unwrap().stripes()[0];
    let object = state.objects.entry((stripe.ost, stripe.object)).or_default();
    *object = Object::default();
    object.fill(0, bytes);
}

/// Found by seed 2415 of the simulated races for files with mirrors. A read for pages was so slow
/// that the mirror was truncated meanwhile, for a copy, and the read found nothing.
#[test]
fn who_looks_and_holds_no_lock_looks_back_before_it_returns() {
    for (what, answer) in
        [("pages", "other bytes"), ("read", "other bytes"), ("stat", "11"), ("seek", "11"), ("page", "11")]
    {
        mirrored(async |m| {
            m.client.set_kernel(Arc::new(Kernel));
            m.world.state.lock().locks.refused = bits::LAYOUT;
            let fid = create(&m, "f").await.fid();
            let f = m.client.open(&ROOT, fid, flags::RDWR).await.unwrap();
            assert_eq!(m.client.write(&f, 0, bulk(b"bytes")).await, Ok(5));
            m.world.state.lock().habits.blind = true;
            let (client, file) = (m.client.clone(), f.clone());
            let looked = m.net.rt().spawn("look", async move {
                match what {
                    "stat" => client.getattr(fid, None).await.unwrap().attr.size.to_string(),
                    "seek" => client.lseek(&file, 0, Seek::Hole).await.unwrap().to_string(),
                    "page" => client.write_page(&file, 0, bulk(b"page behind")).await.unwrap().to_string(),
                    _ => {
                        let read = client.read_as(&file, 0, 4096, what == "pages").await.unwrap();
                        String::from_utf8(read.into_bytes().to_vec()).unwrap()
                    }
                }
            });
            a_while(&m).await;
            assert!(!looked.is_finished(), "{what}");
            change(&m, &f, the_second_counts);
            fill_mirror(&m, &f, 1, b"");
            fill_mirror(&m, &f, 2, b"other bytes");
            m.world.state.lock().habits.blind = false;
            assert_eq!(looked.await.unwrap(), answer, "{what}");
            let there: &[u8] = if what == "page" { b"page behind" } else { b"other bytes" };
            assert_eq!(in_mirror(&m, &f, 2), there, "{what}");
        });
    }
}

#[test]
fn who_reads_and_writes_one_mirror_does_so_past_the_page_cache_and_writes_what_is_his() {
    mirrored(async |m| {
        m.client.set_kernel(Arc::new(Kernel));
        let fid = create(&m, "f").await.fid();
        m.world.state.lock().nodes.get_mut(&fid).unwrap().attr.uid = 77;
        let open = async |flags| m.client.open(&ROOT, fid, flags).await.unwrap();
        let (owner, other) = (Caller::new(77, 77, 1), Caller::new(78, 77, 1));
        for (how, who, allowed) in [
            (flags::RDONLY, &owner, Err(Errno::EINVAL)),
            (flags::RDONLY | flags::DIRECT, &other, Ok(())),
            (flags::RDWR | flags::DIRECT, &other, Err(Errno::EPERM)),
            (flags::WRONLY, &other, Err(Errno::EPERM)),
            (flags::RDWR, &owner, Ok(())),
            (flags::WRONLY | flags::DIRECT, &ROOT, Ok(())),
        ] {
            assert_eq!(m.client.use_mirror(who, &*open(how).await, 2).await, allowed, "{how:#o} {who:?}");
        }
        let f = open(flags::RDWR).await;
        assert_eq!(m.client.use_mirror(&owner, &f, 9).await, Err(Errno::EINVAL));
        m.client.use_mirror(&owner, &f, 2).await.unwrap();
        // A mapping sends such requests.
        assert_eq!(m.client.read_as(&f, 0, 10, true).await.map(drop), Err(Errno::EINVAL));
        assert_eq!(m.client.write_page(&f, 0, bulk(b"page")).await, Err(Errno::EINVAL));
        assert!(m.client.read_as(&f, 0, 10, false).await.is_ok());
        m.client.use_mirror(&other, &f, 0).await.unwrap();
        assert_eq!(m.client.write_page(&f, 0, bulk(b"page")).await, Ok(4));
    });
}

#[test]
fn a_mirror_is_written_while_it_is_stale_and_the_layout_stays() {
    mirrored(async |m| {
        let f = create(&m, "f").await;
        let busy = async |file: &OpenFile| {
            assert_eq!(m.client.write(file, 0, bulk(b"bytes")).await, Err(Errno::EBUSY));
            let cut = SetAttr { size: Some(0), ..SetAttr::default() };
            assert_eq!(m.client.setattr(&ROOT, file.fid(), cut, Some(file)).await.map(drop), Err(Errno::EBUSY));
            assert_eq!(m.client.fallocate(file, falloc::PUNCH_HOLE | falloc::KEEP_SIZE, 0, 9).await, Err(Errno::EBUSY));
        };
        let as_second = async || {
            let file = m.client.open(&ROOT, f.fid(), flags::RDWR | flags::DIRECT).await.unwrap();
            m.client.use_mirror(&ROOT, &file, 2).await.map(|()| file).unwrap()
        };
        busy(&*as_second().await).await;
        // The fake MDT sends no callbacks for the changes below.
        m.world.state.lock().locks.refused = bits::LAYOUT;
        let call_back = || m.world.call_back_bits(Resource::bits(f.fid()), bits::LAYOUT);
        let begin = async || {
            call_back();
            a_while(&m).await;
            change(&m, &f, |layout| layout.resync_begun(&[2]).unwrap());
        };
        begin().await;
        let first = as_second().await;
        assert_eq!(m.client.write(&first, 0, bulk(b"first")).await, Ok(5));
        begin().await;
        busy(&first).await;
        let second = as_second().await;
        assert_eq!(m.client.write(&second, 0, bulk(b"second")).await, Ok(6));
        // A write that is in progress when the mirror becomes fresh fails at its end.
        m.world.state.lock().habits.hold = true;
        let (client, writer) = (m.client.clone(), second.clone());
        let late = m.net.rt().spawn("write", async move { client.write(&writer, 0, bulk(b"late")).await });
        a_while(&m).await;
        change(&m, &f, |layout| layout.resynced(layout.generation(), &[2]).unwrap());
        m.world.state.lock().habits.hold = false;
        assert_eq!(late.await.unwrap(), Err(Errno::EBUSY));
        busy(&second).await;
    });
}
