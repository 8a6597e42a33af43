//! Self-extending files as clients of an MDT see them: no space of an OST is given to two of them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::common::client::Client;
use crate::common::{FakeOst, Host, config, with_host};
use crate::common::{MDS, PORT};
use sheen_layout::{Count, Layout, Spec, Template, TemplateComponent};
use sheen_wire::mds::{Opener, Reply, Request};
use sheen_wire::{Cred, Fid};

const MIB: u64 = 1 << 20;
const OST_BYTES: u64 = 4 << 30;

/// Runs a test with two OSTs of 4 GiB, of which `mib` MiB are free, and a client.
fn with_room(mib: [u64; 2], test: impl AsyncFn(&Host, &[Arc<FakeOst>], Client)) {
    with_host(1, config(), async |sim, _, host| {
        host.server.listen(sim.addr(MDS, PORT)).await.unwrap();
        let osts = host.add_osts(2).await;
        leave(&osts, mib);
        // The MDT's view of them is now too old.
        host.rt.sleep(Duration::from_secs(2)).await;
        let client = Client::lo(&host, "a").await;
        test(&host, &osts, client).await;
    });
}

fn leave(osts: &[Arc<FakeOst>], mib: [u64; 2]) {
    osts.iter().zip(mib).for_each(|(ost, mib)| ost.used_bytes.store(OST_BYTES - mib * MIB, Relaxed));
}

/// Creates a file with one stripe that grows by 64 MiB, on the first OST at first.
async fn growing(client: &Client, name: &str) -> Fid {
    let spec = Spec { count: Some(Count::Stripes(1)), start: Some(0), ..Spec::default() };
    let template = Template::new(TemplateComponent::striped(0, u64::MAX, spec).extendable(64 * MIB));
    let fid = client.make(name).await;
    let value = template.encode().into();
    let set = Request::SetXattr { cred: Cred::ROOT, fid, name: "lustre.lov".into(), value, flags: 0 };
    client.ask(set).await.unwrap();
    fid
}

/// Returns extents in MiB and OSTs of the components with objects, after a write of 1 MiB.
async fn grown(client: &Client, fid: Fid, mib: u64) -> Vec<(u64, u64, u32)> {
    client.rt.sleep(Duration::from_millis(1)).await;
    let intent = Request::LayoutIntent { fid, start: mib * MIB, end: (mib + 1) * MIB, opener: Opener::UNKNOWN };
    let Reply::Entry(entry) = client.ask(intent).await.unwrap().reply else { panic!() };
    let layout = Layout::decode(entry.layout.as_ref().unwrap()).unwrap();
    let with_objects = layout.components().iter().filter(|c| !c.objects().is_empty());
    with_objects.map(|c| (c.start / MIB, c.end / MIB, c.objects()[0].ost)).collect()
}

#[test]
fn growing_files_are_not_given_the_same_space() {
    with_room([300, 300], async |_, osts, a| {
        let (f, g) = (growing(&a, "f").await, growing(&a, "g").await);
        leave(osts, [100, 100]);
        assert_eq!(grown(&a, f, 64).await, [(0, 128, 0)]);
        assert_eq!(grown(&a, g, 64).await, [(0, 64, 0), (64, 128, 1)], "36 MiB of the first OST are left");
        // Written bytes are not counted twice.
        leave(osts, [80, 80]);
        assert_eq!(grown(&a, f, 128).await, [(0, 160, 0)], "80 MiB, of which 44 are given to files");
        // Unwritten bytes do not count forever.
        a.rt.sleep(Duration::from_secs(90)).await;
        assert_eq!(grown(&a, f, 160).await, [(0, 224, 0)]);
    });
}

#[test]
fn statfs_precedes_each_extension_of_a_file() {
    with_room([300, 300], async |_, osts, a| {
        let f = growing(&a, "f").await;
        // At once, and after a long time without a request.
        for (left, pause, end) in [([300, 300], 0, 128), ([70, 300], 0, 192), ([300, 300], 3600, 256)] {
            a.rt.sleep(Duration::from_secs(pause)).await;
            leave(osts, left);
            let found = grown(&a, f, end - 1).await;
            assert!(found.last().is_some_and(|last| last.1 == end), "{found:?}");
        }
        a.rt.sleep(Duration::from_secs(3600)).await;
        leave(osts, [300, 10]);
        let before = grown(&a, f, 255).await;
        let ost = before.last().unwrap().2;
        leave(osts, if ost == 0 { [10, 300] } else { [300, 10] });
        let after = grown(&a, f, 256).await;
        assert_eq!(after[..before.len()], before[..]);
        assert_eq!(after[before.len()..], [(256, 320, 1 - ost)]);
    });
}

/// Found by the simulated migrations: for a minute no file got objects on any OST.
#[test]
fn layout_intent_over_a_hole_does_not_use_up_free_space() {
    with_room([1000, 1000], async |_, _, a| {
        for (name, from, to) in [("far", 1 << 40, (1 << 40) + MIB), ("whole", 0, u64::MAX)] {
            let fid = growing(&a, name).await;
            // A write after a long hole; a group lock on all of the file.
            a.ask(Request::LayoutIntent { fid, start: from, end: to, opener: Opener::UNKNOWN }).await.unwrap();
            let other = growing(&a, &format!("beside {name}")).await;
            assert_eq!(grown(&a, other, 0).await, [(0, 64, 0)]);
        }
    });
}
