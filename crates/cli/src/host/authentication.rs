//! The keys of a process: makes, learns and checks them.

use std::{convert::Infallible, path::Path, sync::Arc, time::Duration};

use sheen_keys::{Key, KeyError, Keyring, Refreshed, user_dir};
use sheen_lnet::Trust;
use sheen_rt::target_dir::KEYS;
use sheen_wire::{Errno, auth::ClusterId};

use super::Host;
use crate::error::{Context, Result};

/// Interval between two readings of the served keys.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

impl Host {
    fn keyring(&self) -> Option<&Arc<Keyring>> {
        match self.net.trust() {
            Trust::Keys(keys) => Some(&keys.keyring),
            Trust::All => None,
        }
    }

    /// Serves the keys in the directory of an MGS. The first start makes one.
    ///
    /// # Errors
    /// A key cannot be read or written.
    pub fn serve_keys(&self, mgs_dir: &Path) -> Result {
        let Some(keyring) = self.keyring() else { return Ok(()) };
        let make = || {
            let (mut cluster, mut id, mut secret) = ([0; 8], [0; 8], [0; 32]);
            self.rt.fill_random(&mut cluster);
            self.rt.fill_random(&mut id);
            self.rt.fill_random(&mut secret);
            let cluster = ClusterId(u64::from_le_bytes(cluster));
            Key::new(cluster, u64::from_le_bytes(id), secret, self.rt.wall().sec)
        };
        let warn = |error: KeyError| {
            tracing::warn!("cannot copy the file system's key for this user's mounts: {error}");
        };
        let made = keyring.serve(&mgs_dir.join(KEYS), user_dir().as_deref(), make, warn);
        if let Some(path) = made.context("cannot use the file system's key")? {
            tracing::info!(
                "made the key of this file system: {}; other hosts need a copy (`sheen key add`)",
                path.display()
            );
        }
        Ok(())
    }

    /// Serves the keys in the directory of an MDS or OSS. In a new directory, it stores the key by
    /// which the MGS accepts this process.
    ///
    /// # Errors
    /// A key cannot be read.
    pub fn join_keys(&self, dir: &Path) -> Result {
        match self.keyring() {
            Some(keyring) => keyring.serve_as_member(&dir.join(KEYS)).context("cannot use the file system's key"),
            None => Ok(()),
        }
    }

    /// Accepts keys that are added to the served directory, and ends the connections of those that
    /// are removed from it.
    pub async fn watch_keys(&self) -> Infallible {
        let Some(keyring) = self.keyring() else { return std::future::pending().await };
        let mut fault = None;
        loop {
            self.rt.sleep(REFRESH_INTERVAL).await;
            if !keyring.serves_a_directory() {
                continue;
            }
            let served = keyring.clone();
            let refreshed = self.rt.run_blocking(move || served.refresh()).await.unwrap_or_default();
            let Refreshed { added, withdrawn, unusable } = refreshed;
            for key in added {
                tracing::info!("accepting key {key} from now on");
            }
            for key in &withdrawn {
                tracing::info!("key {key} was withdrawn: it is not accepted any more, and its connections end");
            }
            self.report_withdrawn(keyring).await;
            if !withdrawn.is_empty() {
                tracing::info!("closed {} connections", self.server.end_refused());
            }
            if unusable != fault {
                unusable.iter().for_each(|fault| tracing::warn!("a key of this server is not usable: {fault}"));
                fault = unusable;
            }
        }
    }

    /// Lets the MGS of this process, if it has one, pass the withdrawn keys on to other servers.
    async fn report_withdrawn(&self, keyring: &Keyring) {
        let mgs = self.mgs.lock().clone();
        if let Some(mgs) = mgs
            && let Err(errno @ Errno::EIO) = mgs.set_withdrawn(keyring.withdrawn()).await
        {
            tracing::error!("other servers do not learn of withdrawn keys: {errno}");
        }
    }

    /// Returns the keyring of a process that learns from an MGS elsewhere which keys are withdrawn.
    pub fn joined_keyring(&self) -> Option<Arc<Keyring>> {
        self.keyring().filter(|_| self.mgs.lock().is_none()).cloned()
    }

    /// Stores the key that a new MDS or OSS has learned from its MGS.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn store_learned_key(&self) -> Result {
        match self.keyring() {
            Some(keyring) => keyring.store_learned().context("cannot store the file system's key"),
            None => Ok(()),
        }
    }
}
