//! The older functions that create files with a layout and read it: `llapi_file_create`, `_open`,
//! `_get_stripe` and similar ones. They return a negated errno if they fail, and print the error on
//! standard error (`llapi_msg_set_level`).

use std::{
    ffi::{CStr, c_char, c_int, c_ulonglong, c_void},
    path::Path,
    ptr, slice,
};

use rustix::fs::OFlags;
use sheen_admin::attributes::{self, At};
use sheen_layout::{PER_OST_MAX, Pattern, STRIPES_MAX, codec};
use sheen_wire::{Errno, Result};

use crate::{
    capi::messages,
    ffi::{file, optional, or_minus_errno, pathname, put, shared, text},
    layout::{Component, DEFAULT, Layout, OVERSTRIPING, RAID0, WIDE},
    open::{self, LayoutTarget},
    xattr,
};

/// `struct llapi_stripe_param` without the list of OSTs at its end.
#[derive(Debug)]
#[repr(C)]
pub struct StripeParam {
    /// Bytes; 0: default.
    pub lsp_stripe_size: c_ulonglong,
    /// Null: none.
    pub lsp_pool: *const c_char,
    /// First OST; -1: any.
    pub lsp_stripe_offset: c_int,
    /// 0: default.
    pub lsp_stripe_pattern: c_int,
    /// 0: default; -1: all OSTs. Length of the list if there is one.
    pub lsp_stripe_count: c_int,
    /// Whether there is a list.
    pub lsp_is_specific: bool,
    /// Unused here.
    pub lsp_is_create: bool,
    /// For striped directories.
    pub lsp_max_inherit: u8,
    /// For striped directories.
    pub lsp_max_inherit_rr: u8,
    /// The entries of the list follow the struct.
    pub lsp_osts: [u32; 0],
}

/// Striping of a file, as the older functions express it.
pub(super) struct Striping<'a> {
    size: u64,
    offset: c_int,
    count: c_int,
    pattern: c_int,
    pool: Option<&'a CStr>,
    osts: &'a [u32],
}

/// `LOV_PATTERN_RAID0`, and the same with `LOV_PATTERN_OVERSTRIPING`.
const PATTERN_RAID0: c_int = Pattern::RAID0.0 as c_int;
const PATTERN_OVERSTRIPED: c_int = Pattern::RAID0_OVERSTRIPED.0 as c_int;
/// Mode of files that `llapi_file_create` creates.
const MODE: u32 = 0o644;

impl Striping<'_> {
    /// Returns the layout. EINVAL: one of the numbers is invalid.
    pub fn layout(&self) -> Result<Layout> {
        let mut c = Component::default();
        c.set_pattern(match self.pattern {
            0 | PATTERN_RAID0 => RAID0,
            PATTERN_OVERSTRIPED => OVERSTRIPING,
            _ => return Err(Errno::EINVAL),
        })?;
        c.set_stripe_size(if self.size == 0 { DEFAULT } else { self.size })?;
        c.set_pool(self.pool.map_or(b"", CStr::to_bytes))?;
        for (stripe, ost) in self.osts.iter().enumerate() {
            c.set_ost(stripe, u64::from(*ost))?;
        }
        c.specific = !self.osts.is_empty();
        if self.osts.is_empty() {
            let most = if self.pattern == PATTERN_OVERSTRIPED { i32::from(PER_OST_MAX) } else { 1 };
            c.set_stripe_count(match self.count {
                0 => DEFAULT,
                n if (-most..0).contains(&n) => WIDE + u64::from(n.unsigned_abs()) - 1,
                n => u64::try_from(n).map_err(|_| Errno::EINVAL)?,
            })?;
        }
        match self.offset {
            -1 => {}
            n if !self.osts.is_empty() && !self.osts.contains(&(n as u32)) => return Err(Errno::EINVAL),
            _ if !self.osts.is_empty() => {}
            n => c.set_ost(0, u64::try_from(n).map_err(|_| Errno::EINVAL)?)?,
        }
        Ok(Layout::plain(c))
    }
}

