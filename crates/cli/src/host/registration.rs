//! What servers ask the MGS before they format a new target, and before they say that they are
//! ready.

use std::{path::Path, sync::Arc};

use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_wire::{
    Errno,
    mgs::{Config, Target, TargetKind},
};

use super::Host;
use crate::error::{Context, Failure, Result};

/// The MDT of a file system, if the MGS knows one.
fn mdt_of(config: &Config) -> Option<&Target> {
    config.targets.iter().find(|target| target.kind == TargetKind::Mdt)
}

/// What the MGS knows of a file system: nothing where it does not know its name.
async fn known(mgc: &Mgc, fsname: &str) -> Result<Option<Config>> {
    match mgc.config(fsname).await {
        Ok(config) => Ok(Some(config)),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(Failure::new(format!("the MGS does not say which targets {fsname} has: {e}"))),
    }
}

/// Says what a new OST waits for. A mistyped name would otherwise be a file system of its own.
async fn warn_of_unknown(mgc: &Mgc, fsname: &str, dir: &Path) -> Result {
    let names = mgc.list().await.context("the MGS does not say which file systems there are")?;
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    tracing::warn!(
        "the MGS knows no MDT of the file system '{fsname}' (file systems: {names}): the new OST in {} waits for it. \
         Start `sheen mds --fsname {fsname}`, or name another file system with --fsname",
        dir.display()
    );
    Ok(())
}

impl Host {
    fn mgc(&self, mgs: &[Nid]) -> Arc<Mgc> {
        Mgc::new(self.net.clone(), mgs.to_vec(), &format!("server-{:016x}", self.rt.random_u64()))
    }

    /// What the MGS of this process knows of a file system.
    pub fn registered_targets(&self, fsname: &str) -> Option<Config> {
        self.mgs.lock().as_ref().and_then(|mgs| mgs.config(fsname))
    }

    /// For a directory without an MDT, before one is formatted there: the file system must not
    /// have one. Waits until the MGS answers.
    ///
    /// # Errors
    /// It has one.
    pub async fn check_first_mdt(&self, fsname: &str, mgs: &[Nid], dir: &Path) -> Result {
        let config = known(&self.mgc(mgs), fsname).await?;
        let Some(mdt) = config.as_ref().and_then(mdt_of) else { return Ok(()) };
        let (name, nids, dir) = (mdt.name(fsname), mdt.nids.join(","), dir.display());
        Err(Failure::new(format!("the file system {fsname} has an MDT, {name} at {nids}, and {dir} does not hold it"))
            .advise(format!("name the directory of {name} with --dir, or another file system with --fsname")))
    }

    /// For a directory without an OST, before one is formatted there: waits until the MGS knows the
    /// MDT of the file system, so that no OST is registered under a mistyped name.
    ///
    /// # Errors
    /// The MGS refuses the name.
    pub async fn wait_for_mdt(&self, fsname: &str, mgs: &[Nid], dir: &Path) -> Result {
        let mgc = self.mgc(mgs);
        let mut config = known(&mgc, fsname).await?;
        if config.as_ref().and_then(mdt_of).is_none() {
            warn_of_unknown(&mgc, fsname, dir).await?;
        }
        while config.as_ref().and_then(mdt_of).is_none() {
            let version = config.map_or(0, |config| config.version);
            let newer = mgc.watch(fsname, version).await;
            config = Some(newer.context(format!("the MGS does not say which targets {fsname} has"))?);
        }
        Ok(())
    }

    /// Answers when the MGS has taken the MDTs of this process.
    ///
    /// # Errors
    /// It refuses one.
    pub async fn mdts_registered(&self) -> Result {
        let mdts = self.mdts.lock().clone();
        for mdt in mdts {
            mdt.registered().await.map_err(|errno| {
                let failure = Failure::new(format!("the MGS does not take {}: {errno}", mdt.name()));
                match errno {
                    Errno::EEXIST => failure.advise("it knows another MDT of this file system; is this the right MGS?"),
                    _ => failure,
                }
            })?;
        }
        Ok(())
    }
}
