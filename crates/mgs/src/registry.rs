//! The MGS's state: the targets and pools of every file system, the settings of parameters, and the
//! nodemaps. A pure state machine; `service.rs` persists and serves it.
//!
//! Invariants:
//! * Within a file system and a kind, an index belongs to one uuid and a uuid to one index,
//!   forever. A target that was removed stays in the list, and cannot register again.
//! * `version` rises with every change and only then. A change of a setting or a nodemap raises the
//!   version of every file system.
//! * Targets are sorted by kind, then index.
//! * `params` of every file system are the settings, and `nodemaps` are the nodemaps. So are the
//!   withdrawn keys.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sheen_wire::auth::KeyId;
use sheen_wire::mgs::{Config, FSNAME_MAX, PoolChange, Setting, TARGETS_MAX, Target, TargetKind, WITHDRAWN_MAX};
use sheen_wire::nodemap::Nodemaps;
use sheen_wire::{Errno, Result};

use crate::nodemaps::{self, NodemapChange};
use crate::pools;
use crate::settings::{self, SettingChange};

/// Maximum number of file systems of one MGS.
pub const FILE_SYSTEMS_MAX: usize = 1024;
/// Longest uuid, in bytes (Lustre's UUID_MAX without its NUL).
pub const UUID_BYTES_MAX: usize = 39;
/// Maximum number of NIDs of one target.
pub const NIDS_MAX: usize = 32;
/// Longest NID in bytes (a host name with port and network).
pub const NID_BYTES_MAX: usize = 280;
/// Version of the format on disk: 2 has pools, 3 has settings, 4 has nodemaps.
const FORMAT: u32 = 4;
/// Oldest format that is read.
const FORMAT_MIN: u32 = 1;

/// All file systems.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Registry {
    systems: BTreeMap<String, Config>,
    settings: Vec<Setting>,
    /// The largest index that any setting ever had.
    last_setting: u64,
    nodemaps: Nodemaps,
    withdrawn: Vec<KeyId>,
}

/// The format on disk.
#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    /// Without settings, nodemaps and withdrawn keys, which are stored only once.
    file_systems: Vec<Config>,
    #[serde(default)]
    settings: Vec<Setting>,
    #[serde(default)]
    last_setting: u64,
    #[serde(default)]
    nodemaps: Nodemaps,
    #[serde(default)]
    withdrawn: Vec<KeyId>,
}

/// A target that registers.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'a> {
    /// File system.
    pub fsname: &'a str,
    /// Kind.
    pub kind: TargetKind,
    /// The target's index; `None`: the next free one.
    pub index: Option<u32>,
    /// Its uuid.
    pub uuid: &'a str,
    /// Its addresses.
    pub nids: &'a [String],
    /// Number of this life of its server.
    pub incarnation: u64,
}

impl Registry {
    /// Returns the configuration of a file system.
    pub fn config(&self, fsname: &str) -> Option<&Config> {
        self.systems.get(fsname)
    }

    /// Returns the names of all file systems, sorted.
    pub fn names(&self) -> Vec<String> {
        self.systems.keys().cloned().collect()
    }

    /// Enters a target, or updates its addresses and incarnation. Returns its index and whether
    /// anything changed.
    ///
    /// # Errors
    /// Nothing is changed then. EINVAL: an invalid name, uuid, NID or index. EEXIST: the index has
    /// another uuid, or the uuid another index. ESTALE: the target was removed. ENOSPC: too many
    /// file systems or targets.
    pub fn register(&mut self, new: Registration<'_>) -> Result<(u32, bool)> {
        check(&new)?;
        if !self.systems.contains_key(new.fsname) && self.systems.len() >= FILE_SYSTEMS_MAX {
            return Err(Errno::ENOSPC);
        }
        let known = self.systems.get(new.fsname);
        let targets = known.map_or(&[][..], |c| &c.targets);
        let index = match index_of(targets, &new)? {
            TargetIndex::Known { at } => {
                let known = &targets[at];
                if known.removed {
                    return Err(Errno::ESTALE);
                }
                let changed = known.nids != new.nids || known.incarnation != new.incarnation;
                let index = known.index;
                if let Some(config) = self.systems.get_mut(new.fsname).filter(|_| changed) {
                    let target = &mut config.targets[at];
                    (target.nids, target.incarnation) = (new.nids.to_vec(), new.incarnation);
                    config.version += 1;
                }
                return Ok((index, changed));
            }
            TargetIndex::New { index } => index,
        };
        let config = self.systems.entry(new.fsname.to_string()).or_insert_with(|| Config {
            fsname: new.fsname.to_string(),
            params: self.settings.clone(),
            nodemaps: self.nodemaps.clone(),
            withdrawn: self.withdrawn.clone(),
            ..Config::default()
        });
        let (uuid, nids) = (new.uuid.to_string(), new.nids.to_vec());
        let target = Target { kind: new.kind, index, uuid, nids, incarnation: new.incarnation, removed: false };
        let at = config.targets.partition_point(|t| (t.kind, t.index) < (target.kind, index));
        config.targets.insert(at, target);
        config.version += 1;
        Ok((index, true))
    }