fn open(path: &Path, flags: OFlags, mode: u32, striping: &Striping<'_>) -> Result<c_int> {
    let name = path.to_string_lossy();
    let value = striping.layout().and_then(|layout| xattr::encode(&layout)).inspect_err(|e| {
        messages::say(messages::ERROR, Some(*e), &format!("error: invalid stripe options for '{name}'"));
    })?;
    open::open(path, flags, mode, &value, LayoutTarget::Any).map(open::give).inspect_err(|e| {
        let what = if *e == Errno::EEXIST { "stripe already set" } else { "cannot open or stripe file" };
        messages::say(messages::ERROR, Some(*e), &format!("error: {what}: '{name}'"));
    })
}

unsafe fn striped<'a>(
    size: c_ulonglong,
    offset: c_int,
    count: c_int,
    pattern: c_int,
    pool: *const c_char,
) -> Striping<'a> {
    // SAFETY: guaranteed by C.
    Striping { size, offset, count, pattern, pool: unsafe { optional(pool) }, osts: &[] }
}

/// Opens a file, and creates it if `O_CREAT` says so. Sets its layout if it has none; of a
/// directory sets the default. Returns the open file.
///
/// -EINVAL: an invalid number, or a pool that does not exist or is empty. -EEXIST: it has a layout.
/// -ENOTTY: not on a mount.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_open(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    stripe_size: c_ulonglong,
    stripe_offset: c_int,
    stripe_count: c_int,
    stripe_pattern: c_int,
) -> c_int {
    unsafe {
        llapi_file_open_pool(name, flags, mode, stripe_size, stripe_offset, stripe_count, stripe_pattern, ptr::null())
    }
}

/// As [`llapi_file_open`], in a pool: `pool` or `fsname.pool`, null for none.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "Lustre's")]
pub unsafe extern "C" fn llapi_file_open_pool(
    name: *const c_char,
    flags: c_int,
    mode: c_int,
    stripe_size: c_ulonglong,
    stripe_offset: c_int,
    stripe_count: c_int,
    stripe_pattern: c_int,
    pool: *const c_char,
) -> c_int {
    or_minus_errno(|| {
        let striping = unsafe { striped(stripe_size, stripe_offset, stripe_count, stripe_pattern, pool) };
        open(unsafe { pathname(name)? }, OFlags::from_bits_retain(flags as u32), mode as u32, &striping)
    })
}

/// As [`llapi_file_open_pool`], with a struct. With `lsp_is_specific`, uses exactly the OSTs of its
/// list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_open_param(
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    param: *const StripeParam,
) -> c_int {
    or_minus_errno(|| {
        let (name, striping) = unsafe { (pathname(name)?, striping(param)?) };
        open(name, OFlags::from_bits_retain(flags as u32), mode, &striping)
    })
}

impl StripeParam {
    /// Creates one without a stripe size and a list.
    pub(super) fn plain(pool: *const c_char, offset: c_int, count: c_int, pattern: c_int) -> StripeParam {
        StripeParam {
            lsp_stripe_size: 0,
            lsp_pool: pool,
            lsp_stripe_offset: offset,
            lsp_stripe_pattern: pattern,
            lsp_stripe_count: count,
            lsp_is_specific: false,
            lsp_is_create: false,
            lsp_max_inherit: 0,
            lsp_max_inherit_rr: 0,
            lsp_osts: [],
        }
    }
}

/// Returns a struct and its list. The list is empty if it is not to be used. EINVAL: null, or a
/// list without a length.
///
/// # Safety
/// It is null, or points to such a struct that is followed by as many targets as it says.
pub(super) unsafe fn with_list<'a>(param: *const StripeParam) -> Result<(&'a StripeParam, &'a [u32])> {
    // SAFETY: guaranteed by the caller.
    let p = unsafe { shared(param)? };
    let count = usize::try_from(p.lsp_stripe_count).ok().filter(|n| (1..=STRIPES_MAX).contains(n));
    match (p.lsp_is_specific, count) {
        (false, _) => Ok((p, &[])),
        (true, None) => Err(Errno::EINVAL),
        // SAFETY: C guarantees that as many follow the struct. The pointer covers all of it.
        (true, Some(count)) => Ok((p, unsafe { slice::from_raw_parts((&raw const (*param).lsp_osts).cast(), count) })),
    }
}

