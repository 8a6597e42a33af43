//! `sheen mgs`, `sheen mds`, `sheen oss`: one kind of service per process. The process stays in the
//! foreground; a supervisor such as systemd starts it.

use std::{cell::Cell, path::Path, time::Duration};

use sheen_lnet::{DEFAULT_PORT, Nid};
use sheen_rt::join::try_join_all;

use crate::{
    announce::{self, MDS_PORT, MgsAt, OSS_PORT},
    args::{MdsArgs, MgsArgs, OssArgs, ServerArgs, TargetArgs},
    config::check_fsname,
    dir_kind::DirKind,
    error::{Context, Result},
    host::{self, Host},
    oss_slots::OssSlots,
    paths::private_dir,
};

const SHUTDOWN: Duration = Duration::from_secs(2);

/// `sheen mgs`
pub fn mgs(args: &MgsArgs) -> Result {
    let listen = host::listen_address(&args.listen, DEFAULT_PORT)?;
    DirKind::Mgs.expect_in(&args.dir)?;
    serve(&args.dir, &args.server, async |host: &Host| {
        let bound = host.listen(listen, &args.server.auth).await?;
        host.serve_metrics(args.server.metrics).await?;
        host.mgs(&args.dir).await?;
        println!("MGS ready at {}", Nid::Tcp(bound));
        Ok(())
    })
}

/// `sheen mds`: ready when the MGS has registered its MDT.
pub fn mds(args: &MdsArgs) -> Result {
    let TargetArgs { dir, fsname, .. } = &args.target;
    DirKind::Mdt.expect_in(dir)?;
    target(&args.target, MDS_PORT, async |host: &Host, mgs: &[Nid], nids: &[Nid]| {
        if !DirKind::Mdt.is_in(dir) {
            host.check_first_mdt(fsname, mgs, dir).await?;
        }
        host.mdt(dir, fsname, args.default_layout.default_layout.asked(), mgs, nids).await?;
        host.mdts_registered().await?;
        host.store_learned_key()?;
        println!("{fsname}-MDT0000 ready at {}", nids[0]);
        Ok(())
    })
}

/// `sheen oss`: its OSTs are in `DIR/0`, `DIR/1`, …; the MGS assigns each an index. It refuses a
/// directory that lacks its OST.
pub fn oss(args: &OssArgs) -> Result {
    let TargetArgs { dir, fsname, .. } = &args.target;
    DirKind::Osts.expect_in(dir)?;
    target(&args.target, OSS_PORT, async |host: &Host, mgs: &[Nid], nids: &[Nid]| {
        let mut slots = OssSlots::load(dir)?;
        let all = 0..args.osts.unwrap_or(1).max(slots.count());
        let at = |slot: u32| dir.join(slot.to_string());
        let start = async |slot: u32| host.ost(&at(slot), fsname, None, args.ost_model.ost_model, mgs, nids).await;
        let (known, others): (Vec<u32>, Vec<u32>) = all.partition(|slot| DirKind::Ost.is_in(&at(*slot)));
        // Together, because each waits for the MGS, and serves meanwhile.
        let names = try_join_all(known.iter().map(|slot| start(*slot))).await?;
        known.iter().zip(&names).try_for_each(|(slot, name)| slots.record(&host.rt.disk(), *slot, name))?;
        let mut ready = names.len();
        // One after another, so that the indices of new OSTs follow the directories.
        for slot in others {
            if slots.formats(slot, &at(slot), &host.wait_for_mdt(fsname, mgs, &at(slot)).await?)? {
                slots.record(&host.rt.disk(), slot, &start(slot).await?)?;
                ready += 1;
            }
        }
        host.store_learned_key()?;
        println!("{ready} OSTs of {fsname} ready at {}", nids[0]);
        Ok(())
    })
}

fn target(args: &TargetArgs, port: u16, start: impl AsyncFnOnce(&Host, &[Nid], &[Nid]) -> Result) -> Result {
    check_fsname(&args.fsname)?;
    let listen = args.listen.as_deref().map(|text| host::listen_address(text, port)).transpose()?;
    serve(&args.dir, &args.server, async |host: &Host| {
        host.join_keys(&args.dir)?;
        let mgs = MgsAt::resolve(&host.rt, &args.mgs).await?;
        let plan = announce::plan(&host.rt, &mgs, listen, port, args.announce.as_deref()).await?;
        let bound = host.listen(plan.listen, &args.server.auth).await?;
        host.serve_metrics(args.server.metrics).await?;
        let own = host.announced(&plan, bound);
        let nids = announce::with_servicenodes(&host.rt, own, &args.server.failover.servicenodes).await?;
        tokio::select! {
            started = start(host, &mgs.nids, &nids) => started,
            refused = host.net.refused(&mgs.nids) => Err(refused).context("cannot join the file system"),
        }
    })
}

/// Runs `start`, then serves until SIGTERM or SIGINT, until the directory of a target is removed,
/// or until another server asks for the directory. Each target locks its own directory.
fn serve(dir: &Path, args: &ServerArgs, start: impl AsyncFnOnce(&Host) -> Result) -> Result {
    host::log_to_stderr();
    private_dir(dir)?;
    let (runtime, rt) = host::runtime()?;
    let outcome = runtime.block_on(async {
        let host = Host::of_server(rt, &args.auth, &args.audit).await?;
        let protection = tokio::select! {
            taken = host.protect(dir, &args.failover) => taken?,
            asked = host::wait_for_signal() => return asked,
        };
        let started = Cell::new(false);
        let served = async {
            let runs = async {
                tokio::select! {
                    started = start(&host) => started?,
                    never = host.watch_keys() => match never {},
                }
                started.set(true);
                host.started();
                host.wait_for_shutdown().await
            };
            let outcome = tokio::select! {
                ended = runs => ended,
                asked = host::wait_for_signal() => asked,
                () = protection.asked() => Ok(()),
            };
            host.stop().await;
            outcome
        };
        let outcome = tokio::select! {
            outcome = served => outcome,
            () = protection.lost() => host::protection::end_at_once(),
        };
        // After a start that was cut short, a target may still serve until the process ends.
        if started.get() {
            protection.release().await;
        }
        outcome
    });
    runtime.shutdown(SHUTDOWN);
    outcome
}