    /// Changes a pool of a file system.
    ///
    /// # Errors
    /// Nothing is changed then. EINVAL: there is no such file system. Others as [`pools::apply`].
    pub fn change_pool(&mut self, fsname: &str, pool: &str, change: PoolChange) -> Result<()> {
        let config = self.systems.get_mut(fsname).ok_or(Errno::EINVAL)?;
        pools::apply(config, pool, change)?;
        config.version += 1;
        Ok(())
    }

    /// Removes an OST for good, also from all pools.
    ///
    /// # Errors
    /// Nothing is changed then. EINVAL: there is no such file system. ENODEV: it has no such OST.
    /// EBUSY: no permanent setting deactivates the OST.
    pub fn remove_ost(&mut self, fsname: &str, ost: u32) -> Result<()> {
        let config = self.systems.get_mut(fsname).ok_or(Errno::EINVAL)?;
        config.ost(ost).ok_or(Errno::ENODEV)?;
        if !config.is_out_of_use(ost) {
            return Err(Errno::EBUSY);
        }
        let is_it = |target: &&mut Target| target.kind == TargetKind::Ost && target.index == ost;
        config.targets.iter_mut().filter(is_it).for_each(|target| target.removed = true);
        config.pools.iter_mut().for_each(|pool| pool.osts.retain(|member| *member != ost));
        config.version += 1;
        Ok(())
    }

    /// Returns the settings, by index.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Adds, replaces or deletes a setting.
    ///
    /// # Errors
    /// As [`settings::apply`]. Nothing is changed then.
    pub fn change_setting(&mut self, change: SettingChange<'_>) -> Result<()> {
        settings::apply(&mut self.settings, &mut self.last_setting, change)?;
        for config in self.systems.values_mut() {
            config.params.clone_from(&self.settings);
            config.version += 1;
        }
        Ok(())
    }

    /// Returns the nodemaps.
    pub fn nodemaps(&self) -> &Nodemaps {
        &self.nodemaps
    }

    /// Changes the nodemaps.
    ///
    /// # Errors
    /// As [`nodemaps::apply`]. Nothing is changed then.
    pub fn change_nodemap(&mut self, change: &NodemapChange<'_>) -> Result<()> {
        nodemaps::apply(&mut self.nodemaps, change)?;
        for config in self.systems.values_mut() {
            config.nodemaps.clone_from(&self.nodemaps);
            config.version += 1;
        }
        Ok(())
    }

    /// Sets the issued keys that are withdrawn, sorted. Returns whether they differ from those
    /// before. Keys beyond [`WITHDRAWN_MAX`] are left out.
    pub fn set_withdrawn(&mut self, mut withdrawn: Vec<KeyId>) -> bool {
        withdrawn.truncate(WITHDRAWN_MAX);
        let differ = self.withdrawn != withdrawn;
        if differ {
            self.withdrawn = withdrawn;
            for config in self.systems.values_mut() {
                config.withdrawn.clone_from(&self.withdrawn);
                config.version += 1;
            }
        }
        differ
    }

