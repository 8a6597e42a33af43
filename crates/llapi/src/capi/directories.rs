//! Directories striped over MDTs: `llapi_dir_create`, `llapi_dir_set_default_lmv` and similar
//! functions. They return a negated errno if they fail.
//!
//! As in `lfs mkdir`, a directory is created and then gets its layout. If the MDT refuses the
//! layout, the directory is removed.

use std::{
    ffi::{c_char, c_int},
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode};
use sheen_admin::{
    attributes::{self, At},
    os_errno,
    paths::parent_of,
};
use sheen_layout::lmv::{HashType, LmvUser};
use sheen_wire::{Errno, Result, mgs::TargetKind};

use super::files::{StripeParam, with_list};
use crate::{
    ffi::{optional, or_minus_errno, pathname},
    mounts,
};

/// The layout of a directory, and the default for new directories in it.
const LMV: &str = "lustre.lmv";
const DEFAULT_LMV: &str = "lustre.dmv";
/// Mode bits that an owner needs to set the layout of a directory.
const OWNER: u32 = 0o700;

/// Creates a directory; the umask applies to its mode. In the struct, the offset is the first MDT
/// (-1: any), the list contains MDTs, and the pattern is the hash of names. It may not be null.
///
/// -EEXIST; -ENODEV: no such MDT; -EINVAL: an invalid number, or a pool; -ENOENT, -ENOTTY, and the
/// errors of mkdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_dir_create(name: *const c_char, mode: libc::mode_t, param: *const StripeParam) -> c_int {
    or_minus_errno(|| {
        let (name, wanted) = unsafe { (pathname(name)?, wanted(param)?) };
        verify(parent_of(name), &wanted)?;
        rustix::fs::mkdirat(CWD, name, Mode::from_raw_mode(mode & 0o7777)).map_err(os_errno)?;
        lay_out(name, &wanted).map(|()| 0).inspect_err(|_| {
            // This fails if the directory is no longer empty; it then remains.
            let _ = rustix::fs::rmdir(name);
        })
    })
}

/// As [`llapi_dir_create`], with numbers instead of a struct, and without a list. `pool`: null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_dir_create_pool(
    name: *const c_char,
    mode: c_int,
    offset: c_int,
    count: c_int,
    pattern: c_int,
    pool: *const c_char,
) -> c_int {
    let param = StripeParam::plain(pool, offset, count, pattern);
    unsafe { llapi_dir_create(name, mode as libc::mode_t, &raw const param) }
}

/// Sets the default layout for new directories in a directory. With offset -1 and count 0, deletes
/// it. The fields `lsp_max_inherit` and `lsp_max_inherit_rr` of the struct are used, too.
///
/// -ENOTDIR; -EPERM: it belongs to another user; otherwise as [`llapi_dir_create`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_dir_set_default_lmv(name: *const c_char, param: *const StripeParam) -> c_int {
    or_minus_errno(|| {
        let (name, wanted) = unsafe { (pathname(name)?, wanted(param)?) };
        let stat = rustix::fs::stat(name).map_err(os_errno)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Err(Errno::ENOTDIR);
        }
        verify(name, &wanted)?;
        attributes::set(At::Path(name), DEFAULT_LMV, &wanted.encode(), false).map(|()| 0)
    })
}

/// As [`llapi_dir_set_default_lmv`], with numbers instead of a struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_dir_set_default_lmv_stripe(
    name: *const c_char,
    offset: c_int,
    count: c_int,
    pattern: c_int,
    pool: *const c_char,
) -> c_int {
    let param = StripeParam::plain(pool, offset, count, pattern);
    unsafe { llapi_dir_set_default_lmv(name, &raw const param) }
}

/// Returns the value to send.
///
/// # Safety
/// As [`with_list`].
unsafe fn wanted(param: *const StripeParam) -> Result<LmvUser> {
    // SAFETY: guaranteed by the caller.
    let (p, mdts) = unsafe { with_list(param)? };
    if unsafe { optional(p.lsp_pool) }.is_some() {
        return Err(Errno::EINVAL);
    }
    let first = match p.lsp_stripe_offset {
        -1 => mdts.first().copied(),
        offset => Some(u32::try_from(offset).map_err(|_| Errno::EINVAL)?),
    };
    let one = LmvUser {
        mdt: first,
        hash: HashType(p.lsp_stripe_pattern as u32),
        max_inherit: p.lsp_max_inherit,
        max_inherit_rr: p.lsp_max_inherit_rr,
        ..LmvUser::new(p.lsp_stripe_count)
    };
    Ok(if mdts.len() > 1 { one.with_mdts(mdts) } else { one })
}

/// Checks that the directory is on a mount that has the requested MDTs. ENODEV: it does not have
/// them.
fn verify(directory: &Path, wanted: &LmvUser) -> Result<()> {
    let there = mounts::targets(At::Path(directory), TargetKind::Mdt)?;
    let mut named = wanted.mdt.into_iter().chain(wanted.stripes.iter().map(|stripe| stripe.mdt));
    if named.all(|mdt| there.iter().any(|target| target.index == mdt)) { Ok(()) } else { Err(Errno::ENODEV) }
}

/// Sets the layout of a new directory, even if its mode denies access to its owner.
fn lay_out(name: &Path, wanted: &LmvUser) -> Result<()> {
    let set = || attributes::set(At::Path(name), LMV, &wanted.encode(), false);
    match set() {
        Err(Errno::EACCES) => {
            let mode = rustix::fs::stat(name).map_err(os_errno)?.st_mode & 0o7777;
            let chmod = |mode| rustix::fs::chmod(name, Mode::from_raw_mode(mode)).map_err(os_errno);
            chmod(mode | OWNER)?;
            let done = set();
            chmod(mode)?;
            done
        }
        done => done,
    }
}
