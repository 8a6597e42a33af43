//! Files without names (Lustre's volatile files), for programs that move bytes to another layout
//! themselves: make one beside a file, copy, and exchange the layouts (`llapi_fswap_layouts`). One
//! that is closed is gone. They return an errno negated.

use std::{
    ffi::{c_char, c_int},
    os::fd::AsFd,
};

use rustix::fs::{Mode, OFlags};
use sheen_wire::Errno;

use super::files::{StripeParam, striping};
use crate::{
    border::{or_minus_errno, text},
    lum,
    open::{self, plain},
    sys::{self, At},
};

/// What is of no account to a file that nobody finds: `O_CREAT`, `O_EXCL`, `O_TRUNC`.
const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::TRUNC);
/// Index of the one MDT.
const MDT: c_int = 0;

/// Opens a new file without a name, for reading and writing, in a directory; with a layout, where
/// one is given. Returns the open file.
///
/// -ENODEV: no MDT of that index (-1: any); -ENOTDIR, -ENOTTY: not on a mount; -EINVAL: the layout;
/// and whatever open(2) says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_create_volatile_param(
    directory: *const c_char,
    mdt: c_int,
    flags: c_int,
    mode: libc::mode_t,
    param: *const StripeParam,
) -> c_int {
    or_minus_errno(|| {
        let directory = unsafe { text(directory)? };
        if ![-1, MDT].contains(&mdt) {
            return Err(Errno::ENODEV);
        }
        sys::fid(At::Path(directory))?;
        let layout = if param.is_null() { None } else { Some(lum::encode(&unsafe { striping(param)? }.layout()?)?) };
        let flags = OFlags::from_bits_retain(flags as u32) - NEW - OFlags::RWMODE;
        let file = plain(directory, flags | OFlags::TMPFILE | OFlags::RDWR, mode)?;
        if let Some(layout) = layout {
            sys::replace_layout(file.as_fd(), &layout)?;
        }
        Ok(open::give(file))
    })
}

/// The same with mode 0600 and the layout that files get there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_create_volatile_idx(directory: *const c_char, mdt: c_int, flags: c_int) -> c_int {
    let mode = Mode::RUSR | Mode::WUSR;
    unsafe { llapi_create_volatile_param(directory, mdt, flags, mode.as_raw_mode(), std::ptr::null()) }
}
