//! Creates imports from the configuration of a file system, and applies later changes to them.

use std::{sync::Arc, time::Duration};

use sheen_layout::MDT_OST;
use sheen_lnet::{Net, Nid};
use sheen_params::Params;
use sheen_rpc::{Import, ImportConfig, RetainedBudget};
use sheen_wire::{
    Mds, Protocol,
    mds::FEATURE_DATA,
    mgs::{Config, Target, TargetKind, data_name, target_name},
};

use crate::{
    cache::Cache,
    capabilities::Capabilities,
    lock_owners::OstLocks,
    lov::{Lov, Ost},
    mdc::Mdc,
    osc::Osc,
    params,
    pools::Pools,
    registered::unregister_osc,
    types::{GroupSource, MountError},
};

/// Maximum bytes of writes that a mount retains for all OSTs, until they are durable.
const RETAINED_BYTES_MAX: usize = 512 << 20;

/// The data needed to create the imports of a mount.
pub struct Targets {
    net: Arc<Net>,
    fsname: String,
    instance: String,
    uuid: String,
    lov: Arc<Lov>,
    cache: Arc<Cache>,
    capabilities: Arc<Capabilities>,
    params: Params,
    pools: Arc<Pools>,
    /// Limit of waiting for a disconnected target.
    server_wait: Option<Duration>,
    /// Memory for writes that OSTs have answered and may lose.
    retained: Arc<RetainedBudget>,
}

impl Targets {
    /// Creates the factory for a mount with this instance number and client uuid.
    pub fn new(
        net: Arc<Net>,
        fsname: &str,
        instance: &str,
        uuid: &str,
        lov: Arc<Lov>,
        cache: Arc<Cache>,
        params: Params,
    ) -> Targets {
        let pools = Arc::new(Pools::new(params.clone(), fsname, instance));
        let (fsname, instance, uuid) = (fsname.to_owned(), instance.to_owned(), uuid.to_owned());
        let retained = Arc::new(RetainedBudget::new(RETAINED_BYTES_MAX));
        let locked = lov.objects().clone();
        let capabilities = Capabilities::new(net.rt(), move |object| locked.file_of(object));
        Targets { net, fsname, instance, uuid, lov, cache, capabilities, params, pools, server_wait: None, retained }
    }

    /// Sets how long requests wait for a disconnected target. `None`, the default: without a limit.
    pub fn with_server_wait(self, server_wait: Option<Duration>) -> Targets {
        Targets { server_wait, ..self }
    }

    /// Returns the mount's list of pools.
    pub fn pools(&self) -> Arc<Pools> {
        self.pools.clone()
    }

    /// Creates the client of the MDT.
    ///
    /// # Errors
    /// The configuration has no MDT, or an invalid address for it.
    pub fn mdc(&self, config: &Config, groups: Arc<dyn GroupSource>) -> Result<Arc<Mdc>, MountError> {
        let is_mdt = |t: &&Target| t.kind == TargetKind::Mdt && t.index == 0;
        let target = config.targets.iter().find(is_mdt).ok_or_else(|| MountError::NoMdt(self.fsname.clone()))?;
        let name = target.name(&self.fsname);
        let config = ImportConfig { features: FEATURE_DATA, ..self.import_config(target, &name)? };
        let import: Arc<Import<Mds>> = Import::new(self.net.clone(), config);
        let (rt, device) = (self.net.rt().clone(), format!("{name}-mdc-{}", self.instance));
        let mdc = Mdc::new(rt, device, import, groups, self.capabilities.clone());
        Ok(Arc::new(mdc))
    }

