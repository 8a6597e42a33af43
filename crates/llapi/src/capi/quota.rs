//! Quotas: `llapi_quotactl`, over the attributes that `lfs quota` and `lfs setquota` use. It
//! returns a negated errno if it fails.

use std::{
    ffi::{CStr, c_char, c_int},
    path::Path,
    ptr,
};

use sheen_admin::{FileSystem, System, attributes::At};
use sheen_wire::{
    Errno, PoolName, Result,
    control::MountInfo,
    mgs::{TargetKind, target_name},
    quota::{Answer, Change, Grace, Id, Kind, Limits, NewLimits, Query, Report, Setting, Usage},
};

use crate::{
    ffi::{exclusive, or_minus_errno, pathname, shared, text},
    mounts,
};

/// Bits of `dqb_valid`: `QIF_BLIMITS` and so on.
const BLIMITS: u32 = 1;
const SPACE: u32 = 2;
const ILIMITS: u32 = 4;
const INODES: u32 = 8;
const BTIME: u32 = 16;
const ITIME: u32 = 32;
const ALL: u32 = BLIMITS | SPACE | ILIMITS | INODES | BTIME | ITIME;
/// Bits of `dqi_valid`, as the kernel's: `IIF_BGRACE`, `IIF_IGRACE`.
const BGRACE: u32 = 1;
const IGRACE: u32 = 2;
/// Values of `qc_valid`: `QC_GENERAL` and so on.
const GENERAL: u32 = 0;
const MDTIDX: u32 = 1;
const OSTIDX: u32 = 2;
const UUID: u32 = 3;
/// `LQUOTA_GRACE_MASK`: the seconds in a time. The other bits are flags.
const GRACE_MASK: u64 = (1 << 48) - 1;
/// `LQUOTA_FLAG_DEFAULT`, at its place in a time.
const DEFAULT: u64 = 1 << 48;
/// Unit of limits of space in C: KiB.
const KIB: u64 = 1024;

/// `struct obd_dqinfo`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ObdDqinfo {
    dqi_bgrace: u64,
    dqi_igrace: u64,
    dqi_flags: u32,
    dqi_valid: u32,
}

/// `struct obd_dqblk`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct ObdDqblk {
    dqb_bhardlimit: u64,
    dqb_bsoftlimit: u64,
    dqb_curspace: u64,
    dqb_ihardlimit: u64,
    dqb_isoftlimit: u64,
    dqb_curinodes: u64,
    dqb_btime: u64,
    dqb_itime: u64,
    dqb_valid: u32,
    dqb_padding: u32,
}

/// `struct if_quotactl`. The name of a pool follows it, for commands that take one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct IfQuotactl {
    qc_cmd: u32,
    qc_type: u32,
    qc_id: u32,
    qc_stat: u32,
    qc_valid: u32,
    qc_idx: u32,
    qc_dqinfo: ObdDqinfo,
    qc_dqblk: ObdDqblk,
    obd_type: [u8; 16],
    obd_uuid: ObdUuid,
}

/// `struct obd_uuid`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ObdUuid([u8; 40]);

impl Default for ObdUuid {
    fn default() -> ObdUuid {
        ObdUuid([0; 40])
    }
}

const _: () = assert!(size_of::<IfQuotactl>() == 176);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    GetInfo,
    SetInfo,
    GetQuota,
    SetQuota,
    GetDefault,
    SetDefault,
    Delete,
}

/// Returns the command of a number such as `LUSTRE_Q_GETQUOTA`, and whether it takes a pool.
fn command(number: u32) -> Option<(Command, bool)> {
    Some(match number {
        0x80_0005 => (Command::GetInfo, false),
        0x80_0006 => (Command::SetInfo, false),
        0x80_0007 => (Command::GetQuota, false),
        0x80_0008 => (Command::SetQuota, false),
        0x80_000d => (Command::GetDefault, false),
        0x80_000e => (Command::SetDefault, false),
        0x80_000f => (Command::GetQuota, true),
        0x80_0010 => (Command::SetQuota, true),
        0x80_0011 => (Command::GetInfo, true),
        0x80_0012 => (Command::SetInfo, true),
        0x80_0013 => (Command::GetDefault, true),
        0x80_0014 => (Command::SetDefault, true),
        0x80_0015 => (Command::Delete, false),
        _ => return None,
    })
}