    /// Encodes the registry for the disk.
    ///
    /// # Errors
    /// None in practice: plain data always serialises.
    pub fn encode(&self) -> Result<Vec<u8>, RegistryError> {
        let bare = |config: &Config| {
            let mut config = config.clone();
            (config.params, config.nodemaps, config.withdrawn) = (Vec::new(), Nodemaps::default(), Vec::new());
            config
        };
        let stored = Stored {
            format: FORMAT,
            file_systems: self.systems.values().map(bare).collect(),
            settings: self.settings.clone(),
            last_setting: self.last_setting,
            nodemaps: self.nodemaps.clone(),
            withdrawn: self.withdrawn.clone(),
        };
        let mut bytes = serde_json::to_vec_pretty(&stored)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Decodes what [`Registry::encode`] wrote.
    ///
    /// # Errors
    /// The bytes are not a registry, or have an unknown format.
    pub fn decode(bytes: &[u8]) -> Result<Registry, RegistryError> {
        let stored: Stored = serde_json::from_slice(bytes)?;
        if !(FORMAT_MIN..=FORMAT).contains(&stored.format) {
            return Err(RegistryError::Format(stored.format));
        }
        let mut settings = stored.settings;
        settings.sort_by_key(|s| s.index);
        let mut nodemaps = stored.nodemaps;
        nodemaps.maps.sort_by(|a, b| a.name.cmp(&b.name));
        let systems = stored.file_systems.into_iter().map(|mut config| {
            config.targets.sort_by_key(|t| (t.kind, t.index));
            config.pools.sort_by(|a, b| a.name.cmp(&b.name));
            config.params.clone_from(&settings);
            config.nodemaps.clone_from(&nodemaps);
            config.withdrawn.clone_from(&stored.withdrawn);
            (config.fsname.clone(), config)
        });
        let systems = systems.collect();
        let last_setting = settings.last().map_or(0, |s| s.index).max(stored.last_setting);
        Ok(Registry { systems, settings, last_setting, nodemaps, withdrawn: stored.withdrawn })
    }
}

/// Why a registry on disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Not JSON, or not of this structure.
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// Written by another release.
    #[error("it has format {0}, this release reads up to {FORMAT}; use the release that wrote it, or a later one")]
    Format(u32),
}

enum TargetIndex {
    Known { at: usize },
    New { index: u32 },
}

/// Finds a target among those of its file system, or a free index for it.
fn index_of(targets: &[Target], new: &Registration<'_>) -> Result<TargetIndex> {
    let kin = || targets.iter().enumerate().filter(|(_, t)| t.kind == new.kind);
    if let Some((at, target)) = kin().find(|(_, t)| t.uuid == new.uuid) {
        return if new.index.is_none_or(|i| i == target.index) {
            Ok(TargetIndex::Known { at })
        } else {
            Err(Errno::EEXIST)
        };
    }
    match new.index {
        Some(index) if kin().any(|(_, t)| t.index == index) => Err(Errno::EEXIST),
        Some(index) => Ok(TargetIndex::New { index }),
        None => {
            // Sorted by index: the first gap, or the end.
            let free = kin().zip(0u32..).find(|((_, t), i)| t.index != *i).map_or(kin().count(), |(_, i)| i as usize);
            if free >= TARGETS_MAX { Err(Errno::ENOSPC) } else { Ok(TargetIndex::New { index: free as u32 }) }
        }
    }
}

