//! Following the configuration of file systems: permanent settings, and withdrawn keys.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sheen_keys::{KeyError, Keyring};
use sheen_lnet::Nid;
use sheen_mgc::Mgc;
use sheen_params::Params;
use sheen_rt::Rt;
use sheen_wire::Errno;
use sheen_wire::auth::KeyId;

use super::Host;
use super::stored_settings::{self, StoredSettings};

/// Time that an OST waits at least, before it starts, for the permanent settings of the MGS.
/// Longer than a restart of the MGS.
const SETTINGS_WAIT: Duration = Duration::from_secs(1);
/// Time that it waits for an MGS that runs. On a busy machine such an MGS may take a while.
const SETTINGS_WAIT_MAX: Duration = Duration::from_secs(10);
/// Wait before the next request to the MGS after it refused one.
const SETTINGS_RETRY: Duration = Duration::from_secs(5);

impl Host {
    /// Applies the permanent settings of a file system, before an OST starts. So nothing is placed
    /// on an OST that is degraded by such a setting. If the MGS has not answered this process yet,
    /// these are the ones in the OST's directory `dir`; those of the newest copy count.
    pub(super) async fn first_settings(&self, fsname: &str, mgs: &[Nid], dir: &Path) {
        if self.stored_settings.has_answer(fsname) {
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
                answer = mgc.config(fsname) => Some(answer),
                () = is_missing => None,
            }
        };
        match self.rt.timeout(SETTINGS_WAIT_MAX, asked).await {
            Ok(Some(Ok(config))) => {
                self.params.keep(fsname, config.version, &config.params);
                self.stored_settings.note_answer(fsname);
            }
            // The MGS knows no file system of this name, so there are no settings.
            Ok(Some(Err(Errno::ENOENT))) => self.stored_settings.note_answer(fsname),
            Ok(_) | Err(_) => stored_settings::apply(&self.rt, &self.params, fsname, dir),
        }
    }

    /// Starts the task that follows the configuration of a file system, once for all targets of
    /// this process. It applies permanent settings to the parameters of OSTs, stores them for the
    /// next start, and withdraws keys. MDTs and mounts apply settings by themselves.
    pub(super) fn follow_config(&self, fsname: &str, mgs: &[Nid]) {
        let mut tasks = self.config_tasks.lock();
        if !tasks.contains_key(fsname) {
            let mgc = self.config_client(mgs);
            let (params, stored) = (self.params.clone(), self.stored_settings.clone());
            let follow = follow(self.rt.clone(), mgc, fsname.to_owned(), params, stored, self.joined_keyring());
            tasks.insert(fsname.to_owned(), self.rt.spawn("config", follow));
        }
    }

    fn config_client(&self, mgs: &[Nid]) -> Arc<Mgc> {
        Mgc::new(self.net.clone(), mgs.to_vec(), &format!("oss-{:016x}", self.rt.random_u64()))
    }
}

/// Applies each configuration of the MGS to this process.
async fn follow(
    rt: Rt,
    mgc: Arc<Mgc>,
    fsname: String,
    params: Params,
    stored: Arc<StoredSettings>,
    keyring: Option<Arc<Keyring>>,
) {
    let mut version = 0;
    loop {
        let applied = match mgc.watch(&fsname, version).await {
            Ok(mut config) => {
                params.keep(&fsname, config.version, &config.params);
                let withdrawn = withdraw(&rt, keyring.clone(), std::mem::take(&mut config.withdrawn)).await;
                stored.set(&rt, &config);
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