/// Gets or sets quotas of the file system of a path. -EOPNOTSUPP: unknown command. -ENOTTY: not on
/// a mount. -EINVAL, -EPERM, -ENOENT, -ENODEV, -EIO: see the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_quotactl(mnt: *const c_char, qctl: *mut IfQuotactl) -> c_int {
    or_minus_errno(|| {
        let mount = mounts::info(At::Path(unsafe { pathname(mnt)? }))?;
        let (command, takes_pool) = command(unsafe { shared(qctl)? }.qc_cmd).ok_or(Errno::EOPNOTSUPP)?;
        let pool = match takes_pool {
            // SAFETY: the member `qc_poolname` begins where the other members end.
            true => Some(pool_of(unsafe { text(qctl.add(1).cast::<c_char>())? }, &mount.fsname)?),
            false => None,
        };
        unsafe { exclusive(qctl)? }.run(command, &mount, pool).map(|()| 0)
    })
}

/// Returns the pool named as `POOL` or `FSNAME.POOL`. ENOENT: no pool can have this name.
fn pool_of(name: &CStr, fsname: &str) -> Result<PoolName> {
    let name = name.to_str().map_err(|_| Errno::ENOENT)?;
    let short = name.strip_prefix(fsname).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    PoolName::new(short).map_err(|_| Errno::ENOENT)
}

impl IfQuotactl {
    fn run(&mut self, command: Command, mount: &MountInfo, pool: Option<PoolName>) -> Result<()> {
        let kind = *Kind::ALL.get(self.qc_type as usize).ok_or(Errno::EINVAL)?;
        let id = Id { kind, id: self.qc_id };
        let root = Path::new(&mount.mountpoint);
        match command {
            Command::GetInfo | Command::GetDefault => {
                let answer = System.quota(root, &Query::Default { kind, pool })?;
                let Answer::Default { setting, grace } = answer else { return Err(Errno::EPROTO) };
                if command == Command::GetInfo {
                    let (dqi_bgrace, dqi_igrace) = (grace.space, grace.files);
                    self.qc_dqinfo = ObdDqinfo { dqi_bgrace, dqi_igrace, dqi_valid: BGRACE | IGRACE, dqi_flags: 0 };
                } else {
                    self.qc_dqblk = ObdDqblk::of_defaults(setting, grace);
                }
                Ok(())
            }
            Command::GetQuota => self.get(mount, id, pool),
            Command::SetInfo | Command::SetQuota | Command::SetDefault | Command::Delete => {
                System.set_quota(root, &self.change(command, id)?.within(pool))
            }
        }
    }

    /// Stores use and limits of an id. EIO: a target does not answer. The use of the others is
    /// stored.
    fn get(&mut self, mount: &MountInfo, id: Id, pool: Option<PoolName>) -> Result<()> {
        let query = Query::Of { id, pool, targets: self.qc_valid != GENERAL };
        let answer = System.quota(Path::new(&mount.mountpoint), &query)?;
        let Answer::Of { report, targets, inexact } = answer else { return Err(Errno::EPROTO) };
        if self.qc_valid == GENERAL {
            // SAFETY: null is a valid argument.
            self.qc_dqblk = ObdDqblk::of(&report, unsafe { libc::time(ptr::null_mut()) });
            return if inexact { Err(Errno::EIO) } else { Ok(()) };
        }
        let name = self.target(&mount.fsname)?;
        let target = targets.into_iter().find(|target| target.target == name).ok_or(Errno::ENODEV)?;
        self.obd_uuid = ObdUuid::of(&format!("{name}_UUID"));
        self.qc_dqblk = ObdDqblk {
            dqb_bhardlimit: target.space_allowed.unwrap_or(0).div_ceil(KIB),
            dqb_curspace: target.space.ok_or(Errno::EIO)?,
            dqb_curinodes: target.files,
            dqb_valid: BLIMITS | SPACE | INODES,
            ..ObdDqblk::default()
        };
        Ok(())
    }

