//! The management protocol: targets of a file system and their addresses, pools of its OSTs, and
//! permanent settings of parameters.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Errno, auth::KeyId, glob::Glob, nodemap::Nodemaps};

/// Longest file system name, as in Lustre: 8 characters of `[A-Za-z0-9_-]`.
pub const FSNAME_MAX: usize = 8;
/// Maximum OSTs of a file system (indices are 16 bit on the wire of Lustre).
pub const TARGETS_MAX: usize = 65535;
/// Longest name of a pool, as in Lustre: 15 characters of `[A-Za-z0-9_-]`.
pub const POOL_NAME_MAX: usize = 15;
/// Words that mean "no pool" where a pool may be named; no pool has such a name.
pub const NO_POOLS: [&str; 3] = ["none", "ignore", "inherit"];
/// Maximum pools of a file system.
pub const POOLS_MAX: usize = 256;
/// Maximum members of all pools of a file system together, so that pools are the smaller part of a
/// configuration.
pub const POOL_MEMBERS_MAX: usize = 1 << 16;
/// Maximum settings of an MGS: with [`SETTING_BYTES_MAX`], settings take a small part of a message.
pub const SETTINGS_MAX: usize = 1024;
/// Longest pattern, and longest value, of a setting, in bytes.
pub const SETTING_BYTES_MAX: usize = 256;

/// Maximum withdrawn keys of a configuration.
pub const WITHDRAWN_MAX: usize = 1 << 16;

/// Kind of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum TargetKind {
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// A registered target.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Kind.
    pub kind: TargetKind,
    /// Index among its kind.
    pub index: u32,
    /// Created when the target was formatted; distinguishes a known target from another one with
    /// the same index.
    pub uuid: String,
    /// Its addresses as NIDs: `0@lo`, `10.0.0.1@tcp`, `127.0.0.1:40001@tcp`.
    pub nids: Vec<String>,
    /// Number of the present life of its server, as in the server's welcome. A client that is
    /// connected to another one connects anew. 0: unknown.
    #[serde(default)]
    pub incarnation: u64,
    /// An OST that was removed from the file system for good. Its index is never used again.
    #[serde(default)]
    pub removed: bool,
}

impl Target {
    /// Returns Lustre's name for the target: `sheen-OST0000`.
    pub fn name(&self, fsname: &str) -> String {
        target_name(fsname, self.kind, self.index)
    }
}

/// Returns Lustre's name for a target: `sheen-MDT0000`, `sheen-OST001f`.
pub fn target_name(fsname: &str, kind: TargetKind, index: u32) -> String {
    match kind {
        TargetKind::Mdt => format!("{fsname}-MDT{index:04x}"),
        TargetKind::Ost => format!("{fsname}-OST{index:04x}"),
    }
}

/// Returns the name of an MDT's data service, under which it is reached at the MDT's addresses:
/// `sheen-MDT0000-dom`.
pub fn data_name(mdt: &str) -> String {
    format!("{mdt}-dom")
}

/// Returns the index of an OST given as `sheen-OST0001_UUID`, `sheen-OST0001` or `OST0001`: always
/// four hexadecimal digits, as in Lustre.
pub fn parse_ost(fsname: &str, text: &str) -> Option<u32> {
    let text = text.strip_suffix("_UUID").unwrap_or(text);
    let name = text.strip_prefix(fsname).and_then(|rest| rest.strip_prefix('-')).unwrap_or(text);
    let digits = name.strip_prefix("OST").filter(|d| d.len() == 4 && d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok().filter(|index| (*index as usize) < TARGETS_MAX)
}

/// A named set of OSTs to which files can be confined.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Name, at most [`POOL_NAME_MAX`] characters.
    pub name: String,
    /// Indices of its OSTs, in the order in which they were added, each once.
    pub osts: Vec<u32>,
}

/// A change to a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PoolChange {
    /// Creates the pool, without OSTs.
    New,
    /// Adds an OST.
    Add {
        /// Its index.
        ost: u32,
    },
    /// Removes an OST. Objects on it stay.
    Remove {
        /// Its index.
        ost: u32,
    },
    /// Deletes the pool, with or without OSTs in it. Files created in it stay as they are.
    Destroy,
}

/// A permanent setting (`lctl set_param -P`). Every process that knows the MGS applies it to its
/// parameters that match, to present ones and to those created later.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Rises with every setting, and is never used again. A setting that is made anew gets another
    /// index.
    pub index: u64,
    /// Shell pattern of parameter names: `osc.*.max_dirty_mb`. At most [`SETTING_BYTES_MAX`] bytes.
    pub pattern: String,
    /// Value as text. At most [`SETTING_BYTES_MAX`] bytes.
    pub value: String,
}

/// As Lustre's `llog_print` shows it.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { index, pattern, value } = self;
        write!(f, "- {{ index: {index}, event: set_param, device: general, parameter: {pattern}, value: {value} }}")
    }
}