/// Returns the striping of a file that a struct describes. Errors and safety: [`with_list`].
pub(super) unsafe fn striping<'a>(param: *const StripeParam) -> Result<Striping<'a>> {
    // SAFETY: guaranteed by the caller.
    let (p, osts) = unsafe { with_list(param)? };
    let (offset, pattern) = (p.lsp_stripe_offset, p.lsp_stripe_pattern);
    let striping = unsafe { striped(p.lsp_stripe_size, offset, p.lsp_stripe_count, pattern, p.lsp_pool) };
    Ok(Striping { osts, ..striping })
}

/// Checks whether files can have this striping. Returns 0, or -EINVAL with a message on standard
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_stripe_limit_check(
    stripe_size: c_ulonglong,
    stripe_offset: c_int,
    stripe_count: c_int,
    stripe_pattern: c_int,
) -> c_int {
    or_minus_errno(|| {
        // SAFETY: no pool is named.
        let striping = unsafe { striped(stripe_size, stripe_offset, stripe_count, stripe_pattern, ptr::null()) };
        striping.layout().map(|_| 0).inspect_err(|e| {
            let text = format!(
                "error: invalid stripes: size {stripe_size}, offset {stripe_offset}, count {stripe_count}, pattern {stripe_pattern:#x}"
            );
            messages::say(messages::ERROR, Some(*e), &text);
        })
    })
}

/// Creates a file with this striping, or sets the striping of a file that has none. Opens it with
/// mode 0644 and `O_CREAT | O_WRONLY`, and closes it again. Returns 0, or errors as
/// [`llapi_file_open`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_create(
    name: *const c_char,
    stripe_size: c_ulonglong,
    stripe_offset: c_int,
    stripe_count: c_int,
    stripe_pattern: c_int,
) -> c_int {
    unsafe { llapi_file_create_pool(name, stripe_size, stripe_offset, stripe_count, stripe_pattern, ptr::null()) }
}

/// As [`llapi_file_create`], in a pool.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_create_pool(
    name: *const c_char,
    stripe_size: c_ulonglong,
    stripe_offset: c_int,
    stripe_count: c_int,
    stripe_pattern: c_int,
    pool: *const c_char,
) -> c_int {
    or_minus_errno(|| {
        let striping = unsafe { striped(stripe_size, stripe_offset, stripe_count, stripe_pattern, pool) };
        let made = open(unsafe { pathname(name)? }, OFlags::CREATE | OFlags::WRONLY, MODE, &striping)?;
        // SAFETY: only this call uses the file.
        unsafe { rustix::io::close(made) };
        Ok(0)
    })
}

/// Stores the layout of a file, or the default of a directory, as in `lustre.lov`: up to 65,536
/// bytes, depending on the number of stripes. In a plain file's layout, `lmm_stripe_offset` is the
/// first OST. Returns 0, or a negated errno, which is also in `errno`.
///
/// -ENOENT, -ENOTTY, -EINVAL; -ENODATA: it has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_get_stripe(path: *const c_char, value: *mut c_void) -> c_int {
    or_minus_errno(|| {
        let path = unsafe { pathname(path)? };
        if value.is_null() {
            return Err(Errno::EINVAL);
        }
        let mut found = attributes::layout(At::Path(path))?.ok_or(Errno::ENODATA)?;
        let layout = xattr::decode(&found, false)?;
        let first = layout.current().ost(0).ok().and_then(|ost| u16::try_from(ost).ok());
        if let (false, Some(first)) = (layout.composite, first) {
            codec::set_stripe_offset(&mut found, first);
        }
        // SAFETY: C guarantees room for a layout, as the documentation requires.
        unsafe { ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), found.len()) };
        Ok(0)
    })
}

