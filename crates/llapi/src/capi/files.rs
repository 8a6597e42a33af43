//! The older way to make files with a layout, and to see it: `llapi_file_create`, `_open`,
//! `_get_stripe` and their like. They return an errno negated, and say what went wrong on standard
//! error (`llapi_msg_set_level`).

use std::{
    ffi::{CStr, c_char, c_int, c_ulonglong, c_void},
    ptr, slice,
};

use rustix::fs::OFlags;
use sheen_layout::{PER_OST_MAX, STRIPES_MAX};
use sheen_wire::{Errno, Result};

use crate::{
    border::{file, optional, or_minus_errno, put, shared, text},
    capi::messages,
    layout::{Component, DEFAULT, Layout, OVERSTRIPING, RAID0, WIDE},
    lum,
    open::{self, Onto},
    sys::{self, At},
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
    /// Of directories' striping.
    pub lsp_max_inherit: u8,
    /// Of directories' striping.
    pub lsp_max_inherit_rr: u8,
    /// There are more of these.
    pub lsp_osts: [u32; 0],
}

/// How a file shall be striped, as the older calls say it.
pub(super) struct Striping<'a> {
    size: u64,
    offset: c_int,
    count: c_int,
    pattern: c_int,
    pool: Option<&'a CStr>,
    osts: &'a [u32],
}

/// `LOV_PATTERN_RAID0` and with `LOV_PATTERN_OVERSTRIPING`.
const PATTERN_RAID0: c_int = 1;
const PATTERN_OVERSTRIPED: c_int = 0x201;
/// Mode of files made by `llapi_file_create`.
const MODE: u32 = 0o644;

impl Striping<'_> {
    /// EINVAL: one of the numbers.
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

fn open(path: &CStr, flags: OFlags, mode: u32, striping: &Striping<'_>) -> Result<c_int> {
    let name = path.to_string_lossy();
    let value = striping.layout().and_then(|layout| lum::encode(&layout)).inspect_err(|e| {
        messages::say(messages::ERROR, Some(*e), &format!("error: invalid stripe options for '{name}'"));
    })?;
    open::open(path, flags, mode, &value, Onto::Any).map(open::give).inspect_err(|e| {
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
    // SAFETY: as C promises.
    Striping { size, offset, count, pattern, pool: unsafe { optional(pool) }, osts: &[] }
}

/// Opens a file, which may be made by it (`O_CREAT`), and gives it stripes if it has none; of a
/// directory sets the default. Returns the open file.
///
/// -EINVAL: a number that cannot be, a pool that is not there or empty. -EEXIST: it has stripes.
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

/// The same in a pool: `pool` or `fsname.pool`, null for none.
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
        open(unsafe { text(name)? }, OFlags::from_bits_retain(flags as u32), mode as u32, &striping)
    })
}

/// The same, said by a struct; with `lsp_is_specific` its list of OSTs is used and no others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_open_param(
    name: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
    param: *const StripeParam,
) -> c_int {
    or_minus_errno(|| {
        let (name, striping) = unsafe { (text(name)?, striping(param)?) };
        open(name, OFlags::from_bits_retain(flags as u32), mode, &striping)
    })
}

impl StripeParam {
    /// One without a size and a list.
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

/// A struct and its list, which is empty where it is not to be used. EINVAL: null, or a list
/// without a length.
///
/// # Safety
/// It is null or points to such a struct, with as many targets behind it as it says.
pub(super) unsafe fn with_list<'a>(param: *const StripeParam) -> Result<(&'a StripeParam, &'a [u32])> {
    // SAFETY: the caller's promise.
    let p = unsafe { shared(param)? };
    let count = usize::try_from(p.lsp_stripe_count).ok().filter(|n| (1..=STRIPES_MAX).contains(n));
    match (p.lsp_is_specific, count) {
        (false, _) => Ok((p, &[])),
        (true, None) => Err(Errno::EINVAL),
        // SAFETY: as many follow the struct, as C promises. The pointer is from the whole of it.
        (true, Some(count)) => Ok((p, unsafe { slice::from_raw_parts((&raw const (*param).lsp_osts).cast(), count) })),
    }
}

