//! Queries to the MGS before a server formats a new target, and before a server reports that it is
//! ready.

use std::{path::Path, sync::Arc};

use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_wire::{
    Errno,
    mgs::{Config, Target, TargetKind},
};

use super::{Host, mdt_registration::registered};
use crate::error::{Context, Failure, Result};

/// Returns the MDT of a file system, if the MGS knows one.
fn mdt_of(config: &Config) -> Option<&Target> {
    config.targets.iter().find(|target| target.kind == TargetKind::Mdt)
}

/// Returns the MGS's configuration of a file system, or `None` if the MGS does not know its name.
async fn known(mgc: &Mgc, fsname: &str) -> Result<Option<Config>> {
    match mgc.config(fsname).await {
        Ok(config) => Ok(Some(config)),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(Failure::new(format!("cannot get the targets of {fsname} from the MGS: {e}"))),
    }
}

/// Warns that a new OST waits for the MDT of its file system, and names the file systems that
/// exist. Without this wait, a mistyped name would create another file system.
async fn warn_of_unknown(mgc: &Mgc, fsname: &str, dir: &Path) -> Result {
    let names = mgc.list().await.context("cannot get the list of file systems from the MGS")?;
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    tracing::warn!(
        "the MGS knows no MDT of the file system '{fsname}' (file systems: {names}): the new OST in {} waits for it. \
         Start `sheen mds --fsname {fsname}`, or specify another file system with --fsname",
        dir.display()
    );
    Ok(())
}

impl Host {
    fn mgc(&self, mgs: &[Nid]) -> Arc<Mgc> {
        Mgc::new(self.net.clone(), mgs.to_vec(), &format!("server-{:016x}", self.rt.random_u64()))
    }

    /// Returns the configuration of a file system that the MGS of this process has.
    pub fn registered_targets(&self, fsname: &str) -> Option<Config> {
        self.mgs.lock().as_ref().and_then(|mgs| mgs.config(fsname))
    }

    /// Checks, before an MDT is formatted in `dir`, that the file system has none yet. Waits until
    /// the MGS answers.
    ///
    /// # Errors
    /// The file system has an MDT.
    pub async fn check_first_mdt(&self, fsname: &str, mgs: &[Nid], dir: &Path) -> Result {
        let config = known(&self.mgc(mgs), fsname).await?;
        let Some(mdt) = config.as_ref().and_then(mdt_of) else { return Ok(()) };
        let (name, nids, dir) = (mdt.name(fsname), mdt.nids.join(","), dir.display());
        Err(Failure::new(format!("the file system {fsname} has an MDT, {name} at {nids}, and {dir} does not hold it"))
            .advise(format!("use --dir to specify the directory of {name}, or --fsname for another file system")))
    }

    /// Waits, before an OST is formatted in `dir`, until the MGS knows the MDT of the file system.
    /// No OST is thus registered under a mistyped name. Returns the configuration.
    ///
    /// # Errors
    /// The MGS refuses the name.
    pub async fn wait_for_mdt(&self, fsname: &str, mgs: &[Nid], dir: &Path) -> Result<Config> {
        let mgc = self.mgc(mgs);
        let mut config = known(&mgc, fsname).await?;
        if config.as_ref().and_then(mdt_of).is_none() {
            warn_of_unknown(&mgc, fsname, dir).await?;
        }
        loop {
            let version = match config {
                Some(config) if mdt_of(&config).is_some() => return Ok(config),
                other => other.map_or(0, |config| config.version),
            };
            let newer = mgc.watch(fsname, version).await;
            config = Some(newer.context(format!("cannot get the targets of {fsname} from the MGS"))?);
        }
    }

    /// Waits until the MGS has registered the MDTs of this process.
    ///
    /// # Errors
    /// The MGS refuses one.
    pub async fn mdts_registered(&self) -> Result {
        let mdts = self.mdts.lock().clone();
        for mdt in mdts {
            registered(&mdt, "check --mgs and --dir").await?;
        }
        Ok(())
    }
}
