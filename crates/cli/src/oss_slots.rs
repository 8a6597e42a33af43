//! The OSTs of `sheen oss`: which target each directory `DIR/0`, `DIR/1`, … holds. A directory that
//! lacks its target, for example because its disk is not mounted, must not become a new OST: the
//! MGS would register that one permanently.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sheen_rt::Disk;
use sheen_wire::mgs::{Config, parse_ost};

use crate::{
    error::{Context, Failure, Result},
    lost_targets::missing,
};

/// The file in the directory of `sheen oss`.
const FILE: &str = "osts.toml";
const HEAD: &str = "# The target in each directory. `sheen oss` does not start if one is missing.\n";

/// The targets that the directories hold.
pub struct OssSlots {
    path: PathBuf,
    content: Content,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// Names of targets by directory.
    #[serde(default)]
    osts: BTreeMap<String, String>,
}

impl OssSlots {
    /// Reads the file in the directory of `sheen oss`. There is none before the first start.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn load(dir: &Path) -> Result<OssSlots> {
        let path = dir.join(FILE);
        let content = match std::fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|e| {
                Failure::new(format!("cannot parse {}: {}", path.display(), e.message()))
                    .advise("it has a line such as 0 = \"scratch-OST0000\" for each directory, below [osts]")
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Content::default(),
            Err(e) => return Err(Failure::new(format!("cannot read {}: {e}", path.display()))),
        };
        Ok(OssSlots { path, content })
    }

    /// Returns how many slots there were at the last start.
    pub fn count(&self) -> u32 {
        self.content.osts.keys().filter_map(|slot| slot.parse::<u32>().ok()).max().map_or(0, |last| last + 1)
    }

    /// Decides about the directory `at` of a slot, which holds no OST. Returns whether to format a
    /// new OST there. `false`: its OST is out of use, and `sheen oss` starts without it.
    ///
    /// # Errors
    /// It held an OST that is in use.
    pub fn formats(&self, slot: u32, at: &Path, known: &Config) -> Result<bool> {
        let Some(name) = self.content.osts.get(&slot.to_string()) else { return Ok(true) };
        let index = parse_ost(&known.fsname, name);
        if index.is_some_and(|index| known.is_removed(index)) {
            tracing::info!("{name} was removed from the file system: a new OST takes its place in {}", at.display());
            return Ok(true);
        }
        if index.is_some_and(|index| known.is_out_of_use(index)) {
            tracing::warn!("{name} is inactive, and {} does not hold it: starting without it", at.display());
            return Ok(false);
        }
        Err(missing(name, at).advise(format!(
            "mount its disk there, or restore it from a backup. To continue without it, run\n  \
             `lctl set_param -P osc.{name}-osc-*.active=0` where the MGS runs, and repeat this command"
        )))
    }

    /// Records that a slot holds this target.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&mut self, disk: &Disk, slot: u32, name: &str) -> Result {
        let slot = slot.to_string();
        if self.content.osts.get(&slot).is_some_and(|known| known == name) {
            return Ok(());
        }
        self.content.osts.insert(slot, name.to_owned());
        let text = toml::to_string(&self.content).context("cannot write the list of OSTs")?;
        let written = disk.write_atomic(&self.path, format!("{HEAD}{text}").as_bytes());
        written.context(format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::{RealOptions, Rt};
    use sheen_wire::mgs::{Setting, Target, TargetKind};

    use super::*;

    fn config(inactive: Option<&str>) -> Config {
        let params = inactive.iter().map(|pattern| Setting { index: 1, pattern: (*pattern).into(), value: "0".into() });
        Config { fsname: "t".into(), version: 1, params: params.collect(), ..Config::default() }
    }

    #[test]
    fn oss_refuses_an_empty_directory_that_held_an_ost() {
        let dir = tempfile::tempdir().unwrap();
        let (_runtime, rt) = Rt::real(RealOptions::default()).unwrap();
        let at = dir.path().join("1");
        let mut slots = OssSlots::load(dir.path()).unwrap();
        assert!(slots.formats(1, &at, &config(None)).unwrap(), "the first start");
        slots.record(&rt.disk(), 0, "t-OST0004").unwrap();
        slots.record(&rt.disk(), 1, "t-OST0005").unwrap();
        let slots = OssSlots::load(dir.path()).unwrap();
        assert_eq!(slots.count(), 2, "a start without --osts serves both");
        let refused = slots.formats(1, &at, &config(None)).unwrap_err().to_string();
        assert!(refused.starts_with("the directory of t-OST0005 is missing"), "{refused}");
        assert!(refused.contains("osc.t-OST0005-osc-*.active=0"), "{refused}");
        std::fs::create_dir(&at).unwrap();
        let refused = slots.formats(1, &at, &config(None)).unwrap_err().to_string();
        assert!(refused.contains("no longer holds t-OST0005"), "{refused}");
        assert!(!slots.formats(1, &at, &config(Some("osc.t-OST0005-osc-*.active"))).unwrap());
        assert!(slots.formats(1, &at, &config(Some("osc.t-OST0004-osc-*.active"))).is_err(), "another OST");
        let uuid = String::new();
        let removed = Target { kind: TargetKind::Ost, index: 5, uuid, nids: vec![], incarnation: 1, removed: true };
        assert!(slots.formats(1, &at, &Config { targets: vec![removed], ..config(None) }).unwrap(), "a new OST");
        assert!(slots.formats(2, &at, &config(None)).unwrap(), "a larger number than before");
        std::fs::write(dir.path().join(FILE), "osts = 1").unwrap();
        assert!(OssSlots::load(dir.path()).is_err());
    }
}
