//! The management protocol: which targets a file system has and where they are.

use serde::{Deserialize, Serialize};

/// Longest file system name, as in Lustre: 8 characters of `[A-Za-z0-9_-]`.
pub const FSNAME_MAX: usize = 8;
/// Most OSTs of a file system (indices are 16 bit on the wire of Lustre).
pub const TARGETS_MAX: usize = 65535;

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

/// A file system as the MGS knows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Config {
    /// Name.
    pub fsname: String,
    /// Raised by every change.
    pub version: u64,
    /// Sorted by kind, then index.
    pub targets: Vec<Target>,
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
}

impl Request {
    /// Name for statistics.
    pub fn op(&self) -> &'static str {
        match self {
            Request::Register { .. } => "register",
            Request::GetConfig { .. } => "get_config",
            Request::Watch { .. } => "watch",
            Request::List => "list",
        }
    }
}