fn check(new: &Registration<'_>) -> Result<()> {
    let name_ok = (1..=FSNAME_MAX).contains(&new.fsname.len())
        && new.fsname.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    let printable = |s: &str, max: usize| (1..=max).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_graphic());
    let uuid_ok = printable(new.uuid, UUID_BYTES_MAX);
    let nids_ok = (1..=NIDS_MAX).contains(&new.nids.len()) && new.nids.iter().all(|n| printable(n, NID_BYTES_MAX));
    let index_ok = new.index.is_none_or(|i| (i as usize) < TARGETS_MAX);
    if name_ok && uuid_ok && nids_ok && index_ok { Ok(()) } else { Err(Errno::EINVAL) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodemaps::MapChange;

    fn change_nodemap(r: &mut Registry, change: MapChange<'_>) -> Result<()> {
        r.change_nodemap(&NodemapChange::Map { name: "a", change })
    }

    fn register(r: &mut Registry, kind: TargetKind, index: Option<u32>, uuid: &str, nid: &str) -> Result<(u32, bool)> {
        r.register(Registration { fsname: "sheen", kind, index, uuid, nids: &[nid.to_string()], incarnation: 7 })
    }

    #[test]
    fn register_assigns_indices_and_recognizes_known_targets() {
        let mut r = Registry::default();
        let ost = TargetKind::Ost;
        assert_eq!(register(&mut r, ost, None, "a", "n1"), Ok((0, true)));
        assert_eq!(register(&mut r, ost, Some(2), "c", "n1"), Ok((2, true)));
        assert_eq!(register(&mut r, ost, None, "b", "n1"), Ok((1, true)));
        assert_eq!(register(&mut r, ost, None, "d", "n1"), Ok((3, true)));
        assert_eq!(register(&mut r, TargetKind::Mdt, Some(0), "a", "n1"), Ok((0, true)));
        let version = r.config("sheen").unwrap().version;
        assert_eq!(register(&mut r, ost, None, "c", "n1"), Ok((2, false)));
        assert_eq!(r.config("sheen").unwrap().version, version);
        assert_eq!(register(&mut r, ost, Some(2), "c", "n2"), Ok((2, true)));
        let config = r.config("sheen").unwrap();
        assert_eq!(config.version, version + 1);
        let names: Vec<_> = config.targets.iter().map(|t| t.name("sheen")).collect();
        assert_eq!(names, ["sheen-MDT0000", "sheen-OST0000", "sheen-OST0001", "sheen-OST0002", "sheen-OST0003"]);
        assert_eq!(config.targets[3].nids, ["n2"]);
        let version = config.version;
        let nids = ["n2".to_string()];
        let restarted =
            Registration { fsname: "sheen", kind: ost, index: None, uuid: "c", nids: &nids, incarnation: 8 };
        assert_eq!(r.register(restarted), Ok((2, true)), "watchers learn of a restart");
        assert_eq!(r.register(restarted), Ok((2, false)));
        let config = r.config("sheen").unwrap();
        assert_eq!((config.version, config.targets[3].incarnation), (version + 1, 8));
    }

    #[test]
    fn register_refuses_conflicting_and_invalid_targets() {
        let mut r = Registry::default();
        register(&mut r, TargetKind::Ost, Some(0), "a", "n1").unwrap();
        let before = r.clone();
        let ost = TargetKind::Ost;
        assert_eq!(register(&mut r, ost, Some(0), "b", "n1"), Err(Errno::EEXIST));
        assert_eq!(register(&mut r, ost, Some(1), "a", "n1"), Err(Errno::EEXIST));
        assert_eq!(register(&mut r, ost, Some(65535), "b", "n1"), Err(Errno::EINVAL));
        assert_eq!(register(&mut r, ost, None, "", "n1"), Err(Errno::EINVAL));
        assert_eq!(register(&mut r, ost, None, "b", "n 1"), Err(Errno::EINVAL));
        for fsname in ["", "ninechars", "a/b", "ü"] {
            let nids = &["n".to_string()];
            let new = Registration { fsname, kind: ost, index: None, uuid: "u", nids, incarnation: 1 };
            assert_eq!(r.register(new), Err(Errno::EINVAL), "{fsname}");
        }
        assert_eq!(r, before);
    }

    #[test]
    fn removed_ost_does_not_come_back() {
        let mut r = Registry::default();
        let ost = TargetKind::Ost;
        for uuid in ["a", "b"] {
            register(&mut r, ost, None, uuid, "n1").unwrap();
        }
        r.change_pool("sheen", "p1", PoolChange::New).unwrap();
        r.change_pool("sheen", "p1", PoolChange::Add { ost: 1 }).unwrap();
        assert_eq!(r.remove_ost("sheen", 1), Err(Errno::EBUSY), "it is in use");
        assert_eq!((r.remove_ost("sheen", 2), r.remove_ost("other", 1)), (Err(Errno::ENODEV), Err(Errno::EINVAL)));
        r.change_setting(SettingChange::Set { pattern: "osc.sheen-OST0001-osc-*.active", value: "0" }).unwrap();
        let version = r.config("sheen").unwrap().version;
        assert_eq!(r.remove_ost("sheen", 1), Ok(()));
        r.change_setting(SettingChange::Delete { pattern: "osc.sheen-OST0001-osc-*.active" }).unwrap();
        let mut r = Registry::decode(&r.encode().unwrap()).unwrap();
        let config = r.config("sheen").unwrap();
        assert!(config.version > version && config.ost(1).is_none() && config.is_out_of_use(1));
        assert!(config.pools[0].osts.is_empty());
        assert_eq!(register(&mut r, ost, Some(1), "b", "n1"), Err(Errno::ESTALE));
        assert_eq!(register(&mut r, ost, Some(1), "c", "n1"), Err(Errno::EEXIST));
        assert_eq!(register(&mut r, ost, None, "c", "n1"), Ok((2, true)), "its index is not used again");
        assert_eq!(r.remove_ost("sheen", 1), Err(Errno::ENODEV));
        assert_eq!(r.change_pool("sheen", "p1", PoolChange::Add { ost: 1 }), Err(Errno::ENODEV));
    }

    #[test]
    fn register_refuses_file_systems_beyond_the_limit() {
        let mut r = Registry::default();
        let nids = ["n".to_string()];
        let kind = TargetKind::Mdt;
        let new = Registration { fsname: "f", kind, index: None, uuid: "u", nids: &nids, incarnation: 1 };
        for i in 0..FILE_SYSTEMS_MAX {
            r.register(Registration { fsname: &format!("f{i}"), ..new }).unwrap();
        }
        assert_eq!(r.register(Registration { fsname: "more", ..new }), Err(Errno::ENOSPC));
    }

    #[test]
    fn registry_roundtrips_and_refuses_unknown_formats() {
        let mut r = Registry::default();
        register(&mut r, TargetKind::Ost, None, "a", "10.0.0.1@tcp").unwrap();
        r.change_pool("sheen", "p1", PoolChange::New).unwrap();
        r.change_pool("sheen", "p1", PoolChange::Add { ost: 0 }).unwrap();
        r.change_setting(SettingChange::Set { pattern: "osc.*.active", value: "0" }).unwrap();
        change_nodemap(&mut r, MapChange::New).unwrap();
        change_nodemap(&mut r, MapChange::AddRange("10.0.0.*@tcp".parse().unwrap())).unwrap();
        let bytes = r.encode().unwrap();
        assert_eq!(Registry::decode(&bytes).unwrap(), r);
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(text.matches("10.0.0.255").count(), 1, "nodemaps are stored once");
        let later = text.replace("\"format\": 4", "\"format\": 5");
        assert!(matches!(Registry::decode(later.as_bytes()), Err(RegistryError::Format(5))));
        assert!(matches!(Registry::decode(&bytes[..20]), Err(RegistryError::Damaged(_))));
    }

    /// As release 0.1.0 wrote it.
    #[test]
    fn registry_of_format_1_without_pools_opens() {
        let bytes = br#"{
  "format": 1,
  "file_systems": [
    {
      "fsname": "sheen",
      "version": 3,
      "targets": [
        { "kind": "Mdt", "index": 0, "uuid": "m", "nids": ["10.0.0.1@tcp"] },
        { "kind": "Ost", "index": 0, "uuid": "a", "nids": ["10.0.0.1@tcp"] }
      ]
    }
  ]
}"#;
        let mut r = Registry::decode(bytes).unwrap();
        assert_eq!(r.config("sheen").map(|c| (c.version, c.targets.len(), c.pools.len())), Some((3, 2, 0)));
        r.change_pool("sheen", "p1", PoolChange::New).unwrap();
        assert_eq!(r.config("sheen").map(|c| (c.version, c.pools.len())), Some((4, 1)));
    }

    /// As a release with pools and without settings wrote it.
    #[test]
    fn registry_of_format_2_without_settings_opens() {
        let bytes = br#"{
  "format": 2,
  "file_systems": [
    {
      "fsname": "sheen",
      "version": 7,
      "targets": [ { "kind": "Ost", "index": 0, "uuid": "a", "nids": ["10.0.0.1@tcp"] } ],
      "pools": [ { "name": "p1", "osts": [0] } ]
    }
  ]
}"#;
        let mut r = Registry::decode(bytes).unwrap();
        assert_eq!(r.config("sheen").map(|c| (c.version, c.pools.len(), c.params.len())), Some((7, 1, 0)));
        r.change_setting(SettingChange::Set { pattern: "a", value: "1" }).unwrap();
        assert_eq!(Registry::decode(&r.encode().unwrap()).unwrap(), r);
    }

    /// As a release with settings and without nodemaps wrote it.
    #[test]
    fn registry_of_format_3_without_nodemaps_opens() {
        let bytes = br#"{
  "format": 3,
  "file_systems": [ { "fsname": "sheen", "version": 7, "targets": [], "pools": [], "params": [] } ],
  "settings": [ { "index": 4, "pattern": "a", "value": "1" } ],
  "last_setting": 5
}"#;
        let mut r = Registry::decode(bytes).unwrap();
        assert_eq!((r.settings().len(), r.nodemaps()), (1, &Nodemaps::default()));
        change_nodemap(&mut r, MapChange::New).unwrap();
        assert_eq!(Registry::decode(&r.encode().unwrap()).unwrap(), r);
    }

    #[test]
    fn withdrawn_keys_belong_to_present_and_later_file_systems() {
        let mut r = Registry::default();
        assert!(r.set_withdrawn(vec![KeyId(7)]) && !r.set_withdrawn(vec![KeyId(7)]));
        register(&mut r, TargetKind::Ost, None, "a", "n1").unwrap();
        assert!(r.set_withdrawn(vec![KeyId(7), KeyId(9)]));
        let r = Registry::decode(&r.encode().unwrap()).unwrap();
        let config = r.config("sheen").unwrap();
        assert_eq!((config.version, &config.withdrawn[..]), (2, &[KeyId(7), KeyId(9)][..]));
    }

    #[test]
    fn nodemaps_belong_to_present_and_later_file_systems() {
        let mut r = Registry::default();
        change_nodemap(&mut r, MapChange::New).unwrap();
        register(&mut r, TargetKind::Ost, None, "a", "n1").unwrap();
        let of = |r: &Registry| r.config("sheen").map(|c| (c.version, c.nodemaps.maps.len(), c.nodemaps.active));
        assert_eq!(of(&r), Some((1, 1, false)));
        r.change_nodemap(&NodemapChange::Activate(true)).unwrap();
        assert_eq!(of(&r), Some((2, 1, true)));
        assert_eq!(change_nodemap(&mut r, MapChange::New), Err(Errno::EEXIST));
        assert_eq!(of(&r), Some((2, 1, true)));
        let r = Registry::decode(&r.encode().unwrap()).unwrap();
        assert_eq!((of(&r), r.nodemaps().maps.len()), (Some((2, 1, true)), 1));
    }

    #[test]
    fn settings_apply_to_present_and_later_file_systems() {
        let mut r = Registry::default();
        r.change_setting(SettingChange::Set { pattern: "a", value: "1" }).unwrap();
        register(&mut r, TargetKind::Ost, None, "a", "n1").unwrap();
        let nids = ["n1".to_string()];
        let kind = TargetKind::Ost;
        let other = Registration { fsname: "other", kind, index: None, uuid: "b", nids: &nids, incarnation: 1 };
        r.register(other).unwrap();
        let patterns = |r: &Registry, fsname| {
            let config = r.config(fsname).unwrap();
            (config.version, config.params.iter().map(|s| s.pattern.clone()).collect::<Vec<_>>())
        };
        r.change_setting(SettingChange::Set { pattern: "b", value: "1" }).unwrap();
        for fsname in ["sheen", "other"] {
            assert_eq!(patterns(&r, fsname), (2, vec!["a".to_string(), "b".to_string()]));
        }
        assert_eq!(r.change_setting(SettingChange::Delete { pattern: "c" }), Err(Errno::ENOENT));
        r.change_setting(SettingChange::Delete { pattern: "b" }).unwrap();
        assert_eq!(patterns(&r, "other"), (3, vec!["a".to_string()]));
        // The index of a deleted setting is never used again, even after a restart.
        let mut r = Registry::decode(&r.encode().unwrap()).unwrap();
        r.change_setting(SettingChange::Set { pattern: "c", value: "1" }).unwrap();
        assert_eq!(r.settings().last().map(|s| s.index), Some(3));
    }

    #[test]
    fn a_change_of_a_pool_raises_the_version_and_a_refused_one_does_not() {
        let mut r = Registry::default();
        register(&mut r, TargetKind::Ost, None, "a", "n1").unwrap();
        assert_eq!(r.change_pool("sheen", "p1", PoolChange::New), Ok(()));
        assert_eq!(r.config("sheen").unwrap().version, 2);
        assert_eq!(r.change_pool("sheen", "p1", PoolChange::New), Err(Errno::EEXIST));
        assert_eq!(r.change_pool("nofs", "p1", PoolChange::New), Err(Errno::EINVAL));
        assert_eq!(r.config("sheen").unwrap().version, 2);
        assert!(r.config("nofs").is_none());
    }

    proptest::proptest! {
        #[test]
        fn registry_decode_of_any_bytes_does_not_panic(bytes: Vec<u8>) {
            let _ = Registry::decode(&bytes);
        }
    }
}
