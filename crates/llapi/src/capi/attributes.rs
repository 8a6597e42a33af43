//! `llapi_layout_*_get` and `_set`: attributes of the current component, or of the whole layout.
//! They return 0, or -1 with `errno`.

use std::ffi::{c_char, c_int};

use sheen_layout::{MIRRORS_MAX, flags};
use sheen_wire::Errno;

use crate::{
    ffi::{exclusive, or_else, or_minus_one, put, put_text, shared, text},
    layout::{self, Layout},
    xattr,
};

/// Stores the stripe count: a number, `LLAPI_LAYOUT_DEFAULT`, or `LLAPI_LAYOUT_WIDE` and above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_count_get(layout: *const Layout, count: *mut u64) -> c_int {
    or_minus_one(|| unsafe { put(count, shared(layout)?.current().stripe_count) }.map(|()| 0))
}

/// Sets the stripe count. EINVAL: 0, more than 2,000, or none of the special values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_count_set(layout: *mut Layout, count: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_stripe_count(count).map(|()| 0))
}

/// Returns whether [`llapi_layout_stripe_count_set`] would accept this count.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_stripe_count_is_valid(count: i64) -> bool {
    layout::is_stripe_count(count as u64)
}

/// Stores the stripe size in bytes, or `LLAPI_LAYOUT_DEFAULT`. EINVAL: extension space, which has
/// none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_size_get(layout: *const Layout, size: *mut u64) -> c_int {
    or_minus_one(|| {
        let c = unsafe { shared(layout)? }.current();
        if c.is_extension() {
            return Err(Errno::EINVAL);
        }
        unsafe { put(size, c.stripe_size) }.map(|()| 0)
    })
}

/// Sets the stripe size. EINVAL: not a multiple of 64 KiB below 4 GiB, or extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_size_set(layout: *mut Layout, size: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_stripe_size(size).map(|()| 0))
}

/// Stores the bytes by which the component before it grows at a time. EINVAL: no extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_extension_size_get(layout: *const Layout, size: *mut u64) -> c_int {
    or_minus_one(|| {
        let c = unsafe { shared(layout)? }.current();
        if !c.is_extension() {
            return Err(Errno::EINVAL);
        }
        unsafe { put(size, c.stripe_size) }.map(|()| 0)
    })
}

/// Sets the extension size. EINVAL: not a multiple of 64 KiB, or no extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_extension_size_set(layout: *mut Layout, size: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_extension_size(size).map(|()| 0))
}

/// Stores `LLAPI_LAYOUT_RAID0`, `_MDT`, `_OVERSTRIPING` or `_DEFAULT`, or the bits of any other
/// pattern.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pattern_get(layout: *const Layout, pattern: *mut u64) -> c_int {
    or_minus_one(|| unsafe { put(pattern, shared(layout)?.current().pattern) }.map(|()| 0))
}

/// Sets the pattern. EOPNOTSUPP: none of those four.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pattern_set(layout: *mut Layout, pattern: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_pattern(pattern).map(|()| 0))
}

/// Converts the interface's number of a pattern to bits of `lmm_pattern`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_pattern_to_lov(pattern: u64) -> u32 {
    xattr::pattern_to(pattern).0
}

/// Stores the OST of a stripe. EINVAL: no such stripe, or no OST is set for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_ost_index_get(layout: *const Layout, stripe: u64, ost: *mut u64) -> c_int {
    or_minus_one(|| unsafe { put(ost, shared(layout)?.current().ost(stripe)?) }.map(|()| 0))
}

/// Sets the OST of a stripe. If only stripe 0 has an OST, the stripes start there; with others the
/// OSTs are a list. `LLAPI_LAYOUT_DEFAULT` for stripe 0 clears them all.
///
/// EINVAL: an impossible stripe, an index above the largest, or `LLAPI_LAYOUT_DEFAULT` for another
/// stripe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_ost_index_set(layout: *mut Layout, stripe: c_int, ost: u64) -> c_int {
    or_minus_one(|| {
        let stripe = usize::try_from(stripe).map_err(|_| Errno::EINVAL)?;
        unsafe { exclusive(layout)? }.current_mut().set_ost(stripe, ost).map(|()| 0)
    })
}

