//! `llapi_layout_*_get` and `_set`: what the current component, or the layout as a whole, says.
//! They return 0, or -1 with `errno`.

use std::ffi::{c_char, c_int};

use sheen_wire::Errno;

use crate::{
    border::{exclusive, or_else, or_minus_one, put, put_text, shared, text},
    layout::{self, Layout, MIRRORS_MAX, flag},
    lum,
};

/// Stripes: a number, `LLAPI_LAYOUT_DEFAULT`, or from `LLAPI_LAYOUT_WIDE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_count_get(layout: *const Layout, count: *mut u64) -> c_int {
    or_minus_one(|| unsafe { put(count, shared(layout)?.current().stripe_count) }.map(|()| 0))
}

/// Sets it. EINVAL: 0, more than 2,000, or none of the special values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_count_set(layout: *mut Layout, count: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_stripe_count(count).map(|()| 0))
}

/// Whether [`llapi_layout_stripe_count_set`] would take it.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_stripe_count_is_valid(count: i64) -> bool {
    layout::is_stripe_count(count as u64)
}

/// Bytes of a stripe, or `LLAPI_LAYOUT_DEFAULT`. EINVAL: extension space, which has none.
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

/// Sets it. EINVAL: not a multiple of 64 KiB below 4 GiB, or extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_stripe_size_set(layout: *mut Layout, size: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_stripe_size(size).map(|()| 0))
}

/// Bytes by which the component before it grows. EINVAL: no extension space.
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

/// Sets it. EINVAL: not a multiple of 64 KiB, or no extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_extension_size_set(layout: *mut Layout, size: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_extension_size(size).map(|()| 0))
}

/// `LLAPI_LAYOUT_RAID0`, `_MDT`, `_OVERSTRIPING` or `_DEFAULT`; the bits of any other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pattern_get(layout: *const Layout, pattern: *mut u64) -> c_int {
    or_minus_one(|| unsafe { put(pattern, shared(layout)?.current().pattern) }.map(|()| 0))
}

/// Sets it. EOPNOTSUPP: none of those.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pattern_set(layout: *mut Layout, pattern: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.current_mut().set_pattern(pattern).map(|()| 0))
}

/// From the interface's number to `lmm_pattern`'s bits.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_pattern_to_lov(pattern: u64) -> u32 {
    lum::pattern_to(pattern)
}

/// The OST of a stripe. EINVAL: there is no such stripe, or no OST was chosen for it yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_ost_index_get(layout: *const Layout, stripe: u64, ost: *mut u64) -> c_int {
    or_minus_one(|| unsafe { put(ost, shared(layout)?.current().ost(stripe)?) }.map(|()| 0))
}

/// Chooses it: that of stripe 0 alone is where to begin; with others they are a list.
/// `LLAPI_LAYOUT_DEFAULT` for stripe 0 forgets all.
///
/// EINVAL: a stripe that cannot be, an index past the largest, `LLAPI_LAYOUT_DEFAULT` for another
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

/// The pool's name, empty where there is none. EINVAL: it does not fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pool_name_get(layout: *const Layout, name: *mut c_char, room: usize) -> c_int {
    or_minus_one(|| unsafe { put_text(name, room, &shared(layout)?.current().pool, Errno::EINVAL) }.map(|()| 0))
}

/// Sets it; of `fsname.pool` the last part. EINVAL: longer than 15, or of other signs than letters,
/// digits, `-` and `_`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_pool_name_set(layout: *mut Layout, name: *const c_char) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)?.current_mut().set_pool(text(name)?.to_bytes()) }.map(|()| 0))
}

/// First byte and byte after the last.
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

/// Sets them; `LUSTRE_EOF` is no end. The layout is composite then. EINVAL: backwards, or a gap
/// after the component before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_extent_set(layout: *mut Layout, start: u64, end: u64) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.set_extent(start, end).map(|()| 0))
}

/// `LCME_FL_…`
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_flags_get(layout: *const Layout, flags: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(flags, shared(layout)?.current().flags) }.map(|()| 0))
}

/// Sets these besides those that are set. EINVAL: there are none such.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_flags_set(layout: *mut Layout, flags: u32) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.current_mut().flags |= known(flags)?;
        Ok(0)
    })
}

/// Clears these. EINVAL: there are none such.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_flags_clear(layout: *mut Layout, flags: u32) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.current_mut().flags &= !known(flags)?;
        Ok(0)
    })
}

fn known(flags: u32) -> Result<u32, Errno> {
    if flags & !flag::KNOWN != 0 { Err(Errno::EINVAL) } else { Ok(flags) }
}

/// The component's number, unique in its file; 0 before it has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_id_get(layout: *const Layout, id: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(id, shared(layout)?.current().id) }.map(|()| 0))
}

/// The number of its mirror, 0 in a file without mirrors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_id_get(layout: *const Layout, id: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(id, shared(layout)?.current().mirror_id()) }.map(|()| 0))
}

/// Mirrors of the file, from 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_count_get(layout: *const Layout, count: *mut u16) -> c_int {
    or_minus_one(|| unsafe { put(count, shared(layout)?.mirror_count) }.map(|()| 0))
}

/// Sets it. EINVAL: 0, or more than 16.
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

/// `LCM_FL_…`, the state of the mirrors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_flags_get(layout: *const Layout, flags: *mut u32) -> c_int {
    or_minus_one(|| unsafe { put(flags, u32::from(shared(layout)?.flags)) }.map(|()| 0))
}

/// Sets it. EINVAL: more than 16 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_flags_set(layout: *mut Layout, flags: u32) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.flags = u16::try_from(flags).map_err(|_| Errno::EINVAL)?;
        Ok(0)
    })
}

/// Whether it has components by name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_is_composite(layout: *const Layout) -> bool {
    or_else(false, || Ok(unsafe { shared(layout)? }.composite))
}

/// The bytes of a file that are in the MDT: where a first component there ends, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_dom_size(layout: *const Layout, size: *mut u64) -> c_int {
    or_minus_one(|| {
        let first = unsafe { shared(layout)? }.components().first().ok_or(Errno::EINVAL)?;
        unsafe { put(size, if first.pattern == layout::MDT { first.end } else { 0 }) }.map(|()| 0)
    })
}
