//! `sheen.toml`: the configuration of a directory of `sheen up`. Each start reads it and writes it
//! back with the changes that the user asked for. Users may edit it.

use std::{net::SocketAddr, path::Path};

use serde::{Deserialize, Serialize};
use sheen_rt::Disk;

use crate::error::{Context, Failure, Result};

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of the file system, at most 8 characters.
    pub fsname: String,
    /// OSTs in this directory: `ost0` … `ost<n-1>`.
    pub osts: u32,
    /// The address at which the process listens. A start replaces port 0 by the port that it got.
    pub listen: SocketAddr,
}

impl Config {
    /// Reads the file. Returns `None` if it does not exist.
    pub fn load(path: &Path) -> Result<Option<Config>> {
        match std::fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map(Some).map_err(|e| {
                Failure::new(format!("cannot parse {}: {}", path.display(), e.message()))
                    .advise("edit it; it must contain fsname = \"NAME\", osts = N, listen = \"ADDRESS:PORT\"")
            }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Failure::new(format!("cannot read {}: {e}", path.display()))),
        }
    }

    /// Replaces the file. After a power loss the file has either the old or the new content.
    pub fn store(&self, disk: &Disk, path: &Path) -> Result {
        let text = toml::to_string(self).context("cannot write the configuration")?;
        disk.write_atomic(path, text.as_bytes()).context(format!("cannot write {}", path.display()))
    }
}

/// Checks a file system's name: 1 to 8 of letters, digits, `_` and `-`, as in Lustre.
pub fn check_fsname(name: &str) -> Result {
    let fine = !name.is_empty()
        && name.len() <= sheen_wire::mgs::FSNAME_MAX
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if fine {
        return Ok(());
    }
    Err(Failure::new(format!("invalid file system name '{name}'"))
        .advise("use 1 to 8 letters, digits, '_' or '-', as in Lustre"))
}

#[cfg(test)]
mod tests {
    use sheen_rt::{
        RealOptions, Rt,
        sim::{Sim, SimConfig},
    };

    use super::*;

    #[test]
    fn check_fsname_accepts_only_lustre_names() {
        for good in ["sheen", "a", "scratch1", "x_y-z"] {
            assert!(check_fsname(good).is_ok(), "{good}");
        }
        for bad in ["", "toolongname", "a/b", "ä", "a b"] {
            assert!(check_fsname(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn stored_config_is_loaded_and_invalid_config_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sheen.toml");
        assert_eq!(Config::load(&path).unwrap(), None);
        let config = Config { fsname: "sheen".into(), osts: 4, listen: "127.0.0.1:7988".parse().unwrap() };
        let (_runtime, rt) = Rt::real(RealOptions::default()).unwrap();
        config.store(&rt.disk(), &path).unwrap();
        assert_eq!(Config::load(&path).unwrap(), Some(config));
        std::fs::write(&path, "fsname = 1").unwrap();
        assert!(Config::load(&path).is_err());
    }

    #[test]
    fn stored_config_survives_a_power_loss() {
        let sim = Sim::new(1, SimConfig::default());
        let path = Path::new("/sheen.toml");
        let config = Config { fsname: "sheen".into(), osts: 4, listen: "127.0.0.1:7988".parse().unwrap() };
        for osts in [4, 5] {
            let config = Config { osts, ..config.clone() };
            config.store(&sim.rt(1).disk(), path).unwrap();
            sim.crash_host(1);
            let stored = sim.rt(1).disk().read(path).unwrap();
            assert_eq!(toml::from_str::<Config>(std::str::from_utf8(&stored).unwrap()).unwrap(), config);
        }
    }
}
