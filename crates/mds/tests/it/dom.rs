//! Files with DoM data as the MDT sees them. They are created without a request to an OST and
//! removed from the MDT's data service. The data service is cleaned up only after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Host, config, simulate, with_host};
use bytes::Bytes;
use parking_lot::Mutex;
use sheen_layout::{Layout, MDT_OST, Spec, Stripe, Template, TemplateComponent};
use sheen_mds::MdtConfig;
use sheen_rpc::{BoxFuture, Export, Response, Service};
use sheen_wire::mds::{NewNode, Reply, Request};
use sheen_wire::{Bulk, Cred, Errno, Fid, FileKind, Ost, Result, StatFs, fid, ost};

/// A data service with these objects.
#[derive(Default)]
struct Data {
    objects: Mutex<BTreeSet<Fid>>,
    asked: Mutex<Vec<&'static str>>,
}

impl Data {
    fn times(&self, op: &str) -> usize {
        self.asked.lock().iter().filter(|asked| **asked == op).count()
    }
}

impl Service<Ost> for Data {
    fn call<'a>(
        &'a self,
        _: &'a Arc<Export>,
        request: ost::Request,
        _: Bulk,
    ) -> BoxFuture<'a, Result<Response<ost::Reply>>> {
        self.asked.lock().push(request.op());
        let mut objects = self.objects.lock();
        let reply = match request {
            ost::Request::StatFs => {
                ost::Reply::StatFs(StatFs { bsize: 4096, blocks: 1 << 20, bavail: 1 << 20, ..StatFs::default() })
            }
            // Two at a time, so that listing takes several requests.
            ost::Request::List { after } => {
                ost::Reply::Objects(objects.iter().filter(|o| **o > after).take(2).copied().collect())
            }
            ost::Request::Destroy { objects: gone } => {
                gone.iter().for_each(|object| assert!(objects.remove(object) || object.oid < 1000, "{object}"));
                ost::Reply::Ok
            }
            other => panic!("{other:?}"),
        };
        Box::pin(async move { Ok(reply.into()) })
    }

    fn incarnation(&self) -> u64 {
        1
    }
}

fn holds_data() -> MdtConfig {
    MdtConfig { holds_data: true, ..config() }
}

async fn start(rt: &sheen_rt::Rt, data: &Arc<Data>) -> Host {
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
        let data = Arc::new(Data::default());
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
        let data = Arc::new(Data::default());
        let host = start(&sim.rt(1), &data).await;
        let mut kept = BTreeSet::new();
        for i in 0..5 {
            kept.insert(Fid { ver: 1, ..make(&host, &format!("file{i}")).await.unwrap() });
        }
        host.sync().await.unwrap();
        // Objects whose creates never became durable, or that their files do not have any more.
        let seq = kept.first().unwrap().seq;
        let mut lost: Vec<Fid> = (0..5).map(|i| Fid { ver: 1, ..Fid::new(seq, 1000 + i) }).collect();
        lost.extend(kept.first().map(|object| Fid { ver: 2, ..*object }));
        data.objects.lock().extend(kept.iter().chain(&lost));
        std::mem::forget(host);
        sim.crash_host(1);

        let rt = sim.rt(1);
        let host = start(&rt, &data).await;
        rt.sleep(Duration::from_secs(5)).await;
        assert_eq!(*data.objects.lock(), kept);
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
