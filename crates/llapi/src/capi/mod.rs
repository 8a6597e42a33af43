//! The exported functions, by topic. They only translate and call. `include/` and `docs/api.md`
//! describe what each does.
//!
//! # What C must guarantee
//! * A pointer is null, or valid for what the header says. No other thread uses the memory until
//!   the function returns.
//! * A string ends with a NUL.
//! * A buffer is as large as the length argument beside it says.
//! * A `struct llapi_layout` came from this library and was not freed.
//! * An open file stays open.
//!
//! Null for a required pointer is EINVAL.

pub mod attributes;
pub mod changelog;
pub mod components;
pub mod directories;
pub mod fids;
pub mod files;
pub mod layouts;
pub mod leases;
pub mod locks;
pub mod messages;
pub mod mirrors;
pub mod mount;
pub mod numbers;
pub mod params;
pub mod quota;
pub mod removal;
pub mod sparse;
pub mod stat;
pub mod swap;
pub mod targets;
pub mod unsupported;
pub mod versions;
pub mod volatile;

/// `struct lu_fid`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct LuFid {
    /// Sequence.
    pub f_seq: u64,
    /// Id in the sequence.
    pub f_oid: u32,
    /// Version.
    pub f_ver: u32,
}

impl From<sheen_wire::Fid> for LuFid {
    fn from(fid: sheen_wire::Fid) -> LuFid {
        LuFid { f_seq: fid.seq, f_oid: fid.oid, f_ver: fid.ver }
    }
}

impl From<LuFid> for sheen_wire::Fid {
    fn from(fid: LuFid) -> sheen_wire::Fid {
        sheen_wire::Fid { seq: fid.f_seq, oid: fid.f_oid, ver: fid.f_ver }
    }
}
