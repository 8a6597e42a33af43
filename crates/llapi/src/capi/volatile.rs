//! Volatile files, which have no name, for programs that move data to another layout themselves.
//! Such a program creates one beside a file, copies the data, and swaps the layouts
//! (`llapi_fswap_layouts`). Closing a volatile file deletes it. The functions return a negated
//! errno if they fail.

use std::ffi::{c_char, c_int};

use rustix::fs::{Mode, OFlags};
use sheen_admin::attributes::{self, At};
use sheen_wire::Errno;

use super::files::{StripeParam, striping};
use crate::{
    ffi::{or_minus_errno, pathname},
    open::{self, plain},
    xattr,
};

/// Flags without a meaning for a file without a name: `O_CREAT`, `O_EXCL`, `O_TRUNC`.
const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::TRUNC);
/// Index of the one MDT.
const MDT: c_int = 0;

/// Creates a volatile file in a directory, with a layout if one is given, and opens it for reading
/// and writing. Returns the open file.
///
/// -ENODEV: no MDT of that index (-1: any); -ENOTDIR, -ENOTTY: not on a mount; -EINVAL: the layout;
/// and the errors of open(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_create_volatile_param(
    directory: *const c_char,
    mdt: c_int,
    flags: c_int,
    mode: libc::mode_t,
    param: *const StripeParam,
) -> c_int {
    or_minus_errno(|| {
        let directory = unsafe { pathname(directory)? };
        if ![-1, MDT].contains(&mdt) {
            return Err(Errno::ENODEV);
        }
        attributes::fid(At::Path(directory))?;
        let layout = if param.is_null() { None } else { Some(xattr::encode(&unsafe { striping(param)? }.layout()?)?) };
        let flags = OFlags::from_bits_retain(flags as u32) - NEW - OFlags::RWMODE;
        let file = plain(directory, flags | OFlags::TMPFILE | OFlags::RDWR, mode)?;
        if let Some(layout) = layout {
            attributes::replace_layout(&file, &layout)?;
        }
        Ok(open::give(file))
    })
}

/// As [`llapi_create_volatile_param`], with mode 0600 and the default layout of that directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_create_volatile_idx(directory: *const c_char, mdt: c_int, flags: c_int) -> c_int {
    let mode = Mode::RUSR | Mode::WUSR;
    unsafe { llapi_create_volatile_param(directory, mdt, flags, mode.as_raw_mode(), std::ptr::null()) }
}
