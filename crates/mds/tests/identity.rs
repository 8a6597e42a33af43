//! Whose directory it is.

mod common;

use std::sync::Arc;

use common::{Host, config};
use sheen_lnet::Net;
use sheen_mds::{IdentityError, Mdt, MdtConfig, MdtError};
use sheen_params::Params;
use sheen_rpc::Server;
use sheen_rt::Rt;
use sheen_rt::sim::{Sim, SimConfig};

async fn start(rt: &Rt, config: MdtConfig) -> Result<Arc<Mdt>, MdtError> {
    let net = Net::new(rt.clone());
    let server = Server::new(net.clone());
    Mdt::start(rt.clone(), net, &server, config, Params::new()).await
}

#[test]
fn a_directory_is_served_once_and_as_what_it_is() {
    let sim = Sim::new(1, SimConfig::default());
    let rt = sim.rt(1);
    sim.run(async {
        let host = Host::start(&rt, config()).await;
        assert!(matches!(start(&rt, config()).await, Err(MdtError::InUse(_))));
        host.server.remove(host.mdt.name());
        host.mdt.stop().await.unwrap();

        let other = MdtConfig { fsname: "other".into(), ..config() };
        let error = start(&rt, other).await.err().unwrap();
        assert!(matches!(error, MdtError::Identity { error: IdentityError::Other { .. }, .. }), "{error}");
        assert!(error.to_string().contains("it holds sheen-MDT0000, not other-MDT0000"), "{error}");

        rt.disk().remove_file("/mdt/store.redb").unwrap();
        assert!(matches!(start(&rt, config()).await, Err(MdtError::StoreMissing(_))));
    })
    .unwrap();
}

#[test]
fn a_directory_with_other_files_is_not_formatted() {
    let sim = Sim::new(2, SimConfig::default());
    let rt = sim.rt(1);
    sim.run(async {
        rt.disk().create_dir_all("/mdt").unwrap();
        rt.disk().write_atomic("/mdt/thesis.tex", b"years of work").unwrap();
        assert!(matches!(start(&rt, config()).await, Err(MdtError::Foreign(_))));
        assert_eq!(rt.disk().read_dir("/mdt").unwrap().len(), 2, "the file and the lock");
    })
    .unwrap();
}

#[test]
fn a_crash_while_formatting_is_made_good_at_the_next_start() {
    for seed in 0..30 {
        let sim = Sim::new(seed, SimConfig::default());
        let rt = sim.rt(1);
        sim.run(async {
            let starting = rt.clone();
            let task = rt.spawn("start", async move { drop(start(&starting, config()).await) });
            rt.sleep(std::time::Duration::from_micros(rt.random_u64() % 300)).await;
            sim.crash_host(1);
            drop(task);
            let host = Host::start(&sim.rt(1), config()).await;
            host.mkdir("a").await.unwrap();
        })
        .unwrap();
    }
}
