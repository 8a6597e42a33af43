//! Files with DoM data as the MDT sees them. They are created without a request to an OST and
//! removed from the MDT's data service. The data service is cleaned up only after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{FakeOst, Host, config, simulate, with_host};
use bytes::Bytes;
use sheen_layout::{Layout, MDT_OST, Spec, Stripe, Template, TemplateComponent};
use sheen_mds::MdtConfig;
use sheen_wire::mds::{NewNode, Reply, Request};
use sheen_wire::{Cred, Errno, Fid, FileKind, Ost, Result, fid};

fn holds_data() -> MdtConfig {
    MdtConfig { holds_data: true, ..config() }
}

async fn start(rt: &sheen_rt::Rt, data: &Arc<FakeOst>) -> Host {
    let host = Host::start(rt, holds_data()).await;
    host.server.add::<Ost>("sheen-MDT0000-dom", data.clone());
    host
}

fn small() -> Vec<u8> {
    let rest = TemplateComponent::striped(64 << 10, u64::MAX, Spec::default());
    Template::new(vec![TemplateComponent::on_mdt(64 << 10), rest]).encode()
}

/// Creates a file with its first component on the MDT.
async fn make(host: &Host, name: &str) -> Result<Fid> {
    let (fid, name) = (host.new_fid(), Bytes::copy_from_slice(name.as_bytes()));
    let node = NewNode::Node { kind: FileKind::Regular, rdev: 0 };
    let create = Request::Create { cred: Cred::ROOT, parent: fid::ROOT, name, fid, node, mode: 0o644, umask: 0 };
    host.ask(create).await?;
    let (name, value) = (Bytes::from_static(b"lustre.lov"), small().into());
    host.ask(Request::SetXattr { cred: Cred::ROOT, fid, name, value, flags: 0 }).await?;
    Ok(fid)
}

#[test]
fn dom_file_is_created_without_ost_and_destroyed_after_unlink() {
    simulate(1, async |_, rt| {
        let data = Arc::new(FakeOst::default());
        let host = start(&rt, &data).await;
        // No OST exists.
        let fid = make(&host, "f").await.unwrap();
        let Reply::Entry(entry) = host.ask(Request::GetAttr { fid, layout_known: false }).await.unwrap().body.reply
        else {
            panic!()
        };
        let layout = Layout::decode(&entry.layout.unwrap()).unwrap();
        assert_eq!(layout.stripes(), [Stripe { object: Fid { ver: 1, ..fid }, ost: MDT_OST }]);
        data.objects.lock().insert(Fid { ver: 1, ..fid });
        host.unlink("f").await.unwrap();
        host.sync().await.unwrap();
        rt.sleep(Duration::from_secs(2)).await;
        assert!(data.objects.lock().is_empty(), "the object is still there");
        assert_eq!(data.times("destroy") + data.times("statfs"), data.asked.lock().len(), "other requests");
        assert_eq!((host.param("lod.*.numobd"), data.times("list")), ("0".to_owned(), 0));
    });
}

#[test]
fn dom_layout_without_data_service_is_refused() {
    with_host(2, config(), async |_, _, host| {
        host.add_ost(0).await;
        assert_eq!(make(&host, "f").await, Err(Errno::EOPNOTSUPP));
    });
}

#[test]
fn crash_recovery_destroys_only_dom_objects_without_a_file() {
    simulate(3, async |sim, _| {
        let data = Arc::new(FakeOst::default());
        let host = start(&sim.rt(1), &data).await;
        let mut held = BTreeSet::new();
        for i in 0..5 {
            held.insert(Fid { ver: 1, ..make(&host, &format!("file{i}")).await.unwrap() });
        }
        host.sync().await.unwrap();
        // Objects whose creates never became durable, or that their files do not have any more.
        let seq = held.first().unwrap().seq;
        let mut lost: Vec<Fid> = (0..5).map(|i| Fid { ver: 1, ..Fid::new(seq, 1000 + i) }).collect();
        lost.extend(held.first().map(|object| Fid { ver: 2, ..*object }));
        data.objects.lock().extend(held.iter().chain(&lost));
        std::mem::forget(host);
        sim.crash_host(1);

        let rt = sim.rt(1);
        let host = start(&rt, &data).await;
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(*data.objects.lock(), held);
        assert_eq!(data.destroyed().iter().filter(|object| object.oid >= 1000).count(), 5, "each once");
        let listed = data.times("list");
        assert!(listed > 5);

        // After a clean stop there is no search.
        data.objects.lock().extend(&lost);
        host.mdt.stop().await.unwrap();
        drop(host);
        let _host = start(&rt, &data).await;
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!((data.times("list"), data.objects.lock().len()), (listed, 11));
    });
}