/// Configuration of a file system as the MGS knows it.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Name of the file system.
    pub fsname: String,
    /// Raised by every change.
    pub version: u64,
    /// Targets, sorted by kind, then index.
    pub targets: Vec<Target>,
    /// Pools, sorted by name. Absent in records from before there were pools.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Settings by index; of two that match a parameter, the later one applies. They belong to the
    /// MGS, so they are the same for all of its file systems.
    #[serde(default)]
    pub params: Vec<Setting>,
    /// Nodemaps, also those of the MGS. Only servers get them.
    #[serde(default)]
    pub nodemaps: Nodemaps,
    /// Issued keys that were withdrawn at the MGS, sorted, at most [`WITHDRAWN_MAX`]. Only servers
    /// get them.
    #[serde(default)]
    pub withdrawn: Vec<KeyId>,
}

impl Config {
    /// Returns the pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|p| p.name == name)
    }

    /// Returns the OST of this index, unless it was removed.
    pub fn ost(&self, index: u32) -> Option<&Target> {
        self.targets.iter().find(|t| t.kind == TargetKind::Ost && t.index == index && !t.removed)
    }

    /// Returns whether an OST was removed.
    pub fn is_removed(&self, ost: u32) -> bool {
        self.targets.iter().any(|t| t.kind == TargetKind::Ost && t.index == ost && t.removed)
    }

    /// Returns whether an OST was removed, or a permanent setting deactivates it, at least for the
    /// MDT.
    pub fn is_out_of_use(&self, ost: u32) -> bool {
        if self.is_removed(ost) {
            return true;
        }
        let name = target_name(&self.fsname, TargetKind::Ost, ost);
        let params = ["osp", "osc"].map(|kind| format!("{kind}/{name}-osc-MDT0000/active"));
        let is_meant = |pattern: &str| params.iter().any(|param| Glob::of_params(pattern).matches(param));
        // The last setting that matches takes effect.
        let setting = self.params.iter().rev().find(|setting| is_meant(&setting.pattern));
        setting.is_some_and(|setting| setting.value.trim() == "0")
    }
}

/// A request to the MGS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Registers a target and its addresses. Answered with `Registered`.
    Register {
        /// File system.
        fsname: String,
        /// Kind.
        kind: TargetKind,
        /// Its index, or `None` to get the next free one.
        index: Option<u32>,
        /// Its uuid.
        uuid: String,
        /// Its addresses.
        nids: Vec<String>,
        /// Number of this life of its server, as in the server's welcome.
        incarnation: u64,
    },
    /// Asks for the present configuration. Answered with `Config`; ENOENT for an unknown name.
    GetConfig {
        /// File system.
        fsname: String,
    },
    /// Asks for the configuration as soon as its version is above `version`; waits until then.
    Watch {
        /// File system.
        fsname: String,
        /// Version that the caller has.
        version: u64,
    },
    /// Asks for the names of all file systems. Answered with `Names`.
    List,
    /// Changes a pool. Answered with `PoolChanged` once the change is durable or refused.
    ChangePool {
        /// File system.
        fsname: String,
        /// Name of the pool, without the file system's.
        pool: String,
        /// The change.
        change: PoolChange,
    },
}

/// A successful reply of the MGS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// To `Register`: the target's index.
    Registered {
        /// Index.
        index: u32,
    },
    /// To `GetConfig` and `Watch`.
    Config(Config),
    /// To `List`.
    Names(Vec<String>),
    /// To `ChangePool`: success, or an error as the module `pools` of the MGS defines. It is not
    /// the request's own error, because ENODEV there would mean that there is no MGS.
    PoolChanged(Result<(), Errno>),
}

impl Request {
    /// Returns the name for statistics.
    pub fn op(&self) -> &'static str {
        match self {
            Request::Register { .. } => "register",
            Request::GetConfig { .. } => "get_config",
            Request::Watch { .. } => "watch",
            Request::List => "list",
            Request::ChangePool { .. } => "change_pool",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ost_names_of_users_parse_to_indices() {
        for text in ["sheen-OST001f_UUID", "sheen-OST001f", "OST001f", "OST001F_UUID"] {
            assert_eq!(parse_ost("sheen", text), Some(0x1f), "{text}");
        }
        for text in ["", "OST", "OST1", "OST00010", "OST00g1", "OST+001", "MDT0000", "other-OST0001", "sheenOST0001"] {
            assert_eq!(parse_ost("sheen", text), None, "{text}");
        }
        assert_eq!(parse_ost("sheen", "OSTffff"), None, "past the last index");
        // A file system may have this name.
        assert_eq!((parse_ost("OST", "OST-OST0001"), parse_ost("OST", "OST0001")), (Some(1), Some(1)));
    }
}