/// Stores the index of the MDT that holds an open file. Returns 0, or a negated errno: -ENOTTY,
/// -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_fget_mdtidx(fd: c_int, index: *mut c_int) -> c_int {
    or_minus_errno(|| unsafe { put(index, attributes::mdt(At::File(file(fd)?))?) }.map(|()| 0))
}

/// Names of the bits of `lmm_pattern`.
const PATTERNS: [(u32, &str); 5] = [
    (Pattern::RAID0.0, "raid0"),
    (Pattern::MDT.0, "mdt"),
    (Pattern::OVERSTRIPING.0, "overstriped"),
    (Pattern::FOREIGN.0, "foreign"),
    (Pattern::RELEASED.0, "released"),
];

/// Writes the names of a pattern's bits, separated by commas, and returns the buffer. Null with
/// EOVERFLOW: they do not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lov_pattern_string(pattern: u32, buffer: *mut c_char, room: usize) -> *mut c_char {
    crate::ffi::or_null(|| {
        let names: Vec<&str> = PATTERNS.iter().filter(|(bit, _)| pattern & bit != 0).map(|(_, name)| *name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        unsafe { crate::ffi::put_text(buffer, room, names.as_bytes(), Errno::EOVERFLOW) }.map(|()| buffer)
    })
}

/// Parses the output of [`llapi_lov_pattern_string`]. -EINVAL: an unknown name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lov_string_pattern(names: *const c_char, pattern: *mut u32) -> c_int {
    or_minus_errno(|| {
        let names = unsafe { text(names)? }.to_str().map_err(|_| Errno::EINVAL)?;
        let mut bits = 0;
        for name in names.split(',').filter(|_| names != "none") {
            let (bit, _) = PATTERNS.iter().find(|(_, known)| *known == name).ok_or(Errno::EINVAL)?;
            bits |= bit;
        }
        unsafe { put(pattern, bits) }.map(|()| 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn striping(size: u64, offset: c_int, count: c_int, pattern: c_int) -> Result<Layout> {
        Striping { size, offset, count, pattern, pool: None, osts: &[] }.layout()
    }

    #[test]
    fn older_striping_numbers_convert_to_lustre_layouts() {
        assert_eq!(striping(0, -1, 0, 0).unwrap().current(), &Component { pattern: RAID0, ..Component::default() });
        let c = striping(1 << 20, 2, 4, 1).unwrap().current().clone();
        assert_eq!((c.stripe_size, c.start_ost, c.stripe_count, c.specific), (1 << 20, 2, 4, false));
        assert_eq!(striping(0, -1, -1, 0).unwrap().current().stripe_count, WIDE);
        assert_eq!(striping(0, -1, -32, PATTERN_OVERSTRIPED).unwrap().current().stripe_count, crate::layout::WIDE_MAX);
        for (size, offset, count, pattern) in [
            (65537, -1, 0, 0),
            (1 << 32, -1, 0, 0),
            (0, -2, 0, 0),
            (0, -1, 2001, 0),
            (0, -1, -2, 0),
            (0, -1, -33, PATTERN_OVERSTRIPED),
            (0, -1, 0, 2),
            (0, -1, 0, 0x100),
        ] {
            let what = (size, offset, count, pattern);
            assert_eq!(striping(size, offset, count, pattern), Err(Errno::EINVAL), "{what:?}");
        }
    }

    #[test]
    fn striping_with_an_ost_list_requests_exactly_these_osts() {
        let asked = |osts: &'static [u32], offset| {
            Striping { size: 0, offset, count: 0, pattern: 0, pool: Some(c"fs.p"), osts }.layout()
        };
        let c = asked(&[3, 1], -1).unwrap().current().clone();
        assert_eq!((c.specific, c.osts.as_slice(), c.pool.as_slice()), (true, &[3, 1][..], &b"p"[..]));
        assert_eq!(asked(&[3, 1], 1).unwrap().current().osts, [3, 1]);
        assert_eq!(asked(&[3, 1], 2), Err(Errno::EINVAL), "not in the list");
        assert!(asked(&[3], -1).unwrap().current().specific, "one OST, and no other");
    }
}