    /// Returns the name of the selected target.
    fn target(&self, fsname: &str) -> Result<String> {
        match self.qc_valid {
            MDTIDX => Ok(target_name(fsname, TargetKind::Mdt, self.qc_idx)),
            OSTIDX => Ok(target_name(fsname, TargetKind::Ost, self.qc_idx)),
            UUID => self.obd_uuid.target().ok_or(Errno::ENODEV),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the change that the command describes, so far without the pool.
    fn change(&self, command: Command, id: Id) -> Result<Change> {
        let (block, info, kind, pool) = (&self.qc_dqblk, &self.qc_dqinfo, id.kind, None);
        let has = |bit: u32| block.dqb_valid & bit != 0;
        let limits = |bit: u32, soft: u64, hard: u64, unit: u64| -> Result<NewLimits> {
            if !has(bit) {
                return Ok(NewLimits::default());
            }
            let scaled = |number: u64| number.checked_mul(unit).ok_or(Errno::EINVAL);
            Ok(NewLimits { soft: Some(scaled(soft)?), hard: Some(scaled(hard)?) })
        };
        let is_default =
            (has(BTIME) && block.dqb_btime & DEFAULT != 0) || (has(ITIME) && block.dqb_itime & DEFAULT != 0);
        let change = match command {
            Command::Delete => return Ok(Change::Delete { id, pool }),
            Command::SetDefault if id.id != 0 => return Ok(Change::UseDefault { id, pool }),
            Command::SetQuota if is_default => return Ok(Change::UseDefault { id, pool }),
            Command::SetInfo => {
                let grace = |is_given: bool, secs: u64| is_given.then_some(secs & GRACE_MASK);
                let space = grace(has(BTIME) || info.dqi_valid & BGRACE != 0, info.dqi_bgrace);
                let files = grace(has(ITIME) || info.dqi_valid & IGRACE != 0, info.dqi_igrace);
                Change::Grace { kind, pool, space, files }
            }
            _ => {
                let space = limits(BLIMITS, block.dqb_bsoftlimit, block.dqb_bhardlimit, KIB)?;
                let files = limits(ILIMITS, block.dqb_isoftlimit, block.dqb_ihardlimit, 1)?;
                match command {
                    Command::SetDefault => Change::Default { kind, pool, space, files },
                    _ => Change::Limits { id, pool, space, files },
                }
            }
        };
        if changes_something(&change) { Ok(change) } else { Err(Errno::EINVAL) }
    }
}

fn changes_something(change: &Change) -> bool {
    match change {
        Change::Limits { space, files, .. } | Change::Default { space, files, .. } => {
            [space, files].into_iter().any(|limits| *limits != NewLimits::default())
        }
        Change::Grace { space, files, .. } => space.is_some() || files.is_some(),
        Change::UseDefault { .. } | Change::Delete { .. } => true,
    }
}

impl ObdUuid {
    fn of(name: &str) -> ObdUuid {
        let mut uuid = ObdUuid::default();
        // The last byte stays a NUL.
        for (to, from) in uuid.0.iter_mut().take(39).zip(name.bytes()) {
            *to = from;
        }
        uuid
    }

    /// Returns the name of the target with this uuid.
    fn target(&self) -> Option<String> {
        let uuid = CStr::from_bytes_until_nul(&self.0).ok()?.to_str().ok()?;
        Some(uuid.strip_suffix("_UUID").unwrap_or(uuid).to_owned())
    }
}

impl ObdDqblk {
    /// Returns use and limits of an id. `now`: seconds since 1970.
    fn of(report: &Report, now: i64) -> ObdDqblk {
        let has_limits = !report.space.limits.is_none() || !report.files.limits.is_none();
        let flag = if report.uses_default && has_limits { DEFAULT } else { 0 };
        let end = |usage: &Usage| {
            let end = usage.grace.map_or(0, |left| now.saturating_add(left));
            u64::try_from(end).unwrap_or(0).min(GRACE_MASK) | flag
        };
        ObdDqblk {
            dqb_curspace: report.space.used,
            dqb_curinodes: report.files.used,
            dqb_btime: end(&report.space),
            dqb_itime: end(&report.files),
            dqb_valid: ALL,
            ..ObdDqblk::of_limits(report.space.limits, report.files.limits)
        }
    }

    /// Returns default limits, and grace times.
    fn of_defaults(setting: Setting, grace: Grace) -> ObdDqblk {
        ObdDqblk {
            dqb_btime: grace.space,
            dqb_itime: grace.files,
            dqb_valid: BLIMITS | ILIMITS | BTIME | ITIME,
            ..ObdDqblk::of_limits(setting.space, setting.files)
        }
    }

    fn of_limits(space: Limits, files: Limits) -> ObdDqblk {
        ObdDqblk {
            dqb_bhardlimit: space.hard.div_ceil(KIB),
            dqb_bsoftlimit: space.soft.div_ceil(KIB),
            dqb_ihardlimit: files.hard,
            dqb_isoftlimit: files.soft,
            ..ObdDqblk::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: Id = Id { kind: Kind::Group, id: 7 };

    fn call(block: ObdDqblk) -> IfQuotactl {
        IfQuotactl { qc_dqblk: block, ..IfQuotactl::default() }
    }

    #[test]
    fn quotactl_changes_only_what_dqb_valid_selects() {
        let block = ObdDqblk { dqb_bhardlimit: 3, dqb_bsoftlimit: 2, dqb_ihardlimit: 5, ..ObdDqblk::default() };
        let with = |dqb_valid| call(ObdDqblk { dqb_valid, ..block }).change(Command::SetQuota, ID);
        let space = NewLimits { soft: Some(2 * KIB), hard: Some(3 * KIB) };
        let files = NewLimits { soft: Some(0), hard: Some(5) };
        let none = NewLimits::default();
        assert_eq!(with(BLIMITS), Ok(Change::Limits { id: ID, pool: None, space, files: none }));
        assert_eq!(with(ILIMITS | SPACE), Ok(Change::Limits { id: ID, pool: None, space: none, files }));
        assert_eq!(with(SPACE), Err(Errno::EINVAL));
        let huge = ObdDqblk { dqb_bhardlimit: u64::MAX, dqb_valid: BLIMITS, ..block };
        assert_eq!(call(huge).change(Command::SetQuota, ID), Err(Errno::EINVAL));
    }

    #[test]
    fn quotactl_sets_defaults_and_lets_them_apply() {
        let block = ObdDqblk { dqb_ihardlimit: 5, dqb_valid: ILIMITS, ..ObdDqblk::default() };
        let root = Id { id: 0, ..ID };
        let files = NewLimits { soft: Some(0), hard: Some(5) };
        let default = Change::Default { kind: Kind::Group, pool: None, space: NewLimits::default(), files };
        assert_eq!(call(block).change(Command::SetDefault, root), Ok(default));
        let applies = Ok(Change::UseDefault { id: ID, pool: None });
        assert_eq!(call(block).change(Command::SetDefault, ID), applies);
        let flagged = ObdDqblk { dqb_btime: DEFAULT, dqb_valid: BLIMITS | BTIME, ..block };
        assert_eq!(call(flagged).change(Command::SetQuota, ID), applies);
        assert_eq!(call(block).change(Command::Delete, ID), Ok(Change::Delete { id: ID, pool: None }));
    }

    #[test]
    fn quotactl_takes_grace_times_by_either_mask() {
        let mut times = call(ObdDqblk { dqb_valid: ITIME, ..ObdDqblk::default() });
        times.qc_dqinfo = ObdDqinfo { dqi_bgrace: 1, dqi_igrace: 2, ..ObdDqinfo::default() };
        let grace = |space, files| Ok(Change::Grace { kind: Kind::Group, pool: None, space, files });
        assert_eq!(times.change(Command::SetInfo, ID), grace(None, Some(2)));
        times.qc_dqinfo.dqi_valid = BGRACE;
        assert_eq!(times.change(Command::SetInfo, ID), grace(Some(1), Some(2)));
    }

    #[test]
    fn use_and_limits_have_the_units_of_c() {
        let usage = |used, soft, hard, grace| Usage { used, limits: Limits { soft, hard }, grace };
        let report =
            Report { space: usage(5000, 2048, 4096, Some(-10)), files: usage(3, 0, 9, None), uses_default: true };
        let want = ObdDqblk {
            dqb_bhardlimit: 4,
            dqb_bsoftlimit: 2,
            dqb_curspace: 5000,
            dqb_ihardlimit: 9,
            dqb_isoftlimit: 0,
            dqb_curinodes: 3,
            dqb_btime: 990 | DEFAULT,
            dqb_itime: DEFAULT,
            dqb_valid: ALL,
            dqb_padding: 0,
        };
        assert_eq!(ObdDqblk::of(&report, 1000), want);
    }

    #[test]
    fn target_is_selected_by_index_or_uuid() {
        let mut call = IfQuotactl { qc_valid: OSTIDX, qc_idx: 10, ..IfQuotactl::default() };
        assert_eq!(call.target("fs"), Ok("fs-OST000a".to_owned()));
        call.qc_valid = MDTIDX;
        assert_eq!(call.target("fs"), Ok("fs-MDT000a".to_owned()));
        (call.qc_valid, call.obd_uuid) = (UUID, ObdUuid::of("fs-OST0001_UUID"));
        assert_eq!(call.target("fs"), Ok("fs-OST0001".to_owned()));
        call.qc_valid = 4;
        assert_eq!(call.target("fs"), Err(Errno::EINVAL));
    }
}