/// What a struct says of a file. Errors and safety: [`with_list`].
pub(super) unsafe fn striping<'a>(param: *const StripeParam) -> Result<Striping<'a>> {
    // SAFETY: the caller's promise.
    let (p, osts) = unsafe { with_list(param)? };
    let (offset, pattern) = (p.lsp_stripe_offset, p.lsp_stripe_pattern);
    let striping = unsafe { striped(p.lsp_stripe_size, offset, p.lsp_stripe_count, pattern, p.lsp_pool) };
    Ok(Striping { osts, ..striping })
}

/// Whether files can have such stripes: 0, or -EINVAL, and says so on standard error.
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

/// Makes a file with stripes, or gives them to one that has none: mode 0644, `O_CREAT | O_WRONLY`,
/// and closed again. 0, or as [`llapi_file_open`].
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

/// The same in a pool.
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
        let made = open(unsafe { text(name)? }, OFlags::CREATE | OFlags::WRONLY, MODE, &striping)?;
        // SAFETY: it was opened for this call alone.
        unsafe { rustix::io::close(made) };
        Ok(0)
    })
}

/// Where `lmm_stripe_offset` lies in a plain layout.
const OFFSET_AT: usize = 30;

/// Stores the layout of a file, or the default of a directory, as `lustre.lov` has it (to 65,536
/// bytes: as many as it has stripes), with the first OST of a plain file as its
/// `lmm_stripe_offset`. 0, or an errno negated and in `errno`.
///
/// -ENOENT, -ENOTTY, -EINVAL; -ENODATA: it has none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_get_stripe(path: *const c_char, value: *mut c_void) -> c_int {
    or_minus_errno(|| {
        let path = unsafe { text(path)? };
        if value.is_null() {
            return Err(Errno::EINVAL);
        }
        let mut found = sys::layout(At::Path(path))?.ok_or(Errno::ENODATA)?;
        let layout = lum::decode(&found, false)?;
        let first = layout.current().ost(0).ok().and_then(|ost| u16::try_from(ost).ok());
        if let (false, Some(first), Some(field)) = (layout.composite, first, found.get_mut(OFFSET_AT..OFFSET_AT + 2)) {
            field.copy_from_slice(&first.to_le_bytes());
        }
        // SAFETY: C promises room for a layout, as its documentation asks for.
        unsafe { ptr::copy_nonoverlapping(found.as_ptr(), value.cast(), found.len()) };
        Ok(0)
    })
}

/// The index of the MDT that holds an open file. 0, or an errno negated: -ENOTTY, -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_file_fget_mdtidx(fd: c_int, index: *mut c_int) -> c_int {
    or_minus_errno(|| unsafe { put(index, sys::mdt(At::File(file(fd)?))?) }.map(|()| 0))
}

/// Names of bits of `lmm_pattern`.
const PATTERNS: [(u32, &str); 5] =
    [(1, "raid0"), (0x100, "mdt"), (0x200, "overstriped"), (0x400, "foreign"), (0x8000_0000, "released")];

/// Writes the names of a pattern's bits with commas between, and returns where. Null with
/// EOVERFLOW: they do not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_lov_pattern_string(pattern: u32, buffer: *mut c_char, room: usize) -> *mut c_char {
    crate::border::or_null(|| {
        let names: Vec<&str> = PATTERNS.iter().filter(|(bit, _)| pattern & bit != 0).map(|(_, name)| *name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        unsafe { crate::border::put_text(buffer, room, names.as_bytes(), Errno::EOVERFLOW) }.map(|()| buffer)
    })
}

/// Reads what [`llapi_lov_pattern_string`] writes. -EINVAL: a name of nothing.
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
    fn the_older_numbers_mean_what_they_meant() {
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
    fn a_list_of_osts_is_taken_as_it_is() {
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
