//! The management protocol: which targets a file system has and where they are, into which pools
//! its OSTs are put, and how parameters are set wherever they are.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Errno;

/// Longest file system name, as in Lustre: 8 characters of `[A-Za-z0-9_-]`.
pub const FSNAME_MAX: usize = 8;
/// Most OSTs of a file system (indices are 16 bit on the wire of Lustre).
pub const TARGETS_MAX: usize = 65535;
/// Longest name of a pool, as in Lustre: 15 characters of `[A-Za-z0-9_-]`.
pub const POOL_NAME_MAX: usize = 15;
/// Words that stand where a pool may be named and mean that there is none: no pool has such a name.
pub const NO_POOLS: [&str; 3] = ["none", "ignore", "inherit"];
/// Most pools of a file system.
pub const POOLS_MAX: usize = 256;
/// Most members of all pools of a file system together, so that pools are the smaller part of a
/// configuration.
pub const POOL_MEMBERS_MAX: usize = 1 << 16;
/// Most settings of an MGS: with [`SETTING_BYTES_MAX`] they are a small part of what a message
/// holds.
pub const SETTINGS_MAX: usize = 1024;
/// Longest pattern of a setting, and longest value, in bytes.
pub const SETTING_BYTES_MAX: usize = 256;

/// What a target stores.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum TargetKind {
    /// Metadata.
    Mdt,
    /// Objects.
    Ost,
}

/// A target that registered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Target {
    /// Kind.
    pub kind: TargetKind,
    /// Index among its kind.
    pub index: u32,
    /// Made when the target was formatted; tells a known target from a stranger of the same index.
    pub uuid: String,
    /// Where to reach it, in the form of NIDs: `0@lo`, `10.0.0.1@tcp`, `127.0.0.1:40001@tcp`.
    pub nids: Vec<String>,
}

impl Target {
    /// Lustre's name for it: `sheen-OST0000`.
    pub fn name(&self, fsname: &str) -> String {
        target_name(fsname, self.kind, self.index)
    }
}

/// Lustre's name for a target: `sheen-MDT0000`, `sheen-OST001f`.
pub fn target_name(fsname: &str, kind: TargetKind, index: u32) -> String {
    match kind {
        TargetKind::Mdt => format!("{fsname}-MDT{index:04x}"),
        TargetKind::Ost => format!("{fsname}-OST{index:04x}"),
    }
}

/// Name of the data service of an MDT, under which it is reached at the MDT's addresses:
/// `sheen-MDT0000-dom`.
pub fn data_name(mdt: &str) -> String {
    format!("{mdt}-dom")
}

/// The OST that a user names as `sheen-OST0001_UUID`, `sheen-OST0001` or `OST0001`: always four
/// hexadecimal digits, as in Lustre.
pub fn parse_ost(fsname: &str, text: &str) -> Option<u32> {
    let text = text.strip_suffix("_UUID").unwrap_or(text);
    let name = text.strip_prefix(fsname).and_then(|rest| rest.strip_prefix('-')).unwrap_or(text);
    let digits = name.strip_prefix("OST").filter(|d| d.len() == 4 && d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok().filter(|index| (*index as usize) < TARGETS_MAX)
}

/// OSTs that files can be confined to, under a name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// At most [`POOL_NAME_MAX`] characters.
    pub name: String,
    /// Indices of its OSTs, in the order in which they were added, each once.
    pub osts: Vec<u32>,
}

/// What is done to a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PoolChange {
    /// It is made, without OSTs.
    New,
    /// An OST is added.
    Add {
        /// Its index.
        ost: u32,
    },
    /// An OST is taken out. Objects that lie there stay.
    Remove {
        /// Its index.
        ost: u32,
    },
    /// It goes, with or without OSTs in it. Files that were made in it stay as they are.
    Destroy,
}

/// A value that parameters have for good (`lctl set_param -P`): every process that knows the MGS
/// gives it to its parameters that match, now and when they come to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Rises with every setting that is made; never used again. One that is made anew has another
    /// one.
    pub index: u64,
    /// Which parameters, as a shell pattern: `osc.*.max_dirty_mb`. At most [`SETTING_BYTES_MAX`].
    pub pattern: String,
    /// As text. At most [`SETTING_BYTES_MAX`].
    pub value: String,
}

/// As Lustre's `llog_print` shows it.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { index, pattern, value } = self;
        write!(f, "- {{ index: {index}, event: set_param, device: general, parameter: {pattern}, value: {value} }}")
    }
}

/// A file system as the MGS knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Name.
    pub fsname: String,
    /// Raised by every change.
    pub version: u64,
    /// Sorted by kind, then index.
    pub targets: Vec<Target>,
    /// Sorted by name. Absent from what was stored before there were pools.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// By index; of two that match a parameter the later one counts. They are the MGS's, so the
    /// same for all of its file systems.
    #[serde(default)]
    pub params: Vec<Setting>,
}

impl Config {
    /// The pool of that name.
    pub fn pool(&self, name: &str) -> Option<&Pool> {
        self.pools.iter().find(|p| p.name == name)
    }
}

/// A request to the MGS.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// A target says that it is there and where. Answered with `Registered`.
    Register {
        /// File system.
        fsname: String,
        /// Kind.
        kind: TargetKind,
        /// The index it has, or `None` to be given the next free one.
        index: Option<u32>,
        /// Its uuid.
        uuid: String,
        /// Where to reach it.
        nids: Vec<String>,
    },
    /// The configuration now. Answered with `Config`; ENOENT for an unknown name.
    GetConfig {
        /// File system.
        fsname: String,
    },
    /// The configuration as soon as its version is above `version`; waits until then.
    Watch {
        /// File system.
        fsname: String,
        /// What the caller has.
        version: u64,
    },
    /// Names of all file systems. Answered with `Names`.
    List,
    /// Changes a pool. Answered with `PoolChanged` once the change is durable, or refused.
    ChangePool {
        /// File system.
        fsname: String,
        /// Name of the pool, without the file system's.
        pool: String,
        /// What is done to it.
        change: PoolChange,
    },
}

/// A successful answer of the MGS.
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
    /// To `ChangePool`: done, or why not, as the module `pools` of the MGS says. Not the request's
    /// own error, since ENODEV as such would say that there is no MGS.
    PoolChanged(Result<(), Errno>),
}

impl Request {
    /// Name for statistics.
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
    fn osts_as_users_name_them() {
        for text in ["sheen-OST001f_UUID", "sheen-OST001f", "OST001f", "OST001F_UUID"] {
            assert_eq!(parse_ost("sheen", text), Some(0x1f), "{text}");
        }
        for text in ["", "OST", "OST1", "OST00010", "OST00g1", "OST+001", "MDT0000", "other-OST0001", "sheenOST0001"] {
            assert_eq!(parse_ost("sheen", text), None, "{text}");
        }
        assert_eq!(parse_ost("sheen", "OSTffff"), None, "past the last index");
        // A file system may be called like this.
        assert_eq!((parse_ost("OST", "OST-OST0001"), parse_ost("OST", "OST0001")), (Some(1), Some(1)));
    }
}