    /// Applies a configuration: permanent settings, the addresses of all targets, new OSTs (and
    /// the MDT's data service), removed OSTs, and pools. A target with an invalid address is
    /// skipped; the others work without it.
    pub fn apply(&self, config: &Config, mdc: &Mdc) {
        self.params.keep(&self.fsname, config.version, &config.params);
        for target in &config.targets {
            let name = target_name(&self.fsname, target.kind, target.index);
            let applied = match target.kind {
                TargetKind::Ost => self.apply_ost(target, target.index, &name),
                TargetKind::Mdt if target.index == 0 => self.apply_mdt(target, &name, mdc),
                TargetKind::Mdt => Ok(()),
            };
            if let Err(e) = applied {
                tracing::error!("{}: {e}", self.fsname);
            }
        }
        self.pools.apply(&config.pools);
    }

    /// Applies the MDT's addresses and incarnation. Its data service has the same ones.
    fn apply_mdt(&self, target: &Target, name: &str, mdc: &Mdc) -> Result<(), MountError> {
        renew(mdc.import(), self.import_config(target, name)?.nids, target.incarnation);
        self.apply_ost(target, MDT_OST, &data_name(name))
    }

    fn apply_ost(&self, target: &Target, index: u32, name: &str) -> Result<(), MountError> {
        let config = self.import_config(target, name)?;
        if let Some(ost) = self.lov.get(index) {
            if target.removed {
                self.retire(&ost);
            } else {
                renew(ost.osc.import(), config.nids, target.incarnation);
            }
            return Ok(());
        }
        let config = ImportConfig { retained: self.retained.clone(), ..config };
        let import: Arc<Import<sheen_wire::Ost>> = Import::new(self.net.clone(), config);
        let kind = if index == MDT_OST { "" } else { "osc-" };
        let device = format!("{name}-{kind}{}", self.instance);
        let osc = Arc::new(Osc::new(self.net.rt(), index, device, import, &self.capabilities));
        let writeback = self.lov.new_writeback(&osc);
        let owner = OstLocks::new(&self.cache, self.lov.objects(), &osc, &writeback);
        let ost = Arc::new(Ost::new(osc, writeback, owner, self.lov.evictions()));
        if target.removed {
            // Layouts may still name it.
            ost.osc.set_removed();
            self.lov.add(ost);
            return Ok(());
        }
        params::register_ost(&self.params, &ost, &self.uuid, self.net.rt());
        // The mount connects to a data service when the MDT says that it has one.
        if index != MDT_OST {
            ost.osc.import().begin_connect();
        }
        self.lov.add(ost);
        Ok(())
    }

    /// Stops the use of an OST that was removed from the file system.
    fn retire(&self, ost: &Arc<Ost>) {
        if !ost.osc.set_removed() {
            return;
        }
        tracing::info!("{}: the OST was removed from the file system", ost.osc.name());
        unregister_osc(&self.params, &ost.osc);
        ost.osc.locks().forget();
        let import = ost.osc.import().clone();
        drop(self.net.rt().spawn("removed-ost", async move { import.close().await }));
    }

    fn import_config(&self, target: &Target, name: &str) -> Result<ImportConfig, MountError> {
        let nid = |nid: &String| {
            nid.parse::<Nid>().map_err(|_| MountError::BadNid { target: name.to_owned(), nid: nid.clone() })
        };
        let nids = target.nids.iter().map(nid).collect::<Result<Vec<_>, _>>()?;
        let mut config = ImportConfig::new(&self.uuid, name, nids).of(&target.uuid);
        match self.server_wait {
            None => config.params.hard = true,
            Some(limit) => {
                let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
                (config.params.connect_timeout_ms, config.params.recovery_timeout_ms) = (limit, limit);
            }
        }
        Ok(config)
    }
}

/// Sets the addresses of an import's target, and the incarnation of its server. If both are
/// unchanged, the connection stays.
fn renew<P: Protocol>(import: &Import<P>, nids: Vec<Nid>, incarnation: u64) {
    if import.nids() != nids {
        let at: Vec<String> = nids.iter().map(Nid::to_string).collect();
        tracing::info!("{}: the target's address changed to {}", import.target(), at.join(","));
        import.set_nids(nids);
    }
    import.set_incarnation(incarnation);
}