/// Leaves the OSTs of all components to the file system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_ost_index_reset(layout: *mut Layout) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.components_mut().iter_mut().for_each(|c| c.reset_osts());
        Ok(0)
    })
}

/// Stores the pool's name, empty if there is none. EINVAL: it does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pool_name_get(layout: *const Layout, name: *mut c_char, room: usize) -> c_int {
    or_minus_one(|| unsafe { put_text(name, room, &shared(layout)?.current().pool, Errno::EINVAL) }.map(|()| 0))
}

/// Sets the pool, from `pool` or `fsname.pool`. EINVAL: longer than 15 bytes, or with characters
/// other than letters, digits, `-` and `_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pool_name_set(layout: *mut Layout, name: *const c_char) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)?.current_mut().set_pool(text(name)?.to_bytes()) }.map(|()| 0))
}

/// Stores the first byte, and the byte after the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_extent_get(layout: *const Layout, start: *mut u64, end: *mut u64) -> c_int {
    or_minus_one(|| {
        let c = unsafe { shared(layout)? }.current();
        if end.is_null() {
            return Err(Errno::EINVAL);
        }
        unsafe { put(start, c.start).and_then(|()| put(end, c.end)) }.map(|()| 0)
    })
}

/// Sets start and end; `LUSTRE_EOF` means no end. This makes the layout composite. EINVAL: the end
/// is before the start, or there is a gap after the component before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_extent_set(layout: *mut Layout, start: u64, end: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.set_extent(start, end).map(|()| 0))
}

/// Stores the flags, `LCME_FL_…`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_flags_get(layout: *const Layout, flags: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(flags, shared(layout)?.current().flags) }.map(|()| 0))
}

/// Sets these flags in addition to the present ones. EINVAL: unknown flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_flags_set(layout: *mut Layout, flags: u32) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.current_mut().flags |= known(flags)?;
        Ok(0)
    })
}

/// Clears these flags. EINVAL: unknown flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_flags_clear(layout: *mut Layout, flags: u32) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.current_mut().flags &= !known(flags)?;
        Ok(0)
    })
}

fn known(flags: u32) -> Result<u32, Errno> {
    if flags & !flags::KNOWN != 0 { Err(Errno::EINVAL) } else { Ok(flags) }
}

/// Stores the component's id, unique in its file; 0 before it is assigned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_id_get(layout: *const Layout, id: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(id, shared(layout)?.current().id) }.map(|()| 0))
}

/// Stores the id of its mirror, 0 in a file without mirrors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_id_get(layout: *const Layout, id: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(id, shared(layout)?.current().mirror_id()) }.map(|()| 0))
}

/// Stores the number of mirrors of the file, at least 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_count_get(layout: *const Layout, count: *mut u16) -> c_int {
    or_minus_one(|| unsafe { put(count, shared(layout)?.mirror_count) }.map(|()| 0))
}

/// Sets the number of mirrors. EINVAL: 0, or more than 16.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_count_set(layout: *mut Layout, count: u16) -> c_int {
    or_minus_one(|| {
        let layout = unsafe { exclusive(layout)? };
        if count == 0 || count > MIRRORS_MAX {
            return Err(Errno::EINVAL);
        }
        layout.mirror_count = count;
        Ok(0)
    })
}

/// Stores the state of the mirrors, `LCM_FL_…`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_flags_get(layout: *const Layout, flags: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(flags, u32::from(shared(layout)?.flags)) }.map(|()| 0))
}

/// Sets the state of the mirrors. EINVAL: more than 16 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_flags_set(layout: *mut Layout, flags: u32) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.flags = u16::try_from(flags).map_err(|_| Errno::EINVAL)?;
        Ok(0)
    })
}

/// Returns whether it is composite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_is_composite(layout: *const Layout) -> bool {
    or_else(false, || Ok(unsafe { shared(layout)? }.composite))
}

/// Stores the number of bytes of a file on the MDT: the end of a first component there, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_dom_size(layout: *const Layout, size: *mut u64) -> c_int {
    or_minus_one(|| {
        let first = unsafe { shared(layout)? }.components().first().ok_or(Errno::EINVAL)?;
        unsafe { put(size, if first.pattern == layout::MDT { first.end } else { 0 }) }.map(|()| 0)
    })
}
