//! Following the configuration of file systems: permanent settings, and withdrawn keys.

use std::sync::Arc;
use std::time::Duration;

use sheen_keys::{KeyError, Keyring};
use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_params::Params;
use sheen_rt::Rt;
use sheen_wire::auth::KeyId;

use super::Host;

/// Time that an OST waits at least, before it starts, for the permanent settings of the MGS.
/// Longer than a restart of the MGS.
const SETTINGS_WAIT: Duration = Duration::from_secs(1);
/// Time that it waits for an MGS that runs. On a busy machine such an MGS may take a while.
const SETTINGS_WAIT_MAX: Duration = Duration::from_secs(10);
/// Wait before the next request to the MGS after it refused one.
const SETTINGS_RETRY: Duration = Duration::from_secs(5);

impl Host {
    /// Applies the permanent settings of a file system, before an OST starts. So nothing is placed
    /// on an OST that is degraded by such a setting. Without an MGS, the OST starts without them.
    pub(super) async fn first_settings(&self, fsname: &str, mgs: &[Nid]) {
        if self.config_tasks.lock().contains_key(fsname) {
            return;
        }
        let mgc = self.config_client(mgs);
        let is_missing = async {
            self.rt.sleep(SETTINGS_WAIT).await;
            mgc.missed().await;
        };
        let asked = async {
            tokio::select! {
                biased;
                config = mgc.config(fsname) => config.ok(),
                () = is_missing => None,
            }
        };
        if let Ok(Some(config)) = self.rt.timeout(SETTINGS_WAIT_MAX, asked).await {
            self.params.keep(fsname, config.version, &config.params);
        }
    }

    /// Starts the task that follows the configuration of a file system, once for all targets of
    /// this process. It applies permanent settings to the parameters of OSTs, and withdraws keys.
    /// MDTs and mounts apply settings by themselves.
    pub(super) fn follow_config(&self, fsname: &str, mgs: &[Nid]) {
        let mut tasks = self.config_tasks.lock();
        if !tasks.contains_key(fsname) {
            let mgc = self.config_client(mgs);
            let follow = follow(self.rt.clone(), mgc, fsname.to_owned(), self.params.clone(), self.joined_keyring());
            tasks.insert(fsname.to_owned(), self.rt.spawn("config", follow));
        }
    }

    fn config_client(&self, mgs: &[Nid]) -> Arc<Mgc> {
        Mgc::new(self.net.clone(), mgs.to_vec(), &format!("oss-{:016x}", self.rt.random_u64()))
    }
}

/// Applies each configuration of the MGS to this process.
async fn follow(rt: Rt, mgc: Arc<Mgc>, fsname: String, params: Params, keyring: Option<Arc<Keyring>>) {
    let mut version = 0;
    loop {
        let applied = match mgc.watch(&fsname, version).await {
            Ok(config) => {
                params.keep(&fsname, config.version, &config.params);
                let withdrawn = withdraw(&rt, keyring.clone(), config.withdrawn).await;
                withdrawn.map(|()| version = config.version).map_err(|e| e.to_string())
            }
            Err(errno) => Err(errno.to_string()),
        };
        if let Err(error) = applied {
            tracing::warn!("{fsname}: cannot follow the configuration of the MGS ({error}); trying again");
            rt.sleep(SETTINGS_RETRY).await;
        }
    }
}

/// Withdraws the issued keys that were withdrawn at the MGS.
async fn withdraw(rt: &Rt, keyring: Option<Arc<Keyring>>, keys: Vec<KeyId>) -> Result<(), KeyError> {
    match keyring {
        Some(keyring) if !keys.is_empty() => rt.run_blocking(move || keyring.withdraw_as(&keys)).await,
        _ => Ok(()),
    }
}
