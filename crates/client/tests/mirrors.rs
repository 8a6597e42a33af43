//! Mirrored files over fake servers: a write that another layout overtakes does not get lost on a mirror that counts no more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests may fail them")]

mod fake;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use fake::{Mounted, ROOT, bulk, mds, name, root, with};
use sheen_client::OpenFile;
use sheen_layout::{Layout, Spec, Template, TemplateComponent};
use sheen_wire::{ldlm::bits, mds::flags};

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

/// What is in the first object of a mirror.
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

/// What another client's resync and write make of the layout: the second mirror is the one that counts.
fn the_second_counts(layout: Layout) -> Layout {
    let begun = layout.resync_begun(&[2]).unwrap();
    begun.resynced(begun.generation(), &[2]).unwrap().with_stale_others(2).unwrap()
}

/// The lock on LAYOUT is asked back before the answer is here that brings it, or is not granted: the client hears of no change.
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
